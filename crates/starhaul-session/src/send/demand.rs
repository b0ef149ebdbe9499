//! What the streams ask for, by priority: tells how much of the paths is left for less important blocks, and when the
//! application asks for more than there is.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use starhaul_units::Bandwidth;

/// QUIC around a datagram of the session, as it counts for the bandwidth of a path.
pub(crate) const QUIC_HEADER_BYTES: usize = 38;
const WINDOW: Duration = Duration::from_secs(2);
const SLOTS: u32 = 10;

/// Bytes offered over a moving window, per priority.
#[derive(Debug)]
pub(crate) struct Demand {
    start: Instant,
    slot: u64,
    offered: BTreeMap<u8, [u64; SLOTS as usize]>,
    /// The shortest deadline offered in each slot.
    shortest: [Option<Duration>; SLOTS as usize],
}

impl Demand {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            start: now,
            slot: 0,
            offered: BTreeMap::new(),
            shortest: [None; SLOTS as usize],
        }
    }

    pub(crate) fn on_offered(
        &mut self,
        now: Instant,
        priority: u8,
        bytes: usize,
        deadline: Duration,
    ) {
        self.advance(now);
        let slot = self.index(self.slot);
        if let Some(shortest) = self.shortest.get_mut(slot) {
            *shortest = Some(shortest.map_or(deadline, |shortest| shortest.min(deadline)));
        }
        if let Some(cell) = self.offered.entry(priority).or_default().get_mut(slot) {
            *cell += bytes as u64;
        }
    }

    /// Rates offered over the last window by blocks of each priority and of more important ones. One burst is no rate, so the
    /// window counts in full from the start.
    pub(crate) fn by_importance(&self, now: Instant) -> Vec<(u8, Bandwidth)> {
        let oldest = (self.slot_at(now) + 1).saturating_sub(SLOTS.into());
        let mut bytes = 0;
        let offered = self.offered.iter().map(|(&priority, slots)| {
            let live = (oldest..=self.slot).map(|slot| slots[self.index(slot)]);
            bytes += live.sum::<u64>();
            (priority, Bandwidth::from_bytes_over(bytes, WINDOW))
        });
        offered.collect()
    }

    /// The shortest deadline of the last window.
    pub(crate) fn shortest_deadline(&self, now: Instant) -> Option<Duration> {
        let oldest = (self.slot_at(now) + 1).saturating_sub(SLOTS.into());
        let live = (oldest..=self.slot).filter_map(|slot| self.shortest[self.index(slot)]);
        live.min()
    }

    /// Rate offered lately by all blocks.
    pub(crate) fn total(&mut self, now: Instant) -> Bandwidth {
        self.advance(now);
        Bandwidth::from_bytes_over(self.offered.values().flatten().sum(), self.span(now))
    }

    fn span(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start)
            .clamp(WINDOW / SLOTS, WINDOW)
    }

    fn advance(&mut self, now: Instant) {
        let slot = self.slot_at(now);
        let steps = slot.saturating_sub(self.slot).min(SLOTS.into());
        if steps == 0 {
            return;
        }
        for step in 0..steps {
            let stale = self.index(slot - step);
            for slots in self.offered.values_mut() {
                slots[stale] = 0;
            }
            self.shortest[stale] = None;
        }
        self.offered
            .retain(|_, slots| steps < u64::from(SLOTS) || slots.iter().any(|bytes| *bytes > 0));
        self.slot = self.slot.max(slot);
    }

    fn slot_at(&self, now: Instant) -> u64 {
        let slot =
            now.saturating_duration_since(self.start).as_nanos() / (WINDOW / SLOTS).as_nanos();
        u64::try_from(slot).unwrap_or(u64::MAX)
    }

    fn index(&self, slot: u64) -> usize {
        usize::try_from(slot % u64::from(SLOTS)).unwrap_or_default()
    }
}
