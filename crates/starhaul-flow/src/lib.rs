//! A bulk flow, packet by packet: a sender with the recovery of RFC 9002 and any congestion controller, and a receiver.
//!
//! Both are state machines without clock or socket. [`FlowNetwork`] runs flows over links in virtual time, as nodes of
//! the simulator, and measures them.

mod hosts;
mod message;
mod metrics;
mod network;
mod prober;
mod ranges;
mod receiver;
mod recovery;
mod rtt;
mod sender;
mod source;
#[cfg(test)]
mod tests;

pub use hosts::Alarm;
pub use metrics::{Metrics, Sample};
pub use network::{FlowNetwork, FlowPath, FlowReport, FlowSetup};
pub use prober::ProbeSide;
pub use ranges::Ranges;
pub use receiver::{AckPolicy, Receiver};
pub use recovery::RecoveryStats;
pub use rtt::RttEstimator;
pub use sender::Sender;
pub use source::Source;

/// Size of a data packet on the wire, all headers included; also the size of one delivery opportunity.
pub const PACKET_BYTES: u64 = 1500;
/// Size of an acknowledgement on the wire: IP, UDP and QUIC headers and an ACK frame with a few ranges.
pub const ACK_BYTES: usize = 80;

/// A data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPacket {
    /// Packet number; never used twice.
    pub number: u64,
    /// Number of the data chunk that it carries; a retransmission carries the chunk of the lost packet.
    pub chunk: u64,
}

/// An acknowledgement (RFC 9000 §19.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Closed ranges of packet numbers that arrived, greatest first.
    pub ranges: Vec<(u64, u64)>,
    /// Acknowledgement delay of the greatest of them.
    pub delay: std::time::Duration,
}
