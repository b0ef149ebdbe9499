//! SaTCP (Cao and Zhang, INFOCOM 2023), as in the authors' published code (LeoEM, `emulation_stage/satcp`): Cubic that
//! comes back to its window in a ninth of the time when it shrank around a reconfiguration of the satellite path, and that keeps
//! its curve through a timeout then. It is told of what comes by predictions there, and of what was here, so that the
//! window may have shrunk before the news.

use std::time::{Duration, Instant};

use crate::{
    AckedPacket, Reconfiguration,
    cubic::CubicLaw,
    window::Window,
    window_based::{Law, WindowBased},
};

/// Not every guess is worth a burst.
const MIN_CONFIDENCE: f64 = 0.5;
/// T_earlier: reports precede the reconfiguration, as predictions err by some tenths of a second.
const EARLIER: Duration = Duration::from_millis(500);
/// D: from the report on, what shrinks the window is taken for the reconfiguration's doing.
const DURATION: Duration = Duration::from_millis(2300);
/// K, the time until the window is as it was, becomes this share.
const K_SHARE: f64 = 1.0 / 9.0;

/// SaTCP's congestion control.
pub(crate) type SaTcp = WindowBased<SaTcpLaw>;

/// Cubic in a hurry for some time after each reconfiguration.
#[derive(Clone, Debug, Default)]
pub(crate) struct SaTcpLaw {
    cubic: CubicLaw,
    /// From when to when.
    disturbed: Option<(Instant, Instant)>,
}

impl SaTcpLaw {
    fn disturbed_at(&self, now: Instant) -> Option<Instant> {
        let (from, to) = self.disturbed?;
        (from..=to).contains(&now).then_some(from)
    }

    fn hasten(&mut self, now: Instant) {
        if let Some(from) = self.disturbed_at(now) {
            self.cubic.hasten(from, K_SHARE);
        }
    }
}

impl Law for SaTcpLaw {
    const NAME: &'static str = "satcp";

    fn on_acked(&mut self, window: &mut Window, packet: &AckedPacket, bytes: f64) {
        self.cubic.on_acked(window, packet, bytes);
        self.hasten(packet.now);
    }

    fn on_underused(&mut self, now: Instant) {
        self.cubic.on_underused(now);
    }

    fn decrease(&mut self, window: &mut Window) {
        self.cubic.decrease(window);
    }

    fn on_persistent_congestion(&mut self, now: Instant) {
        if self.disturbed_at(now).is_none() {
            self.cubic.on_persistent_congestion(now);
        }
    }

    fn on_reconfiguration(&mut self, now: Instant, event: &Reconfiguration) {
        if event.confidence < MIN_CONFIDENCE {
            return;
        }
        let ahead = event.outage.saturating_add(EARLIER);
        if let Some(from) = event.at.checked_sub(ahead) {
            self.disturbed = Some((from, from + DURATION));
            self.hasten(now);
        }
    }

    fn state(&self, window: &Window) -> &'static str {
        self.cubic.state(window)
    }
}
