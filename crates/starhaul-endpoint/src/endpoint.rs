//! The endpoint: starting, connecting, accepting and closing.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use ring::rand::{SecureRandom, SystemRandom};
use rustix::io::Errno;
use starhaul_net::{BindOptions, Poller, UdpSocket, WireMeter};
use starhaul_quic::{Identity, LEAST_PACKET_BYTES, MOST_PACKET_BYTES, Node, NodeConfig, PublicKey};
use starhaul_session::{PathId, SchedulerChoice, SessionConfig};
use tokio::sync::oneshot;

use crate::{
    ControllerConfig, Detection, Error, PathSpec, Session,
    driver::Driver,
    inbox::{Inbox, Input},
    paths::bind,
    qlog::QlogFolder,
    queue::Bounds,
    state::{SessionEntry, SessionShared, Shared},
};

/// Time limit of [`Endpoint::connect`].
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The configuration of an [`Endpoint`].
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// The key pair that identifies this process.
    pub identity: Identity,
    /// Peers that may open sessions to us.
    pub trusted: Vec<PublicKey>,
    /// Addresses on which peers are accepted; empty for a pure client. An IPv6 wildcard takes no IPv4.
    pub listen: Vec<SocketAddr>,
    /// Controller of paths that peers open.
    pub accept_controller: ControllerConfig,
    /// Controller of those paths that the peer declares as low-orbit links; `None` for the same one.
    pub accept_leo_controller: Option<ControllerConfig>,
    /// How to probe the satellite hop of all these paths, if they lead over a dish of ours; `None` if they do not.
    pub accept_detection: Option<Detection>,
    /// The network interface of all these paths, if it is known; probes use it.
    pub accept_interface: Option<String>,
    /// Greatest number of sessions at once.
    pub max_sessions: usize,
    /// Greatest number of sessions that one key may have opened to us; one more replaces its session that was silent for
    /// longest, if that is dead.
    pub max_sessions_per_peer: usize,
    /// Greatest number of connections at once that peers opened and that have not joined a session yet; more are refused.
    pub max_handshakes: usize,
    /// The same of one source: an IPv4 address, or an IPv6 network of 64 bits.
    pub max_handshakes_per_source: usize,
    /// Settings of every session.
    pub session: SessionConfig,
    /// Who chooses the paths of every session, in our direction.
    pub scheduler: SchedulerChoice,
    /// Bytes of the largest UDP payload to send, 1200 to 1472. Each path begins with `sure_packet_bytes` and probes for more, up to
    /// this.
    pub packet_bytes: u16,
    /// UDP payload that every path carries without a probe, in the same range; if it is not below `packet_bytes`, there are no
    /// probes.
    pub sure_packet_bytes: u16,
    /// Names of peers for the log; others are named by their keys.
    pub peer_names: HashMap<PublicKey, String>,
    /// Where qlog records of sessions and paths go; `None` for none.
    pub qlog: Option<QlogFolder>,
}

impl EndpointConfig {
    /// A pure client without trusted peers and listening addresses, with Cubic and at most 256 sessions, 64 of each key.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            trusted: Vec::new(),
            listen: Vec::new(),
            accept_controller: ControllerConfig::Cubic,
            accept_leo_controller: None,
            accept_detection: None,
            accept_interface: None,
            max_sessions: 256,
            max_sessions_per_peer: 64,
            max_handshakes: 256,
            max_handshakes_per_source: 32,
            session: SessionConfig::default(),
            scheduler: SchedulerChoice::default(),
            packet_bytes: MOST_PACKET_BYTES,
            sure_packet_bytes: LEAST_PACKET_BYTES,
            peer_names: HashMap::new(),
            qlog: None,
        }
    }
}

/// All sessions of a process. Clones share it; it ends, and all its sessions with it, when the last clone is dropped.
#[derive(Clone)]
pub struct Endpoint {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    listen_addresses: Vec<SocketAddr>,
}

