//! Timers of connections and sessions.

use std::time::Instant;

use super::{Node, TimerKey};
use crate::{
    CloseCode, Error, NO_PATH_TIMEOUT, SessionHandle,
    connection::{Connection, Stage},
};

impl Node {
    /// When to call [`Node::handle_timeout`] next; `None` while no timer is set.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        if !self.ready.is_empty() || !self.responses.is_empty() {
            // The driver has not drained the node.
            return Some(self.now);
        }
        for at in 0..self.touched.len() {
            if let Some(&session) = self.touched.get(at) {
                self.set_session_timer(session);
            }
        }
        self.timers.first().map(|(at, _)| *at)
    }

    /// Handles the timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        // Each timer fires once in a call, also when it is set to the past again.
        let mut due = Vec::new();
        while let Some(&(at, key)) = self.timers.first() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            due.push(key);
        }
        for key in due {
            match key {
                TimerKey::Connection(key) => {
                    if let Some(mut conn) = self.conns.take(key) {
                        conn.timer = None;
                        self.conn_timeout(now, &mut conn);
                        self.put_back(conn);
                    }
                }
                TimerKey::Session(session) => self.session_timeout(now, session),
            }
            self.run_deferred(now);
        }
    }

    fn conn_timeout(&mut self, now: Instant, conn: &mut Connection) {
        if conn.quic.poll_timeout().is_some_and(|at| at <= now) {
            conn.quic.handle_timeout(now);
            conn.dirty = true;
        }
        if conn.paced_until.is_some_and(|at| at <= now) {
            conn.paced_until = None;
        }
        if conn.deadline.is_some_and(|at| at <= now) {
            let reason = match conn.stage {
                Stage::Handshake => "nothing, or too little for a TLS handshake, came in 10 s",
                _ => "the join handshake took too long",
            };
            let reason = Error::Network(reason.to_owned());
            self.fail_conn(now, conn, CloseCode::JoinTimeout, reason);
        }
        self.process(now, conn);
    }

    fn session_timeout(&mut self, now: Instant, session: SessionHandle) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        state.timer = None;
        let give_up = state.no_path_since.map(|since| since + NO_PATH_TIMEOUT);
        if give_up.is_some_and(|at| at <= now) {
            let code = CloseCode::SessionClosed;
            self.end_session(now, session, code, "no path", Some(Error::NoPath));
            return;
        }
        if state.session.poll_timeout().is_some_and(|at| at <= now) {
            state.session.handle_timeout(now);
        }
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let retries: Vec<_> = state
            .paths
            .iter()
            .filter(|(_, path)| due(path.backoff.at()))
            .map(|(id, _)| *id)
            .collect();
        for path in retries {
            self.start_path(now, session, path);
        }
        self.renew_handshakes(now, session);
        self.touch(session);
    }

    pub(super) fn set_conn_timer(&mut self, conn: &mut Connection) {
        let next = conn.next_timeout();
        if next != conn.timer {
            let key = TimerKey::Connection(conn.key);
            if let Some(at) = conn.timer {
                self.timers.remove(&(at, key));
            }
            self.timers.extend(next.map(|at| (at, key)));
            conn.timer = next;
        }
    }

    /// The session's events have been taken; sets its timer.
    pub(super) fn rest(&mut self, session: SessionHandle) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.touched = false;
        }
        self.set_session_timer(session);
    }

    pub(super) fn set_session_timer(&mut self, session: SessionHandle) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let next = state.next_timeout();
        if next != state.timer {
            let key = TimerKey::Session(session);
            if let Some(at) = state.timer {
                self.timers.remove(&(at, key));
            }
            self.timers.extend(next.map(|at| (at, key)));
            state.timer = next;
        }
    }
}
