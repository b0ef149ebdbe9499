//! LeoCC (Lai et al., SIGCOMM 2025): a BBR-like controller for low-orbit paths that discards its model at each
//! reconfiguration, drains, and continues at its former rate. Where paper and published code disagree the paper is
//! followed; [`LeoCcOptions`] selects the code's variant, and `leocc2`, which bounds the queue by a window.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use crate::{
    AckedPacket, CongestionEvent, Controller, LostPacket, PathModel, Reconfiguration,
    delivery_rate::{DeliveryRateSampler, RateSample},
    limits::{
        MAX_CWND_BYTES, clamp_rate, initial_window, max_datagram_bytes, real, widened_rate,
        window_bytes,
    },
    rounds::{FullPipe, RoundCounter},
};

mod adaptation;
mod band;
mod bottleneck;
mod bunching;
mod burst;
mod competition;
mod deviation;
mod emptying;
mod estimate;
mod mean_rate;
mod options;
mod pauses;
mod target_queue;

use bottleneck::Bottleneck;
use bunching::Bunching;
use burst::Burst;
use competition::Competition;
use deviation::Deviation;
use emptying::Emptying;
use estimate::Estimate;
pub use options::LeoCcOptions;
use pauses::Pauses;

const STARTUP_GAIN: f64 = 2.885;
const DRAIN_GAIN: f64 = 1.0 / STARTUP_GAIN;
/// One cycle in rounds: burst, drain, then at the target (LeoCC §4.2.1, "Sending rate decision").
const CYCLE_ROUNDS: usize = 8;
const BURST_GAIN: f64 = 1.25;
const MODERATE_BURST_GAIN: f64 = 1.05;
const CYCLE_DRAIN_GAIN: f64 = 0.75;
const CWND_GAIN: f64 = 2.0;
/// Δ_RTT of eq. 4 as a share of bRTT_l; 0 in the published code. With 0 a path of constant RTT, whose band is a point,
/// would always count as congested.
const RTT_MARGIN_SHARE: f64 = 1.0 / 16.0;
/// Loss up to this share is random (LeoCC §2.1): the link could have carried the lost packets.
const MAX_RANDOM_LOSS: f64 = 0.06;
/// Less than this share tells a mean that has not yet been measured from none.
const LEAST_RANDOM_LOSS: f64 = 0.005;
/// Of a round's loss in its mean: a cycle.
const MEAN_LOSS_SHARE: f64 = 1.0 / 8.0;
/// The loss of a round scatters by up to about twice its mean where rounds are short.
const MEAN_LOSSES: f64 = 2.0;
/// Pacing factor on the target rate, so that a queue left by an overestimate drains.
const PACING_MARGIN: f64 = 0.99;
const MIN_WINDOW_PACKETS: u64 = 4;
/// `leocc2` drains for so many rounds at most. Startup leaves less than two BDP in the queue, which at a third of the rate are gone
/// after three; what stands longer is another flow's, and Adaptation finds out.
const MAX_DRAIN_ROUNDS: u64 = 4;

