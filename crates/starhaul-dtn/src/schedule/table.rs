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
/// For each further contact, routes of a size are kept so long for each known size at least, and a minute at most: a search of such a plan
/// takes a hundredth of it.
const LEAST_FOR_EACH: Duration = Duration::from_micros(100);
const MOST_KEPT: Duration = Duration::from_secs(60);
/// The least difference of two moments.
const INSTANT: Duration = Duration::from_nanos(1);

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
    /// Whether bundles of a known size have a way that had none, or had to wait.
    has_changed: bool,
    /// Whether a bundle waits until its hop is another one.
    is_other_awaited: bool,
    /// When what was found for a bundle that waits, and was not kept, holds no longer.
    awaited: Option<Moment>,
    #[cfg(test)]
    pub searches: usize,
}

impl Entry {
    /// Whether it holds but for bookings.
    fn is_of_now(&self, now: Moment, basis: &Basis, least: Duration) -> bool {
        // The clock may have been set back.
        let is_of_now = self.since <= now && (now <= self.until || now.since(self.since) < least);
        is_of_now && self.basis.left_out == basis.left_out
    }

    fn holds(&self, now: Moment, basis: &Basis, least: Duration) -> bool {
        let age = now.since(self.since);
        let is_booked = self.basis.bookings != basis.bookings && age >= least.max(BOOKINGS_LAST);
        !is_booked && self.is_of_now(now, basis, least)
    }

