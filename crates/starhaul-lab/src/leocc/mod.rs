//! Congestion controllers over satellite links (LeoCC, SIGCOMM 2025, fig. 3 and §6): throughput against delay for every
//! controller over every trace, in virtual time.

mod csv;
mod detector;
mod fairness;
mod options;
mod plan;
mod real;
mod reconfigurations;
mod report;
mod results;
mod run;
mod sections;
mod summary;
mod systems;
mod table;
mod traces;

pub use options::{Options, QueueChoice};
pub use plan::{Plan, Progress};
pub use real::{RealPlan, RealTime};
pub use reconfigurations::Outage;
pub use results::{Course, DetectorRow, FairnessRow, Params, Results, Row, Share};
pub use sections::Section;
pub(crate) use summary::medians;
pub use systems::System;
pub(crate) use traces::recorded_folder;
pub use traces::{Direction, TraceCase};
