//! Figures 4 and 5 in real time: our own stack and rivals that this computer has, one after the other over the same emulated links
//! between two network namespaces.

mod run;

use std::time::Duration;

use starhaul_demo::load::Class;
use starhaul_plot::{Column, Table};

use self::run::Figures;
use super::{
    BANDWIDTH_FACTORS, BY_BANDWIDTH, BY_LOSS, FEW_LOSSES, LOSSES, Names, Point, QUEUES, QoeSetup,
    SENDING, Sweep, by_bandwidth_plot, by_loss_plot, latency, on_time_share, sent, setup::DRAIN,
};
use crate::{
    Error,
    kit::{
        self, Context, Found, Plot, Progress,
        report::{Results, Rows},
    },
    systems::blocks::comparison::{Comparison, Repeats, Run, chosen},
};

const RUNS: u32 = 3;
/// Of a quick run: one point of each figure, at which all blocks can be in time, for so long.
const QUICK_FACTOR: f64 = 2.0;
const QUICK_LOSS: f64 = 0.05;
const QUICK_SENDING: Duration = Duration::from_secs(4);
const QUICK_SYSTEMS: [&str; 3] = ["starhaul", "mptcp", "mpquic"];
/// Run by name only: what the figures of DMTP compare, and rivals that use the long path where the short one is better.
const BESIDE: [&str; 5] = [
    "starhaul-none",
    "starhaul-retransmit",
    "starhaul-fec",
    "srt-dear",
    "mpquic-dear",
];
/// Time for a system to start and to end, about: SRT and RIST carry nothing before the first packet was held for nearly its deadline.
const OVERHEAD: Duration = Duration::from_secs(4);

/// What the command asks for.
pub(super) struct Asked<'a> {
    /// Names of systems, or of modes of ours; the usual ones if there are none.
    pub(super) systems: &'a [&'a str],
    /// Parts; both if there are none.
    pub(super) only: &'a [&'a str],
    pub(super) sweep: &'a Sweep,
    pub(super) at_once: u8,
    pub(super) quick: bool,
    /// Of each system at each point, if the command says it.
    pub(super) runs: Option<u32>,
    pub(super) seed: u64,
}

/// The runs as asked for, before they begin.
pub(super) struct RealPlan {
    comparison: Comparison,
    /// Each with what notes say of it.
    points: Vec<(String, PartPoint)>,
    sending: Duration,
}

/// A point of a part.
struct PartPoint {
    part: &'static str,
    queue: &'static str,
    /// With the seed of the first run.
    setup: QoeSetup,
}

/// A run of a system at a point.
struct Row {
    system: &'static str,
    mode: &'static str,
    scheduler: &'static str,
    part: &'static str,
    queue: &'static str,
    setup: QoeSetup,
    seed: u64,
    figures: Figures,
}

impl RealPlan {
    /// # Errors
    /// [`Error::Settings`] for a name that is no system's, and where none can run here.
    pub(super) fn new(asked: &Asked<'_>) -> Result<Self, Error> {
        let (quick, seed) = (asked.quick, asked.seed);
        let usual: &[&str] = if quick { &QUICK_SYSTEMS } else { &[] };
        let systems = match asked.systems {
            [] => usual,
            named => named,
        };
        let repeats = Repeats {
            runs: asked.runs.unwrap_or(if quick { 1 } else { RUNS }),
            at_once: asked.at_once,
            seed,
        };
        let sending = if quick { QUICK_SENDING } else { SENDING };
        let point = |(part, ((queue, name), bandwidth_factor, loss)): (&'static str, Point)| {
            let title = format!(
                " at {bandwidth_factor} × the load, {:.2} % loss and a queue of {name}",
                loss * 100.0
            );
            let setup = QoeSetup {
                bandwidth_factor,
                loss,
                queue,
                duration: sending,
                seed,
            };
            let queue = name;
            (title, PartPoint { part, queue, setup })
        };
        let wanted = points(asked.sweep, quick).into_iter();
        let only = asked.only;
        let streams = Class::ALL.len();
        let wanted = wanted.filter(|(part, _)| only.is_empty() || only.contains(part));
        Ok(Self {
            comparison: Comparison::new(chosen(systems, &BESIDE, streams)?, streams, repeats)?,
            points: wanted.map(point).collect(),
            sending,
        })
    }

