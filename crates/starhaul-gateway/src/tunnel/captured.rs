//! Packets of sessions that a route of ours leads into the tunnel which needs them: then there is no session, and nothing else says why.

use std::{net::SocketAddr, sync::Arc};

use super::packet::{Headers, UDP};
use crate::peer::PeerState;

/// The ports at which this gateway accepts sessions.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionPorts(Arc<[u16]>);

impl SessionPorts {
    pub(crate) fn at(addresses: &[SocketAddr]) -> Self {
        Self(addresses.iter().map(SocketAddr::port).collect())
    }

    /// Whether a packet out of the kernel is one of a session with this peer: to the address of a path, or an answer of ours.
    pub(super) fn sends(&self, headers: &Headers, peer: &PeerState) -> bool {
        let Some((from, to)) = headers.ports.filter(|_| headers.protocol == UDP) else {
            return false;
        };
        let to = SocketAddr::new(headers.destination, to);
        let is_remote = || {
            let names = peer.path_names.lock().clone();
            names.is_some_and(|names| names.now().contains(&Some(to)))
        };
        self.0.contains(&from) || is_remote()
    }
}
