//! A deterministic network in virtual time: sans-IO nodes joined by chains of [`starhaul_link::Link`]s.
//!
//! A [`Simulation`] owns the nodes and the [`Network`]. The caller owns the loop: it advances to an instant, or passes
//! a callback to [`Simulation::run_until`] that runs after every event, and has full access to its own node types in
//! between. Packets carry any [`Load`]; [`Udp`] datagrams are one. The same seed and calls give the same run at any
//! start instant. The cost of an event does not grow with the number of idle links.
//!
//! ```
//! use std::{collections::VecDeque, net::SocketAddr, time::{Duration, Instant}};
//! use starhaul_sim::{Datagram, Delivery, Node, Packet, Simulation, Udp};
//!
//! /// Sends each datagram back to its sender.
//! #[derive(Default)]
//! struct Echo(VecDeque<Datagram>, u32);
//!
//! impl Node for Echo {
//!     type Load = Udp;
//!
//!     fn handle_packet(&mut self, _: Instant, Delivery { local, from, load, .. }: Delivery<Udp>) {
//!         self.1 += 1;
//!         self.0.push_back(Packet { local, to: from, load });
//!     }
//!     fn poll_transmit(&mut self, _: Instant, out: &mut VecDeque<Datagram>) { out.append(&mut self.0); }
//!     fn poll_timeout(&mut self) -> Option<Instant> { None }
//!     fn handle_timeout(&mut self, _: Instant) {}
//! }
//!
//! let (a, b) = ("10.0.0.1:1".parse()?, "10.0.0.2:1".parse()?);
//! let mut sim = Simulation::new(7, Instant::now());
//! let (alice, bob) = (sim.add_node(Echo::default()), sim.add_node(Echo::default()));
//! sim.network.bind(alice, 0, a);
//! sim.network.bind(bob, 0, b);
//! sim.network.connect(a, b, &"rate=10mbit,delay=25ms".parse()?, &"delay=25ms".parse()?);
//!
//! sim.nodes[0].0.push_back(Datagram::udp(0, b, 0, "hello".into()));
//! sim.run_for(Duration::from_secs(1));
//! assert_eq!(sim.nodes[1].1, 20); // one round trip takes 50 ms
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod network;
mod packet;
mod schedule;
mod simulation;

pub use network::{LinkId, Network, NetworkStats, PathLinks, Travelling};
pub use packet::{Datagram, Delivery, HEADER_BYTES, Load, MTU_BYTES, NodeId, Packet, Udp};
pub use simulation::{Node, Simulation};

#[cfg(test)]
mod tests;
