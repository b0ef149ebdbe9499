//! The rules of the house as checks: allowed dependencies between crates, and forbidden parts of protocol cores.
//!
//! A core is a state machine: its caller passes in time, randomness and input, so that the same code runs under real
//! sockets, in virtual time and in a fuzzer.

pub mod circles;
pub mod dependencies;
pub mod events;
pub mod source;

/// The crates that are protocol cores.
pub const CORES: [&str; 13] = [
    "starhaul-units",
    "starhaul-cc",
    "starhaul-fec",
    "starhaul-link",
    "starhaul-leotp",
    "starhaul-ltp",
    "starhaul-orbit",
    "starhaul-paths",
    "starhaul-sim",
    "starhaul-flow",
    "starhaul-record",
    "starhaul-session",
    "starhaul-quic",
];

/// Every crate by floor, lowest first; a crate uses only floors below its own. The table in ARCHITECTURE.md shows the same: its lowest floor
/// is -1, its highest the roof.
pub const FLOORS: [&[&str]; 10] = [
    &["starhaul-files", "starhaul-log", "starhaul-units"],
    &[
        "starhaul-cc",
        "starhaul-config",
        "starhaul-fec",
        "starhaul-link",
        "starhaul-metrics",
        "starhaul-plot",
    ],
    &[
        "starhaul-leotp",
        "starhaul-ltp",
        "starhaul-orbit",
        "starhaul-paths",
        "starhaul-record",
        "starhaul-sim",
    ],
    &["starhaul-session", "starhaul-net", "starhaul-flow"],
    &[
        "starhaul-contents",
        "starhaul-dtn-client",
        "starhaul-quic",
        "starhaul-replay",
        "starhaul-transfer",
    ],
    &["starhaul-dtn", "starhaul-endpoint"],
    &["starhaul-gateway"],
    // It runs gateways.
    &["starhaul-demo"],
    // Experiments measure the demo's baseline and load too.
    &["starhaul-lab"],
    &["starhaul"],
];

/// The module of the lab whose children are its experiments.
pub const EXPERIMENTS: &str = "experiments";

/// The crates of which the logs of gateways, bundle nodes and relays tell, and their roots.
pub const LOGGED: [&str; 8] = [
    "starhaul-config/src/lib.rs",
    "starhaul-contents/src/lib.rs",
    "starhaul-dtn/src/lib.rs",
    "starhaul-gateway/src/lib.rs",
    "starhaul-endpoint/src/lib.rs",
    "starhaul-net/src/lib.rs",
    "starhaul-dtn-client/src/lib.rs",
    "starhaul/src/main.rs",
];
/// The files of the last of them that other commands alone use.
pub const OF_OTHER_COMMANDS: [&str; 4] = [
    "starhaul/src/detect.rs",
    "starhaul/src/ltp.rs",
    "starhaul/src/record.rs",
    "starhaul/src/lab/flow.rs",
];

/// The only crates that may contain `unsafe` code: those that make system calls.
pub const UNSAFE_ALLOWED: [&str; 2] = ["starhaul-net", "starhaul-replay"];
