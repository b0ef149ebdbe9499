//! The packet size of one path in our direction, found by probing (DPLPMTUD, RFC 8899).
//!
//! A path begins with packets that every path carries. Probes, padded datagrams without data, test larger sizes: the largest
//! first, then common ones by bisection. The loss of a probe counts only if a smaller packet of the same time arrived, and a size
//! is refused after several such losses, spread over time. A size in use needs the same proof: when its packets are lost, probes
//! find out whether a smaller MTU or random loss is the reason, and only then the size is reduced.

use std::time::{Duration, Instant};

/// UDP payloads that fill common paths: 1500, 1492, 1480, 1460 … 1280 bytes less 28 (IPv4) or 48 (IPv6) of headers.
const COMMON_BYTES: [u16; 13] = [
    1232, 1252, 1292, 1332, 1352, 1372, 1392, 1412, 1432, 1444, 1452, 1464, 1472,
];
/// Header, frame type and length, and tag of a packet that carries one datagram, at most: with a packet number of four bytes.
const OVERHEAD: u16 = 32;
/// The QUIC stack's own overhead, which assumes a longer length field.
const STACK_OVERHEAD: u16 = 38;
/// A probe may be this much smaller than its size, since its packet number may take one byte; no packet of that size is larger.
const SHORT_BY: u16 = 3;
/// A size is refused after this many lost probes.
const TRIES: u8 = 4;
/// A size in use is in doubt when this many of its packets were lost, and none arrived that left after them.
const DOUBT_AFTER: u32 = 4;
/// Least time between probes of the same size.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
/// The same while a size in use is in doubt, since data are lost until that is settled.
const DOUBT_PAUSE: Duration = Duration::from_millis(20);
const MOST_DOUBT_PAUSE: Duration = Duration::from_secs(1);
const MOST_PAUSE: Duration = Duration::from_secs(10);
/// A smaller packet is evidence that the path works if it left within this time of the probe.
const NEIGHBOURHOOD: Duration = Duration::from_millis(10);
/// The next larger size is probed again after this time, which doubles each time.
const SEARCH_AGAIN: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(600)];

/// Bytes of UDP payload in the packets of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketBytes {
    /// The size that the path carries without a probe.
    pub(crate) sure: u16,
    /// The largest size to probe.
    pub(crate) most: u16,
}

impl PacketBytes {
    /// The size for which the stack must be set up to take the datagrams of the largest packets.
    pub(crate) fn stack_bytes(self) -> u16 {
        match self.most > self.sure {
            true => self.most + (STACK_OVERHEAD - OVERHEAD),
            false => self.sure,
        }
    }

    #[cfg(test)]
    pub(crate) const LEAST: Self = Self {
        sure: crate::LEAST_PACKET_BYTES,
        most: crate::LEAST_PACKET_BYTES,
    };
}

/// The size of one path's packets, and the search for a larger one.
#[derive(Debug)]
pub(crate) struct PacketSize {
    sure: u16,
    /// Sizes above `sure` that may be tried, ascending.
    rungs: Vec<Rung>,
    /// The number of them that the path is known to carry.
    found: usize,
    probe: Option<Probe>,
    /// Earliest time of the next probe.
    next_at: Instant,
    /// Consecutive probes that were lost together with all packets around them.
    inconclusive: u32,
    /// Time from the end of a search to the next one.
    interval: Duration,
    /// A packet of the full size was sent since the last search.
    is_used: bool,
    doubt: Option<Doubt>,
}

#[derive(Clone, Copy, Debug)]
struct Rung {
    bytes: u16,
    /// Probes of this search that were lost while others arrived.
    lost: u8,
    /// Packets that need this size and were lost since one arrived.
    missing: u32,
    /// The newest packet of at least this size that arrived.
    arrived: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    rung: usize,
    /// Number of its packet, once it has left.
    packet: Option<Packet>,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    number: u64,
    sent: Instant,
    /// A smaller packet of the same time arrived.
    has_witness: bool,
}

