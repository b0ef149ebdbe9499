//! LEOTP over UDP: a node, its socket, and the addresses of its neighbours.

mod hop;
#[cfg(feature = "config")]
mod keys;
mod probers;
mod schedules;
mod signals;
#[cfg(test)]
mod tests;
mod unproven;

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use signals::Signals;
use starhaul_leotp::{NeighbourId, Node, Recognised, is_hello, is_packet};
use unproven::Unproven;

use crate::{
    BindOptions, BulkSocket, Error, IoMode, Poller, RecvBuffer, Waker,
    bulk::{MOST_BYTES, MOST_DATAGRAMS, Way},
    interception::Interception,
    mtus::Mtus,
    peer_names::{PeerAddress, PeerNames},
    stamped::{Waits, stamp_messages},
};

pub use hop::HopSignals;
#[cfg(feature = "config")]
pub use keys::{RULE_KEYS, read_rule};

/// The port that Starhaul uses for LEOTP; none is assigned.
pub const PORT: u16 = 4511;

/// UDP payload of the packets of a node, in bytes: what a path of 1280 bytes carries over IPv6, to what one of 1500 carries over IPv4.
pub const PACKET_BYTES: std::ops::RangeInclusive<u16> = 1232..=1472;

/// The UDP payload of a packet that a path of 1500 bytes carries whole, over the version of IP of this address.
pub const fn full_packet_bytes(local: SocketAddr) -> u16 {
    match local {
        SocketAddr::V4(_) => 1472,
        SocketAddr::V6(_) => 1452,
    }
}
/// Keys that datagrams of unknown addresses are compared with in a second: a flood of them costs little, and may keep a neighbour
/// that moves from being found.
const MOST_COMPARED: usize = 20_000;
/// How often timers are looked at while the socket takes nothing.
const BLOCKED: Duration = Duration::from_millis(1);
/// How often an address that is gone is bound again.
const REBOUND: Duration = Duration::from_millis(500);
/// A neighbour that was not heard for so long is where its name says, if that has changed.
const SILENT: Duration = Duration::from_secs(30);
/// Of several addresses of a name the next one is tried after so long without a sign: names are looked up each minute.
const TRIED: Duration = Duration::from_secs(45);
/// Receive calls before the node may send, and batches sent before it reads.
const TURN: usize = 16;

/// A node and its socket, for a thread of their own that calls [`LeotpDriver::turn`] again and again.
#[derive(Debug)]
pub struct LeotpDriver {
    place: Place,
    /// As bound, with its port.
    options: BindOptions,
    _interception: Option<Interception>,
    /// None while the host does not have the address.
    socket: Option<BulkSocket>,
    poller: Poller,
    names: PeerNames<NeighbourId>,
    buffer: RecvBuffer,
    waits: Waits,
    mtus: Mtus,
    signals: Signals,
    batch: Batch,
    /// The first datagram behind the batch, and where it still goes.
    next: Vec<u8>,
    next_ways: [Option<Way>; 2],
}

/// The node, and where its neighbours are.
#[derive(Debug)]
struct Place {
    node: Node,
    neighbours: BTreeMap<NeighbourId, Neighbour>,
    by_address: HashMap<SocketAddr, NeighbourId>,
    /// Addresses of other hosts; what passes this one to them is intercepted.
    intercepted: Vec<IpAddr>,
    /// The socket is bound to no address.
    is_anywhere: bool,
    /// Keys compared since then.
    compared: (Instant, usize),
    strangers: u64,
}

/// Addresses of a neighbour, and when it was heard there.
#[derive(Debug, Default)]
struct Neighbour {
    /// From the intercepted address that it sends to, if any.
    way: Option<Way>,
    /// Where hellos came from that may be replays: each answer goes there, too, and nothing else.
    unproven: Unproven,
    /// Where it was before it moved last. A host that overtook it with its own packet may have moved it: it is found there again, whatever else
    /// comes.
    former: Option<SocketAddr>,
    /// When it was heard last, beyond hellos that may be replays, and when it was sought at another address.
    heard: Option<Instant>,
    sought: Option<Instant>,
    /// Since when packets leave for it without a sign of it.
    unanswered: Option<Instant>,
    /// Its address or name is configured.
    is_placed: bool,
    /// The addresses that its name had when it was there or was sent there, in order.
    named: Vec<SocketAddr>,
}

