//! The one who writes the log: all that is queued at a moment with one write and, if it must be on the medium, one call that
//! brings it there. What cannot be written is written again in a new segment; only new bundles are refused.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use hardy_bpa::Bytes;
use parking_lot::MutexGuard;

use super::{
    batch::Batch,
    cleaner::{Cleaning, STEP},
    index::{Data, Place},
    queue::{Change, Fault, Log, QUEUED, State},
    record::{Gone, Kind, Known, MOST_BODY, Span},
    segments::{Held, Unread, segment_name},
};
use crate::medium::MediumFile;

/// Bytes that are written at a time, about.
const BATCH: usize = 8 << 20;
/// How long changes are gathered after a write, so that each is not written alone. The first one after a rest does not wait.
const GATHER: Duration = Duration::from_millis(2);
/// So many bytes are written at once.
const ENOUGH: usize = 256 << 10;
/// How long a medium that failed twice is left alone.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Writes a log.
pub(super) struct Writer {
    pub(super) log: Arc<Log>,
    /// The segment that is written, which is the last one.
    active: Option<Active>,
    cleaning: Option<Cleaning>,
    /// Segments that were not brought to the medium when they were full.
    unsynced: Vec<(u32, Arc<dyn MediumFile>)>,
    /// The newest segment of which a sync has failed, so that another one says nothing of what that has lost. What was copied to it
    /// does not go before it is copied itself.
    doubtful: Option<u32>,
    /// Files of segments that were cleaned, the oldest first. They go as soon as no segment is doubtful.
    useless: VecDeque<String>,
    /// Numbers the next segment.
    next: u32,
    /// Salts of segments.
    salt: Box<dyn FnMut() -> io::Result<u64> + Send>,
    failures: u32,
    batch: Batch,
    /// Bytes of what was queued and is being written.
    taken: usize,
}

/// A segment that is being written.
struct Active {
    number: u32,
    salt: u64,
    file: Arc<dyn MediumFile>,
    /// Bytes of whole records.
    length: u64,
    /// Whether it is not known what became of the last write.
    is_doubtful: bool,
}

/// The outcome of a turn of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// There may be more to do.
    Done,
    /// Nothing is to be done.
    Idle,
    /// The medium fails.
    Failed,
}

/// A change as a record.
struct Entry {
    change: Change,
    kind: Kind,
    head: Bytes,
    data: Bytes,
    span: Option<Span>,
}

impl Writer {
    /// Goes on after the segments that the log has.
    pub(super) fn new(
        log: Arc<Log>,
        next: u32,
        salt: impl FnMut() -> io::Result<u64> + Send + 'static,
    ) -> Self {
        // A life that was killed may have copied what is in one to another, and not have brought it to the medium.
        let unsynced = match log.settings.is_synced {
            true => Vec::new(),
            false => {
                let state = log.state.lock();
                let segments = state.segments.iter();
                let segments = segments.map(|(number, held)| (*number, held.file.clone()));
                segments.collect()
            }
        };
        Self {
            log,
            active: None,
            cleaning: None,
            unsynced,
            doubtful: None,
            useless: VecDeque::new(),
            next,
            salt: Box::new(salt),
            failures: 0,
            batch: Batch::default(),
            taken: 0,
        }
    }

    /// Writes until the log ends, and all that was asked for before is written, or cannot be.
    pub(super) fn run(mut self) {
        loop {
            let turn = self.turn();
            let log = self.log.clone();
            let mut state = log.state.lock();
            match turn {
                Turn::Done if !state.is_ending && state.queued_bytes < ENOUGH => {
                    drop(state);
                    std::thread::sleep(GATHER);
                }
                Turn::Done => {}
                Turn::Idle if !state.queue.is_empty() || !state.room_waiters.is_empty() => {}
                Turn::Failed if self.failures == 1 => {}
                Turn::Idle | Turn::Failed if state.is_ending => {
                    state.end();
                    return;
                }
                Turn::Idle => log.wake.wait(&mut state),
                Turn::Failed => pause(&log, &mut state),
            }
        }
    }

    /// Writes what is queued now, and cleans a part of a segment if that is due.
    pub(super) fn turn(&mut self) -> Turn {
        let copies = self.clean();
        // What is new must not outrun what is removed.
        let passed = self.cleaning.as_ref().map(|cleaning| cleaning.passed);
        // While nothing can be written, a segment of which nothing is needed goes first: that may make room.
        let is_useless = |cleaning: &Cleaning| !cleaning.is_needed(&self.log);
        let is_removing = self.failures > 0
            && copies.is_empty()
            && self.cleaning.as_ref().is_some_and(is_useless);
        let most = match passed {
            Some(_) if is_removing => 0,
            Some(passed) => (passed / 2).clamp(STEP / 2, BATCH),
            None => BATCH,
        };
        let entries = self.take(copies, most);
        if entries.is_empty() && passed.is_none() && !self.has_useless() {
            self.settle(entries);
            return Turn::Idle;
        }
        let written = self.write(entries).and_then(|()| self.finish_cleaning());
        match written {
            Ok(()) => {
                if !is_removing {
                    self.failures = 0;
                }
                Turn::Done
            }
            Err(error) => {
                self.fail(&error);
                Turn::Failed
            }
        }
    }

