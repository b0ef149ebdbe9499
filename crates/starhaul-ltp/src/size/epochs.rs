//! How fast data pass at one size of segments: spans of what is sent, measured where reports on them come, or, where a rate is known, as
//! they leave.

use std::{collections::VecDeque, time::Instant};

/// Spans that wait for their reports; of more, the oldest are forgotten.
const MOST_WAITING: usize = 16;

/// Spans of all that is sent to a peer, by position: bytes sent in all.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    position: u64,
    open: Option<Epoch>,
    closed: VecDeque<Epoch>,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    data: usize,
    start: u64,
    end: u64,
    opened: Instant,
    /// When reports had reached it, and how far they had come then.
    begun: Option<(Instant, u64)>,
    /// Whether something else than the size was what limited it.
    is_tainted: bool,
}

impl Epoch {
    fn new(now: Instant, start: u64, data: usize) -> Self {
        Self {
            data,
            start,
            end: u64::MAX,
            opened: now,
            begun: None,
            is_tainted: false,
        }
    }

    fn reach(&mut self, now: Instant, position: u64) {
        if position >= self.start && self.begun.is_none() {
            self.begun = Some((now, position));
        }
    }

    /// Whether reports on its end were lost, and so much of what was sent behind it has arrived that its time tells nothing of its size.
    fn is_mixed(&self, position: u64) -> bool {
        let from = self.begun.map_or(self.start, |(_, from)| from);
        let behind = position.saturating_sub(self.end);
        behind > self.end.saturating_sub(from) / 8
    }

    /// Seconds per byte, if it lay between two positions.
    fn cost(&self, now: Instant, position: u64) -> Option<f64> {
        let (at, from) = self.begun.filter(|(_, from)| *from < self.end)?;
        let took = now.saturating_duration_since(at).as_secs_f64();
        let bytes = position.checked_sub(from).filter(|bytes| *bytes > 0)?;
        (took > 0.0 && !self.is_tainted).then(|| took / bytes as f64)
    }
}

impl Epochs {
    /// Bytes sent in all.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Bytes leave in segments of this size.
    pub(super) fn sent(&mut self, now: Instant, bytes: u64, data: usize) {
        let start = self.position;
        self.open
            .get_or_insert_with(|| Epoch::new(now, start, data));
        self.position += bytes;
    }

    /// Bytes and age of the present span.
    pub(super) fn present(&self, now: Instant) -> (u64, std::time::Duration) {
        let open = self.open.as_ref();
        open.map_or_else(Default::default, |epoch| {
            let age = now.saturating_duration_since(epoch.opened);
            (self.position - epoch.start, age)
        })
    }

    /// Ends the present span and begins one of this size.
    pub(super) fn turn(&mut self, now: Instant, data: usize) {
        if let Some(mut epoch) = self.open.take() {
            epoch.end = self.position;
            self.closed.push_back(epoch);
            if self.closed.len() > MOST_WAITING {
                self.closed.pop_front();
            }
        }
        self.open = Some(Epoch::new(now, self.position, data));
    }

    /// Something else than the size limits what is under way: none of it is a measure.
    pub(super) fn taint(&mut self) {
        for epoch in self.closed.iter_mut().chain(&mut self.open) {
            epoch.is_tainted = true;
        }
    }

    /// Whether a span of this size is still to be measured.
    pub(super) fn holds(&self, data: usize) -> bool {
        let mut all = self.closed.iter().chain(&self.open);
        all.any(|epoch| epoch.data == data && !epoch.is_tainted)
    }

    /// Everything before `position` has arrived, or left: the next span that ends with it, with its size and seconds per byte.
    pub(super) fn progress(&mut self, now: Instant, position: u64) -> Option<(usize, f64)> {
        if let Some(open) = &mut self.open {
            open.reach(now, position);
        }
        for epoch in &mut self.closed {
            epoch.reach(now, position);
        }
        while let Some(epoch) = self.closed.front().copied() {
            if position < epoch.end {
                break;
            }
            self.closed.pop_front();
            let following = self.closed.front().or(self.open.as_ref());
            if following.is_some_and(|next| next.data != epoch.data) && epoch.is_mixed(position) {
                continue;
            }
            if let Some(cost) = epoch.cost(now, position) {
                return Some((epoch.data, cost));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_span_takes_the_time_between_the_reports_on_its_ends() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut epochs = Epochs::default();
        for (ms, data) in [(0, 1000), (10, 2000), (20, 1000)] {
            epochs.sent(at(ms), 1_000_000, data);
            epochs.turn(at(ms), 3000 - data);
        }
        assert_eq!(epochs.present(at(21)).0, 0);
        assert_eq!(epochs.progress(at(100), 0), None);
        let close = |found: Option<(usize, f64)>, data, ms: f64| {
            let (size, cost) = found.unwrap();
            assert_eq!(size, data);
            assert!((cost * 1e9 - ms).abs() < 1e-3, "{cost}");
        };
        close(epochs.progress(at(110), 1_000_000), 1000, 10.0);
        assert_eq!(epochs.progress(at(115), 1_500_000), None);
        // The next report tells of a little more than its end.
        assert!(epochs.holds(2000));
        close(epochs.progress(at(130), 2_100_000), 2000, 20.0 / 1.1);
        close(epochs.progress(at(140), 3_000_000), 1000, 10.0 / 0.9);
        assert_eq!(epochs.progress(at(140), 3_000_000), None);
        epochs.sent(at(150), 1_000_000, 1000);
        epochs.taint();
        epochs.turn(at(160), 1000);
        assert_eq!(epochs.progress(at(170), 4_000_000), None);
    }

    #[test]
    fn a_span_whose_last_reports_were_lost_is_no_measure_beside_one_of_another_size() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        for (following, is_measured) in [(1000, true), (2000, false)] {
            let mut epochs = Epochs::default();
            epochs.sent(at(0), 1_000_000, 1000);
            assert_eq!(epochs.progress(at(0), 0), None);
            epochs.turn(at(10), following);
            epochs.sent(at(10), 1_000_000, following);
            let found = epochs.progress(at(30), 1_500_000);
            assert_eq!(found.is_some(), is_measured, "{found:?}");
            assert!(!epochs.holds(1000) || following == 1000);
        }
    }
}
