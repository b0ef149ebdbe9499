//! What is asked of the log: changes of the index, which are seen at once, and the records of them, which are queued for the
//! writer.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

use hardy_bpa::{
    Bytes,
    bundle::{Bundle, BundleStatus},
    storage,
};
use hardy_bpv7::bundle::Id;
use parking_lot::{Condvar, Mutex};
use time::OffsetDateTime;
use tokio::sync::{Notify, oneshot};

use super::{
    Key,
    index::{Data, Entry, Index, Place, Young},
    prepared::{Prepared, is_same, key, milliseconds, status},
    record::{Gone, MOST_BODY, TooLong},
    segments::{Held, Reading},
};
use crate::{medium::Medium, stock::grace};

/// A bundle in memory takes up so many times the bytes of its JSON, about.
const IN_MEMORY: usize = 3;
/// Larger parts of blocks are not copied: they are most of their block.
const MOST_COPIED: usize = 64 << 10;
/// When the lifetime of a bundle has ended whose name is free: in 1970.
pub(super) const FREE: i64 = 0;
/// In place of the number of a segment, for what is not in one yet.
pub(super) const QUEUED: u32 = u32::MAX;

/// Why a bundle is not in the log.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Fault(pub(super) Arc<str>);

pub(super) type Done = oneshot::Sender<Result<(), Fault>>;
pub(super) type Waiting = oneshot::Receiver<Result<(), Fault>>;

/// Bounds of a log.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Whether a bundle is on the medium before it is taken.
    pub(crate) is_synced: bool,
    /// Bytes of a segment; the last record may exceed it.
    pub(crate) segment_bytes: u32,
    /// Bytes that wait to be written, before new bundles wait.
    pub(crate) queue_bytes: usize,
    /// Bytes of young bundles in memory.
    pub(crate) young_bytes: usize,
    /// Bundles that are gone and are remembered, about.
    pub(crate) most_gone: usize,
    /// Useless bytes that are always allowed.
    pub(crate) slack_bytes: u64,
}

/// Something to be written.
pub(super) enum Change {
    /// A new bundle; the only one that may fail.
    Insert {
        number: u64,
        /// The body of its record before the data.
        head: Bytes,
        data: Option<Bytes>,
        done: Done,
    },
    Known {
        number: u64,
        bundle: Bytes,
    },
    Data {
        number: u64,
        data: Bytes,
    },
    /// Data that were saved and have no bundle yet.
    Orphan {
        number: u64,
        data: Bytes,
    },
    /// The status that a bundle has when this is written.
    Status(u64),
    Gone {
        gone: Gone,
        done: Option<Done>,
    },
    Unused(u64),
    /// Only tells that all before it is written.
    Flush(Done),
    /// All of a bundle again, since its segment is to be removed.
    Copy {
        number: u64,
        bundle: Bytes,
        data: Option<Bytes>,
    },
    /// The same for bundles that are gone.
    StillGone(Vec<Gone>),
}

impl Change {
    pub(super) fn bytes(&self) -> usize {
        CHANGE
            + match self {
                Self::Insert {
                    head: known, data, ..
                }
                | Self::Copy {
                    bundle: known,
                    data,
                    ..
                } => known.len() + data.as_ref().map_or(0, Bytes::len),
                Self::Known { bundle, .. } => bundle.len(),
                Self::Data { data, .. } | Self::Orphan { data, .. } => data.len(),
                _ => 0,
            }
    }
}

/// About the bytes of a change without its content.
const CHANGE: usize = 128;

/// Data that were saved, and whose bundle is not in the log yet.
pub(super) struct Saved {
    pub(super) data: Bytes,
    /// Whether the log has them all the same, or will.
    is_orphan: bool,
}

/// All that callers and the writer share.
pub(super) struct State {
    pub(super) index: Index,
    pub(super) queue: VecDeque<Change>,
    /// Bytes of what is queued, or being written.
    pub(super) queued_bytes: usize,
    pub(super) saved: HashMap<u64, Saved>,
    pub(super) segments: BTreeMap<u32, Held>,
    /// Segments up to this one are cleaned, although few of their bytes are useless.
    pub(super) room_wanted: Option<u32>,
    /// Tasks that wait until these segments are cleaned.
    pub(super) room_waiters: Vec<Done>,
    pub(super) is_ending: bool,
    /// Whether nothing is written any more.
    is_ended: bool,
}

