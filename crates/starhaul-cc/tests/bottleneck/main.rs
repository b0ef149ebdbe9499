//! Each controller over a simulated bottleneck, against published results.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "test code")]

mod curves;
mod delay_based;
mod harness;
mod leocc;
mod leocc2;
mod model_based;

use std::time::{Duration, Instant};

use harness::{PACKET_BYTES, Path, Run};
use starhaul_cc::{AckedPacket, ControllerConfig, RateFeed};
use starhaul_units::Bandwidth;

use ControllerConfig::{Bbr, Cubic, NewReno};

/// Without a queue the sawtooth runs between half the pipe and the full pipe, so three quarters of
/// it are used; a queue of one BDP keeps the pipe full throughout (Appenzeller et al., 2004).
#[test]
fn newreno_uses_three_quarters_without_a_queue_and_all_with_a_bdp() {
    let bare = Path::new(20, 50).queue_bdp(0.05);
    let share = bare.run(&NewReno, 60).share(&bare, 20.0, 60.0);
    assert!((0.70..0.85).contains(&share), "{share:.3}");
    let deep = Path::new(20, 50).queue_bdp(1.0);
    let share = deep.run(&NewReno, 60).share(&deep, 20.0, 60.0);
    assert!(share > 0.97, "{share:.3}");
}

/// Mathis et al. (1997): rate = MSS/RTT × sqrt(3/2)/sqrt(p) under random loss.
#[test]
fn newreno_follows_the_inverse_square_root_law() {
    for (loss, seed) in [(0.005, 1), (0.01, 2), (0.02, 3)] {
        let path = Path::new(100, 40).loss(loss, seed);
        let rate = path.run(&NewReno, 120).rate_between(10.0, 120.0).mbit();
        let law = PACKET_BYTES as f64 * 8.0 / 0.040 * (1.5 / loss).sqrt() / 1e6;
        let ratio = rate / law;
        assert!(
            (0.75..1.15).contains(&ratio),
            "seed {seed}: {rate:.2} of {law:.2} Mbit/s"
        );
    }
}

/// RFC 9438 §5.1, equation 6 with β = 0.7 and C = 0.4: when each 1/p-th packet is lost, the mean
/// window is 1.054 × (RTT/p)^¾ segments.
#[test]
fn cubic_follows_its_response_function_on_long_paths() {
    for (loss_each, rtt_ms) in [(10_000, 100), (5_000, 200), (20_000, 100)] {
        let mut path = Path::new(500, rtt_ms);
        path.loss_each = Some(loss_each);
        let rtt = path.rtt.as_secs_f64();
        let rate = path.run(&Cubic, 300).rate_between(20.0, 300.0).mbit();
        let law =
            1.054 * (rtt * loss_each as f64).powf(0.75) * PACKET_BYTES as f64 * 8.0 / rtt / 1e6;
        let ratio = rate / law;
        assert!(
            (0.85..1.15).contains(&ratio),
            "{path:?}: {rate:.2} of {law:.2} Mbit/s"
        );
    }
}

/// RFC 9438 §4.3: on paths where Reno performs well, Cubic performs the same.
#[test]
fn cubic_is_as_reno_on_short_paths() {
    let path = Path::new(20, 10).loss(0.005, 4);
    let rate = |config| path.run(&config, 60).rate_between(10.0, 60.0).mbit();
    let ratio = rate(Cubic) / rate(NewReno);
    assert!((0.85..1.35).contains(&ratio), "{ratio:.2}");
}

/// RFC 9406 §5: leaving slow start by delay loses a fraction of what overshooting loses.
#[test]
fn hystart_ends_slow_start_with_less_loss_and_still_fills_the_pipe() {
    let path = Path::new(50, 80).queue_bdp(2.0);
    let (with, without) = (path.run(&Cubic, 5), path.run(&NewReno, 5));
    assert!(
        with.lost * 3 < without.lost,
        "{} against {}",
        with.lost,
        without.lost
    );
    assert!(
        with.between(0.0, 2.0)
            .any(|s| s.state == "conservative_slow_start")
    );
    let share = with.share(&path, 2.0, 5.0);
    assert!(share > 0.95, "{share:.3}");
}

