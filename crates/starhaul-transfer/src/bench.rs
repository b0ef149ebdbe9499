//! How fast this host carries LTP over loopback, beside the raw datagrams of the same system calls in the same run. Each
//! end has a thread.

mod alone;
mod far_end;
mod transfer;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use starhaul_ltp::{EngineId, Profile, SegmentSize};
use starhaul_net::{BulkSocket, IoMode, Poller, RecvBuffer};

pub use self::alone::{Alone, alone};
use self::{
    far_end::FarEnd,
    transfer::{Carrier, Way, driver},
};
use crate::Error;

/// Sizes and system calls of a measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of block data per segment, or that they adapt: then both ends go on from one transfer to the next, and those before the size
    /// stays are not counted.
    pub segment: SegmentSize,
    /// Bytes of block data per segment with which LTP is measured by turns, too, to compare with; may be empty.
    pub beside: Vec<usize>,
    /// What both ends agree on.
    pub profile: Profile,
    /// Bytes of the block.
    pub block_bytes: usize,
    /// The kinds of system calls that are measured one after the other.
    pub modes: Vec<IoMode>,
    /// How many pairs of raw datagrams and LTP are measured of each, at least, after a first transfer that is not counted; medians count.
    pub repeats: usize,
    /// For how long pairs are measured, at least: fast ones take a tenth of a second, in which anything else that runs shows.
    pub least_time: Duration,
}

/// The figures of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Bytes of the largest IP packet that leaves whole over loopback, if the kernel says so: larger segments are fragmented.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<usize>,
    /// Rates of raw UDP, which bound those of LTP.
    pub ceilings: Vec<Ceiling>,
    /// Rates of LTP over the same sockets.
    pub rows: Vec<Row>,
}

/// Raw UDP: the same block in datagrams of as many bytes of data, without a protocol.
#[derive(Clone, Debug, Serialize)]
pub struct Ceiling {
    /// The system calls.
    pub mode: &'static str,
    /// Bytes of data per segment.
    pub segment_bytes: usize,
    /// Data that arrived, until the last of it arrived.
    pub gbit_per_s: f64,
    /// Processor time of the sending thread per datagram.
    pub send_us_per_segment: f64,
    /// Processor time of the receiving thread per datagram.
    pub receive_us_per_segment: f64,
}

/// One red block over LTP, as in the transfer of the median rate.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The system calls.
    pub mode: &'static str,
    /// Bytes of data per segment, at the end if they adapt.
    pub segment_bytes: usize,
    /// Data of the block, until its sender knew that all had arrived.
    pub gbit_per_s: f64,
    /// Processor time of the sending thread per segment.
    pub send_us_per_segment: f64,
    /// Processor time of the receiving thread per segment.
    pub receive_us_per_segment: f64,
    /// LTP's rate by that of the raw datagrams that were measured beside it: the median of all pairs.
    pub share_of_ceiling: f64,
    /// The least of LTP's rates by those with the fixed sizes that were measured beside it, each the median of all turns: so near it comes to
    /// the best of these sizes. `None` if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_of_best_fixed: Option<f64>,
    /// The fixed sizes that were measured beside it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// Pairs that were measured.
    pub pairs: usize,
    /// Segments that were sent and did not arrive, in any of the transfers that count.
    pub lost: u64,
    /// Why segments had their size at the end, if they adapt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// LTP with segments of a fixed size, measured by turns with another size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Beside {
    /// Bytes of data per segment.
    pub segment_bytes: usize,
    /// Data of the block, until its sender knew that all had arrived: the median.
    pub gbit_per_s: f64,
    /// The rate that it is compared with by this one: the median of all turns.
    pub share: f64,
}

const SENDER: EngineId = EngineId(1);
const RECEIVER: EngineId = EngineId(2);
const SERVICE: u64 = 64;
/// Largest UDP payload.
const MOST_BYTES: usize = 65_507;
/// Bytes of one call of segmentation offload.
const MOST_SEGMENTS: usize = 64;
/// Without a datagram for so long, no more will come.
const SILENCE: Duration = Duration::from_millis(100);
/// A run that takes longer has failed.
const LONGEST: Duration = Duration::from_secs(60);
/// Pairs of one kind of calls at most, however short they are.
const MOST_PAIRS: usize = 99;

