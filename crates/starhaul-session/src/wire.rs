//! Datagrams of a session: a fixed short header as in DMTP fig. 3, inside QUIC DATAGRAM frames.
//!
//! Every datagram opens with its type, its sequence number on the path, and the time of sending in microseconds of the
//! sender's clock (both wrap). Integers are big-endian. Datagrams of unknown type are ignored by the receiver.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{
    ranges::RangeSet,
    types::{BlockId, ProtocolError, StreamId},
};

/// Bytes before the payload of a fragment.
pub(crate) const FRAGMENT_HEADER_BYTES: usize = HEADER_BYTES + 19;
/// Bytes before the payload of a piece of a reliable stream.
pub(crate) const PIECE_HEADER_BYTES: usize = HEADER_BYTES + 13;
/// Most ranges reported for one path; older ones have been reported before.
const MAX_ACK_RANGES: usize = 32;
/// Most paths in one acknowledgement, as many as a session may have.
pub(crate) const MAX_ACK_PATHS: usize = 16;
/// Most completed blocks named in one acknowledgement.
pub(crate) const MAX_ACK_BLOCKS: usize = 24;

const HEADER_BYTES: usize = 9;
const FRAGMENT: u8 = 1;
const PIECE: u8 = 2;
const ACK: u8 = 3;
const PROBE: u8 = 4;

/// What every datagram begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sequence: u32,
    /// When it was sent, µs of the sender's clock.
    pub(crate) sent_micros: u32,
}

/// What a datagram carries.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    Fragment(Fragment),
    Piece(Piece),
    Ack(Ack),
    Probe,
    /// A type of a later version; its header still counts as heard.
    Unknown,
}

/// A part of a block, or redundancy for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) stream: StreamId,
    pub(crate) block: BlockId,
    /// When the application sent the block, µs of the sender's clock.
    pub(crate) born_micros: u32,
    /// Which of the block's codes, and how many there are less one.
    pub(crate) code: u8,
    pub(crate) last_code: u8,
    /// Index among data (below `data_count`) and redundancy fragments.
    pub(crate) index: u8,
    pub(crate) data_count: u8,
    pub(crate) redundancy_count: u8,
    /// Padding at the end of the code's data, below `data_count`.
    pub(crate) padding: u8,
    pub(crate) payload: Bytes,
}

/// A piece of a reliable stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) stream: StreamId,
    pub(crate) offset: u64,
    /// The stream ends after this piece.
    pub(crate) fin: bool,
    pub(crate) payload: Bytes,
}

/// What has arrived, for all paths at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) paths: Vec<PathAck>,
    pub(crate) blocks: Vec<BlockAck>,
}

/// What has arrived on one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathAck {
    pub(crate) path: u32,
    /// When the newest datagram of the first range arrived, µs of the acknowledging side's clock.
    pub(crate) received_micros: u32,
    /// (first, last), newest range first, as wire sequence numbers.
    pub(crate) ranges: Vec<(u32, u32)>,
}

/// A block that is complete at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockAck {
    pub(crate) stream: StreamId,
    pub(crate) block: BlockId,
    /// When it became complete, µs of the acknowledging side's clock.
    pub(crate) completed_micros: u32,
    pub(crate) recovered: bool,
}

impl PathAck {
    /// The newest ranges of `received`.
    pub(crate) fn new(path: u32, received_micros: u32, received: &RangeSet) -> Self {
        let ranges = received
            .iter_rev()
            .take(MAX_ACK_RANGES)
            .map(|(first, last)| (wrap(first), wrap(last)))
            .collect();
        Self {
            path,
            received_micros,
            ranges,
        }
    }
}

/// The low 32 bits, as sequence numbers and times travel.
#[expect(
    clippy::cast_possible_truncation,
    reason = "wrapping is what the wire format asks for"
)]
pub(crate) const fn wrap(value: u64) -> u32 {
    value as u32
}

/// The 64-bit value nearest to `near` whose low 32 bits are `wire` (serial arithmetic, RFC 1982).
pub(crate) const fn unwrap(wire: u32, near: u64) -> u64 {
    let delta = wire.wrapping_sub(wrap(near));
    #[expect(clippy::cast_possible_wrap, reason = "the sign is the direction")]
    let delta = delta as i32;
    let value = near.wrapping_add_signed(delta as i64);
    // Nothing was ever numbered or timed before zero.
    if delta < 0 && value > near {
        wire as u64
    } else {
        value
    }
}

