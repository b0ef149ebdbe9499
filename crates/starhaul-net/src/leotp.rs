//! LEOTP over UDP: a node, its socket, and the addresses of its neighbours.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use starhaul_leotp::{NeighbourId, Node, Recognised, is_hello, is_packet};

use crate::{
    BindOptions, BulkSocket, Error, IoMode, Poller, RecvBuffer, Waker,
    bulk::{MOST_BYTES, MOST_DATAGRAMS, Way},
    interception::Interception,
    peer_names::{PeerAddress, PeerNames},
    stamped::{Waits, stamp_messages},
};

/// The port that Starhaul uses for LEOTP; none is assigned.
pub const PORT: u16 = 4511;
/// Keys that datagrams of unknown addresses are compared with in a second: a flood of them costs little, and may keep a neighbour
/// that moves from being found.
const MOST_COMPARED: usize = 20_000;
/// How often timers are looked at while the socket takes nothing.
const BLOCKED: Duration = Duration::from_millis(1);
/// How often an address that is gone is bound again.
const REBOUND: Duration = Duration::from_millis(500);
/// A neighbour that was not heard for so long is where its name says, if that has changed.
const SILENT: Duration = Duration::from_secs(30);
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
    batch: Batch,
    /// The first datagram behind the batch.
    next: Vec<u8>,
    next_for: Option<NeighbourId>,
}

/// The node, and where its neighbours are.
#[derive(Debug)]
struct Place {
    node: Node,
    neighbours: BTreeMap<NeighbourId, Neighbour>,
    by_address: HashMap<SocketAddr, NeighbourId>,
    /// Addresses of other hosts; what passes this one to them is intercepted.
    intercepted: Vec<IpAddr>,
    /// Keys compared since then.
    compared: (Instant, usize),
    strangers: u64,
}