/// Model-based congestion control that uses reconfiguration signals; loss alone does not reduce its rate.
#[derive(Clone, Debug)]
pub(crate) struct LeoCc {
    options: LeoCcOptions,
    max_datagram_bytes: u64,
    sampler: DeliveryRateSampler,
    rounds: RoundCounter,
    full_pipe: FullPipe,
    estimate: Estimate,
    bottleneck: Bottleneck,
    bunching: Bunching,
    competition: Competition,
    deviation: Deviation,
    burst: Burst,
    emptying: Emptying,
    pauses: Pauses,
    /// The rate of the last whole round; zero when that gave none.
    round_rate: Bandwidth,
    /// The rate at which the last Adaptation ended.
    restored_rate: Bandwidth,
    /// Interactive data share the path with bulk.
    prefers_short_queue: bool,
    /// When the last reconfiguration was signalled.
    last_reconfiguration: Option<Instant>,
    mode: Mode,
    /// Pacing gains of this round and the two before; samples reflect the oldest.
    gains: [f64; 3],
    last_adaptation: Option<Instant>,
    pacing_rate: Bandwidth,
    cwnd_bytes: u64,
    measured: bool,
    /// Start of the current round and the bytes delivered by then.
    round_start: Option<(Instant, u64)>,
    /// Bytes declared lost since then.
    round_lost_bytes: u64,
    /// The share of bytes lost in a round without a queue beyond the target, averaged over about a cycle.
    mean_loss: f64,
    /// The round since which every RTT has been beyond the band, and the target rate then.
    beyond_band: Option<(u64, Bandwidth)>,
    updated_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Startup,
    Drain {
        /// The round in which it began.
        since: u64,
    },
    Cruise {
        phase: usize,
    },
    Adaptation {
        since: Instant,
        /// rate*_target, restored after Adaptation.
        rate: Bandwidth,
        cap_bytes: u64,
        /// When the flight fell below the cap.
        drained: Option<Instant>,
        rounds: u32,
    },
}

impl LeoCc {
    /// Creates a controller in startup, for packets of at most `mtu_bytes`.
    pub(crate) fn new(options: LeoCcOptions, mtu_bytes: u16) -> Self {
        let max_datagram_bytes = max_datagram_bytes(mtu_bytes);
        let cwnd_bytes = initial_window(max_datagram_bytes);
        Self {
            options,
            max_datagram_bytes,
            sampler: DeliveryRateSampler::new(),
            rounds: RoundCounter::default(),
            full_pipe: FullPipe::default(),
            estimate: Estimate::new(options),
            bottleneck: Bottleneck::default(),
            bunching: Bunching::default(),
            competition: Competition::default(),
            deviation: Deviation::default(),
            burst: Burst::default(),
            emptying: Emptying::default(),
            pauses: Pauses::default(),
            round_rate: Bandwidth::default(),
            restored_rate: Bandwidth::default(),
            prefers_short_queue: false,
            last_reconfiguration: None,
            mode: Mode::Startup,
            gains: [STARTUP_GAIN; 3],
            last_adaptation: None,
            pacing_rate: startup_rate(cwnd_bytes, Duration::from_millis(1)),
            cwnd_bytes,
            measured: false,
            round_start: None,
            round_lost_bytes: 0,
            mean_loss: 0.0,
            beyond_band: None,
            updated_at: None,
        }
    }

    fn update_model(&mut self, now: Instant, sample: &RateSample) {
        self.rounds.update(sample, self.sampler.delivered_bytes());
        self.estimate.on_rate(now, self.rounds.count(), sample);
        self.round_lost_bytes = self.round_lost_bytes.saturating_add(sample.lost_bytes);
        let pause = self.note_pause(now);
        self.bunching.on_acks(now, pause);
        if self.rounds.started() {
            self.measure_round(now, sample);
            self.bunching.on_round();
        }
        let unloaded = self.is_unloaded(now, sample);
        self.estimate.on_rtt(now, sample.rtt, unloaded);
        self.watch_deviation(now, sample.rtt);
        if let Some(latest) = self.estimate.latest_rtt() {
            self.bottleneck.on_end_to_end_rtt(now, latest);
        }
    }

    /// How long the link was idle because this flow, `leocc2`, sent nothing, as the acknowledgements that came at `now` show.
    fn note_pause(&mut self, now: Instant) -> Duration {
        let usual = self.pacing_rate.time_to_send(2 * self.send_quantum());
        let middle = self.estimate.middle_rtt().unwrap_or_default();
        self.pauses
            .on_acks(now, usual, middle + self.target_queue() / 2)
    }

