//! What the socket of the peer holds. Over a short way all that is under way may lie in it, as when the peer's processor does something
//! else: there it is the limit. Over a long one it comes as fast as the links carry it: the peer has to take it at that speed, and so small a
//! limit would only keep the links from it.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use super::Load;
use crate::batch::begin_below;

/// Over a short way answers take at most so long: it is full again soon after the limit grew.
const NEAR: Duration = Duration::from_millis(5);
/// What of that the two hosts take, about. For the rest of it data are on the way, and there is room for what the peer takes meanwhile.
const HOSTS: Duration = Duration::from_micros(500);
/// A host that is busy keeps a peer on it waiting for its processors, but not each time for so long: then a relay on it, as the end of a tunnel,
/// leads to a peer that is elsewhere.
const RELAYED: Duration = Duration::from_millis(200);
/// Memory that the kernel counts for a packet: what describes it, and its buffer, in which its headers and what Linux notes behind them have
/// room, too. A buffer has a power of two of bytes up to [`LONGEST_BUFFER`]; data for which that is too short have pages of their own.
const DESCRIPTION: u64 = 256;
const BESIDE_DATA: u64 = 512;
const LONGEST_BUFFER: u64 = 16 << 10;
const BESIDE_PAGES: u64 = 1 << 10;
/// Most drivers give a packet that comes over a link a page at least.
const PAGE: u64 = 4 << 10;
/// Acknowledgements of reports that lie there beside the data, each in a packet of its own: some more than reports are asked for at a time.
const ANSWERS: u64 = 6;
const ANSWER: Load = Load {
    bytes: 64,
    packets: 1,
};
/// Nobody's buffer is taken for smaller than some packets.
const LEAST: u64 = 64 << 10;
/// A report is asked for at each of so many parts of the limit.
const PARTS: u64 = 4;

/// Counts the memory that red data take in the peer's socket.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// Bytes that may lie there, once anything tells.
    most: Option<u64>,
    is_told: bool,
    sent: u64,
    reported: u64,
    /// Sent before the latest checkpoint that is answered as soon as it comes.
    asked: u64,
    /// When the first of them left.
    since: Option<Instant>,
    /// Whether the peer is near by all that is known before it has answered.
    seems_near: bool,
    /// Whether its address is on this host: however late it answers, nothing is on the way, unless a relay leads on.
    is_here: bool,
    rate: Bandwidth,
}

/// What was sent and reported on when a checkpoint left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    sent: u64,
    reported: u64,
}

impl Room {
    /// At a peer of this light time, one way.
    pub(super) fn new(light: Duration) -> Self {
        Self {
            most: None,
            is_told: false,
            sent: 0,
            reported: 0,
            asked: 0,
            since: None,
            seems_near: light.saturating_mul(2) <= NEAR,
            is_here: false,
            rate: Bandwidth::ZERO,
        }
    }

    /// The peer has an address on this host, or elsewhere; true if that is news.
    pub(super) fn set_here(&mut self, is_here: bool) -> bool {
        std::mem::replace(&mut self.is_here, is_here) != is_here
    }

    /// The way to the peer is another one.
    pub(super) fn forget_way(&mut self) {
        (self.since, self.rate) = (None, Bandwidth::ZERO);
    }

    /// The peer tells how many bytes of memory its kernel keeps for what comes.
    pub(super) fn tell(&mut self, bytes: u64) {
        self.is_told = true;
        self.set(bytes);
    }

    /// They are probably so many, as long as the peer does not tell.
    pub(super) fn guess(&mut self, bytes: u64) {
        if !self.is_told {
            self.set(bytes);
        }
    }

    /// A quarter is left: Linux counts so much of what was taken as if it were still there, while there is more.
    fn set(&mut self, bytes: u64) {
        self.most = Some((bytes - bytes / 4).max(LEAST));
    }

    /// Red data leave.
    pub(super) fn sent(&mut self, load: Load) {
        self.sent += self.memory(load);
    }

    /// A checkpoint leaves; whether it `is_within` a red part, and so answered at once.
    pub(super) fn mark(&mut self, now: Instant, is_within: bool) -> Mark {
        if is_within {
            self.asked = self.sent;
            self.since.get_or_insert(now);
        }
        Mark {
            sent: self.sent,
            reported: self.reported,
        }
    }

