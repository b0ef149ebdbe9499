//! The state that all tasks of a gateway share.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Instant};

use starhaul_config::nearest;
use starhaul_endpoint::{Chain, PublicKey};

use crate::{
    bundles::Bundles, parts::Seen, path_change::PathChange, peer::PeerState, status::Rates,
};

/// The state that all tasks share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) public_key: PublicKey,
    pub(crate) listen: Vec<SocketAddr>,
    /// Where metrics and the live page are served.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) started: Instant,
    pub(crate) seen: Arc<Seen>,
    pub(crate) chain: Option<Chain>,
    pub(crate) bundles: Option<Bundles>,
    pub(crate) rates: Rates,
}

impl Shared {
    /// Takes an order for a path of one peer.
    pub(crate) fn order_path(&self, change: &PathChange) -> Result<(), String> {
        let peers = self.seen.peers();
        let named =
            |peer: &&Arc<PeerState>| change.peer.as_ref().is_none_or(|name| peer.name == *name);
        let asked: Vec<_> = peers.iter().filter(named).collect();
        if let (Some(peer), true) = (&change.peer, asked.is_empty()) {
            return Err(format!("no peer is called {peer:?}"));
        }
        let mut known = BTreeSet::new();
        let mut found = Vec::new();
        for peer in asked {
            let names = peer.path_names_known();
            if names.contains(&change.path) {
                found.push(peer);
            }
            known.extend(names);
        }
        match found[..] {
            [peer] => {
                peer.orders.order(change)?;
                peer.enforce_limits();
                let PathChange {
                    path,
                    down,
                    cost,
                    limit,
                    monthly,
                    used,
                    active,
                    keep,
                    ..
                } = change;
                tracing::info!(
                    peer = peer.name,
                    path,
                    down,
                    cost,
                    limit,
                    monthly,
                    used,
                    active,
                    keep,
                    "a path was changed by order"
                );
                Ok(())
            }
            [] => {
                let known: Vec<_> = known.iter().map(String::as_str).collect();
                let near = nearest(&change.path, &known);
                Err(format!("no path is called {:?}; {near}", change.path))
            }
            _ => {
                let names: Vec<_> = found.iter().map(|peer| peer.name.as_str()).collect();
                Err(format!(
                    "{} have a path {:?}: name one with --peer",
                    names.join(" and "),
                    change.path
                ))
            }
        }
    }
}
