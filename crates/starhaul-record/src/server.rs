//! The server of recordings: verifies that a client has the key and receives at its address before it sends anything
//! larger, then sends or receives the heavy flow and answers echoes.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use starhaul_units::Bandwidth;

use crate::{
    Direction, Refusal, Request, Transmit,
    key::{Key, KeyId, Mac, SessionKeys},
    receiver::Receiver,
    sender::Sender,
    wire::{Cookie, MAX_STAMPS, Message, Nonce, Sealed, Stamp},
};

/// How long a challenge is valid.
const COOKIE_LIFE: Duration = Duration::from_secs(5);
/// A session without messages of its client for this long ends; mobile links have outages of many seconds.
const SESSION_LIFE: Duration = Duration::from_secs(30);
/// A session silent for this long yields to another recording with its key.
const YIELDS: Duration = Duration::from_secs(2);
/// An unacknowledged feedback goes out again after this.
const REPEAT: Duration = Duration::from_millis(400);
/// Least time between two messages with arrivals of echo requests.
const STAMPS_INTERVAL: Duration = Duration::from_millis(50);
const REPEAT_END: Duration = Duration::from_millis(100);
/// Greatest number of feedbacks repeated at once, so that a returning link is not flooded.
const MAX_REPEATS: usize = 8;
/// The least rate offered to a recording.
const LEAST_RATE: Bandwidth = Bandwidth::from_mbit(1);
const MAX_WAITING: usize = 1024;
/// Unacknowledged feedbacks at which a session ends: 40 s of them, longer than a client waits for its server.
const MAX_UNACKED: usize = 800;
const MAX_ENDED: usize = 4096;
const HEADER_BYTES_V4: u16 = 28;
const HEADER_BYTES_V6: u16 = 48;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Keys of the clients that may record.
    pub keys: Vec<Key>,
    /// Secret random bytes.
    pub secret: [u8; 32],
    /// Rate limit of all heavy flows together, per direction.
    pub max_rate: Bandwidth,
}

impl ServerConfig {
    /// Creates the configuration for these keys, with at most 1 Gbit/s.
    pub fn new(keys: Vec<Key>, secret: [u8; 32]) -> Self {
        Self {
            keys,
            secret,
            max_rate: Bandwidth::from_mbit(1000),
        }
    }
}

/// An event of a server.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerEvent {
    /// A recording has begun.
    Began {
        /// The client's address.
        client: SocketAddr,
        /// The client's request.
        request: Request,
        /// Rate limit of the heavy flow.
        max_rate: Bandwidth,
    },
    /// A client with a valid key was refused.
    Refused {
        /// The client's address.
        client: SocketAddr,
        /// Why the server refused it.
        reason: Refusal,
    },
    /// A recording ended.
    Ended {
        /// The client's address.
        client: SocketAddr,
        /// Whether the client ended the session; otherwise it fell silent, or acknowledged nothing for 40 s.
        complete: bool,
    },
}

/// An ICMP echo request of a client as seen by the server's host, which answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoRequest {
    /// The sender's address.
    pub from: IpAddr,
    /// The token, see [`crate::ClientConfig::token`].
    pub token: [u8; 8],
    /// The probe's number, see [`crate::Client::poll_probe`].
    pub number: u32,
    /// Its size in bytes, IP header included.
    pub ip_bytes: u32,
}

/// The server as a state machine.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    cookies: Mac,
    epoch: Instant,
    sessions: HashMap<u64, Session>,
    /// Sessions that may not begin again while their cookie is valid.
    ended: VecDeque<(Instant, u64)>,
    waiting: VecDeque<(SocketAddr, Transmit)>,
    events: VecDeque<ServerEvent>,
}

