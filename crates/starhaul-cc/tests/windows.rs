//! Window curves of the loss-based controllers, driven round by round: a whole window is sent at once and acknowledged
//! one RTT later.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "test code with small positive numbers"
)]

use std::time::{Duration, Instant};

use starhaul_cc::{AckedPacket, CongestionEvent, Controller, ControllerConfig, LostPacket};

const SEGMENT: u64 = 1000;
const RTT: Duration = Duration::from_millis(100);

struct Flow {
    controller: Box<dyn Controller>,
    now: Instant,
    next_number: u64,
    last_sent: Instant,
}

impl Flow {
    fn new(name: &str) -> Self {
        let now = Instant::now();
        let config: ControllerConfig = name.parse().unwrap();
        Self {
            controller: config.build(now, 1000),
            now,
            next_number: 0,
            last_sent: now,
        }
    }

    /// The window in segments.
    fn cwnd(&self) -> f64 {
        self.controller.cwnd() as f64 / SEGMENT as f64
    }

    fn round(&mut self) {
        self.round_of(self.controller.cwnd() / SEGMENT, false);
    }

    fn round_of(&mut self, packets: u64, app_limited: bool) {
        let first = self.next_number;
        self.last_sent = self.now;
        for i in 0..packets {
            self.controller
                .on_packet_sent(self.now, first + i, SEGMENT, i * SEGMENT, app_limited);
        }
        self.next_number += packets;
        self.now += RTT;
        for i in 0..packets {
            self.controller.on_ack(AckedPacket {
                now: self.now,
                sent: self.last_sent,
                packet_number: first + i,
                bytes: SEGMENT,
            });
        }
        self.controller.on_end_of_acks(self.now, 0);
    }

    fn rounds_for(&mut self, seconds: f64) {
        for _ in 0..(seconds / RTT.as_secs_f64()).round() as u32 {
            self.round();
        }
    }

    /// Loses one packet of the last round.
    fn lose(&mut self, persistent: bool) {
        self.signal(persistent, false);
    }

    fn signal(&mut self, persistent: bool, ecn: bool) {
        self.controller.on_packet_lost(LostPacket {
            now: self.now,
            packet_number: self.next_number,
            bytes: SEGMENT,
        });
        self.controller.on_congestion_event(CongestionEvent {
            now: self.now,
            sent: self.last_sent,
            persistent,
            ecn,
            lost_bytes: if ecn { 0 } else { SEGMENT },
        });
        self.now += Duration::from_nanos(1);
    }

    fn slow_start_to(&mut self, segments: f64) -> f64 {
        while self.cwnd() < segments {
            self.round();
        }
        self.cwnd()
    }
}

fn assert_near(value: f64, expected: f64, tolerance: f64) {
    let error = (value / expected - 1.0).abs();
    assert!(error <= tolerance, "{value:.2}, expected {expected:.2}");
}

#[test]
fn newreno_doubles_then_halves_then_adds_a_packet_each_round() {
    let mut flow = Flow::new("newreno");
    assert_eq!(flow.cwnd(), 10.0);
    for expected in [20.0, 40.0, 80.0] {
        flow.round();
        assert_eq!(flow.cwnd(), expected);
    }
    flow.lose(false);
    assert_eq!(flow.cwnd(), 40.0);
    flow.rounds_for(2.0);
    assert_near(flow.cwnd(), 60.0, 0.01);
}

#[test]
fn both_decrease_once_for_all_losses_of_a_round() {
    for (name, factor) in [("newreno", 0.5), ("cubic", 0.7)] {
        let mut flow = Flow::new(name);
        let before = flow.slow_start_to(80.0);
        for _ in 0..5 {
            flow.lose(false);
        }
        assert_near(flow.cwnd(), before * factor, 1e-6);
        flow.round();
        flow.lose(false);
        assert!(
            flow.cwnd() < before * factor * 0.8,
            "{name}: {}",
            flow.cwnd()
        );
    }
}

/// RFC 9002 §7.1, RFC 9438 §4.6.
#[test]
fn a_mark_counts_as_a_loss() {
    for (name, factor) in [("newreno", 0.5), ("cubic", 0.7)] {
        let mut flow = Flow::new(name);
        let before = flow.slow_start_to(80.0);
        flow.signal(false, true);
        assert_near(flow.cwnd(), before * factor, 1e-6);
    }
}

#[test]
fn persistent_congestion_starts_over_and_spurious_loss_is_undone() {
    for name in ["newreno", "cubic"] {
        let mut flow = Flow::new(name);
        let before = flow.slow_start_to(80.0);
        flow.lose(false);
        flow.controller.on_spurious_congestion_event(flow.now);
        assert_eq!(flow.cwnd(), before, "{name}");
        flow.round();
        assert_eq!(flow.cwnd(), 2.0 * before, "{name} is in slow start again");
        flow.lose(true);
        assert_eq!(flow.cwnd(), 2.0, "{name}");
        // A decrease is undone only once.
        flow.controller.on_spurious_congestion_event(flow.now);
        let restored = flow.cwnd();
        flow.controller.on_spurious_congestion_event(flow.now);
        assert_eq!(flow.cwnd(), restored, "{name}");
    }
}

#[test]
fn an_unused_window_does_not_grow() {
    for name in ["newreno", "cubic"] {
        let mut flow = Flow::new(name);
        for _ in 0..50 {
            flow.round_of(4, true);
        }
        assert_eq!(flow.cwnd(), 10.0, "{name}");
        flow.round();
        assert_eq!(flow.cwnd(), 20.0, "{name}");
    }
}

