//! Removes the oldest segment when much of the log is useless, and writes again what is needed of it.
//!
//! It is always the oldest one: what says that a bundle is gone must stay as long as a segment may hold that bundle, and those are
//! removed before.

use std::io;

use hardy_bpa::Bytes;
use time::OffsetDateTime;

use super::{
    LEFT,
    index::{Data, Place},
    prepared::milliseconds,
    queue::{Change, Log, State},
    record::Record,
    segments::{Held, Unread},
};

/// Bytes that are written again at a time, about.
pub(super) const STEP: usize = 1 << 20;
/// Bytes of a segment that are passed at a time, about: what is new waits meanwhile.
const MOST_PASSED: u64 = 8 << 20;
/// Bytes that are read at a time: what follows them may be a large record that is useless.
const PART: usize = 64 << 10;
/// Segments beyond those that what is written needs, if they are full: each start of a node begins one.
const MOST_SMALL: u64 = 64;

/// Bytes of the disk that cleaning leaves.
const MARGIN: u64 = 1 << 20;

/// A segment that is to be removed.
pub(super) struct Cleaning {
    pub(super) segment: u32,
    held: Held,
    /// Up to where all is written again, or on its way.
    at: u64,
    /// Bytes of it that the last step passed.
    pub(super) passed: usize,
}

impl Cleaning {
    /// Begins with the oldest segment, if it is time to. `active` is the one that is written.
    pub(super) fn begin(log: &Log, active: Option<u32>) -> Option<Self> {
        let mut state = log.state.lock();
        let oldest = state.segments.first_key_value();
        let oldest = oldest.map(|(number, held)| (*number, held.clone()));
        // A new one that failed at once has nothing, and may have something soon.
        let oldest = oldest.filter(|(number, held)| held.length > 0 || active != Some(*number));
        let is_due = |number| !state.is_ending && is_due(log, &state, number);
        let oldest = oldest.filter(|(number, _)| is_due(*number));
        if oldest.is_none() {
            state.make_room();
        }
        let (segment, held) = oldest?;
        Some(Self {
            segment,
            held,
            at: 0,
            passed: 0,
        })
    }

    /// What must be written again now.
    pub(super) fn step(&mut self, log: &Log) -> Vec<Change> {
        let (mut copies, mut bytes) = (Vec::new(), 0);
        let now = milliseconds(OffsetDateTime::now_utc());
        let (segment, start) = (self.segment, self.at);
        while bytes < STEP && !self.is_done() && self.at - start < MOST_PASSED {
            let is_needed = |number, span| {
                let state = log.state.lock();
                state.index.is_at(number, Place { segment, span })
            };
            self.held.pass(&mut self.at, is_needed);
            self.held.scan(&mut self.at, PART, |span, record| {
                let copy = match record {
                    Record::Gone(_) | Record::GoneUnnumbered(_) => {
                        still_gone(log, segment, record, now)
                    }
                    _ => copy(log, Place { segment, span }, record, &self.held.unread),
                };
                bytes += copy.as_ref().map_or(0, Change::bytes);
                copies.extend(copy);
                bytes < STEP
            });
        }
        self.passed = usize::try_from(self.at - start).unwrap_or(usize::MAX);
        copies
    }

    /// Whether all of it is written again, or on its way.
    pub(super) fn is_done(&self) -> bool {
        self.at >= self.held.length
    }

    /// Whether something of it must be written again, or is on its way.
    pub(super) fn is_needed(&self, log: &Log) -> bool {
        log.state.lock().index.live_in(self.segment) > 0
    }

    /// Forgets the segment, of which all is on the medium elsewhere. Returns the name of its file, if all of that could be read, and
    /// how many bundles could not.
    pub(super) fn finish(self, log: &Log) -> (Option<String>, usize) {
        let mut state = log.state.lock();
        state.segments.remove(&self.segment);
        let (lost, others) = state.index.drop_segment(self.segment);
        let is_left = self.held.unread.is_noted();
        if is_left {
            // A later life that reads this needs the rest of its bundles, too.
            let others = others.iter().filter_map(|other| state.segments.get(other));
            others.for_each(|other| other.unread.note());
        }
        drop(state);
        let segment = self.held.name;
        if lost > 0 {
            tracing::error!(
                segment,
                lost,
                "bundles of the log cannot be read, and are lost"
            );
        }
        if is_left {
            tracing::error!(segment, "{LEFT}");
        }
        (Some(segment).filter(|_| !is_left), lost)
    }
}

