//! LeoCC's variants over a simulated bottleneck that is reconfigured, against the paper's claims.

use std::time::Duration;

use starhaul_cc::{ControllerConfig, LeoCcOptions};
use starhaul_units::Bandwidth;

use crate::harness::{PACKET_BYTES, Path, Run};

use ControllerConfig::{Bbr, Cubic, LeoCc};

const PAPER: ControllerConfig = LeoCc(LeoCcOptions::PAPER);
const CODE: ControllerConfig = LeoCc(LeoCcOptions::PUBLISHED_CODE);
const OURS: ControllerConfig = LeoCc(LeoCcOptions::TARGET_QUEUE);
const VARIANTS: [ControllerConfig; 3] = [PAPER, CODE, OURS];

const SECOND: Duration = Duration::from_secs(1);

fn named(name: &str) -> ControllerConfig {
    name.parse().unwrap()
}

/// 40 Mbit/s and 20 ms, reconfigured at 20 s.
fn reconfigured(later_mbit: u64, later_rtt_ms: u64) -> Path {
    let mut path = Path::new(40, 20).queue_bdp(10.0);
    path.later_rate = Some((20 * SECOND, Bandwidth::from_mbit(later_mbit)));
    path.later_rtt = Some((20 * SECOND, Duration::from_millis(later_rtt_ms)));
    path.reconfigured = vec![20 * SECOND + Duration::from_millis(later_rtt_ms)];
    path
}

fn later_share(run: &Run, mbit: f64, from: f64, to: f64) -> f64 {
    run.rate_between(from, to).mbit() / mbit
}

fn visited(run: &Run, state: &str, from: f64, to: f64) -> bool {
    run.between(from, to).any(|sample| sample.state == state)
}

/// The flows' rates in Mbit/s between two times, and Jain's index of them: 1 if they are equal.
fn shares(runs: &[Run], from: f64, to: f64) -> (Vec<f64>, f64) {
    let rates: Vec<f64> = runs
        .iter()
        .map(|run| run.rate_between(from, to).mbit())
        .collect();
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    let jain = sum * sum / (rates.len() as f64 * squares);
    (rates, jain)
}

/// LeoCC §4.2: startup, then cruise near the link's rate with less than half a BDP queued.
#[test]
fn each_variant_fills_a_steady_link_with_little_queue() {
    for config in VARIANTS {
        for (mbit, rtt_ms) in [(20, 30), (100, 60), (300, 25)] {
            let path = Path::new(mbit, rtt_ms).queue_bdp(4.0);
            let run = path.run(&config, 15);
            let share = run.share(&path, 3.0, 15.0);
            assert!(share > 0.93, "{} {path:?}: {share:.3}", config.name());
            let queue = run.mean_queue(3.0, 15.0) / path.bdp() as f64;
            assert!(queue < 0.5, "{} {path:?}: {queue:.2} BDP", config.name());
        }
    }
}

/// LeoCC §4.2.2: after a step down the queue drains within some tens of rounds, and the link stays busy.
#[test]
fn a_step_down_is_followed_within_thirty_rounds() {
    for config in VARIANTS {
        let run = reconfigured(20, 20).run(&config, 30);
        assert!(visited(&run, "adaptation", 20.0, 20.5), "{}", config.name());
        let share = later_share(&run, 20.0, 20.6, 30.0);
        assert!(share > 0.93, "{}: {share:.3}", config.name());
        let bdp = Bandwidth::from_mbit(20).bytes_in(Duration::from_millis(20)) as f64;
        let queue = run.mean_queue(20.6, 30.0) / bdp;
        assert!(queue < 0.9, "{}: {queue:.2} BDP", config.name());
    }
}

/// Each cycle of eight rounds gains a quarter, so a doubling takes about four; the published code restarts from
/// startup.
#[test]
fn a_step_up_is_found_within_five_cycles() {
    for config in VARIANTS {
        let run = reconfigured(80, 20).run(&config, 30);
        let settled = 20.0 + 40.0 * 0.020 + 0.3;
        let share = later_share(&run, 80.0, settled, 30.0);
        assert!(share > 0.9, "{}: {share:.3}", config.name());
    }
}

