//! The operations on a pair of sessions, read from random bytes.

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use starhaul_session::Mode;

/// Either session of the pair.
pub(super) type Side = usize;

/// Greatest number of paths at once.
pub(super) const SLOTS: usize = 3;

/// One action of an application, the network or the transport. Streams, blocks and paths are selected by an index into
/// those that exist, modulo their number.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    /// Opens a stream.
    Open {
        side: Side,
        mode: Mode,
        deadline: Duration,
        priority: u8,
        max_coding_rate: f64,
        ordered: bool,
        label_bytes: usize,
    },
    /// Sends a block on a stream of the side's own.
    Send {
        side: Side,
        stream: usize,
        bytes: usize,
        deadline: Option<Duration>,
        priority: Option<u8>,
        /// Distance to the earlier block on which it depends.
        depends_back: Option<u32>,
    },
    /// Changes a block's deadline or priority.
    Update {
        side: Side,
        block: usize,
        deadline: Option<Duration>,
        priority: Option<u8>,
    },
    /// Cancels a block.
    Retreat { side: Side, block: usize },
    /// Ends a direction.
    Finish { side: Side, stream: usize },
    /// Writes bytes to a reliable stream of either side.
    Write {
        side: Side,
        stream: usize,
        bytes: usize,
    },
    /// Reads from a reliable stream.
    Read {
        side: Side,
        stream: usize,
        max: usize,
    },
    /// Resets a direction of a reliable stream.
    Reset {
        side: Side,
        stream: usize,
        code: u32,
    },
    /// Stops reading a direction of a reliable stream.
    Stop {
        side: Side,
        stream: usize,
        code: u32,
    },
    /// Lets this time pass.
    Advance(Duration),
    /// Delays the driver of both sides: the inputs of this time are delivered at its end, before the timers.
    Stall(Duration),
    /// Brings a path up, perhaps under the number of its former life; on the second side later than on the first, and
    /// later still when its acceptance is lost.
    PathUp {
        first: Side,
        slot: usize,
        rejoins: bool,
        ways: u32,
    },
    /// Takes a path down, likewise.
    PathDown { first: Side, slot: usize },
    /// Changes the links of a path.
    Condition { slot: usize, condition: Condition },
    /// Makes a path drop everything for a while.
    Outage { slot: usize, time: Duration },
    /// Drops, duplicates or delivers a datagram in flight.
    Meddle { datagram: usize, how: Meddling },
    /// The side takes its events from now on, or stops doing so.
    Events { side: Side, taken: bool },
    /// A side's detector signals the RTT of a path's segment, and an event in the past.
    Signal {
        side: Side,
        slot: usize,
        ago: Duration,
    },
    /// Measures a path by a train of datagrams, whatever else is under way.
    Train { side: Side, slot: usize },
    /// The transport reports the fate of a datagram that was never sent.
    NonsenseReport { side: Side, slot: usize, ahead: u32 },
    /// The peer's transport delivers data that the peer's session never sent.
    Forge { side: Side, forgery: Forgery },
}

/// A manipulation of a datagram in flight.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meddling {
    Drop,
    Double,
    DeliverNow,
}

/// Data of a hostile peer.
#[derive(Clone, Debug)]
pub(super) enum Forgery {
    /// A datagram in flight with one byte changed.
    Changed { datagram: usize, at: usize, xor: u8 },
    /// Bytes after a valid type.
    Bytes { kind: u8, body: Vec<u8> },
}

/// The properties of the links of one path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition {
    pub(super) delay: Duration,
    /// Greatest random addition to the delay, so that datagrams overtake each other.
    pub(super) jitter: Duration,
    /// Share of datagrams lost, in 256ths.
    pub(super) loss: u8,
    /// Share of datagrams that arrive twice, in 256ths.
    pub(super) double: u8,
    pub(super) bytes_per_second: u64,
    pub(super) cwnd: u64,
    pub(super) max_datagram: usize,
}

