//! The record of each packet that a link delivered.

use std::time::Duration;

/// A packet that a link delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// When it arrived, after the start of the run.
    pub at: Duration,
    /// Its size in bytes with all headers.
    pub bytes: usize,
    /// Time from its arrival at the link until its last byte was sent, without the one-way delay.
    pub waited: Duration,
    /// Time from its arrival at the link until it reached the far end.
    pub took: Duration,
}

impl Passage {
    /// When it arrived at the link.
    pub fn came(&self) -> Duration {
        self.at.saturating_sub(self.took)
    }
}