/// A log: what its callers use, and its writer writes.
pub(super) struct Log {
    pub(super) state: Mutex<State>,
    /// Something is queued.
    pub(super) wake: Condvar,
    /// Something was written.
    pub(super) written: Notify,
    pub(super) medium: Box<dyn Medium>,
    pub(super) settings: Settings,
}

/// What became of a new bundle.
pub(super) enum Begun {
    /// It is here already, or was.
    Known,
    /// Another task is taking it: whether it is there will be known then.
    Again(Waiting),
    /// Too much waits to be written.
    Full,
    New(Waiting),
}

/// A bundle, or where it is.
pub(super) enum Found {
    Young(Box<Bundle>),
    Old(Reading, Arc<str>),
}

impl State {
    pub(super) fn new(index: Index, segments: BTreeMap<u32, Held>) -> Self {
        Self {
            index,
            queue: VecDeque::new(),
            queued_bytes: 0,
            saved: HashMap::new(),
            segments,
            room_wanted: None,
            room_waiters: Vec::new(),
            is_ending: false,
            is_ended: false,
        }
    }

    /// Ends the queue: tasks that still wait get an error.
    pub(super) fn end(&mut self) {
        self.is_ended = true;
        self.queue.clear();
        self.room_waiters.clear();
    }

    pub(super) fn push(&mut self, change: Change) {
        if self.is_ended {
            return;
        }
        self.queued_bytes += change.bytes();
        self.queue.push_back(change);
    }

    fn wait(&mut self, change: impl FnOnce(Done) -> Change) -> Waiting {
        let (done, waiting) = oneshot::channel();
        self.push(change(done));
        waiting
    }

    pub(super) fn reading(&self, place: Place) -> Option<Reading> {
        Some(self.segments.get(&place.segment)?.reading(place))
    }

    /// Data without a bundle come to the log, too.
    fn keep_saved(&mut self) {
        let mut changes = Vec::new();
        for (number, saved) in &mut self.saved {
            // Behind its bundle it would pass for newer data of that.
            if saved.is_orphan || self.index.get(*number).is_some() {
                continue;
            }
            saved.is_orphan = true;
            let (number, data) = (*number, saved.data.clone());
            changes.push(Change::Orphan { number, data });
        }
        changes.into_iter().for_each(|change| self.push(change));
    }
}

impl Log {
    /// Keeps data until their bundle is inserted.
    pub(super) fn save(&self, data: Bytes) -> u64 {
        // A slice would keep its whole block in memory.
        let data = match data.len() {
            0..=MOST_COPIED => Bytes::copy_from_slice(&data),
            _ => data,
        };
        let mut state = self.state.lock();
        let number = state.index.next_number();
        let is_orphan = false;
        state.saved.insert(number, Saved { data, is_orphan });
        number
    }

    /// Begins to take a new bundle, of which the data have this number, or are in a file.
    ///
    /// # Errors
    /// [`TooLong`], or why the data cannot be read.
    pub(super) fn begin_insert(
        &self,
        bundle: &Bundle,
        as_is: &Prepared,
        data: Option<u64>,
    ) -> storage::Result<Begun> {
        let number = data.unwrap_or_else(|| self.state.lock().index.next_number());
        let known = as_is.known(number, bundle, data.is_none());
        let head = Bytes::from(known.body()?);
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(number) = state.index.number(&as_is.key) {
            let entry = state.index.get(number);
            if entry.is_none_or(|entry| entry.known.is_some()) {
                return Ok(Begun::Known);
            }
            let waiting = state.wait(Change::Flush);
            self.wake.notify_one();
            return Ok(Begun::Again(waiting));
        }
        let now = milliseconds(OffsetDateTime::now_utc());
        // Data may be left of one that is gone: the life that removed it ended before it said that they are unused.
        let is_left = state.index.is_gone_as(&as_is.key, number);
        if is_left || state.index.is_gone_at(&as_is.key, now) {
            return Ok(Begun::Known);
        }
        if state.queued_bytes > self.settings.queue_bytes {
            return Ok(Begun::Full);
        }
        let data = data.map(|number| data_of(state, number)).transpose()?;
        let data_bytes = data.as_ref().map_or(0, Bytes::len);
        if head.len() + data_bytes > MOST_BODY / 2 {
            return Err(TooLong.into());
        }
        let young = Young {
            bundle: bundle.clone(),
            data: data.clone(),
            bytes: IN_MEMORY * as_is.json.len() + data_bytes,
            newer: 0,
        };
        let entry = Entry {
            key: known.key,
            expiry: known.expiry,
            received: known.received,
            status: state.index.shared(known.status),
            known: None,
            data: data.as_ref().map_or(Data::InFile, |_| Data::Coming),
            young: Some(Box::new(young)),
            is_status_queued: false,
        };
        // One that had its name before.
        state.index.remove_gone(&as_is.key);
        state.index.insert(number, entry);
        let waiting = state.wait(|done| Change::Insert {
            number,
            head,
            data,
            done,
        });
        self.wake.notify_one();
        Ok(Begun::New(waiting))
    }

