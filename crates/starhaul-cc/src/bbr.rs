//! BBR version 1 (Cardwell et al., 2016; draft-cardwell-iccrg-bbr-congestion-control-00), with room for aggregated
//! acknowledgements as in Linux since 5.1: paces at the greatest delivery rate of ten rounds and bounds what is in flight by
//! the least RTT of ten seconds.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use crate::{
    AckedPacket, CongestionEvent, Controller, LostPacket,
    aggregation::Aggregation,
    delivery_rate::{DeliveryRateSampler, RateSample},
    filter::WindowedFilter,
    limits::{
        MAX_CWND_BYTES, clamp_rate, initial_window, max_datagram_bytes, real, widened_rate,
        window_bytes,
    },
    rounds::{FullPipe, RoundCounter},
    rtt::rtt_sample,
};

/// 2/ln 2: the least gain that doubles the delivery rate each round.
const HIGH_GAIN: f64 = 2.885;
const DRAIN_GAIN: f64 = 1.0 / HIGH_GAIN;
const CWND_GAIN: f64 = 2.0;
/// One phase for each least RTT: probe, drain the queue that probing left, cruise.
const PACING_GAIN_CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Pacing factor on the estimate, so that a queue left by an overestimate drains.
const PACING_MARGIN: f64 = 0.99;
const BANDWIDTH_WINDOW_ROUNDS: u64 = 10;
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
const MIN_WINDOW_PACKETS: u64 = 4;
/// Greatest time at the estimated bandwidth that aggregated acknowledgements add to the window.
const MOST_AGGREGATED: Duration = Duration::from_millis(100);
/// From this least RTT on, draining to four packets would idle a long path for more than a tenth of the time: probing
/// the RTT then keeps half a BDP in flight, as in BBRv2 (draft-cardwell-iccrg-bbr-congestion-control-02 §4.3.4.2).
const LONG_RTT: Duration = Duration::from_millis(200);
const LONG_RTT_PROBE_SHARE: f64 = 0.5;
/// A round trip over a long path confirms the least RTT if it is above it by no more than the time of so many full packets at the
/// estimated bandwidth, or by this share of it: a small packet set it, which is on the link for a shorter time than the data of a bulk
/// transfer, and else each ten seconds of that transfer would end in a pause that measures nothing new.
const CONFIRMING_PACKETS: u64 = 2;
const CONFIRMING_SHARE: u32 = 256;
/// But never by more than this share, over however slow a link.
const MOST_CONFIRMING_SHARE: u32 = 64;

