//! What the applications' tasks and the driver's thread share: bytes on their way from one to the other.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use starhaul_leotp::{Outcome, Stats};
use tokio::sync::watch;

/// Bytes of a stream that wait here in each direction at most, and what each may have at least; others wait in the node, which limits them.
const MOST_WAITING: usize = 256 << 10;
const LEAST_WAITING: usize = 16 << 10;

/// The state, and how the driver learns of changes.
pub(super) struct ChainShared {
    state: Mutex<ChainState>,
    driver: starhaul_net::Waker,
    has_ended: watch::Sender<bool>,
}

/// State of all streams, which the driver and the applications share.
#[derive(Default)]
pub(super) struct ChainState {
    pub(super) entries: BTreeMap<u64, StreamState>,
    next: u64,
    /// Streams to open, with their headers.
    pub(super) opening: Vec<(u64, Bytes)>,
    /// Streams of which the driver has something to do.
    pub(super) changed: BTreeSet<u64>,
    /// Open streams, and those since the start.
    pub(super) streams: (u64, u64),
    pub(super) node: Stats,
    /// Whether each neighbour is there.
    pub(super) up: Vec<bool>,
    /// No more streams are opened or accepted.
    pub(super) is_abandoned: bool,
    /// Streams are not waited for.
    pub(super) is_closed: bool,
    /// The driver has ended.
    pub(super) is_over: bool,
    /// Bytes that may wait here in each direction of all streams.
    waiting_bytes: usize,
}

/// State of one stream.
pub(super) struct StreamState {
    pub(super) inbound: VecDeque<Bytes>,
    pub(super) inbound_bytes: usize,
    /// The driver waits for room in `inbound`.
    pub(super) is_full: bool,
    /// Nothing follows `inbound`.
    pub(super) has_ended: bool,
    /// The reader was dropped: bytes that come are thrown away.
    pub(super) discards: bool,
    pub(super) outbound: VecDeque<Bytes>,
    pub(super) outbound_bytes: usize,
    /// Nothing follows `outbound`.
    pub(super) is_finished: bool,
    pub(super) reset: Option<u64>,
    pub(super) outcome: Option<Outcome>,
    pub(super) is_closed: watch::Sender<bool>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    halves: u8,
}

impl ChainShared {
    /// `waiting_bytes`: what may wait here in each direction of all streams.
    pub(super) fn new(driver: starhaul_net::Waker, waiting_bytes: usize) -> Self {
        let state = ChainState {
            waiting_bytes,
            ..ChainState::default()
        };
        Self {
            state: Mutex::new(state),
            driver,
            has_ended: watch::Sender::new(false),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ChainState> {
        self.state.lock()
    }

    pub(super) fn wake_driver(&self) {
        self.driver.wake();
    }

    pub(super) fn abandon(&self) {
        self.lock().is_abandoned = true;
        self.wake_driver();
    }

    pub(super) fn close(&self) {
        let mut state = self.lock();
        (state.is_abandoned, state.is_closed) = (true, true);
        drop(state);
        self.wake_driver();
    }

    /// The driver has ended.
    pub(super) fn end(&self, outcome: Outcome) {
        let mut state = self.lock();
        state.is_over = true;
        (state.streams.0, state.up) = (0, Vec::new());
        let keys: Vec<u64> = state.entries.keys().copied().collect();
        keys.into_iter().for_each(|key| state.close(key, outcome));
        drop(state);
        self.has_ended.send_replace(true);
    }

    /// Waits for the end of the driver.
    pub(super) async fn ended(&self) {
        let mut has_ended = self.has_ended.subscribe();
        // The sender is here.
        let _ = has_ended.wait_for(|has_ended| *has_ended).await;
    }

    pub(super) fn open(&self, header: Bytes) -> io::Result<u64> {
        let mut state = self.lock();
        if state.is_over || state.is_abandoned {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let key = state.add();
        state.opening.push((key, header));
        drop(state);
        self.wake_driver();
        Ok(key)
    }

    /// Changes a stream, given what of it may wait here, and tells the driver if that returns `true` beside its result.
    pub(super) fn with<T>(
        &self,
        key: u64,
        act: impl FnOnce(&mut StreamState, usize) -> (T, bool),
    ) -> Option<T> {
        let mut state = self.lock();
        let most = state.most_waiting();
        let (done, is_news) = act(state.entries.get_mut(&key)?, most);
        let is_first = is_news && state.changed.insert(key);
        drop(state);
        if is_first {
            self.wake_driver();
        }
        Some(done)
    }

    /// A half is gone.
    pub(super) fn release(&self, key: u64) {
        let mut state = self.lock();
        let Some(entry) = state.entries.get_mut(&key) else {
            return;
        };
        entry.halves -= 1;
        if entry.halves == 0 && entry.outcome.is_some() {
            state.entries.remove(&key);
        }
    }
}

impl ChainState {
    /// Bytes of a stream that may wait here in each direction: less where there are many.
    pub(super) fn most_waiting(&self) -> usize {
        let part = self.waiting_bytes / self.entries.len().max(1);
        part.clamp(LEAST_WAITING, MOST_WAITING)
    }

    /// A stream that nothing has happened to.
    pub(super) fn add(&mut self) -> u64 {
        self.next += 1;
        self.entries.insert(self.next, StreamState::new());
        self.next
    }

    /// A stream is over.
    pub(super) fn close(&mut self, key: u64, outcome: Outcome) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        entry.outcome = Some(outcome);
        if outcome == Outcome::Done {
            entry.has_ended = true;
        } else {
            entry.is_closed.send_replace(true);
        }
        entry.outbound.clear();
        entry.outbound_bytes = 0;
        entry.wake_reader();
        entry.wake_writer();
        if entry.halves == 0 {
            self.entries.remove(&key);
        }
    }
}

impl StreamState {
    fn new() -> Self {
        Self {
            inbound: VecDeque::new(),
            inbound_bytes: 0,
            is_full: false,
            has_ended: false,
            discards: false,
            outbound: VecDeque::new(),
            outbound_bytes: 0,
            is_finished: false,
            reset: None,
            outcome: None,
            is_closed: watch::Sender::new(false),
            reader: None,
            writer: None,
            halves: 2,
        }
    }

    /// Why nothing can be carried any more, if the stream broke off.
    pub(super) fn failure(&self) -> Option<io::Error> {
        match self.outcome? {
            Outcome::Done => None,
            Outcome::Reset(_) => Some(io::ErrorKind::ConnectionReset.into()),
            Outcome::Refused(_) => Some(io::ErrorKind::ConnectionRefused.into()),
            Outcome::Silent => Some(io::Error::new(io::ErrorKind::TimedOut, Outcome::Silent)),
            why @ (Outcome::Unknown | Outcome::Broken) => {
                Some(io::Error::new(io::ErrorKind::NetworkUnreachable, why))
            }
        }
    }

    pub(super) fn wake_reader(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    pub(super) fn wake_writer(&mut self) {
        self.writer.take().into_iter().for_each(Waker::wake);
    }

    pub(super) fn wait_to_read<T>(&mut self, context: &Context<'_>) -> Poll<T> {
        self.reader = Some(context.waker().clone());
        Poll::Pending
    }

    pub(super) fn wait_to_write<T>(&mut self, context: &Context<'_>) -> Poll<T> {
        self.writer = Some(context.waker().clone());
        Poll::Pending
    }
}
