//! One direction of an emulated link in real time: packets sent by one TUN device arrive at the other when the link
//! delivers them.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    time::{ClockId, clock_gettime},
};
use starhaul_link::{Band, Cause, Histogram, LinkSpec, LinkStats, Loss, Outcome};
use starhaul_net::{run_first, sharpen_timers};

use starhaul_net::Tun;

use crate::{Second, conveyor::Conveyor};

/// Packets read from a device before due packets are sent again.
const READ_AT_ONCE: usize = 32;
/// Least interval of rounds of reading and sending.
const ROUND: Duration = Duration::from_micros(50);
/// So long a burst of a paced sender keeps a thread busy at most.
const LONGEST_BURST: Duration = Duration::from_millis(5);
/// Records passed to the collector at once.
const BATCH: usize = 1024;
/// Size of the largest packet.
const MAX_PACKET_BYTES: usize = 65_536;
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketFate {
    Delivered,
    /// The packet is a duplicate of a delivered one.
    Copy,
    Dropped(Cause),
    /// The packet was still in the link at the end of the run.
    Unfinished,
}

/// The record of one packet; times since the start of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) arrived: Duration,
    /// When its last byte was sent, between queueing and one-way delay.
    pub(crate) sent: Option<Duration>,
    /// When it left, or was dropped.
    pub(crate) left: Duration,
    /// Delay between the due and the actual departure.
    pub(crate) late: Duration,
    pub(crate) bytes: u32,
    pub(crate) icmp: bool,
    pub(crate) fate: PacketFate,
}

/// Records of one direction, by its number.
pub(crate) struct Batch {
    pub(crate) direction: usize,
    pub(crate) records: Vec<Record>,
}

/// The parts of a direction.
pub(crate) struct Direction {
    pub(crate) number: usize,
    pub(crate) spec: LinkSpec,
    pub(crate) seed: u64,
    pub(crate) start: Instant,
    pub(crate) from: Arc<Tun>,
    pub(crate) to: Arc<Tun>,
    /// Readable when the run is over.
    pub(crate) stop: Arc<OwnedFd>,
    pub(crate) records: SyncSender<Batch>,
    /// Losses in place of those of `spec`, from when they come.
    pub(crate) losses: Receiver<Loss>,
}

/// The results of a direction.
#[derive(Debug)]
pub(crate) struct Forwarded {
    pub(crate) stats: LinkStats,
    pub(crate) capacity_bytes: u64,
    pub(crate) seconds: Vec<Second>,
    pub(crate) lateness: Histogram,
    pub(crate) cpu: Duration,
    /// Whether the thread had real-time priority.
    pub(crate) first: bool,
    /// Packets refused by the receiving side's kernel.
    pub(crate) refused: u64,
}

impl Direction {
    /// Forwards packets until it is stopped.
    ///
    /// # Errors
    /// Errors of a device.
    pub(crate) fn run(self) -> io::Result<Forwarded> {
        sharpen_timers();
        let first = run_first();
        let mut forwarder = Forwarder {
            conveyor: Conveyor::new(&self.spec, self.seed, self.start),
            batch: Vec::with_capacity(BATCH),
            refused: 0,
            packets: 0,
            direction: &self,
        };
        let mut buffer = vec![0; MAX_PACKET_BYTES];
        let mut pause = Pause::new();
        let mut backlog = Backlog::default();
        loop {
            while let Ok(loss) = self.losses.try_recv() {
                forwarder.conveyor.link().set_loss(Instant::now(), loss);
            }
            let taken = forwarder.receive(&mut buffer)?;
            let next = forwarder.deliver();
            let waited = backlog.after(Instant::now(), taken);
            if !waited.is_zero() {
                forwarder.conveyor.note_late(waited, taken);
            }
            // A sender that never pauses must not keep the run from its end.
            let is_over = match taken == READ_AT_ONCE {
                true => is_readable(&self.stop)?,
                false => pause.wait(&self.from, &self.stop, next)?,
            };
            if is_over {
                break;
            }
        }
        Ok(forwarder.finish(Instant::now(), first))
    }
}

/// Whether something can be read now.
fn is_readable(fd: &OwnedFd) -> io::Result<bool> {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// For how long a device has always had more packets than are read at once: those that are read then may have waited there
/// so long, unseen by the link, and beyond the device's queue the kernel drops others.
#[derive(Debug, Default)]
struct Backlog {
    since: Option<Instant>,
}

impl Backlog {
    /// Takes how many packets a round read; returns how long they may have waited, if that is more than a burst explains.
    fn after(&mut self, now: Instant, taken: usize) -> Duration {
        let since = *self.since.get_or_insert(now);
        if taken < READ_AT_ONCE {
            self.since = None;
        }
        let waited = now.saturating_duration_since(since);
        if waited < LONGEST_BURST {
            return Duration::ZERO;
        }
        waited
    }
}

struct Forwarder<'a> {
    conveyor: Conveyor<Packet>,
    batch: Vec<Record>,
    refused: u64,
    packets: u64,
    direction: &'a Direction,
}

