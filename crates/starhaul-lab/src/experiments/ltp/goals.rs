//! What `--check` holds LTP to. Of a computer's speed, with two cores that do nothing else, the same as `starhaul ltp bench --check`, which also
//! compares the size that follows the path with fixed ones, in turns.

use starhaul_plot::Bound::{self, AtLeast, AtMost};

use crate::kit::{Figures, Target};

/// The share of its link that a contact uses from its first minute on.
pub(super) const USED: Target = Target {
    of: &["rate_mbps", "loss", "coding"],
    by: "light_s",
    figure: "used",
    bound: |_, _| Some(AtLeast(90.0)),
    together: false,
};

/// With repair segments for 5 % of loss, of 1000 blocks 999 take no round trip; of fewer, one may.
pub(super) const AT_ONCE: Target = Target {
    figure: "prompt",
    bound: |name, row| {
        let least = (row.of("blocks")? * 0.999).floor();
        let is_judged = name.ends_with(", 5, yes") && row.of("light_s")? > 0.0;
        is_judged.then_some(AtLeast(least))
    },
    ..USED
};

/// Files of all lengths that arrive without a way back, at up to 5 % of loss: 999 of 1000.
pub(super) const ARRIVED: Target = Target {
    of: &["loss"],
    by: "file_kb",
    figure: "arrived",
    bound: |name, row| (name != "10").then_some(AtLeast((row.of("files")? * 0.999).floor())),
    together: true,
};

/// What they take beside their own bytes at 5 %, in per cent.
pub(super) const OVERHEAD: Target = Target {
    figure: "overhead",
    bound: |name, _| (name == "5").then_some(AtMost(15.0)),
    together: false,
    ..ARRIVED
};

/// Segments that were sent and did not arrive: none, of any size.
pub(super) const LOST: Target = Target {
    of: &["mode", "what"],
    by: "segment_bytes",
    figure: "lost",
    bound: |name, _| name.contains("LTP").then_some(AtMost(0.0)),
    together: false,
};

/// Gbit/s with the system calls that are used by default.
pub(super) const RATE: Target = Target {
    figure: "gbps",
    bound: |name, row| match row.of("segment_bytes")? {
        1360.0 => by_default(name, AtLeast(5.0)),
        64_000.0 => by_default(name, AtLeast(7.0)),
        _ => None,
    },
    ..LOST
};

/// The share of raw UDP by the same calls.
pub(super) const SHARE: Target = Target {
    figure: "of_raw",
    bound: |name, row| packet(row, name.ends_with(", LTP").then_some(AtLeast(0.7))),
    ..LOST
};

/// Processor time of a packet's segment in microseconds, at the end that sends.
pub(super) const SEND_TIME: Target = Target {
    figure: "send_us",
    bound: |name, row| packet(row, by_default(name, AtMost(1.5))),
    ..LOST
};

/// The same at the end that receives.
pub(super) const RECEIVE_TIME: Target = Target {
    figure: "receive_us",
    ..SEND_TIME
};

/// A bound for LTP with the system calls that are used by default.
fn by_default(name: &str, bound: Bound) -> Option<Bound> {
    (name == "gso, LTP").then_some(bound)
}

/// A bound for segments that fill a packet of Ethernet.
fn packet(row: Figures<'_>, bound: Option<Bound>) -> Option<Bound> {
    bound.filter(|_| row.of("segment_bytes") == Some(1360.0))
}