/// A size in use may have become too large.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    rung: usize,
    /// An arriving packet of this size clears the doubt if it was sent after this one.
    since: u64,
    proofs: u8,
}

impl PacketSize {
    /// Packets of `sure` bytes, and a search for up to `most`.
    pub(crate) fn new(now: Instant, sure: u16, most: u16) -> Self {
        let common = COMMON_BYTES.into_iter().filter(|bytes| *bytes < most);
        let above = common.chain([most]).filter(|bytes| *bytes > sure);
        let rung = |bytes| Rung {
            bytes,
            lost: 0,
            missing: 0,
            arrived: None,
        };
        Self {
            sure,
            rungs: above.map(rung).collect(),
            found: 0,
            probe: None,
            next_at: now,
            inconclusive: 0,
            interval: SEARCH_AGAIN[0],
            is_used: false,
            doubt: None,
        }
    }

    /// Limits packets to what the stack or the peer takes.
    pub(crate) fn limit(&mut self, stack_bytes: u16) {
        let most = stack_bytes - (STACK_OVERHEAD - OVERHEAD);
        if self.found == 0 {
            self.rungs.retain(|rung| rung.bytes <= most);
        }
    }

    /// The path has another route now, of which nothing is known.
    pub(crate) fn restart(&mut self, now: Instant) {
        *self = Self::new(now, self.sure, self.most());
    }

    /// The size in use, bytes of UDP payload.
    pub(crate) fn bytes(&self) -> u16 {
        let found = self.found.checked_sub(1);
        found.map_or(self.sure, |rung| self.rung_bytes(rung))
    }

    /// The largest size that may be found.
    pub(crate) fn most(&self) -> u16 {
        self.rungs.last().map_or(self.sure, |rung| rung.bytes)
    }

    /// The largest datagram that fits a packet of the size in use.
    pub(crate) fn datagram_bytes(&self) -> usize {
        let overhead = match self.found {
            0 => STACK_OVERHEAD,
            // Its packet number may take three bytes where the probe's took one.
            _ => OVERHEAD + 2,
        };
        usize::from(self.bytes() - overhead)
    }

    /// Whether the stack's own frames beside a datagram of this size may fill a packet beyond the size in use.
    pub(crate) fn may_be_exceeded(&self, datagram_bytes: usize) -> bool {
        /// Approximate bytes of 64 ranges of an acknowledgement.
        const MOST_OF_ITS_OWN: usize = 400;
        !self.rungs.is_empty() && datagram_bytes + MOST_OF_ITS_OWN > self.datagram_bytes()
    }

    /// The bytes of a datagram that probes the next size now; confirm with [`PacketSize::on_given`] that it was given to the stack.
    pub(crate) fn due(&mut self, now: Instant) -> Option<usize> {
        if self.probe.is_some() || self.next_at > now {
            return None;
        }
        if self.target().is_none() && self.found < self.rungs.len() {
            self.search_again(now);
        }
        let bytes = self.rung_bytes(self.target().filter(|_| self.next_at <= now)?);
        Some(usize::from(bytes - OVERHEAD))
    }