/// Where a neighbour is.
#[derive(Debug, Default)]
struct Neighbour {
    /// From the intercepted address that it sends to, if any.
    way: Option<Way>,
    /// Where a hello came from last that may be a replay: hellos are answered there, and nothing else goes there.
    unproven: Option<Way>,
    /// Where it was before it moved last. Someone may have moved it who overtook it with its own packet: it is found there again, whatever else
    /// comes.
    former: Option<SocketAddr>,
    /// When it was heard last.
    heard: Option<Instant>,
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
        Ok(Self {
            place: Place::new(node, intercepted),
            options,
            _interception: interception.transpose()?,
            socket: Some(socket),
            names: PeerNames::new(poller.waker()),
            poller,
            buffer: RecvBuffer::new(),
            waits: Waits::default(),
            batch: Batch::default(),
            next: Vec::new(),
            next_for: None,
        })
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.options.address
    }

    /// The node.
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
        let reaches = |local: SocketAddr, remote: SocketAddr| local.is_ipv4() == remote.is_ipv4();
        self.names.follow(id, name, self.options.address, reaches)
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
        // What a timer did may be news for the caller.
        if received || sent || is_due {
            return Ok(());
        }
        let is_blocked = !self.batch.bytes.is_empty();
        // Data that the socket does not take are due all the time.
        let timer = self.place.node.poll_timeout();
        let timer = timer.map(|at| {
            if is_blocked {
                at.max(now + BLOCKED)
            } else {
                at
            }
        });
        let until = [timer, deadline].into_iter().flatten().min();
        self.poller.wait(&[(socket.socket(), is_blocked)], until)?;
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
            let sent = socket.try_send_by(way, rest, self.batch.datagram)?;
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
            let Some(id) = self.next_for.take().or_else(|| {
                self.next.clear();
                self.place
                    .node
                    .poll_transmit(Instant::now(), &mut self.next)
            }) else {
                return;
            };
            let neighbour = self.place.neighbours.get(&id);
            let Some(way) = neighbour.and_then(|neighbour| neighbour.way_of(&self.next)) else {
                // Without an address it is lost, as on a link that is down.
                continue;
            };
            if !self.batch.push(way, &self.next) {
                self.next_for = Some(id);
                return;
            }
        }
    }
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
    fn new(node: Node, intercepted: Vec<IpAddr>) -> Self {
        Self {
            node,
            intercepted,
            neighbours: BTreeMap::new(),
            by_address: HashMap::new(),
            compared: (Instant::now(), 0),
            strangers: 0,
        }
    }

    fn set_way(&mut self, id: NeighbourId, way: Option<Way>) {
        let neighbour = self.neighbours.entry(id).or_default();
        neighbour.unproven = None;
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
        let is_silent = neighbour
            .heard
            .is_none_or(|at| now.saturating_duration_since(at) >= SILENT);
        let moves = match neighbour.way {
            None => true,
            Some(way) if found.contains(&way.to) => false,
            Some(_) if is_silent && neighbour.named != found => true,
            Some(_) => return,
        };
        neighbour.named = found;
        if moves {
            tracing::info!(neighbour = id.0, address = %first, "is sought where its name says");
            self.set_way(id, Some(straight(first)));
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
        let way = Way {
            to: from,
            from: to.filter(|to| self.intercepted.contains(to)),
        };
        if let Some(id) = known
            && self.node.handle_stamped(now, arrived, id, datagram)
        {
            let is_proof = !is_hello(datagram);
            if let Some(neighbour) = self.neighbours.get_mut(&id) {
                neighbour.heard = Some(now);
                neighbour.unproven = None;
                match neighbour.way {
                    // A hello may be a replay, sent to another address than the neighbour's.
                    Some(known) if known != way && !is_proof => neighbour.unproven = Some(way),
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
        match (recognised, self.neighbours.get_mut(&id)) {
            (Recognised::Alive, Some(neighbour)) => {
                neighbour.former = neighbour.way.map(|way| way.to);
                neighbour.heard = Some(now);
                self.set_way(id, Some(way));
            }
            (_, Some(neighbour)) if is_hello(datagram) => neighbour.unproven = Some(way),
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
        *compared += self.neighbours.len();
        if *compared > MOST_COMPARED {
            return None;
        }
        let mut recognised = self
            .neighbours
            .keys()
            .map(|id| (*id, self.node.recognises(*id, datagram)));
        recognised.find(|(_, recognised)| *recognised != Recognised::No)
    }
}

impl Neighbour {
    fn way_of(&self, datagram: &[u8]) -> Option<Way> {
        self.unproven.filter(|_| is_hello(datagram)).or(self.way)
    }
}

impl Batch {
    /// Appends a datagram, if it belongs to those that are there.
    fn push(&mut self, way: Way, datagram: &[u8]) -> bool {
        if self.bytes.is_empty() {
            (self.way, self.datagram) = (Some(way), datagram.len());
        }
        let has_room = self.bytes.len() + datagram.len() <= MOST_BYTES
            && self.bytes.len() < MOST_DATAGRAMS * self.datagram;
        if self.way != Some(way) || datagram.len() > self.datagram || !has_room {
            return false;
        }
        self.bytes.extend_from_slice(datagram);
        self.is_closed = datagram.len() < self.datagram;
        true
    }

    fn clear(&mut self) {
        self.bytes.clear();
        (self.way, self.done, self.is_closed) = (None, 0, false);
    }
}

#[cfg(test)]
mod tests {
    use starhaul_leotp::{NeighbourConfig, NeighbourKey, NodeConfig};

    use super::*;

    const PEER: NeighbourId = NeighbourId(1);

    fn node(now: Instant, seed: u8) -> Node {
        let key = NeighbourKey::new(&[7; 32]);
        let mut node = Node::new(now, NodeConfig::default(), [seed; 32]).unwrap();
        node.add_neighbour(now, PEER, NeighbourConfig { key })
            .unwrap();
        node
    }

    fn drain(now: Instant, node: &mut Node) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut datagram = Vec::new();
        while node.poll_transmit(now, &mut datagram).is_some() {
            all.push(std::mem::take(&mut datagram));
        }
        all
    }

    #[test]
    fn a_neighbour_moves_by_what_only_it_can_send_now() {
        let mut now = Instant::now();
        let (mut far, mut place) = (node(now, 1), Place::new(node(now, 2), Vec::new()));
        place.set_way(PEER, None);
        let [first, second, attacker] =
            [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut recorded = Vec::new();
        for _ in 0..100 {
            now += Duration::from_millis(20);
            for datagram in drain(now, &mut far) {
                place.take((now, now), (first, None), &datagram);
                recorded.push(datagram);
            }
            for datagram in drain(now, &mut place.node) {
                far.handle_datagram(now, PEER, &datagram);
            }
        }
        assert!(place.node.has_met(PEER) && far.has_met(PEER));
        assert_eq!(address(&place), Some(first));
        for datagram in &recorded {
            place.take((now, now), (attacker, None), datagram);
        }
        place.take((now, now), (attacker, None), b"no packet");
        assert_eq!(address(&place), Some(first), "a replay moved it");
        // A packet that asks for data is new.
        let secret = starhaul_leotp::ContentSecret::new(&[3; 32]);
        let content = secret.id_of_name("any");
        far.set_upstream(now, Some(PEER));
        far.fetch(now, starhaul_leotp::FetchConfig::new(content, secret));
        for datagram in drain(now, &mut far) {
            place.take((now, now), (second, None), &datagram);
        }
        assert_eq!(address(&place), Some(second));
    }

    /// Two nodes that know each other, the second one at its place, where the first was heard at `from`.
    fn met(now: &mut Instant, from: SocketAddr) -> (Node, Place) {
        let (mut far, mut place) = (node(*now, 1), Place::new(node(*now, 2), Vec::new()));
        place.set_way(PEER, None);
        for _ in 0..100 {
            *now += Duration::from_millis(20);
            for datagram in drain(*now, &mut far) {
                place.take((*now, *now), (from, None), &datagram);
            }
            for datagram in drain(*now, &mut place.node) {
                far.handle_datagram(*now, PEER, &datagram);
            }
        }
        assert!(place.node.has_met(PEER) && far.has_met(PEER));
        far.set_upstream(*now, Some(PEER));
        (far, place)
    }

    /// A packet of a node that is new to its neighbour.
    fn new_packet(now: Instant, node: &mut Node, name: &str) -> Vec<u8> {
        let secret = starhaul_leotp::ContentSecret::new(&[3; 32]);
        let content = secret.id_of_name(name);
        node.fetch(now, starhaul_leotp::FetchConfig::new(content, secret));
        drain(now, node).remove(0)
    }

    fn address(place: &Place) -> Option<SocketAddr> {
        place.neighbours[&PEER].way.map(|way| way.to)
    }

    #[test]
    fn a_neighbour_is_sought_where_its_name_says_unless_it_is_heard_or_has_moved_on_from_there() {
        let mut now = Instant::now();
        let [home, other, moved] = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let (mut far, mut place) = met(&mut now, home);
        // Each neighbour has the address of the answer that came first, until there is another.
        place.take_answer(now, PEER, vec![other, home]);
        assert_eq!(address(&place), Some(home), "one of its own is as good");
        place.take_answer(now, PEER, vec![other]);
        assert_eq!(address(&place), Some(home), "it is heard there");
        now += SILENT;
        place.take_answer(now, PEER, vec![home, other]);
        assert_eq!(address(&place), Some(home));
        place.take_answer(now, PEER, vec![other]);
        assert_eq!(address(&place), Some(other), "it is where its name says");
        let packet = new_packet(now, &mut far, "first");
        place.take((now, now), (moved, None), &packet);
        assert_eq!(address(&place), Some(moved));
        now += SILENT;
        place.take_answer(now, PEER, vec![other]);
        assert_eq!(address(&place), Some(moved), "its name is as it was");
    }

    #[test]
    fn a_neighbour_without_an_address_has_that_of_its_name() {
        let now = Instant::now();
        let mut place = Place::new(node(now, 1), Vec::new());
        place.set_way(PEER, None);
        let home = SocketAddr::from(([127, 0, 0, 1], 1));
        place.take_answer(now, PEER, vec![home]);
        assert_eq!(address(&place), Some(home));
        assert_eq!(place.by_address.get(&home), Some(&PEER));
    }

    #[test]
    fn a_packet_that_was_held_back_moves_no_neighbour() {
        let mut now = Instant::now();
        let [home, attacker] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let (mut far, mut place) = met(&mut now, home);
        let held_back = new_packet(now, &mut far, "first");
        let next = new_packet(now, &mut far, "second");
        place.take((now, now), (home, None), &next);
        now += Duration::from_secs(30);
        let before = place.node.stats();
        place.take((now, now), (attacker, None), &held_back);
        assert_eq!(address(&place), Some(home));
        assert!(place.neighbours[&PEER].unproven.is_none());
        let taken = place.node.stats().interests - before.interests;
        assert!(taken > 0, "one that is overtaken while it moves is taken");
    }

    #[test]
    fn a_flood_keeps_no_neighbour_from_where_it_was() {
        let mut now = Instant::now();
        let [home, attacker, others] =
            [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let (mut far, mut place) = met(&mut now, home);
        let overtaken = new_packet(now, &mut far, "first");
        place.take((now, now), (attacker, None), &overtaken);
        assert_eq!(address(&place), Some(attacker));
        now += Duration::from_secs(2);
        let before = place.compared;
        for _ in 0..2 * MOST_COMPARED {
            place.take((now, now), (others, None), b"no packet");
        }
        assert_eq!(place.compared, before, "what is no packet is not compared");
        for _ in 0..2 * MOST_COMPARED {
            place.take((now, now), (others, None), &overtaken);
        }
        let next = new_packet(now, &mut far, "second");
        place.take((now, now), (home, None), &next);
        assert_eq!(address(&place), Some(home));
    }

    #[test]
    fn a_replayed_hello_changes_no_source() {
        let now = Instant::now();
        let server: IpAddr = [192, 0, 2, 1].into();
        let mut far = node(now, 1);
        let mut place = Place::new(node(now, 2), vec![server]);
        place.set_way(PEER, None);
        let from = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut recorded = Vec::new();
        let mut now = now;
        for _ in 0..100 {
            now += Duration::from_millis(20);
            for datagram in drain(now, &mut far) {
                place.take((now, now), (from, Some(server)), &datagram);
                recorded.push(datagram);
            }
            for datagram in drain(now, &mut place.node) {
                far.handle_datagram(now, PEER, &datagram);
            }
        }
        let source = |place: &Place| place.neighbours[&PEER].way.and_then(|way| way.from);
        assert_eq!(source(&place), Some(server));
        for datagram in &recorded {
            place.take((now, now), (from, Some([10, 0, 0, 1].into())), datagram);
        }
        assert_eq!(source(&place), Some(server), "a replay changed it");
    }
}
