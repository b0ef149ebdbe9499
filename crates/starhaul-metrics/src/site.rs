//! What a program serves.

use std::io;

use crate::Answer;

/// The resources that a program serves over HTTP.
pub trait Site: Send + Sync + 'static {
    /// The answer to `GET` of this path, if there is anything.
    fn answer(&self, path: &str) -> Option<Answer>;

    /// Where there is something, for those who asked elsewhere.
    fn places(&self) -> &'static str;

    /// Called when no connection can be accepted for now, with the system's error.
    fn note_refused(&self, error: &io::Error) {
        let _ = error;
    }
}
