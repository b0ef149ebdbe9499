//! What the log knows, in memory: each bundle, where its records are, and which bundles are gone. It is what the records say
//! when they are read in their order.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use hardy_bpa::{Bytes, bundle::Bundle};

use super::{
    Key,
    record::{GONE, Gone, Known, Record, Span},
};

/// The place of a record: its segment, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of the segment.
    pub(super) segment: u32,
    pub(super) span: Span,
}

/// Where the data of a bundle are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// In memory only: on their way to the log.
    Coming,
    /// In a record of the log.
    At(Place),
    /// In a file of their own.
    InFile,
}

/// What the log knows of a bundle.
pub(super) struct Entry {
    pub(super) key: Key,
    /// Milliseconds since 1970.
    pub(super) expiry: i64,
    /// Nanoseconds since 1970.
    pub(super) received: i64,
    /// The agent's status of the bundle, as JSON.
    pub(super) status: Arc<str>,
    /// The record of what is known of it; `None` while that is on its way to the log. Then the bundle is not taken yet.
    pub(super) known: Option<Place>,
    pub(super) data: Data,
    /// Both, while it is young.
    pub(super) young: Option<Box<Young>>,
    /// Whether a record of its status is queued, which will tell the one of that moment.
    pub(super) is_status_queued: bool,
}

/// A bundle in memory.
pub(super) struct Young {
    /// As it is in the log, or on its way there, but for its status.
    pub(super) bundle: Bundle,
    /// `None` if they are in a file.
    pub(super) data: Option<Bytes>,
    /// What it takes up, about.
    pub(super) bytes: usize,
    /// Changes of it that are on their way to the log.
    pub(super) newer: u32,
}

impl Entry {
    /// Its records that are needed.
    fn places(&self) -> [Option<Place>; 2] {
        let data = match self.data {
            Data::At(place) if self.known != Some(place) => Some(place),
            _ => None,
        };
        [self.known, data]
    }
}

/// When bundles came, and their numbers, by their statuses.
type ByStatus = HashMap<Arc<str>, BTreeSet<(i64, u64)>>;

fn shared(by_status: &ByStatus, status: &str) -> Arc<str> {
    let known = by_status.get_key_value(status);
    known.map_or_else(|| status.into(), |(known, _)| known.clone())
}

fn leave_status(by_status: &mut ByStatus, entry: &Entry, number: u64) {
    if let Some(of_status) = by_status.get_mut(&entry.status) {
        of_status.remove(&(entry.received, number));
        if of_status.is_empty() {
            by_status.remove(&entry.status);
        }
    }
}

/// A bundle that was here.
#[derive(Clone, Copy, Debug)]
struct Past {
    /// The number that it had.
    number: u64,
    /// The segment that says that it is gone.
    segment: u32,
    /// Milliseconds since 1970 at which its lifetime ends.
    expiry: i64,
}

/// All that the log knows.
pub(super) struct Index {
    entries: HashMap<u64, Entry>,
    numbers: HashMap<Key, u64>,
    by_status: ByStatus,
    by_expiry: BTreeSet<(i64, u64)>,
    /// Bundles that were here.
    gone: HashMap<Key, Past>,
    /// Data of which nothing is known.
    orphans: HashMap<u64, Place>,
    /// Bytes of each segment that are needed.
    live: BTreeMap<u32, u64>,
    /// Bundles in the order in which they came, and some that are gone or not young any more.
    young: VecDeque<u64>,
    young_count: usize,
    young_bytes: usize,
    most_young_bytes: usize,
    next_number: u64,
}

/// Entries of the queue of young bundles that are none any more, at most, beside as many as are.
const MOST_STALE: usize = 1024;

