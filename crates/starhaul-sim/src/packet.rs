//! What nodes send each other.

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

/// What a packet carries besides its addresses.
pub trait Load: Clone {
    /// Its size on a link, all headers included.
    fn bytes(&self) -> usize;

    /// Which queue of a link it waits in.
    fn band(&self) -> Band {
        Band::Data
    }
}

/// The load of a UDP datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Udp {
    /// ECN bits of the IP header; links pass them on.
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
    /// From which of the node's sockets.
    pub local: u32,
    /// To whom.
    pub to: SocketAddr,
    /// What it carries.
    pub load: P,
}

/// A UDP datagram to send.
pub type Datagram = Packet<Udp>;

impl Datagram {
    /// A datagram from the socket `local`.
    pub fn udp(local: u32, to: SocketAddr, ecn: u8, payload: Bytes) -> Self {
        let load = Udp { ecn, payload };
        Self { local, to, load }
    }
}

/// A packet that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// At whom.
    pub node: NodeId,
    /// At which of the node's sockets.
    pub local: u32,
    /// From whom.
    pub from: SocketAddr,
    /// What it waited at all links of its route until its last byte was sent.
    pub waited: Duration,
    /// What it carries.
    pub load: P,
}
