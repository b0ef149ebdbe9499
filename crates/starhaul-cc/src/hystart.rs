//! HyStart++ (RFC 9406): leaves the first slow start when the RTT rises, through a slower stage that returns to slow
//! start if the rise was only jitter. Senders here pace, so L is infinite.

use std::time::Duration;

/// Lower bound of the RTT threshold (RFC 9406 §4.3).
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: f64 = 4.0;
const CSS_ROUNDS: u32 = 5;

/// The search for the end of the first slow start.
#[derive(Clone, Debug, Default)]
pub(crate) struct HyStart {
    /// The round ends when this packet is acknowledged; `None` before the first.
    window_end: Option<u64>,
    last_round_min_rtt: Option<Duration>,
    current_round_min_rtt: Option<Duration>,
    rtt_samples: u32,
    conservative: Option<Conservative>,
}

/// Conservative slow start (RFC 9406 §4.2).
#[derive(Clone, Debug)]
struct Conservative {
    baseline_min_rtt: Duration,
    rounds: u32,
}

/// The reaction of slow start to an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// Grow by this share of the acknowledged bytes.
    Grow(f64),
    /// Slow start is over.
    Exit,
}

impl HyStart {
    /// Takes an acknowledged packet; `newest_sent` is the greatest number sent so far.
    pub(crate) fn on_ack(&mut self, packet_number: u64, rtt: Duration, newest_sent: u64) -> Step {
        let end = *self.window_end.get_or_insert(newest_sent);
        self.take_sample(rtt);
        if packet_number >= end && self.end_round(newest_sent) {
            return Step::Exit;
        }
        Step::Grow(match self.conservative {
            Some(_) => 1.0 / CSS_GROWTH_DIVISOR,
            None => 1.0,
        })
    }

    pub(crate) fn is_conservative(&self) -> bool {
        self.conservative.is_some()
    }

    fn take_sample(&mut self, rtt: Duration) {
        let current = self.current_round_min_rtt.map_or(rtt, |min| min.min(rtt));
        self.current_round_min_rtt = Some(current);
        self.rtt_samples = self.rtt_samples.saturating_add(1);
        if self.rtt_samples < N_RTT_SAMPLE {
            return;
        }
        match &self.conservative {
            Some(conservative) if current < conservative.baseline_min_rtt => {
                self.conservative = None;
            }
            Some(_) => {}
            None => {
                let Some(last) = self.last_round_min_rtt else {
                    return;
                };
                let threshold = (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                if current >= last + threshold {
                    self.conservative = Some(Conservative {
                        baseline_min_rtt: current,
                        rounds: 0,
                    });
                }
            }
        }
    }

    /// Begins the next round; returns true when the conservative rounds are used up.
    fn end_round(&mut self, newest_sent: u64) -> bool {
        self.window_end = Some(newest_sent);
        self.last_round_min_rtt = self.current_round_min_rtt.take();
        self.rtt_samples = 0;
        let Some(conservative) = &mut self.conservative else {
            return false;
        };
        conservative.rounds += 1;
        conservative.rounds >= CSS_ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs rounds of 20 packets with the given least RTTs; returns the round in which slow start ended.
    fn run(round_ms: &[u64]) -> (HyStart, Option<usize>) {
        let mut hystart = HyStart::default();
        let mut packet_number = 0;
        for (round, &ms) in round_ms.iter().enumerate() {
            let last = packet_number + 19;
            while packet_number <= last {
                // The next flight leaves with the last acknowledgement of this one.
                let newest_sent = if packet_number == last {
                    last + 20
                } else {
                    last
                };
                let rtt = Duration::from_millis(ms);
                if hystart.on_ack(packet_number, rtt, newest_sent) == Step::Exit {
                    return (hystart, Some(round));
                }
                packet_number += 1;
            }
        }
        (hystart, None)
    }

    #[test]
    fn a_steady_rtt_keeps_slow_start_going() {
        let (hystart, exit) = run(&[50; 30]);
        assert_eq!(exit, None);
        assert!(!hystart.is_conservative());
    }

    #[test]
    fn a_lasting_rise_ends_it_after_the_conservative_rounds() {
        // An eighth of 80 ms is 10 ms: 89 does not count, 90 does.
        assert!(!run(&[80, 89]).0.is_conservative());
        assert!(run(&[80, 90]).0.is_conservative());
        let (_, exit) = run(&[80, 80, 80, 95, 95, 95, 95, 95, 95, 95, 95, 95, 95, 95, 95]);
        // It rises in round 3, and the partial round counts.
        assert_eq!(exit, Some(7));
    }

    #[test]
    fn a_passing_rise_does_not_end_it() {
        let mut rounds = vec![40, 40, 48, 48];
        rounds.extend([40; 20]);
        let (hystart, exit) = run(&rounds);
        assert_eq!(exit, None);
        assert!(!hystart.is_conservative());
    }
}
