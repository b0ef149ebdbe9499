//! The engine: its peers, what they share, and which of them is next.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    Batch, CancelReason, Encoding, EngineConfig, EngineId, Error, Event, Incoming, PeerConfig,
    RepairChoice, SegmentChoice, SessionId, Stats, UnknownPeers, parse,
    peer::{Context, Memory, Numbers, Peer},
};

/// A block to send.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The engine that shall receive it.
    pub to: EngineId,
    /// The client service there.
    pub service: u64,
    /// The block. Segments borrow from it until the session ends; clones share it.
    pub block: Bytes,
    /// How many of its first bytes are red, that is acknowledged and repaired; the others are green.
    pub red: u64,
}

/// What a contact plan says of the link to a peer now (RFC 5326 §6.5, §6.6), as it is seen here: the peer's silence begins
/// and ends one light time after the peer stops and starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Segments can be sent to the peer; they wait otherwise.
    pub may_transmit: bool,
    /// The peer's segments can arrive; timers stand still otherwise.
    pub peer_transmits: bool,
}

/// Timeouts without a segment after which a peer may have moved or gone, the first one twice.
const TIMEOUTS_TO_MOVE: u32 = 5;

/// An LTP engine (RFC 5326). After every call, drain [`Engine::poll_transmit`] and [`Engine::poll_event`], and return at
/// [`Engine::poll_timeout`].
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    peers: BTreeMap<EngineId, Peer>,
    guests: usize,
    services: BTreeSet<u64>,
    /// Peers with something to send, each once.
    ready: VecDeque<EngineId>,
    /// When peers want to be looked after.
    wakes: BTreeSet<(Instant, EngineId)>,
    events: VecDeque<Event>,
    stats: Stats,
    memory: Memory,
    numbers: Numbers,
}

impl Engine {
    /// An engine without peers and client services.
    pub fn new(config: EngineConfig) -> Self {
        Self {
            peers: BTreeMap::new(),
            guests: 0,
            services: BTreeSet::new(),
            ready: VecDeque::new(),
            wakes: BTreeSet::new(),
            events: VecDeque::new(),
            stats: Stats::default(),
            memory: Memory {
                receive_limit: config.receive_memory,
                ..Memory::default()
            },
            numbers: Numbers::new(config.seed, config.numbers),
            config,
        }
    }

    /// The number of this engine.
    pub fn id(&self) -> EngineId {
        self.config.id
    }

    /// Adds a peer, whose link is up.
    ///
    /// # Errors
    /// [`Error::DuplicatePeer`], [`Error::NoSegmentData`] and [`Error::NotInProfile`] for a wrong configuration.
    pub fn add_peer(
        &mut self,
        now: Instant,
        id: EngineId,
        config: PeerConfig,
    ) -> Result<(), Error> {
        if id == self.config.id || self.peers.contains_key(&id) {
            return Err(Error::DuplicatePeer(id));
        }
        if config.segment_data == 0 {
            return Err(Error::NoSegmentData(id));
        }
        let profile = config.profile;
        if let Some(lacking) = profile.lacking(config.may_code(), self.config.numbers) {
            return Err(Error::NotInProfile {
                peer: id,
                profile,
                lacking,
            });
        }
        self.insert(Peer::new(id, config, false, now));
        Ok(())
    }

    fn insert(&mut self, mut peer: Peer) {
        if let Some(bytes) = self.memory.socket {
            peer.guess_room(bytes);
        }
        self.peers.insert(peer.id, peer);
    }

    /// Whether an engine is a peer, added or accepted.
    pub fn has_peer(&self, id: EngineId) -> bool {
        self.peers.contains_key(&id)
    }

    /// Whether a peer may be found elsewhere than it was: it was accepted although unknown, and nothing is under way with it.
    pub fn may_move(&self, id: EngineId) -> bool {
        let peer = self.peers.get(&id);
        peer.is_some_and(|peer| peer.is_guest && peer.is_idle())
    }

    /// How long a peer tries itself: it has given up by then. `None` for one that is not known.
    pub fn longest_silence(&self, id: EngineId) -> Option<Duration> {
        Some(self.peers.get(&id)?.config.longest_silence())
    }

    /// How long a peer must not have been heard before it is believed to be elsewhere: some timeouts, in each of which it sends a segment
    /// while it has something to send. A key changes nothing: signatures do not tell when a segment was made, and a host that has seen one
    /// can send it again from anywhere. `None` for one that is not known.
    pub fn moves_after(&self, id: EngineId) -> Option<Duration> {
        let peer = self.peers.get(&id)?;
        Some(peer.answer_time().silence(TIMEOUTS_TO_MOVE))
    }