impl Index {
    /// Keeps bundles of so many bytes in memory.
    pub(super) fn new(most_young_bytes: usize) -> Self {
        Self {
            entries: HashMap::new(),
            numbers: HashMap::new(),
            by_status: HashMap::new(),
            by_expiry: BTreeSet::new(),
            gone: HashMap::new(),
            orphans: HashMap::new(),
            live: BTreeMap::new(),
            young: VecDeque::new(),
            young_count: 0,
            young_bytes: 0,
            most_young_bytes,
            next_number: 0,
        }
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(super) fn number(&self, key: &Key) -> Option<u64> {
        self.numbers.get(key).copied()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Entry> {
        self.entries.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Entry> {
        self.entries.get_mut(&number)
    }

    #[cfg(test)]
    pub(super) fn is_gone(&self, key: &Key) -> bool {
        self.gone.contains_key(key)
    }

    /// Whether a bundle is gone whose lifetime has not ended. Another may have its name after that: nodes without a clock count anew
    /// when they start.
    pub(super) fn is_gone_at(&self, key: &Key, now: i64) -> bool {
        self.gone.get(key).is_some_and(|past| past.expiry > now)
    }

    pub(super) fn gone_count(&self) -> usize {
        self.gone.len()
    }

    /// Whether a bundle is gone that had this number.
    pub(super) fn is_gone_as(&self, key: &Key, number: u64) -> bool {
        self.gone.get(key).is_some_and(|past| past.number == number)
    }

    /// Begins with numbers that no former life can have used, whatever could be read of it: each has segments of its own.
    pub(super) fn begin_numbers(&mut self, segment: u32) {
        self.next_number = self.next_number.max(u64::from(segment) << 32);
    }

    /// The segment that says that a bundle is gone.
    pub(super) fn gone_in(&self, key: &Key) -> Option<u32> {
        self.gone.get(key).map(|past| past.segment)
    }

    /// The numbers of bundles that were taken and have this status, oldest first.
    pub(super) fn with_status(&self, status: &str) -> impl Iterator<Item = u64> {
        let all = self.by_status.get(status).into_iter().flatten();
        all.map(|(_, number)| *number)
            .filter(|number| self.is_taken(*number))
    }

    /// The statuses of bundles.
    pub(super) fn statuses(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_status.keys()
    }

    /// The numbers of bundles that were taken, those that expire first at the beginning.
    pub(super) fn by_expiry(&self) -> impl Iterator<Item = u64> {
        let all = self.by_expiry.iter().map(|(_, number)| *number);
        all.filter(|number| self.is_taken(*number))
    }

    fn is_taken(&self, number: u64) -> bool {
        let entry = self.entries.get(&number);
        entry.is_some_and(|entry| entry.known.is_some())
    }

    /// The numbers of all bundles whose data are in the log, and of data without a bundle.
    pub(super) fn with_data(&self) -> Vec<u64> {
        let entries = self.entries.iter();
        let entries = entries.filter(|(_, entry)| matches!(entry.data, Data::At(_)));
        let entries = entries.map(|(number, entry)| (entry.received, *number));
        let orphans = self.orphans.keys().map(|number| (i64::MAX, *number));
        let mut all: Vec<_> = entries.chain(orphans).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, number)| number).collect()
    }

    pub(super) fn orphan(&self, number: u64) -> Option<Place> {
        self.orphans.get(&number).copied()
    }

    /// Whether a record here is needed: it is a bundle's, or data without one.
    pub(super) fn is_at(&self, number: u64, place: Place) -> bool {
        match self.entries.get(&number) {
            Some(entry) => entry.known == Some(place) || entry.data == Data::At(place),
            None => self.orphan(number) == Some(place),
        }
    }

    /// Bytes of a segment that are needed.
    pub(super) fn live_in(&self, segment: u32) -> u64 {
        self.live.get(&segment).copied().unwrap_or(0)
    }

    pub(super) fn live(&self) -> u64 {
        self.live.values().sum()
    }

    pub(super) fn insert(&mut self, number: u64, entry: Entry) {
        self.numbers.insert(entry.key, number);
        self.by_expiry.insert((entry.expiry, number));
        let of_status = self.by_status.entry(entry.status.clone()).or_default();
        of_status.insert((entry.received, number));
        if let Some(young) = &entry.young {
            self.young_count += 1;
            self.young_bytes += young.bytes;
            self.young.push_back(number);
        }
        self.count(entry.places(), true);
        self.entries.insert(number, entry);
        self.age();
    }

    /// Forgets a bundle, as if it had never been here.
    pub(super) fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.entries.remove(&number)?;
        self.numbers.remove(&entry.key);
        self.by_expiry.remove(&(entry.expiry, number));
        leave_status(&mut self.by_status, &entry, number);
        self.count(entry.places(), false);
        if let Some(young) = &entry.young {
            self.young_count -= 1;
            self.young_bytes -= young.bytes;
        }
        Some(entry)
    }

