//! The client of recordings: opens a session, sends or receives the heavy flow, runs the light flow, and writes down all
//! that was seen.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use starhaul_units::Bandwidth;

use crate::{
    Begin, Direction, Entry, Error, Phase, Probe, Refusal, Request, Transmit,
    delay::{median, shares_queue},
    key::{Key, SessionKeys},
    receiver::Receiver,
    sender::Sender,
    server::filling,
    wire::{Cookie, Feedback, Message, Sealed},
};

/// Between two packets of the light flow; as in LeoCC, Appendix B.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);
/// Between two UDP echoes while nothing else is measured.
const CONTACT_INTERVAL: Duration = Duration::from_millis(100);
/// A packet of the light flow without an answer for so long is lost.
const PROBE_LIFE: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(500);
/// A server is asked for so long.
const PATIENCE: Duration = Duration::from_secs(8);
/// A server that is not heard for so long is gone; mobile links have outages of many seconds.
const SILENCE: Duration = Duration::from_secs(30);
const REPEAT_END: Duration = Duration::from_millis(100);
/// The low-orbit network changes its paths on this grid; what the light flow measures later keeps its place on it.
const RECONFIGURATION_INTERVAL: Duration = Duration::from_secs(15);
/// Before the light flow alone, for queues to empty.
const DRAIN: Duration = Duration::from_millis(500);
/// Measurements kept for the question whether the light flow sees the queue.
const MAX_ROUND_TRIPS: usize = 100_000;
const FAREWELLS: u32 = 3;
/// More than the longest recording has.
const MAX_FEEDBACKS: usize = 400_000;

/// How the light flow travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Light {
    /// ICMP echo, sent by the caller for [`Client::poll_probe`]; beside the heavy flow.
    Icmp,
    /// UDP echo; it would wait in the heavy flow's queue, so it runs before and after it.
    Udp,
}

/// What a client is made of.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Shared with the server.
    pub key: Key,
    /// Random bytes, new for each client.
    pub nonce: [u8; 16],
    /// What is asked for.
    pub request: Request,
    /// How the light flow travels.
    pub light: Light,
    /// What IP and UDP add to each payload, in bytes: 28, or 48 over IPv6.
    pub header_bytes: u16,
    /// The server's address as given, for the journal.
    pub server: String,
    /// The wall clock now, milliseconds since 1970, for the journal.
    pub started_unix_ms: u64,
}

impl ClientConfig {
    /// Ten seconds of the path up, at most 500 Mbit/s, with UDP as the light flow.
    pub fn new(key: Key, nonce: [u8; 16]) -> Self {
        Self {
            key,
            nonce,
            request: Request {
                direction: Direction::Up,
                seconds: 10,
                loss_ms: 2000,
                max_rate: Bandwidth::from_mbit(500),
                packet_bytes: 1500,
            },
            light: Light::Udp,
            header_bytes: 28,
            server: String::new(),
            started_unix_ms: 0,
        }
    }
}

/// How far a recording is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// What the heavy flow does.
    pub phase: Phase,
    /// The heavy flow has ended, and the light flow runs alone.
    pub alone: bool,
    /// The share that is done, 0 to 1, as far as it can be told.
    pub done: f64,
    /// At what rate the heavy flow arrived lately.
    pub arriving: Bandwidth,
    /// The newest round trip of the light flow.
    pub round_trip: Option<Duration>,
}

/// The client as a state machine.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    epoch: Instant,
    state: State,
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
enum State {
    Greeting {
        sent: Option<Instant>,
    },
    Asking {
        cookie: Cookie,
        keys: Box<SessionKeys>,
        sent: Option<Instant>,
    },
    Running(Box<Running>),
    Ended(Result<(), Error>),
}

impl Client {
    /// A client whose clock begins at `now`.
    pub fn new(config: ClientConfig, now: Instant) -> Self {
        let state = State::Greeting { sent: None };
        Self {
            config,
            epoch: now,
            state,
            entries: VecDeque::new(),
        }
    }

