//! When a link is down: by its description, or by [`Link::set_down`](crate::Link::set_down).

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use crate::flight::after;

/// Number of changes of a link that are kept; older ones are dropped without effect.
pub(crate) const MAX_CHANGES: usize = 1 << 16;

/// The outages of a link.
#[derive(Debug)]
pub(crate) struct Outages {
    epoch: Instant,
    /// Outages of the description: sorted and disjoint.
    spans: Vec<Range<Duration>>,
    edges_passed: usize,
    /// Outages set by the caller: start, and the end if it is over.
    cuts: Vec<(Instant, Option<Instant>)>,
}

impl Outages {
    pub(crate) fn new(outages: &[Range<Duration>], epoch: Instant) -> Self {
        let mut sorted: Vec<_> = outages
            .iter()
            .filter(|span| !span.is_empty())
            .cloned()
            .collect();
        sorted.sort_by_key(|span| span.start);
        let mut spans: Vec<Range<Duration>> = Vec::new();
        for span in sorted {
            match spans.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                _ => spans.push(span),
            }
        }
        Self {
            epoch,
            spans,
            edges_passed: 0,
            cuts: Vec::new(),
        }
    }

    pub(crate) fn down(&self) -> bool {
        self.is_cut() || self.edges_passed % 2 == 1
    }

    /// When an outage of the description begins or ends next.
    pub(crate) fn next_edge(&self) -> Option<Instant> {
        let span = self.spans.get(self.edges_passed / 2)?;
        let offset = match self.edges_passed.is_multiple_of(2) {
            true => span.start,
            false => span.end,
        };
        Some(after(self.epoch, offset))
    }

    pub(crate) fn pass_edge(&mut self) {
        self.edges_passed += 1;
    }

    pub(crate) fn cut(&mut self, now: Instant) {
        if self.is_cut() {
            return;
        }
        if self.cuts.len() >= MAX_CHANGES {
            self.cuts.remove(0);
        }
        self.cuts.push((now, None));
    }

    pub(crate) fn restore(&mut self, now: Instant) {
        if let Some((_, end @ None)) = self.cuts.last_mut() {
            *end = Some(now);
        }
    }

    /// The parts of [`from`, `to`] in which the link is up, in order.
    pub(crate) fn up_between(&self, from: Instant, to: Instant) -> Vec<(Instant, Instant)> {
        let described = self
            .spans
            .iter()
            .map(|span| (after(self.epoch, span.start), after(self.epoch, span.end)));
        let cuts = self
            .cuts
            .iter()
            .map(|&(begin, end)| (begin, end.unwrap_or(to)));
        let mut down: Vec<_> = described
            .chain(cuts)
            .filter(|&(begin, end)| begin < to && end > from)
            .collect();
        down.sort();
        let (mut up, mut at) = (Vec::new(), from);
        for (begin, end) in down {
            if begin > at {
                up.push((at, begin));
            }
            at = at.max(end);
        }
        if at < to {
            up.push((at, to));
        }
        up
    }

    fn is_cut(&self) -> bool {
        matches!(self.cuts.last(), Some((_, None)))
    }
}
