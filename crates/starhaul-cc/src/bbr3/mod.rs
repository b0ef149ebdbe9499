//! BBR version 3 (draft-ietf-ccwg-bbr-06): paces at the greatest delivery rate of two probing cycles, within bounds on
//! rate and flight learned from losses: long-term ones when probing loses over 2 %, short-term ones for any loss
//! between probes.
//!
//! Where the draft and Google's Linux branch (google/bbr, v3) differ, the draft is followed unless said otherwise.
//! Linux drains startup with a gain of 0.35 in place of 0.5 and each probe with 0.91 in place of 0.9; ends no drain by
//! rounds; sees growth in any sample of a round and not only in the first; adds at most 100 ms of aggregated
//! acknowledgements, of 5 to 10 rounds; forgets losses when startup ends; bounds the short-term flight by the long-term
//! one in cruise.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use crate::{
    AckedPacket, CongestionEvent, Controller, LostPacket,
    delivery_rate::{DeliveryRateSampler, RateSample},
    limits::{initial_window, max_datagram_bytes, real, widened_rate},
    rounds::RoundCounter,
    rtt::rtt_sample,
};

mod control;
mod cycle;
mod full_pipe;
mod model;
mod probe_rtt;

use control::startup_rate;
use cycle::Cycle;
use full_pipe::FullPipe;
use model::Model;
use probe_rtt::{MinRtt, ProbeRtt};

/// §2.8: the greatest share of the flight that may be lost.
const LOSS_THRESHOLD: f64 = 0.02;
/// §2.8: the factor of a decrease.
const BETA: f64 = 0.7;
/// §5.3.1.3: losses in one round, above the threshold, that end startup.
const STARTUP_LOSS_EVENTS: u32 = 6;
/// §5.3.2: bounds the drain, for a startup estimate that other traffic inflated.
const MAX_DRAIN_ROUNDS: u64 = 3;

/// Model-based congestion control with bounds learned from losses.
#[derive(Clone, Debug)]
pub(crate) struct Bbr3 {
    max_datagram_bytes: u64,
    sampler: DeliveryRateSampler,
    state: State,
    rounds: RoundCounter,
    model: Model,
    cycle: Cycle,
    full_pipe: FullPipe,
    min_rtt: MinRtt,
    probe_rtt: ProbeRtt,

    pacing_rate: Bandwidth,
    cwnd_bytes: u64,
    /// The window to restore after probing the RTT, a collapse, or a spurious loss.
    prior_cwnd_bytes: u64,
    /// The newest packet sent when recovery began; recovery ends with the acknowledgement of a later one.
    recovery: Option<u64>,
    /// The window collapsed in this recovery.
    collapsed: bool,
    /// The count of rounds when draining began.
    drain_began: u64,
    /// Whether the window limited sending in this round, and in the last.
    cwnd_limited: [bool; 2],
    loss_events_in_round: u32,
    /// The newest packet left the application without data.
    app_limited: bool,
    /// Sending resumed after idleness, which has already probed the RTT.
    idle_restart: bool,
    undo: Option<Box<Undo>>,
    /// Startup went on from a window that [`Controller::widen_start`] gave.
    is_widened: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    ProbeBwDown,
    ProbeBwCruise,
    ProbeBwRefill,
    ProbeBwUp,
    ProbeRtt,
}

/// §5.5.11.1: the state restored when a loss proves spurious.
#[derive(Clone, Debug)]
struct Undo {
    /// The state that the loss ended, if it did.
    state: Option<State>,
    model: Model,
    inflight_long_term: Option<u64>,
}

impl Bbr3 {
    /// Creates a controller in startup, for packets of at most `mtu_bytes`.
    pub(crate) fn new(mtu_bytes: u16) -> Self {
        let max_datagram_bytes = max_datagram_bytes(mtu_bytes);
        let cwnd_bytes = initial_window(max_datagram_bytes);
        Self {
            max_datagram_bytes,
            sampler: DeliveryRateSampler::new(),
            state: State::Startup,
            rounds: RoundCounter::default(),
            model: Model::new(),
            cycle: Cycle::default(),
            full_pipe: FullPipe::default(),
            min_rtt: MinRtt::default(),
            probe_rtt: ProbeRtt::default(),
            pacing_rate: startup_rate(cwnd_bytes, Duration::from_millis(1)),
            cwnd_bytes,
            prior_cwnd_bytes: cwnd_bytes,
            recovery: None,
            collapsed: false,
            drain_began: 0,
            cwnd_limited: [false; 2],
            loss_events_in_round: 0,
            app_limited: false,
            idle_restart: false,
            undo: None,
            is_widened: false,
        }
    }

    fn is_unmeasured(&self) -> bool {
        self.min_rtt.rtt().is_none()
    }