/// Startup takes log2(BDP / first window) rounds, three to detect the plateau, and one or two to drain.
#[test]
fn bbr_fills_the_pipe_within_a_few_rounds_and_drains_its_queue() {
    for (mbit, rtt_ms) in [(20, 30), (100, 60), (10, 600), (1, 100)] {
        let path = Path::new(mbit, rtt_ms).queue_bdp(3.0);
        let run = path.run(&Bbr, 30);
        let rtt = path.rtt.as_secs_f64();
        let rounds = (path.bdp() as f64 / 14_520.0).log2().max(0.0) + 8.0;
        let (filled, settled) = (rounds * rtt, (rounds + 6.0) * rtt);
        let share = run.share(&path, filled, filled + 5.0 * rtt);
        assert!(share > 0.90, "{path:?}: {share:.3}");
        let queue = run.mean_queue(settled, settled + 16.0 * rtt) / path.bdp() as f64;
        assert!(
            queue < 0.35 + 12_000.0 / path.bdp() as f64,
            "{path:?}: {queue:.3} BDP queued"
        );
        let first = |state| run.samples.iter().position(|s| s.state == state).unwrap();
        assert!(first("startup") < first("drain") && first("drain") < first("probe_bw"));
    }
}

#[test]
fn bbr_keeps_its_rate_under_random_loss() {
    for (mbit, rtt_ms, seed) in [(50, 40, 6), (10, 600, 7), (5, 50, 8)] {
        let path = Path::new(mbit, rtt_ms).loss(0.02, seed);
        let (from, to) = (10.0, 60.0);
        let bbr = path.run(&Bbr, 60).share(&path, from, to);
        assert!(bbr > 0.85, "seed {seed}, {path:?}: {bbr:.3}");
        let cubic = path.run(&Cubic, 60).share(&path, from, to);
        assert!(cubic < bbr, "seed {seed}: {cubic:.3} against {bbr:.3}");
    }
}

/// The least RTT is measured again when no sample was as low for ten seconds: four packets in flight for 200 ms or a
/// round.
#[test]
fn bbr_probes_the_rtt_and_comes_back() {
    let path = Path::new(20, 40).queue_bdp(4.0);
    let run = path.run(&Bbr, 35);
    let visits = visits(&run, "probe_rtt");
    assert!((1..=3).contains(&visits.len()), "{visits:?}");
    for (from, to) in visits {
        assert!((0.2..0.5).contains(&(to - from)), "{from} to {to}");
        assert!(run.between(from, to).all(|s| s.cwnd == 4 * PACKET_BYTES));
        assert!(
            run.between(from + 0.2, to)
                .all(|s| s.queue_bytes <= 4 * PACKET_BYTES)
        );
    }
    assert_eq!(run.samples.last().unwrap().state, "probe_bw");
    assert!(run.share(&path, 5.0, 35.0) > 0.93);
}

/// Small packets of the first round trips are on the link for a shorter time than full ones, which never are as fast again.
#[test]
fn bbr_stops_for_no_measurement_that_a_long_path_confirms() {
    for (mbit, rtt_ms, more_us) in [(10, 600, 2_000), (50, 300, 1_000), (2, 600, 9_000)] {
        let mut path = Path::new(mbit, rtt_ms).queue_bdp(2.0);
        let longer = path.rtt + Duration::from_micros(more_us);
        path.later_rtt = Some((Duration::from_secs(2), longer));
        let run = path.run(&Bbr, 70);
        assert_eq!(visits(&run, "probe_rtt"), [], "{path:?}");
        let share = run.share(&path, 20.0, 70.0);
        assert!(share > 0.97, "{path:?}: {share:.3}");
        path.later_rtt = Some((Duration::from_secs(2), path.rtt + path.rtt / 48));
        let run = path.run(&Bbr, 70);
        assert!(!visits(&run, "probe_rtt").is_empty(), "{path:?}");
    }
}

