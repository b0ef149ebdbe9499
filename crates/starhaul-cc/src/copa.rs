//! Copa (Arun and Balakrishnan, NSDI 2018): steers the window towards the rate 1/(δ·d), where d is
//! the queueing delay, which leaves 1/δ packets of each flow in the queue; beside flows that keep
//! the queue full it turns to competitive mode and lets δ follow additive increase, multiplicative decrease.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use crate::{
    AckedPacket, CongestionEvent, Controller, LostPacket,
    filter::WindowedFilter,
    limits::{clamp_rate, packet_bytes, real},
    rtt::rtt_sample,
    window::{Growth, Window},
};

/// δ of the default mode, as 1/δ: packets of a flow kept in the queue.
const DEFAULT_INVERSE_DELTA: f64 = 2.0;
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
/// §2.2: rounds in one direction before the velocity doubles.
const ROUNDS_BEFORE_DOUBLING: u32 = 3;
/// §2.2: a queue that drops to this share of its maximum within five rounds has no greedy flow in it.
const NEARLY_EMPTY: f64 = 0.1;
const ROUNDS_UNTIL_COMPETITIVE: u32 = 5;
const MAX_RTT_WINDOW_ROUNDS: u32 = 4;
/// §2.1: paces at twice the window per RTT, so that pacing only smooths bursts.
const PACING_GAIN: f64 = 2.0;
/// Bounds 1/δ in competitive mode, where only losses reduce it.
const MAX_INVERSE_DELTA: f64 = 1e6;

/// Copa's congestion control.
#[derive(Clone, Debug)]
pub(crate) struct Copa {
    window: Window,
    min_rtt: WindowedFilter<Duration, Instant>,
    /// Least RTT of the last half smoothed RTT, which is free of acknowledgement jitter.
    standing_rtt: WindowedFilter<Duration, Instant>,
    max_rtt: WindowedFilter<Duration, Instant>,
    in_slow_start: bool,
    velocity: Velocity,
    inverse_delta: f64,
    competitive: bool,
    nearly_empty_at: Option<Instant>,
    round: Option<Round>,
    inverse_delta_before_loss: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Velocity {
    value: f64,
    direction: Direction,
    /// Rounds without a change of direction.
    rounds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// A round: from sending a packet to its acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Round {
    ends_with: u64,
    cwnd: f64,
    lost: bool,
}

impl Copa {
    /// Creates a controller in slow start, for packets of at most `mtu_bytes`.
    pub(crate) fn new(mtu_bytes: u16) -> Self {
        Self {
            window: Window::new(mtu_bytes),
            min_rtt: WindowedFilter::min(MIN_RTT_WINDOW),
            standing_rtt: WindowedFilter::min(Duration::ZERO),
            max_rtt: WindowedFilter::max(Duration::ZERO),
            in_slow_start: true,
            velocity: Velocity::RESTING,
            inverse_delta: DEFAULT_INVERSE_DELTA,
            competitive: false,
            nearly_empty_at: None,
            round: None,
            inverse_delta_before_loss: None,
        }
    }

    fn take_rtt(&mut self, packet: &AckedPacket) {
        let (now, rtt) = (packet.now, rtt_sample(packet));
        let smoothed = self.window.smoothed_rtt().unwrap_or(rtt);
        self.min_rtt.update(now, rtt);
        self.standing_rtt.set_window(smoothed / 2);
        self.standing_rtt.update(now, rtt);
        self.max_rtt.set_window(smoothed * MAX_RTT_WINDOW_ROUNDS);
        self.max_rtt.update(now, rtt);
        self.choose_mode(now, smoothed);
    }

    /// Copa alone empties the queue once in five rounds; if it never does, the bottleneck is shared with a greedy flow.
    fn choose_mode(&mut self, now: Instant, smoothed: Duration) {
        let Some((min, standing)) = self.min_and_standing() else {
            return;
        };
        let greatest = self.max_rtt.best().unwrap_or(min).saturating_sub(min);
        let nearly_empty = standing.saturating_sub(min) <= greatest.mul_f64(NEARLY_EMPTY);
        if nearly_empty || self.nearly_empty_at.is_none() {
            self.nearly_empty_at = Some(now);
        }
        let since = self.nearly_empty_at.unwrap_or(now);
        let competitive =
            now.saturating_duration_since(since) > smoothed * ROUNDS_UNTIL_COMPETITIVE;
        if competitive != self.competitive {
            self.competitive = competitive;
            self.inverse_delta = DEFAULT_INVERSE_DELTA;
        }
    }

    /// Up, if the rate is at most the target rate; else down.
    fn direction(&self) -> Option<Direction> {
        let (min, standing) = self.min_and_standing()?;
        let queueing = standing.saturating_sub(min);
        if queueing.is_zero() {
            return Some(Direction::Up);
        }
        let packets = self.window.cwnd_real() / self.window.max_datagram();
        let rate = packets / standing.as_secs_f64();
        let target = self.inverse_delta / queueing.as_secs_f64();
        Some(if rate <= target {
            Direction::Up
        } else {
            Direction::Down
        })
    }

