//! Two and more gateways in one process, with real applications on loopback at both ends.
#![allow(clippy::unwrap_used, reason = "a test harness")]

mod control;
mod datagrams;
mod dish;
mod egress;
mod gateways;
mod leotp;
mod limits;
mod metrics;
mod names;
mod paths;
mod reload;
mod scrapes;
mod sessions;
mod socks;
mod status;
mod tcp;
