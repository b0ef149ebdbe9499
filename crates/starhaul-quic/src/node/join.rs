//! The join handshake: how connections become paths of a session. Messages are in [`crate::wire`],
//! keys in [`crate::join`].

use std::time::{Duration, Instant};

use starhaul_session::Side;

use super::{Deferred, Node, NodeEvent, PathState, SessionState};
use crate::{
    CloseCode, Error, MAX_PATHS, PathSpec, SessionHandle,
    connection::{Connection, Stage},
    join::{JOIN_LABEL, SESSION_LABEL, SessionKey},
    wire::{self, LinkKind, Message, PathHello, SessionId},
};
use rand_chacha::rand_core::RngCore as _;

/// TLS must be finished in this time; the QUIC stack retransmits meanwhile.
pub(super) const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a server waits for OPEN or JOIN, and a client for the answer.
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a connection cannot become a path; sent as its close code.
#[derive(Debug)]
struct Refusal(CloseCode, &'static str);

impl Node {
    /// TLS is finished, the peer's key is proven.
    pub(super) fn tls_finished(&mut self, now: Instant, conn: &mut Connection) {
        if conn.stage != Stage::Handshake {
            return;
        }
        if conn.is_client() {
            conn.stage = Stage::Idle;
            // Waits for the session if another connection is opening it.
            conn.deadline = None;
            self.send_hello(now, conn);
        } else {
            conn.stage = Stage::AwaitHello;
            conn.deadline = Some(now + JOIN_TIMEOUT);
        }
    }

    /// Client: opens or joins the session over an idle connection.
    fn send_hello(&mut self, now: Instant, conn: &mut Connection) {
        let Some((session, path)) = conn.owner else {
            return;
        };
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let Some(known) = state.paths.get(&path) else {
            return;
        };
        let hello = PathHello {
            path,
            cost: known.spec.cost,
            name: known.spec.name.clone(),
            link: match conn.may_say_link() {
                true => known.spec.link,
                false => LinkKind::Other,
            },
        };
        let (message, stage) = match &state.joined {
            Some((id, key)) => {
                let Some(exported) = conn.export(JOIN_LABEL) else {
                    return;
                };
                let message = Message::Join {
                    session: *id,
                    token: key.token(&exported, id, path),
                    hello,
                };
                (message, Stage::Joining)
            }
            None if state.opening.is_none() => {
                state.opening = Some(conn.key);
                let message = Message::Open {
                    versions: vec![wire::VERSION],
                    nonce: state.nonce,
                    hello,
                };
                (message, Stage::Opening)
            }
            None => return,
        };
        if conn.open_control() {
            conn.send_message(&message);
        }
        conn.stage = stage;
        let rtt = conn.rtt().unwrap_or_default();
        conn.deadline = Some(now + JOIN_TIMEOUT.max(6 * rtt));
    }

    /// Client: the session opened, or its opening failed: idle connections go on.
    pub(super) fn join_idle(&mut self, now: Instant, session: SessionHandle) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        if state.joined.is_some() {
            // What no attempt could cure before may be over: the peer trusts our key now.
            for known in state.paths.values_mut() {
                if known.failed.take().is_some() && known.conn.is_none() {
                    known.backoff.schedule(now);
                }
            }
        }
        let keys: Vec<_> = state.paths.values().filter_map(|path| path.conn).collect();
        for key in keys {
            if let Some(mut conn) = self.conns.take(key) {
                if conn.stage == Stage::Idle {
                    self.send_hello(now, &mut conn);
                }
                self.put_back(conn);
            }
        }
    }

    /// Reads and follows all whole messages on the control stream.
    pub(super) fn read_messages(&mut self, now: Instant, conn: &mut Connection) {
        while conn.stage != Stage::Closed {
            let outcome = match conn.next_message() {
                Ok(None) => return,
                Ok(Some(message)) => self.handle_message(now, conn, message),
                Err(malformed) => Err(Refusal(CloseCode::JoinViolation, malformed.0)),
            };
            if let Err(Refusal(code, reason)) = outcome {
                let error = match code {
                    CloseCode::JoinViolation => Error::PeerViolation(reason.to_owned()),
                    code => Error::Refused(code),
                };
                self.fail_conn(now, conn, code, error);
            }
        }
    }

    fn handle_message(
        &mut self,
        now: Instant,
        conn: &mut Connection,
        message: Message,
    ) -> Result<(), Refusal> {
        match (conn.stage, message) {
            (
                Stage::AwaitHello,
                Message::Open {
                    versions,
                    nonce,
                    hello,
                },
            ) => self.handle_open(now, conn, &versions, nonce, hello),
            (
                Stage::AwaitHello,
                Message::Join {
                    session,
                    token,
                    hello,
                },
            ) => self.handle_join(now, conn, &session, &token, hello),
            (Stage::Opening, Message::Welcome { version, session }) => {
                self.handle_welcome(conn, version, session)
            }
            (Stage::Joining, Message::Accept) => {
                self.joined(conn);
                Ok(())
            }
            _ => {
                let reason = "a join message came out of turn";
                Err(Refusal(CloseCode::JoinViolation, reason))
            }
        }
    }

    /// Server: a peer opens a session.
    fn handle_open(
        &mut self,
        now: Instant,
        conn: &mut Connection,
        versions: &[u16],
        nonce: [u8; 16],
        hello: PathHello,
    ) -> Result<(), Refusal> {
        let refuse = |code| Refusal(code, "");
        if !versions.contains(&wire::VERSION) {
            return Err(refuse(CloseCode::Version));
        }
        let broken = Refusal(CloseCode::JoinViolation, "TLS gave no key");
        let (Some(peer), Some(exported)) = (conn.peer_key(), conn.export(SESSION_LABEL)) else {
            return Err(broken);
        };
        if !self.config.trusted.contains(&peer) {
            // It was when it began to connect.
            return Err(refuse(CloseCode::NotTrusted));
        }
        // The client never saw our WELCOME and tries again over another connection.
        let same = |state: &SessionState| state.peer == peer && state.nonce == nonce;
        let twin = self.sessions.iter().find(|(_, state)| same(state));
        let twin = twin.map(|(handle, _)| *handle);
        if let Some(session) = twin {
            self.deferred.push_back(Deferred::EndSession {
                session,
                code: CloseCode::Superseded,
                reason: String::new(),
                error: Some(Error::Superseded),
            });
        } else if !self.has_room_for(now, peer) {
            self.refused_sessions += 1;
            return Err(refuse(CloseCode::TooManySessions));
        }
        let mut id = SessionId::default();
        self.rng.fill_bytes(&mut id);
        let session = self.insert_session(now, Side::Server, peer, None, nonce);
        self.events.push_back(NodeEvent::Accepted { session, peer });
        if let Some(state) = self.sessions.get_mut(&session) {
            state.joined = Some((id, SessionKey::new(&exported)));
        }
        conn.owner = Some((session, hello.path));
        self.adopt_path(now, conn, hello);
        conn.send_message(&Message::Welcome {
            version: wire::VERSION,
            session: id,
        });
        self.joined(conn);
        Ok(())
    }

    /// Server: a connection wants to join an open session.
    fn handle_join(
        &mut self,
        now: Instant,
        conn: &mut Connection,
        id: &SessionId,
        token: &[u8; 32],
        hello: PathHello,
    ) -> Result<(), Refusal> {
        let refuse = |code| Refusal(code, "");
        let (Some(peer), Some(exported)) = (conn.peer_key(), conn.export(JOIN_LABEL)) else {
            return Err(Refusal(CloseCode::JoinViolation, "TLS gave no key"));
        };
        let found = self.sessions.iter().find_map(|(&handle, state)| {
            let (known, key) = state.joined.as_ref()?;
            (known == id && state.side == Side::Server).then_some((handle, state, key))
        });
        let (session, state, key) = found.ok_or(refuse(CloseCode::UnknownSession))?;
        if state.peer != peer || !key.verify(&exported, id, hello.path, token) {
            return Err(refuse(CloseCode::BadToken));
        }
        let path = hello.path;
        if !state.paths.contains_key(&path) && state.paths.len() >= MAX_PATHS {
            // The client may have removed a dead path without being able to say so.
            let dead = state.paths.iter().find(|(_, known)| known.conn.is_none());
            let dead = dead.map(|(id, _)| *id);
            let dead = dead.ok_or(refuse(CloseCode::TooManyPaths))?;
            if let Some(state) = self.sessions.get_mut(&session) {
                state.paths.remove(&dead);
            }
        }
        let Some(state) = self.sessions.get(&session) else {
            return Ok(());
        };
        let older = state.paths.get(&path).and_then(|known| known.conn);
        if let Some(older) = older {
            let reason = Some("a newer connection took over".to_owned());
            self.path_down(now, session, path, reason);
            self.deferred.push_back(Deferred::CloseConn {
                conn: older,
                code: CloseCode::PathReplaced,
            });
        }
        conn.owner = Some((session, path));
        self.adopt_path(now, conn, hello);
        conn.send_message(&Message::Accept);
        self.joined(conn);
        Ok(())
    }

    /// Client: the session is open.
    fn handle_welcome(
        &mut self,
        conn: &mut Connection,
        version: u16,
        id: SessionId,
    ) -> Result<(), Refusal> {
        let Some((session, _)) = conn.owner else {
            return Ok(());
        };
        let exported = conn.export(SESSION_LABEL);
        let (Some(state), Some(exported)) = (self.sessions.get_mut(&session), exported) else {
            return Err(Refusal(CloseCode::JoinViolation, "TLS gave no key"));
        };
        if version != wire::VERSION {
            let reason = "WELCOME names a version that was not offered";
            return Err(Refusal(CloseCode::JoinViolation, reason));
        }
        state.joined = Some((id, SessionKey::new(&exported)));
        state.opening = None;
        self.events.push_back(NodeEvent::Connected(session));
        self.deferred.push_back(Deferred::Join(session));
        self.joined(conn);
        Ok(())
    }

    /// Server: the path that a peer's connection carries, known before or new.
    fn adopt_path(&mut self, now: Instant, conn: &Connection, hello: PathHello) {
        let Some((session, path)) = conn.owner else {
            return;
        };
        let (Some(state), Some(remote)) = (self.sessions.get_mut(&session), conn.remote()) else {
            return;
        };
        let leo = self.config.accept_leo_controller.as_ref();
        let leo = leo.filter(|_| hello.link == LinkKind::Leo);
        if let Some(controller) = leo {
            conn.control.lock().replace(now, controller.clone());
        }
        let spec = PathSpec {
            cost: hello.cost,
            link: hello.link,
            controller: leo.unwrap_or(&self.config.accept_controller).clone(),
            ..PathSpec::new(hello.name, remote)
        };
        let mut known = PathState::new(conn.local, spec);
        known.conn = Some(conn.key);
        if let Some(former) = state.paths.get(&path) {
            known.past = former.past.clone();
            known.rate_limit = former.rate_limit;
            conn.control.lock().set_rate_limit(former.rate_limit);
        }
        state.paths.insert(path, known);
    }

    /// The connection is a path of its session; it comes up when datagrams may flow.
    fn joined(&mut self, conn: &mut Connection) {
        conn.stage = Stage::Joined;
        conn.deadline = None;
        if let Some(source) = conn.pending.take() {
            self.pending.remove(source);
        }
    }
}
