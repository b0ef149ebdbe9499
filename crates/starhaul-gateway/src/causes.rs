//! Which causes of failed connection attempts are logged, so that attempts over days do not fill the log.

use std::time::{Duration, Instant};

/// Interval at which a lasting cause is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Greatest number of causes logged in that time.
const MAX_CAUSES: usize = 4;

/// The causes logged during the last [`LOG_INTERVAL`].
#[derive(Debug, Default)]
pub(crate) struct Causes(Vec<(Instant, String)>);

impl Causes {
    /// Whether a cause is to be logged now; if so, it counts as logged.
    pub(crate) fn is_news(&mut self, now: Instant, cause: &str) -> bool {
        self.0
            .retain(|(told, _)| now.saturating_duration_since(*told) < LOG_INTERVAL);
        let is_news = self.0.len() < MAX_CAUSES && self.0.iter().all(|(_, other)| other != cause);
        if is_news {
            self.0.push((now, cause.to_owned()));
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_lasts_is_told_once_a_minute_and_a_new_one_at_once() {
        let (mut causes, start) = (Causes::default(), Instant::now());
        let mut told =
            |seconds: u64, cause: &str| causes.is_news(start + Duration::from_secs(seconds), cause);
        let lines = (0..180).filter(|second| told(*second, "another key"));
        assert_eq!(lines.collect::<Vec<_>>(), [0, 60, 120]);
        assert!(told(179, "no answer"));
        assert!(!told(179, "no answer"));
        let many = (0..100).filter(|number| told(179, &format!("cause {number}")));
        assert_eq!(
            many.count(),
            MAX_CAUSES - 2,
            "whoever varies it fills no log"
        );
    }
}
