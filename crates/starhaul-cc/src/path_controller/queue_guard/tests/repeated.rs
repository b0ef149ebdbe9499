//! Packets that left together and are acknowledged together change the same as if each were judged by itself.

use proptest::prelude::*;

use super::*;
use crate::{
    AckedPacket, CongestionEvent, Controller, LostPacket, PathController, PathSignal, QueueWish,
    Reconfiguration, ReconfigurationSource,
};

/// Keeps a digest of what it was told, and in which order; its estimate changes with some of the packets that it hears of.
#[derive(Clone, Debug)]
struct Witness {
    digest: u64,
    estimate: Option<Bandwidth>,
    empties: bool,
}

impl Witness {
    fn note(&mut self, call: u64, value: u64) {
        let mixed = self.digest.rotate_left(29) ^ value.rotate_left(8) ^ call;
        self.digest = mixed.wrapping_mul(0x0000_0100_0000_01b3);
    }
}

impl Controller for Witness {
    fn on_packet_sent(&mut self, _: Instant, number: u64, _: u64, _: u64, _: bool) {
        self.note(1, number);
    }

    fn on_ack(&mut self, packet: AckedPacket) {
        self.note(2, packet.packet_number);
        self.note(3, packet.bytes);
        if self.digest.is_multiple_of(8) {
            let kbit = 100 + self.digest / 8 % 50_000;
            self.estimate = self.estimate.map(|_| Bandwidth::from_kbit(kbit));
        }
    }

    fn on_end_of_acks(&mut self, _: Instant, in_flight: u64) {
        self.note(4, in_flight);
    }

    fn on_packet_lost(&mut self, _: LostPacket) {}

    fn on_congestion_event(&mut self, _: CongestionEvent) {}

    fn on_spurious_congestion_event(&mut self, _: Instant) {}

    fn on_queue(&mut self, _: Instant) {
        self.note(5, 0);
    }

    fn on_longer_path(&mut self) -> bool {
        self.note(6, 0);
        self.empties
    }

    fn on_path_rtt(&mut self, _: Instant, rtt: Duration) {
        self.note(7, rtt.subsec_nanos().into());
    }

    fn on_mtu_update(&mut self, _: u16) {}

    fn cwnd(&self) -> u64 {
        1 << 20
    }

    fn pacing_rate(&self) -> Option<Bandwidth> {
        None
    }

    fn bandwidth_estimate(&self) -> Option<Bandwidth> {
        self.estimate
    }

    fn name(&self) -> &'static str {
        "witness"
    }

    fn state(&self) -> &'static str {
        "any"
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send {
        packets: u64,
        is_limited: bool,
    },
    WaitMs(u32),
    /// Round trips take so long from now on.
    RoundTripMs(u32),
    /// Packets that left a round trip ago.
    Acks {
        packets: u64,
        bytes: u64,
    },
    /// A handshake's, which the controller does not hear of.
    Unseen {
        packets: u64,
    },
    BoundMs(Option<u32>),
    OtherPath,
    OtherNetwork,
}

fn step() -> impl Strategy<Value = Step> {
    let count = || prop_oneof![1..4u64, 8..60u64];
    let wait = prop::sample::select(vec![0_u32, 10, 10, 50, 100, 250, 1_500]);
    let round_trip = prop::sample::select(vec![0_u32, 20, 100, 120, 200, 400, 900]);
    let bytes = prop::sample::select(vec![0_u64, 60, 1_452, 1_452, 1_500]);
    prop_oneof![
        6 => (count(), prop::bool::weighted(0.2))
            .prop_map(|(packets, is_limited)| Step::Send { packets, is_limited }),
        8 => wait.prop_map(Step::WaitMs),
        2 => round_trip.prop_map(Step::RoundTripMs),
        8 => (count(), bytes).prop_map(|(packets, bytes)| Step::Acks { packets, bytes }),
        1 => count().prop_map(|packets| Step::Unseen { packets }),
        1 => prop::option::weighted(0.7, prop::sample::select(vec![0_u32, 20, 50, 300]))
            .prop_map(Step::BoundMs),
        1 => Just(Step::OtherPath),
        1 => Just(Step::OtherNetwork),
    ]
}

/// One path on which packets that repeat others are only counted, and one on which each is judged by itself.
struct Both {
    witness: Witness,
    repeated: PathController,
    alone: PathController,
    start: Instant,
    now: Instant,
    round_trip: Duration,
    number: u64,
}

impl Both {
    fn new(witness: Witness) -> Self {
        let start = Instant::now() + 1_000_000 * MS;
        let path = || PathController::new(Box::new(witness.clone()));
        Self {
            repeated: path(),
            alone: path(),
            witness,
            start,
            now: start,
            round_trip: 20 * MS,
            number: 0,
        }
    }

    /// What each of them knows, but for what it remembers to recognise a repetition by.
    fn states(&mut self) -> [String; 2] {
        [&mut self.repeated, &mut self.alone].map(|path| {
            let run = path.guard.run.take();
            let state = format!("{path:?}");
            path.guard.run = run;
            state
        })
    }

