//! What a bundle between gateways holds: a part of a byte stream, or datagrams. The format is described in `docs/wire.md`.

use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};

const VERSION: u8 = 1;
/// Longest header of a flow in bytes.
pub const MOST_HEADER: usize = 1024;
/// Greatest position in a stream, or number of a batch: sums with lengths cannot overflow.
pub(super) const MOST_POSITION: u64 = 1 << 60;
/// Longest lifetime in seconds: ten years.
const MOST_LIFETIME_S: u32 = 315_576_000;
/// Bytes of datagrams in a bundle, with their lengths; a single datagram may be larger.
pub(super) const BATCH_BYTES: usize = 64 << 10;
/// Datagrams in a bundle: each costs memory, even without bytes.
pub(super) const BATCH_DATAGRAMS: usize = 512;
/// Bytes of a message before what depends on its kind.
const FIXED: usize = 2 + 3 * 8 + 4 + 8;

const FROM_ACCEPTER: u8 = 1;
const DATAGRAMS: u8 = 1 << 1;
const HEADER: u8 = 1 << 2;
const FINISHED: u8 = 1 << 3;
const RESET: u8 = 1 << 4;
const ASKS: u8 = 1 << 5;
const ORDERED: u8 = 1 << 6;
const AGAIN: u8 = 1 << 7;

/// The payload of a bundle between gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The life of the gateway that opened the flow: a number that it draws when it starts.
    pub opener: u64,
    /// The flow's number among those that this life opened.
    pub number: u64,
    /// The life of the other gateway; 0 as long as the opener does not know it.
    pub accepter: u64,
    /// Whether the other gateway sent it, not the opener.
    pub from_accepter: bool,
    /// How long bundles of the flow live: what has not come by then never comes. Whole seconds.
    pub lifetime: Duration,
    /// What the opener says of the flow at its beginning, and with all datagrams.
    pub header: Option<Bytes>,
    /// A part of a stream, or datagrams.
    pub body: Body,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A part of a byte stream.
    Part(Part),
    /// Datagrams of a flow.
    Batch(Batch),
}

/// A part of a byte stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Place of the data in the stream.
    pub offset: u64,
    /// The sender takes bytes of the other direction below this place.
    pub credit: u64,
    /// The data; may be empty.
    pub data: Bytes,
    /// Nothing follows the data.
    pub is_last: bool,
    /// The stream has broken off, for this reason.
    pub reset: Option<u32>,
    /// An answer is wanted, to know that the other side still has the stream.
    pub asks: bool,
}

/// Datagrams that travel together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The batch's number in its direction.
    pub number: u64,
    /// Whether batches are delivered in the order of their numbers.
    pub is_ordered: bool,
    /// Whether it may have been sent before: the bundle node did not say.
    pub is_again: bool,
    /// In the order in which they came.
    pub datagrams: Vec<Bytes>,
}

/// A payload that is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMessage {
    /// It is cut off, or has what cannot be.
    #[error("the bundle holds no message between gateways")]
    Malformed,
    /// A newer or older gateway sent it.
    #[error(
        "the far gateway sends version {0} of messages in bundles, this one knows version 1: update the older one"
    )]
    Version(u8),
}

/// Bytes that a datagram takes in a message.
pub(super) const fn room_of(datagram: &Bytes) -> usize {
    2 + datagram.len()
}

/// Marks an encoded batch of datagrams as one that may have been sent before.
pub(super) fn mark_again(message: &mut [u8]) {
    if let Some(flags) = message.get_mut(1).filter(|flags| **flags & DATAGRAMS != 0) {
        *flags |= AGAIN;
    }
}

