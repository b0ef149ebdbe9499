use std::collections::VecDeque;

use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::{PathMonitor, PathUpdate};
use starhaul_units::Bandwidth;

const MS: Duration = Duration::from_millis(1);
/// Longer than the window.
const TICKS: usize = 35_000;

/// How long packets wait in a queue, in milliseconds, for each millisecond: other traffic fills and leaves it.
fn queue(mut is_full: impl FnMut(usize) -> bool) -> Vec<f64> {
    let mut waits = 0.0;
    let each = (0..TICKS + 1_000).map(|tick| {
        let change = if is_full(tick) { 0.4 } else { -0.5 };
        waits = f64::clamp(waits + change, 0.0, 150.0);
        waits
    });
    each.collect()
}

/// Other traffic that comes and goes by chance, each for 0.7 s in the mean.
fn by_chance(rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut is_full = false;
    queue(|_| {
        is_full ^= rng.random_bool(1.0 / 700.0);
        is_full
    })
}

/// A path of a simulated session: what its packets cross, in milliseconds.
struct Way<'q> {
    /// From the sender to the queue.
    before: usize,
    queue: &'q [f64],
    /// The round trip but for the queue.
    round_trip: u32,
}

/// Two paths in virtual time over these ways, each of which carries a datagram every 10 ms that the transport acknowledges: what their
/// monitors say.
fn carried(rng: &mut ChaCha8Rng, ways: [Way<'_>; 2]) -> Sharing {
    let start = Instant::now();
    let update = PathUpdate {
        cwnd: 1_000_000,
        bytes_in_flight: 0,
        bandwidth: Bandwidth::from_mbit(10),
        smoothed_rtt: 60 * MS,
        min_rtt: 60 * MS,
        max_datagram: 1_200,
    };
    let mut paths = [0_u32, 13].map(|late| PathMonitor::new(start + late * MS, 1.0, update, 0));
    let mut flying = [VecDeque::new(), VecDeque::new()];
    for tick in 20..TICKS {
        let now = start + Duration::from_millis(tick as u64);
        for (number, (path, way)) in paths.iter_mut().zip(&ways).enumerate() {
            while let Some((_, sequence)) = flying[number].pop_front_if(|(at, _)| *at <= now) {
                path.on_transport_acked(now, sequence, sequence, &mut Vec::new());
            }
            if (tick + 3 * number) % 10 == 0 {
                let sequence = path.on_sent(now, 1_200, (), true);
                let wait = Duration::from_secs_f64(way.queue[tick + way.before] / 1e3);
                let takes = way.round_trip * MS + wait + rng.random_range(0..5_u32) * MS;
                flying[number].push_back((now + takes, sequence));
            }
        }
    }
    paths[0].rtts().sharing(paths[1].rtts())
}

fn near(queue: &[f64], round_trip: u32) -> Way<'_> {
    Way {
        before: 0,
        queue,
        round_trip,
    }
}

#[test]
fn two_paths_over_one_queue_are_found_and_two_of_equal_rate_over_their_own_are_not() {
    for seed in 0..20 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let [one, other] = [(); 2].map(|()| by_chance(&mut rng));
        let common = carried(&mut rng, [near(&one, 60), near(&one, 100)]);
        assert_eq!(common, Sharing::Common, "seed {seed}");
        let apart = carried(&mut rng, [near(&one, 60), near(&other, 60)]);
        assert_eq!(apart, Sharing::Apart, "seed {seed}");
    }
}

/// As before the peer, behind a low and a geostationary orbit.
#[test]
fn a_queue_behind_ways_of_different_lengths_is_found() {
    for seed in 0..5 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let queue = by_chance(&mut rng);
        let way = |before, round_trip| Way {
            before,
            queue: &queue,
            round_trip,
        };
        let found = carried(&mut rng, [way(330, 660), way(30, 60)]);
        assert_eq!(found, Sharing::Common, "seed {seed}");
    }
}

/// A load that comes each second to both paths fills both queues alike.
#[test]
fn queues_that_one_load_fills_in_the_same_rhythm_are_not_taken_for_one() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let queue = queue(|tick| tick % 1_000 < 300);
    let found = carried(&mut rng, [near(&queue, 60), near(&queue, 60)]);
    assert_eq!(found, Sharing::Unknown);
}

#[test]
fn of_paths_without_queues_or_packets_nothing_is_known() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let empty = vec![0.0; TICKS + 1_000];
    let calm = carried(&mut rng, [near(&empty, 60), near(&empty, 60)]);
    assert_eq!(calm, Sharing::Unknown);
    let start = Instant::now();
    let (mut used, idle) = (RttHistory::new(start), RttHistory::new(start));
    assert_eq!(used.sharing(&idle), Sharing::Unknown);
    let queue = by_chance(&mut rng);
    for (wait, tick) in queue.iter().zip(0..) {
        used.add(
            start + tick * MS,
            60 * MS + Duration::from_secs_f64(wait / 1e3),
        );
    }
    assert_eq!(used.sharing(&idle), Sharing::Unknown);
    assert_eq!(used.sharing(&used.clone()), Sharing::Common);
}

proptest! {
    #[test]
    fn any_round_trips_are_kept_within_bounds_and_compared(
        samples in prop::collection::vec(any::<(bool, u32, u32)>(), 0..2_000), apart: u32,
    ) {
        let start = Instant::now() + Duration::from_secs(1_000_000);
        let mut paths = [start, start + Duration::from_millis(apart.into())].map(RttHistory::new);
        let mut elapsed = Duration::ZERO;
        for (is_second, step, rtt) in samples {
            // Some leave before the others, or before the path was there.
            elapsed += Duration::from_millis((step % 100).into());
            let early = Duration::from_millis(if step % 7 == 0 { (step / 7 % 100_000).into() } else { 0 });
            let rtt = if rtt % 5 == 0 { Duration::MAX } else { Duration::from_micros(rtt.into()) };
            let path = &mut paths[usize::from(is_second)];
            path.add(start + elapsed - early, rtt);
            prop_assert!(path.slots.len() <= KEPT_SLOTS as usize);
        }
        prop_assert_eq!(paths[0].sharing(&paths[1]), paths[1].sharing(&paths[0]));
    }
}
