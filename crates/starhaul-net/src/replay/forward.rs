//! One direction of an emulated link in real time: what one TUN device sends, the other receives when the [`Link`] says so.

use std::{
    cell::RefCell,
    io,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    sync::{Arc, mpsc::SyncSender},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    time::{ClockId, clock_gettime},
};
use starhaul_link::{Band, Link, LinkSpec, LinkStats};

use super::tun::Tun;
use crate::{
    Histogram,
    realtime::{run_first, sharpen_timers},
};

/// Packets taken from a device before what is due is sent again.
const READ_AT_ONCE: usize = 32;
/// Rounds of reading and sending follow each other no faster than this.
const ROUND: Duration = Duration::from_micros(50);
/// Records handed over together.
const BATCH: usize = 1024;
/// A packet can be no larger.
const MAX_PACKET_BYTES: usize = 65_536;
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Delivered,
    /// The second copy of one that was delivered too.
    Copy,
    /// The queue was full.
    Queue,
    /// CoDel found that it had waited too long.
    Codel,
    /// At random.
    Loss,
    /// The link was down.
    Outage,
    /// It was still on its way at the end of the run.
    Unfinished,
}

/// One packet; times since the start of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) number: u64,
    pub(super) arrived: Duration,
    /// When its last byte was sent: before, it waited; after, it travelled.
    pub(super) sent: Option<Duration>,
    /// When it left, or was dropped.
    pub(super) left: Duration,
    /// Between when it should have left and when it did.
    pub(super) late: Duration,
    pub(super) bytes: u32,
    pub(super) icmp: bool,
    pub(super) fate: Fate,
}

/// Records of one direction, by its number.
pub(super) struct Batch {
    pub(super) direction: usize,
    pub(super) records: Vec<Record>,
}

/// What is needed to run a direction.
pub(super) struct Direction {
    pub(super) number: usize,
    pub(super) spec: LinkSpec,
    pub(super) seed: u64,
    pub(super) start: Instant,
    pub(super) from: Arc<Tun>,
    pub(super) to: Arc<Tun>,
    /// Readable when the run is over.
    pub(super) stop: Arc<OwnedFd>,
    pub(super) records: SyncSender<Batch>,
}

/// What a direction did.
#[derive(Debug)]
pub(super) struct Forwarded {
    pub(super) stats: LinkStats,
    /// Bytes that the link could have carried in each second.
    pub(super) capacity: Vec<u64>,
    pub(super) lateness: Histogram,
    pub(super) cpu: Duration,
    /// Whether the thread could run before all others.
    pub(super) first: bool,
    /// Packets that the receiving side's kernel refused.
    pub(super) refused: u64,
}

impl Direction {
    /// Forwards until told to stop.
    ///
    /// # Errors
    /// A device failed.
    pub(super) fn run(self) -> io::Result<Forwarded> {
        sharpen_timers();
        let first = run_first();
        let mut forwarder = Forwarder {
            link: Link::new(&self.spec, self.seed, self.start),
            fallen: Rc::default(),
            judged: LinkStats::default(),
            batch: Vec::with_capacity(BATCH),
            lateness: Histogram::default(),
            refused: 0,
            packets: 0,
            direction: &self,
        };
        let mut buffer = vec![0; MAX_PACKET_BYTES];
        let mut pause = Pause::new();
        loop {
            let taken = forwarder.receive(&mut buffer)?;
            let next = forwarder.deliver();
            if taken == READ_AT_ONCE {
                continue;
            }
            if pause.wait(&self.from, &self.stop, next)? {
                break;
            }
        }
        let end = Instant::now();
        let capacity = forwarder.capacity_until(end);
        let (stats, lateness, refused) = forwarder.finish(end);
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        Ok(Forwarded {
            stats,
            capacity,
            lateness,
            cpu: Duration::try_from(cpu).unwrap_or_default(),
            first,
            refused,
        })
    }
}

struct Forwarder<'a> {
    link: Link<Packet>,
    /// Packets that the link dropped, in the order in which it did.
    fallen: Rc<RefCell<Vec<Fallen>>>,
    /// The link's counters when the last packet's fate was told.
    judged: LinkStats,
    batch: Vec<Record>,
    lateness: Histogram,
    refused: u64,
    packets: u64,
    direction: &'a Direction,
}

