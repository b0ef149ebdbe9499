//! `[[tun]]`: devices whose IP packets travel to a peer, each in the class that it matches.
//!
//! ```text
//! kernel ─► device ─► class ─► block with a deadline, or frame of a reliable stream ─► peer ─► device ─► kernel
//! ```
//!
//! Both ends have a rule of the same name. Each sends on streams of its own, one for each class, on its session with the
//! peer, and passes what the peer sends to its device, if it comes from there (`scope.rs`).

mod captured;
mod classes;
mod device;
mod lane;
mod packet;
mod queue;
mod scope;
#[cfg(test)]
mod tests;
mod tunnels;

use std::{
    collections::VecDeque,
    io,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::task::JoinSet;

pub(crate) use self::{
    captured::SessionPorts,
    packet::{TCP, UDP},
    tunnels::{Registry, Tunnels},
};
use self::{classes::class_of, device::Device, lane::Lane};
pub use self::{
    lane::Frames,
    packet::{Headers, Unreachable, mark_congestion},
};
use crate::{config::TunnelRule, limits::Seldom, peer::PeerState};

/// Pause before a device that has gone is created again.
const DEVICE_PAUSE: Duration = Duration::from_secs(1);
/// How often a device is looked at for addresses and routes that are gone.
const CHECK_PAUSE: Duration = Duration::from_secs(5);
/// Least time between two ICMP errors of a tunnel (RFC 4443 §2.4 asks for a limit).
const ICMP_PAUSE: Duration = Duration::from_millis(10);
/// A packet that the kernel sends back comes at once; later it is another one.
const CIRCLE_TIME: Duration = Duration::from_secs(1);
/// Most pairs of addresses whose packets are known when they come back.
const MOST_STRAYS: usize = 64;
/// Senders are told of a missing session only when it is missing for so long: one that is opened again is soon back.
const SESSION_PATIENCE: Duration = Duration::from_secs(3);

/// A tunnel: its rule, the device, and the counters.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) rule: TunnelRule,
    pub(crate) peer: Arc<PeerState>,
    /// `None` while it is gone.
    device: Mutex<Option<Arc<Device>>>,
    pub(crate) counters: Arc<TunnelCounters>,
    /// Since when packets have found no session.
    alone_since: Mutex<Option<Instant>>,
    last_icmp: Mutex<Option<Instant>>,
    /// The address of the tunnel's own network that the peer's last packet came from.
    heard: Mutex<Option<IpAddr>>,
    /// Source and destination of the peer's last packets for addresses of the tunnel's own network that are not this end's, each pair once,
    /// and when the last of it came; the newest at the end.
    strays: Mutex<VecDeque<(Instant, [IpAddr; 2])>>,
    listening: SessionPorts,
    log: Seldom,
    captured: Seldom,
}

/// Counters of a tunnel since its device was first created.
#[derive(Debug, Default)]
pub(crate) struct TunnelCounters {
    /// From the device, whatever became of them.
    pub(crate) packets_in: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    /// Written to the device.
    pub(crate) packets_out: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    /// There was no session with the peer.
    pub(crate) no_session: AtomicU64,
    /// They waited too long for a reliable stream, or found no room.
    pub(crate) queue: AtomicU64,
    /// The same, marked instead of dropped.
    pub(crate) marked: AtomicU64,
    /// The session refused them.
    pub(crate) refused: AtomicU64,
    /// To a network that is not behind the peer, or from the peer and not from one, or from the peer to an address that no host here has.
    pub(crate) forbidden: AtomicU64,
    /// No IP packets, or such as the kernel refused.
    pub(crate) malformed: AtomicU64,
}

impl Tunnel {
    /// A tunnel whose device is created by its tasks if there is none.
    fn new(
        (rule, peer): (TunnelRule, Arc<PeerState>),
        device: Option<Arc<Device>>,
        listening: SessionPorts,
    ) -> Self {
        Self {
            rule,
            peer,
            device: Mutex::new(device),
            counters: Arc::default(),
            alone_since: Mutex::default(),
            last_icmp: Mutex::default(),
            heard: Mutex::default(),
            strays: Mutex::default(),
            listening,
            log: Seldom::default(),
            captured: Seldom::default(),
        }
    }

