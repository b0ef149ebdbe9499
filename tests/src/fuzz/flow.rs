//! The bulk flow of the lab: a sender and a receiver, and packets that are delayed, lost, duplicated and reordered
//! between them.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use starhaul_cc::ControllerConfig;
use starhaul_flow::{Ack, AckPolicy, DataPacket, PACKET_BYTES, Receiver, Sender, Source};

/// More packets than any window after a few hundred operations.
const MOST_UNDER_WAY: usize = 100_000;
/// Packets sent by one operation.
const BURST: usize = 64;
const ONE_WAY: Duration = Duration::from_millis(10);
/// Time without losses at the end, in which all losses must be detected and retransmitted: several of the longest probe
/// timeouts that the operations can lead to.
const CLEAN: Duration = Duration::from_secs(600);

/// For any fate of packets and acknowledgements, the flight stays within the window, and once the path is reliable
/// every data chunk arrives.
pub fn lab_flow(data: &[u8]) {
    let Some((&first, operations)) = data.split_first() else {
        return;
    };
    let mut flow = Flow::new(first);
    for pair in operations.chunks_exact(2).take(400) {
        flow.apply(pair[0], pair[1]);
    }
    flow.finish();
}

struct Flow {
    now: Instant,
    sender: Sender,
    receiver: Receiver,
    packets: Vec<DataPacket>,
    acks: Vec<Ack>,
    greatest: u64,
    sent: BTreeSet<u64>,
    arrived: BTreeSet<u64>,
}

impl Flow {
    fn new(controller: u8) -> Self {
        let now = Instant::now();
        let all = &ControllerConfig::SELF_RELIANT;
        let config = &all[usize::from(controller) % all.len()];
        let policy = AckPolicy::default();
        Self {
            now,
            sender: Sender::new(now, Source::Saturating, policy, config.build(now, 1500)),
            receiver: Receiver::new(policy),
            packets: Vec::new(),
            acks: Vec::new(),
            greatest: 0,
            sent: BTreeSet::new(),
            arrived: BTreeSet::new(),
        }
    }

    fn apply(&mut self, operation: u8, argument: u8) {
        let pick = |length: usize| usize::from(argument).checked_rem(length);
        match operation % 8 {
            0 => self.now += Duration::from_micros(u64::from(argument) * 200),
            1 => self.send(),
            2 | 3 => {
                if let Some(packet) = pick(self.packets.len()).map(|n| self.packets.remove(n)) {
                    self.arrive(packet);
                }
            }
            4 => {
                if let Some(packet) = pick(self.packets.len()).map(|n| self.packets[n]) {
                    match argument & 1 {
                        0 => self.arrive(packet),
                        _ => self.packets.retain(|other| other.number != packet.number),
                    }
                }
            }
            5 => {
                if let Some(ack) = pick(self.acks.len()).map(|n| self.acks.remove(n)) {
                    self.sender.handle_ack(self.now, &ack);
                }
            }
            6 => self.wake(),
            _ => {
                // Of packets that were never sent, and a duplicate.
                let beyond = self.greatest + 1 + u64::from(argument);
                let ack = Ack {
                    ranges: vec![(beyond, beyond + 3)],
                    delay: Duration::from_millis(argument.into()),
                };
                self.sender.handle_ack(self.now, &ack);
            }
        }
    }

    fn send(&mut self) {
        for _ in 0..BURST {
            let Some(packet) = self.sender.poll_transmit(self.now) else {
                break;
            };
            assert!(
                packet.number >= self.greatest,
                "packet {} after {}",
                packet.number,
                self.greatest
            );
            self.greatest = packet.number;
            self.sent.insert(packet.chunk);
            self.packets.push(packet);
            let in_flight = self.sender.bytes_in_flight();
            assert!(
                in_flight <= MOST_UNDER_WAY as u64 * PACKET_BYTES,
                "{in_flight} bytes in flight"
            );
        }
        self.packets.truncate(MOST_UNDER_WAY);
    }

    fn arrive(&mut self, packet: DataPacket) {
        let new = self.receiver.handle_data(self.now, packet);
        assert_eq!(new, self.arrived.insert(packet.chunk), "{packet:?}");
        self.acks.extend(self.receiver.poll_transmit(self.now));
    }

    fn wake(&mut self) {
        if self.sender.poll_timeout().is_some_and(|at| at <= self.now) {
            self.sender.handle_timeout(self.now);
        }
        self.acks.extend(self.receiver.poll_transmit(self.now));
    }

    /// From here on each packet and each acknowledgement takes 10 ms.
    fn finish(&mut self) {
        self.packets.clear();
        self.acks.clear();
        let wanted = self.sent.clone();
        let end = self.now + CLEAN;
        while self.now < end && !wanted.is_subset(&self.arrived) {
            self.send();
            for packet in std::mem::take(&mut self.packets) {
                self.arrive(packet);
            }
            self.now += ONE_WAY;
            self.acks.extend(self.receiver.poll_transmit(self.now));
            for ack in std::mem::take(&mut self.acks) {
                self.sender.handle_ack(self.now, &ack);
            }
            self.now += ONE_WAY;
            self.wake();
        }
        let missing: Vec<_> = wanted.difference(&self.arrived).take(5).collect();
        assert!(missing.is_empty(), "pieces {missing:?} never arrived");
    }
}
