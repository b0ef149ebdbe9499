//! SaTCP (Cao and Zhang, INFOCOM 2023), as in the authors' published code (LeoEM, `emulation_stage/satcp`): Cubic that
//! regains its window in a ninth of the time after a decrease around a reconfiguration of the satellite path, and that
//! keeps its curve through a timeout at such a time. The published code predicts reconfigurations; here they are
//! reported afterwards, so the decrease may precede the report.

use std::time::{Duration, Instant};

use crate::{
    AckedPacket, Reconfiguration,
    cubic::CubicLaw,
    window::Window,
    window_based::{Law, WindowBased},
};

/// T_earlier: the disturbance begins this long before the outage, as predictions err by some tenths of a second.
const EARLIER: Duration = Duration::from_millis(500);
/// D: length of the disturbance; decreases within it are attributed to the reconfiguration.
const DURATION: Duration = Duration::from_millis(2300);
/// The factor applied to K, the time until the window is regained.
const K_SHARE: f64 = 1.0 / 9.0;

/// SaTCP's congestion control.
pub(crate) type SaTcp = WindowBased<SaTcpLaw>;

/// Cubic with a faster recovery for some time around each reconfiguration.
#[derive(Clone, Debug, Default)]
pub(crate) struct SaTcpLaw {
    cubic: CubicLaw,
    /// Start and end of the present disturbance.
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

    fn on_idle(&mut self, idle: Duration) {
        self.cubic.on_idle(idle);
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
        let ahead = event.outage.saturating_add(EARLIER);
        if let Some(from) = event.at.checked_sub(ahead) {
            self.disturbed = Some((from, from + DURATION));
            self.hasten(now);
        }
    }

    /// What a signal told since then stays.
    fn restore(&mut self, before: Self) {
        self.cubic = before.cubic;
    }

    fn state(&self, window: &Window) -> &'static str {
        self.cubic.state(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReconfigurationSource;

    /// The window fell long before the disturbance, and was not used for most of the time since.
    #[test]
    fn a_decrease_before_an_idle_time_is_none_of_a_reconfiguration() {
        let start = Instant::now() + Duration::from_secs(60);
        let ms = Duration::from_millis;
        let mut window = Window::new(1_000);
        let mut law = SaTcpLaw::default();
        let acked = |law: &mut SaTcpLaw, window: &mut Window, now: Instant, bytes: u32| {
            let packet = AckedPacket {
                now,
                sent: now,
                packet_number: 0,
                bytes: bytes.into(),
            };
            law.on_acked(window, &packet, bytes.into());
        };
        window.set_cwnd(1e6);
        law.decrease(&mut window);
        acked(&mut law, &mut window, start, 1_000);
        law.on_idle(ms(9_900));
        let now = start + ms(10_000);
        let event = Reconfiguration {
            at: now,
            outage: ms(100),
            source: ReconfigurationSource::GroundTruth,
            confidence: 1.0,
        };
        law.on_reconfiguration(now, &event);
        acked(&mut law, &mut window, now, 1_000);
        let before = window.cwnd_real();
        // A whole window: if the time to regain it were a ninth, it would be regained by now.
        acked(&mut law, &mut window, now, 700_000);
        let grown = window.cwnd_real() / before;
        assert!(grown < 1.05, "{grown}");
    }

    #[test]
    fn what_was_told_since_a_decrease_outlives_its_undoing() {
        let now = Instant::now() + Duration::from_secs(60);
        let mut law = SaTcpLaw::default();
        let before = law.clone();
        let event = Reconfiguration {
            at: now,
            outage: Duration::from_millis(100),
            source: ReconfigurationSource::GroundTruth,
            confidence: 1.0,
        };
        law.on_reconfiguration(now, &event);
        law.restore(before);
        assert!(law.disturbed_at(now + Duration::from_secs(1)).is_some());
    }
}
