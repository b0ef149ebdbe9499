//! The wire format of recordings: a magic number, a kind, fields in network byte order, and a tag over all of these.
//! Parsing is strict and happens before the tag is verified, so it allocates next to nothing.

use starhaul_units::Bandwidth;

use crate::{
    Direction, Phase,
    key::{KeyId, Mac, TAG_BYTES},
};

const MAGIC: [u8; 4] = *b"SHR1";
/// A client's first message is padded to this size, so that no answer is larger than the request.
const HELLO_BYTES: usize = 160;
/// Greatest number of milliseconds in one [`Feedback`].
pub(crate) const MAX_BINS: usize = 250;
/// Greatest number of stamps in one [`Message::Stamps`].
pub(crate) const MAX_STAMPS: usize = 16;
/// The largest number of bytes per millisecond on the wire; 16 Gbit/s.
const MAX_BIN_BYTES: u32 = (1 << 21) - 1;
/// The size of an IP packet of the heavy flow, least and greatest.
pub const PACKET_BYTES: std::ops::RangeInclusive<u16> = 200..=9000;
/// The longest recording of one direction in seconds.
pub const MAX_SECONDS: u32 = 7200;

pub(crate) type Nonce = [u8; 16];
/// Its creation time, and a tag over that and the receiver's address.
pub(crate) type Cookie = [u8; 24];

/// Why bytes are no message; the sender is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes are not of this protocol, or of another version.
    #[error("the datagram is not of this protocol")]
    Foreign,
    /// The message is truncated, or longer than its kind allows.
    #[error("the datagram has a wrong length for its kind")]
    Length,
    /// A field has an impossible value.
    #[error("the field {0} has an impossible value")]
    Field(&'static str),
}

/// The recording that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Direction of the heavy flow.
    pub direction: Direction,
    /// Length of the saturated phase in seconds, 1 to [`MAX_SECONDS`].
    pub seconds: u32,
    /// Length of the phase below the capacity, which counts random loss, in milliseconds, at most a minute.
    pub loss_ms: u32,
    /// Rate limit of the heavy flow.
    pub max_rate: Bandwidth,
    /// Size of the heavy flow's IP packets, all headers included; see [`PACKET_BYTES`].
    pub packet_bytes: u16,
}

/// Why a server that has the key does not record now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another recording with this key is running.
    #[error(
        "the server is busy with another recording of this key; wait until it ends, or use another key"
    )]
    KeyBusy,
    /// Other recordings use the server's rate.
    #[error("the server's --max-rate is all in use by other recordings; try again later")]
    RateBusy,
}

/// A message between client and server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Hello {
        key: KeyId,
        nonce: Nonce,
    },
    Challenge {
        nonce: Nonce,
        cookie: Cookie,
    },
    Start {
        key: KeyId,
        nonce: Nonce,
        cookie: Cookie,
        request: Request,
    },
    Accept {
        session: u64,
        max_rate: Bandwidth,
    },
    Refuse {
        session: u64,
        reason: Refusal,
    },
    Data(Data),
    Feedback(Feedback),
    /// Acknowledges a feedback.
    Ack {
        session: u64,
        number: u32,
    },
    Echo {
        session: u64,
        number: u32,
    },
    /// The number of the echo, and its arrival by the server's clock.
    EchoReply {
        session: u64,
        number: u32,
        received_us: u64,
    },
    /// Arrivals of ICMP echo requests by the server's clock; the newest ones are repeated, since messages may be lost.
    Stamps {
        session: u64,
        stamps: Vec<Stamp>,
    },
    /// The sender has finished after this many packets.
    End {
        session: u64,
        sent: u64,
    },
    Bye {
        session: u64,
    },
}

/// The arrival of an echo request at the server, by its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) number: u32,
    pub(crate) received_us: u64,
}

/// A packet of the heavy flow, without its padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data {
    pub(crate) session: u64,
    pub(crate) phase: Phase,
    pub(crate) sequence: u64,
    /// Send time by the sender's clock.
    pub(crate) sent_us: u64,
}

