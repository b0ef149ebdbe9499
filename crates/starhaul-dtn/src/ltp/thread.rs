//! The thread of the engine and its socket.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_log::Seldom;
use starhaul_ltp::{
    Block, CancelReason, End, EngineId, Error, Event, LinkState, Outgoing, SessionId,
};
use starhaul_net::ltp::LtpDriver;
use tokio::sync::{mpsc::UnboundedSender, oneshot};

use super::{
    Counters,
    blocks::{AGGREGATE, BUNDLE, join},
};
use crate::{
    config::{LtpConfig, OneWay},
    halves::Halves,
};

/// Bundles up to this size share a block with others that wait at the same moment.
const SMALL: usize = 16 << 10;
/// Bytes of such a block: its loss costs no more than that of a large bundle.
const AGGREGATE_BYTES: usize = 64 << 10;
/// How long bundles go alone to a neighbour that refused a block of several: it may have refused one of them, and takes the others.
const ALONE: Duration = Duration::from_secs(3);
/// Bytes of blocks that arrived and are not stored yet; what comes then is refused, and sent again later.
const MOST_STORING_BYTES: usize = 512 << 20;
/// How often counters are told.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// How long a socket that is gone is left alone.
const BIND_AGAIN: Duration = Duration::from_secs(1);
/// How long a bundle waits for room in the engine before it is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// What becomes of a bundle.
type Answer = oneshot::Sender<Result<(), Unsent>>;

/// Why a bundle is not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unsent {
    /// The neighbour does not answer.
    #[error("the neighbour does not answer")]
    Unanswered,
    /// The neighbour does not take it, or it cannot be sent.
    #[error("{0}")]
    GivenUp(String),
}

/// What the thread is asked.
pub(super) enum Command {
    /// Send a bundle.
    Send {
        to: EngineId,
        bundle: Halves,
        /// Whether it is to leave before others.
        is_urgent: bool,
        answer: Answer,
    },
    /// The bundles of a block are stored, or there was no room for them.
    Settle {
        session: SessionId,
        is_stored: bool,
        bytes: usize,
    },
    /// What the contact plan says of a peer, and whether it has no contact left: what is for it is given back then.
    Link {
        peer: EngineId,
        state: LinkState,
        is_over: bool,
    },
    /// Ends the thread.
    Stop,
}

/// A block that arrived.
pub(super) struct Arrived {
    pub(super) session: SessionId,
    pub(super) service: u64,
    /// To be joined by the task that stores it: the engine's thread has enough to do.
    pub(super) block: Block,
}

/// A bundle that waits to be sent.
struct Waiting {
    bundle: Halves,
    is_urgent: bool,
    answer: Answer,
}

/// The bundles of a session that sends.
struct Sending {
    to: EngineId,
    answers: Vec<Answer>,
    /// Datagrams to that neighbour that had not left this host when it began.
    unsent: u64,
}

/// The engines of the neighbours.
pub(super) struct Neighbours {
    all: Vec<EngineId>,
    /// Those that cannot answer.
    mute: BTreeSet<EngineId>,
    /// Those to which nothing is sent.
    pub(super) unreached: BTreeSet<EngineId>,
}

impl Neighbours {
    /// Those of a configuration.
    pub(super) fn of(config: &LtpConfig) -> Self {
        let on = |way: OneWay| {
            let peers = config.peers.iter().filter(move |peer| peer.one_way == way);
            peers.map(|peer| peer.engine).collect()
        };
        Self {
            all: config.peers.iter().map(|peer| peer.engine).collect(),
            mute: on(OneWay::Out),
            unreached: on(OneWay::In),
        }
    }
}

/// The state of the engine's thread.
pub(super) struct Worker {
    driver: LtpDriver,
    inbox: mpsc::Receiver<Command>,
    outbox: UnboundedSender<Arrived>,
    counters: Arc<Counters>,
    neighbours: Neighbours,
    waiting: BTreeMap<EngineId, VecDeque<Waiting>>,
    sending: BTreeMap<SessionId, Sending>,
    /// Peers that do not know aggregates.
    plain: BTreeSet<EngineId>,
    /// Peers that refused an aggregate, and until when bundles go to them alone.
    alone: BTreeMap<EngineId, Instant>,
    /// Aggregates by the peer they went to: a refusal says that it does not know them.
    aggregates: BTreeMap<SessionId, EngineId>,
    storing_bytes: usize,
    /// Segments of other profiles that were told of, and when they were.
    other_profile: (u64, Seldom),
}

impl Worker {
    pub(super) fn new(
        driver: LtpDriver,
        inbox: mpsc::Receiver<Command>,
        outbox: UnboundedSender<Arrived>,
        (counters, neighbours): (Arc<Counters>, Neighbours),
    ) -> Self {
        Self {
            driver,
            inbox,
            outbox,
            counters,
            neighbours,
            waiting: BTreeMap::new(),
            sending: BTreeMap::new(),
            plain: BTreeSet::new(),
            alone: BTreeMap::new(),
            aggregates: BTreeMap::new(),
            storing_bytes: 0,
            other_profile: (0, Seldom::default()),
        }
    }

