//! The node as a node of the simulator.

use std::{collections::VecDeque, time::Instant};

use bytes::BytesMut;
use starhaul_sim::{Datagram, Delivery, Udp};

use crate::{LocalId, Node};

/// The sockets of a simulated host are numbered as those of the node; each call of `poll_transmit` gives one batch.
impl starhaul_sim::Node for Node {
    type Load = Udp;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Udp>) {
        let Udp { ecn, payload } = packet.load;
        let local = LocalId(packet.local);
        self.handle_datagram(now, local, packet.from, ecn, BytesMut::from(payload));
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Datagram>) {
        let Some(batch) = Self::poll_transmit(self, now) else {
            return;
        };
        let payloads = batch.contents.chunks(batch.segment_size.max(1));
        let payloads = payloads.map(|payload| batch.contents.slice_ref(payload));
        out.extend(
            payloads.map(|payload| Datagram::udp(batch.local.0, batch.remote, batch.ecn, payload)),
        );
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        Self::poll_timeout(self)
    }

    fn handle_timeout(&mut self, now: Instant) {
        Self::handle_timeout(self, now);
    }
}