impl Endpoint {
    /// Binds the listening sockets and starts the driver, which has a thread of its own.
    ///
    /// # Errors
    /// An address cannot be bound, the configuration is refused, or the system is out of resources. An address of a version of IP
    /// that the kernel lacks is left out, with a warning in the log, where another one is bound.
    pub async fn bind(config: EndpointConfig) -> Result<Self, Error> {
        let sockets = listen(&config.listen, |address| {
            UdpSocket::bind(&BindOptions::new(address))
        })?;
        let listen_addresses: Vec<_> = sockets.iter().map(UdpSocket::local_addr).collect();
        let (mut rng_seed, mut echo_secret) = ([0; 32], [0; 32]);
        for secret in [&mut rng_seed, &mut echo_secret] {
            SystemRandom::new()
                .fill(secret)
                .map_err(|_| Error::NoRandomness)?;
        }
        let max_sessions = config.max_sessions;
        let block_bounds = Bounds::of_blocks(config.session.max_receive_bytes);
        let node = Node::new(
            NodeConfig {
                identity: config.identity,
                trusted: config.trusted,
                session: config.session,
                scheduler: config.scheduler,
                accept_controller: config.accept_controller,
                accept_leo_controller: config.accept_leo_controller,
                max_sessions,
                max_sessions_per_peer: config.max_sessions_per_peer,
                max_handshakes: config.max_handshakes,
                max_handshakes_per_source: config.max_handshakes_per_source,
                packet_bytes: config.packet_bytes,
                sure_packet_bytes: config.sure_packet_bytes,
                rng_seed,
                qlog: config.qlog.map(|folder| Arc::new(folder) as _),
            },
            Instant::now(),
        )?;
        let poller = Poller::new()?;
        let (inbox, inputs) = Inbox::new(poller.waker());
        let shared = Arc::new(Shared::new(
            node,
            inbox,
            max_sessions,
            block_bounds,
            config.peer_names,
        ));
        {
            let mut state = shared.lock();
            for socket in sockets {
                let options = BindOptions::new(socket.local_addr());
                let local = state.add_local(Ok(socket), options, None, WireMeter::default());
                state.accepting.locals.push(local.id);
            }
            state.accepting.detection = config.accept_detection;
            state.accepting.interface = config.accept_interface;
        }
        Driver::start(shared.clone(), poller, inputs, echo_secret)?;
        let inner = Arc::new(Inner {
            shared,
            listen_addresses,
        });
        Ok(Self { inner })
    }

    /// The number of sessions of trusted peers refused for the configured limits.
    pub fn refused_sessions(&self) -> u64 {
        self.inner.shared.lock().node.refused_sessions()
    }

    /// The number of connections refused for the configured limits, before their peer is known.
    pub fn refused_handshakes(&self) -> u64 {
        self.inner.shared.lock().node.refused_handshakes()
    }

    /// The addresses on which peers are accepted, with the ports that the kernel chose.
    pub fn listen_addresses(&self) -> Vec<SocketAddr> {
        self.inner.listen_addresses.clone()
    }

    /// Opens a session; returns when the first path is up and the session is open. The others join it when they can.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when no path came up within 10 s; [`Error::Transport`] when the peer has another key
    /// or refuses ours; and mistakes in `paths`.
    pub async fn connect(&self, peer: PublicKey, paths: Vec<PathSpec>) -> Result<Session, Error> {
        let mut attempt = self.start_connecting(peer, paths)?;
        match tokio::time::timeout(CONNECT_TIMEOUT, &mut attempt.opened).await {
            Ok(Ok(result)) => result?,
            Ok(Err(_)) => return Err(Error::EndpointClosed),
            Err(_) => {
                let problems = attempt.session.path_problems();
                let paths = attempt.session.path_status().into_iter();
                let problems = paths.filter_map(|path| {
                    let problem = problems.get(&path.path)?;
                    Some(format!("path {:?}: {problem}", path.name))
                });
                return Err(Error::Unreachable {
                    within: CONNECT_TIMEOUT,
                    problems: problems.collect(),
                });
            }
        }
        attempt.open = true;
        Ok(attempt.session.clone())
    }

    /// The next session that a trusted peer opens; `None` after `close`. Cancelling loses nothing.
    pub async fn accept(&self) -> Option<Session> {
        let session = self.inner.shared.incoming.pop().await?;
        let shared = self.inner.shared.clone();
        Some(Session { shared, session })
    }

    /// Changes who may open sessions to us from now on, and the names for the log. Sessions that are open stay open.
    ///
    /// # Errors
    /// The cryptographic library refuses; nothing has changed then.
    pub fn set_trusted(
        &self,
        trusted: Vec<PublicKey>,
        names: HashMap<PublicKey, String>,
    ) -> Result<(), Error> {
        let mut state = self.inner.shared.lock();
        state.node.set_trusted(trusted)?;
        state.peer_names = names;
        Ok(())
    }

    /// Bytes of the IP packets on the wire, both ways together, of all paths of this name that this side opened to this peer since
    /// the endpoint was bound: handshakes, probes and what arrived in vain included. Probes that several paths share count for
    /// each of them.
    pub fn wire_bytes(&self, peer: PublicKey, path: &str) -> u64 {
        let mut state = self.inner.shared.lock();
        state.probers.count_probes();
        state.wire_meter(peer, path).bytes()
    }

    /// All open sessions, accepted and connected, in order of their opening.
    pub fn sessions(&self) -> Vec<Session> {
        let state = self.inner.shared.lock();
        let mut sessions: Vec<_> = state
            .sessions
            .values()
            .filter(|entry| entry.shared.established_at.get().is_some())
            .map(|entry| Session {
                shared: self.inner.shared.clone(),
                session: entry.shared.clone(),
            })
            .collect();
        sessions.sort_by_key(Session::id);
        sessions
    }

    /// Resolves when the endpoint has ended: it was closed, or its driver cannot go on, and no session will open any more.
    pub async fn ended(&self) {
        let (ended, end) = oneshot::channel();
        {
            let mut state = self.inner.shared.lock();
            if state.ended {
                return;
            }
            state.end_waiters.push(ended);
        }
        let _ = end.await;
    }

