//! Tests in real time: emulated links, recordings and flows, in one program so that they wait concurrently.
#![allow(clippy::unwrap_used, reason = "a test harness")]

mod blocks;
mod chain;
mod delay;
mod detect;
#[path = "../emulated/mod.rs"]
mod emulated;
mod flow;
mod kernel;
mod orbit;
mod record;
mod replay;
mod tunnel;
mod turn;