    fn clean(&mut self) -> Vec<Change> {
        if self.cleaning.is_none() {
            let active = self.active.as_ref().map(|active| active.number);
            self.cleaning = Cleaning::begin(&self.log, active);
            if self.cleaning.as_ref().map(|cleaning| cleaning.segment) == active {
                self.close();
            }
        }
        let cleaning = self.cleaning.as_mut();
        cleaning.map_or_else(Vec::new, |cleaning| cleaning.step(&self.log))
    }

    fn finish_cleaning(&mut self) -> io::Result<()> {
        if let Some(cleaning) = self.cleaning.take_if(|cleaning| cleaning.is_done()) {
            // The copies first, also where nothing else need be on the medium: bundles of long ago are not lost.
            self.sync_all()?;
            let segment = cleaning.segment;
            let (name, lost) = cleaning.finish(&self.log);
            self.useless.extend(name);
            if lost > 0 && self.doubtful.is_some() {
                // What these have may be all that is left: the next start reads them again.
                self.useless.clear();
            }
            self.doubtful = self.doubtful.filter(|last| segment < *last);
        }
        self.remove_useless()
    }

    /// Removes the files of segments that were cleaned.
    fn remove_useless(&mut self) -> io::Result<()> {
        while self.has_useless()
            && let Some(name) = self.useless.front()
        {
            self.log.medium.remove(name)?;
            // Before the next one goes, which may say that bundles of this one are gone.
            self.log.medium.sync_names()?;
            self.useless.pop_front();
        }
        Ok(())
    }

    fn has_useless(&self) -> bool {
        self.doubtful.is_none() && !self.useless.is_empty()
    }

    /// Notes that a sync of a segment has failed, and has all up to it written again.
    fn doubt(&mut self, segment: u32) {
        self.doubtful = self.doubtful.max(Some(segment));
        let mut state = self.log.state.lock();
        state.room_wanted = state.room_wanted.max(Some(segment));
    }

    fn fail(&mut self, error: &io::Error) {
        if self.failures == 1 {
            tracing::error!(%error, "the log of bundles cannot be written; it is tried again until it can");
        }
        self.failures = self.failures.saturating_add(1);
        self.cleaning = None;
    }

    /// So many bytes of what is queued, about, behind copies: those are older.
    fn take(&mut self, copies: Vec<Change>, most: usize) -> Vec<Entry> {
        let mut state = self.log.state.lock();
        let (mut bytes, mut changes) = (0, copies);
        while bytes < most
            && let Some(change) = state.queue.pop_front()
        {
            bytes += change.bytes();
            changes.push(change);
        }
        self.taken = bytes;
        let entries = changes.into_iter();
        entries
            .filter_map(|change| prepare(&mut state, change))
            .collect()
    }

    fn write(&mut self, mut entries: Vec<Entry>) -> io::Result<()> {
        let has_records = entries
            .iter()
            .any(|entry| !matches!(entry.change, Change::Flush(_)));
        let written = match has_records {
            true => self.write_records(&mut entries),
            false => Ok(()),
        };
        match &written {
            Ok(()) => self.settle(entries),
            Err(error) => self.take_back(entries, error),
        }
        self.log.written.notify_waiters();
        written
    }

