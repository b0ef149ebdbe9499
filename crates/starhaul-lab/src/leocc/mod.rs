//! Congestion controllers over satellite links (LeoCC, SIGCOMM 2025, fig. 3 and §6): throughput against delay for every
//! controller over every trace, in virtual time.

mod csv;
mod detector;
mod digest;
mod fairness;
mod folder;
mod options;
mod pace;
mod parts;
mod plan;
mod real;
mod reconfigurations;
mod report;
mod results;
mod rivals;
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
pub(crate) use systems::unknown;
pub(crate) use traces::recorded_folder;
pub use traces::{Direction, Kind, TraceCase};

/// So many of something whose plural is made by an `s`.
fn plural(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}