    /// The text of a status, of which there is one for all bundles.
    pub(super) fn shared(&self, status: &str) -> Arc<str> {
        shared(&self.by_status, status)
    }

    /// Whether the status is another one than before.
    pub(super) fn set_status(&mut self, number: u64, status: &str) -> bool {
        let entry = self.entries.get_mut(&number);
        let Some(entry) = entry.filter(|entry| *entry.status != *status) else {
            return false;
        };
        leave_status(&mut self.by_status, entry, number);
        entry.status = shared(&self.by_status, status);
        let of_status = self.by_status.entry(entry.status.clone()).or_default();
        of_status.insert((entry.received, number));
        true
    }

    /// Notes where the records of a bundle are. `None` leaves the place as it was.
    pub(super) fn place(&mut self, number: u64, known: Option<Place>, data: Option<Data>) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        let before = entry.places();
        entry.known = known.or(entry.known);
        entry.data = data.unwrap_or(entry.data);
        let after = entry.places();
        self.count(before, false);
        self.count(after, true);
    }

    fn count(&mut self, places: [Option<Place>; 2], is_added: bool) {
        for place in places.into_iter().flatten() {
            self.count_bytes(place.segment, place.span.length.into(), is_added);
        }
    }

    fn count_bytes(&mut self, segment: u32, bytes: u64, is_added: bool) {
        if is_added {
            *self.live.entry(segment).or_default() += bytes;
        } else if let Some(live) = self.live.get_mut(&segment) {
            *live = live.saturating_sub(bytes);
        }
    }

    /// Notes that a segment is not there any more. Returns how many bundles were still in it, those that could not be read, and in
    /// which segments they have other records.
    pub(super) fn drop_segment(&mut self, segment: u32) -> (usize, BTreeSet<u32>) {
        let is_needed = self.live.remove(&segment).is_some_and(|bytes| bytes > 0);
        if !is_needed {
            return (0, BTreeSet::new());
        }
        let is_there = |place: Place| place.segment == segment;
        let lost = self.entries.iter().filter(|(_, entry)| {
            let data = matches!(entry.data, Data::At(place) if is_there(place));
            data || entry.known.is_some_and(is_there)
        });
        let lost: Vec<u64> = lost.map(|(number, _)| *number).collect();
        self.orphans.retain(|_, place| !is_there(*place));
        let mut others = BTreeSet::new();
        for number in &lost {
            let places = self.remove(*number).map(|entry| entry.places());
            let places = places.into_iter().flatten().flatten();
            others.extend(places.map(|place| place.segment));
        }
        others.remove(&segment);
        (lost.len(), others)
    }

    /// Notes data of which nothing is known.
    pub(super) fn add_orphan(&mut self, number: u64, place: Place) {
        self.remove_orphan(number);
        self.orphans.insert(number, place);
        self.count_bytes(place.segment, place.span.length.into(), true);
    }

    pub(super) fn remove_orphan(&mut self, number: u64) -> Option<Place> {
        let place = self.orphans.remove(&number)?;
        self.count_bytes(place.segment, place.span.length.into(), false);
        Some(place)
    }

    /// Notes that a bundle is gone, as this segment says.
    pub(super) fn add_gone(&mut self, gone: &Gone, segment: u32) {
        self.remove_gone(&gone.key);
        let past = Past {
            number: gone.number,
            segment,
            expiry: gone.expiry,
        };
        self.gone.insert(gone.key, past);
        self.count_bytes(segment, GONE as u64, true);
    }

    pub(super) fn remove_gone(&mut self, key: &Key) {
        if let Some(past) = self.gone.remove(key) {
            self.count_bytes(past.segment, GONE as u64, false);
        }
    }

    /// Replaces what is in memory of a bundle, if it is young; then it stays so until [`Index::is_written`].
    pub(super) fn renew(
        &mut self,
        number: u64,
        bundle: Option<&Bundle>,
        data: Option<&Bytes>,
    ) -> bool {
        let young = self.entries.get_mut(&number).map(|entry| &mut entry.young);
        let Some(Some(young)) = young else {
            return false;
        };
        if let Some(bundle) = bundle {
            young.bundle = bundle.clone();
        }
        if let Some(data) = data {
            young.data = Some(data.clone());
        }
        young.newer += 1;
        true
    }

    /// Notes that a change of what is in memory of a bundle is in the log.
    pub(super) fn is_written(&mut self, number: u64) {
        let young = self.entries.get_mut(&number).map(|entry| &mut entry.young);
        if let Some(Some(young)) = young {
            young.newer = young.newer.saturating_sub(1);
        }
    }

    /// Lets go of the oldest bundles in memory that are too many, and are in the log.
    fn age(&mut self) {
        while let Some(number) = self.young.front().copied() {
            let is_too_much = self.young_bytes > self.most_young_bytes;
            if let Some(entry) = self.entries.get_mut(&number)
                && let Some(young) = &entry.young
            {
                let is_written =
                    entry.known.is_some() && entry.data != Data::Coming && young.newer == 0;
                if !is_too_much || !is_written {
                    break;
                }
                self.young_count -= 1;
                self.young_bytes -= young.bytes;
                entry.young = None;
            }
            self.young.pop_front();
        }
        if self.young.len() > MOST_STALE + 2 * self.young_count {
            let entries = &self.entries;
            let is_young = |number: &u64| entries.get(number).is_some_and(|e| e.young.is_some());
            self.young.retain(is_young);
        }
    }

    /// Takes in a record of a former life; each comes after those that were written before.
    pub(super) fn read(&mut self, segment: u32, span: Span, record: &Record<'_>) {
        let place = Place { segment, span };
        if let Record::Bundle(Known { number, .. }, _)
        | Record::Known(Known { number, .. })
        | Record::Data(number, _)
        | Record::Status(number, _)
        | Record::Unused(number) = record
        {
            // No number is used again while a record names it.
            self.next_number = self.next_number.max(*number);
        }
        match record {
            Record::Bundle(known, _) => self.read_known(known, place, Some(place)),
            Record::Known(known) => self.read_known(known, place, None),
            Record::Data(number, _) => match self.entries.contains_key(number) {
                true => self.place(*number, None, Some(Data::At(place))),
                false => self.add_orphan(*number, place),
            },
            Record::Status(number, status) => drop(self.set_status(*number, status)),
            Record::Gone(_) | Record::GoneUnnumbered(_) => {
                for gone in record.gone() {
                    let number = self.numbers.get(&gone.key).copied();
                    // One that was taken after this had been forgotten has a greater number.
                    if gone.number > 0 && number > Some(gone.number) {
                        continue;
                    }
                    if let Some(number) = number {
                        self.remove(number);
                    }
                    self.add_gone(&gone, segment);
                }
            }
            Record::Unused(number) => {
                self.remove_orphan(*number);
                self.remove(*number);
            }
        }
    }

    /// Ends the reading: a bundle whose data did not come is none.
    pub(super) fn end_reading(&mut self) {
        let entries = self.entries.iter();
        let lost = entries.filter(|(_, entry)| entry.data == Data::Coming);
        let lost: Vec<u64> = lost.map(|(number, _)| *number).collect();
        for number in lost {
            self.remove(number);
        }
    }

    fn read_known(&mut self, known: &Known<'_>, place: Place, data: Option<Place>) {
        if self.is_gone_as(&known.key, known.number) {
            // It was copied in a life that could not read that it was gone.
            return;
        }
        let former = self.numbers.get(&known.key).copied();
        let former = former.and_then(|number| self.remove(number));
        let orphan = self.remove_orphan(known.number);
        let data = match (known.is_in_file, data.or(orphan)) {
            (true, _) => Data::InFile,
            (false, Some(place)) => Data::At(place),
            // If they come later, what they replaced was removed with its segment.
            (false, None) => former.map_or(Data::Coming, |entry| entry.data),
        };
        self.remove_gone(&known.key);
        let entry = Entry {
            key: known.key,
            expiry: known.expiry,
            received: known.received,
            status: self.shared(known.status),
            known: Some(place),
            data,
            young: None,
            is_status_queued: false,
        };
        self.insert(known.number, entry);
    }
}
