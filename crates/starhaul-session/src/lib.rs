//! The deadline-aware multipath session as a state machine without sockets or clock (MPDTP; DMTP §V).
//!
//! An application opens streams and sends blocks, each with a deadline, or writes bytes to reliable streams. The session cuts
//! blocks into fragments, adds redundancy, and decides for each datagram which fragment leaves on which path. The transport
//! below asks for a datagram only when a path may send one now, and reports what becomes of it.
//!
//! After every input call [`Session::poll_datagram`] for each path that may send, and [`Session::poll_event`], until both are
//! empty; then come back at [`Session::poll_timeout`].
//!
//! ```
//! use std::time::{Duration, Instant};
//! use bytes::Bytes;
//! use starhaul_session::{BlockOptions, Event, PathId, PathUpdate, Session, SessionConfig, Side, StreamConfig};
//! use starhaul_units::Bandwidth;
//!
//! let now = Instant::now();
//! let path = PathId(0);
//! let knowledge = PathUpdate {
//!     cwnd: 100_000,
//!     bytes_in_flight: 0,
//!     bandwidth: Bandwidth::from_mbit(10),
//!     smoothed_rtt: Duration::from_millis(40),
//!     min_rtt: Duration::from_millis(40),
//!     max_datagram: 1200,
//! };
//! let mut ours = Session::new(SessionConfig::default(), Side::Client, now);
//! let mut theirs = Session::new(SessionConfig::default(), Side::Server, now);
//! ours.add_path(now, path, 0.0, knowledge);
//! theirs.add_path(now, path, 0.0, knowledge);
//!
//! let stream = ours.open_stream(now, StreamConfig::default())?;
//! ours.send_block(now, stream, Bytes::from_static(b"hello"), BlockOptions::default())?;
//! let arrival = now + Duration::from_millis(20);
//! while let Some(datagram) = ours.poll_datagram(now, path) {
//!     theirs.handle_datagram(arrival, path, datagram.payload)?;
//! }
//! let received = std::iter::from_fn(|| theirs.poll_event())
//!     .find_map(|event| if let Event::BlockReceived { data, .. } = event { Some(data) } else { None });
//! assert_eq!(received.as_deref(), Some(&b"hello"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod class_bytes;
mod clocks;
mod control;
mod control_stream;
mod events;
mod facts;
mod numbers;
mod paths;

mod choice;
mod item;
mod optimized;
mod receive;
mod received;
mod rules;
mod scheduler;
mod send;
mod session;
mod signals;
mod slab;
mod spending;
mod stats;
mod streams;
mod thrifty;
mod timers;
mod types;
mod wire;

pub use starhaul_paths::{PathId, PathUpdate};

pub use batch::{Budget, PathDatagram};
pub use choice::SchedulerChoice;
pub use class_bytes::ClassBytes;
pub use facts::{Datagram, Fact, Observer, Purpose};
pub use paths::LAST_RESORT;
pub use receive::SparePage;
pub use scheduler::{
    Class, Coding, Frame, Leaving, Limit, Load, Offer, PathView, PlannedClass, PlannedWay,
    Scheduler, SchedulerStatus, Thrift, View,
};
pub use session::Session;
pub use spending::SpendingStatus;
pub use stats::{PathStats, StreamStats};
pub use types::{
    BlockId, BlockOptions, Event, ExpiredCause, MAX_BLOCK_BYTES, MAX_LABEL_BYTES, MAX_LIVE_BLOCKS,
    Mode, Outcome, ProtocolError, SessionConfig, Side, StreamConfig, StreamError, StreamId,
};