#[derive(Debug)]
struct Session {
    client: SocketAddr,
    key: KeyId,
    keys: SessionKeys,
    /// The token in the echo requests of its client.
    token: [u8; 8],
    stamps: VecDeque<Stamp>,
    /// Number of stamps not sent yet.
    stamps_new: usize,
    stamps_told: Instant,
    epoch: Instant,
    heard: Instant,
    expires: Instant,
    max_rate: Bandwidth,
    flow: Flow,
    bye: bool,
}

#[derive(Debug)]
enum Flow {
    Sends {
        sender: Box<Sender>,
        end_sent: Option<Instant>,
        ended: bool,
    },
    Receives {
        receiver: Box<Receiver>,
        ended: bool,
        unacked: BTreeMap<u32, (Instant, Vec<u8>)>,
    },
}

impl Server {
    /// Creates a server without sessions.
    pub fn new(config: ServerConfig, now: Instant) -> Self {
        Self {
            cookies: Mac::new(&config.secret),
            config,
            epoch: now,
            sessions: HashMap::new(),
            ended: VecDeque::new(),
            waiting: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Takes a datagram that arrived at `arrived` by the kernel's timestamp and was read at `now`. Foreign datagrams
    /// are ignored.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        arrived: Instant,
        from: SocketAddr,
        payload: &[u8],
    ) {
        let Ok(sealed) = Sealed::parse(payload) else {
            return;
        };
        match &sealed.message {
            Message::Hello { key, nonce } => self.hello(now, from, &sealed, *key, *nonce),
            Message::Start {
                key,
                nonce,
                cookie,
                request,
            } => {
                self.start(now, from, &sealed, (*key, *nonce, *cookie), *request);
            }
            message => {
                let session = message.session().and_then(|id| self.sessions.get_mut(&id));
                let Some(session) = session.filter(|session| session.client == from) else {
                    return;
                };
                if sealed.verify(&session.keys.to_server) {
                    session.heard = now;
                    let ip_bytes = ip_bytes(from, payload.len());
                    let answer = session.handle(now, arrived, ip_bytes, message);
                    if self.waiting.len() < MAX_WAITING {
                        self.waiting.extend(answer.map(|answer| (from, answer)));
                    }
                }
            }
        }
    }

    /// Takes an ICMP echo request that arrived at this host at `arrived` by the kernel's timestamp and was read at
    /// `now`. The client gets this time, to separate the delays of both directions.
    pub fn handle_echo_request(&mut self, now: Instant, arrived: Instant, request: &EchoRequest) {
        let from = request.from.to_canonical();
        let is_of = |session: &&mut Session| {
            session.client.ip().to_canonical() == from && session.token == request.token
        };
        let Some(session) = self.sessions.values_mut().find(is_of) else {
            return;
        };
        let told = session.handle_echo_request(now, arrived, request);
        if self.waiting.len() < MAX_WAITING {
            let client = session.client;
            self.waiting.extend(told.map(|told| (client, told)));
        }
    }

    /// The next datagrams to send.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(SocketAddr, Transmit)> {
        self.handle_timeout(now);
        self.waiting.pop_front().or_else(|| {
            self.sessions
                .values_mut()
                .find_map(|session| Some((session.client, session.poll_transmit(now)?)))
        })
    }