impl Forwarder<'_> {
    /// Sends due packets; returns when to call again.
    fn deliver(&mut self) -> Option<Instant> {
        loop {
            let now = Instant::now();
            match self.conveyor.poll(now) {
                None => return self.conveyor.next_arrival(),
                Some(Outcome::Dropped(dropped)) => {
                    let (packet, fate) = (dropped.packet, PacketFate::Dropped(dropped.cause));
                    self.record(&packet, fate, None, dropped.at, Duration::ZERO);
                }
                Some(Outcome::Arrived(arrival)) => {
                    if self.direction.to.write(&arrival.packet.contents).is_err() {
                        self.refused += 1;
                    }
                    let fate = match arrival.copy {
                        true => PacketFate::Copy,
                        false => PacketFate::Delivered,
                    };
                    let late = now.saturating_duration_since(arrival.due);
                    self.record(&arrival.packet, fate, Some(arrival.sent), now, late);
                }
            }
        }
    }

    /// Reads packets of the device, up to a bound; returns their number.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for taken in 0..READ_AT_ONCE {
            let Some(length) = self.direction.from.try_read(buffer)? else {
                return Ok(taken);
            };
            let contents = buffer.get(..length).unwrap_or_default();
            self.packets += 1;
            let now = Instant::now();
            let band = Band::of_ip_packet(contents);
            let packet = Packet {
                number: self.packets,
                arrived: now,
                icmp: band == Band::Icmp,
                contents: contents.into(),
            };
            self.conveyor.enqueue(band, now, length, packet);
        }
        Ok(READ_AT_ONCE)
    }

    fn record(
        &mut self,
        packet: &Packet,
        fate: PacketFate,
        sent: Option<Instant>,
        left: Instant,
        late: Duration,
    ) {
        let start = self.direction.start;
        self.batch.push(Record {
            number: packet.number,
            arrived: packet.arrived.saturating_duration_since(start),
            sent: sent.map(|sent| sent.saturating_duration_since(start)),
            left: left.saturating_duration_since(start),
            late,
            bytes: u32::try_from(packet.contents.len()).unwrap_or(u32::MAX),
            icmp: packet.icmp,
            fate,
        });
        if self.batch.len() >= BATCH {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let records = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        // Waits when the collector is far behind: the run is then late, and reports it, but its records are complete.
        let _ = self.direction.records.send(Batch {
            direction: self.direction.number,
            records,
        });
    }

    /// Reports the last drops of the link, and the packets that it still holds.
    fn finish(mut self, end: Instant, first: bool) -> Forwarded {
        while let Some(dropped) = self.conveyor.poll_dropped(end) {
            let fate = PacketFate::Dropped(dropped.cause);
            self.record(&dropped.packet, fate, None, dropped.at, Duration::ZERO);
        }
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let forwarded = Forwarded {
            stats: self.conveyor.stats(),
            capacity_bytes: self.conveyor.capacity_bytes(end),
            seconds: self.conveyor.seconds(end),
            lateness: self.conveyor.lateness().clone(),
            cpu: Duration::try_from(cpu).unwrap_or_default(),
            first,
            refused: self.refused,
        };
        let empty = Conveyor::new(&LinkSpec::default(), 0, end);
        let held = std::mem::replace(&mut self.conveyor, empty).into_held();
        for packet in held {
            self.record(&packet, PacketFate::Unfinished, None, end, Duration::ZERO);
        }
        self.hand_over();
        forwarded
    }
}

/// The waits between rounds. Frequent wake-ups are delayed, so that several packets share their cost; after a pause a
/// packet is read at once.
struct Pause {
    woke: Instant,
    /// Time since the wake-up before that.
    apart: Duration,
    put_off: bool,
}

impl Pause {
    fn new() -> Self {
        Self {
            woke: Instant::now(),
            apart: Duration::MAX,
            put_off: false,
        }
    }

    /// Waits for a packet, the end of the run, or `next`; returns whether it is the end.
    fn wait(&mut self, tun: &Tun, stop: &OwnedFd, next: Option<Instant>) -> io::Result<bool> {
        let now = Instant::now();
        let round_over = self.woke + ROUND;
        self.put_off = !self.put_off && self.apart < 2 * ROUND && now < round_over;
        let mut fds = [
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(tun.as_fd(), PollFlags::IN),
        ];
        let (watched, until) = match self.put_off {
            true => (1, Some(round_over)),
            false => (fds.len(), next),
        };
        let timeout = until.map(|until| {
            let wait = until.saturating_duration_since(now);
            Timespec::try_from(wait.min(LONGEST_WAIT)).unwrap_or_default()
        });
        match poll(fds.get_mut(..watched).unwrap_or_default(), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !self.put_off {
            let woke = Instant::now();
            self.apart = woke.saturating_duration_since(self.woke);
            self.woke = woke;
        }
        Ok(!fds[0].revents().is_empty())
    }
}

/// A packet in the link.
#[derive(Clone)]
struct Packet {
    number: u64,
    arrived: Instant,
    icmp: bool,
    contents: Box<[u8]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_wait_unseen_are_late_and_bursts_are_not() {
        let mut backlog = Backlog::default();
        let (mut now, round) = (Instant::now(), Duration::from_micros(300));
        let mut after = |rounds: u32, taken: usize| {
            let mut last = Duration::ZERO;
            for _ in 0..rounds {
                now += round;
                last = backlog.after(now, taken);
            }
            last
        };
        assert_eq!(after(10, READ_AT_ONCE), Duration::ZERO);
        assert_eq!(after(1, 3), Duration::ZERO);
        // Never empty from here on.
        assert_eq!(after(100, READ_AT_ONCE), round * 99);
        assert_eq!(after(1, 3), round * 100);
        assert_eq!(after(1, 3), Duration::ZERO);
    }

    #[test]
    fn an_end_is_seen_without_waiting() {
        let (read, mut write) = io::pipe().unwrap();
        let read = OwnedFd::from(read);
        assert!(!is_readable(&read).unwrap());
        io::Write::write_all(&mut write, b"x").unwrap();
        assert!(is_readable(&read).unwrap());
    }
}