    fn min_and_standing(&self) -> Option<(Duration, Duration)> {
        Some((self.min_rtt.best()?, self.standing_rtt.best()?))
    }

    fn adjust(&mut self, growth: Growth, acked: f64) {
        let Some(direction) = self.direction() else {
            return;
        };
        let up = direction == Direction::Up;
        if up && growth == Growth::Underused {
            return;
        }
        let cwnd = self.window.cwnd_real();
        if self.in_slow_start {
            if up {
                return self.window.set_cwnd(cwnd + acked);
            }
            self.in_slow_start = false;
            self.velocity = Velocity::RESTING;
        }
        if direction != self.velocity.direction && self.velocity.value > 1.0 {
            // The velocity gained in one direction must not overshoot in the other.
            self.velocity = Velocity {
                direction,
                ..Velocity::RESTING
            };
        }
        let packet = self.window.max_datagram();
        let step = self.velocity.value * self.inverse_delta * packet * acked / cwnd;
        // Within a round the window at most doubles or empties.
        let step = step.min(acked);
        self.window
            .set_cwnd(if up { cwnd + step } else { cwnd - step });
    }

    fn end_round(&mut self, round: Round) {
        let cwnd = self.window.cwnd_real();
        if self.competitive && !round.lost {
            self.inverse_delta = (self.inverse_delta + 1.0).min(MAX_INVERSE_DELTA);
        }
        if self.in_slow_start {
            return;
        }
        let direction = if cwnd > round.cwnd {
            Direction::Up
        } else {
            Direction::Down
        };
        self.velocity.on_round(direction);
    }
}

impl Velocity {
    const RESTING: Self = Self {
        value: 1.0,
        direction: Direction::Up,
        rounds: 0,
    };
    /// The step is bounded by the window in any case.
    const MAX: f64 = 1e6;

    fn on_round(&mut self, direction: Direction) {
        if direction != self.direction {
            *self = Self {
                direction,
                ..Self::RESTING
            };
            return;
        }
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds >= ROUNDS_BEFORE_DOUBLING {
            self.value = (2.0 * self.value).min(Self::MAX);
        }
    }
}

impl Controller for Copa {
    fn on_packet_sent(
        &mut self,
        _now: Instant,
        packet_number: u64,
        bytes: u64,
        bytes_in_flight: u64,
        app_limited: bool,
    ) {
        self.window
            .on_packet_sent(packet_number, bytes, bytes_in_flight, app_limited);
    }

    fn on_ack(&mut self, packet: AckedPacket) {
        let growth = self.window.on_ack(&packet);
        if growth == Growth::Unknown {
            return;
        }
        self.take_rtt(&packet);
        self.adjust(growth, real(packet_bytes(packet.bytes)));
        let begun = Round {
            ends_with: self.window.newest_sent(),
            cwnd: self.window.cwnd_real(),
            lost: false,
        };
        let round = *self.round.get_or_insert(begun);
        if packet.packet_number >= round.ends_with {
            self.round = Some(begun);
            self.end_round(round);
        }
    }

    fn on_end_of_acks(&mut self, _now: Instant, _bytes_in_flight: u64) {
        self.window.on_end_of_acks();
    }

    fn on_packet_lost(&mut self, packet: LostPacket) {
        self.window.on_packet_lost(&packet);
    }

    /// The default mode ignores losses; competitive mode halves 1/δ.
    fn on_congestion_event(&mut self, event: CongestionEvent) {
        if self.competitive && self.window.enter_recovery(&event) {
            self.inverse_delta_before_loss = Some(self.inverse_delta);
            self.inverse_delta = (self.inverse_delta / 2.0).max(DEFAULT_INVERSE_DELTA);
            if let Some(round) = &mut self.round {
                round.lost = true;
            }
        }
        if event.persistent {
            self.window.collapse();
            self.in_slow_start = true;
            self.velocity = Velocity::RESTING;
        }
    }

    fn on_spurious_congestion_event(&mut self, _now: Instant) {
        if let Some(before) = self.inverse_delta_before_loss.take()
            && self.competitive
        {
            self.inverse_delta = self.inverse_delta.max(before);
        }
    }

    fn widen_start(&mut self, window_bytes: u64, _rtt: Duration) {
        if self.in_slow_start {
            self.window.widen_start(window_bytes);
        }
    }

    fn on_mtu_update(&mut self, mtu_bytes: u16) {
        self.window.on_mtu_update(mtu_bytes);
    }

    fn cwnd(&self) -> u64 {
        self.window.cwnd()
    }

    fn pacing_rate(&self) -> Option<Bandwidth> {
        let standing = self.standing_rtt.best()?;
        let rate = Bandwidth::from_bytes_over(self.window.cwnd(), standing);
        Some(clamp_rate(rate.scaled(PACING_GAIN)))
    }

    fn bandwidth_estimate(&self) -> Option<Bandwidth> {
        None
    }

    fn name(&self) -> &'static str {
        "copa"
    }

    fn state(&self) -> &'static str {
        match (self.in_slow_start, self.competitive) {
            (true, _) => "slow_start",
            (false, false) => "default_mode",
            (false, true) => "competitive_mode",
        }
    }
}
