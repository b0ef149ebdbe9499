//! TCPCLv4 (RFC 9174): the library speaks it, and here is what stands between it and the network. It owns the sockets, accepts again
//! after errors, bounds connections and what they claim, and mends acknowledgements (`splice`).
//!
//! The library makes and takes connections of TCP alone, so each connection of a peer is joined to one of the library over the loopback
//! interface. The library makes that one, whoever has made the other, and so it listens nowhere; contact headers and SESS_INIT go in the
//! order of the side that the node is (`carry`). Nothing of it is TLS, which the node does not configure; a connection in which both ends
//! offer it would be ended.

mod carry;
mod framing;
mod places;
mod roster;
pub mod splice;
#[cfg(test)]
mod tests;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle};
use starhaul_log::Seldom;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

use self::{
    carry::{End, LINGER, carry},
    framing::CONTACT,
    places::{Place, Places},
    splice::{Fault, Limits, Splice},
};
use crate::{Error, config::TcpConfig};

/// How long a peer that connects may take until there is a session.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// How long the node waits before it accepts again after an error, as when too many files are open: the connection waits in the kernel.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Connections that are accepted in a second; more wait in the kernel.
const MOST_IN_A_SECOND: u32 = 64;
/// Bytes of transfers that have not ended, of all connections together, beside one of the largest bundle.
const HELD_BYTES: u64 = 512 << 20;
/// Bytes around the payload of the largest bundle.
const AROUND: u64 = 64 << 10;
/// After so long without a word the kernel asks whether a peer is still there.
const SILENT_FOR: Duration = Duration::from_secs(60);
/// How long connections may take to end with the node.
const MOST_CLOSING: Duration = Duration::from_secs(1);
/// The answer to another version of TCPCL (RFC 9174 §4.3): a contact header, and SESS_TERM for the version.
const OTHER_VERSION: [u8; 9] = *b"dtn!\x04\x00\x05\x00\x02";

/// Carries a connection, from its session on to its end.
type Carrying = Pin<Box<dyn Future<Output = Result<(), End>> + Send>>;

/// TCPCLv4 behind a splice.
pub(crate) struct TcpLayer {
    splices: Arc<Splices>,
    listener: Mutex<Option<TcpListener>>,
    jobs: Mutex<JoinSet<()>>,
}

/// What all connections share.
struct Splices {
    library: Arc<hardy_tcpclv4::Cla>,
    limits: Limits,
    places: Arc<Places>,
    /// How many connections were joined to the library.
    joined: AtomicU32,
    /// Limit the log lines on what others cause.
    errors: Seldom,
    full: Seldom,
    faults: Seldom,
    held: Seldom,
}

impl TcpLayer {
    /// Binds the address of the configuration, if it has one, for bundles with payloads of up to `bundle_bytes`.
    ///
    /// # Errors
    /// [`Error::Listen`], [`Error::Agent`].
    pub(crate) async fn start(config: &TcpConfig, bundle_bytes: u64) -> Result<Arc<Self>, Error> {
        let listener = match config.listen {
            None => None,
            Some(address) => {
                let bound = TcpListener::bind(address).await;
                Some(bound.map_err(|error| Error::Listen {
                    address,
                    reason: starhaul_net::not_bound(&error),
                })?)
            }
        };
        let settings = hardy_tcpclv4::config::Config {
            address: None,
            transfer_mru: bundle_bytes.saturating_add(AROUND),
            ..hardy_tcpclv4::config::Config::default()
        };
        let library = hardy_tcpclv4::Cla::new(&settings);
        let library = library.map_err(|error| Error::Agent(error.to_string()))?;
        let limits = Limits {
            segment: settings.segment_mru,
            transfer: settings.transfer_mru,
        };
        Ok(Arc::new(Self {
            splices: Arc::new(Splices {
                library: Arc::new(library),
                limits,
                places: Places::new(limits.transfer.saturating_add(HELD_BYTES)),
                joined: AtomicU32::new(0),
                errors: Seldom::default(),
                full: Seldom::default(),
                faults: Seldom::default(),
                held: Seldom::default(),
            }),
            listener: Mutex::new(listener),
            jobs: Mutex::default(),
        }))
    }

