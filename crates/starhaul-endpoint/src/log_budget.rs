//! Lines that a peer can cause again and again: so many a minute, and the number of those that were left out.

use std::time::{Duration, Instant};

/// Time for which lines are counted together.
const INTERVAL: Duration = Duration::from_secs(60);
/// Lines in that time.
const LINES: u32 = 20;

/// At most 20 lines a minute. A peer that opens and closes sessions or paths without end fills no log.
#[derive(Clone, Debug, Default)]
pub struct LogBudget {
    begun: Option<Instant>,
    lines: u32,
    withheld: u64,
}

impl LogBudget {
    /// `Some` if a line may be written now, with the number of those left out since the last one.
    pub fn take(&mut self, now: Instant) -> Option<u64> {
        let is_over = |begun: Instant| now.saturating_duration_since(begun) >= INTERVAL;
        if self.begun.is_none_or(is_over) {
            (self.begun, self.lines) = (Some(now), 0);
        }
        if self.lines >= LINES {
            self.withheld += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.withheld))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_lines_a_minute_are_written_and_the_others_counted() {
        let mut budget = LogBudget::default();
        let start = Instant::now();
        let told: Vec<_> = (0..120)
            .filter_map(|second| budget.take(start + Duration::from_secs(second)))
            .collect();
        let mut expected = [0; 40];
        expected[20] = 40;
        assert_eq!(told, expected);
    }
}
