//! The packets that nodes exchange.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use starhaul_link::Band;

/// A node of the simulation: its index in [`crate::Simulation::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// Bytes that IPv4 and UDP add to each payload on a link.
pub const HEADER_BYTES: usize = 28;
/// The largest IP packet that links carry.
pub const MTU_BYTES: usize = 1500;

/// The content of a packet besides its addresses.
pub trait Load: Clone {
    /// Its size on a link, all headers included.
    fn bytes(&self) -> usize;

    /// The band of a link's queue in which it waits.
    fn band(&self) -> Band {
        Band::Data
    }
}

/// The load of a UDP datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Udp {
    /// ECN bits of the IP header; links leave them unchanged.
    pub ecn: u8,
    /// The UDP payload.
    pub payload: Bytes,
}

impl Load for Udp {
    fn bytes(&self) -> usize {
        self.payload.len() + HEADER_BYTES
    }
}

/// A packet to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<P> {
    /// The number of the sending node's socket.
    pub local: u32,
    /// The destination address.
    pub to: SocketAddr,
    /// The packet's content.
    pub load: P,
}

/// A UDP datagram to send.
pub type Datagram = Packet<Udp>;

impl Datagram {
    /// Creates a datagram from the socket `local`.
    pub fn udp(local: u32, to: SocketAddr, ecn: u8, payload: Bytes) -> Self {
        let load = Udp { ecn, payload };
        Self { local, to, load }
    }
}

/// A packet that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// The receiving node.
    pub node: NodeId,
    /// The number of the receiving node's socket.
    pub local: u32,
    /// The source address.
    pub from: SocketAddr,
    /// Time waited at all links of the route until the last byte was sent.
    pub waited: Duration,
    /// The packet's content.
    pub load: P,
}
