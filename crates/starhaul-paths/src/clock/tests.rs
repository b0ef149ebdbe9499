use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// Two clocks: the peer's is `offset` ahead when ours reads zero and runs fast by `drift_ppm`.
struct Clocks {
    start: Instant,
    offset: Duration,
    drift_ppm: f64,
}

impl Clocks {
    fn peer(&self, ours: Duration) -> Duration {
        self.offset + ours.mul_f64(1.0 + self.drift_ppm / 1e6)
    }

    /// One exchange from `sent`, with these one-way delays and 2 ms of processing between.
    fn exchange(&self, clock: &mut ClockOffset, sent: Duration, there: Duration, back: Duration) {
        let (received, replied) = (sent + there, sent + there + Duration::from_millis(2));
        let heard = replied + back;
        clock.on_sample(
            self.start + heard,
            sent,
            self.peer(received),
            self.peer(replied),
            heard,
        );
    }
}

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}

#[test]
fn the_offset_is_found_within_a_millisecond_despite_queues_and_drift() {
    for seed in 0..20 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let drift_ppm = rng.random_range(-50.0..50.0);
        let clocks = Clocks {
            start: Instant::now(),
            offset: Duration::from_secs(rng.random_range(0..100_000)),
            drift_ppm,
        };
        let mut clock = ClockOffset::new();
        for tick in 1..=600u32 {
            let sent = tick * ms(100.0);
            // Queues of up to 80 ms, nearly all in the forward direction.
            let queue = rng.random::<f64>().powi(2) * 80.0;
            clocks.exchange(
                &mut clock,
                sent,
                ms(50.0 + queue),
                ms(50.0 + rng.random_range(0.0..2.0)),
            );
            if tick > 150 {
                let really = ms(50.0 + queue);
                let measured = clock.one_way(sent, clocks.peer(sent + really)).unwrap();
                let error = measured.abs_diff(really);
                assert!(
                    error < ms(1.0),
                    "seed {seed}, drift {drift_ppm} ppm: wrong by {error:?} at {sent:?}"
                );
            }
        }
    }
}

#[test]
fn a_peer_whose_clock_is_behind_has_a_negative_offset() {
    let mut clock = ClockOffset::new();
    let now = Instant::now();
    assert_eq!(clock.offset_micros(), None);
    assert_eq!(clock.one_way(ms(1.0), ms(2.0)), None);
    clock.on_sample(now, ms(1000.0), ms(130.0), ms(130.0), ms(1060.0));
    assert_eq!(clock.offset_micros(), Some(-900_000));
    assert_eq!(clock.one_way(ms(1000.0), ms(130.0)), Some(ms(30.0)));
    assert_eq!(clock.one_way(ms(1000.0), ms(90.0)), Some(Duration::ZERO));
}

#[test]
fn impossible_samples_are_ignored() {
    let mut clock = ClockOffset::new();
    let now = Instant::now();
    clock.on_sample(now, ms(10.0), ms(5.0), ms(5.0), ms(9.0));
    clock.on_sample(now, ms(10.0), ms(5.0), ms(4.0), ms(20.0));
    clock.on_sample(now, ms(10.0), ms(5.0), ms(100.0), ms(20.0));
    clock.on_sample(now, ms(10.0), Duration::MAX, Duration::MAX, ms(20.0));
    assert_eq!(clock.offset_micros(), None);
}

#[test]
fn an_old_sample_gives_way_when_the_clock_was_set() {
    let start = Instant::now();
    let mut clock = ClockOffset::new();
    let exchange = |clock: &mut ClockOffset, second: u64, offset: Duration| {
        let sent = Duration::from_secs(second);
        let (there, heard) = (sent + ms(20.0) + offset, sent + ms(41.0));
        clock.on_sample(start + heard, sent, there, there, heard);
    };
    exchange(&mut clock, 1, ms(5000.0));
    for second in 2..=60 {
        exchange(&mut clock, second, ms(0.0));
    }
    assert_eq!(clock.offset_micros(), Some(-500));
}

/// A monotonic clock stands still while its computer is suspended.
#[test]
fn the_first_sample_after_a_clock_stood_still_is_believed() {
    for (before, after) in [(0.0, 20_000.0), (20_000.0, 0.0)] {
        let start = Instant::now();
        let mut clock = ClockOffset::new();
        let mut exchange = |second: u64, offset: f64, rtt: f64| {
            let sent = Duration::from_secs(second);
            let (there, heard) = (sent + ms(rtt / 2.0 + offset), sent + ms(rtt));
            clock.on_sample(start + heard, sent, there, there, heard);
            clock.offset_micros().unwrap() as f64 / 1e3
        };
        for second in 100..130 {
            assert_eq!(exchange(second, before, 41.0), before);
        }
        assert_eq!(exchange(130, after, 51.0), after);
    }
}

#[test]
fn a_packet_that_was_late_one_way_does_not_shift_the_offset() {
    for (there, back) in [(5000.0, 20.0), (20.0, 5000.0), (20.0, 19.0)] {
        let clocks = Clocks {
            start: Instant::now(),
            offset: Duration::from_secs(100),
            drift_ppm: 50.0,
        };
        let mut clock = ClockOffset::new();
        for tick in 1..=300u32 {
            clocks.exchange(&mut clock, tick * ms(100.0), ms(20.0), ms(20.0));
        }
        let before = clock.offset_micros().unwrap();
        clocks.exchange(&mut clock, ms(30_100.0), ms(there), ms(back));
        let moved = clock.offset_micros().unwrap() - before;
        assert!(moved.abs() < 1000, "{there} and {back} ms: {moved} us");
    }
}