    /// The round that ends was sent with the gain of the one before. A round sent below the target gives no estimate of
    /// the path, one that began before the reconfiguration none of the present path, and one that holds an outage that of
    /// the outage.
    fn measure_round(&mut self, now: Instant, sample: &RateSample) {
        let delivered = self.sampler.delivered_bytes();
        let lost = std::mem::take(&mut self.round_lost_bytes);
        let paused = self.pauses.on_round();
        let [_, sent_at_gain, _] = self.gains;
        self.round_rate = Bandwidth::default();
        if let Some((start, before)) = self.round_start.replace((now, delivered)) {
            let elapsed = now.saturating_duration_since(start);
            let elapsed = elapsed.saturating_sub(paused).max(elapsed / 2);
            let silent = self.options.target_queue && self.bunching.was_silent(elapsed);
            let sent = (delivered - before).saturating_add(lost);
            let random = self.random_loss();
            if !silent && sent > 0 && !self.is_queued() {
                let share = real(lost) / real(sent);
                self.mean_loss += (share - self.mean_loss) * MEAN_LOSS_SHARE;
            }
            if sent_at_gain >= 1.0
                && !sample.app_limited
                && !silent
                && !elapsed.is_zero()
                && self.estimate.is_current(now, elapsed + sample.rtt)
            {
                let most = window_bytes(real(sent) * random, 0);
                let carried = (delivered - before).saturating_add(lost.min(most));
                self.round_rate = Bandwidth::from_bytes_over(carried, elapsed);
                let queued = self.is_queued();
                self.estimate
                    .on_round_rate(self.round_rate, elapsed, queued);
            }
        }
    }

    /// The share of a round's bytes that may have been lost at random. Where `leocc2` finds no queue that is what is lost anyway: a
    /// path that drops each fifth packet is not full. Losses of a round that go far beyond the mean are its own: a short buffer
    /// drops most of a burst. With a queue the buffer may have dropped what goes beyond the usual: counted as carried that would keep the
    /// rate above the capacity, and the buffer full.
    fn random_loss(&self) -> f64 {
        let usual = self.mean_loss * MEAN_LOSSES;
        match (self.is_narrow(), self.is_queued()) {
            (false, _) => MAX_RANDOM_LOSS,
            (true, false) => MAX_RANDOM_LOSS + usual,
            (true, true) => MAX_RANDOM_LOSS.min(usual + LEAST_RANDOM_LOSS),
        }
    }

    /// Whether the newest acknowledged packet met no queue of this flow: the path was drained, or less than a BDP was
    /// in flight.
    fn is_unloaded(&self, now: Instant, sample: &RateSample) -> bool {
        if let Mode::Adaptation { drained, .. } = self.mode {
            return drained
                .is_some_and(|at| now.checked_sub(sample.rtt).is_some_and(|sent| sent >= at));
        }
        let (Some(rate), Some((low, _))) = (self.estimate.moderate(), self.estimate.band()) else {
            return false;
        };
        sample.rtt <= low || sample.tx_in_flight_bytes <= rate.bytes_in(low)
    }

    fn update_mode(&mut self, now: Instant, sample: &RateSample, bytes_in_flight: u64) {
        match self.mode {
            Mode::Startup => {
                if self.rounds.started() && !sample.app_limited {
                    let bandwidth = self.estimate.aggressive().unwrap_or_default();
                    self.full_pipe.on_round(bandwidth);
                }
                if self.full_pipe.reached() {
                    let since = self.rounds.count();
                    self.mode = Mode::Drain { since };
                }
            }
            Mode::Drain { since } => {
                let bandwidth = self.estimate.aggressive().unwrap_or_default();
                let rounds = self.rounds.count() - since;
                let over = self.options.target_queue && rounds >= MAX_DRAIN_ROUNDS;
                if over || bytes_in_flight <= self.inflight(bandwidth, 1.0) {
                    // Startup's RTTs include its queue: the band is measured as after a reconfiguration.
                    if self.options.published_code {
                        self.mode = Mode::Cruise { phase: 0 };
                    } else {
                        self.enter_adaptation(now);
                        self.estimate.discard_rtt(now);
                    }
                }
            }
            Mode::Cruise { phase } => {
                if self.rounds.started() {
                    let phase = self.next_phase(phase);
                    self.mode = Mode::Cruise { phase };
                }
                self.look_for_competition(now);
                if self.is_signal_due(now) || self.needs_adaptation(now, sample.rtt) {
                    self.enter_adaptation(now);
                    self.estimate.discard_rtt(now);
                }
            }
            Mode::Adaptation { .. } => self.adapt(now, bytes_in_flight, sample.rtt),
        }
        if self.rounds.started() {
            let [current, before, _] = self.gains;
            self.gains = [self.pacing_gain(), current, before];
        }
    }