    /// A datagram of the server arrived at `arrived`, as the kernel says, and was read at `now`.
    pub fn handle_datagram(&mut self, now: Instant, arrived: Instant, payload: &[u8]) {
        let Ok(sealed) = Sealed::parse(payload) else {
            return;
        };
        let state = match (&mut self.state, &sealed.message) {
            (State::Greeting { .. }, Message::Challenge { nonce, cookie })
                if *nonce == self.config.nonce && sealed.verify(self.config.key.mac()) =>
            {
                let keys = Box::new(self.config.key.session(nonce, cookie));
                State::Asking {
                    cookie: *cookie,
                    keys,
                    sent: None,
                }
            }
            (State::Asking { keys, .. }, message)
                if message.session() == Some(keys.session) && sealed.verify(&keys.to_client) =>
            {
                match message {
                    Message::Accept { max_rate, .. } => {
                        let running = Running::new(
                            &self.config,
                            SessionKeys::clone(keys),
                            *max_rate,
                            self.epoch,
                            now,
                        );
                        self.entries.push_back(running.begin());
                        State::Running(Box::new(running))
                    }
                    // One of ours that was interrupted may still be there for some seconds.
                    Message::Refuse {
                        reason: Refusal::KeyBusy,
                        ..
                    } if now < self.epoch + PATIENCE => return,
                    Message::Refuse { reason, .. } => State::Ended(Err((*reason).into())),
                    _ => return,
                }
            }
            (State::Running(running), message)
                if message.session() == Some(running.keys.session)
                    && sealed.verify(&running.keys.to_client) =>
            {
                let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
                let ip_bytes = bytes.saturating_add(self.config.header_bytes.into());
                running.handle(now, arrived, ip_bytes, message, &mut self.entries);
                return;
            }
            _ => return,
        };
        self.state = state;
    }

    /// The ICMP answer to the probe of this number arrived.
    pub fn handle_probe_reply(&mut self, arrived: Instant, number: u32) {
        if let State::Running(running) = &mut self.state {
            running
                .light
                .answered(arrived, number, None, &mut self.entries);
        }
    }

    /// The next datagrams for the server.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        let gone = now >= self.epoch + PATIENCE;
        match &mut self.state {
            State::Greeting { .. } if gone => self.state = State::Ended(Err(Error::NoAnswer)),
            State::Asking { .. } if gone => {
                self.state = State::Ended(Err(Refusal::KeyBusy.into()));
            }
            State::Greeting { sent } if sent.is_none_or(|at| now >= at + RETRY) => {
                *sent = Some(now);
                let hello = Message::Hello {
                    key: self.config.key.id(),
                    nonce: self.config.nonce,
                };
                return Some(Transmit::single(hello.seal(self.config.key.mac())));
            }
            State::Asking { sent: Some(_), .. } if now >= self.epoch + PATIENCE / 2 => {
                // The challenge grows old.
                self.state = State::Greeting { sent: None };
                return self.poll_transmit(now);
            }
            State::Asking { cookie, sent, .. } if sent.is_none_or(|at| now >= at + RETRY) => {
                *sent = Some(now);
                let ClientConfig {
                    key,
                    nonce,
                    request,
                    ..
                } = &self.config;
                let start = Message::Start {
                    key: key.id(),
                    nonce: *nonce,
                    cookie: *cookie,
                    request: *request,
                };
                return Some(Transmit::single(start.seal(key.mac())));
            }
            State::Running(running) => {
                let result = running.advance(now, &mut self.entries);
                let transmit = running.poll_transmit(now, &mut self.entries);
                if transmit.is_none()
                    && let Some(result) = result
                {
                    self.state = State::Ended(result);
                }
                return transmit;
            }
            _ => {}
        }
        None
    }

    /// The number of an ICMP echo to be sent now.
    pub fn poll_probe(&mut self, now: Instant) -> Option<u32> {
        match &mut self.state {
            State::Running(running) if running.light.icmp => running.light.poll(now),
            _ => None,
        }
    }

    /// When to call [`Client::poll_transmit`] and [`Client::poll_probe`] even if nothing arrives.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let retry = |sent: &Option<Instant>| sent.map_or(self.epoch, |at| at + RETRY);
        match &self.state {
            State::Greeting { sent } | State::Asking { sent, .. } => Some(retry(sent)),
            State::Running(running) => Some(running.poll_timeout()),
            State::Ended(_) => None,
        }
    }

    /// The next line of the journal.
    pub fn poll_entry(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    /// Ends the recording where it is; what is left to be sent is the farewell that this gives.
    pub fn leave(&mut self) -> Option<Transmit> {
        let farewell = match &self.state {
            State::Running(running) => {
                let bye = Message::Bye {
                    session: running.keys.session,
                };
                Some(Transmit::single(bye.seal(&running.keys.to_server)))
            }
            _ => None,
        };
        self.state = State::Ended(Ok(()));
        farewell
    }

    /// How the recording ended, once it has.
    pub fn result(&self) -> Option<&Result<(), Error>> {
        match &self.state {
            State::Ended(result) => Some(result),
            _ => None,
        }
    }

    /// How far it is; `None` before the server has agreed, and at the end.
    pub fn progress(&self, now: Instant) -> Option<Progress> {
        match &self.state {
            State::Running(running) => Some(running.progress(now)),
            _ => None,
        }
    }
}

