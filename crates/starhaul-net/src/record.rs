//! Recordings over real sockets: the state machines of `starhaul-record`, kernel timestamps, ICMP, and exact timers.

use std::{
    collections::HashMap,
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use starhaul_record::{Client, ClientConfig, Light, Progress, Server, ServerConfig, ServerEvent};

use crate::{
    BindOptions, Error, Poller, Transmit, UdpSocket, Waker,
    icmp::{EchoListener, Pinger, is_forbidden},
    realtime::sharpen_timers,
    stamped::{StampedBuffer, stamp_arrivals},
};

/// The journal is flushed to the kernel this often, where it survives the end of this program.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// Longest wait of a loop without a deadline.
const LONGEST_WAIT: Duration = Duration::from_millis(500);
/// Greatest number of batches sent before arrivals are read again.
const BATCHES: usize = 8;
/// Greatest number of receives before due packets are sent.
const RECEIVES: usize = 32;
/// Peers for which the local address is kept; a dropped one is learnt again from its next datagram.
const MAX_LOCALS: usize = 4096;

/// The protocol of the light flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LightChoice {
    /// ICMP if this user may use it, else UDP.
    Auto,
    /// ICMP, or an error.
    Icmp,
    /// UDP, which needs no privilege.
    Udp,
}

/// Why a recording over sockets failed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A socket or a resource is missing.
    #[error(transparent)]
    Net(#[from] Error),
    /// The recording itself failed.
    #[error(transparent)]
    Record(#[from] starhaul_record::Error),
    /// The journal cannot be written.
    #[error("cannot write the journal: {0}; is the disk full?")]
    Journal(#[source] io::Error),
    /// ICMP was requested, and this user may not use it.
    #[error(
        "no permission for ICMP: run as root, or with CAP_NET_RAW, or let this group use ping sockets \
         (sysctl net.ipv4.ping_group_range=\"0 2147483647\"); --light udp needs no permission"
    )]
    IcmpForbidden,
    /// ICMP was requested, and the server's host does not answer it.
    #[error("the server does not answer ICMP echo; --light udp does without")]
    IcmpSilent,
}

/// Ends a recording or a server from another thread. Clones end the same one.
#[derive(Clone, Debug)]
pub struct Stop {
    stopped: Arc<AtomicBool>,
    waker: Waker,
}

impl Stop {
    /// Requests the end; the run ends soon after.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Whether the end was requested.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

/// Runs a recording or a server; create it first, to be able to stop it.
#[derive(Debug)]
pub struct Runner {
    poller: Poller,
    stop: Stop,
}

impl Runner {
    /// Creates a runner.
    ///
    /// # Errors
    /// [`Error::System`] when no file descriptor is left.
    pub fn new() -> Result<Self, Error> {
        let poller = Poller::new()?;
        let stop = Stop {
            stopped: Arc::default(),
            waker: poller.waker(),
        };
        Ok(Self { poller, stop })
    }

    /// A handle that ends the run.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Serves recordings on a socket until it is stopped; `each` gets the events.
    ///
    /// # Errors
    /// [`Error`] if the socket is gone, or the system is out of a resource.
    pub fn serve(
        &mut self,
        socket: &UdpSocket,
        config: ServerConfig,
        mut each: impl FnMut(ServerEvent),
    ) -> Result<(), Error> {
        sharpen_timers();
        stamp_arrivals(socket)?;
        let mut server = Server::new(config, Instant::now());
        let mut port = Port::new(socket);
        let mut listeners = echo_listeners(socket);
        while !self.stop.is_stopped() {
            port.receive(|arrived, from, payload| {
                server.handle_datagram(Instant::now(), arrived, from, payload);
            });
            for listener in &mut listeners {
                listener.recv(|arrived, request| {
                    server.handle_echo_request(Instant::now(), arrived, &request);
                });
            }
            port.send(|now| server.poll_transmit(now))?;
            while let Some(event) = server.poll_event() {
                each(event);
            }
            let deadline = server
                .poll_timeout()
                .unwrap_or_else(|| Instant::now() + LONGEST_WAIT);
            let mut fds = vec![(socket.as_fd(), port.is_blocked())];
            fds.extend(listeners.iter().map(|listener| (listener.as_fd(), false)));
            self.poller
                .wait_fds(&fds, Some(deadline.min(Instant::now() + LONGEST_WAIT)))?;
        }
        Ok(())
    }

