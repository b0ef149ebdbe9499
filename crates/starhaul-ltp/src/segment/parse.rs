//! Parsing of segments (RFC 5326 §3), in either encoding. Nothing is copied, and nothing is allocated.

use super::{
    Body, CancelReason, Checkpoint, Claims, Data, DataKind, Encoding, End, EngineId, Extensions,
    LEAST_PARITY, Parity, Repair, Report, Segment, SessionId,
};
use crate::sdnv::SdnvError;

/// Why bytes are no segment; the peer or the network is at fault, and the rest of the datagram is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A number is malformed.
    #[error(transparent)]
    Number(#[from] SdnvError),
    /// The version is not 0, nor that of the encoding with fixed fields.
    #[error(
        "the peer speaks version {0} of LTP, this engine version 0, or 15 in the profile of fixed fields"
    )]
    Version(u8),
    /// RFC 5326 leaves the segment type undefined.
    #[error("segment type {0} is undefined")]
    Type(u8),
    /// The datagram ended inside the segment.
    #[error("the datagram ends inside a segment")]
    Truncated,
    /// A checkpoint or report has serial number 0.
    #[error("a checkpoint or report has serial number 0")]
    ZeroSerial,
    /// A data segment without data, or with data beyond the largest offset.
    #[error("a data segment covers no byte of any block")]
    EmptyData,
    /// A repair symbol outside its code, a code outside its red part, or a parity of fewer than two codes.
    #[error("a repair symbol does not fit its code")]
    Code,
    /// A report without claims, or with claims that overlap or exceed its bounds.
    #[error("the claims of a report do not fit its bounds")]
    Claims,
    /// With fixed fields: the red part ends before its block.
    #[error("the block is red in part, and blocks have one colour in the profile of fixed fields")]
    MixedBlock,
    /// With fixed fields: an extension of more than 127 bytes.
    #[error("an extension is longer than 127 bytes, the most in the profile of fixed fields")]
    LongExtension,
}

/// Greatest number of bytes of an extension's value with fixed fields. Up to here its length is the same byte in both encodings.
const LONGEST_EXTENSION: u8 = 127;

/// Parses the first segment of a datagram and returns it with the bytes behind it.
///
/// # Errors
/// [`ParseError`] when the bytes do not begin with a whole segment of an encoding that is known.
pub fn parse(datagram: &[u8]) -> Result<(Segment<'_>, &[u8]), ParseError> {
    let &control = datagram.first().ok_or(ParseError::Truncated)?;
    let encoding = Encoding::of(control).ok_or(ParseError::Version(control >> 4))?;
    let mut input = Input::new(encoding, datagram);
    let (session, counts) = input.beginning()?;
    let mut header = Extensions::default();
    if encoding == Encoding::Rfc5326 {
        header = input.extensions(counts >> 4)?;
    }
    let body = match control & 0xf {
        0 => input.data(DataKind::Red)?,
        1 => input.data(DataKind::RedCheckpoint)?,
        2 => input.data(DataKind::RedEnd)?,
        3 => input.data(DataKind::RedEndOfBlock)?,
        4 => input.data(DataKind::Green)?,
        5 => input.repair()?,
        7 => input.data(DataKind::GreenEndOfBlock)?,
        8 => input.report()?,
        9 => Body::ReportAck {
            report: input.serial()?,
        },
        12 => input.cancel(End::Sender)?,
        13 => Body::CancelAck { by: End::Sender },
        14 => input.cancel(End::Receiver)?,
        15 => Body::CancelAck { by: End::Receiver },
        undefined => return Err(ParseError::Type(undefined)),
    };
    if encoding == Encoding::Fixed {
        header = input.extensions(counts >> 4)?;
    }
    let trailer = input.extensions(counts & 0xf)?;
    let segment = Segment {
        encoding,
        session,
        header,
        body,
        trailer,
    };
    Ok((segment, input.rest))
}

impl Parity<'_> {
    /// Whether it is the sum of symbols of several codes.
    fn is_of_codes(&self) -> bool {
        let length = self.payload.len() as u64;
        let code = length.saturating_mul(self.symbols.into());
        let is_inside = code < self.red && self.red.checked_add(code).is_some();
        length >= LEAST_PARITY as u64 && self.index < self.symbols && is_inside
    }
}

