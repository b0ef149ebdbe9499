//! What a program serves.

use std::io;

use crate::Answer;

/// What is served.
pub trait Site: Send + Sync + 'static {
    /// The answer to `GET` of this path, if there is anything.
    fn answer(&self, path: &str) -> Option<Answer>;

    /// Where there is something, for those who asked elsewhere.
    fn places(&self) -> &'static str;

    /// Hears that nobody can connect for now.
    fn note_refused(&self, error: &io::Error) {
        let _ = error;
    }
}