/// Datagrams of one length, of which the last may be shorter, for one address.
#[derive(Debug, Default)]
struct Batch {
    way: Option<Way>,
    bytes: Vec<u8>,
    datagram: usize,
    /// Bytes that the socket has taken.
    done: usize,
    is_closed: bool,
}

impl LeotpDriver {
    /// A node at this address.
    ///
    /// # Errors
    /// As [`crate::UdpSocket::bind`].
    pub fn bind(address: SocketAddr, node: Node) -> Result<Self, Error> {
        Self::bind_with(BindOptions::new(address), node, Vec::new())
    }

    /// The same for a host that forwards packets: those to `targets`, at the same port, arrive at the node, which answers under
    /// that address.
    ///
    /// # Errors
    /// As [`LeotpDriver::bind`], and [`Error::Interception`].
    pub fn bind_transparent(
        address: SocketAddr,
        node: Node,
        targets: Vec<IpAddr>,
    ) -> Result<Self, Error> {
        let options = BindOptions {
            is_transparent: true,
            ..BindOptions::new(address)
        };
        Self::bind_with(options, node, targets)
    }

    fn bind_with(
        mut options: BindOptions,
        node: Node,
        intercepted: Vec<IpAddr>,
    ) -> Result<Self, Error> {
        let socket = open(&options)?;
        options.address = socket.local_addr();
        let interception = options
            .is_transparent
            .then(|| Interception::start(options.address, &intercepted));
        let poller = Poller::new()?;
        let signals = Signals::new(poller.waker(), options.address.ip());
        Ok(Self {
            place: Place::new(node, intercepted, options.address.ip().is_unspecified()),
            options,
            _interception: interception.transpose()?,
            socket: Some(socket),
            names: PeerNames::new(poller.waker()),
            signals,
            poller,
            buffer: RecvBuffer::new(),
            waits: Waits::default(),
            mtus: Mtus::default(),
            batch: Batch::default(),
            next: Vec::new(),
            next_ways: [None; 2],
        })
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.options.address
    }

    /// The node that this driver runs.
    pub fn node(&mut self) -> &mut Node {
        &mut self.place.node
    }

    /// Ends the wait of [`LeotpDriver::turn`] from another thread.
    pub fn waker(&self) -> Waker {
        self.poller.waker()
    }

    /// Tells where a neighbour of the node is at first; without an address, where its hellos come from. It may move.
    pub fn set_address(&mut self, id: NeighbourId, address: Option<SocketAddr>) {
        self.place.set_way(id, address.map(straight));
        self.place.note_placed(id, address.is_some());
    }

    /// Tells where a neighbour is at first, as the configuration says it.
    ///
    /// # Errors
    /// Those of [`LeotpDriver::follow_name`].
    pub fn place(&mut self, id: NeighbourId, at: Option<&PeerAddress>) -> Result<(), Error> {
        match at {
            Some(PeerAddress::Named(name)) => self.follow_name(id, name)?,
            Some(PeerAddress::At(address)) => self.set_address(id, Some(*address)),
            None => self.set_address(id, None),
        }
        Ok(())
    }

    /// Tells that a neighbour is at first where this name says, host:port: it is looked up until it has an address, and again while
    /// the neighbour is not heard.
    ///
    /// # Errors
    /// [`Error::System`]: there is no thread that looks it up.
    pub fn follow_name(&mut self, id: NeighbourId, name: &str) -> Result<(), Error> {
        self.place.set_way(id, None);
        self.place.note_placed(id, true);
        let reaches = |local: SocketAddr, remote: SocketAddr| local.is_ipv4() == remote.is_ipv4();
        self.names.follow(id, name, self.options.address, reaches)
    }

