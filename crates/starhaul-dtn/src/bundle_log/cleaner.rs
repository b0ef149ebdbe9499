//! Removes the oldest segment when much of the log is useless, and writes again what is needed of it.
//!
//! It is always the oldest one: what says that a bundle is gone must stay as long as a segment may hold that bundle, and those are
//! removed before.

use std::io;

use hardy_bpa::Bytes;
use time::OffsetDateTime;

use super::{
    index::{Data, Place},
    queue::{Change, Held, Log, State},
    record::{Reader, Record, gone},
    writer::Writer,
};

/// Bytes that are written again at a time, about.
const STEP: usize = 1 << 20;
/// What is read at a time where a segment cannot be read as a whole.
const PIECE: usize = 4 << 10;

/// Bytes of the disk that cleaning leaves.
const MARGIN: u64 = 1 << 20;

/// A segment that is to be removed.
pub(super) struct Cleaning {
    segment: u32,
    salt: u64,
    bytes: Vec<u8>,
    at: usize,
    /// Whether all of it is written again, or on its way.
    is_done: bool,
}

impl Writer {
    /// What must be written again now.
    pub(super) fn clean(&mut self) -> io::Result<Vec<Change>> {
        if self.cleaning.is_none() {
            let Some((segment, held)) = self.due() else {
                return Ok(Vec::new());
            };
            if self
                .active
                .as_ref()
                .is_some_and(|active| active.number == segment)
            {
                self.close();
            }
            self.cleaning = Some(Cleaning {
                segment,
                salt: held.salt,
                bytes: read(&held),
                at: 0,
                is_done: false,
            });
        }
        let log = self.log.clone();
        let Some(cleaning) = self.cleaning.as_mut().filter(|cleaning| !cleaning.is_done) else {
            return Ok(Vec::new());
        };
        cleaning.step(&log)
    }

    /// The oldest segment, if it is time to clean it.
    fn due(&self) -> Option<(u32, Held)> {
        let mut state = self.log.state.lock();
        let oldest = state.segments.first_key_value();
        let oldest = oldest.map(|(number, held)| (*number, held.clone()));
        // A new one that failed at once has nothing, and may have something soon.
        let is_new = |number| {
            self.active
                .as_ref()
                .is_some_and(|active| active.number == number)
        };
        let oldest = oldest.filter(|(number, held)| held.length > 0 || !is_new(*number));
        let Some((number, held)) = oldest else {
            state.make_room();
            return None;
        };
        let is_wanted = state.room_wanted.is_some_and(|last| number <= last);
        let total: u64 = state.segments.values().map(|held| held.length).sum();
        let live = state.index.live();
        let settings = &self.log.settings;
        let is_due = total > live + live / 2 + settings.slack_bytes
            || (state.index.gone_count() > settings.most_gone && state.segments.len() > 1);
        // On a full disk, a segment goes when so little of it is needed that the rest of the disk has room for that.
        let needed = state.index.live_in(number);
        let has_room = || {
            self.log
                .medium
                .free()
                .is_ok_and(|free| free > needed + MARGIN)
        };
        if (is_wanted || is_due) && has_room() {
            return Some((number, held));
        }
        state.make_room();
        None
    }

    /// Removes a segment of which all is written again.
    pub(super) fn finish_cleaning(&mut self) -> io::Result<()> {
        let Some(cleaning) = self.cleaning.take_if(|cleaning| cleaning.is_done) else {
            return Ok(());
        };
        // The copies first, also where nothing else need be on the medium: bundles of long ago are not lost.
        self.sync_all()?;
        let log = self.log.clone();
        let held = log.state.lock().segments.get(&cleaning.segment).cloned();
        if let Some(held) = held {
            log.medium.remove(&held.name)?;
            // Before the next one goes, which may say that bundles of this one are gone.
            log.medium.sync_names()?;
        }
        let mut state = log.state.lock();
        state.segments.remove(&cleaning.segment);
        state.index.drop_segment(cleaning.segment);
        Ok(())
    }
}

impl State {
    /// Tells those who wait for room that there is as much as there can be.
    fn make_room(&mut self) {
        self.room_wanted = None;
        for done in self.room_waiters.drain(..) {
            // Nobody may wait any more.
            let _ = done.send(Ok(()));
        }
    }
}

