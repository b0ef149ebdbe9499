//! One flow of one system over one trace.

use std::time::{Duration, Instant};

use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use starhaul_cc::{DetectorConfig, ReconfigurationSource};
use starhaul_flow::{Alarm, FlowNetwork, FlowPath, FlowReport, FlowSetup};
use starhaul_link::{LinkSpec, QueueLimit};
use starhaul_units::Bandwidth;

use super::case::{DataLoss, TraceCase};
use crate::{Error, systems::System, traces::Direction};

/// Delay of a ground link, one way.
const GROUND_DELAY: Duration = Duration::from_millis(5);
/// What a ground link queues.
const GROUND_QUEUE: QueueLimit = QueueLimit::Packets(500);
/// Length of the outage of a false signal.
const FALSE_OUTAGE: Duration = Duration::from_millis(50);

/// The source of the reconfiguration signals that controllers get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SignalSource {
    /// A prober beside the flow, as in the field. It measures the RTT of the satellite segment too.
    Prober(DetectorConfig),
    /// The prober of a gateway with `link = "leo"` by ICMP: it measures the segment also where there are no outages that it could find.
    Gateway,
    /// The trace, at the time at which a prober would have known; a prober measures the segment.
    Truth,
    /// No signals, and no prober.
    None,
}

/// The reconfiguration signals that controllers get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Signal {
    pub(super) source: SignalSource,
    /// Share of the signals that is lost.
    pub(super) missing: f64,
    /// Mean time between false signals; zero for none.
    pub(super) false_each: Duration,
}

impl Default for Signal {
    fn default() -> Self {
        Self {
            source: SignalSource::Prober(DetectorConfig::default()),
            missing: 0.0,
            false_each: Duration::ZERO,
        }
    }
}

/// The settings of one run.
#[derive(Clone, Debug)]
pub(super) struct Setup<'a> {
    pub(super) system: &'a System,
    pub(super) case: &'a TraceCase,
    pub(super) loss: DataLoss,
    /// Queue of the link in packets.
    pub(super) queue: usize,
    pub(super) signal: Signal,
    /// A link of this rate behind the satellite.
    pub(super) ground: Option<Bandwidth>,
    pub(super) seed: u64,
    pub(super) sample_each: Option<Duration>,
}

/// The outcome of one run.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) report: FlowReport,
    pub(super) alarms: Vec<Alarm>,
}

impl Setup<'_> {
    /// How long it takes, in any unit: packets.
    pub(super) fn weight(&self) -> f64 {
        self.case.weight()
    }

    /// `base` stands for virtual time 0; what it is does not matter.
    pub(super) fn run(&self, base: Instant) -> Result<Outcome, Error> {
        let mut path = self.case.path(self.loss, self.queue)?;
        self.add_ground(&mut path);
        let mut world = FlowNetwork::new(&path, self.seed, base);
        let foresight = self
            .system
            .is_oracle()
            .then(|| self.case.trace.capacity.clone());
        world.add_flow(FlowSetup {
            foresight,
            ..FlowSetup::saturating(self.system.build(base))
        });
        self.signal.install(&mut world, self.case, self.seed);
        if let Some(interval) = self.sample_each {
            world.sample_each(interval);
        }
        world.run(self.case.time);
        let alarms = world.alarms().to_vec();
        let report = world.reports().into_iter().next();
        let report = report.ok_or_else(|| Error::Failed("a run without a flow".to_owned()))?;
        Ok(Outcome { report, alarms })
    }

    fn add_ground(&self, path: &mut FlowPath) {
        if let Some(rate) = self.ground {
            let link = LinkSpec::constant(rate, GROUND_DELAY).with_queue(GROUND_QUEUE);
            path.forward.push(link.clone());
            path.backward.insert(0, link);
        }
    }
}

impl Signal {
    /// Lets the flows of a world over `case` hear of reconfigurations.
    pub(super) fn install(self, world: &mut FlowNetwork, case: &TraceCase, seed: u64) {
        let side = case.direction.probe_side();
        match self.source {
            SignalSource::None => {}
            SignalSource::Prober(config) if case.is_sharp() => {
                world.probe(config, side);
                world.lose_alarms(self.missing, seed);
            }
            SignalSource::Gateway if !case.has_dips() => {
                world.probe(DetectorConfig::default(), side);
                world.lose_alarms(self.missing, seed);
            }
            // The grid of the trace hides its outages from probes: the truth is told when a probe would have found it.
            SignalSource::Prober(_) | SignalSource::Gateway => {
                tell_truth(world, case, self.missing, seed);
            }
            SignalSource::Truth => {
                if case.is_sharp() {
                    world.probe(DetectorConfig::default(), side);
                    world.lose_alarms(1.0, seed);
                }
                tell_truth(world, case, self.missing, seed);
            }
        }
        tell_lies(world, case, self.false_each, seed);
    }
}

fn tell_truth(world: &mut FlowNetwork, case: &TraceCase, missing: f64, seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for outage in &case.outages {
        if rng.random::<f64>() < missing {
            continue;
        }
        let told = outage.end + case.news_take(outage.end);
        let length = outage.end - outage.start;
        world.tell(told, outage.end, length, ReconfigurationSource::GroundTruth);
    }
}

fn tell_lies(world: &mut FlowNetwork, case: &TraceCase, each: Duration, seed: u64) {
    if each.is_zero() {
        return;
    }
    let source = match case.direction {
        Direction::Up => ReconfigurationSource::Probe,
        Direction::Down => ReconfigurationSource::Peer,
    };
    let mut rng = ChaCha8Rng::seed_from_u64(seed.wrapping_add(1));
    let mut at = each.mul_f64(rng.random());
    while at < case.time {
        world.tell(at + case.news_take(at), at, FALSE_OUTAGE, source);
        at += each.mul_f64(rng.random_range(0.5..1.5));
    }
}

