//! `leocc2` where the path fails it: outages, shorter paths, losses and bursts, mostly where nothing signals them. Each test
//! asserts what a user would miss.

use std::time::Duration;

use starhaul_cc::{ControllerConfig, LeoCcOptions};
use starhaul_units::Bandwidth;

use crate::harness::{Path, Run};

const OURS: ControllerConfig = ControllerConfig::LeoCc(LeoCcOptions::TARGET_QUEUE);

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// How many seconds after `from` the flow first has `share` of the path's rate for half a second.
fn seconds_until(run: &Run, path: &Path, from: f64, share: f64) -> f64 {
    (0..200u32)
        .map(|n| from + f64::from(n) * 0.1)
        .find(|&at| run.share(path, at, at + 0.5) > share)
        .map_or(f64::INFINITY, |at| at - from)
}

/// An outage says nothing of the rate after it, whether it was signalled or not.
#[test]
fn the_rate_is_back_within_two_seconds_of_an_outage() {
    for rtt_ms in [40, 100, 300] {
        for outage_ms in [300, 1000, 3000] {
            for told in [false, true] {
                let mut path = Path::new(100, rtt_ms);
                let end = 20 * SECOND + outage_ms * MS;
                path.outage = Some((20 * SECOND, end));
                if told {
                    path.reconfigured = vec![end + MS * u32::try_from(rtt_ms).unwrap()];
                }
                let run = path.run(&OURS, 45);
                let took = seconds_until(&run, &path, end.as_secs_f64(), 0.9);
                assert!(
                    took < 2.0 + 0.006 * rtt_ms as f64,
                    "{rtt_ms} ms, outage of {outage_ms} ms, told: {told}: {took:.1} s"
                );
            }
        }
    }
}

/// The mean queue between two times in milliseconds at this rate.
fn queue_ms(run: &Run, rate: Bandwidth, from: f64, to: f64) -> f64 {
    run.mean_queue(from, to) * 8e3 / (rate.mbit() * 1e6)
}

/// A path that became shorter leaves what was in flight in its queue, which passes for the path's own RTT.
#[test]
fn the_queue_of_a_path_that_became_shorter_is_gone_within_seconds() {
    for (before_ms, after_ms, told) in [
        (70, 40, true),
        (70, 40, false),
        (600, 50, true),
        (600, 50, false),
        (150, 100, false),
    ] {
        let mut path = Path::new(50, before_ms).queue_bdp(4.0);
        path.later_rtt = Some((20 * SECOND, after_ms * MS));
        if told {
            path.reconfigured = vec![20 * SECOND + after_ms * MS];
        }
        let run = path.run(&OURS, 40);
        let queue = queue_ms(&run, path.rate, 23.0, 40.0);
        let name = format!("{before_ms} to {after_ms} ms, told: {told}");
        assert!(queue < 16.0, "{name}: {queue:.1} ms");
        let share = run.share(&path, 23.0, 40.0);
        assert!(share > 0.95, "{name}: {share:.3}");
    }
}

/// After a pause of the application the first RTT is no deviation from those before it.
#[test]
fn a_pause_makes_no_long_queue() {
    let mut path = Path::new(50, 60).queue_bdp(4.0);
    path.idle = Some((20 * SECOND, 33 * SECOND));
    path.later_rtt = Some((25 * SECOND, 80 * MS));
    let run = path.run(&OURS, 43);
    let queue = queue_ms(&run, path.rate, 36.0, 43.0);
    assert!(queue < 14.0, "{queue:.1} ms");
    let share = run.share(&path, 35.0, 43.0);
    assert!(share > 0.95, "{share:.3}");
}

/// Nothing tells that the capacity fell to a fifth; the queue of it is the flow's own.
#[test]
fn a_drop_of_capacity_is_no_rival() {
    for (mbit, later) in [(100, 20), (50, 10)] {
        let mut path = Path::new(mbit, 40).queue_bdp(10.0);
        let rate = Bandwidth::from_mbit(later);
        path.later_rate = Some((20 * SECOND, rate));
        let run = path.run(&OURS, 30);
        let rival = run
            .between(15.0, 30.0)
            .any(|sample| sample.state == "cruise_competitive");
        assert!(!rival, "{mbit} to {later}");
        let queue = queue_ms(&run, rate, 22.0, 30.0);
        assert!(queue < 40.0, "{mbit} to {later}: {queue:.1} ms");
    }
}

/// What is lost at random, up to about a fifth, does not shrink the window.
#[test]
fn a_fifth_lost_at_random_leaves_the_rate() {
    for (rtt_ms, loss) in [(600, 0.1), (100, 0.1), (100, 0.15), (50, 0.18)] {
        let path = Path::new(100, rtt_ms).queue_bdp(2.0).loss(loss, 3);
        let run = path.run(&OURS, 60);
        let share = run.share(&path, 20.0, 60.0);
        assert!(share > 0.8, "{rtt_ms} ms, loss {loss}: {share:.3}");
    }
}

