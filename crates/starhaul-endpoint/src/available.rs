//! What the paths of a session can carry now.

use std::time::Duration;

use starhaul_units::Bandwidth;

use crate::Session;

impl Session {
    /// What all usable paths together can carry now towards the peer, by their estimates, for an encoder that chooses its rate: headers, redundancy
    /// and retransmissions are part of it. The estimate of a path that was never full may be too low. Zero without a path, and when the session has
    /// ended. [`Session::overloads`] tells when it is too little.
    pub fn available(&self) -> Bandwidth {
        self.asked(starhaul_session::Session::available)
    }

    /// The same of those paths alone whose one-way delay is at most `deadline`: no others bring a block of that deadline in time.
    pub fn available_within(&self, deadline: Duration) -> Bandwidth {
        self.asked(|machine| machine.available_within(deadline))
    }

    fn asked(&self, of: impl Fn(&starhaul_session::Session) -> Bandwidth) -> Bandwidth {
        let mut state = self.shared.lock();
        let machine = state.node.session(self.session.handle);
        machine.map_or(Bandwidth::ZERO, |machine| of(machine))
    }
}
