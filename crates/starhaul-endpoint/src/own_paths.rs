//! The paths that we opened: added, changed and removed while their session lives.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use starhaul_net::BindOptions;
use starhaul_quic::{PathStatus, SessionHandle};
use starhaul_session::PathId;

use crate::{
    Error, PathSpec, Session,
    paths::{BoundSocket, bind, path_config},
    probers::Follower,
    state::{OwnPath, Shared, State},
};

/// What [`Session::change_path`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathChange {
    /// Nothing: the path is as asked for.
    None,
    /// The path was changed on its living connection.
    InPlace,
    /// A new path takes the place of the old one.
    Replaced,
}

impl Session {
    /// Adds a path, which is tried until it is up, and again when it was lost.
    ///
    /// # Errors
    /// The session has ended, its side may not open paths, the name is taken, or the addresses are of different families.
    pub async fn add_path(&self, path: PathSpec) -> Result<(), Error> {
        let bound = bind(&path)?;
        let mut state = self.shared.lock();
        let entry = state.sessions.get(&self.session.handle);
        let entry = entry.ok_or_else(|| self.session.ended_error())?;
        let mut staying = entry.own_paths.values().filter(|own| !own.retiring);
        if staying.any(|own| own.spec.name == path.name) {
            return Err(Error::DuplicatePath(path.name));
        }
        self.add(&mut state, path, bound)?;
        drop(state);
        self.shared.wake_driver();
        Ok(())
    }

    /// Makes the path of this name what `path` says. Cost, controller and detection change on the living connection. Anything else
    /// makes a new connection: where another path is up the old one goes at once, else when the new one is up, or whichever
    /// path is first. What was on it is sent again on the others; streams notice nothing.
    ///
    /// # Errors
    /// No such path of ours, the session has ended, or the addresses are of different families; then nothing has changed.
    pub async fn change_path(&self, path: PathSpec) -> Result<PathChange, Error> {
        let handle = self.session.handle;
        {
            let mut state = self.shared.lock();
            let (id, old) = self.own_path(&mut state, &path.name)?;
            // The peer may have removed it.
            let is_there = |status: &PathStatus| status.path == id;
            let is_there = state.node.path_status(handle).iter().any(is_there);
            if is_there && old == path {
                return Ok(PathChange::None);
            }
            if is_there && old.leads_like(&path) {
                state.change_in_place(handle, id, path, &self.shared)?;
                drop(state);
                self.shared.wake_driver();
                return Ok(PathChange::InPlace);
            }
        }
        let bound = bind(&path)?;
        let mut state = self.shared.lock();
        let (id, old) = self.own_path(&mut state, &path.name)?;
        // Two sockets cannot have one port, nor a session too many paths: then the old path makes room.
        let in_the_way = old.shares_port(&path);
        if in_the_way {
            state.remove_own(Instant::now(), handle, id, &self.shared);
        }
        match self.add(&mut state, path.clone(), bound) {
            Err(Error::Transport(starhaul_quic::Error::TooManyPaths)) => {
                state.remove_own(Instant::now(), handle, id, &self.shared);
                self.add(&mut state, path.clone(), bind(&path)?)?;
            }
            other => other?,
        }
        state.retire(handle, id, &self.shared);
        drop(state);
        self.shared.wake_driver();
        Ok(PathChange::Replaced)
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
        state.forget_own(handle, path, &self.shared);
        drop(state);
        self.shared.wake_driver();
        Ok(())
    }

    /// Removes the path of this name once another one is up: at once where one is, or where the path itself is down.
    ///
    /// # Errors
    /// No such path of ours, or the session has ended.
    pub async fn retire_path(&self, name: &str) -> Result<(), Error> {
        let mut state = self.shared.lock();
        let (id, _) = self.own_path(&mut state, name)?;
        state.retire(self.session.handle, id, &self.shared);
        drop(state);
        self.shared.wake_driver();
        Ok(())
    }

    /// The newest path of this name that we opened and that is to stay.
    fn own_path(&self, state: &mut State, name: &str) -> Result<(PathId, PathSpec), Error> {
        let entry = state.sessions.get(&self.session.handle);
        let entry = entry.ok_or_else(|| self.session.ended_error())?;
        let mut own = entry.own_paths.iter().rev();
        own.find(|(_, own)| own.spec.name == name && !own.retiring)
            .map(|(id, own)| (*id, own.spec.clone()))
            .ok_or_else(|| Error::UnknownPath(name.to_owned()))
    }

    fn add(
        &self,
        state: &mut State,
        spec: PathSpec,
        (socket, options): (BoundSocket, BindOptions),
    ) -> Result<(), Error> {
        let handle = self.session.handle;
        let own = state.own_path(spec, socket, options, &self.shared);
        let local = own.socket.id;
        let config = path_config(own.spec.clone(), local);
        let added = state.node.add_path(Instant::now(), handle, config);
        match (added, state.sessions.get_mut(&handle)) {
            (Ok(id), Some(entry)) => _ = entry.own_paths.insert(id, own),
            (Ok(_), None) => state.remove_local(local, &self.shared),
            (Err(error), _) => {
                state.remove_local(local, &self.shared);
                return Err(error.into());
            }
        }
        Ok(())
    }
}