/// Measures all modes.
///
/// # Errors
/// [`Error::Bench`] when the received block is not the one that was sent; [`Error::Net`].
pub fn run(options: &Options, mut tell: impl FnMut(&str)) -> Result<Report, Error> {
    let (block, far) = (content(options.block_bytes), FarEnd::start());
    let mut report = Report {
        mtu: driver(SENDER, IoMode::default(), options.segment, options)?
            .path_mtu(([127, 0, 0, 1], 9).into()),
        ceilings: Vec::new(),
        rows: Vec::new(),
    };
    for &mode in &options.modes {
        let (ceiling, row) = measure(options, mode, &block, &far, &mut tell)?;
        report.ceilings.push(ceiling);
        report.rows.push(row);
    }
    Ok(report)
}

/// Measures raw datagrams, LTP, and what is beside it by turns. Each order is that of every other turn, so that none has what the same other
/// leaves behind, and a computer that becomes slower or faster meanwhile is as slow or fast for all.
fn measure(
    options: &Options,
    mode: IoMode,
    block: &Bytes,
    far: &FarEnd,
    tell: &mut impl FnMut(&str),
) -> Result<(Ceiling, Row), Error> {
    let way = Way {
        options,
        mode,
        block,
        far,
    };
    let mut ltp = Carrier::new(options.segment, options.segment == SegmentSize::Auto);
    let beside = options.beside.iter();
    let mut beside: Vec<Carrier> = beside
        .map(|bytes| Carrier::new(SegmentSize::Bytes(*bytes), true))
        .collect();
    let mut segment_bytes = ltp.warm_up(&way)?;
    for carrier in &mut beside {
        carrier.warm_up(&way)?;
    }
    let mut turns: Vec<Turn> = Vec::new();
    let (least, start) = (options.repeats.clamp(1, MOST_PAIRS), Instant::now());
    while turns.len() < least || start.elapsed() < options.least_time && turns.len() < MOST_PAIRS {
        tell(&format!("{}: pair {}", mode.name(), turns.len() + 1));
        // What adapts is compared with raw datagrams of the size that it came to before.
        let raw = || ceiling(segment_bytes, mode, block, far);
        let turn = match turns.len() % 2 {
            0 => Turn {
                raw: raw()?,
                ltp: ltp.carry(&way)?,
                beside: rates(&mut beside, &way)?,
            },
            // Fields are evaluated as they are written.
            _ => Turn {
                beside: rates(&mut beside, &way)?,
                ltp: ltp.carry(&way)?,
                raw: raw()?,
            },
        };
        segment_bytes = turn.ltp.segment_bytes;
        turns.push(turn);
    }
    Ok(medians(turns, &options.beside))
}

/// What was measured one after the other.
struct Turn {
    raw: Ceiling,
    ltp: Row,
    /// Rates of the sizes beside it, in their order.
    beside: Vec<f64>,
}

/// What these carry, one after the other.
fn rates(beside: &mut [Carrier], way: &Way<'_>) -> Result<Vec<f64>, Error> {
    let rates = beside.iter_mut();
    rates
        .map(|carrier| carrier.carry(way).map(|row| row.gbit_per_s))
        .collect()
}

/// The figures of all turns, of which there is one at least.
fn medians(turns: Vec<Turn>, sizes: &[usize]) -> (Ceiling, Row) {
    let share_of = |of: &dyn Fn(&Turn) -> f64| {
        let shares = turns.iter();
        let shares = shares.map(|turn| turn.ltp.gbit_per_s / of(turn).max(f64::MIN_POSITIVE));
        median(shares.collect(), |share| *share)
    };
    let share_of_ceiling = share_of(&|turn| turn.raw.gbit_per_s);
    let rate = |turn: &Turn, index: usize| turn.beside.get(index).copied().unwrap_or_default();
    let beside = sizes.iter().enumerate();
    let beside: Vec<Beside> = beside
        .map(|(index, segment_bytes)| Beside {
            segment_bytes: *segment_bytes,
            gbit_per_s: median(
                turns.iter().map(|turn| rate(turn, index)).collect(),
                |rate| *rate,
            ),
            share: share_of(&|turn| rate(turn, index)),
        })
        .collect();
    let shares = beside.iter().map(|beside| beside.share);
    let share_of_best_fixed = shares.min_by(f64::total_cmp);
    let lost = turns.iter().map(|turn| turn.ltp.lost).sum();
    let pairs = turns.len();
    let both: (Vec<Ceiling>, Vec<Row>) = turns.into_iter().map(|turn| (turn.raw, turn.ltp)).unzip();
    let (ceilings, rows) = both;
    let row = Row {
        share_of_ceiling,
        share_of_best_fixed,
        beside,
        pairs,
        lost,
        ..median(rows, |row: &Row| row.gbit_per_s)
    };
    let ceiling = median(ceilings, |ceiling: &Ceiling| ceiling.gbit_per_s);
    (ceiling, row)
}

