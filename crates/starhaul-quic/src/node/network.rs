//! Changes of the network under a socket: of its interface, its address or its route.

use std::time::Instant;

use starhaul_paths::PathId;

use super::{Backoff, ConnectionKey, Node};
use crate::{LocalId, SessionHandle, connection::Stage};

impl Node {
    /// Packets of this socket have another source address now, or take another route. Connections send at once, so that the
    /// peer learns the new address (RFC 9000 §9); handshakes, of which nothing may have arrived, and the attempts of paths that
    /// are down begin anew.
    ///
    /// With `is_elsewhere`, packets leave from another address: through another network, of which nothing is known (RFC 9000 §9.4).
    pub fn on_local_change(&mut self, now: Instant, local: LocalId, is_elsewhere: bool) {
        self.advance(now);
        for (session, path, conn) in self.paths_over(local) {
            match conn {
                Some(conn) => self.move_conn(now, (session, path), conn, is_elsewhere),
                None => self.retry(now, session, path),
            }
        }
        self.run_deferred(now);
    }

    /// The network improved: paths of this socket that are down are tried again now.
    pub fn retry_paths(&mut self, now: Instant, local: LocalId) {
        self.advance(now);
        for (session, path, conn) in self.paths_over(local) {
            if conn.is_none() {
                self.retry(now, session, path);
            }
        }
        self.run_deferred(now);
    }

    /// Whether a path has a connection, joined or not.
    #[cfg(test)]
    pub(crate) fn is_trying(&self, session: SessionHandle, path: PathId) -> bool {
        let state = self.sessions.get(&session);
        state.is_some_and(|state| {
            state
                .paths
                .get(&path)
                .is_some_and(|path| path.conn.is_some())
        })
    }

    fn paths_over(&self, local: LocalId) -> Vec<(SessionHandle, PathId, Option<ConnectionKey>)> {
        let sessions = self.sessions.iter();
        let paths = sessions.flat_map(|(session, state)| {
            let paths = state.paths.iter();
            paths.map(|(path, known)| (*session, *path, known))
        });
        let of_it = paths.filter(|(.., known)| known.local == local);
        of_it
            .map(|(session, path, known)| (session, path, known.conn))
            .collect()
    }

    fn retry(&mut self, now: Instant, session: SessionHandle, path: PathId) {
        let Some(known) = self.path_mut(session, path) else {
            return;
        };
        // Other paths are up or wait for the peer.
        if known.backoff.at().is_some() {
            known.backoff = Backoff::default();
            self.start_path(now, session, path);
            self.touch(session);
        }
    }

    fn move_conn(
        &mut self,
        now: Instant,
        (session, path): (SessionHandle, PathId),
        key: ConnectionKey,
        is_elsewhere: bool,
    ) {
        let Some(mut conn) = self.conns.take(key) else {
            return;
        };
        if conn.stage != Stage::Handshake {
            if is_elsewhere {
                conn.control.lock().on_move(now);
            }
            conn.quic.handle_network_change(None, now);
            conn.dirty = true;
            return self.put_back(conn);
        }
        self.conns.put(conn);
        self.begin_anew(now, session, path, key);
    }
}