    /// Records one direction: writes the journal as it goes, and `each` gets the progress. Returns the light flow used.
    /// A stop ends the recording early with a complete journal.
    ///
    /// # Errors
    /// [`RecordError`] with its cause.
    pub fn record(
        &mut self,
        server: SocketAddr,
        mut config: ClientConfig,
        choice: LightChoice,
        journal: &mut impl Write,
        mut each: impl FnMut(Progress),
    ) -> Result<Light, RecordError> {
        sharpen_timers();
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind(&BindOptions::new(SocketAddr::new(any, 0)))?;
        stamp_arrivals(&socket)?;
        let mut pinger = self.pinger(server.ip(), config.token(), choice)?;
        config.light = if pinger.is_some() {
            Light::Icmp
        } else {
            Light::Udp
        };
        config.header_bytes = if server.is_ipv4() { 28 } else { 48 };
        let light = config.light;
        // The trial of echoes may have taken seconds.
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        config.started_unix_ms =
            u64::try_from(started.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
        let mut client = Client::new(config, Instant::now());
        let mut port = Port::new(&socket);
        let (mut flushed, mut told) = (Instant::now(), Instant::now());
        loop {
            port.receive(|arrived, from, payload| {
                if from == server {
                    client.handle_datagram(Instant::now(), arrived, payload);
                }
            });
            if let Some(pinger) = &mut pinger {
                pinger.recv(|arrived, number| client.handle_probe_reply(arrived, number));
                while let Some(number) = client.poll_probe(Instant::now()) {
                    pinger.send(number);
                }
            }
            port.send(|now| client.poll_transmit(now).map(|transmit| (server, transmit)))?;
            while let Some(entry) = client.poll_entry() {
                journal
                    .write_all(entry.to_line().as_bytes())
                    .map_err(RecordError::Journal)?;
            }
            let now = Instant::now();
            if now >= flushed + FLUSH_INTERVAL {
                journal.flush().map_err(RecordError::Journal)?;
                flushed = now;
            }
            if now >= told + PROGRESS_INTERVAL {
                client.progress(now).into_iter().for_each(&mut each);
                told = now;
            }
            if self.stop.is_stopped()
                && let Some(farewell) = client.leave()
            {
                port.send_once(server, &farewell)?;
            }
            if let Some(result) = client.result() {
                journal.flush().map_err(RecordError::Journal)?;
                return result.clone().map(|()| light).map_err(Into::into);
            }
            let deadline = client
                .poll_timeout()
                .unwrap_or(now)
                .min(now + PROGRESS_INTERVAL);
            let mut fds = vec![(socket.as_fd(), port.is_blocked())];
            fds.extend(pinger.as_ref().map(|pinger| (pinger.as_fd(), false)));
            self.poller.wait_fds(&fds, Some(deadline))?;
        }
    }

    /// Opens an ICMP pinger if requested, permitted and answered.
    fn pinger(
        &mut self,
        host: IpAddr,
        token: [u8; 8],
        choice: LightChoice,
    ) -> Result<Option<Pinger>, RecordError> {
        if choice == LightChoice::Udp {
            return Ok(None);
        }
        let mut pinger = match Pinger::new(host, token) {
            Ok(pinger) => pinger,
            Err(error) if choice == LightChoice::Auto => {
                tracing::info!(%error, "no permission for ICMP echo: the light flow is UDP");
                return Ok(None);
            }
            Err(error) if is_forbidden(&error) => return Err(RecordError::IcmpForbidden),
            Err(error) => return Err(error.into()),
        };
        // Some may be lost, and some paths are long.
        for _ in 0..6 {
            pinger.send(u32::MAX);
            let deadline = Instant::now() + Duration::from_millis(500);
            let mut answered = false;
            while !answered && Instant::now() < deadline && !self.stop.is_stopped() {
                self.poller
                    .wait_fds(&[(pinger.as_fd(), false)], Some(deadline))?;
                pinger.recv(|_, _| answered = true);
            }
            if answered {
                return Ok(Some(pinger));
            }
        }
        match choice {
            LightChoice::Icmp => Err(RecordError::IcmpSilent),
            _ => {
                tracing::info!("the server does not answer ICMP echo: the light flow is UDP");
                Ok(None)
            }
        }
    }
}

/// Listeners for the echo requests of clients, where permitted.
fn echo_listeners(socket: &UdpSocket) -> Vec<EchoListener> {
    let local = socket.local_addr().ip();
    // A socket of IPv6 for all addresses serves IPv4, too.
    let families = [local.is_ipv4() || local.is_unspecified(), local.is_ipv6()];
    let wanted = [true, false].into_iter().zip(families);
    let mut listeners = Vec::new();
    for (is_ipv4, _) in wanted.filter(|(_, wanted)| *wanted) {
        match EchoListener::new(is_ipv4) {
            Ok(listener) => listeners.push(listener),
            Err(error) => tracing::info!(
                %error,
                "no permission to see ICMP echo requests (CAP_NET_RAW): clients separate the two directions less exactly"
            ),
        }
    }
    listeners
}

/// A socket, its received datagrams, and those that did not fit.
struct Port<'a> {
    socket: &'a UdpSocket,
    buffer: StampedBuffer,
    /// The local address of each peer, which is used for answers.
    locals: HashMap<SocketAddr, IpAddr>,
    /// A partly sent batch, and the number of bytes sent.
    blocked: Option<(SocketAddr, starhaul_record::Transmit, usize)>,
}

impl<'a> Port<'a> {
    fn new(socket: &'a UdpSocket) -> Self {
        Self {
            socket,
            buffer: StampedBuffer::new(),
            locals: HashMap::new(),
            blocked: None,
        }
    }

    fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    fn receive(&mut self, mut each: impl FnMut(Instant, SocketAddr, &[u8])) {
        for _ in 0..RECEIVES {
            if !self.buffer.recv(self.socket) {
                return;
            }
            for datagram in self.buffer.datagrams() {
                let Some(from) = datagram.remote.filter(|from| from.port() != 0) else {
                    continue;
                };
                if let Some(local) = datagram.local
                    && self.locals.get(&from) != Some(&local)
                {
                    if self.locals.len() >= MAX_LOCALS {
                        self.locals.clear();
                    }
                    self.locals.insert(from, local);
                }
                each(datagram.arrived, from, datagram.payload);
            }
        }
    }

    /// Sends due packets, up to a bound so that arrivals do not wait.
    fn send(
        &mut self,
        mut next: impl FnMut(Instant) -> Option<(SocketAddr, starhaul_record::Transmit)>,
    ) -> Result<(), Error> {
        for _ in 0..BATCHES {
            let (to, transmit, done) = match self.blocked.take() {
                Some(blocked) => blocked,
                None => match next(Instant::now()) {
                    Some((to, transmit)) => (to, transmit, 0),
                    None => return Ok(()),
                },
            };
            let rest = transmit.contents.get(done..).unwrap_or(&[]);
            let sent = self.socket.try_send(&Transmit {
                to,
                from: self.locals.get(&to).copied(),
                ecn: 0,
                contents: rest,
                segment_size: transmit.segment_bytes,
            })?;
            if sent < rest.len() {
                self.blocked = Some((to, transmit, done + sent));
                return Ok(());
            }
        }
        Ok(())
    }

    fn send_once(
        &mut self,
        to: SocketAddr,
        transmit: &starhaul_record::Transmit,
    ) -> Result<(), Error> {
        let contents = &transmit.contents;
        let segment_size = transmit.segment_bytes;
        self.socket
            .try_send(&Transmit {
                to,
                from: self.locals.get(&to).copied(),
                ecn: 0,
                contents,
                segment_size,
            })
            .map(|_| ())
    }
}
