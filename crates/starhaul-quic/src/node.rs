//! The whole stack of one process: sockets by number, connections, sessions, and the queue of those that have something to
//! send.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use noq_proto::{Endpoint, ServerConfig, crypto::rustls::QuicClientConfig};
use rand_chacha::{
    ChaCha12Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};
use starhaul_cc::{ControllerConfig, PathSignal};
use starhaul_paths::PathId;
use starhaul_session::{PathDatagram, SchedulerStatus, Session, Side};
use starhaul_units::Bandwidth;

use crate::{
    CloseCode, Error, LEAST_PACKET_BYTES, LocalId, MAX_PATHS, MOST_PACKET_BYTES, NO_PATH_TIMEOUT,
    NodeConfig, NodeEvent, PathSpec, PathStatus, PathTotals, PublicKey, SessionHandle, Transmit,
    controller::DatagramFate,
    join::SessionKey,
    packet_size::PacketBytes,
    proof::Names,
    qlog::{self, SessionRecord, SessionTrace},
    tls, transport,
    wire::{MAX_NAME_BYTES, SessionId},
};

mod connection_key;
mod connections;
mod input;
mod join;
mod life;
mod network;
mod output;
mod shares;
mod signal;
mod timers;

pub(crate) use connection_key::ConnectionKey;
pub(crate) use connections::Connections;
use life::Backoff;
pub(crate) use shares::Source;

/// The whole stack of one process, without sockets.
pub struct Node {
    config: NodeConfig,
    server: Arc<ServerConfig>,
    /// The key that TLS refused last.
    refused_key: tls::RefusedKey,
    clock: transport::Clock,
    rng: ChaCha12Rng,
    locals: BTreeMap<LocalId, Socket>,
    conns: Connections,
    pending: shares::Pending,
    sessions: BTreeMap<SessionHandle, SessionState>,
    next_session: u64,
    /// Connections that may have something to send.
    ready: VecDeque<ConnectionKey>,
    /// Sessions with a new input, whose events and timers must be read again.
    touched: VecDeque<SessionHandle>,
    timers: BTreeSet<(Instant, TimerKey)>,
    events: VecDeque<NodeEvent>,
    /// Answers to packets that belong to no connection.
    responses: VecDeque<Transmit>,
    /// Work that waits until the connection taken out of `conns` is put back.
    deferred: VecDeque<Deferred>,
    /// A buffer that each transmit uses again.
    buffer: Vec<u8>,
    /// Buffers of batches that were sent.
    spare: Vec<Vec<u8>>,
    /// Datagrams that the session just gave; empty between two calls.
    batch: Vec<PathDatagram>,
    fates: Vec<DatagramFate>,
    /// Number of sessions of trusted peers refused for a limit.
    refused_sessions: u64,
    /// Number of connections refused for a limit.
    refused_handshakes: u64,
    now: Instant,
}

/// A socket's endpoint and its state.
struct Socket {
    endpoint: Endpoint,
    /// Peers may open sessions here.
    listening: bool,
    /// Our connection for each of the endpoint's handles.
    handles: Vec<Option<ConnectionKey>>,
    names: Names,
}

/// A session, its paths, and the state of its join handshakes.
struct SessionState {
    session: Session,
    side: Side,
    peer: PublicKey,
    /// Settings of connections to the peer; `None` when we accepted the session.
    tls: Option<Arc<QuicClientConfig>>,
    nonce: [u8; 16],
    /// Set when the session is open.
    joined: Option<(SessionId, SessionKey)>,
    /// The connection on which OPEN was sent.
    opening: Option<ConnectionKey>,
    paths: BTreeMap<PathId, PathState>,
    next_path: u32,
    /// When the last path went down; `None` while one is up.
    no_path_since: Option<Instant>,
    /// When a packet last arrived over any of its paths.
    heard_at: Instant,
    /// Counts inputs: a path without anything to send polls the session again when this has changed.
    version: u64,
    touched: bool,
    timer: Option<Instant>,
}

