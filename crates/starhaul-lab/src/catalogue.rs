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
    lines(&entries())
}

/// A line of each: what to type, what it stands for and what it shows, each where the longest before it leaves room.
fn lines(entries: &[About]) -> String {
    let width = |of: fn(&About) -> &str| {
        let widths = entries.iter().map(|entry| of(entry).chars().count());
        widths.max().unwrap_or(0) + 2
    };
    let (command, stands_for) = (
        width(|entry| &entry.command),
        width(|entry| entry.stands_for),
    );
    let line = |entry: &About| {
        format!(
            "{:<command$}{:<stands_for$}{}\n",
            entry.command, entry.stands_for, entry.shows
        )
    };
    entries.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest text once ran into the one behind it.
    #[test]
    fn what_an_experiment_shows_stands_apart_from_the_rest() {
        let about = |command: &str, stands_for, shows| About {
            command: command.to_owned(),
            stands_for,
            shows,
        };
        let entries = [
            about("a", "", "one"),
            about("a --only b", "fig. 1, table II", "two"),
        ];
        let told = "a                             one\na --only b  fig. 1, table II  two\n";
        assert_eq!(lines(&entries), told);
        for (entry, line) in self::entries().iter().zip(table().lines()) {
            let ends = [format!("  {}", entry.shows), entry.command.clone() + "  "];
            assert!(
                line.ends_with(&ends[0]) && line.starts_with(&ends[1]),
                "{line}"
            );
        }
    }
}
