//! BBRv3, Vivace and SaTCP over a simulated bottleneck, against published results.

use std::time::Duration;

use starhaul_cc::ControllerConfig::{self, Bbr, Bbr3, Cubic, SaTcp, Vivace};
use starhaul_units::Bandwidth;

use crate::harness::{PACKET_BYTES, Path, Run};

/// draft-ietf-ccwg-bbr-06 §3.3: more than 2 % lost in a probe bounds it, so at 1 % most of the rate is
/// kept, where Cubic keeps a fraction.
#[test]
fn bbr3_tolerates_a_percent_of_random_loss() {
    for (mbit, rtt_ms, seed) in [(20, 40, 3), (50, 50, 4)] {
        let path = Path::new(mbit, rtt_ms).loss(0.01, seed).queue_bdp(2.0);
        let share = |config| path.run(&config, 60).share(&path, 10.0, 60.0);
        let (bbr3, cubic) = (share(Bbr3), share(Cubic));
        assert!(bbr3 > 0.6, "seed {seed}: {bbr3:.3}");
        assert!(
            bbr3 > 2.5 * cubic,
            "seed {seed}: {bbr3:.3} against {cubic:.3}"
        );
    }
}

/// §3.4: the probing cycle and the ProbeRTT phases at half a BDP each five seconds, with a queue far below a loss-based
/// controller's.
#[test]
fn bbr3_goes_through_its_cycle_with_little_queue() {
    let path = Path::new(20, 40).queue_bdp(4.0);
    let run = path.run(&Bbr3, 40);
    assert!(run.share(&path, 5.0, 40.0) > 0.93);
    assert!(run.mean_queue(5.0, 40.0) < 0.25 * path.bdp() as f64);
    let mut states: Vec<&str> = run.samples.iter().map(|s| s.state).collect();
    states.dedup();
    assert_eq!(states[..2], ["startup", "drain"]);
    let count = |wanted| states.iter().filter(|state| **state == wanted).count();
    for state in ["probe_bw_refill", "probe_bw_up", "probe_bw_down"] {
        assert!((7..=20).contains(&count(state)), "{state}: {states:?}");
    }
    assert!((5..=8).contains(&count("probe_rtt")), "{states:?}");
}

/// §3.3: version 1 in a queue of one BDP takes nearly all from Cubic, version 3 shares with it.
#[test]
fn bbr3_shares_with_cubic_better_than_version_1() {
    let path = Path::new(50, 40).queue_bdp(1.0);
    let cubics_share = |rival| {
        let runs = path.run_all(&[(Cubic, 0), (rival, 5)], 90);
        runs[0].share(&path, 30.0, 90.0)
    };
    let (beside_v1, beside_v3) = (cubics_share(Bbr), cubics_share(Bbr3));
    assert!((0.3..0.7).contains(&beside_v3), "{beside_v3:.3}");
    assert!(beside_v1 < 0.2, "{beside_v1:.3}");
}

/// Startup ends by loss in a shallow queue, with a bound on what is in flight (§5.3.1.3).
#[test]
fn bbr3_loses_less_than_version_1_in_a_shallow_queue() {
    let path = Path::new(50, 40).queue_bdp(0.2);
    let (v1, v3) = (path.run(&Bbr, 30), path.run(&Bbr3, 30));
    assert!(2 * v3.lost < v1.lost, "{} against {}", v3.lost, v1.lost);
    assert!(v3.share(&path, 5.0, 30.0) > 0.8);
}

/// §5.3.3.6: after a probe that lost too much the next one turns back at the bound, and if that loses little another
/// follows within an RTT or two; without losses none does.
#[test]
fn bbr3_probes_with_precaution_after_a_probe_that_lost() {
    // Seconds from the end of each probe to the beginning of the next.
    let pauses = |queue: f64| {
        let run = Path::new(50, 40).queue_bdp(queue).run(&Bbr3, 60);
        let up: Vec<bool> = run
            .samples
            .iter()
            .map(|s| s.state == "probe_bw_up")
            .collect();
        let at = |i: usize| run.samples[i].at.as_secs_f64();
        let ends = (1..up.len()).filter(|i| up[i - 1] && !up[*i]);
        let starts = (1..up.len()).filter(|i| !up[i - 1] && up[*i]).skip(1);
        let pauses: Vec<f64> = ends
            .zip(starts)
            .map(|(end, start)| at(start) - at(end))
            .collect();
        (pauses, run.lost)
    };
    let (shallow, lost) = pauses(0.1);
    let soon = shallow.iter().filter(|pause| **pause < 0.2).count();
    assert!(lost > 0 && soon >= 3, "{lost} lost: {shallow:.2?}");
    let (deep, lost) = pauses(3.0);
    assert!(
        lost == 0 && deep.iter().all(|pause| *pause > 1.0),
        "{lost} lost: {deep:.2?}"
    );
}

/// Dong et al. (2018) §6.1: at least 90 % of the rate with hardly any queue; two intervals of an RTT each that are 5 %
/// too fast queue a tenth of a BDP.
#[test]
fn vivace_converges_to_the_rate_with_little_queue() {
    for (mbit, rtt_ms) in [(2, 30), (20, 40), (100, 30)] {
        let path = Path::new(mbit, rtt_ms).queue_bdp(4.0);
        let run = path.run(&Vivace, 60);
        let share = run.share(&path, 20.0, 60.0);
        assert!(share > 0.9, "{path:?}: {share:.3}");
        let queue = run.mean_queue(20.0, 60.0) / PACKET_BYTES as f64;
        let bearable = (path.bdp() as f64 / PACKET_BYTES as f64 / 10.0).max(5.0);
        assert!(queue < bearable, "{path:?}: {queue:.1} packets");
    }
}

