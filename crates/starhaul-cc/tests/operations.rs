//! For any calls in any order, a controller gives a usable window and rate.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use starhaul_cc::{
    AckedPacket, CongestionEvent, Controller, ControllerConfig, LostPacket, MAX_CWND_BYTES,
    MAX_PACING_RATE, MIN_PACING_RATE, RateFeed, Reconfiguration, ReconfigurationSource,
};
use starhaul_units::Bandwidth;

#[derive(Clone, Debug)]
enum Operation {
    /// Packets sent in order, as a sender should.
    Send {
        bytes: u64,
        app_limited: bool,
    },
    /// A packet with any number and any flight.
    SendOddly {
        number: u64,
        bytes: u64,
        in_flight: u64,
    },
    Ack {
        number: u64,
        bytes: u64,
        age_ms: u64,
    },
    Lose {
        number: u64,
        bytes: u64,
    },
    EndOfAcks {
        in_flight: u64,
    },
    Congestion {
        age_ms: u64,
        persistent: bool,
        ecn: bool,
        bytes: u64,
    },
    Spurious,
    Reconfigured {
        age_ms: u64,
        outage_ms: u64,
    },
    SegmentRtt(Duration),
    Widen {
        bytes: u64,
        rtt: Duration,
    },
    Mtu(u16),
    Wait(Duration),
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 1..1500u64, 1 => Just(0), 1 => Just(u64::MAX)]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..200u64, 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    prop_oneof![
        6 => (bytes(), any::<bool>()).prop_map(|(bytes, app_limited)| Send { bytes, app_limited }),
        1 => (number(), bytes(), bytes())
            .prop_map(|(number, bytes, in_flight)| SendOddly { number, bytes, in_flight }),
        6 => (number(), bytes(), 0..2000u64)
            .prop_map(|(number, bytes, age_ms)| Ack { number, bytes, age_ms }),
        2 => (number(), bytes()).prop_map(|(number, bytes)| Lose { number, bytes }),
        4 => bytes().prop_map(|in_flight| EndOfAcks { in_flight }),
        2 => (0..2000u64, any::<bool>(), any::<bool>(), bytes()).prop_map(
            |(age_ms, persistent, ecn, bytes)| Congestion { age_ms, persistent, ecn, bytes }
        ),
        1 => Just(Spurious),
        1 => (0..2000u64, 0..500u64)
            .prop_map(|(age_ms, outage_ms)| Reconfigured { age_ms, outage_ms }),
        1 => (0..500_000_000u64).prop_map(|ns| SegmentRtt(Duration::from_nanos(ns))),
        1 => (bytes(), 0..3_000_000_000u64)
            .prop_map(|(bytes, ns)| Widen { bytes, rtt: Duration::from_nanos(ns) }),
        1 => any::<u16>().prop_map(Mtu),
        3 => (0..50_000_000u64).prop_map(|ns| Wait(Duration::from_nanos(ns))),
        1 => (0..40_000_000u64).prop_map(|s| Wait(Duration::from_secs(s))),
    ]
}

/// Drives one controller and records what plausible calls need.
struct Driver {
    controller: Box<dyn Controller>,
    now: Instant,
    next_number: u64,
}

impl Driver {
    fn new(config: &ControllerConfig) -> Self {
        let now = Instant::now();
        Self {
            controller: config.build(now, 1452),
            now,
            next_number: 0,
        }
    }