    /// Removes a bundle; it is not taken again.
    pub(super) fn remove(&self, id: &Id, key: Key) -> Option<Waiting> {
        self.take_out(id, key, true)
    }

    /// Removes a bundle; another may have its name from now on.
    pub(super) fn forget(&self, id: &Id, key: Key) -> Option<Waiting> {
        self.take_out(id, key, false)
    }

    fn take_out(&self, id: &Id, key: Key, keeps_name: bool) -> Option<Waiting> {
        let mut state = self.state.lock();
        let number = state.index.number(&key)?;
        if id.fragment_info.is_some() {
            // They may have become a bundle that is saved and not inserted yet.
            state.keep_saved();
        }
        let entry = state.index.remove(number)?;
        // The index does not know the lifetime, but what was left of it when the bundle came.
        let left = entry.expiry.saturating_sub(entry.received / 1_000_000);
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
        let grace = i64::try_from(grace(id, left).as_millis()).unwrap_or(i64::MAX);
        // As of a bundle that has expired, its record outlives those before it, and says no more.
        let expiry = match keeps_name {
            true => entry.expiry.saturating_add(grace),
            false => FREE,
        };
        state.saved.remove(&number);
        let gone = Gone {
            key,
            number,
            expiry,
        };
        state.index.add_gone(&gone, QUEUED);
        let waiting = state.wait(|done| Change::Gone {
            gone,
            done: Some(done),
        });
        if matches!(entry.data, Data::At(place) if entry.known != Some(place)) {
            // If the record of the bundle goes first, its data have nothing else that says so.
            state.push(Change::Unused(number));
        }
        self.wake.notify_one();
        Some(waiting)
    }

    /// Notes that a bundle is gone that was never in this log.
    pub(super) fn set_gone(&self, key: Key, expiry: i64) {
        let mut state = self.state.lock();
        let has_room = state.index.gone_count() < self.settings.most_gone;
        if has_room && state.index.number(&key).is_none() {
            let gone = Gone {
                key,
                number: 0,
                expiry,
            };
            state.index.add_gone(&gone, QUEUED);
            state.push(Change::Gone { gone, done: None });
            self.wake.notify_one();
        }
    }

    /// Changes the status of a bundle.
    pub(super) fn set_status(&self, key: &Key, status: &str) {
        let mut state = self.state.lock();
        if let Some(number) = state.index.number(key) {
            self.status(&mut state, number, status);
        }
    }

    fn status(&self, state: &mut State, number: u64, status: &str) {
        let is_new = state.index.set_status(number, status);
        if let Some(entry) = state.index.get_mut(number)
            && is_new
            && !std::mem::replace(&mut entry.is_status_queued, true)
        {
            state.push(Change::Status(number));
            self.wake.notify_one();
        }
    }

