//! The chain of figure 12 in real time: a server, relays and a requester as processes in a network namespace each, and the
//! kernel's TCP from end to end over the same links.

mod folder;
mod kernel;
mod messages;
mod own;
mod transfers;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use starhaul_link::{Delay, LinkSpec, Loss, Rate};
use starhaul_plot::{Goal, Table};
use starhaul_replay::ReplayLink;
use starhaul_units::Bandwidth;

use crate::{
    Error,
    kit::{
        self, Context, Found, Progress,
        judged::Judged,
        parallel::span,
        repeats::{Runs, plural},
        report::{Results, Rows},
    },
    realtime::{Bench, Measured, OVERHEAD, Sender as _},
    systems::kernel::Kernel,
};

const HOPS: u16 = 5;
const LINK: &str = "rate=20mbit,delay=10ms,loss=1%,queue=200p";
const QUICK_SECONDS: u32 = 5;
const SECONDS: u32 = 30;
/// Time for the programs of a chain to start and to end, about.
const CHAIN_OVERHEAD: Duration = Duration::from_millis(2500);
/// A relay that is away for so long leaves the requester with timers that have grown.
const AWAY: Duration = Duration::from_secs(3);
/// The kernel's controllers beside LEOTP.
const KERNEL: [&str; 2] = ["bbr", "cubic"];

// Without a description, which would replace that of the command.
#[derive(clap::Args)]
pub(super) struct Options {
    /// In real time: relays as processes in network namespaces over emulated links, beside the kernel's TCP from end to end. Needs
    /// what replay needs, and iperf3 for the kernel's. With --check transfers have 95 % of the ceiling in the median, and no interruption by a
    /// relay that is killed and started again of more than two round trips of the path and 100 ms beside the time that it is away; 99 % of the messages are answered within the
    /// round trip of the path and two more of a hop
    #[arg(long, conflicts_with_all = ["only", "systems"])]
    pub(super) real: bool,
    /// Hops of the chain, between which there are relays; without --real of delay, bytes and hop-loss [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=20))]
    pub(super) hops: Option<u16>,
    /// Each link of the chain in the direction of the data, as replay takes it, with --real of a constant rate; the way back is the same without
    /// loss. Without --real of delay, bytes and hop-loss, which then have this loss alone [default with --real:
    /// rate=20mbit,delay=10ms,loss=1%,queue=200p]
    #[arg(long, value_name = "SPEC")]
    pub(super) link: Option<String>,
    /// Without --real: paths of constellation and ablation, as orbit paths writes them; repeat it for several
    #[arg(long, value_name = "FILE.json", conflicts_with = "real")]
    pub(super) path: Vec<PathBuf>,
    /// With --real: messages that are answered, one after the other, by gateways at both ends, in place of transfers. Links lose
    /// packets in both directions
    #[arg(long, requires = "real")]
    messages: bool,
    /// With --real: the length of a run [default: 30, with --quick 5]
    #[arg(long, value_name = "N", requires = "real", value_parser = clap::value_parser!(u32).range(2..=3600))]
    seconds: Option<u32>,
}

/// The runs as asked for, before they begin.
pub(super) struct RealPlan {
    what: What,
    chain: Hops,
    systems: Vec<System>,
    runs: u32,
    seed: u64,
    /// Whether the results are compared with goals.
    checks: bool,
    skipped: Vec<String>,
}

/// The name of LEOTP in tables.
const LEOTP: &str = "leotp";

/// What goes over the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Transfers,
    Messages,
}

/// Equal links in a row.
#[derive(Clone, Debug)]
struct Hops {
    count: usize,
    /// The links as the command line gives them.
    text: String,
    /// The link of the data.
    forward: LinkSpec,
    rate: Bandwidth,
    seconds: u32,
}

/// The protocol that carries the data.
#[derive(Clone, Debug)]
enum System {
    /// Our programs; one of the relays may be killed and started again on the way.
    Leotp { killed: Option<Killed> },
    /// TCP from end to end.
    Kernel(Kernel),
}

/// The relay that is killed after half of the time, and started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    /// In the middle of the chain, for as long as it takes to start it.
    Middle,
    /// Beside the requester, for [`AWAY`].
    First,
}

impl Killed {
    /// How long the relay is away before it is started.
    const fn away(self) -> Duration {
        match self {
            Self::Middle => Duration::ZERO,
            Self::First => AWAY,
        }
    }
}

/// Figures of a transfer.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    /// Payload in order.
    goodput_mbps: f64,
    /// The longest time between two arrivals of payload in order.
    longest_pause_ms: Option<f64>,
}

impl Hops {
    fn new(options: &Options, quick: bool) -> Result<Self, Error> {
        let text = options.link.as_deref().unwrap_or(LINK);
        let forward: LinkSpec = text
            .parse()
            .map_err(|error| Error::Settings(format!("--link {text}: {error}")))?;
        let rate = match forward.rate {
            Rate::Constant(rate) if rate != Bandwidth::MAX && rate != Bandwidth::ZERO => rate,
            _ => {
                return Err(Error::Settings(format!(
                    "--link {text}: what a run gets is compared with a constant rate: write rate=20mbit"
                )));
            }
        };
        let usual = if quick { QUICK_SECONDS } else { SECONDS };
        Ok(Self {
            count: options.hops.unwrap_or(HOPS).into(),
            text: text.to_owned(),
            forward,
            rate,
            seconds: options.seconds.unwrap_or(usual),
        })
    }

