//! Vegas, Copa and Hybla over a simulated bottleneck, against published results.

use std::time::Duration;

use starhaul_cc::ControllerConfig::{Copa, Cubic, Hybla, Vegas};
use starhaul_units::Bandwidth;

use crate::harness::{PACKET_BYTES, Path, Run};

fn queue_packets(run: &Run, from: f64, to: f64) -> f64 {
    run.mean_queue(from, to) / PACKET_BYTES as f64
}

/// Brakmo and Peterson (1995) §3.2: between α = 2 and β = 4 packets of its own are queued on any path, and none is lost
/// once it has measured the path.
#[test]
fn vegas_keeps_two_to_four_packets_queued() {
    for (mbit, rtt_ms) in [(2, 30), (20, 40), (50, 60), (5, 200)] {
        let path = Path::new(mbit, rtt_ms).queue_bdp(4.0);
        let run = path.run(&Vegas, 60);
        let share = run.share(&path, 30.0, 60.0);
        assert!(share > 0.98, "{path:?}: {share:.3}");
        let queue = queue_packets(&run, 30.0, 60.0);
        assert!((1.5..=4.5).contains(&queue), "{path:?}: {queue:.1} packets");
        assert_eq!(run.lost, 0, "{path:?}");
    }
}

/// Mo et al. (1999): controllers of Reno's kind fill the queue and Vegas yields, which is why it is not used.
#[test]
fn vegas_gives_way_to_cubic() {
    let path = Path::new(20, 40).queue_bdp(2.0);
    let runs = path.run_all(&[(Vegas, 0), (Cubic, 5)], 60);
    let (vegas, cubic) = (
        runs[0].share(&path, 30.0, 60.0),
        runs[1].share(&path, 30.0, 60.0),
    );
    assert!(vegas < 0.2 && cubic > 0.75, "{vegas:.3} against {cubic:.3}");
}

/// Vegas takes a longer path for a queue, as its least RTT never expires.
#[test]
fn vegas_starves_on_a_path_that_became_longer() {
    let mut path = Path::new(20, 40);
    let longer = Duration::from_millis(80);
    path.later_rtt = Some((Duration::from_secs(20), longer));
    let run = path.run(&Vegas, 60);
    assert!(run.share(&path, 10.0, 20.0) > 0.98);
    let share = run.share(&path, 50.0, 60.0);
    assert!(share < 0.1, "{share:.3}");
}

/// Arun and Balakrishnan (2018) §3.1: the queue varies between nothing and 2.5/δ packets, 1.25/δ on average, with δ = ½
/// on any path; the link stays busy, and random loss has no effect.
#[test]
fn copa_keeps_about_its_inverse_delta_queued() {
    for (mbit, rtt_ms, loss) in [(20, 40, 0.0), (100, 60, 0.0), (50, 20, 0.0), (20, 40, 0.02)] {
        let path = Path::new(mbit, rtt_ms).queue_bdp(2.0).loss(loss, 11);
        let run = path.run(&Copa, 60);
        let share = run.share(&path, 20.0, 60.0) / (1.0 - loss);
        assert!(share > 0.97, "{path:?}: {share:.3}");
        let queue = queue_packets(&run, 20.0, 60.0);
        assert!((1.0..=5.0).contains(&queue), "{path:?}: {queue:.1} packets");
    }
}

/// §2.2: the velocity doubles, so a bandwidth four times as great is found within some ten rounds.
#[test]
fn copa_speeds_up_towards_a_distant_target() {
    let mut path = Path::new(10, 40).queue_bdp(2.0);
    let later = Bandwidth::from_mbit(40);
    path.later_rate = Some((Duration::from_secs(20), later));
    let run = path.run(&Copa, 30);
    let settled = 20.0 + 15.0 * 0.040;
    let share = run.rate_between(settled, settled + 2.0).mbit() / later.mbit();
    assert!(share > 0.9, "{share:.3}");
}

/// §5.2 and figure 8: flows that come one after the other share equally.
#[test]
fn copa_flows_share_equally() {
    let path = Path::new(50, 40).queue_bdp(2.0);
    let flows: Vec<_> = (0..4).map(|i| (Copa, 5 * i)).collect();
    let runs = path.run_all(&flows, 60);
    let shares: Vec<f64> = runs.iter().map(|r| r.share(&path, 30.0, 60.0)).collect();
    let (sum, squares) = shares
        .iter()
        .fold((0.0, 0.0), |(sum, squares), s| (sum + s, squares + s * s));
    let jain = sum * sum / (4.0 * squares);
    assert!(jain > 0.95, "{shares:.3?}: {jain:.3}");
    assert!(sum > 0.97, "{sum:.3}");
}

/// §2.3: beside a flow that keeps the queue full Copa turns to competitive mode and does not starve, as Vegas would;
/// alone again it turns back.
#[test]
fn copa_competes_with_cubic() {
    let path = Path::new(20, 40).queue_bdp(1.0);
    let runs = path.run_all(&[(Copa, 0), (Cubic, 5)], 90);
    let share = runs[0].share(&path, 30.0, 90.0);
    assert!((0.25..0.75).contains(&share), "{share:.3}");
    let competing = |from, to| {
        let (all, competing) = runs[0].between(from, to).fold((0, 0), |(all, some), s| {
            (all + 1, some + i32::from(s.state == "competitive_mode"))
        });
        f64::from(competing) / f64::from(all)
    };
    assert!(competing(1.0, 5.0) < 0.2, "{:.2}", competing(1.0, 5.0));
    assert!(competing(30.0, 90.0) > 0.5, "{:.2}", competing(30.0, 90.0));
}

/// Caini and Firrincieli (2004) §3: throughput is that of a connection of 25 ms, MSS/RTT0 × sqrt(3/2p), at any RTT.
#[test]
fn hybla_is_as_fast_on_long_paths_as_on_short_ones() {
    let loss = 0.005;
    let law = PACKET_BYTES as f64 * 8.0 / 0.025 * (1.5_f64 / loss).sqrt() / 1e6;
    for (rtt_ms, seed) in [(25, 1), (50, 2), (100, 3), (200, 4)] {
        let path = Path::new(200, rtt_ms).loss(loss, seed);
        let rate = path.run(&Hybla, 120).rate_between(20.0, 120.0).mbit();
        let ratio = rate / law;
        assert!(
            (0.7..1.25).contains(&ratio),
            "{rtt_ms} ms, seed {seed}: {rate:.2} of {law:.2} Mbit/s"
        );
    }
}

/// Hoe's estimate: the threshold of the first slow start is the path's BDP, reached in two rounds of a geostationary
/// path, where doubling takes six.
#[test]
fn hybla_finds_its_first_threshold_in_one_round() {
    let path = Path::new(10, 600).queue_bdp(1.0);
    let (hybla, cubic) = (path.run(&Hybla, 10), path.run(&Cubic, 10));
    let early = |run: &Run| run.share(&path, 1.3, 3.7);
    assert!(early(&hybla) > 0.9, "{:.3}", early(&hybla));
    assert!(early(&cubic) < 0.5, "{:.3}", early(&cubic));
}
