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

use starhaul_ltp::{combined_checksum, rest_checksum};

use crate::{bundle_log::Key, sums};

/// Bytes of a header.
const HEADER: usize = 16;
/// The greatest body.
pub(super) const MOST_BODY: usize = 16 << 20;
/// Bytes from which [`start`] reads.
pub(super) const START: usize = HEADER + 8;
const ALIGN: usize = 8;
/// Numbers at the beginning of [`Known`].
const KNOWN: usize = 8 + 16 + 8 + 8 + 1 + 2 + 4;
/// A removed bundle in a record of such.
pub(super) const GONE: usize = 16 + 8 + 8;

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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
    /// The same without their numbers, as the first version wrote it: it is only read.
    GoneUnnumbered,
    /// Data that are needed no more, or a bundle that was refused.
    Unused,
}

const KINDS: [(Kind, [u8; 4]); 7] = [
    (Kind::Bundle, *b"bndl"),
    (Kind::Known, *b"know"),
    (Kind::Data, *b"data"),
    (Kind::Status, *b"stat"),
    (Kind::Gone, *b"dead"),
    (Kind::GoneUnnumbered, *b"gone"),
    (Kind::Unused, *b"free"),
];

/// Where a record is in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first byte of the header.
    pub at: u32,
    /// Bytes with header and padding.
    pub length: u32,
}

