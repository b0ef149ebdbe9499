//! One session: its streams and its paths.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_net::prober::ProberStatus;
use starhaul_quic::{PathStatus, PublicKey, SignalTarget};
use starhaul_session::{
    Mode, PathId, SchedulerStatus, Session as Machine, StreamConfig, StreamError, StreamId,
    StreamStats,
};
use starhaul_units::Bandwidth;
use tokio::sync::{oneshot, watch};

use crate::{
    ByteStream, Error, IncomingStream, Overloads, RecvStream, SendStream,
    state::{OpenedContent, SessionEntry, SessionShared, Shared, State},
};

/// How long a call waits until the peer accepts another stream, and the least and greatest interval of its attempts.
const PEER_PATIENCE: Duration = Duration::from_secs(5);
const PEER_INTERVALS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(200)];

/// A session with one peer. Clones share it. It lives until one side closes it or its endpoint ends.
#[derive(Clone)]
pub struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) session: Arc<SessionShared>,
}

impl Session {
    /// A number that no other session of this endpoint has had.
    pub fn id(&self) -> u64 {
        self.session.handle.0
    }

    /// The peer, as proved by its key.
    pub fn peer(&self) -> PublicKey {
        self.session.peer
    }

    /// When the session was opened.
    pub fn established_at(&self) -> Instant {
        // Set before the application gets the session.
        *self.session.established_at.get_or_init(Instant::now)
    }

    /// Opens a stream of blocks.
    ///
    /// # Errors
    /// Settings out of range, too many streams, at this side or, for five seconds, at the peer, or the session has ended. A `Reliable`
    /// stream is opened by [`Session::open_bytes`].
    pub async fn open_stream(&self, config: StreamConfig) -> Result<SendStream, Error> {
        if config.mode == Mode::Reliable {
            return Err(Error::NotBlocks);
        }
        let open = |machine: &mut Machine, _: &mut SessionEntry, now| {
            Ok(machine.open_stream(now, config.clone())?)
        };
        let id = self.open_in_time(open).await?;
        Ok(SendStream {
            shared: self.shared.clone(),
            session: self.session.clone(),
            id,
        })
    }

    /// Opens a reliable byte stream with a label for the peer.
    ///
    /// # Errors
    /// Too many streams, at this side or, for five seconds, at the peer, too long a label, or the session has ended.
    pub async fn open_bytes(&self, priority: u8, label: Bytes) -> Result<ByteStream, Error> {
        let config = StreamConfig {
            mode: Mode::Reliable,
            priority,
            ordered: true,
            label: label.clone(),
            // A byte stream has no deadline; sessions refuse one of zero.
            ..StreamConfig::default()
        };
        let open = |machine: &mut Machine, entry: &mut SessionEntry, now| {
            let id = machine.open_stream(now, config.clone())?;
            Ok((id, entry.add_bytes(id)))
        };
        let (id, signs) = self.open_in_time(open).await?;
        let (shared, session) = (self.shared.clone(), self.session.clone());
        Ok(ByteStream::new(shared, session, id, label, signs))
    }

