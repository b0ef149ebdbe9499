//! Where recorded traces are, and which way their data go.

use std::path::PathBuf;

use starhaul_flow::ProbeSide;

/// Which way the data of a trace goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Recorded from the terminal to the network.
    Up,
    /// Recorded from the network to the terminal.
    Down,
}

impl Direction {
    /// `up` or `down`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }

    /// Probes come from the terminal.
    pub(crate) fn probe_side(self) -> ProbeSide {
        match self {
            Self::Up => ProbeSide::Sender,
            Self::Down => ProbeSide::Receiver,
        }
    }
}

/// Where the recorded traces lie: `STARHAUL_TRACES`, or beside the project.
pub(crate) fn recorded_folder() -> PathBuf {
    std::env::var_os("STARHAUL_TRACES")
        .map_or_else(|| PathBuf::from("../shared/traces"), PathBuf::from)
}
