//! The configured peers and their open sessions; new flows use the newest session, unless only an older one has a path.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use starhaul_endpoint::{LogBudget, PublicKey, RecvStream, Session, StreamStats};
use tokio::sync::{mpsc, watch};

use crate::{
    kept::Kept,
    ledger::{Group, Ledger, Totals},
    limits::{Limits, Seldom},
    path_ledger::{PathCounters, PathKey, PathLedger},
    path_names::{PathNames, Unresolved},
    path_orders::PathOrders,
    policy::NotSent,
    quota::keeper::Quotas,
};

/// Greatest number of waiting reply streams of one flow; a correct peer opens one.
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
    /// Received blocks that were dropped, as of the last [`PeerSession::note_dropped`].
    dropped: AtomicU64,
    next_flow: AtomicU64,
    flows: Mutex<HashMap<u64, mpsc::Sender<RecvStream>>>,
}

/// Log lines that a peer can cause, and that must not be written each time.
#[derive(Debug, Default)]
pub(crate) struct PeerLog {
    /// Refused streams of the peer.
    pub(crate) refused: Seldom,
    /// Targets that the peer asked for and may not reach.
    pub(crate) forbidden: Seldom,
    /// Services of this host that the peer asked for in a client's name.
    pub(crate) own_services: Seldom,
    /// Blocks of the peer that are no frames.
    pub(crate) frames: Seldom,
    /// Sessions with the peer that begin and end.
    pub(crate) sessions: Mutex<LogBudget>,
}

/// A flow that this side opened; it receives replies until it is dropped.
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

    /// Opens a flow with a new number, under which the peer's replies reach it.
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

    /// Counts the bound of the session that is the reason for `error`, if one is.
    pub(crate) fn note(&self, error: &starhaul_endpoint::Error) {
        self.limits.note(&self.peer, error);
    }

    /// As [`PeerSession::note`], for a block that was not sent.
    pub(crate) fn note_unsent(&self, error: &NotSent) {
        if let NotSent::Refused(error) = error {
            self.note(error);
        }
    }

    /// Counts the received blocks that were dropped since the last call.
    pub(crate) fn note_dropped(&self) {
        let now = self.inner.dropped_blocks();
        let before = self.dropped.fetch_max(now, Ordering::Relaxed);
        let new = now.saturating_sub(before);
        self.limits.note_received(&self.peer, new);
    }

    /// Passes a reply stream to its flow; `false` when the flow has ended, for example by its timeout.
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
    /// The session that new flows use.
    chosen: watch::Sender<Option<Arc<PeerSession>>>,
    pub(crate) attempts: Mutex<Attempts>,
    /// The paths of a session that this side keeps open, and what is ordered of all paths.
    pub(crate) orders: PathOrders,
    ledger: Mutex<Ledger>,
    path_ledger: Mutex<PathLedger>,
    /// The paths of the session that this side keeps open, if it keeps one.
    pub(crate) path_names: Mutex<Option<Arc<PathNames>>>,
    pub(crate) log: Arc<PeerLog>,
}

/// Recent attempts to open a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempts {
    /// Number of failures since the last success.
    pub(crate) failed: u64,
    pub(crate) last_error: Option<String>,
}