    pub(super) fn run(mut self) {
        let (mut next_tell, mut is_lost) = (Instant::now(), false);
        while self.take_commands() {
            let is_full = self.send_waiting();
            let until = if is_full {
                Instant::now() + TRY_AGAIN
            } else {
                next_tell
            };
            if let Err(error) = self.driver.turn(Some(until)) {
                if !std::mem::replace(&mut is_lost, true) {
                    tracing::error!(%error, "LTP has lost its socket: its address is bound again until that works");
                }
                std::thread::sleep(BIND_AGAIN);
                continue;
            }
            if std::mem::take(&mut is_lost) {
                tracing::info!("LTP has a socket again");
            }
            while let Some(event) = self.driver.poll_event() {
                self.handle(event);
            }
            if Instant::now() >= next_tell {
                let strangers = self.driver.from_nobody();
                let stats = self.driver.engine().stats();
                self.counters.set(&stats, strangers);
                self.tell_of_profiles(stats.dropped.other_profile);
                let engine = self.driver.engine();
                let sizes = self.neighbours.all.iter();
                let sizes = sizes.filter_map(|peer| Some((*peer, engine.segment_choice(*peer)?)));
                self.counters.set_sizes(sizes.collect());
                next_tell = Instant::now() + TELL_EVERY;
            }
        }
    }

    /// Neither end would learn otherwise why nothing arrives.
    fn tell_of_profiles(&mut self, dropped: u64) {
        let (told, log) = &mut self.other_profile;
        if dropped > *told && log.is_due(Instant::now()).is_some() {
            let segments = dropped - std::mem::replace(told, dropped);
            tracing::warn!(
                "{segments} segments written otherwise than the profile of their neighbour says are dropped: give both ends the same profile"
            );
        }
    }

