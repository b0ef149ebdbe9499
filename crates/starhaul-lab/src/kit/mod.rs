//! What every experiment needs: jobs on all cores, and statistics of their rows.

pub(crate) mod columns;
pub(crate) mod parallel;
pub(crate) mod statistics;

pub use parallel::Progress;

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
