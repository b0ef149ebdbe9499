//! What carries the flows of a rule to the far gateway.

use std::{fmt::Debug, sync::Arc};

use starhaul_endpoint::Chain;

use crate::{bundles::BundleWay, peer::PeerState};

/// What carries a rule's flows.
pub(crate) trait Way: Clone + Debug + Send + Sync + 'static {
    /// Whether two are the same, and not only alike.
    fn is_same(&self, other: &Self) -> bool;

    /// Its name, for people.
    fn name(&self) -> &str;

    /// How it carries, for people.
    fn describe(&self) -> String;
}

/// The ways that connections can take to the far side.
#[derive(Clone, Debug)]
pub(crate) enum ConnectionWay {
    /// Sessions with a peer.
    Peer(Arc<PeerState>),
    /// A chain of relays.
    Chain(Chain),
    /// Bundles to a far gateway.
    Bundle(BundleWay),
}

/// The ways that datagrams can take to the far side.
#[derive(Clone, Debug)]
pub(crate) enum DatagramWay {
    /// Sessions with a peer.
    Peer(Arc<PeerState>),
    /// Bundles to a far gateway.
    Bundle(BundleWay),
}

impl Way for BundleWay {
    /// There is one bundle node; the far gateway and the lifetime are of the rule.
    fn is_same(&self, other: &Self) -> bool {
        self.peer == other.peer
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        format!("by bundles to {}", self.name)
    }
}

impl Way for DatagramWay {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Peer(one), Self::Peer(other)) => one.is_same(other),
            (Self::Bundle(one), Self::Bundle(other)) => one.is_same(other),
            _ => false,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Peer(peer) => &peer.name,
            Self::Bundle(way) => way.name(),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Peer(peer) => peer.describe(),
            Self::Bundle(way) => way.describe(),
        }
    }
}

impl Way for Arc<PeerState> {
    fn is_same(&self, other: &Self) -> bool {
        Self::ptr_eq(self, other)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        format!("by peer {}", self.name)
    }
}

impl Way for ConnectionWay {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Peer(one), Self::Peer(other)) => one.is_same(other),
            // There is one chain.
            (Self::Chain(_), Self::Chain(_)) => true,
            (Self::Bundle(one), Self::Bundle(other)) => one.is_same(other),
            _ => false,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Peer(peer) => &peer.name,
            Self::Chain(_) => "",
            Self::Bundle(way) => way.name(),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Peer(peer) => peer.describe(),
            Self::Chain(_) => "over LEOTP".to_owned(),
            Self::Bundle(way) => way.describe(),
        }
    }
}