/// A session with a server.
#[derive(Debug)]
struct Running {
    config: ClientConfig,
    keys: SessionKeys,
    max_rate: Bandwidth,
    epoch: Instant,
    heard: Instant,
    began: Instant,
    stage: Stage,
    flow: Flow,
    acks: VecDeque<u32>,
    light: LightFlow,
    /// When the saturated phase began.
    saturated_from: Option<Instant>,
    arriving: Bandwidth,
    queue: Queue,
}

/// How much longer packets were under way behind a full queue than at best, in the receiver's terms.
#[derive(Debug, Default)]
struct Queue {
    least_us: Option<i64>,
    full_us: Vec<i64>,
}

#[derive(Debug)]
enum Flow {
    Sends {
        sender: Box<Sender>,
        seen: BTreeSet<u32>,
        last: Option<u32>,
        end_sent: Option<Instant>,
    },
    Receives {
        receiver: Box<Receiver>,
        phase: Phase,
        ended: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Heavy,
    /// Waits for the light flow alone to begin.
    Pause {
        until: Instant,
    },
    Alone {
        until: Instant,
    },
    Drain {
        until: Instant,
    },
    Farewell {
        said: u32,
    },
}

impl Running {
    fn new(
        config: &ClientConfig,
        keys: SessionKeys,
        max_rate: Bandwidth,
        epoch: Instant,
        now: Instant,
    ) -> Self {
        let flow = match config.request.direction {
            Direction::Up => Flow::Sends {
                sender: Box::new(Sender::new(
                    config.request,
                    max_rate,
                    keys.session,
                    config.header_bytes,
                    filling(keys.session),
                    now,
                )),
                seen: BTreeSet::new(),
                last: None,
                end_sent: None,
            },
            Direction::Down => Flow::Receives {
                // Its clock is the client's.
                receiver: Box::new(Receiver::new(epoch)),
                phase: Phase::Idle,
                ended: false,
            },
        };
        Self {
            config: config.clone(),
            max_rate: max_rate.min(config.request.max_rate),
            keys,
            epoch,
            heard: now,
            began: now,
            stage: Stage::Heavy,
            flow,
            acks: VecDeque::new(),
            light: LightFlow::new(config.light == Light::Icmp, epoch, now),
            saturated_from: None,
            arriving: Bandwidth::ZERO,
            queue: Queue::default(),
        }
    }

    fn begin(&self) -> Entry {
        let request = &self.config.request;
        Entry::Begin(Begin {
            format: Begin::FORMAT,
            direction: request.direction,
            server: self.config.server.clone(),
            started_unix_ms: self.config.started_unix_ms,
            seconds: request.seconds,
            packet_bytes: request.packet_bytes,
            max_rate: self.max_rate,
        })
    }

    fn phase(&self) -> Phase {
        match &self.flow {
            Flow::Sends { sender, .. } => sender.phase(),
            Flow::Receives { ended: true, .. } => Phase::Done,
            Flow::Receives { phase, .. } => *phase,
        }
    }

    fn handle(
        &mut self,
        now: Instant,
        arrived: Instant,
        ip_bytes: u32,
        message: &Message,
        entries: &mut VecDeque<Entry>,
    ) {
        self.heard = now;
        if let (Flow::Receives { receiver, .. }, false) =
            (&mut self.flow, matches!(message, Message::Data(_)))
        {
            receiver.on_bytes(arrived, ip_bytes);
        }
        match (message, &mut self.flow) {
            (
                Message::Data(data),
                Flow::Receives {
                    receiver, phase, ..
                },
            ) => {
                receiver.on_data(arrived, data, ip_bytes);
                *phase = data.phase.max(*phase);
            }
            (Message::End { .. }, Flow::Receives { ended, .. }) => *ended = true,
            (
                Message::Feedback(feedback),
                Flow::Sends {
                    sender, seen, last, ..
                },
            ) => {
                if self.acks.len() < 1024 {
                    self.acks.push_back(feedback.number);
                }
                if feedback.end && last.is_none() {
                    *last = Some(feedback.number);
                }
                if seen.len() < MAX_FEEDBACKS && seen.insert(feedback.number) {
                    sender.handle_feedback(now, feedback);
                    self.note(feedback, entries);
                }
            }
            (
                Message::EchoReply {
                    number,
                    received_us,
                    ..
                },
                _,
            ) => {
                self.light
                    .answered(arrived, *number, Some(*received_us), entries);
            }
            _ => {}
        }
    }

