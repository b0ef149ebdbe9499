//! A session of the client: the heavy flow in its direction, the light flow beside or after it, and the journal of
//! both.

use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use starhaul_units::Bandwidth;

use super::{
    ClientConfig, Light, Progress,
    light::{LightFlow, MAX_ROUND_TRIPS, PROBE_LIFE},
    micros,
};
use crate::{
    Begin, Direction, Entry, Error, Phase, Transmit,
    delay::{median, shares_queue},
    key::SessionKeys,
    receiver::Receiver,
    sender::{IDLE, LONGEST_SEARCH, Sender},
    server::filling,
    wire::{Feedback, Message},
};

/// A session without messages of its server for this long ends; mobile links have outages of many seconds.
const SILENCE: Duration = Duration::from_secs(30);
/// The search of the rate is over then, with some seconds for what is under way.
const LONGEST_WITHOUT_ARRIVALS: Duration = IDLE
    .saturating_add(LONGEST_SEARCH)
    .saturating_add(Duration::from_secs(10));
const REPEAT_END: Duration = Duration::from_millis(100);
/// The reconfiguration grid of low-orbit networks; measurements of the light flow alone keep their place on it.
const RECONFIGURATION_INTERVAL: Duration = Duration::from_secs(15);
/// Pause before the light flow alone, for queues to empty.
const DRAIN: Duration = Duration::from_millis(500);
const FAREWELLS: u32 = 3;
/// More feedbacks than the longest recording has.
const MAX_FEEDBACKS: usize = 400_000;

/// A session with a server.
#[derive(Debug)]
pub(super) struct Running {
    config: ClientConfig,
    pub(super) keys: SessionKeys,
    max_rate: Bandwidth,
    epoch: Instant,
    heard: Instant,
    began: Instant,
    stage: Stage,
    flow: Flow,
    acks: VecDeque<u32>,
    pub(super) light: LightFlow,
    /// When the saturated phase began.
    saturated_from: Option<Instant>,
    arriving: Bandwidth,
    queue: Queue,
}

/// Additional delay of packets behind a full queue over their least, by the receiver's clock.
#[derive(Debug, Default)]
struct Queue {
    least_us: Option<i64>,
    full_us: Vec<i64>,
}

#[derive(Debug)]
enum Flow {
    Sends {
        sender: Box<Sender>,
        /// All feedback below this number has come, and these.
        whole: u32,
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
    /// A pause before the light flow alone.
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
    pub(super) fn new(
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
                whole: 0,
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

    pub(super) fn begin(&self) -> Entry {
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

    pub(super) fn handle(
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
                    sender,
                    whole,
                    seen,
                    last,
                    ..
                },
            ) => {
                if self.acks.len() < 1024 {
                    self.acks.push_back(feedback.number);
                }
                if feedback.end && last.is_none() {
                    *last = Some(feedback.number);
                }
                let is_new = feedback.number >= *whole
                    && seen.len() < MAX_FEEDBACKS
                    && seen.insert(feedback.number);
                while seen.remove(whole) {
                    *whole += 1;
                }
                if is_new {
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
            (Message::Stamps { stamps, .. }, _) => self.light.stamped(stamps, entries),
            _ => {}
        }
    }

    /// An ICMP answer without a stamp of the server.
    pub(super) fn handle_probe_reply(
        &mut self,
        arrived: Instant,
        ip_bytes: u32,
        number: u32,
        entries: &mut VecDeque<Entry>,
    ) {
        if let Flow::Receives { receiver, .. } = &mut self.flow {
            receiver.on_bytes(arrived, ip_bytes);
        }
        self.light.answered(arrived, number, None, entries);
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

    /// Advances to `now`; returns the result at the end.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        entries: &mut VecDeque<Entry>,
    ) -> Option<Result<(), Error>> {
        self.light.expire(now, entries);
        if now.saturating_duration_since(self.heard) > SILENCE {
            return Some(Err(Error::Silent));
        }
        // Feedback and echoes are small: they arrive where the heavy flow's packets are larger than the path carries.
        if now.saturating_duration_since(self.began) > LONGEST_WITHOUT_ARRIVALS
            && self.arrived_nothing()
        {
            let packet_bytes = self.config.request.packet_bytes;
            return Some(Err(Error::NothingArrived { packet_bytes }));
        }
        let phase = self.phase();
        if phase == Phase::Saturated && self.saturated_from.is_none() {
            self.saturated_from = Some(now);
        }
        // Beside the heavy flow only if it has a band of its own.
        self.light.active = match self.stage {
            Stage::Heavy => self.light.icmp || phase == Phase::Idle,
            Stage::Alone { .. } => true,
            _ => false,
        };
        self.light.loaded = match phase {
            Phase::Saturated => Some(true),
            Phase::Idle | Phase::Below => Some(false),
            // Right after it the queue may not be empty yet.
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

    /// The heavy flow has ended: selects the next measurement.
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

    /// Whether the heavy flow has ended and all feedback of its receiver has arrived.
    fn is_complete(&self) -> bool {
        match &self.flow {
            Flow::Receives { ended, .. } => *ended,
            Flow::Sends {
                sender,
                whole,
                last,
                ..
            } => sender.phase() == Phase::Done && last.is_some_and(|last| *whole >= last),
        }
    }

    fn arrived_nothing(&self) -> bool {
        match &self.flow {
            Flow::Receives { receiver, .. } => receiver.received() == 0,
            Flow::Sends { .. } => self.queue.least_us.is_none(),
        }
    }

    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        entries: &mut VecDeque<Entry>,
    ) -> Option<Transmit> {
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

    pub(super) fn poll_timeout(&self) -> Instant {
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

    pub(super) fn progress(&self, now: Instant) -> Progress {
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
