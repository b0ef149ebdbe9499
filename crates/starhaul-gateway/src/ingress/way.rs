//! What carries the flows of a rule to the far gateway.

use std::{fmt::Debug, sync::Arc};

use starhaul_endpoint::Chain;

use crate::peer::PeerState;

/// What carries a rule's flows.
pub(crate) trait Way: Clone + Debug + Send + Sync + 'static {
    /// Whether two are the same, and not only alike.
    fn is_same(&self, other: &Self) -> bool;

    /// Its name, for people.
    fn name(&self) -> &str;
}

/// What carries connections.
#[derive(Clone, Debug)]
pub(crate) enum ConnectionWay {
    /// Sessions with a peer.
    Peer(Arc<PeerState>),
    /// A chain of relays.
    Chain(Chain),
}

impl Way for Arc<PeerState> {
    fn is_same(&self, other: &Self) -> bool {
        Self::ptr_eq(self, other)
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl Way for ConnectionWay {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Peer(one), Self::Peer(other)) => one.is_same(other),
            // There is one chain.
            (Self::Chain(_), Self::Chain(_)) => true,
            _ => false,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Peer(peer) => &peer.name,
            Self::Chain(_) => "",
        }
    }
}
