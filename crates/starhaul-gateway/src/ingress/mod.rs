//! What local applications send: sockets that listen as the rules say, and flows to the peers.

mod clients;
mod datagrams;
mod listeners;
mod socks;
mod stream;
mod tcp;

use std::{
    fmt, io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::{TcpListener, UdpSocket},
    sync::watch,
};

pub(crate) use listeners::Listeners;

use crate::{
    Error,
    config::{ConnectionLimits, Ingress, Service},
    limits::{Limit, Limits, Seldom},
    link::PeerState,
    status,
};

const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// How long a TCP connection waits for a session with its peer.
const SESSION_WAIT: Duration = Duration::from_secs(10);

/// A rule that is served.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) config: Ingress,
    pub(crate) peer: Arc<PeerState>,
    /// Where it really listens.
    pub(crate) address: SocketAddr,
    /// Of its socket, as the bounds and the log: they go on when another rule takes it over.
    pub(crate) counters: Arc<Counters>,
    pub(crate) limits: Arc<RuleLimits>,
    log: Arc<RuleLog>,
    shared_limits: Arc<Limits>,
}

/// The bounds of one rule.
#[derive(Debug)]
pub(crate) struct RuleLimits {
    clients: Limit,
    queued: Limit,
    connections: Limit,
}

/// What clients can make us write, and so must not be written each time.
#[derive(Debug, Default)]
struct RuleLog {
    accept: Seldom,
    stream: Seldom,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (config, address, peer) = (&self.config, self.address, &self.peer.name);
        let kind = config.service.kind();
        write!(
            f,
            "{kind} rule {} serves {address} by peer {peer}",
            config.name
        )
    }
}

impl Rule {
    /// A rule that is served at `address`.
    fn new(
        config: Ingress,
        peer: Arc<PeerState>,
        address: SocketAddr,
        shared_limits: Arc<Limits>,
    ) -> Self {
        Self {
            config,
            peer,
            address,
            counters: Arc::default(),
            limits: Arc::new(RuleLimits {
                clients: Limit::new("clients", "max_clients"),
                queued: Limit::new("datagrams of a client that wait", "max_queued"),
                connections: Limit::new("connections", "max_connections"),
            }),
            log: Arc::default(),
            shared_limits,
        }
    }

    /// Another rule on the same socket.
    fn next(&self, config: Ingress, peer: Arc<PeerState>) -> Self {
        Self {
            config,
            peer,
            address: self.address,
            counters: self.counters.clone(),
            limits: self.limits.clone(),
            log: self.log.clone(),
            shared_limits: self.shared_limits.clone(),
        }
    }

    /// The bounds of its TCP connections; `None` for a rule of datagrams.
    fn connection_limits(&self) -> Option<&ConnectionLimits> {
        match &self.config.service {
            Service::Tcp { connections, .. } | Service::Socks5 { connections, .. } => {
                Some(connections)
            }
            Service::Udp { .. } | Service::Rtp { .. } => None,
        }
    }

    /// Its bounds, for the status.
    pub(crate) fn limits(&self) -> Vec<status::Limit> {
        let (limits, name) = (&self.limits, Some(self.config.name.as_str()));
        match &self.config.service {
            Service::Udp { clients, .. } | Service::Rtp { clients, .. } => vec![
                limits.clients.snapshot(name, clients.max_clients),
                limits.queued.snapshot(name, clients.max_queued),
            ],
            Service::Tcp { connections, .. } | Service::Socks5 { connections, .. } => {
                vec![
                    limits
                        .connections
                        .snapshot(name, connections.max_connections),
                ]
            }
        }
    }
}

/// What happened at a rule.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Client addresses or connections now.
    pub(crate) clients: AtomicU64,
    /// All that there ever were.
    pub(crate) clients_total: AtomicU64,
    pub(crate) datagrams_in: AtomicU64,
    pub(crate) datagrams_out: AtomicU64,
    /// Datagrams dropped because no session with the peer was open.
    pub(crate) dropped_no_session: AtomicU64,
    /// Datagrams dropped because there are too many clients.
    pub(crate) dropped_too_many_clients: AtomicU64,
    /// Clients that were forgotten early to make room for new ones.
    pub(crate) displaced_clients: AtomicU64,
    /// Datagrams and blocks refused by a full session or sent by nobody's client.
    pub(crate) dropped_refused: AtomicU64,
    /// Connections that were not made or broke off.
    pub(crate) failed_connections: AtomicU64,
}

/// The socket of a rule.
#[derive(Debug)]
pub(crate) enum Listener {
    Udp(UdpSocket),
    Tcp(TcpListener),
}

impl Listener {
    /// Binds the socket of a rule.
    pub(crate) async fn bind(rule: &Ingress) -> Result<(Self, SocketAddr), Error> {
        let bound = if rule.service.is_tcp() {
            Self::tcp(rule.listen).await
        } else {
            Self::udp(rule.listen).await
        };
        bound.map_err(|reason| Error::Listen {
            rule: rule.name.clone(),
            address: rule.listen,
            reason,
        })
    }

    async fn udp(address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let socket = UdpSocket::bind(address).await?;
        enlarge_buffers(&socket);
        let address = socket.local_addr()?;
        Ok((Self::Udp(socket), address))
    }

    async fn tcp(address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((Self::Tcp(listener), address))
    }

    /// Serves until dropped; what begins is served by the rule of that moment, to its end.
    pub(crate) async fn serve(self, current: watch::Receiver<Arc<Rule>>) {
        match self {
            Self::Udp(socket) => datagrams::serve(current, Arc::new(socket)).await,
            Self::Tcp(listener) => tcp::serve(current, listener).await,
        }
    }
}

/// Counts one client of a rule for as long as it lives.
struct Counted<'r>(&'r Rule);

impl<'r> Counted<'r> {
    fn new(rule: &'r Rule) -> Self {
        rule.counters.clients.fetch_add(1, Ordering::Relaxed);
        rule.counters.clients_total.fetch_add(1, Ordering::Relaxed);
        Self(rule)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.counters.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Asks for room for a burst of video frames; the kernel gives what `net.core.rmem_max` and `wmem_max` allow.
pub(crate) fn enlarge_buffers(socket: &UdpSocket) {
    let socket = socket2::SockRef::from(socket);
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