    /// When [`PacketSize::due`] has something next; the past while a probe waits to leave.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        let wanted = self.doubt.is_some() || self.found < self.rungs.len();
        (wanted && self.probe.is_none()).then_some(self.next_at)
    }

    /// The probe that was due waits to leave.
    pub(crate) fn on_given(&mut self) {
        self.probe = self.target().map(|rung| Probe { rung, packet: None });
    }

    /// The probe left.
    pub(crate) fn on_probe_sent(&mut self, now: Instant, number: u64) {
        if let Some(probe) = &mut self.probe {
            probe.packet = Some(Packet {
                number,
                sent: now,
                has_witness: false,
            });
        }
    }

    /// The probe never left, or its fate will not be reported.
    pub(crate) fn on_probe_dropped(&mut self, now: Instant) {
        self.probe = None;
        self.next_at = now + LEAST_PAUSE;
    }

    /// The fates of packets that have left will not be reported.
    pub(crate) fn abandon_sent(&mut self, now: Instant) {
        if self.probe.is_some_and(|probe| probe.packet.is_some()) {
            self.on_probe_dropped(now);
        }
    }

    /// Whether a packet is the probe under way.
    pub(crate) fn is_probe(&self, number: u64) -> bool {
        let packet = self.probe.and_then(|probe| probe.packet);
        packet.is_some_and(|packet| packet.number == number)
    }

    /// A packet other than a probe left.
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.is_used |= bytes + u64::from(STACK_OVERHEAD) >= u64::from(self.bytes());
    }

    /// A packet arrived. Returns whether the size in use changed.
    pub(crate) fn on_acked(
        &mut self,
        now: Instant,
        sent: Instant,
        number: u64,
        bytes: u64,
    ) -> bool {
        if self.rungs.is_empty() {
            return false;
        }
        if self.is_probe(number) {
            let probe = self.probe.take();
            return probe.is_some_and(|probe| self.on_probe_acked(now, number, probe.rung));
        }
        let needed = self.needed_rung(bytes);
        if let Some(probe) = &mut self.probe
            && let Some(packet) = &mut probe.packet
            && needed.is_none_or(|needed| needed < probe.rung)
        {
            let apart = sent.max(packet.sent) - sent.min(packet.sent);
            packet.has_witness |= apart <= NEIGHBOURHOOD;
        }
        if let Some(needed) = needed {
            self.on_size_arrived(number, needed);
        }
        false
    }

    /// A packet was lost. Returns whether the size in use changed.
    pub(crate) fn on_lost(&mut self, now: Instant, number: u64, bytes: u64) -> bool {
        if self.is_probe(number) {
            let probe = self.probe.take();
            let packet = probe.and_then(|probe| Some((probe.rung, probe.packet?)));
            return packet.is_some_and(|(rung, packet)| self.on_probe_lost(now, rung, packet));
        }
        let Some(needed) = self.needed_rung(bytes).filter(|rung| *rung < self.found) else {
            return false;
        };
        if let Some(rung) = self.rungs.get_mut(needed)
            && rung.arrived.is_none_or(|arrived| arrived < number)
        {
            rung.missing += 1;
            if rung.missing >= DOUBT_AFTER && self.doubt.is_none() {
                self.doubt = Some(Doubt {
                    rung: needed,
                    since: number,
                    proofs: 0,
                });
                self.next_at = now;
            }
        }
        false
    }

    fn on_probe_acked(&mut self, now: Instant, number: u64, rung: usize) -> bool {
        self.inconclusive = 0;
        self.next_at = now;
        self.on_size_arrived(number, rung);
        let grown = rung >= self.found;
        self.found = self.found.max(rung + 1);
        if grown {
            self.interval = SEARCH_AGAIN[0];
        }
        self.end_search(now);
        grown
    }

    fn on_probe_lost(&mut self, now: Instant, rung: usize, packet: Packet) -> bool {
        let waited = now.saturating_duration_since(packet.sent);
        if !packet.has_witness {
            // All packets of that time were lost, which says nothing of sizes.
            self.inconclusive += 1;
            let pause = waited.max(LEAST_PAUSE) * 2_u32.pow(self.inconclusive.min(6));
            let most = match self.doubt {
                Some(_) => MOST_DOUBT_PAUSE,
                None => MOST_PAUSE,
            };
            self.next_at = now + pause.min(most);
            return false;
        }
        self.inconclusive = 0;
        if let Some(doubt) = self.doubt.as_mut().filter(|doubt| doubt.rung == rung) {
            doubt.proofs += 1;
            self.next_at = now + DOUBT_PAUSE;
            return doubt.proofs >= TRIES && self.fall(now, rung);
        }
        let mut lost = 0;
        if let Some(rung) = self.rungs.get_mut(rung) {
            rung.lost = rung.lost.saturating_add(1);
            lost = rung.lost;
        }
        // Smaller sizes are tried at once; the same one only after a while, so that one burst of losses does not count twice.
        let is_same = self.target() == Some(rung);
        self.next_at = match is_same {
            true => {
                now + (waited.max(LEAST_PAUSE) * 2_u32.pow(u32::from(lost) - 1)).min(MOST_PAUSE)
            }
            false => now,
        };
        self.end_search(now);
        false
    }

    /// The path does not carry a size any more: returns to `sure`, and searches again below that size.
    fn fall(&mut self, now: Instant, refused: usize) -> bool {
        for (index, rung) in self.rungs.iter_mut().enumerate() {
            *rung = Rung {
                bytes: rung.bytes,
                lost: if index < refused { 0 } else { TRIES },
                missing: 0,
                arrived: None,
            };
        }
        self.found = 0;
        self.doubt = None;
        self.next_at = now;
        self.interval = SEARCH_AGAIN[0];
        self.end_search(now);
        true
    }

    /// A packet that needs this rung arrived: those before it were not lost for their size.
    fn on_size_arrived(&mut self, number: u64, needed: usize) {
        for rung in self.rungs.iter_mut().take(needed + 1) {
            rung.missing = 0;
            rung.arrived = rung.arrived.max(Some(number));
        }
        if self
            .doubt
            .is_some_and(|doubt| doubt.rung <= needed && doubt.since < number)
        {
            self.doubt = None;
        }
    }

    /// The size to probe: one in doubt, the largest if none was refused, the middle of those untried, or the next larger one again.
    fn target(&self) -> Option<usize> {
        if let Some(doubt) = self.doubt {
            return Some(doubt.rung);
        }
        let end = self.rungs.len();
        let above = self.rungs.iter().enumerate().skip(self.found);
        let refused = above.clone().find(|(_, rung)| rung.lost > 0);
        match refused {
            None => end.checked_sub(1).filter(|last| *last >= self.found),
            Some((refused, _)) if refused > self.found => Some((self.found + refused) / 2),
            Some((refused, rung)) => (rung.lost < TRIES).then_some(refused),
        }
    }

    /// Schedules the next search if this one has ended.
    fn end_search(&mut self, now: Instant) {
        if self.target().is_none() && self.found < self.rungs.len() {
            self.next_at = now + self.interval;
            self.interval = (self.interval * 2).min(SEARCH_AGAIN[1]);
            self.is_used = false;
        }
    }

    /// Probes the next larger size once more, if the size found is in use.
    fn search_again(&mut self, now: Instant) {
        if !self.is_used {
            self.next_at = now + self.interval;
            return;
        }
        for (index, rung) in self.rungs.iter_mut().enumerate().skip(self.found) {
            rung.lost = u8::from(index > self.found);
        }
    }

    /// The smallest rung whose probe is evidence for a packet; `None` for one that every path carries.
    fn needed_rung(&self, bytes: u64) -> Option<usize> {
        if bytes <= u64::from(self.sure) {
            return None;
        }
        let speaks_for = |rung: &Rung| u64::from(rung.bytes - SHORT_BY) < bytes;
        let needed = self.rungs.partition_point(speaks_for);
        Some(needed.min(self.rungs.len().checked_sub(1)?))
    }

    fn rung_bytes(&self, rung: usize) -> u16 {
        self.rungs.get(rung).map_or(self.sure, |rung| rung.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(50);

    /// Lets a search run for a time over a path that carries UDP payloads of up to `carried` bytes, and drops everything while
    /// `is_dead`; returns when each probe left, and its size.
    fn run(
        size: &mut PacketSize,
        start: Instant,
        millis: u64,
        carried: usize,
        is_dead: bool,
    ) -> Vec<(u64, usize)> {
        let mut probes = Vec::new();
        for at in 0..millis {
            let now = start + Duration::from_millis(at);
            let Some(datagram) = size.due(now) else {
                continue;
            };
            let (bytes, number) = (datagram + usize::from(OVERHEAD), 2 * at);
            probes.push((at, bytes));
            size.on_given();
            size.on_probe_sent(now, number);
            let heard = now + ROUND_TRIP;
            if !is_dead {
                size.on_acked(heard, now, number + 1, 40);
            }
            if !is_dead && bytes <= carried {
                size.on_acked(heard, now, number, bytes as u64);
            } else {
                size.on_lost(heard, number, bytes as u64);
            }
        }
        probes
    }

    #[test]
    fn a_probe_of_which_nothing_more_is_heard_makes_room_for_another() {
        let start = Instant::now();
        let mut size = PacketSize::new(start, 1200, 1472);
        let later = start + Duration::from_secs(1);
        assert!(size.due(later).is_some());
        size.on_given();
        size.abandon_sent(later);
        assert_eq!(
            size.due(later),
            None,
            "one that has not left yet still will"
        );
        size.on_probe_sent(later, 7);
        size.abandon_sent(later);
        assert!(size.due(later + LEAST_PAUSE).is_some());
    }

    #[test]
    fn a_size_is_refused_after_four_losses_spread_over_time() {
        let start = Instant::now();
        let mut size = PacketSize::new(start, 1200, 1472);
        let probes = run(&mut size, start, 30_000, 1400, false);
        assert_eq!(size.bytes(), 1392);
        let refused: Vec<u64> = probes
            .iter()
            .filter(|(_, bytes)| *bytes == 1412)
            .map(|(at, _)| *at)
            .collect();
        assert_eq!(refused.len(), 4, "{probes:?}");
        assert!(refused[3] - refused[0] >= 600, "{refused:?}");
        assert!(probes.len() <= 10, "{probes:?}");
    }

    #[test]
    fn what_is_lost_together_with_everything_says_nothing_of_sizes() {
        let start = Instant::now();
        let mut size = PacketSize::new(start, 1200, 1472);
        let probes = run(&mut size, start, 60_000, 1472, true);
        assert!(probes.iter().all(|(_, bytes)| *bytes == 1472));
        assert!(probes.len() < 20, "{probes:?}");
        let back = start + Duration::from_secs(70);
        run(&mut size, back, 1, 1472, false);
        assert_eq!(size.bytes(), 1472);
    }

    #[test]
    fn a_size_in_use_is_given_up_on_proof_alone() {
        let start = Instant::now();
        let mut size = PacketSize::new(start, 1200, 1472);
        run(&mut size, start, 100, 1472, false);
        let lose = |size: &mut PacketSize, from: u64| {
            (from..from + 10).for_each(|number| {
                size.on_lost(start + Duration::from_secs(1), number, 1468);
            });
        };
        // A burst: the first probe comes through.
        lose(&mut size, 1_000_000);
        assert!(size.may_be_exceeded(1400));
        let later = start + Duration::from_secs(1);
        let packet = |size: &mut PacketSize, number| size.on_acked(later, later, number, 1468);
        assert!(!packet(&mut size, 2_000_000), "data clear it as well");
        assert_eq!((size.bytes(), size.due(later)), (1472, None));
        // A narrower path.
        lose(&mut size, 3_000_000);
        let mut falls = false;
        for number in (4_000_000..).step_by(2).take(4) {
            let now = later + Duration::from_millis(number % 1_000_000 * 50);
            assert!(size.due(now).is_some() && size.bytes() == 1472);
            size.on_given();
            size.on_probe_sent(now, number);
            size.on_acked(now + ROUND_TRIP, now, number + 1, 40);
            falls = size.on_lost(now + ROUND_TRIP, number, 1470);
        }
        assert_eq!((falls, size.bytes()), (true, 1200));
    }
}
