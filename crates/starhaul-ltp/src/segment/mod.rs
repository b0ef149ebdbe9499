//! LTP segments (RFC 5326 §3). One value, [`Segment`], is what parsing returns and what is written, in either [`Encoding`]; its data,
//! claims and extensions are borrowed.

mod encoding;
mod parse;
mod write;

use std::fmt;

pub use encoding::Encoding;
pub(crate) use parse::PlainRun;
pub use parse::{ParseError, parse};
pub(crate) use write::begin_plain;

use crate::sdnv;

/// The number of an LTP engine (RFC 5326 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineId(pub u64);

/// Identifies a session among all engines (RFC 5326 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// The engine that sends the block.
    pub originator: EngineId,
    /// The number that it chose.
    pub number: u64,
}

/// Why a session was cancelled (RFC 5326 §3.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CancelReason {
    /// The client service cancelled it (`USR_CNCLD`).
    User,
    /// The destination has no such client service (`UNREACH`).
    Unreachable,
    /// A segment was retransmitted too often without an answer (`RLEXC`).
    RetransmissionLimit,
    /// Red data came behind green data, or green data before red data (`MISCOLORED`).
    Miscolored,
    /// An engine failed, or found the block damaged (`SYS_CNCLD`).
    System,
    /// The block needed too many rounds of retransmissions (`RXMTCYCEXC`).
    RetransmissionCycles,
    /// A code that RFC 5326 leaves unassigned; the session is cancelled all the same.
    Unassigned(u8),
}

/// One of the two ends of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The engine that sends the block.
    Sender,
    /// The engine that receives it.
    Receiver,
}

/// A segment, its data borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// How it is written; its claims, if it has some, are written so, too.
    pub encoding: Encoding,
    /// The session it belongs to.
    pub session: SessionId,
    /// Extensions before the content; with fixed fields they stand behind it, before the others.
    pub header: Extensions<'a>,
    /// Content of the segment, by its type.
    pub body: Body<'a>,
    /// Extensions behind the content.
    pub trailer: Extensions<'a>,
}

/// The content of a segment (RFC 5326 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Data of the block (types 0–4 and 7).
    Data(Data<'a>),
    /// A repair symbol (type 5, which RFC 5326 leaves undefined; see [`crate::Coding`]).
    Repair(Repair<'a>),
    /// A parity of several codes (type 5, too).
    Parity(Parity<'a>),
    /// A reception report (type 8).
    Report(Report<'a>),
    /// Acknowledges a report (type 9).
    ReportAck {
        /// The serial number of the report.
        report: u64,
    },
    /// Cancels the session (types 12 and 14).
    Cancel {
        /// The end that cancels.
        by: End,
        /// Why it cancels.
        reason: CancelReason,
    },
    /// Acknowledges a cancellation (types 13 and 15).
    CancelAck {
        /// The end that cancelled.
        by: End,
    },
}

/// Data of a block (RFC 5326 §3.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Red or green, and what ends with this segment.
    pub kind: DataKind,
    /// The client service at the receiver.
    pub service: u64,
    /// Where in the block the data begin.
    pub offset: u64,
    /// Serial numbers, on checkpoints.
    pub checkpoint: Option<Checkpoint>,
    /// Bytes of the block, from `offset` on.
    pub payload: &'a [u8],
}

/// A repair symbol of an erasure code over a part of the red part. On the wire: service, first byte of the code, length of
/// the red part, 1 if the block ends with it or 0, data symbols, repair symbols, index, length, symbol; the four between
/// are single bytes, the others numbers of the segment's encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair<'a> {
    /// The client service at the receiver.
    pub service: u64,
    /// Where in the block the code begins.
    pub offset: u64,
    /// Length of the red part.
    pub red: u64,
    /// Whether the block ends with the red part.
    pub is_whole: bool,
    /// Data symbols of the code, each as long as the payload; the last may reach beyond the red part, padded with zeros.
    pub symbols: u8,
    /// Repair symbols of the code.
    pub repairs: u8,
    /// The index of this one: at least the number of data symbols.
    pub index: u8,
    /// Bytes of the repair symbol.
    pub payload: &'a [u8],
}

/// Bytes of a parity, at least: shorter ones would cost a receiver more than the host that sends them.
pub(crate) const LEAST_PARITY: usize = 64;

/// The sum (exclusive or) of one symbol of each code of a red part, all at the same place of their codes. On the wire a repair symbol of a
/// code without data symbols, which engines that do not know parities drop: service, 0, length of the red part, 1 if the block ends with
/// it or 0, 0, data symbols of each code, index, length, sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parity<'a> {
    /// The client service at the receiver.
    pub service: u64,
    /// Length of the red part.
    pub red: u64,
    /// Whether the block ends with the red part.
    pub is_whole: bool,
    /// Data symbols of each code but the last, which may have fewer; each is as long as the payload, padded with zeros behind the red part.
    pub symbols: u8,
    /// The place of these symbols in their codes: less than their number.
    pub index: u8,
    /// Their sum, of 64 bytes at least.
    pub payload: &'a [u8],
}