/// What is known of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known<'a> {
    /// Names it within the log.
    pub number: u64,
    /// Stands for its identity.
    pub key: Key,
    /// Milliseconds since 1970.
    pub expiry: i64,
    /// Nanoseconds since 1970.
    pub received: i64,
    /// Whether its data are in a file of their own.
    pub is_in_file: bool,
    /// The agent's status of the bundle, as JSON.
    pub status: &'a str,
    /// All else that the agent knows of it, as JSON.
    pub bundle: &'a [u8],
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A bundle that was taken ([`Kind::Bundle`]): what is known of it, and its data.
    Bundle(Known<'a>, &'a [u8]),
    /// What is known of a bundle from now on ([`Kind::Known`]).
    Known(Known<'a>),
    /// The number of a bundle and its data ([`Kind::Data`]).
    Data(u64, &'a [u8]),
    /// The number of a bundle and its status, as JSON ([`Kind::Status`]).
    Status(u64, &'a str),
    /// Removed bundles, one behind the other ([`Kind::Gone`]).
    Gone(&'a [u8]),
    /// Removed bundles without their numbers ([`Kind::GoneUnnumbered`]).
    GoneUnnumbered(&'a [u8]),
    /// The number of data that are needed no more ([`Kind::Unused`]).
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
    pub fn body(&self) -> Result<Vec<u8>, TooLong> {
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

impl<'a> Record<'a> {
    /// What is known of a bundle, if that is in it.
    pub fn known(&self) -> Option<&Known<'a>> {
        match self {
            Self::Bundle(known, _) | Self::Known(known) => Some(known),
            _ => None,
        }
    }

    /// The bundles that are gone, if it tells of such.
    pub(super) fn gone(&self) -> impl Iterator<Item = Gone> + use<'a> {
        let (body, entry) = match *self {
            Self::Gone(body) => (body, GONE),
            Self::GoneUnnumbered(body) => (body, GONE - 8),
            _ => (&[][..], GONE),
        };
        body.chunks_exact(entry).filter_map(move |entry| {
            let (key, rest) = entry.split_first_chunk()?;
            let expiry = rest.last_chunk()?;
            let number = rest.first_chunk().filter(|_| rest.len() > 8);
            Some(Gone {
                key: *key,
                number: number.map_or(0, |number| u64::from_le_bytes(*number)),
                expiry: i64::from_le_bytes(*expiry),
            })
        })
    }

    /// The data of a bundle, if they are in it.
    pub fn data(&self) -> Option<&'a [u8]> {
        match self {
            Self::Bundle(_, data) | Self::Data(_, data) => Some(data),
            _ => None,
        }
    }
}

/// More than a record may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what is known of the bundle is longer than a record of the log may be")]
pub struct TooLong;

/// A bundle that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone {
    pub(super) key: Key,
    /// The number that it had; 0 if it never was in this log. One of another number was taken after this had been forgotten.
    pub(super) number: u64,
    /// Milliseconds since 1970 at which its lifetime ends.
    pub(super) expiry: i64,
}

impl Gone {
    /// An entry of [`Record::Gone`].
    pub(super) fn entry(&self) -> [u8; GONE] {
        let mut entry = [0; GONE];
        let (number, expiry) = (self.number.to_le_bytes(), self.expiry.to_le_bytes());
        let all = self.key.iter().chain(&number).chain(&expiry);
        entry.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
        entry
    }
}

/// Appends a record to `segment`, which begins at the offset `base` of a file with this salt.
///
/// # Errors
/// The body, which is in two parts, is too long.
pub fn append(
    segment: &mut Vec<u8>,
    base: u64,
    salt: u64,
    kind: Kind,
    body: [&[u8]; 2],
) -> Result<Span, TooLong> {
    let start = segment.len();
    let span = begin(segment, base + start as u64, salt, kind, body)?;
    segment.extend_from_slice(body[1]);
    segment.resize(start + span.length as usize, 0);
    Ok(span)
}

/// Appends the beginning of a record that is to stand at the offset `at`: its header and the first part of its body. The second
/// part is to follow, and zeros up to its length.
pub(super) fn begin(
    segment: &mut Vec<u8>,
    at: u64,
    salt: u64,
    kind: Kind,
    body: [&[u8]; 2],
) -> Result<Span, TooLong> {
    let length = body[0].len() + body[1].len();
    let padded = (HEADER + length).next_multiple_of(ALIGN);
    let span = Span {
        at: u32::try_from(at).map_err(|_| TooLong)?,
        length: u32::try_from(padded).map_err(|_| TooLong)?,
    };
    if length > MOST_BODY {
        return Err(TooLong);
    }
    let written = u32::try_from(length).map_err(|_| TooLong)?;
    let head_sum = crc32c::crc32c(body[0]);
    let body_sum = match sums::of(body[1]) {
        // As the data were when they came or were made.
        Some(sum) => combined_checksum(head_sum, sum, body[1].len() as u64),
        None => crc32c::crc32c_append(head_sum, body[1]),
    };
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&kind.letters());
    header[4..8].copy_from_slice(&written.to_le_bytes());
    header[8..12].copy_from_slice(&body_sum.to_le_bytes());
    let sum = header_sum(salt, at, &header);
    header[12..].copy_from_slice(&sum.to_le_bytes());
    segment.extend_from_slice(&header);
    segment.extend_from_slice(body[0]);
    Ok(span)
}

/// CRC32C of the log's salt, the place of a header, and all of the header but this sum itself.
fn header_sum(salt: u64, at: u64, header: &[u8; HEADER]) -> u32 {
    let sum = crc32c::crc32c(&salt.to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &at.to_le_bytes());
    crc32c::crc32c_append(sum, header.get(..HEADER - 4).unwrap_or_default())
}

/// Finds the records in a part of a segment. What is damaged is passed over.
pub struct Reader<'a> {
    part: &'a [u8],
    /// Where the part begins in the segment.
    base: u64,
    salt: u64,
    is_end: bool,
    /// The next byte of the part to look at. If more follows, a record that is not whole begins there.
    pub at: usize,
    /// Bytes that belong to no record, and are not zero.
    pub damaged: usize,
}

