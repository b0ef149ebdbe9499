//! What a link says of each packet that it delivered.

use std::time::Duration;

/// A packet that a link delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// When it reached the far end, after the start of the run.
    pub at: Duration,
    /// Its size with all headers.
    pub bytes: usize,
    /// From when it came to the link until its last byte was sent; from then on it travelled.
    pub waited: Duration,
    /// From when it came to the link until it reached the far end.
    pub took: Duration,
}

impl Passage {
    /// When it came to the link.
    pub fn came(&self) -> Duration {
        self.at.saturating_sub(self.took)
    }
}
