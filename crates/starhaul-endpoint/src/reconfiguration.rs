//! Reconfigurations of satellite paths from detectors of the application's own: a dish's interface, an operator's timetable.

use std::time::{Duration, Instant};

use starhaul_cc::Reconfiguration;
use starhaul_quic::{Node, SessionHandle};
use starhaul_session::PathId;

use crate::{Endpoint, Error, Session};

impl Session {
    /// Tells the congestion controllers of the path of this name, ours and the peer's, that it was reconfigured. It is a hint: a
    /// controller may ignore it, and a false one costs LeoCC one short adaptation. Several detectors may tell of one event.
    ///
    /// # Errors
    /// No such path, or the session has ended.
    pub fn report_reconfiguration(&self, path: &str, event: Reconfiguration) -> Result<(), Error> {
        self.report(path, |node, now, session, path| {
            node.on_reconfiguration(now, session, path, event)
        })
    }

    /// Tells them the round trip of the path's satellite segment alone, from the terminal to the operator's point of presence. LeoCC
    /// tells by it whether a queue is on the satellite or on the ground; say it a few times a second, or not at all.
    ///
    /// # Errors
    /// No such path, or the session has ended.
    pub fn report_segment_rtt(&self, path: &str, rtt: Duration) -> Result<(), Error> {
        self.report(path, |node, now, session, path| {
            node.on_segment_rtt(now, session, path, rtt)
        })
    }

    fn report(
        &self,
        name: &str,
        tell: impl FnOnce(&mut Node, Instant, SessionHandle, PathId) -> Result<(), starhaul_quic::Error>,
    ) -> Result<(), Error> {
        let mut state = self.shared.lock();
        let path = self.session.path(&mut state, name)?;
        tell(&mut state.node, Instant::now(), self.session.handle, path)?;
        drop(state);
        self.shared.wake_driver();
        Ok(())
    }
}

impl Endpoint {
    /// Tells every path of every session that leaves by this network interface, as [`Session::report_reconfiguration`] does for one: all
    /// flows through a dish change together. Paths opened here leave by the interface that they are bound to, those that peers
    /// opened by [`EndpointConfig::accept_interface`](crate::EndpointConfig::accept_interface). Returns how many paths were told.
    pub fn report_reconfiguration(&self, interface: &str, event: Reconfiguration) -> usize {
        let mut state = self.shared().lock();
        let state = &mut *state;
        let entries = state.sessions.values();
        let own = entries.flat_map(|entry| entry.own_paths.values());
        let own = own.filter(|path| path.socket.interface.as_deref() == Some(interface));
        let mut locals: Vec<_> = own.map(|path| path.socket.id).collect();
        if state.accepting.interface.as_deref() == Some(interface) {
            locals.extend(&state.accepting.locals);
        }
        let now = Instant::now();
        let told = locals
            .into_iter()
            .map(|local| state.node.on_local_reconfiguration(now, local, event))
            .sum();
        self.shared().wake_driver();
        told
    }
}