    /// Whether congestion, not the path's own RTT variation, explains the RTT (eq. 4).
    fn is_moderate(&self) -> bool {
        if self.is_competing() {
            return false;
        }
        let (Some(latest), Some((low, high))) = (self.estimate.latest_rtt(), self.estimate.band())
        else {
            return false;
        };
        if self.options.published_code {
            latest > high
        } else {
            latest >= high + low.mul_f64(RTT_MARGIN_SHARE)
        }
    }

    /// The target rate (eq. 4).
    fn target_rate(&self) -> Option<Bandwidth> {
        let aggressive = self.estimate.aggressive();
        let moderate = self.estimate.moderate();
        match self.mode {
            Mode::Adaptation { rate, .. } => Some(rate),
            Mode::Cruise { .. } if self.is_moderate() => moderate.or(aggressive),
            _ => aggressive.or(moderate),
        }
    }

    fn pacing_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => STARTUP_GAIN,
            Mode::Drain { .. } => DRAIN_GAIN,
            Mode::Cruise { phase: 0 } if self.is_moderate() && !self.bursts_in_full() => {
                MODERATE_BURST_GAIN
            }
            Mode::Cruise { phase: 0 } => BURST_GAIN,
            Mode::Cruise { phase: 1 } if self.is_narrow() => self.burst_drain_gain(),
            Mode::Cruise { phase: 1 } => CYCLE_DRAIN_GAIN,
            Mode::Cruise { .. } | Mode::Adaptation { .. } => 1.0,
        }
    }

    fn update_pacing_rate(&mut self) {
        let Some(target) = self.target_rate() else {
            return;
        };
        let target = match self.mode {
            Mode::Cruise { phase: 0 } if self.bursts_in_full() => {
                self.estimate.aggressive().unwrap_or(target)
            }
            _ => target,
        };
        let rate = clamp_rate(target.scaled(self.pacing_gain() * PACING_MARGIN));
        if self.mode != Mode::Startup || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    fn update_cwnd(&mut self, acked_bytes: u64) {
        let grown = self.cwnd_bytes.saturating_add(acked_bytes);
        let bandwidth = self.estimate.aggressive();
        self.cwnd_bytes = match (self.mode, bandwidth) {
            (Mode::Adaptation { cap_bytes, .. }, _) => cap_bytes,
            (Mode::Startup | Mode::Drain { .. }, Some(bandwidth)) => {
                let target = self.inflight(bandwidth, STARTUP_GAIN);
                if self.full_pipe.reached() {
                    grown.min(target)
                } else if self.cwnd_bytes < target {
                    grown
                } else {
                    self.cwnd_bytes
                }
            }
            (Mode::Cruise { phase }, Some(_)) if self.is_narrow() => {
                self.target_queue_window(phase)
            }
            (Mode::Cruise { .. }, Some(bandwidth)) => grown
                .max(self.restored_cwnd())
                .min(self.inflight(bandwidth, CWND_GAIN)),
            (_, None) => grown,
        }
        .clamp(self.min_cwnd(), MAX_CWND_BYTES);
    }

    /// One BDP at once after Adaptation: the path is known to be empty.
    fn restored_cwnd(&self) -> u64 {
        self.target_rate()
            .map_or(0, |rate| self.inflight(rate, 1.0))
    }

    /// Bytes in flight that keep the path busy at `gain` times `bandwidth`.
    fn inflight(&self, bandwidth: Bandwidth, gain: f64) -> u64 {
        let Some((low, _)) = self.estimate.band() else {
            return initial_window(self.max_datagram_bytes);
        };
        let bdp = real(bandwidth.bytes_in(low)) * gain;
        // Room for bursts and aggregated acknowledgements.
        let quanta = 3 * self.send_quantum();
        window_bytes(bdp, self.min_cwnd())
            .saturating_add(quanta)
            .min(MAX_CWND_BYTES)
    }

    fn send_quantum(&self) -> u64 {
        self.pacing_rate
            .bytes_in(Duration::from_millis(1))
            .clamp(self.max_datagram_bytes, 64 * 1024)
    }

    fn min_cwnd(&self) -> u64 {
        MIN_WINDOW_PACKETS * self.max_datagram_bytes
    }
}

