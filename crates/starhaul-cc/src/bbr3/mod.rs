//! BBR version 3 (draft-ietf-ccwg-bbr-02): paces at the greatest delivery rate of two probing cycles,
//! within bounds on rate and flight learned from losses: long-term ones when probing loses over 2 %,
//! short-term ones when anything is lost between probes.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use crate::{
    AckedPacket, CongestionEvent, Controller, LostPacket,
    delivery_rate::{DeliveryRateSampler, RateSample},
    limits::{MAX_CWND_BYTES, clamp_rate, initial_window, max_datagram_bytes, real, window_bytes},
    rounds::RoundCounter,
    rtt::rtt_sample,
};

mod cycle;
mod full_pipe;
mod model;
mod probe_rtt;

use cycle::Cycle;
use full_pipe::FullPipe;
use model::Model;
use probe_rtt::{MinRtt, ProbeRtt};

/// §2.4: 4 ln 2, the least gain that doubles the rate sent each round.
const STARTUP_PACING_GAIN: f64 = 2.77;
const DRAIN_PACING_GAIN: f64 = 0.5;
const CWND_GAIN: f64 = 2.0;
/// §2.4: pacing stays this share of the estimate, so that queues do not persist.
const PACING_MARGIN: f64 = 0.99;
const MIN_WINDOW_PACKETS: u64 = 4;
/// §2.7: of what was in flight; more says that too much was.
const LOSS_THRESHOLD: f64 = 0.02;
/// §2.7: what is kept after a loss.
const BETA: f64 = 0.7;
/// §5.3.1.3: losses in one round that end startup, when they are above the threshold.
const STARTUP_LOSS_EVENTS: u32 = 6;
const MAX_SEND_QUANTUM_BYTES: u64 = 64 * 1024;

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
    /// The window to come back to after probing the RTT.
    prior_cwnd_bytes: u64,
    /// The window held something back in this round, and in the last.
    cwnd_limited: [bool; 2],
    loss_events_in_round: u32,
    /// Sending resumed after idleness: no reason to probe the RTT, which idleness has probed.
    idle_restart: bool,
    undo: Option<Box<Undo>>,
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

/// §5.5.11.2: what a loss that proves spurious gives back.
#[derive(Clone, Debug)]
struct Undo {
    state: State,
    model: Model,
    inflight_long_term: Option<u64>,
}