    fn write_records(&mut self, entries: &mut [Entry]) -> io::Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        let written = self.write_all(entries, &mut batch);
        batch.clear();
        self.batch = batch;
        written
    }

    fn write_all(&mut self, entries: &mut [Entry], batch: &mut Batch) -> io::Result<()> {
        let is_synced = self.log.settings.is_synced;
        let active = self.active()?;
        for entry in entries.iter_mut() {
            if matches!(entry.change, Change::Flush(_)) {
                continue;
            }
            let (base, salt) = (active.length, active.salt);
            let span = batch.append(base, salt, entry.kind, &entry.head, &entry.data);
            entry.span = Some(span.map_err(io::Error::other)?);
        }
        active.file.write(active.length, &mut batch.slices())?;
        if is_synced {
            active.is_doubtful = true;
            active.file.sync()?;
            active.is_doubtful = false;
        }
        active.length += batch.len();
        Ok(())
    }

    /// The segment to write to: a new one after a full one, and after one that failed.
    fn active(&mut self) -> io::Result<&mut Active> {
        let bound = u64::from(self.log.settings.segment_bytes);
        if self
            .active
            .as_ref()
            .is_some_and(|active| active.length >= bound)
        {
            self.close();
        }
        if self.active.is_none() {
            let (number, salt) = (self.next, (self.salt)()?);
            let name = segment_name(number, salt);
            let file = self.log.medium.create(&name)?;
            // Its number is not used again, whatever comes.
            self.next += 1;
            if self.log.settings.is_synced {
                let synced = self.log.medium.sync_names();
                if let Err(error) = synced {
                    let _ = self.log.medium.remove(&name);
                    return Err(error);
                }
            }
            let held = Held {
                name,
                salt,
                file: file.clone(),
                length: 0,
                unread: Unread::default(),
            };
            self.log.state.lock().segments.insert(number, held);
            self.active = Some(Active {
                number,
                salt,
                file,
                length: 0,
                is_doubtful: false,
            });
        }
        self.active
            .as_mut()
            .ok_or_else(|| io::Error::other("no segment"))
    }

    /// Ends the segment that is written.
    fn close(&mut self) {
        if let Some(active) = self.active.take()
            && !self.log.settings.is_synced
        {
            self.unsynced.push((active.number, active.file));
        }
    }

    /// Brings all to the medium that is in the log, and the names of its segments.
    fn sync_all(&mut self) -> io::Result<()> {
        if !self.log.settings.is_synced {
            while let Some((number, file)) = self.unsynced.pop() {
                file.sync().inspect_err(|_| self.doubt(number))?;
            }
            if let Some(active) = &self.active
                && let Err(error) = active.file.sync()
            {
                let number = active.number;
                self.active = None;
                self.doubt(number);
                return Err(error);
            }
        }
        self.log.medium.sync_names()
    }

    /// Notes that all of this is in the log.
    fn settle(&mut self, entries: Vec<Entry>) {
        let mut done = Vec::new();
        let active = self.active.as_ref();
        let (segment, length) = active.map_or((QUEUED, 0), |active| (active.number, active.length));
        let mut state = self.log.state.lock();
        state.queued_bytes -= std::mem::take(&mut self.taken);
        if let Some(held) = state.segments.get_mut(&segment) {
            held.length = length;
        }
        for entry in entries {
            let place = entry.span.map(|span| Place { segment, span });
            done.extend(settle(&mut state, entry.change, place, segment));
        }
        drop(state);
        for done in done {
            // The waiting task may have ended.
            let _ = done.send(Ok(()));
        }
    }

    /// Takes back what a write has left behind its records: a refused bundle shall not be found. Whether that is certain; if not, the
    /// segment gets no more.
    fn cut(&mut self) -> bool {
        let Some(active) = self.active.take() else {
            return true;
        };
        let cut = active.file.cut(active.length);
        let synced = cut.and_then(|()| active.file.sync());
        if synced.is_ok() && !active.is_doubtful {
            self.active = Some(active);
            return true;
        }
        let mut state = self.log.state.lock();
        let is_empty = active.length == 0;
        let held = state.segments.get(&active.number).filter(|_| is_empty);
        if held.is_some_and(|held| self.log.medium.remove(&held.name).is_ok()) {
            state.segments.remove(&active.number);
        } else if !self.log.settings.is_synced {
            drop(state);
            self.doubt(active.number);
        }
        false
    }

    /// Refuses new bundles, and queues all else again.
    fn take_back(&mut self, entries: Vec<Entry>, error: &io::Error) {
        let is_certain = self.cut();
        let fault = Fault(error.to_string().into());
        let mut refused = Vec::new();
        let mut state = self.log.state.lock();
        state.queued_bytes -= std::mem::take(&mut self.taken);
        for entry in entries.into_iter().rev() {
            match entry.change {
                Change::Insert { number, done, .. } => {
                    let is_coming = |entry: &super::index::Entry| entry.known.is_none();
                    if state.index.get(number).is_some_and(is_coming) {
                        state.index.remove(number);
                    }
                    if !is_certain {
                        state.push(Change::Unused(number));
                    }
                    refused.push(done);
                }
                // They are made again.
                Change::Copy { .. } | Change::StillGone(_) => {}
                change => put_back(&mut state, change),
            }
        }
        drop(state);
        for done in refused {
            let _ = done.send(Err(fault.clone()));
        }
    }
}

/// Waits for a medium that fails, or for the end.
fn pause(log: &Log, state: &mut MutexGuard<'_, State>) {
    let until = std::time::Instant::now() + TRY_AGAIN;
    while !state.is_ending && !log.wake.wait_until(state, until).timed_out() {}
}

fn put_back(state: &mut State, change: Change) {
    if let Change::Status(number) = change
        && let Some(entry) = state.index.get_mut(number)
    {
        entry.is_status_queued = true;
    }
    state.queued_bytes += change.bytes();
    state.queue.push_front(change);
}

