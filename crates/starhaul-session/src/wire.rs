//! Datagrams of a session: a fixed short header as in DMTP fig. 3, inside QUIC DATAGRAM frames.
//!
//! Every datagram opens with its type, its sequence number on the path, and the time of sending in microseconds of the
//! sender's clock (both wrap). Integers are big-endian. Datagrams of unknown type are ignored by the receiver.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::types::{BlockId, ProtocolError, StreamId};

mod ack;

pub(crate) use ack::{
    Ack, BlockAck, MAX_ACK_BLOCKS, MAX_ACK_PATHS, PathAck, ReconfigurationReport, SegmentReport,
};

/// Bytes before the payload of a fragment.
pub(crate) const FRAGMENT_HEADER_BYTES: usize = HEADER_BYTES + 19;
/// Bytes before the payload of a frame of a reliable stream.
pub(crate) const STREAM_FRAME_HEADER_BYTES: usize = HEADER_BYTES + 13;
const HEADER_BYTES: usize = 9;
const FRAGMENT: u8 = 1;
const STREAM_FRAME: u8 = 2;
const ACK: u8 = 3;
const PROBE: u8 = 4;

/// What every datagram begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sequence: u32,
    /// When it was sent, µs of the sender's clock.
    pub(crate) sent_micros: u32,
}

/// The content of a datagram, by its type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    Fragment(Fragment),
    StreamFrame(StreamFrame),
    Ack(Ack),
    Probe,
    /// A type of a later version; its header still counts as heard.
    Unknown,
}

/// A part of a block, or redundancy for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fragment<P = Bytes> {
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
    pub(crate) payload: P,
}

/// A frame of a reliable stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamFrame {
    pub(crate) stream: StreamId,
    pub(crate) offset: u64,
    /// The stream ends after this frame.
    pub(crate) fin: bool,
    pub(crate) payload: Bytes,
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
    fn put(self, kind: u8, out: &mut BytesMut) {
        out.put_u8(kind);
        out.put_u32(self.sequence);
        out.put_u32(self.sent_micros);
    }
}

impl<P: AsRef<[u8]>> Fragment<P> {
    /// Appends the datagram to `out`; `payload` is padded with zeros to `length`.
    pub(crate) fn encode(&self, header: Header, length: usize, out: &mut BytesMut) {
        header.put(FRAGMENT, out);
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
        let payload = self.payload.as_ref();
        out.put_slice(payload);
        out.put_bytes(0, length.saturating_sub(payload.len()));
    }
}

impl Fragment {
    /// It is all the data of its block.
    pub(crate) const fn is_block(&self) -> bool {
        self.data_count == 1 && self.index == 0 && self.last_code == 0
    }

    fn decode(body: &mut Bytes) -> Result<Self, ProtocolError> {
        const WHAT: ProtocolError = ProtocolError::Malformed("fragment");
        if body.len() <= FRAGMENT_HEADER_BYTES - HEADER_BYTES {
            return Err(WHAT);
        }
        let mut head = body.as_ref();
        let stream = StreamId(head.get_u32());
        let block = BlockId(head.get_u32());
        let born_micros = head.get_u32();
        let (code, last_code, index) = (head.get_u8(), head.get_u8(), head.get_u8());
        let (data_count, redundancy_count, padding) = (head.get_u8(), head.get_u8(), head.get_u8());
        let total = u16::from(data_count) + u16::from(redundancy_count);
        let sane = data_count > 0
            && total <= 255
            && u16::from(index) < total
            && padding < data_count
            && code <= last_code;
        if !sane {
            return Err(WHAT);
        }
        // The last byte of the header is reserved.
        body.advance(FRAGMENT_HEADER_BYTES - HEADER_BYTES);
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

impl StreamFrame {
    /// Appends the datagram to `out`, with `data` gathered from the sender's buffer.
    pub(crate) fn encode<'a>(
        stream: StreamId,
        offset: u64,
        fin: bool,
        data: impl Iterator<Item = &'a [u8]>,
        header: Header,
        out: &mut BytesMut,
    ) {
        header.put(STREAM_FRAME, out);
        out.put_u32(stream.0);
        out.put_u64(offset);
        out.put_u8(fin.into());
        data.for_each(|part| out.put_slice(part));
    }

    fn decode(body: &mut Bytes) -> Result<Self, ProtocolError> {
        const WHAT: ProtocolError = ProtocolError::Malformed("stream frame");
        if body.len() < STREAM_FRAME_HEADER_BYTES - HEADER_BYTES {
            return Err(WHAT);
        }
        let mut head = body.as_ref();
        let (stream, offset, flags) = (StreamId(head.get_u32()), head.get_u64(), head.get_u8());
        body.advance(STREAM_FRAME_HEADER_BYTES - HEADER_BYTES);
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

/// Appends a probe of at least `length` bytes in all; the receiver skips what follows its header.
pub(crate) fn encode_probe(header: Header, length: usize, out: &mut BytesMut) {
    header.put(PROBE, out);
    out.put_bytes(0, length.saturating_sub(HEADER_BYTES));
}

/// Splits a datagram into its header and body.
pub(crate) fn decode(mut datagram: Bytes) -> Result<(Header, Body), ProtocolError> {
    if datagram.len() < HEADER_BYTES {
        return Err(ProtocolError::Malformed("datagram"));
    }
    let mut head = datagram.as_ref();
    let kind = head.get_u8();
    let header = Header {
        sequence: head.get_u32(),
        sent_micros: head.get_u32(),
    };
    datagram.advance(HEADER_BYTES);
    let body = match kind {
        FRAGMENT => Body::Fragment(Fragment::decode(&mut datagram)?),
        STREAM_FRAME => Body::StreamFrame(StreamFrame::decode(&mut datagram)?),
        ACK => Body::Ack(Ack::decode(&mut datagram)?),
        PROBE => Body::Probe,
        _ => Body::Unknown,
    };
    Ok((header, body))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: Header = Header {
        sequence: u32::MAX,
        sent_micros: 7,
    };

    fn encoded(encode: impl FnOnce(&mut BytesMut)) -> Bytes {
        let mut out = BytesMut::new();
        encode(&mut out);
        out.freeze()
    }

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
            decode(encoded(|out| fragment.encode(HEADER, 5, out))),
            Ok((HEADER, Body::Fragment(padded)))
        );

        let frame = StreamFrame {
            stream: StreamId(0),
            offset: 1 << 40,
            fin: true,
            payload: Bytes::from_static(b"hello"),
        };
        let parts: [&[u8]; 2] = [b"he", b"llo"];
        let bytes = encoded(|out| {
            StreamFrame::encode(
                frame.stream,
                frame.offset,
                true,
                parts.into_iter(),
                HEADER,
                out,
            );
        });
        assert_eq!(decode(bytes), Ok((HEADER, Body::StreamFrame(frame))));

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
            ..Ack::default()
        };
        let bytes = encoded(|out| ack.encode(HEADER, out));
        assert_eq!(decode(bytes), Ok((HEADER, Body::Ack(ack))));
        for length in [HEADER_BYTES, 1400] {
            let probe = encoded(|out| encode_probe(HEADER, length, out));
            assert_eq!(probe.len(), length);
            assert_eq!(decode(probe), Ok((HEADER, Body::Probe)));
        }
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
                decode(encoded(|out| bad.encode(HEADER, 0, out))),
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
