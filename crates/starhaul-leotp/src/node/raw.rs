//! Packets that no node of ours sends. For fuzzers.

use std::time::Instant;

use super::Node;
use crate::{config::NeighbourId, hop::raw::RawPacket};

impl Node {
    /// Appends an authentic packet for a neighbour, whatever it says. Returns whether the neighbour is known in its present life.
    #[doc(hidden)]
    pub fn write_raw(
        &mut self,
        now: Instant,
        to: NeighbourId,
        packet: &RawPacket<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        let hop = self.hops.get_mut(&to);
        hop.is_some_and(|hop| hop.write_raw(now, packet, out))
    }
}