/// A plan of a whole run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of the network's random choices.
    pub(super) seed: u64,
    /// Bound of bytes that each session holds for sending.
    pub(super) max_send_bytes: usize,
    /// Bound of bytes that each session holds after receipt.
    pub(super) max_receive_bytes: usize,
    /// The transport reports acknowledgements.
    pub(super) reports_acks: bool,
    /// The transport reports losses, sometimes wrongly.
    pub(super) reports_losses: bool,
    /// The network heals after the operations, and everything must end. Otherwise the sessions are closed as they are.
    pub(super) heals: bool,
    /// [`Operation::Forge`] is executed; from then on only safety is checked.
    pub(super) is_hostile: bool,
    /// The operations in order.
    pub(super) operations: Vec<Operation>,
}

impl Plan {
    /// Reads the plan from `bytes`, with at most `most` operations.
    pub fn from_bytes(bytes: &[u8], most: usize) -> Self {
        let mut source = Unstructured::new(bytes);
        let mut plan = Self::header(&mut source).unwrap_or(Self {
            seed: 0,
            max_send_bytes: 1 << 20,
            max_receive_bytes: 1 << 20,
            reports_acks: false,
            reports_losses: false,
            heals: true,
            is_hostile: false,
            operations: Vec::new(),
        });
        while plan.operations.len() < most
            && !source.is_empty()
            && let Ok(operation) = operation(&mut source)
        {
            plan.operations.push(operation);
        }
        plan
    }

    fn header(source: &mut Unstructured<'_>) -> Result<Self> {
        const BOUNDS: [usize; 4] = [40_000, 200_000, 1 << 20, 64 << 20];
        let seed = source.arbitrary()?;
        let flags: u8 = source.arbitrary()?;
        Ok(Self {
            seed,
            max_send_bytes: *source.choose(&BOUNDS)?,
            max_receive_bytes: *source.choose(&BOUNDS)?,
            reports_acks: flags & 1 != 0,
            reports_losses: flags & 2 != 0,
            heals: flags & 12 != 0,
            is_hostile: flags & 48 == 0,
            operations: Vec::new(),
        })
    }
}

const MODES: [Mode; 6] = [
    Mode::FecRetransmit,
    Mode::Fec,
    Mode::Retransmit,
    Mode::None,
    Mode::Duplicate,
    Mode::Reliable,
];

/// Weights are in percent.
fn operation(source: &mut Unstructured<'_>) -> Result<Operation> {
    let weight = source.int_in_range(0..=99u8)?;
    let side = source.int_in_range(0..=1)?;
    let index: usize = source.arbitrary::<u8>()?.into();
    Ok(match weight {
        0..=5 => Operation::Open {
            side,
            mode: *source.choose(&MODES)?,
            deadline: deadline(source)?,
            priority: source.int_in_range(0..=8)?,
            max_coding_rate: f64::from(source.arbitrary::<u8>()?) / 255.0,
            ordered: source.ratio(1, 4)?,
            label_bytes: usize::from(source.arbitrary::<u8>()?),
        },
        6..=30 => Operation::Send {
            side,
            stream: index,
            bytes: block_bytes(source)?,
            deadline: maybe(source, deadline)?,
            priority: maybe(source, |source| source.int_in_range(0..=8))?,
            depends_back: maybe(source, |source| source.int_in_range(0..=6))?,
        },
        31..=33 => Operation::Update {
            side,
            block: index,
            deadline: maybe(source, deadline)?,
            priority: maybe(source, |source| source.int_in_range(0..=8))?,
        },
        34..=36 => Operation::Retreat { side, block: index },
        37 => Operation::Finish {
            side,
            stream: index,
        },
        38..=46 => Operation::Write {
            side,
            stream: index,
            bytes: block_bytes(source)?,
        },
        47..=51 => Operation::Read {
            side,
            stream: index,
            max: if source.ratio(1, 3)? {
                source.arbitrary::<u8>()?.into()
            } else {
                usize::MAX
            },
        },
        52 => match source.int_in_range(0..=2)? {
            0 => Operation::Reset {
                side,
                stream: index,
                code: source.arbitrary()?,
            },
            1 => Operation::Stop {
                side,
                stream: index,
                code: source.arbitrary()?,
            },
            _ => Operation::Finish {
                side,
                stream: index,
            },
        },
        53..=76 => Operation::Advance(time(source)?),
        77..=79 => Operation::Stall(time(source)?),
        80..=81 => Operation::PathUp {
            first: side,
            slot: index % SLOTS,
            rejoins: source.ratio(3, 4)?,
            ways: *source.choose(&[1, 1, 1, 3, 9])?,
        },
        82..=83 => Operation::PathDown {
            first: side,
            slot: index % SLOTS,
        },
        84..=86 => Operation::Condition {
            slot: index % SLOTS,
            condition: condition(source)?,
        },
        87 => Operation::Outage {
            slot: index % SLOTS,
            time: Duration::from_millis(source.int_in_range(1..=3000)?),
        },
        88..=94 => Operation::Meddle {
            datagram: index,
            how: *source.choose(&[Meddling::Drop, Meddling::Double, Meddling::DeliverNow])?,
        },
        95 => Operation::Signal {
            side,
            slot: index % SLOTS,
            ago: Duration::from_millis(source.arbitrary::<u8>()?.into()),
        },
        96 => Operation::Events {
            side,
            taken: source.ratio(2, 3)?,
        },
        97 => Operation::NonsenseReport {
            side,
            slot: index % SLOTS,
            ahead: source.arbitrary()?,
        },
        98 => Operation::Train {
            side,
            slot: index % SLOTS,
        },
        _ => Operation::Forge {
            side,
            forgery: forgery(source, index)?,
        },
    })
}

