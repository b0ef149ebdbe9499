//! A LEOTP node and its application as a node of the simulator.

use std::net::SocketAddr;

/// The address of the node with this number, whose neighbours know it by the port.
pub(crate) fn address(number: u32) -> SocketAddr {
    ([10, 0, 0, 1], u16::try_from(number).unwrap()).into()
}

/// Has a host with a `node` be one of the simulator; its `act` is called after each packet and timer.
macro_rules! acts {
    ($host:ty) => {
        impl starhaul_sim::Node for $host {
            type Load = starhaul_sim::Udp;

            fn handle_packet(
                &mut self,
                now: std::time::Instant,
                packet: starhaul_sim::Delivery<starhaul_sim::Udp>,
            ) {
                let from = starhaul_leotp::NeighbourId(packet.from.port().into());
                self.node.handle_datagram(now, from, &packet.load.payload);
                self.act(now);
            }

            fn poll_transmit(
                &mut self,
                now: std::time::Instant,
                out: &mut std::collections::VecDeque<starhaul_sim::Datagram>,
            ) {
                let mut datagram = Vec::new();
                if let Some(to) = self.node.poll_transmit(now, &mut datagram) {
                    let to = crate::acting::address(to.0);
                    out.push_back(starhaul_sim::Datagram::udp(0, to, 0, datagram.into()));
                }
            }

            fn poll_timeout(&mut self) -> Option<std::time::Instant> {
                self.node.poll_timeout()
            }

            fn handle_timeout(&mut self, now: std::time::Instant) {
                self.node.handle_timeout(now);
                self.act(now);
            }
        }
    };
}

pub(crate) use acts;
