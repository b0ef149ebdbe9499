//! One socket of the driver: its backlog, and how it is bound again when its interface or its address changes.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Buf as _, Bytes};
use parking_lot::Mutex;
use starhaul_net::{BindOptions, RecvBuffer, UdpSocket, WireMeter, interface_index, source_toward};
use starhaul_quic::Transmit;

use crate::network::News;

/// Greatest number of transmits that wait for a full socket; more are lost, as on any congested link.
const MAX_BACKLOG: usize = 256;
/// Time for which a removed path's socket stays open, for the path's last frames.
pub(crate) const LINGER: Duration = Duration::from_secs(1);
/// Time between attempts to bind a socket whose address or interface is gone.
const REBIND_INTERVAL: Duration = Duration::from_secs(1);

/// A socket for the driver.
pub(crate) struct NewSocket {
    /// `None` if it could not be bound yet and is to be tried again.
    pub(crate) socket: Option<UdpSocket>,
    pub(crate) options: BindOptions,
    /// The far end of its path; `None` if it accepts peers.
    pub(crate) toward: Option<SocketAddr>,
    pub(crate) problem: SocketProblem,
    /// Counts what passes it.
    pub(crate) meter: WireMeter,
}

/// Why a socket cannot be used now; written by the driver, read by [`Session::path_problems`](crate::Session::path_problems).
#[derive(Clone, Debug, Default)]
pub(crate) struct SocketProblem(Arc<Mutex<Option<String>>>);

impl SocketProblem {
    pub(crate) fn set(&self, problem: Option<&starhaul_net::Error>) {
        *self.0.lock() = problem.map(ToString::to_string);
    }

    pub(crate) fn read(&self) -> Option<String> {
        self.0.lock().clone()
    }
}

/// A socket and its backlog.
pub(crate) struct DrivenSocket {
    socket: Option<UdpSocket>,
    options: BindOptions,
    /// The far end of its path; `None` if it accepts peers.
    toward: Option<SocketAddr>,
    /// The kernel's route there at the last check.
    way: Way,
    /// The last source address.
    source: Option<IpAddr>,
    problem: SocketProblem,
    backlog: VecDeque<Transmit>,
    removed_at: Option<Instant>,
    rebind_at: Option<Instant>,
    meter: WireMeter,
}

/// The interface that a socket is bound to, by its number, and the address that its packets come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Way {
    interface: Option<u32>,
    source: Option<IpAddr>,
}

/// The effect of a change in the network on the paths of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Impact {
    /// Their packets take another route, or the same one again: the interface was down.
    Changed,
    /// Their packets have another source address.
    Moved,
    /// Those that are down may succeed now.
    Better,
}

impl DrivenSocket {
    pub(crate) fn new(new: NewSocket, now: Instant) -> Self {
        let rebind_at = new.socket.is_none().then_some(now + REBIND_INTERVAL);
        let mut local = Self {
            socket: new.socket,
            options: new.options,
            toward: new.toward,
            way: Way::default(),
            source: None,
            problem: new.problem,
            backlog: VecDeque::new(),
            removed_at: None,
            rebind_at,
            meter: new.meter,
        };
        local.way = local.route();
        local.source = local.way.source;
        local
    }

    pub(crate) fn socket(&self) -> Option<&UdpSocket> {
        self.socket.as_ref()
    }

    /// Whether peers are accepted at all addresses of this host, and each is answered from the one that it sends to. A path of ours pins
    /// none: its address may change, and the peer follows.
    pub(crate) fn answers_as_asked(&self) -> bool {
        self.toward.is_none() && self.options.address.ip().is_unspecified()
    }

    /// Whether transmits wait for room in the socket.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// The path is removed; the socket is closed when its last frames have left.
    pub(crate) fn remove(&mut self, now: Instant) {
        self.removed_at = Some(now);
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.removed_at
            .is_some_and(|removed| now >= removed + LINGER)
    }

    /// The network changed: binds the socket again if necessary. Returns the effect on its paths.
    pub(crate) fn follow(&mut self, now: Instant, news: &News) -> Option<Impact> {
        if self.removed_at.is_some() {
            return None;
        }
        if self.socket.as_ref().is_some_and(UdpSocket::is_stranded) {
            let gone = std::io::ErrorKind::AddrNotAvailable.into();
            self.lose_socket(&starhaul_net::Error::SocketGone(gone));
        }
        self.rebind_at = self.rebind_at.map(|_| now);
        let rebound = self.rebind_when_due(now);
        let way = self.route();
        let before = std::mem::replace(&mut self.way, way);
        self.socket.as_ref()?;
        let started = way.interface.is_some_and(|own| news.started.contains(&own));
        let changed = way != before && (self.toward.is_none() || way.source.is_some());
        match rebound || started || changed {
            true => Some(self.changed()),
            false => news.better.then_some(Impact::Better),
        }
    }