    /// When to call [`Server::poll_transmit`] even if nothing arrives.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.sessions.values().map(Session::poll_timeout).min()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    fn handle_timeout(&mut self, now: Instant) {
        let is_over = |session: &Session| {
            session.bye
                || session.acknowledges_nothing()
                || now >= session.expires
                || now.saturating_duration_since(session.heard) >= SESSION_LIFE
        };
        for (id, session) in self.sessions.extract_if(|_, session| is_over(session)) {
            self.ended.push_back((now, id));
            let ended = ServerEvent::Ended {
                client: session.client,
                complete: session.bye,
            };
            self.events.push_back(ended);
        }
        let is_old = |at: Instant| now.saturating_duration_since(at) > COOKIE_LIFE;
        while self.ended.front().is_some_and(|(at, _)| is_old(*at)) {
            self.ended.pop_front();
        }
    }

    fn hello(
        &mut self,
        now: Instant,
        from: SocketAddr,
        sealed: &Sealed<'_>,
        id: KeyId,
        nonce: Nonce,
    ) {
        let Some(key) = self.config.keys.iter().find(|key| key.id() == id) else {
            return;
        };
        if !sealed.verify(key.mac()) || self.waiting.len() >= MAX_WAITING {
            return;
        }
        let issued_ms = self.clock_ms(now);
        let cookie = self.cookie(issued_ms, from, id, nonce);
        let challenge = Message::Challenge { nonce, cookie }.seal(key.mac());
        self.waiting.push_back((from, Transmit::single(challenge)));
    }

    fn start(
        &mut self,
        now: Instant,
        from: SocketAddr,
        sealed: &Sealed<'_>,
        (id, nonce, cookie): (KeyId, Nonce, Cookie),
        request: Request,
    ) {
        let Some(key) = self.config.keys.iter().find(|key| key.id() == id) else {
            return;
        };
        if !sealed.verify(key.mac()) || !self.is_fresh(now, from, id, nonce, cookie) {
            return;
        }
        let keys = key.session(&nonce, &cookie);
        let session = keys.session;
        let known = self.sessions.get(&session).map(|session| session.max_rate);
        let was_ended = self.ended.iter().any(|(_, id)| *id == session);
        if was_ended || self.ended.len() >= MAX_ENDED || self.waiting.len() >= MAX_WAITING {
            return;
        }
        let answer = match known.map_or_else(|| self.grant(now, id, request), Ok) {
            Ok(max_rate) => {
                if known.is_none() {
                    let granted = Session::new(
                        now,
                        from,
                        id,
                        keys.clone(),
                        token(&nonce),
                        request,
                        max_rate,
                    );
                    self.sessions.insert(session, granted);
                    self.events.push_back(ServerEvent::Began {
                        client: from,
                        request,
                        max_rate,
                    });
                }
                Message::Accept { session, max_rate }
            }
            Err(reason) => {
                self.events.push_back(ServerEvent::Refused {
                    client: from,
                    reason,
                });
                Message::Refuse { session, reason }
            }
        };
        let answer = Transmit::single(answer.seal(&keys.to_client));
        self.waiting.push_back((from, answer));
    }

    /// Decides about a request and the rate limit of its heavy flow.
    fn grant(&mut self, now: Instant, key: KeyId, request: Request) -> Result<Bandwidth, Refusal> {
        for session in self
            .sessions
            .values_mut()
            .filter(|session| session.key == key)
        {
            if now.saturating_duration_since(session.heard) < YIELDS {
                return Err(Refusal::KeyBusy);
            }
            session.expires = now;
        }
        self.handle_timeout(now);
        let used: Bandwidth = self.sessions.values().map(|session| session.max_rate).sum();
        let free = self
            .config
            .max_rate
            .bits_per_second()
            .saturating_sub(used.bits_per_second());
        let free = Bandwidth::from_bits_per_second(free);
        match free < LEAST_RATE.min(request.max_rate) {
            true => Err(Refusal::RateBusy),
            false => Ok(request.max_rate.min(free)),
        }
    }

    fn is_fresh(
        &self,
        now: Instant,
        from: SocketAddr,
        id: KeyId,
        nonce: Nonce,
        cookie: Cookie,
    ) -> bool {
        let issued_ms = cookie
            .first_chunk()
            .map_or(u64::MAX, |issued| u64::from_be_bytes(*issued));
        let age_ms = self.clock_ms(now).checked_sub(issued_ms);
        let in_time = age_ms.is_some_and(|age| u128::from(age) <= COOKIE_LIFE.as_millis());
        in_time && self.cookie(issued_ms, from, id, nonce) == cookie
    }

    fn cookie(&self, issued_ms: u64, from: SocketAddr, id: KeyId, nonce: Nonce) -> Cookie {
        let issued = issued_ms.to_be_bytes();
        // An address as text has one spelling; a byte outside that text ends it.
        let from = format!("{from}\n");
        let mac = self
            .cookies
            .derive(&[b"cookie", &issued, &id, &nonce, from.as_bytes()]);
        let mut cookie = Cookie::default();
        for (to, from) in cookie.iter_mut().zip(issued.iter().chain(&mac)) {
            *to = *from;
        }
        cookie
    }

    fn clock_ms(&self, now: Instant) -> u64 {
        let ms = now.saturating_duration_since(self.epoch).as_millis();
        u64::try_from(ms).unwrap_or(u64::MAX)
    }
}