    /// §5.2.3: the steps of each acknowledgement, in this order.
    fn update(&mut self, now: Instant, sample: &RateSample, bytes_in_flight: u64) {
        self.rounds.update(sample, self.sampler.delivered_bytes());
        if self.rounds.started() {
            self.cycle.rounds_since_probe = self.cycle.rounds_since_probe.saturating_add(1);
        }
        let delivered = self.sampler.delivered_bytes();
        let too_high_ends_startup = self.take_congestion_signals(sample, delivered);
        self.model.update_aggregation(
            now,
            sample.acked_bytes,
            self.cwnd_bytes,
            (self.rounds.count(), self.full_pipe.reached()),
        );
        if self.rounds.started() && !sample.app_limited {
            self.full_pipe.on_round(sample.delivery_rate);
        }
        if too_high_ends_startup && self.state == State::Startup {
            self.end_startup_by_loss();
        }
        self.check_startup_and_drain(now, bytes_in_flight);
        self.update_cycle(now, sample, bytes_in_flight);
        self.update_min_rtt(now, sample, bytes_in_flight);
        self.model.advance_latest(sample);
        if self.rounds.started() {
            self.cwnd_limited = [false, self.cwnd_limited[0]];
        }
    }

    /// Returns whether a whole round of startup lost too much.
    fn take_congestion_signals(&mut self, sample: &RateSample, delivered: u64) -> bool {
        let round_over = self
            .model
            .take_sample(sample, delivered, self.cycle.count());
        if !round_over {
            return false;
        }
        if !self.is_probing() {
            self.model.adapt_lower_bounds(self.cwnd_bytes);
        }
        let events = std::mem::take(&mut self.loss_events_in_round);
        self.model.end_loss_round();
        events >= STARTUP_LOSS_EVENTS && lost_too_much(sample)
    }

    fn is_probing(&self) -> bool {
        matches!(
            self.state,
            State::Startup | State::ProbeBwRefill | State::ProbeBwUp
        )
    }

    fn end_startup_by_loss(&mut self) {
        self.set_undo_state();
        self.full_pipe.set_reached();
        let bdp = self.bdp(self.model.max_bandwidth(), 1.0);
        let inflight = self.model.inflight_latest().max(bdp.unwrap_or(0));
        self.cycle.inflight_long_term = Some(inflight);
    }

    fn check_startup_and_drain(&mut self, now: Instant, bytes_in_flight: u64) {
        if self.state == State::Startup && self.full_pipe.reached() {
            self.state = State::Drain;
            self.drain_began = self.rounds.count();
        }
        if self.state == State::Drain
            && (bytes_in_flight <= self.inflight(1.0)
                || self.rounds.count() > self.drain_began + MAX_DRAIN_ROUNDS)
        {
            self.enter_down(now);
        }
    }

    fn save_cwnd(&mut self) {
        let reduced = self.state == State::ProbeRtt || self.collapsed;
        self.prior_cwnd_bytes = if reduced {
            self.prior_cwnd_bytes.max(self.cwnd_bytes)
        } else {
            self.cwnd_bytes
        };
    }

    fn restore_cwnd(&mut self) {
        self.cwnd_bytes = self.cwnd_bytes.max(self.prior_cwnd_bytes);
    }

    /// §5.5.10.2 and §5.5.11.1: saves at the first loss what an undo restores.
    fn note_loss(&mut self) {
        if self.recovery.is_none() {
            self.recovery = self.sampler.newest_sent();
            self.save_cwnd();
            self.undo = Some(Box::new(Undo {
                state: None,
                model: self.model.clone(),
                inflight_long_term: self.cycle.inflight_long_term,
            }));
        }
        self.model.note_loss(self.sampler.delivered_bytes());
    }

    /// Saves the present state before losses end it.
    fn set_undo_state(&mut self) {
        if let Some(undo) = &mut self.undo {
            undo.state = Some(self.state);
        }
    }

    /// Restarts from idleness (§5.4.1).
    fn restart_from_idle(&mut self, now: Instant) {
        self.idle_restart = true;
        self.model.restart_aggregation(now);
        if self.in_probe_bw() {
            self.update_pacing_rate(1.0);
        } else if self.state == State::ProbeRtt {
            self.end_probe_rtt_in_time(now);
        }
    }
}

impl Controller for Bbr3 {
    fn on_packet_sent(
        &mut self,
        now: Instant,
        packet_number: u64,
        bytes: u64,
        bytes_in_flight: u64,
        app_limited: bool,
    ) {
        if bytes_in_flight == 0 && self.app_limited {
            self.restart_from_idle(now);
        }
        self.app_limited = app_limited;
        let filled = bytes_in_flight
            .saturating_add(bytes)
            .saturating_add(self.max_datagram_bytes);
        self.cwnd_limited[0] |= filled > self.cwnd_bytes;
        self.sampler
            .on_packet_sent(now, packet_number, bytes, bytes_in_flight, app_limited);
    }