impl Forwarder<'_> {
    /// Sends what is due; returns when to come back.
    fn deliver(&mut self) -> Option<Instant> {
        while let Some(arrival) = self.link.poll_arrival(Instant::now()) {
            let now = Instant::now();
            let late = now.saturating_duration_since(arrival.due);
            self.lateness.record(late);
            let mut packet = arrival.packet;
            if self.direction.to.write(&packet.contents).is_err() {
                self.refused += 1;
            }
            let (fate, facts) = (packet.deliver(), packet.facts);
            self.record(facts, fate, Some(arrival.sent), now, late);
        }
        self.judge(None);
        self.link.next_arrival()
    }

    /// Takes what the device has, up to a bound; says how many packets.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for taken in 0..READ_AT_ONCE {
            let Some(length) = self.direction.from.try_read(buffer)? else {
                return Ok(taken);
            };
            let contents = buffer.get(..length).unwrap_or_default();
            self.packets += 1;
            let now = Instant::now();
            let band = Band::of_ip_packet(contents);
            let facts = Facts {
                number: self.packets,
                arrived: now,
                bytes: length,
                icmp: band == Band::Icmp,
            };
            let packet = Packet {
                facts,
                contents: contents.into(),
                state: State::Travelling,
                fallen: self.fallen.clone(),
            };
            self.link.enqueue_in(band, now, length, packet);
            self.judge(Some(facts.number));
        }
        Ok(READ_AT_ONCE)
    }

    /// Tells the fate of what the link has dropped since it was last asked. It says how many it dropped for which
    /// reason; only the packet that has just come can have found the queue full.
    fn judge(&mut self, newest: Option<u64>) {
        if self.fallen.borrow().is_empty() {
            return;
        }
        let stats = self.link.stats();
        let mut outage = stats.dropped_outage - self.judged.dropped_outage;
        let mut loss = stats.dropped_loss - self.judged.dropped_loss;
        let mut codel = stats.dropped_codel - self.judged.dropped_codel;
        let queue = stats.dropped_queue - self.judged.dropped_queue;
        self.judged = stats;
        let fallen = std::mem::take(&mut *self.fallen.borrow_mut());
        for fallen in fallen {
            let fate = if newest == Some(fallen.facts.number) && queue > 0 {
                Fate::Queue
            } else if outage > 0 {
                outage -= 1;
                Fate::Outage
            } else if codel > 0 {
                codel -= 1;
                Fate::Codel
            } else if loss > 0 {
                loss -= 1;
                Fate::Loss
            } else {
                Fate::Queue
            };
            self.record(fallen.facts, fate, None, fallen.at, Duration::ZERO);
        }
    }

    fn record(
        &mut self,
        facts: Facts,
        fate: Fate,
        sent: Option<Instant>,
        left: Instant,
        late: Duration,
    ) {
        let start = self.direction.start;
        self.batch.push(Record {
            number: facts.number,
            arrived: facts.arrived.saturating_duration_since(start),
            sent: sent.map(|sent| sent.saturating_duration_since(start)),
            left: left.saturating_duration_since(start),
            late,
            bytes: u32::try_from(facts.bytes).unwrap_or(u32::MAX),
            icmp: facts.icmp,
            fate,
        });
        if self.batch.len() >= BATCH {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let records = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        // Waits when the collector is far behind: the run is then late, and says so, but its records are whole.
        let _ = self.direction.records.send(Batch {
            direction: self.direction.number,
            records,
        });
    }

    fn capacity_until(&self, end: Instant) -> Vec<u64> {
        let mut capacity = Vec::new();
        let mut from = self.direction.start;
        while from < end && capacity.len() < crate::MAX_SECONDS {
            let to = from + Duration::from_secs(1);
            capacity.push(self.link.capacity_bytes_between(from, to.min(end)));
            from = to;
        }
        capacity
    }

    fn finish(mut self, end: Instant) -> (LinkStats, Histogram, u64) {
        let stats = self.link.stats();
        self.judge(None);
        // Whatever it still holds falls.
        self.link = Link::new(&LinkSpec::default(), 0, end);
        let fallen = std::mem::take(&mut *self.fallen.borrow_mut());
        for fallen in fallen {
            self.record(fallen.facts, Fate::Unfinished, None, end, Duration::ZERO);
        }
        self.hand_over();
        (stats, self.lateness, self.refused)
    }
}

/// The waits between rounds. Where wake-ups follow each other closely, one is put off, so that several packets share the
/// cost of it; a packet that comes after a while is taken at once.
struct Pause {
    woke: Instant,
    /// Since the wake-up before that.
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

    /// Until there is a packet, the end of the run, or `next`; says whether it is the end.
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

#[derive(Clone, Copy)]
struct Facts {
    number: u64,
    arrived: Instant,
    bytes: usize,
    icmp: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Travelling,
    IsCopy,
    Delivered,
}

/// A packet in the link. It notes its own fall, so that the record of a run names each packet that was dropped.
struct Packet {
    facts: Facts,
    contents: Box<[u8]>,
    state: State,
    fallen: Rc<RefCell<Vec<Fallen>>>,
}

struct Fallen {
    facts: Facts,
    at: Instant,
}

impl Packet {
    fn deliver(&mut self) -> Fate {
        match std::mem::replace(&mut self.state, State::Delivered) {
            State::IsCopy => Fate::Copy,
            _ => Fate::Delivered,
        }
    }
}

impl Clone for Packet {
    fn clone(&self) -> Self {
        Self {
            facts: self.facts,
            contents: self.contents.clone(),
            state: State::IsCopy,
            fallen: self.fallen.clone(),
        }
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        if self.state == State::Travelling {
            self.fallen.borrow_mut().push(Fallen {
                facts: self.facts,
                at: Instant::now(),
            });
        }
    }
}
