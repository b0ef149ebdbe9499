//! One session: its streams and its paths.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use bytes::Bytes;
use starhaul_net::prober::ProberStatus;
use starhaul_quic::{PathStatus, PublicKey};
use starhaul_session::{Mode, StreamConfig, StreamStats};
use tokio::sync::oneshot;

use crate::{
    ByteStream, Error, IncomingStream, PathSpec, RecvStream, SendStream,
    paths::{bind, path_config},
    probers::Follower,
    state::{SessionShared, Shared, State},
};

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

    /// Who is at the other end, as proved by its key.
    pub fn peer(&self) -> PublicKey {
        self.session.peer
    }

    /// When the session was opened.
    pub fn established_at(&self) -> Instant {
        // Set before the application gets hold of the session.
        *self.session.established_at.get_or_init(Instant::now)
    }

    /// Opens a stream of blocks.
    ///
    /// # Errors
    /// Settings out of range, too many streams, or the session has ended. A `Reliable` stream is opened by [`Session::open_bytes`].
    pub async fn open_stream(&self, config: StreamConfig) -> Result<SendStream, Error> {
        if config.mode == Mode::Reliable {
            return Err(Error::NotBlocks);
        }
        let id = self.shared.with_session(&self.session, |machine, _, now| {
            Ok(machine.open_stream(now, config)?)
        })?;
        Ok(SendStream {
            shared: self.shared.clone(),
            session: self.session.clone(),
            id,
        })
    }

    /// Opens a reliable byte stream; the peer is told `label`.
    ///
    /// # Errors
    /// Too many streams, too long a label, or the session has ended.
    pub async fn open_bytes(&self, priority: u8, label: Bytes) -> Result<ByteStream, Error> {
        let config = StreamConfig {
            mode: Mode::Reliable,
            priority,
            ordered: true,
            label: label.clone(),
            // A byte stream has no deadline; sessions refuse one of zero.
            ..StreamConfig::default()
        };
        let id = self
            .shared
            .with_session(&self.session, |machine, entry, now| {
                let id = machine.open_stream(now, config)?;
                entry.add_bytes(id);
                Ok(id)
            })?;
        Ok(ByteStream::new(
            self.shared.clone(),
            self.session.clone(),
            id,
            label,
        ))
    }

    /// The next stream that the peer opens; `None` when the session has ended. Cancelling loses nothing.
    pub async fn accept_stream(&self) -> Option<IncomingStream> {
        let opened = self.session.incoming.pop().await?;
        let (shared, session) = (self.shared.clone(), self.session.clone());
        Some(match opened.blocks {
            Some(blocks) => IncomingStream::Blocks(RecvStream {
                shared,
                session,
                id: opened.id,
                config: opened.config,
                blocks,
            }),
            None => IncomingStream::Bytes(ByteStream::new(
                shared,
                session,
                opened.id,
                opened.config.label,
            )),
        })
    }

    /// Adds a path, which is tried until it is up, and again when it was lost.
    ///
    /// # Errors
    /// The session has ended, its side may not open paths, the name is taken, or the addresses are of different families.
    pub async fn add_path(&self, path: PathSpec) -> Result<(), Error> {
        let (socket, options) = bind(&path)?;
        let mut state = self.shared.lock();
        let taken = match state.sessions.get(&self.session.handle) {
            Some(entry) => entry.locals.contains_key(&path.name),
            None => return Err(self.session.ended_error()),
        };
        if taken {
            return Err(Error::DuplicatePath(path.name));
        }
        let local = state.add_local(socket, options, false);
        if let Some(detection) = &path.detection {
            let prober = detection.prober(&path);
            let follower = Follower::Socket(local.id);
            state.probers.follow(follower, prober, &self.shared);
        }
        let name = path.name.clone();
        let config = path_config(path, local.id);
        let added = state
            .node
            .add_path(Instant::now(), self.session.handle, config);
        match (added, state.sessions.get_mut(&self.session.handle)) {
            (Ok(_), Some(entry)) => _ = entry.locals.insert(name, local),
            (Err(error), _) => {
                state.remove_local(local.id, &self.shared);
                return Err(error.into());
            }
            (Ok(_), None) => state.remove_local(local.id, &self.shared),
        }
        drop(state);
        self.shared.wake_driver();
        Ok(())
    }

    /// Removes the path of this name. What was on it is sent again on the others.
    ///
    /// # Errors
    /// No such path, or the session has ended.
    pub async fn remove_path(&self, name: &str) -> Result<(), Error> {
        let mut state = self.shared.lock();
        let handle = self.session.handle;
        let path = self.session.path(&mut state, name)?;
        state.node.remove_path(Instant::now(), handle, path)?;
        let entry = state.sessions.get_mut(&handle);
        let local = entry.and_then(|entry| {
            entry.down.remove(name);
            entry.locals.remove(name)
        });
        if let Some(local) = local {
            state.remove_local(local.id, &self.shared);
        }
        drop(state);
        self.shared.wake_driver();
        Ok(())
    }

    /// The paths and their figures now; empty when the session has ended.
    pub fn path_status(&self) -> Vec<PathStatus> {
        let mut state = self.shared.lock();
        match state.sessions.contains_key(&self.session.handle) {
            true => state.node.path_status(self.session.handle),
            false => Vec::new(),
        }
    }

    /// Why paths that are down are, by their names: their socket's trouble, or what ended or prevented the connection.
    pub fn path_problems(&self) -> BTreeMap<String, String> {
        let state = self.shared.lock();
        let Some(entry) = state.sessions.get(&self.session.handle) else {
            return BTreeMap::new();
        };
        let mut problems = entry.down.clone();
        for (name, socket) in &entry.locals {
            problems.extend(socket.problem.read().map(|problem| (name.clone(), problem)));
        }
        problems
    }

    /// How the probers at our end of the paths fare, by the names of the paths that have one.
    pub fn path_probers(&self) -> BTreeMap<String, ProberStatus> {
        let mut state = self.shared.lock();
        let handle = self.session.handle;
        if !state.sessions.contains_key(&handle) {
            return BTreeMap::new();
        }
        let paths = state.node.path_status(handle);
        let State {
            sessions, probers, ..
        } = &*state;
        let locals = sessions.get(&handle).map(|entry| &entry.locals);
        let status = |path: PathStatus| {
            let socket = locals.and_then(|locals| locals.get(&path.name));
            let follower = match socket {
                Some(socket) => Follower::Socket(socket.id),
                None => Follower::Accepted(handle, path.path),
            };
            Some((path.name, probers.status(follower)?))
        };
        paths.into_iter().filter_map(status).collect()
    }

    /// The counters of every stream that has not ended; empty when the session has ended.
    pub fn stream_stats(&self) -> Vec<StreamStats> {
        let mut state = self.shared.lock();
        let machine = state.node.session(self.session.handle);
        machine.map_or_else(Vec::new, |machine| machine.stream_stats())
    }

    /// Resolves when the session has ended, with the reason if something was wrong.
    pub async fn closed(&self) -> Option<String> {
        let mut end = self.session.end.subscribe();
        let end = end.wait_for(Option::is_some).await.ok()?;
        end.as_ref().and_then(|end| end.reason.clone())
    }

    /// Closes in order, tells the peer why, and returns when that has been sent.
    /// What is still on its way is lost: blocks end as `Failed`, byte streams fail.
    pub async fn close(&self, reason: &str) {
        let (sent, flushed) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            if state.ended {
                return;
            }
            state.close_session(self.session.handle, reason, &self.shared);
            state.flush_waiters.push(sent);
        }
        self.shared.wake_driver();
        // Fails when the driver has ended, and then all has been sent.
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
