//! All flows of a gateway over bundles: a state machine without sockets and clock.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Bound,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    datagrams::Flow,
    interface::{Counters, Event, FlowId, Limits, Transmit},
    order::Taken,
    seen::Seen,
    stream::{
        CODE_CLOSED, CODE_DROPPED, CODE_FULL, CODE_REFUSED, CODE_UNKNOWN, CODE_VIOLATION,
        FIRST_CREDIT, Read, Stream,
    },
    wire::{Batch, Body, MOST_HEADER, Message, NoMessage, Part, mark_again},
};

/// Resets that wait for the bundle node at most; the far side of others ends by its own time-out.
const MOST_FAREWELLS: usize = 1024;
/// Lives of each far gateway of which it is remembered what has ended, if none of their streams is open.
const MOST_LIVES: usize = 8;

/// A bundle that the node is to take.
#[derive(Debug)]
struct Flight {
    transmit: Transmit,
    of: Option<FlowId>,
    datagrams: u64,
}

/// What a message says of its flow.
#[derive(Debug)]
struct Head {
    accepter: u64,
    lifetime: Duration,
    header: Option<Bytes>,
}

/// A stream, and whether an application has it.
#[derive(Debug)]
struct Held {
    stream: Stream,
    /// The life of the far gateway, as soon as it is known.
    far: u64,
    is_held: bool,
}

/// What is known of a life of a far gateway.
#[derive(Debug)]
struct Life {
    ended: Seen,
    last: Instant,
}

/// All streams and flows of datagrams of a gateway over bundles.
#[derive(Debug)]
pub struct Machine {
    life: u64,
    limits: Limits,
    next: u64,
    /// Flows of datagrams that far gateways have begun.
    begun: u64,
    streams: BTreeMap<FlowId, Held>,
    flows: BTreeMap<FlowId, Flow>,
    lives: HashMap<(usize, u64), Life>,
    /// The last lives of each far gateway that were heard.
    heard: HashMap<usize, VecDeque<u64>>,
    farewells: VecDeque<Transmit>,
    flight: Option<Flight>,
    /// Whose turn it was.
    turn: Option<FlowId>,
    is_flows_turn: bool,
    events: VecDeque<Event>,
    counters: Counters,
}

