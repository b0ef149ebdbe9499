//! LTP over UDP: one segment per datagram, as other engines do (port 1113 of IANA).

use std::{
    collections::{BTreeMap, BTreeSet},
    io::IoSlice,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Instant,
};

use rustix::net::sockopt;
use starhaul_ltp::{Batch, Body, Engine, EngineId, Event, parse};

use crate::{
    BindOptions, BulkSocket, Error, IoMode, Poller, RecvBuffer, Waker,
    bulk::{MOST_BYTES, MOST_DATAGRAMS},
    mtus::Mtus,
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
    /// The rest of a batch that the socket did not take.
    rest: Option<Rest>,
    addresses: BTreeMap<EngineId, SocketAddr>,
    engines: BTreeMap<SocketAddr, EngineId>,
    /// When those were last believed that were found where they sent from.
    heard: BTreeMap<EngineId, Instant>,
    /// Where those were before that were found elsewhere, and when they were: it may be another host's address by now, so that this is
    /// forgotten once they are still heard where they were found after some timeouts.
    former: BTreeMap<EngineId, (SocketAddr, Instant)>,
    /// All addresses of those that are at one of several, until one answers.
    alternatives: BTreeMap<EngineId, Vec<SocketAddr>>,
    from_nobody: u64,
    /// What leaves whole toward peers.
    mtus: Mtus,
    /// Datagrams to peers that have not left.
    unsent: BTreeMap<EngineId, u64>,
}

/// Where a batch goes, and how much of it is done.
#[derive(Clone, Copy, Debug)]
struct Rest {
    peer: EngineId,
    address: SocketAddr,
    done: usize,
}