    /// Changes what is known of a bundle. If something is returned, it is seen only then.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub(super) fn renew(&self, bundle: &Bundle) -> Result<Option<Waiting>, serde_json::Error> {
        let (key, text) = (
            key(&bundle.bundle.id)?,
            serde_json::to_string(&bundle.metadata.status)?,
        );
        {
            let mut state = self.state.lock();
            let Some(number) = state.index.number(&key) else {
                return Ok(None);
            };
            self.status(&mut state, number, &text);
            let entry = state.index.get(number);
            let young = entry.and_then(|entry| entry.young.as_ref());
            if young.is_some_and(|young| is_same(&young.bundle, bundle)) {
                return Ok(None);
            }
        }
        let json = Bytes::from(serde_json::to_vec(bundle)?);
        let mut state = self.state.lock();
        let Some(number) = state.index.number(&key) else {
            return Ok(None);
        };
        let is_young = state.index.renew(number, Some(bundle), None);
        let bundle = json;
        state.push(Change::Known { number, bundle });
        self.wake.notify_one();
        Ok((!is_young).then(|| state.wait(Change::Flush)))
    }

    /// Replaces data. If something is returned, it is seen only then.
    pub(super) fn replace(&self, number: u64, data: Bytes) -> Option<Waiting> {
        let mut state = self.state.lock();
        let state = &mut *state;
        self.wake.notify_one();
        if state.index.get(number).is_some() {
            let is_young = state.index.renew(number, None, Some(&data));
            state.push(Change::Data { number, data });
            return (!is_young).then(|| state.wait(Change::Flush));
        }
        let is_orphan = state.index.orphan(number).is_some()
            || state
                .saved
                .get(&number)
                .is_some_and(|saved| saved.is_orphan);
        if is_orphan {
            let data = data.clone();
            state.push(Change::Orphan { number, data });
        }
        state.saved.insert(number, Saved { data, is_orphan });
        None
    }

    /// Marks data as unneeded; those of a bundle go with it.
    pub(super) fn discard(&self, number: u64) {
        let mut state = self.state.lock();
        let saved = state.saved.remove(&number);
        if state.index.get(number).is_none()
            && (state.index.remove_orphan(number).is_some()
                || saved.is_some_and(|saved| saved.is_orphan))
        {
            state.push(Change::Unused(number));
            self.wake.notify_one();
        }
    }

    /// The data of this number, or where they are.
    pub(super) fn data(&self, number: u64) -> Option<Result<Bytes, Reading>> {
        let state = self.state.lock();
        if let Some(saved) = state.saved.get(&number) {
            return Some(Ok(saved.data.clone()));
        }
        let place = match state.index.get(number) {
            Some(entry) => {
                let young = entry.young.as_ref();
                if let Some(data) = young.and_then(|young| young.data.clone()) {
                    return Some(Ok(data));
                }
                match entry.data {
                    Data::At(place) => place,
                    Data::Coming | Data::InFile => return None,
                }
            }
            None => state.index.orphan(number)?,
        };
        state.reading(place).map(Err)
    }

    /// Bundles by their numbers, or where they are.
    pub(super) fn find(&self, numbers: &[u64]) -> Vec<Found> {
        let state = self.state.lock();
        let found = numbers.iter().filter_map(|number| {
            let entry = state.index.get(*number)?;
            if let Some(young) = &entry.young {
                let mut bundle = young.bundle.clone();
                bundle.metadata.status = status(&entry.status)?;
                return Some(Found::Young(Box::new(bundle)));
            }
            Some(Found::Old(
                state.reading(entry.known?)?,
                entry.status.clone(),
            ))
        });
        found.collect()
    }

    /// Makes all bundles for a neighbour wait; returns how many.
    pub(super) fn reset(&self, is_meant: impl Fn(&BundleStatus) -> bool, to: &str) -> u64 {
        let mut state = self.state.lock();
        let statuses = state.index.statuses();
        let meant = statuses.filter(|text| status(text).is_some_and(|status| is_meant(&status)));
        let meant: Vec<_> = meant.cloned().collect();
        let numbers = meant
            .iter()
            .flat_map(|status| state.index.with_status(status));
        let numbers: Vec<u64> = numbers.collect();
        for number in &numbers {
            self.status(&mut state, *number, to);
        }
        numbers.len() as u64
    }

    /// Completes when all that was asked for before is in the log.
    pub(super) fn flush(&self) -> Waiting {
        let waiting = self.state.lock().wait(Change::Flush);
        self.wake.notify_one();
        waiting
    }

    /// Makes the log as small as it can be.
    pub(super) fn want_room(&self) -> Option<Waiting> {
        let mut state = self.state.lock();
        let total: u64 = state.segments.values().map(|held| held.length).sum();
        if total.saturating_sub(state.index.live()) < LITTLE {
            return None;
        }
        state.room_wanted = state.segments.keys().next_back().copied();
        let (done, waiting) = oneshot::channel();
        state.room_waiters.push(done);
        self.wake.notify_one();
        Some(waiting)
    }
}

/// Useless bytes for which it is not worth while to clean.
const LITTLE: u64 = 1 << 20;

fn data_of(state: &State, number: u64) -> io::Result<Bytes> {
    if let Some(saved) = state.saved.get(&number) {
        return Ok(saved.data.clone());
    }
    let place = state.index.orphan(number);
    let reading = place.and_then(|place| state.reading(place));
    let none = || io::Error::new(io::ErrorKind::InvalidData, "the bundle has no data");
    reading.ok_or_else(none)?.data()
}
