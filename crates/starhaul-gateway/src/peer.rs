//! Sessions with peers while they live, and which of them a rule uses.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use starhaul_endpoint::{PublicKey, RecvStream, Session, StreamStats};
use tokio::sync::{mpsc, watch};

use crate::{
    ledger::{Group, Ledger, Totals},
    limits::{Limits, Seldom},
    path_names::{PathNames, Unresolved},
    policy::NotSent,
};

/// Reply streams of one flow that may wait; there is one, unless the peer errs.
const WAITING_REPLIES: usize = 2;

/// A session with a peer, and the flows that we opened in it.
#[derive(Debug)]
pub(crate) struct PeerSession {
    pub(crate) peer: String,
    pub(crate) inner: Session,
    pub(crate) opened_by_us: bool,
    /// Streams of the peer that were refused: unreadable label, forbidden target, or too many.
    pub(crate) refused: AtomicU64,
    pub(crate) log: Arc<PeerLog>,
    limits: Arc<Limits>,
    /// Received blocks that were dropped, as far as it was told.
    dropped: AtomicU64,
    next_flow: AtomicU64,
    flows: Mutex<HashMap<u64, mpsc::Sender<RecvStream>>>,
}

/// What a peer can make us write, and so must not be written each time.
#[derive(Debug, Default)]
pub(crate) struct PeerLog {
    /// Streams of its that were refused.
    pub(crate) refused: Seldom,
    /// Targets that it asked for in vain.
    pub(crate) forbidden: Seldom,
    /// Blocks of its that are no frames.
    pub(crate) frames: Seldom,
}

/// A flow of ours that waits for replies, until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenFlow {
    pub(crate) id: u64,
    pub(crate) replies: mpsc::Receiver<RecvStream>,
    session: Arc<PeerSession>,
}

impl PeerSession {
    pub(crate) fn new(
        peer: &PeerState,
        session: Session,
        opened_by_us: bool,
        limits: &Arc<Limits>,
    ) -> Self {
        Self {
            peer: peer.name.clone(),
            inner: session,
            opened_by_us,
            refused: AtomicU64::new(0),
            log: peer.log.clone(),
            limits: limits.clone(),
            dropped: AtomicU64::new(0),
            next_flow: AtomicU64::new(0),
            flows: Mutex::default(),
        }
    }

    /// Numbers a flow, to which the peer's replies are then handed.
    pub(crate) fn open_flow(self: &Arc<Self>) -> OpenFlow {
        let id = self.next_flow.fetch_add(1, Ordering::Relaxed);
        let (sender, replies) = mpsc::channel(WAITING_REPLIES);
        self.flows.lock().insert(id, sender);
        OpenFlow {
            id,
            replies,
            session: self.clone(),
        }
    }

    /// Counts it when a bound of the session is why it refused something.
    pub(crate) fn note(&self, error: &starhaul_endpoint::Error) {
        self.limits.note(&self.peer, error);
    }

    /// The same of a block.
    pub(crate) fn note_unsent(&self, error: &NotSent) {
        if let NotSent::Refused(error) = error {
            self.note(error);
        }
    }

    /// Counts the received blocks that were dropped since this was called last.
    pub(crate) fn note_dropped(&self) {
        let now = self.inner.dropped_blocks();
        let before = self.dropped.fetch_max(now, Ordering::Relaxed);
        let new = now.saturating_sub(before);
        self.limits.note_received(&self.peer, new);
    }

    /// Hands a reply stream to its flow; `false` when that is gone, as after its timeout.
    pub(crate) fn deliver_reply(&self, flow: u64, stream: RecvStream) -> bool {
        let sender = self.flows.lock().get(&flow).cloned();
        sender.is_some_and(|sender| sender.try_send(stream).is_ok())
    }
}

impl Drop for OpenFlow {
    fn drop(&mut self) {
        self.session.flows.lock().remove(&self.id);
    }
}

/// A peer of the configuration with its sessions.
#[derive(Debug)]
pub(crate) struct PeerState {
    pub(crate) name: String,
    pub(crate) public_key: PublicKey,
    sessions: Mutex<Vec<Arc<PeerSession>>>,
    newest: watch::Sender<Option<Arc<PeerSession>>>,
    attempts: Mutex<Attempts>,
    /// Names of the paths that a session with it is to have.
    configured_paths: Mutex<Vec<String>>,
    ledger: Mutex<Ledger>,
    path_names: Mutex<Option<Arc<PathNames>>>,
    pub(crate) log: Arc<PeerLog>,
}

/// How opening a session went lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempts {
    /// Since the last success.
    pub(crate) failed: u64,
    pub(crate) last_error: Option<String>,
}

