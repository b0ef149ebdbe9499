//! Whether a bundle that is known already is only sent again by the neighbour that gave it, or has been elsewhere and comes back.
//!
//! The first is acknowledged, and there is nothing to do. The second may be the only copy that is left, since those after this
//! node have it no more.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher as _, RandomState},
};

use hardy_bpa::bundle::Bundle;
use hardy_bpv7::bundle::Id;

/// Greatest number of bundles that are remembered: some 50 bytes each.
const MOST: usize = 1 << 20;

/// What a bundle that the same neighbour sends again has in common with the first: who gave it, who had it before, and after how
/// many hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trace(u64);

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
        let hops = bundle.bundle.hop_count.as_ref().map(|hops| hops.count);
        let peer = &bundle.metadata.read_only.ingress_peer_node;
        let came = (peer, &bundle.bundle.previous_node, hops);
        Trace(self.hasher.hash_one(came))
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