impl Session {
    fn new(
        now: Instant,
        client: SocketAddr,
        key: KeyId,
        keys: SessionKeys,
        token: [u8; 8],
        request: Request,
        max_rate: Bandwidth,
    ) -> Self {
        let flow = match request.direction {
            Direction::Up => Flow::Receives {
                receiver: Box::new(Receiver::new(now)),
                ended: false,
                unacked: BTreeMap::new(),
            },
            Direction::Down => Flow::Sends {
                sender: Box::new(Sender::new(
                    request,
                    max_rate,
                    keys.session,
                    header_bytes(client),
                    filling(keys.session),
                    now,
                )),
                end_sent: None,
                ended: false,
            },
        };
        // The heavy flow, the same time for the light flow alone, and the phases before and between.
        let longest = Duration::from_secs(2 * u64::from(request.seconds) + 180);
        Self {
            client,
            key,
            keys,
            token,
            stamps: VecDeque::new(),
            stamps_new: 0,
            stamps_told: now,
            epoch: now,
            heard: now,
            expires: now + longest,
            max_rate,
            flow,
            bye: false,
        }
    }

    fn handle_echo_request(
        &mut self,
        now: Instant,
        arrived: Instant,
        request: &EchoRequest,
    ) -> Option<Transmit> {
        if let Flow::Receives { receiver, .. } = &mut self.flow {
            receiver.on_bytes(arrived, request.ip_bytes);
        }
        if self.stamps.len() >= MAX_STAMPS {
            self.stamps.pop_front();
        }
        self.stamps.push_back(Stamp {
            number: request.number,
            received_us: self.clock_us(arrived),
        });
        self.stamps_new += 1;
        // After an outage many arrive at once.
        let soon = now.saturating_duration_since(self.stamps_told) < STAMPS_INTERVAL;
        if soon && self.stamps_new < MAX_STAMPS {
            return None;
        }
        self.stamps_told = now;
        self.stamps_new = 0;
        let stamps = Message::Stamps {
            session: self.keys.session,
            stamps: self.stamps.iter().copied().collect(),
        };
        Some(Transmit::single(stamps.seal(&self.keys.to_client)))
    }

