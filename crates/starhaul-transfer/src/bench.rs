//! How fast this host carries LTP over loopback, beside the raw datagrams of the same system calls in the same run. Each
//! end has a thread.

mod alone;
mod far_end;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use starhaul_ltp::{
    Block, Engine, EngineConfig, EngineId, Event, Outgoing, PeerConfig, SegmentSize, SizeReason,
};
use starhaul_net::{BulkSocket, IoMode, Poller, RecvBuffer, ltp::LtpDriver};

pub use self::alone::{Alone, alone};
use self::far_end::FarEnd;
use crate::Error;

/// Sizes and system calls of a measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of block data per segment, or that they adapt.
    pub segment: SegmentSize,
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
    /// Pairs that were measured.
    pub pairs: usize,
    /// Segments that were sent and did not arrive, in any of the transfers that count.
    pub lost: u64,
    /// Why segments had their size at the end, if they adapt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
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
        mtu: driver(SENDER, IoMode::default(), options)?.path_mtu(([127, 0, 0, 1], 9).into()),
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

/// Measures raw datagrams and LTP by turns. Each begins every other pair, so that neither has what the other leaves behind, and a computer
/// that becomes slower or faster meanwhile is as slow or fast for both.
fn measure(
    options: &Options,
    mode: IoMode,
    block: &Bytes,
    far: &FarEnd,
    tell: &mut impl FnMut(&str),
) -> Result<(Ceiling, Row), Error> {
    let (mut ceilings, mut rows) = (Vec::new(), Vec::new());
    let least = options.repeats.clamp(1, MOST_PAIRS);
    // Memory that this process, or its virtual machine, has for the first time is slow: not counted.
    let mut segment_bytes = row(options, mode, block, far)?.segment_bytes;
    let start = Instant::now();
    while rows.len() < least || start.elapsed() < options.least_time && rows.len() < MOST_PAIRS {
        tell(&format!("{}: pair {}", mode.name(), rows.len() + 1));
        // What adapts is compared with raw datagrams of the size that it came to before.
        let raw = || ceiling(segment_bytes, mode, block, far);
        let ltp = || row(options, mode, block, far);
        let (raw, ltp) = match rows.len() % 2 {
            0 => (raw()?, ltp()?),
            _ => {
                let ltp = ltp()?;
                (raw()?, ltp)
            }
        };
        segment_bytes = ltp.segment_bytes;
        ceilings.push(raw);
        rows.push(ltp);
    }
    let shares = ceilings.iter().zip(&rows);
    let shares = shares.map(|(raw, ltp)| ltp.gbit_per_s / raw.gbit_per_s.max(f64::MIN_POSITIVE));
    let share_of_ceiling = median(shares.collect(), |share| *share);
    let (pairs, lost) = (rows.len(), rows.iter().map(|row| row.lost).sum());
    let row = Row {
        share_of_ceiling,
        pairs,
        lost,
        ..median(rows, |row| row.gbit_per_s)
    };
    Ok((median(ceilings, |ceiling| ceiling.gbit_per_s), row))
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

fn row(options: &Options, mode: IoMode, block: &Bytes, far: &FarEnd) -> Result<Row, Error> {
    let (mut sender, mut receiver) = (
        driver(SENDER, mode, options)?,
        driver(RECEIVER, mode, options)?,
    );
    sender.set_address(RECEIVER, receiver.local_addr());
    receiver.set_address(SENDER, sender.local_addr());
    let (is_over, waker) = (Arc::new(AtomicBool::new(false)), receiver.waker());
    let (ends, expected) = (is_over.clone(), block.clone());
    let receiving = far.begin(move || receive(&mut receiver, &ends, &expected))?;
    let sent = send(&mut sender, block);
    is_over.store(true, Ordering::SeqCst);
    waker.wake();
    let received = receiving.end()?;
    let ((time, send_time), (receive_time, arrived)) = (sent?, received?);
    let choice = sender.engine().segment_choice(RECEIVER);
    let stats = sender.engine().stats();
    let segments = stats.data_segments_sent;
    Ok(Row {
        mode: mode.name(),
        segment_bytes: choice.map_or(0, |choice| choice.data_bytes),
        gbit_per_s: gbit(block.len(), time),
        send_us_per_segment: per_segment(send_time, segments),
        receive_us_per_segment: per_segment(receive_time, segments),
        // Of all transfers together.
        share_of_ceiling: 0.0,
        pairs: 0,
        lost: stats.segments_sent.saturating_sub(arrived),
        reason: choice
            .map(|choice| choice.reason)
            .filter(|reason| *reason != SizeReason::Fixed)
            .map(|reason| reason.to_string()),
    })
}

fn driver(id: EngineId, mode: IoMode, options: &Options) -> Result<LtpDriver, Error> {
    let engine = engine(id, options.segment, options.block_bytes, true)?;
    Ok(LtpDriver::bind(([127, 0, 0, 1], 0).into(), mode, engine)?)
}

/// One of the two engines, which sends or takes a block of so many bytes.
fn engine(
    id: EngineId,
    segment: SegmentSize,
    block_bytes: usize,
    integrity: bool,
) -> Result<Engine, Error> {
    let mut engine = Engine::new(EngineConfig::new(id, [id.0.to_le_bytes()[0]; 32]));
    let mut config = PeerConfig::new(Duration::ZERO, None);
    config.set_segment_size(segment);
    config.receive_memory = config.receive_memory.max(2 * block_bytes);
    config.block_bytes = config.block_bytes.max(block_bytes as u64);
    config.integrity = integrity;
    let peer = if id == SENDER { RECEIVER } else { SENDER };
    engine.add_peer(Instant::now(), peer, config)?;
    engine.open_service(SERVICE);
    Ok(engine)
}

/// Sends the block; how long that took, and the processor time of this thread.
fn send(driver: &mut LtpDriver, block: &Bytes) -> Result<(Duration, Duration), Error> {
    let (start, before) = (Instant::now(), thread_time());
    let (red, service, to) = (block.len() as u64, SERVICE, RECEIVER);
    driver.engine().send(
        start,
        Outgoing {
            to,
            service,
            block: block.clone(),
            red,
        },
    )?;
    loop {
        driver.turn(Some(start + LONGEST))?;
        while let Some(event) = driver.poll_event() {
            match event {
                Event::Sent { .. } => {
                    let took = (start.elapsed(), thread_time().saturating_sub(before));
                    // The last acknowledgement of a report leaves.
                    driver.turn(Some(Instant::now()))?;
                    return Ok(took);
                }
                Event::SendCancelled { reason, .. } => return Err(Error::GivenUp(reason)),
                _ => {}
            }
        }
        if start.elapsed() > LONGEST {
            return Err(Error::Bench("it took longer than a minute"));
        }
    }
}

/// Receives the block; the processor time of this thread, and how many segments came.
fn receive(
    driver: &mut LtpDriver,
    is_over: &AtomicBool,
    block: &Bytes,
) -> Result<(Duration, u64), Error> {
    let (before, mut received) = (thread_time(), None);
    let (mut took, mut limit) = (None, None);
    // The sender's last acknowledgement is still to come when it is done.
    while limit.is_none_or(|limit| Instant::now() < limit) {
        if is_over.load(Ordering::SeqCst) {
            took.get_or_insert_with(|| thread_time().saturating_sub(before));
            limit.get_or_insert_with(|| Instant::now() + SILENCE);
            if driver.engine().sessions() == (0, 0) {
                break;
            }
        }
        driver.turn(Some(Instant::now() + SILENCE))?;
        while let Some(event) = driver.poll_event() {
            if let Event::RedPart { block, .. } = event {
                received = Some(block);
            }
        }
    }
    let took = took.unwrap_or_default();
    let arrived = driver.engine().stats().segments_received;
    match received.is_some_and(|received| is_same(&received, block)) {
        true => Ok((took, arrived)),
        false => Err(Error::Bench(
            "the received block is not the one that was sent",
        )),
    }
}

/// Whether a block that arrived is the one that was sent.
fn is_same(received: &Block, sent: &Bytes) -> bool {
    let mut at = 0;
    received.len() == sent.len()
        && received.parts().iter().all(|part| {
            at += part.len();
            sent.get(at - part.len()..at) == Some(part)
        })
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
}