/// Packets that a short buffer drops are not lost at random.
#[test]
fn a_short_buffer_is_not_flooded() {
    for (rtt_ms, share) in [(40, 0.05), (100, 0.05), (100, 0.02)] {
        let path = Path::new(50, rtt_ms).queue_bdp(share);
        let run = path.run(&OURS, 30);
        let sent = run.samples.len() as f64 + run.lost as f64;
        let lost = run.lost as f64 / sent;
        assert!(lost < 0.06, "{rtt_ms} ms, {share} BDP: {lost:.3}");
    }
}

/// Startup ends beside another flow that started at the same time.
#[test]
fn drain_ends_beside_a_rival() {
    for rival in [ControllerConfig::Cubic, ControllerConfig::Bbr] {
        let path = Path::new(50, 60).queue_bdp(4.0);
        let runs = path.run_all(&[(OURS, 0), (rival.clone(), 0)], 20);
        let drain: Vec<f64> = runs[0]
            .between(0.0, 20.0)
            .filter(|sample| sample.state == "drain")
            .map(|sample| sample.at.as_secs_f64())
            .collect();
        let took = drain.last().unwrap_or(&0.0) - drain.first().unwrap_or(&0.0);
        assert!(took < 1.5, "beside {}: {took:.1} s", rival.name());
    }
}

/// Some packets at a low rate are a long queue.
#[test]
fn a_slow_link_has_few_packets_queued() {
    for (kbit, most_ms) in [(64, 1100.0), (250, 300.0)] {
        let mut path = Path::new(1, 100);
        path.rate = Bandwidth::from_kbit(kbit);
        path.queue_bytes = 60 * 1452;
        let run = path.run(&OURS, 200);
        let queue = queue_ms(&run, path.rate, 60.0, 200.0);
        assert!(queue < most_ms, "{kbit} kbit/s: {queue:.0} ms");
        let share = run.share(&path, 60.0, 200.0);
        assert!(share > 0.9, "{kbit} kbit/s: {share:.3}");
    }
}

/// Nothing tells that the capacity rose to five times what it was.
#[test]
fn a_rate_that_rose_is_found_within_seconds() {
    for rtt_ms in [40, 100] {
        let mut path = Path::new(20, rtt_ms).queue_bdp(10.0);
        path.later_rate = Some((20 * SECOND, Bandwidth::from_mbit(100)));
        let run = path.run(&OURS, 60);
        path.rate = Bandwidth::from_mbit(100);
        let took = seconds_until(&run, &path, 20.0, 0.9);
        assert!(
            took < 2.0 + 0.06 * rtt_ms as f64,
            "{rtt_ms} ms: {took:.1} s"
        );
    }
}

/// On a long path each round trip counts: what a burst has shown is the rate of the next one.
#[test]
fn a_rate_that_rose_is_found_on_a_long_path() {
    for (rtt_ms, before, mbit, within) in [
        (200, 20, 40, 8.0),
        (200, 20, 100, 15.0),
        (250, 50, 200, 19.0),
    ] {
        let mut path = Path::new(before, rtt_ms).queue_bdp(1.0).loss(0.002, 3);
        path.later_rate = Some((20 * SECOND, Bandwidth::from_mbit(mbit)));
        let run = path.run(&OURS, 60);
        path.rate = Bandwidth::from_mbit(mbit);
        let took = seconds_until(&run, &path, 20.0, 0.9);
        assert!(
            took < within,
            "{rtt_ms} ms, {before} to {mbit} Mbit/s: {took:.1} s"
        );
    }
}

/// Two signals within the time in which one Adaptation is enough, and the path became longer with the second: it is followed a little later,
/// and what the path has become is no rival.
#[test]
fn a_signal_soon_after_another_is_followed() {
    let mut path = Path::new(40, 150).queue_bdp(4.0);
    path.later_rtt = Some((21_100 * MS, 250 * MS));
    path.reconfigured = vec![20 * SECOND, 21_350 * MS];
    let run = path.run(&OURS, 40);
    let adapts = |from: f64, to: f64| run.between(from, to).any(|s| s.state == "adaptation");
    assert!(adapts(20.0, 20.5) && adapts(21.5, 22.5));
    let rival = run
        .between(20.0, 40.0)
        .any(|sample| sample.state == "cruise_competitive");
    assert!(!rival);
    let share = run.share(&path, 27.0, 40.0);
    assert!(share > 0.8, "{share:.3}");
}
