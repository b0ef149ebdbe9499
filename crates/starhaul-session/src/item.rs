//! What a datagram carried, as the ledger of its path remembers it until its fate is known.

use crate::types::StreamId;

/// A block within the sender: its stream and its number counted in 64 bits.
pub(crate) type BlockKey = (StreamId, u64);

/// A fragment within its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FragmentId {
    /// Of which cut of the block; what became of those of an earlier one no longer matters.
    pub(crate) cut: u8,
    pub(crate) code: u8,
    pub(crate) index: u8,
}

/// What a datagram carried, for when its fate is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Fragment {
        block: BlockKey,
        fragment: FragmentId,
    },
    Frame {
        stream: StreamId,
        start: u64,
        end: u64,
        fin: bool,
    },
    Probe,
    Ack,
    /// Nothing: it asks the path for packets of its size, and only the transport below is interested in its fate.
    Padding,
}

impl Item {
    /// The peer acknowledges everything but acknowledgements, and an acknowledgement of padding is not waited for.
    pub(crate) const fn elicits_ack(self) -> bool {
        !matches!(self, Self::Ack | Self::Padding)
    }

    /// It belongs to the same block as `next`, or its stream frame lies right before that of `next`.
    pub(crate) fn continues_with(self, next: Self) -> bool {
        match (self, next) {
            (Self::Fragment { block, .. }, Self::Fragment { block: other, .. }) => block == other,
            (
                Self::Frame { stream, end, .. },
                Self::Frame {
                    stream: other,
                    start,
                    ..
                },
            ) => stream == other && end == start,
            _ => false,
        }
    }

    /// It carries data, so that the path is not idle.
    pub(crate) const fn is_use(self) -> bool {
        !matches!(self, Self::Ack | Self::Probe | Self::Padding)
    }
}
