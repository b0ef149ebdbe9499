//! What the driver and the application share behind one lock: the protocol stack and who waits for what.
//!
//! An application call changes the stack at once and wakes the driver, which sends and hands out events.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{Arc, OnceLock},
    task::Waker,
    time::Instant,
};

use parking_lot::{Mutex, MutexGuard};
use starhaul_net::{BindOptions, UdpSocket};
use starhaul_quic::{LocalId, Node, PublicKey, SessionHandle};
use starhaul_session::{
    BlockId, Outcome, PathId, Session, StreamConfig, StreamError, StreamId, StreamStats,
};
use tokio::sync::{oneshot, watch};

use crate::{
    Block, Detection, Error, PathSpec,
    paths::BoundSocket,
    probers::{Follower, NodeLender, Probers},
    queue::{Bounds, Budget, Queue},
    refused::{RefusedKeys, RefusedStreams},
};

/// Streams that wait for the application to accept them.
const MAX_UNACCEPTED_STREAMS: usize = 1024;

/// One per endpoint.
pub(crate) struct Shared {
    state: Mutex<State>,
    driver: starhaul_net::Waker,
    pub(crate) incoming: Queue<Arc<SessionShared>>,
}

/// One per session.
#[derive(Debug)]
pub(crate) struct SessionShared {
    pub(crate) handle: SessionHandle,
    pub(crate) peer: PublicKey,
    /// Set when the session is open.
    pub(crate) established_at: OnceLock<Instant>,
    pub(crate) incoming: Queue<OpenedStream>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) end: watch::Sender<Option<SessionEnd>>,
    /// Last figures of streams that ended with the session, until somebody asks.
    ended: Mutex<Vec<StreamStats>>,
}

/// How a session ended.
#[derive(Clone, Debug)]
pub(crate) struct SessionEnd {
    /// `None` when it was closed in order.
    pub(crate) reason: Option<String>,
}

/// A stream that the peer opened and nobody has accepted yet.
#[derive(Debug)]
pub(crate) struct OpenedStream {
    pub(crate) id: StreamId,
    pub(crate) config: StreamConfig,
    /// `None` for byte streams, which are read from the session itself.
    pub(crate) blocks: Option<Arc<Queue<Block>>>,
}

/// Everything behind the lock.
pub(crate) struct State {
    pub(crate) node: Node,
    pub(crate) sessions: HashMap<SessionHandle, SessionEntry>,
    pub(crate) socket_commands: Vec<SocketCommand>,
    pub(crate) closing: bool,
    /// The driver has ended.
    pub(crate) ended: bool,
    /// Told when all that was to be sent has left.
    pub(crate) flush_waiters: Vec<oneshot::Sender<()>>,
    /// Told when the driver ends.
    pub(crate) end_waiters: Vec<oneshot::Sender<()>>,
    /// To be woken once the lock is free.
    pub(crate) woken: Vec<Waker>,
    pub(crate) next_local: u32,
    /// Of each stream's blocks that wait for the application.
    pub(crate) block_bounds: Bounds,
    /// For the log.
    pub(crate) peer_names: HashMap<PublicKey, String>,
    pub(crate) refused: RefusedKeys,
    pub(crate) refused_streams: RefusedStreams,
    pub(crate) probers: Probers,
    pub(crate) accepting: Accepting,
}

/// What holds for the paths that peers open.
#[derive(Default)]
pub(crate) struct Accepting {
    /// The listening sockets.
    pub(crate) locals: Vec<LocalId>,
    pub(crate) interface: Option<String>,
    pub(crate) detection: Option<Detection>,
}

/// What the driver is to do with its sockets.
pub(crate) enum SocketCommand {
    /// Drive a socket.
    Add(LocalId, Box<NewSocket>),
    /// Stop once the last frames have left.
    Remove(LocalId),
}

/// A socket for the driver.
pub(crate) struct NewSocket {
    /// `None` when it could not be bound yet and is to be tried again.
    pub(crate) socket: Option<UdpSocket>,
    pub(crate) options: BindOptions,
    /// Where its path leads; `None` where peers are accepted.
    pub(crate) toward: Option<SocketAddr>,
    pub(crate) problem: SocketProblem,
}

/// Why a socket cannot be used now; written by the driver, read for those who ask what is wrong.
#[derive(Clone, Debug, Default)]
pub(crate) struct SocketProblem(Arc<Mutex<Option<String>>>);

impl SocketProblem {
    pub(crate) fn set(&self, problem: Option<&starhaul_net::Error>) {
        *self.0.lock() = problem.map(ToString::to_string);
    }