/// Datagrams that came together, each of which is one segment of red data that is no checkpoint and has no extensions, and goes on where
/// the one before it ended: as they come from a sender of much data. There are two at least.
#[derive(Debug)]
pub(crate) struct PlainRun<'a> {
    pub(crate) session: SessionId,
    /// Where in the block the data of the first begin, and where those of the last end.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The data of each.
    pub(crate) payloads: Vec<&'a [u8]>,
    /// Bytes of the datagrams.
    pub(crate) bytes: usize,
}

impl<'a> PlainRun<'a> {
    /// Capacity for the payloads at first: those of a sender of much data have an Ethernet packet each.
    const USUAL: usize = 64;

    /// The run that datagrams of `stride` bytes, but for the last, begin with, in this encoding; `None` if there is none, or `is_wanted` says
    /// so of its session and client service. Whatever is taken for a part of it, [`parse`] takes for the same segment.
    pub(crate) fn find(
        encoding: Encoding,
        datagrams: &'a [u8],
        stride: usize,
        is_wanted: impl FnOnce(SessionId, u64) -> bool,
    ) -> Option<Self> {
        let mut datagrams = datagrams.chunks(stride.max(1));
        let first = datagrams.next().filter(|_| datagrams.len() > 0)?;
        let mut input = Input::new(encoding, first);
        let (session, counts) = input.beginning().ok()?;
        let service = input.number().ok()?;
        let is_plain = first.first() == Some(&encoding.control(0)) && counts == 0;
        if !is_plain || !is_wanted(session, service) {
            return None;
        }
        let beginning = &first[..first.len() - input.rest.len()];
        let (start, payload) = input.plain_data()?;
        let mut run = Self {
            session,
            start,
            end: start,
            payloads: Vec::with_capacity(datagrams.len().min(Self::USUAL)),
            bytes: 0,
        };
        run.add(first, payload);
        for datagram in datagrams {
            let rest = datagram.strip_prefix(beginning);
            match rest.and_then(|rest| Input::new(encoding, rest).plain_data()) {
                Some((at, payload)) if at == run.end => run.add(datagram, payload),
                _ => break,
            }
        }
        (run.payloads.len() > 1).then_some(run)
    }

    /// Bytes of data.
    pub(crate) fn length(&self) -> u64 {
        self.end - self.start
    }

    fn add(&mut self, datagram: &[u8], payload: &'a [u8]) {
        self.bytes += datagram.len();
        self.end += payload.len() as u64;
        self.payloads.push(payload);
    }
}