/// Whether the oldest segment is to be cleaned.
fn is_due(log: &Log, state: &State, oldest: u32) -> bool {
    let is_wanted = state.room_wanted.is_some_and(|last| oldest <= last);
    let total: u64 = state.segments.values().map(|held| held.length).sum();
    let (live, count) = (state.index.live(), state.segments.len() as u64);
    let settings = &log.settings;
    // Otherwise each bundle that goes would have a segment cleaned.
    let bound = settings.most_gone.saturating_add(settings.most_gone / 8);
    let has_many = total > live + live / 2 + settings.slack_bytes
        || (state.index.gone_count() > bound && count > 1)
        || count > MOST_SMALL + 2 * total / u64::from(settings.segment_bytes);
    // On a full disk, a segment goes when so little of it is needed that the rest of the disk has room for that.
    let needed = state.index.live_in(oldest);
    let has_room = |free| needed == 0 || free > needed + MARGIN;
    (is_wanted || has_many) && log.medium.free().is_ok_and(has_room)
}

impl State {
    /// Tells those who wait for room that there is as much as there can be.
    fn make_room(&mut self) {
        self.room_wanted = None;
        for done in self.room_waiters.drain(..) {
            // The waiting task may have ended.
            let _ = done.send(Ok(()));
        }
    }
}

/// What a record says of bundles whose lifetime has not ended; as many as are remembered.
fn still_gone(log: &Log, segment: u32, record: &Record<'_>, now: i64) -> Option<Change> {
    let mut state = log.state.lock();
    let mut kept = Vec::new();
    for gone in record.gone() {
        // Another one of its name may be gone since, as this segment says further on.
        let is_this = state.index.is_gone_as(&gone.key, gone.number);
        if !is_this || state.index.gone_in(&gone.key) != Some(segment) {
            continue;
        }
        let is_too_much = state.index.gone_count() > log.settings.most_gone;
        match is_too_much || gone.expiry <= now {
            true => state.index.remove_gone(&gone.key),
            false => kept.push(gone),
        }
    }
    (!kept.is_empty()).then_some(Change::StillGone(kept))
}

/// A bundle whose record this is, as a whole. If a part of it that is elsewhere cannot be read, it is lost with its segment, and what
/// may be read later is noted as `unread`.
fn copy(log: &Log, place: Place, record: &Record<'_>, unread: &Unread) -> Option<Change> {
    let number = match record {
        Record::Bundle(known, _) | Record::Known(known) => known.number,
        Record::Data(number, _) => *number,
        Record::Status(..) | Record::Gone(_) | Record::GoneUnnumbered(_) | Record::Unused(_) => {
            return None;
        }
    };
    let (known, data) = {
        let state = log.state.lock();
        let Some(entry) = state.index.get(number) else {
            let is_orphan = state.index.orphan(number) == Some(place);
            let data = record.data().map(Bytes::copy_from_slice)?;
            return is_orphan.then_some(Change::Orphan { number, data });
        };
        if entry.known != Some(place) && entry.data != Data::At(place) {
            return None;
        }
        let elsewhere = |at: Place| (at != place).then(|| state.reading(at));
        let data = match entry.data {
            Data::At(at) => Some(elsewhere(at)),
            Data::Coming | Data::InFile => None,
        };
        (elsewhere(entry.known?), data)
    };
    let bundle = match known {
        Some(reading) => logged(reading?.known(), unread)?.into(),
        None => Bytes::copy_from_slice(record.known()?.bundle),
    };
    let data = match data {
        Some(Some(reading)) => Some(logged(reading?.data(), unread)?),
        Some(None) => Some(Bytes::copy_from_slice(record.data()?)),
        None => None,
    };
    Some(Change::Copy {
        number,
        bundle,
        data,
    })
}

fn logged<T>(read: io::Result<T>, unread: &Unread) -> Option<T> {
    let log = |error: &io::Error| tracing::error!(%error, "a part of a bundle is damaged");
    let read = read.inspect_err(log);
    match &read {
        // No later life reads anything else.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
        _ => unread.noted(read).ok(),
    }
}