    /// A checkpoint was answered after `took`, or will not be answered.
    pub(super) fn settle(&mut self, mark: Mark, took: Option<Duration>) {
        self.reported = self.reported.max(mark.sent);
        let Some(took) = took else { return };
        let now = Bandwidth::from_bytes_over(self.reported - mark.reported, took);
        self.rate = now.max(self.rate.scaled(0.97));
    }

    /// Whether the peer has to report before another segment like this is sent; `shortest` is the shortest time that it took for that. Where
    /// nothing is asked, blocks have one segment each, and their client answers when it likes: nobody waits for that.
    pub(super) fn is_full(&self, now: Instant, shortest: Duration, next: Load) -> bool {
        self.limit(now, shortest)
            .is_some_and(|limit| self.is_asked() && self.fitting(limit, next) == 0)
    }

    /// Whether the next segment should ask for a report: after a part of the limit, and where the one behind it would have to wait for one.
    pub(super) fn wants_report(&self, now: Instant, shortest: Duration, next: Load) -> bool {
        let limit = self.limit(now, shortest);
        limit.is_some_and(|limit| {
            let is_last = !self.is_asked() && self.fitting(limit, next) < 2;
            is_last || self.sent - self.asked >= limit / PARTS
        })
    }

    /// How many segments like this may leave before one has to ask for a report, or to wait for one.
    pub(super) fn run(&self, now: Instant, shortest: Duration, next: Load) -> u64 {
        let Some(limit) = self.limit(now, shortest) else {
            return u64::MAX;
        };
        let unasked = begin_below(limit / PARTS, self.sent - self.asked, self.memory(next));
        let fitting = self.fitting(limit, next);
        let may_leave = match self.is_asked() {
            true => fitting,
            false => fitting.saturating_sub(1),
        };
        unasked.min(may_leave)
    }

    /// Whether a report is under way that makes room.
    const fn is_asked(&self) -> bool {
        self.asked > self.reported
    }

    /// How many segments like this have room beside what is under way: the kernel keeps a packet if all of it has.
    fn fitting(&self, limit: u64, next: Load) -> u64 {
        let left = limit.saturating_sub(self.sent - self.reported);
        left / self.memory(next).max(1)
    }

    /// Bytes of memory that data take in the peer's socket, at most.
    fn memory(&self, load: Load) -> u64 {
        let packets = load.packets.max(1);
        let beside = load.bytes.div_ceil(packets).saturating_add(BESIDE_DATA);
        let buffer = match beside <= LONGEST_BUFFER {
            true if self.is_here => beside.next_power_of_two(),
            true => beside.next_power_of_two().max(PAGE),
            false => beside + BESIDE_PAGES,
        };
        (buffer + DESCRIPTION).saturating_mul(load.packets)
    }

