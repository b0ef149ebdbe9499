//! Control messages: what the receiver needs once. They travel in order on the session's own reliable stream, so they
//! survive the loss of any path. Each is a length (u16), a type (u8) and a body; unknown types are skipped.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use starhaul_paths::PathId;
use starhaul_units::Bandwidth;

use crate::types::{BlockId, MAX_LABEL_BYTES, Mode, ProtocolError, StreamConfig, StreamId};

/// Most ranges of blocks that one message gives up; longer lists become several messages.
pub(crate) const MAX_DROPPED: usize = 128;
/// Longest body: an `Open` with the longest label.
const MAX_BODY_BYTES: usize = 64 + MAX_LABEL_BYTES + 8 * MAX_DROPPED;

const OPEN: u8 = 1;
const FINISH: u8 = 2;
const DROPPED: u8 = 3;
const RESET: u8 = 4;
const STOP: u8 = 5;
const CREDIT: u8 = 6;
const STREAMS: u8 = 7;
const COST: u8 = 16;
const GONE: u8 = 17;

const BAD: ProtocolError = ProtocolError::Malformed("control message");

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Control {
    /// A stream begins.
    Open {
        stream: StreamId,
        config: StreamConfig,
    },
    /// A deadline stream has no block from `end` on.
    Finish { stream: StreamId, end: BlockId },
    /// Blocks that the sender gave up, as closed ranges.
    Dropped {
        stream: StreamId,
        ranges: Vec<(BlockId, BlockId)>,
    },
    /// The sender abandons its direction of a reliable stream.
    Reset { stream: StreamId, code: u32 },
    /// The receiver no longer reads.
    Stop { stream: StreamId, code: u32 },
    /// The receiver takes bytes below `limit`.
    Credit { stream: StreamId, limit: u64 },
    /// The receiver lets the sender open streams with numbers below `limit`.
    Streams { limit: u32 },
    /// The price of a path is another one from now on.
    Cost { path: PathId, cost: f64 },
    /// A path was removed for good.
    Gone { path: PathId },
}

impl Control {
    /// The message as it travels.
    pub(crate) fn encode(&self) -> Bytes {
        let mut body = BytesMut::with_capacity(64);
        match self {
            Self::Open { stream, config } => {
                body.put_u8(OPEN);
                body.put_u32(stream.0);
                put_config(&mut body, config);
            }
            Self::Finish { stream, end } => put(&mut body, FINISH, *stream, end.0),
            Self::Reset { stream, code } => put(&mut body, RESET, *stream, *code),
            Self::Stop { stream, code } => put(&mut body, STOP, *stream, *code),
            Self::Dropped { stream, ranges } => {
                body.put_u8(DROPPED);
                body.put_u32(stream.0);
                for (first, last) in ranges.iter().take(MAX_DROPPED) {
                    body.put_u32(first.0);
                    body.put_u32(last.0);
                }
            }
            Self::Credit { stream, limit } => {
                body.put_u8(CREDIT);
                body.put_u32(stream.0);
                body.put_u64(*limit);
            }
            Self::Streams { limit } => {
                body.put_u8(STREAMS);
                body.put_u32(*limit);
            }
            Self::Cost { path, cost } => {
                body.put_u8(COST);
                body.put_u32(path.0);
                body.put_f64(*cost);
            }
            Self::Gone { path } => {
                body.put_u8(GONE);
                body.put_u32(path.0);
            }
        }
        let mut out = BytesMut::with_capacity(2 + body.len());
        out.put_u16(u16::try_from(body.len()).unwrap_or(u16::MAX));
        out.put_slice(&body);
        out.freeze()
    }

    /// Takes the next whole message from the front of `buffer`; `None` until it is all there. An unknown type gives
    /// `Some(None)`.
    pub(crate) fn decode(buffer: &mut BytesMut) -> Result<Option<Option<Self>>, ProtocolError> {
        let Some(&[high, low]) = buffer.first_chunk() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length == 0 || length > MAX_BODY_BYTES {
            return Err(BAD);
        }
        if buffer.len() < 2 + length {
            return Ok(None);
        }
        buffer.advance(2);
        Self::decode_body(&mut buffer.split_to(length).freeze()).map(Some)
    }

    fn decode_body(body: &mut Bytes) -> Result<Option<Self>, ProtocolError> {
        let bad = |_| BAD;
        let kind = body.try_get_u8().map_err(bad)?;
        if !(OPEN..=STREAMS).contains(&kind) && !matches!(kind, COST | GONE) {
            return Ok(None);
        }
        let number = body.try_get_u32().map_err(bad)?;
        let stream = StreamId(number);
        let message = match kind {
            GONE => Self::Gone {
                path: PathId(number),
            },
            COST => Self::Cost {
                path: PathId(number),
                cost: body.try_get_f64().map_err(bad).and_then(price)?,
            },
            OPEN => Self::Open {
                stream,
                config: try_get_config(body)?,
            },
            FINISH => Self::Finish {
                stream,
                end: BlockId(body.try_get_u32().map_err(bad)?),
            },
            RESET => Self::Reset {
                stream,
                code: body.try_get_u32().map_err(bad)?,
            },
            STOP => Self::Stop {
                stream,
                code: body.try_get_u32().map_err(bad)?,
            },
            CREDIT => Self::Credit {
                stream,
                limit: body.try_get_u64().map_err(bad)?,
            },
            STREAMS => Self::Streams { limit: number },
            _ => {
                let mut ranges = Vec::new();
                while body.has_remaining() {
                    let first = body.try_get_u32().map_err(bad)?;
                    ranges.push((BlockId(first), BlockId(body.try_get_u32().map_err(bad)?)));
                }
                Self::Dropped { stream, ranges }
            }
        };
        if body.has_remaining() {
            Err(BAD)
        } else {
            Ok(Some(message))
        }
    }
}