    /// Another rule for the same device, which this one no longer has.
    fn next(&self, rule: TunnelRule, peer: Arc<PeerState>) -> Self {
        Self {
            rule,
            peer,
            device: Mutex::new(self.let_go()),
            counters: self.counters.clone(),
            alone_since: Mutex::default(),
            last_icmp: Mutex::default(),
            heard: Mutex::default(),
            strays: Mutex::default(),
            listening: self.listening.clone(),
            log: Seldom::default(),
            captured: Seldom::default(),
        }
    }

    /// The name of its device, while there is one.
    pub(crate) fn device_name(&self) -> Option<String> {
        let device = self.device.lock().clone();
        device.map(|device| device.name().to_owned())
    }

    /// Gives the device up, for who still knows the tunnel, too.
    fn let_go(&self) -> Option<Arc<Device>> {
        self.device.lock().take()
    }

    /// Begins to carry packets, until the tasks end.
    fn start(self: &Arc<Self>) -> JoinSet<()> {
        let lanes: Vec<Arc<Lane>> = self.rule.classes.iter().map(Lane::new).collect();
        let mut tasks = JoinSet::new();
        for lane in &lanes {
            tasks.spawn(lane.clone().carry(self.clone()));
        }
        tasks.spawn(self.clone().run(lanes));
        tasks.spawn(self.clone().keep());
        tasks
    }

    /// Passes packets of the device to the lanes, and creates it again when it is gone.
    async fn run(self: Arc<Self>, lanes: Vec<Arc<Lane>>) {
        loop {
            let device = self.device.lock().clone();
            let error = match device {
                Some(device) => self.read(&device, &lanes).await,
                None => match Device::create(&self.rule.device) {
                    Ok(device) => {
                        tracing::info!(
                            rule = self.rule.name,
                            device = device.name(),
                            "device created again"
                        );
                        *self.device.lock() = Some(Arc::new(device));
                        continue;
                    }
                    Err(error) => error,
                },
            };
            *self.device.lock() = None;
            if let Some(others) = self.log.is_due(Instant::now()) {
                tracing::warn!(rule = self.rule.name, %error, others, "the device is gone; it is created again");
            }
            tokio::time::sleep(DEVICE_PAUSE).await;
        }
    }

    /// Gives the device back what others take from it.
    async fn keep(self: Arc<Self>) {
        let log = Seldom::default();
        loop {
            tokio::time::sleep(CHECK_PAUSE).await;
            let device = self.device.lock().clone();
            let Some(device) = device else { continue };
            let restored = device.restore(&self.rule.device);
            if matches!(restored, Ok(false)) {
                continue;
            }
            let (rule, device) = (&self.rule.name, device.name());
            let Some(others) = log.is_due(Instant::now()) else {
                continue;
            };
            match restored {
                Ok(_) => tracing::warn!(
                    rule,
                    device,
                    others,
                    "addresses or routes of the device were gone; they are there again"
                ),
                Err(error) => tracing::warn!(
                    rule, device, %error, others,
                    "addresses or routes of the device are gone and cannot be made again"
                ),
            }
        }
    }

    /// Passes packets of the device to their classes until it fails.
    async fn read(&self, device: &Device, lanes: &[Arc<Lane>]) -> io::Error {
        let mut buffer = BytesMut::new();
        loop {
            // One for all packets that are read at once, after the wait for them.
            let mut now = None;
            let read = device.read(&mut buffer, |packet| {
                let now = *now.get_or_insert_with(Instant::now);
                self.take(now, device, lanes, &packet);
            });
            if let Err(error) = read.await {
                return error;
            }
            lanes.iter().for_each(|lane| lane.wake());
        }
    }