impl LtpDriver {
    /// An engine at this address; the IPv6 wildcard takes IPv4, too.
    ///
    /// # Errors
    /// As [`crate::UdpSocket::bind`].
    pub fn bind(address: SocketAddr, mode: IoMode, mut engine: Engine) -> Result<Self, Error> {
        let (socket, poller) = (bind(address, mode)?, Poller::new()?);
        tell_buffer(&mut engine, &socket);
        Ok(Self {
            engine,
            address: socket.local_addr(),
            socket: Some(socket),
            mode,
            names: PeerNames::new(poller.waker()),
            poller,
            named: BTreeSet::new(),
            buffer: RecvBuffer::new(),
            batch: Batch::new(MOST_BYTES, MOST_DATAGRAMS).lending(),
            rest: None,
            addresses: BTreeMap::new(),
            engines: BTreeMap::new(),
            heard: BTreeMap::new(),
            former: BTreeMap::new(),
            alternatives: BTreeMap::new(),
            from_nobody: 0,
            mtus: Mtus::default(),
            unsent: BTreeMap::new(),
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
            // Blocks are cut by it, the first one, too.
            self.tell_mtu(peer, *first);
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
        if let Some(&next) = behind.or(all.first()) {
            *present = next;
            self.tell_mtu(peer, next);
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

    /// Whether all that the engine gave has left: nothing waits for room in the socket.
    pub fn is_drained(&self) -> bool {
        self.rest.is_none()
    }

    /// Datagrams to a peer that have not left this host: it had no address yet, or the system refused them. They count as lost.
    pub fn unsent(&self, peer: EngineId) -> u64 {
        self.unsent.get(&peer).copied().unwrap_or(0)
    }

    fn note_unsent(&mut self, peer: EngineId, datagrams: u64) {
        let count = self.unsent.entry(peer).or_default();
        *count = count.saturating_add(datagrams);
    }

    /// Bytes of an IP packet that leaves whole toward an address, if the kernel says so.
    pub fn path_mtu(&mut self, address: SocketAddr) -> Option<usize> {
        self.mtus.toward(Instant::now(), canonical(address))
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
            self.unsent.remove(&peer);
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
            None => {
                let socket = bind(self.address, self.mode)?;
                tell_buffer(&mut self.engine, &socket);
                socket
            }
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
                // A host that has not the key of a peer is not sent what is for that peer.
                if known.is_none() && is_believed {
                    let before = self.addresses.get(&from).copied();
                    learn(&mut self.addresses, &mut self.engines, from, remote);
                    self.heard.insert(from, now);
                    if let Some(before) = before.filter(|before| *before != remote) {
                        self.engine.has_moved(from, contents.len());
                        // One that was moved comes back as soon as it sends, however often; the host that moved it does not.
                        let former = self.former.get(&from);
                        if former.is_none_or(|(at, _)| *at != remote) {
                            self.former.insert(from, (before, now));
                        }
                    }
                } else if is_believed && let Some(heard) = self.heard.get_mut(&from) {
                    *heard = now;
                    // Segments that were signed once can be sent again from anywhere, and for ever.
                    if !self.engine.has_key(from) && self.has_settled(now, from) {
                        self.former.remove(&from);
                    }
                }
            }
        }
        Ok(true)
    }

    /// The engine that was at an address before it was found elsewhere, and speaks there again.
    fn returned(&self, remote: SocketAddr, datagram: &[u8]) -> Option<EngineId> {
        let mut former = self.former.iter();
        let (peer, _) = former.find(|(_, (at, _))| *at == remote)?;
        let (segment, _) = parse(datagram).ok()?;
        let of = segment.session.originator;
        (of == *peer || of == self.engine.id()).then_some(*peer)
    }

    /// Whether a peer that was found elsewhere has been there for some timeouts.
    fn has_settled(&self, now: Instant, peer: EngineId) -> bool {
        let since = self.former.get(&peer).map(|(_, since)| *since);
        let silence = self.engine.moves_after(peer);
        since
            .zip(silence)
            .is_some_and(|(since, silence)| now.saturating_duration_since(since) >= silence)
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

    /// Tells the engine how much leaves whole toward a peer, and whether it is on this host: sizes of its segments follow. Names and routes change.
    fn tell_mtu(&mut self, peer: EngineId, address: SocketAddr) {
        let now = Instant::now();
        let is_here = address.ip().to_canonical().is_loopback();
        self.engine.set_on_this_host(peer, is_here);
        if let Some(mtu) = self.mtus.toward(now, address) {
            self.engine.set_path_mtu(now, peer, mtu);
        }
    }

    /// Returns whether anything was sent.
    fn transmit(&mut self, socket: &BulkSocket) -> Result<bool, Error> {
        for batches in 0..TURN {
            if self.rest.is_none() {
                let Some(peer) = self.engine.poll_transmit(Instant::now(), &mut self.batch) else {
                    return Ok(batches > 0);
                };
                let Some(&address) = self.addresses.get(&peer) else {
                    // A peer without an address cannot be reached: lost, as on a link that is down.
                    self.note_unsent(peer, self.batch.segments() as u64);
                    continue;
                };
                let done = 0;
                self.rest = Some(Rest {
                    peer,
                    address,
                    done,
                });
                self.tell_mtu(peer, address);
            }
            if let Some(rest) = self.rest {
                self.rest = self.send_rest(socket, rest)?;
            }
            if self.rest.is_some() {
                return Ok(batches > 0);
            }
        }
        Ok(true)
    }

    /// Sends what is left of a batch; returns what the socket does not take now.
    fn send_rest(&mut self, socket: &BulkSocket, rest: Rest) -> Result<Option<Rest>, Error> {
        let Rest {
            peer,
            address,
            done,
        } = rest;
        let left = self.batch.len().saturating_sub(done);
        let to = of_socket(address, self.address);
        let (now, size) = (Instant::now(), self.batch.segment_size());
        let is_whole = left <= size || self.mtus.carry(now, address, size);
        if self.batch.is_scattered() {
            // Nothing of it has left: such a batch leaves at once or not at all.
            let sent = match is_whole {
                true => socket.try_send_parts(to, &parts(&self.batch), size),
                false => None,
            };
            match sent {
                Some(true) => return Ok(None),
                Some(false) => return Ok(Some(rest)),
                None => self.batch.gather(),
            }
        }
        let contents = self.batch.contents().get(done..).unwrap_or_default();
        let before = socket.refused();
        let sent = match is_whole {
            true => socket.try_send(to, contents, size)?,
            false => socket.try_send_fragmented(to, contents, size)?,
        };
        let refused = socket.refused().saturating_sub(before);
        // The route is another one now, or takes no batches: that is so toward this peer alone.
        let (was_cut, gave_up) = (socket.take_too_large(), socket.believe_again());
        if was_cut || gave_up {
            self.mtus.note_refused(now, address, size);
        }
        // What was cut was refused as a batch, and has left.
        if refused > 0 && !was_cut {
            self.note_unsent(peer, refused);
        }
        let done = done + sent;
        Ok((sent < left).then_some(Rest { done, ..rest }))
    }
}

/// Where the bytes of a batch are.
fn parts(batch: &Batch) -> Vec<IoSlice<'_>> {
    // A header and data of each segment.
    let mut parts = Vec::with_capacity(2 * batch.segments() + 1);
    batch.for_each_part(|part| parts.push(IoSlice::new(part)));
    parts
}

/// Tells the engine how much of what comes waits in the socket, if the kernel says so.
fn tell_buffer(engine: &mut Engine, socket: &BulkSocket) {
    if let Ok(bytes) = sockopt::socket_recv_buffer_size(socket.socket()) {
        engine.set_receive_buffer(bytes);
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

/// The engine that a datagram of an unknown address names as its originator, unless that engine is elsewhere.
fn introduced(
    engine: &Engine,
    is_placed: impl Fn(EngineId) -> bool,
    datagram: &[u8],
) -> Option<EngineId> {
    let (segment, _) = parse(datagram).ok()?;
    let id = segment.session.originator;
    (is_of_block(&segment.body) && (!is_placed(id) || engine.may_move(id))).then_some(id)
}

/// Whether another engine is now where this one was, which no configuration says to be there: ports are used again.
fn is_replaced(engine: &Engine, known: EngineId, datagram: &[u8]) -> bool {
    engine.may_move(known)
        && parse(datagram).is_ok_and(|(segment, _)| {
            is_of_block(&segment.body) && segment.session.originator != known
        })
}

/// Whether the sender of a block sent it: the repair symbols of a short block leave before its only data.
const fn is_of_block(body: &Body<'_>) -> bool {
    matches!(body, Body::Data(_) | Body::Repair(_) | Body::Parity(_))
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
mod tests;
