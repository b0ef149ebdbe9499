//! Emulated links in real time. The same [`starhaul_link::Link`] as in the simulator decides when each packet leaves;
//! threads with exact timers execute its decisions and measure their lateness.
//!
//! [`Emulator`] relays UDP between sockets, without privileges. [`run`] puts a whole command behind links between TUN
//! devices, in a network namespace of its own; [`Chain`] joins nodes in a row.

mod chain;
mod collect;
mod conveyor;
mod emulator;
mod engine;
mod error;
mod forward;
mod link;
mod namespace;
mod network;
mod report;
mod run;
mod supervisor;

pub use chain::{Chain, ChainReport, Program};
pub use collect::{Bin, Course};
pub use conveyor::Second;
pub use emulator::{DirectionStats, Emulator, Relay, RelaySpec, RelayStats};
pub use error::Error;
pub use link::ReplayLink;
pub use namespace::NetworkNamespace;
pub use report::{DirectionReport, LATENESS_BOUND, LinkReport};
pub use run::{ReplayReport, ReplaySpec, run};
pub use supervisor::supervise;
