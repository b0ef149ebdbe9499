//! What a receiver drops, in its log: its senders hear nothing of it.

use std::time::Instant;

use starhaul_log::Seldom;
use starhaul_ltp::Dropped;

/// What was told of each cause. Any host can send what is dropped, so that each is told at most once a minute.
#[derive(Default)]
pub(super) struct Refusals {
    unauthenticated: Cause,
    other_profile: Cause,
    unknown: Cause,
    no_room: Cause,
    lost: Cause,
}

#[derive(Default)]
struct Cause {
    log: Seldom,
    told: u64,
}

impl Refusals {
    /// Tells of blocks that did not arrive whole over a link without a way back; of so many by now.
    pub(super) fn tell_lost(&mut self, blocks: u64) {
        if let Some(blocks) = self.lost.news(Instant::now(), blocks) {
            tracing::warn!(
                "{blocks} blocks did not arrive whole, and nobody can be asked for the rest: their files stay unfinished; is --repair of the sender too little?"
            );
        }
    }

    /// Tells what was dropped since the last time.
    pub(super) fn tell(&mut self, dropped: &Dropped) {
        let now = Instant::now();
        if let Some(segments) = self.unauthenticated.news(now, dropped.unauthenticated) {
            tracing::warn!(
                "{segments} segments without a signature of --key are dropped; has the sender the same file?"
            );
        }
        if let Some(segments) = self.other_profile.news(now, dropped.other_profile) {
            tracing::warn!(
                "{segments} segments written otherwise than --profile says are dropped; give both ends the same one"
            );
        }
        if let Some(segments) = self.unknown.news(now, dropped.unknown_peer) {
            tracing::warn!(
                "{segments} segments of further senders are dropped: as many are served already as may be at a time"
            );
        }
        if let Some(segments) = self.no_room.news(now, dropped.no_room) {
            tracing::warn!(
                "{segments} segments are dropped that found no memory or no free session; their senders try again"
            );
        }
    }
}

impl Cause {
    /// How many were dropped since the last time, if that is to be told now.
    fn news(&mut self, now: Instant, all: u64) -> Option<u64> {
        if all <= self.told {
            return None;
        }
        self.log.is_due(now)?;
        Some(all - std::mem::replace(&mut self.told, all))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_dropped_is_told_once_a_minute_with_all_of_it() {
        let (mut cause, start) = (Cause::default(), Instant::now());
        let news: Vec<_> = (0..130)
            .filter_map(|second| cause.news(start + Duration::from_secs(second), second * 10))
            .collect();
        assert_eq!(news, [10, 600, 600]);
    }
}