impl Header {
    fn put(self, kind: u8, capacity: usize) -> BytesMut {
        let mut out = BytesMut::with_capacity(HEADER_BYTES + capacity);
        out.put_u8(kind);
        out.put_u32(self.sequence);
        out.put_u32(self.sent_micros);
        out
    }
}

impl Fragment {
    /// The datagram; `payload` is padded with zeros to `length`.
    pub(crate) fn encode(&self, header: Header, length: usize) -> Bytes {
        let mut out = header.put(FRAGMENT, FRAGMENT_HEADER_BYTES - HEADER_BYTES + length);
        out.put_u32(self.stream.0);
        out.put_u32(self.block.0);
        out.put_u32(self.born_micros);
        out.put_slice(&[
            self.code,
            self.last_code,
            self.index,
            self.data_count,
            self.redundancy_count,
            self.padding,
        ]);
        out.put_u8(0);
        out.put_slice(&self.payload);
        out.put_bytes(0, length.saturating_sub(self.payload.len()));
        out.freeze()
    }

    fn decode(body: &mut Bytes) -> Result<Self, ProtocolError> {
        const WHAT: ProtocolError = ProtocolError::Malformed("fragment");
        if body.len() <= FRAGMENT_HEADER_BYTES - HEADER_BYTES {
            return Err(WHAT);
        }
        let stream = StreamId(body.get_u32());
        let block = BlockId(body.get_u32());
        let born_micros = body.get_u32();
        let (code, last_code, index) = (body.get_u8(), body.get_u8(), body.get_u8());
        let (data_count, redundancy_count, padding) = (body.get_u8(), body.get_u8(), body.get_u8());
        let _reserved = body.get_u8();
        let total = u16::from(data_count) + u16::from(redundancy_count);
        let sane = data_count > 0
            && total <= 255
            && u16::from(index) < total
            && padding < data_count
            && code <= last_code;
        if !sane {
            return Err(WHAT);
        }
        let payload = std::mem::take(body);
        Ok(Self {
            stream,
            block,
            born_micros,
            code,
            last_code,
            index,
            data_count,
            redundancy_count,
            padding,
            payload,
        })
    }
}

impl Piece {
    /// The datagram with `data` gathered from the sender's buffer.
    pub(crate) fn encode<'a>(
        stream: StreamId,
        offset: u64,
        fin: bool,
        length: usize,
        data: impl Iterator<Item = &'a [u8]>,
        header: Header,
    ) -> Bytes {
        let mut out = header.put(PIECE, PIECE_HEADER_BYTES - HEADER_BYTES + length);
        out.put_u32(stream.0);
        out.put_u64(offset);
        out.put_u8(fin.into());
        data.for_each(|part| out.put_slice(part));
        out.freeze()
    }

    fn decode(body: &mut Bytes) -> Result<Self, ProtocolError> {
        const WHAT: ProtocolError = ProtocolError::Malformed("stream piece");
        if body.len() < PIECE_HEADER_BYTES - HEADER_BYTES {
            return Err(WHAT);
        }
        let (stream, offset, flags) = (StreamId(body.get_u32()), body.get_u64(), body.get_u8());
        let payload = std::mem::take(body);
        let length = u64::try_from(payload.len()).map_err(|_| WHAT)?;
        if flags > 1
            || offset
                .checked_add(length)
                .is_none_or(|end| end > MAX_STREAM_BYTES)
        {
            return Err(WHAT);
        }
        Ok(Self {
            stream,
            offset,
            fin: flags == 1,
            payload,
        })
    }
}

/// Most bytes one reliable stream may ever carry; keeps offset arithmetic far from overflow.
pub(crate) const MAX_STREAM_BYTES: u64 = 1 << 62;

impl Ack {
    /// Leaves out the oldest ranges, of the path with most first, until the datagram has at most `capacity` bytes.
    pub(crate) fn fit(&mut self, capacity: usize) {
        while self.datagram_bytes() > capacity {
            let several = self.paths.iter_mut().filter(|path| path.ranges.len() > 1);
            let Some(longest) = several.max_by_key(|path| path.ranges.len()) else {
                return;
            };
            longest.ranges.pop();
        }
    }

    fn datagram_bytes(&self) -> usize {
        let path_bytes = |path: &PathAck| {
            let distances = path.ranges.windows(2).map(|pair| match *pair {
                [(newer, _), (_, last)] => distance_bytes(newer.wrapping_sub(last)),
                _ => 0,
            });
            let lengths = path
                .ranges
                .iter()
                .map(|&(first, last)| distance_bytes(last.wrapping_sub(first)));
            9 + 4 + distances.chain(lengths).sum::<usize>()
        };
        let paths: usize = self.paths.iter().map(path_bytes).sum();
        HEADER_BYTES + 2 + paths + 13 * self.blocks.len()
    }

