//! The satellite segments of a path: each end may have one, and only the rest of the RTT belongs to the ground (LeoCC
//! §4.3).

use std::time::{Duration, Instant};

use crate::PathEnd;

/// Measurements older than this do not count.
const FRESH: Duration = Duration::from_secs(10);

/// The last RTT of the segment at each end, and when it was measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segments {
    local: Option<(Instant, Duration)>,
    remote: Option<(Instant, Duration)>,
}

impl Segments {
    pub(super) fn update(&mut self, now: Instant, end: PathEnd, rtt: Duration) {
        for segment in [&mut self.local, &mut self.remote] {
            *segment = segment.filter(|(at, _)| now.saturating_duration_since(*at) <= FRESH);
        }
        match end {
            PathEnd::Local => self.local = Some((now, rtt)),
            PathEnd::Remote => self.remote = Some((now, rtt)),
        }
    }

    /// The RTT of both segments together.
    pub(super) fn rtt(&self) -> Option<Duration> {
        let known = [self.local, self.remote].into_iter().flatten();
        known.map(|(_, rtt)| rtt).reduce(Duration::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segments_of_both_ends_add_up_while_they_are_fresh() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut segments = Segments::default();
        assert_eq!(segments.rtt(), None);
        segments.update(start, PathEnd::Remote, ms(30));
        assert_eq!(segments.rtt(), Some(ms(30)));
        segments.update(start + ms(50), PathEnd::Local, ms(25));
        assert_eq!(segments.rtt(), Some(ms(55)));
        segments.update(start + ms(11_000), PathEnd::Local, ms(26));
        assert_eq!(segments.rtt(), Some(ms(26)));
    }
}
