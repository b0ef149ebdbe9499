//! The state that the driver and the application share behind one lock: the protocol stack, and the tasks that wait for it.
//!
//! An application call changes the stack at once and, where that leaves something to do, wakes the driver, which sends and passes on events.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use parking_lot::{Mutex, MutexGuard};
use starhaul_log::Seldom;
use starhaul_net::{BindOptions, WireMeter};
use starhaul_quic::{LocalId, Node, PathSpec, PublicKey, SessionHandle, SignalTarget};
use starhaul_session::{
    BlockId, Outcome, PathId, Session, StreamConfig, StreamError, StreamId, StreamStats,
};
use tokio::sync::{oneshot, watch};

use crate::{
    Block, Detection, Error, Overload,
    inbox::{Inbox, Input},
    log_budget::LogBudget,
    paths::BoundSocket,
    probers::Probers,
    queue::{Bounds, Budget, Queue},
    refused::RefusedKeys,
    socket::{NewSocket, SocketProblem},
    waiting::{Waiter, Woken},
};

/// Greatest number of streams that wait for the application to accept them.
const MAX_UNACCEPTED_STREAMS: usize = 1024;

/// The shared part of an endpoint.
pub(crate) struct Shared {
    state: Mutex<State>,
    inbox: Inbox,
    /// The driver has looked at the state and found nothing to do. Set under the lock, see [`Shared::wake_driver`].
    rests: AtomicBool,
    /// How often the driver was to be woken, whether it rested or not.
    #[cfg(test)]
    pub(crate) wakes: std::sync::atomic::AtomicU64,
    pub(crate) incoming: Arc<Queue<Arc<SessionShared>>>,
}

/// The shared part of a session.
#[derive(Debug)]
pub(crate) struct SessionShared {
    pub(crate) handle: SessionHandle,
    pub(crate) peer: PublicKey,
    /// Set when the session is open.
    pub(crate) established_at: OnceLock<Instant>,
    pub(crate) incoming: Queue<OpenedStream>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) end: watch::Sender<Option<SessionEnd>>,
    /// Final figures of streams that ended with the session, until they are collected.
    ended: Mutex<Vec<StreamStats>>,
}

/// The end of a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionEnd {
    /// The reason; `None` if it was closed in order.
    pub(crate) reason: Option<String>,
}

/// A stream that the peer opened and the application has not accepted yet.
#[derive(Debug)]
pub(crate) struct OpenedStream {
    pub(crate) id: StreamId,
    pub(crate) config: StreamConfig,
    pub(crate) content: OpenedContent,
}

/// What the application needs of such a stream besides the session.
#[derive(Debug)]
pub(crate) enum OpenedContent {
    Blocks(Arc<Queue<Block>>),
    /// The bytes are read from the session itself.
    Bytes(Signs),
}

/// The state behind the lock.
pub(crate) struct State {
    pub(crate) node: Node,
    pub(crate) sessions: BTreeMap<SessionHandle, SessionEntry>,
    inbox: Inbox,
    /// Sessions that the application has not accepted yet.
    pub(crate) incoming: Arc<Queue<Arc<SessionShared>>>,
    pub(crate) closing: bool,
    /// The driver has ended.
    pub(crate) ended: bool,
    /// Notified when everything queued has been sent.
    pub(crate) flush_waiters: Vec<oneshot::Sender<()>>,
    /// Notified when the driver ends.
    pub(crate) end_waiters: Vec<oneshot::Sender<()>>,
    /// To be woken once the lock is free.
    pub(crate) woken: Woken,
    /// Queues with blocks of which those who wait are to be told then: once for all, and when they can have all.
    pub(crate) filled: Vec<Filled>,
    pub(crate) next_local: u32,
    /// Bounds of the received blocks of each stream.
    pub(crate) block_bounds: Bounds,
    /// Names of peers for the log.
    pub(crate) peer_names: HashMap<PublicKey, String>,
    pub(crate) refused: RefusedKeys,
    pub(crate) refused_streams: Seldom,
    /// Paths that come and go.
    pub(crate) path_lines: LogBudget,
    pub(crate) probers: Probers,
    /// By peer and name of the path; there are as many as were configured.
    meters: HashMap<(PublicKey, String), WireMeter>,
    pub(crate) accepting: Accepting,
}