    pub(crate) fn encode(&self, header: Header) -> Bytes {
        let mut out = header.put(ACK, 512);
        out.put_u8(count(self.paths.len()));
        for path in &self.paths {
            out.put_u32(path.path);
            out.put_u32(path.received_micros);
            out.put_u8(count(path.ranges.len()));
            let mut previous: Option<u32> = None;
            for &(first, last) in &path.ranges {
                match previous {
                    None => out.put_u32(last),
                    Some(previous) => put_distance(&mut out, previous.wrapping_sub(last)),
                }
                put_distance(&mut out, last.wrapping_sub(first));
                previous = Some(first);
            }
        }
        out.put_u8(count(self.blocks.len()));
        for block in &self.blocks {
            out.put_u32(block.stream.0);
            out.put_u32(block.block.0);
            out.put_u32(block.completed_micros);
            out.put_u8(block.recovered.into());
        }
        out.freeze()
    }

    fn decode(body: &mut Bytes) -> Result<Self, ProtocolError> {
        let short = |_| ProtocolError::Malformed("acknowledgement");
        let mut ack = Self::default();
        for _ in 0..body.try_get_u8().map_err(short)? {
            let path = body.try_get_u32().map_err(short)?;
            let received_micros = body.try_get_u32().map_err(short)?;
            let mut ranges = Vec::new();
            let mut previous: Option<u32> = None;
            for _ in 0..body.try_get_u8().map_err(short)? {
                let last = match previous {
                    None => body.try_get_u32().map_err(short)?,
                    Some(previous) => previous.wrapping_sub(try_get_distance(body)?),
                };
                let first = last.wrapping_sub(try_get_distance(body)?);
                ranges.push((first, last));
                previous = Some(first);
            }
            ack.paths.push(PathAck {
                path,
                received_micros,
                ranges,
            });
        }
        for _ in 0..body.try_get_u8().map_err(short)? {
            ack.blocks.push(BlockAck {
                stream: StreamId(body.try_get_u32().map_err(short)?),
                block: BlockId(body.try_get_u32().map_err(short)?),
                completed_micros: body.try_get_u32().map_err(short)?,
                recovered: body.try_get_u8().map_err(short)? != 0,
            });
        }
        Ok(ack)
    }
}

/// A probe of `length` payload bytes.
pub(crate) fn encode_probe(header: Header) -> Bytes {
    header.put(PROBE, 0).freeze()
}

/// Splits a datagram into its header and body.
pub(crate) fn decode(mut datagram: Bytes) -> Result<(Header, Body), ProtocolError> {
    if datagram.len() < HEADER_BYTES {
        return Err(ProtocolError::Malformed("datagram"));
    }
    let kind = datagram.get_u8();
    let header = Header {
        sequence: datagram.get_u32(),
        sent_micros: datagram.get_u32(),
    };
    let body = match kind {
        FRAGMENT => Body::Fragment(Fragment::decode(&mut datagram)?),
        PIECE => Body::Piece(Piece::decode(&mut datagram)?),
        ACK => Body::Ack(Ack::decode(&mut datagram)?),
        PROBE => Body::Probe,
        _ => Body::Unknown,
    };
    Ok((header, body))
}

/// Counts on the wire are bytes; every list is bounded below 256 where it is made.
fn count(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}

const fn distance_bytes(distance: u32) -> usize {
    if distance < u8::MAX as u32 { 1 } else { 5 }
}

/// One byte below 255, else a marker and four bytes.
fn put_distance(out: &mut BytesMut, distance: u32) {
    match u8::try_from(distance) {
        Ok(small) if small < u8::MAX => out.put_u8(small),
        _ => {
            out.put_u8(u8::MAX);
            out.put_u32(distance);
        }
    }
}

