//! What others than the neighbours' packets know of a hop.

use std::time::Instant;

use starhaul_cc::Reconfiguration;

use super::Node;
use crate::config::NeighbourId;

impl Node {
    /// Signals that the hop to a neighbour was reconfigured, as a detector or the operator's timetable tell (LeoCC §3). What is known of the rate
    /// is kept; a delay that has become longer is sooner known to be no queue, and a shorter one is looked for below it. It is a hint: a false one
    /// costs a moment of the rate. Returns whether it is news: signals within a second concern one event, and those that are older than two or have
    /// less confidence than 0.5 are none.
    ///
    /// Only the rate of what comes *from* the neighbour is found here. Its own node finds the other.
    pub fn signal(&mut self, now: Instant, neighbour: NeighbourId, event: Reconfiguration) -> bool {
        let hop = self.hops.get_mut(&neighbour);
        let is_news = hop.is_some_and(|hop| hop.handle_reconfiguration(now, event));
        self.stats.reconfigurations += u64::from(is_news);
        is_news
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use starhaul_cc::ReconfigurationSource;

    use super::*;
    use crate::{
        config::{NeighbourConfig, NodeConfig},
        keys::NeighbourKey,
    };

    #[test]
    fn a_signal_reaches_the_hop_that_it_is_about_and_once_a_second() {
        let start = Instant::now();
        let mut node = Node::new(start, NodeConfig::default(), [1; 32]).unwrap();
        for id in [1, 2] {
            let key = NeighbourKey::new(&[id; 32]);
            node.add_neighbour(start, NeighbourId(id.into()), NeighbourConfig { key })
                .unwrap();
        }
        let told = |node: &Node| {
            let told = node.hops.values().map(|hop| hop.control.is_told());
            told.collect::<Vec<_>>()
        };
        assert_eq!(told(&node), [false, false]);
        let signal = |node: &mut Node, id: u32, millis: u64, confidence: f64| {
            let now = start + Duration::from_millis(millis);
            let event = Reconfiguration {
                at: now,
                outage: Duration::ZERO,
                source: ReconfigurationSource::Schedule,
                confidence,
            };
            node.signal(now, NeighbourId(id), event)
        };
        assert!(!signal(&mut node, 2, 0, 0.4), "nobody believes it");
        assert!(!signal(&mut node, 3, 0, 1.0), "there is no such neighbour");
        assert_eq!(told(&node), [false, false]);
        assert!(signal(&mut node, 2, 0, 0.5));
        assert_eq!(told(&node), [false, true]);
        // A flood of them.
        let news = (1..=10_000).filter(|millis| signal(&mut node, 2, *millis, 1.0));
        assert_eq!(news.count(), 10);
        assert_eq!(told(&node), [false, true]);
        assert_eq!(node.stats().reconfigurations, 11);
    }
}
