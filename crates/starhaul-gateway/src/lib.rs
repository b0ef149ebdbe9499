//! Ingress and egress for unmodified applications.

use std::path::Path;

/// What can go wrong here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Stub.
    #[error("{0}")]
    Stub(String),
}

/// A gateway's configuration, checked.
#[derive(Clone, Debug)]
pub struct Config(());

#[allow(unused_variables, missing_docs)]
impl Config {
    /// Reads and checks a TOML file; errors name the file, the key and the nearest valid key.
    pub fn load(file: &Path) -> Result<Self, Error> { todo!() }
    /// The same for text; `name` stands for the file in messages.
    pub fn parse(text: &str, name: &Path) -> Result<Self, Error> { todo!() }
    /// A commented sample.
    pub fn sample() -> &'static str { todo!() }
}

/// A running gateway; it stops when dropped.
#[derive(Debug)]
pub struct Gateway(());

#[allow(unused_variables, missing_docs, clippy::unused_async)]
impl Gateway {
    /// Binds everything and starts serving on the current tokio runtime.
    pub async fn start(config: Config) -> Result<Self, Error> { todo!() }
    /// The same object that `starhaul status --json` prints.
    pub fn status(&self) -> serde_json::Value { todo!() }
    pub async fn shutdown(self) { todo!() }
}