/// What is left of a segment, and how it is written.
struct Input<'a> {
    encoding: Encoding,
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    const fn new(encoding: Encoding, rest: &'a [u8]) -> Self {
        Self { encoding, rest }
    }

    /// First byte, which is known, session, and numbers of extensions: four bits for those before the content, four for those behind it.
    fn beginning(&mut self) -> Result<(SessionId, u8), ParseError> {
        self.byte()?;
        let second = match self.encoding {
            Encoding::Fixed => Some(self.byte()?),
            Encoding::Rfc5326 => None,
        };
        let session = SessionId {
            originator: EngineId(self.number()?),
            number: self.number()?,
        };
        let counts = match second {
            Some(counts) => counts,
            None => self.byte()?,
        };
        Ok((session, counts))
    }

    fn byte(&mut self) -> Result<u8, ParseError> {
        let (&byte, rest) = self.rest.split_first().ok_or(ParseError::Truncated)?;
        self.rest = rest;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64, ParseError> {
        let (number, rest) = self.encoding.read_number(self.rest)?;
        self.rest = rest;
        Ok(number)
    }

    fn serial(&mut self) -> Result<u64, ParseError> {
        match self.number()? {
            0 => Err(ParseError::ZeroSerial),
            serial => Ok(serial),
        }
    }

    fn bytes(&mut self, length: u64) -> Result<&'a [u8], ParseError> {
        let length = usize::try_from(length).map_err(|_| ParseError::Truncated)?;
        let split = self.rest.split_at_checked(length);
        let (bytes, rest) = split.ok_or(ParseError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn extensions(&mut self, count: u8) -> Result<Extensions<'a>, ParseError> {
        let before = self.rest;
        for _ in 0..count {
            self.byte()?;
            let length = self.extension_length()?;
            self.bytes(length)?;
        }
        let bytes = &before[..before.len() - self.rest.len()];
        Ok(Extensions { count, bytes })
    }

    /// With fixed fields one byte, so that what reads extensions need not know their encoding.
    fn extension_length(&mut self) -> Result<u64, ParseError> {
        if self.encoding == Encoding::Rfc5326 {
            return self.number();
        }
        match self.byte()? {
            length @ ..=LONGEST_EXTENSION => Ok(length.into()),
            _ => Err(ParseError::LongExtension),
        }
    }

    /// Whether a block may go on behind its red part.
    fn check_colour(&self, is_whole: bool) -> Result<(), ParseError> {
        match self.encoding.is_single_colour() && !is_whole {
            true => Err(ParseError::MixedBlock),
            false => Ok(()),
        }
    }

    fn data(&mut self, kind: DataKind) -> Result<Body<'a>, ParseError> {
        self.check_colour(kind != DataKind::RedEnd)?;
        let (service, offset, length) = (self.number()?, self.number()?, self.number()?);
        let has_serials = !matches!(
            kind,
            DataKind::Red | DataKind::Green | DataKind::GreenEndOfBlock
        );
        let checkpoint = match has_serials {
            true => Some(Checkpoint {
                serial: self.serial()?,
                report: self.number()?,
            }),
            false => None,
        };
        if length == 0 || offset.checked_add(length).is_none() {
            return Err(ParseError::EmptyData);
        }
        Ok(Body::Data(Data {
            kind,
            service,
            offset,
            checkpoint,
            payload: self.bytes(length)?,
        }))
    }

    /// Offset and data of a red segment without a checkpoint that all of the rest is.
    fn plain_data(mut self) -> Option<(u64, &'a [u8])> {
        let (offset, length) = (self.number().ok()?, self.number().ok()?);
        let is_whole = length == self.rest.len() as u64;
        let has_data = length > 0 && offset.checked_add(length).is_some();
        (is_whole && has_data).then_some((offset, self.rest))
    }

    fn repair(&mut self) -> Result<Body<'a>, ParseError> {
        let (service, offset, red) = (self.number()?, self.number()?, self.number()?);
        let (whole, symbols) = (self.byte()?, self.byte()?);
        let (repairs, index) = (self.byte()?, self.byte()?);
        let length = self.number()?;
        let payload = self.bytes(length)?;
        self.check_colour(whole != 0)?;
        if symbols == 0 {
            let parity = Parity {
                service,
                red,
                is_whole: whole == 1,
                symbols: repairs,
                index,
                payload,
            };
            let is_one = offset == 0 && whole <= 1 && parity.is_of_codes();
            return is_one
                .then_some(Body::Parity(parity))
                .ok_or(ParseError::Code);
        }
        // The last data symbol begins within the red part, and only it may reach beyond.
        let before_last = u64::from(symbols)
            .checked_sub(1)
            .and_then(|n| n.checked_mul(length));
        let last = before_last.and_then(|bytes| bytes.checked_add(offset));
        let is_inside = last.is_some_and(|last| last < red && red.checked_add(length).is_some());
        let all = symbols.checked_add(repairs);
        let is_repair = all.is_some_and(|all| (symbols..all).contains(&index));
        if length == 0 || whole > 1 || !is_inside || !is_repair {
            return Err(ParseError::Code);
        }
        Ok(Body::Repair(Repair {
            service,
            offset,
            red,
            is_whole: whole == 1,
            symbols,
            repairs,
            index,
            payload,
        }))
    }

    fn report(&mut self) -> Result<Body<'a>, ParseError> {
        let serial = self.serial()?;
        let checkpoint = self.number()?;
        let (upper, lower) = (self.number()?, self.number()?);
        let count = self.number()?;
        let before = self.rest;
        let scope = upper.checked_sub(lower).ok_or(ParseError::Claims)?;
        if count == 0 {
            return Err(ParseError::Claims);
        }
        // A claim begins behind the previous one (§3.2.2); each takes two bytes at least, so a false count ends early.
        let mut end = None;
        for _ in 0..count {
            let (offset, length) = (self.number()?, self.number()?);
            let next = offset.checked_add(length).filter(|next| *next <= scope);
            if length == 0 || end.is_some_and(|end| offset <= end) {
                return Err(ParseError::Claims);
            }
            end = Some(next.ok_or(ParseError::Claims)?);
        }
        let bytes = &before[..before.len() - self.rest.len()];
        Ok(Body::Report(Report {
            serial,
            checkpoint,
            upper,
            lower,
            claims: Claims {
                encoding: self.encoding,
                count,
                bytes,
            },
        }))
    }

    fn cancel(&mut self, by: End) -> Result<Body<'a>, ParseError> {
        let reason = CancelReason::from_code(self.byte()?);
        Ok(Body::Cancel { by, reason })
    }
}