impl Cleaning {
    fn step(&mut self, log: &Log) -> io::Result<Vec<Change>> {
        let (mut copies, mut bytes) = (Vec::new(), 0);
        let mut reader = Reader::new(&self.bytes, self.salt);
        reader.at = self.at;
        let now = OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000;
        while bytes < STEP {
            let Some((span, record)) = reader.next() else {
                self.is_done = true;
                break;
            };
            let segment = self.segment;
            let copy = match record {
                Record::Gone(body) => still_gone(log, segment, body, now),
                _ => copy(log, Place { segment, span }, &record)?,
            };
            bytes += copy.as_ref().map_or(0, Change::bytes);
            copies.extend(copy);
        }
        self.at = reader.at;
        Ok(copies)
    }
}

/// What a record says of bundles whose lifetime has not ended; as many as are remembered.
fn still_gone(log: &Log, segment: u32, body: &[u8], now: i128) -> Option<Change> {
    let mut state = log.state.lock();
    let mut kept = Vec::new();
    for (key, expiry) in gone(body) {
        if state.index.gone_in(&key) != Some(segment) {
            continue;
        }
        let is_too_much = state.index.gone_count() > log.settings.most_gone;
        match is_too_much || i128::from(expiry) <= now {
            true => state.index.remove_gone(&key),
            false => kept.push((key, expiry)),
        }
    }
    (!kept.is_empty()).then_some(Change::StillGone(kept))
}

/// A bundle whose record this is, as a whole.
fn copy(log: &Log, place: Place, record: &Record<'_>) -> io::Result<Option<Change>> {
    let number = match record {
        Record::Bundle(known, _) | Record::Known(known) => known.number,
        Record::Data(number, _) => *number,
        Record::Status(..) | Record::Gone(_) | Record::Unused(_) => return Ok(None),
    };
    let own_data = |record: &Record<'_>| match record {
        Record::Bundle(_, data) | Record::Data(_, data) => Bytes::copy_from_slice(data),
        _ => Bytes::new(),
    };
    let (known, data) = {
        let state = log.state.lock();
        let Some(entry) = state.index.get(number) else {
            let is_orphan = state.index.orphan(number) == Some(place);
            let data = own_data(record);
            return Ok(is_orphan.then_some(Change::Orphan { number, data }));
        };
        let is_needed = entry.known == Some(place) || entry.data == Data::At(place);
        let Some(known) = entry.known.filter(|_| is_needed) else {
            return Ok(None);
        };
        let known_at = state.reading(known).filter(|_| known != place);
        let data_at = match entry.data {
            Data::At(at) if at != place => state.reading(at).map(Some),
            Data::At(_) => Some(None),
            Data::Coming | Data::InFile => None,
        };
        (known_at, data_at)
    };
    // What is elsewhere and cannot be read leaves the bundle as it is: it will be given up when it is wanted.
    let bundle = match (known, record) {
        (Some(reading), _) => reading.known().map(Bytes::from),
        (None, Record::Bundle(known, _) | Record::Known(known)) => {
            Ok(Bytes::copy_from_slice(known.bundle))
        }
        (None, _) => return Ok(None),
    };
    let data = match data {
        Some(Some(reading)) => reading.data().map(Some),
        Some(None) => Ok(Some(own_data(record))),
        None => Ok(None),
    };
    match (bundle, data) {
        (Ok(bundle), Ok(data)) => Ok(Some(Change::Copy {
            number,
            bundle,
            data,
        })),
        (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
            tracing::error!(%error, "a part of a bundle is damaged");
            Ok(None)
        }
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// All that can be read of a segment.
fn read(held: &Held) -> Vec<u8> {
    let length = usize::try_from(held.length).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length];
    if let Err(error) = held.file.read(0, &mut bytes) {
        tracing::error!(%error, segment = held.name, "a part of the log cannot be read");
        let mut at = 0;
        for piece in bytes.chunks_mut(PIECE) {
            if held.file.read(at, piece).is_err() {
                piece.fill(0);
            }
            at += piece.len() as u64;
        }
    }
    bytes
}
