//! A link to run over: a trace, its loss, its queue and its reconfigurations.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use starhaul_flow::FlowPath;
use starhaul_link::{LinkSpec, Loss, QueueLimit, Trace};

use super::{
    options::QueueChoice,
    reconfigurations::{Outage, outages},
};
use crate::{Error, traces::Direction};

/// The queues with which LeoCC's authors replay, in packets.
const PUBLISHED_UP: usize = 500;
const PUBLISHED_DOWN: usize = 50_000;

/// Where a trace comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A recording, from a file.
    Recorded,
    /// Drawn from a model.
    Synthetic,
}

/// Random loss of the data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum DataLoss {
    /// Independent, with this probability.
    Random(f64),
    /// What was recorded beside the capacity.
    Recorded,
}

/// One link to run over.
#[derive(Clone, Debug)]
pub struct TraceCase {
    /// Its name in tables, unlike that of all others.
    pub name: String,
    /// Whether it was recorded or drawn.
    pub kind: Kind,
    /// Which way it was recorded.
    pub direction: Direction,
    /// Capacity and delay.
    pub trace: Trace,
    /// For how long to run.
    pub time: Duration,
    /// Reconfigurations of the trace.
    pub outages: Vec<Outage>,
    /// What was recorded of its loss, where the trace holds none over time.
    loss: Option<Loss>,
}

impl TraceCase {
    pub(super) fn new(name: String, kind: Kind, direction: Direction, trace: Trace) -> Self {
        let time = trace.capacity.period();
        Self {
            outages: outages(&trace),
            name,
            kind,
            direction,
            time,
            trace,
            loss: None,
        }
    }

    /// The same with this as what was recorded of its loss, if its trace tells none.
    pub(super) fn with_recorded_loss(self, loss: Option<Loss>) -> Self {
        Self { loss, ..self }
    }

    /// The same as if nothing were known of its loss.
    pub(super) fn without_recorded_loss(mut self) -> Self {
        self.trace.loss = None;
        self.loss = None;
        self
    }

    /// Whether probes notice its outages.
    pub(super) fn is_sharp(&self) -> bool {
        self.outages.iter().any(|outage| outage.sharp)
    }

    /// Whether the grid of the trace hides its outages from probes.
    pub(super) fn has_dips(&self) -> bool {
        self.outages.iter().any(|outage| !outage.sharp)
    }

    /// Mean of the loss that was recorded, if any was.
    pub(super) fn recorded_loss(&self) -> Option<f64> {
        let over_time = self.trace.loss.as_ref().map(|loss| loss.mean());
        over_time.or_else(|| self.loss.map(|loss| loss.mean()))
    }

    /// The losses to run with: those asked for, or what was recorded, or else the `usual` ones.
    pub(super) fn losses(&self, asked: &[f64], usual: &[f64]) -> Vec<DataLoss> {
        match (asked, self.recorded_loss()) {
            ([], Some(_)) => vec![DataLoss::Recorded],
            ([], None) => usual.iter().copied().map(DataLoss::Random).collect(),
            _ => asked.iter().copied().map(DataLoss::Random).collect(),
        }
    }

