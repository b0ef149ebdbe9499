//! Two gateways as processes, each in a network namespace of its own, joined by veth pairs: what happens to a transfer when
//! interfaces and addresses change under it.
//!
//! A test makes a [`network::Network`] (or is skipped there), starts a [`gateway::Pair`] in it, and lets a
//! [`transfer::Transfer`] run while it does what is to be survived.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "a harness of which each test uses a part"
)]

mod addresses;
mod gateway;
mod harness;
mod names;
mod network;
mod packet_sizes;
mod reload;
mod stalled;
mod transfer;

use std::time::{Duration, Instant};

/// What takes seconds takes longer on a busy computer; a test that waits so long for anything fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `done` says what it waited for.
fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(result) = done() {
            return result;
        }
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