/// A queue to which blocks of a stream were added.
pub(crate) struct Filled {
    pub(crate) session: SessionHandle,
    pub(crate) stream: StreamId,
    pub(crate) blocks: Arc<Queue<Block>>,
}

/// The settings of paths that peers open.
#[derive(Default)]
pub(crate) struct Accepting {
    /// The listening sockets.
    pub(crate) locals: Vec<LocalId>,
    pub(crate) interface: Option<String>,
    pub(crate) detection: Option<Detection>,
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
    /// The path as specified.
    pub(crate) spec: PathSpec,
    pub(crate) socket: PathSocket,
    /// What passed the sockets of paths of its name.
    pub(crate) meter: WireMeter,
    /// It is removed as soon as another path is up.
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
    /// The reasons why paths are down.
    pub(crate) down: BTreeMap<PathId, String>,
    pub(crate) outcomes: HashMap<(StreamId, BlockId), oneshot::Sender<Outcome>>,
    pub(crate) blocks: HashMap<StreamId, Arc<Queue<Block>>>,
    pub(crate) bytes: HashMap<StreamId, ByteEntry>,
    /// What the application hears when the streams ask for more than the paths carry.
    pub(crate) overload: watch::Sender<Option<Overload>>,
    /// The warnings of the same.
    pub(crate) overloads: Seldom,
}

/// The tasks that wait on a byte stream.
pub(crate) struct ByteEntry {
    pub(crate) reader: Arc<Waiter>,
    pub(crate) writer: Arc<Waiter>,
    pub(crate) reset: Option<u32>,
    pub(crate) stopped: watch::Sender<Option<u32>>,
}

/// What the halves of a byte stream know without the lock.
#[derive(Debug)]
pub(crate) struct Signs {
    /// The code with which the peer has stopped reading.
    pub(crate) stopped: watch::Receiver<Option<u32>>,
    /// Where the reader's task waits.
    pub(crate) reader: Arc<Waiter>,
    /// Where the writer's does.
    pub(crate) writer: Arc<Waiter>,
}

