//! LTP over UDP: one segment per datagram, as other engines do (port 1113 of IANA).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Instant,
};

use starhaul_ltp::{Batch, Body, Engine, EngineId, Event, parse};

use crate::{
    BindOptions, BulkSocket, Error, IoMode, Poller, RecvBuffer, Waker,
    bulk::{MOST_BYTES, MOST_DATAGRAMS},
    peer_names::PeerNames,
};

/// The port of LTP (`ltp-deepspace`).
pub const PORT: u16 = 1113;
/// Receive calls before the engine may send, and batches sent before it reads: reports must not wait for data.
const TURN: usize = 16;

/// An engine and its socket, for a thread of their own that calls [`LtpDriver::turn`] again and again.
#[derive(Debug)]
pub struct LtpDriver {
    engine: Engine,
    /// None after it was gone, until it is bound again.
    socket: Option<BulkSocket>,
    address: SocketAddr,
    mode: IoMode,
    poller: Poller,
    names: PeerNames<EngineId>,
    /// Peers with a name: they are nowhere else than it says.
    named: BTreeSet<EngineId>,
    buffer: RecvBuffer,
    batch: Batch,
    /// Where the rest of a batch goes that the socket did not take, and how much of it is done.
    rest: Option<(SocketAddr, usize)>,
    addresses: BTreeMap<EngineId, SocketAddr>,
    engines: BTreeMap<SocketAddr, EngineId>,
    /// When those were last believed that were found where they sent from.
    heard: BTreeMap<EngineId, Instant>,
    /// Where those were before that were found elsewhere.
    former: BTreeMap<EngineId, SocketAddr>,
    /// All addresses of those that are at one of several, until one answers.
    alternatives: BTreeMap<EngineId, Vec<SocketAddr>>,
    from_nobody: u64,
}

impl LtpDriver {
    /// An engine at this address; the IPv6 wildcard takes IPv4, too.
    ///
    /// # Errors
    /// As [`crate::UdpSocket::bind`].
    pub fn bind(address: SocketAddr, mode: IoMode, engine: Engine) -> Result<Self, Error> {
        let (socket, poller) = (bind(address, mode)?, Poller::new()?);
        Ok(Self {
            engine,
            address: socket.local_addr(),
            socket: Some(socket),
            mode,
            names: PeerNames::new(poller.waker()),
            poller,
            named: BTreeSet::new(),
            buffer: RecvBuffer::new(),
            batch: Batch::new(MOST_BYTES, MOST_DATAGRAMS),
            rest: None,
            addresses: BTreeMap::new(),
            engines: BTreeMap::new(),
            heard: BTreeMap::new(),
            former: BTreeMap::new(),
            alternatives: BTreeMap::new(),
            from_nobody: 0,
        })
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The engine, to send, to cancel and to read its counters.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Ends the wait of [`LtpDriver::turn`] from another thread.
    pub fn waker(&self) -> Waker {
        self.poller.waker()
    }

    /// Tells where a peer of the engine is. Segments of it from elsewhere are dropped from now on.
    pub fn set_address(&mut self, peer: EngineId, address: SocketAddr) {
        self.set_addresses(peer, &[address]);
    }

    /// Tells that a peer of the engine is at one of these addresses: at the first one, until it answers from another one or
    /// [`LtpDriver::try_next_address`] says otherwise. Segments of it from elsewhere are dropped from now on.
    pub fn set_addresses(&mut self, peer: EngineId, addresses: &[SocketAddr]) {
        self.heard.remove(&peer);
        self.former.remove(&peer);
        if let Some(others) = self.alternatives.remove(&peer) {
            forget(&mut self.engines, peer, &others);
        }
        let addresses = addresses.iter().copied().map(canonical);
        let mut addresses: Vec<SocketAddr> = addresses.collect();
        addresses.dedup();
        if let Some(first) = addresses.first() {
            learn(&mut self.addresses, &mut self.engines, peer, *first);
        }
        if addresses.len() > 1 {
            self.engines.extend(addresses.iter().map(|at| (*at, peer)));
            self.alternatives.insert(peer, addresses);
        }
    }

    /// Sends to the next one of a peer's addresses, if it has several and was not heard from any.
    pub fn try_next_address(&mut self, peer: EngineId) {
        let (Some(all), Some(present)) =
            (self.alternatives.get(&peer), self.addresses.get_mut(&peer))
        else {
            return;
        };
        let tried = *present;
        let behind = all.iter().skip_while(|at| **at != tried).nth(1);
        if let Some(next) = behind.or(all.first()) {
            *present = *next;
        }
    }

    /// Tells that a peer is where this name says, host:port: it is looked up until it has an address, and again now and then. Segments
    /// from elsewhere are dropped.
    ///
    /// # Errors
    /// [`Error::System`]: there is no thread that looks it up.
    pub fn follow_name(&mut self, peer: EngineId, name: &str) -> Result<(), Error> {
        self.named.insert(peer);
        self.names.follow(peer, name, self.address, reaches)
    }

    /// Takes the addresses that names of peers have. A peer stays where it is while that is one of them.
    fn take_answers(&mut self) {
        while let Some((peer, found)) = self.names.poll() {
            let known = self.addresses.get(&peer);
            let is_there =
                known.is_some_and(|known| found.iter().any(|at| canonical(*at) == *known));
            if let Some(&address) = found.first().filter(|_| !is_there) {
                tracing::info!(%peer, %address, "is where its name says");
                self.set_address(peer, address);
            }
        }
    }

    /// Whether a peer is sought at several addresses, and has not answered from any.
    pub fn is_sought(&self, peer: EngineId) -> bool {
        self.alternatives.contains_key(&peer)
    }

    /// Whether there is a socket: otherwise the next [`LtpDriver::turn`] binds one.
    pub fn is_bound(&self) -> bool {
        self.socket.is_some()
    }

    /// Datagrams of addresses without a peer.
    pub fn from_nobody(&self) -> u64 {
        self.from_nobody
    }

    /// The next notice of the engine.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.engine.poll_event()?;
        if let Event::PeerForgotten { peer } = event {
            self.heard.remove(&peer);
            self.former.remove(&peer);
        }
        if let Event::PeerForgotten { peer } = event
            && let Some(address) = self.addresses.remove(&peer)
            && self.engines.get(&address) == Some(&peer)
        {
            self.engines.remove(&address);
        }
        Some(event)
    }