impl PathSpec {
    /// Whether the other is the same way, so that its connection can serve both.
    fn leads_like(&self, other: &Self) -> bool {
        let way = |spec: &Self| {
            (
                spec.local,
                spec.interface.clone(),
                spec.remote,
                spec.link,
                spec.name.clone(),
            )
        };
        way(self) == way(other)
    }

    /// Whether the sockets of both cannot be open at once.
    fn shares_port(&self, other: &Self) -> bool {
        let same_interface = match (&self.interface, &other.interface) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        };
        let same_address = |ours: SocketAddr, theirs: SocketAddr| {
            let wildcard = ours.ip().is_unspecified() || theirs.ip().is_unspecified();
            ours.port() != 0 && ours.port() == theirs.port() && (wildcard || ours == theirs)
        };
        let addresses = self.local.zip(other.local);
        same_interface && addresses.is_some_and(|(ours, theirs)| same_address(ours, theirs))
    }
}

impl State {
    /// The socket of a path of ours, and what watches its satellite hop.
    pub(crate) fn own_path(
        &mut self,
        spec: PathSpec,
        socket: BoundSocket,
        options: BindOptions,
        shared: &Arc<Shared>,
    ) -> OwnPath {
        let own = OwnPath {
            socket: self.add_local(socket, options, Some(spec.remote)),
            spec,
            retiring: false,
        };
        self.watch_own(&own, shared);
        own
    }

    fn watch_own(&mut self, own: &OwnPath, shared: &Arc<Shared>) {
        if let Some(detection) = &own.spec.detection {
            let follower = Follower::Socket(own.socket.id);
            let prober = own.spec.prober(detection);
            self.probers.follow(follower, prober, shared);
        }
    }

    fn change_in_place(
        &mut self,
        session: SessionHandle,
        path: PathId,
        spec: PathSpec,
        shared: &Arc<Shared>,
    ) -> Result<(), Error> {
        let now = Instant::now();
        let Self {
            node,
            sessions,
            probers,
            ..
        } = self;
        let entry = sessions.get_mut(&session);
        let Some(own) = entry.and_then(|entry| entry.own_paths.get_mut(&path)) else {
            return Err(Error::UnknownPath(spec.name));
        };
        if spec.cost.total_cmp(&own.spec.cost).is_ne() {
            node.set_path_cost(now, session, path, spec.cost)?;
        }
        if spec.controller != own.spec.controller {
            node.set_path_controller(now, session, path, spec.controller.clone())?;
        }
        if spec.detection != own.spec.detection {
            let follower = Follower::Socket(own.socket.id);
            probers.leave(follower, shared);
            if let Some(detection) = &spec.detection {
                probers.follow(follower, spec.prober(detection), shared);
            }
        }
        own.spec = spec;
        Ok(())
    }

    /// The path goes once another one is up, or now where it is of no use.
    fn retire(&mut self, session: SessionHandle, path: PathId, shared: &Arc<Shared>) {
        if let Some(entry) = self.sessions.get_mut(&session)
            && let Some(own) = entry.own_paths.get_mut(&path)
        {
            own.retiring = true;
        }
        self.remove_retired(session, Instant::now(), shared);
    }

    /// Removes the paths that are to go and are not needed any more.
    pub(crate) fn remove_retired(
        &mut self,
        session: SessionHandle,
        now: Instant,
        shared: &Arc<Shared>,
    ) {
        let Some(entry) = self.sessions.get(&session) else {
            return;
        };
        let retiring = entry.own_paths.iter().filter(|(_, own)| own.retiring);
        let retiring: Vec<_> = retiring.map(|(id, _)| *id).collect();
        if retiring.is_empty() {
            return;
        }
        let paths = self.node.path_status(session);
        let up: Vec<_> = paths.into_iter().filter(|path| path.up).collect();
        let replaced = up.iter().any(|path| !retiring.contains(&path.path));
        for id in retiring {
            if replaced || up.iter().all(|path| path.path != id) {
                self.remove_own(now, session, id, shared);
            }
        }
    }

    fn remove_own(
        &mut self,
        now: Instant,
        session: SessionHandle,
        path: PathId,
        shared: &Arc<Shared>,
    ) {
        // It may have gone already, by the peer's wish.
        let _ = self.node.remove_path(now, session, path);
        self.forget_own(session, path, shared);
    }

    /// The node has removed the path.
    fn forget_own(&mut self, session: SessionHandle, path: PathId, shared: &Arc<Shared>) {
        let entry = self.sessions.get_mut(&session);
        let own = entry.and_then(|entry| {
            entry.down.remove(&path);
            entry.own_paths.remove(&path)
        });
        if let Some(own) = own {
            self.remove_local(own.socket.id, shared);
        }
    }
}