    /// Closes all sessions and ends the endpoint; returns when the peers have been informed, after at most about one second.
    pub async fn close(&self) {
        let (ended, end) = oneshot::channel();
        {
            let mut state = self.inner.shared.lock();
            if state.ended {
                return;
            }
            state.close_all("endpoint closed");
            state.end_waiters.push(ended);
        }
        self.inner.shared.incoming.close();
        self.inner.shared.wake_driver();
        let _ = end.await;
    }

    /// Gives the system back what the endpoint keeps for later: buffers, and what the allocator keeps for its thread
    /// ([`starhaul_net::release_memory`]). For the time after much was carried; the next traffic fetches it anew.
    pub fn release_memory(&self) {
        self.inner.shared.inbox().send(Input::ReleaseMemory);
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    fn start_connecting(&self, peer: PublicKey, paths: Vec<PathSpec>) -> Result<Attempt, Error> {
        let mut names = HashSet::new();
        if let Some(path) = paths.iter().find(|path| !names.insert(path.name.as_str())) {
            return Err(Error::DuplicatePath(path.name.clone()));
        }
        if paths.is_empty() {
            return Err(Error::NoPath);
        }
        let sockets = paths.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        let (connecting, opened) = oneshot::channel();
        let mut state = self.inner.shared.lock();
        if state.closing || state.ended {
            return Err(Error::EndpointClosed);
        }
        let (mut own_paths, mut configs) = (BTreeMap::new(), Vec::new());
        // The node numbers them in the order given.
        for ((number, spec), (socket, options)) in (0..).zip(paths).zip(sockets) {
            let path = state.own_path(peer, spec, socket, options);
            configs.push((path.socket.id, path.spec.clone()));
            own_paths.insert(PathId(number), path);
        }
        let handle = match state.node.connect(Instant::now(), peer, configs) {
            Ok(handle) => handle,
            Err(error) => {
                own_paths
                    .into_values()
                    .for_each(|path| state.remove_local(path.socket.id));
                return Err(error.into());
            }
        };
        let session = Arc::new(SessionShared::new(handle, peer));
        let mut entry = SessionEntry::new(session.clone());
        entry.connecting = Some(connecting);
        entry.own_paths = own_paths;
        state.sessions.insert(handle, entry);
        drop(state);
        self.inner.shared.wake_driver();
        let shared = self.inner.shared.clone();
        Ok(Attempt {
            session: Session { shared, session },
            opened,
            open: false,
        })
    }
}

/// A socket for each address, but for those whose version of IP the kernel lacks, unless all are.
fn listen<S>(
    addresses: &[SocketAddr],
    bind: impl Fn(SocketAddr) -> Result<S, starhaul_net::Error>,
) -> Result<Vec<S>, starhaul_net::Error> {
    let (mut sockets, mut left_out) = (Vec::new(), Vec::new());
    for address in addresses {
        match bind(*address) {
            Err(starhaul_net::Error::System(source)) if !has_family(&source) => {
                let address = *address;
                left_out.push(starhaul_net::Error::Bind { address, source });
            }
            bound => sockets.push(bound?),
        }
    }
    if sockets.is_empty() && !left_out.is_empty() {
        return Err(left_out.remove(0));
    }
    for error in left_out {
        tracing::warn!("{error}; peers are accepted at the other addresses alone");
    }
    Ok(sockets)
}

fn has_family(error: &io::Error) -> bool {
    Errno::from_io_error(error) != Some(Errno::AFNOSUPPORT)
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.lock().close_all("endpoint dropped");
        self.shared.incoming.abandon();
        self.shared.wake_driver();
    }
}

/// A session that is being opened; closed when its future is dropped.
struct Attempt {
    session: Session,
    opened: oneshot::Receiver<Result<(), Error>>,
    open: bool,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.open {
            let Session { shared, session } = &self.session;
            shared.lock().close_session(session.handle, "given up");
            shared.wake_driver();
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("listen_addresses", &self.inner.listen_addresses)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use starhaul_net::Error;

    use super::*;

    /// What `starhaul init` writes for a name: both versions of IP.
    #[test]
    fn an_address_of_a_version_that_the_kernel_lacks_is_left_out_beside_another() {
        let [v4, v6] = ["0.0.0.0:4600", "[::]:4600"].map(|text| text.parse().unwrap());
        let without_v6 = |address: SocketAddr| match address {
            SocketAddr::V4(_) => Ok(address),
            SocketAddr::V6(_) => Err(Error::System(Errno::AFNOSUPPORT.into())),
        };
        assert_eq!(listen(&[v4, v6], without_v6).unwrap(), [v4]);
        assert!(listen(&[], without_v6).unwrap().is_empty());
        let refused = listen(&[v6], without_v6).unwrap_err().to_string();
        assert!(refused.contains("[::]:4600"), "{refused}");
        let taken = |address| match address {
            SocketAddr::V4(_) => Ok(address),
            SocketAddr::V6(_) => Err(Error::System(Errno::MFILE.into())),
        };
        assert!(matches!(listen(&[v4, v6], taken), Err(Error::System(_))));
    }
}