/// The kinds of data segments; all red ones but the first are checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataKind {
    /// Red data without a checkpoint (type 0).
    Red,
    /// A checkpoint within the red part.
    RedCheckpoint,
    /// The end of the red part; green data follow.
    RedEnd,
    /// The end of the red part and of the block.
    RedEndOfBlock,
    /// Green data that do not end the block (type 4).
    Green,
    /// The end of the block, green.
    GreenEndOfBlock,
}

/// The serial numbers of a checkpoint (RFC 5326 §3.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its own, never zero.
    pub serial: u64,
    /// That of the report whose gaps were retransmitted before it, or zero.
    pub report: u64,
}

/// A reception report (RFC 5326 §3.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// Its own serial number, never zero.
    pub serial: u64,
    /// That of the checkpoint it answers; zero if it answers none.
    pub checkpoint: u64,
    /// The first byte of the block that it does not report on.
    pub upper: u64,
    /// The first byte that it reports on.
    pub lower: u64,
    /// The bytes between that were received.
    pub claims: Claims<'a>,
}

/// The claims of a report as on the wire; checked when they were parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims<'a> {
    pub(crate) encoding: Encoding,
    pub(crate) count: u64,
    pub(crate) bytes: &'a [u8],
}

/// Extensions as on the wire, unknown ones included; checked when they were parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions<'a> {
    pub(crate) count: u8,
    pub(crate) bytes: &'a [u8],
}

impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.originator, self.number)
    }
}

impl CancelReason {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::User => 0,
            Self::Unreachable => 1,
            Self::RetransmissionLimit => 2,
            Self::Miscolored => 3,
            Self::System => 4,
            Self::RetransmissionCycles => 5,
            Self::Unassigned(code) => code,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::User,
            1 => Self::Unreachable,
            2 => Self::RetransmissionLimit,
            3 => Self::Miscolored,
            4 => Self::System,
            5 => Self::RetransmissionCycles,
            _ => Self::Unassigned(code),
        }
    }
}

impl fmt::Display for CancelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "cancelled by the client service",
            Self::Unreachable => "the receiver has no such client service",
            Self::RetransmissionLimit => "no answer within the retransmission limit",
            Self::Miscolored => "red and green data were mixed up",
            Self::System => "an engine failed or found the block damaged",
            Self::RetransmissionCycles => "too many rounds of retransmissions",
            Self::Unassigned(code) => return write!(f, "unassigned reason {code}"),
        })
    }
}

impl DataKind {
    /// Whether receipt is acknowledged.
    pub const fn is_red(self) -> bool {
        !matches!(self, Self::Green | Self::GreenEndOfBlock)
    }

    /// Whether the red part ends here.
    pub const fn ends_red(self) -> bool {
        matches!(self, Self::RedEnd | Self::RedEndOfBlock)
    }

    /// Whether the block ends here.
    pub const fn ends_block(self) -> bool {
        matches!(self, Self::RedEndOfBlock | Self::GreenEndOfBlock)
    }
}

impl Repair<'_> {
    /// The first byte behind the code's data.
    pub(crate) fn code_end(&self) -> u64 {
        let bytes = u64::from(self.symbols).saturating_mul(self.payload.len() as u64);
        self.offset.saturating_add(bytes).min(self.red)
    }

    /// The first byte of the code's last data segment, before which its repair symbols leave.
    pub(crate) fn last_data(&self) -> u64 {
        let before = u64::from(self.symbols.saturating_sub(1));
        let bytes = before.saturating_mul(self.payload.len() as u64);
        self.offset.saturating_add(bytes).min(self.red)
    }
}

impl Report<'_> {
    /// Whether it says of some of the bytes between its bounds that they are missing.
    pub(crate) fn leaves_out(&self) -> bool {
        let mut at = self.lower;
        let behind = [(self.upper, self.upper)];
        let mut bounds = self.claims.ranges(self.lower).chain(behind);
        bounds.any(|(start, end)| {
            let is_missing = start > at;
            at = at.max(end);
            is_missing
        })
    }
}

impl Claims<'_> {
    /// The claimed ranges of the block, as first byte and first byte behind, in ascending order. `lower` is the lower
    /// bound of the report.
    pub fn ranges(&self, lower: u64) -> impl Iterator<Item = (u64, u64)> {
        let (mut rest, encoding) = (self.bytes, self.encoding);
        (0..self.count).map_while(move |_| {
            let (offset, after) = encoding.read_number(rest).ok()?;
            let (length, after) = encoding.read_number(after).ok()?;
            rest = after;
            let start = lower.checked_add(offset)?;
            Some((start, start.checked_add(length)?))
        })
    }
}

impl<'a> Extensions<'a> {
    /// The extensions: tag and value.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &'a [u8])> {
        let mut rest = self.bytes;
        (0..self.count).map_while(move |_| {
            let (&tag, after) = rest.split_first()?;
            let (length, after) = sdnv::decode(after).ok()?;
            let (value, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
            rest = after;
            Some((tag, value))
        })
    }

    /// The value of the first extension with this tag.
    pub fn value(&self, tag: u8) -> Option<&'a [u8]> {
        let mut all = self.iter();
        all.find_map(|(found, value)| (found == tag).then_some(value))
    }
}

#[cfg(test)]
mod tests;
