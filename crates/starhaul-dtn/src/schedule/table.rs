//! The next hops of bundles, for each size that was asked for, as long as they hold.
//!
//! Another size may have another way: small bundles go where the light takes less, large ones where the rate is higher, and no contact that
//! is too short for a bundle is on its way. So each size has a search of its own, made when a bundle of it is to leave and again when what
//! it found holds no longer. Where there are bundles of very many sizes, some count as somewhat larger than they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use crate::plan::{Moment, NodeId};

/// Bytes of a small bundle, for which the agent has its routes.
pub(super) const SMALL: u64 = 1 << 10;
/// Bytes of the least. Where this one has no way, none has.
pub(super) const LEAST: u64 = 1;
/// In place of a size: the hops over contacts that are open now, for what fits into any of them. Bundles of other sizes may go there although
/// small ones wait for another contact.
pub(super) const OVER_OPEN: u64 = 0;
/// Sizes that are told apart exactly. Beyond these there are four from each power of two to the next, to which others are rounded up.
const MOST_SIZES: usize = 64;
/// How long a size is known that no bundle asks for. All that waits is looked at more often.
const KEPT: Duration = Duration::from_secs(600);
/// How long what bundles on their way have booked since a search is left out of account.
const BOOKINGS_LAST: Duration = Duration::from_secs(1);
/// A plan of so many contacts is searched anew whenever routes no longer hold. That takes less than a millisecond.
const FEW_CONTACTS: usize = 1000;
/// For each further contact, routes of a size are kept so long at least, and a minute at most: a search of such a plan takes a hundredth of it.
const LEAST_FOR_EACH: Duration = Duration::from_micros(100);
const MOST_KEPT: Duration = Duration::from_secs(60);

/// The neighbour to which what is for a node goes now, or `None` if it waits for a contact; nodes that cannot be reached are missing.
pub(super) type Hops = BTreeMap<NodeId, Option<NodeId>>;

/// What hops depend on beside the plan and the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Basis {
    /// Neighbours that do not answer.
    pub left_out: BTreeSet<NodeId>,
    /// How often something was booked, or given back.
    pub bookings: u64,
}

/// What a search has found.
#[derive(Debug)]
pub(super) struct Entry {
    pub hops: Arc<Hops>,
    /// When it was made.
    pub since: Moment,
    /// The last moment at which it holds.
    pub until: Moment,
    pub basis: Basis,
}

#[derive(Debug)]
struct Known {
    entry: Entry,
    /// When it was asked for last.
    asked: Moment,
}

/// The hops of each size.
#[derive(Debug)]
pub(super) struct Table {
    sizes: BTreeMap<u64, Known>,
    /// How long routes are kept at least.
    least: Duration,
    /// Whether hops of a known size have become others.
    has_changed: bool,
    #[cfg(test)]
    pub searches: usize,
}

impl Entry {
    fn holds(&self, now: Moment, basis: &Basis, least: Duration) -> bool {
        let age = now.since(self.since);
        // The clock may have been set back.
        let is_of_now = self.since <= now && (now <= self.until || age < least);
        let is_booked = self.basis.bookings != basis.bookings && age >= least.max(BOOKINGS_LAST);
        is_of_now && !is_booked && self.basis.left_out == basis.left_out
    }
}

impl Table {
    /// An empty one, for a plan of so many contacts.
    pub(super) fn new(contacts: usize) -> Self {
        let beyond = u32::try_from(contacts.saturating_sub(FEW_CONTACTS)).unwrap_or(u32::MAX);
        Self {
            sizes: BTreeMap::new(),
            least: LEAST_FOR_EACH.saturating_mul(beyond).min(MOST_KEPT),
            has_changed: false,
            #[cfg(test)]
            searches: 0,
        }
    }

    /// The size as which a bundle of so many bytes counts.
    pub(super) fn size(&self, bytes: u64) -> u64 {
        let bytes = bytes.max(LEAST);
        match self.sizes.contains_key(&bytes) || self.sizes.len() < MOST_SIZES {
            true => bytes,
            false => rounded(bytes),
        }
    }

    /// The hops of a size, if they are known and hold.
    pub(super) fn find(&mut self, size: u64, now: Moment, basis: &Basis) -> Option<Arc<Hops>> {
        let known = self.sizes.get_mut(&size)?;
        known.asked = now;
        let holds = known.entry.holds(now, basis, self.least);
        holds.then(|| known.entry.hops.clone())
    }

    /// Takes what was found for a size. Returns whether its hops are others than before, or were not known.
    pub(super) fn put(&mut self, size: u64, entry: Entry) -> bool {
        #[cfg(test)]
        {
            self.searches += 1;
        }
        let former = self.sizes.get(&size);
        let asked = former.map_or(entry.since, |known| known.asked);
        let is_other = former.map(|known| known.entry.hops != entry.hops);
        self.has_changed |= is_other == Some(true);
        self.sizes.insert(size, Known { entry, asked });
        is_other != Some(false)
    }