impl Machine {
    /// Without flows. `life` is a random number that no former or later life of this gateway has.
    pub fn new(life: u64, mut limits: Limits) -> Self {
        limits.window = limits.window.max(FIRST_CREDIT);
        limits.part_bytes = limits.part_bytes.max(1);
        Self {
            // Zero means unknown.
            life: life.max(1),
            limits,
            next: 0,
            begun: 0,
            streams: BTreeMap::new(),
            flows: BTreeMap::new(),
            lives: HashMap::new(),
            heard: HashMap::new(),
            farewells: VecDeque::new(),
            flight: None,
            turn: None,
            is_flows_turn: false,
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// What was carried, and what is open.
    pub fn counters(&self) -> Counters {
        let open = self
            .streams
            .values()
            .filter(|held| held.stream.failed.is_none());
        Counters {
            streams: open.count() as u64,
            flows: self.flows.len() as u64,
            ..self.counters
        }
    }

    /// A bundle came that is of no far gateway.
    pub fn note_unreadable(&mut self) {
        self.counters.unreadable += 1;
    }

    // Streams.

    /// Opens a stream; `None` when there are too many, or the header is too long.
    pub fn open_stream(
        &mut self,
        now: Instant,
        peer: usize,
        header: Bytes,
        lifetime: Duration,
    ) -> Option<FlowId> {
        let open = self
            .streams
            .keys()
            .filter(|id| id.is_ours && id.peer == peer);
        if open.count() >= self.limits.flows || header.len() > MOST_HEADER {
            return None;
        }
        let id = self.next_id(peer);
        let held = Held {
            stream: Stream::open(now, header, whole(lifetime), self.limits.window),
            far: 0,
            is_held: true,
        };
        self.streams.insert(id, held);
        self.counters.streams_total += 1;
        Some(id)
    }

    /// Takes bytes to send, and returns how many: none while too many wait, until [`Event::Writable`].
    ///
    /// # Errors
    /// The code of the reset that broke the stream off.
    pub fn write(&mut self, id: FlowId, data: &[u8]) -> Result<usize, u32> {
        let most = self.most_waiting();
        let stream = self.stream(id)?;
        Ok(stream.write(data, most))
    }

    /// Nothing more will be written.
    pub fn finish(&mut self, id: FlowId) {
        if let Ok(stream) = self.stream(id) {
            stream.finish();
        }
    }

    /// The next bytes; `None` if there are none before [`Event::Readable`].
    ///
    /// # Errors
    /// The code of the reset that broke the stream off.
    pub fn read(&mut self, id: FlowId) -> Result<Option<Read>, u32> {
        let read = self.stream(id)?.read();
        Ok(read)
    }

    /// The code of the reset that broke a stream off, if it did.
    pub fn failure(&self, id: FlowId) -> Option<u32> {
        self.streams.get(&id)?.stream.failed
    }

    /// Breaks a stream off.
    pub fn reset(&mut self, id: FlowId, code: u32) {
        self.fail(id, code, true);
    }

    /// The application reads no more: what comes is dropped.
    pub fn discard(&mut self, id: FlowId) {
        if let Some(held) = self.streams.get_mut(&id) {
            held.stream.discards = true;
            while held.stream.read().is_some_and(|read| read != Read::End) {}
        }
        self.reap(id);
    }

    /// The application has let a stream go. If it has not finished, it breaks off.
    pub fn release(&mut self, id: FlowId) {
        let Some(held) = self.streams.get_mut(&id) else {
            return;
        };
        held.is_held = false;
        match held.stream.is_finished() {
            true => self.discard(id),
            false => self.reset(id, CODE_DROPPED),
        }
        self.reap(id);
    }

    // Datagrams.

    /// Opens a flow of datagrams; `None` when there are too many, or the header is too long.
    pub fn open_flow(
        &mut self,
        now: Instant,
        peer: usize,
        header: Bytes,
        lifetime: Duration,
        is_ordered: bool,
    ) -> Option<FlowId> {
        if header.len() > MOST_HEADER || !self.make_own_room(peer) {
            return None;
        }
        let id = self.next_id(peer);
        let flow = Flow::new(now, header, whole(lifetime), is_ordered);
        self.flows.insert(id, flow);
        Some(id)
    }

    /// Takes a datagram of either side's flow to send; `false`, and counted, if too many wait or the flow is gone.
    pub fn send_datagram(&mut self, now: Instant, id: FlowId, datagram: Bytes) -> bool {
        let flow = self.flows.get_mut(&id);
        let is_taken = flow.is_some_and(|flow| flow.push(now, datagram));
        if !is_taken {
            self.counters.dropped += 1;
        }
        is_taken
    }

    /// Datagrams that came were dropped, since the application takes them too slowly.
    pub fn note_dropped(&mut self, datagrams: usize) {
        self.counters.dropped += datagrams as u64;
    }

    /// Closes a flow; what waits is still sent, what comes is dropped.
    pub fn close_flow(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.is_closing = true;
            if flow.is_empty() {
                self.flows.remove(&id);
            }
        }
    }

    /// Breaks all streams off; the far side is told.
    pub fn close(&mut self) {
        let all: Vec<FlowId> = self.streams.keys().copied().collect();
        for id in all {
            self.fail(id, CODE_CLOSED, true);
        }
    }

    // Bundles.

    /// Takes the payload of a bundle of a far gateway.
    ///
    /// # Errors
    /// It holds no message; nothing has changed but a counter.
    pub fn handle(&mut self, now: Instant, peer: usize, payload: Bytes) -> Result<(), NoMessage> {
        let bytes = payload.len() as u64;
        let message = Message::parse(payload);
        let message = message.inspect_err(|_| self.counters.unreadable += 1)?;
        self.counters.bundles_received += 1;
        self.counters.bytes_received += bytes;
        let id = FlowId {
            peer,
            opener: message.opener,
            number: message.number,
            is_ours: message.from_accepter,
        };
        let head = Head {
            accepter: message.accepter,
            lifetime: message.lifetime,
            header: message.header,
        };
        let far = if id.is_ours {
            message.accepter
        } else {
            message.opener
        };
        // Answers of datagrams carry a name of their flow in that place.
        if !id.is_ours || matches!(message.body, Body::Part(_)) {
            self.hear_life(peer, far);
        }
        match message.body {
            Body::Part(part) => self.handle_part(now, id, &head, part),
            Body::Batch(batch) => self.handle_batch(now, id, head, batch),
        }
        Ok(())
    }

    /// A far gateway that lives anew knows nothing of the streams of its former lives: they are asked for at once, and end.
    fn hear_life(&mut self, peer: usize, life: u64) {
        let heard = self.heard.entry(peer).or_default();
        if life == 0 || heard.contains(&life) {
            return;
        }
        if heard.len() >= MOST_LIVES {
            heard.pop_front();
        }
        heard.push_back(life);
        let streams = self.streams.iter_mut().filter(|(id, _)| id.peer == peer);
        for (_, held) in streams.filter(|(_, held)| held.far != 0 && held.far != life) {
            held.stream.ask();
        }
    }

    fn handle_part(&mut self, now: Instant, id: FlowId, message: &Head, mut part: Part) {
        if !self.is_of_this_life(id, message) {
            self.counters.former_life += 1;
            if part.reset.is_none() {
                self.say_reset(id, message.accepter, message.lifetime, CODE_UNKNOWN);
            }
            return;
        }
        if !self.streams.contains_key(&id) && !self.accept(now, id, message, &part) {
            return;
        }
        let Some(held) = self.streams.get_mut(&id) else {
            return;
        };
        if held.stream.failed.is_some() {
            return;
        }
        if let Some(code) = part.reset.take() {
            return self.fail(id, code, false);
        }
        if id.is_ours && held.far != message.accepter {
            if held.far != 0 {
                // The far gateway has restarted, and must not go on with what another life began.
                self.counters.former_life += 1;
                held.far = message.accepter;
                return self.fail(id, CODE_UNKNOWN, true);
            }
            held.far = message.accepter;
        }
        if let Some(header) = &message.header
            && !held.stream.is_announced
        {
            held.stream.is_announced = true;
            held.stream.header = Some(header.clone());
            self.events.push_back(Event::Accepted(id, header.clone()));
        }
        match held.stream.handle(now, part) {
            Ok(false) => {}
            Ok(true) => self.events.push_back(Event::Readable(id)),
            Err(_) => self.fail(id, CODE_VIOLATION, true),
        }
        self.reap(id);
    }

    /// Whether a message is for this life of the gateway.
    fn is_of_this_life(&self, id: FlowId, message: &Head) -> bool {
        match id.is_ours {
            true => id.opener == self.life,
            false => message.accepter == 0 || message.accepter == self.life,
        }
    }

    /// Makes a place for a stream of the far side that is new; `false` if it is not, or cannot be taken.
    fn accept(&mut self, now: Instant, id: FlowId, message: &Head, part: &Part) -> bool {
        if id.is_ours {
            // It has ended, and the far side will hear so.
            return false;
        }
        let known = self.life_of(now, id);
        if known.ended.contains(id.number) {
            return false;
        }
        if part.reset.is_some() {
            // Its beginning may come later.
            known.ended.insert(id.number);
            return false;
        }
        let of_peer = |other: &&FlowId| !other.is_ours && other.peer == id.peer;
        if self.streams.keys().filter(of_peer).count() >= self.limits.flows {
            self.life_of(now, id).ended.insert(id.number);
            self.counters.limited += 1;
            self.say_reset(id, self.life, message.lifetime, CODE_FULL);
            return false;
        }
        let stream = Stream::accept(now, message.lifetime, self.limits.window);
        let held = Held {
            stream,
            far: id.opener,
            // From the event on, the application has it.
            is_held: true,
        };
        self.streams.insert(id, held);
        self.counters.streams_total += 1;
        true
    }

    fn handle_batch(&mut self, now: Instant, id: FlowId, message: Head, batch: Batch) {
        if !self.flows.contains_key(&id) {
            let is_new = !id.is_ours && !batch.is_again;
            let Some(header) = message.header.filter(|_| is_new) else {
                // An answer to a client that is gone, or what a former life may have delivered.
                self.counters.former_life += u64::from(!id.is_ours || id.opener != self.life);
                self.counters.dropped += batch.datagrams.len() as u64;
                return;
            };
            self.make_room(id.peer);
            let mut flow = Flow::new(now, header.clone(), message.lifetime, batch.is_ordered);
            // If it is begun again in this life, its answers are numbered anew under another name.
            flow.accepter = self.life.wrapping_add(self.begun).max(1);
            self.begun += 1;
            self.flows.insert(id, flow);
            self.events.push_back(Event::FlowBegan(id, header));
        }
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let sender = if id.is_ours { message.accepter } else { 0 };
        let Some((order, held)) = flow.hear(sender) else {
            self.counters.former_life += 1;
            self.counters.dropped += batch.datagrams.len() as u64;
            return;
        };
        if !held.is_empty() {
            self.events.push_back(Event::Datagrams(id, held));
        }
        let taken = order.take(now, batch);
        flow.last = now;
        match taken {
            Taken::Deliver(datagrams) => {
                self.events.push_back(Event::Datagrams(id, datagrams));
            }
            Taken::Held => {}
            Taken::Known => self.counters.repeated += 1,
        }
    }

    /// Forgets the flow of a far gateway that was silent for longest, if it has as many as it may.
    fn make_room(&mut self, peer: usize) {
        let theirs = |id: &FlowId| !id.is_ours && id.peer == peer;
        if self.flows.keys().filter(|id| theirs(id)).count() < self.limits.flows {
            return;
        }
        let silent = self.flows.iter().filter(|(id, _)| theirs(id));
        if let Some(id) = silent.min_by_key(|(_, flow)| flow.last).map(|(id, _)| *id) {
            self.flows.remove(&id);
            self.counters.limited += 1;
            self.events.push_back(Event::FlowEnded(id));
        }
    }

    /// Forgets the flow of ours to a far gateway that was silent for longest, if there are as many as may be; `false` if all have something to send.
    fn make_own_room(&mut self, peer: usize) -> bool {
        let ours = |id: &FlowId| id.is_ours && id.peer == peer;
        if self.flows.keys().filter(|id| ours(id)).count() < self.limits.flows {
            return true;
        }
        let idle = self
            .flows
            .iter()
            .filter(|(id, flow)| ours(id) && flow.is_empty());
        let Some(id) = idle.min_by_key(|(_, flow)| flow.last).map(|(id, _)| *id) else {
            return false;
        };
        self.flows.remove(&id);
        self.counters.limited += 1;
        self.events.push_back(Event::FlowEnded(id));
        true
    }

    /// The next bundle to send; the same until it is stored, refused or [`Machine::failed`].
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if self.flight.is_none() {
            self.flight = self.next_flight(now);
        }
        self.flight.as_ref().map(|flight| flight.transmit.clone())
    }

