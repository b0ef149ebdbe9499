//! Lines of a log that others can cause, at a rate that cannot fill it.
//!
//! ```
//! use std::time::Instant;
//!
//! let log = starhaul_log::Seldom::default();
//! if let Some(others) = log.is_due(Instant::now()) {
//!     println!("a packet is refused, and {others} others since the last line");
//! }
//! ```

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Least time between two log lines about the same thing.
const INTERVAL: Duration = Duration::from_secs(60);

/// Lets a line into the log at most once a minute, and counts those that it withheld.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    last: Option<Instant>,
    withheld: u64,
}

impl Seldom {
    /// `Some` if a line may be written now, with the number of lines withheld since the last one.
    pub fn is_due(&self, now: Instant) -> Option<u64> {
        let mut told = self.0.lock();
        let since = told.last.map(|last| now.saturating_duration_since(last));
        if since.is_some_and(|since| since < INTERVAL) {
            told.withheld += 1;
            return None;
        }
        told.last = Some(now);
        Some(std::mem::take(&mut told.withheld))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_opens_stream_after_stream_gets_a_line_a_minute() {
        let refused = Seldom::default();
        let start = Instant::now();
        let lines: Vec<_> = (0..1800)
            .filter_map(|tenth| refused.is_due(start + Duration::from_millis(100 * tenth)))
            .collect();
        assert_eq!(lines, [0, 599, 599]);
    }
}