    fn each(&mut self, change: impl Fn(&mut PathController)) {
        change(&mut self.repeated);
        change(&mut self.alone);
    }

    fn take(&mut self, step: Step) {
        let (now, rtt) = (self.now, self.round_trip);
        match step {
            Step::Send {
                packets,
                is_limited,
            } => self.each(|path| (0..packets).for_each(|_| path.on_sent(now, is_limited))),
            Step::WaitMs(wait) => self.now += wait * MS,
            Step::RoundTripMs(round_trip) => self.round_trip = round_trip * MS,
            Step::Acks { packets, bytes } => {
                for _ in 0..packets {
                    let packet = AckedPacket {
                        now,
                        sent: now - rtt,
                        packet_number: self.number,
                        bytes,
                    };
                    self.number += 1;
                    self.repeated.on_ack(packet);
                    self.alone.guard.end_run();
                    self.alone.on_ack(packet);
                }
                self.each(|path| path.controller_mut().on_end_of_acks(now, bytes));
            }
            Step::Unseen { packets } => {
                for _ in 0..packets {
                    self.repeated.on_rtt(now, rtt, 1_200);
                    self.alone.guard.end_run();
                    self.alone.on_rtt(now, rtt, 1_200);
                }
            }
            Step::BoundMs(bound) => {
                let bound = bound.map(|bound| bound * MS);
                let short = false;
                self.each(|path| path.set_queue_wish(QueueWish { bound, short }));
            }
            Step::OtherPath => {
                let event = Reconfiguration {
                    at: now,
                    outage: Duration::ZERO,
                    source: ReconfigurationSource::Probe,
                    confidence: 1.0,
                };
                self.each(|path| {
                    path.on_signal(now, PathSignal::Reconfiguration(event));
                });
            }
            Step::OtherNetwork => {
                let witness = self.witness.clone();
                self.each(|path| {
                    path.restart(Box::new(witness.clone()));
                    path.on_other_network(now);
                });
            }
        }
    }
}

proptest! {
    #[test]
    fn packets_of_one_batch_are_judged_as_one_by_one(
        steps in prop::collection::vec(step(), 1..120),
        bound in prop::option::weighted(0.7, Just(50_u32)),
        has_estimate: bool,
        empties: bool,
    ) {
        let estimate = has_estimate.then(|| Bandwidth::from_mbit(20));
        let mut both = Both::new(Witness { digest: 1, estimate, empties });
        both.take(Step::BoundMs(bound));
        for (index, step) in steps.iter().enumerate() {
            both.take(*step);
            let [repeated, alone] = both.states();
            prop_assert_eq!(repeated, alone, "step {} at {:?}", index, both.now - both.start);
        }
    }
}

/// A queue that is held, emptied and measured; a pause; a path that was away.
#[test]
fn packets_of_one_batch_are_judged_as_one_by_one_in_every_phase() {
    let mut both = Both::new(Witness {
        digest: 1,
        estimate: None,
        empties: true,
    });
    let send = |packets| Step::Send {
        packets,
        is_limited: false,
    };
    let acks = |packets| Step::Acks {
        packets,
        bytes: 1_452,
    };
    let mut steps = vec![Step::BoundMs(Some(50))];
    for (round_trip, wait, batches) in [(20, 10, 40), (400, 100, 60)] {
        steps.push(Step::RoundTripMs(round_trip));
        for _ in 0..batches {
            steps.extend([send(44), Step::WaitMs(wait), acks(44)]);
        }
    }
    let away = [send(44), Step::WaitMs(1_000), send(1), Step::WaitMs(20)];
    steps.extend(away);
    steps.extend([Step::RoundTripMs(20), acks(1)]);
    let mut seen = [false; 5];
    for (index, step) in steps.into_iter().enumerate() {
        both.take(step);
        let [repeated, alone] = both.states();
        assert_eq!(repeated, alone, "step {index}");
        let guard = &both.repeated.guard;
        let phases = [
            guard.is_resuming,
            guard.is_holding(),
            guard.draining.is_some(),
            guard.measuring.is_some(),
            guard.has_returned,
        ];
        for (seen, phase) in seen.iter_mut().zip(phases) {
            *seen |= phase;
        }
    }
    assert_eq!(
        seen, [true; 5],
        "resuming, holding, draining, measuring, returned"
    );
}

/// Most of a batch is counted only, or nothing would be gained.
#[test]
fn the_packets_of_a_batch_but_the_first_are_only_counted() {
    for (bound, judged) in [(None, SETTLED), (Some(50 * MS), SETTLED_WITHIN_BOUND)] {
        let mut guard = QueueGuard {
            bound,
            ..QueueGuard::default()
        };
        let now = Instant::now() + 1_000 * MS;
        let mut counted = 0;
        for _ in 0..44 {
            let repeated = guard.on_repeated(now, 20 * MS, 1_452, || None);
            match repeated {
                Some(_) => counted += 1,
                None => {
                    guard.on_ack(now, 20 * MS, 1_452, 20 * MS, None);
                }
            }
        }
        assert_eq!(counted, 44 - judged, "{bound:?}");
    }
}