    pub(crate) fn read(&self) -> Option<String> {
        self.0.lock().clone()
    }
}

/// The socket of a path of ours.
pub(crate) struct PathSocket {
    pub(crate) id: LocalId,
    pub(crate) problem: SocketProblem,
    /// The network interface that it is bound to, if any.
    pub(crate) interface: Option<String>,
}

/// A path that we opened.
pub(crate) struct OwnPath {
    /// What it was asked to be.
    pub(crate) spec: PathSpec,
    pub(crate) socket: PathSocket,
    /// It goes as soon as another path is up.
    pub(crate) retiring: bool,
}

/// A session as the driver sees it.
pub(crate) struct SessionEntry {
    pub(crate) shared: Arc<SessionShared>,
    /// Present until the session we asked for is open.
    pub(crate) connecting: Option<oneshot::Sender<Result<(), Error>>>,
    /// The peer opened it.
    pub(crate) accepted: bool,
    /// The paths that we opened.
    pub(crate) own_paths: BTreeMap<PathId, OwnPath>,
    /// Why paths that are down are.
    pub(crate) down: BTreeMap<PathId, String>,
    pub(crate) outcomes: HashMap<(StreamId, BlockId), oneshot::Sender<Outcome>>,
    pub(crate) blocks: HashMap<StreamId, Arc<Queue<Block>>>,
    pub(crate) bytes: HashMap<StreamId, ByteEntry>,
}

/// Who waits on a byte stream.
pub(crate) struct ByteEntry {
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    pub(crate) reset: Option<u32>,
    pub(crate) stopped: watch::Sender<Option<u32>>,
    /// Halves that the application still holds.
    pub(crate) halves: u8,
}

impl NodeLender for Shared {
    fn with_node(&self, tell: impl FnOnce(&mut Node)) {
        tell(&mut self.lock().node);
        self.wake_driver();
    }
}

