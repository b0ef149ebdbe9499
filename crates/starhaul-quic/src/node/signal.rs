//! Signals of paths, from the detectors at both ends to the controllers concerned (LeoCC §4.1.1: one prober serves all
//! flows of a host).

use std::time::Instant;

use starhaul_cc::PathSignal;
use starhaul_paths::PathId;

use super::Node;
use crate::{SessionHandle, SignalTarget};

impl Node {
    /// Takes a signal of this end: of each path concerned that has a connection the controller gets it, and so does the
    /// peer's, through the session's acknowledgements. Several detectors may signal one reconfiguration, which counts
    /// once. Returns the number of paths concerned; none if the target is unknown.
    pub fn signal(&mut self, now: Instant, target: SignalTarget, signal: PathSignal) -> usize {
        self.advance(now);
        let paths = self.targets(target);
        for &(session, path) in &paths {
            self.signal_path(now, session, path, signal);
        }
        paths.len()
    }

    /// When something other than probes and acknowledgements was last carried; `None` while all these paths are down.
    pub fn used_at(&self, target: SignalTarget) -> Option<Instant> {
        let used = |(session, path)| self.sessions.get(&session)?.session.path_used_at(path);
        self.targets(target).into_iter().filter_map(used).max()
    }

    /// Passes on a signal of either end.
    pub(super) fn signal_path(
        &mut self,
        now: Instant,
        session: SessionHandle,
        path: PathId,
        signal: PathSignal,
    ) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let conn = state.paths.get(&path).and_then(|known| known.conn);
        let Some(conn) = conn.and_then(|conn| self.conns.get_mut(conn)) else {
            return;
        };
        let is_news = conn.control.lock().on_signal(now, signal);
        if !is_news {
            return;
        }
        state.session.tell_signal(now, path, signal);
        match signal {
            PathSignal::Reconfiguration(_) => self.touch(session),
            PathSignal::TrainRate(_) => {
                // The wait was for the pace of the window before.
                conn.paced_until = None;
                self.touch(session);
            }
            PathSignal::SegmentRtt { .. } => {}
        }
    }

    fn targets(&self, target: SignalTarget) -> Vec<(SessionHandle, PathId)> {
        let sessions = self.sessions.iter();
        let paths = sessions.flat_map(|(&session, state)| {
            let paths = state.paths.iter();
            paths.map(move |(&path, known)| (session, path, known.local))
        });
        let concerned = paths.filter(|&(session, path, local)| match target {
            SignalTarget::Path(of_session, of_path) => (session, path) == (of_session, of_path),
            SignalTarget::Local(of_local) => local == of_local,
        });
        concerned
            .map(|(session, path, _)| (session, path))
            .collect()
    }
}
