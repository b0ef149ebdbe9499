//! The packets between neighbours. `docs/leotp.md` has them as a table.

use crate::{
    keys::{HELLO_MAC_BYTES, Life, MAC_BYTES},
    name::{ContentId, SEAL_BYTES},
    varint,
};

/// Bits of a time stamp: microseconds, which start anew after 16.8 s.
const STAMP_BITS: u32 = 24;
/// The greatest time stamp.
pub(crate) const STAMP_MASK: u32 = (1 << STAMP_BITS) - 1;
/// What a data packet of a neighbour adds to the data at most: flags, number, stamp, handle, offset, seal, authentication.
pub(crate) const DATA_OVERHEAD: usize = 1 + 4 + 3 + 8 + 8 + SEAL_BYTES + MAC_BYTES;
/// What a stamp that is sent back takes.
pub(crate) const ECHO_BYTES: usize = 6;

const KIND: u8 = 0xc0;
const HELLO: u8 = 0x00;
const CONTROL: u8 = 0x40;
const DATA: u8 = 0x80;
const LONG: u8 = 0x01;
const ECHO: u8 = 0x02;
const END: u8 = 0x04;
const REPAIR: u8 = 0x08;
const LIMITED: u8 = 0x10;

const WANT: u8 = 1;
const WANT_FRESH: u8 = 2;
const RATE: u8 = 3;
const FLOW: u8 = 4;
const LOST: u8 = 5;
const VOID: u8 = 6;
const REFUSED: u8 = 7;
const WANT_LIVE: u8 = 8;
const WANT_LIVE_FRESH: u8 = 9;

/// Why a datagram is no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It ends too early.
    #[error("the packet ends too early")]
    Short,
    /// Its kind, or that of a frame, is unknown.
    #[error("the packet is of an unknown kind")]
    Unknown,
    /// A range or a packet's number is beyond what 62 bits hold.
    #[error("a range or a number is beyond 2^62")]
    Range,
}

/// A packet from a neighbour, not authenticated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    Hello(Hello),
    Numbered(Numbered<'a>),
}

/// What the receiver of a hello sends back, to show that it lives.
pub(crate) type Challenge = [u8; 8];

/// A hello, the packet of the handshake between neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) life: Life,
    /// The life of the receiver that the sender has accepted, or zeros.
    pub(crate) peer: Life,
    pub(crate) challenge: Challenge,
    /// The receiver's challenge that the sender heard last.
    pub(crate) echo: Challenge,
    /// The number of the sender's first packet with the keys of both lives.
    pub(crate) first_number: u64,
    pub(crate) mac: [u8; HELLO_MAC_BYTES],
}

/// Any other packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbered<'a> {
    pub(crate) head: Head,
    pub(crate) body: Body<'a>,
    /// The bytes that [`Numbered::mac`] authenticates.
    pub(crate) authenticated: &'a [u8],
    pub(crate) mac: &'a [u8],
}

/// What all numbered packets begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) number: ShortNumber,
    /// When it left, by the sender's clock.
    pub(crate) sent: u32,
    pub(crate) echo: Option<Echo>,
}

/// The last bits of a packet's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShortNumber {
    pub(crate) bits: u32,
    /// 32 of them, or 16.
    pub(crate) is_long: bool,
}

/// The stamp of a packet of the receiver, and for how many microseconds it was kept before it was sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Echo {
    pub(crate) stamp: u32,
    pub(crate) held: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    /// A sequence of [`Frame`]s.
    Control(&'a [u8]),
    Data(Data<'a>),
}

/// A segment on its way downstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data<'a> {
    /// The receiver's number of the content.
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) is_end: bool,
    /// It was lost on some hop: it goes before others.
    pub(crate) is_repair: bool,
    /// The sender has nothing else to send now.
    pub(crate) is_limited: bool,
    pub(crate) sealed: &'a [u8],
}

/// A part of a control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Interest: the sender wants these bytes, and calls the content by this handle. `is_fresh`: not from a cache;
    /// `is_live`: as soon as they exist.
    Want {
        content: ContentId,
        handle: u64,
        start: u64,
        end: u64,
        is_fresh: bool,
        is_live: bool,
    },
    /// The rate at which the sender takes data, and the last bits of the greatest number that it has received.
    Rate { kbit: u64, greatest: u32 },
    /// The rate at which the sender takes data of one content.
    Flow { handle: u64, kbit: u64 },
    /// Packets of the receiver that did not arrive: the last 32 bits of the first number, and how many follow.
    Lost { first: u32, count: u64 },
    /// Void packet header: these bytes were lost upstream and are asked for already.
    Void { handle: u64, start: u64, end: u64 },
    /// There is no such content.
    Refused { handle: u64 },
}

