//! Ingress: the sockets on which rules listen for local applications, and the flows to the peers.

mod bundles;
mod clients;
mod datagrams;
mod listeners;
mod refusals;
mod socks;
mod stream;
mod tcp;
mod transparent;
mod way;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{net::UdpSocket, sync::watch};

pub(crate) use self::{
    listeners::Listeners,
    refusals::Refusals,
    way::{ConnectionWay, DatagramWay, Way},
};

use crate::{
    config::{ConnectionService, DatagramService, IngressRule},
    limits::{Limit, Limits, Seldom},
    status,
};

const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// Time for which a TCP connection waits for a session with its peer.
const SESSION_WAIT: Duration = Duration::from_secs(10);

/// What rules serve: which socket one needs, and the task on it.
pub(crate) trait Service: Clone + PartialEq + Send + Sync + Sized + 'static {
    /// The socket that listens.
    type Socket: Send + 'static;
    /// The way to the far side that carries it.
    type Way: Way;

    /// Binds a socket; gives its address with the port that the kernel chose.
    fn bind(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<(Self::Socket, SocketAddr)>> + Send;

    /// Serves the socket until dropped: what begins is served to its end by the rule of that moment.
    fn serve(
        socket: Self::Socket,
        current: watch::Receiver<Arc<Rule<Self>>>,
    ) -> impl Future<Output = ()> + Send + 'static;

    /// The bounds of a rule with this service, for the status.
    fn limits(rule: &Rule<Self>) -> Vec<status::LimitStatus>;
}

/// A rule that is served.
#[derive(Debug)]
pub(crate) struct Rule<S: Service> {
    pub(crate) config: IngressRule<S>,
    pub(crate) way: S::Way,
    /// Where it listens, with the port that the kernel chose.
    pub(crate) address: SocketAddr,
    /// They belong to the socket, as do the bounds and the log: they go on when another rule takes it over.
    pub(crate) counters: Arc<RuleCounters>,
    limits: Arc<RuleLimits>,
    log: Arc<RuleLog>,
    shared_limits: Arc<Limits>,
}

/// The rules that are served, each kind in the order of the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) datagrams: Vec<Arc<Rule<DatagramService>>>,
    pub(crate) connections: Vec<Arc<Rule<ConnectionService>>>,
}

/// The bounds of one rule.
#[derive(Debug)]
struct RuleLimits {
    clients: Limit,
    queued: Limit,
    connections: Limit,
}

/// Log lines that clients can cause, and that must not be written each time.
#[derive(Debug, Default)]
struct RuleLog {
    accept: Seldom,
    stream: Seldom,
}

impl<S: Service> Rule<S> {
    /// A rule that is served at `address`.
    fn new(
        config: IngressRule<S>,
        way: S::Way,
        address: SocketAddr,
        shared_limits: Arc<Limits>,
    ) -> Self {
        Self {
            config,
            way,
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
    fn next(&self, config: IngressRule<S>, way: S::Way) -> Self {
        Self {
            config,
            way,
            address: self.address,
            counters: self.counters.clone(),
            limits: self.limits.clone(),
            log: self.log.clone(),
            shared_limits: self.shared_limits.clone(),
        }
    }

    /// What it does, for people.
    fn describe(&self) -> String {
        let IngressRule { kind, name, .. } = &self.config;
        let address = self.address;
        let way = self.way.describe();
        format!("{kind} rule {name} serves {address} {way}")
    }
}

/// The counters of a rule.
#[derive(Debug, Default)]
pub(crate) struct RuleCounters {
    /// Present client addresses or connections.
    pub(crate) clients: AtomicU64,
    /// Client addresses or connections since the start.
    pub(crate) clients_total: AtomicU64,
    pub(crate) datagrams_in: AtomicU64,
    pub(crate) datagrams_out: AtomicU64,
    /// Datagrams dropped for lack of a session with the peer.
    pub(crate) dropped_no_session: AtomicU64,
    /// Datagrams dropped because there are too many clients.
    pub(crate) dropped_too_many_clients: AtomicU64,
    /// Clients that were forgotten early to make room for new ones.
    pub(crate) displaced_clients: AtomicU64,
    /// Datagrams and blocks that a full session refused, or that came from another address than the client's.
    pub(crate) dropped_refused: AtomicU64,
    /// Connections that failed or broke off.
    pub(crate) failed_connections: AtomicU64,
    /// Those of them to which the far side found no target.
    pub(crate) refusals: Refusals,
}

/// Counts one client of a rule for as long as it lives.
struct CountedClient<'r>(&'r RuleCounters);

impl<'r> CountedClient<'r> {
    fn new(counters: &'r RuleCounters) -> Self {
        count(&counters.clients);
        count(&counters.clients_total);
        Self(counters)
    }
}

impl Drop for CountedClient<'_> {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Asks for room for a burst of video frames; the kernel gives what `net.core.rmem_max` and `wmem_max` allow.
pub(crate) fn enlarge_buffers(socket: &UdpSocket) {
    let socket = socket2::SockRef::from(socket);
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
}

fn count(counter: &AtomicU64) {
    count_all(counter, 1);
}

fn count_all(counter: &AtomicU64, number: usize) {
    counter.fetch_add(number as u64, Ordering::Relaxed);
}