    /// Receives, handles timers and sends; when there was nothing to do, waits until there is, or until `deadline`. After
    /// [`Error::SocketGone`], the next call binds the same address again.
    ///
    /// # Errors
    /// [`Error::SocketGone`] and [`Error::System`]; those of [`LtpDriver::bind`] where it is bound again.
    pub fn turn(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        self.take_answers();
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => bind(self.address, self.mode)?,
        };
        let turned = self.turn_with(&socket, deadline);
        // A socket that is gone has the address until it is closed.
        let is_gone = matches!(turned, Err(Error::SocketGone(_)));
        self.socket = Some(socket).filter(|_| !is_gone);
        turned
    }

    fn turn_with(&mut self, socket: &BulkSocket, deadline: Option<Instant>) -> Result<(), Error> {
        let received = self.receive(socket)?;
        let now = Instant::now();
        let is_due = self.engine.poll_timeout().is_some_and(|at| at <= now);
        if is_due {
            self.engine.handle_timeout(now);
        }
        let sent = self.transmit(socket)?;
        // A timer may have ended the last session, which is all that the caller waits for.
        if received || sent || is_due {
            return Ok(());
        }
        let timer = self.engine.poll_timeout();
        let until = [timer, deadline].into_iter().flatten().min();
        let is_blocked = self.rest.is_some();
        self.poller.wait(&[(socket.socket(), is_blocked)], until)?;
        Ok(())
    }

    fn receive(&mut self, socket: &BulkSocket) -> Result<bool, Error> {
        for calls in 0..TURN {
            if !socket.try_recv(&mut self.buffer)? {
                return Ok(calls > 0);
            }
            let now = Instant::now();
            for message in self.buffer.messages() {
                let first = message
                    .contents
                    .chunks(message.stride)
                    .next()
                    .unwrap_or_default();
                let remote = canonical(message.remote);
                let known = self.engines.get(&remote).copied();
                let known = known.filter(|known| !is_replaced(&self.engine, *known, first));
                let is_placed = |peer| self.is_placed(now, peer);
                let from = known
                    .or_else(|| self.returned(remote, first))
                    .or_else(|| introduced(&self.engine, is_placed, first));
                let Some(from) = from else {
                    self.from_nobody += 1;
                    continue;
                };
                let (contents, stride) = (message.contents, message.stride);
                let is_believed = self.engine.handle_datagrams(now, from, contents, stride);
                if is_believed && let Some(others) = self.alternatives.remove(&from) {
                    settle(
                        &mut self.addresses,
                        &mut self.engines,
                        from,
                        remote,
                        &others,
                    );
                }
                // Whoever has not the key of a peer is not told what is for it.
                if known.is_none() && is_believed {
                    let before = self.addresses.get(&from).copied();
                    learn(&mut self.addresses, &mut self.engines, from, remote);
                    self.heard.insert(from, now);
                    if let Some(before) = before.filter(|before| *before != remote) {
                        self.engine.has_moved(from, contents.len());
                        // One that was moved comes back as soon as it speaks, however often, and whoever moved it does not.
                        if self.former.get(&from) != Some(&remote) {
                            self.former.insert(from, before);
                        }
                    }
                } else if is_believed && let Some(heard) = self.heard.get_mut(&from) {
                    *heard = now;
                }
            }
        }
        Ok(true)
    }

    /// The engine that was at an address before it was found elsewhere, and speaks there again.
    fn returned(&self, remote: SocketAddr, datagram: &[u8]) -> Option<EngineId> {
        let mut former = self.former.iter();
        let (peer, _) = former.find(|(_, at)| **at == remote)?;
        let (segment, _) = parse(datagram).ok()?;
        let of = segment.session.originator;
        (of == *peer || of == self.engine.id()).then_some(*peer)
    }

    /// Whether a peer is where the configuration says, or was found elsewhere and is not silent: after some timeouts its address may have
    /// changed.
    fn is_placed(&self, now: Instant, peer: EngineId) -> bool {
        if !self.addresses.contains_key(&peer) {
            return self.named.contains(&peer);
        }
        let (Some(heard), Some(silence)) = (self.heard.get(&peer), self.engine.moves_after(peer))
        else {
            return true;
        };
        now.saturating_duration_since(*heard) < silence
    }

    /// Returns whether anything was sent.
    fn transmit(&mut self, socket: &BulkSocket) -> Result<bool, Error> {
        for batches in 0..TURN {
            if self.rest.is_none() {
                let Some(peer) = self.engine.poll_transmit(Instant::now(), &mut self.batch) else {
                    return Ok(batches > 0);
                };
                let Some(&address) = self.addresses.get(&peer) else {
                    // Nobody can be reached without an address: lost, as on a link that is down.
                    continue;
                };
                self.rest = Some((address, 0));
            }
            let Some((address, done)) = self.rest else {
                continue;
            };
            let contents = self.batch.contents().get(done..).unwrap_or_default();
            let to = of_socket(address, self.address);
            let sent = socket.try_send(to, contents, self.batch.segment_size())?;
            self.rest = (sent < contents.len()).then_some((address, done + sent));
            if self.rest.is_some() {
                return Ok(batches > 0);
            }
        }
        Ok(true)
    }
}