    /// The library, as the agent is to use it. It is told of connections under addresses of the loopback interface.
    pub(crate) fn library(&self) -> Arc<hardy_tcpclv4::Cla> {
        self.splices.library.clone()
    }

    /// Accepts connections as long as the node runs. The library must be registered with the agent by then.
    pub(crate) async fn accept(self: Arc<Self>) {
        let Some(listener) = self.listener.lock().take() else {
            return;
        };
        let (mut since, mut count) = (Instant::now(), 0);
        loop {
            match listener.accept().await {
                Ok((peer, from)) => self.take(peer, from),
                Err(error) => {
                    if let Some(others) = self.splices.errors.is_due(Instant::now()) {
                        tracing::warn!(%error, others, "no connection can be accepted: it is tried again");
                    }
                    sleep(ACCEPT_AGAIN).await;
                }
            }
            count += 1;
            let passed = since.elapsed();
            if count >= MOST_IN_A_SECOND || passed >= Duration::from_secs(1) {
                sleep(Duration::from_secs(1).saturating_sub(passed)).await;
                (since, count) = (Instant::now(), 0);
            }
        }
    }

    /// Connects to a peer, and returns when there is a session: the address under which the library tells the agent of it.
    ///
    /// # Errors
    /// Why there is none, as text for people.
    pub(crate) async fn connect(&self, to: SocketAddr) -> Result<SocketAddr, String> {
        let peer = TcpStream::connect(to).await;
        let peer = peer.map_err(|error| error.to_string())?;
        let splices = self.splices.clone();
        let place = splices.places.connect(to.ip());
        let number = place.number;
        let joined = splices.join(peer, to, &[], place).await;
        let (at, carrying) = joined.map_err(|end| end.to_string())?;
        self.spawn(number, async move {
            let ended = carrying.await;
            splices.tell(to, ended);
        });
        Ok(at)
    }

    /// Waits a moment for connections to end that the library has ended, and ends the others.
    pub(crate) async fn close(&self) {
        let mut jobs = std::mem::take(&mut *self.jobs.lock());
        let ended = async { while jobs.join_next().await.is_some() {} };
        let _ = timeout(MOST_CLOSING, ended).await;
        jobs.shutdown().await;
    }

    /// Gives a connection that has come a place, or ends it.
    fn take(&self, peer: TcpStream, from: SocketAddr) {
        let splices = self.splices.clone();
        let accepted = splices.places.accept(from.ip());
        if accepted.as_ref().is_none_or(|(_, is_full)| *is_full)
            && let Some(others) = splices.full.is_due(Instant::now())
        {
            tracing::warn!(
                remote = %from,
                others,
                "there are as many connections over TCPCLv4 as may be: those without a session end, or the new one"
            );
        }
        let Some((place, _)) = accepted else {
            return;
        };
        self.spawn(place.number, async move {
            let ended = splices.serve(peer, from, place).await;
            splices.tell(from, ended);
        });
    }

    fn spawn(&self, number: u64, work: impl Future<Output = ()> + Send + 'static) {
        let mut jobs = self.jobs.lock();
        // Those that have ended are not kept.
        while jobs.try_join_next().is_some() {}
        let task = jobs.spawn(work);
        self.splices.places.set_task(number, task);
    }
}

impl Splices {
    /// Carries a connection that has come, to its end.
    async fn serve(
        self: &Arc<Self>,
        mut peer: TcpStream,
        from: SocketAddr,
        place: Place,
    ) -> Result<(), End> {
        let begun = async {
            let mut first = [0; CONTACT];
            peer.read_exact(&mut first).await?;
            // Who speaks something else costs the library nothing.
            if let Err(fault) = Splice::greet(first) {
                if let Fault::Version(_) = fault {
                    peer.write_all(&OTHER_VERSION).await?;
                }
                return Err(End::Fault(fault));
            }
            self.join(peer, from, &first, place).await
        };
        let begun = timeout(HANDSHAKE, begun).await;
        let (_, carrying) = begun.map_err(|_| End::Silent)??;
        carrying.await
    }

