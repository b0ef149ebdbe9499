//! How far the peer's blocks have come, for people who wait.

use bytes::Bytes;

use super::Peer;
use crate::{Incoming, segment::DataKind};

/// What is counted for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrivals {
    /// Bytes that are here of red parts that are not complete.
    bytes: u64,
    resent: u64,
    segment_bytes: usize,
}

impl Arrivals {
    /// Segments of red data came, with so many bytes in each; so many of them were sent again.
    pub(super) fn came(&mut self, kind: DataKind, bytes: usize, again: usize) {
        self.resent += again as u64;
        // What ends a red part, or asks for a report, may be shorter than others.
        if kind == DataKind::Red || self.segment_bytes == 0 {
            self.segment_bytes = bytes;
        }
    }

    /// So many bytes of red parts are here that were not.
    pub(super) fn grow(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// A red part of which so many bytes were here is complete, or given up.
    pub(super) fn leave(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Peer {
    /// What of its blocks is here, of those that are not complete.
    pub(crate) fn incoming(&self) -> Incoming {
        // Older ones may wait for acknowledgements of their reports.
        let mut latest = self.receives.iter().rev();
        let latest = latest.find(|(_, s)| s.cancel.is_none() && s.has_part_of_red());
        let Arrivals {
            bytes,
            resent,
            segment_bytes,
        } = self.arrivals;
        Incoming {
            from: self.id,
            block: latest.map(|(number, _)| self.received_id(*number)),
            bytes,
            resent,
            segment_bytes,
        }
    }

    /// The first bytes of a red part that is not complete, at most so many, as far as none is missing.
    pub(crate) fn head(&self, number: u64, most: usize) -> Bytes {
        let session = self.receives.get(&number);
        session.map_or_else(Bytes::new, |session| session.head(most as u64))
    }
}