    /// Tells how the node hears of reconfigurations of the hop to a neighbour from now on. A file with times is read again when it changes, by a
    /// thread of its own.
    pub fn watch(&mut self, id: NeighbourId, signals: HopSignals) {
        self.signals.set(id, signals);
    }

    /// Datagrams that no neighbour sent.
    pub fn strangers(&self) -> u64 {
        self.place.strangers
    }

    /// Receives, handles timers and sends; when there was nothing to do, waits until there is, or until `deadline`. While the
    /// host does not have the address, as during a renewal, all that is sent is lost, and the address is bound again.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn turn(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        while let Some((id, found)) = self.names.poll() {
            self.place.take_answer(Instant::now(), id, found);
        }
        self.hear_signals();
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => match open(&self.options) {
                Ok(socket) => {
                    tracing::info!(address = %self.local_addr(), "bound again");
                    socket
                }
                Err(_) => return self.wait_without_socket(deadline),
            },
        };
        match self.turn_with(&socket, deadline) {
            Err(Error::SocketGone(why)) => {
                tracing::warn!(address = %self.local_addr(), %why, "the address is gone; it is bound again when it is back");
                Ok(())
            }
            turned => {
                self.socket = Some(socket);
                turned
            }
        }
    }

    /// Tells the node of the reconfigurations that are known now.
    fn hear_signals(&mut self) {
        if self.signals.is_empty() {
            return;
        }
        let (now, unix) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH));
        let unix = unix.unwrap_or_default();
        let place = &self.place;
        let carried = || {
            let stats = place.node.stats();
            stats.data_sent + stats.data_received
        };
        let address = |id: NeighbourId| Some(place.neighbours.get(&id)?.way?.to);
        self.signals.tend(now, carried, address);
        while let Some((id, event)) = self.signals.poll(now, unix) {
            self.place.node.signal(now, id, event);
        }
    }

    fn wait_without_socket(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let now = Instant::now();
        self.place.node.handle_timeout(now);
        let until = now + REBOUND;
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        self.poller.wait(&[], Some(until))?;
        Ok(())
    }

    fn turn_with(&mut self, socket: &BulkSocket, deadline: Option<Instant>) -> Result<(), Error> {
        let received = self.receive(socket)?;
        let now = Instant::now();
        let is_due = self.place.node.poll_timeout().is_some_and(|at| at <= now);
        if is_due {
            self.place.node.handle_timeout(now);
        }
        let sent = self.transmit(socket)?;
        if received || sent {
            return Ok(());
        }
        let is_blocked = !self.batch.bytes.is_empty();
        let timer = self.place.node.poll_timeout();
        if let Some(timer) = waits_for(is_due, is_blocked, now, timer) {
            let signals = self.signals.timeout(now);
            let until = [timer, deadline, signals].into_iter().flatten().min();
            self.poller.wait(&[(socket.socket(), is_blocked)], until)?;
        }
        Ok(())
    }

    fn receive(&mut self, socket: &BulkSocket) -> Result<bool, Error> {
        for calls in 0..TURN {
            let asked = Instant::now();
            if !socket.try_recv(&mut self.buffer)? {
                self.waits.found_empty(asked);
                return Ok(calls > 0);
            }
            let now = self.waits.read();
            for message in self.buffer.messages() {
                let arrived = self.waits.arrived(now, message.stamp);
                for datagram in message.contents.chunks(message.stride) {
                    let way = (message.remote, message.local);
                    self.place.take((now, arrived), way, datagram);
                }
            }
        }
        Ok(true)
    }

    /// Returns whether anything was sent.
    fn transmit(&mut self, socket: &BulkSocket) -> Result<bool, Error> {
        for batches in 0..TURN {
            self.fill();
            let Some(way) = self.batch.way.filter(|_| !self.batch.bytes.is_empty()) else {
                return Ok(batches > 0);
            };
            let rest = self.batch.bytes.get(self.batch.done..).unwrap_or_default();
            let refused = socket.refused();
            let datagram = self.batch.datagram;
            let is_whole =
                rest.len() <= datagram || self.mtus.carry(Instant::now(), way.to, datagram);
            let mut sent = send(socket, way, rest, (datagram, is_whole))?;
            // The route is another one now, or its interface takes no batches: that is so toward this neighbour alone.
            let (was_cut, gave_up) = (socket.take_too_large(), socket.believe_again());
            if was_cut || gave_up {
                self.mtus.note_refused(Instant::now(), way.to, datagram);
            }
            if socket.refused() != refused
                && !was_cut
                && let Some(plain) = self.place.without_own(way)
            {
                sent = send(socket, plain, rest, (datagram, is_whole))?;
            }
            if sent < rest.len() {
                self.batch.done += sent;
                self.batch.is_closed = true;
                return Ok(batches > 0);
            }
            self.batch.clear();
        }
        Ok(true)
    }

    /// Puts datagrams that may leave now into the batch, as many as belong together.
    fn fill(&mut self) {
        while !self.batch.is_closed {
            if let Some(way) = self.next_ways[0] {
                if !self.batch.push(way, &self.next) {
                    return;
                }
                self.next_ways = [self.next_ways[1], None];
                continue;
            }
            let (now, begin) = (Instant::now(), self.batch.bytes.len());
            let node = &mut self.place.node;
            let Some(id) = node.poll_transmit(now, &mut self.batch.bytes) else {
                return;
            };
            let datagram = self.batch.bytes.get(begin..).unwrap_or_default();
            let neighbour = self.place.neighbours.get_mut(&id);
            // Without an address it is lost, as on a link that is down.
            let ways = neighbour.map_or([None; 2], |it| it.ways_of(now, datagram));
            if let [Some(way), None] = ways
                && self.batch.keep(way, begin)
            {
                continue;
            }
            self.next.clear();
            self.next.extend(self.batch.bytes.drain(begin..));
            self.next_ways = ways;
        }
    }
}