    /// The node has taken the bundle.
    pub fn stored(&mut self) {
        let Some(flight) = self.flight.take() else {
            return;
        };
        self.counters.bundles_sent += 1;
        self.counters.bytes_sent += flight.transmit.payload.len() as u64;
        if let Some(id) = flight.of {
            self.reap(id);
        }
    }

    /// The node has no room now, or did not answer, in which case it may have taken the bundle: it is sent again.
    pub fn failed(&mut self, is_uncertain: bool) {
        if let Some(flight) = &mut self.flight
            && is_uncertain
        {
            let mut payload = flight.transmit.payload.to_vec();
            mark_again(&mut payload);
            flight.transmit.payload = payload.into();
        }
    }

    /// The node will never take the bundle.
    pub fn refused(&mut self) {
        let Some(flight) = self.flight.take() else {
            return;
        };
        self.counters.dropped += flight.datagrams;
        if let Some(id) = flight.of {
            self.fail(id, CODE_REFUSED, true);
            // It may have failed before, and have waited for this bundle.
            self.reap(id);
        }
    }

    fn next_flight(&mut self, now: Instant) -> Option<Flight> {
        if let Some(transmit) = self.farewells.pop_front() {
            return Some(Flight {
                transmit,
                of: None,
                datagrams: 0,
            });
        }
        self.is_flows_turn = !self.is_flows_turn;
        match self.is_flows_turn {
            true => self.next_batch(now).or_else(|| self.next_part()),
            false => self.next_part().or_else(|| self.next_batch(now)),
        }
    }