fn time(source: &mut Unstructured<'_>) -> Result<Duration> {
    let micros = u64::from(source.arbitrary::<u8>()?) << source.int_in_range(0..=12)?;
    Ok(Duration::from_micros(micros))
}

fn maybe<'a, T>(
    source: &mut Unstructured<'a>,
    make: impl FnOnce(&mut Unstructured<'a>) -> Result<T>,
) -> Result<Option<T>> {
    if source.ratio(1, 4)? {
        make(source).map(Some)
    } else {
        Ok(None)
    }
}

fn deadline(source: &mut Unstructured<'_>) -> Result<Duration> {
    Ok(Duration::from_millis(
        match source.int_in_range(0..=5u8)? {
            0 => source.int_in_range(1..=20)?,
            1..=3 => source.int_in_range(50..=1000)?,
            _ => source.int_in_range(1000..=20_000)?,
        },
    ))
}

fn block_bytes(source: &mut Unstructured<'_>) -> Result<usize> {
    match source.int_in_range(0..=9u8)? {
        0 => source.int_in_range(0..=3),
        1..=5 => source.int_in_range(1..=3000),
        6..=8 => source.int_in_range(1000..=40_000),
        _ => source.int_in_range(40_000..=400_000),
    }
}

fn condition(source: &mut Unstructured<'_>) -> Result<Condition> {
    let rough = source.ratio(1, 3)?;
    let max_datagram = match source.int_in_range(0..=9u8)? {
        0 => source.int_in_range(20..=1149)?,
        1 => source.int_in_range(1150..=1450)?,
        _ => 1200,
    };
    Ok(Condition {
        delay: Duration::from_micros(source.int_in_range(100..=300_000)?),
        jitter: if rough {
            Duration::from_micros(source.int_in_range(0..=100_000)?)
        } else {
            Duration::ZERO
        },
        loss: if rough {
            source.arbitrary()?
        } else {
            source.int_in_range(0..=10)?
        },
        double: if rough { source.arbitrary()? } else { 0 },
        bytes_per_second: source.int_in_range(20_000..=5_000_000)?,
        cwnd: source.int_in_range(2_400..=400_000)?,
        max_datagram,
    })
}

fn forgery(source: &mut Unstructured<'_>, index: usize) -> Result<Forgery> {
    if source.ratio(1, 2)? {
        Ok(Forgery::Changed {
            datagram: index,
            at: source.arbitrary::<u16>()?.into(),
            xor: source.int_in_range(1..=255)?,
        })
    } else {
        let length = source.int_in_range(0..=80)?;
        Ok(Forgery::Bytes {
            kind: source.int_in_range(0..=6)?,
            body: source.bytes(length)?.to_vec(),
        })
    }
}