    fn clock_us(&self, at: Instant) -> u64 {
        let time = at.saturating_duration_since(self.epoch).as_micros();
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Whether the client keeps sending and acknowledges no feedback, which would fill the server's memory.
    fn acknowledges_nothing(&self) -> bool {
        matches!(&self.flow, Flow::Receives { unacked, .. } if unacked.len() >= MAX_UNACKED)
    }

    fn handle(
        &mut self,
        now: Instant,
        arrived: Instant,
        ip_bytes: u32,
        message: &Message,
    ) -> Option<Transmit> {
        if let (Flow::Receives { receiver, .. }, false) =
            (&mut self.flow, matches!(message, Message::Data(_)))
        {
            receiver.on_bytes(arrived, ip_bytes);
        }
        let session = self.keys.session;
        match (message, &mut self.flow) {
            (Message::Data(data), Flow::Receives { receiver, .. }) => {
                receiver.on_data(arrived, data, ip_bytes);
            }
            (Message::Ack { number, .. }, Flow::Receives { unacked, .. }) => {
                unacked.remove(number);
            }
            (Message::End { .. }, Flow::Receives { ended, .. }) => *ended = true,
            (Message::Feedback(feedback), Flow::Sends { sender, ended, .. }) => {
                sender.handle_feedback(now, feedback);
                *ended |= feedback.end;
            }
            (Message::Echo { number, .. }, _) => {
                let received_us = self.clock_us(arrived);
                let reply = Message::EchoReply {
                    session,
                    number: *number,
                    received_us,
                };
                return Some(Transmit::single(reply.seal(&self.keys.to_client)));
            }
            (Message::Bye { .. }, _) => self.bye = true,
            _ => {}
        }
        None
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        let (session, mac) = (self.keys.session, &self.keys.to_client);
        match &mut self.flow {
            Flow::Sends {
                sender,
                end_sent,
                ended,
            } => {
                let packets = sender.poll_transmit(now, mac);
                let done = packets.is_none() && sender.phase() == crate::Phase::Done && !*ended;
                if done && end_sent.is_none_or(|at| now >= at + REPEAT_END) {
                    *end_sent = Some(now);
                    let end = Message::End {
                        session,
                        sent: sender.sent(),
                    };
                    return Some(Transmit::single(end.seal(mac)));
                }
                packets
            }
            Flow::Receives {
                receiver,
                ended,
                unacked,
            } => {
                if let Some(feedback) = receiver.poll_feedback(now, session, *ended) {
                    let number = feedback.number;
                    let sealed = Message::Feedback(feedback).seal(mac);
                    unacked.insert(number, (now, sealed.clone()));
                    return Some(Transmit::single(sealed));
                }
                let due = unacked.values_mut().take(MAX_REPEATS);
                let (sent, sealed) = due.min_by_key(|(sent, _)| *sent)?;
                if now < *sent + REPEAT {
                    return None;
                }
                *sent = now;
                Some(Transmit::single(sealed.clone()))
            }
        }
    }

    fn poll_timeout(&self) -> Instant {
        let gone = self.expires.min(self.heard + SESSION_LIFE);
        let next = match &self.flow {
            Flow::Sends {
                sender,
                end_sent,
                ended,
            } => match end_sent {
                Some(at) if !ended => Some(*at + REPEAT_END),
                _ => sender.poll_timeout(),
            },
            Flow::Receives {
                receiver, unacked, ..
            } => {
                let repeats = unacked.values().take(MAX_REPEATS);
                let repeat = repeats.map(|(sent, _)| *sent + REPEAT).min();
                repeat.into_iter().chain([receiver.poll_timeout()]).min()
            }
        };
        next.map_or(gone, |next| next.min(gone))
    }
}

/// The token in the echo requests of a client with this nonce.
pub(crate) fn token(nonce: &Nonce) -> [u8; 8] {
    let mut token = [0; 8];
    token
        .iter_mut()
        .zip(nonce)
        .for_each(|(to, from)| *to = *from);
    token
}

pub(crate) fn header_bytes(peer: SocketAddr) -> u16 {
    match peer {
        SocketAddr::V4(_) => HEADER_BYTES_V4,
        SocketAddr::V6(_) => HEADER_BYTES_V6,
    }
}

pub(crate) fn ip_bytes(peer: SocketAddr, payload_bytes: usize) -> u32 {
    u32::try_from(payload_bytes)
        .unwrap_or(u32::MAX)
        .saturating_add(header_bytes(peer).into())
}

/// Bytes for packets that no link can compress.
pub(crate) fn filling(seed: u64) -> Vec<u8> {
    use rand::RngCore as _;
    use rand_chacha::rand_core::SeedableRng as _;
    let mut bytes = vec![0; usize::from(*crate::PACKET_BYTES.end())];
    rand_chacha::ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}
