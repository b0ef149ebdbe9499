//! Records of the bundle log: how they are written, and found again in a segment of which any part may be damaged.
//!
//! A record is a header of 16 bytes and a body, padded to a multiple of 8. Numbers are little-endian.
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 4 | kind: four letters, to be found with `hexdump` |
//! | 4 | 4 | length of the body |
//! | 8 | 4 | CRC32C of the body |
//! | 12 | 4 | CRC32C of the segment's salt, the offset in the segment, and the 12 bytes before |
//!
//! Salt and offset keep apart what another file left on the medium, and what a bundle's payload holds that looks like a record.

use crate::bundle_log::Key;

/// Bytes of a header.
pub(super) const HEADER: usize = 16;
/// The greatest body.
pub(super) const MOST_BODY: usize = 64 << 20;
const ALIGN: usize = 8;
/// Numbers at the beginning of [`Known`].
const KNOWN: usize = 8 + 16 + 8 + 8 + 1 + 2 + 4;
/// A removed bundle in a record of such.
pub(super) const GONE: usize = 16 + 8;

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A bundle that was taken: what is known of it and its data.
    Bundle,
    /// What is known of a bundle, from now on.
    Known,
    /// The data of a bundle from now on, or of one of which nothing is known yet.
    Data,
    /// The status of a bundle from now on.
    Status,
    /// Bundles that are gone and are not taken again.
    Gone,
    /// Data that nobody needs.
    Unused,
}

const KINDS: [(Kind, [u8; 4]); 6] = [
    (Kind::Bundle, *b"bndl"),
    (Kind::Known, *b"know"),
    (Kind::Data, *b"data"),
    (Kind::Status, *b"stat"),
    (Kind::Gone, *b"gone"),
    (Kind::Unused, *b"free"),
];

/// Where a record is in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The first byte of the header.
    pub(super) at: u32,
    /// Bytes with header and padding.
    pub(super) length: u32,
}