/// The record of a change; `None` if it is not worth one any more.
fn prepare(state: &mut State, change: Change) -> Option<Entry> {
    let none = Bytes::new();
    let named = |number: &u64| Bytes::copy_from_slice(&number.to_le_bytes());
    let (kind, head, data) = match &change {
        Change::Insert {
            number, head, data, ..
        } => {
            if state.index.get(*number).is_none() {
                // It has gone in the meantime.
                return skip(change);
            }
            (Kind::Bundle, head.clone(), data.clone().unwrap_or(none))
        }
        Change::Copy {
            number,
            bundle,
            data,
        } => {
            let head = known(state, *number, bundle)?;
            (Kind::Bundle, head, data.clone().unwrap_or(none))
        }
        Change::Known { number, bundle } => (Kind::Known, known(state, *number, bundle)?, none),
        Change::Data { number, data } => {
            state.index.get(*number)?;
            (Kind::Data, named(number), data.clone())
        }
        Change::Orphan { number, data } => {
            if !state.saved.contains_key(number) {
                state.index.orphan(*number)?;
            }
            (Kind::Data, named(number), data.clone())
        }
        Change::Status(number) => {
            let entry = state.index.get_mut(*number)?;
            entry.is_status_queued = false;
            let status = [&number.to_le_bytes()[..], entry.status.as_bytes()].concat();
            (Kind::Status, status.into(), none)
        }
        Change::Gone { gone, .. } => (Kind::Gone, Bytes::copy_from_slice(&gone.entry()), none),
        Change::StillGone(gone) => {
            let body = gone.iter().flat_map(Gone::entry);
            (Kind::Gone, body.collect(), none)
        }
        Change::Unused(number) => (Kind::Unused, named(number), none),
        Change::Flush(_) => (Kind::Unused, none.clone(), none),
    };
    if head.len() + data.len() > MOST_BODY {
        // New bundles are measured before; no change makes one so much larger.
        tracing::error!("a change of a bundle is longer than a record may be, and is left out");
        return skip(change);
    }
    Some(Entry {
        change,
        kind,
        head,
        data,
        span: None,
    })
}

/// A new bundle that went before it was written is no failure.
fn skip(change: Change) -> Option<Entry> {
    let Change::Insert { done, .. } = change else {
        return None;
    };
    Some(Entry {
        change: Change::Flush(done),
        kind: Kind::Unused,
        head: Bytes::new(),
        data: Bytes::new(),
        span: None,
    })
}

fn known(state: &State, number: u64, bundle: &[u8]) -> Option<Bytes> {
    let entry = state.index.get(number)?;
    let known = Known {
        number,
        key: entry.key,
        expiry: entry.expiry,
        received: entry.received,
        is_in_file: entry.data == Data::InFile,
        status: &entry.status,
        bundle,
    };
    // Its length was looked at before.
    known.body().ok().map(Bytes::from)
}

/// Notes where the record of a change is; returns who waits for it.
fn settle(
    state: &mut State,
    change: Change,
    place: Option<Place>,
    segment: u32,
) -> Option<super::queue::Done> {
    let at = |data: &Option<Bytes>| match (data, place) {
        (Some(_), Some(place)) => Data::At(place),
        _ => Data::InFile,
    };
    match change {
        Change::Insert {
            number, data, done, ..
        } => {
            state.index.remove_orphan(number);
            state.index.place(number, place, Some(at(&data)));
            state.saved.remove(&number);
            return Some(done);
        }
        Change::Copy { number, data, .. } => state.index.place(number, place, Some(at(&data))),
        Change::Known { number, .. } => {
            state.index.place(number, place, None);
            state.index.is_written(number);
        }
        Change::Data { number, .. } => {
            state.index.place(number, None, place.map(Data::At));
            state.index.is_written(number);
        }
        Change::Orphan { number, .. } => {
            let is_known =
                state.saved.contains_key(&number) || state.index.orphan(number).is_some();
            if let Some(place) = place.filter(|_| is_known) {
                state.index.add_orphan(number, place);
            }
        }
        Change::Gone { gone, done } => {
            // One of the same name may have been taken, and be gone, since.
            let is_this = state.index.is_gone_as(&gone.key, gone.number);
            if is_this && state.index.gone_in(&gone.key) == Some(QUEUED) {
                state.index.add_gone(&gone, segment);
            }
            return done;
        }
        Change::StillGone(gone) => {
            for gone in gone {
                if state.index.is_gone_as(&gone.key, gone.number) {
                    state.index.add_gone(&gone, segment);
                }
            }
        }
        Change::Flush(done) => return Some(done),
        Change::Status(_) | Change::Unused(_) => {}
    }
    None
}
