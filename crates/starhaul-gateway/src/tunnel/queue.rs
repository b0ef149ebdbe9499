//! The packets of a class that wait until the session takes them, held short by controlled delay (RFC 8289).

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use starhaul_link::{Codel, CodelState, Head};

use super::packet::mark_congestion;

/// Most bytes that wait: as much as 1 Gbit/s carries in 60 ms. Above it the newest packet is dropped.
const MAX_BYTES: usize = 8 << 20;
/// Of a queue that is held short this part of the interval may stand: the larger end of what RFC 8289 §4.3 names, since a session
/// takes packets in lumps.
const TARGET_SHARE: u32 = 10;
/// Bytes of a reliable stream wait in the session for about so long.
const SESSION_WAIT: Duration = Duration::from_millis(50);

/// What became of packets that were not passed on unharmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Harmed {
    pub(crate) dropped: u64,
    pub(crate) marked: u64,
}

/// The packets of one class.
#[derive(Debug)]
pub(crate) struct PacketQueue {
    packets: VecDeque<(Instant, BytesMut)>,
    bytes: usize,
    codel: CodelState,
    harmed: Harmed,
}

impl PacketQueue {
    pub(crate) fn new() -> Self {
        Self {
            packets: VecDeque::new(),
            bytes: 0,
            codel: CodelState::new(Codel::default()),
            harmed: Harmed::default(),
        }
    }

    /// Fits the queue to paths with this round-trip time. A queue is judged over about one of the flows within (RFC 8289 §4.3),
    /// which is longer by a retransmission and by what waits in the session.
    pub(crate) fn set_round_trip(&mut self, rtt: Duration) {
        let interval = (2 * rtt + SESSION_WAIT).max(Codel::default().interval);
        self.codel.set(Codel {
            target: interval / TARGET_SHARE,
            interval,
        });
    }

    /// Appends a packet, or drops it if there is no room.
    pub(crate) fn push(&mut self, now: Instant, packet: BytesMut) {
        if self.bytes + packet.len() > MAX_BYTES {
            self.harmed.dropped += 1;
            return;
        }
        self.bytes += packet.len();
        self.packets.push_back((now, packet));
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Takes packets that had to wait for the session and passes them to `take`, about `bytes` of them. Where they wait too
    /// long, some are marked, or dropped if they cannot be.
    pub(crate) fn pop_held_short(
        &mut self,
        now: Instant,
        bytes: usize,
        mut take: impl FnMut(BytesMut),
    ) {
        let mut taken = 0;
        while taken < bytes {
            let (packets, waiting) = (&mut self.packets, &mut self.bytes);
            let pop = || {
                let (since, item) = packets.pop_front()?;
                *waiting -= item.len();
                Some(Head {
                    since,
                    bytes_left: *waiting,
                    item,
                })
            };
            let harmed = &mut self.harmed;
            let chosen = |mut packet: BytesMut| match mark_congestion(&mut packet) {
                true => {
                    harmed.marked += 1;
                    taken += packet.len();
                    take(packet);
                }
                false => harmed.dropped += 1,
            };
            let Some(packet) = self.codel.dequeue(now, pop, chosen) else {
                return;
            };
            taken += packet.len();
            take(packet);
        }
    }

    /// Takes all packets.
    pub(crate) fn pop_all(&mut self) -> impl Iterator<Item = BytesMut> + '_ {
        self.bytes = 0;
        self.packets.drain(..).map(|(_, packet)| packet)
    }

    /// What was dropped and marked since the last call.
    pub(crate) fn take_harmed(&mut self) -> Harmed {
        std::mem::take(&mut self.harmed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: usize = 1000;

    /// Sends `offered` packets per millisecond for 5 s through a queue that is emptied at one; gives the longest wait of the last
    /// second, and what was harmed.
    fn overload(first: &[u8], offered: usize) -> (Duration, Harmed) {
        let (start, mut queue) = (Instant::now(), PacketQueue::new());
        let mut longest = Duration::ZERO;
        for millis in 0..5000 {
            let now = start + Duration::from_millis(millis);
            for _ in 0..offered {
                let mut packet = BytesMut::zeroed(PACKET);
                packet[..first.len()].copy_from_slice(first);
                queue.push(now, packet);
            }
            let waits = queue.packets.front().map(|(since, _)| now - *since);
            if millis >= 4000 {
                longest = longest.max(waits.unwrap_or_default());
            }
            queue.pop_held_short(now, 1, |_| ());
        }
        let packets: usize = queue.packets.iter().map(|(_, packet)| packet.len()).sum();
        assert_eq!(queue.bytes, packets);
        (longest, queue.take_harmed())
    }

    #[test]
    fn packets_that_wait_too_long_are_dropped_or_marked_where_they_can_be() {
        let (_, harmed) = overload(&[0x45, 0], 2);
        assert!(harmed.dropped > 100 && harmed.marked == 0, "{harmed:?}");
        let (_, harmed) = overload(&[0x45, 2], 2);
        assert!(harmed.marked > 100 && harmed.dropped == 0, "{harmed:?}");
        let (wait, harmed) = overload(&[0x45, 0], 1);
        assert_eq!((wait, harmed), (Duration::ZERO, Harmed::default()));
    }

    #[test]
    fn the_queue_is_bounded() {
        let (now, mut queue) = (Instant::now(), PacketQueue::new());
        for _ in 0..2 * MAX_BYTES / 65_536 {
            queue.push(now, BytesMut::zeroed(65_536));
        }
        assert_eq!(queue.bytes, MAX_BYTES);
        let dropped = queue.take_harmed().dropped;
        assert_eq!(dropped, (MAX_BYTES / 65_536) as u64);
        assert_eq!(queue.pop_all().count(), MAX_BYTES / 65_536);
        assert!(queue.is_empty());
        queue.push(now, BytesMut::zeroed(MAX_BYTES));
        assert_eq!(queue.take_harmed(), Harmed::default());
    }
}