/// A path of a session, with or without a connection.
#[derive(Debug)]
struct PathState {
    spec: PathSpec,
    local: LocalId,
    conn: Option<ConnectionKey>,
    backoff: Backoff,
    /// When its connection began, until something is known to have come over it.
    unanswered_since: Option<Instant>,
    /// The RTT of its last connection that was up.
    rtt: Option<Duration>,
    /// The connection whose handshake was begun anew last.
    given_up: Option<ConnectionKey>,
    /// How often an answer came to one that was given up.
    hasty: u32,
    /// The application has the event that it is down.
    reported_down: bool,
    /// The error that no further attempt can cure, before the session is open.
    failed: Option<Error>,
    /// Totals of its former connections.
    past: PathTotals,
    /// The greatest rate of our direction; its connections come and go.
    rate_limit: Option<Bandwidth>,
}

/// What a timer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    Connection(ConnectionKey),
    Session(SessionHandle),
}

/// Work that concerns more than the connection taken out of [`Connections`].
#[derive(Debug)]
enum Deferred {
    EndSession {
        session: SessionHandle,
        code: CloseCode,
        reason: String,
        error: Option<Error>,
    },
    CloseConn {
        conn: ConnectionKey,
        code: CloseCode,
    },
    /// Send OPEN or JOIN on idle connections.
    Join(SessionHandle),
    /// The peer removed a path of its for good.
    PathGone {
        session: SessionHandle,
        path: PathId,
    },
    /// The peer's detectors signal something of a path.
    Signal {
        session: SessionHandle,
        path: PathId,
        signal: PathSignal,
    },
}

impl Node {
    /// A node without sockets and sessions.
    ///
    /// # Errors
    /// [`Error::Tls`] when the cryptographic library refuses the identity, [`Error::PacketBytes`] for sizes out of range.
    pub fn new(config: NodeConfig, now: Instant) -> Result<Self, Error> {
        for bytes in [config.packet_bytes, config.sure_packet_bytes] {
            if !(LEAST_PACKET_BYTES..=MOST_PACKET_BYTES).contains(&bytes) {
                return Err(Error::PacketBytes(bytes));
            }
        }
        let clock = transport::Clock::new(now);
        let refused_key = tls::RefusedKey::default();
        let crypto =
            tls::server_config(&config.identity, &config.trusted, &refused_key, tls::ALPNS)?;
        let server = transport::incoming(crypto, &config.identity, &clock);
        Ok(Self {
            server: Arc::new(server),
            refused_key,
            clock,
            rng: ChaCha12Rng::from_seed(config.rng_seed),
            config,
            locals: BTreeMap::new(),
            conns: Connections::default(),
            pending: shares::Pending::default(),
            sessions: BTreeMap::new(),
            next_session: 0,
            ready: VecDeque::new(),
            touched: VecDeque::new(),
            timers: BTreeSet::new(),
            events: VecDeque::new(),
            responses: VecDeque::new(),
            deferred: VecDeque::new(),
            buffer: Vec::new(),
            spare: Vec::new(),
            batch: Vec::new(),
            fates: Vec::new(),
            refused_sessions: 0,
            refused_handshakes: 0,
            now,
        })
    }

    /// Changes who may open sessions to us from now on. Sessions that are open stay open.
    ///
    /// # Errors
    /// [`Error::Tls`] when the cryptographic library refuses; nothing has changed then.
    pub fn set_trusted(&mut self, trusted: Vec<PublicKey>) -> Result<(), Error> {
        let crypto = tls::server_config(
            &self.config.identity,
            &trusted,
            &self.refused_key,
            tls::ALPNS,
        )?;
        let server = transport::incoming(crypto, &self.config.identity, &self.clock);
        self.server = Arc::new(server);
        self.config.trusted = trusted;
        for local in self.locals.values_mut().filter(|local| local.listening) {
            local.endpoint.set_server_config(Some(self.server.clone()));
        }
        Ok(())
    }

