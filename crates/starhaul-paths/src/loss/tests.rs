use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const RTT: Duration = Duration::from_millis(120);

/// A path that carries a thousand datagrams per second.
struct Sender {
    now: Instant,
    sequence: u64,
    estimator: LossEstimator,
}

impl Sender {
    fn new() -> Self {
        // Close to the wrap of the sequence numbers.
        Self {
            now: Instant::now(),
            sequence: 1000,
            estimator: LossEstimator::default(),
        }
    }

    fn send(&mut self, lost: bool) {
        self.estimator.add(
            Settled {
                sequence: self.sequence,
                sent: self.now,
                lost,
            },
            RTT,
        );
        self.sequence += 1;
        self.now += Duration::from_millis(1);
    }

    fn random(&mut self, rng: &mut ChaCha8Rng, count: u32, loss: f64) {
        for _ in 0..count {
            self.send(rng.random_bool(loss));
        }
    }

    fn loss(&self) -> Loss {
        self.estimator.loss()
    }
}

#[test]
fn a_clean_path_loses_nothing() {
    let mut sender = Sender::new();
    let clean = Loss {
        rate: 0.0,
        window_max: 0.0,
        burst_length: 1.0,
    };
    assert_eq!(sender.loss(), clean);
    (0..63).for_each(|_| sender.send(false));
    assert!(!sender.estimator.is_known());
    (0..5_000).for_each(|_| sender.send(false));
    assert!(sender.estimator.is_known());
    assert_eq!(sender.loss(), clean);
}

#[test]
fn the_rate_of_random_loss_is_found() {
    for (seed, loss) in [0.005, 0.02, 0.1, 0.3].into_iter().enumerate() {
        let mut sender = Sender::new();
        sender.random(&mut ChaCha8Rng::seed_from_u64(seed as u64), 10_000, loss);
        let found = sender.loss().rate;
        assert!(
            (found / loss - 1.0).abs() < 0.25,
            "seed {seed}: {found} for {loss}"
        );
        assert!(sender.loss().window_max > found);
    }
}

#[test]
fn the_window_maximum_reacts_at_once_and_forgets_after_its_window() {
    for seed in 0..10 {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut sender = Sender::new();
        sender.random(rng, 5_000, 0.002);
        assert!(
            sender.loss().window_max < 0.05,
            "seed {seed}: {:?}",
            sender.loss()
        );
        sender.random(rng, 200, 0.2);
        let storm = sender.loss();
        assert!(
            storm.window_max > 0.12 && storm.rate < 0.05,
            "seed {seed}: {storm:?}"
        );
        sender.random(rng, 3_000, 0.002);
        assert!(
            sender.loss().window_max > 0.12,
            "seed {seed}: {:?}",
            sender.loss()
        );
        sender.random(rng, 1_500, 0.002);
        assert!(
            sender.loss().window_max < 0.05,
            "seed {seed}: {:?}",
            sender.loss()
        );
    }
}

#[test]
fn gilbert_elliott_bursts_are_measured() {
    for (seed, length) in [1.2, 3.0, 6.0].into_iter().enumerate() {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed as u64);
        let mut sender = Sender::new();
        let mut bad = false;
        for _ in 0..100_000 {
            bad = if bad {
                !rng.random_bool(1.0 / length)
            } else {
                rng.random_bool(0.05 / 0.95 / length)
            };
            sender.send(bad);
        }
        let found = sender.loss();
        assert!(
            (found.burst_length / length - 1.0).abs() < 0.3,
            "seed {seed}: {found:?} for {length}"
        );
        assert!(
            (found.rate / 0.05 - 1.0).abs() < 0.3,
            "seed {seed}: {found:?}"
        );
    }
}

