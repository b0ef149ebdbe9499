//! Where the messages of TCPCLv4 begin and end in one direction of a connection (RFC 9174 §4.2, §5), read as the bytes pass: no more
//! than the fields of one message are kept, of any length that a message claims.

/// The first four bytes of a contact header (RFC 9174 §4.2), and the version that this node speaks.
const MAGIC: [u8; 4] = *b"dtn!";
const VERSION: u8 = 4;
/// Bytes of a contact header.
pub(super) const CONTACT: usize = 6;
/// Flags of a contact header: TLS can be used.
const CAN_TLS: u8 = 1;
/// Flags of XFER_SEGMENT and XFER_ACK (RFC 9174 §5.2.2): the segment is the last, or the first, of its transfer.
pub(super) const END: u8 = 1;
pub(super) const START: u8 = 2;
/// Longest list of extension items in bytes: those that are defined have 13 (RFC 9174 §5.2.5.1).
const MOST_ITEMS: u32 = 4096;
/// Bytes before the value of an extension item: flags, type and length.
const ITEM: u32 = 5;
/// Longest name of a node in bytes.
const MOST_NODE_ID: u16 = 2048;
/// Least segment MRU in bytes with which a peer gets bundles. RFC 9174 has none, but the library notes every segment that is not
/// acknowledged, and with segments of no bytes it would never come to an end.
pub const LEAST_SEGMENT_MRU: u64 = 512;
/// Bytes of the longest run of fields: those of SESS_INIT before the name of the node.
const MOST_FIELDS: usize = 21;

/// Why a connection over TCPCLv4 is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The peer speaks another protocol.
    #[error("it does not begin with a contact header of TCPCL")]
    NoContact,
    /// The peer speaks another version of TCPCL.
    #[error("it speaks version {0} of TCPCL, not 4")]
    Version(u8),
    /// Both contact headers offer TLS, in which no message can be read; this node never offers it.
    #[error("it asks for TLS")]
    Tls,
    /// What follows a message has no type that RFC 9174 defines.
    #[error("it sends a message of the unknown type {0}")]
    UnknownType(u8),
    /// A list of extension items claims this many bytes, more than are taken.
    #[error("it claims {0} bytes of extension items, where at most {most} are taken", most = MOST_ITEMS)]
    LongExtensions(u32),
    /// Extension items do not fill their list.
    #[error("its extension items do not fill the length of their list")]
    Extensions,
    /// The name of the peer claims this many bytes, more than are taken.
    #[error("it claims {0} bytes for the name of its node, where at most {most} are taken", most = MOST_NODE_ID)]
    NodeId(u16),
    /// A segment is longer than the segment MRU that this node has told.
    #[error("it claims {bytes} bytes for a segment, where the segment MRU is {most}")]
    Segment {
        /// Bytes that the segment claims.
        bytes: u64,
        /// The segment MRU in bytes.
        most: u64,
    },
    /// A transfer is longer than the transfer MRU that this node has told.
    #[error("it sends {bytes} bytes or more in one transfer, where the transfer MRU is {most}")]
    Transfer {
        /// Bytes of the transfer with the segment that is too much.
        bytes: u64,
        /// The transfer MRU in bytes.
        most: u64,
    },
    /// The peer takes only segments so short that their number would cost more memory than a bundle.
    #[error("it takes segments of {0} bytes at most, where {least} are the least", least = LEAST_SEGMENT_MRU)]
    SegmentMru(u64),
    /// A segment comes before SESS_INIT, or belongs to no transfer, or begins one within another.
    #[error("it sends a segment out of order")]
    Order,
}

/// What the fields of a message say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A contact header, and whether it offers TLS.
    Contact { can_tls: bool },
    /// SESS_INIT.
    Init { segment_mru: u64 },
    /// XFER_SEGMENT; its data follow.
    Segment { flags: u8, id: u64, bytes: u64 },
    /// XFER_ACK: the flags are passed on as they are when this has been looked at.
    Ack { flags: u8, id: u64, length: u64 },
    /// XFER_REFUSE.
    Refused { id: u64 },
    /// KEEPALIVE, SESS_TERM or MSG_REJECT.
    Other,
}

