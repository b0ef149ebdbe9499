//! The segments of a log as they are read: their names, their records in their order, and single records.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use hardy_bpa::{Bytes, bundle::Bundle};

use super::{
    index::Place,
    prepared::status,
    record::{Reader, Record, START, Span, start, sum_of_last, whole},
};
use crate::{medium::MediumFile, sums};

const SUFFIX: &str = ".log";
/// Useless records of more bytes are passed without being read, and data of more are not copied.
const LARGE: usize = 16 << 10;
/// The same where not all can be read.
const SECTOR: usize = 4 << 10;

/// A segment that is there.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) name: String,
    pub(super) salt: u64,
    pub(super) file: Arc<dyn MediumFile>,
    pub(super) length: u64,
    pub(super) unread: Unread,
}

/// Whether a part of a segment could not be read in this life: then its file outlives its cleaning, for a later life may read it.
#[derive(Clone, Default)]
pub(super) struct Unread(Arc<AtomicBool>);

impl Unread {
    /// The same result; an error is noted.
    pub(super) fn noted<T>(&self, read: io::Result<T>) -> io::Result<T> {
        read.inspect_err(|_| self.note())
    }

    pub(super) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A record that is read without the log.
pub(super) struct Reading {
    file: Arc<dyn MediumFile>,
    salt: u64,
    place: Place,
    unread: Unread,
}

/// The name of a segment holds its salt.
pub(super) fn segment_name(number: u32, salt: u64) -> String {
    format!("{number:08x}-{salt:016x}{SUFFIX}")
}

/// The number and the salt of a segment by its name.
pub(super) fn parse_name(name: &str) -> Option<(u32, u64)> {
    let (number, salt) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    let number = u32::from_str_radix(number, 16).ok()?;
    Some((number, u64::from_str_radix(salt, 16).ok()?))
}

impl Held {
    /// A record of it.
    pub(super) fn reading(&self, place: Place) -> Reading {
        Reading {
            file: self.file.clone(),
            salt: self.salt,
            place,
            unread: self.unread.clone(),
        }
    }

    /// Passes over large records at the offset `at` that are not needed, without reading them; `is_needed` is asked with the number of
    /// their bundle.
    pub(super) fn pass(&self, at: &mut u64, is_needed: impl Fn(u64, Span) -> bool) {
        let mut bytes = [0; START];
        while self.length.saturating_sub(*at) >= START as u64
            // If it cannot be read, the code that reads it as a whole reports the error.
            && self.file.read(*at, &mut bytes).is_ok()
            && let Some((length, Some(number))) = start(&bytes, self.salt, *at)
            && length > LARGE
            && let (Ok(from), Ok(bytes)) = (u32::try_from(*at), u32::try_from(length))
            && !is_needed(
                number,
                Span {
                    at: from,
                    length: bytes,
                },
            )
        {
            *at = self.length.min(*at + length as u64);
        }
    }

    /// Goes on at the offset `at` through the records, while `each` wants more, and a part of the segment of `most` bytes lasts, or of
    /// one record that has more. Returns how many bytes belong to no record. What cannot be read counts as such.
    pub(super) fn scan(
        &self,
        at: &mut u64,
        most: usize,
        mut each: impl FnMut(Span, &Record<'_>) -> bool,
    ) -> usize {
        let left = self.length.saturating_sub(*at);
        let mut bytes = usize::try_from(left).unwrap_or(usize::MAX).min(most);
        loop {
            let part = self.part(*at, bytes);
            let mut reader = Reader::new(&part, *at, self.salt, bytes as u64 == left);
            let mut wants_more = true;
            while wants_more && let Some((span, record)) = reader.next() {
                wants_more = each(span, &record);
            }
            if reader.at > 0 {
                *at += reader.at as u64;
                return reader.damaged;
            }
            // It begins with a record that has more bytes.
            let length = start(&part, self.salt, *at).map_or(0, |(length, _)| length);
            let longer = usize::try_from(left).unwrap_or(usize::MAX).min(length);
            if longer <= bytes {
                // Nothing is left.
                *at = self.length;
                return 0;
            }
            bytes = longer;
        }
    }

    /// Zeros stand for what cannot be read: one bad sector must not keep a node from starting.
    fn part(&self, at: u64, length: usize) -> Vec<u8> {
        let mut part = vec![0; length];
        if let Err(error) = self.unread.noted(self.file.read(at, &mut part)) {
            tracing::error!(%error, segment = self.name, "a part of the log cannot be read");
            let mut at = at;
            for sector in part.chunks_mut(SECTOR) {
                if self.file.read(at, sector).is_err() {
                    sector.fill(0);
                }
                at += sector.len() as u64;
            }
        }
        part
    }
}

impl Reading {
    /// Takes something from the record, which is in these bytes.
    fn record<T>(&self, take: impl FnOnce(&Bytes, Record<'_>) -> Option<T>) -> io::Result<T> {
        let Place { span, .. } = self.place;
        let mut bytes = vec![0; span.length as usize];
        let read = self.file.read(span.at.into(), &mut bytes);
        self.unread.noted(read)?;
        let bytes = Bytes::from(bytes);
        let record = whole(&bytes, self.salt, span.at.into());
        record
            .and_then(|record| take(&bytes, record))
            .ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "a record of the log is damaged")
            })
    }

    /// The data in it, which share its memory if they are most of it.
    pub(super) fn data(&self) -> io::Result<Bytes> {
        self.record(|bytes, record| {
            let data = record.data()?;
            if data.len() <= LARGE {
                return Some(Bytes::copy_from_slice(data));
            }
            let shared = bytes.slice_ref(data);
            // What was just compared.
            Some(match sum_of_last(bytes, data.len()) {
                Some(sum) => sums::note(shared, sum),
                None => shared,
            })
        })
    }

    /// What is known of a bundle, as JSON.
    pub(super) fn known(&self) -> io::Result<Vec<u8>> {
        self.record(|_, record| Some(record.known()?.bundle.to_vec()))
    }

    /// The bundle, with this status.
    pub(super) fn bundle(&self, text: &str) -> io::Result<Bundle> {
        let mut bundle: Bundle = serde_json::from_slice(&self.known()?)?;
        bundle.metadata.status = status(text).unwrap_or_default();
        Ok(bundle)
    }
}