/// What is known of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known<'a> {
    /// Names it within the log.
    pub(super) number: u64,
    /// Stands for its identity.
    pub(super) key: Key,
    /// Milliseconds since 1970.
    pub(super) expiry: i64,
    /// Nanoseconds since 1970.
    pub(super) received: i64,
    /// Whether its data are in a file of their own.
    pub(super) is_in_file: bool,
    /// As JSON.
    pub(super) status: &'a str,
    /// All else, as JSON.
    pub(super) bundle: &'a [u8],
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// See [`Kind::Bundle`].
    Bundle(Known<'a>, &'a [u8]),
    /// See [`Kind::Known`].
    Known(Known<'a>),
    /// See [`Kind::Data`].
    Data(u64, &'a [u8]),
    /// See [`Kind::Status`].
    Status(u64, &'a str),
    /// See [`Kind::Gone`].
    Gone(&'a [u8]),
    /// See [`Kind::Unused`].
    Unused(u64),
}

impl Kind {
    fn letters(self) -> [u8; 4] {
        let found = KINDS.iter().find(|(kind, _)| *kind == self);
        found.map_or(*b"none", |(_, letters)| *letters)
    }
}

impl Known<'_> {
    /// The body, but for a bundle's data, which follow.
    ///
    /// # Errors
    /// It is longer than a record may be.
    pub(super) fn body(&self) -> Result<Vec<u8>, TooLong> {
        let status = u16::try_from(self.status.len()).map_err(|_| TooLong)?;
        let bundle = u32::try_from(self.bundle.len()).map_err(|_| TooLong)?;
        let mut body = Vec::with_capacity(KNOWN + self.status.len() + self.bundle.len());
        body.extend_from_slice(&self.number.to_le_bytes());
        body.extend_from_slice(&self.key);
        body.extend_from_slice(&self.expiry.to_le_bytes());
        body.extend_from_slice(&self.received.to_le_bytes());
        body.push(u8::from(self.is_in_file));
        body.extend_from_slice(&status.to_le_bytes());
        body.extend_from_slice(&bundle.to_le_bytes());
        body.extend_from_slice(self.status.as_bytes());
        body.extend_from_slice(self.bundle);
        Ok(body)
    }
}

/// More than a record may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what is known of the bundle is longer than a record of the log may be")]
pub(super) struct TooLong;

/// The entries of [`Record::Gone`]: identity, and milliseconds since 1970 at which the lifetime ends.
pub(super) fn gone(body: &[u8]) -> impl Iterator<Item = (Key, i64)> {
    body.chunks_exact(GONE).filter_map(|entry| {
        let (key, rest) = entry.split_first_chunk::<16>()?;
        Some((*key, i64::from_le_bytes(rest.try_into().ok()?)))
    })
}

/// Appends a record to `segment`, which begins at the offset `base` of a file with this salt.
///
/// # Errors
/// The body, which is in two parts, is too long.
pub(super) fn append(
    segment: &mut Vec<u8>,
    base: u64,
    salt: u64,
    kind: Kind,
    body: [&[u8]; 2],
) -> Result<Span, TooLong> {
    let length = body[0].len() + body[1].len();
    let at = base + segment.len() as u64;
    let padded = (HEADER + length).next_multiple_of(ALIGN);
    let span = Span {
        at: u32::try_from(at).map_err(|_| TooLong)?,
        length: u32::try_from(padded).map_err(|_| TooLong)?,
    };
    if length > MOST_BODY {
        return Err(TooLong);
    }
    let end = segment.len() + padded;
    let mut header = [0; 12];
    header[..4].copy_from_slice(&kind.letters());
    let written = u32::try_from(length).map_err(|_| TooLong)?;
    header[4..8].copy_from_slice(&written.to_le_bytes());
    let body_sum = crc32c::crc32c_append(crc32c::crc32c(body[0]), body[1]);
    header[8..].copy_from_slice(&body_sum.to_le_bytes());
    segment.extend_from_slice(&header);
    segment.extend_from_slice(&header_sum(salt, at, &header).to_le_bytes());
    segment.extend_from_slice(body[0]);
    segment.extend_from_slice(body[1]);
    segment.resize(end, 0);
    Ok(span)
}

fn header_sum(salt: u64, at: u64, header: &[u8; 12]) -> u32 {
    let sum = crc32c::crc32c(&salt.to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &at.to_le_bytes());
    crc32c::crc32c_append(sum, header)
}

/// Finds the records of a segment. What is damaged is passed over.
pub(super) struct Reader<'a> {
    segment: &'a [u8],
    salt: u64,
    /// The next byte to look at.
    pub(super) at: usize,
    /// Bytes that belong to no record, and are not zero.
    pub(super) damaged: usize,
}

impl<'a> Reader<'a> {
    /// Reads a whole segment, or what is there of it.
    pub(super) fn new(segment: &'a [u8], salt: u64) -> Self {
        Self {
            segment,
            salt,
            at: 0,
            damaged: 0,
        }
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = (Span, Record<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.segment.len() {
            if let Some((span, record)) = record_at(self.segment, self.salt, self.at) {
                self.at += span.length as usize;
                return Some((span, record));
            }
            let end = self.segment.len().min(self.at + ALIGN);
            let passed = self.segment.get(self.at..end).unwrap_or_default();
            self.damaged += passed.iter().filter(|byte| **byte != 0).count();
            self.at = end;
        }
        None
    }
}

/// The record that begins at this offset of a segment, if a whole one does.
pub(super) fn record_at(segment: &[u8], salt: u64, at: usize) -> Option<(Span, Record<'_>)> {
    let (offset, rest) = (at as u64, segment.get(at..)?);
    parse(rest, salt, offset)
}

/// The record in `bytes`, which are at `offset` of a segment with this salt.
pub(super) fn parse(bytes: &[u8], salt: u64, offset: u64) -> Option<(Span, Record<'_>)> {
    let (header, rest) = bytes.split_first_chunk::<12>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let letters = header.first_chunk::<4>()?;
    let (kind, _) = KINDS.iter().find(|(_, of)| of == letters)?;
    if u32::from_le_bytes(*sum) != header_sum(salt, offset, header) {
        return None;
    }
    let length = u32::from_le_bytes(*header.get(4..)?.first_chunk()?) as usize;
    let body = rest.get(..length)?;
    let body_sum = u32::from_le_bytes(*header.get(8..)?.first_chunk()?);
    let padded = (HEADER + length).next_multiple_of(ALIGN);
    if crc32c::crc32c(body) != body_sum || bytes.len() < padded {
        return None;
    }
    let span = Span {
        at: u32::try_from(offset).ok()?,
        length: u32::try_from(padded).ok()?,
    };
    Some((span, content(*kind, body)?))
}

fn content(kind: Kind, body: &[u8]) -> Option<Record<'_>> {
    Some(match kind {
        Kind::Bundle => {
            let (known, data) = known(body)?;
            Record::Bundle(known, data)
        }
        Kind::Known => Record::Known(known(body)?.0),
        Kind::Gone => Record::Gone(body),
        Kind::Data | Kind::Status | Kind::Unused => {
            let (number, rest) = body.split_first_chunk()?;
            let number = u64::from_le_bytes(*number);
            match kind {
                Kind::Data => Record::Data(number, rest),
                Kind::Status => Record::Status(number, std::str::from_utf8(rest).ok()?),
                _ => Record::Unused(number),
            }
        }
    })
}

fn known(body: &[u8]) -> Option<(Known<'_>, &[u8])> {
    let (number, rest) = body.split_first_chunk()?;
    let (key, rest) = rest.split_first_chunk()?;
    let (expiry, rest) = rest.split_first_chunk()?;
    let (received, rest) = rest.split_first_chunk()?;
    let (&is_in_file, rest) = rest.split_first()?;
    let (status, rest) = rest.split_first_chunk()?;
    let (bundle, rest) = rest.split_first_chunk()?;
    let (status, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*status)))?;
    let (bundle, rest) = rest.split_at_checked(u32::from_le_bytes(*bundle) as usize)?;
    let known = Known {
        number: u64::from_le_bytes(*number),
        key: *key,
        expiry: i64::from_le_bytes(*expiry),
        received: i64::from_le_bytes(*received),
        is_in_file: is_in_file != 0,
        status: std::str::from_utf8(status).ok()?,
        bundle,
    };
    Some((known, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> (Vec<u8>, Vec<Span>) {
        let known = Known {
            number: 7,
            key: [3; 16],
            expiry: -1,
            received: 5,
            is_in_file: false,
            status: "\"New\"",
            bundle: b"{}",
        };
        let mut segment = Vec::new();
        let body = known.body().unwrap();
        let parts: [(Kind, [&[u8]; 2]); 3] = [
            (Kind::Bundle, [&body, b"payload"]),
            (Kind::Status, [&7_u64.to_le_bytes(), b"\"Waiting\""]),
            (Kind::Gone, [&[9; GONE], &[]]),
        ];
        let spans = parts.map(|(kind, body)| append(&mut segment, 0, 11, kind, body).unwrap());
        (segment, spans.to_vec())
    }

    #[test]
    fn records_are_found_as_they_were_written_and_only_where() {
        let (segment, spans) = segment();
        let mut reader = Reader::new(&segment, 11);
        let found: Vec<_> = reader.by_ref().collect();
        assert_eq!(
            found.iter().map(|(span, _)| *span).collect::<Vec<_>>(),
            spans
        );
        let Record::Bundle(known, data) = found[0].1 else {
            panic!("{found:?}");
        };
        assert_eq!((known.number, known.expiry, data), (7, -1, &b"payload"[..]));
        assert_eq!(found[1].1, Record::Status(7, "\"Waiting\""));
        assert_eq!(reader.damaged, 0);
        // Of another segment, or elsewhere in it.
        assert_eq!(Reader::new(&segment, 12).count(), 0);
        let moved = [&[0; 8], &segment[..]].concat();
        assert_eq!(Reader::new(&moved, 11).count(), 0);
    }

    #[test]
    fn any_damage_costs_the_records_that_it_hits_and_no_other() {
        let (segment, spans) = segment();
        for at in 0..segment.len() {
            let mut damaged = segment.clone();
            damaged[at] ^= 0x40;
            let found: Vec<_> = Reader::new(&damaged, 11).map(|(span, _)| span).collect();
            let hit = |span: &Span| (span.at..span.at + span.length).contains(&(at as u32));
            for span in &spans {
                // Padding is not covered by a checksum, and holds nothing.
                assert!(found.contains(span) || hit(span), "byte {at}: {found:?}");
            }
            let whole: Vec<_> = Reader::new(&segment[..at], 11).collect();
            let fits = |span: &&Span| (span.at + span.length) as usize <= at;
            assert_eq!(whole.len(), spans.iter().filter(fits).count());
        }
    }
}
