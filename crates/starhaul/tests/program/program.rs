//! Runs the program as a user does, and captures its output.

use std::{
    net::{SocketAddr, UdpSocket},
    path::Path,
    process::{Child, Command, Output},
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};

/// Steps take longer on a busy computer; a wait beyond this fails the test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

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

/// An address that nothing has bound. It is not one of those that the kernel gives to others meanwhile, and none comes twice.
pub(crate) fn free() -> SocketAddr {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    // Another run of the tests begins elsewhere.
    let begin = u16::try_from(std::process::id() % 12_000).unwrap();
    loop {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        let port = 18_000 + begin.wrapping_add(tried) % 12_000;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}
