//! Reconfigurations of satellite paths from detectors of the application's own: a dish's interface, an operator's timetable.

use std::time::{Duration, Instant};

use starhaul_cc::{PathEnd, PathSignal, Reconfiguration};
use starhaul_quic::SignalTarget;

use crate::{Endpoint, Error, Session};

impl Session {
    /// Signals the congestion controllers of the path of this name, ours and the peer's, that it was reconfigured. It is a hint: a
    /// controller may ignore it, and a false one costs LeoCC one short adaptation. Several detectors may signal one event.
    ///
    /// # Errors
    /// No such path, or the session has ended.
    pub fn report_reconfiguration(&self, path: &str, event: Reconfiguration) -> Result<(), Error> {
        self.report(path, PathSignal::Reconfiguration(event))
    }

    /// Signals them the RTT of the path's satellite segment alone, from the terminal to the operator's point of presence, by which
    /// LeoCC decides whether a queue is on the satellite link or on the ground; a few times a second, or not at all.
    ///
    /// # Errors
    /// No such path, or the session has ended.
    pub fn report_segment_rtt(&self, path: &str, rtt: Duration) -> Result<(), Error> {
        let end = PathEnd::Local;
        self.report(path, PathSignal::SegmentRtt { end, rtt })
    }

    fn report(&self, name: &str, signal: PathSignal) -> Result<(), Error> {
        let mut state = self.shared.lock();
        let path = self.session.path(&mut state, name)?;
        let path = SignalTarget::Path(self.session.handle, path);
        state.node.signal(Instant::now(), path, signal);
        drop(state);
        self.shared.wake_driver();
        Ok(())
    }
}

impl Endpoint {
    /// Signals every path of every session over this network interface, as [`Session::report_reconfiguration`] does for one: all
    /// flows through a dish change together. Paths opened here use the interface that they are bound to, those that peers opened
    /// [`EndpointConfig::accept_interface`](crate::EndpointConfig::accept_interface). Returns the number of paths.
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
        let (now, signal) = (Instant::now(), PathSignal::Reconfiguration(event));
        let told = locals
            .into_iter()
            .map(|local| state.node.signal(now, SignalTarget::Local(local), signal))
            .sum();
        self.shared().wake_driver();
        told
    }
}