    /// Accepts only the application protocol `starhaul/1` from now on, as builds before the second do.
    #[cfg(test)]
    pub(crate) fn age(&mut self) {
        let (identity, trusted) = (&self.config.identity, &self.config.trusted);
        let crypto = tls::server_config(identity, trusted, &self.refused_key, &[tls::OLD_ALPN]);
        let server = transport::incoming(crypto.expect("TLS"), identity, &self.clock);
        self.server = Arc::new(server);
        for local in self.locals.values_mut().filter(|local| local.listening) {
            local.endpoint.set_server_config(Some(self.server.clone()));
        }
    }

    /// Registers a socket; `listening` ones accept sessions and paths from peers. A second call for
    /// the same socket is ignored.
    pub fn add_local(&mut self, local: LocalId, listening: bool) {
        let server = listening.then(|| self.server.clone());
        let (identity, rng) = (&self.config.identity, &mut self.rng);
        self.locals.entry(local).or_insert_with(|| Socket {
            endpoint: transport::endpoint(local, identity, server, rng),
            listening,
            handles: Vec::new(),
            names: Names::default(),
        });
    }

    /// Forgets a socket that the driver has closed. What still belongs to it is lost, as on a dead link.
    pub fn remove_local(&mut self, local: LocalId) {
        self.locals.remove(&local);
    }

    /// Opens a session over these paths, each with its socket. All paths are tried at once; the first one up opens the session,
    /// the others join it. Paths are numbered from 0 in the order given. Streams may be opened at once; their data leave when a
    /// path is up.
    ///
    /// # Errors
    /// The setting that is wrong; nothing has been started then.
    pub fn connect(
        &mut self,
        now: Instant,
        peer: PublicKey,
        paths: Vec<(LocalId, PathSpec)>,
    ) -> Result<SessionHandle, Error> {
        self.advance(now);
        if self.sessions.len() >= self.config.max_sessions {
            return Err(Error::TooManySessions);
        }
        match paths.len() {
            0 => return Err(Error::NoPaths),
            count if count > MAX_PATHS => return Err(Error::TooManyPaths),
            _ => {}
        }
        for (local, path) in &paths {
            self.check_path(*local, path)?;
        }
        let tls = tls::client_config(&self.config.identity, peer, tls::ALPNS)?;
        let mut nonce = [0; 16];
        self.rng.fill_bytes(&mut nonce);
        let handle = self.insert_session(now, Side::Client, peer, Some(tls), nonce);
        for (local, path) in paths {
            self.insert_path(now, handle, local, path);
        }
        Ok(handle)
    }

    /// Adds a path, with its socket, to a session that we opened.
    ///
    /// # Errors
    /// The setting that is wrong; the session is unknown, full, or was opened by the peer.
    pub fn add_path(
        &mut self,
        now: Instant,
        session: SessionHandle,
        (local, path): (LocalId, PathSpec),
    ) -> Result<PathId, Error> {
        self.advance(now);
        self.check_path(local, &path)?;
        let state = self.sessions.get(&session);
        let state = state.ok_or(Error::UnknownSession(session))?;
        if state.tls.is_none() {
            return Err(Error::NotClient);
        }
        if state.paths.len() >= MAX_PATHS {
            return Err(Error::TooManyPaths);
        }
        self.insert_path(now, session, local, path)
            .ok_or(Error::UnknownSession(session))
    }

    /// Removes a path on both sides; the session lives on, also without any path for a while.
    ///
    /// # Errors
    /// The session or path is unknown.
    pub fn remove_path(
        &mut self,
        now: Instant,
        session: SessionHandle,
        path: PathId,
    ) -> Result<(), Error> {
        self.advance(now);
        let state = self.sessions.get_mut(&session);
        let state = state.ok_or(Error::UnknownSession(session))?;
        let conn = state.paths.get(&path).ok_or(Error::UnknownPath(path))?.conn;
        self.path_down(now, session, path, None);
        if let Some(state) = self.sessions.get_mut(&session) {
            state.paths.remove(&path);
            if state.side == Side::Client {
                state.session.tell_path_gone(now, path);
            }
            if conn.is_some() && state.opening == conn {
                state.opening = None;
                self.deferred.push_back(Deferred::Join(session));
            }
        }
        if let Some(conn) = conn {
            self.close_conn(now, conn, CloseCode::PathRemoved, "");
        }
        self.run_deferred(now);
        Ok(())
    }