#[test]
fn an_outage_is_loss_while_it_lasts_and_forgotten_when_it_ended() {
    let clean = Loss {
        rate: 0.0,
        window_max: 0.0,
        burst_length: 1.0,
    };
    let mut sender = Sender::new();
    (0..1_000).for_each(|_| sender.send(false));
    (0..1_000).for_each(|_| sender.send(true));
    assert_eq!((sender.loss().rate, sender.loss().window_max), (0.5, 1.0));
    sender.send(false);
    assert_eq!(sender.loss(), clean);
    // A long burst within an RTT is no outage.
    (0..100).for_each(|_| sender.send(true));
    sender.send(false);
    assert!(
        sender.loss().window_max > 0.4 && sender.loss().burst_length > 50.0,
        "{:?}",
        sender.loss()
    );
}

#[test]
fn a_path_that_never_delivered_loses_all() {
    let mut sender = Sender::new();
    sender.send(true);
    assert!(
        sender.loss().rate < 0.1,
        "one datagram says little: {:?}",
        sender.loss()
    );
    (0..500).for_each(|_| sender.send(true));
    assert_eq!((sender.loss().rate, sender.loss().window_max), (1.0, 1.0));
}

#[test]
fn reordering_taken_for_loss_is_taken_back() {
    let mut sender = Sender::new();
    let first = sender.sequence;
    (0..2_000).for_each(|index| sender.send(index % 20 == 0));
    assert!((sender.loss().rate - 0.05).abs() < 0.01);
    for index in (0..2_000).step_by(20) {
        sender.estimator.take_back(first + index);
    }
    assert_eq!((sender.loss().rate, sender.loss().window_max), (0.0, 0.0));
    assert_eq!(sender.loss().burst_length, 1.0);
}

/// Of three datagrams two want no acknowledgement.
#[test]
fn losses_among_datagrams_that_do_not_count_are_taken_back() {
    let mut sender = Sender::new();
    for _ in 0..100 {
        sender.send(false);
        sender.sequence += 2;
    }
    let first = sender.sequence;
    for _ in 0..6 {
        sender.send(true);
        sender.sequence += 2;
    }
    assert!(sender.loss().window_max > 0.0);
    for number in 0..6 {
        sender.estimator.take_back(first + number * 3);
    }
    for _ in 0..100 {
        sender.send(false);
        sender.sequence += 2;
    }
    let loss = sender.loss();
    assert_eq!((loss.rate, loss.window_max), (0.0, 0.0), "{loss:?}");
}

#[test]
fn a_spike_of_delay_taken_for_an_outage_is_taken_back_whole() {
    let mut sender = Sender::new();
    (0..1_000).for_each(|_| sender.send(false));
    let first = sender.sequence;
    (0..500).for_each(|_| sender.send(true));
    for index in 0..500 {
        sender.estimator.take_back(first + index);
    }
    let clean = Loss {
        rate: 0.0,
        window_max: 0.0,
        burst_length: 1.0,
    };
    assert_eq!(sender.loss(), clean);
    sender.send(false);
    assert_eq!(sender.loss(), clean);
}

#[test]
fn memory_stays_bounded_over_a_long_life() {
    let mut sender = Sender::new();
    sender.random(&mut ChaCha8Rng::seed_from_u64(7), 200_000, 0.1);
    assert!(
        sender.estimator.buckets.len() < 128,
        "{}",
        sender.estimator.buckets.len()
    );
}

/// A path that the scheduler avoids, since it lost a tenth of what it carried for twelve seconds, carries a probe each five seconds.
#[test]
fn the_loss_of_a_path_that_is_avoided_is_forgotten_in_minutes() {
    let mut sender = Sender::new();
    sender.random(&mut ChaCha8Rng::seed_from_u64(3), 12_000, 0.1);
    assert!(sender.loss().feared() > 0.08);
    let probe = |sender: &mut Sender, lost| {
        sender.now += Duration::from_secs(5);
        sender.send(lost);
    };
    for _ in 0..12 {
        probe(&mut sender, false);
    }
    // A minute of probes is less than what was counted before.
    assert!(sender.loss().feared() > 0.05, "{:?}", sender.loss());
    for _ in 0..48 {
        probe(&mut sender, false);
    }
    assert!(sender.loss().feared() < 0.01, "{:?}", sender.loss());
    // And one that loses on is known for it.
    for count in 0..120 {
        probe(&mut sender, count % 4 == 0);
    }
    assert!(sender.loss().feared() > 0.1, "{:?}", sender.loss());
}