fn try_get_distance(body: &mut Bytes) -> Result<u32, ProtocolError> {
    let short = |_| ProtocolError::Malformed("acknowledgement range");
    match body.try_get_u8().map_err(short)? {
        u8::MAX => body.try_get_u32().map_err(short),
        small => Ok(small.into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: Header = Header {
        sequence: u32::MAX,
        sent_micros: 7,
    };

    #[test]
    fn serial_numbers_unwrap_to_the_nearest_value() {
        assert_eq!(unwrap(5, 0x1_0000_0000), 0x1_0000_0005);
        assert_eq!(unwrap(u32::MAX, 0x1_0000_0000), 0xffff_ffff);
        assert_eq!(
            unwrap(u32::MAX, 3),
            u64::from(u32::MAX),
            "nothing lies before zero"
        );
        assert_eq!(unwrap(2, 0xffff_fffe), 0x1_0000_0002);
    }

    #[test]
    fn what_is_sent_is_what_is_read() {
        let fragment = Fragment {
            stream: StreamId(9),
            block: BlockId(u32::MAX),
            born_micros: 1,
            code: 2,
            last_code: 3,
            index: 254,
            data_count: 200,
            redundancy_count: 55,
            padding: 199,
            payload: Bytes::from_static(b"abc"),
        };
        let padded = Fragment {
            payload: Bytes::from_static(b"abc\0\0"),
            ..fragment.clone()
        };
        assert_eq!(
            decode(fragment.encode(HEADER, 5)),
            Ok((HEADER, Body::Fragment(padded)))
        );

        let piece = Piece {
            stream: StreamId(0),
            offset: 1 << 40,
            fin: true,
            payload: Bytes::from_static(b"hello"),
        };
        let parts: [&[u8]; 2] = [b"he", b"llo"];
        let bytes = Piece::encode(
            piece.stream,
            piece.offset,
            true,
            5,
            parts.into_iter(),
            HEADER,
        );
        assert_eq!(decode(bytes), Ok((HEADER, Body::Piece(piece))));

        let ack = Ack {
            paths: vec![PathAck {
                path: 3,
                received_micros: 99,
                ranges: vec![(2, 4), (4_294_966_000, 4_294_967_290)],
            }],
            blocks: vec![BlockAck {
                stream: StreamId(1),
                block: BlockId(2),
                completed_micros: 3,
                recovered: true,
            }],
        };
        assert_eq!(decode(ack.encode(HEADER)), Ok((HEADER, Body::Ack(ack))));
        assert_eq!(decode(encode_probe(HEADER)), Ok((HEADER, Body::Probe)));
    }

    #[test]
    fn an_acknowledgement_of_many_gaps_leaves_out_the_oldest_to_fit() {
        let path = |path: u32, step: u32| {
            let newest = |range| 1_000_000 - range * step;
            let ranges = (0..32).map(|range| (newest(range) - 300, newest(range)));
            PathAck {
                path,
                received_micros: 9,
                ranges: ranges.collect(),
            }
        };
        let whole = Ack {
            paths: (0..5).map(|id| path(id, 310 + 300 * (id % 2))).collect(),
            blocks: Vec::new(),
        };
        assert_eq!(whole.datagram_bytes(), whole.encode(HEADER).len());
        assert!(whole.datagram_bytes() > 1200);
        let mut fitting = whole.clone();
        fitting.fit(1200);
        let bytes = fitting.encode(HEADER);
        assert!((1100..=1200).contains(&bytes.len()), "{}", bytes.len());
        for (kept, all) in fitting.paths.iter().zip(&whole.paths) {
            assert!(all.ranges.starts_with(&kept.ranges));
        }
        assert_eq!(decode(bytes), Ok((HEADER, Body::Ack(fitting))));
    }

    #[test]
    fn impossible_fields_are_refused_and_unknown_types_ignored() {
        let good = Fragment {
            stream: StreamId(1),
            block: BlockId(1),
            born_micros: 0,
            code: 0,
            last_code: 0,
            index: 0,
            data_count: 1,
            redundancy_count: 0,
            padding: 0,
            payload: Bytes::from_static(b"x"),
        };
        for bad in [
            Fragment {
                data_count: 0,
                ..good.clone()
            },
            Fragment {
                data_count: 200,
                redundancy_count: 56,
                ..good.clone()
            },
            Fragment {
                index: 1,
                ..good.clone()
            },
            Fragment {
                padding: 1,
                ..good.clone()
            },
            Fragment {
                code: 1,
                ..good.clone()
            },
            Fragment {
                payload: Bytes::new(),
                ..good.clone()
            },
        ] {
            assert_eq!(
                decode(bad.encode(HEADER, 0)),
                Err(ProtocolError::Malformed("fragment")),
                "{bad:?}"
            );
        }
        assert_eq!(
            decode(Bytes::from_static(&[
                77, 255, 255, 255, 255, 0, 0, 0, 7, 1, 2
            ])),
            Ok((HEADER, Body::Unknown))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(Bytes::from(bytes));
        }
    }
}