    fn take(&self, now: Instant, device: &Device, lanes: &[Arc<Lane>], packet: &[u8]) {
        let counters = &self.counters;
        count(&counters.packets_in, 1);
        count(&counters.bytes_in, packet.len());
        let Some(headers) = Headers::read(packet) else {
            count(&counters.malformed, 1);
            return;
        };
        if self.circles(now, &headers) {
            count(&counters.forbidden, 1);
            self.answer(now, device, &headers, packet, Unreachable::NoHost);
            return;
        }
        if !self.rule.device.sends(&headers) {
            // The kernel itself sends reports and solicitations to all neighbours, of which there are none.
            if !headers.destination.is_multicast() {
                count(&counters.forbidden, 1);
            }
            self.answer(now, device, &headers, packet, Unreachable::Prohibited);
            return;
        }
        if self.peer.session().is_none() {
            count(&counters.no_session, 1);
            self.look_for_captured(now, &headers);
            let since = *self.alone_since.lock().get_or_insert(now);
            if now.saturating_duration_since(since) >= SESSION_PATIENCE {
                self.answer(now, device, &headers, packet, Unreachable::NoRoute);
            }
            return;
        }
        *self.alone_since.lock() = None;
        if let Some(lane) = lanes.get(class_of(&self.rule.classes, &headers)) {
            lane.push(now, packet);
        }
    }

    /// Says, once a minute, that the session's own packets come here.
    fn look_for_captured(&self, now: Instant, headers: &Headers) {
        if self.listening.sends(headers, &self.peer)
            && let Some(others) = self.captured.is_due(now)
        {
            let (rule, peer, to) = (&self.rule.name, &self.rule.peer, headers.destination);
            tracing::warn!(
                rule, peer, %to, others,
                "packets of the session itself are led into its tunnel: give its path an \"interface\", take their address out of \"networks\", or add a longer route to it"
            );
        }
    }

    /// Whether a packet came from the peer, for an address of the tunnel's own network that neither end has: a kernel that passes packets on
    /// sends it back, and so would the peer's, until its hop limit (RFC 4443 §3.1, code 3). One that the kernel knows a way for, as to a
    /// further tunnel, does not come back.
    fn circles(&self, now: Instant, headers: &Headers) -> bool {
        if !self.rule.device.shares(headers.destination) {
            return false;
        }
        let ends = [headers.source, headers.destination];
        let came_back = |(came, stray): &(Instant, [IpAddr; 2])| {
            *stray == ends && now.saturating_duration_since(*came) < CIRCLE_TIME
        };
        *self.heard.lock() == Some(headers.source) || self.strays.lock().iter().any(came_back)
    }

    /// Tells the sender of a packet what became of it.
    fn answer(
        &self,
        now: Instant,
        device: &Device,
        headers: &Headers,
        packet: &[u8],
        why: Unreachable,
    ) {
        let mut last = self.last_icmp.lock();
        if last.is_some_and(|last| now.saturating_duration_since(last) < ICMP_PAUSE) {
            return;
        }
        if let Some(answer) = headers.unreachable(packet, why) {
            *last = Some(now);
            // The kernel drops what it does not want.
            let _ = device.write(&answer);
        }
    }

    fn note_stray(&self, ends: [IpAddr; 2]) {
        let mut strays = self.strays.lock();
        strays.retain(|(_, known)| *known != ends);
        if strays.len() >= MOST_STRAYS {
            strays.pop_front();
        }
        strays.push_back((Instant::now(), ends));
    }

    /// Passes a packet of the peer to the device.
    pub(crate) fn deliver(&self, packet: &[u8]) {
        let counters = &self.counters;
        let Some(headers) = Headers::read(packet) else {
            count(&counters.malformed, 1);
            return;
        };
        if !self.rule.device.accepts(&headers) {
            count(&counters.forbidden, 1);
            return;
        }
        if self.rule.device.has(headers.source) {
            // An address of ours: nothing of the peer comes from it.
            count(&counters.forbidden, 1);
            return;
        }
        if self.rule.device.shares(headers.source) {
            *self.heard.lock() = Some(headers.source);
        }
        let to = headers.destination;
        if self.rule.device.shares(to) && !self.rule.device.has(to) {
            self.note_stray([headers.source, to]);
        }
        let device = self.device.lock().clone();
        match device.map(|device| device.write(packet)) {
            Some(Ok(())) => {
                count(&counters.packets_out, 1);
                count(&counters.bytes_out, packet.len());
            }
            _ => count(&counters.malformed, 1),
        }
    }
}

fn count(counter: &AtomicU64, number: usize) {
    counter.fetch_add(number as u64, Ordering::Relaxed);
}