    /// Whether segments of a peer are signed.
    pub fn has_key(&self, id: EngineId) -> bool {
        let peer = self.peers.get(&id);
        peer.is_some_and(|peer| peer.config.auth.is_some())
    }

    /// Tells that a peer is elsewhere, from where so many bytes came: nothing shows yet that it gets what is sent there, nor how far that is.
    pub fn has_moved(&mut self, id: EngineId, bytes: usize) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.doubt(bytes);
            peer.forget_way();
        }
    }

    /// Whether nothing is under way with an engine, or it is none that is known.
    pub fn is_idle(&self, id: EngineId) -> bool {
        self.peers.get(&id).is_none_or(Peer::is_idle)
    }

    /// The engine whose data came, with the peer's key if it has one, from where a peer is said to be: it has another number than the
    /// configuration says, and is not understood.
    pub fn other_engine(&self, peer: EngineId) -> Option<EngineId> {
        self.peers.get(&peer)?.other()
    }

    /// As [`Engine::other_engine`], which is `None` afterwards until such data come again.
    pub fn take_other_engine(&mut self, peer: EngineId) -> Option<EngineId> {
        self.peers.get_mut(&peer)?.take_other()
    }

    /// Opens a client service; blocks for others are cancelled as unreachable.
    pub fn open_service(&mut self, service: u64) {
        self.services.insert(service);
    }

    /// Begins to send a block (RFC 5326 §4.1).
    ///
    /// # Errors
    /// [`Error::UnknownPeer`], [`Error::EmptyBlock`], [`Error::RedBeyondBlock`] and [`Error::MixedBlock`] for a wrong call;
    /// [`Error::Full`] while too much is under way.
    pub fn send(&mut self, now: Instant, outgoing: Outgoing) -> Result<SessionId, Error> {
        self.send_with(now, outgoing, Bytes::new(), None)
    }

    /// As [`Engine::send`], of a block that goes on with `rest`, in which segments borrow, too. What is before it is copied, unless it
    /// ends with a segment, and should be short. Who knows CRC32C of the red part gives it as `checksum`, so that it is not computed again;
    /// a receiver refuses a block that has another one.
    ///
    /// # Errors
    /// As [`Engine::send`]. The red part is one of both together.
    pub fn send_with(
        &mut self,
        now: Instant,
        outgoing: Outgoing,
        rest: Bytes,
        checksum: Option<u32>,
    ) -> Result<SessionId, Error> {
        let Outgoing {
            to,
            service,
            block,
            red,
        } = outgoing;
        let length = (block.len() + rest.len()) as u64;
        if length == 0 {
            return Err(Error::EmptyBlock);
        }
        if red > length {
            return Err(Error::RedBeyondBlock { red, length });
        }
        let peer = self.peers.get(&to).ok_or(Error::UnknownPeer(to))?;
        if peer.encoding().is_single_colour() && (1..length).contains(&red) {
            return Err(Error::MixedBlock { red, length });
        }
        let under_way = self.memory.sending;
        // A block above the limit may be sent alone.
        let is_full = under_way > 0 && under_way.saturating_add(length) > self.config.send_bytes;
        if is_full || peer.sessions().0 >= peer.config.sessions {
            return Err(Error::Full {
                sessions: peer.sessions().0,
                bytes: under_way,
            });
        }
        let (block, red) = ((block, rest), (red, checksum));
        let number = self.with_peer(now, to, |peer, cx| peer.send(cx, service, block, red));
        Ok(SessionId {
            originator: self.config.id,
            number: number.ok_or(Error::UnknownPeer(to))?,
        })
    }

    /// Cancels a session in either direction (RFC 5326 §4.2); one that has ended is left alone.
    pub fn cancel(&mut self, now: Instant, session: SessionId) {
        let (number, reason) = (session.number, CancelReason::User);
        if session.originator == self.config.id {
            let mut peers = self.peers.values();
            let peer = peers
                .find(|peer| peer.is_sending(number))
                .map(|peer| peer.id);
            if let Some(id) = peer {
                self.with_peer(now, id, |peer, cx| peer.cancel_send(cx, number, reason));
            }
            return;
        }
        self.with_peer(now, session.originator, |peer, cx| {
            if peer.is_receiving(number) {
                peer.cancel_receive(cx, number, reason);
            }
        });
    }

    /// Lets the complete red part of a session be reported, where [`EngineConfig::awaits_acceptance`] asks for that; a
    /// session that has ended is left alone.
    pub fn accept(&mut self, now: Instant, session: SessionId) {
        self.with_peer(now, session.originator, |peer, cx| {
            peer.accept_red(cx, session.number)
        });
    }

    /// Tells what the contact plan says of a peer.
    pub fn set_link(&mut self, now: Instant, peer: EngineId, state: LinkState) {
        self.with_peer(now, peer, |peer, _| {
            peer.set_link(now, state.may_transmit, state.peer_transmits);
        });
    }

    /// Tells how many bytes an IP packet to a peer may have without being cut: those of the route, or less where the path is known to carry
    /// less. Sizes of its segments follow if they adapt; saying the same again changes nothing.
    pub fn set_path_mtu(&mut self, now: Instant, peer: EngineId, mtu: usize) {
        let known = self.peers.get(&peer);
        if known.is_some_and(|peer| !peer.knows_path_mtu(mtu)) {
            self.with_peer(now, peer, |peer, _| peer.set_path_mtu(now, mtu));
        }
    }

    /// Tells whether a peer's address is on this host. Its answers come late then only when it has no processor, and what its socket does not hold is
    /// lost however late they come. Its light time, or answers none of which comes within 200 ms, tell that it is elsewhere, behind a relay here.
    pub fn set_on_this_host(&mut self, peer: EngineId, is_here: bool) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.set_here(is_here);
        }
    }

    /// Tells how many bytes of memory the kernel keeps for segments that came and were not taken yet, as `getsockopt` says of `SO_RCVBUF`. Reports
    /// tell peers their share of it; one near by has no more red data under way where their rate is not known, so that none is lost there.
    /// Until a peer tells its own, it is taken to have as much.
    pub fn set_receive_buffer(&mut self, bytes: usize) {
        self.memory.socket = Some(bytes);
        for peer in self.peers.values_mut() {
            peer.guess_room(bytes);
        }
    }

    /// The size of the segments to a peer, and why they have it. `None` for one that is not known.
    pub fn segment_choice(&self, peer: EngineId) -> Option<SegmentChoice> {
        Some(self.peers.get(&peer)?.segment_choice())
    }

    /// The loss that repair segments to a peer make up for at present, and why it is that. `None` for one that is not known.
    pub fn repair_choice(&self, peer: EngineId) -> Option<RepairChoice> {
        Some(self.peers.get(&peer)?.repair_choice())
    }

    /// Takes datagrams of one peer that the link layer received together: each has `stride` bytes but the last, which may
    /// be shorter. Several segments in a datagram are taken in order. Returns whether a segment was well-formed and, where the peer has a
    /// key, signed with it.
    pub fn handle_datagrams(
        &mut self,
        now: Instant,
        from: EngineId,
        contents: &[u8],
        stride: usize,
    ) -> bool {
        let datagrams = contents.chunks(stride.max(1));
        let first = datagrams.clone().next().unwrap_or_default();
        let is_known = self.peers.contains_key(&from);
        if !is_known && self.is_of_other_profile(first) {
            self.stats.dropped.other_profile += datagrams.len() as u64;
            return false;
        }
        if !is_known && !self.admit(now, from, first) {
            self.stats.dropped.unknown_peer += datagrams.len() as u64;
            return false;
        }
        let believed = self.with_peer(now, from, |peer, cx| {
            peer.handle_datagrams(cx, contents, stride)
        });
        believed.unwrap_or(false)
    }

    /// Fills `batch` with the next segments of equal size and returns the peer that they are for.
    pub fn poll_transmit(&mut self, now: Instant, batch: &mut Batch) -> Option<EngineId> {
        batch.clear();
        while let Some(id) = self.ready.pop_front() {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.is_ready = false;
            }
            self.with_peer(now, id, |peer, cx| peer.poll_transmit(cx, batch));
            if !batch.is_empty() {
                return Some(id);
            }
        }
        None
    }

    /// The next notice to a client service.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`Engine::handle_timeout`]; an instant that is past until that is done.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// Handles all that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.wakes.first().filter(|(at, _)| *at <= now) {
            self.wakes.remove(&(at, id));
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.wake = None;
            }
            self.with_peer(now, id, |peer, cx| peer.handle_timeout(cx));
        }
    }

    /// Returns the counters since the engine began.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Number of unfinished sessions: those that send, and those that receive.
    pub fn sessions(&self) -> (usize, usize) {
        let counts = self.peers.values().map(Peer::sessions);
        counts.fold((0, 0), |(a, b), (sends, receives)| {
            (a + sends, b + receives)
        })
    }

    /// What of the blocks of each peer is here that are not complete, for people who wait. It looks at the latest sessions of each peer.
    pub fn incoming(&self) -> impl Iterator<Item = Incoming> {
        self.peers.values().map(Peer::incoming)
    }

    /// The first bytes of the red part of a block that is not complete, as far as none is missing, at most so many; a copy. Nothing of it has been
    /// compared with its checksum yet. Empty for a session that is not known.
    pub fn head(&self, session: SessionId, most: usize) -> Bytes {
        let peer = self.peers.get(&session.originator);
        peer.map_or_else(Bytes::new, |peer| peer.head(session.number, most))
    }

    /// Bytes of memory held by blocks received in part.
    pub fn receive_memory(&self) -> usize {
        self.memory.receiving
    }

    /// Bytes of unfinished blocks being sent.
    pub fn send_bytes(&self) -> u64 {
        self.memory.sending
    }

    /// Number of timers that are set.
    pub fn timers(&self) -> usize {
        self.peers.values().map(Peer::timers).sum()
    }

    /// Smoothed time from a checkpoint to its report, once measured.
    pub fn answer_time(&self, peer: EngineId) -> Option<Duration> {
        self.peers.get(&peer)?.answer_time().smoothed()
    }

    /// Whether an unknown engine, whose first datagram this is, has another encoding than those have that are accepted: it would take the place
    /// of one that is understood.
    fn is_of_other_profile(&self, first: &[u8]) -> bool {
        let UnknownPeers::Accept { config, .. } = &self.config.unknown_peers else {
            return false;
        };
        let encoding = first.first().and_then(|control| Encoding::of(*control));
        encoding.is_some_and(|encoding| encoding != config.profile.encoding())
    }

    /// Makes an unknown engine a peer for its first datagram, if the configuration allows it.
    fn admit(&mut self, now: Instant, id: EngineId, first: &[u8]) -> bool {
        let UnknownPeers::Accept { most, config } = &self.config.unknown_peers else {
            return false;
        };
        let (most, config) = (*most, config.as_ref().clone());
        if id == self.config.id {
            return false;
        }
        if self.guests >= most {
            let Some(leaves) = self.dispensable(now, is_signed(&config, first)) else {
                return false;
            };
            self.with_peer(now, leaves, |peer, cx| peer.end_all(cx));
            self.forget(leaves);
        }
        self.insert(Peer::new(id, config, true, now));
        self.guests += 1;
        true
    }

    /// The guest that makes room for another one: one that is idle, or of those that have not shown that they are there, of which a few
    /// forged datagrams make as many as one likes, the one that was silent for longest. Those stay for one who does not have the key
    /// either, and while they may only wait for an answer: senders that stream would take each other's places in turn.
    fn dispensable(&self, now: Instant, has_key: bool) -> Option<EngineId> {
        let guests = || self.peers.values().filter(|peer| peer.is_guest);
        let strange = || {
            let strange = guests().filter(|peer| has_key && peer.is_strange());
            let silent = strange.filter(|peer| {
                let silence = now.saturating_duration_since(peer.last_word);
                silence >= peer.answer_time().silence(TIMEOUTS_TO_MOVE)
            });
            silent.min_by_key(|peer| peer.last_word)
        };
        let leaves = guests().find(|peer| peer.is_idle()).or_else(strange);
        leaves.map(|peer| peer.id)
    }

    fn forget(&mut self, id: EngineId) {
        if let Some(peer) = self.peers.remove(&id) {
            if let Some(at) = peer.wake {
                self.wakes.remove(&(at, id));
            }
            self.ready.retain(|ready| *ready != id);
            self.guests -= 1;
            self.events.push_back(Event::PeerForgotten { peer: id });
        }
    }

    /// Lets a peer work, and notes when it wants to work again.
    fn with_peer<T>(
        &mut self,
        now: Instant,
        id: EngineId,
        work: impl FnOnce(&mut Peer, &mut Context<'_>) -> T,
    ) -> Option<T> {
        let peer = self.peers.get_mut(&id)?;
        let mut cx = Context {
            now,
            local: self.config.id,
            events: &mut self.events,
            stats: &mut self.stats,
            memory: &mut self.memory,
            services: &self.services,
            numbers: &mut self.numbers,
            awaits_acceptance: self.config.awaits_acceptance,
        };
        let before = usize::from(peer.sessions().1 > 0);
        let result = work(peer, &mut cx);
        let after = usize::from(peer.sessions().1 > 0);
        self.memory.senders = (self.memory.senders + after).saturating_sub(before);
        let wake = peer.next_wake(now);
        if wake != peer.wake {
            if let Some(at) = peer.wake {
                self.wakes.remove(&(at, id));
            }
            if let Some(at) = wake {
                self.wakes.insert((at, id));
            }
            peer.wake = wake;
        }
        if peer.can_transmit(now) && !peer.is_ready {
            peer.is_ready = true;
            self.ready.push_back(id);
        }
        Some(result)
    }
}

/// Whether a datagram begins with a segment that is signed as this configuration asks for.
fn is_signed(config: &PeerConfig, datagram: &[u8]) -> bool {
    let Some(key) = &config.auth else {
        return true;
    };
    parse(datagram).is_ok_and(|(segment, behind)| {
        let raw = &datagram[..datagram.len() - behind.len()];
        key.is_signed(&segment, raw)
    })
}