impl PeerState {
    pub(crate) fn new(name: &str, public_key: PublicKey) -> Self {
        Self {
            name: name.to_owned(),
            public_key,
            sessions: Mutex::default(),
            newest: watch::Sender::new(None),
            attempts: Mutex::default(),
            configured_paths: Mutex::default(),
            ledger: Mutex::default(),
            path_names: Mutex::default(),
            log: Arc::default(),
        }
    }

    /// A session began.
    pub(crate) fn add(&self, session: Arc<PeerSession>) {
        let mut sessions = self.sessions.lock();
        sessions.push(session.clone());
        self.newest.send_replace(Some(session));
    }

    /// A session ended.
    pub(crate) fn remove(&self, session: &Arc<PeerSession>) {
        self.settle(session);
        let mut sessions = self.sessions.lock();
        sessions.retain(|other| !Arc::ptr_eq(other, session));
        self.newest.send_replace(sessions.last().cloned());
    }

    /// The session that new flows use: the newest one.
    pub(crate) fn session(&self) -> Option<Arc<PeerSession>> {
        self.newest.borrow().clone()
    }

    /// The same; waits for a session to be opened, at most so long.
    pub(crate) async fn session_within(&self, wait: Duration) -> Option<Arc<PeerSession>> {
        let mut newest = self.newest.subscribe();
        let session = tokio::time::timeout(wait, newest.wait_for(Option::is_some)).await;
        session.ok()?.ok()?.clone()
    }

    /// Waits for a session.
    pub(crate) async fn wait_for_session(&self) {
        // The sender lives as long as we do.
        let _ = self.newest.subscribe().wait_for(Option::is_some).await;
    }

    /// What ended in a session, which may be gone already, is counted.
    pub(crate) fn settle(&self, session: &PeerSession) {
        self.ledger
            .lock()
            .collect(&session.inner, session.opened_by_us);
    }

    /// The streams of all sessions now, and what all that there ever were have carried.
    pub(crate) fn streams(&self) -> Streams {
        // Held meanwhile, so that no stream is counted among the open and the ended ones.
        let mut ledger = self.ledger.lock();
        let sessions = self.sessions();
        let open: Vec<_> = sessions
            .into_iter()
            .map(|session| {
                let streams = ledger.collect(&session.inner, session.opened_by_us);
                (session, streams)
            })
            .collect();
        let now = open.iter().flat_map(|(session, streams)| {
            let open = streams.iter().filter(|stats| !stats.ended);
            open.map(|stats| (stats, session.opened_by_us))
        });
        let groups = ledger.with_open(now);
        Streams { open, groups }
    }

    /// Names of the paths that a session with the peer is to have; none where we open none.
    pub(crate) fn configured_paths(&self) -> Vec<String> {
        self.configured_paths.lock().clone()
    }

    pub(crate) fn set_configured_paths(&self, names: Vec<String>) {
        *self.configured_paths.lock() = names;
    }

    /// All sessions with the peer.
    pub(crate) fn sessions(&self) -> Vec<Arc<PeerSession>> {
        self.sessions.lock().clone()
    }

    /// Opening a session failed; gives how often in a row.
    pub(crate) fn connect_failed(&self, error: String) -> u64 {
        let mut attempts = self.attempts.lock();
        attempts.failed += 1;
        attempts.last_error = Some(error);
        attempts.failed
    }

    /// Opening a session succeeded.
    pub(crate) fn connected(&self) {
        *self.attempts.lock() = Attempts::default();
    }

    pub(crate) fn attempts(&self) -> Attempts {
        self.attempts.lock().clone()
    }

    /// The paths of the session that we keep open with it; `None` when we keep none any more.
    pub(crate) fn set_path_names(&self, names: Option<Arc<PathNames>>) {
        *self.path_names.lock() = names;
    }

    /// The paths of that session that cannot be opened because their names have no address.
    pub(crate) fn unresolved_paths(&self) -> Vec<Unresolved> {
        let names = self.path_names.lock().clone();
        names.map_or_else(Vec::new, |names| names.unresolved())
    }
}

/// The streams with a peer.
pub(crate) struct Streams {
    /// Of each session, those open and the last few that have ended.
    pub(crate) open: Vec<(Arc<PeerSession>, Vec<StreamStats>)>,
    /// All that there ever were.
    pub(crate) groups: BTreeMap<Group, Totals>,
}

impl PeerSession {
    pub(crate) fn age(&self) -> Duration {
        Instant::now().saturating_duration_since(self.inner.established_at())
    }
}
