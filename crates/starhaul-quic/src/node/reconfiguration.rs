//! Reconfigurations of satellite paths: from whoever detects them to the controllers of the paths concerned (LeoCC §4.1.1:
//! one prober serves all flows of a host).

use std::time::{Duration, Instant};

use starhaul_cc::{PathEnd, Reconfiguration};
use starhaul_paths::PathId;
use starhaul_session::PathSignal;

use super::{Node, SessionState};
use crate::{Error, LocalId, SessionHandle, controller::PathControlHandle};

impl Node {
    /// The path was reconfigured, or somebody believes so: its controller is told, if there is a connection, and so is the peer's,
    /// by way of the session's acknowledgements. The same event told again by another detector counts once.
    ///
    /// # Errors
    /// Says that the session or path is unknown.
    pub fn on_reconfiguration(
        &mut self,
        now: Instant,
        session: SessionHandle,
        path: PathId,
        event: Reconfiguration,
    ) -> Result<(), Error> {
        self.advance(now);
        self.check_known(session, path)?;
        self.tell_reconfiguration(now, session, path, event);
        Ok(())
    }

    /// The same for every path of every session that leaves by this socket; how many those are.
    pub fn on_local_reconfiguration(
        &mut self,
        now: Instant,
        local: LocalId,
        event: Reconfiguration,
    ) -> usize {
        self.advance(now);
        let paths = self.paths_by(local);
        for &(session, path) in &paths {
            self.tell_reconfiguration(now, session, path, event);
        }
        paths.len()
    }

    /// The round trip of the path's satellite segment alone, from the terminal to the PoP (LeoCC §4.3): its controller is told, and
    /// at times the peer's.
    ///
    /// # Errors
    /// Says that the session or path is unknown.
    pub fn on_segment_rtt(
        &mut self,
        now: Instant,
        session: SessionHandle,
        path: PathId,
        rtt: Duration,
    ) -> Result<(), Error> {
        self.advance(now);
        self.check_known(session, path)?;
        self.tell_segment_rtt(now, session, path, rtt);
        Ok(())
    }

    /// The same for every path of every session that leaves by this socket.
    pub fn on_local_segment_rtt(&mut self, now: Instant, local: LocalId, rtt: Duration) {
        self.advance(now);
        for (session, path) in self.paths_by(local) {
            self.tell_segment_rtt(now, session, path, rtt);
        }
    }

    /// When something other than probes and acknowledgements was last carried by this path; `None` while it is down.
    pub fn path_used_at(&self, session: SessionHandle, path: PathId) -> Option<Instant> {
        self.sessions.get(&session)?.session.path_used_at(path)
    }

    /// The same for the paths of every session that leave by this socket.
    pub fn local_used_at(&self, local: LocalId) -> Option<Instant> {
        let used = self.paths_by(local).into_iter();
        used.filter_map(|(session, path)| self.path_used_at(session, path))
            .max()
    }

    fn tell_reconfiguration(
        &mut self,
        now: Instant,
        session: SessionHandle,
        path: PathId,
        event: Reconfiguration,
    ) {
        let Some(control) = self.control_of(session, path) else {
            return;
        };
        let is_news = control.lock().path_mut().on_reconfiguration(now, event);
        if is_news && let Some(state) = self.sessions.get_mut(&session) {
            // The peer sends over the path as well.
            state.session.tell_reconfiguration(now, path, event);
            self.touch(session);
        }
    }

    fn tell_segment_rtt(
        &mut self,
        now: Instant,
        session: SessionHandle,
        path: PathId,
        rtt: Duration,
    ) {
        let control = self.control_of(session, path);
        if let Some(control) = control
            && let Some(state) = self.sessions.get_mut(&session)
        {
            control
                .lock()
                .path_mut()
                .on_segment_rtt(now, PathEnd::Local, rtt);
            state.session.tell_segment_rtt(path, rtt);
        }
    }

    /// What the peer's detectors say.
    pub(super) fn on_signal(&mut self, now: Instant, session: SessionHandle, signal: PathSignal) {
        match signal {
            PathSignal::Reconfiguration { path, event } => {
                self.tell_reconfiguration(now, session, path, event);
            }
            PathSignal::SegmentRtt { path, rtt } => {
                if let Some(control) = self.control_of(session, path) {
                    control
                        .lock()
                        .path_mut()
                        .on_segment_rtt(now, PathEnd::Remote, rtt);
                }
            }
        }
    }

    fn control_of(&self, session: SessionHandle, path: PathId) -> Option<PathControlHandle> {
        let known = self.sessions.get(&session)?.paths.get(&path)?;
        let conn = self.conns.get(known.conn?)?;
        Some(conn.control.clone())
    }

    fn paths_by(&self, local: LocalId) -> Vec<(SessionHandle, PathId)> {
        let of_session = |(&session, state): (&SessionHandle, &SessionState)| {
            let paths = state
                .paths
                .iter()
                .filter(move |(_, path)| path.local == local);
            paths
                .map(move |(&path, _)| (session, path))
                .collect::<Vec<_>>()
        };
        self.sessions.iter().flat_map(of_session).collect()
    }

    fn check_known(&self, session: SessionHandle, path: PathId) -> Result<(), Error> {
        let state = self.sessions.get(&session);
        let state = state.ok_or(Error::UnknownSession(session))?;
        state.paths.get(&path).ok_or(Error::UnknownPath(path))?;
        Ok(())
    }
}