    /// Changes the cost of a path of a session that we opened, on its present connection, and informs the peer.
    ///
    /// # Errors
    /// The cost is negative or not finite, the session or path is unknown, or the peer opened the session.
    pub fn set_path_cost(
        &mut self,
        now: Instant,
        session: SessionHandle,
        path: PathId,
        cost: f64,
    ) -> Result<(), Error> {
        self.advance(now);
        if !cost.is_finite() || cost < 0.0 {
            return Err(Error::InvalidCost);
        }
        let state = self.sessions.get_mut(&session);
        let state = state.ok_or(Error::UnknownSession(session))?;
        if state.tls.is_none() {
            return Err(Error::NotClient);
        }
        let known = state.paths.get_mut(&path);
        known.ok_or(Error::UnknownPath(path))?.spec.cost = cost;
        state.session.set_path_cost(now, path, cost);
        self.touch(session);
        Ok(())
    }

    /// Changes the controller of our direction of a path, on its present connection: the new one governs packets from now on.
    ///
    /// # Errors
    /// The session or path is unknown.
    pub fn set_path_controller(
        &mut self,
        now: Instant,
        session: SessionHandle,
        path: PathId,
        controller: ControllerConfig,
    ) -> Result<(), Error> {
        self.advance(now);
        let state = self.sessions.get_mut(&session);
        let state = state.ok_or(Error::UnknownSession(session))?;
        let known = state.paths.get_mut(&path).ok_or(Error::UnknownPath(path))?;
        known.spec.controller = controller.clone();
        let conn = known.conn.and_then(|conn| self.conns.get(conn));
        if let Some(conn) = conn {
            conn.control.lock().replace(now, controller);
        }
        self.touch(session);
        Ok(())
    }

    /// Sets the greatest rate at which we send on a path, also on one that the peer opened: UDP payload counted, acknowledgements included.
    ///
    /// # Errors
    /// The session or path is unknown.
    pub fn set_path_rate_limit(
        &mut self,
        now: Instant,
        session: SessionHandle,
        path: PathId,
        limit: Option<Bandwidth>,
    ) -> Result<(), Error> {
        self.advance(now);
        let state = self.sessions.get_mut(&session);
        let state = state.ok_or(Error::UnknownSession(session))?;
        let known = state.paths.get_mut(&path).ok_or(Error::UnknownPath(path))?;
        known.rate_limit = limit;
        if let Some(conn) = known.conn.and_then(|conn| self.conns.get(conn)) {
            conn.control.lock().set_rate_limit(limit);
        }
        self.touch(session);
        Ok(())
    }

    /// The session's state machine, for the application's calls. Drain the node after using it.
    pub fn session(&mut self, session: SessionHandle) -> Option<&mut Session> {
        self.touch(session);
        self.sessions
            .get_mut(&session)
            .map(|state| &mut state.session)
    }

    /// Lets `call` use the session's state machine for calls of byte streams, most of which leave nothing to do: the node polls it again
    /// only if [`Session::poll_requests`] asks for that. Returns what `call` did, and whether it asked: drain the node then.
    pub fn with_session<T>(
        &mut self,
        session: SessionHandle,
        call: impl FnOnce(&mut Session) -> T,
    ) -> Option<(T, bool)> {
        let machine = &mut self.sessions.get_mut(&session)?.session;
        let requests = machine.poll_requests();
        let done = call(machine);
        let asks = machine.poll_requests() != requests;
        if asks {
            self.touch(session);
        }
        Some((done, asks))
    }