/// LeoCC §2.3: a longer path is no congestion. Copa and Vegas give up most of the link here.
#[test]
fn a_path_that_became_longer_is_used_in_full() {
    for config in [PAPER, OURS] {
        let run = reconfigured(40, 70).run(&config, 30);
        let share = later_share(&run, 40.0, 21.5, 30.0);
        assert!(share > 0.9, "{}: {share:.3}", config.name());
    }
}

/// LeoCC §4.2.2: RTTs are sampled for two round trips with the path half empty, however long these are.
#[test]
fn a_long_path_is_emptied_before_it_is_measured() {
    for rtt_ms in [700, 1000] {
        let run = Path::new(20, rtt_ms).run(&PAPER, 90);
        // From entering to leaving it, each one that is over.
        let mut lengths = Vec::new();
        let mut began = None;
        for sample in run.between(0.0, 90.0) {
            match (sample.state == "adaptation", began) {
                (true, None) => began = Some(sample.at),
                (false, Some(at)) => {
                    lengths.push(sample.at - at);
                    began = None;
                }
                _ => {}
            }
        }
        let least = Duration::from_millis(rtt_ms) * 19 / 10;
        let short = lengths.iter().filter(|length| **length < least).count();
        assert!(!lengths.is_empty(), "{rtt_ms} ms");
        assert_eq!(short, 0, "{rtt_ms} ms: {lengths:?}");
    }
}

/// Without a signal the paper's variant and `leocc2` detect that no RTT is in the band any more, and measure again.
#[test]
fn an_unannounced_longer_path_is_found_out() {
    for (name, least) in [("leocc-no-detector", 0.88), ("leocc2-no-detector", 0.7)] {
        let run = reconfigured(40, 70).run(&named(name), 40);
        let share = later_share(&run, 40.0, 24.0, 40.0);
        assert!(share > least, "{name}: {share:.3}");
    }
}

/// LeoCC §2.1: 0.5–6 % of packets are lost at random within a second, which shows no congestion.
#[test]
fn random_loss_does_not_slow_it_down() {
    for (loss, seed) in [(0.005, 1), (0.02, 2), (0.05, 3)] {
        let path = Path::new(50, 25).queue_bdp(4.0).loss(loss, seed);
        for config in VARIANTS {
            let share = path.run(&config, 20).share(&path, 3.0, 20.0) / (1.0 - loss);
            let name = config.name();
            assert!(share > 0.9, "{name}, loss {loss}, seed {seed}: {share:.3}");
        }
        let cubic = path.run(&Cubic, 20).share(&path, 3.0, 20.0);
        assert!(cubic < 0.45, "{cubic:.3}");
    }
}

/// draft-lai-ccwg-lsncc-01: safe when wrong. A false signal each second and a half costs one short adaptation each, and
/// a flood of them no more.
#[test]
fn false_signals_cost_little() {
    let honest = Path::new(40, 20).queue_bdp(4.0);
    for (spacing_ms, least) in [(1500, 0.85), (20, 0.78)] {
        let mut path = honest.clone();
        path.reconfigured = (0..20_000 / spacing_ms)
            .map(|n| Duration::from_millis(3000 + n * spacing_ms))
            .collect();
        for config in [PAPER, OURS] {
            let share = path.run(&config, 20).share(&path, 3.0, 20.0);
            let name = config.name();
            assert!(share > least, "{name}, each {spacing_ms} ms: {share:.3}");
        }
    }
}

/// The published code holds half the BDP for 200 ms at least and starts up again.
#[test]
fn the_published_code_starts_up_again() {
    let run = reconfigured(40, 20).run(&CODE, 25);
    assert!(visited(&run, "startup", 20.2, 21.0));
    let visit: Vec<f64> = run
        .between(20.0, 21.0)
        .filter(|sample| sample.state == "adaptation")
        .map(|sample| sample.at.as_secs_f64())
        .collect();
    assert!(visit.last().unwrap() - visit.first().unwrap() >= 0.2);
    let paper = reconfigured(40, 20).run(&PAPER, 25);
    assert!(!visited(&paper, "startup", 5.0, 25.0));
}