    fn note(&mut self, feedback: &Feedback, entries: &mut VecDeque<Entry>) {
        let seen = &feedback.seen;
        let bytes = seen.bins.iter().map(|bin| u64::from(*bin)).sum();
        let time = Duration::from_millis(seen.bins.len() as u64);
        self.arriving = Bandwidth::from_bytes_over(bytes, time);
        if seen.received > 0 {
            let queue = &mut self.queue;
            queue.least_us = Some(
                queue
                    .least_us
                    .map_or(seen.way_min_us, |least| least.min(seen.way_min_us)),
            );
            if seen.phase == Phase::Saturated && queue.full_us.len() < MAX_ROUND_TRIPS {
                queue.full_us.push(seen.way_max_us);
            }
        }
        entries.push_back(Entry::Received(seen.clone()));
    }

    /// Goes on to what time brings; the result at the end.
    fn advance(
        &mut self,
        now: Instant,
        entries: &mut VecDeque<Entry>,
    ) -> Option<Result<(), Error>> {
        self.light.expire(now, entries);
        if now.saturating_duration_since(self.heard) > SILENCE {
            return Some(Err(Error::Silent));
        }
        let phase = self.phase();
        if phase == Phase::Saturated && self.saturated_from.is_none() {
            self.saturated_from = Some(now);
        }
        // Beside the heavy flow only where it has a band of its own.
        self.light.active = match self.stage {
            Stage::Heavy => self.light.icmp || phase == Phase::Idle,
            Stage::Alone { .. } => true,
            _ => false,
        };
        self.light.loaded = match phase {
            Phase::Saturated => Some(true),
            Phase::Idle | Phase::Below => Some(false),
            // After it the queue may not be empty yet.
            Phase::Done if !matches!(self.stage, Stage::Heavy | Stage::Drain { .. }) => Some(false),
            Phase::Search | Phase::Done => None,
        };
        match self.stage {
            Stage::Heavy if self.is_complete() => {
                if self.arrived_nothing() {
                    let packet_bytes = self.config.request.packet_bytes;
                    return Some(Err(Error::NothingArrived { packet_bytes }));
                }
                self.after_heavy(now);
            }
            Stage::Pause { until } if now >= until => {
                let time = Duration::from_secs(self.config.request.seconds.into()) + DRAIN;
                self.stage = Stage::Alone { until: now + time };
                self.light.active = true;
                let stands_for = self.saturated_from.map_or(now, |from| from);
                entries.push_back(Entry::Alone {
                    at_us: micros(now.saturating_duration_since(self.epoch)),
                    stands_for_us: micros(stands_for.saturating_duration_since(self.epoch)),
                });
            }
            Stage::Alone { until } if now >= until => {
                self.stage = Stage::Drain {
                    until: now + PROBE_LIFE,
                };
            }
            Stage::Drain { until } if now >= until || self.light.outstanding.is_empty() => {
                self.light.expire(now + PROBE_LIFE, entries);
                let sent = match &self.flow {
                    Flow::Sends { sender, .. } => Some(sender.sent()),
                    Flow::Receives { .. } => None,
                };
                entries.push_back(Entry::End { sent });
                self.stage = Stage::Farewell { said: 0 };
            }
            Stage::Farewell { said } if said >= FAREWELLS => return Some(Ok(())),
            _ => {}
        }
        None
    }