    /// The number of sessions of trusted peers refused for [`NodeConfig::max_sessions`] or
    /// [`NodeConfig::max_sessions_per_peer`].
    pub fn refused_sessions(&self) -> u64 {
        self.refused_sessions
    }

    /// The number of connections refused for [`NodeConfig::max_handshakes`] or [`NodeConfig::max_handshakes_per_source`].
    pub fn refused_handshakes(&self) -> u64 {
        self.refused_handshakes
    }

    /// Who chooses the paths of a session, and what was decided; `None` when it has ended.
    pub fn scheduler_status(&self, session: SessionHandle) -> Option<SchedulerStatus> {
        Some(self.sessions.get(&session)?.session.scheduler_status())
    }

    /// All paths of a session, in order of their numbers; none when it has ended.
    pub fn path_status(&mut self, session: SessionHandle) -> Vec<PathStatus> {
        let Some(state) = self.sessions.get(&session) else {
            return Vec::new();
        };
        let stats = state.session.path_stats();
        let status = |(&path, known): (&PathId, &PathState)| {
            let conn = known.conn.and_then(|conn| self.conns.get(conn));
            // A connection that has not joined has no figures.
            let up = state.session.has_path(path);
            let control = conn.filter(|_| up).map(|conn| conn.control.lock());
            let signals = control.as_ref().map(|control| control.path());
            let controller = signals.map(|signals| signals.controller());
            let life = stats.iter().find(|stats| stats.path == path);
            let mut totals = known.past.clone();
            life.into_iter().for_each(|life| totals.add(life));
            PathStatus {
                path,
                name: known.spec.name.clone(),
                remote: conn
                    .and_then(|conn| conn.remote())
                    .unwrap_or(known.spec.remote),
                up,
                controller: controller.map_or("", |c| c.name()),
                controller_state: controller.map_or("", |c| c.state()),
                cwnd: controller.map_or(0, |c| c.cwnd()),
                bytes_in_flight: control.as_ref().map_or(0, |c| c.bytes_committed()),
                model: controller.and_then(|c| c.model()),
                reconfigurations: signals.map_or_else(Default::default, |s| s.reconfigurations()),
                segment_rtt: signals.and_then(|s| s.segment_rtt()),
                packet_bytes: control.map_or(0, |mut c| c.packet_size().bytes()),
                rate_limit: known.rate_limit,
                stats: life.cloned(),
                totals,
            }
        };
        state.paths.iter().map(status).collect()
    }

    /// Closes the session in order and informs the peer; every block that has not ended fails. `reason` is for people.
    pub fn close(&mut self, now: Instant, session: SessionHandle, reason: &str) {
        self.advance(now);
        self.end_session(now, session, CloseCode::SessionClosed, reason, None);
        self.run_deferred(now);
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<NodeEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        while let Some(&session) = self.touched.front() {
            let state = self.sessions.get_mut(&session);
            if let Some(event) = state.and_then(|state| state.session.poll_event()) {
                return Some(NodeEvent::Session { session, event });
            }
            self.touched.pop_front();
            self.rest(session);
        }
        None
    }

    fn packet_bytes(&self) -> PacketBytes {
        let NodeConfig {
            packet_bytes,
            sure_packet_bytes,
            ..
        } = self.config;
        PacketBytes {
            sure: sure_packet_bytes.min(packet_bytes),
            most: packet_bytes,
        }
    }

    fn check_path(&self, local: LocalId, path: &PathSpec) -> Result<(), Error> {
        if !self.locals.contains_key(&local) {
            return Err(Error::UnknownLocal(local));
        }
        if path.remote.port() == 0 || path.remote.ip().is_unspecified() {
            return Err(Error::InvalidRemote(path.remote));
        }
        if !path.cost.is_finite() || path.cost < 0.0 {
            return Err(Error::InvalidCost);
        }
        if path.name.len() > MAX_NAME_BYTES {
            return Err(Error::InvalidName);
        }
        Ok(())
    }