impl Shared {
    pub(crate) fn new(
        node: Node,
        inbox: Inbox,
        max_sessions: usize,
        block_bounds: Bounds,
        peer_names: HashMap<PublicKey, String>,
    ) -> Self {
        let incoming = Arc::new(Queue::of_items(max_sessions));
        let state = State {
            node,
            sessions: BTreeMap::new(),
            inbox: inbox.clone(),
            incoming: incoming.clone(),
            closing: false,
            ended: false,
            flush_waiters: Vec::new(),
            end_waiters: Vec::new(),
            woken: Woken::default(),
            filled: Vec::new(),
            next_local: 0,
            block_bounds,
            peer_names,
            refused: RefusedKeys::default(),
            refused_streams: Seldom::default(),
            path_lines: LogBudget::default(),
            probers: Probers::new(inbox.clone()),
            meters: HashMap::new(),
            accepting: Accepting::default(),
        };
        Self {
            state: Mutex::new(state),
            inbox,
            rests: AtomicBool::new(false),
            #[cfg(test)]
            wakes: Default::default(),
            incoming,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Lets the driver act on what the caller has changed under the lock; call it when the lock is free again.
    ///
    /// A driver that does not rest looks at the state once more before it does, and so sees the change: it says that it rests under the
    /// lock under which it looked, and the caller, who changed the state later, cannot miss that. The system call is saved.
    pub(crate) fn wake_driver(&self) {
        #[cfg(test)]
        self.wakes.fetch_add(1, Ordering::Relaxed);
        if self.rests.load(Ordering::Acquire) {
            self.inbox.wake();
        }
    }

    /// The driver will wait for a wake. It holds the lock, and has found nothing to do since it took it.
    pub(crate) fn rest(&self, _state: &MutexGuard<'_, State>) {
        self.rests.store(true, Ordering::Release);
    }

    /// The driver has waited, and will look at the state before it rests again.
    pub(crate) fn rise(&self) {
        self.rests.store(false, Ordering::Release);
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
        // Thousands of tasks may repeat the attempt to open a stream that the peer does not accept yet.
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

    /// The path of this name; the newer one while one replaces another.
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
    /// Adds a socket for a path to `toward`, or for accepting peers.
    pub(crate) fn add_local(
        &mut self,
        socket: BoundSocket,
        options: BindOptions,
        toward: Option<SocketAddr>,
        meter: WireMeter,
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
            meter,
        };
        self.inbox.send(Input::AddSocket(id, Box::new(new)));
        PathSocket {
            id,
            problem,
            interface,
        }
    }

    /// Counts what passes the sockets of our paths of this name to this peer, in all their lives.
    pub(crate) fn wire_meter(&mut self, peer: PublicKey, path: &str) -> &WireMeter {
        self.meters.entry((peer, path.to_owned())).or_default()
    }

    /// Whether the session is open, or was.
    pub(crate) fn is_open(&self, session: SessionHandle) -> bool {
        let entry = self.sessions.get(&session);
        entry.is_some_and(|entry| entry.shared.established_at.get().is_some())
    }

    /// The name of a session's peer for the log.
    pub(crate) fn peer_name(&self, session: SessionHandle) -> String {
        let peer = self.sessions.get(&session).map(|entry| entry.shared.peer);
        peer.map_or_else(String::new, |peer| {
            let name = self.peer_names.get(&peer).cloned();
            name.unwrap_or_else(|| peer.to_string())
        })
    }

    pub(crate) fn remove_local(&mut self, local: LocalId) {
        self.probers.leave(SignalTarget::Local(local));
        self.inbox.send(Input::RemoveSocket(local));
    }

    /// Ends a session for all tasks that wait on it.
    pub(crate) fn end_session(&mut self, handle: SessionHandle, error: Option<Error>) {
        let Some(entry) = self.sessions.remove(&handle) else {
            return;
        };
        for path in entry.own_paths.into_values() {
            self.remove_local(path.socket.id);
        }
        self.probers.leave_session(handle);
        for blocks in entry.blocks.values() {
            blocks.close();
        }
        for bytes in entry.bytes.into_values() {
            self.woken.add(bytes.reader.take());
            self.woken.add(bytes.writer.take());
        }
        entry.shared.incoming.close();
        let reason = error.as_ref().map(ToString::to_string);
        entry.shared.end.send_replace(Some(SessionEnd { reason }));
        if let Some(connecting) = entry.connecting {
            let error = error.unwrap_or(Error::SessionEnded { reason: None });
            let _ = connecting.send(Err(error));
        }
    }

    /// Ends every session and informs the peers.
    pub(crate) fn close_all(&mut self, reason: &str) {
        self.closing = true;
        let handles: Vec<_> = self.sessions.keys().copied().collect();
        for handle in handles {
            self.close_session(handle, reason);
        }
    }

    pub(crate) fn close_session(&mut self, handle: SessionHandle, reason: &str) {
        if let Some(entry) = self.sessions.get(&handle) {
            let now = Instant::now();
            if let Some(machine) = self.node.session(handle) {
                machine.close(now);
                entry.shared.keep_ended(machine.take_ended_streams());
            }
            self.node.close(now, handle, reason);
            self.end_session(handle, None);
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
            overload: watch::channel(None).0,
            overloads: Seldom::default(),
        }
    }

    /// Adds a byte stream that the application holds; returns what its halves know of it.
    pub(crate) fn add_bytes(&mut self, stream: StreamId) -> Signs {
        let (entry, signs) = ByteEntry::new();
        self.bytes.insert(stream, entry);
        signs
    }
}

impl ByteEntry {
    /// An entry, and what the stream's halves know of it.
    pub(crate) fn new() -> (Self, Signs) {
        let (stopped, is_stopped) = watch::channel(None);
        let entry = Self {
            reader: Arc::default(),
            writer: Arc::default(),
            reset: None,
            stopped,
        };
        let signs = Signs {
            stopped: is_stopped,
            reader: entry.reader.clone(),
            writer: entry.writer.clone(),
        };
        (entry, signs)
    }
}