    fn columns() -> Vec<Column<Row>> {
        let share = |key, name, class| {
            Column::share(key, name, 1, move |row: &Row| {
                row.figures.scores.of(class).on_time_share().into()
            })
            .median()
        };
        let latency = |key, name, share| {
            latency::<Row>(key, name, share, |row| row.figures.latencies_ms.as_slice())
        };
        let mut columns = vec![
            Column::name("system", "system", |row: &Row| row.system.into()),
            Column::name("mode", "mode", |row: &Row| row.mode.into()),
            Column::name("scheduler", "scheduler", |row: &Row| row.scheduler.into()),
            Column::name("queue", "queue", |row: &Row| row.queue.into()),
            Column::count("seed", "seed", |row: &Row| row.seed.into()).dropped(),
            Column::number("bandwidth", "bandwidth", "", 1, |row: &Row| {
                row.setup.bandwidth_factor.into()
            }),
            Column::share("loss", "loss", 2, |row: &Row| row.setup.loss.into()),
            Column::number("qoe", "QoE", "", 0, |row: &Row| {
                row.figures.scores.qoe().into()
            })
            .median(),
            Column::number("ideal", "ideal", "", 0, |row: &Row| {
                row.setup.ideal().into()
            })
            .median(),
            Column::share("on_time_share", "on time", 1, |row: &Row| {
                on_time_share(&row.figures.scores).into()
            })
            .median(),
            latency("latency_p50_ms", "median", 0.5),
            latency("latency_p99_ms", "p99", 0.99),
            share("text", "text", Class::Text),
            share("audio", "audio", Class::Audio),
            share("video", "video", Class::Video),
            Column::count("disturbed", "disturbed", |row: &Row| {
                row.figures.disturbed.into()
            })
            .median(),
        ];
        columns.extend(sent::columns(
            |row: &Row| Some(row.figures.link_bytes),
            |row: &Row| row.setup.offered_bytes(),
        ));
        columns
    }

    fn row(&self, run: Run<'_, Figures>) -> Option<Row> {
        let (_, point) = self.points.get(run.point)?;
        Some(Row {
            system: run.system.name(),
            mode: run.system.mode(),
            scheduler: run.system.scheduler(),
            part: point.part,
            queue: point.queue,
            setup: point.setup,
            seed: run.seed,
            figures: run.figures,
        })
    }
}

/// The points of each part by its name.
fn points(sweep: &Sweep, quick: bool) -> Vec<(&'static str, Point)> {
    let bandwidths = match quick && sweep.factors.is_empty() {
        true => vec![(QUEUES[1], QUICK_FACTOR, FEW_LOSSES)],
        false => sweep.by_bandwidth(&BANDWIDTH_FACTORS),
    };
    let usual: &[f64] = if quick { &[QUICK_LOSS] } else { &LOSSES };
    let bandwidths = bandwidths.into_iter().map(|point| (BY_BANDWIDTH.0, point));
    let losses = sweep.by_loss(usual).into_iter();
    let losses = losses.map(|point| (BY_LOSS.0, point));
    bandwidths.chain(losses).collect()
}

impl kit::Plan for RealPlan {
    fn skipped(&self) -> &[String] {
        self.comparison.skipped()
    }

    fn describe(&self) -> String {
        self.comparison
            .describe(self.points.len(), self.sending + DRAIN + OVERHEAD)
    }

    fn run(
        &self,
        context: &Context<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Found>, Error> {
        let (runs, notes) = self.comparison.run(
            &self.points,
            context,
            progress,
            |bench, system, point, seed| run::run(bench, system, &point.setup, seed),
        )?;
        let rows: Vec<Row> = runs.into_iter().filter_map(|run| self.row(run)).collect();
        let has_points = |part: &str| self.points.iter().any(|(_, point)| point.part == part);
        let of_part = |((part, stands_for, shows), plot): (Names, Plot)| Rows {
            part,
            stands_for,
            shows,
            table: Table::of(&Self::columns(), rows.iter().filter(|row| row.part == part)),
            plots: vec![plot],
        };
        let parts = [
            (BY_BANDWIDTH, by_bandwidth_plot()),
            (BY_LOSS, by_loss_plot()),
        ];
        let parts = parts.into_iter().filter(|(names, _)| has_points(names.0));
        Ok(Box::new(Results {
            experiment: "mpdtp",
            title: "Text, audio and video over two paths, in real time",
            what: "Text, audio and video at once over two emulated links with 100 and 600 ms of round-trip time and each half of the bandwidth, \
                   between network namespaces. The bandwidth is given per offered load; both links lose the same share of their packets. A block is on \
                   time when its last byte is with the receiving application within its deadline, by one clock; QoE and ideal are those of the same \
                   figures in virtual time. Bytes are those of the sending host's interfaces. Disturbed are late blocks during which this computer \
                   stood still. SRT and RIST have programs of their own for each class, with its deadline.",
            command: context.command.to_owned(),
            seed: self.comparison.seed(),
            notes,
            has_parts: true,
            rows: parts.map(of_part).collect(),
        }))
    }
}