impl<'a> Reader<'a> {
    /// Reads what is at the offset `base` of a segment with this salt; `is_end` says that no more follows.
    pub fn new(part: &'a [u8], base: u64, salt: u64, is_end: bool) -> Self {
        Self {
            part,
            base,
            salt,
            is_end,
            at: 0,
            damaged: 0,
        }
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = (Span, Record<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(rest) = self.part.get(self.at..).filter(|rest| !rest.is_empty()) {
            match parse(rest, self.salt, self.base + self.at as u64) {
                Parsed::Record(span, record) => {
                    self.at += span.length as usize;
                    return Some((span, record));
                }
                Parsed::CutOff if !self.is_end => return None,
                Parsed::CutOff | Parsed::Nothing => {}
            }
            let passed = rest.get(..ALIGN).unwrap_or(rest);
            self.damaged += passed.iter().filter(|byte| **byte != 0).count();
            self.at += passed.len();
        }
        None
    }
}

/// What stands somewhere in a segment.
enum Parsed<'a> {
    Record(Span, Record<'a>),
    /// Perhaps a record that ends elsewhere.
    CutOff,
    Nothing,
}

/// The record at this offset of a segment with this salt, in as many bytes as it takes up.
pub(super) fn whole(bytes: &[u8], salt: u64, offset: u64) -> Option<Record<'_>> {
    match parse(bytes, salt, offset) {
        Parsed::Record(_, record) => Some(record),
        Parsed::CutOff | Parsed::Nothing => None,
    }
}

/// CRC32C of the last so many bytes of a record's body, if it is the one that the header tells, as of one that [`whole`] returns.
pub(super) fn sum_of_last(record: &[u8], bytes: usize) -> Option<u32> {
    let (header, rest) = record.split_first_chunk::<HEADER>()?;
    let [length, body_sum] = [4, 8].map(|at| number_at(header, at));
    let before = rest.get(..(length as usize).checked_sub(bytes)?)?;
    Some(rest_checksum(
        body_sum,
        crc32c::crc32c(before),
        bytes as u64,
    ))
}

/// The fields of a header.
struct Header {
    kind: Kind,
    /// Bytes of the body.
    length: usize,
    /// The same with the header and the padding.
    padded: usize,
    body_sum: u32,
}

fn header(header: &[u8; HEADER], salt: u64, offset: u64) -> Option<Header> {
    let [kind, length, body_sum, sum] = [0, 4, 8, 12].map(|at| number_at(header, at));
    let mut kinds = KINDS.iter();
    let (kind, _) = kinds.find(|(_, letters)| u32::from_le_bytes(*letters) == kind)?;
    let length = length as usize;
    let is_right = sum == header_sum(salt, offset, header) && length <= MOST_BODY;
    is_right.then_some(Header {
        kind: *kind,
        length,
        padded: (HEADER + length).next_multiple_of(ALIGN),
        body_sum,
    })
}

/// Bytes of the record whose header stands at this offset, and the number that its body begins with, if it is about one bundle. The
/// body may be damaged.
pub(super) fn start(bytes: &[u8], salt: u64, offset: u64) -> Option<(usize, Option<u64>)> {
    let (first, rest) = bytes.split_first_chunk()?;
    let found = header(first, salt, offset)?;
    let number = rest.first_chunk().copied().map(u64::from_le_bytes);
    let is_of_one = !matches!(found.kind, Kind::Gone | Kind::GoneUnnumbered);
    Some((found.padded, number.filter(|_| is_of_one)))
}

fn parse(bytes: &[u8], salt: u64, offset: u64) -> Parsed<'_> {
    let Some((first, rest)) = bytes.split_first_chunk::<HEADER>() else {
        return Parsed::CutOff;
    };
    let Some(Header {
        kind,
        length,
        padded,
        body_sum,
    }) = header(first, salt, offset)
    else {
        return Parsed::Nothing;
    };
    let Some(body) = rest.get(..length).filter(|_| bytes.len() >= padded) else {
        return Parsed::CutOff;
    };
    let span = u32::try_from(offset).ok().zip(u32::try_from(padded).ok());
    let content = content(kind, body).filter(|_| crc32c::crc32c(body) == body_sum);
    match span.zip(content) {
        Some(((at, length), record)) => Parsed::Record(Span { at, length }, record),
        None => Parsed::Nothing,
    }
}

