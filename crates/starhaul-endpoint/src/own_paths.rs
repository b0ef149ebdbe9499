//! The paths that we opened: added, changed and removed while their session lives.

use std::{net::SocketAddr, time::Instant};

use starhaul_net::BindOptions;
use starhaul_quic::{PathStatus, PublicKey, SessionHandle, SignalTarget};
use starhaul_session::PathId;

use crate::{
    Error, PathSpec, Session,
    paths::{BoundSocket, bind, own_prober},
    state::{OwnPath, State},
};

/// The result of [`Session::change_path`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathChange {
    /// Nothing: the path is as specified.
    None,
    /// The path was changed on its present connection.
    InPlace,
    /// A new path takes the place of the old one.
    Replaced,
}

impl Session {
    /// Adds a path, which is tried until it is up, and again when it is lost.
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

    /// Changes the path of this name to `path`. Cost, controller and detection change on the present connection. Anything else
    /// needs a new connection; the old one is closed as soon as any other path is up. Its data in flight are sent again on the
    /// others; streams notice nothing.
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
            if is_there && shares_connection(&old, &path) {
                state.change_in_place(handle, id, path)?;
                drop(state);
                self.shared.wake_driver();
                return Ok(PathChange::InPlace);
            }
        }
        let bound = bind(&path)?;
        let mut state = self.shared.lock();
        let (id, old) = self.own_path(&mut state, &path.name)?;
        // Two sockets cannot have one port, nor a session too many paths: then the old path makes room.
        let in_the_way = shares_port(&old, &path);
        if in_the_way {
            state.remove_own(Instant::now(), handle, id);
        }
        match self.add(&mut state, path.clone(), bound) {
            Err(Error::Transport(starhaul_quic::Error::TooManyPaths)) => {
                state.remove_own(Instant::now(), handle, id);
                self.add(&mut state, path.clone(), bind(&path)?)?;
            }
            other => other?,
        }
        state.retire(handle, id);
        drop(state);
        self.shared.wake_driver();
        Ok(PathChange::Replaced)
    }

    /// Removes the path of this name. Its data in flight are sent again on the others.
    ///
    /// # Errors
    /// No such path, or the session has ended.
    pub async fn remove_path(&self, name: &str) -> Result<(), Error> {
        let mut state = self.shared.lock();
        let handle = self.session.handle;
        let path = self.session.path(&mut state, name)?;
        state.node.remove_path(Instant::now(), handle, path)?;
        state.forget_own(handle, path);
        drop(state);
        self.shared.wake_driver();
        Ok(())
    }

    /// Removes the path of this name as soon as another one is up, or at once if the path itself is down.
    ///
    /// # Errors
    /// No such path of ours, or the session has ended.
    pub async fn retire_path(&self, name: &str) -> Result<(), Error> {
        let mut state = self.shared.lock();
        let (id, _) = self.own_path(&mut state, name)?;
        state.retire(self.session.handle, id);
        drop(state);
        self.shared.wake_driver();
        Ok(())
    }

    /// The newest path of this name that we opened and that is not retiring.
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
        let own = state.own_path(self.session.peer, spec, socket, options);
        let local = own.socket.id;
        let path = (local, own.spec.clone());
        let added = state.node.add_path(Instant::now(), handle, path);
        match (added, state.sessions.get_mut(&handle)) {
            (Ok(id), Some(entry)) => _ = entry.own_paths.insert(id, own),
            (Ok(_), None) => state.remove_local(local),
            (Err(error), _) => {
                state.remove_local(local);
                return Err(error.into());
            }
        }
        Ok(())
    }
}

/// Whether the connection of one can serve the other.
fn shares_connection(one: &PathSpec, other: &PathSpec) -> bool {
    let changeable = PathSpec {
        cost: one.cost,
        controller: one.controller.clone(),
        detection: one.detection,
        ..other.clone()
    };
    *one == changeable
}

/// Whether the sockets of both cannot be open at once.
fn shares_port(one: &PathSpec, other: &PathSpec) -> bool {
    let same_interface = match (&one.interface, &other.interface) {
        (Some(ours), Some(theirs)) => ours == theirs,
        _ => true,
    };
    let same_address = |ours: SocketAddr, theirs: SocketAddr| {
        let wildcard = ours.ip().is_unspecified() || theirs.ip().is_unspecified();
        ours.port() != 0 && ours.port() == theirs.port() && (wildcard || ours == theirs)
    };
    let addresses = one.local.zip(other.local);
    same_interface && addresses.is_some_and(|(ours, theirs)| same_address(ours, theirs))
}

impl State {
    /// Adds the socket of a path of ours, and its prober.
    pub(crate) fn own_path(
        &mut self,
        peer: PublicKey,
        spec: PathSpec,
        socket: BoundSocket,
        options: BindOptions,
    ) -> OwnPath {
        let meter = self.wire_meter(peer, &spec.name).clone();
        let own = OwnPath {
            socket: self.add_local(socket, options, Some(spec.remote), meter.clone()),
            spec,
            meter,
            retiring: false,
        };
        self.probe_own(&own);
        own
    }

    fn probe_own(&mut self, own: &OwnPath) {
        if let Some(prober) = own_prober(&own.spec) {
            let paths = SignalTarget::Local(own.socket.id);
            let meter = Some(own.meter.clone());
            self.probers.follow(paths, prober, meter);
        }
    }

    fn change_in_place(
        &mut self,
        session: SessionHandle,
        path: PathId,
        spec: PathSpec,
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
            let paths = SignalTarget::Local(own.socket.id);
            probers.leave(paths);
            if let Some(prober) = own_prober(&spec) {
                probers.follow(paths, prober, Some(own.meter.clone()));
            }
        }
        own.spec = spec;
        Ok(())
    }

    /// Removes the path as soon as another one is up, or now if it is down.
    fn retire(&mut self, session: SessionHandle, path: PathId) {
        if let Some(entry) = self.sessions.get_mut(&session)
            && let Some(own) = entry.own_paths.get_mut(&path)
        {
            own.retiring = true;
        }
        self.remove_retired(session, Instant::now());
    }

    /// Removes the retiring paths that are not needed any more.
    pub(crate) fn remove_retired(&mut self, session: SessionHandle, now: Instant) {
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
                self.remove_own(now, session, id);
            }
        }
    }

    fn remove_own(&mut self, now: Instant, session: SessionHandle, path: PathId) {
        // The peer may have removed it already.
        let _ = self.node.remove_path(now, session, path);
        self.forget_own(session, path);
    }

    /// The node has removed the path.
    fn forget_own(&mut self, session: SessionHandle, path: PathId) {
        let entry = self.sessions.get_mut(&session);
        let own = entry.and_then(|entry| {
            entry.down.remove(&path);
            entry.own_paths.remove(&path)
        });
        if let Some(own) = own {
            self.remove_local(own.socket.id);
        }
    }
}
