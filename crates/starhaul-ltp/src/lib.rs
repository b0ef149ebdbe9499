//! The Licklider Transmission Protocol (LTP, RFC 5326) with the extensions of RFC 5327 for authentication, as an engine
//! without sockets and clock. [`Profile`] names what else both ends may agree on.
//!
//! An engine sends *blocks*. The first part of a block is *red*: the receiver reports what has arrived, and what is missing
//! is sent again. The rest is *green*: sent once. Each end of each session ends, whatever the other does.
//!
//! Segments are made when they leave, in batches of equal size, and borrow from the block until then. The cost of a segment
//! does not grow with what is under way.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use starhaul_ltp::{Batch, Engine, EngineConfig, EngineId, Event, Outgoing, PeerConfig};
//!
//! let (now, earth, moon) = (Instant::now(), EngineId(1), EngineId(2));
//! let light_time = Duration::from_millis(1280);
//! let (mut sender, mut receiver) =
//!     (Engine::new(EngineConfig::new(earth, [1; 32])), Engine::new(EngineConfig::new(moon, [2; 32])));
//! sender.add_peer(now, moon, PeerConfig::new(light_time, None))?;
//! receiver.add_peer(now, earth, PeerConfig::new(light_time, None))?;
//! receiver.open_service(1);
//!
//! let block = bytes::Bytes::from(vec![7; 10_000]);
//! let session = sender.send(now, Outgoing { to: moon, service: 1, block, red: 10_000 })?;
//! // The link carries batches both ways until neither engine has anything to send.
//! let mut batch = Batch::new(65_507, 64);
//! loop {
//!     let to_moon = sender.poll_transmit(now, &mut batch).is_some();
//!     receiver.handle_datagrams(now, earth, batch.contents(), batch.segment_size());
//!     let to_earth = receiver.poll_transmit(now, &mut batch).is_some();
//!     sender.handle_datagrams(now, moon, batch.contents(), batch.segment_size());
//!     if !to_moon && !to_earth {
//!         break;
//!     }
//! }
//! let events: Vec<Event> = std::iter::from_fn(|| receiver.poll_event()).collect();
//! assert!(matches!(&events[1], Event::RedPart { block, .. } if block.len() == 10_000));
//! let events: Vec<Event> = std::iter::from_fn(|| sender.poll_event()).collect();
//! assert_eq!(events, [Event::Transmitted { session }, Event::Sent { session }]);
//! # Ok::<(), starhaul_ltp::Error>(())
//! ```

mod auth;
mod batch;
mod block;
mod clock;
mod coding;
mod combine;
mod config;
mod contents;
mod credit;
mod damaged;
mod ended;
mod engine;
mod event;
mod fates;
mod integrity;
mod loss;
mod path;
mod peer;
mod profile;
mod ranges;
mod receive;
mod repair_choice;
mod sdnv;
mod segment;
mod send;
mod size;
mod size_choice;
mod window;

pub use auth::AuthKey;
pub use batch::Batch;
pub use block::Block;
pub use coding::Coding;
pub use combine::{checksum_behind, combined_checksum, rest_checksum};
pub use config::{ETHERNET_SEGMENT_DATA, EngineConfig, Explained, PeerConfig, UnknownPeers};
pub use engine::{Engine, LinkState, Outgoing};
pub use event::{Dropped, Event, Incoming, Stats};
pub use profile::{NumberWidth, ParseProfileError, Profile};
pub use repair_choice::{ParseRepairRateError, RepairChoice, RepairRate, RepairReason};
pub use sdnv::SdnvError;
pub use segment::{
    Body, CancelReason, Checkpoint, Claims, Data, DataKind, Encoding, End, EngineId, Extensions,
    Parity, ParseError, Repair, Report, Segment, SessionId, parse,
};
pub use size_choice::{ParseSegmentSizeError, SegmentChoice, SegmentSize, SizeReason};

/// Errors of calls. What the network sends leads to none: it is counted in [`Stats`] or ends a session with an [`Event`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The configuration names an engine twice, or this engine as its own peer.
    #[error(
        "engine {0} is a peer already or this engine itself: give each engine a number of its own"
    )]
    DuplicatePeer(EngineId),
    /// The configuration leaves no room for data in a segment.
    #[error("segments to engine {0} have no room for data: raise segment_data")]
    NoSegmentData(EngineId),
    /// The caller names an engine that is no peer.
    #[error("engine {0} is no peer of this engine: add it first")]
    UnknownPeer(EngineId),
    /// The caller's block has no byte; LTP cannot send it.
    #[error("an empty block cannot be sent")]
    EmptyBlock,
    /// The caller's red part is longer than the block.
    #[error("the red part has {red} bytes and its block only {length}")]
    RedBeyondBlock {
        /// Bytes of the red part.
        red: u64,
        /// Bytes of the block.
        length: u64,
    },
    /// The peer's profile lacks what the configuration asks for.
    #[error(
        "the profile {profile} of engine {peer} has no {lacking}: leave them out, or give another profile at both ends"
    )]
    NotInProfile {
        /// The peer.
        peer: EngineId,
        /// Its profile.
        profile: Profile,
        /// What that does not have.
        lacking: &'static str,
    },
    /// The caller's block is red in part, and the profile of its receiver has blocks of one colour.
    #[error(
        "{red} of {length} bytes are red, and in the profile fixed a block is red or green as a whole: send two"
    )]
    MixedBlock {
        /// Bytes of the red part.
        red: u64,
        /// Bytes of the block.
        length: u64,
    },
    /// Too much is under way: try again when a block has been sent.
    #[error(
        "{sessions} sessions with {bytes} bytes are under way: wait until one ends, or raise the limits"
    )]
    Full {
        /// Sessions that send to this peer.
        sessions: usize,
        /// Bytes of all blocks being sent.
        bytes: u64,
    },
}
