//! What the socket of the peer holds. Over a short way all that is under way may lie in it, as when the peer's processor does something
//! else: there it is the limit. Over a long one it comes as fast as the links carry it: the peer has to take it at that speed, and so small a
//! limit would only keep the links from it.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use crate::batch::begin_below;

/// Over a short way answers take at most so long: it is full again soon after the limit grew.
const NEAR: Duration = Duration::from_millis(5);
/// What of that the two hosts take, about. For the rest of it data are on the way, and there is room for what the peer takes meanwhile.
const HOSTS: Duration = Duration::from_micros(500);
/// A host that is busy keeps a peer on it waiting for its processors, but not each time for so long: then a relay on it, as the end of a tunnel,
/// leads to a peer that is elsewhere.
const RELAYED: Duration = Duration::from_millis(200);
/// Memory that the kernel counts for a packet beside its data, at most: most drivers give one of Ethernet a page.
const PACKET_MEMORY: u64 = 3 << 10;
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

    /// A quarter is left for acknowledgements and what is sent again.
    fn set(&mut self, bytes: u64) {
        self.most = Some((bytes - bytes / 4).max(LEAST));
    }

    /// Red data leave in so many packets.
    pub(super) fn sent(&mut self, bytes: u64, packets: u64) {
        self.sent += memory(bytes, packets);
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

    /// Whether the peer has to report before more is sent; `shortest` is the shortest time that it took for that. Where nothing was asked since
    /// so much has left, blocks have one segment each, and their client answers when it likes: nobody waits for that.
    pub(super) fn is_full(&self, now: Instant, shortest: Duration) -> bool {
        self.limit(now, shortest).is_some_and(|limit| {
            self.sent - self.reported >= limit && self.sent - self.asked < limit
        })
    }

    /// Whether the next segment should ask for a report.
    pub(super) fn wants_report(&self, now: Instant, shortest: Duration) -> bool {
        let limit = self.limit(now, shortest);
        limit.is_some_and(|limit| self.sent - self.asked >= limit / PARTS)
    }

    /// How many segments of so many bytes and packets may leave before one has to ask for a report, or to wait for one.
    pub(super) fn run(&self, now: Instant, shortest: Duration, bytes: u64, packets: u64) -> u64 {
        let Some(limit) = self.limit(now, shortest) else {
            return u64::MAX;
        };
        let memory = memory(bytes, packets);
        let unasked = begin_below(limit / PARTS, self.sent - self.asked, memory);
        unasked.min(begin_below(limit, self.sent - self.reported, memory))
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
        if self.is_beside(shortest) {
            return self.most;
        }
        let is_near = match shortest {
            Duration::MAX => self.seems_near && self.opens_at().is_none_or(|at| now < at),
            known => known <= NEAR,
        };
        let most = self.most.filter(|_| is_near)?;
        // Checkpoints do not leave when most is under way: their rate lacks a fifth.
        let way = match shortest {
            Duration::MAX => Duration::ZERO,
            known => known.saturating_sub(HOSTS) * 5 / 4,
        };
        Some(most.saturating_add(self.rate.bytes_in(way)))
    }
}

/// Bytes of memory that so many bytes of data take in so many packets, at most.
const fn memory(bytes: u64, packets: u64) -> u64 {
    bytes + packets * PACKET_MEMORY
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    /// What Linux grants by default, as it counts it.
    const DEFAULT: u64 = 2 * 212_992;

    /// Sends packets of Ethernet until the room is full, each of which asks if that is wanted; the memory of their data, and the marks.
    fn fill(room: &mut Room, now: Instant, shortest: Duration) -> (u64, Vec<Mark>) {
        let (mut packets, mut marks) = (0, Vec::new());
        while !room.is_full(now, shortest) && packets < 100_000 {
            let asks = room.wants_report(now, shortest);
            room.sent(1360, 1);
            packets += 1;
            if asks {
                marks.push(room.mark(now, true));
            }
        }
        (packets * 4096, marks)
    }

    /// On a busy host answers take as long as others need its processors.
    #[test]
    fn a_peer_on_this_host_is_near_however_late_it_answers() {
        let now = Instant::now();
        let mut room = Room::new(Duration::ZERO);
        room.guess(DEFAULT);
        room.set_here(true);
        let (held, marks) = fill(&mut room, now, Duration::MAX);
        assert!(held <= DEFAULT, "{held}");
        assert!(room.is_full(now + 100 * MS, Duration::MAX));
        assert_eq!(room.opens_at(), None);
        marks
            .into_iter()
            .for_each(|mark| room.settle(mark, Some(50 * MS)));
        let (more, _) = fill(&mut room, now + 100 * MS, 50 * MS);
        assert!(0 < more && more <= DEFAULT, "{more}");
        room.set_here(false);
        assert!(!room.is_full(now + 100 * MS, 50 * MS), "it has moved");
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
            let (memory, _) = fill(&mut room, now, shortest);
            assert!(memory > 100 * DEFAULT, "{light:?}, {shortest:?}: {memory}");
        }
        // One that is as far by its light time, and answers at once, is beside us after all.
        let mut room = Room::new(300 * MS);
        room.guess(DEFAULT);
        room.set_here(true);
        let (memory, _) = fill(&mut room, now, MS / 10);
        assert!(memory <= DEFAULT, "{memory}");
    }

    #[test]
    fn over_a_short_way_no_more_is_under_way_than_the_socket_holds() {
        let now = Instant::now();
        let mut room = Room::new(Duration::ZERO);
        room.guess(DEFAULT);
        let (memory, marks) = fill(&mut room, now, Duration::MAX);
        assert!((DEFAULT / 2..DEFAULT).contains(&memory), "{memory}");
        assert!(marks.len() >= 3, "{marks:?}");
        // Each report makes room for a part.
        for mark in marks {
            room.settle(mark, Some(MS / 10));
            let (more, marks) = fill(&mut room, now, MS / 10);
            assert!((DEFAULT / 8..DEFAULT / 2).contains(&more), "{more}");
            assert!(!marks.is_empty());
        }
        room.tell(DEFAULT / 8);
        room.guess(DEFAULT);
        assert!(room.is_full(now, MS / 10), "the peer knows best");
    }

    #[test]
    fn over_a_longer_way_it_grows_and_over_a_long_one_it_ends() {
        let now = Instant::now();
        for light in [Duration::ZERO, MS * 50] {
            let mut room = Room::new(light);
            assert!(!room.is_full(now, Duration::MAX), "nobody has told");
            room.guess(DEFAULT);
            let (_, marks) = fill(&mut room, now, Duration::MAX);
            assert_eq!(marks.is_empty(), !light.is_zero());
            // No answer comes for so long, or after so long.
            let (memory, _) = fill(&mut room, now + NEAR, Duration::MAX);
            let (more, _) = fill(&mut room, now, NEAR + MS);
            assert!(memory.min(more) > 100 * DEFAULT);
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
            assert!(!room.is_full(now, MS / 10), "after {block} blocks");
            room.sent(1000, 1);
            room.mark(now, false);
        }
    }
}
