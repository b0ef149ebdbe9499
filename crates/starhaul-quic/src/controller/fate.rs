//! What becomes of datagrams, as the session hears of it: arrivals as ranges, as acknowledgements are.

use std::time::Instant;

/// What became of datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DatagramFate {
    /// The peer acknowledged those with sequence numbers from `first` to `last`, which may have wrapped, at once.
    Acked { at: Instant, first: u32, last: u32 },
    /// One was declared lost.
    Lost { at: Instant, sequence: u32 },
}

/// Adds that a datagram was acknowledged.
pub(super) fn push_acked(fates: &mut Vec<DatagramFate>, now: Instant, sequence: u32) {
    if let Some(DatagramFate::Acked { at, last, .. }) = fates.last_mut()
        && *at == now
        && last.wrapping_add(1) == sequence
    {
        *last = sequence;
        return;
    }
    fates.push(DatagramFate::Acked {
        at: now,
        first: sequence,
        last: sequence,
    });
}
