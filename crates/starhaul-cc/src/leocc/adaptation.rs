//! Adaptation (LeoCC §4.2.2), the phase after a reconfiguration: the flow drains to half of the old BDP, measures the
//! new path, and continues at its former rate.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use super::{LeoCc, Mode};
use crate::{
    limits::{real, window_bytes},
    rounds::FullPipe,
};

/// Minimum length of Adaptation in the published code.
const CODE_ADAPTATION: Duration = Duration::from_millis(200);
/// Maximum length of Adaptation, whichever packets are lost …
pub(super) const MAX_ADAPTATION: Duration = Duration::from_secs(1);
/// … or this many RTTs, if that is longer: up to one and a half until the flight has shrunk, and two in which RTTs are sampled.
const MAX_ADAPTATION_ROUNDS: u32 = 4;
/// Without a reconfiguration for W_RT the measurements of Adaptation expire: it is then run as BBR probes its RTT.
const UNTOLD_ADAPTATION: Duration = Duration::from_secs(10);
/// `leocc2` waits for this many RTTs, if that is longer: such an Adaptation then costs about a hundredth.
const UNTOLD_ROUNDS: u32 = 100;
/// The paper's for so many: two or three round trips at half the rate cost a twentieth, as one second in ten does.
const PAPER_UNTOLD_ROUNDS: u32 = 25;
/// Adaptation is run also when no RTT was in the band for this many rounds, two cycles.
const BEYOND_BAND_ROUNDS: u64 = 16;
/// Rounds with the path half empty in which RTTs are sampled.
const ADAPTATION_ROUNDS: u32 = 2;
/// LeoCC §4.2.2: Adaptation holds this share of the path's BDP in flight.
const ADAPTATION_SHARE: f64 = 0.5;

impl LeoCc {
    /// Returns whether Adaptation is needed without a signal: the RTT has left its band for good, or the band is too
    /// old.
    pub(super) fn needs_adaptation(&mut self, now: Instant, rtt: Duration) -> bool {
        if self.options.published_code || !self.options.adaptation {
            return false;
        }
        if self.seems_shorter(now, rtt) {
            return true;
        }
        let high = self.estimate.band().map_or(rtt, |(_, high)| high);
        if rtt <= high {
            self.beyond_band = None;
            let rounds = match self.options.target_queue {
                true => UNTOLD_ROUNDS,
                false => PAPER_UNTOLD_ROUNDS,
            };
            let after = UNTOLD_ADAPTATION.max(rtt.saturating_mul(rounds));
            return self
                .last_adaptation
                .is_some_and(|last| now.saturating_duration_since(last) > after);
        }
        let round = self.rounds.count();
        let target = self.target_rate().unwrap_or(self.pacing_rate);
        let (since, _) = *self.beyond_band.get_or_insert((round, target));
        let is_recent = self.options.target_queue
            && self
                .last_adaptation
                .is_some_and(|at| self.is_recent(now, at));
        round.saturating_sub(since) > BEYOND_BAND_ROUNDS && !is_recent
    }

    pub(super) fn enter_adaptation(&mut self, now: Instant) {
        let rate = self.target_rate().unwrap_or(self.pacing_rate);
        let bandwidth = if self.options.published_code {
            self.estimate.aggressive()
        } else {
            self.estimate.moderate().or(self.estimate.aggressive())
        };
        let (low, _) = self.estimate.band().unwrap_or_default();
        let bandwidth = bandwidth.unwrap_or_default();
        let cap_bytes = if self.options.target_queue {
            self.begin_emptying(now, bandwidth, low)
        } else {
            self.emptying.longest = longest(low);
            let cap = real(bandwidth.bytes_in(low)) * ADAPTATION_SHARE;
            window_bytes(cap, self.min_cwnd())
        };
        self.last_adaptation = Some(now);
        let beyond_band = self.beyond_band.take();
        self.emptying.before = beyond_band.map_or(rate, |(_, before)| before.max(rate));
        self.mode = Mode::Adaptation {
            since: now,
            rate,
            cap_bytes,
            drained: None,
            rounds: 0,
        };
    }

    pub(super) fn adapt(&mut self, now: Instant, bytes_in_flight: u64, rtt: Duration) {
        // Deliveries in this phase are below the path's rate.
        self.sampler.mark_app_limited();
        if self.options.target_queue {
            return self.empty(now, bytes_in_flight, rtt);
        }
        let Mode::Adaptation {
            since,
            rate,
            cap_bytes,
            drained,
            rounds,
        } = self.mode
        else {
            return;
        };
        let rounds = rounds + u32::from(drained.is_some() && self.rounds.started());
        let (least, least_rounds) = if self.options.published_code {
            (CODE_ADAPTATION, 1)
        } else {
            (Duration::ZERO, ADAPTATION_ROUNDS)
        };
        // The path may have become longer.
        let present = longest(self.estimate.least_rtt().unwrap_or_default());
        let over = drained.is_some_and(|at| now.saturating_duration_since(at) >= least)
            && rounds >= least_rounds
            || now.saturating_duration_since(since) > self.emptying.longest.max(present);
        if over {
            return self.leave_adaptation(now, rate);
        }
        let drained = drained.or_else(|| {
            (bytes_in_flight <= cap_bytes).then(|| {
                self.rounds.restart(self.sampler.delivered_bytes());
                now
            })
        });
        self.mode = Mode::Adaptation {
            since,
            rate,
            cap_bytes,
            drained,
            rounds,
        };
    }

    pub(super) fn leave_adaptation(&mut self, now: Instant, rate: Bandwidth) {
        if self.options.published_code {
            self.estimate.discard_aggressive();
            self.full_pipe = FullPipe::default();
            self.mode = Mode::Startup;
        } else {
            self.estimate.restart_from(self.rounds.count(), rate);
            self.restored_rate = rate;
            self.begin_burst(0);
            if let Some((low, _)) = self.estimate.band() {
                let (target, told) = (self.usual_target(), self.emptying.was_told());
                self.competition.on_drained(now, low, target, told);
            }
            self.mode = Mode::Cruise { phase: 0 };
        }
    }
}

/// How long Adaptation may last on a path of this RTT.
fn longest(rtt: Duration) -> Duration {
    MAX_ADAPTATION.max(rtt.saturating_mul(MAX_ADAPTATION_ROUNDS))
}
