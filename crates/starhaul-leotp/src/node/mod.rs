//! A node: requester of what it fetches, responder of what it serves, and midnode of all else that its neighbours ask for.

mod input;
mod output;
mod raw;
mod relay;
mod routes;
mod signal;
mod streams;
#[cfg(test)]
mod tests;
mod waits;
mod ways;

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;
use rand_chacha::{
    ChaCha20Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};
use relay::{RateLooks, Relayed};
use rustc_hash::FxHashMap;
use streams::is_relayed_live;
use waits::Waits;
use ways::Ways;

use crate::{
    Error,
    cache::Cache,
    config::{NeighbourConfig, NeighbourId, NodeConfig, Scope},
    deadlines::Deadlines,
    event::{Event, Failure, Stats},
    hop::{Hop, queue::Left},
    keys::ContentSecret,
    name::{ContentId, Segment},
    pending::{Asked, Asker, Pending},
    requester::{Fetch, FetchConfig, FetchId, Taken},
    responder::{Responder, Source},
    stream::Streams,
    wire::Frame,
};

/// What did not come is looked for at this interval.
const SWEEP: Duration = Duration::from_secs(1);
/// The least time after which a range is asked for again upstream.
const LEAST_AGAIN: Duration = Duration::from_millis(5);
/// Bytes that an Interest asks for at most; requesters have no more in flight, and ask for a few segments at once.
const MOST_WANTED: u64 = 64 << 20;
/// Segments and ranges that are looked at for one packet of a neighbour at most: a requester asks for 32 segments at once, and a relay
/// for all that it waits for when this node is new.
const MOST_LOOKS: usize = 1 << 14;
/// Bytes that one Interest may ask for again before others: some of a window, not a content from its beginning.
const MOST_AGAIN_BYTES: u64 = 128 << 10;
/// Events that wait at most; beyond, notes of arrivals and of readable data are dropped.
const MOST_EVENTS: usize = 1 << 14;

/// A node. After each call, drain [`Node::poll_transmit`] and [`Node::poll_event`], and come back at [`Node::poll_timeout`].
#[derive(Debug)]
pub struct Node {
    config: NodeConfig,
    epoch: Instant,
    random: ChaCha20Rng,
    hops: BTreeMap<NeighbourId, Hop>,
    upstream: Option<NeighbourId>,
    routes: FxHashMap<ContentId, NeighbourId>,
    /// Where the openers of streams that are relayed are.
    ways: Ways,
    responder: Responder,
    /// Contents that are not known may be served later.
    holds_refusals: bool,
    streams: Option<Streams>,
    cache: Cache,
    pending: Pending,
    fetches: BTreeMap<FetchId, Fetch>,
    fetches_begun: u64,
    /// No longer than they are in `pending`, but for a second.
    relayed: FxHashMap<ContentId, Relayed>,
    /// When the silence about each of them may have to be broken.
    silences: Deadlines<ContentId>,
    /// Whose rates were looked at, by the neighbour that they come from.
    rate_looks: BTreeMap<NeighbourId, RateLooks>,
    /// How often the rate of a content was found.
    #[cfg(test)]
    rates_found: std::cell::Cell<usize>,
    events: VecDeque<Event>,
    stats: Stats,
    sweep_at: Option<Instant>,
    /// The neighbour that sent last: others go first.
    last_sent: NeighbourId,
    /// How long datagrams waited for this program, and the one that is handled did.
    waits: Waits,
    waited: Duration,
    /// What may still be looked at for the packet that is handled.
    looks: usize,
    /// Room for those who wait for the data that are handled.
    askers: Vec<Asker>,
}

impl Node {
    /// A node without neighbours. `seed` must be secret and new in each life.
    ///
    /// # Errors
    /// [`Error::SegmentBytes`].
    pub fn new(now: Instant, config: NodeConfig, seed: [u8; 32]) -> Result<Self, Error> {
        let most = crate::MOST_SEGMENT_BYTES;
        if !(NodeConfig::LEAST_SEGMENT_BYTES..=most).contains(&config.segment_bytes) {
            return Err(Error::SegmentBytes(config.segment_bytes));
        }
        let cache = Cache::new(if config.recovery == Scope::Hop {
            config.cache_bytes
        } else {
            0
        });
        Ok(Self {
            epoch: now,
            random: ChaCha20Rng::from_seed(seed),
            hops: BTreeMap::new(),
            upstream: None,
            routes: FxHashMap::default(),
            ways: Ways::new(config.contents),
            responder: Responder::default(),
            holds_refusals: false,
            streams: None,
            cache,
            pending: Pending::new(config.pending_ranges, config.contents, config.patience),
            fetches: BTreeMap::new(),
            fetches_begun: 0,
            relayed: FxHashMap::default(),
            silences: Deadlines::default(),
            rate_looks: BTreeMap::new(),
            #[cfg(test)]
            rates_found: std::cell::Cell::default(),
            events: VecDeque::new(),
            stats: Stats::default(),
            sweep_at: None,
            last_sent: NeighbourId(0),
            waits: Waits::default(),
            waited: Duration::ZERO,
            looks: MOST_LOOKS,
            askers: Vec::new(),
            config,
        })
    }

