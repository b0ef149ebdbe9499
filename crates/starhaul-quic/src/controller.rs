//! One path's sending: the congestion controller and pacer that govern it, and the fate of each datagram in it.
//!
//! The QUIC stack sees this as its own `Controller`. It is told the window and never paces, because we choose the moment of
//! each datagram ourselves, before it is chosen.

use std::{
    any::Any,
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use noq_proto::{
    RttEstimator,
    congestion::{self, ControllerMetrics},
};
use starhaul_cc::{AckedPacket, CongestionEvent, Controller, ControllerConfig, LostPacket, Pacer};
use starhaul_units::Bandwidth;

/// The RTT floor forgets samples older than once to twice this.
const RTT_FLOOR_WINDOW: Duration = Duration::from_secs(10);
/// Packets that leave within this time of each other may leave together.
const PACING_QUANTUM: Duration = Duration::from_micros(500);
/// Most packet numbers between the oldest datagram without a fate and the newest.
const MAX_OUTSTANDING: usize = 1 << 16;

/// What became of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// Acknowledged, `rtt` after it was sent.
    Acked {
        at: Instant,
        sequence: u32,
        rtt: Duration,
    },
    /// Declared lost.
    Lost { at: Instant, sequence: u32 },
}

/// Whether a full datagram may leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    /// Yes.
    Now,
    /// The pacer allows it later.
    At(Instant),
    /// The window is full; an acknowledgement will tell.
    WindowFull,
}

/// Shared by a connection and the QUIC stack below it.
#[derive(Clone, Debug)]
pub(crate) struct PathControlHandle(Arc<Mutex<PathControl>>);

/// The state behind a [`PathControlHandle`].
#[derive(Debug)]
pub(crate) struct PathControl {
    config: ControllerConfig,
    controller: Box<dyn Controller>,
    pacer: Pacer,
    mtu: u16,
    /// Ack-eliciting bytes without a fate; set right by the stack's own count at each acknowledgement.
    bytes_in_flight: u64,
    /// Packets since the handshake was confirmed, and only these, are shown to the controller: earlier ones come from three
    /// packet number spaces whose numbers overlap.
    shown_from: Option<u64>,
    confirmed: bool,
    /// An MTU probe, larger than any other packet: its loss says nothing of congestion and is not reported.
    probe: Option<u64>,
    /// The session had nothing for the path when it was last asked.
    idle: bool,
    last_sent: Option<u64>,
    now: Instant,
    smoothed_rtt: Option<Duration>,
    rtt_floor: RttFloor,
    outstanding: Outstanding,
    fates: Vec<Fate>,
    built: bool,
}

