//! What the paths can carry now, for an application that chooses its rate by it.

use std::time::Duration;

use starhaul_units::Bandwidth;

use super::Session;

impl Session {
    /// What all usable paths together can carry now towards the peer, by their estimates, the budget kept; zero without a path. Headers and what
    /// redundancy and retransmissions take are part of it. The estimate of a path that was never full may be too low.
    pub fn available(&self) -> Bandwidth {
        self.paths.bandwidth()
    }

    /// The same of those paths alone whose one-way delay is at most `deadline`: no others bring a block of that deadline in time.
    pub fn available_within(&self, deadline: Duration) -> Bandwidth {
        self.paths.bandwidth_within(deadline)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use starhaul_paths::{PathId, PathUpdate};

    use super::*;
    use crate::{SchedulerChoice, SessionConfig, Side};

    #[test]
    fn each_deadline_has_the_paths_that_are_short_enough() {
        let now = Instant::now();
        let scheduler = SchedulerChoice::Rules.build();
        let config = SessionConfig::default();
        let mut session = Session::with_scheduler(config, Side::Client, now, scheduler);
        assert_eq!(session.available(), Bandwidth::ZERO);
        for (path, mbit, rtt_ms) in [(0, 20, 40), (1, 10, 600)] {
            let rtt = Duration::from_millis(rtt_ms);
            let update = PathUpdate {
                cwnd: 1 << 20,
                bytes_in_flight: 0,
                bandwidth: Bandwidth::from_mbit(mbit),
                smoothed_rtt: rtt,
                min_rtt: rtt,
                max_datagram: 1200,
            };
            session.add_path(now, PathId(path), 0.0, update);
        }
        let [short, long] = [0, 1].map(|path: usize| session.path_stats()[path].bandwidth);
        assert!(short > long && long > Bandwidth::ZERO, "{short:?} {long:?}");
        let both: Bandwidth = [short, long].into_iter().sum();
        let within = |ms| session.available_within(Duration::from_millis(ms));
        assert_eq!(session.available(), both);
        assert_eq!([1000, 100, 1].map(within), [both, short, Bandwidth::ZERO]);
    }
}