    /// Adds a neighbour and begins the handshake with it.
    ///
    /// # Errors
    /// [`Error::DuplicateNeighbour`].
    pub fn add_neighbour(
        &mut self,
        now: Instant,
        id: NeighbourId,
        config: NeighbourConfig,
    ) -> Result<(), Error> {
        if self.hops.contains_key(&id) {
            return Err(Error::DuplicateNeighbour(id));
        }
        let mut seed = [0; 32];
        self.random.fill_bytes(&mut seed);
        let mut hop = Hop::new(
            now,
            self.epoch,
            &self.config,
            config,
            ChaCha20Rng::from_seed(seed),
        );
        hop.expect_waits(self.waits.longest());
        self.hops.insert(id, hop);
        Ok(())
    }

    /// Serves a content from now on. Its bytes must never change.
    pub fn serve(&mut self, content: ContentId, secret: &ContentSecret, source: Box<dyn Source>) {
        self.responder.serve(content, secret, source);
    }

    /// Serves a content no more.
    pub fn withdraw(&mut self, content: ContentId) {
        self.responder.withdraw(content);
    }

    /// While this holds, neighbours are not told that a content is unknown which this node neither serves nor has a route for: it may be served soon, as
    /// after a restart, and who asks asks again.
    pub fn hold_refusals(&mut self, holds: bool) {
        self.holds_refusals = holds;
    }

    /// Begins a transfer; its data come by [`Node::read`].
    pub fn fetch(&mut self, now: Instant, config: FetchConfig) -> FetchId {
        let id = FetchId(self.fetches_begun);
        self.fetches_begun += 1;
        let scopes = (self.config.recovery, self.config.control);
        let fetch = Fetch::new(config, scopes, self.config.segment_bytes);
        self.fetches.insert(id, fetch);
        self.pump(now, id);
        id
    }

    /// The next data of a transfer, in order and authentic.
    pub fn read(&mut self, now: Instant, id: FetchId) -> Option<Bytes> {
        let fetch = self.fetches.get_mut(&id)?;
        let bytes = fetch.read();
        self.pump(now, id);
        bytes
    }

    /// How far a transfer has come: the end of what is in order, and the end of the content if it is known. `None`: there
    /// is no such transfer.
    pub fn progress(&self, id: FetchId) -> Option<(u64, Option<u64>)> {
        Some(self.fetches.get(&id)?.progress())
    }

    /// Ends a transfer; what was not read is dropped.
    pub fn end(&mut self, id: FetchId) {
        if let Some(fetch) = self.fetches.remove(&id) {
            self.pending.withdraw(fetch.content, Asker::Local(id));
        }
    }

    /// Whether a neighbour is known in its present life.
    pub fn has_met(&self, id: NeighbourId) -> bool {
        self.hops.get(&id).is_some_and(Hop::is_met)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let of_streams = |streams: &mut Streams| streams.poll_event().map(Event::Stream);
        let event = self.events.pop_front();
        event.or_else(|| self.streams.as_mut().and_then(of_streams))
    }

    /// Returns the counters since the node began.
    pub fn stats(&self) -> Stats {
        let frames = self.hops.values().map(Hop::dropped_frames).sum();
        Stats {
            frame_drops: frames,
            ..self.stats
        }
    }

    /// Bytes of memory that hold segments: the cache, and what waits for neighbours.
    pub fn memory(&self) -> (usize, usize) {
        (
            self.cache.bytes(),
            self.hops.values().map(|hop| hop.queue.bytes()).sum(),
        )
    }

    /// Ranges that are waited for.
    pub fn pending_ranges(&self) -> usize {
        self.pending.ranges()
    }