impl PathControlHandle {
    pub(crate) fn new(config: ControllerConfig, now: Instant) -> Self {
        let mtu = 1200;
        Self(Arc::new(Mutex::new(PathControl {
            controller: config.build(now, mtu),
            config,
            pacer: Pacer::new(now, mtu),
            mtu,
            bytes_in_flight: 0,
            shown_from: None,
            confirmed: false,
            probe: None,
            idle: false,
            last_sent: None,
            now,
            smoothed_rtt: None,
            rtt_floor: RttFloor::default(),
            outstanding: Outstanding::default(),
            fates: Vec::new(),
            built: false,
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, PathControl> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PathControl {
    /// The handshake is confirmed: from now on there is one packet number space.
    pub(crate) fn confirm(&mut self) {
        self.confirmed = true;
    }

    pub(crate) fn permit(&mut self, now: Instant) -> Permit {
        let mtu = u64::from(self.mtu);
        if self.bytes_in_flight.saturating_add(mtu) > self.controller.cwnd() {
            return Permit::WindowFull;
        }
        let rate = self.pacing_rate();
        let Some(at) = self.pacer.next_send(now, rate, mtu) else {
            return Permit::Now;
        };
        // Once it has to wait, it waits for a few packets that can leave as one batch.
        let quantum = rate.bytes_in(PACING_QUANTUM).clamp(mtu, 16 * mtu);
        let at = self.pacer.next_send(now, rate, quantum).unwrap_or(at);
        Permit::At(at)
    }

    fn pacing_rate(&self) -> Bandwidth {
        self.controller.pacing_rate().unwrap_or_else(|| {
            match self.smoothed_rtt {
                Some(rtt) => Bandwidth::from_bytes_over(self.controller.cwnd(), rtt).scaled(1.25),
                // Nothing is known yet: the window alone limits the first flight.
                None => Bandwidth::MAX,
            }
        })
    }

    /// The session had nothing to send although it might have.
    pub(crate) fn set_idle(&mut self) {
        self.idle = true;
    }

    /// Before the stack is polled: forget the last packet it sent.
    pub(crate) fn arm(&mut self) {
        self.last_sent = None;
    }

    /// The packet sent since [`PathControl::arm`] carried datagram `sequence`. False when there was none.
    pub(crate) fn note_datagram(&mut self, sequence: u32) -> bool {
        let Some(number) = self.last_sent else {
            return false;
        };
        let (now, fates) = (self.now, &mut self.fates);
        self.outstanding.insert(number, now, sequence, |sequence| {
            fates.push(Fate::Lost { at: now, sequence });
        });
        true
    }

    /// Moves the fates learned since the last call to `fates`, which must be empty.
    pub(crate) fn take_fates(&mut self, fates: &mut Vec<Fate>) {
        std::mem::swap(&mut self.fates, fates);
    }

    pub(crate) fn set_smoothed_rtt(&mut self, rtt: Duration) {
        self.smoothed_rtt = Some(rtt);
    }

    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.rtt_floor.get()
    }

    pub(crate) fn cwnd(&self) -> u64 {
        self.controller.cwnd()
    }

    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// The controller's belief, else one window per RTT.
    pub(crate) fn bandwidth(&self) -> Bandwidth {
        self.controller.bandwidth_estimate().unwrap_or_else(|| {
            let rtt = self.smoothed_rtt.unwrap_or(Duration::from_millis(333));
            Bandwidth::from_bytes_over(self.controller.cwnd(), rtt)
        })
    }

    pub(crate) fn controller_name(&self) -> &'static str {
        self.controller.name()
    }

    pub(crate) fn controller_state(&self) -> &'static str {
        self.controller.state()
    }

    fn is_shown(&self, packet_number: u64) -> bool {
        self.shown_from.is_some_and(|from| packet_number >= from)
            && self.probe != Some(packet_number)
    }

    /// The stack moves to another address: packets sent on the old one get no fate any more.
    fn abandon_outstanding(&mut self) {
        let now = self.now;
        let fates = &mut self.fates;
        self.outstanding.drain(|sequence| {
            fates.push(Fate::Lost { at: now, sequence });
        });
        self.bytes_in_flight = 0;
    }
}

impl congestion::ControllerFactory for PathControlHandle {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn congestion::Controller> {
        let mut control = self.lock();
        control.now = now;
        control.mtu = current_mtu;
        if control.built {
            // Migrated to an address that looks like another network: start anew there.
            control.abandon_outstanding();
            control.controller = control.config.build(now, current_mtu);
            control.pacer = Pacer::new(now, current_mtu);
            control.rtt_floor = RttFloor::default();
            control.shown_from = None;
        }
        control.built = true;
        drop(control);
        Box::new(PathControlHandle::clone(&self))
    }
}

impl congestion::Controller for PathControlHandle {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        let control = &mut *self.lock();
        let bytes = u64::from(bytes);
        control.now = now;
        control.last_sent = Some(pn);
        if control.confirmed && control.shown_from.is_none() {
            control.shown_from = Some(pn);
        }
        if bytes > u64::from(control.mtu) {
            control.probe = Some(pn);
        }
        let in_flight = control.bytes_in_flight;
        if in_flight.saturating_add(bytes) > control.controller.cwnd() / 2 {
            // Whoever fills more than half the window is not short of data.
            control.idle = false;
        }
        if control.is_shown(pn) {
            let idle = control.idle;
            control
                .controller
                .on_packet_sent(now, pn, bytes, in_flight, idle);
        }
        control.bytes_in_flight = in_flight.saturating_add(bytes);
        control.pacer.on_sent(now, bytes);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        pn: u64,
        _app_limited: bool,
        _rtt: &RttEstimator,
    ) {
        let control = &mut *self.lock();
        control.now = now;
        control.bytes_in_flight = control.bytes_in_flight.saturating_sub(bytes);
        let rtt = now.saturating_duration_since(sent);
        control.rtt_floor.update(now, rtt);
        if let Some(sequence) = control.outstanding.remove(pn, Some(sent)) {
            control.fates.push(Fate::Acked {
                at: now,
                sequence,
                rtt,
            });
        }
        if control.is_shown(pn) {
            control.controller.on_ack(AckedPacket {
                now,
                sent,
                packet_number: pn,
                bytes,
            });
        }
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        _app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        let control = &mut *self.lock();
        control.now = now;
        control.bytes_in_flight = in_flight;
        if control.shown_from.is_some() {
            control.controller.on_end_of_acks(now, in_flight);
        }
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
        let control = &mut *self.lock();
        let bytes = u64::from(lost_bytes);
        control.now = now;
        control.bytes_in_flight = control.bytes_in_flight.saturating_sub(bytes);
        if let Some(sequence) = control.outstanding.remove(pn, None) {
            control.fates.push(Fate::Lost { at: now, sequence });
        }
        if control.is_shown(pn) {
            control.controller.on_packet_lost(LostPacket {
                now,
                packet_number: pn,
                bytes,
            });
        }
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        is_ecn: bool,
        lost_bytes: u64,
        largest_lost_pn: u64,
    ) {
        let control = &mut *self.lock();
        control.now = now;
        if control.is_shown(largest_lost_pn) {
            control.controller.on_congestion_event(CongestionEvent {
                now,
                sent,
                persistent: is_persistent_congestion,
                ecn: is_ecn,
                lost_bytes,
            });
        }
    }

    fn on_spurious_congestion_event(&mut self) {
        let control = &mut *self.lock();
        let now = control.now;
        control.controller.on_spurious_congestion_event(now);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        let control = &mut *self.lock();
        control.mtu = new_mtu;
        control.pacer.on_mtu_update(new_mtu);
        control.controller.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.lock().controller.cwnd().max(1)
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        // The stack does not pace a window so large; we pace.
        metrics.congestion_window = u64::MAX;
        metrics
    }

    fn clone_box(&self) -> Box<dyn congestion::Controller> {
        // Only done when the peer's port changed: the network behind it is the same.
        self.lock().abandon_outstanding();
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Datagrams without a fate, by packet number.
#[derive(Debug, Default)]
struct Outstanding {
    /// Packet number of the first entry.
    base: u64,
    entries: VecDeque<Option<(Instant, u32)>>,
}

impl Outstanding {
    /// Packet numbers only grow. What falls out of the bounded memory is handed to `dropped`.
    fn insert(&mut self, number: u64, sent: Instant, sequence: u32, mut dropped: impl FnMut(u32)) {
        let next = self.base.saturating_add(self.entries.len() as u64);
        if number < next || number - next >= MAX_OUTSTANDING as u64 {
            self.drain(&mut dropped);
        }
        if self.entries.is_empty() {
            self.base = number;
        }
        while self.base.saturating_add(self.entries.len() as u64) < number {
            self.entries.push_back(None);
        }
        self.entries.push_back(Some((sent, sequence)));
        while self.entries.len() > MAX_OUTSTANDING {
            self.base += 1;
            if let Some((_, sequence)) = self.entries.pop_front().flatten() {
                dropped(sequence);
            }
        }
    }

    /// The datagram in packet `number`, which must have been sent at `sent` if that is known.
    fn remove(&mut self, number: u64, sent: Option<Instant>) -> Option<u32> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let entry = self.entries.get_mut(index)?;
        if sent.is_some() && sent != entry.map(|(sent, _)| sent) {
            return None;
        }
        let removed = entry.take();
        while let Some(None) = self.entries.front() {
            self.entries.pop_front();
            self.base += 1;
        }
        removed.map(|(_, sequence)| sequence)
    }

    fn drain(&mut self, mut dropped: impl FnMut(u32)) {
        for (_, sequence) in self.entries.drain(..).flatten() {
            dropped(sequence);
        }
    }
}

/// Lowest RTT of the current and the previous window.
#[derive(Debug, Default)]
struct RttFloor {
    since: Option<Instant>,
    current: Option<Duration>,
    previous: Option<Duration>,
}

impl RttFloor {
    fn update(&mut self, now: Instant, rtt: Duration) {
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= RTT_FLOOR_WINDOW {
            self.since = Some(now);
            self.previous = self.current.take();
        }
        self.current = Some(self.current.map_or(rtt, |floor| floor.min(rtt)));
    }

    fn get(&self) -> Option<Duration> {
        self.current.into_iter().chain(self.previous).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_datagram_gets_one_fate_and_gaps_are_skipped() {
        let now = Instant::now();
        let mut outstanding = Outstanding::default();
        let none = |sequence| panic!("dropped {sequence}");
        for (number, sequence) in [(10, 0), (11, 1), (15, 2)] {
            outstanding.insert(number, now, sequence, none);
        }
        assert_eq!(outstanding.remove(12, None), None);
        assert_eq!(outstanding.remove(11, Some(now)), Some(1));
        assert_eq!(outstanding.remove(11, Some(now)), None, "one fate only");
        let other = now + Duration::from_secs(1);
        assert_eq!(outstanding.remove(10, Some(other)), None, "another packet");
        assert_eq!(outstanding.remove(10, None), Some(0));
        assert_eq!(outstanding.entries.len(), 1, "the front is pruned");
        assert_eq!(outstanding.remove(15, None), Some(2));
        assert_eq!(outstanding.remove(3, None), None);
        assert!(outstanding.entries.is_empty());
    }

    #[test]
    fn memory_is_bounded_when_nothing_is_ever_acknowledged() {
        let now = Instant::now();
        let mut outstanding = Outstanding::default();
        let mut dropped = 0;
        let total = MAX_OUTSTANDING as u32 + 100;
        for number in 0..total {
            outstanding.insert(number.into(), now, number, |_| dropped += 1);
        }
        assert_eq!((outstanding.entries.len(), dropped), (MAX_OUTSTANDING, 100));
        outstanding.insert(1 << 40, now, 0, |_| dropped += 1);
        assert_eq!(outstanding.entries.len(), 1);
        assert_eq!(dropped, total);
    }

    #[test]
    fn the_rtt_floor_forgets() {
        let start = Instant::now();
        let mut floor = RttFloor::default();
        for second in 0..60 {
            let rtt = Duration::from_millis(if second < 10 { 20 } else { 50 });
            floor.update(start + Duration::from_secs(second), rtt);
            let expected = if second < 20 { 20 } else { 50 };
            assert_eq!(
                floor.get(),
                Some(Duration::from_millis(expected)),
                "{second} s"
            );
        }
    }
}