    /// The same over another trace, with the same loss.
    pub(super) fn with_trace(self, trace: Trace) -> Self {
        let time = self.time;
        let case = Self {
            outages: outages(&trace),
            trace,
            ..self
        };
        case.shortened(time)
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
    pub(super) fn path(&self, loss: DataLoss, queue: usize) -> Result<FlowPath, Error> {
        let spec = LinkSpec::from_trace(self.trace.clone());
        let forward = match (loss, self.loss) {
            (DataLoss::Random(loss), _) => spec.clone().with_loss(Loss::bernoulli(loss)?),
            (DataLoss::Recorded, Some(loss)) if self.trace.loss.is_none() => {
                spec.clone().with_loss(loss)
            }
            (DataLoss::Recorded, _) => spec.clone(),
        };
        let forward = forward.with_queue(QueueLimit::Packets(queue));
        Ok(FlowPath {
            forward: vec![forward],
            backward: vec![
                spec.with_loss(Loss::NONE)
                    .with_queue(QueueLimit::Packets(PUBLISHED_DOWN)),
            ],
        })
    }

    /// What the link queues, in packets.
    pub(super) fn queue(&self, choice: QueueChoice) -> usize {
        match (choice, self.direction) {
            (QueueChoice::Published, Direction::Up) => PUBLISHED_UP,
            (QueueChoice::Published, Direction::Down) => PUBLISHED_DOWN,
            (QueueChoice::Bdp, _) => self.bdp_packets(),
            (QueueChoice::Packets(packets), _) => packets,
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
        usize::try_from(bytes / starhaul_flow::PACKET_BYTES)
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

/// A share for people.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", (share * 1e6).round() / 1e4)
}

/// A link of one of the two parts, and what was made of it.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub(super) case: TraceCase,
    /// What was changed, for people; nothing for drawn links.
    pub(super) change: Option<String>,
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
            Kind::Recorded,
            Direction::Down,
            Trace::new(capacity, delay).unwrap(),
        );
        // 1000 packets a second, 50 ms
        assert_eq!(case.queue(QueueChoice::Bdp), 50);
        assert_eq!(case.queue(QueueChoice::Published), PUBLISHED_DOWN);
        let LinkSpec { rate, delay, .. } =
            &case.path(DataLoss::Random(0.01), 7).unwrap().forward[0];
        assert!(matches!((rate, delay), (Rate::Trace(_), Delay::Trace(_))));
    }

    #[test]
    fn a_recorded_loss_is_kept_unless_another_is_asked_for() {
        let capacity = || {
            let rates = [(Duration::from_secs(1), Bandwidth::from_mbit(12))];
            starhaul_link::Opportunities::from_rates(rates).unwrap()
        };
        let case = |trace| TraceCase::new("x".into(), Kind::Recorded, Direction::Up, trace);
        let plain = case(Trace::new(capacity(), None).unwrap());
        let series = starhaul_link::LossSeries::constant(0.03).unwrap();
        let over_time = case(Trace::new(capacity(), None).unwrap().with_loss(series));
        let model = Loss::gilbert_elliott(0.01, 5.0).unwrap();
        let bursts = plain.clone().with_recorded_loss(Some(model));

        let forward = |case: &TraceCase, loss| case.path(loss, 7).unwrap().forward.remove(0);
        assert_eq!(plain.losses(&[], &[0.002]), [DataLoss::Random(0.002)]);
        for (case, mean) in [(&over_time, 0.03), (&bursts, 0.01)] {
            assert_eq!(case.losses(&[], &[0.002]), [DataLoss::Recorded]);
            assert_eq!(case.recorded_loss(), Some(mean));
            assert_eq!(case.losses(&[0.1], &[0.002]), [DataLoss::Random(0.1)]);
            let asked = forward(case, DataLoss::Random(0.1));
            assert_eq!((asked.loss.mean(), asked.loss_trace), (0.1, None));
            // Acknowledgements are not lost at random.
            let back = case.path(DataLoss::Recorded, 7).unwrap().backward.remove(0);
            assert_eq!((back.loss, back.loss_trace), (Loss::NONE, None));
        }
        // Without a path, nothing arrives in either direction, whatever else is lost.
        let half = Duration::from_millis(500);
        let gap = [(half, 0.03), (half, 1.0)];
        let gap = starhaul_link::LossSeries::from_steps(gap).unwrap();
        let gap = case(Trace::new(capacity(), None).unwrap().with_loss(gap));
        let path = gap.path(DataLoss::Random(0.1), 7).unwrap();
        for link in [&path.forward[0], &path.backward[0]] {
            let series = link.loss_trace.as_ref().unwrap();
            assert_eq!([series.at(Duration::ZERO), series.at(half)], [0.0, 1.0]);
        }
        let series = forward(&over_time, DataLoss::Recorded).loss_trace;
        assert_eq!(series.unwrap().at(Duration::ZERO), 0.03);
        assert_eq!(forward(&bursts, DataLoss::Recorded).loss, model);
    }
}
