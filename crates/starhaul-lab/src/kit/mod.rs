//! What every experiment needs: jobs on all cores, and statistics of their rows.

pub(crate) mod parallel;
pub(crate) mod statistics;

pub use parallel::Progress;
