//! The site of a program that has metrics and no page.

use bytes::Bytes;

use crate::{Answer, Fresh, Site};

/// Serves `/metrics` alone.
#[derive(Debug)]
pub struct Scrapes(Fresh<Option<Bytes>>);

impl Scrapes {
    /// Serves what `text` gives; with `None` the client is told to come again.
    pub fn new(text: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Fresh::new(move || text().map(Bytes::from)))
    }
}

impl Site for Scrapes {
    fn answer(&self, path: &str) -> Option<Answer> {
        let answer = |text: &Option<Bytes>| match text {
            Some(text) => Answer::metrics(text.clone()),
            None => Answer::not_now("the program is busy"),
        };
        (path == "/metrics").then(|| answer(&self.0.get()))
    }

    fn places(&self) -> &'static str {
        "there is /metrics alone"
    }
}
