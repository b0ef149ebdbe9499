//! Whether a bundle that is known already is only sent again by the neighbour that gave it, or has been elsewhere and comes back.
//!
//! The first is acknowledged, and there is nothing to do, and so is a second copy that came here another way, as one that a neighbour
//! sends over a third node since it has heard no acknowledgement. What has been elsewhere may be the only copy that is left, since those
//! after this node have it no more: it has made two hops more at least, one from here and one back. So may have a copy that came over
//! several other nodes, which only its [trail](crate::trail) tells from the other.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher as _, RandomState},
};

use hardy_bpa::bundle::Bundle;
use hardy_bpv7::bundle::Id;

/// Greatest number of bundles that are remembered: some 60 bytes each.
const MOST: usize = 1 << 20;

/// Hops after which a bundle that left is back at the earliest.
const ROUND: u16 = 2;

/// How a bundle reached this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    /// Who gave it, and who had it before: the same for one that the same neighbour sends again.
    from: u64,
    /// After how many hops, if it counts them.
    hops: Option<u16>,
}

impl Trace {
    /// Whether a bundle that came as this one has been here before, as `first`, and has left since.
    pub(super) fn is_back(self, first: Self) -> bool {
        match (first.hops, self.hops) {
            (Some(first), Some(hops)) => hops >= first.saturating_add(ROUND),
            // Without a count a second copy cannot be told from one that went round.
            _ => self != first,
        }
    }
}

/// Bundles that left this node and are gone from it.
#[derive(Debug, Default)]
pub(super) struct Passed {
    hasher: RandomState,
    /// By hashes of their names, which take a fraction of the memory.
    traces: HashMap<u64, Trace>,
    /// The same hashes, those of the first first.
    order: VecDeque<u64>,
}

impl Passed {
    /// What tells how a bundle came.
    pub(super) fn trace(&self, bundle: &Bundle) -> Trace {
        let hops = bundle.bundle.hop_count.as_ref();
        let peer = &bundle.metadata.read_only.ingress_peer_node;
        Trace {
            from: self.hasher.hash_one((peer, &bundle.bundle.previous_node)),
            hops: hops.map(|hops| u16::try_from(hops.count).unwrap_or(u16::MAX)),
        }
    }

    /// Notes a bundle that left; at most `most` are remembered.
    pub(super) fn note(&mut self, id: &Id, trace: Trace, most: usize) {
        let name = self.hasher.hash_one(id);
        if self.traces.insert(name, trace).is_none() {
            self.order.push_back(name);
        }
        while self.order.len() > most.min(MOST)
            && let Some(first) = self.order.pop_front()
        {
            self.traces.remove(&first);
        }
    }

    /// How a bundle that left had come.
    pub(super) fn of(&self, id: &Id) -> Option<Trace> {
        self.traces.get(&self.hasher.hash_one(id)).copied()
    }
}