/// §4.2: a changed rate is found in some steps, each longer than the one before. Where it halved the queue is full
/// until then, so that each of the about ten rounds lasts three of an empty path, and loses half to a fifth of a BDP.
#[test]
fn vivace_follows_a_rate_that_changed() {
    for (mbit, later) in [(20, 10), (50, 25), (10, 20), (25, 50)] {
        let mut path = Path::new(mbit, 40).queue_bdp(2.0);
        let later = Bandwidth::from_mbit(later);
        path.later_rate = Some((Duration::from_secs(20), later));
        let run = path.run(&Vivace, 40);
        let share = run.rate_between(23.0, 40.0).mbit() / later.mbit();
        assert!(share > 0.85, "{path:?}: {share:.3}");
        let lost = run.lost as f64 * PACKET_BYTES as f64 / path.bdp() as f64;
        assert!(lost < 20.0, "{path:?}: {lost:.1} BDPs lost");
    }
}

/// §4.1: c = 11.35 is chosen to tolerate up to 5 % of random loss.
#[test]
fn vivace_bears_random_loss() {
    for (loss, least) in [(0.01, 0.75), (0.03, 0.5)] {
        let path = Path::new(20, 40).loss(loss, 9).queue_bdp(2.0);
        let share = |config| path.run(&config, 90).share(&path, 20.0, 90.0);
        let (vivace, cubic) = (share(Vivace), share(Cubic));
        assert!(vivace > least, "{loss}: {vivace:.3}");
        assert!(
            vivace > 3.0 * cubic,
            "{loss}: {vivace:.3} against {cubic:.3}"
        );
    }
}

/// §4.4, theorem 1: any number of senders with the same utility function converge to a fair share from any rates. Where
/// their share of a step is small it takes minutes.
#[test]
fn vivace_flows_converge_to_a_fair_share() {
    for (flows, mbit_each) in [(2, 25), (4, 6), (4, 25), (8, 6)] {
        let path = Path::new(flows * mbit_each, 30).queue_bdp(1.0);
        let flows: Vec<_> = (0..flows).map(|i| (Vivace, 5 * i)).collect();
        let runs = path.run_all(&flows, 120);
        let rate = |run: &Run| run.rate_between(60.0, 120.0).mbit();
        let (sum, squares) = runs
            .iter()
            .map(rate)
            .fold((0.0, 0.0), |(sum, squares), r| (sum + r, squares + r * r));
        let jain = sum * sum / squares / runs.len() as f64;
        assert!(jain > 0.95, "{path:?}: {jain:.3}");
    }
}

/// A handover's loss shrinks the window as any loss does, but the window is regained nine times as soon, whether the
/// signal precedes or follows the detection of the loss (LeoEM's code); a loss long after costs what it costs Cubic.
#[test]
fn satcp_comes_back_quickly_from_a_reconfiguration() {
    let cubic = seconds_to_regain(&Cubic, 60, None);
    assert!((3.0..10.0).contains(&cubic), "{cubic:.2} s");
    for told in [30_065, 30_400] {
        let satcp = seconds_to_regain(&SaTcp, 60, Some(told));
        assert!(satcp < cubic / 4.0, "{satcp:.2} of {cubic:.2} s");
    }
    assert_eq!(seconds_to_regain(&SaTcp, 60, Some(20_000)), cubic);
}

/// A timeout during a handover keeps the curve (LeoEM's code), so that the window is regained soon after slow start.
#[test]
fn satcp_keeps_its_curve_through_a_timeout() {
    let cubic = seconds_to_regain(&Cubic, 1040, None);
    let satcp = seconds_to_regain(&SaTcp, 1040, Some(31_050));
    assert!(satcp < cubic / 2.0, "{satcp:.2} of {cubic:.2} s");
}

/// Time from the decrease until the window is regained, after an outage at 30 s. `told` is the time of the signal in
/// ms.
fn seconds_to_regain(config: &ControllerConfig, outage_ms: u64, told: Option<u64>) -> f64 {
    let ms = Duration::from_millis;
    let mut path = Path::new(50, 60).queue_bdp(1.0);
    path.outage = Some((ms(30_000), ms(30_000 + outage_ms)));
    path.reconfigured = told.into_iter().map(ms).collect();
    let run = path.run(config, 60);
    let before = run.between(29.9, 30.0).last().unwrap().cwnd;
    let mut after = run
        .between(30.0, 60.0)
        .skip_while(|s| s.cwnd > before * 3 / 4);
    let from = after.next().unwrap().at;
    let back = after.find(|s| s.cwnd >= before * 99 / 100).unwrap().at;
    (back - from).as_secs_f64()
}

/// Without signals it is Cubic.
#[test]
fn satcp_is_cubic_without_a_signal() {
    let path = Path::new(20, 40).loss(0.002, 5);
    let rate = |config| path.run(&config, 40).rate_between(0.0, 40.0);
    assert_eq!(rate(SaTcp), rate(Cubic));
    assert!(rate(SaTcp) > Bandwidth::from_mbit(1));
}