/// The receiver's report about an interval of the heavy flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Feedback {
    pub(crate) session: u64,
    /// Counted from 0, without gaps.
    pub(crate) number: u32,
    /// The receiver has all packets; no feedback follows.
    pub(crate) end: bool,
    pub(crate) seen: Interval,
    /// The newest send time among all packets so far, by the sender's clock.
    pub(crate) newest_sent_us: u64,
}

/// Arrivals over a few milliseconds at the receiver of the heavy flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Start of the first bin, by the receiver's clock.
    pub first_ms: u32,
    /// Bytes of IP packets that arrived in each millisecond.
    pub bins: Vec<u32>,
    /// The phase of the newest packet of the heavy flow.
    pub phase: Phase,
    /// Packets of the heavy flow that arrived.
    pub received: u32,
    /// Packets missing before these.
    pub lost: u32,
    /// Number of runs of missing packets.
    pub bursts: u32,
    /// The least difference of arrival and send time; the clocks are not synchronised.
    pub way_min_us: i64,
    /// The greatest difference.
    pub way_max_us: i64,
}

/// A message whose tag is not verified yet.
#[derive(Clone, Debug)]
pub(crate) struct Sealed<'a> {
    pub(crate) message: Message,
    signed: &'a [u8],
    tag: [u8; TAG_BYTES],
}

impl<'a> Sealed<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader { rest: bytes };
        if reader.array()? != MAGIC {
            return Err(WireError::Foreign);
        }
        let kind = reader.u8()?;
        let message = reader.message(kind)?;
        let signed_bytes = bytes.len() - reader.rest.len();
        let signed = bytes.get(..signed_bytes).ok_or(WireError::Length)?;
        let tag = reader.array()?;
        // The padding of a packet is ignored.
        match message {
            Message::Data(_) => {}
            _ if reader.rest.is_empty() => {}
            _ => return Err(WireError::Length),
        }
        Ok(Self {
            message,
            signed,
            tag,
        })
    }

    pub(crate) fn verify(&self, mac: &Mac) -> bool {
        mac.verify(self.signed, &self.tag)
    }
}

impl Message {
    /// Encodes the message with its tag.
    pub(crate) fn seal(&self, mac: &Mac) -> Vec<u8> {
        let mut out = Vec::with_capacity(HELLO_BYTES);
        out.extend(MAGIC);
        out.push(self.kind());
        self.write(&mut out);
        let tag = mac.tag(&out);
        out.extend(tag);
        out
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => 1,
            Self::Challenge { .. } => 2,
            Self::Start { .. } => 3,
            Self::Accept { .. } => 4,
            Self::Refuse { .. } => 5,
            Self::Data(_) => 6,
            Self::Feedback(_) => 7,
            Self::Ack { .. } => 8,
            Self::Echo { .. } => 9,
            Self::EchoReply { .. } => 10,
            Self::End { .. } => 11,
            Self::Bye { .. } => 12,
            Self::Stamps { .. } => 13,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello { key, nonce } => {
                out.extend(key);
                out.extend(nonce);
                out.resize(HELLO_BYTES - TAG_BYTES, 0);
            }
            Self::Challenge { nonce, cookie } => {
                out.extend(nonce);
                out.extend(cookie);
            }
            Self::Start {
                key,
                nonce,
                cookie,
                request,
            } => {
                out.extend(key);
                out.extend(nonce);
                out.extend(cookie);
                out.push(request.direction as u8);
                out.extend(request.seconds.to_be_bytes());
                out.extend(request.loss_ms.to_be_bytes());
                out.extend(request.max_rate.bits_per_second().to_be_bytes());
                out.extend(request.packet_bytes.to_be_bytes());
            }
            Self::Accept { session, max_rate } => {
                out.extend(session.to_be_bytes());
                out.extend(max_rate.bits_per_second().to_be_bytes());
            }
            Self::Refuse { session, reason } => {
                out.extend(session.to_be_bytes());
                out.push(*reason as u8);
            }
            Self::Data(data) => {
                out.extend(data.session.to_be_bytes());
                out.push(data.phase as u8);
                out.extend(data.sequence.to_be_bytes());
                out.extend(data.sent_us.to_be_bytes());
            }
            Self::Feedback(feedback) => feedback.write(out),
            Self::Ack { session, number } => {
                out.extend(session.to_be_bytes());
                out.extend(number.to_be_bytes());
            }
            Self::Echo { session, number } => {
                out.extend(session.to_be_bytes());
                out.extend(number.to_be_bytes());
                // Padding to the length of the answer.
                out.extend([0; 8]);
            }
            Self::EchoReply {
                session,
                number,
                received_us,
            } => {
                out.extend(session.to_be_bytes());
                out.extend(number.to_be_bytes());
                out.extend(received_us.to_be_bytes());
            }
            Self::Stamps { session, stamps } => {
                let stamps = stamps.get(..MAX_STAMPS).unwrap_or(stamps);
                out.extend(session.to_be_bytes());
                out.push(u8::try_from(stamps.len()).unwrap_or(u8::MAX));
                for stamp in stamps {
                    out.extend(stamp.number.to_be_bytes());
                    out.extend(stamp.received_us.to_be_bytes());
                }
            }
            Self::End { session, sent } => {
                out.extend(session.to_be_bytes());
                out.extend(sent.to_be_bytes());
            }
            Self::Bye { session } => out.extend(session.to_be_bytes()),
        }
    }

    /// The id of its session; `None` before there is one.
    pub(crate) fn session(&self) -> Option<u64> {
        match self {
            Self::Hello { .. } | Self::Challenge { .. } | Self::Start { .. } => None,
            Self::Data(Data { session, .. })
            | Self::Feedback(Feedback { session, .. })
            | Self::Accept { session, .. }
            | Self::Refuse { session, .. }
            | Self::Ack { session, .. }
            | Self::Echo { session, .. }
            | Self::EchoReply { session, .. }
            | Self::Stamps { session, .. }
            | Self::End { session, .. }
            | Self::Bye { session } => Some(*session),
        }
    }
}

