//! Runs the program as a user does, and captures its output.

use std::{
    path::Path,
    process::{Child, Command, Output},
    time::{Duration, Instant},
};

pub(crate) use starhaul_needs::free;

/// Steps take longer on a busy computer; a wait beyond this fails the test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `done` returns a value.
pub(crate) fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(result) = done() {
            return result;
        }
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn starhaul(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_starhaul"));
    command.args(arguments).env_remove("STARHAUL_LOG");
    command
}

/// A program that ends with this.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    starhaul(arguments).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
