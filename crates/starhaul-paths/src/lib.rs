//! The state of each path, and when a fragment sent on it would arrive (MPDTP "path monitor"; DMTP §V).
//!
//! A [`PathMonitor`] keeps the ledger of the datagrams sent on a path, which says what became of each, and with the
//! transport's estimates gives a multipath scheduler its predictions. A [`ClockOffset`] gives one-way delays between two unsynchronised clocks. A
//! [`Train`] measures what a new path carries, and an [`RttHistory`] tells whether two share a bottleneck. The [`optimizer`] divides what
//! streams offer over the paths (DMTP §V).
//!
//! ```
//! use std::time::{Duration, Instant};
//! use starhaul_paths::{PathMonitor, PathUpdate};
//! use starhaul_units::Bandwidth;
//!
//! let start = Instant::now();
//! let update = PathUpdate {
//!     cwnd: 1_000_000,
//!     bytes_in_flight: 0,
//!     bandwidth: Bandwidth::from_mbit(10),
//!     smoothed_rtt: Duration::from_millis(100),
//!     min_rtt: Duration::from_millis(100),
//!     max_datagram: 1200,
//! };
//! let path = PathMonitor::<()>::new(start, 1.0, update, 0);
//! // 12.5 kB wait before these 12.5 kB: 20 ms to serialise both, and 50 ms on the way.
//! assert_eq!(path.predict_arrival(start, 12_500, 12_500), start + Duration::from_millis(70));
//! ```

mod allowance;
mod clock;
mod delay;
mod ledger;
mod loss;
mod monitor;
pub mod optimizer;
mod plateau;
mod ranges;
mod recent;
mod shared;
mod silence;
mod tardy;
mod told;
mod train;

use std::time::Duration;

use starhaul_units::Bandwidth;

pub use allowance::Allowance;
pub use clock::ClockOffset;
pub use ledger::Fated;
pub use loss::Loss;
pub use monitor::PathMonitor;
pub use ranges::RangeSet;
pub use shared::{RttHistory, Sharing};
pub use train::Train;

/// A path of a session, unique while the session lives and the same number on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

/// The transport's state of a path. A zero bandwidth or RTT means unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathUpdate {
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Bytes in flight on the path.
    pub bytes_in_flight: u64,
    /// Bandwidth estimate of its controller, else cwnd per RTT.
    pub bandwidth: Bandwidth,
    /// Latest smoothed RTT of the path.
    pub smoothed_rtt: Duration,
    /// Lowest RTT that the transport has measured.
    pub min_rtt: Duration,
    /// Largest datagram payload in bytes.
    pub max_datagram: usize,
}
