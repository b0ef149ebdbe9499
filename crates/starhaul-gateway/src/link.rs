//! Sessions with peers while they live, and which of them a rule uses.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use starhaul_endpoint::{PublicKey, RecvStream, Session};
use tokio::sync::{mpsc, watch};

/// Reply streams of one flow that may wait; there is one, unless the peer errs.
const WAITING_REPLIES: usize = 2;

/// A session with a peer, and the flows that we opened in it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: String,
    pub(crate) session: Session,
    pub(crate) opened_by_us: bool,
    /// Streams of the peer that were refused: unreadable label, forbidden target, or too many.
    pub(crate) refused: AtomicU64,
    next_flow: AtomicU64,
    flows: Mutex<HashMap<u64, mpsc::Sender<RecvStream>>>,
}

/// A flow of ours that waits for replies, until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenFlow {
    pub(crate) id: u64,
    pub(crate) replies: mpsc::Receiver<RecvStream>,
    link: Arc<Link>,
}

impl Link {
    pub(crate) fn new(peer: &str, session: Session, opened_by_us: bool) -> Self {
        Self {
            peer: peer.to_owned(),
            session,
            opened_by_us,
            refused: AtomicU64::new(0),
            next_flow: AtomicU64::new(0),
            flows: Mutex::default(),
        }
    }

    /// Numbers a flow, to which the peer's replies are then handed.
    pub(crate) fn open_flow(self: &Arc<Self>) -> OpenFlow {
        let id = self.next_flow.fetch_add(1, Ordering::Relaxed);
        let (sender, replies) = mpsc::channel(WAITING_REPLIES);
        lock(&self.flows).insert(id, sender);
        OpenFlow {
            id,
            replies,
            link: self.clone(),
        }
    }

    /// Hands a reply stream to its flow; `false` when that is gone, as after its timeout.
    pub(crate) fn deliver_reply(&self, flow: u64, stream: RecvStream) -> bool {
        let sender = lock(&self.flows).get(&flow).cloned();
        sender.is_some_and(|sender| sender.try_send(stream).is_ok())
    }
}

impl Drop for OpenFlow {
    fn drop(&mut self) {
        lock(&self.link.flows).remove(&self.id);
    }
}

/// A peer of the configuration with its sessions.
#[derive(Debug)]
pub(crate) struct PeerState {
    pub(crate) name: String,
    pub(crate) public_key: PublicKey,
    links: Mutex<Vec<Arc<Link>>>,
    newest: watch::Sender<Option<Arc<Link>>>,
    attempts: Mutex<Attempts>,
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
            links: Mutex::default(),
            newest: watch::Sender::new(None),
            attempts: Mutex::default(),
        }
    }

    /// A session began.
    pub(crate) fn add(&self, link: Arc<Link>) {
        let mut links = lock(&self.links);
        links.push(link.clone());
        self.newest.send_replace(Some(link));
    }

    /// A session ended.
    pub(crate) fn remove(&self, link: &Arc<Link>) {
        let mut links = lock(&self.links);
        links.retain(|other| !Arc::ptr_eq(other, link));
        self.newest.send_replace(links.last().cloned());
    }

    /// The session that new flows use: the newest one.
    pub(crate) fn link(&self) -> Option<Arc<Link>> {
        self.newest.borrow().clone()
    }

    /// The same; waits for a session to be opened, at most so long.
    pub(crate) async fn link_within(&self, wait: Duration) -> Option<Arc<Link>> {
        let mut newest = self.newest.subscribe();
        let link = tokio::time::timeout(wait, newest.wait_for(Option::is_some)).await;
        link.ok()?.ok()?.clone()
    }

    /// Waits for a session.
    pub(crate) async fn wait_for_link(&self) {
        // The sender lives as long as we do.
        let _ = self.newest.subscribe().wait_for(Option::is_some).await;
    }

    /// All sessions with the peer.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        lock(&self.links).clone()
    }

    /// Opening a session failed; gives how often in a row.
    pub(crate) fn connect_failed(&self, error: String) -> u64 {
        let mut attempts = lock(&self.attempts);
        attempts.failed += 1;
        attempts.last_error = Some(error);
        attempts.failed
    }

    /// Opening a session succeeded.
    pub(crate) fn connected(&self) {
        *lock(&self.attempts) = Attempts::default();
    }

    pub(crate) fn attempts(&self) -> Attempts {
        lock(&self.attempts).clone()
    }
}

impl Link {
    pub(crate) fn age(&self) -> Duration {
        Instant::now().saturating_duration_since(self.session.established_at())
    }
}

/// What these locks guard is whole after every statement, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
