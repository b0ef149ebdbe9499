//! The cycle of probing for bandwidth and the long-term bound of bytes in flight (draft-ietf-ccwg-bbr-06 §5.3.3,
//! §5.5.10.2).

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use super::{BETA, Bbr3, LOSS_THRESHOLD, State, lost_too_much};
use crate::{
    delivery_rate::{LossSample, RateSample},
    limits::{MAX_CWND_BYTES, real, window_bytes},
};

pub(super) const DOWN_PACING_GAIN: f64 = 0.9;
pub(super) const UP_PACING_GAIN: f64 = 1.25;
/// Share of the long-term bound that cruising leaves to other flows.
const HEADROOM: f64 = 0.15;
/// Least time between two probes; up to a second is added.
const PROBE_WAIT: Duration = Duration::from_secs(2);
/// Bound of the time between probes in rounds: those that Reno needs to regain a lost window, at most this many.
const MAX_RENO_ROUNDS: u64 = 63;
const MAX_UP_ROUNDS: u32 = 30;

/// The state of the cycle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cycle {
    /// `None` until losses gave a bound.
    pub(super) inflight_long_term: Option<u64>,
    pub(super) rounds_since_probe: u64,
    /// Number of cycles so far, the axis of the bandwidth filter.
    count: u64,
    since: Option<Instant>,
    probe_wait: Duration,
    acks: AckPhase,
    /// Losses now belong to the probe.
    probing: bool,
    /// The last probe that rose until it was stopped lost too much.
    too_high: bool,
    /// The last probe was stopped where the one before it lost too much.
    precautionary: bool,
    up: Climb,
}

/// The phase that the arriving acknowledgements measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AckPhase {
    #[default]
    Idle,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// The rise of the long-term bound while a probe reaches it: faster each round.
#[derive(Clone, Copy, Debug, Default)]
struct Climb {
    rounds: u32,
    acked_bytes: u64,
    /// Bytes acknowledged per packet by which the bound rises.
    bytes_per_packet: u64,
}

impl Cycle {
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn stop_probing(&mut self) {
        self.acks = AckPhase::ProbeStopping;
    }
}

impl Bbr3 {
    pub(super) fn in_probe_bw(&self) -> bool {
        matches!(
            self.state,
            State::ProbeBwDown | State::ProbeBwCruise | State::ProbeBwRefill | State::ProbeBwUp
        )
    }

    /// Advances the cycle (§5.3.3.9).
    pub(super) fn update_cycle(&mut self, now: Instant, sample: &RateSample, bytes_in_flight: u64) {
        if !self.full_pipe.reached() || self.adapt_long_term(sample) {
            return;
        }
        match self.state {
            State::ProbeBwDown | State::ProbeBwCruise if self.is_time_to_probe(now) => {
                self.enter_refill();
            }
            State::ProbeBwDown if self.is_time_to_cruise(bytes_in_flight) => {
                self.state = State::ProbeBwCruise;
            }
            State::ProbeBwRefill if self.rounds.started() => {
                // The pipe is full: from now on losses belong to the probe.
                self.cycle.probing = true;
                self.enter_up(now, sample.delivery_rate);
            }
            State::ProbeBwUp => self.watch_probe(now, sample, bytes_in_flight),
            _ => {}
        }
    }

    pub(super) fn enter_down(&mut self, now: Instant) {
        self.model.reset_congestion_signals();
        self.cycle.up.bytes_per_packet = u64::MAX;
        self.pick_probe_wait();
        self.cycle.since = Some(now);
        self.cycle.acks = AckPhase::ProbeStopping;
        self.rounds.restart(self.sampler.delivered_bytes());
        self.state = State::ProbeBwDown;
    }

    pub(super) fn enter_refill(&mut self) {
        self.model.forget_short_term();
        self.cycle.up = Climb::default();
        self.cycle.precautionary = false;
        self.cycle.acks = AckPhase::Refilling;
        self.rounds.restart(self.sampler.delivered_bytes());
        self.state = State::ProbeBwRefill;
    }

    fn enter_up(&mut self, now: Instant, delivery_rate: Option<Bandwidth>) {
        self.cycle.acks = AckPhase::ProbeStarting;
        self.rounds.restart(self.sampler.delivered_bytes());
        self.full_pipe
            .restart_from(delivery_rate.unwrap_or_default());
        self.cycle.since = Some(now);
        self.state = State::ProbeBwUp;
        self.steepen_climb();
    }

    /// Desynchronises the probes of flows; the bytes delivered replace a random number.
    fn pick_probe_wait(&mut self) {
        let mixed = self
            .sampler
            .delivered_bytes()
            .wrapping_add(self.rounds.count())
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.cycle.rounds_since_probe = mixed >> 63;
        self.cycle.probe_wait = PROBE_WAIT + Duration::from_millis((mixed >> 32) % 1000);
    }

    fn is_time_to_probe(&self, now: Instant) -> bool {
        let waited = self
            .cycle
            .since
            .is_none_or(|since| now.saturating_duration_since(since) > self.cycle.probe_wait);
        let reno_rounds = self.target_inflight() / self.max_datagram_bytes;
        waited || self.cycle.rounds_since_probe >= reno_rounds.min(MAX_RENO_ROUNDS)
    }

    fn is_time_to_cruise(&self, bytes_in_flight: u64) -> bool {
        let headroom = self.inflight_with_headroom().unwrap_or(MAX_CWND_BYTES);
        let pipe = self.quantized(self.bdp(self.model.max_bandwidth(), 1.0));
        bytes_in_flight <= headroom && bytes_in_flight <= pipe
    }