/// Model-based congestion control; loss alone does not reduce its rate.
#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    max_datagram_bytes: u64,
    sampler: DeliveryRateSampler,
    mode: Mode,

    max_bandwidth: WindowedFilter<Bandwidth, u64>,
    min_rtt: Option<MinRtt>,
    /// The least RTT of deliveries that the application limited, which queue behind nothing of their own.
    unqueued_rtt: WindowedFilter<Duration, Instant>,
    rounds: RoundCounter,
    full_pipe: FullPipe,
    aggregation: Aggregation,

    pacing_rate: Bandwidth,
    cwnd_bytes: u64,
    /// The window to restore after recovery or probing the RTT.
    prior_cwnd_bytes: u64,
    recovery: Option<Recovery>,
    /// Sending resumed after idleness, which has already probed the RTT.
    idle_restart: bool,
    /// The path seems longer than the least RTT says.
    doubts_min_rtt: bool,
    /// The round in which [`Controller::widen_start`] gave a window.
    widened_in: Option<u64>,
    /// The least RTT before it was last probed.
    prior_min_rtt: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw {
        phase: usize,
        since: Instant,
    },
    ProbeRtt {
        /// The end of the phase; set once the flight is small enough.
        until: Option<Instant>,
        round_done: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct MinRtt {
    rtt: Duration,
    at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Recovery {
    /// The round ends when a packet sent after this one is acknowledged.
    newest_sent: u64,
    /// In the first round the window only replaces delivered bytes.
    conserving: bool,
    /// What was in flight when it began did not fill the path, so that its deliveries do not show the path's rate.
    below_capacity: bool,
}

impl Bbr {
    /// Creates a controller in startup, for packets of at most `mtu_bytes`.
    pub(crate) fn new(mtu_bytes: u16) -> Self {
        let max_datagram_bytes = max_datagram_bytes(mtu_bytes);
        let cwnd_bytes = initial_window(max_datagram_bytes);
        Self {
            max_datagram_bytes,
            sampler: DeliveryRateSampler::new(),
            mode: Mode::Startup,
            max_bandwidth: WindowedFilter::max(BANDWIDTH_WINDOW_ROUNDS),
            min_rtt: None,
            unqueued_rtt: WindowedFilter::min(MIN_RTT_WINDOW),
            rounds: RoundCounter::default(),
            full_pipe: FullPipe::default(),
            aggregation: Aggregation::default(),
            pacing_rate: startup_rate(cwnd_bytes, Duration::from_millis(1)),
            cwnd_bytes,
            prior_cwnd_bytes: cwnd_bytes,
            recovery: None,
            idle_restart: false,
            doubts_min_rtt: false,
            widened_in: None,
            prior_min_rtt: None,
        }
    }

    const fn is_unmeasured(&self) -> bool {
        self.min_rtt.is_none()
    }

    fn update_round(&mut self, sample: &RateSample) {
        self.rounds.update(sample, self.sampler.delivered_bytes());
        if self.rounds.started()
            && let Some(recovery) = &mut self.recovery
        {
            recovery.conserving = false;
        }
        if self
            .recovery
            .is_some_and(|recovery| recovery.conserving && recovery.below_capacity)
        {
            self.sampler.mark_app_limited();
        }
    }

    fn update_bandwidth(&mut self, sample: &RateSample) {
        if let Some(rate) = sample.delivery_rate
            && (!sample.app_limited || self.max_bandwidth.best().is_none_or(|best| rate >= best))
        {
            self.max_bandwidth.update(self.rounds.count(), rate);
        }
        if self.rounds.started() && !sample.app_limited {
            let bandwidth = self.max_bandwidth.best().unwrap_or_default();
            self.full_pipe.on_round(bandwidth);
        }
    }

    fn update_mode(&mut self, now: Instant, sample: &RateSample, bytes_in_flight: u64) {
        if self.mode == Mode::Startup && self.full_pipe.reached() {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && bytes_in_flight <= self.inflight(1.0) {
            self.enter_probe_bw(now);
        }
        self.update_cycle_phase(now, sample, bytes_in_flight);
        self.update_min_rtt(now, sample, bytes_in_flight);
    }

    /// Any phase but the draining one may begin the cycle, so that flows that start together do not probe together; the
    /// bytes delivered replace a random number.
    fn enter_probe_bw(&mut self, now: Instant) {
        let packets = self.sampler.delivered_bytes() / self.max_datagram_bytes;
        let phase = match packets % 7 {
            0 => 0,
            other => usize::try_from(other + 1).unwrap_or(2),
        };
        self.mode = Mode::ProbeBw { phase, since: now };
    }

    fn update_cycle_phase(&mut self, now: Instant, sample: &RateSample, bytes_in_flight: u64) {
        let Mode::ProbeBw { phase, since } = self.mode else {
            return;
        };
        let min_rtt = self.min_rtt.map_or(Duration::ZERO, |min| min.rtt);
        let full_length = now.saturating_duration_since(since) > min_rtt;
        let prior_in_flight = bytes_in_flight.saturating_add(sample.acked_bytes);
        let gain = self.pacing_gain();
        // Only losses after an RTT of the phase count: one random loss at its beginning shows nothing.
        let lost = sample.lost_bytes > 0;
        let over = if gain > 1.0 {
            full_length && (lost || prior_in_flight >= self.inflight(gain))
        } else if gain < 1.0 {
            full_length || prior_in_flight <= self.inflight(1.0)
        } else {
            full_length
        };
        if over {
            self.mode = Mode::ProbeBw {
                phase: (phase + 1) % PACING_GAIN_CYCLE.len(),
                since: now,
            };
        }
    }

    /// The time of the least RTT becomes that of a round trip over a long path that is about as short.
    fn confirm_min_rtt(&mut self, now: Instant, rtt: Duration) {
        let bandwidth = self.max_bandwidth.best();
        let packets = CONFIRMING_PACKETS * self.max_datagram_bytes;
        if let Some(min) = self.min_rtt.as_mut().filter(|min| min.rtt >= LONG_RTT) {
            let on_link = bandwidth.map_or(Duration::ZERO, |rate| rate.time_to_send(packets));
            let above = on_link
                .max(min.rtt / CONFIRMING_SHARE)
                .min(min.rtt / MOST_CONFIRMING_SHARE);
            if rtt <= min.rtt + above {
                min.at = now;
            }
        }
    }

    fn update_min_rtt(&mut self, now: Instant, sample: &RateSample, bytes_in_flight: u64) {
        self.confirm_min_rtt(now, sample.rtt);
        let mut expired = std::mem::take(&mut self.doubts_min_rtt)
            || self
                .min_rtt
                .is_some_and(|min| now.saturating_duration_since(min.at) > MIN_RTT_WINDOW);
        // What the application limited has probed the RTT on the way; a pause for that would only delay it.
        if sample.app_limited && bytes_in_flight < self.inflight(1.0) {
            self.unqueued_rtt.update(now, sample.rtt);
            if let Some(rtt) = self.unqueued_rtt.best().filter(|_| expired) {
                self.min_rtt = Some(MinRtt { rtt, at: now });
                expired = false;
            }
        }
        let prior = self.min_rtt.map(|min| min.rtt);
        if expired || self.min_rtt.is_none_or(|min| sample.rtt <= min.rtt) {
            self.min_rtt = Some(MinRtt {
                rtt: sample.rtt,
                at: now,
            });
        }
        if expired && !self.idle_restart && !matches!(self.mode, Mode::ProbeRtt { .. }) {
            self.save_cwnd();
            self.prior_min_rtt = prior;
            self.mode = Mode::ProbeRtt {
                until: None,
                round_done: false,
            };
        }
        self.probe_rtt(now, bytes_in_flight);
        self.idle_restart = false;
    }

    fn probe_rtt(&mut self, now: Instant, bytes_in_flight: u64) {
        let Mode::ProbeRtt { until, round_done } = self.mode else {
            return;
        };
        // Deliveries in this phase are below the path's rate.
        self.sampler.mark_app_limited();
        match until {
            None if bytes_in_flight <= self.probe_rtt_cwnd() => {
                self.rounds.restart(self.sampler.delivered_bytes());
                self.mode = Mode::ProbeRtt {
                    until: Some(now + PROBE_RTT_TIME),
                    round_done: false,
                };
            }
            Some(until) if now >= until && (round_done || self.rounds.started()) => {
                if let Some(min) = &mut self.min_rtt {
                    min.at = now;
                }
                self.restore_cwnd();
                self.start_up_if_longer();
                if self.full_pipe.reached() {
                    self.enter_probe_bw(now);
                } else {
                    self.mode = Mode::Startup;
                }
            }
            until => {
                self.mode = Mode::ProbeRtt {
                    until,
                    round_done: round_done || (until.is_some() && self.rounds.started()),
                };
            }
        }
    }

    /// What the window of a much shorter path delivered in each round is not the rate of the path that was just measured.
    fn start_up_if_longer(&mut self) {
        let (Some(prior), Some(min), Some(bandwidth)) = (
            self.prior_min_rtt.take(),
            self.min_rtt,
            self.max_bandwidth.best(),
        ) else {
            return;
        };
        if bandwidth.bytes_in(min.rtt) > self.inflight_over(bandwidth, prior, CWND_GAIN) {
            self.full_pipe = FullPipe::default();
        }
    }

    fn update_pacing_rate(&mut self, gain: f64) {
        let Some(bandwidth) = self.max_bandwidth.best() else {
            return;
        };
        let rate = clamp_rate(bandwidth.scaled(gain * PACING_MARGIN));
        if self.full_pipe.reached() || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    fn update_aggregation(&mut self, now: Instant, acked_bytes: u64) {
        let bandwidth = self.max_bandwidth.best().unwrap_or_default();
        let round = (self.rounds.count(), self.full_pipe.reached());
        let cwnd_bytes = self.cwnd_bytes;
        self.aggregation
            .update(now, bandwidth, acked_bytes, cwnd_bytes, round);
    }

    /// Room for what is acknowledged at once, once the pipe is full (`tcp_bbr.c`, `bbr_ack_aggregation_cwnd`).
    fn aggregated(&self) -> u64 {
        let bandwidth = self
            .max_bandwidth
            .best()
            .filter(|_| self.full_pipe.reached());
        let most = bandwidth.map_or(0, |bandwidth| bandwidth.bytes_in(MOST_AGGREGATED));
        self.aggregation.bytes().min(most)
    }

    fn update_cwnd(&mut self, acked_bytes: u64) {
        let target = self.inflight(self.cwnd_gain());
        let target = target.saturating_add(self.aggregated()).min(MAX_CWND_BYTES);
        let grown = self.cwnd_bytes.saturating_add(acked_bytes);
        self.cwnd_bytes = if self.recovery.is_some_and(|recovery| recovery.conserving) {
            let replaced = self.sampler.in_flight_bytes().saturating_add(acked_bytes);
            self.cwnd_bytes.max(replaced.min(target))
        } else if self.full_pipe.reached() {
            grown.min(target)
        } else if self.cwnd_bytes < target
            || self.sampler.delivered_bytes() < initial_window(self.max_datagram_bytes)
        {
            grown
        } else {
            self.cwnd_bytes
        };
        self.bound_cwnd();
    }

    fn bound_cwnd(&mut self) {
        let most = match self.mode {
            Mode::ProbeRtt { .. } => self.probe_rtt_cwnd(),
            _ => MAX_CWND_BYTES,
        };
        self.cwnd_bytes = self.cwnd_bytes.min(most).max(self.min_cwnd());
    }

    fn save_cwnd(&mut self) {
        self.prior_cwnd_bytes = if self.is_reduced() {
            self.prior_cwnd_bytes.max(self.cwnd_bytes)
        } else {
            self.cwnd_bytes
        };
    }

    /// Whether a recovery or a measurement of the RTT takes some of the window.
    fn is_reduced(&self) -> bool {
        self.recovery.is_some() || matches!(self.mode, Mode::ProbeRtt { .. })
    }

    fn restore_cwnd(&mut self) {
        self.cwnd_bytes = self.cwnd_bytes.max(self.prior_cwnd_bytes);
    }

    /// Bytes in flight that keep the path busy at `gain` times the estimated bandwidth.
    fn inflight(&self, gain: f64) -> u64 {
        let (Some(bandwidth), Some(min)) = (self.max_bandwidth.best(), self.min_rtt) else {
            return initial_window(self.max_datagram_bytes);
        };
        self.inflight_over(bandwidth, min.rtt, gain)
    }

    fn inflight_over(&self, bandwidth: Bandwidth, rtt: Duration, gain: f64) -> u64 {
        let bdp = real(bandwidth.bytes_in(rtt)) * gain;
        // Room for bursts and aggregated acknowledgements.
        let quanta = 3 * self.send_quantum();
        window_bytes(bdp, self.min_cwnd())
            .saturating_add(quanta)
            .min(MAX_CWND_BYTES)
    }

    fn send_quantum(&self) -> u64 {
        if self.pacing_rate < Bandwidth::from_kbit(1_200) {
            self.max_datagram_bytes
        } else if self.pacing_rate < Bandwidth::from_mbit(24) {
            2 * self.max_datagram_bytes
        } else {
            self.pacing_rate
                .bytes_in(Duration::from_millis(1))
                .min(64 * 1024)
        }
    }

    fn min_cwnd(&self) -> u64 {
        MIN_WINDOW_PACKETS * self.max_datagram_bytes
    }

    fn probe_rtt_cwnd(&self) -> u64 {
        match (self.min_rtt, self.max_bandwidth.best()) {
            (Some(min), Some(bandwidth)) if min.rtt >= LONG_RTT => window_bytes(
                real(bandwidth.bytes_in(min.rtt)) * LONG_RTT_PROBE_SHARE,
                self.min_cwnd(),
            ),
            _ => self.min_cwnd(),
        }
    }

    fn pacing_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => DRAIN_GAIN,
            Mode::ProbeBw { phase, .. } => PACING_GAIN_CYCLE.get(phase).copied().unwrap_or(1.0),
            Mode::ProbeRtt { .. } => 1.0,
        }
    }

    fn cwnd_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup | Mode::Drain => HIGH_GAIN,
            Mode::ProbeBw { .. } => CWND_GAIN,
            Mode::ProbeRtt { .. } => 1.0,
        }
    }
}