    fn insert_session(
        &mut self,
        now: Instant,
        side: Side,
        peer: PublicKey,
        tls: Option<Arc<QuicClientConfig>>,
        nonce: [u8; 16],
    ) -> SessionHandle {
        let handle = SessionHandle(self.next_session);
        self.next_session += 1;
        let config = self.config.session.clone();
        let scheduler = self.config.scheduler.build();
        let mut session = Session::with_scheduler(config, side, now, scheduler);
        let name = qlog::session_name(&nonce);
        if let Some(files) = &self.config.qlog {
            let beginning = self.clock.beginning();
            let record = SessionRecord::create(files.as_ref(), beginning, &name, side);
            if let Some(record) = record {
                session.observe(Box::new(record));
            }
        }
        if let Some(trace) = SessionTrace::wanted(&name) {
            session.observe(Box::new(trace));
        }
        let state = SessionState {
            session,
            side,
            peer,
            tls,
            nonce,
            joined: None,
            opening: None,
            paths: BTreeMap::new(),
            next_path: 0,
            no_path_since: Some(now),
            heard_at: now,
            version: 0,
            touched: false,
            timer: None,
        };
        self.sessions.insert(handle, state);
        self.touch(handle);
        handle
    }

    fn insert_path(
        &mut self,
        now: Instant,
        session: SessionHandle,
        local: LocalId,
        path: PathSpec,
    ) -> Option<PathId> {
        let state = self.sessions.get_mut(&session)?;
        let id = PathId(state.next_path);
        state.next_path += 1;
        state.paths.insert(id, PathState::new(local, path));
        self.start_path(now, session, id);
        Some(id)
    }

    /// The session has a new input: its paths, events and timer must be polled.
    fn touch(&mut self, session: SessionHandle) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        state.version += 1;
        for conn in state.paths.values().filter_map(|path| path.conn) {
            if let Some(conn) = self.conns.get_mut(conn)
                && conn.is_up()
                && !conn.queued
            {
                conn.queued = true;
                self.ready.push_back(conn.key);
            }
        }
        self.note_touched(session);
    }

    /// The session's events and timer must be polled.
    fn note_touched(&mut self, session: SessionHandle) {
        if let Some(state) = self.sessions.get_mut(&session)
            && !std::mem::replace(&mut state.touched, true)
        {
            self.touched.push_back(session);
        }
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.clock.advance(now);
    }
}

impl SessionState {
    /// When the session needs the time next.
    fn next_timeout(&self) -> Option<Instant> {
        let give_up = self.no_path_since.map(|since| since + NO_PATH_TIMEOUT);
        let retries = self.paths.values().filter_map(|path| path.backoff.at());
        let renewals = self.paths.values().filter_map(PathState::renewed_at);
        let renewals = renewals.filter(|_| self.is_cut_off());
        retries
            .chain(renewals)
            .chain(give_up)
            .chain(self.session.poll_timeout())
            .min()
    }

    /// We opened the session, and have no path to the peer any more.
    fn is_cut_off(&self) -> bool {
        self.tls.is_some() && self.joined.is_some() && self.no_path_since.is_some()
    }
}

impl PathState {
    fn new(local: LocalId, spec: PathSpec) -> Self {
        Self {
            spec,
            local,
            conn: None,
            backoff: Backoff::default(),
            unanswered_since: None,
            rtt: None,
            given_up: None,
            hasty: 0,
            reported_down: false,
            failed: None,
            past: PathTotals::default(),
            rate_limit: None,
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("identity", &self.config.identity)
            .field("locals", &self.locals.keys())
            .field("sessions", &self.sessions.keys())
            .finish_non_exhaustive()
    }
}

/// A batch for the driver.
fn transmit(
    local: LocalId,
    remote: SocketAddr,
    source: Option<IpAddr>,
    ecn: u8,
    size: usize,
    contents: Bytes,
) -> Transmit {
    Transmit {
        local,
        remote,
        source,
        ecn,
        segment_size: size,
        contents,
    }
}