/// The timer that a turn waits for in which nothing was received or sent; `None`: it does not wait, since what another timer did may be news for
/// the caller. Data that the socket does not take are due all the time: that is none.
fn waits_for(
    is_due: bool,
    is_blocked: bool,
    now: Instant,
    timer: Option<Instant>,
) -> Option<Option<Instant>> {
    match is_blocked {
        true => Some(timer.map(|at| at.max(now + BLOCKED))),
        false => (!is_due).then_some(timer),
    }
}

/// The address behind one of several; none if there is no other.
fn next(addresses: &[SocketAddr], present: SocketAddr) -> Option<SocketAddr> {
    let at = addresses.iter().position(|it| *it == present)?;
    let next = addresses.iter().cycle().nth(at + 1).copied();
    next.filter(|next| *next != present)
}

/// Sends datagrams of this length, of which the last may be shorter, as many as the socket takes; returns how many bytes. Those that do not leave
/// whole go one by one, so that the kernel makes fragments.
fn send(
    socket: &BulkSocket,
    way: Way,
    contents: &[u8],
    (datagram, is_whole): (usize, bool),
) -> Result<usize, Error> {
    if is_whole {
        return socket.try_send_by(way, contents, datagram);
    }
    let mut done = 0;
    for datagram in contents.chunks(datagram.max(1)) {
        let sent = socket.try_send_by(way, datagram, datagram.len())?;
        done += sent;
        if sent < datagram.len() {
            break;
        }
    }
    Ok(done)
}

fn straight(to: SocketAddr) -> Way {
    Way { to, from: None }
}

/// Binds a socket whose messages tell when they arrived, if the kernel can.
fn open(options: &BindOptions) -> Result<BulkSocket, Error> {
    let socket = BulkSocket::bind_with(options, IoMode::Gso)?;
    stamp_messages(socket.socket());
    Ok(socket)
}

