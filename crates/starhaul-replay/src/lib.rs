//! Emulated links in real time. The same [`starhaul_link::Link`] as in the simulator decides when each packet leaves;
//! threads with exact timers execute its decisions and measure their lateness.
//!
//! [`Emulator`] relays UDP between sockets, without privileges. [`run`] puts a whole command behind links between TUN
//! devices, in a network namespace of its own; [`Chain`] joins nodes in a row, [`Hosts`] two of them by links beside each other.

mod chain;
mod collect;
mod conveyor;
mod emulator;
mod engine;
mod error;
mod forward;
mod hosts;
mod link;
mod namespace;
mod network;
mod program;
mod report;
mod run;
mod supervisor;

pub use chain::Chain;
pub use collect::{Bin, TimeSeries};
pub use conveyor::Second;
pub use emulator::{DirectionStats, Emulator, Relay, RelaySpec, RelayStats};
pub use error::Error;
pub use hosts::{Host, Hosts};
pub use link::ReplayLink;
pub use namespace::NetworkNamespace;
pub use program::Program;
pub use report::{DirectionReport, LATENESS_BOUND, LinkReport, LinksReport};
pub use run::{ReplayReport, ReplaySpec, run};
pub use supervisor::{interrupted, supervise};
