//! Congestion controllers over satellite links (LeoCC, SIGCOMM 2025, fig. 3 and §6): throughput against delay for every
//! controller over every trace, in virtual time.

mod case;
mod command;
mod detector;
mod digest;
mod experiment;
mod fairness;
mod folder;
mod goals;
mod job;
mod jobs;
mod options;
mod pace;
mod paths;
mod plan;
mod real;
mod reconfigurations;
mod report;
mod results;
mod rivals;
mod run;
mod section;
mod standing;
mod summary;
mod table;
mod tables;
mod traces;

pub use case::{Kind, TraceCase};
pub use command::LeoCc;
pub use options::{Options, QueueChoice, Seeds};
pub use plan::Plan;
pub use real::RealPlan;
pub use reconfigurations::Outage;
pub use results::{DetectorRow, FairnessRow, Params, RealTime, Results, Row, Share, TimeSeries};
pub use section::Section;

/// So many of something whose plural is made by an `s`.
fn plural(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}
