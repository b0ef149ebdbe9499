//! Neighbours that do not answer although they could. Routes leave them out for a while, as long as there is another way.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::plan::{Moment, NodeId};

/// How long a neighbour is left out at first: LTP gives up only after minutes, in which bundles wait.
const FIRST: Duration = Duration::from_secs(60);
/// How long a neighbour is left out at most.
const MOST: Duration = Duration::from_secs(1800);
/// Refusals in a row after which a neighbour counts as silent: one may be due to a bundle, as one that is too large there.
const MOST_REFUSALS: u32 = 8;
/// How long a neighbour is left out that is not connected. It is looked for more often.
const ABSENCE: Duration = Duration::from_secs(5);

/// The neighbours that did not answer last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Silent(BTreeMap<NodeId, Silence>);

#[derive(Clone, Debug, Default)]
struct Silence {
    until: Moment,
    delay: Duration,
    refusals: u32,
    absent_until: Moment,
}

impl Silence {
    /// Of a clock that was set back since, no end remains.
    fn ends(&self, now: Moment) -> Moment {
        let latest = now.plus(MOST);
        let ends = [self.until, self.absent_until].into_iter();
        let ends = ends.filter(|end| *end <= latest);
        ends.max().unwrap_or_default()
    }
}

impl Silent {
    /// A neighbour did not answer.
    pub(crate) fn failed(&mut self, neighbour: &NodeId, now: Moment) {
        let silence = self.0.entry(neighbour.clone()).or_default();
        silence.refusals = 0;
        // Of many bundles that were on their way each is told of.
        if silence.until <= now || silence.until > now.plus(MOST) {
            silence.delay = (silence.delay * 2).clamp(FIRST, MOST);
            silence.until = now.plus(silence.delay);
        }
    }

    /// A neighbour answered that it does not take a bundle.
    pub(crate) fn refused(&mut self, neighbour: &NodeId, now: Moment) {
        let silence = self.0.entry(neighbour.clone()).or_default();
        silence.refusals += 1;
        if silence.refusals >= MOST_REFUSALS {
            self.failed(neighbour, now);
        }
    }

    /// A neighbour is not connected. Returns whether that is news.
    pub(crate) fn absent(&mut self, neighbour: &NodeId, now: Moment) -> bool {
        let silence = self.0.entry(neighbour.clone()).or_default();
        let is_news = silence.ends(now) <= now;
        silence.absent_until = now.plus(ABSENCE);
        is_news
    }

    /// A neighbour is there. Returns whether it was left out.
    pub(crate) fn worked(&mut self, neighbour: &NodeId, now: Moment) -> bool {
        let removed = self.0.remove(neighbour);
        removed.is_some_and(|silence| silence.ends(now) > now)
    }

    /// Until when a neighbour is left out.
    pub(crate) fn until(&self, neighbour: &NodeId, now: Moment) -> Moment {
        let silence = self.0.get(neighbour);
        silence.map_or_else(Moment::default, |silence| silence.ends(now))
    }

    /// Those that are left out.
    pub(crate) fn left_out(&self, now: Moment) -> BTreeSet<NodeId> {
        let left_out = self.0.iter().filter(|(_, silence)| silence.ends(now) > now);
        left_out.map(|(node, _)| node.clone()).collect()
    }

    /// When the next of those that did not answer is tried again. One that is not connected is looked for anyway.
    pub(crate) fn next(&self, now: Moment) -> Option<Moment> {
        let all = self.0.values().map(|silence| silence.until);
        all.filter(|until| (now..=now.plus(MOST)).contains(until) && *until > now)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    #[test]
    fn a_neighbour_that_goes_on_failing_is_left_out_for_longer_and_longer() {
        let node: NodeId = "ipn:2.0".parse().unwrap();
        let (mut silent, mut now) = (Silent::default(), second(0));
        for delay in [60, 120, 240, 480, 960, 1800, 1800] {
            silent.failed(&node, now);
            // What was on its way fails, too.
            silent.failed(&node, now.plus(Duration::from_secs(1)));
            let until = now.plus(Duration::from_secs(delay));
            assert_eq!(
                (silent.until(&node, now), silent.next(now)),
                (until, Some(until))
            );
            now = until;
        }
        assert_eq!(silent.next(now), None);
        silent.failed(&node, now);
        assert!(silent.worked(&node, now) && !silent.worked(&node, now));
        assert_eq!(silent.until(&node, now), Moment::default());
    }

    #[test]
    fn silence_of_a_clock_that_was_ahead_is_forgotten() {
        let node: NodeId = "ipn:2.0".parse().unwrap();
        let (mut silent, ahead, now) = (Silent::default(), second(1_000_000), second(1000));
        silent.failed(&node, ahead);
        silent.absent(&node, ahead);
        assert!(silent.left_out(ahead).contains(&node) && silent.left_out(now).is_empty());
        assert_eq!(
            (silent.until(&node, now), silent.next(now)),
            (Moment::default(), None)
        );
        assert!(silent.absent(&node, now));
        silent.failed(&node, now);
        let next = silent.next(now).unwrap();
        assert!(next > now && next <= now.plus(MOST));
        assert_eq!(silent.until(&node, now), next);
    }

    #[test]
    fn only_refusals_in_a_row_are_taken_for_silence() {
        let node: NodeId = "ipn:2.0".parse().unwrap();
        let (mut silent, now) = (Silent::default(), second(0));
        for _ in 0..3 {
            (1..MOST_REFUSALS).for_each(|_| silent.refused(&node, now));
            assert!(!silent.worked(&node, now));
        }
        (0..MOST_REFUSALS).for_each(|_| silent.refused(&node, now));
        assert!(silent.worked(&node, now));
        assert!(silent.absent(&node, now) && !silent.absent(&node, now));
    }
}
