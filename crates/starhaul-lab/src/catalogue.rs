//! The experiments that can be run by name, and what each stands for in the papers.

use crate::{
    Error, experiments,
    kit::{About, experiment::to_json},
};

/// All experiments, each followed by its parts, and what else `starhaul lab` does.
pub fn entries() -> Vec<About> {
    let experiments = experiments::all().into_iter();
    let flow = About {
        command: "flow".to_owned(),
        stands_for: "",
        shows: "no experiment: a saturating flow over a real path",
    };
    let echo = About {
        command: "echo".to_owned(),
        stands_for: "",
        shows: "no experiment: messages and their answers over a real path",
    };
    experiments
        .flat_map(|experiment| experiment.about())
        .chain([flow, echo])
        .collect()
}

/// The experiments as one JSON array.
///
/// # Errors
/// None in practice.
pub fn json() -> Result<String, Error> {
    to_json(&entries())
}

/// The experiments as a table.
pub fn table() -> String {
    let line = |entry: About| {
        let About {
            command,
            stands_for,
            shows,
        } = entry;
        format!("{command:<28}{stands_for:<22}{shows}\n")
    };
    entries().into_iter().map(line).collect()
}