impl Hello {
    /// What its authentication covers: all that comes before it.
    pub(crate) fn authenticated(&self) -> [u8; 57] {
        let mut bytes = [HELLO; 57];
        bytes[1..17].copy_from_slice(&self.life);
        bytes[17..33].copy_from_slice(&self.peer);
        bytes[33..41].copy_from_slice(&self.challenge);
        bytes[41..49].copy_from_slice(&self.echo);
        bytes[49..].copy_from_slice(&self.first_number.to_be_bytes());
        bytes
    }

    /// Appends the packet.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.authenticated());
        out.extend_from_slice(&self.mac);
    }
}

/// Whether a datagram is a hello; of most, the first byte says that they are none.
pub(crate) fn is_hello(datagram: &[u8]) -> bool {
    let flags = datagram.first();
    flags.is_some_and(|flags| flags & KIND == HELLO) && parse(datagram).is_ok()
}

/// Reads a packet.
pub(crate) fn parse(datagram: &[u8]) -> Result<Packet<'_>, ParseError> {
    let (&flags, mut rest) = datagram.split_first().ok_or(ParseError::Short)?;
    if flags & KIND == HELLO {
        let hello = Hello {
            life: *take_array(&mut rest)?,
            peer: *take_array(&mut rest)?,
            challenge: *take_array(&mut rest)?,
            echo: *take_array(&mut rest)?,
            first_number: Some(u64::from_be_bytes(*take_array(&mut rest)?))
                .filter(|number| *number <= varint::MAX)
                .ok_or(ParseError::Range)?,
            mac: *take_array(&mut rest)?,
        };
        return match (flags, rest) {
            (HELLO, []) => Ok(Packet::Hello(hello)),
            _ => Err(ParseError::Unknown),
        };
    }
    let covered = datagram
        .len()
        .checked_sub(MAC_BYTES)
        .ok_or(ParseError::Short)?;
    let (authenticated, mac) = datagram.split_at(covered);
    let mut rest = authenticated.get(1..).ok_or(ParseError::Short)?;
    let number = ShortNumber::read(flags & LONG != 0, &mut rest)?;
    let sent = read_stamp(&mut rest)?;
    let echo = match flags & ECHO != 0 {
        true => Some(Echo {
            stamp: read_stamp(&mut rest)?,
            held: read_stamp(&mut rest)?,
        }),
        false => None,
    };
    let body = match flags & KIND {
        CONTROL => Body::Control(rest),
        DATA => Body::Data(Data::read(flags, rest)?),
        _ => return Err(ParseError::Unknown),
    };
    let head = Head { number, sent, echo };
    Ok(Packet::Numbered(Numbered {
        head,
        body,
        authenticated,
        mac,
    }))
}

impl Head {
    fn write(&self, kind: u8, out: &mut Vec<u8>) {
        let long = if self.number.is_long { LONG } else { 0 };
        let echo = if self.echo.is_some() { ECHO } else { 0 };
        out.push(kind | long | echo);
        let bits = self.number.bits.to_be_bytes();
        out.extend_from_slice(if self.number.is_long {
            &bits
        } else {
            &bits[2..]
        });
        let stamps = [
            Some(self.sent),
            self.echo.map(|echo| echo.stamp),
            self.echo.map(|echo| echo.held),
        ];
        for stamp in stamps.into_iter().flatten() {
            out.extend_from_slice(&stamp.min(STAMP_MASK).to_be_bytes()[1..]);
        }
    }

    /// Begins a control packet; frames follow.
    pub(crate) fn write_control(&self, out: &mut Vec<u8>) {
        self.write(CONTROL, out);
    }

    /// Writes a data packet without its authentication.
    pub(crate) fn write_data(&self, data: &Data<'_>, out: &mut Vec<u8>) {
        let flags = [
            (data.is_end, END),
            (data.is_repair, REPAIR),
            (data.is_limited, LIMITED),
        ];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set);
        self.write(flags.fold(DATA, |all, (_, flag)| all | flag), out);
        varint::write(data.handle, out);
        varint::write(data.offset, out);
        out.extend_from_slice(data.sealed);
    }
}

impl ShortNumber {
    /// The end of a number.
    pub(crate) fn of(number: u64, is_long: bool) -> Self {
        let mask = if is_long { u64::from(u32::MAX) } else { 0xffff };
        let bits = u32::try_from(number & mask).unwrap_or(u32::MAX);
        Self { bits, is_long }
    }

    /// The number with this end that is nearest to `expected`.
    pub(crate) fn expand(self, expected: u64) -> u64 {
        let span = 1_u64 << if self.is_long { 32 } else { 16 };
        let candidate = (expected & !(span - 1)) | u64::from(self.bits);
        if candidate + span / 2 < expected {
            candidate + span
        } else if candidate > expected + span / 2 && candidate >= span {
            candidate - span
        } else {
            candidate
        }
    }

