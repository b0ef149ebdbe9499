//! Two gateways as processes, each in a network namespace of its own, joined by veth pairs: a transfer while interfaces
//! and addresses change.
//!
//! A test creates a [`network::Network`] (or is skipped there), starts a [`gateway::Pair`] in it, and runs a
//! [`transfer::Transfer`] while it changes the network.
#![allow(dead_code, reason = "a harness of which each test uses a part")]

mod addresses;
mod alerts;
mod browser;
mod doctor;
mod gateway;
mod harness;
mod names;
mod network;
mod packet_sizes;
mod page;
mod path_orders;
mod reload;
mod stalled;
mod tproxy;
mod transfer;
mod tunnel;

use std::time::{Duration, Instant};

/// Steps take longer on a busy computer; a wait beyond this fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `done` returns a value.
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