    /// Links from the requester to the server.
    fn links(&self, seed: u64) -> Vec<ReplayLink> {
        let back = self.forward.clone().with_loss(Loss::NONE);
        let link = |number| {
            let (up, down) = (back.clone(), self.forward.clone());
            ReplayLink::new(format!("hop{}", number + 1), up, down, seed, number)
        };
        (0..self.count).map(link).collect()
    }

    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    /// The round trip over this many more hops than the path has, without the time of a queue or program, if it is the same all the time.
    fn round_trip(&self, more: usize) -> Option<Duration> {
        let Delay::Constant(delay) = self.forward.delay else {
            return None;
        };
        let hops = u32::try_from(self.count.saturating_add(more)).ok()?;
        delay.checked_mul(2)?.checked_mul(hops)
    }
}

impl System {
    fn name(&self) -> String {
        match self {
            Self::Leotp { .. } => LEOTP.to_owned(),
            Self::Kernel(kernel) => kernel.name(),
        }
    }

    const fn restarts(&self) -> u64 {
        match self {
            Self::Leotp { killed: Some(_) } => 1,
            _ => 0,
        }
    }

    /// How long a relay is away.
    const fn away(&self) -> Duration {
        match self {
            Self::Leotp {
                killed: Some(killed),
            } => killed.away(),
            _ => Duration::ZERO,
        }
    }
}

impl RealPlan {
    /// The runs that were asked for; `checks` tells whether their figures are compared with the goals.
    pub(super) fn new(
        options: &Options,
        quick: bool,
        runs: u32,
        seed: u64,
        checks: bool,
    ) -> Result<Self, Error> {
        if checks && quick {
            return Err(Error::Settings(
                "--check: the goals are for runs of 30 s, of which the start is a small part: leave out --quick".to_owned(),
            ));
        }
        let (what, killed) = match options.messages {
            true => (What::Messages, [None].as_slice()),
            false => (
                What::Transfers,
                [None, Some(Killed::Middle), Some(Killed::First)].as_slice(),
            ),
        };
        let leotp = |killed: &Option<Killed>| System::Leotp { killed: *killed };
        let mut systems: Vec<System> = killed.iter().map(leotp).collect();
        let mut skipped = Vec::new();
        for kernel in KERNEL.map(|name| Kernel(name.to_owned())) {
            let missing = match what {
                What::Transfers => kernel.missing(),
                What::Messages => kernel.unknown(),
            };
            match missing {
                None => systems.push(System::Kernel(kernel)),
                Some(why) => skipped.push(why),
            }
        }
        let chain = Hops::new(options, quick)?;
        if checks && chain.round_trip(0).is_none() {
            let text = &chain.text;
            return Err(Error::Settings(format!(
                "--link {text}: what is late follows from a constant delay, with which --check compares: write delay=10ms"
            )));
        }
        Ok(Self {
            what,
            chain,
            systems,
            runs,
            seed,
            checks,
            skipped,
        })
    }

    /// Runs one after the other; `add` is called for each that counts, in the order of the systems, `progress` after each.
    fn measure<M: Clone>(
        &self,
        mut run: impl FnMut(&System, u64) -> Result<Measured<M>, Error>,
        mut add: impl FnMut(&System, u64, M),
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<String>, Error> {
        let began = Instant::now();
        let mut notes = self.skipped.clone();
        let (mut done, all) = (0.0, self.systems.len() as f64 * f64::from(self.runs));
        for system in &self.systems {
            let seeds = (0..self.runs).map(|run| self.seed.wrapping_add(run.into()));
            let runs = Runs::of(seeds, |seed| {
                let measured = run(system, seed)?;
                // Late ones are made again.
                if measured.valid {
                    done += 1.0;
                    let (done, elapsed) = (done / all, began.elapsed());
                    progress(Progress { done, elapsed });
                }
                Ok(measured)
            })?;
            let what = format!("{} over {} hops", system.name(), self.chain.count);
            notes.extend(runs.missing(&what));
            notes.extend(runs.not_counted(&what));
            for (seed, figures) in runs.valid {
                add(system, seed, figures);
            }
        }
        Ok(notes)
    }

    /// The table of what this plan measures, the goals beside it, and what there is to say.
    fn table(
        &self,
        bench: &Bench,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Table, Vec<Goal>, Vec<String>), Error> {
        match self.what {
            What::Transfers => {
                let mut rows = Vec::new();
                let notes = self.measure(
                    |system, seed| transfers::run(bench, &self.chain, seed, system),
                    |system, seed, figures| {
                        rows.push(transfers::Row::new(&self.chain, system, seed, figures));
                    },
                    progress,
                )?;
                let goals = transfers::goals(&self.chain, &rows);
                Ok((Table::of(&transfers::columns(), &rows), goals, notes))
            }
            What::Messages => {
                let mut rows = Vec::new();
                let notes = self.measure(
                    |system, seed| messages::run(bench, &self.chain, seed, system),
                    |system, seed, answered| {
                        rows.push(messages::Row::new(&self.chain, system, seed, answered));
                    },
                    progress,
                )?;
                let goals = messages::goals(&self.chain, &rows);
                Ok((Table::of(&messages::columns(), &rows), goals, notes))
            }
        }
    }
}

impl kit::Plan for RealPlan {
    fn skipped(&self) -> &[String] {
        &self.skipped
    }