/// RFC 9438 §4.2: from 0.7 W the window regains W after K = cbrt(0.3 W / 0.4) seconds, is flat there, and at 2 K
/// exceeds W by as much as it had fallen.
#[test]
fn cubic_comes_back_to_its_maximum_at_k() {
    let mut flow = Flow::new("cubic");
    let w_max = flow.slow_start_to(1000.0);
    flow.lose(false);
    assert_near(flow.cwnd(), 0.7 * w_max, 1e-6);
    let k = (0.3 * w_max / 0.4).cbrt();
    for part in [0.9625, 1.0, 1.0375, 1.3] {
        flow.rounds_for(k / 2.0);
        assert_near(flow.cwnd(), part * w_max, 0.02);
    }
}

/// RFC 9438 §4.9.2: a spurious decrease leaves the curve as it was.
#[test]
fn cubic_goes_on_along_its_curve_after_a_spurious_loss() {
    let mut flow = Flow::new("cubic");
    let w_max = flow.slow_start_to(1000.0);
    flow.lose(false);
    flow.rounds_for(3.0);
    flow.lose(false);
    flow.controller.on_spurious_congestion_event(flow.now);
    let k = (0.3 * w_max / 0.4).cbrt();
    flow.rounds_for(k - 3.0);
    assert_near(flow.cwnd(), w_max, 0.01);
    flow.rounds_for(k);
    assert_near(flow.cwnd(), 1.3 * w_max, 0.02);
}

/// RFC 9002 §7.7: pacing stays ahead of the window, so that the window is the limit.
#[test]
fn both_pace_somewhat_faster_than_a_window_each_round() {
    for name in ["newreno", "cubic"] {
        let mut flow = Flow::new(name);
        assert_eq!(flow.controller.pacing_rate(), None, "no RTT is known");
        let pace = |flow: &Flow| {
            let rate = flow.controller.pacing_rate().unwrap();
            rate.bytes_in(RTT) as f64 / flow.controller.cwnd() as f64
        };
        flow.slow_start_to(80.0);
        assert_near(pace(&flow), 2.0, 0.01);
        flow.lose(false);
        assert_near(pace(&flow), 1.25, 0.01);
    }
}

/// RFC 9438 §4.7: after two decreases in a row the plateau is at 0.85 of the second window.
#[test]
fn cubic_releases_bandwidth_when_its_maximum_falls() {
    let mut flow = Flow::new("cubic");
    let first = flow.slow_start_to(1000.0);
    flow.lose(false);
    flow.round();
    flow.lose(false);
    let plateau = 0.85 * 0.7 * first;
    let k = ((plateau - 0.49 * first) / 0.4).cbrt();
    flow.rounds_for(k);
    assert_near(flow.cwnd(), plateau, 0.01);
}

/// RFC 9438 §4.3: at a window this small the cubic curve is slower than Reno's half segment a round.
#[test]
fn cubic_is_reno_friendly_at_a_small_window() {
    let mut flow = Flow::new("cubic");
    let w_max = flow.slow_start_to(20.0);
    flow.lose(false);
    flow.rounds_for(1.0);
    assert_near(flow.cwnd(), 0.7 * w_max + 10.0 * 0.529, 0.03);
}

/// RFC 9438 §5.8.
#[test]
fn cubic_does_not_jump_after_the_window_was_unused() {
    let mut flow = Flow::new("cubic");
    let w_max = flow.slow_start_to(1000.0);
    flow.lose(false);
    flow.rounds_for(1.0);
    let before = flow.cwnd();
    for _ in 0..600 {
        flow.round_of(4, true);
    }
    assert_eq!(flow.cwnd(), before);
    let k = (0.3 * w_max / 0.4).cbrt();
    flow.rounds_for(k - 1.0);
    assert_near(flow.cwnd(), w_max, 0.01);
}

/// RFC 9438 §5.8: nor does a time without any packet count as growth, which no acknowledgement tells of.
#[test]
fn cubic_does_not_jump_after_nothing_was_sent() {
    for name in ["cubic", "satcp"] {
        let mut flow = Flow::new(name);
        let w_max = flow.slow_start_to(1000.0);
        flow.lose(false);
        flow.rounds_for(1.0);
        let before = flow.cwnd();
        for _ in 0..3 {
            flow.now += Duration::from_secs(60);
            flow.round();
        }
        assert_near(flow.cwnd(), before, 0.1);
        let k = (0.3 * w_max / 0.4).cbrt();
        flow.rounds_for(k - 1.3);
        assert_near(flow.cwnd(), w_max, 0.01);
    }
}

/// After a loss BBR's window is what was in flight for a round, however little that was: the sender fills it, but not the path.
#[test]
fn the_full_window_of_bbr_is_that_without_a_recovery() {
    let mut flow = Flow::new("bbr");
    let before = flow.slow_start_to(80.0);
    for _ in 0..20 {
        flow.round_of(5, true);
        flow.lose(false);
        let full = flow.controller.full_window() as f64 / SEGMENT as f64;
        assert!(flow.cwnd() < before / 2.0, "{}", flow.cwnd());
        assert!(full >= before, "{full} of {before}");
    }
    let mut flow = Flow::new("newreno");
    flow.slow_start_to(80.0);
    flow.lose(false);
    assert_eq!(flow.controller.full_window(), flow.controller.cwnd());
}