    fn next_part(&mut self) -> Option<Flight> {
        let after = self.turn.map_or(Bound::Unbounded, Bound::Excluded);
        let has_output = |(_, held): &(&FlowId, &Held)| held.stream.has_output();
        let next = self
            .streams
            .range((after, Bound::Unbounded))
            .find(has_output);
        let next = next.or_else(|| self.streams.iter().find(has_output));
        let id = *next?.0;
        self.turn = Some(id);
        let (part_bytes, most) = (self.limits.part_bytes, self.most_waiting());
        let held = self.streams.get_mut(&id)?;
        let had_room = held.stream.has_room(most);
        let (header, part) = held.stream.next_part(part_bytes);
        if !had_room && held.stream.has_room(most) {
            self.events.push_back(Event::Writable(id));
        }
        let (far, lifetime) = (held.far, held.stream.lifetime);
        let message = self.message(id, far, lifetime, header, Body::Part(part));
        Some(Flight {
            transmit: transmit(id.peer, &message),
            of: Some(id),
            datagrams: 0,
        })
    }

    fn next_batch(&mut self, now: Instant) -> Option<Flight> {
        let due = self
            .flows
            .iter()
            .filter_map(|(id, flow)| Some((flow.due()?, *id)));
        let (due, id) = due.min()?;
        if due > now {
            return None;
        }
        let flow = self.flows.get_mut(&id)?;
        let batch = flow.next_batch();
        let datagrams = batch.datagrams.len() as u64;
        let header = id.is_ours.then(|| flow.header.clone());
        let (lifetime, is_over) = (flow.lifetime, flow.is_closing && flow.is_empty());
        let accepter = if id.is_ours { 0 } else { flow.accepter };
        if is_over {
            self.flows.remove(&id);
        }
        let mut message = self.message(id, accepter, lifetime, header, Body::Batch(batch));
        message.accepter = accepter;
        Some(Flight {
            transmit: transmit(id.peer, &message),
            of: None,
            datagrams,
        })
    }

