//! The client of recordings: opens a session, sends or receives the heavy flow, runs the light flow, and writes the
//! journal.

mod light;
mod running;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use starhaul_units::Bandwidth;

use self::running::Running;
use crate::{
    Direction, Entry, Error, Phase, Refusal, Request, Transmit,
    key::{Key, SessionKeys},
    server::token,
    wire::{Cookie, Message, Sealed},
};

const RETRY: Duration = Duration::from_millis(500);
/// How long the client tries to reach a server.
const PATIENCE: Duration = Duration::from_secs(8);

/// Size of a token and a number, after the headers of an echo request.
const PROBE_PAYLOAD_BYTES: u32 = 12;

/// The protocol of the light flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Light {
    /// ICMP echo, sent by the caller for [`Client::poll_probe`]; beside the heavy flow.
    Icmp,
    /// UDP echo; it would wait in the heavy flow's queue, so it runs before and after it.
    Udp,
}

/// The configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The key shared with the server.
    pub key: Key,
    /// Random bytes, new for each client.
    pub nonce: [u8; 16],
    /// The recording to request.
    pub request: Request,
    /// The protocol of the light flow.
    pub light: Light,
    /// Size of the IP and UDP headers of each payload, in bytes: 28, or 48 over IPv6.
    pub header_bytes: u16,
    /// The server's address as given, for the journal.
    pub server: String,
    /// The wall clock now, milliseconds since 1970, for the journal.
    pub started_unix_ms: u64,
}

impl ClientConfig {
    /// The bytes before the number in the client's echo requests, by which the server recognises them.
    pub fn token(&self) -> [u8; 8] {
        token(&self.nonce)
    }

    /// A recording of ten seconds upward, at most 500 Mbit/s, with UDP as the light flow.
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

/// The progress of a recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Phase of the heavy flow.
    pub phase: Phase,
    /// The heavy flow has ended, and the light flow runs alone.
    pub alone: bool,
    /// The share that is done, 0 to 1, as an estimate.
    pub done: f64,
    /// Recent arrival rate of the heavy flow.
    pub arriving: Bandwidth,
    /// The newest RTT of the light flow.
    pub round_trip: Option<Duration>,
}

/// The client as a state machine.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    epoch: Instant,
    state: State,
    /// The server said so while this recording asked for its place.
    is_busy: bool,
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
        /// When the server's challenge came.
        since: Instant,
        sent: Option<Instant>,
    },
    Running(Box<Running>),
    Ended(Result<(), Error>),
}

impl Client {
    /// Creates a client whose clock begins at `now`.
    pub fn new(config: ClientConfig, now: Instant) -> Self {
        let state = State::Greeting { sent: None };
        Self {
            config,
            epoch: now,
            state,
            is_busy: false,
            entries: VecDeque::new(),
        }
    }

    /// Takes a datagram of the server that arrived at `arrived` by the kernel's timestamp and was read at `now`.
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
                    since: now,
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
                    // An interrupted recording of this key may still run for some seconds.
                    Message::Refuse {
                        reason: Refusal::KeyBusy,
                        ..
                    } if now < self.epoch + PATIENCE => {
                        self.is_busy = true;
                        return;
                    }
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

    /// Takes the ICMP answer to the probe with this number.
    pub fn handle_probe_reply(&mut self, arrived: Instant, number: u32) {
        if let State::Running(running) = &mut self.state {
            let ip_bytes = PROBE_PAYLOAD_BYTES + u32::from(self.config.header_bytes);
            running.handle_probe_reply(arrived, ip_bytes, number, &mut self.entries);
        }
    }

    /// The next datagrams to send to the server.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        let gone = now >= self.epoch + PATIENCE;
        match &mut self.state {
            State::Greeting { .. } if gone => self.state = State::Ended(Err(Error::NoAnswer)),
            State::Asking { .. } if gone && self.is_busy => {
                self.state = State::Ended(Err(Refusal::KeyBusy.into()));
            }
            State::Asking { .. } if gone => self.state = State::Ended(Err(Error::NoAnswer)),
            State::Greeting { sent } if sent.is_none_or(|at| now >= at + RETRY) => {
                *sent = Some(now);
                let hello = Message::Hello {
                    key: self.config.key.id(),
                    nonce: self.config.nonce,
                };
                return Some(Transmit::single(hello.seal(self.config.key.mac())));
            }
            State::Asking { since, .. } if now >= *since + PATIENCE / 2 => {
                // The challenge may have expired.
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

    /// The number of an ICMP echo request to send now.
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

    /// Ends the recording early; returns the farewell to send.
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

    /// The result of the recording, once it has ended.
    pub fn result(&self) -> Option<&Result<(), Error>> {
        match &self.state {
            State::Ended(result) => Some(result),
            _ => None,
        }
    }

    /// The progress; `None` before the server has accepted, and at the end.
    pub fn progress(&self, now: Instant) -> Option<Progress> {
        match &self.state {
            State::Running(running) => Some(running.progress(now)),
            _ => None,
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