    fn describe(&self) -> String {
        let names: Vec<String> = self.systems.iter().map(System::name).collect();
        let all = u32::try_from(self.systems.len()).unwrap_or(u32::MAX);
        let once = self.chain.time() + OVERHEAD + CHAIN_OVERHEAD;
        let away: Duration = self.systems.iter().map(System::away).sum();
        format!(
            "{} over {} hops of {}, {} of each: {} in real time, one run at a time",
            names.join(", "),
            self.chain.count,
            self.chain.text,
            plural(self.runs),
            span((once * all + away).saturating_mul(self.runs).as_secs_f64()),
        )
    }

    fn run(
        &self,
        context: &Context<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Found>, Error> {
        let bench = (context.bench)()?;
        let (table, goals, notes) = self.table(&bench, progress)?;
        let (title, what, part) = match self.what {
            What::Transfers => ("Hop by hop in real time", transfers::WHAT, transfers::PART),
            What::Messages => ("Messages hop by hop", messages::WHAT, messages::PART),
        };
        let (part, stands_for, shows) = part;
        let results = Results {
            experiment: "leotp",
            title,
            what,
            command: context.command.to_owned(),
            seed: self.seed,
            notes,
            has_parts: true,
            rows: vec![Rows {
                part,
                stands_for,
                shows,
                table,
                plots: Vec::new(),
            }],
        };
        let goals = self.checks.then_some(goals);
        Ok(Box::new(Judged { results, goals }))
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;
    use crate::kit::Plan as _;

    fn options(arguments: &[&str]) -> Options {
        let command = Options::augment_args(clap::Command::new("leotp"))
            .arg(clap::Arg::new("only").long("only"))
            .arg(clap::Arg::new("systems").long("systems"));
        let arguments = ["leotp", "--real"].iter().chain(arguments);
        let matches = command.try_get_matches_from(arguments).unwrap();
        Options::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn a_link_without_a_constant_rate_is_refused() {
        for link in ["delay=10ms", "rate=0mbit", "rat=5mbit"] {
            let error = RealPlan::new(&options(&["--link", link]), true, 1, 1, false).err();
            let said = error.unwrap().to_string();
            assert!(said.contains("--link"), "{said}");
        }
    }

    #[test]
    fn goals_are_for_whole_runs_over_links_of_one_delay() {
        let plan = |arguments: &[&str], quick, checks| {
            RealPlan::new(&options(arguments), quick, 1, 1, checks)
        };
        assert!(plan(&[], false, true).is_ok_and(|plan| plan.checks));
        assert!(plan(&[], true, false).is_ok_and(|plan| !plan.checks));
        let quick = plan(&[], true, true).err();
        assert!(quick.unwrap().to_string().contains("--quick"));
        let plan = plan(&["--hops", "4"], false, true).unwrap();
        let trips = [0, 2].map(|more| plan.chain.round_trip(more).unwrap());
        assert_eq!(trips, [80, 120].map(Duration::from_millis));
    }

    #[test]
    fn messages_need_no_relay_that_restarts() {
        let plan =
            RealPlan::new(&options(&["--messages", "--hops", "4"]), true, 1, 1, false).unwrap();
        assert_eq!(plan.what, What::Messages);
        let leotp = plan
            .systems
            .iter()
            .filter(|system| system.name() == "leotp");
        assert_eq!(leotp.map(System::restarts).collect::<Vec<_>>(), [0]);
        assert!(
            plan.describe().contains("over 4 hops"),
            "{}",
            plan.describe()
        );
    }

    #[test]
    fn late_runs_count_in_no_row_and_are_told() {
        let plan = RealPlan::new(&options(&["--hops", "3"]), true, 2, 7, false).unwrap();
        assert!(
            plan.describe().contains("over 3 hops"),
            "{}",
            plan.describe()
        );
        let mut late = true;
        let run = |system: &System, _| {
            let metrics = system.name();
            let valid = !std::mem::take(&mut late);
            Ok(Measured { metrics, valid })
        };
        let mut counted = Vec::new();
        let add = |system: &System, seed, name: String| {
            assert_eq!(name, system.name());
            counted.push((name, seed));
        };
        let notes = plan.measure(run, add, &mut |_| {}).unwrap();
        assert_eq!(counted.len(), 2 * plan.systems.len());
        assert_eq!(
            counted[..2],
            [("leotp".to_owned(), 7), ("leotp".to_owned(), 8)]
        );
        assert!(
            notes.iter().any(|note| note.contains("1 run not counted")),
            "{notes:?}"
        );
    }
}