fn price(cost: f64) -> Result<f64, ProtocolError> {
    let is_price = cost.is_finite() && cost >= 0.0;
    is_price.then_some(cost).ok_or(BAD)
}

fn put(body: &mut BytesMut, kind: u8, stream: StreamId, value: u32) {
    body.put_u8(kind);
    body.put_u32(stream.0);
    body.put_u32(value);
}

const MODES: [Mode; 6] = [
    Mode::FecRetransmit,
    Mode::Fec,
    Mode::Retransmit,
    Mode::None,
    Mode::Duplicate,
    Mode::Reliable,
];

fn put_config(body: &mut BytesMut, config: &StreamConfig) {
    let mode = MODES
        .iter()
        .position(|mode| *mode == config.mode)
        .and_then(|at| u8::try_from(at).ok());
    body.put_u8(mode.unwrap_or_default());
    body.put_u32(u32::try_from(config.deadline.as_millis()).unwrap_or(u32::MAX));
    body.put_u8(config.priority);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to 0..=255; float casts saturate"
    )]
    body.put_u8((config.max_coding_rate * 255.0).round() as u8);
    body.put_u8(config.ordered.into());
    body.put_u64(config.bandwidth.unwrap_or_default().bits_per_second());
    body.put_slice(&config.label);
}

fn try_get_config(body: &mut Bytes) -> Result<StreamConfig, ProtocolError> {
    let bad = |_| BAD;
    let mode = *MODES
        .get(usize::from(body.try_get_u8().map_err(bad)?))
        .ok_or(BAD)?;
    let deadline = Duration::from_millis(body.try_get_u32().map_err(bad)?.into());
    let priority = body.try_get_u8().map_err(bad)?;
    let max_coding_rate = f64::from(body.try_get_u8().map_err(bad)?) / 255.0;
    let ordered = body.try_get_u8().map_err(bad)? != 0;
    let bandwidth = Bandwidth::from_bits_per_second(body.try_get_u64().map_err(bad)?);
    let bandwidth = (bandwidth > Bandwidth::ZERO).then_some(bandwidth);
    if body.len() > MAX_LABEL_BYTES {
        return Err(BAD);
    }
    // Copied, so that it does not keep the buffer of the control stream.
    let label = Bytes::copy_from_slice(&std::mem::take(body));
    Ok(StreamConfig {
        mode,
        deadline,
        priority,
        bandwidth,
        max_coding_rate,
        ordered,
        label,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_survive_being_cut_anywhere() {
        let config = StreamConfig {
            mode: Mode::Retransmit,
            bandwidth: Some(Bandwidth::from_mbit(3)),
            label: Bytes::from_static(b"video"),
            max_coding_rate: 1.0,
            ..StreamConfig::default()
        };
        let messages = [
            Control::Open {
                stream: StreamId(2),
                config,
            },
            Control::Finish {
                stream: StreamId(2),
                end: BlockId(9),
            },
            Control::Dropped {
                stream: StreamId(2),
                ranges: vec![(BlockId(1), BlockId(1)), (BlockId(4), BlockId(u32::MAX))],
            },
            Control::Reset {
                stream: StreamId(3),
                code: 4,
            },
            Control::Stop {
                stream: StreamId(3),
                code: 5,
            },
            Control::Credit {
                stream: StreamId(3),
                limit: 1 << 50,
            },
            Control::Streams { limit: 77 },
            Control::Cost {
                path: PathId(3),
                cost: 0.5,
            },
            Control::Gone { path: PathId(4) },
        ];
        let mut buffer = BytesMut::new();
        let mut read = Vec::new();
        for message in &messages {
            for byte in message.encode() {
                buffer.put_u8(byte);
                read.extend(Control::decode(&mut buffer).unwrap());
            }
        }
        assert_eq!(read, messages.map(Some));
    }

    #[test]
    fn a_price_that_is_none_is_refused() {
        for cost in [f64::NAN, f64::INFINITY, -1.0] {
            let path = PathId(1);
            let mut buffer = BytesMut::from(&Control::Cost { path, cost }.encode()[..]);
            assert_eq!(Control::decode(&mut buffer), Err(BAD), "{cost}");
        }
    }

    #[test]
    fn an_unknown_type_is_skipped_and_a_bad_length_refused() {
        let mut buffer = BytesMut::from(&[0, 2, 99, 1][..]);
        assert_eq!(Control::decode(&mut buffer), Ok(Some(None)));
        assert!(buffer.is_empty());
        assert!(Control::decode(&mut BytesMut::from(&[255, 255, 1][..])).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = Control::decode(&mut buffer) {}
        }
    }
}