    /// The heavy flow is over: what else is to be measured?
    fn after_heavy(&mut self, now: Instant) {
        let full = median(self.queue.full_us.iter().copied());
        let queue_us = match (self.queue.least_us, full) {
            (Some(least), Some(full)) => full.saturating_sub(least),
            _ => 0,
        };
        let [quiet, loaded] =
            [&self.light.quiet_us, &self.light.loaded_us].map(|all| all.iter().copied());
        let alone = !self.light.icmp || shares_queue(quiet, loaded, queue_us);
        self.stage = match alone {
            false => Stage::Drain {
                until: now + PROBE_LIFE,
            },
            true => {
                let from = self.saturated_from.unwrap_or(now);
                let seconds = u64::from(self.config.request.seconds);
                let mut until = now + DRAIN;
                if seconds >= RECONFIGURATION_INTERVAL.as_secs() {
                    let mut same_place = from;
                    while same_place < until {
                        same_place += RECONFIGURATION_INTERVAL;
                    }
                    until = same_place;
                }
                Stage::Pause { until }
            }
        };
    }

    /// Whether the heavy flow has ended and all that the receiver saw of it is here.
    fn is_complete(&self) -> bool {
        match &self.flow {
            Flow::Receives { ended, .. } => *ended,
            Flow::Sends {
                sender, seen, last, ..
            } => {
                let all = |last: u32| u32::try_from(seen.range(..last).count()) == Ok(last);
                sender.phase() == Phase::Done && last.is_some_and(all)
            }
        }
    }

    fn arrived_nothing(&self) -> bool {
        match &self.flow {
            Flow::Receives { receiver, .. } => receiver.received() == 0,
            Flow::Sends { .. } => self.queue.least_us.is_none(),
        }
    }

    fn poll_transmit(&mut self, now: Instant, entries: &mut VecDeque<Entry>) -> Option<Transmit> {
        let (session, mac) = (self.keys.session, self.keys.to_server.clone());
        let seal = |message: Message| Some(Transmit::single(message.seal(&mac)));
        if let Stage::Farewell { said } = &mut self.stage {
            *said += 1;
            return (*said <= FAREWELLS)
                .then(|| seal(Message::Bye { session }))
                .flatten();
        }
        if let Some(number) = self.acks.pop_front() {
            return seal(Message::Ack { session, number });
        }
        if let Some(number) = self.light.poll_echo(now) {
            return seal(Message::Echo { session, number });
        }
        let complete = self.is_complete();
        match &mut self.flow {
            Flow::Sends {
                sender, end_sent, ..
            } => {
                let packets = sender.poll_transmit(now, &mac);
                let done = packets.is_none() && sender.phase() == Phase::Done && !complete;
                if done && end_sent.is_none_or(|at| now >= at + REPEAT_END) {
                    *end_sent = Some(now);
                    let sent = sender.sent();
                    return seal(Message::End { session, sent });
                }
                packets
            }
            Flow::Receives {
                receiver, ended, ..
            } => {
                let feedback = receiver.poll_feedback(now, session, *ended)?;
                self.note(&feedback, entries);
                seal(Message::Feedback(feedback))
            }
        }
    }

    fn poll_timeout(&self) -> Instant {
        let stage = match self.stage {
            Stage::Pause { until } | Stage::Alone { until } | Stage::Drain { until } => until,
            Stage::Farewell { .. } | Stage::Heavy => self.heard + SILENCE,
        };
        let flow = match &self.flow {
            Flow::Sends {
                sender, end_sent, ..
            } => match end_sent {
                Some(at) => Some(*at + REPEAT_END).filter(|_| self.stage == Stage::Heavy),
                None => sender.poll_timeout(),
            },
            Flow::Receives { receiver, .. } => Some(receiver.poll_timeout()),
        };
        let light = self.light.poll_timeout();
        flow.into_iter().chain(light).fold(stage, Instant::min)
    }

    fn progress(&self, now: Instant) -> Progress {
        let request = &self.config.request;
        let heavy = Duration::from_millis(request.loss_ms.into())
            + Duration::from_secs(u64::from(request.seconds) + 3);
        let alone = match self.light.icmp {
            true => Duration::ZERO,
            false => Duration::from_secs(request.seconds.into()),
        };
        let elapsed = match self.stage {
            Stage::Heavy => now.saturating_duration_since(self.began).min(heavy),
            Stage::Alone { until } | Stage::Pause { until } => {
                heavy + alone.saturating_sub(until.saturating_duration_since(now))
            }
            Stage::Drain { .. } | Stage::Farewell { .. } => heavy + alone,
        };
        Progress {
            phase: self.phase(),
            alone: self.stage != Stage::Heavy,
            done: elapsed.as_secs_f64() / (heavy + alone).as_secs_f64(),
            arriving: self.arriving,
            round_trip: self.light.newest,
        }
    }
}

/// Packets at a steady pace and their answers.
#[derive(Debug)]
struct LightFlow {
    icmp: bool,
    active: bool,
    /// Whether the heavy flow saturates the link now, if that can be said.
    loaded: Option<bool>,
    epoch: Instant,
    next: Instant,
    next_echo: Instant,
    number: u32,
    /// Sent and not answered: when, whether by ICMP, and `loaded` of that time.
    outstanding: BTreeMap<u32, (Instant, bool, Option<bool>)>,
    newest: Option<Duration>,
    quiet_us: Vec<u32>,
    loaded_us: Vec<u32>,
}

impl LightFlow {
    fn new(icmp: bool, epoch: Instant, now: Instant) -> Self {
        Self {
            icmp,
            active: true,
            loaded: Some(false),
            epoch,
            next: now,
            next_echo: now,
            number: 0,
            outstanding: BTreeMap::new(),
            newest: None,
            quiet_us: Vec::new(),
            loaded_us: Vec::new(),
        }
    }