fn number_at(header: &[u8; HEADER], at: usize) -> u32 {
    let bytes = header.get(at..).and_then(|rest| rest.first_chunk());
    bytes.copied().map_or(0, u32::from_le_bytes)
}

fn content(kind: Kind, body: &[u8]) -> Option<Record<'_>> {
    Some(match kind {
        Kind::Bundle => {
            let (known, data) = known(body)?;
            Record::Bundle(known, data)
        }
        Kind::Known => Record::Known(known(body)?.0),
        Kind::Gone => Record::Gone(body),
        Kind::GoneUnnumbered => Record::GoneUnnumbered(body),
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
    fn what_is_gone_is_read_with_its_number_and_as_it_was_written_without() {
        let gone = Gone {
            key: [9; 16],
            number: 5,
            expiry: -7,
        };
        let body = [gone.entry(), gone.entry()].concat();
        let read = |record: Record<'_>| record.gone().collect::<Vec<_>>();
        assert_eq!(read(Record::Gone(&body)), [gone, gone]);
        let former = [&gone.key[..], &gone.expiry.to_le_bytes()].concat();
        let expected = Gone { number: 0, ..gone };
        assert_eq!(read(Record::GoneUnnumbered(&former)), [expected]);
        assert_eq!(read(Record::Unused(1)), []);
    }

    #[test]
    fn records_are_found_as_they_were_written_and_only_where() {
        let (segment, spans) = segment();
        let mut reader = Reader::new(&segment, 0, 11, true);
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
        assert_eq!(Reader::new(&segment, 0, 12, true).count(), 0);
        assert_eq!(Reader::new(&segment, 8, 11, true).count(), 0);
    }

    #[test]
    fn data_of_which_the_checksum_is_known_make_the_record_that_others_make() {
        let data: Vec<u8> = (0..100_000_u32)
            .map(|at| (at % 251).to_le_bytes()[0])
            .collect();
        let written = |data: &[u8]| {
            let (mut segment, number) = (Vec::new(), 7_u64.to_le_bytes());
            append(&mut segment, 800, 11, Kind::Data, [&number, data]).unwrap();
            segment
        };
        let (expected, sum) = (written(&data), crc32c::crc32c(&data));
        let known = sums::note(data.clone().into(), sum);
        assert!(written(&known) == expected);
        assert_eq!(whole(&expected, 11, 800), Some(Record::Data(7, &data)));
        assert_eq!(sum_of_last(&expected, data.len()), Some(sum));
        // What has changed in memory since it came is noticed when it is read.
        let wrong = sums::note(data.into(), sum ^ 1);
        assert_eq!(whole(&written(&wrong), 11, 800), None);
    }

    #[test]
    fn any_damage_costs_the_records_that_it_hits_and_no_other() {
        let (segment, spans) = segment();
        for at in 0..segment.len() {
            let mut damaged = segment.clone();
            damaged[at] ^= 0x40;
            let found: Vec<_> = Reader::new(&damaged, 0, 11, true)
                .map(|(span, _)| span)
                .collect();
            let offset = u32::try_from(at).unwrap();
            let hit = |span: &Span| (span.at..span.at + span.length).contains(&offset);
            for span in &spans {
                // Padding is not covered by a checksum, and holds nothing.
                assert!(found.contains(span) || hit(span), "byte {at}: {found:?}");
            }
            let whole = Reader::new(&segment[..at], 0, 11, true).count();
            let fits = |span: &&Span| (span.at + span.length) as usize <= at;
            assert_eq!(whole, spans.iter().filter(fits).count());
        }
    }

    #[test]
    fn a_record_that_ends_in_the_next_part_is_left_to_it() {
        let (segment, spans) = segment();
        for cut in 0..segment.len() {
            let mut first = Reader::new(&segment[..cut], 0, 11, false);
            let mut found = first.by_ref().count();
            let at = first.at;
            found += Reader::new(&segment[at..], at as u64, 11, true).count();
            assert_eq!((found, first.damaged), (spans.len(), 0), "cut at {cut}");
        }
    }
}