impl Shared {
    pub(crate) fn new(
        node: Node,
        driver: starhaul_net::Waker,
        max_sessions: usize,
        block_bounds: Bounds,
        peer_names: HashMap<PublicKey, String>,
    ) -> Self {
        let state = State {
            node,
            sessions: HashMap::new(),
            socket_commands: Vec::new(),
            closing: false,
            ended: false,
            flush_waiters: Vec::new(),
            end_waiters: Vec::new(),
            woken: Vec::new(),
            next_local: 0,
            block_bounds,
            peer_names,
            refused: RefusedKeys::default(),
            refused_streams: RefusedStreams::default(),
            probers: Probers::default(),
            accepting: Accepting::default(),
        };
        Self {
            state: Mutex::new(state),
            driver,
            incoming: Queue::of_items(max_sessions),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn wake_driver(&self) {
        self.driver.wake();
    }

    /// Changes a session and lets the driver act on it.
    pub(crate) fn with_session<T>(
        &self,
        session: &SessionShared,
        change: impl FnOnce(&mut Session, &mut SessionEntry, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        let State { node, sessions, .. } = &mut *state;
        let (Some(machine), Some(entry)) = (
            node.session(session.handle),
            sessions.get_mut(&session.handle),
        ) else {
            return Err(session.ended_error());
        };
        let result = change(machine, entry, Instant::now());
        drop(state);
        // Thousands may ask again and again for a stream that the peer does not take yet.
        if !matches!(result, Err(Error::Stream(StreamError::PeerStreams))) {
            self.wake_driver();
        }
        result
    }
}

impl SessionShared {
    pub(crate) fn new(handle: SessionHandle, peer: PublicKey) -> Self {
        Self {
            handle,
            peer,
            established_at: OnceLock::new(),
            incoming: Queue::of_items(MAX_UNACCEPTED_STREAMS),
            budget: Arc::default(),
            end: watch::Sender::new(None),
            ended: Mutex::default(),
        }
    }

    /// The session has ended, and with it these streams.
    pub(crate) fn keep_ended(&self, streams: Vec<StreamStats>) {
        self.ended.lock().extend(streams);
    }

    pub(crate) fn take_ended(&self) -> Vec<StreamStats> {
        std::mem::take(&mut *self.ended.lock())
    }

    pub(crate) fn ended_error(&self) -> Error {
        let end = self.end.borrow();
        Error::SessionEnded {
            reason: end.as_ref().and_then(|end| end.reason.clone()),
        }
    }

    /// The path of this name; the newer one where one takes the place of another.
    pub(crate) fn path(&self, state: &mut State, name: &str) -> Result<PathId, Error> {
        if !state.sessions.contains_key(&self.handle) {
            return Err(self.ended_error());
        }
        let paths = state.node.path_status(self.handle);
        let found = paths.iter().rev().find(|status| status.name == name);
        found
            .map(|status| status.path)
            .ok_or_else(|| Error::UnknownPath(name.to_owned()))
    }
}

impl State {
    /// A socket for the path that leads to `toward`, or on which peers are accepted.
    pub(crate) fn add_local(
        &mut self,
        socket: BoundSocket,
        options: BindOptions,
        toward: Option<SocketAddr>,
    ) -> PathSocket {
        let id = LocalId(self.next_local);
        self.next_local += 1;
        self.node.add_local(id, toward.is_none());
        let problem = SocketProblem::default();
        let interface = options.interface.clone();
        problem.set(socket.as_ref().err());
        let new = NewSocket {
            socket: socket.ok(),
            options,
            toward,
            problem: problem.clone(),
        };
        self.socket_commands
            .push(SocketCommand::Add(id, Box::new(new)));
        PathSocket {
            id,
            problem,
            interface,
        }
    }

    /// Whether the session is open, or was.
    pub(crate) fn is_open(&self, session: SessionHandle) -> bool {
        let entry = self.sessions.get(&session);
        entry.is_some_and(|entry| entry.shared.established_at.get().is_some())
    }

    /// Who is at the other end of a session, for the log.
    pub(crate) fn peer_name(&self, session: SessionHandle) -> String {
        let peer = self.sessions.get(&session).map(|entry| entry.shared.peer);
        peer.map_or_else(String::new, |peer| {
            let name = self.peer_names.get(&peer).cloned();
            name.unwrap_or_else(|| peer.to_string())
        })
    }

    pub(crate) fn remove_local(&mut self, local: LocalId, shared: &Arc<Shared>) {
        self.probers.leave(Follower::Socket(local), shared);
        self.socket_commands.push(SocketCommand::Remove(local));
    }

    /// Ends a session for everyone who waits on it.
    pub(crate) fn end_session(
        &mut self,
        handle: SessionHandle,
        error: Option<Error>,
        shared: &Arc<Shared>,
    ) {
        let Some(entry) = self.sessions.remove(&handle) else {
            return;
        };
        for path in entry.own_paths.into_values() {
            self.remove_local(path.socket.id, shared);
        }
        self.probers.leave_session(handle, shared);
        for blocks in entry.blocks.values() {
            blocks.close();
        }
        for bytes in entry.bytes.into_values() {
            self.woken
                .extend(bytes.reader.into_iter().chain(bytes.writer));
        }
        entry.shared.incoming.close();
        let reason = error.as_ref().map(ToString::to_string);
        entry.shared.end.send_replace(Some(SessionEnd { reason }));
        if let Some(connecting) = entry.connecting {
            let error = error.unwrap_or(Error::SessionEnded { reason: None });
            let _ = connecting.send(Err(error));
        }
    }

    /// Ends every session and says so to the peers.
    pub(crate) fn close_all(&mut self, reason: &str, shared: &Arc<Shared>) {
        self.closing = true;
        let handles: Vec<_> = self.sessions.keys().copied().collect();
        for handle in handles {
            self.close_session(handle, reason, shared);
        }
    }

    pub(crate) fn close_session(
        &mut self,
        handle: SessionHandle,
        reason: &str,
        shared: &Arc<Shared>,
    ) {
        if let Some(entry) = self.sessions.get(&handle) {
            let now = Instant::now();
            if let Some(machine) = self.node.session(handle) {
                machine.close(now);
                entry.shared.keep_ended(machine.take_ended_streams());
            }
            self.node.close(now, handle, reason);
            self.end_session(handle, None, shared);
        }
    }
}

impl SessionEntry {
    pub(crate) fn new(shared: Arc<SessionShared>) -> Self {
        Self {
            shared,
            connecting: None,
            accepted: false,
            own_paths: BTreeMap::new(),
            down: BTreeMap::new(),
            outcomes: HashMap::new(),
            blocks: HashMap::new(),
            bytes: HashMap::new(),
        }
    }

    /// Starts to follow a byte stream that the application holds.
    pub(crate) fn add_bytes(&mut self, stream: StreamId) {
        let entry = ByteEntry {
            reader: None,
            writer: None,
            reset: None,
            stopped: watch::Sender::new(None),
            halves: 2,
        };
        self.bytes.insert(stream, entry);
    }
}