impl Feedback {
    fn write(&self, out: &mut Vec<u8>) {
        let seen = &self.seen;
        out.extend(self.session.to_be_bytes());
        out.extend(self.number.to_be_bytes());
        out.push(u8::from(self.end));
        out.extend(self.newest_sent_us.to_be_bytes());
        out.push(seen.phase as u8);
        for count in [seen.received, seen.lost, seen.bursts, seen.first_ms] {
            out.extend(count.to_be_bytes());
        }
        out.extend(seen.way_min_us.to_be_bytes());
        out.extend(seen.way_max_us.to_be_bytes());
        let bins = seen.bins.get(..MAX_BINS).unwrap_or(&seen.bins);
        out.push(u8::try_from(bins.len()).unwrap_or(u8::MAX));
        for bin in bins {
            write_varint(out, (*bin).min(MAX_BIN_BYTES));
        }
    }
}

/// LEB128: seven bits per byte, the least significant first.
fn write_varint(out: &mut Vec<u8>, mut value: u32) {
    while value > 0x7f {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(WireError::Length)?;
        self.rest = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    fn zeros(&mut self, count: usize) -> Result<(), WireError> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(WireError::Length)?;
        self.rest = rest;
        match head.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => Err(WireError::Field("filling")),
        }
    }

    fn message(&mut self, kind: u8) -> Result<Message, WireError> {
        Ok(match kind {
            1 => {
                let message = Message::Hello {
                    key: self.array()?,
                    nonce: self.array()?,
                };
                self.zeros(HELLO_BYTES - TAG_BYTES - MAGIC.len() - 1 - 8 - 16)?;
                message
            }
            2 => Message::Challenge {
                nonce: self.array()?,
                cookie: self.array()?,
            },
            3 => Message::Start {
                key: self.array()?,
                nonce: self.array()?,
                cookie: self.array()?,
                request: self.request()?,
            },
            4 => Message::Accept {
                session: self.u64()?,
                max_rate: self.rate()?,
            },
            5 => Message::Refuse {
                session: self.u64()?,
                reason: match self.u8()? {
                    0 => Refusal::KeyBusy,
                    1 => Refusal::RateBusy,
                    _ => return Err(WireError::Field("reason")),
                },
            },
            6 => Message::Data(Data {
                session: self.u64()?,
                phase: self.phase()?,
                sequence: self.u64()?,
                sent_us: self.u64()?,
            }),
            7 => Message::Feedback(self.feedback()?),
            8 => Message::Ack {
                session: self.u64()?,
                number: self.u32()?,
            },
            9 => {
                let message = Message::Echo {
                    session: self.u64()?,
                    number: self.u32()?,
                };
                self.zeros(8)?;
                message
            }
            10 => Message::EchoReply {
                session: self.u64()?,
                number: self.u32()?,
                received_us: self.u64()?,
            },
            11 => Message::End {
                session: self.u64()?,
                sent: self.u64()?,
            },
            12 => Message::Bye {
                session: self.u64()?,
            },
            13 => Message::Stamps {
                session: self.u64()?,
                stamps: self.stamps()?,
            },
            _ => return Err(WireError::Foreign),
        })
    }

    fn stamps(&mut self) -> Result<Vec<Stamp>, WireError> {
        let count = usize::from(self.u8()?);
        if count > MAX_STAMPS {
            return Err(WireError::Field("stamps"));
        }
        let stamp = |_| {
            Ok(Stamp {
                number: self.u32()?,
                received_us: self.u64()?,
            })
        };
        (0..count).map(stamp).collect()
    }

    fn request(&mut self) -> Result<Request, WireError> {
        let direction = match self.u8()? {
            0 => Direction::Up,
            1 => Direction::Down,
            _ => return Err(WireError::Field("direction")),
        };
        let request = Request {
            direction,
            seconds: self.u32()?,
            loss_ms: self.u32()?,
            max_rate: self.rate()?,
            packet_bytes: self.array().map(u16::from_be_bytes)?,
        };
        if !(1..=MAX_SECONDS).contains(&request.seconds) {
            return Err(WireError::Field("seconds"));
        }
        if request.loss_ms > 60_000 {
            return Err(WireError::Field("loss_ms"));
        }
        if !PACKET_BYTES.contains(&request.packet_bytes) {
            return Err(WireError::Field("packet_bytes"));
        }
        Ok(request)
    }

    fn rate(&mut self) -> Result<Bandwidth, WireError> {
        let rate = Bandwidth::from_bits_per_second(self.u64()?);
        match rate {
            Bandwidth::ZERO => Err(WireError::Field("max_rate")),
            rate => Ok(rate),
        }
    }

    fn phase(&mut self) -> Result<Phase, WireError> {
        Phase::from_wire(self.u8()?).ok_or(WireError::Field("phase"))
    }

    fn feedback(&mut self) -> Result<Feedback, WireError> {
        let (session, number) = (self.u64()?, self.u32()?);
        let end = match self.u8()? {
            0 => false,
            1 => true,
            _ => return Err(WireError::Field("end")),
        };
        let newest_sent_us = self.u64()?;
        let phase = self.phase()?;
        let [received, lost, bursts, first_ms] =
            [self.u32()?, self.u32()?, self.u32()?, self.u32()?];
        let (way_min_us, way_max_us) = (
            self.array().map(i64::from_be_bytes)?,
            self.array().map(i64::from_be_bytes)?,
        );
        let count = usize::from(self.u8()?);
        if count > MAX_BINS {
            return Err(WireError::Field("bins"));
        }
        let mut bins = Vec::with_capacity(count);
        for _ in 0..count {
            bins.push(self.varint()?);
        }
        let seen = Interval {
            first_ms,
            bins,
            phase,
            received,
            lost,
            bursts,
            way_min_us,
            way_max_us,
        };
        seen.check().map_err(WireError::Field)?;
        Ok(Feedback {
            session,
            number,
            end,
            seen,
            newest_sent_us,
        })
    }

    fn varint(&mut self) -> Result<u32, WireError> {
        let mut value = 0;
        for shift in [0, 7, 14] {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return match byte == 0 && shift > 0 {
                    true => Err(WireError::Field("bins")),
                    false => Ok(value),
                };
            }
        }
        Err(WireError::Field("bins"))
    }
}