impl Place {
    fn new(node: Node, intercepted: Vec<IpAddr>, is_anywhere: bool) -> Self {
        Self {
            node,
            intercepted,
            is_anywhere,
            neighbours: BTreeMap::new(),
            by_address: HashMap::new(),
            compared: (Instant::now(), 0),
            strangers: 0,
        }
    }

    fn note_placed(&mut self, id: NeighbourId, is_placed: bool) {
        self.neighbours.entry(id).or_default().is_placed = is_placed;
    }

    /// Where what came from `from` to `to` is answered: from an intercepted address, and from that of several that a neighbour which finds this
    /// host by itself has asked, for a NAT or a firewall may let no other one in.
    fn way(&self, id: Option<NeighbourId>, from: SocketAddr, to: Option<IpAddr>) -> Way {
        let is_placed = |id: NeighbourId| self.neighbours.get(&id).is_some_and(|it| it.is_placed);
        let keeps = self.is_anywhere && id.is_some_and(|id| !is_placed(id));
        Way {
            to: from,
            from: to.filter(|to| keeps || self.intercepted.contains(to)),
        }
    }

    /// The same way from whatever address this host has, if it was from one of its own, which may be gone: the neighbour is answered so from now
    /// on, until it is heard again.
    fn without_own(&mut self, way: Way) -> Option<Way> {
        way.from.filter(|from| !self.intercepted.contains(from))?;
        let id = self.by_address.get(&way.to);
        let neighbour = id.and_then(|id| self.neighbours.get_mut(id));
        let plain = straight(way.to);
        if let Some(neighbour) = neighbour.filter(|it| it.way == Some(way)) {
            neighbour.way = Some(plain);
        }
        Some(plain)
    }

    fn set_way(&mut self, id: NeighbourId, way: Option<Way>) {
        let neighbour = self.neighbours.entry(id).or_default();
        neighbour.unproven.clear();
        if let Some(former) = std::mem::replace(&mut neighbour.way, way)
            && self.by_address.get(&former.to) == Some(&id)
        {
            self.by_address.remove(&former.to);
        }
        if let Some(way) = way {
            self.by_address.insert(way.to, id);
        }
    }

    /// Takes the addresses that the name of a neighbour has. It may have moved on from there, and its name not.
    fn take_answer(&mut self, now: Instant, id: NeighbourId, mut found: Vec<SocketAddr>) {
        let Some(&first) = found.first() else {
            return;
        };
        found.sort_unstable();
        let neighbour = self.neighbours.entry(id).or_default();
        let is_longer = |since: Option<Instant>, than: Duration| {
            since.is_none_or(|at| now.saturating_duration_since(at) >= than)
        };
        let is_silent = is_longer(neighbour.heard, SILENT);
        // Of one that nothing is sent to nothing is heard.
        let is_over = |since: Option<Instant>| since.is_some() && is_longer(since, TRIED);
        let is_tried = is_over(neighbour.unanswered) && is_longer(neighbour.sought, TRIED);
        let to = match neighbour.way {
            None => Some(first),
            Some(way) if found.contains(&way.to) => next(&found, way.to).filter(|_| is_tried),
            Some(_) if is_silent && neighbour.named != found => Some(first),
            Some(_) => return,
        };
        neighbour.named = found;
        if let Some(to) = to {
            tracing::info!(neighbour = id.0, address = %to, "is sought where its name says");
            neighbour.sought = Some(now);
            self.set_way(id, Some(straight(to)));
        }
    }

