//! The rules of the house as checks: which crate may use which, and what a protocol core may not touch.
//!
//! A core is a state machine: time, randomness and input are handed to it, so that the same code runs under real sockets, in
//! virtual time and in a fuzzer.

pub mod dependencies;
pub mod source;

/// The crates that are protocol cores.
pub const CORES: [&str; 9] = [
    "starhaul-units",
    "starhaul-cc",
    "starhaul-fec",
    "starhaul-link",
    "starhaul-paths",
    "starhaul-sim",
    "starhaul-record",
    "starhaul-session",
    "starhaul-quic",
];

/// Every crate by floor, lowest first; a crate uses only floors below its own.
pub const FLOORS: [&[&str]; 9] = [
    &["starhaul-units"],
    &["starhaul-cc", "starhaul-fec", "starhaul-link"],
    &["starhaul-paths", "starhaul-record", "starhaul-sim"],
    &["starhaul-session", "starhaul-net"],
    &["starhaul-quic"],
    &["starhaul-endpoint"],
    &["starhaul-gateway"],
    // The demo runs gateways.
    &["starhaul-lab"],
    &["starhaul"],
];

/// The only crate that may hold `unsafe` code.
pub const UNSAFE_ALLOWED: &str = "starhaul-net";
