//! The experiments that can be run by name, and what each stands for in the papers.

use std::fmt::Write as _;

use serde::Serialize;

use crate::leocc::Section;

/// An experiment or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// What to type after `starhaul lab`.
    pub command: &'static str,
    /// The figure or section that it stands for.
    pub stands_for: &'static str,
    /// What it shows.
    pub shows: &'static str,
}

/// All experiments, each followed by its parts.
pub const ENTRIES: [Entry; 12] = [
    Entry {
        command: "leocc",
        stands_for: "LeoCC (SIGCOMM 2025)",
        shows: "every congestion controller over satellite links: all parts below",
    },
    part(
        Section::Scatter,
        "LeoCC fig. 3",
        "throughput against delay, with the Pareto front",
    ),
    part(
        Section::Series,
        "LeoCC fig. 4",
        "rate, capacity, RTT and state over one trace",
    ),
    part(
        Section::Ablation,
        "LeoCC §4",
        "LeoCC without each of its parts; paper against published code",
    ),
    part(
        Section::Queues,
        "LeoCC §6.1",
        "a queue of one bandwidth-delay product",
    ),
    part(
        Section::Sensitivity,
        "LeoCC §4.1",
        "other detector thresholds; missing and false signals",
    ),
    part(
        Section::Shift,
        "LeoCC §4.3",
        "a ground link as the bottleneck",
    ),
    part(
        Section::Fairness,
        "LeoCC §6",
        "2, 4 and 8 flows of a kind; beside Cubic and BBR",
    ),
    part(
        Section::Detector,
        "LeoCC fig. 7",
        "precision and recall of the reconfiguration detector",
    ),
    Entry {
        command: "leocc --real",
        stands_for: "LeoCC fig. 3, §6.1",
        shows: "the scatter in real time, beside the kernel's controllers",
    },
    Entry {
        command: "agreement",
        stands_for: "LeoCC §5.2",
        shows: "virtual against real time, ours against the kernel's",
    },
    Entry {
        command: "flow",
        stands_for: "",
        shows: "no experiment: a saturating flow over a real path",
    },
];

const fn part(section: Section, stands_for: &'static str, shows: &'static str) -> Entry {
    Entry {
        command: section.command(),
        stands_for,
        shows,
    }
}

/// The experiments as one JSON array.
///
/// # Errors
/// None in practice.
pub fn json() -> Result<String, crate::Error> {
    serde_json::to_string(&ENTRIES).map_err(|error| crate::Error::Failed(error.to_string()))
}

/// The experiments as a table.
pub fn table() -> String {
    let mut text = String::new();
    for Entry {
        command,
        stands_for,
        shows,
    } in ENTRIES
    {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{command:<26}{stands_for:<22}{shows}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_listed_under_its_name() {
        for section in Section::ALL {
            let command = format!("leocc --only {}", section.name());
            let listed = ENTRIES.iter().any(|entry| entry.command == command);
            assert!(listed, "{command} is missing");
        }
    }
}
