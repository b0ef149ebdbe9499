//! What local applications send: sockets that listen as the rules say, and flows to the peers.

mod datagrams;
mod socks;
mod tcp;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::net::{TcpListener, UdpSocket};

use crate::{
    Error,
    config::{Ingress, Service},
    link::PeerState,
};

/// TCP connections of one rule at once; more wait in the kernel.
const MAX_CONNECTIONS: usize = 4096;
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
    pub(crate) counters: Counters,
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
        let bound = match rule.service {
            Service::Udp { .. } | Service::Rtp { .. } => Self::udp(rule.listen).await,
            Service::Tcp { .. } | Service::Socks5 { .. } => Self::tcp(rule.listen).await,
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

    /// Serves the rule until dropped.
    pub(crate) async fn serve(self, rule: Arc<Rule>) {
        match self {
            Self::Udp(socket) => datagrams::serve(rule, Arc::new(socket)).await,
            Self::Tcp(listener) => tcp::serve(rule, listener).await,
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