impl Bbr3 {
    /// A controller in startup, for packets of at most `mtu_bytes`.
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
            cwnd_limited: [false; 2],
            loss_events_in_round: 0,
            idle_restart: false,
            undo: None,
        }
    }

    /// §5.2.3: what each acknowledgement does, in this order.
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
            self.rounds.count(),
            self.full_pipe.reached(),
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

    /// Whether a whole round of startup lost too much.
    fn take_congestion_signals(&mut self, sample: &RateSample, delivered: u64) -> bool {
        let round_over = self
            .model
            .take_sample(sample, delivered, self.cycle.count());
        if !round_over {
            return false;
        }
        let probing = matches!(
            self.state,
            State::Startup | State::ProbeBwRefill | State::ProbeBwUp
        );
        if !probing {
            self.model.adapt_lower_bounds(self.cwnd_bytes);
        }
        let events = std::mem::take(&mut self.loss_events_in_round);
        self.model.end_loss_round();
        events >= STARTUP_LOSS_EVENTS && lost_too_much(sample)
    }

    fn end_startup_by_loss(&mut self) {
        self.full_pipe.set_reached();
        let bdp = self.bdp(self.model.max_bandwidth(), 1.0);
        let inflight = self.model.inflight_latest().max(bdp.unwrap_or(0));
        self.cycle.inflight_long_term = Some(inflight);
    }

    fn check_startup_and_drain(&mut self, now: Instant, bytes_in_flight: u64) {
        if self.state == State::Startup && self.full_pipe.reached() {
            self.state = State::Drain;
        }
        if self.state == State::Drain && bytes_in_flight <= self.inflight(1.0) {
            self.enter_down(now);
        }
    }

    fn save_cwnd(&mut self) {
        self.prior_cwnd_bytes = match self.state {
            State::ProbeRtt => self.prior_cwnd_bytes.max(self.cwnd_bytes),
            _ => self.cwnd_bytes,
        };
    }

    fn update_pacing_rate(&mut self, gain: f64) {
        let Some(bandwidth) = self.model.bandwidth() else {
            return;
        };
        let rate = clamp_rate(bandwidth.scaled(gain * PACING_MARGIN));
        if self.full_pipe.reached() || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    fn update_cwnd(&mut self, acked_bytes: u64) {
        let gain = match self.state {
            State::ProbeBwUp => CWND_GAIN + 0.25,
            _ => CWND_GAIN,
        };
        let most = self.max_inflight(gain);
        let grown = self.cwnd_bytes.saturating_add(acked_bytes);
        if self.full_pipe.reached() {
            self.cwnd_bytes = grown.min(most);
        } else if self.cwnd_bytes < most
            || self.sampler.delivered_bytes() < initial_window(self.max_datagram_bytes)
        {
            self.cwnd_bytes = grown;
        }
        self.bound_cwnd();
    }

    /// §5.6.4.6 and §5.6.4.7: the window for probing the RTT, and the model's bounds.
    fn bound_cwnd(&mut self) {
        let long_term = match self.state {
            State::ProbeBwDown | State::ProbeBwRefill | State::ProbeBwUp => {
                self.cycle.inflight_long_term
            }
            State::ProbeBwCruise | State::ProbeRtt => self.inflight_with_headroom(),
            State::Startup | State::Drain => None,
        };
        let mut most = long_term.unwrap_or(MAX_CWND_BYTES);
        if let Some(short_term) = self.model.inflight_short_term() {
            most = most.min(short_term);
        }
        if self.state == State::ProbeRtt {
            most = most.min(self.probe_rtt_cwnd());
        }
        let least = self.min_cwnd();
        self.cwnd_bytes = self
            .cwnd_bytes
            .min(most)
            .clamp(least, MAX_CWND_BYTES.max(least));
    }

    /// Bytes that keep the path busy at `gain` times this bandwidth; `None` while nothing is known.
    fn bdp(&self, bandwidth: Option<Bandwidth>, gain: f64) -> Option<u64> {
        let (bandwidth, min_rtt) = (bandwidth?, self.min_rtt.rtt()?);
        Some(window_bytes(real(bandwidth.bytes_in(min_rtt)) * gain, 0))
    }

    /// §5.6.4.2: the same, with room for what bursts take out of the pipe.
    fn inflight(&self, gain: f64) -> u64 {
        self.quantized(self.bdp(self.model.bandwidth(), gain))
    }

    /// §5.6.4.2: the same, with room for what aggregated acknowledgements take, too.
    fn max_inflight(&self, gain: f64) -> u64 {
        let bdp = self.bdp(self.model.bandwidth(), gain);
        let extra = self.model.extra_acked_bytes();
        self.quantized(bdp.map(|bdp| bdp.saturating_add(extra)))
    }

    fn quantized(&self, inflight: Option<u64>) -> u64 {
        let Some(inflight) = inflight else {
            return initial_window(self.max_datagram_bytes);
        };
        let inflight = inflight.max(3 * self.send_quantum()).max(self.min_cwnd());
        match self.state {
            State::ProbeBwUp => inflight.saturating_add(2 * self.max_datagram_bytes),
            _ => inflight,
        }
    }

    fn send_quantum(&self) -> u64 {
        self.pacing_rate.bytes_in(Duration::from_millis(1)).clamp(
            2 * self.max_datagram_bytes,
            MAX_SEND_QUANTUM_BYTES.max(2 * self.max_datagram_bytes),
        )
    }

    fn min_cwnd(&self) -> u64 {
        MIN_WINDOW_PACKETS * self.max_datagram_bytes
    }

    fn pacing_gain(&self) -> f64 {
        match self.state {
            State::Startup => STARTUP_PACING_GAIN,
            State::Drain => DRAIN_PACING_GAIN,
            State::ProbeBwDown => cycle::DOWN_PACING_GAIN,
            State::ProbeBwUp => cycle::UP_PACING_GAIN,
            State::ProbeBwCruise | State::ProbeBwRefill | State::ProbeRtt => 1.0,
        }
    }

    fn save_for_undo(&mut self) {
        self.undo = Some(Box::new(Undo {
            state: self.state,
            model: self.model.clone(),
            inflight_long_term: self.cycle.inflight_long_term,
        }));
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
        if bytes_in_flight == 0 && self.sampler.newest_sent().is_some() {
            self.idle_restart = true;
            self.model.restart_aggregation(now);
            if self.in_probe_bw() {
                self.update_pacing_rate(1.0);
            }
        }
        let filled = bytes_in_flight
            .saturating_add(bytes)
            .saturating_add(self.max_datagram_bytes);
        self.cwnd_limited[0] |= filled > self.cwnd_bytes;
        self.sampler
            .on_packet_sent(now, packet_number, bytes, bytes_in_flight, app_limited);
    }

    fn on_ack(&mut self, packet: AckedPacket) {
        if self.sampler.on_ack(&packet).is_some() && self.min_rtt.rtt().is_none() {
            self.pacing_rate = startup_rate(self.cwnd_bytes, rtt_sample(&packet));
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
            if !self.model.loss_in_round() {
                self.save_for_undo();
            }
            self.model.note_loss();
            self.handle_lost_packet(packet.now, &lost);
        }
    }

    /// The draft leaves marks open; here one counts as a loss in its round, which RFC 3168 asks for.
    fn on_congestion_event(&mut self, event: CongestionEvent) {
        self.model.note_loss();
        if !event.ecn {
            self.loss_events_in_round = self.loss_events_in_round.saturating_add(1);
        }
        if event.persistent {
            // §5.6.4.4: one packet beyond what is in flight, which is nothing.
            self.save_cwnd();
            self.cwnd_bytes = self.min_cwnd();
        }
    }

    fn on_spurious_congestion_event(&mut self, now: Instant) {
        let Some(undo) = self.undo.take() else {
            return;
        };
        self.model.undo_to(&undo.model);
        self.full_pipe.restart();
        self.cycle.inflight_long_term =
            match (self.cycle.inflight_long_term, undo.inflight_long_term) {
                (Some(now), Some(before)) => Some(now.max(before)),
                _ => None,
            };
        if self.state == State::ProbeRtt || self.state == undo.state {
            return;
        }
        match undo.state {
            State::Startup => {
                self.full_pipe = FullPipe::default();
                self.state = State::Startup;
            }
            State::ProbeBwUp if self.in_probe_bw() => self.enter_up(now, None),
            _ => {}
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

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

/// More than the threshold of the flight in which the newest acknowledged packet was sent is lost.
fn lost_too_much(sample: &RateSample) -> bool {
    real(sample.lost_since_sent_bytes) > real(sample.tx_in_flight_bytes) * LOSS_THRESHOLD
}

/// The rate before any is measured: the first window over the first round trip, in startup.
fn startup_rate(cwnd_bytes: u64, rtt: Duration) -> Bandwidth {
    clamp_rate(Bandwidth::from_bytes_over(cwnd_bytes, rtt).scaled(STARTUP_PACING_GAIN))
}