impl Controller for Bbr {
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
            self.aggregation.restart(now);
            if matches!(self.mode, Mode::ProbeBw { .. }) {
                // In any phase, the pipe is empty and only needs filling.
                self.update_pacing_rate(1.0);
            }
        }
        self.sampler
            .on_packet_sent(now, packet_number, bytes, bytes_in_flight, app_limited);
    }

    fn on_ack(&mut self, packet: AckedPacket) {
        if self.sampler.on_ack(&packet).is_none() {
            return;
        }
        if self.is_unmeasured() && self.widened_in.is_none() {
            self.pacing_rate = startup_rate(self.cwnd_bytes, rtt_sample(&packet));
        }
        if self
            .recovery
            .is_some_and(|recovery| packet.packet_number > recovery.newest_sent)
        {
            self.recovery = None;
            self.restore_cwnd();
            self.bound_cwnd();
        }
    }

    fn on_end_of_acks(&mut self, now: Instant, bytes_in_flight: u64) {
        let Some(sample) = self.sampler.on_end_of_acks(now) else {
            return;
        };
        self.update_round(&sample);
        self.update_bandwidth(&sample);
        self.update_aggregation(now, sample.acked_bytes);
        self.update_mode(now, &sample, bytes_in_flight);
        self.update_pacing_rate(self.pacing_gain());
        self.update_cwnd(sample.acked_bytes);
    }

    fn on_packet_lost(&mut self, packet: LostPacket) {
        let Some(lost) = self.sampler.on_packet_lost(&packet) else {
            return;
        };
        if self.recovery.is_some() {
            self.cwnd_bytes = self.cwnd_bytes.saturating_sub(lost.bytes);
            self.bound_cwnd();
        }
    }

    fn on_congestion_event(&mut self, event: CongestionEvent) {
        if event.ecn {
            // Version 1 ignores marks.
            return;
        }
        let newest_sent = self.sampler.newest_sent().unwrap_or(0);
        if event.persistent {
            self.save_cwnd();
            // As in `bbr_set_state`: the rounds of an outage show no full pipe.
            self.full_pipe.restart();
            self.cwnd_bytes = self.min_cwnd();
            self.recovery = Some(Recovery {
                newest_sent,
                conserving: false,
                below_capacity: false,
            });
        } else if let Some(recovery) = &mut self.recovery {
            // Further losses prolong recovery but do not begin a new round of conservation, or
            // steady random loss would hold the window at what is in flight.
            recovery.newest_sent = newest_sent;
        } else {
            self.save_cwnd();
            let in_flight = self.sampler.in_flight_bytes();
            let below_capacity = in_flight < self.inflight(1.0);
            self.recovery = Some(Recovery {
                newest_sent,
                conserving: true,
                below_capacity,
            });
            if below_capacity {
                self.sampler.mark_app_limited();
            }
            self.rounds.restart(self.sampler.delivered_bytes());
            self.cwnd_bytes = self
                .cwnd_bytes
                .min(in_flight.saturating_add(self.max_datagram_bytes));
        }
        self.bound_cwnd();
    }

    fn on_spurious_congestion_event(&mut self, _now: Instant) {
        if self.recovery.take().is_some() {
            self.restore_cwnd();
            self.bound_cwnd();
        }
    }

    fn widen_start(&mut self, window_bytes: u64, rtt: Duration) {
        if self.mode == Mode::Startup && !self.full_pipe.reached() {
            // A recovery under way gives back the greater window.
            let window = match self.recovery {
                Some(_) => &mut self.prior_cwnd_bytes,
                None => &mut self.cwnd_bytes,
            };
            *window = window_bytes.max(*window);
            let rate = widened_rate(window_bytes, rtt);
            // The rate before any measurement lets the first window leave at once.
            self.pacing_rate = match self.is_unmeasured() {
                true => rate,
                false => self.pacing_rate.max(rate),
            };
            self.widened_in = Some(self.rounds.count());
            self.bound_cwnd();
        }
    }

    fn on_queue(&mut self, _now: Instant) {
        // Until a whole round of a widened window was acknowledged, the estimate is that of the few packets before it.
        let is_unproven = self
            .widened_in
            .is_some_and(|round| self.rounds.count() < round + 2);
        if self.mode == Mode::Startup && !is_unproven {
            self.full_pipe.fill();
            self.mode = Mode::Drain;
            self.update_pacing_rate(DRAIN_GAIN);
        }
    }

    /// The window of two bandwidth-delay products of the shorter path would starve it: each ten rounds less would be delivered.
    fn on_longer_path(&mut self) -> bool {
        self.doubts_min_rtt = true;
        self.unqueued_rtt = WindowedFilter::min(MIN_RTT_WINDOW);
        true
    }

    fn on_path_rtt(&mut self, now: Instant, rtt: Duration) {
        self.unqueued_rtt = WindowedFilter::min(MIN_RTT_WINDOW);
        self.min_rtt = Some(MinRtt { rtt, at: now });
    }

    fn on_mtu_update(&mut self, mtu_bytes: u16) {
        self.max_datagram_bytes = max_datagram_bytes(mtu_bytes);
        self.bound_cwnd();
    }

    fn cwnd(&self) -> u64 {
        self.cwnd_bytes
    }

    fn full_window(&self) -> u64 {
        match self.is_reduced() {
            true => self.cwnd_bytes.max(self.prior_cwnd_bytes),
            false => self.cwnd_bytes,
        }
    }

    fn pacing_rate(&self) -> Option<Bandwidth> {
        Some(self.pacing_rate)
    }

    fn bandwidth_estimate(&self) -> Option<Bandwidth> {
        self.max_bandwidth.best()
    }

    fn name(&self) -> &'static str {
        "bbr"
    }

    fn state(&self) -> &'static str {
        match self.mode {
            Mode::Startup => "startup",
            Mode::Drain => "drain",
            Mode::ProbeBw { .. } => "probe_bw",
            Mode::ProbeRtt { .. } => "probe_rtt",
        }
    }
}

/// The rate before any measurement: the first window per first RTT, in startup.
fn startup_rate(cwnd_bytes: u64, rtt: Duration) -> Bandwidth {
    clamp_rate(Bandwidth::from_bytes_over(cwnd_bytes, rtt).scaled(HIGH_GAIN))
}
