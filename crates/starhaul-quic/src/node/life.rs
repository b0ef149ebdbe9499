//! Paths and sessions: how they come up, go down, are tried again and end.

use std::time::{Duration, Instant};

use noq_proto::ConnectionError;
use starhaul_paths::PathId;

use super::{ConnectionKey, Deferred, Node, NodeEvent, PathState};
use crate::{
    CloseCode, Error, SessionHandle,
    connection::{Connection, Stage},
    controller::PathControlHandle,
    error::from_connection_error,
    qlog::{self, PathRecord},
    transport,
};

/// The server name that TLS requires; it is not checked, since keys are pinned.
const SERVER_NAME: &str = "starhaul";

/// When a lost path is tried again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    at: Option<Instant>,
    last: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(200);
    const MOST: Duration = Duration::from_secs(2);

    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }

    pub(super) fn schedule(&mut self, now: Instant) {
        self.last = (self.last * 2).clamp(Self::FIRST, Self::MOST);
        self.at = Some(now + self.last);
    }
}

/// A session without any path waits so long for an answer to the handshake of each …
const ANSWERED_AFTER: Duration = Duration::from_secs(2);
/// … or so many of its former RTTs. The pauses between the stack's own repetitions grow to seconds: an outage would last longer for
/// a session, at its end, than for the path.
const ANSWERED_AFTER_RTTS: u32 = 3;
/// That time doubles at most so often, when answers come to what was given up.
const MOST_DOUBLINGS: u32 = 3;

impl PathState {
    /// When its handshake begins anew if it is the session's only hope.
    pub(super) fn renewed_at(&self) -> Option<Instant> {
        let former = self.rtt.unwrap_or_default();
        let patience = ANSWERED_AFTER.max(former.saturating_mul(ANSWERED_AFTER_RTTS));
        let patience = patience.saturating_mul(1 << self.hasty.min(MOST_DOUBLINGS));
        self.unanswered_since.map(|since| since + patience)
    }
}

impl Node {
    /// Begins the handshakes of a session without any path anew that nothing answers.
    pub(super) fn renew_handshakes(&mut self, now: Instant, session: SessionHandle) {
        let Some(state) = self.sessions.get(&session) else {
            return;
        };
        if !state.is_cut_off() {
            return;
        }
        let paths = state.paths.iter();
        let due = paths.filter(|(_, path)| path.renewed_at().is_some_and(|at| at <= now));
        let due: Vec<_> = due.map(|(id, _)| *id).collect();
        for path in due {
            self.renew_handshake(now, session, path);
        }
    }

    fn renew_handshake(&mut self, now: Instant, session: SessionHandle, path: PathId) {
        let Some(known) = self.path_mut(session, path) else {
            return;
        };
        let (conn, given_up) = (known.conn, known.given_up.take());
        let mut has_heard = |key: ConnectionKey| self.conns.get_mut(key).map(Connection::has_heard);
        let was_hasty = given_up.and_then(&mut has_heard) == Some(true);
        let unanswered = conn.filter(|key| has_heard(*key) == Some(false));
        let Some(known) = self.path_mut(session, path) else {
            return;
        };
        if was_hasty && unanswered.is_some() {
            // The path is there, and slower than it was.
            known.hasty += 1;
            return;
        }
        known.unanswered_since = None;
        if let Some(key) = unanswered {
            known.given_up = Some(key);
            self.begin_anew(now, session, path, key);
        }
    }

    /// Replaces the connection of a path whose handshake is under way.
    pub(super) fn begin_anew(
        &mut self,
        now: Instant,
        session: SessionHandle,
        path: PathId,
        key: ConnectionKey,
    ) {
        if let Some(known) = self.path_mut(session, path) {
            known.conn = None;
            self.close_conn(now, key, CloseCode::PathReplaced, "");
            self.start_path(now, session, path);
            self.touch(session);
        }
    }

    /// Client: a new connection for a path that has none.
    pub(super) fn start_path(&mut self, now: Instant, session: SessionHandle, path: PathId) {
        let packet_bytes = self.packet_bytes();
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let (Some(tls), Some(known)) = (state.tls.clone(), state.paths.get_mut(&path)) else {
            return;
        };
        known.backoff.at = None;
        if known.conn.is_some() {
            return;
        }
        let Some(socket) = self.locals.get_mut(&known.local) else {
            return;
        };
        let (local, remote) = (known.local, known.spec.remote);
        let controller = known.spec.controller.clone();
        let control = PathControlHandle::new(controller, now, packet_bytes);
        control.lock().set_rate_limit(known.rate_limit);
        let keepalive = self.config.session.keepalive;
        let transport = transport::connection(&control, packet_bytes, keepalive);
        let config = transport::outgoing(tls, transport, &mut self.rng);
        match socket.endpoint.connect(now, config, remote, SERVER_NAME) {
            Ok((handle, quic)) => {
                let mut conn = self.insert_conn(now, local, handle, quic, control);
                conn.owner = Some((session, path));
                if let Some(known) = self.path_mut(session, path) {
                    known.conn = Some(conn.key);
                    known.unanswered_since = Some(now);
                }
                self.put_back(conn);
            }
            Err(error) => {
                known.backoff.schedule(now);
                let error = Error::Network(error.to_string());
                self.path_down(now, session, path, Some(error.to_string()));
            }
        }
    }