    fn poll(&mut self, now: Instant) -> Option<u32> {
        if !self.active || now < self.next {
            return None;
        }
        self.next = next_in_pace(self.next, PROBE_INTERVAL, now);
        Some(self.launch(now, self.icmp))
    }

    /// The next UDP echo. It is the light flow itself; or it goes beside one of ICMP, where it tells each way of the round
    /// trip apart, of which the heavy flow loads only one; or it lets both sides hear of each other.
    fn poll_echo(&mut self, now: Instant) -> Option<u32> {
        if !self.icmp
            && let Some(number) = self.poll(now)
        {
            return Some(number);
        }
        let interval = self.echo_interval()?;
        if now < self.next_echo {
            return None;
        }
        self.next_echo = next_in_pace(self.next_echo, interval, now);
        Some(self.launch(now, false))
    }

    fn echo_interval(&self) -> Option<Duration> {
        match (self.icmp, self.active, self.loaded) {
            (true, true, _) => Some(PROBE_INTERVAL),
            (_, false, Some(false)) => Some(CONTACT_INTERVAL),
            _ => None,
        }
    }

    fn launch(&mut self, now: Instant, icmp: bool) -> u32 {
        let number = self.number;
        self.number = self.number.wrapping_add(1);
        self.outstanding.insert(number, (now, icmp, self.loaded));
        number
    }

    fn answered(
        &mut self,
        arrived: Instant,
        number: u32,
        server_us: Option<u64>,
        entries: &mut VecDeque<Entry>,
    ) {
        let by_icmp = server_us.is_none();
        let Some(&(sent, icmp, loaded)) = self.outstanding.get(&number) else {
            return;
        };
        if icmp != by_icmp {
            return;
        }
        self.outstanding.remove(&number);
        let round_trip = arrived.saturating_duration_since(sent);
        let rtt_us = u32::try_from(round_trip.as_micros()).unwrap_or(u32::MAX);
        if icmp == self.icmp {
            self.newest = Some(round_trip);
            let kept = match loaded {
                Some(true) => &mut self.loaded_us,
                _ => &mut self.quiet_us,
            };
            if loaded.is_some() && kept.len() < MAX_ROUND_TRIPS {
                kept.push(rtt_us);
            }
        }
        let at_us = micros(sent.saturating_duration_since(self.epoch));
        entries.push_back(Entry::Probe(Probe {
            icmp,
            at_us,
            rtt_us: Some(rtt_us),
            server_us,
        }));
    }

    fn expire(&mut self, now: Instant, entries: &mut VecDeque<Entry>) {
        while let Some(first) = self.outstanding.first_entry() {
            let (sent, icmp, _) = *first.get();
            if now < sent + PROBE_LIFE {
                return;
            }
            first.remove();
            let at_us = micros(sent.saturating_duration_since(self.epoch));
            entries.push_back(Entry::Probe(Probe {
                icmp,
                at_us,
                rtt_us: None,
                server_us: None,
            }));
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let probe = self.active.then_some(self.next);
        let echo = self.echo_interval().map(|_| self.next_echo);
        probe.into_iter().chain(echo).min()
    }
}

/// The next instant of a steady pace after `now`; what this thread slept through is left out.
fn next_in_pace(last: Instant, interval: Duration, now: Instant) -> Instant {
    let late = now.saturating_duration_since(last).as_nanos() / interval.as_nanos().max(1);
    let steps = u32::try_from(late).unwrap_or(u32::MAX - 1) + 1;
    last + interval * steps
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