/// A wildcard of IPv6 takes IPv4, too, and is one of IPv4 where there is no IPv6.
fn bind(address: SocketAddr, mode: IoMode) -> Result<BulkSocket, Error> {
    let options = BindOptions {
        takes_ipv4: true,
        ..BindOptions::new(address)
    };
    let bound = BulkSocket::bind_with(&options, mode);
    let is_any = address.is_ipv6() && address.ip().is_unspecified();
    match bound {
        Err(Error::System(error)) if is_any && !has_ipv6(&error) => {
            let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
            BulkSocket::bind(any, mode)
        }
        bound => bound,
    }
}

/// Whether a socket of an engine at `local` can send there.
pub fn reaches(local: SocketAddr, remote: SocketAddr) -> bool {
    let is_any = local.is_ipv6() && local.ip().is_unspecified();
    is_any || local.is_ipv4() == remote.is_ipv4()
}

fn has_ipv6(error: &std::io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) != Some(rustix::io::Errno::AFNOSUPPORT)
}

/// The engine that a datagram of an unknown address comes from by its own words, unless that engine is elsewhere.
fn introduced(
    engine: &Engine,
    is_placed: impl Fn(EngineId) -> bool,
    datagram: &[u8],
) -> Option<EngineId> {
    let (segment, _) = parse(datagram).ok()?;
    let id = segment.session.originator;
    let is_data = matches!(segment.body, Body::Data(_));
    (is_data && (!is_placed(id) || engine.may_move(id))).then_some(id)
}

