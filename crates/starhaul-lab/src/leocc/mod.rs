//! Congestion controllers over satellite links (LeoCC, SIGCOMM 2025, fig. 3 and §6): throughput against delay for every
//! controller over every trace, in virtual time.

mod options;
mod plan;
mod reconfigurations;
mod results;
mod run;
mod systems;
mod table;
mod traces;

pub use options::{Options, QueueChoice};
pub use plan::{Plan, Progress};
pub use results::{Params, Results, Row};
pub use systems::{Signal, System};
pub use traces::{Direction, TraceCase};