impl PeerState {
    pub(crate) fn new(
        name: &str,
        public_key: PublicKey,
        quotas: Arc<Quotas>,
        kept: Arc<Kept>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            public_key,
            sessions: Mutex::default(),
            chosen: watch::Sender::new(None),
            attempts: Mutex::default(),
            orders: PathOrders::new(name, public_key, quotas, kept),
            ledger: Mutex::default(),
            path_ledger: Mutex::default(),
            path_names: Mutex::default(),
            log: Arc::default(),
        }
    }

    /// Adds a session that was opened.
    pub(crate) fn add(&self, session: Arc<PeerSession>) {
        let mut sessions = self.sessions.lock();
        sessions.push(session.clone());
        self.chosen.send_replace(Some(session));
    }

    /// Removes a session that ended.
    pub(crate) fn remove(&self, session: &Arc<PeerSession>) {
        self.settle(session);
        let mut sessions = self.sessions.lock();
        sessions.retain(|other| !Arc::ptr_eq(other, session));
        self.chosen.send_if_modified(|chosen| {
            let is_gone = chosen
                .as_ref()
                .is_some_and(|chosen| Arc::ptr_eq(chosen, session));
            if is_gone {
                *chosen = sessions.last().cloned();
            }
            is_gone
        });
    }

    /// Chooses another session where the chosen one has no path and another one has; to be called often. With a `[[session]]` on both sides
    /// there are two, and the newest may be the one whose paths are gone.
    pub(crate) fn leave_silent_session(&self) {
        let sessions = self.sessions.lock();
        if sessions.len() < 2 {
            return;
        }
        let has_path = |session: &Arc<PeerSession>| {
            let paths = session.inner.path_status();
            paths.iter().any(|path| path.up)
        };
        if self.session().is_some_and(|chosen| has_path(&chosen)) {
            return;
        }
        if let Some(other) = sessions.iter().rev().find(|session| has_path(session)) {
            self.chosen.send_replace(Some(other.clone()));
        }
    }

    /// The session that new flows use: the newest one; once that has no path and another one has, the other, until that one has none.
    pub(crate) fn session(&self) -> Option<Arc<PeerSession>> {
        self.chosen.borrow().clone()
    }

    /// The session that new flows use; if there is none, waits for one, at most `wait`.
    pub(crate) async fn session_within(&self, wait: Duration) -> Option<Arc<PeerSession>> {
        let mut chosen = self.chosen.subscribe();
        let session = tokio::time::timeout(wait, chosen.wait_for(Option::is_some)).await;
        session.ok()?.ok()?.clone()
    }

    /// Waits until new flows use another session than this one, or none.
    pub(crate) async fn wait_for_other(&self, session: &Arc<PeerSession>) {
        let is_other = |chosen: &Option<Arc<PeerSession>>| {
            chosen
                .as_ref()
                .is_none_or(|chosen| !Arc::ptr_eq(chosen, session))
        };
        // The sender lives as long as `self`.
        let _ = self.chosen.subscribe().wait_for(is_other).await;
    }

    /// Waits for a session.
    pub(crate) async fn wait_for_session(&self) {
        // The sender lives as long as `self`.
        let _ = self.chosen.subscribe().wait_for(Option::is_some).await;
    }

    /// Adds the streams that ended in a session to the totals; the session may have ended itself.
    pub(crate) fn settle(&self, session: &PeerSession) {
        self.ledger
            .lock()
            .collect(&session.inner, session.opened_by_us);
    }

    /// The streams of all open sessions, and the totals of all streams since the start.
    pub(crate) fn streams(&self) -> Streams {
        // Locked meanwhile, so that no stream counts both as open and as ended.
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

    /// The totals of all paths to the peer since the start. What a session counted after the last call before its end is missed, so
    /// this is to be called often.
    pub(crate) fn path_totals(&self) -> BTreeMap<PathKey, PathCounters> {
        let mut ledger = self.path_ledger.lock();
        ledger.read(self.sessions().iter().flat_map(|session| {
            let (id, of_peer) = (session.inner.id(), !session.opened_by_us);
            let paths = session.inner.path_status().into_iter();
            paths.map(move |path| (id, of_peer, path))
        }));
        ledger.totals(&self.orders.all_names())
    }

    /// Names of the paths that there were since the start, and of those that are configured.
    pub(crate) fn path_names_known(&self) -> BTreeSet<String> {
        let mut names: BTreeSet<_> = self.path_totals().into_keys().map(|key| key.name).collect();
        names.extend(self.orders.all_names());
        names
    }

    /// Gives each present path the limit that is configured or ordered.
    pub(crate) fn enforce_limits(&self) {
        for session in self.sessions() {
            for path in session.inner.path_status() {
                let limit = self.orders.rate_limit(&path.name);
                if path.rate_limit != limit {
                    // Fails for a path that has gone meanwhile.
                    let _ = session.inner.set_rate_limit(&path.name, limit);
                }
            }
        }
    }

    /// Ends the paths at once that their quotas or hours put out of service; one that an order takes down stays until another one
    /// is up.
    pub(crate) async fn end_closed_paths(&self) {
        let closed = self.orders.closed_names();
        if closed.is_empty() {
            return;
        }
        for session in self
            .sessions()
            .iter()
            .filter(|session| session.opened_by_us)
        {
            for path in session.inner.path_status() {
                if closed.contains(&path.name) {
                    // Fails for a path that has gone meanwhile.
                    let _ = session.inner.remove_path(&path.name).await;
                }
            }
        }
    }

    /// All sessions with the peer.
    pub(crate) fn sessions(&self) -> Vec<Arc<PeerSession>> {
        self.sessions.lock().clone()
    }

    /// Counts a failed attempt to open a session; returns the number of failures in a row.
    pub(crate) fn connect_failed(&self, error: String) -> u64 {
        let mut attempts = self.attempts.lock();
        attempts.failed += 1;
        attempts.last_error = Some(error);
        attempts.failed
    }

    /// The paths of its session that cannot be opened because their names have no address.
    pub(crate) fn unresolved_paths(&self) -> Vec<Unresolved> {
        let names = self.path_names.lock().clone();
        names.map_or_else(Vec::new, |names| names.unresolved())
    }
}

/// The streams with a peer.
pub(crate) struct Streams {
    /// The streams of each session: the open ones and the last few that have ended.
    pub(crate) open: Vec<(Arc<PeerSession>, Vec<StreamStats>)>,
    /// The totals of all streams since the start.
    pub(crate) groups: BTreeMap<Group, Totals>,
}

impl PeerSession {
    pub(crate) fn age(&self) -> Duration {
        Instant::now().saturating_duration_since(self.inner.established_at())
    }
}