/// `leocc2` aims at 7 ms and six packets queued where the RTT does not move, and twice that in one round of eight.
#[test]
fn ours_keeps_its_target_queued_at_the_rate_of_bbr() {
    let path = reconfigured(30, 26).loss(0.005, 7);
    let ours = path.run(&OURS, 40);
    let bbr = path.run(&Bbr, 40).rate_between(3.0, 40.0).mbit();
    let rate = ours.rate_between(3.0, 40.0).mbit();
    assert!(rate > 0.96 * bbr, "{rate:.2} against {bbr:.2} of BBR");
    let later = Bandwidth::from_mbit(30);
    let target = later.bytes_in(Duration::from_millis(7)) + 6 * PACKET_BYTES;
    let queue = ours.mean_queue(22.0, 40.0) / target as f64;
    assert!((0.3..1.3).contains(&queue), "{queue:.2} of the target");
}

#[test]
fn flows_share_a_link_equally() {
    for (config, counts) in [(PAPER, 2..=4), (OURS, 2..=8)] {
        for count in counts {
            let mut path = Path::new(60, 24).queue_bdp(4.0).loss(0.002, 5);
            path.reconfigured = (0..4).map(|n| (5 + 15 * n) * SECOND).collect();
            let flows: Vec<_> = (0..count).map(|n| (config.clone(), n)).collect();
            let runs = path.run_all(&flows, 60);
            let (rates, jain) = shares(&runs, 15.0, 60.0);
            assert!(jain > 0.95, "{} × {count}: {rates:.1?}", config.name());
        }
    }
}

/// Copa §2.3 has the same aim: a flow that keeps the queue short must detect one that keeps it full, or it starves.
#[test]
fn ours_is_not_starved_by_cubic() {
    let mut path = Path::new(48, 30).queue_bdp(4.0);
    path.reconfigured = (0..5).map(|n| (5 + 15 * n) * SECOND).collect();
    let runs = path.run_all(&[(OURS, 0), (Cubic, 10)], 75);
    let share = runs[0].share(&path, 30.0, 75.0);
    assert!((0.2..0.7).contains(&share), "{share:.3}");
    assert!(!visited(&runs[0], "cruise_competitive", 0.0, 10.0));
    assert!(visited(&runs[0], "cruise_competitive", 10.0, 20.0));
}

/// The path becomes longer, or its rate another, and nothing ever tells. One that is longer by about the target passes for a queue
/// that Adaptation tries to empty again and again until the least RTT of a minute ago is forgotten, which costs a tenth until then.
#[test]
fn ours_keeps_a_short_queue_where_no_signal_ever_comes() {
    for (mbit, rtt_ms) in [
        (40, 20),
        (40, 28),
        (40, 45),
        (40, 70),
        (40, 200),
        (10, 20),
        (80, 20),
        (15, 70),
    ] {
        let mut path = reconfigured(mbit, rtt_ms);
        path.reconfigured.clear();
        let run = path.run(&OURS, 50);
        // Ten times as long takes longer to be found out.
        let settled = if rtt_ms > 70 { 40.0 } else { 24.0 };
        let share = later_share(&run, mbit as f64, settled, 50.0);
        assert!(share > 0.87, "{mbit} Mbit/s, {rtt_ms} ms: {share:.3}");
        let rate = Bandwidth::from_mbit(mbit);
        let queued = rate.bytes_in(Duration::from_millis(14)) + 12 * PACKET_BYTES;
        let queue = run.mean_queue(settled + 4.0, 50.0) / queued as f64;
        assert!(queue < 1.0, "{mbit} Mbit/s, {rtt_ms} ms: {queue:.2}");
    }
}

#[test]
fn ours_shares_a_link_without_signals_too() {
    for count in 2..=8 {
        let path = Path::new(60, 24).queue_bdp(4.0).loss(0.002, 5);
        let flows: Vec<_> = (0..count).map(|n| (OURS, n)).collect();
        let runs = path.run_all(&flows, 120);
        let (rates, jain) = shares(&runs, 60.0, 120.0);
        assert!(jain > 0.9, "{count} flows: {jain:.3} {rates:.1?}");
    }
}

#[test]
fn ours_is_not_starved_by_cubic_without_signals() {
    let path = Path::new(48, 30).queue_bdp(4.0);
    let runs = path.run_all(&[(OURS, 0), (Cubic, 10)], 75);
    let share = runs[0].share(&path, 30.0, 75.0);
    assert!((0.2..0.7).contains(&share), "{share:.3}");
}