    /// Forgets sizes that no bundle has asked for, and returns those of the others whose hops do not hold any more.
    pub(super) fn stale(&mut self, now: Moment, basis: &Basis) -> Vec<u64> {
        let always = [OVER_OPEN, SMALL];
        self.sizes.retain(|size, known| {
            let age = now.since(known.asked);
            always.contains(size) || known.asked <= now && age < KEPT
        });
        let known = self.sizes.iter();
        let stale = known.filter(|(_, known)| !known.entry.holds(now, basis, self.least));
        let stale = stale.map(|(size, _)| *size);
        let unknown = always.into_iter();
        let unknown = unknown.filter(|size| !self.sizes.contains_key(size));
        stale.chain(unknown).collect()
    }

    /// The hops of all sizes.
    pub(super) fn hops(&self) -> impl Iterator<Item = (u64, &Arc<Hops>)> {
        let known = self.sizes.iter();
        known.map(|(size, known)| (*size, &known.entry.hops))
    }

    /// Whether hops of a known size have become others since this was asked last.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// When the first of the hops hold no longer.
    pub(super) fn ends(&self) -> Option<Moment> {
        let ends = self.sizes.values().map(|known| {
            let after = known.entry.until.plus(Duration::from_nanos(1));
            after.max(known.entry.since.plus(self.least))
        });
        ends.filter(|end| *end < Moment::MAX).min()
    }
}

/// The next of the sizes to which others are rounded up.
fn rounded(bytes: u64) -> u64 {
    let power = bytes.checked_next_power_of_two().unwrap_or(1 << 63);
    let step = (power / 8).max(1);
    bytes.div_ceil(step).saturating_mul(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(since: Moment, until: Moment) -> Entry {
        Entry {
            hops: Arc::default(),
            since,
            until,
            basis: Basis {
                left_out: BTreeSet::new(),
                bookings: 0,
            },
        }
    }

    #[test]
    fn sizes_are_rounded_up_by_less_than_a_fourth() {
        for bytes in (1..5000).chain([1 << 20, (1 << 20) + 1, u64::from(u32::MAX) + 7]) {
            let size = rounded(bytes);
            assert!(
                size >= bytes && size - bytes < bytes.div_ceil(4),
                "{bytes}: {size}"
            );
            assert_eq!(rounded(size), size, "{bytes}");
        }
    }

    /// A neighbour may send bundles of any size.
    #[test]
    fn sizes_are_bounded_and_forgotten() {
        let (mut table, now) = (Table::new(10), Moment(Duration::from_secs(1000)));
        let basis = entry(now, now).basis;
        assert_eq!(table.stale(now, &basis), [OVER_OPEN, SMALL]);
        for bytes in 1..100_000 {
            let size = table.size(bytes);
            assert!(size >= bytes);
            if table.find(size, now, &basis).is_none() {
                assert!(table.put(size, entry(now, Moment::MAX)), "it is new");
            }
        }
        assert!(table.sizes.len() < 2 * MOST_SIZES, "{}", table.sizes.len());
        assert!(!table.take_changed());
        let later = now.plus(KEPT);
        assert_eq!(table.stale(later, &basis), [OVER_OPEN]);
        assert!(table.sizes.keys().eq([&SMALL]));
    }

    #[test]
    fn routes_of_a_large_plan_are_kept_for_a_while_though_they_end() {
        let since = Moment(Duration::from_secs(1000));
        let basis = entry(since, since).basis;
        for (contacts, kept) in [(1000, 0), (11_000, 1000), (1_000_000, 60_000)] {
            let mut table = Table::new(contacts);
            table.put(SMALL, entry(since, since));
            let kept = since.plus(Duration::from_millis(kept));
            let after = kept.plus(Duration::from_nanos(1));
            assert!(
                table
                    .find(
                        SMALL,
                        kept.before(Duration::from_nanos(1)).max(since),
                        &basis
                    )
                    .is_some()
            );
            assert!(table.find(SMALL, after, &basis).is_none(), "{contacts}");
            assert_eq!(
                table.ends(),
                Some(kept.max(since.plus(Duration::from_nanos(1))))
            );
            // Of a clock that was set back.
            assert!(
                table
                    .find(SMALL, since.before(Duration::from_secs(1)), &basis)
                    .is_none()
            );
            let silent = Basis {
                left_out: BTreeSet::from(["ipn:2.0".parse().unwrap()]),
                ..basis.clone()
            };
            assert!(table.find(SMALL, since, &silent).is_none());
        }
    }
}