    /// Returns `false` at the end.
    fn take_commands(&mut self) -> bool {
        loop {
            match self.inbox.try_recv() {
                Ok(Command::Send {
                    to,
                    bundle,
                    is_urgent,
                    answer,
                }) => {
                    let queue = self.waiting.entry(to).or_default();
                    // Behind those that are urgent, too: they are at the front.
                    let place = match is_urgent {
                        true => queue.partition_point(|waiting| waiting.is_urgent),
                        false => queue.len(),
                    };
                    let waiting = Waiting {
                        bundle,
                        is_urgent,
                        answer,
                    };
                    queue.insert(place, waiting);
                }
                Ok(Command::Settle {
                    session,
                    is_stored,
                    bytes,
                }) => {
                    self.storing_bytes = self.storing_bytes.saturating_sub(bytes);
                    match is_stored {
                        true => self.driver.engine().accept(Instant::now(), session),
                        false => self.refuse(session),
                    }
                }
                Ok(Command::Link {
                    peer,
                    state,
                    is_over,
                }) => {
                    self.driver.engine().set_link(Instant::now(), peer, state);
                    if is_over {
                        self.give_back(peer);
                    }
                }
                Err(mpsc::TryRecvError::Empty) => return true,
                Ok(Command::Stop) | Err(mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Begins to send what waits; returns whether the engine takes no more.
    fn send_waiting(&mut self) -> bool {
        let peers: Vec<EngineId> = self.waiting.keys().copied().collect();
        let mut is_full = false;
        for to in peers {
            while let Some(block) = self.next_block(to) {
                if let Err(block) = self.send(to, block) {
                    let queue = self.waiting.entry(to).or_default();
                    block
                        .into_iter()
                        .rev()
                        .for_each(|waiting| queue.push_front(waiting));
                    is_full = true;
                    break;
                }
            }
        }
        self.waiting.retain(|_, queue| !queue.is_empty());
        is_full
    }

    /// The bundles of the next block: one, or several small ones that wait already.
    fn next_block(&mut self, to: EngineId) -> Option<Vec<Waiting>> {
        let queue = self.waiting.get_mut(&to)?;
        let first = queue.pop_front()?;
        let mut bytes = first.bundle.len();
        let mut block = vec![first];
        let is_alone = self.alone.get(&to).is_some_and(|at| *at > Instant::now());
        let may_join = bytes <= SMALL && !is_alone && !self.plain.contains(&to);
        while may_join && let Some(next) = queue.front() {
            bytes += next.bundle.len();
            if next.bundle.len() > SMALL || bytes > AGGREGATE_BYTES {
                break;
            }
            block.extend(queue.pop_front());
        }
        Some(block)
    }

    /// Gives the bundles back when the engine is full.
    fn send(&mut self, to: EngineId, block: Vec<Waiting>) -> Result<(), Vec<Waiting>> {
        let (service, (head, rest), checksum) = match block.as_slice() {
            [one] => (
                BUNDLE,
                one.bundle.clone().into_parts(),
                one.bundle.checksum(),
            ),
            all => {
                let bundles = all.iter().map(|waiting| waiting.bundle.clone().join());
                let bundles: Vec<Bytes> = bundles.collect();
                (AGGREGATE, (join(&bundles), Bytes::new()), None)
            }
        };
        let outgoing = Outgoing {
            to,
            service,
            red: (head.len() + rest.len()) as u64,
            block: head,
        };
        let engine = self.driver.engine();
        match engine.send_with(Instant::now(), outgoing, rest, checksum) {
            Ok(session) => {
                if service == AGGREGATE {
                    self.aggregates.insert(session, to);
                }
                let answers = block.into_iter().map(|waiting| waiting.answer);
                let sending = Sending {
                    to,
                    answers: answers.collect(),
                    unsent: self.driver.unsent(to),
                };
                self.sending.insert(session, sending);
                Ok(())
            }
            Err(Error::Full { .. }) => Err(block),
            Err(error) => {
                answer(
                    block.into_iter().map(|waiting| waiting.answer),
                    &Err(Unsent::GivenUp(error.to_string())),
                );
                Ok(())
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Sent { session } => self.settle(session, &Ok(())),
            // No report will come for it: its session is over.
            Event::Transmitted { session } if self.is_to_mute(session) => {
                let left = self.has_left(session);
                self.settle(session, &left);
            }
            Event::SendCancelled {
                session,
                by,
                reason,
            } => {
                if let Some(peer) = self
                    .aggregates
                    .get(&session)
                    .filter(|_| by == End::Receiver)
                {
                    self.alone.insert(*peer, Instant::now() + ALONE);
                    if reason == CancelReason::Unreachable && self.plain.insert(*peer) {
                        tracing::info!(%peer, "the engine does not know aggregates: bundles go alone");
                    }
                }
                let unsent = match (by, reason) {
                    (End::Sender, CancelReason::RetransmissionLimit) => Unsent::Unanswered,
                    _ => Unsent::GivenUp(format!("given up by {by:?}: {reason}")),
                };
                self.settle(session, &Err(unsent));
            }
            Event::RedPart {
                session,
                service,
                block,
                is_whole: true,
                ..
            } => {
                let bytes = block.len();
                if self.storing_bytes.saturating_add(bytes) > MOST_STORING_BYTES
                    && self.storing_bytes > 0
                {
                    return self.refuse(session);
                }
                self.storing_bytes += bytes;
                // The receiver is gone when the node ends.
                let _ = self.outbox.send(Arrived {
                    session,
                    service,
                    block,
                });
            }
            // Bundles are red as a whole.
            Event::RedPart { session, .. } => self.refuse(session),
            _ => {}
        }
    }

    /// Whether a session sends to a neighbour that cannot answer.
    fn is_to_mute(&self, session: SessionId) -> bool {
        let sending = self.sending.get(&session);
        sending.is_some_and(|sending| self.neighbours.mute.contains(&sending.to))
    }

    /// Whether all of a session has left this host. Of several sessions it is not known whose segments have not: each of their bundles is
    /// sent again, and the neighbour takes none twice.
    fn has_left(&self, session: SessionId) -> Result<(), Unsent> {
        let sending = self.sending.get(&session);
        let stays = sending.is_some_and(|sending| self.driver.unsent(sending.to) > sending.unsent);
        match stays {
            true => Err(Unsent::GivenUp(
                "segments have not left this host: the neighbour has no address yet, or the system lets none go there"
                    .to_owned(),
            )),
            false => Ok(()),
        }
    }

    /// Ends a session whose bundles are not taken. One whose sender hears nothing is over as if they were.
    fn refuse(&mut self, session: SessionId) {
        let is_heard = !self.neighbours.unreached.contains(&session.originator);
        let engine = self.driver.engine();
        match is_heard {
            true => engine.cancel(Instant::now(), session),
            false => engine.accept(Instant::now(), session),
        }
    }

    fn settle(&mut self, session: SessionId, result: &Result<(), Unsent>) {
        self.aggregates.remove(&session);
        if let Some(sending) = self.sending.remove(&session) {
            answer(sending.answers, result);
        }
    }

    /// Gives up what is for a peer, whose timers would stand still for ever.
    fn give_back(&mut self, peer: EngineId) {
        let waiting = self.waiting.remove(&peer).unwrap_or_default();
        let answers = waiting.into_iter().map(|waiting| waiting.answer);
        answer(
            answers,
            &Err(Unsent::GivenUp(
                "no contact with the neighbour is left".to_owned(),
            )),
        );
        let own = self.sending.iter().filter(|(_, own)| own.to == peer);
        let sessions: Vec<SessionId> = own.map(|(session, _)| *session).collect();
        for session in sessions {
            self.driver.engine().cancel(Instant::now(), session);
        }
    }
}

fn answer(answers: impl IntoIterator<Item = Answer>, result: &Result<(), Unsent>) {
    for answer in answers {
        // The agent may have left the bundle to its fate.
        let _ = answer.send(result.clone());
    }
}