    /// Takes a datagram that is read now and arrived before, with its source and destination: of the neighbour at that address,
    /// or of one that has moved there.
    fn take(
        &mut self,
        (now, arrived): (Instant, Instant),
        (from, to): (SocketAddr, Option<IpAddr>),
        datagram: &[u8],
    ) {
        let known = self.by_address.get(&from).copied();
        let way = self.way(known, from, to);
        if let Some(id) = known
            && self.node.handle_stamped(now, arrived, id, datagram)
        {
            let is_proof = !is_hello(datagram);
            if let Some(neighbour) = self.neighbours.get_mut(&id) {
                if is_proof {
                    neighbour.heard = Some(now);
                    neighbour.unanswered = None;
                    neighbour.unproven.clear();
                }
                match neighbour.way {
                    // A hello may be a replay, sent to another address than the neighbour's.
                    Some(known) if known != way && !is_proof => {
                        neighbour.unproven.note(datagram, way);
                    }
                    _ => neighbour.way = Some(way),
                }
            }
            return;
        }
        let Some((id, recognised)) = self
            .find(now, from, datagram)
            .filter(|(id, _)| known != Some(*id))
        else {
            self.strangers += u64::from(known.is_none());
            return;
        };
        let way = self.way(Some(id), from, to);
        match (recognised, self.neighbours.get_mut(&id)) {
            (Recognised::Alive, Some(neighbour)) => {
                neighbour.former = neighbour.way.map(|way| way.to);
                neighbour.heard = Some(now);
                neighbour.unanswered = None;
                self.set_way(id, Some(way));
            }
            (_, Some(neighbour)) => neighbour.unproven.note(datagram, way),
            _ => {}
        }
        self.node.handle_stamped(now, arrived, id, datagram);
    }

    /// The neighbour that a datagram of an unknown address comes from.
    fn find(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &[u8],
    ) -> Option<(NeighbourId, Recognised)> {
        if !is_packet(datagram) {
            return None;
        }
        let mut returning = self
            .neighbours
            .iter()
            .filter(|(_, neighbour)| neighbour.former == Some(from));
        let recognise = |id: NeighbourId| (id, self.node.recognises(id, datagram));
        let returned = returning.find_map(|(id, _)| {
            Some(recognise(*id)).filter(|(_, recognised)| *recognised != Recognised::No)
        });
        if returned.is_some() {
            return returned;
        }
        let (since, compared) = &mut self.compared;
        if now.saturating_duration_since(*since) >= Duration::from_secs(1) {
            (*since, *compared) = (now, 0);
        }
        // Right after a start there is none to compare what is numbered with.
        let node = &self.node;
        let may_be = self.neighbours.keys();
        let may_be = may_be.filter(|id| node.may_recognise(**id, datagram));
        *compared += may_be.clone().count();
        if *compared > MOST_COMPARED {
            return None;
        }
        let mut recognised = may_be.map(|id| (*id, node.recognises(*id, datagram)));
        recognised.find(|(_, recognised)| *recognised != Recognised::No)
    }
}

impl Neighbour {
    /// Where a datagram goes. A replay may have a hello sent elsewhere, but keeps none from where the neighbour is: it may need it. Where that is not known,
    /// the answer to a hello is repeated a few times, since it may be lost.
    fn ways_of(&mut self, now: Instant, datagram: &[u8]) -> [Option<Way>; 2] {
        self.unanswered.get_or_insert(now);
        let stays = self.way.is_none();
        match (self.way, self.unproven.answered_by(datagram, stays)) {
            (Some(way), elsewhere) => [Some(way), elsewhere],
            (None, elsewhere) => [elsewhere, None],
        }
    }
}

impl Batch {
    /// Appends a datagram, if it belongs to those that are there.
    fn push(&mut self, way: Way, datagram: &[u8]) -> bool {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(datagram);
        let is_kept = self.keep(way, begin);
        if !is_kept {
            self.bytes.truncate(begin);
        }
        is_kept
    }

    /// Whether what was written from `begin` on, a datagram, belongs to those before it; if not, it is to be taken out.
    fn keep(&mut self, way: Way, begin: usize) -> bool {
        let length = self.bytes.len().saturating_sub(begin);
        if begin == 0 {
            (self.way, self.datagram) = (Some(way), length);
        }
        let has_room = self.bytes.len() <= MOST_BYTES && begin < MOST_DATAGRAMS * self.datagram;
        if self.way != Some(way) || length > self.datagram || !has_room {
            return false;
        }
        self.is_closed = length < self.datagram;
        true
    }

    fn clear(&mut self) {
        self.bytes.clear();
        (self.way, self.done, self.is_closed) = (None, 0, false);
    }
}
