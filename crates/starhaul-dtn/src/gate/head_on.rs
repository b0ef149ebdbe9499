//! Nodes that give bundles while bundles here are for them. The other node may be as full: each would wait for room that only the other one
//! makes. So what comes waits a while for acknowledgements, and then a few bundles are taken beyond the limits of the store.
//!
//! LTP takes reports whatever waits for room. The library for TCPCLv4 reads nothing behind a bundle that waits, acknowledgements neither.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use crate::plan::NodeId;

/// How long a bundle waits for room of such a node until it is taken beyond the limits.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// Bundles of all such nodes that wait at a time over a layer that refuses others: as many as may be taken, and few of those that it has
/// stored at a time.
const MOST_WAITING: usize = 8;
/// How long a refusal counts. What was refused is tried again each minute at least, if it is still here and this is still its way.
const REFUSAL_LASTS: Duration = Duration::from_secs(180);

/// For which nodes bundles wait here or are on their way.
#[derive(Debug)]
pub(super) struct HeadOn {
    nodes: Mutex<BTreeMap<NodeId, Outgoing>>,
    turns: Semaphore,
}

/// What is for a node.
#[derive(Clone, Copy, Debug, Default)]
struct Outgoing {
    /// Bundles on their way to it.
    leaving: usize,
    /// When it refused the last one, if it did: that waits here.
    refused: Option<Instant>,
}

impl Outgoing {
    /// Whether nothing is for it any more.
    fn is_over(&self) -> bool {
        let refused = self.refused;
        let waits = refused.is_some_and(|refused| refused.elapsed() < REFUSAL_LASTS);
        self.leaving == 0 && !waits
    }
}

/// A bundle on its way to a node.
pub(super) struct Leaving<'a> {
    head_on: &'a HeadOn,
    node: NodeId,
}

impl Default for HeadOn {
    fn default() -> Self {
        Self {
            nodes: Mutex::default(),
            turns: Semaphore::new(MOST_WAITING),
        }
    }
}

impl HeadOn {
    /// Notes a bundle on its way to a node, until that is dropped.
    pub(super) fn leave_to(&self, node: &NodeId) -> Leaving<'_> {
        self.nodes().entry(node.clone()).or_default().leaving += 1;
        Leaving {
            head_on: self,
            node: node.clone(),
        }
    }

    /// Whether bundles are for the node that gives one.
    pub(super) fn meets(&self, node: &NodeId) -> bool {
        let mut nodes = self.nodes();
        nodes.retain(|_, outgoing| !outgoing.is_over());
        nodes.contains_key(node)
    }

    /// Leave for a bundle to wait; `None` while as many do as may.
    pub(super) fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.try_acquire().ok()
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<NodeId, Outgoing>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leaving<'_> {
    /// Tells whether the node refused the bundle, or took it.
    pub(super) fn tell(&self, is_refused: bool) {
        if let Some(outgoing) = self.head_on.nodes().get_mut(&self.node) {
            outgoing.refused = is_refused.then(Instant::now);
        }
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut nodes = self.head_on.nodes();
        if let Some(outgoing) = nodes.get_mut(&self.node) {
            outgoing.leaving = outgoing.leaving.saturating_sub(1);
            if outgoing.is_over() {
                nodes.remove(&self.node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It may have expired, or left another way: nothing tells.
    #[tokio::test(start_paused = true)]
    async fn a_refusal_counts_for_some_minutes() {
        let (head_on, node) = (HeadOn::default(), "ipn:2.0".parse::<NodeId>().unwrap());
        for is_refused in [false, true] {
            let leaving = head_on.leave_to(&node);
            leaving.tell(is_refused);
            assert!(head_on.meets(&node));
            drop(leaving);
            assert_eq!(head_on.meets(&node), is_refused);
        }
        tokio::time::advance(Duration::from_secs(64)).await;
        assert!(head_on.meets(&node), "it is tried again");
        tokio::time::advance(REFUSAL_LASTS).await;
        assert!(!head_on.meets(&node));
        let leaving = head_on.leave_to(&node);
        tokio::time::advance(REFUSAL_LASTS).await;
        assert!(head_on.meets(&node));
        drop(leaving);
        assert!(!head_on.meets(&node));
    }
}