/// Emptying a path of 600 ms takes a round, keeping it empty another, filling it a third.
#[test]
fn bbr_does_not_starve_a_geostationary_path_while_it_probes_the_rtt() {
    let mut path = Path::new(10, 600).queue_bdp(2.0);
    let longer = Duration::from_millis(640);
    path.later_rtt = Some((Duration::from_secs(20), longer));
    let run = path.run(&Bbr, 70);
    let visits = visits(&run, "probe_rtt");
    assert!(!visits.is_empty());
    for (from, _) in visits {
        let share = run.share(&path, from, from + 3.0);
        assert!(share > 0.65, "{share:.3} after {from}");
    }
    let share = run.share(&path, 10.0, 70.0);
    assert!(share > 0.92, "{share:.3}");
}

/// Start and end of each visit to a state, in seconds.
fn visits(run: &Run, state: &str) -> Vec<(f64, f64)> {
    let mut visits = Vec::new();
    let mut since = None;
    for sample in &run.samples {
        let at = sample.at.as_secs_f64();
        match (sample.state == state, since) {
            (true, None) => since = Some(at),
            (false, Some(from)) => {
                visits.push((from, at));
                since = None;
            }
            _ => {}
        }
    }
    visits
}

/// Cardwell et al. (2016), figure 3: at 40 ms a doubled bottleneck is found in three cycles of eight rounds, each of
/// which gains a quarter, and a halved one within two of the filter's windows.
#[test]
fn bbr_finds_a_bottleneck_that_changed() {
    for (mbit, later, rounds) in [(10, 20, 34), (20, 10, 25)] {
        let mut path = Path::new(mbit, 40).queue_bdp(4.0);
        let later = Bandwidth::from_mbit(later);
        path.later_rate = Some((Duration::from_secs(20), later));
        let run = path.run(&Bbr, 40);
        let settled = 20.0 + f64::from(rounds) * 0.040;
        let share = run.rate_between(settled, settled + 2.0).mbit() / later.mbit();
        assert!((0.9..=1.01).contains(&share), "{path:?}: {share:.3}");
        let queue = run.mean_queue(25.0, 35.0) / later.bytes_in(path.rtt) as f64;
        assert!(queue < 0.3, "{path:?}: {queue:.2} BDP queued");
    }
}

/// A window of two products of the shorter path delivers no more than itself in each longer RTT, which would be taken for the rate: when
/// the longer RTT is measured, the rate is found anew.
#[test]
fn bbr_finds_the_rate_of_a_path_that_became_longer() {
    for (mbit, rtt_ms, later_ms) in [(40, 20, 100), (40, 20, 200), (10, 30, 150), (100, 40, 300)] {
        let mut path = Path::new(mbit, rtt_ms).queue_bdp(4.0);
        let later = Duration::from_millis(later_ms);
        path.later_rtt = Some((Duration::from_secs(12), later));
        let run = path.run(&Bbr, 45);
        let mut probes = visits(&run, "probe_rtt").into_iter();
        let (_, measured) = probes.find(|(from, _)| *from > 12.2).unwrap();
        let found = measured + 8.0 * later.as_secs_f64();
        let share = run.share(&path, found, found + 10.0 * later.as_secs_f64());
        assert!(
            share > 0.9,
            "{mbit} Mbit/s, {rtt_ms} to {later_ms} ms: {share:.3}"
        );
    }
}

/// The window of a path that became a little longer fills it.
#[test]
fn bbr_does_not_start_up_again_where_the_path_is_about_as_long() {
    let mut path = Path::new(40, 40).queue_bdp(4.0);
    path.later_rtt = Some((Duration::from_secs(20), Duration::from_millis(70)));
    let run = path.run(&Bbr, 60);
    assert!(run.between(20.0, 60.0).all(|s| s.state != "startup"));
}

