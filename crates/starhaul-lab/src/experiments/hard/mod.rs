//! The demo over hard links: text, audio and video beside a bulk download, over a LEO link that pauses and changes its capacity many
//! times over, and a slow GEO link, both of which lose 1 %. Beside it multipath QUIC, and an oracle that knows the links' future.

mod causes;
mod departures;
mod links;
mod runs;

use starhaul_demo::{baseline::Controller, load::Class};
use starhaul_plot::{Bound, Column};
use starhaul_session::SchedulerChoice;

pub use self::{causes::LostBlock, runs::HardResult};
use crate::{
    Error,
    kit::{Part, Records, Study, Target},
    worlds::stack::mpquic_name,
};

/// Links of a run, and with `--quick`.
const LINKS: usize = 20;
const FEW: usize = 2;

/// `starhaul lab hard`.
pub fn study() -> Study {
    Study::new(
        "hard",
        "",
        "the demo over hard links, beside an oracle",
        "Text, audio and video over hard links",
        "Text, audio, video and a bulk download over two links for two minutes, in virtual time with the whole stack. The LEO link pauses a \
         dozen times for 50 to 950 ms, and each pause changes its capacity, between 4 and 110 Mbit/s; the GEO link has 10 Mbit/s and 300 ms \
         one way. Both lose 1 %. The oracle sends the same blocks, without the download, knowing capacity and losses of both links ahead of time.",
    )
    .part(
        Part::with_sessions(
            "classes",
            "",
            "blocks on time by class, on each pair of links",
            columns,
            |quick, seed| setups(&System::ALL, quick, seed),
            |setup: &HardSetup, records| Ok(vec![(*setup, setup.run(records)?)]),
        )
        .target(TEXT)
        .target(AUDIO)
        .target(VIDEO),
    )
    .part(Part::with_sessions(
        "lost",
        "",
        "each of our blocks that was late, and what was decided about it",
        lost_columns,
        |quick, seed| setups(&System::OURS, quick, seed),
        |setup: &HardSetup, records| {
            let lost = setup.run(records)?.lost;
            Ok(lost.into_iter().map(|block| (*setup, block)).collect())
        },
    ))
}

/// Of all blocks of a class so many may fail, over all links together.
const TEXT: Target = Target {
    of: &["system"],
    by: "text_blocks",
    figure: "text_failed",
    bound: |system, row| few(system, row.of("text_blocks")?, 0.0005),
    together: false,
};
const AUDIO: Target = Target {
    by: "audio_blocks",
    figure: "audio_failed",
    bound: |system, row| few(system, row.of("audio_blocks")?, 0.0005),
    ..TEXT
};
const VIDEO: Target = Target {
    by: "video_blocks",
    figure: "video_failed",
    bound: |system, row| few(system, row.of("video_blocks")?, 0.001),
    ..TEXT
};

/// This share of the blocks of ours, and none of the oracle, which shows that all fit in time.
fn few(system: &str, blocks: f64, share: f64) -> Option<Bound> {
    if system == System::Oracle.name() {
        return Some(Bound::AtMost(0.0));
    }
    let is_ours = System::OURS.iter().any(|ours| ours.name() == system);
    is_ours.then_some(Bound::AtMost(blocks * share))
}

/// The system that carries the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Starhaul, with this scheduler.
    Starhaul(SchedulerChoice),
    /// Multipath QUIC, a connection per class and one for the download.
    MpQuic(Controller),
    /// Knows the future.
    Oracle,
}

impl System {
    const OURS: [Self; 2] = [
        Self::Starhaul(SchedulerChoice::Optimizer),
        Self::Starhaul(SchedulerChoice::Rules),
    ];
    const ALL: [Self; 6] = [
        Self::OURS[0],
        Self::OURS[1],
        Self::MpQuic(Controller::NewReno),
        Self::MpQuic(Controller::Cubic),
        Self::MpQuic(Controller::Bbr),
        Self::Oracle,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Starhaul(scheduler) => scheduler.name(),
            Self::MpQuic(controller) => mpquic_name(controller),
            Self::Oracle => "oracle",
        }
    }
}

/// One system over one pair of links.
#[derive(Clone, Copy, Debug)]
pub struct HardSetup {
    /// The system that carries the blocks.
    pub system: System,
    /// Number of the pair of links.
    pub link: u64,
    /// Seed of everything random.
    pub seed: u64,
}