    fn watch_probe(&mut self, now: Instant, sample: &RateSample, bytes_in_flight: u64) {
        let over = if self.cycle.too_high && self.is_at_long_term(sample, bytes_in_flight) {
            self.cycle.precautionary = true;
            true
        } else if self.is_bounded_by_long_term() {
            // The bound, not the path, limits the rate.
            self.full_pipe
                .restart_from(sample.delivery_rate.unwrap_or_default());
            false
        } else {
            self.full_pipe.now()
        };
        if over {
            self.cycle.too_high = false;
            self.enter_down(now);
        }
    }

    /// §5.3.3.6. The window keeps the flight left by an acknowledgement below the bound, so the flight before it
    /// counts, with the burst to follow, as in Linux.
    fn is_at_long_term(&self, sample: &RateSample, bytes_in_flight: u64) -> bool {
        let inflight = bytes_in_flight
            .saturating_add(sample.acked_bytes)
            .saturating_add(self.send_quantum());
        let bound = self.cycle.inflight_long_term;
        bound.is_some_and(|bound| inflight >= bound)
    }

    fn is_bounded_by_long_term(&self) -> bool {
        let limited = self.cwnd_limited[0] || self.cwnd_limited[1];
        let bound = self.cycle.inflight_long_term;
        limited && bound.is_some_and(|bound| self.cwnd_bytes >= bound)
    }

    /// §5.3.3.9: returns whether it decided the next phase.
    fn adapt_long_term(&mut self, sample: &RateSample) -> bool {
        if self.rounds.started() {
            match self.cycle.acks {
                AckPhase::ProbeStarting => self.cycle.acks = AckPhase::ProbeFeedback,
                AckPhase::ProbeStopping => {
                    self.cycle.probing = false;
                    self.cycle.acks = AckPhase::Idle;
                    if self.in_probe_bw() && !sample.app_limited {
                        self.cycle.count += 1;
                    }
                    if self.in_probe_bw() && self.cycle.precautionary && !self.cycle.too_high {
                        // The bound proved safe: probe beyond it at once.
                        self.enter_refill();
                        return true;
                    }
                }
                _ => {}
            }
        }
        // Each lost packet reports excessive loss by itself.
        if lost_too_much(sample) {
            return false;
        }
        let Some(bound) = self.cycle.inflight_long_term else {
            return false;
        };
        self.cycle.inflight_long_term = Some(bound.max(sample.tx_in_flight_bytes));
        if self.state == State::ProbeBwUp {
            self.climb(sample.acked_bytes);
        }
        false
    }

    /// §5.5.10.2: lowers the bound after a probe with too much in flight.
    fn lower_long_term(&mut self, now: Instant, inflight: u64, app_limited: bool) {
        self.cycle.too_high = true;
        self.cycle.probing = false;
        if !app_limited {
            let least = window_bytes(real(self.target_inflight()) * BETA, self.min_cwnd());
            self.cycle.inflight_long_term = Some(inflight.max(least));
        }
        if self.state == State::ProbeBwUp {
            self.set_undo_state();
            self.enter_down(now);
        }
    }

    /// §5.5.10.2: the packet whose loss crosses the threshold gives the bound.
    pub(super) fn handle_lost_packet(&mut self, now: Instant, lost: &LossSample) {
        let (in_flight, lost_bytes) = (
            real(lost.tx_in_flight_bytes),
            real(lost.lost_since_sent_bytes),
        );
        if !self.cycle.probing || lost_bytes <= in_flight * LOSS_THRESHOLD {
            return;
        }
        let size = real(lost.bytes);
        let (before, lost_before) = ((in_flight - size).max(0.0), lost_bytes - size);
        let prefix = (LOSS_THRESHOLD * before - lost_before) / (1.0 - LOSS_THRESHOLD);
        let inflight = window_bytes(before + prefix.max(0.0), 0);
        self.lower_long_term(now, inflight, lost.app_limited);
    }

    fn climb(&mut self, acked_bytes: u64) {
        if !self.is_bounded_by_long_term() {
            return;
        }
        let up = &mut self.cycle.up;
        up.acked_bytes = up.acked_bytes.saturating_add(acked_bytes);
        let packets = up.acked_bytes / up.bytes_per_packet.max(1);
        up.acked_bytes %= up.bytes_per_packet.max(1);
        let rise = packets.saturating_mul(self.max_datagram_bytes);
        self.cycle.inflight_long_term = self
            .cycle
            .inflight_long_term
            .map(|bound| bound.saturating_add(rise).min(MAX_CWND_BYTES));
        if self.rounds.started() {
            self.steepen_climb();
        }
    }

    fn steepen_climb(&mut self) {
        let up = &mut self.cycle.up;
        let packets_a_round = 1_u64 << up.rounds;
        up.rounds = (up.rounds + 1).min(MAX_UP_ROUNDS);
        up.bytes_per_packet = (self.cwnd_bytes / packets_a_round).max(self.max_datagram_bytes);
    }

    pub(super) fn inflight_with_headroom(&self) -> Option<u64> {
        let bound = self.cycle.inflight_long_term?;
        let headroom = window_bytes(real(bound) * HEADROOM, self.max_datagram_bytes);
        Some(bound.saturating_sub(headroom).max(self.min_cwnd()))
    }

    fn target_inflight(&self) -> u64 {
        self.bdp(self.model.bandwidth(), 1.0)
            .map_or(self.cwnd_bytes, |bdp| bdp.min(self.cwnd_bytes))
    }
}