impl Message {
    /// The bytes of the message. Datagrams above 65 535 bytes and headers above [`MOST_HEADER`] do not occur.
    pub fn encode(&self) -> Vec<u8> {
        let mut flags = if self.from_accepter { FROM_ACCEPTER } else { 0 };
        flags |= if self.header.is_some() { HEADER } else { 0 };
        let position = match &self.body {
            Body::Part(part) => {
                for (is_set, flag) in [
                    (part.is_last, FINISHED),
                    (part.reset.is_some(), RESET),
                    (part.asks, ASKS),
                ] {
                    flags |= if is_set { flag } else { 0 };
                }
                part.offset
            }
            Body::Batch(batch) => {
                flags |= DATAGRAMS;
                for (is_set, flag) in [(batch.is_ordered, ORDERED), (batch.is_again, AGAIN)] {
                    flags |= if is_set { flag } else { 0 };
                }
                batch.number
            }
        };
        let mut out = Vec::with_capacity(FIXED + 64);
        out.put_u8(VERSION);
        out.put_u8(flags);
        out.put_u64(self.opener);
        out.put_u64(self.number);
        out.put_u64(self.accepter);
        let seconds = u32::try_from(self.lifetime.as_secs()).unwrap_or(MOST_LIFETIME_S);
        out.put_u32(seconds.clamp(1, MOST_LIFETIME_S));
        out.put_u64(position);
        if let Body::Part(part) = &self.body {
            out.put_u64(part.credit);
            if let Some(code) = part.reset {
                out.put_u32(code);
            }
        }
        if let Some(header) = &self.header {
            put(&mut out, header);
        }
        match &self.body {
            Body::Part(part) => out.put_slice(&part.data),
            Body::Batch(batch) => batch
                .datagrams
                .iter()
                .for_each(|datagram| put(&mut out, datagram)),
        }
        out
    }

    /// Reads a payload; its parts share the payload's memory.
    ///
    /// # Errors
    /// [`NoMessage`].
    pub fn parse(mut from: Bytes) -> Result<Self, NoMessage> {
        let malformed = NoMessage::Malformed;
        if from.first().is_some_and(|version| *version != VERSION) {
            return Err(NoMessage::Version(from.get_u8()));
        }
        if from.len() < FIXED {
            return Err(malformed);
        }
        from.advance(1);
        let flags = from.get_u8();
        let has = |flag| flags & flag != 0;
        let (opener, number, accepter) = (from.get_u64(), from.get_u64(), from.get_u64());
        let seconds = from.get_u32();
        let position = from.get_u64();
        let impossible = [
            !(1..=MOST_LIFETIME_S).contains(&seconds),
            position > MOST_POSITION,
            opener == 0 || number > MOST_POSITION,
            has(FROM_ACCEPTER) && (has(HEADER) || accepter == 0),
        ];
        if impossible.contains(&true) {
            return Err(malformed);
        }
        let read = match has(DATAGRAMS) {
            true => read_batch(from, flags, position),
            false => read_part(from, flags, position),
        };
        let (header, body) = read.ok_or(malformed)?;
        Ok(Self {
            opener,
            number,
            accepter,
            from_accepter: has(FROM_ACCEPTER),
            lifetime: Duration::from_secs(seconds.into()),
            header,
            body,
        })
    }
}

fn read_part(mut from: Bytes, flags: u8, offset: u64) -> Option<(Option<Bytes>, Body)> {
    let has = |flag| flags & flag != 0;
    let credit = from.try_get_u64().ok()?;
    let reset = match has(RESET) {
        true => Some(from.try_get_u32().ok()?),
        false => None,
    };
    let header = read_header(&mut from, has(HEADER))?;
    // A header stands at the beginning.
    let is_wrong = has(ORDERED) || has(AGAIN) || credit > MOST_POSITION;
    let is_wrong = is_wrong || header.is_some() && offset > 0;
    let part = Part {
        offset,
        credit,
        data: from,
        is_last: has(FINISHED),
        reset,
        asks: has(ASKS),
    };
    (!is_wrong).then_some((header, Body::Part(part)))
}

fn read_batch(mut from: Bytes, flags: u8, number: u64) -> Option<(Option<Bytes>, Body)> {
    let has = |flag| flags & flag != 0;
    let header = read_header(&mut from, has(HEADER))?;
    let bytes = from.len();
    let mut datagrams = Vec::new();
    while !from.is_empty() && datagrams.len() < BATCH_DATAGRAMS {
        datagrams.push(get(&mut from)?);
    }
    if !from.is_empty() || bytes > BATCH_BYTES && datagrams.len() > 1 {
        return None;
    }
    // The far gateway may have restarted: it needs the header with each.
    let is_wrong = has(FINISHED) || has(RESET) || has(ASKS) || datagrams.is_empty();
    let is_wrong = is_wrong || header.is_none() != has(FROM_ACCEPTER);
    let batch = Batch {
        number,
        is_ordered: has(ORDERED),
        is_again: has(AGAIN),
        datagrams,
    };
    (!is_wrong).then_some((header, Body::Batch(batch)))
}

fn read_header(from: &mut Bytes, is_there: bool) -> Option<Option<Bytes>> {
    if !is_there {
        return Some(None);
    }
    let header = get(from)?;
    (header.len() <= MOST_HEADER).then_some(Some(header))
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.put_u16(length);
    out.put_slice(bytes.get(..length.into()).unwrap_or(bytes));
}