    /// When to call [`Node::handle_timeout`] and [`Node::poll_transmit`] next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let hops = self.hops.values().filter_map(|hop| {
            let data = match hop.queue.is_empty() {
                true => None,
                false => hop.next_data_at(),
            };
            [hop.timeout(), data].into_iter().flatten().min()
        });
        let fetches = self.fetches.values().filter_map(Fetch::timeout);
        hops.chain(fetches)
            .chain(self.sweep_at)
            .chain(self.silences.next())
            .chain(self.streams.as_ref().and_then(Streams::timeout))
            .min()
    }

    /// Handles what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.sweep_at.is_some_and(|at| at <= now) {
            self.stats.expired += self.pending.expire(now);
            let has_streams = self.forget_idle(now);
            let is_idle = self.pending.is_empty() && !has_streams;
            self.sweep_at = (!is_idle).then_some(now + SWEEP);
        }
        let ids: Vec<NeighbourId> = self.hops.keys().copied().collect();
        for id in ids {
            self.report_losses(now, id);
            if let Some(hop) = self.hops.get_mut(&id) {
                self.stats.queue_drops += hop.give_up_silent(now);
                hop.greet_unheard(now);
            }
        }
        self.break_silence(now);
        let due = self
            .fetches
            .iter()
            .filter(|(_, fetch)| fetch.timeout().is_some_and(|at| at <= now));
        let due: Vec<FetchId> = due.map(|(id, _)| *id).collect();
        for id in due {
            if let Some(fetch) = self.fetches.get_mut(&id) {
                self.stats.timeouts += fetch.handle_timeout(now);
            }
            self.pump(now, id);
        }
        if let Some(streams) = &mut self.streams {
            self.stats.timeouts += streams.handle_timeout(now);
            self.settle_streams(now);
        }
    }

    /// Since when what is handled now was there.
    fn there_since(&self, now: Instant) -> Instant {
        now.checked_sub(self.waited).unwrap_or(now)
    }

    fn emit(&mut self, event: Event) {
        let may_drop = matches!(event, Event::Arrived { .. } | Event::Readable(_));
        if !may_drop || self.events.len() < MOST_EVENTS {
            self.events.push_back(event);
        }
    }

    /// Asks for what a transfer may ask for.
    fn pump(&mut self, now: Instant, id: FetchId) {
        while let Some(fetch) = self.fetches.get_mut(&id)
            && let Some(want) = fetch.poll_want(now)
        {
            let content = fetch.content;
            self.want(
                now,
                Asker::Local(id),
                content,
                (want.start, want.end),
                want.is_fresh,
                false,
            );
        }
    }

    /// A range is asked for: it is served, taken out of the cache, or asked for upstream.
    fn want(
        &mut self,
        now: Instant,
        asker: Asker,
        content: ContentId,
        range: (u64, u64),
        is_fresh: bool,
        is_live: bool,
    ) {
        if let Some(length) = self.responder.length(content) {
            self.want_own(now, asker, content, range, length);
            return;
        }
        let mut turned = None;
        if !is_live {
            self.take_for_whole(now, content);
        } else if let Asker::Neighbour(id, handle) = asker {
            if let Some(hop) = self.hops.get_mut(&id) {
                hop.queue.note_wanted(now, content, handle);
            }
            // A refusal would reach all behind that neighbour who want it as what it is.
            if self.pending.knows_as(content, false) {
                self.stats.refused.unknown += 1;
                return;
            }
            if self.want_of_stream(now, (id, handle), content, range) {
                return;
            }
            let has_room;
            (has_room, turned) = self.ways.note(now, content, id);
            self.sweep_at.get_or_insert(now + SWEEP);
            if !has_room {
                self.stats.refused.overflow += 1;
                self.refuse(now, asker);
                return;
            }
        }
        self.want_relayed(now, asker, content, range, is_fresh, is_live);
        if let Some(turned) = turned {
            self.reroute(now, turned);
        }
    }

    /// A range of a content of others is asked for. Where the queue to who asks is full, upstream still hears that a stream is wanted: it would drop what
    /// waits of it there.
    fn want_relayed(
        &mut self,
        now: Instant,
        asker: Asker,
        content: ContentId,
        (mut at, end): (u64, u64),
        is_fresh: bool,
        is_live: bool,
    ) {
        if is_fresh {
            self.cache.forget((content, is_live), at, end);
        }
        let mut has_room = true;
        while at < end {
            if !self.may_look(asker) {
                return;
            }
            let Some(segment) = self.cache.first_in((content, is_live), at, end) else {
                break;
            };
            if segment.offset > at {
                let before = (at, segment.offset);
                self.ask_upstream(now, asker, content, before, is_fresh, is_live);
            }
            at = segment.end().max(at + 1);
            if segment.is_end {
                at = end;
            }
            if !has_room {
                continue;
            }
            // Where the responder alone is paced, the stamp of this relay must not pass for the responder's.
            let is_repair = self.config.control == Scope::EndToEnd;
            match self.deliver(now, asker, content, &segment, is_repair, None) {
                Some(bytes) => self.stats.cache_hits += bytes,
                None if is_live => has_room = false,
                None => return,
            }
        }
        if at < end {
            self.ask_upstream(now, asker, content, (at, end), is_fresh, is_live);
        }
    }

    /// Whether one more segment may be looked at for who asks.
    fn may_look(&mut self, asker: Asker) -> bool {
        if !matches!(asker, Asker::Neighbour(..)) {
            return true;
        }
        let left = self.looks.checked_sub(1);
        self.stats.refused.overflow += u64::from(left.is_none());
        self.looks = left.unwrap_or(0);
        left.is_some()
    }

    /// Bytes of a content of this node are asked for.
    fn want_own(
        &mut self,
        now: Instant,
        asker: Asker,
        content: ContentId,
        (start, end): (u64, u64),
        length: u64,
    ) {
        // Beyond the end there is only the news of the end.
        let start = start.min(length.saturating_sub(1));
        let end = end.min(length.max(1));
        let since = self.there_since(now);
        match asker {
            Asker::Neighbour(id, handle) => {
                if !self.responder.is_ready(content, start) {
                    return;
                }
                if let Some(hop) = self.hops.get_mut(&id) {
                    // Where requesters alone recover, what is asked for again is a repair as well: the publication has at most a few
                    // segments waiting before it, and here a round trip of Interests waits.
                    let left = match self.config.recovery {
                        Scope::Hop => start,
                        Scope::EndToEnd => hop.queue.own_left(content, handle).min(end).max(start),
                    };
                    // Who asks for more than that begins anew, and waits like others.
                    let left = match left - start > MOST_AGAIN_BYTES {
                        true => start,
                        false => left,
                    };
                    if start < left {
                        let has_room = hop.queue.repair_own(since, content, handle, start, left);
                        self.stats.queue_drops += u64::from(!has_room);
                    }
                    let item = crate::hop::queue::Item::Own { start: left, end };
                    let next = crate::hop::queue::Next {
                        content,
                        handle,
                        item,
                    };
                    let has_room = hop.queue.push(now, since, next);
                    self.stats.queue_drops += u64::from(!has_room && left < end);
                }
            }
            Asker::Local(id) => {
                let mut at = start;
                while at < end {
                    let Some(segment) =
                        self.responder
                            .segment(content, at, self.config.segment_bytes as u64)
                    else {
                        self.fail(id, Failure::Refused);
                        return;
                    };
                    at = segment.end().max(at + 1);
                    self.deliver_here(now, id, &segment);
                }
            }
            // A live content is none of these.
            Asker::Stream(_) => self.refuse(now, asker),
        }
    }

    /// Asks upstream for what is not asked for yet.
    fn ask_upstream(
        &mut self,
        now: Instant,
        asker: Asker,
        content: ContentId,
        range: (u64, u64),
        is_fresh: bool,
        is_live: bool,
    ) {
        let route = self.route_of(content);
        let route = route.filter(|route| !matches!(asker, Asker::Neighbour(id, _) if id == *route));
        let Some((route, hop)) = route.and_then(|id| Some((id, self.hops.get_mut(&id)?))) else {
            if is_live && self.waits_for_opener(now, asker, content, range)
                || self.holds_refusals && matches!(asker, Asker::Neighbour(..))
            {
                return;
            }
            self.stats.refused.unknown += 1;
            self.refuse(now, asker);
            return;
        };
        let pending = &mut self.pending;
        let again = if is_fresh {
            Duration::ZERO
        } else {
            hop.rtt().max(LEAST_AGAIN)
        };
        // What finds no room is not waited for, so that it can be asked for again.
        let (is_new, may_ask) = (!pending.knows(content), hop.has_room_for_frames());
        let mut own_looks = usize::MAX;
        let looks = match asker {
            Asker::Neighbour(..) => &mut self.looks,
            Asker::Local(_) | Asker::Stream(_) => &mut own_looks,
        };
        let is_idle = |kind| pending.is_idle(kind);
        let is_admitted = may_ask && pending.admits(content, asker);
        let handle = is_admitted.then(|| hop.handle_of((content, is_live), is_idle));
        let asked = handle.flatten().and_then(|handle| {
            let asked = pending.ask_within(looks, now, content, range, (asker, again))?;
            Some((handle, asked))
        });
        self.stats.refused.overflow += u64::from(asked.is_some() && *looks == 0);
        if is_live {
            pending.set_live(content);
        }
        let Some((handle, Asked { parts, unasked })) = asked else {
            self.stats.refused.overflow += 1;
            // A live Interest is repeated so seldom that a stream must not begin with one that was dropped.
            if is_live && is_new && may_ask {
                self.ways.forget(content);
                self.refuse(now, asker);
            }
            return;
        };
        let asked: u64 = parts.iter().map(|(start, end)| end - start).sum();
        self.stats.aggregated += u64::from(asked < range.1 - range.0);
        let mut parts = parts.into_iter().peekable();
        while let Some((start, mut end)) = parts.next() {
            while let Some((_, next)) = parts.next_if(|(start, _)| *start == end) {
                end = next;
            }
            hop.queue_frame(Frame::Want {
                content,
                handle,
                start,
                end,
                is_fresh,
                is_live,
            });
        }
        self.sweep_at.get_or_insert(now + SWEEP);
        self.note_relayed(now, content, (route, handle), asker, unasked);
    }

    /// Gives a segment to one who asked for it. Returns its bytes, or 0 if it waits already; `None`: there was no room.
    fn deliver(
        &mut self,
        now: Instant,
        asker: Asker,
        content: ContentId,
        segment: &Segment,
        is_repair: bool,
        left: Option<Left>,
    ) -> Option<u64> {
        match asker {
            Asker::Local(id) => {
                self.deliver_here(now, id, segment);
                Some(segment.length())
            }
            Asker::Stream(id) => {
                self.deliver_to_stream(now, id, segment);
                Some(segment.length())
            }
            Asker::Neighbour(id, handle) => {
                let since = self.there_since(now);
                let is_live = is_relayed_live(&self.pending, &self.ways, content);
                let hop = self.hops.get_mut(&id)?;
                let item = crate::hop::queue::Item::Segment {
                    segment: segment.clone(),
                    is_repair,
                    left,
                };
                let next = crate::hop::queue::Next {
                    content,
                    handle,
                    item,
                };
                let before = hop.queue.bytes();
                let has_room = hop.queue.push(now, since, next);
                self.stats.queue_drops += u64::from(!has_room);
                if is_live {
                    hop.queue.note_live(now, handle);
                }
                let is_added = hop.queue.bytes() > before;
                has_room.then(|| if is_added { segment.length() } else { 0 })
            }
        }
    }

    fn deliver_here(&mut self, now: Instant, id: FetchId, segment: &Segment) {
        let Some(fetch) = self.fetches.get_mut(&id) else {
            return;
        };
        let (was_readable, was_finished) = (fetch.is_readable(), fetch.is_finished());
        match fetch.handle_segment(now, segment) {
            Taken::Known => self.stats.duplicates += 1,
            Taken::Damaged => {
                self.stats.refused.damaged += 1;
                if fetch.is_hopeless() {
                    self.fail(id, Failure::Damaged);
                }
            }
            Taken::New => {
                let (notes, is_readable, is_finished) = (
                    fetch.notes_arrivals,
                    fetch.is_readable(),
                    fetch.is_finished(),
                );
                if notes {
                    self.emit(Event::Arrived {
                        fetch: id,
                        offset: segment.offset,
                    });
                }
                if is_readable && !was_readable {
                    self.emit(Event::Readable(id));
                }
                if is_finished && !was_finished {
                    self.emit(Event::Finished(id));
                }
            }
        }
    }

    /// Tells one who asked that there is no such content.
    fn refuse(&mut self, now: Instant, asker: Asker) {
        match asker {
            Asker::Local(id) => self.fail(id, Failure::Refused),
            Asker::Stream(id) => {
                let streams = self.streams.as_mut();
                let waiting = streams.map_or(Vec::new(), |it| it.refused(now, id));
                for (neighbour, handle) in waiting {
                    self.refuse(now, Asker::Neighbour(neighbour, handle));
                }
            }
            Asker::Neighbour(id, handle) => {
                if let Some(hop) = self.hops.get_mut(&id) {
                    hop.queue_frame(Frame::Refused { handle });
                }
            }
        }
    }

    fn fail(&mut self, id: FetchId, why: Failure) {
        if self.fetches.contains_key(&id) {
            self.end(id);
            self.emit(Event::Failed(id, why));
        }
    }
}