impl Interval {
    /// Checks the fields; the error names an invalid one.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        const LONGEST_US: u64 = 1 << 53;
        let last_ms = u64::from(self.first_ms) + self.bins.len() as u64;
        if self.bins.len() > MAX_BINS || self.bins.iter().any(|bin| *bin > MAX_BIN_BYTES) {
            return Err("bins");
        }
        // A recording without the heavy flow lasts as long again, with ramps and pauses a little longer.
        if last_ms > u64::from(MAX_SECONDS) * 4000 {
            return Err("first_ms");
        }
        if self.bursts > self.lost {
            return Err("bursts");
        }
        let ways = [self.way_min_us, self.way_max_us];
        if self.way_min_us > self.way_max_us
            || ways.iter().any(|way| way.unsigned_abs() > LONGEST_US)
        {
            return Err("way_min_us");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<Message> {
        let request = Request {
            direction: Direction::Down,
            seconds: 60,
            loss_ms: 5000,
            max_rate: Bandwidth::from_mbit(500),
            packet_bytes: 1500,
        };
        let seen = Interval {
            first_ms: 3,
            bins: vec![0, 1500, 70_000],
            phase: Phase::Saturated,
            received: 48,
            lost: 3,
            bursts: 2,
            way_min_us: -5,
            way_max_us: 9,
        };
        vec![
            Message::Hello {
                key: [1; 8],
                nonce: [2; 16],
            },
            Message::Challenge {
                nonce: [2; 16],
                cookie: [3; 24],
            },
            Message::Start {
                key: [1; 8],
                nonce: [2; 16],
                cookie: [3; 24],
                request,
            },
            Message::Accept {
                session: 7,
                max_rate: Bandwidth::from_mbit(100),
            },
            Message::Refuse {
                session: 7,
                reason: Refusal::RateBusy,
            },
            Message::Data(Data {
                session: 7,
                phase: Phase::Below,
                sequence: 9,
                sent_us: 11,
            }),
            Message::Feedback(Feedback {
                session: 7,
                number: 4,
                end: true,
                seen,
                newest_sent_us: 8,
            }),
            Message::Ack {
                session: 7,
                number: 4,
            },
            Message::Echo {
                session: 7,
                number: 5,
            },
            Message::EchoReply {
                session: 7,
                number: 5,
                received_us: 6,
            },
            Message::End {
                session: 7,
                sent: 10,
            },
            Message::Bye { session: 7 },
            Message::Stamps {
                session: 7,
                stamps: (0..3)
                    .map(|number| Stamp {
                        number,
                        received_us: 8,
                    })
                    .collect(),
            },
        ]
    }

    #[test]
    fn every_message_is_read_as_written_and_a_changed_bit_is_noticed() {
        let mac = Mac::new(&[5; 32]);
        for message in messages() {
            let sealed = message.seal(&mac);
            let read = Sealed::parse(&sealed).unwrap();
            assert_eq!(read.message, message);
            assert!(read.verify(&mac) && !read.verify(&Mac::new(&[6; 32])));
            for byte in 0..sealed.len() {
                let mut changed = sealed.clone();
                changed[byte] ^= 0x10;
                let accepted = Sealed::parse(&changed).is_ok_and(|read| read.verify(&mac));
                assert!(!accepted, "{message:?}: byte {byte} was changed");
            }
            for cut in 0..sealed.len() {
                assert!(
                    Sealed::parse(&sealed[..cut]).is_err(),
                    "{message:?} cut to {cut}"
                );
            }
        }
    }

    #[test]
    fn no_answer_before_a_session_is_larger_than_what_asked_for_it() {
        let mac = Mac::new(&[5; 32]);
        let sizes: Vec<_> = messages()
            .iter()
            .map(|message| message.seal(&mac).len())
            .collect();
        let [hello, challenge, start, accept, refuse, ..] = sizes[..] else {
            panic!("five messages of a handshake");
        };
        assert!(
            challenge <= hello && accept <= start && refuse <= start,
            "{sizes:?}"
        );
    }
}