    fn read(is_long: bool, from: &mut &[u8]) -> Result<Self, ParseError> {
        let bits = match is_long {
            true => u32::from_be_bytes(*take_array(from)?),
            false => u16::from_be_bytes(*take_array(from)?).into(),
        };
        Ok(Self { bits, is_long })
    }
}

impl<'a> Data<'a> {
    fn read(flags: u8, mut rest: &'a [u8]) -> Result<Self, ParseError> {
        let handle = varint::read(&mut rest).ok_or(ParseError::Short)?;
        let offset = varint::read(&mut rest).ok_or(ParseError::Short)?;
        let length = rest
            .len()
            .checked_sub(SEAL_BYTES)
            .ok_or(ParseError::Short)?;
        if length as u64 > varint::MAX - offset {
            return Err(ParseError::Range);
        }
        // Only the end of an empty content is a segment without data.
        if length == 0 && flags & END == 0 {
            return Err(ParseError::Short);
        }
        Ok(Self {
            handle,
            offset,
            is_end: flags & END != 0,
            is_repair: flags & REPAIR != 0,
            is_limited: flags & LIMITED != 0,
            sealed: rest,
        })
    }
}

impl Frame {
    /// Takes a frame from the front.
    pub(crate) fn read(from: &mut &[u8]) -> Result<Self, ParseError> {
        let [kind] = *take_array(from)?;
        let mut integer = || varint::read(from).ok_or(ParseError::Short);
        Ok(match kind {
            RATE => Self::Rate {
                kbit: integer()?,
                greatest: u32::from_be_bytes(*take_array(from)?),
            },
            FLOW => Self::Flow {
                handle: integer()?,
                kbit: integer()?,
            },
            LOST => Self::Lost {
                count: integer()?,
                first: u32::from_be_bytes(*take_array(from)?),
            },
            REFUSED => Self::Refused { handle: integer()? },
            VOID => {
                let handle = integer()?;
                let (start, end) = read_range(from)?;
                Self::Void { handle, start, end }
            }
            WANT | WANT_FRESH | WANT_LIVE | WANT_LIVE_FRESH => {
                let handle = integer()?;
                let (start, end) = read_range(from)?;
                Self::Want {
                    content: ContentId(*take_array(from)?),
                    handle,
                    start,
                    end,
                    is_fresh: matches!(kind, WANT_FRESH | WANT_LIVE_FRESH),
                    is_live: matches!(kind, WANT_LIVE | WANT_LIVE_FRESH),
                }
            }
            _ => return Err(ParseError::Unknown),
        })
    }

    /// Appends the frame.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Want {
                content,
                handle,
                start,
                end,
                is_fresh,
                is_live,
            } => {
                out.push(match (is_live, is_fresh) {
                    (false, false) => WANT,
                    (false, true) => WANT_FRESH,
                    (true, false) => WANT_LIVE,
                    (true, true) => WANT_LIVE_FRESH,
                });
                [handle, start, end - start]
                    .into_iter()
                    .for_each(|value| varint::write(value, out));
                out.extend_from_slice(&content.0);
            }
            Self::Rate { kbit, greatest } => {
                out.push(RATE);
                varint::write(kbit, out);
                out.extend_from_slice(&greatest.to_be_bytes());
            }
            Self::Flow { handle, kbit } => {
                out.push(FLOW);
                [handle, kbit]
                    .into_iter()
                    .for_each(|value| varint::write(value, out));
            }
            Self::Lost { first, count } => {
                out.push(LOST);
                varint::write(count, out);
                out.extend_from_slice(&first.to_be_bytes());
            }
            Self::Void { handle, start, end } => {
                out.push(VOID);
                [handle, start, end - start]
                    .into_iter()
                    .for_each(|value| varint::write(value, out));
            }
            Self::Refused { handle } => {
                out.push(REFUSED);
                varint::write(handle, out);
            }
        }
    }

    /// The bytes that it takes at most.
    pub(crate) const MAX_BYTES: usize = 1 + 3 * 8 + 16;
}

/// A range that is not empty: start and length.
fn read_range(from: &mut &[u8]) -> Result<(u64, u64), ParseError> {
    let start = varint::read(from).ok_or(ParseError::Short)?;
    let length = varint::read(from).ok_or(ParseError::Short)?;
    match start.checked_add(length).filter(|end| *end <= varint::MAX) {
        Some(end) if end > start => Ok((start, end)),
        _ => Err(ParseError::Range),
    }
}

fn read_stamp(from: &mut &[u8]) -> Result<u32, ParseError> {
    let &[high, middle, low] = take_array(from)?;
    Ok(u32::from_be_bytes([0, high, middle, low]))
}

fn take_array<'a, const N: usize>(from: &mut &'a [u8]) -> Result<&'a [u8; N], ParseError> {
    let (taken, rest) = from.split_first_chunk().ok_or(ParseError::Short)?;
    *from = rest;
    Ok(taken)
}