    /// The effect of another way: whether it begins at another address than the last that there was.
    pub(crate) fn changed(&mut self) -> Impact {
        let Some(source) = self.way.source else {
            return Impact::Changed;
        };
        match self.source.replace(source) {
            Some(before) if before != source => Impact::Moved,
            _ => Impact::Changed,
        }
    }

    fn route(&self) -> Way {
        let interface = self.options.interface.as_deref();
        Way {
            interface: interface.and_then(|name| interface_index(name).ok()),
            source: self
                .toward
                .and_then(|toward| source_toward(toward, &self.options)),
        }
    }

    /// Sends, now or when the socket has room; the contents of batches that have left are added to `spent`.
    pub(crate) fn send(&mut self, transmit: Transmit, spent: &mut Vec<Bytes>) {
        if self.backlog.len() >= MAX_BACKLOG {
            return;
        }
        self.backlog.push_back(transmit);
        if self.backlog.len() == 1 {
            self.send_backlog(spent);
        }
    }

    /// Sends until the socket is full; the contents of batches that have left are added to `spent`.
    pub(crate) fn send_backlog(&mut self, spent: &mut Vec<Bytes>) {
        let Some(socket) = &self.socket else {
            self.backlog.clear();
            return;
        };
        while let Some(transmit) = self.backlog.front_mut() {
            let refused = socket.refused();
            let sent = socket.try_send(&starhaul_net::Transmit {
                to: transmit.remote,
                from: transmit.source,
                ecn: transmit.ecn,
                contents: &transmit.contents,
                segment_size: transmit.segment_size,
            });
            if let Ok(sent) = sent {
                let datagrams = sent.div_ceil(transmit.segment_size.max(1));
                // Those that the system refused reached no wire.
                if socket.refused() - refused < datagrams as u64 {
                    self.meter.count_udp(transmit.remote.ip(), datagrams, sent);
                } else if datagrams > 0 && transmit.source.take().is_some() {
                    // This host may have lost the address that the peer asked.
                    continue;
                }
            }
            match sent {
                Ok(sent) if sent < transmit.contents.len() => {
                    transmit.contents.advance(sent);
                    return;
                }
                Ok(_) => spent.extend(self.backlog.pop_front().map(|sent| sent.contents)),
                Err(error) => return self.lose_socket(&error),
            }
        }
    }

    /// Receives into `buffer`; returns how many datagrams.
    pub(crate) fn receive(&mut self, buffer: &mut RecvBuffer) -> usize {
        let Some(socket) = &self.socket else {
            return 0;
        };
        match socket.try_recv(buffer) {
            Ok(true) => {}
            Ok(false) => return 0,
            Err(error) => {
                self.lose_socket(&error);
                return 0;
            }
        }
        let mut received = 0;
        for message in buffer.messages() {
            let bytes = message.contents.len();
            let datagrams = bytes.div_ceil(message.stride).max(1);
            self.meter.count_udp(message.remote.ip(), datagrams, bytes);
            received += datagrams;
        }
        received
    }

    fn lose_socket(&mut self, error: &starhaul_net::Error) {
        tracing::warn!(local = %self.options.address, %error, "socket lost, binding a new one");
        self.problem.set(Some(error));
        self.socket = None;
        self.backlog.clear();
        self.rebind_at = Some(Instant::now());
    }

    /// Binds the socket again if the next attempt is due; returns whether it did.
    pub(crate) fn rebind_when_due(&mut self, now: Instant) -> bool {
        if self.rebind_at.is_none_or(|due| now < due) {
            return false;
        }
        match UdpSocket::bind(&self.options) {
            Ok(socket) => {
                tracing::info!(local = %socket.local_addr(), interface = self.options.interface, "socket bound again");
                self.problem.set(None);
                self.socket = Some(socket);
                self.rebind_at = None;
                self.way = self.route();
                true
            }
            Err(error) => {
                tracing::debug!(local = %self.options.address, %error, "socket still cannot be bound");
                self.problem.set(Some(&error));
                self.rebind_at = Some(now + REBIND_INTERVAL);
                false
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let removed = self.removed_at.map(|removed| removed + LINGER);
        removed.into_iter().chain(self.rebind_at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_was_lost_is_bound_again_once_its_address_is_free() {
        // At an address of its own, where no other test takes the port meanwhile.
        let taken = std::net::UdpSocket::bind("127.77.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let mut now = Instant::now();
        let new = NewSocket {
            socket: None,
            options: BindOptions::new(address),
            toward: None,
            problem: SocketProblem::default(),
            meter: WireMeter::default(),
        };
        let mut local = DrivenSocket::new(new, now);
        now += REBIND_INTERVAL;
        assert!(!local.rebind_when_due(now));
        assert_eq!(local.deadline(), Some(now + REBIND_INTERVAL));
        drop(taken);
        assert!(!local.rebind_when_due(now), "tried again too soon");
        now += REBIND_INTERVAL;
        assert!(local.rebind_when_due(now));
        assert_eq!(
            local.socket.map(|socket| socket.local_addr()),
            Some(address)
        );
    }
}
