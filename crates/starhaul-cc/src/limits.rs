//! Bounds that every controller keeps for any input, and the windows of RFC 9002 §7.2.

use std::time::Duration;

use starhaul_units::Bandwidth;

/// The greatest window of any controller: 1 TiB, some minutes at 10 Gbit/s.
pub const MAX_CWND_BYTES: u64 = 1 << 40;
/// The lowest pacing rate of any controller, so that a path assumed dead is still probed.
pub const MIN_PACING_RATE: Bandwidth = Bandwidth::from_kbit(8);
/// The greatest pacing rate of any controller.
pub const MAX_PACING_RATE: Bandwidth = Bandwidth::from_mbit(1_000_000);

/// Upper bound of a packet's size: the largest UDP datagram.
const MAX_PACKET_BYTES: u64 = 65_535;
/// Lower bound of an MTU (IPv4 guarantees 68 bytes).
const MIN_MTU_BYTES: u64 = 68;

/// The unit of windows, from a path's largest packet.
pub(crate) fn max_datagram_bytes(mtu_bytes: u16) -> u64 {
    u64::from(mtu_bytes).max(MIN_MTU_BYTES)
}

/// Clamps a reported packet size.
pub(crate) fn packet_bytes(bytes: u64) -> u64 {
    bytes.min(MAX_PACKET_BYTES)
}

/// RFC 9002 §7.2: ten packets, but about 14 kB when packets are large.
pub(crate) fn initial_window(max_datagram_bytes: u64) -> u64 {
    (10 * max_datagram_bytes).min(14_720.max(2 * max_datagram_bytes))
}

/// The rate of a window that [`Controller::widen_start`](crate::Controller::widen_start) gave: as slow start's, two windows in a round trip.
pub(crate) fn widened_rate(window_bytes: u64, rtt: Duration) -> Bandwidth {
    clamp_rate(Bandwidth::from_bytes_over(window_bytes, rtt).scaled(2.0))
}

pub(crate) fn clamp_rate(rate: Bandwidth) -> Bandwidth {
    rate.clamp(MIN_PACING_RATE, MAX_PACING_RATE)
}

/// A byte count as a real number; exact below 2^53, which is far above [`MAX_CWND_BYTES`].
#[expect(
    clippy::cast_precision_loss,
    reason = "counts stay far below 53 bits, and above it a rounding is harmless"
)]
pub(crate) fn real(bytes: u64) -> f64 {
    bytes as f64
}

/// A real number of bytes as a window between `min_bytes` and [`MAX_CWND_BYTES`].
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float-to-int casts saturate, undefined becomes 0, and the clamp follows"
)]
pub(crate) fn window_bytes(bytes: f64, min_bytes: u64) -> u64 {
    (bytes as u64).clamp(min_bytes, MAX_CWND_BYTES)
}