/// A second of one datagram each tells a share of one in a hundred.
#[test]
fn a_path_that_carries_a_datagram_each_second_is_known() {
    let mut sender = Sender::new();
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    for _ in 0..1_000 {
        sender.now += Duration::from_secs(1);
        sender.send(rng.random_bool(0.1));
    }
    assert!(sender.estimator.is_known());
    let rate = sender.loss().rate;
    assert!((0.04..0.2).contains(&rate), "{rate}");
}

/// A fade of 300 ms, shorter than a round trip to a geostationary satellite, and single losses after it.
#[test]
fn one_long_burst_is_forgotten_when_others_are_short() {
    let mut sender = Sender::new();
    (0..1_000).for_each(|_| sender.send(false));
    for count in 0..301 {
        let datagram = Settled {
            sequence: sender.sequence,
            sent: sender.now,
            lost: count < 300,
        };
        sender.estimator.add(datagram, Duration::from_millis(600));
        sender.sequence += 1;
        sender.now += Duration::from_millis(1);
    }
    assert!(sender.loss().burst_length > 250.0);
    // Fifty datagrams a second, of which one in a thousand is lost.
    for count in 0..15_000 {
        sender.now += Duration::from_millis(19);
        sender.send(count % 1_000 == 999);
    }
    assert!(sender.loss().burst_length < 2.0, "{:?}", sender.loss());
}

/// Pauses that close, age and forget buckets, bursts, and losses that prove to be reordering.
#[test]
fn what_is_counted_as_it_comes_is_what_the_buckets_hold() {
    for seed in 0..20 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut sender = Sender::new();
        let mut lost = Vec::new();
        for step in 0..4_000 {
            match rng.random_range(0..100) {
                0 => sender.now += Duration::from_millis(rng.random_range(0..40_000)),
                1..10 if !lost.is_empty() => {
                    let index = rng.random_range(0..lost.len());
                    sender.estimator.take_back(lost.swap_remove(index));
                }
                draw => {
                    let is_lost = draw >= 80;
                    if is_lost {
                        lost.push(sender.sequence);
                    }
                    sender.send(is_lost);
                }
            }
            let mut counted = sender.estimator.clone();
            counted.recount();
            assert_eq!(sender.loss(), counted.loss(), "seed {seed}, step {step}");
        }
        assert!(sender.estimator.is_known());
    }
}

/// Batches that leave at once, between losses, pauses, and losses that prove to be reordering.
#[test]
fn a_batch_that_arrived_counts_as_its_datagrams() {
    for seed in 0..10 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut together = LossEstimator::default();
        let mut alone = LossEstimator::default();
        let (mut now, mut sequence) = (Instant::now(), 1_000_u64);
        let mut lost = Vec::new();
        for step in 0..300 {
            let datagram = Settled {
                sequence,
                sent: now,
                lost: rng.random_bool(0.2),
            };
            together.add(datagram, RTT);
            alone.add(datagram, RTT);
            sequence += 1;
            if datagram.lost {
                lost.push(datagram.sequence);
            } else {
                let most = if rng.random_bool(0.5) { 6 } else { 150 };
                let more = rng.random_range(0..most);
                together.add_alike(datagram, more);
                for _ in 0..more {
                    alone.add(
                        Settled {
                            sequence,
                            ..datagram
                        },
                        RTT,
                    );
                    sequence += 1;
                }
            }
            match rng.random_range(0..10) {
                0 => now += Duration::from_millis(rng.random_range(0..50_000)),
                1 if !lost.is_empty() => {
                    let index = rng.random_range(0..lost.len());
                    let late = lost.swap_remove(index);
                    together.take_back(late);
                    alone.take_back(late);
                }
                2..8 => now += Duration::from_millis(rng.random_range(0..60)),
                _ => {}
            }
            let (together, alone) = (format!("{together:?}"), format!("{alone:?}"));
            assert_eq!(together, alone, "seed {seed}, step {step}");
        }
    }
}