#[test]
fn bbr_recovers_from_an_outage_within_a_few_rounds() {
    let mut path = Path::new(20, 50);
    path.outage = Some((Duration::from_secs(10), Duration::from_millis(11_500)));
    let run = path.run(&Bbr, 20);
    let share = run.share(&path, 13.5, 20.0);
    assert!(share > 0.9, "{share:.3}");
}

#[test]
fn dedicated_sends_at_the_rate_of_its_link_whatever_is_lost() {
    for (mbit, rtt_ms, loss) in [(10, 600, 0.0), (10, 600, 0.2), (100, 20, 0.02)] {
        let path = Path::new(mbit, rtt_ms).loss(loss, 9).queue_bdp(0.5);
        let config = ControllerConfig::Dedicated(RateFeed::new(path.rate));
        let run = path.run(&config, 20);
        let share = run.share(&path, 2.0, 20.0) / (1.0 - loss);
        assert!((0.96..=0.995).contains(&share), "{path:?}: {share:.3}");
        // From the first RTT on, and without a queue.
        let first = run.share(
            &path,
            path.rtt.as_secs_f64(),
            2.0 * path.rtt.as_secs_f64() + 0.1,
        );
        assert!(first / (1.0 - loss) > 0.9, "{path:?}: {first:.3}");
        let queue = run.samples.iter().map(|s| s.queue_bytes).max().unwrap();
        assert!(
            queue
                <= path
                    .rate
                    .bytes_in(Duration::from_millis(3))
                    .max(3 * PACKET_BYTES)
        );
    }
}

/// A video that needs a tenth of the path must not lower the estimate of the path.
#[test]
fn bbr_keeps_its_estimate_while_the_application_sends_little() {
    let mut path = Path::new(20, 50);
    path.offered = Some((Duration::from_secs(10), Bandwidth::from_mbit(2)));
    let run = path.run(&Bbr, 60);
    let offered = run.rate_between(20.0, 60.0).mbit();
    assert!((1.9..2.1).contains(&offered), "{offered:.2}");
    let least = run.between(12.0, 60.0).filter_map(|s| s.estimate).min();
    assert!(least.unwrap() > path.rate.scaled(0.9), "{least:?}");
}

/// A probe timeout of half a second must fit in, and a whole geostationary RTT before the first sample.
#[test]
fn dedicated_has_an_ample_window() {
    let (start, rate) = (Instant::now(), Bandwidth::from_mbit(10));
    let mut controller = ControllerConfig::Dedicated(RateFeed::new(rate)).build(start, 1452);
    assert!(controller.cwnd() >= rate.bytes_in(Duration::from_millis(1500)));
    let rtt = Duration::from_millis(600);
    controller.on_packet_sent(start, 0, PACKET_BYTES, 0, false);
    controller.on_ack(AckedPacket {
        now: start + rtt,
        sent: start,
        packet_number: 0,
        bytes: PACKET_BYTES,
    });
    controller.on_end_of_acks(start + rtt, 0);
    assert!(controller.cwnd() >= rate.bytes_in(rtt + Duration::from_millis(500)));
}

#[test]
fn dedicated_follows_its_feed_at_once() {
    let feed = RateFeed::new(Bandwidth::from_mbit(10));
    let controller = ControllerConfig::Dedicated(feed.clone()).build(Instant::now(), 1452);
    let before = (controller.pacing_rate().unwrap(), controller.cwnd());
    feed.set(Bandwidth::from_mbit(40));
    let after = (controller.pacing_rate().unwrap(), controller.cwnd());
    assert_eq!(after.0.mbit(), 4.0 * before.0.mbit());
    assert_eq!(after.1, 4 * before.1);
    feed.set(Bandwidth::ZERO);
    assert!(controller.cwnd() >= 2 * PACKET_BYTES);
    assert!(controller.pacing_rate().unwrap() > Bandwidth::ZERO);
}