    /// Joins a connection to the library, and returns when there is a session. What has come of the peer is `first`.
    async fn join(
        self: &Arc<Self>,
        peer: TcpStream,
        with: SocketAddr,
        first: &[u8],
        place: Place,
    ) -> Result<(SocketAddr, Carrying), End> {
        // Acknowledgements are small.
        peer.set_nodelay(true)?;
        // A peer that wants no keepalive of the protocol, and is gone without a word, would keep its place.
        set_socket_keepalive(&peer, true).map_err(io::Error::from)?;
        set_tcp_keepidle(&peer, SILENT_FOR).map_err(io::Error::from)?;
        let listener = self.loopback().map_err(End::Loopback)?;
        let at = listener.local_addr().map_err(End::Loopback)?;
        let (splices, first, number) = (self.clone(), first.to_vec(), place.number);
        let mut carrying: Carrying = Box::pin(async move {
            let (node, _) = listener.accept().await.map_err(End::Loopback)?;
            // It is for this connection alone.
            drop(listener);
            node.set_nodelay(true)?;
            let splice = Splice::new(splices.limits);
            let held = |bytes| splices.hold(&place, with, bytes);
            carry(peer, node, &first, splice, held, &place).await
        });
        let joined = tokio::select! {
            joined = self.library.connect(&at) => Ok(joined),
            ended = &mut carrying => Err(ended),
        };
        match joined {
            Ok(Ok(())) => {
                self.places.begin_session(number);
                Ok((at, carrying))
            }
            Ok(Err(error)) => {
                // What the library tells the peer last is on its way.
                let ended = timeout(LINGER, carrying).await.unwrap_or(Ok(()));
                ended?;
                Err(End::Library(error.to_string()))
            }
            Err(ended) => {
                ended?;
                Err(End::Early)
            }
        }
    }

    /// A listener for one connection of the library. Without leave to reuse its address, nobody else can listen there while that lives.
    fn loopback(&self) -> io::Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.next_address(), 0).into())?;
        socket.listen(1)
    }

    /// An address for one connection: the library knows its connections by their addresses, and may try one again after its end, where
    /// then nobody must be. Only Linux has all of this network by itself.
    fn next_address(&self) -> IpAddr {
        const NETWORK: u32 = 0x7f00_0001;
        const HOSTS: u32 = (1 << 24) - 2;
        let number = self.joined.fetch_add(1, Ordering::Relaxed);
        match cfg!(target_os = "linux") {
            true => Ipv4Addr::from(NETWORK + number % HOSTS).into(),
            false => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Notes what a connection holds.
    fn hold(&self, place: &Place, with: SocketAddr, bytes: u64) {
        if place.hold(bytes)
            && let Some(others) = self.held.is_due(Instant::now())
        {
            tracing::warn!(
                remote = %with,
                others,
                "bundles that come over TCPCLv4 hold as much memory as they may before they are here: a connection ends"
            );
        }
    }

    /// Says why a connection has ended, if its peer is to blame.
    fn tell(&self, peer: SocketAddr, ended: Result<(), End>) {
        match ended {
            Err(End::Fault(error)) => {
                if let Some(others) = self.faults.is_due(Instant::now()) {
                    tracing::warn!(remote = %peer, %error, others, "a connection over TCPCLv4 is ended");
                }
            }
            Err(error @ End::Loopback(_)) => {
                if let Some(others) = self.faults.is_due(Instant::now()) {
                    tracing::warn!(remote = %peer, %error, others, "a connection over TCPCLv4 is ended: it needs the loopback interface, and descriptors");
                }
            }
            Err(error) => {
                tracing::debug!(remote = %peer, %error, "a connection over TCPCLv4 ended")
            }
            Ok(()) => tracing::debug!(remote = %peer, "a connection over TCPCLv4 ended"),
        }
    }
}
