//! The traces of the experiments: recorded ones where their files are, synthetic ones always.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use starhaul_link::{LeoModel, LinkSpec, Loss, QueueLimit, Recording, Trace};

use super::{
    options::{Options, QueueChoice},
    reconfigurations::{Outage, outages},
};
use crate::{
    Error,
    flow::{PathSetup, ProbeSide},
};

/// Recorded traces, relative to their folder: name, direction, capacity and delay files.
const RECORDED: [(&str, Direction, &str, Option<&str>); 3] = [
    (
        "leocc-example",
        Direction::Up,
        "leocc-example/bw_example.txt",
        Some("leocc-example/delay_example.txt"),
    ),
    (
        "q25_A_downlink_600",
        Direction::Down,
        "leocc-downlink/q25_A_downlink_600.csv",
        None,
    ),
    (
        "q75_C_downlink_599",
        Direction::Down,
        "leocc-downlink/q75_C_downlink_599.csv",
        None,
    ),
];
const SYNTHETIC: u64 = 50;
const SYNTHETIC_QUICK: u64 = 4;
const SYNTHETIC_TIME: Duration = Duration::from_secs(120);
/// The queues with which LeoCC's authors replay, in packets.
const PUBLISHED_UP: usize = 500;
const PUBLISHED_DOWN: usize = 50_000;

/// Which way the data of a trace goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the terminal.
    Up,
    /// To the terminal.
    Down,
}

impl Direction {
    /// `up` or `down`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }

    /// Probes come from the terminal.
    pub(super) fn probe_side(self) -> ProbeSide {
        match self {
            Self::Up => ProbeSide::Sender,
            Self::Down => ProbeSide::Receiver,
        }
    }
}

/// One link to run over.
#[derive(Clone, Debug)]
pub struct TraceCase {
    /// Its name in tables.
    pub name: String,
    /// Which way it was recorded.
    pub direction: Direction,
    /// Capacity and delay.
    pub trace: Trace,
    /// For how long to run.
    pub time: Duration,
    /// Its reconfigurations.
    pub outages: Vec<Outage>,
}

impl TraceCase {
    pub(super) fn new(name: String, direction: Direction, trace: Trace) -> Self {
        let time = trace.capacity.period();
        Self {
            outages: outages(&trace),
            name,
            direction,
            time,
            trace,
        }
    }

    /// The same, run for no longer than `time`.
    pub(super) fn shortened(mut self, time: Duration) -> Self {
        self.time = self.time.min(time);
        self.outages.retain(|outage| outage.end < self.time);
        self
    }

    /// How long a run over it takes: packets, about.
    pub(super) fn weight(&self) -> f64 {
        self.time.as_secs_f64() * self.trace.capacity.mean_rate().mbit() * 1e6 / (8.0 * 1500.0)
    }

    /// The links: the trace in both directions, so that an outage hits data and acknowledgements; random loss for data only.
    pub(super) fn path(&self, loss: f64, queue: QueueLimit) -> Result<PathSetup, Error> {
        let spec = LinkSpec::from_trace(self.trace.clone());
        let forward = spec
            .clone()
            .with_loss(Loss::bernoulli(loss)?)
            .with_queue(queue);
        Ok(PathSetup {
            forward: vec![forward],
            backward: vec![
                spec.with_loss(Loss::NONE)
                    .with_queue(QueueLimit::Packets(PUBLISHED_DOWN)),
            ],
        })
    }

    pub(super) fn queue(&self, choice: QueueChoice) -> QueueLimit {
        match (choice, self.direction) {
            (QueueChoice::Published, Direction::Up) => QueueLimit::Packets(PUBLISHED_UP),
            (QueueChoice::Published, Direction::Down) => QueueLimit::Packets(PUBLISHED_DOWN),
            (QueueChoice::Bdp, _) => QueueLimit::Packets(self.bdp_packets()),
            (QueueChoice::Limit(limit), _) => limit,
        }
    }

    /// Delay forth and back at an instant of the trace.
    pub(super) fn base_rtt(&self, at: Duration) -> Duration {
        self.trace
            .delay
            .as_ref()
            .map_or(Duration::ZERO, |delay| delay.at(at) * 2)
    }

    /// From the end of an outage until a sender hears of it: a probe's way forth and back, and from the receiver's side the
    /// way to the sender.
    pub(super) fn news_take(&self, at: Duration) -> Duration {
        let rtt = self.base_rtt(at);
        match self.direction {
            Direction::Up => rtt,
            Direction::Down => rtt + rtt / 2,
        }
    }

    /// What one median base round trip carries at the mean rate, at least 10 packets.
    fn bdp_packets(&self) -> usize {
        let mut rtts: Vec<Duration> = (0..1000)
            .map(|n| self.base_rtt(self.trace.capacity.period() * n / 1000))
            .collect();
        rtts.sort();
        let rtt = rtts.get(500).copied().unwrap_or_default();
        let bytes = self.trace.capacity.mean_rate().bytes_in(rtt);
        usize::try_from(bytes / crate::flow::PACKET_BYTES)
            .unwrap_or(usize::MAX)
            .max(10)
    }
}

