//! Pacing rate, burst and window from the model and the state (draft-ietf-ccwg-bbr-06 §5.6).

use std::time::Duration;

use starhaul_units::Bandwidth;

use super::{Bbr3, State, cycle};
use crate::limits::{MAX_CWND_BYTES, clamp_rate, initial_window, real, window_bytes};

/// §2.5: 4 ln 2, the least gain that doubles the rate sent each round.
const STARTUP_PACING_GAIN: f64 = 2.77;
const DRAIN_PACING_GAIN: f64 = 0.5;
const CWND_GAIN: f64 = 2.0;
/// §2.5: pacing factor on the estimate, so that queues do not persist.
const PACING_MARGIN: f64 = 0.99;
const MIN_WINDOW_PACKETS: u64 = 4;
const MAX_SEND_QUANTUM_BYTES: u64 = 64 * 1024;

impl Bbr3 {
    pub(super) fn update_pacing_rate(&mut self, gain: f64) {
        let Some(bandwidth) = self.model.bandwidth() else {
            return;
        };
        let rate = clamp_rate(bandwidth.scaled(gain * PACING_MARGIN));
        if self.full_pipe.reached() || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    pub(super) fn update_cwnd(&mut self, acked_bytes: u64) {
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
    pub(super) fn bound_cwnd(&mut self) {
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

    /// Bandwidth-delay product of this bandwidth times `gain`; `None` before any sample.
    pub(super) fn bdp(&self, bandwidth: Option<Bandwidth>, gain: f64) -> Option<u64> {
        let (bandwidth, min_rtt) = (bandwidth?, self.min_rtt.rtt()?);
        Some(window_bytes(real(bandwidth.bytes_in(min_rtt)) * gain, 0))
    }

    /// §5.6.4.2: the same, with room for bursts.
    pub(super) fn inflight(&self, gain: f64) -> u64 {
        self.quantized(self.bdp(self.model.bandwidth(), gain))
    }

    /// §5.6.4.2: the same, with room also for aggregated acknowledgements.
    pub(super) fn max_inflight(&self, gain: f64) -> u64 {
        let bdp = self.bdp(self.model.bandwidth(), gain);
        let extra = self.model.extra_acked_bytes();
        self.quantized(bdp.map(|bdp| bdp.saturating_add(extra)))
    }

    pub(super) fn quantized(&self, inflight: Option<u64>) -> u64 {
        let Some(inflight) = inflight else {
            return initial_window(self.max_datagram_bytes);
        };
        // As in §5.5.8.1 for TCP: QUIC endpoints send and acknowledge in batches, too.
        let inflight = inflight.max(3 * self.send_quantum()).max(self.min_cwnd());
        match self.state {
            State::ProbeBwUp => inflight.saturating_add(2 * self.max_datagram_bytes),
            _ => inflight,
        }
    }

    pub(super) fn send_quantum(&self) -> u64 {
        self.pacing_rate.bytes_in(Duration::from_millis(1)).clamp(
            2 * self.max_datagram_bytes,
            MAX_SEND_QUANTUM_BYTES.max(2 * self.max_datagram_bytes),
        )
    }

    pub(super) fn min_cwnd(&self) -> u64 {
        MIN_WINDOW_PACKETS * self.max_datagram_bytes
    }

    pub(super) fn pacing_gain(&self) -> f64 {
        match self.state {
            State::Startup => STARTUP_PACING_GAIN,
            State::Drain => DRAIN_PACING_GAIN,
            State::ProbeBwDown => cycle::DOWN_PACING_GAIN,
            State::ProbeBwUp => cycle::UP_PACING_GAIN,
            State::ProbeBwCruise | State::ProbeBwRefill | State::ProbeRtt => 1.0,
        }
    }
}

/// The rate before any measurement: the first window per first RTT, in startup.
pub(super) fn startup_rate(cwnd_bytes: u64, rtt: Duration) -> Bandwidth {
    clamp_rate(Bandwidth::from_bytes_over(cwnd_bytes, rtt).scaled(STARTUP_PACING_GAIN))
}