/// What comes behind a list of extension items.
#[derive(Clone, Copy, Debug)]
enum Then {
    Message,
    DataLength { flags: u8, id: u64 },
}

impl Then {
    fn step(self) -> Step {
        match self {
            Self::Message => Step::Kind,
            Self::DataLength { flags, id } => Step::DataLength { flags, id },
        }
    }
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Contact,
    Kind,
    Init,
    NodeId { left: u64 },
    ItemsLength(Then),
    Item { left: u32, then: Then },
    Value { left: u64, after: u32, then: Then },
    SegmentHead,
    DataLength { flags: u8, id: u64 },
    Data { left: u64 },
    Ack,
    Refuse,
    Short,
}

impl Step {
    /// The fields of a message, which begin with its type; KEEPALIVE has none.
    fn of(kind: u8) -> Result<Option<Self>, Fault> {
        Ok(Some(match kind {
            1 => Self::SegmentHead,
            2 => Self::Ack,
            3 => Self::Refuse,
            4 => return Ok(None),
            // SESS_TERM and MSG_REJECT.
            5 | 6 => Self::Short,
            7 => Self::Init,
            unknown => return Err(Fault::UnknownType(unknown)),
        }))
    }

    /// The bytes that pass without being looked at, if such come next.
    fn passing(&mut self) -> Option<&mut u64> {
        match self {
            Self::NodeId { left } | Self::Value { left, .. } | Self::Data { left } => Some(left),
            _ => None,
        }
    }

    /// What comes when they have passed.
    fn after(self) -> Self {
        match self {
            Self::NodeId { .. } => Self::ItemsLength(Then::Message),
            Self::Value { after, then, .. } if after > 0 => Self::Item { left: after, then },
            Self::Value { then, .. } => then.step(),
            _ => Self::Kind,
        }
    }

    /// Bytes of the fields that are looked at together.
    fn fields(self) -> usize {
        match self {
            Self::Contact => CONTACT,
            Self::Kind => 1,
            Self::Init => MOST_FIELDS,
            Self::ItemsLength(_) => 4,
            Self::Item { .. } => 5,
            Self::SegmentHead | Self::Refuse => 10,
            Self::DataLength { .. } => 8,
            Self::Ack => 18,
            Self::Short => 3,
            Self::NodeId { .. } | Self::Value { .. } | Self::Data { .. } => 0,
        }
    }
}

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Framing {
    step: Step,
    /// Fields that are not complete yet; they pass when they are.
    head: [u8; MOST_FIELDS],
    held: usize,
}

impl Framing {
    pub(super) const fn new() -> Self {
        Self {
            step: Step::Contact,
            head: [0; MOST_FIELDS],
            held: 0,
        }
    }

    /// Takes what came, adds what may pass to `out`, and shows the fields of each message to `on` before they do.
    ///
    /// # Errors
    /// What is wrong, also by what `on` says. Nothing may come after it.
    pub(super) fn take(
        &mut self,
        mut input: &[u8],
        out: &mut Vec<u8>,
        mut on: impl FnMut(&mut Seen) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        loop {
            if let Some(left) = self.step.passing() {
                let most = usize::try_from(*left).unwrap_or(usize::MAX);
                let (passing, rest) = input.split_at(most.min(input.len()));
                out.extend_from_slice(passing);
                input = rest;
                *left -= passing.len() as u64;
                if *left > 0 {
                    return Ok(());
                }
                self.step = self.step.after();
                continue;
            }
            let missing = self.step.fields() - self.held;
            let (part, rest) = input.split_at(missing.min(input.len()));
            self.head[self.held..][..part.len()].copy_from_slice(part);
            self.held += part.len();
            input = rest;
            if part.len() < missing {
                return Ok(());
            }
            self.read(out, &mut on)?;
        }
    }