/// Whether another engine is now where this one was, which no configuration says to be there: ports are used again.
fn is_replaced(engine: &Engine, known: EngineId, datagram: &[u8]) -> bool {
    engine.may_move(known)
        && parse(datagram).is_ok_and(|(segment, _)| {
            matches!(segment.body, Body::Data(_)) && segment.session.originator != known
        })
}

/// An engine with several addresses has answered from one: it is there, and at no other.
fn settle(
    addresses: &mut BTreeMap<EngineId, SocketAddr>,
    engines: &mut BTreeMap<SocketAddr, EngineId>,
    engine: EngineId,
    address: SocketAddr,
    all: &[SocketAddr],
) {
    forget(engines, engine, all);
    learn(addresses, engines, engine, address);
}

/// Forgets that an engine is at these addresses.
fn forget(
    engines: &mut BTreeMap<SocketAddr, EngineId>,
    engine: EngineId,
    addresses: &[SocketAddr],
) {
    for address in addresses {
        if engines.get(address) == Some(&engine) {
            engines.remove(address);
        }
    }
}

/// Notes where an engine is.
fn learn(
    addresses: &mut BTreeMap<EngineId, SocketAddr>,
    engines: &mut BTreeMap<SocketAddr, EngineId>,
    engine: EngineId,
    address: SocketAddr,
) {
    if let Some(previous) = addresses.insert(engine, address)
        && engines.get(&previous) == Some(&engine)
    {
        engines.remove(&previous);
    }
    engines.insert(address, engine);
}