/// The traces to run, and why others are left out.
#[derive(Clone, Debug, Default)]
pub(super) struct TraceSet {
    pub(super) cases: Vec<TraceCase>,
    pub(super) skipped: Vec<String>,
}

impl TraceSet {
    pub(super) fn load(options: &Options) -> Result<Self, Error> {
        let mut set = match &options.traces {
            Some(folder) => Self::folder(folder)?,
            None => Self::usual(options)?,
        };
        if options.quick {
            for case in &mut set.cases {
                let seconds = match case.direction {
                    Direction::Up => 40,
                    Direction::Down => 10,
                };
                *case = case.clone().shortened(Duration::from_secs(seconds));
            }
        }
        Ok(set)
    }

    fn usual(options: &Options) -> Result<Self, Error> {
        let mut set = Self::default();
        let folder = recorded_folder();
        for (name, direction, capacity, delay) in RECORDED {
            let file = folder.join(capacity);
            if !file.is_file() {
                set.skipped.push(format!(
                    "skipped: {name}, because {} is not there",
                    file.display()
                ));
                continue;
            }
            if options.quick && name == "q75_C_downlink_599" {
                continue;
            }
            let trace = match delay {
                Some(delay) => Trace::read(&file, Some(&folder.join(delay)))?,
                None => Trace::read_csv(&file)?,
            };
            set.cases
                .push(TraceCase::new(name.to_owned(), direction, trace));
        }
        let count = if options.quick {
            SYNTHETIC_QUICK
        } else {
            SYNTHETIC
        };
        let model = LeoModel {
            duration: SYNTHETIC_TIME,
            ..LeoModel::default()
        };
        for n in 1..=count {
            // Seeds of neighbouring experiments share no trace.
            let trace = model.generate(options.seed.wrapping_mul(1000).wrapping_add(n))?;
            set.cases
                .push(TraceCase::new(format!("leo-{n:02}"), Direction::Up, trace));
        }
        Ok(set)
    }

    /// Every trace of a folder, in any format that `starhaul trace` reads; `bw_X` beside `delay_X` is a LeoReplayer pair.
    fn folder(folder: &Path) -> Result<Self, Error> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
            .map_err(Error::io(format!("cannot read {}", folder.display())))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.is_file())
            .collect();
        files.sort();
        let mut set = Self::default();
        for file in &files {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let partner = |from, to| {
                let partner = file.with_file_name(name.replacen(from, to, 1));
                (name.starts_with(from) && partner.is_file()).then_some(partner)
            };
            if partner("delay", "bw").is_some() {
                continue;
            }
            let trace = match partner("bw", "delay") {
                Some(delay) => Some(Trace::read(file, Some(&delay))?),
                None => trace_of(Recording::read(file, None)?.0),
            };
            let Some(trace) = trace else {
                let skipped = format!("skipped: {name}, because it tells no capacity");
                set.skipped.push(skipped);
                continue;
            };
            let down = name.contains("down");
            let direction = if down { Direction::Down } else { Direction::Up };
            let stem = name.split('.').next().unwrap_or_default().to_owned();
            set.cases.push(TraceCase::new(stem, direction, trace));
        }
        if set.cases.is_empty() {
            return Err(Error::Settings(format!(
                "{} holds no trace with a capacity: it needs .csv tables, bw_X.txt beside delay_X.txt, or mahimahi traces",
                folder.display()
            )));
        }
        Ok(set)
    }
}

fn trace_of(recording: Recording) -> Option<Trace> {
    Some(Trace {
        capacity: recording.capacity?,
        delay: recording.delay,
        loss: recording.loss,
    })
}

/// Where the recorded traces lie: `STARHAUL_TRACES`, or beside the project.
pub(crate) fn recorded_folder() -> PathBuf {
    std::env::var_os("STARHAUL_TRACES")
        .map_or_else(|| PathBuf::from("../shared/traces"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use starhaul_link::{Delay, Rate};
    use starhaul_units::Bandwidth;

    #[test]
    fn a_queue_of_one_bdp_is_rate_times_round_trip() {
        let capacity = starhaul_link::Opportunities::from_rates([(
            Duration::from_secs(10),
            Bandwidth::from_mbit(12),
        )])
        .unwrap();
        let delay = starhaul_link::DelaySeries::from_steps([(
            Duration::from_secs(10),
            Duration::from_millis(25),
        )]);
        let case = TraceCase::new(
            "x".into(),
            Direction::Down,
            Trace::new(capacity, delay).unwrap(),
        );
        // 1000 packets a second, 50 ms
        assert_eq!(case.queue(QueueChoice::Bdp), QueueLimit::Packets(50));
        assert_eq!(
            case.queue(QueueChoice::Published),
            QueueLimit::Packets(PUBLISHED_DOWN)
        );
        let LinkSpec { rate, delay, .. } =
            &case.path(0.01, QueueLimit::Packets(7)).unwrap().forward[0];
        assert!(matches!((rate, delay), (Rate::Trace(_), Delay::Trace(_))));
    }
}