    fn apply(&mut self, operation: &Operation) {
        let now = self.now;
        let before = |age_ms| {
            now.checked_sub(Duration::from_millis(age_ms))
                .unwrap_or(now)
        };
        let controller = &mut self.controller;
        match *operation {
            Operation::Send { bytes, app_limited } => {
                controller.on_packet_sent(now, self.next_number, bytes, 5000, app_limited);
                self.next_number += 1;
            }
            Operation::SendOddly {
                number,
                bytes,
                in_flight,
            } => {
                controller.on_packet_sent(now, number, bytes, in_flight, false);
            }
            Operation::Ack {
                number,
                bytes,
                age_ms,
            } => controller.on_ack(AckedPacket {
                now,
                sent: before(age_ms),
                packet_number: number,
                bytes,
            }),
            Operation::Lose { number, bytes } => controller.on_packet_lost(LostPacket {
                now,
                packet_number: number,
                bytes,
            }),
            Operation::EndOfAcks { in_flight } => controller.on_end_of_acks(now, in_flight),
            Operation::Congestion {
                age_ms,
                persistent,
                ecn,
                bytes,
            } => {
                controller.on_congestion_event(CongestionEvent {
                    now,
                    sent: before(age_ms),
                    persistent,
                    ecn,
                    lost_bytes: bytes,
                });
            }
            Operation::Spurious => controller.on_spurious_congestion_event(now),
            Operation::Reconfigured { age_ms, outage_ms } => controller.on_reconfiguration(
                now,
                Reconfiguration {
                    at: before(age_ms),
                    outage: Duration::from_millis(outage_ms),
                    source: ReconfigurationSource::Peer,
                    confidence: 0.5,
                },
            ),
            Operation::SegmentRtt(rtt) => controller.on_segment_rtt(now, rtt),
            Operation::Widen { bytes, rtt } => {
                let before = controller.cwnd();
                controller.widen_start(bytes, rtt);
                assert!(
                    controller.cwnd() >= before,
                    "a start never reduces a window"
                );
            }
            Operation::Mtu(mtu) => controller.on_mtu_update(mtu),
            Operation::Wait(time) => self.now += time,
        }
    }

    fn view(&self) -> (u64, Option<Bandwidth>, Option<Bandwidth>, &'static str) {
        let c = &self.controller;
        (c.cwnd(), c.pacing_rate(), c.bandwidth_estimate(), c.state())
    }

    /// Clean rounds of ten packets over 20 ms, as on a path that recovered, for as long as Vivace needs to measure a
    /// few intervals of its longest RTT sample.
    fn clean_rounds(&mut self) {
        self.controller.on_mtu_update(1452);
        let mut number = 1 << 40;
        for _ in 0..120 {
            let sent = self.now;
            for i in 0..10 {
                self.controller
                    .on_packet_sent(sent, number + i, 1452, i * 1452, false);
            }
            self.now += Duration::from_millis(20);
            for i in 0..10 {
                self.controller.on_ack(AckedPacket {
                    now: self.now,
                    sent,
                    packet_number: number + i,
                    bytes: 1452,
                });
            }
            self.controller.on_end_of_acks(self.now, 0);
            number += 10;
        }
    }
}

fn configs() -> Vec<ControllerConfig> {
    let feed = RateFeed::new(Bandwidth::from_mbit(10));
    ControllerConfig::NAMES
        .iter()
        .map(|name| ControllerConfig::from_name(name, Some(feed.clone())).unwrap())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn window_and_rate_stay_usable(operations in prop::collection::vec(operation(), 1..300)) {
        for config in configs() {
            let name = config.name();
            let mut driver = Driver::new(&config);
            for operation in &operations {
                driver.apply(operation);
                let (cwnd, rate, _, _) = driver.view();
                prop_assert!((2 * 68..=MAX_CWND_BYTES).contains(&cwnd), "{name}: {cwnd}");
                if let Some(rate) = rate {
                    let bounds = MIN_PACING_RATE..=MAX_PACING_RATE;
                    prop_assert!(bounds.contains(&rate), "{name}: {rate}");
                }
            }
            driver.clean_rounds();
            let (cwnd, rate, _, _) = driver.view();
            prop_assert!(cwnd >= 2 * 1452, "{name}: {cwnd}");
            prop_assert!(rate.unwrap() >= Bandwidth::from_kbit(500), "{name}: {rate:?}");
        }
    }
}