    /// Opens a stream; waits for a limited time if the peer accepts no more before its application has read others to their end.
    async fn open_in_time<T>(
        &self,
        mut open: impl FnMut(&mut Machine, &mut SessionEntry, Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let until = Instant::now() + PEER_PATIENCE;
        let [mut interval, longest] = PEER_INTERVALS;
        loop {
            match self.shared.with_session(&self.session, &mut open) {
                Err(Error::Stream(StreamError::PeerStreams)) if Instant::now() < until => {
                    tokio::time::sleep(interval).await;
                    interval = (interval * 2).min(longest);
                }
                opened => return opened,
            }
        }
    }

    /// The next stream that the peer opens; `None` when the session has ended. Cancelling loses nothing.
    pub async fn accept_stream(&self) -> Option<IncomingStream> {
        let opened = self.session.incoming.pop().await?;
        let (shared, session) = (self.shared.clone(), self.session.clone());
        Some(match opened.content {
            OpenedContent::Blocks(blocks) => IncomingStream::Blocks(RecvStream {
                shared,
                session,
                id: opened.id,
                config: opened.config,
                blocks,
            }),
            OpenedContent::Bytes(signs) => IncomingStream::Bytes(ByteStream::new(
                shared,
                session,
                opened.id,
                opened.config.label,
                signs,
            )),
        })
    }

    /// The paths and their figures now; empty when the session has ended.
    pub fn path_status(&self) -> Vec<PathStatus> {
        let mut state = self.shared.lock();
        match state.sessions.contains_key(&self.session.handle) {
            true => state.node.path_status(self.session.handle),
            false => Vec::new(),
        }
    }

    /// Hears of each moment from now on at which blocks find no room because the streams of this side ask for more than its paths carry:
    /// at most once a second, and with both rates, so that an application may send less. What each path carries at any time is in
    /// [`Session::path_status`].
    pub fn overloads(&self) -> Overloads {
        let state = self.shared.lock();
        let entry = state.sessions.get(&self.session.handle);
        let newest = entry.map(|entry| entry.overload.subscribe());
        Overloads::new(newest.unwrap_or_else(|| watch::channel(None).1))
    }

    /// Sets the greatest rate at which we send on the paths of this name, whichever side opened them; `None` for no bound. UDP payload
    /// is counted. The peer's direction is the peer's to bound.
    ///
    /// # Errors
    /// No such path, or the session has ended.
    pub fn set_rate_limit(&self, path: &str, limit: Option<Bandwidth>) -> Result<(), Error> {
        let mut state = self.shared.lock();
        let handle = self.session.handle;
        self.session.path(&mut state, path)?;
        for status in state.node.path_status(handle) {
            if status.name == path {
                let node = &mut state.node;
                node.set_path_rate_limit(Instant::now(), handle, status.path, limit)?;
            }
        }
        drop(state);
        self.shared.wake_driver();
        Ok(())
    }

    /// Who chooses the paths in our direction, and what was decided; `None` when the session has ended.
    pub fn scheduler_status(&self) -> Option<SchedulerStatus> {
        let state = self.shared.lock();
        state.node.scheduler_status(self.session.handle)
    }

    /// The number of received blocks that were dropped: there was no memory left to reassemble them (`max_receive_bytes`), or the
    /// application did not fetch them in time.
    pub fn dropped_blocks(&self) -> u64 {
        let mut state = self.shared.lock();
        let machine = state.node.session(self.session.handle);
        let incomplete = machine.map_or(0, |machine| machine.dropped_on_receipt());
        incomplete + self.session.budget.dropped()
    }

    /// Bytes that the session holds now: of its own streams until they are acknowledged, and of the peer's until they are whole
    /// and taken by their readers.
    pub fn held_bytes(&self) -> (usize, usize) {
        let mut state = self.shared.lock();
        let machine = state.node.session(self.session.handle);
        let (sending, received) = machine.map_or((0, 0), |machine| machine.held_bytes());
        let entry = state.sessions.get(&self.session.handle);
        let readers = entry.into_iter().flat_map(|entry| entry.bytes.values());
        let spare: usize = readers.map(|bytes| bytes.reader.spare_bytes()).sum();
        (sending, received + spare)
    }

    /// Streams whose bytes wait because the peer's application has not read those before.
    pub fn streams_without_credit(&self) -> Vec<StreamId> {
        let mut state = self.shared.lock();
        let machine = state.node.session(self.session.handle);
        machine.map_or_else(Vec::new, |machine| machine.streams_without_credit())
    }

    /// The reasons why paths are down: an error of the socket, or the cause that ended or prevented the connection.
    pub fn path_problems(&self) -> BTreeMap<PathId, String> {
        let state = self.shared.lock();
        let Some(entry) = state.sessions.get(&self.session.handle) else {
            return BTreeMap::new();
        };
        let mut problems = entry.down.clone();
        for (id, path) in &entry.own_paths {
            problems.extend(path.socket.problem.read().map(|problem| (*id, problem)));
        }
        problems
    }

    /// The status of the probers at our end of the paths.
    pub fn path_probers(&self) -> BTreeMap<PathId, ProberStatus> {
        let mut state = self.shared.lock();
        let handle = self.session.handle;
        if !state.sessions.contains_key(&handle) {
            return BTreeMap::new();
        }
        let paths = state.node.path_status(handle);
        let State {
            sessions, probers, ..
        } = &*state;
        let own = sessions.get(&handle).map(|entry| &entry.own_paths);
        let status = |path: PathStatus| {
            let own = own.and_then(|own| own.get(&path.path));
            let target = match own {
                Some(own) => SignalTarget::Local(own.socket.id),
                None => SignalTarget::Path(handle, path.path),
            };
            Some((path.path, probers.status(target)?))
        };
        paths.into_iter().filter_map(status).collect()
    }

    /// The counters of every stream that has not ended; empty when the session has ended.
    pub fn stream_stats(&self) -> Vec<StreamStats> {
        let mut state = self.shared.lock();
        let machine = state.node.session(self.session.handle);
        machine.map_or_else(Vec::new, |machine| machine.stream_stats())
    }

    /// The final figures of each stream that has ended since the last call, those that ended with the session included, and those
    /// of [`Session::stream_stats`] at the same moment. The sum of all the former and the latter misses nothing and counts nothing
    /// twice.
    pub fn collect_stream_stats(&self) -> (Vec<StreamStats>, Vec<StreamStats>) {
        let mut state = self.shared.lock();
        let mut ended = self.session.take_ended();
        let machine = state.node.session(self.session.handle);
        let now = machine.map_or_else(Vec::new, |machine| {
            ended.extend(machine.take_ended_streams());
            machine.stream_stats()
        });
        (ended, now)
    }

    /// Resolves when the session has ended, with the reason if something was wrong.
    pub async fn closed(&self) -> Option<String> {
        let mut end = self.session.end.subscribe();
        let end = end.wait_for(Option::is_some).await.ok()?;
        end.as_ref().and_then(|end| end.reason.clone())
    }

    /// Closes in order with a reason for the peer, and returns when that has been sent. Data in flight are lost: blocks end as
    /// `Failed`, byte streams fail.
    pub async fn close(&self, reason: &str) {
        let (sent, flushed) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            if state.ended {
                return;
            }
            state.close_session(self.session.handle, reason);
            state.flush_waiters.push(sent);
        }
        self.shared.wake_driver();
        // Fails when the driver has ended, and then everything has been sent.
        let _ = flushed.await;
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id())
            .field("peer", &self.peer())
            .finish_non_exhaustive()
    }
}