    /// Looks at fields that are complete, and lets them pass.
    fn read(
        &mut self,
        out: &mut Vec<u8>,
        on: &mut impl FnMut(&mut Seen) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let head = self.head;
        let next = match self.step {
            Step::Kind => match Step::of(head[0])? {
                Some(step) => {
                    // The type stays, as the first of the fields.
                    self.step = step;
                    return Ok(());
                }
                None => {
                    on(&mut Seen::Other)?;
                    Step::Kind
                }
            },
            Step::Contact => {
                let [a, b, c, d, version, flags, ..] = head;
                let can_tls = contact([a, b, c, d, version, flags])?;
                on(&mut Seen::Contact { can_tls })?;
                Step::Kind
            }
            Step::Init => {
                let name = u16::from_be_bytes([head[19], head[20]]);
                if name > MOST_NODE_ID {
                    return Err(Fault::NodeId(name));
                }
                let segment_mru = number(&head, 3);
                on(&mut Seen::Init { segment_mru })?;
                let left = u64::from(name);
                Step::NodeId { left }
            }
            Step::SegmentHead => {
                let (flags, id) = (head[1], number(&head, 2));
                let then = Then::DataLength { flags, id };
                match flags & START {
                    0 => then.step(),
                    _ => Step::ItemsLength(then),
                }
            }
            Step::ItemsLength(then) => items(
                u32::from_be_bytes([head[0], head[1], head[2], head[3]]),
                then,
            )?,
            Step::Item { left, then } => item(left, u16::from_be_bytes([head[3], head[4]]), then)?,
            Step::DataLength { flags, id } => {
                let bytes = number(&head, 0);
                on(&mut Seen::Segment { flags, id, bytes })?;
                Step::Data { left: bytes }
            }
            Step::Ack => {
                let mut seen = Seen::Ack {
                    flags: head[1],
                    id: number(&head, 2),
                    length: number(&head, 10),
                };
                on(&mut seen)?;
                if let Seen::Ack { flags, .. } = seen {
                    self.head[1] = flags;
                }
                Step::Kind
            }
            Step::Refuse => {
                on(&mut Seen::Refused {
                    id: number(&head, 2),
                })?;
                Step::Kind
            }
            Step::Short => {
                on(&mut Seen::Other)?;
                Step::Kind
            }
            passing @ (Step::NodeId { .. } | Step::Value { .. } | Step::Data { .. }) => passing,
        };
        out.extend_from_slice(&self.head[..self.held]);
        (self.held, self.step) = (0, next);
        Ok(())
    }
}

/// Checks a contact header, and returns whether it offers TLS.
pub(super) fn contact(header: [u8; CONTACT]) -> Result<bool, Fault> {
    let [a, b, c, d, version, flags] = header;
    if [a, b, c, d] != MAGIC {
        return Err(Fault::NoContact);
    }
    match version {
        VERSION => Ok(flags & CAN_TLS != 0),
        other => Err(Fault::Version(other)),
    }
}

/// A list of extension items of this length. The library would read on behind a list that its items do not fill, or that they exceed:
/// what it took for messages then would not be what is seen here.
fn items(length: u32, then: Then) -> Result<Step, Fault> {
    match length {
        0 => Ok(then.step()),
        1..ITEM => Err(Fault::Extensions),
        ITEM..=MOST_ITEMS => Ok(Step::Item { left: length, then }),
        _ => Err(Fault::LongExtensions(length)),
    }
}

/// An item in the rest of a list, with a value of so many bytes.
fn item(left: u32, value: u16, then: Then) -> Result<Step, Fault> {
    let after = left.checked_sub(ITEM + u32::from(value));
    match after {
        Some(after @ (0 | ITEM..)) => Ok(Step::Value {
            left: u64::from(value),
            after,
            then,
        }),
        _ => Err(Fault::Extensions),
    }
}

/// The number of eight bytes that begins at `at`.
fn number(head: &[u8; MOST_FIELDS], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&head[at..at + 8]);
    u64::from_be_bytes(bytes)
}
