//! The satellite segments of a path: each end may have one, and only what both do not explain belongs to the ground (LeoCC §4.3).

use std::time::{Duration, Instant};

/// A segment that nobody measured for so long is not counted any more.
const FRESH: Duration = Duration::from_secs(10);

/// Whose satellite segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Ours,
    Peers,
}

/// The last round trip of each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segments {
    ours: Option<(Instant, Duration)>,
    peers: Option<(Instant, Duration)>,
}

impl Segments {
    pub(super) fn update(&mut self, now: Instant, end: End, rtt: Duration) {
        for segment in [&mut self.ours, &mut self.peers] {
            *segment = segment.filter(|(at, _)| now.saturating_duration_since(*at) <= FRESH);
        }
        match end {
            End::Ours => self.ours = Some((now, rtt)),
            End::Peers => self.peers = Some((now, rtt)),
        }
    }

    /// Of both together.
    pub(super) fn rtt(&self) -> Option<Duration> {
        let known = [self.ours, self.peers].into_iter().flatten();
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
        segments.update(start, End::Peers, ms(30));
        assert_eq!(segments.rtt(), Some(ms(30)));
        segments.update(start + ms(50), End::Ours, ms(25));
        assert_eq!(segments.rtt(), Some(ms(55)));
        segments.update(start + ms(11_000), End::Ours, ms(26));
        assert_eq!(segments.rtt(), Some(ms(26)));
    }
}
