//! LEOTP: contents by name, hop by hop through relays that cache them, recover losses where they happen, and pace each hop.
//!
//! A [`Node`] is requester, midnode and responder in one: it fetches, relays what its neighbours ask for, and serves. It has
//! neither sockets nor a clock. `docs/leotp.md` describes the protocol and what differs from the publication.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use starhaul_leotp::{
//!     ContentId, ContentSecret, Event, FetchConfig, NeighbourConfig, NeighbourId, NeighbourKey, Node, NodeConfig,
//! };
//!
//! let (mut now, hop) = (Instant::now(), NeighbourId(1));
//! let (secret, content) = (ContentSecret::new(&[1; 32]), ContentId([7; 16]));
//! let key = NeighbourConfig { key: NeighbourKey::new(&[2; 32]) };
//! let mut requester = Node::new(now, NodeConfig::default(), [3; 32])?;
//! let mut responder = Node::new(now, NodeConfig::default(), [4; 32])?;
//! requester.add_neighbour(now, hop, key.clone())?;
//! responder.add_neighbour(now, hop, key)?;
//! requester.set_upstream(now, Some(hop));
//! responder.serve(content, &secret, Box::new(bytes::Bytes::from_static(b"from orbit")));
//!
//! let fetch = requester.fetch(now, FetchConfig::new(content, secret));
//! loop {
//!     let (mut up, mut down) = (Vec::new(), Vec::new());
//!     let asked = requester.poll_transmit(now, &mut up).is_some();
//!     responder.handle_datagram(now, hop, &up);
//!     let answered = responder.poll_transmit(now, &mut down).is_some();
//!     requester.handle_datagram(now, hop, &down);
//!     now += Duration::from_millis(10);
//!     if !asked && !answered {
//!         break;
//!     }
//! }
//! assert_eq!(requester.read(now, fetch).unwrap(), "from orbit");
//! let events: Vec<Event> = std::iter::from_fn(|| requester.poll_event()).collect();
//! assert_eq!(events.last(), Some(&Event::Finished(fetch)));
//! # Ok::<(), starhaul_leotp::Error>(())
//! ```

mod cache;
mod config;
mod control;
mod deadlines;
mod event;
mod hop;
mod keys;
mod name;
mod node;
mod pending;
mod requester;
mod responder;
mod stream;
mod varint;
mod wire;

#[cfg(test)]
mod tests;

pub use config::{NeighbourConfig, NeighbourId, NodeConfig, RateRule, Scope};
pub use event::{Event, Failure, Recognised, Refused, Stats};
#[doc(hidden)]
pub use hop::raw::RawPacket;
pub use keys::{ContentSecret, NeighbourKey};
pub use name::{ContentId, SEAL_BYTES};
pub use node::Node;
pub use requester::{FetchConfig, FetchId};
pub use responder::Source;
pub use stream::{Outcome, StreamConfig, StreamEvent, StreamId, StreamRead};
pub use wire::ParseError;

/// Whether a datagram is a hello, which may be sent to an address that is not proven.
pub fn is_hello(datagram: &[u8]) -> bool {
    wire::is_hello(datagram)
}

/// The challenges in a hello, by which an answer is found to belong to the hello that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloChallenges {
    /// Drawn by its sender.
    pub own: [u8; 8],
    /// That of the hello which it answers; zeros if it answers none.
    pub echo: [u8; 8],
}

/// The challenges in a hello, which need not be authentic; `None` for any other datagram.
pub fn hello_challenges(datagram: &[u8]) -> Option<HelloChallenges> {
    if !is_hello(datagram) {
        return None;
    }
    match wire::parse(datagram) {
        Ok(wire::Packet::Hello(hello)) => Some(HelloChallenges {
            own: hello.challenge,
            echo: hello.echo,
        }),
        _ => None,
    }
}

/// Whether a datagram has the form of a packet; who sent it is not known by that.
pub fn is_packet(datagram: &[u8]) -> bool {
    wire::parse(datagram).is_ok()
}

/// The largest segments: what fits into a datagram of 65 507 bytes.
pub const MOST_SEGMENT_BYTES: usize = 65_507 - wire::DATA_OVERHEAD - wire::ECHO_BYTES;

/// Errors of calls. What the network sends leads to none: it is counted in [`Stats`], or fails a transfer with an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The configuration names a neighbour twice.
    #[error("neighbour {} is there already: give each a number of its own", .0.0)]
    DuplicateNeighbour(NeighbourId),
    /// The configuration has segments that no datagram carries, or too small ones.
    #[error("segments of {0} bytes do not work: choose 64 to {MOST_SEGMENT_BYTES}")]
    SegmentBytes(usize),
}

/// What parses as a packet is written again and parses to the same; for fuzzers.
///
/// # Errors
/// The datagram is no packet.
pub fn check_packet(datagram: &[u8]) -> Result<(), ParseError> {
    wire::check(datagram)
}