/// An address of IPv4 as such, also where a socket of IPv6 received from it.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// An address as a socket bound to `local` takes it.
fn of_socket(address: SocketAddr, local: SocketAddr) -> SocketAddr {
    match (address.ip(), local) {
        (IpAddr::V4(ip), SocketAddr::V6(_)) => {
            SocketAddr::new(ip.to_ipv6_mapped().into(), address.port())
        }
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use starhaul_ltp::{
        Checkpoint, Data, DataKind, EngineConfig, Extensions, Outgoing, PeerConfig, Segment,
        SessionId,
    };

    use super::*;

    fn driver(own: u64, peer: u64) -> LtpDriver {
        driver_of(own, peer, 7)
    }

    /// Each life of an engine has numbers of its own.
    fn driver_of(own: u64, peer: u64, life: u8) -> LtpDriver {
        let mut engine = Engine::new(EngineConfig::new(EngineId(own), [life; 32]));
        engine.open_service(1);
        let peer_config = PeerConfig::new(Duration::ZERO, None);
        let now = Instant::now();
        engine.add_peer(now, EngineId(peer), peer_config).unwrap();
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        LtpDriver::bind(local, IoMode::default(), engine).unwrap()
    }

    #[test]
    fn a_socket_that_is_gone_is_bound_again_and_what_was_on_its_way_arrives() {
        let (mut one, mut two) = (driver(1, 2), driver(2, 1));
        let address = two.local_addr();
        one.set_address(EngineId(2), address);
        two.set_address(EngineId(1), one.local_addr());
        two.socket = None;
        let block: bytes::Bytes = vec![7; 100_000].into();
        let outgoing = Outgoing {
            to: EngineId(2),
            service: 1,
            red: block.len() as u64,
            block,
        };
        let session = one.engine().send(Instant::now(), outgoing).unwrap();
        // All of it is lost, as on a link that is down.
        one.turn(Some(Instant::now())).unwrap();
        let limit = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < limit, "the block does not arrive");
            let soon = Some(Instant::now() + Duration::from_millis(1));
            one.turn(soon).unwrap();
            two.turn(soon).unwrap();
            assert_eq!(two.local_addr(), address);
            while two.poll_event().is_some() {}
            if matches!(one.poll_event(), Some(Event::Sent { session: sent }) if sent == session) {
                return;
            }
        }
    }

    fn until_sent(drivers: &mut [&mut LtpDriver], session: starhaul_ltp::SessionId) {
        let limit = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < limit, "the block does not arrive");
            for driver in drivers.iter_mut() {
                let soon = Instant::now() + Duration::from_millis(1);
                driver.turn(Some(soon)).unwrap();
                while let Some(event) = driver.poll_event() {
                    match event {
                        Event::Sent { session: sent } if sent == session => return,
                        _ => {}
                    }
                }
            }
        }
    }

    fn send(driver: &mut LtpDriver, to: u64) -> starhaul_ltp::SessionId {
        let block: bytes::Bytes = vec![7; 100_000].into();
        let outgoing = Outgoing {
            to: EngineId(to),
            service: 1,
            red: block.len() as u64,
            block,
        };
        driver.engine().send(Instant::now(), outgoing).unwrap()
    }

    #[test]
    fn the_ipv6_wildcard_reaches_and_takes_ipv4() {
        let mut one = driver(1, 2);
        let mut engine = Engine::new(EngineConfig::new(EngineId(2), [7; 32]));
        engine.open_service(1);
        let config = PeerConfig::new(Duration::ZERO, None);
        engine
            .add_peer(Instant::now(), EngineId(1), config)
            .unwrap();
        let any = SocketAddr::from(([0_u16; 8], 0));
        let mut two = LtpDriver::bind(any, IoMode::default(), engine).unwrap();
        let port = two.local_addr().port();
        one.set_address(EngineId(2), ([127, 0, 0, 1], port).into());
        two.set_address(EngineId(1), one.local_addr());
        for from in [1, 2] {
            let session = match from {
                1 => send(&mut one, 2),
                _ => send(&mut two, 1),
            };
            until_sent(&mut [&mut one, &mut two], session);
        }
        assert_eq!((one.from_nobody(), two.from_nobody()), (0, 0));
    }

    /// An engine that accepts others, and those that send to it.
    fn host() -> LtpDriver {
        let mut config = EngineConfig::new(EngineId(2), [7; 32]);
        config.unknown_peers = starhaul_ltp::UnknownPeers::Accept {
            most: 4,
            config: Box::new(PeerConfig::new(Duration::ZERO, None)),
        };
        let mut engine = Engine::new(config);
        engine.open_service(1);
        LtpDriver::bind(([127, 0, 0, 1], 0).into(), IoMode::default(), engine).unwrap()
    }

    #[test]
    fn a_guest_may_come_again_from_elsewhere() {
        let mut host = host();
        for life in 0..3 {
            let mut guest = driver_of(1, 2, life);
            guest.set_address(EngineId(2), host.local_addr());
            let session = send(&mut guest, 2);
            until_sent(&mut [&mut guest, &mut host], session);
            // The host's session ends with the acknowledgement of its report.
            let limit = Instant::now() + Duration::from_secs(20);
            while host.engine().sessions() != (0, 0) {
                assert!(Instant::now() < limit, "a session stays");
                for driver in [&mut guest, &mut host] {
                    driver
                        .turn(Some(Instant::now() + Duration::from_millis(1)))
                        .unwrap();
                    while driver.poll_event().is_some() {}
                }
            }
        }
    }

    /// A red segment that is a whole block, of an engine without a driver.
    fn whole_block(of: u64, number: u64) -> Vec<u8> {
        let segment = Segment {
            session: SessionId {
                originator: EngineId(of),
                number,
            },
            header: Extensions::default(),
            body: Body::Data(Data {
                kind: DataKind::RedEndOfBlock,
                service: 1,
                offset: 0,
                checkpoint: Some(Checkpoint {
                    serial: 1,
                    report: 0,
                }),
                payload: b"block",
            }),
            trailer: Extensions::default(),
        };
        let mut bytes = Vec::new();
        segment.write(&mut bytes);
        bytes
    }

    /// Turns a driver until a block of this engine has come whole.
    fn until_delivered(driver: &mut LtpDriver, of: u64) {
        let limit = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < limit, "no block of {of}");
            let soon = Instant::now() + Duration::from_millis(1);
            driver.turn(Some(soon)).unwrap();
            let whole = |event: Event| match event {
                Event::RedPart { session, .. } => session.originator == EngineId(of),
                _ => false,
            };
            if std::iter::from_fn(|| driver.poll_event()).any(whole) {
                return;
            }
        }
    }

    /// A port that one engine had has another one later.
    #[test]
    fn another_engine_is_heard_at_the_address_of_a_guest() {
        let mut host = host();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(host.local_addr()).unwrap();
        let patience = Some(Duration::from_secs(20));
        socket.set_read_timeout(patience).unwrap();
        for (engine, number) in [(5, 1), (6, 2), (5, 3)] {
            socket.send(&whole_block(engine, number)).unwrap();
            until_delivered(&mut host, engine);
            // The report is acknowledged, after which nothing is under way with it.
            let limit = Instant::now() + Duration::from_secs(20);
            while host.engine().sessions() != (0, 0) {
                assert!(Instant::now() < limit, "a session stays");
                let soon = Instant::now() + Duration::from_millis(1);
                host.turn(Some(soon)).unwrap();
                let mut buffer = [0; 2000];
                let length = socket.recv(&mut buffer).unwrap();
                let (told, _) = parse(&buffer[..length]).unwrap();
                let Body::Report(report) = told.body else {
                    continue;
                };
                let acknowledged = Segment {
                    session: told.session,
                    header: Extensions::default(),
                    body: Body::ReportAck {
                        report: report.serial,
                    },
                    trailer: Extensions::default(),
                };
                let mut bytes = Vec::new();
                acknowledged.write(&mut bytes);
                socket.send(&bytes).unwrap();
                host.turn(Some(Instant::now() + Duration::from_millis(1)))
                    .unwrap();
            }
        }
    }

    /// As if engine 1 had been silent since, for some of its attempts.
    fn fall_silent(host: &mut LtpDriver) {
        let silence = host.engine().moves_after(EngineId(1)).unwrap();
        assert!(silence * 10 < host.engine().longest_silence(EngineId(1)).unwrap());
        for heard in host.heard.values_mut() {
            *heard = heard.checked_sub(silence + Duration::from_secs(1)).unwrap();
        }
    }

    /// An acknowledgement of a report, of a session of this engine that is over.
    fn acknowledgement(of: u64) -> Vec<u8> {
        let segment = Segment {
            session: SessionId {
                originator: EngineId(of),
                number: 99,
            },
            header: Extensions::default(),
            body: Body::ReportAck { report: 1 },
            trailer: Extensions::default(),
        };
        let mut bytes = Vec::new();
        segment.write(&mut bytes);
        bytes
    }

    /// Turns a driver until it is so.
    fn until(driver: &mut LtpDriver, is_so: impl Fn(&LtpDriver) -> bool) {
        let limit = Instant::now() + Duration::from_secs(20);
        while !is_so(driver) {
            assert!(Instant::now() < limit, "it does not come to that");
            let soon = Instant::now() + Duration::from_millis(1);
            driver.turn(Some(soon)).unwrap();
            while driver.poll_event().is_some() {}
        }
    }

    /// Turns a driver until engine 1 is where this socket is.
    fn until_at(driver: &mut LtpDriver, socket: &std::net::UdpSocket) {
        let at = socket.local_addr().unwrap();
        until(driver, |driver| {
            driver.addresses.get(&EngineId(1)) == Some(&at)
        });
    }

    /// A peer whose address the configuration leaves open gets another one, as behind NAT.
    #[test]
    fn a_silent_peer_without_an_address_may_come_from_elsewhere() {
        let mut host = driver(2, 1);
        let mut before = None;
        for round in 0..2 {
            fall_silent(&mut host);
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let to = host.local_addr();
            socket.send_to(&whole_block(1, 10 + round), to).unwrap();
            until_delivered(&mut host, 1);
            // The one before comes back at once, as one that somebody else took the place of; who had taken it does not.
            if let Some(before) = &before {
                let before: &std::net::UdpSocket = before;
                before.send_to(&acknowledgement(1), to).unwrap();
                until_at(&mut host, before);
            }
            // Another one is not believed meanwhile.
            let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            other.send_to(&whole_block(1, 20 + round), to).unwrap();
            let limit = Instant::now() + Duration::from_secs(20);
            while host.from_nobody() <= round {
                assert!(Instant::now() < limit, "the other one is believed");
                let soon = Instant::now() + Duration::from_millis(1);
                host.turn(Some(soon)).unwrap();
            }
            before = Some(socket);
        }
    }

    fn with_key(own: u64, peer: u64, secret: &[u8], life: u8) -> LtpDriver {
        let mut engine = Engine::new(EngineConfig::new(EngineId(own), [life; 32]));
        engine.open_service(1);
        let mut config = PeerConfig::new(Duration::ZERO, None);
        config.auth = starhaul_ltp::AuthKey::new(secret, b"");
        engine
            .add_peer(Instant::now(), EngineId(peer), config)
            .unwrap();
        LtpDriver::bind(([127, 0, 0, 1], 0).into(), IoMode::default(), engine).unwrap()
    }

    /// A signature does not tell when a segment was made: whoever has seen one can send it again.
    #[test]
    fn a_signed_segment_that_is_sent_again_moves_no_peer_that_speaks() {
        let mut two = with_key(2, 1, b"secret", 7);
        let mut one = with_key(1, 2, b"secret", 8);
        let [home, other] = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let patience = Some(Duration::from_secs(20));
        home.set_read_timeout(patience).unwrap();
        one.set_address(EngineId(2), home.local_addr().unwrap());
        send(&mut one, 2);
        one.turn(Some(Instant::now())).unwrap();
        let mut signed = vec![0; 2000];
        let length = home.recv(&mut signed).unwrap();
        signed.truncate(length);
        let to = two.local_addr();
        home.send_to(&signed, to).unwrap();
        until_at(&mut two, &home);
        for round in 1..3 {
            other.send_to(&signed, to).unwrap();
            until(&mut two, |two| two.from_nobody() == round);
            until_at(&mut two, &home);
            // It may be elsewhere when nothing comes from it, and is back with its next word.
            fall_silent(&mut two);
            other.send_to(&signed, to).unwrap();
            until_at(&mut two, &other);
            home.send_to(&signed, to).unwrap();
            until_at(&mut two, &home);
        }
    }

    #[test]
    fn an_address_is_believed_only_of_who_has_the_key() {
        let mut two = with_key(2, 1, b"secret", 7);
        let mut forger = with_key(1, 2, b"another", 7);
        forger.set_address(EngineId(2), two.local_addr());
        send(&mut forger, 2);
        for _ in 0..20 {
            for driver in [&mut forger, &mut two] {
                driver
                    .turn(Some(Instant::now() + Duration::from_millis(1)))
                    .unwrap();
            }
        }
        assert!(two.engine().stats().dropped.unauthenticated > 0);
        // Who has it may come from elsewhere after some silence, in another life or with another address.
        for life in [7, 8] {
            fall_silent(&mut two);
            let mut one = with_key(1, 2, b"secret", life);
            one.set_address(EngineId(2), two.local_addr());
            let session = send(&mut one, 2);
            until_sent(&mut [&mut one, &mut two], session);
        }
    }

    /// The end of a session by a timer is all that who waits for the last one can see.
    #[test]
    fn a_turn_ends_with_the_timer_that_ends_a_session() {
        let mut engine = Engine::new(EngineConfig::new(EngineId(1), [7; 32]));
        let mut config = PeerConfig::new(Duration::ZERO, None);
        (config.margin, config.retransmission_limit) = (Duration::from_millis(5), 0);
        engine
            .add_peer(Instant::now(), EngineId(2), config)
            .unwrap();
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut driver = LtpDriver::bind(local, IoMode::default(), engine).unwrap();
        // Nobody answers: its address is not known.
        send(&mut driver, 2);
        let limit = Instant::now() + Duration::from_secs(20);
        while driver.engine().sessions() != (0, 0) {
            driver.turn(Some(limit)).unwrap();
            while driver.poll_event().is_some() {}
        }
        assert!(Instant::now() < limit, "the turn waited for more");
    }

    /// The first address of a name may be one at which the peer does not listen.
    #[test]
    fn a_peer_is_found_at_whichever_of_its_addresses_it_is() {
        let mut host = host();
        let unused = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let elsewhere = unused.local_addr().unwrap();
        let mut guest = driver(1, 2);
        guest.set_addresses(EngineId(2), &[elsewhere, host.local_addr()]);
        let session = send(&mut guest, 2);
        guest.turn(Some(Instant::now())).unwrap();
        guest.try_next_address(EngineId(2));
        until_sent(&mut [&mut guest, &mut host], session);
        // It was heard: it is not sought elsewhere any more.
        guest.try_next_address(EngineId(2));
        assert_eq!(guest.addresses[&EngineId(2)], host.local_addr());
        assert_eq!(guest.engines.get(&elsewhere), None);
    }
}