fn get(from: &mut Bytes) -> Option<Bytes> {
    let length = usize::from(from.try_get_u16().ok()?);
    (length <= from.len()).then(|| from.split_to(length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(body: Body) -> Message {
        Message {
            opener: 0x0102_0304_0506_0708,
            number: 9,
            accepter: 0,
            from_accepter: false,
            lifetime: Duration::from_secs(3600),
            header: Some(Bytes::from_static(b"to")),
            body,
        }
    }

    #[test]
    fn messages_keep_their_form_on_the_wire() {
        let part = message(Body::Part(Part {
            offset: 0,
            credit: 1 << 22,
            data: Bytes::from_static(b"hello"),
            is_last: true,
            reset: None,
            asks: true,
        }));
        let mut reset = part.clone();
        reset.header = None;
        (reset.from_accepter, reset.accepter) = (true, 7);
        reset.body = Body::Part(Part {
            reset: Some(2),
            ..Part::default()
        });
        let batch = message(Body::Batch(Batch {
            number: 5,
            is_ordered: true,
            is_again: true,
            datagrams: vec![Bytes::from_static(b"a"), Bytes::new()],
        }));
        let fixed = |flags: u8, accepter: u8, position: u8| {
            let mut bytes = vec![1, flags, 1, 2, 3, 4, 5, 6, 7, 8];
            bytes.extend([0, 0, 0, 0, 0, 0, 0, 9]);
            bytes.extend([0, 0, 0, 0, 0, 0, 0, accepter]);
            bytes.extend([0, 0, 0x0e, 0x10]);
            bytes.extend([0, 0, 0, 0, 0, 0, 0, position]);
            bytes
        };
        let credit = [0, 0, 0, 0, 0, 0x40, 0, 0];
        for (message, bytes) in [
            (
                part,
                [&fixed(0b0010_1100, 0, 0), &credit[..], b"\0\x02tohello"].concat(),
            ),
            (
                reset,
                [&fixed(0b0001_0001, 7, 0), &[0; 8][..], &[0, 0, 0, 2]].concat(),
            ),
            (
                batch,
                [&fixed(0b1100_0110, 0, 5), &b"\0\x02to\0\x01a\0\0"[..]].concat(),
            ),
        ] {
            assert_eq!(message.encode(), bytes);
            assert_eq!(Message::parse(bytes.into()), Ok(message));
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let whole = message(Body::Batch(Batch {
            datagrams: vec![Bytes::from_static(b"a")],
            ..Batch::default()
        }));
        let bytes = whole.encode();
        for length in 0..bytes.len() {
            let cut = Message::parse(Bytes::copy_from_slice(&bytes[..length]));
            assert_eq!(cut, Err(NoMessage::Malformed), "{length} bytes");
        }
        let mut other = bytes;
        other[0] = 2;
        let error = Message::parse(other.into()).unwrap_err();
        assert!(error.to_string().contains("version 2"), "{error}");
    }

    #[test]
    fn batches_above_what_a_gateway_sends_are_refused() {
        let parse = |datagrams: Vec<Bytes>| {
            let batch = Batch {
                datagrams,
                ..Batch::default()
            };
            Message::parse(message(Body::Batch(batch)).encode().into()).is_ok()
        };
        let of = |bytes: usize| Bytes::from(vec![1; bytes]);
        assert!(parse(vec![of(65_535)]), "a large one alone");
        assert!(parse(vec![of(32_766), of(32_766)]));
        assert!(!parse(vec![of(32_766), of(32_767)]));
        assert!(!parse(vec![of(65_535), of(0)]));
        assert!(parse(vec![of(0); BATCH_DATAGRAMS]));
        assert!(!parse(vec![of(0); BATCH_DATAGRAMS + 1]));
    }

    #[test]
    fn only_datagrams_are_marked_as_sent_again() {
        let mut batch = message(Body::Batch(Batch {
            datagrams: vec![Bytes::from_static(b"a")],
            ..Batch::default()
        }))
        .encode();
        mark_again(&mut batch);
        let Body::Batch(marked) = Message::parse(batch.into()).unwrap().body else {
            panic!("no batch");
        };
        assert!(marked.is_again);
        let mut part = message(Body::Part(Part::default())).encode();
        let before = part.clone();
        mark_again(&mut part);
        assert_eq!(part, before);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut bytes = bytes;
            if let Some(version) = bytes.first_mut() {
                *version = VERSION;
            }
            let bytes = Bytes::from(bytes);
            if let Ok(message) = Message::parse(bytes.clone()) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}