    fn on_ack(&mut self, packet: AckedPacket) {
        if self.sampler.on_ack(&packet).is_none() {
            return;
        }
        if self.is_unmeasured() && !self.is_widened {
            self.pacing_rate = startup_rate(self.cwnd_bytes, rtt_sample(&packet));
        }
        if self
            .recovery
            .is_some_and(|newest| packet.packet_number > newest)
        {
            self.recovery = None;
            if std::mem::take(&mut self.collapsed) {
                // §5.6.4.4.
                self.restore_cwnd();
                self.bound_cwnd();
            }
        }
    }

    fn on_end_of_acks(&mut self, now: Instant, bytes_in_flight: u64) {
        let Some(sample) = self.sampler.on_end_of_acks(now) else {
            return;
        };
        self.update(now, &sample, bytes_in_flight);
        self.update_pacing_rate(self.pacing_gain());
        self.update_cwnd(sample.acked_bytes);
    }

    fn on_packet_lost(&mut self, packet: LostPacket) {
        if let Some(lost) = self.sampler.on_packet_lost(&packet) {
            self.note_loss();
            self.handle_lost_packet(packet.now, &lost);
        }
    }

    /// The draft leaves marks open; here one counts as a loss in its round, which RFC 3168 asks for.
    fn on_congestion_event(&mut self, event: CongestionEvent) {
        if event.ecn {
            self.model.note_loss(self.sampler.delivered_bytes());
        } else {
            self.loss_events_in_round = self.loss_events_in_round.saturating_add(1);
        }
        if event.persistent {
            // §5.6.4.4: one packet beyond the flight, which is empty.
            self.save_cwnd();
            if !self.is_probing() {
                self.model.keep_inflight(self.prior_cwnd_bytes);
            }
            self.recovery = self.sampler.newest_sent();
            self.collapsed = true;
            // As in Linux's `bbr_set_state`: the rounds of an outage show no full pipe.
            if !self.full_pipe.reached() {
                self.full_pipe.restart();
            }
            self.cwnd_bytes = self.min_cwnd();
        }
    }

    /// Undoes the last decrease (§5.5.11.2).
    fn on_spurious_congestion_event(&mut self, _now: Instant) {
        let Some(undo) = self.undo.take() else {
            return;
        };
        self.restore_cwnd();
        self.model.undo_to(&undo.model);
        self.full_pipe.restart();
        self.cycle.inflight_long_term =
            match (self.cycle.inflight_long_term, undo.inflight_long_term) {
                (Some(now), Some(before)) => Some(now.max(before)),
                _ => None,
            };
        match undo.state {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_pipe = FullPipe::default();
                if self.state != State::ProbeRtt {
                    self.state = State::Startup;
                }
            }
            Some(State::ProbeBwUp) if !matches!(self.state, State::ProbeBwUp | State::ProbeRtt) => {
                self.enter_refill();
            }
            _ => {}
        }
        self.bound_cwnd();
    }

    fn widen_start(&mut self, window_bytes: u64, rtt: Duration) {
        if self.state == State::Startup && !self.full_pipe.reached() && !self.collapsed {
            self.cwnd_bytes = self.cwnd_bytes.max(window_bytes);
            let rate = widened_rate(window_bytes, rtt);
            // The rate before any measurement lets the first window leave at once.
            self.pacing_rate = match self.is_unmeasured() {
                true => rate,
                false => self.pacing_rate.max(rate),
            };
            self.is_widened = true;
            self.bound_cwnd();
        }
    }

    fn on_mtu_update(&mut self, mtu_bytes: u16) {
        self.max_datagram_bytes = max_datagram_bytes(mtu_bytes);
        self.bound_cwnd();
    }

    fn cwnd(&self) -> u64 {
        self.cwnd_bytes
    }

    fn pacing_rate(&self) -> Option<Bandwidth> {
        Some(self.pacing_rate)
    }

    fn bandwidth_estimate(&self) -> Option<Bandwidth> {
        self.model.bandwidth()
    }

    fn name(&self) -> &'static str {
        "bbr3"
    }

    fn state(&self) -> &'static str {
        match self.state {
            State::Startup => "startup",
            State::Drain => "drain",
            State::ProbeBwDown => "probe_bw_down",
            State::ProbeBwCruise => "probe_bw_cruise",
            State::ProbeBwRefill => "probe_bw_refill",
            State::ProbeBwUp => "probe_bw_up",
            State::ProbeRtt => "probe_rtt",
        }
    }
}

/// Whether more than the threshold was lost of the flight in which the newest acknowledged packet was sent.
fn lost_too_much(sample: &RateSample) -> bool {
    real(sample.lost_since_sent_bytes) > real(sample.tx_in_flight_bytes) * LOSS_THRESHOLD
}