#[cfg(test)]
mod tests {
    use starhaul_link::{DelaySeries, LeoModel, Opportunities, Trace};

    use super::*;
    use crate::experiments::leocc::Kind;

    /// 20 s of 12 Mbit/s with an outage of 80 ms each 4 s.
    fn case() -> TraceCase {
        let ms = Duration::from_millis;
        let step = || [(ms(3920), 12), (ms(80), 0)];
        let rates = (0..5)
            .flat_map(|_| step())
            .map(|(time, mbit)| (time, Bandwidth::from_mbit(mbit)));
        let capacity = Opportunities::from_rates(rates).unwrap();
        let delay = DelaySeries::from_steps([(ms(20_000), ms(20))]);
        let trace = Trace::new(capacity, delay).unwrap();
        TraceCase::new("x".into(), Kind::Recorded, Direction::Up, trace)
    }

    fn told(signal: Signal, case: &TraceCase) -> (usize, bool) {
        let base = Instant::now();
        let path = case.path(DataLoss::Random(0.0), 500).unwrap();
        let mut world = FlowNetwork::new(&path, 3, base);
        signal.install(&mut world, case, 3);
        world.run(case.time);
        (world.alarms().len(), world.segment_rtt().is_some())
    }

    #[test]
    fn altered_news_leave_what_the_prober_measures() {
        let case = case();
        assert!(case.is_sharp());
        let with = |source, missing, false_each| Signal {
            source,
            missing,
            false_each: Duration::from_secs(false_each),
        };
        let prober = SignalSource::Prober(DetectorConfig::default());
        let (found, measured) = told(Signal::default(), &case);
        assert!(found >= 4 && measured, "{found}");
        assert_eq!(told(with(prober, 1.0, 0), &case), (0, true));
        let (half, measured) = told(with(prober, 0.5, 0), &case);
        assert!((1..found).contains(&half) && measured, "{half} of {found}");
        let (more, measured) = told(with(prober, 0.0, 1), &case);
        assert!(more > found + 10 && measured, "{more}");
        let (truth, measured) = told(with(SignalSource::Truth, 0.0, 0), &case);
        assert!(truth >= 4 && measured, "{truth}");
        assert_eq!(told(with(SignalSource::None, 0.0, 0), &case), (0, false));
    }

    /// 20 s of 12 Mbit/s without an outage, in whose middle a grid of 50 ms may leave a dip.
    fn smooth(dip: bool) -> TraceCase {
        let ms = Duration::from_millis;
        let kbit = Bandwidth::from_kbit;
        let middle = kbit(if dip { 600 } else { 12_000 });
        let rates = [
            (ms(9950), kbit(12_000)),
            (ms(50), middle),
            (ms(10_000), kbit(12_000)),
        ];
        let capacity = Opportunities::from_rates(rates).unwrap();
        let delay = DelaySeries::from_steps([(ms(20_000), ms(20))]);
        let trace = Trace::new(capacity, delay).unwrap();
        TraceCase::new("x".into(), Kind::Recorded, Direction::Up, trace)
    }

    #[test]
    fn the_prober_of_a_gateway_runs_where_there_is_nothing_to_find_but_not_over_a_coarse_grid() {
        let told_by = |source, case: &TraceCase| {
            let signal = Signal {
                source,
                ..Signal::default()
            };
            told(signal, case)
        };
        let prober = SignalSource::Prober(DetectorConfig::default());
        let (smooth, dipping) = (smooth(false), smooth(true));
        assert!(!smooth.has_dips() && dipping.has_dips());
        assert_eq!(told_by(prober, &smooth), (0, false));
        assert_eq!(told_by(SignalSource::Gateway, &smooth), (0, true));
        for source in [prober, SignalSource::Gateway] {
            assert_eq!(told_by(source, &dipping), (1, false));
        }
        let case = case();
        let gateway = told_by(SignalSource::Gateway, &case);
        assert_eq!(gateway, told(Signal::default(), &case));
    }

    /// Where outages are too short to be told from bursts, no reconfiguration is ever signalled.
    #[test]
    fn without_signals_the_queue_is_less_than_half_of_that_of_bbr() {
        for number in [76, 82] {
            let model = LeoModel {
                duration: Duration::from_secs(60),
                ..LeoModel::drawn(number)
            };
            let trace = model.generate(number).unwrap();
            let case = TraceCase::new("x".into(), Kind::Synthetic, Direction::Up, trace);
            let run = |name| {
                let setup = Setup {
                    system: &System::named(name).unwrap(),
                    case: &case,
                    loss: DataLoss::Recorded,
                    queue: 500,
                    signal: Signal {
                        source: SignalSource::None,
                        ..Signal::default()
                    },
                    ground: None,
                    seed: 1,
                    sample_each: None,
                };
                setup.run(Instant::now()).unwrap().report.metrics
            };
            let (ours, bbr) = (run("leocc2"), run("bbr"));
            let share = ours.throughput_mbps / bbr.throughput_mbps;
            let queue = ours.queue_delay_mean_ms / bbr.queue_delay_mean_ms;
            assert!(
                share > 0.97 && queue < 0.5,
                "seed {number}: {share:.3} of the throughput, {queue:.3} of the queue"
            );
        }
    }
}