/// The one in the middle, of an even number the lower one; there must be one.
fn median<T>(mut all: Vec<T>, figure: impl Fn(&T) -> f64) -> T {
    all.sort_by(|a, b| figure(a).total_cmp(&figure(b)));
    let middle = all.len().saturating_sub(1) / 2;
    all.swap_remove(middle)
}

/// A block of so many bytes, no two parts of which are alike.
fn content(bytes: usize) -> Bytes {
    let bytes = (0..bytes).map(|i| (i.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]);
    bytes.collect::<Vec<u8>>().into()
}

fn ceiling(
    segment_bytes: usize,
    mode: IoMode,
    block: &Bytes,
    far: &FarEnd,
) -> Result<Ceiling, Error> {
    let local: SocketAddr = ([127, 0, 0, 1], 0).into();
    let (sender, receiver) = (
        BulkSocket::bind(local, mode)?,
        BulkSocket::bind(local, mode)?,
    );
    let (size, to) = (segment_bytes.max(1), receiver.local_addr());
    let total = block.len().div_ceil(size);
    let at_once = size * (MOST_BYTES / size).clamp(1, MOST_SEGMENTS);
    let counting = far.begin(move || count(&receiver, total))?;
    let (start, before) = (Instant::now(), thread_time());
    let mut poller = Poller::new()?;
    for batch in block.chunks(at_once) {
        let mut done = 0;
        while let Some(rest) = batch.get(done..).filter(|rest| !rest.is_empty()) {
            let sent = sender.try_send(to, rest, size)?;
            done += sent;
            if sent < rest.len() {
                poller.wait(&[(sender.socket(), true)], Some(start + LONGEST))?;
            }
        }
    }
    let send_time = thread_time().saturating_sub(before);
    let (datagrams, last, receive_time) = counting.end()??;
    Ok(Ceiling {
        mode: mode.name(),
        segment_bytes: size,
        gbit_per_s: gbit(datagrams * size, last.saturating_duration_since(start)),
        send_us_per_segment: per_segment(send_time, total as u64),
        receive_us_per_segment: per_segment(receive_time, datagrams as u64),
    })
}