    /// When the peer, which has not answered, is no longer taken to be near; `None` where that limits nothing.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        self.most.filter(|_| !self.is_beside(Duration::MAX))?;
        self.since?.checked_add(NEAR)
    }

    /// Whether it shares this host, by all that is known: neither its light time nor the soonest of its answers tells of a relay.
    fn is_beside(&self, shortest: Duration) -> bool {
        self.is_here && self.seems_near && (shortest == Duration::MAX || shortest <= RELAYED)
    }

    /// The limit, if the way is short: what the socket holds, and what the peer takes while it is on the way.
    fn limit(&self, now: Instant, shortest: Duration) -> Option<u64> {
        let answers = ANSWERS * self.memory(ANSWER);
        let most = self.most;
        let most = most.map(|most| most.saturating_sub(answers).max(LEAST));
        if self.is_beside(shortest) {
            return most;
        }
        let is_near = match shortest {
            Duration::MAX => self.seems_near && self.opens_at().is_none_or(|at| now < at),
            known => known <= NEAR,
        };
        let most = most.filter(|_| is_near)?;
        // Checkpoints do not leave when most is under way: their rate lacks a fifth.
        let way = match shortest {
            Duration::MAX => Duration::ZERO,
            known => known.saturating_sub(HOSTS) * 5 / 4,
        };
        Some(most.saturating_add(self.rate.bytes_in(way)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    /// What Linux grants by default, as it counts it.
    const DEFAULT: u64 = 2 * 212_992;

    /// A packet of Ethernet, and what it takes in a socket on this host, and elsewhere.
    const PACKET: Load = Load {
        bytes: 1360,
        packets: 1,
    };
    const HERE: u64 = 2304;
    const ELSEWHERE: u64 = 4352;

    /// Sends packets of Ethernet until the room is full, each of which asks if that is wanted; their number, and the marks.
    fn fill(room: &mut Room, now: Instant, shortest: Duration) -> (u64, Vec<Mark>) {
        fill_with(room, now, shortest, PACKET)
    }

    fn fill_with(
        room: &mut Room,
        now: Instant,
        shortest: Duration,
        load: Load,
    ) -> (u64, Vec<Mark>) {
        let (mut segments, mut marks) = (0, Vec::new());
        while !room.is_full(now, shortest, load) && segments < 100_000 {
            let asks = room.wants_report(now, shortest, load);
            room.sent(load);
            segments += 1;
            if asks {
                marks.push(room.mark(now, true));
            }
        }
        (segments, marks)
    }

    /// What Linux 6.18 counts for a datagram over loopback with this MTU, by `SO_MEMINFO`; twice as much would make it slow.
    #[test]
    fn a_packet_takes_what_linux_counts() {
        let mut room = Room::new(Duration::ZERO);
        room.set_here(true);
        for (bytes, packets, counted) in [
            (600, 1, 1280),
            (1360, 1, 2304),
            (1700, 1, 4352),
            (7700, 1, 8448),
            (8900, 1, 16_640),
            (16_000, 1, 16_640),
            (64_000, 1, 64_832),
            // MTU 1500, and 9000.
            (64_000, 45, 100_352),
            (64_000, 8, 118_784),
        ] {
            let memory = room.memory(Load { bytes, packets });
            assert!(
                (counted..2 * counted).contains(&memory),
                "{bytes} bytes: {memory}"
            );
        }
        room.set_here(false);
        assert_eq!(room.memory(PACKET), ELSEWHERE);
    }

    /// However long a segment is, all of those under way fit; and one that does not fit at all leaves alone, and asks.
    #[test]
    fn all_that_is_under_way_fits() {
        let now = Instant::now();
        for (bytes, packets, most) in [
            (1360, 1, 135),
            (64_000, 1, 4),
            (64_000, 45, 3),
            (64_000, 8, 2),
        ] {
            let (load, mut room) = (Load { bytes, packets }, Room::new(Duration::ZERO));
            room.guess(DEFAULT);
            room.set_here(true);
            for _ in 0..20 {
                let (_, marks) = fill_with(&mut room, now, MS / 10, load);
                let held = room.sent - room.reported;
                assert!(held <= DEFAULT * 3 / 4, "{bytes} bytes: {held}");
                assert_eq!(held / room.memory(load), most, "{bytes} bytes");
                assert!(!marks.is_empty(), "nothing would make room");
                for mark in marks {
                    room.settle(mark, Some(MS / 10));
                }
            }
        }
        let (load, mut room) = (
            Load {
                bytes: 64_000,
                packets: 45,
            },
            Room::new(Duration::ZERO),
        );
        room.guess(1);
        for _ in 0..3 {
            let (sent, marks) = fill_with(&mut room, now, MS / 10, load);
            assert_eq!((sent, marks.len()), (1, 1));
            room.settle(marks[0], Some(MS / 10));
        }
    }

    /// On a busy host answers take as long as others need its processors.
    #[test]
    fn a_peer_on_this_host_is_near_however_late_it_answers() {
        let now = Instant::now();
        let mut room = Room::new(Duration::ZERO);
        room.guess(DEFAULT);
        room.set_here(true);
        let (packets, marks) = fill(&mut room, now, Duration::MAX);
        let held = packets * HERE;
        assert!(held <= DEFAULT, "{held}");
        assert!(room.is_full(now + 100 * MS, Duration::MAX, PACKET));
        assert_eq!(room.opens_at(), None);
        marks
            .into_iter()
            .for_each(|mark| room.settle(mark, Some(50 * MS)));
        let (packets, _) = fill(&mut room, now + 100 * MS, 50 * MS);
        let more = packets * HERE;
        assert!(0 < more && more <= DEFAULT, "{more}");
        room.set_here(false);
        assert!(
            !room.is_full(now + 100 * MS, 50 * MS, PACKET),
            "it has moved"
        );
    }

    /// What the socket at the relay holds would leave a long way behind it empty.
    #[test]
    fn a_peer_behind_a_relay_on_this_host_is_as_far_as_it_is() {
        let now = Instant::now();
        // Its light time is known, or the soonest of its answers tells.
        for (light, shortest) in [
            (300 * MS, Duration::MAX),
            (300 * MS, 600 * MS),
            (Duration::ZERO, 600 * MS),
        ] {
            let mut room = Room::new(light);
            room.guess(DEFAULT);
            room.set_here(true);
            let (packets, _) = fill(&mut room, now, shortest);
            let memory = packets * HERE;
            assert!(memory > 100 * DEFAULT, "{light:?}, {shortest:?}: {memory}");
        }
        // One that is as far by its light time, and answers at once, is beside us after all.
        let mut room = Room::new(300 * MS);
        room.guess(DEFAULT);
        room.set_here(true);
        let (packets, _) = fill(&mut room, now, MS / 10);
        let memory = packets * HERE;
        assert!(memory <= DEFAULT, "{memory}");
    }

    #[test]
    fn over_a_short_way_no_more_is_under_way_than_the_socket_holds() {
        let now = Instant::now();
        let mut room = Room::new(Duration::ZERO);
        room.guess(DEFAULT);
        let (packets, marks) = fill(&mut room, now, Duration::MAX);
        let memory = packets * ELSEWHERE;
        assert!((DEFAULT / 2..DEFAULT).contains(&memory), "{memory}");
        assert!(marks.len() >= 3, "{marks:?}");
        // Each report makes room for a part.
        for mark in marks {
            room.settle(mark, Some(MS / 10));
            let (packets, marks) = fill(&mut room, now, MS / 10);
            let more = packets * ELSEWHERE;
            assert!((DEFAULT / 8..DEFAULT / 2).contains(&more), "{more}");
            assert!(!marks.is_empty());
        }
        room.tell(DEFAULT / 8);
        room.guess(DEFAULT);
        assert!(room.is_full(now, MS / 10, PACKET), "the peer knows best");
    }

    #[test]
    fn over_a_longer_way_it_grows_and_over_a_long_one_it_ends() {
        let now = Instant::now();
        for light in [Duration::ZERO, MS * 50] {
            let mut room = Room::new(light);
            assert!(!room.is_full(now, Duration::MAX, PACKET), "nobody has told");
            room.guess(DEFAULT);
            let (_, marks) = fill(&mut room, now, Duration::MAX);
            assert_eq!(marks.is_empty(), !light.is_zero());
            // No answer comes for so long, or after so long.
            let (packets, _) = fill(&mut room, now + NEAR, Duration::MAX);
            let (more, _) = fill(&mut room, now, NEAR + MS);
            assert!(packets.min(more) * ELSEWHERE > 100 * DEFAULT);
        }
        // What the peer takes in the most of three milliseconds is under way, too.
        let (mut room, mut memory) = (Room::new(Duration::ZERO), 0);
        room.guess(DEFAULT);
        for _ in 0..40 {
            let (_, marks) = fill(&mut room, now, MS * 3);
            memory = room.sent - room.reported;
            for mark in marks {
                room.settle(mark, Some(MS * 3));
            }
        }
        assert!((3 * DEFAULT..6 * DEFAULT).contains(&memory), "{memory}");
    }

    #[test]
    fn blocks_of_one_segment_that_are_answered_late_leave_all_the_same() {
        let now = Instant::now();
        let mut room = Room::new(Duration::ZERO);
        room.guess(DEFAULT);
        for block in 0..1000 {
            assert!(!room.is_full(now, MS / 10, PACKET), "after {block} blocks");
            room.sent(PACKET);
            room.mark(now, false);
        }
    }
}
