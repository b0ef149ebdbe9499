//! Reconfigurations of a hop that others than its own packets tell of.

use std::time::Instant;

use starhaul_cc::Reconfiguration;

use super::Hop;

impl Hop {
    /// Takes a signal that the path to the neighbour is another one. Returns whether it is news: one event may have several signals, of which each
    /// would cost the rate a moment.
    pub(crate) fn handle_reconfiguration(&mut self, now: Instant, event: Reconfiguration) -> bool {
        let is_news = self.reconfigurations.accept(now, event).is_some();
        if is_news {
            self.control.on_reconfiguration();
        }
        is_news
    }
}
