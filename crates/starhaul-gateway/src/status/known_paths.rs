//! The paths of a status, each once: by peer, side and name.

use super::{Path, PathTotals, PeerStatus, Status};

/// A path name at a peer: its totals since the start, and the path of the newest open session that has it.
#[derive(Clone, Copy, Debug)]
pub struct KnownPath<'s> {
    /// The peer that the path leads to.
    pub peer: &'s PeerStatus,
    /// Totals over all sessions.
    pub totals: &'s PathTotals,
    /// The path in the newest open session that has one of this name.
    pub now: Option<&'s Path>,
    /// Our configuration has it, and it is to be in service.
    pub is_configured: bool,
}

impl Status {
    /// All paths that there were since the start, and those that are configured.
    pub fn known_paths(&self) -> impl Iterator<Item = KnownPath<'_>> {
        self.peers.iter().flat_map(|peer| {
            let paths = peer.paths.iter();
            paths.map(|totals| self.known_path(peer, totals))
        })
    }

    fn known_path<'s>(&'s self, peer: &'s PeerStatus, totals: &'s PathTotals) -> KnownPath<'s> {
        let sessions = self.sessions.iter().rev();
        let mut sessions = sessions
            .filter(|session| session.peer == peer.name && session.opened_by == totals.opened_by);
        let now = sessions.find_map(|session| {
            let mut paths = session.paths.iter().rev();
            paths.find(|path| path.name == totals.name)
        });
        KnownPath {
            peer,
            totals,
            now,
            is_configured: totals.opened_by == "us" && peer.configured_paths.contains(&totals.name),
        }
    }
}

impl<'s> KnownPath<'s> {
    /// Why our configured path is out of service on purpose, if it is.
    pub fn out_of_service(&self) -> Option<&'s str> {
        let mut service = self.peer.service.iter();
        let ours = service.find(|service| service.path == self.totals.name)?;
        ours.out
            .as_deref()
            .filter(|_| self.totals.opened_by == "us")
    }

    /// Its state. A configured path without a session is down; one of the peer's then has none.
    pub fn state(&self) -> Option<&'s str> {
        let state = self.now.map(|path| path.state.as_str());
        state.or(self.is_configured.then_some("down"))
    }
}