/// Reads a packet with its frames, writes it and reads it again: the same must come out.
pub(crate) fn check(datagram: &[u8]) -> Result<(), ParseError> {
    let mut written = Vec::new();
    let packet = match parse(datagram)? {
        Packet::Numbered(packet) => packet,
        Packet::Hello(hello) => {
            hello.write(&mut written);
            assert_eq!(written, datagram);
            return Ok(());
        }
    };
    match packet.body {
        Body::Data(data) => packet.head.write_data(&data, &mut written),
        Body::Control(mut frames) => {
            packet.head.write_control(&mut written);
            while !frames.is_empty() {
                Frame::read(&mut frames)?.write(&mut written);
            }
        }
    }
    written.extend_from_slice(packet.mac);
    // What was written here must parse, whatever it came from.
    let again = match parse(&written) {
        Ok(Packet::Numbered(again)) => again,
        other => unreachable!("{other:?}"),
    };
    assert_eq!((again.head, again.mac), (packet.head, packet.mac));
    match (again.body, packet.body) {
        (Body::Data(one), Body::Data(other)) => assert_eq!(one, other),
        (Body::Control(mut one), Body::Control(mut other)) => {
            while !one.is_empty() {
                let frame = Frame::read(&mut one);
                assert!(frame.is_ok(), "{frame:?}");
                assert_eq!(frame, Frame::read(&mut other));
            }
            assert!(other.is_empty());
        }
        bodies => unreachable!("{bodies:?}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_nearest_with_its_end() {
        for number in [0_u64, 5, 65_535, 65_536, 200_000, (1 << 40) + 3] {
            for off in [0, 1, 30_000] {
                for expected in [number.saturating_sub(off), number + off] {
                    for is_long in [false, true] {
                        assert_eq!(ShortNumber::of(number, is_long).expand(expected), number);
                    }
                }
            }
        }
    }

    #[test]
    fn every_kind_of_packet_is_read_as_written() {
        let hello = Hello {
            life: [1; 16],
            peer: [2; 16],
            challenge: [3; 8],
            echo: [4; 8],
            first_number: 1 << 40,
            mac: [5; 16],
        };
        let mut packet = Vec::new();
        hello.write(&mut packet);
        assert_eq!(parse(&packet), Ok(Packet::Hello(hello)));
        assert_eq!(parse(&packet[..72]), Err(ParseError::Short));
        let echo = Some(Echo {
            stamp: 1,
            held: STAMP_MASK,
        });
        for (is_long, echo) in [(false, None), (true, echo)] {
            let number = ShortNumber::of(77_777, is_long);
            let head = Head {
                number,
                sent: 99,
                echo,
            };
            let mut packet = Vec::new();
            head.write_control(&mut packet);
            let content = ContentId([9; 16]);
            let frames = [
                Frame::Want {
                    content,
                    handle: 3,
                    start: 1 << 40,
                    end: (1 << 40) + 7,
                    is_fresh: false,
                    is_live: true,
                },
                Frame::Want {
                    content,
                    handle: 3,
                    start: 0,
                    end: varint::MAX,
                    is_fresh: true,
                    is_live: false,
                },
                Frame::Want {
                    content,
                    handle: 4,
                    start: 0,
                    end: 9,
                    is_fresh: true,
                    is_live: true,
                },
                Frame::Rate {
                    kbit: 100_000_000,
                    greatest: u32::MAX,
                },
                Frame::Flow {
                    handle: 70,
                    kbit: 1,
                },
                Frame::Lost { first: 5, count: 2 },
                Frame::Void {
                    handle: 1,
                    start: 2,
                    end: 3,
                },
                Frame::Refused { handle: 1 << 20 },
            ];
            for frame in &frames {
                let before = packet.len();
                frame.write(&mut packet);
                assert!(packet.len() - before <= Frame::MAX_BYTES);
            }
            packet.extend([0; MAC_BYTES]);
            assert_eq!(check(&packet), Ok(()));
            let Ok(Packet::Numbered(Numbered {
                body: Body::Control(mut rest),
                ..
            })) = parse(&packet)
            else {
                panic!("a control packet");
            };
            for frame in frames {
                assert_eq!(Frame::read(&mut rest), Ok(frame));
            }

            let data = Data {
                handle: 1,
                offset: 1418,
                is_end: true,
                is_repair: true,
                is_limited: true,
                sealed: &[7; 30],
            };
            let mut packet = Vec::new();
            head.write_data(&data, &mut packet);
            packet.extend([0; MAC_BYTES]);
            assert_eq!(check(&packet), Ok(()));
            for cut in 0..33 {
                assert!(parse(&packet[..cut]).is_err());
            }
        }
    }
}