impl HardSetup {
    /// Runs it.
    ///
    /// # Errors
    /// A session does not come up, or a byte of the download is not the one that was sent.
    pub fn run(&self, records: &Records) -> Result<HardResult, Error> {
        match self.system {
            System::Starhaul(scheduler) => runs::starhaul(self, scheduler, records),
            System::MpQuic(controller) => runs::mpquic(self, controller),
            System::Oracle => runs::oracle(self),
        }
    }
}

/// These systems over the links of a seed: 20 pairs, two if quick. Each seed has links of its own, so that what was tuned on some can be judged on
/// others. Those of seed 1 begin at 0, and those of seed 0 end before it, around the greatest number.
pub fn setups(systems: &[System], quick: bool, seed: u64) -> Vec<HardSetup> {
    let first = seed.wrapping_sub(1).wrapping_mul(LINKS as u64);
    let links = (0..if quick { FEW } else { LINKS }).map(|link| first.wrapping_add(link as u64));
    let on = |link| {
        let setup = move |system: &System| HardSetup {
            system: *system,
            link,
            seed,
        };
        systems.iter().map(setup)
    };
    links.flat_map(on).collect()
}

/// The table of such runs.
fn columns() -> Vec<Column<(HardSetup, HardResult)>> {
    type Row = (HardSetup, HardResult);
    let share = |key, name, class| {
        let share = move |(_, result): &Row| result.classes.of(class).on_time_share().into();
        Column::share(key, name, 3, share).median()
    };
    let sent = |key, name, class| {
        let sent = move |(_, result): &Row| result.classes.of(class).sent.into();
        Column::count(key, name, sent).total()
    };
    let failed = |key, name, class| {
        let failed = move |(_, result): &Row| {
            let score = result.classes.of(class);
            (score.sent - score.on_time).into()
        };
        Column::count(key, name, failed).total()
    };
    vec![
        Column::name("system", "system", |(setup, _): &Row| {
            setup.system.name().into()
        }),
        Column::count("link", "link", |(setup, _): &Row| setup.link.into()).dropped(),
        Column::count("seed", "seed", |(setup, _): &Row| setup.seed.into()).dropped(),
        sent("text_blocks", "texts", Class::Text),
        sent("audio_blocks", "audios", Class::Audio),
        sent("video_blocks", "videos", Class::Video),
        share("text", "text", Class::Text),
        share("audio", "audio", Class::Audio),
        share("video", "video", Class::Video),
        failed("text_failed", "text failed", Class::Text),
        failed("audio_failed", "audio failed", Class::Audio),
        failed("video_failed", "video failed", Class::Video),
        Column::number(
            "download_mbps",
            "download",
            "Mbit/s",
            1,
            |(_, result): &Row| result.download.map(|rate| rate.mbit()).into(),
        )
        .median(),
    ]
}

/// The table of blocks that failed.
fn lost_columns() -> Vec<Column<(HardSetup, LostBlock)>> {
    type Row = (HardSetup, LostBlock);
    vec![
        Column::name("system", "system", |(setup, _): &Row| {
            setup.system.name().into()
        }),
        Column::count("link", "link", |(setup, _): &Row| setup.link.into()),
        Column::count("seed", "seed", |(setup, _): &Row| setup.seed.into()),
        Column::name("class", "class", |(_, lost): &Row| lost.class.name().into()),
        Column::number("sent_s", "sent at", "s", 2, |(_, lost): &Row| {
            lost.queued_at.as_secs_f64().into()
        }),
        Column::name("outcome", "outcome", |(_, lost): &Row| {
            lost.outcome().into()
        }),
        Column::name("lost_by", "lost by", |(_, lost): &Row| {
            lost.lost_by().into()
        }),
        Column::name("decisions", "decisions", |(_, lost): &Row| {
            lost.decisions().into()
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_seed_has_links_of_its_own() {
        let links = |seed| -> Vec<u64> {
            let setups = setups(&[System::Oracle], false, seed);
            setups.iter().map(|setup| setup.link).collect()
        };
        assert_eq!(links(1), (0..20).collect::<Vec<_>>());
        assert_eq!(links(3), (40..60).collect::<Vec<_>>());
        let mut all: Vec<u64> = (0..10).chain([u64::MAX]).flat_map(links).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        for link in links(0) {
            assert!(links::pair(link, std::time::Duration::from_secs(20)).is_ok());
        }
    }
}
