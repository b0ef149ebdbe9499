//! The least RTT of ten seconds, and the short ProbeRTT phases with half a BDP in flight that measure it when no sample
//! has for five (draft-ietf-ccwg-bbr-06 §5.3.4).

use std::time::{Duration, Instant};

use super::{Bbr3, State};
use crate::delivery_rate::RateSample;

const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
const PROBE_TIME: Duration = Duration::from_millis(200);
const PROBE_CWND_GAIN: f64 = 0.5;

/// The least RTT, which gives the BDP, and the one that decides about probing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MinRtt {
    least: Option<(Duration, Instant)>,
    recent: Option<(Duration, Instant)>,
}

/// The ProbeRTT phase in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProbeRtt {
    /// The end of the phase; set once the flight is small enough.
    until: Option<Instant>,
    round_done: bool,
}

impl MinRtt {
    pub(super) fn rtt(&self) -> Option<Duration> {
        self.least.map(|(rtt, _)| rtt)
    }

    /// Takes a sample; returns whether the RTT is to be probed.
    fn update(&mut self, now: Instant, rtt: Duration) -> bool {
        let older = |stamp: Instant, than| now.saturating_duration_since(stamp) > than;
        let expired = self.recent.is_some_and(|(_, at)| older(at, PROBE_INTERVAL));
        let recent = match self.recent {
            Some(recent) if !expired && rtt >= recent.0 => recent,
            _ => (rtt, now),
        };
        self.recent = Some(recent);
        if self
            .least
            .is_none_or(|(least, at)| recent.0 < least || older(at, MIN_RTT_WINDOW))
        {
            self.least = Some(recent);
        }
        expired
    }

    fn confirm(&mut self, now: Instant) {
        if let Some((_, at)) = &mut self.recent {
            *at = now;
        }
    }
}

impl Bbr3 {
    pub(super) fn update_min_rtt(
        &mut self,
        now: Instant,
        sample: &RateSample,
        bytes_in_flight: u64,
    ) {
        let expired = self.min_rtt.update(now, sample.rtt);
        if expired && !self.idle_restart && self.state != State::ProbeRtt {
            self.save_cwnd();
            self.state = State::ProbeRtt;
            self.probe_rtt = ProbeRtt::default();
            self.cycle.stop_probing();
            self.rounds.restart(self.sampler.delivered_bytes());
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(now, bytes_in_flight);
        }
        self.idle_restart = false;
    }

    fn handle_probe_rtt(&mut self, now: Instant, bytes_in_flight: u64) {
        // Deliveries in this phase are below the path's rate.
        self.sampler.mark_app_limited();
        match self.probe_rtt.until {
            None if bytes_in_flight <= self.probe_rtt_cwnd() => {
                self.probe_rtt = ProbeRtt {
                    until: Some(now + PROBE_TIME),
                    round_done: false,
                };
                self.rounds.restart(self.sampler.delivered_bytes());
            }
            Some(_) => {
                self.probe_rtt.round_done |= self.rounds.started();
                if self.probe_rtt.round_done {
                    self.end_probe_rtt_in_time(now);
                }
            }
            None => {}
        }
    }

    /// Also ends the phase when sending resumes after idleness (§5.4.1).
    pub(super) fn end_probe_rtt_in_time(&mut self, now: Instant) {
        if self.probe_rtt.until.is_none_or(|until| now <= until) {
            return;
        }
        self.min_rtt.confirm(now);
        self.cwnd_bytes = self.cwnd_bytes.max(self.prior_cwnd_bytes);
        self.model.forget_short_term();
        if self.full_pipe.reached() {
            self.enter_down(now);
            self.state = State::ProbeBwCruise;
        } else {
            self.state = State::Startup;
        }
    }

    pub(super) fn probe_rtt_cwnd(&self) -> u64 {
        self.bdp(self.model.bandwidth(), PROBE_CWND_GAIN)
            .unwrap_or(0)
            .max(self.min_cwnd())
    }
}
