//! Packet-timed rounds, and the end of startup by rounds without growth, for controllers that model
//! the path (draft-cardwell-iccrg-bbr-congestion-control-00 §4.1.1.3, §4.3.2.2).

use starhaul_units::Bandwidth;

use crate::delivery_rate::RateSample;

/// Least growth expected of each round; a sender that doubles its rate would see a factor of two.
const FULL_PIPE_GROWTH: f64 = 1.25;
const FULL_PIPE_ROUNDS: u32 = 3;

/// Counts round trips by deliveries: a round ends when a packet is acknowledged that was sent after
/// the round began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundCounter {
    count: u64,
    ends_at_delivered: u64,
    started: bool,
}

impl RoundCounter {
    /// Takes a sample; `delivered_bytes` counts all deliveries including the sample's.
    pub(crate) fn update(&mut self, sample: &RateSample, delivered_bytes: u64) {
        self.started = sample.prior_delivered >= self.ends_at_delivered;
        if self.started {
            self.count += 1;
            self.restart(delivered_bytes);
        }
    }

    /// Extends the current round to a whole RTT from now.
    pub(crate) fn restart(&mut self, delivered_bytes: u64) {
        self.ends_at_delivered = delivered_bytes;
    }

    /// Number of rounds begun so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Whether the last sample began a round.
    pub(crate) fn started(&self) -> bool {
        self.started
    }
}

/// Detects that the bandwidth has stopped growing although the sender sped up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FullPipe {
    reached: bool,
    bandwidth: Bandwidth,
    rounds: u32,
}

impl FullPipe {
    /// A round began with this estimate; rounds limited by the application do not count.
    pub(crate) fn on_round(&mut self, bandwidth: Bandwidth) {
        if self.reached {
            return;
        }
        if bandwidth >= self.bandwidth.scaled(FULL_PIPE_GROWTH) {
            self.bandwidth = bandwidth;
            self.rounds = 0;
            return;
        }
        self.rounds += 1;
        self.reached = self.rounds >= FULL_PIPE_ROUNDS;
    }

    /// Counts rounds without growth anew, from any bandwidth: what was delivered late ended as it could not grow.
    pub(crate) fn restart(&mut self) {
        (self.bandwidth, self.rounds) = (Bandwidth::ZERO, 0);
    }

    /// Marks the pipe as full.
    pub(crate) fn fill(&mut self) {
        self.reached = true;
    }

    /// Whether the pipe was ever full.
    pub(crate) fn reached(&self) -> bool {
        self.reached
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_round_lasts_from_a_packets_sending_to_its_acknowledgement() {
        let mut rounds = RoundCounter::default();
        // Ten packets are sent before each delivery of ten, so a round is ten samples.
        let starts: Vec<bool> = (1..=40u64)
            .map(|delivered| {
                let sample = RateSample {
                    delivery_rate: None,
                    app_limited: false,
                    prior_delivered: delivered.saturating_sub(10),
                    delivered_bytes: 10,
                    tx_in_flight_bytes: 10,
                    lost_since_sent_bytes: 0,
                    acked_bytes: 1,
                    lost_bytes: 0,
                    rtt: Duration::from_millis(10),
                };
                rounds.update(&sample, delivered);
                rounds.started()
            })
            .collect();
        let at: Vec<usize> = (0..40).filter(|&i| starts[i]).collect();
        assert_eq!(at, [0, 10, 20, 30]);
        assert_eq!(rounds.count(), 4);
    }

    #[test]
    fn three_rounds_with_little_growth_in_all_fill_the_pipe() {
        let full_after = |mbit: &[u64]| {
            let mut pipe = FullPipe::default();
            mbit.iter().position(|&mbit| {
                pipe.on_round(Bandwidth::from_mbit(mbit));
                pipe.reached()
            })
        };
        assert_eq!(full_after(&[1, 2, 4, 8, 9, 9, 9]), Some(6));
        assert_eq!(full_after(&[8, 9, 9, 10, 11, 11, 13, 14, 15, 15]), Some(9));
        assert_eq!(full_after(&[1, 2, 4, 8, 16, 32]), None);

        let mut pipe = FullPipe::default();
        for mbit in [8, 8, 8] {
            pipe.on_round(Bandwidth::from_mbit(mbit));
        }
        pipe.restart();
        for (mbit, is_full) in [(8, false), (8, false), (8, false), (8, true)] {
            pipe.on_round(Bandwidth::from_mbit(mbit));
            assert_eq!(pipe.reached(), is_full);
        }
        pipe.restart();
        assert!(pipe.reached());
    }
}