impl Controller for LeoCc {
    fn on_packet_sent(
        &mut self,
        now: Instant,
        packet_number: u64,
        bytes: u64,
        bytes_in_flight: u64,
        app_limited: bool,
    ) {
        self.sampler
            .on_packet_sent(now, packet_number, bytes, bytes_in_flight, app_limited);
    }

    fn on_ack(&mut self, packet: AckedPacket) {
        if self.sampler.on_ack(&packet).is_none() {
            return;
        }
        let rtt = crate::rtt::rtt_sample(&packet);
        if self.options.target_queue {
            self.pauses.on_ack(packet.sent, rtt);
        }
        if !self.measured {
            self.measured = true;
            self.pacing_rate = startup_rate(self.cwnd_bytes, rtt);
        }
    }

    fn on_end_of_acks(&mut self, now: Instant, bytes_in_flight: u64) {
        let Some(sample) = self.sampler.on_end_of_acks(now) else {
            return;
        };
        self.updated_at = Some(now);
        self.update_model(now, &sample);
        self.update_mode(now, &sample, bytes_in_flight);
        self.update_pacing_rate();
        self.update_cwnd(sample.acked_bytes);
    }

    fn on_packet_lost(&mut self, packet: LostPacket) {
        self.sampler.on_packet_lost(&packet);
    }

    fn on_congestion_event(&mut self, event: CongestionEvent) {
        if event.persistent {
            self.cwnd_bytes = self.min_cwnd();
            // The rounds of an outage show no full pipe.
            if self.mode == Mode::Startup {
                self.full_pipe.restart();
            }
        }
    }

    fn on_spurious_congestion_event(&mut self, _now: Instant) {}

    fn on_reconfiguration(&mut self, now: Instant, _reconfiguration: Reconfiguration) {
        if !self.options.detector {
            return;
        }
        self.last_reconfiguration = Some(now);
        if self.options.target_queue && self.note_signal(now) {
            return;
        }
        // Adaptation of `leocc2` costs little and keeps the rate. Without it a queue of its own that the prober's packets do not
        // meet would count as one on the ground, and then as a part of the path.
        let may_be_on_ground = !self.options.published_code && !self.options.target_queue;
        let on_ground = may_be_on_ground && self.bottleneck.is_on_the_ground(now);
        let cruising = matches!(self.mode, Mode::Cruise { .. });
        let rate = self.target_rate();
        if cruising && self.options.adaptation && !on_ground {
            self.enter_adaptation(now);
            self.update_cwnd(0);
        }
        if self.options.published_code {
            return;
        }
        if matches!(self.mode, Mode::Adaptation { .. }) {
            self.estimate.discard(now);
        } else if cruising && let Some(rate) = rate {
            // LeoCC §4.3: the bandwidth of the terrestrial segment is unchanged.
            self.last_adaptation = Some(now);
            self.estimate.discard(now);
            self.estimate.restart_from(self.rounds.count(), rate);
        }
    }