    fn message(
        &self,
        id: FlowId,
        far: u64,
        lifetime: Duration,
        header: Option<Bytes>,
        body: Body,
    ) -> Message {
        Message {
            opener: id.opener,
            number: id.number,
            accepter: if id.is_ours { far } else { self.life },
            from_accepter: !id.is_ours,
            lifetime,
            header,
            body,
        }
    }

    // Time.

    /// When [`Machine::handle_timeout`] has something to do, or [`Machine::poll_transmit`] has more.
    pub fn next_timeout(&self) -> Option<Instant> {
        let streams = self.streams.values();
        let streams = streams.filter_map(|held| held.stream.due());
        let flows = self.flows.iter().flat_map(|(id, flow)| {
            let idle = (!id.is_ours).then(|| flow.last + flow.lifetime);
            [flow.due(), flow.order_due(), idle]
        });
        streams.chain(flows.flatten()).min()
    }

    /// Gives up what has waited for too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut failed = Vec::new();
        for (id, held) in &mut self.streams {
            if let Some(code) = held.stream.handle_timeout(now) {
                failed.push((*id, code));
            }
        }
        for (id, code) in failed {
            self.fail(id, code, true);
        }
        let mut idle = Vec::new();
        for (id, flow) in &mut self.flows {
            let datagrams = flow.give_up(now);
            if !datagrams.is_empty() {
                self.events.push_back(Event::Datagrams(*id, datagrams));
            } else if !id.is_ours && flow.last + flow.lifetime <= now {
                idle.push(*id);
            }
        }
        for id in idle {
            self.flows.remove(&id);
            self.events.push_back(Event::FlowEnded(id));
        }
    }

    /// The next event, if there is one.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    // Ends.

    fn stream(&mut self, id: FlowId) -> Result<&mut Stream, u32> {
        match self.streams.get_mut(&id) {
            None => Err(CODE_UNKNOWN),
            Some(held) => match held.stream.failed {
                Some(code) => Err(code),
                None => Ok(&mut held.stream),
            },
        }
    }

    fn most_waiting(&self) -> usize {
        2 * self.limits.part_bytes
    }

    /// Breaks a stream off, for both sides if the far one is to be told.
    fn fail(&mut self, id: FlowId, code: u32, is_told: bool) {
        let Some(held) = self.streams.get_mut(&id) else {
            return;
        };
        if held.stream.failed.is_some() {
            return;
        }
        held.stream.failed = Some(code);
        self.counters.streams_failed += 1;
        let (far, lifetime) = (held.far, held.stream.lifetime);
        if held.stream.is_announced {
            self.events
                .extend([Event::Readable(id), Event::Writable(id)]);
        } else {
            // No application knows it.
            held.is_held = false;
        }
        if is_told {
            let far = if id.is_ours { far } else { self.life };
            self.say_reset(id, far, lifetime, code);
        }
        self.reap(id);
    }

    /// Queues a reset for the far side.
    fn say_reset(&mut self, id: FlowId, accepter: u64, lifetime: Duration, code: u32) {
        let part = Part {
            reset: Some(code),
            ..Part::default()
        };
        let mut message = self.message(id, accepter, lifetime, None, Body::Part(part));
        message.accepter = accepter;
        if self.farewells.len() == MOST_FAREWELLS {
            self.farewells.pop_front();
        }
        self.farewells.push_back(transmit(id.peer, &message));
    }

    /// Forgets a stream that has come to its ends and that no application has.
    fn reap(&mut self, id: FlowId) {
        let is_over = self.streams.get(&id).is_some_and(|held| {
            let is_done = held.stream.failed.is_some() || held.stream.is_done();
            // What the node may not have taken is needed again.
            let is_sent = self
                .flight
                .as_ref()
                .is_none_or(|flight| flight.of != Some(id));
            !held.is_held && is_done && is_sent
        });
        if !is_over {
            return;
        }
        let last = self.streams.remove(&id);
        if !id.is_ours
            && let Some(life) = self.lives.get_mut(&(id.peer, id.opener))
        {
            life.ended.insert(id.number);
        }
        drop(last);
    }

    fn next_id(&mut self, peer: usize) -> FlowId {
        let number = self.next;
        self.next += 1;
        FlowId {
            peer,
            opener: self.life,
            number,
            is_ours: true,
        }
    }

    /// What is known of the life that opened a flow.
    fn life_of(&mut self, now: Instant, id: FlowId) -> &mut Life {
        let key = (id.peer, id.opener);
        let of_peer = |(peer, _): &&(usize, u64)| *peer == id.peer;
        if !self.lives.contains_key(&key) && self.lives.keys().filter(of_peer).count() >= MOST_LIVES
        {
            let in_use = |(peer, opener): &(usize, u64)| {
                let streams = self.streams.keys();
                let mut streams = streams.filter(|id| !id.is_ours);
                streams.any(|id| (id.peer, id.opener) == (*peer, *opener))
            };
            let idle = self.lives.iter();
            let idle = idle.filter(|(key, _)| of_peer(key) && !in_use(key));
            if let Some(oldest) = idle.min_by_key(|(_, life)| life.last).map(|(key, _)| *key) {
                self.lives.remove(&oldest);
            }
        }
        let life = self.lives.entry(key).or_insert_with(|| Life {
            ended: Seen::default(),
            last: now,
        });
        life.last = now;
        life
    }
}

fn transmit(peer: usize, message: &Message) -> Transmit {
    Transmit {
        peer,
        payload: message.encode().into(),
        lifetime: message.lifetime,
    }
}

/// Whole seconds, as they are told to the far side.
fn whole(lifetime: Duration) -> Duration {
    Duration::from_secs(lifetime.as_secs().max(1))
}
