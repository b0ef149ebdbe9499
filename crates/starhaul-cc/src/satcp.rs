//! SaTCP (Cao and Zhang, INFOCOM 2023): Cubic whose window is frozen while a reconfiguration of the
//! satellite path takes place, as what is lost or late then says nothing of congestion.

use std::time::{Duration, Instant};

use crate::{
    AckedPacket, Reconfiguration,
    cubic::CubicLaw,
    window::Window,
    window_based::{Law, WindowBased},
};

/// A less certain event is not worth a round without growth.
const MIN_CONFIDENCE: f64 = 0.5;
/// Before the first sample.
const ASSUMED_RTT: Duration = Duration::from_millis(100);

/// SaTCP's congestion control.
pub(crate) type SaTcp = WindowBased<SaTcpLaw>;

/// Cubic, but for a round trip after each reconfiguration. A false event costs that round's growth.
#[derive(Clone, Debug, Default)]
pub(crate) struct SaTcpLaw {
    cubic: CubicLaw,
    frozen_until: Option<Instant>,
}

impl SaTcpLaw {
    fn is_frozen_at(&self, time: Instant) -> bool {
        self.frozen_until.is_some_and(|until| time <= until)
    }
}

impl Law for SaTcpLaw {
    const NAME: &'static str = "satcp";

    fn on_acked(&mut self, window: &mut Window, packet: &AckedPacket, bytes: f64) {
        if !self.is_frozen_at(packet.now) {
            self.cubic.on_acked(window, packet, bytes);
        }
    }

    fn on_underused(&mut self, now: Instant) {
        self.cubic.on_underused(now);
    }

    fn decrease(&mut self, window: &mut Window) {
        self.cubic.decrease(window);
    }

    fn on_persistent_congestion(&mut self) {
        self.cubic.on_persistent_congestion();
    }

    fn is_no_congestion(&self, sent: Instant) -> bool {
        self.is_frozen_at(sent)
    }

    fn disturbed_since(&self, window: &Window, event: &Reconfiguration) -> Option<Instant> {
        let rtt = window.smoothed_rtt().unwrap_or(ASSUMED_RTT);
        (event.confidence >= MIN_CONFIDENCE)
            .then(|| event.at.checked_sub(event.outage.saturating_add(rtt)))?
    }

    fn freeze(&mut self, window: &Window, now: Instant, event: &Reconfiguration) {
        let rtt = window.smoothed_rtt().unwrap_or(ASSUMED_RTT);
        let until = event.at.min(now) + rtt;
        // The curve stands still as well.
        self.cubic.pause(until.saturating_duration_since(now));
        self.frozen_until = self.frozen_until.max(Some(until));
    }

    fn state(&self, window: &Window) -> &'static str {
        self.cubic.state(window)
    }
}