    fn on_segment_rtt(&mut self, now: Instant, rtt: Duration) {
        self.estimate.on_probe_rtt(rtt);
        self.bottleneck.on_segment_rtt(now, rtt);
    }

    fn prefer_short_queue(&mut self, preferred: bool) {
        self.prefers_short_queue = preferred;
    }

    fn widen_start(&mut self, window_bytes: u64, rtt: Duration) {
        if self.mode == Mode::Startup && !self.full_pipe.reached() {
            let window = self.cwnd_bytes.max(window_bytes);
            self.cwnd_bytes = window.clamp(self.min_cwnd(), MAX_CWND_BYTES);
            let rate = widened_rate(window_bytes, rtt);
            // The rate before any measurement lets the first window leave at once.
            self.pacing_rate = match self.measured {
                true => self.pacing_rate.max(rate),
                false => rate,
            };
            self.measured = true;
        }
    }

    fn on_mtu_update(&mut self, mtu_bytes: u16) {
        self.max_datagram_bytes = max_datagram_bytes(mtu_bytes);
        self.cwnd_bytes = self.cwnd_bytes.max(self.min_cwnd());
    }

    fn cwnd(&self) -> u64 {
        self.cwnd_bytes
    }

    fn pacing_rate(&self) -> Option<Bandwidth> {
        Some(self.pacing_rate)
    }

    fn bandwidth_estimate(&self) -> Option<Bandwidth> {
        self.target_rate()
    }

    fn name(&self) -> &'static str {
        self.options.name()
    }

    fn state(&self) -> &'static str {
        match self.mode {
            Mode::Startup => "startup",
            Mode::Drain { .. } => "drain",
            Mode::Cruise { .. } if self.is_competing() => "cruise_competitive",
            Mode::Cruise { .. } if self.is_moderate() => "cruise_moderate",
            Mode::Cruise { .. } => "cruise",
            Mode::Adaptation { .. } => "adaptation",
        }
    }

    fn model(&self) -> Option<PathModel> {
        Some(PathModel {
            bandwidth_aggressive: self.estimate.aggressive(),
            bandwidth_moderate: self.estimate.moderate(),
            rtt_band: self.estimate.band(),
            last_reconfiguration: self.last_reconfiguration,
        })
    }
}

fn startup_rate(cwnd_bytes: u64, rtt: Duration) -> Bandwidth {
    clamp_rate(Bandwidth::from_bytes_over(cwnd_bytes, rtt).scaled(STARTUP_GAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The share of a round's losses that may be counted as carried, with this usual loss and queue over a path of 100 ms.
    fn random_loss(usual: f64, queue_ms: u32) -> f64 {
        let mut flow = LeoCc::new(LeoCcOptions::TARGET_QUEUE, 1452);
        flow.mean_loss = usual;
        let start = Instant::now();
        for n in 0..100 {
            flow.estimate.on_rtt(start + MS * 30 * n, MS * 100, true);
        }
        for n in 100..400 {
            let rtt = MS * (100 + queue_ms);
            flow.estimate.on_rtt(start + MS * 30 * n, rtt, false);
        }
        flow.random_loss()
    }

    /// What a full buffer drops is not carried by the link; what it loses without a queue is.
    #[test]
    fn losses_with_a_queue_count_as_random_up_to_the_usual_ones() {
        assert!(random_loss(0.0, 0) >= MAX_RANDOM_LOSS);
        assert!(random_loss(0.1, 0) > 0.2, "a fifth is lost at random");
        assert!(random_loss(0.0, 30) < 0.01);
        assert!((0.02..0.03).contains(&random_loss(0.01, 30)));
        assert!(random_loss(0.1, 30) <= MAX_RANDOM_LOSS);
    }
}
