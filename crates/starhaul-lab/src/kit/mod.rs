//! What every experiment needs: its command, jobs on all cores, repeats, statistics, and how its rows are shown and kept.

pub(crate) mod columns;
pub(crate) mod experiment;
pub(crate) mod judged;
pub(crate) mod options;
pub(crate) mod parallel;
pub(crate) mod records;
pub(crate) mod repeats;
pub(crate) mod report;
pub(crate) mod statistics;
pub(crate) mod study;
pub(crate) mod target;

pub use experiment::{About, Context, Experiment, Found, Plan};
pub use parallel::Progress;
pub use records::Records;
pub use report::Plot;
pub use study::{Part, Study};
pub use target::{Figures, Target};

/// CSS of every experiment's page.
pub(crate) const STYLE: &str = include_str!("style.css");

/// The colours of controllers and what they stand for, as [`crate::systems`] gives them.
pub(crate) const FAMILIES: [(&str, &str); 5] = [
    ("leocc", "LeoCC"),
    ("bbr", "BBR"),
    ("loss", "by loss"),
    ("delay", "by delay"),
    ("learn", "by online learning"),
];