    /// Joined and confirmed on both sides: datagrams may flow.
    pub(super) fn path_up_if_ready(&mut self, now: Instant, conn: &mut Connection) {
        let joined = conn.stage == Stage::Joined && conn.confirmed;
        if !joined || !conn.is_up_at_peer() {
            return;
        }
        let Some((session, path)) = conn.owner else {
            return;
        };
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let Some(known) = state.paths.get_mut(&path) else {
            return;
        };
        known.backoff = Backoff::default();
        known.hasty = 0;
        known.reported_down = false;
        known.failed = None;
        state.no_path_since = None;
        conn.stage = Stage::Up;
        conn.limit_packet_size();
        let (cost, name) = (known.spec.cost, known.spec.name.clone());
        state.session.add_path(now, path, cost, conn.update());
        if let Some(files) = &self.config.qlog {
            let session = qlog::session_name(&state.nonce);
            let (side, beginning) = (state.side, self.clock.beginning());
            let about = (path.0, name.as_str());
            let record = PathRecord::create(files.as_ref(), beginning, &session, side, about);
            conn.control.lock().set_record(record);
        }
        self.events.push_back(NodeEvent::PathUp {
            session,
            path,
            name,
        });
        self.touch(session);
    }

    /// The path is down; the application gets `reason` once.
    pub(super) fn path_down(
        &mut self,
        now: Instant,
        session: SessionHandle,
        path: PathId,
        reason: Option<String>,
    ) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let Some(known) = state.paths.get_mut(&path) else {
            return;
        };
        if state.session.has_path(path) {
            let stats = state.session.path_stats();
            let life = stats.iter().find(|stats| stats.path == path);
            if let Some(life) = life {
                known.past.add(life);
                known.rtt = Some(life.smoothed_rtt);
            }
            state.session.remove_path(now, path);
        }
        if let Some(reason) = reason
            && !std::mem::replace(&mut known.reported_down, true)
        {
            let event = NodeEvent::PathDown {
                session,
                path,
                name: known.spec.name.clone(),
                reason,
            };
            self.events.push_back(event);
        }
        if state
            .paths
            .keys()
            .all(|path| !state.session.has_path(*path))
        {
            state.no_path_since.get_or_insert(now);
        }
        self.touch(session);
    }

    /// We close a connection because of `error`.
    pub(super) fn fail_conn(
        &mut self,
        now: Instant,
        conn: &mut Connection,
        code: CloseCode,
        error: Error,
    ) {
        let owner = conn.owner;
        conn.close(now, code, &error.to_string());
        self.lost(now, conn.key, owner, None, error);
    }

    /// The stack lost a connection, or the peer closed it.
    pub(super) fn conn_lost(
        &mut self,
        now: Instant,
        conn: &mut Connection,
        reason: &ConnectionError,
    ) {
        let owner = conn.owner;
        let stage = conn.stage;
        conn.leave();
        if stage == Stage::Handshake
            && !conn.is_client()
            && let (Some(key), Some(remote)) = (self.refused_key.take(), conn.remote())
        {
            self.events.push_back(NodeEvent::Refused { remote, key });
        }
        let code = match reason {
            ConnectionError::ApplicationClosed(close) => CloseCode::from_wire(close.error_code),
            _ => None,
        };
        self.lost(now, conn.key, owner, code, from_connection_error(reason));
    }

    /// Draws the consequences of a connection's end for its path and session; `code` is the peer's close code.
    fn lost(
        &mut self,
        now: Instant,
        conn: ConnectionKey,
        owner: Option<(SessionHandle, PathId)>,
        code: Option<CloseCode>,
        error: Error,
    ) {
        let Some((session, path)) = owner else { return };
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        if state.opening == Some(conn) {
            state.opening = None;
            self.deferred.push_back(Deferred::Join(session));
        }
        let is_open = state.joined.is_some();
        let is_client = state.tls.is_some();
        let Some(known) = state.paths.get_mut(&path) else {
            return;
        };
        if known.conn != Some(conn) {
            return;
        }
        known.conn = None;
        known.unanswered_since = None;
        // Another host with the peer's key answers there: the session goes on over the paths on which its peer answers.
        let is_elsewhere = code == Some(CloseCode::UnknownSession)
            && state
                .session
                .path_stats()
                .iter()
                .any(|other| other.path != path && !other.suspect && other.newest_acked);
        match code.filter(|_| !is_elsewhere) {
            Some(
                CloseCode::SessionClosed
                | CloseCode::SessionViolation
                | CloseCode::Superseded
                | CloseCode::UnknownSession
                | CloseCode::NotTrusted
                | CloseCode::TooManySessions
                | CloseCode::Version,
            ) => {
                let error = (code != Some(CloseCode::SessionClosed)).then_some(error);
                self.deferred.push_back(Deferred::EndSession {
                    session,
                    code: CloseCode::SessionClosed,
                    reason: String::new(),
                    error,
                });
                return;
            }
            Some(CloseCode::PathRemoved) => {
                self.path_down(now, session, path, Some(error.to_string()));
                if let Some(state) = self.sessions.get_mut(&session) {
                    state.paths.remove(&path);
                }
                return;
            }
            _ => {}
        }
        let retry = is_open || !is_final(&error);
        if is_client && retry {
            known.backoff.schedule(now);
        }
        if !retry {
            known.failed = Some(error.clone());
        }
        self.path_down(now, session, path, Some(error.to_string()));
        self.give_up_if_hopeless(session);
    }

    /// Ends a session that is not open yet when every path has an error that no further attempt can cure.
    fn give_up_if_hopeless(&mut self, session: SessionHandle) {
        let Some(state) = self.sessions.get(&session) else {
            return;
        };
        let failed: Option<Vec<_>> = state
            .paths
            .values()
            .map(|path| path.failed.clone())
            .collect();
        if let Some(error) = failed.and_then(|errors| errors.into_iter().next()) {
            self.deferred.push_back(Deferred::EndSession {
                session,
                code: CloseCode::SessionClosed,
                reason: String::new(),
                error: Some(error),
            });
        }
    }

    pub(super) fn close_conn(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        code: CloseCode,
        reason: &str,
    ) {
        if let Some(mut conn) = self.conns.take(key) {
            conn.close(now, code, reason);
            self.process(now, &mut conn);
            self.put_back(conn);
        }
    }

    /// The session ends here and, by `code`, at the peer.
    pub(super) fn end_session(
        &mut self,
        now: Instant,
        session: SessionHandle,
        code: CloseCode,
        reason: &str,
        error: Option<Error>,
    ) {
        let Some(mut state) = self.sessions.remove(&session) else {
            return;
        };
        if let Some(at) = state.timer {
            self.timers.remove(&(at, super::TimerKey::Session(session)));
        }
        for conn in state.paths.values().filter_map(|path| path.conn) {
            self.close_conn(now, conn, code, reason);
        }
        state.session.close(now);
        while let Some(event) = state.session.poll_event() {
            self.events.push_back(NodeEvent::Session { session, event });
        }
        let streams = state.session.take_ended_streams();
        self.events.push_back(NodeEvent::Closed {
            session,
            error,
            streams,
        });
    }

    pub(super) fn run_deferred(&mut self, now: Instant) {
        while let Some(work) = self.deferred.pop_front() {
            match work {
                Deferred::EndSession {
                    session,
                    code,
                    reason,
                    error,
                } => self.end_session(now, session, code, &reason, error),
                Deferred::CloseConn { conn, code } => self.close_conn(now, conn, code, ""),
                Deferred::Join(session) => self.join_idle(now, session),
                Deferred::PathGone { session, path } => self.path_gone(now, session, path),
                Deferred::Signal {
                    session,
                    path,
                    signal,
                } => self.signal_path(now, session, path, signal),
            }
        }
    }

    /// The peer removed a path. The close of its connection may have been lost, or the connection was dead.
    fn path_gone(&mut self, now: Instant, session: SessionHandle, path: PathId) {
        let Some(known) = self.path_mut(session, path) else {
            return;
        };
        let conn = known.conn;
        let reason = Error::Refused(CloseCode::PathRemoved).to_string();
        self.path_down(now, session, path, Some(reason));
        if let Some(state) = self.sessions.get_mut(&session) {
            state.paths.remove(&path);
        }
        if let Some(conn) = conn {
            self.close_conn(now, conn, CloseCode::PathRemoved, "");
        }
    }

    pub(super) fn path_mut(
        &mut self,
        session: SessionHandle,
        path: PathId,
    ) -> Option<&mut super::PathState> {
        self.sessions.get_mut(&session)?.paths.get_mut(&path)
    }
}

/// Whether no further attempt can help.
fn is_final(error: &Error) -> bool {
    matches!(
        error,
        Error::WrongPeerKey
            | Error::NotTrusted
            | Error::VersionMismatch
            | Error::PeerViolation(_)
            | Error::Refused(CloseCode::JoinViolation)
    )
}