    /// Whether bundles for any node have a way that had none by a former search, or had to wait.
    fn opens(&self, former: &Self) -> bool {
        let had = |to: &NodeId| former.hops.get(to).is_some_and(Option::is_some);
        let mut open = self.hops.iter().filter(|(_, hop)| hop.is_some());
        open.any(|(to, _)| !had(to))
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
            is_other_awaited: false,
            awaited: None,
            #[cfg(test)]
            searches: 0,
        }
    }

    /// The size as which a bundle of so many bytes counts. Beside a contact that just fits, a larger one says nothing of it.
    pub(super) fn size(&self, bytes: u64) -> u64 {
        let bytes = bytes.max(LEAST);
        match self.sizes.contains_key(&bytes) || !self.is_full() {
            true => bytes,
            false => rounded(bytes),
        }
    }

    /// Whether further sizes are not told apart.
    pub(super) fn is_full(&self) -> bool {
        self.sizes.len() >= MOST_SIZES
    }

    /// Notes that there is a bundle of so many bytes. Returns whether its size is known.
    pub(super) fn meet(&mut self, bytes: u64, now: Moment) -> bool {
        let size = self.size(bytes);
        let known = self.sizes.get_mut(&size);
        let is_known = known.is_some();
        known.into_iter().for_each(|known| known.asked = now);
        is_known
    }

    /// How long routes of each size are kept at least: all sizes together take no more time than one.
    fn least(&self) -> Duration {
        let sizes = u32::try_from(self.sizes.len()).unwrap_or(u32::MAX);
        self.least.saturating_mul(sizes.max(1)).min(MOST_KEPT)
    }

    /// The hops of a size, if they are known and hold.
    pub(super) fn find(&mut self, size: u64, now: Moment, basis: &Basis) -> Option<Arc<Hops>> {
        let least = self.least();
        let known = self.sizes.get_mut(&size)?;
        known.asked = now;
        let holds = known.entry.holds(now, basis, least);
        holds.then(|| known.entry.hops.clone())
    }

    /// Takes what was found for a size. Returns whether that is news: hops that were not known or are others than before, or hold less long.
    pub(super) fn put(&mut self, size: u64, entry: Entry) -> bool {
        #[cfg(test)]
        {
            self.searches += 1;
        }
        let (mut asked, mut is_news) = (entry.since, true);
        if let Some(Known {
            entry: former,
            asked: last,
        }) = self.sizes.get(&size)
        {
            let is_other = former.hops != entry.hops;
            asked = *last;
            is_news = is_other || entry.until < former.until;
            // Bookings may have two neighbours take turns each second: all that waits is not looked at for that.
            let is_awaited = is_other && std::mem::take(&mut self.is_other_awaited);
            self.has_changed |= is_awaited || entry.opens(former);
        }
        self.sizes.insert(size, Known { entry, asked });
        is_news
    }

    /// Notes that a bundle waits until its hop is another one.
    pub(super) fn await_other(&mut self) {
        self.is_other_awaited = true;
    }

    /// Notes that a bundle waits by what was found at a time and is not kept. Returns whether all is to be looked at sooner than it was.
    pub(super) fn await_end(&mut self, now: Moment, until: Moment) -> bool {
        // Where routes end often, it is not looked for at each end.
        let until = until.max(now.plus(BOOKINGS_LAST.max(self.least)));
        let is_sooner = until < Moment::MAX && self.awaited.is_none_or(|known| until < known);
        if is_sooner {
            self.awaited = Some(until);
        }
        is_sooner
    }

    /// Forgets sizes that no bundle has asked for, and returns those of the others that are to be searched anew. Of sizes for which the agent has
    /// no routes, those whose hops may be others by bookings alone are, when a bundle asks.
    pub(super) fn stale(&mut self, now: Moment, basis: &Basis) -> Vec<u64> {
        if self.awaited.is_some_and(|until| until < now) {
            self.awaited = None;
            self.has_changed = true;
        }
        let always = [OVER_OPEN, SMALL];
        self.sizes.retain(|size, known| {
            let age = now.since(known.asked);
            always.contains(size) || known.asked <= now && age < KEPT
        });
        let least = self.least();
        let holds = |size: u64, entry: &Entry| match always.contains(&size) {
            true => entry.holds(now, basis, least),
            false => entry.is_of_now(now, basis, least),
        };
        let known = self.sizes.iter();
        let stale = known.filter(|(size, known)| !holds(**size, &known.entry));
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

    /// Whether bundles that wait may have a way since this was asked last.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// When the first of the hops hold no longer.
    pub(super) fn ends(&self) -> Option<Moment> {
        let least = self.least();
        let awaited = self.awaited.map(|until| until.plus(INSTANT));
        let ends = self.sizes.values().map(|known| {
            let after = known.entry.until.plus(INSTANT);
            after.max(known.entry.since.plus(least))
        });
        ends.chain(awaited).filter(|end| *end < Moment::MAX).min()
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

    /// Hops of a bundle for node 4.
    fn to_4(hop: Option<&str>, until: Moment) -> Entry {
        let hop = hop.map(|hop| hop.parse().unwrap());
        Entry {
            hops: Arc::new(Hops::from([("ipn:4.0".parse().unwrap(), hop)])),
            ..entry(Moment::default(), until)
        }
    }

    /// All that waits is looked at for it.
    #[test]
    fn a_way_is_news_for_what_waits_where_there_was_none() {
        let mut table = Table::new(10);
        let (early, late) = (Moment(Duration::from_secs(1)), Moment::MAX);
        let (near, far) = (Some("ipn:2.0"), Some("ipn:3.0"));
        for (hop, until, is_news, has_changed) in [
            (None, late, true, false),
            (near, late, true, true),
            (far, late, true, false),
            (near, late, true, false),
            (near, early, true, false),
            (near, late, false, false),
            (None, late, true, false),
            (far, late, true, true),
        ] {
            assert_eq!(table.put(7, to_4(hop, until)), is_news, "{hop:?} {until:?}");
            assert_eq!(table.take_changed(), has_changed, "{hop:?} {until:?}");
        }
        // One that came from that neighbour waits for another.
        table.await_other();
        for has_changed in [true, false] {
            table.put(7, to_4(near, late));
            assert_eq!(table.take_changed(), has_changed);
            table.put(7, to_4(far, late));
            assert!(!table.take_changed());
        }
    }

    /// With a search of each size each second, large plans would leave no time for anything else.
    #[test]
    fn sizes_for_which_the_agent_has_no_routes_are_not_searched_for_bookings() {
        let (mut table, since) = (Table::new(11_000), Moment(Duration::from_secs(1000)));
        let basis = entry(since, since).basis;
        for size in [OVER_OPEN, SMALL, 5000, 6000] {
            table.put(size, entry(since, Moment::MAX));
        }
        let booked = Basis {
            bookings: 1,
            ..basis.clone()
        };
        // A second for each.
        let [early, late] = [3999, 4000].map(|after| since.plus(Duration::from_millis(after)));
        assert!(table.stale(early, &booked).is_empty());
        assert_eq!(table.stale(late, &booked), [OVER_OPEN, SMALL]);
        assert!(table.find(5000, early, &booked).is_some());
        assert!(table.find(5000, late, &booked).is_none());
        assert!(table.find(5000, late, &basis).is_some());
        let mut table = Table::new(11_000);
        for size in [OVER_OPEN, SMALL, 5000, 6000] {
            table.put(size, entry(since, since));
        }
        assert!(table.stale(early, &basis).is_empty());
        assert_eq!(table.ends(), Some(late));
        assert_eq!(table.stale(late, &basis).len(), 4);
    }
}
