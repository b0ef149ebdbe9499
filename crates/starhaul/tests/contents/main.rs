//! `starhaul serve`, `relay`, `fetch` and gateways over LEOTP from the user's side, over emulated links that lose data.
#![allow(clippy::unwrap_used, reason = "a test harness")]

mod connections;
mod files;
mod nodes;
#[path = "../program/mod.rs"]
mod program;