/// Counts datagrams until all have come or none comes any more; when the last came, and the processor time of this thread.
fn count(socket: &BulkSocket, total: usize) -> Result<(usize, Instant, Duration), Error> {
    let (mut poller, mut buffer) = (Poller::new()?, RecvBuffer::new());
    let (mut count, mut last, before) = (0, Instant::now(), thread_time());
    while count < total {
        if socket.try_recv(&mut buffer)? {
            let joined = buffer
                .messages()
                .map(|m| m.contents.len().div_ceil(m.stride));
            count += joined.sum::<usize>();
            last = Instant::now();
        } else {
            if last.elapsed() > SILENCE {
                break;
            }
            poller.wait(&[(socket.socket(), false)], Some(last + SILENCE * 2))?;
        }
    }
    Ok((count, last, thread_time().saturating_sub(before)))
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[expect(clippy::cast_precision_loss, reason = "a display value")]
fn gbit(bytes: usize, time: Duration) -> f64 {
    bytes as f64 * 8e-9 / time.as_secs_f64().max(1e-9)
}

#[expect(clippy::cast_precision_loss, reason = "a display value")]
fn per_segment(time: Duration, segments: u64) -> f64 {
    time.as_secs_f64() * 1e6 / segments.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        let of = |all: &[f64]| median(all.to_vec(), |one| *one);
        assert_eq!((of(&[2.0]), of(&[3.0, 1.0, 2.0])), (2.0, 2.0));
        assert_eq!(of(&[4.0, 3.0, 1.0, 2.0]), 2.0, "never a better one");
    }

    #[test]
    fn pairs_are_measured_as_often_and_as_long_as_is_asked_for() {
        let measure = |repeats, least_time| {
            let options = Options {
                segment: SegmentSize::Bytes(1360),
                beside: Vec::new(),
                profile: Profile::default(),
                block_bytes: 20_000,
                modes: vec![IoMode::Gso],
                repeats,
                least_time,
            };
            let mut steps = 0;
            let report = run(&options, |_| steps += 1).unwrap();
            assert_eq!((report.ceilings.len(), report.rows.len()), (1, 1));
            let row = &report.rows[0];
            assert!(row.share_of_ceiling > 0.0 && row.lost == 0, "{row:?}");
            assert_eq!(row.pairs, steps, "each is told");
            steps
        };
        assert_eq!(measure(4, Duration::ZERO), 4);
        let long = measure(1, Duration::from_secs(3600));
        assert_eq!(long, MOST_PAIRS, "short ones have a bound, too");
    }

    /// Of each size the median share, and of these the least: the rate of the best size in one turn does not decide.
    #[test]
    fn what_adapts_is_compared_with_each_fixed_size_of_its_turn() {
        let turn = |ltp, beside: [f64; 2]| Turn {
            raw: Ceiling {
                mode: "gso",
                segment_bytes: 1360,
                gbit_per_s: 10.0,
                send_us_per_segment: 1.0,
                receive_us_per_segment: 1.0,
            },
            ltp: Row {
                mode: "gso",
                segment_bytes: 1360,
                gbit_per_s: ltp,
                send_us_per_segment: 1.0,
                receive_us_per_segment: 1.0,
                share_of_ceiling: 0.0,
                share_of_best_fixed: None,
                beside: Vec::new(),
                pairs: 0,
                lost: 1,
                reason: None,
            },
            beside: beside.to_vec(),
        };
        // The computer is half as fast in the second turn, and disturbed in the third.
        let turns = vec![
            turn(8.0, [10.0, 4.0]),
            turn(4.0, [5.0, 2.0]),
            turn(8.0, [4.0, 16.0]),
        ];
        let (ceiling, row) = medians(turns, &[1360, 64_000]);
        assert_eq!((ceiling.gbit_per_s, row.gbit_per_s), (10.0, 8.0));
        assert_eq!((row.share_of_ceiling, row.pairs, row.lost), (0.8, 3, 3));
        assert_eq!(row.share_of_best_fixed, Some(0.8));
        let beside = row.beside.iter();
        let beside: Vec<_> = beside.map(|one| (one.segment_bytes, one.share)).collect();
        assert_eq!(beside, [(1360, 0.8), (64_000, 2.0)]);
        let (_, alone) = medians(vec![turn(8.0, [0.0; 2])], &[]);
        assert_eq!((alone.share_of_best_fixed, alone.beside.len()), (None, 0));
    }

    /// What adapts goes on where it was, whatever its first transfers were.
    #[test]
    fn sizes_beside_are_measured_as_often() {
        let options = Options {
            segment: SegmentSize::Auto,
            beside: vec![1360, 8192],
            profile: Profile::Fixed,
            block_bytes: 200_000,
            modes: vec![IoMode::Mmsg],
            repeats: 2,
            least_time: Duration::ZERO,
        };
        let report = run(&options, |_| {}).unwrap();
        let row = &report.rows[0];
        let sizes: Vec<usize> = row.beside.iter().map(|one| one.segment_bytes).collect();
        assert_eq!((row.pairs, sizes), (2, vec![1360, 8192]));
        assert!(
            row.beside
                .iter()
                .all(|one| one.gbit_per_s > 0.0 && one.share > 0.0)
        );
        assert!(
            row.share_of_best_fixed.is_some() && row.reason.is_some(),
            "{row:?}"
        );
    }
}
