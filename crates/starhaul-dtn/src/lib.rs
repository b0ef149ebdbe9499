//! A bundle node (RFC 9171): stores bundles, and forwards them when contacts open, over LTP and TCPCLv4.
//!
//! The bundle protocol, its security, TCPCLv4 and the stores are libraries (`hardy`). What stands here is what they lack: LTP
//! as a convergence layer, contact plans and contact-graph routing, limits that push back, and applications that get each
//! bundle once.

mod app;
pub mod bench;
mod bundle_files;
pub mod bundle_log;
mod changes;
mod checksum;
mod config;
pub mod control;
mod egress;
mod error;
mod explain;
#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "numbers of a test are small"
)]
mod faulty;
pub mod files;
mod filters;
mod fragments;
mod gate;
mod halves;
mod journal;
mod layers;
mod ltp;
mod medium;
pub mod metrics;
mod names;
mod node;
mod payload;
pub mod plan;
mod priority;
mod reports;
mod routes;
mod schedule;
mod security;
mod silence;
mod steady;
mod stock;
mod sums;
mod tcp;
mod trail;
mod unread;

pub use config::{Config, DatabaseUrl, LtpConfig, LtpPeer, OneWay, Storage, TcpConfig, TcpPeer};
pub use error::Error;
pub use ltp::blocks;
pub use node::{ECHO, Handle, Node};
pub use priority::Class;
pub use tcp::splice;
