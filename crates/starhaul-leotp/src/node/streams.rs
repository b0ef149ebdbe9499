//! Streams over the network: what applications do with them, and what their contents ask for and serve.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rand_chacha::rand_core::RngCore as _;

use super::{Node, SWEEP, ways::Ways};
use crate::{
    config::NeighbourId,
    hop::queue,
    name::{ContentId, Segment},
    pending::{Asker, Pending},
    requester::Taken,
    stream::{Asked, StreamConfig, StreamId, StreamRead, Streams, id},
};

/// Ranges of a content that wait for its opener at most; its requester asks for few at a time.
const MOST_WAITING: usize = 128;

/// Whether a content that comes from a neighbour is one of a stream: it is waited for as such, or was of late.
pub(super) fn is_relayed_live(pending: &Pending, ways: &Ways, content: ContentId) -> bool {
    match pending.knows(content) {
        true => pending.is_live(content),
        false => ways.holds(content),
    }
}

impl Node {
    /// Lets this node open streams, and accept them if the configuration says so. Streams of before are forgotten: their other
    /// sides are told that they are unknown when they ask, and their ids mean no other.
    pub fn enable_streams(&mut self, config: StreamConfig) {
        let segment_bytes = self.config.segment_bytes;
        let mut streams = Streams::new(config, self.config.patience, segment_bytes);
        if let Some(before) = self.streams.take() {
            self.forget_asked(streams.follow(before));
        }
        self.streams = Some(streams);
    }

    /// Streams wait for contents no more.
    fn forget_asked(&mut self, dropped: Vec<(StreamId, ContentId)>) {
        for (id, content) in dropped {
            self.pending.withdraw(content, Asker::Stream(id));
            self.routes.remove(&content);
        }
    }

    /// Opens a stream to the node that accepts them upstream. `header` is for its application, at most
    /// [`StreamConfig::MOST_HEADER_BYTES`]; data may be written at once. `None`: there are too many streams, the header is too
    /// long, or streams are not enabled.
    pub fn open_stream(&mut self, now: Instant, header: &[u8]) -> Option<StreamId> {
        let mut number = id::Number::default();
        self.random.fill_bytes(&mut number);
        let id = self.streams.as_mut()?.open(now, number, header)?;
        self.settle_streams(now);
        Some(id)
    }

    /// What the other side's application said when it opened the stream or answered.
    pub fn stream_header(&self, id: StreamId) -> Option<Bytes> {
        self.streams.as_ref()?.header(id)
    }

    /// Answers a stream that was accepted, before anything is written. Returns whether it did: the stream is there, and the
    /// header not too long. To refuse it, reset it with a code instead.
    pub fn answer_stream(&mut self, now: Instant, id: StreamId, header: &[u8]) -> bool {
        self.with_streams(now, |streams| streams.answer(id, header))
            .unwrap_or(false)
    }

    /// Writes data; returns how much was taken. If it is less, [`crate::StreamEvent::Writable`] tells when there is room.
    pub fn write_stream(&mut self, now: Instant, id: StreamId, data: &[u8]) -> usize {
        self.with_streams(now, |streams| streams.write(id, data))
            .unwrap_or(0)
    }

    /// The next data of a stream, or their end.
    pub fn read_stream(&mut self, now: Instant, id: StreamId) -> Option<StreamRead> {
        self.with_streams(now, |streams| streams.read(now, id))?
    }

    /// Says that no data follow; the other side may go on.
    pub fn finish_stream(&mut self, now: Instant, id: StreamId) {
        self.with_streams(now, |streams| streams.finish(id));
    }

    /// Breaks a stream off; the other side's application gets the code, and this one hears no more of it.
    pub fn reset_stream(&mut self, now: Instant, id: StreamId, code: u64) {
        self.with_streams(now, |streams| streams.reset(now, id, code));
    }

    /// Streams that are not over.
    pub fn streams(&self) -> usize {
        self.streams.as_ref().map_or(0, Streams::count)
    }

    /// Streams that the other side may still ask for: those that are not over, and those whose end may not have reached it.
    pub fn streams_asked_for(&self) -> usize {
        self.streams.as_ref().map_or(0, Streams::asked_for)
    }

    /// Bytes of memory that streams hold, those among them that are over but for their end.
    pub fn stream_memory(&self) -> usize {
        self.streams.as_ref().map_or(0, Streams::memory)
    }

    /// Streams of others for which this node remembers where their openers are.
    pub fn relayed_streams(&self) -> usize {
        self.ways.len()
    }

    fn with_streams<T>(&mut self, now: Instant, act: impl FnOnce(&mut Streams) -> T) -> Option<T> {
        let done = act(self.streams.as_mut()?);
        self.settle_streams(now);
        Some(done)
    }

    /// Asks and serves what streams may, and forgets what they do not wait for any more.
    pub(super) fn settle_streams(&mut self, now: Instant) {
        while let Some(streams) = &mut self.streams {
            let (dropped, touched) = (streams.take_dropped(), streams.take_touched());
            if dropped.is_empty() && touched.is_empty() {
                return;
            }
            self.forget_asked(dropped);
            for id in touched {
                self.pump_stream(now, id);
                self.wake(now, id);
            }
        }
    }

    fn pump_stream(&mut self, now: Instant, id: StreamId) {
        while let Some(streams) = &mut self.streams
            && let Some((content, is_accepted)) = streams.fetched(id)
            // The opener is where it asked last.
            && (!is_accepted || self.routes.contains_key(&content))
            && let Some(want) = streams.poll_want(now, id)
        {
            let range = (want.start, want.end);
            self.want(now, Asker::Stream(id), content, range, want.is_fresh, true);
        }
    }

    /// Lets those who wait for a stream's content have what there is now.
    fn wake(&mut self, now: Instant, id: StreamId) {
        let Some(streams) = &mut self.streams else {
            return;
        };
        for (asker, content, range) in streams.take_parked(now, id) {
            self.serve_range(now, id, asker, content, range);
        }
    }

    /// Queues a range of a stream's content for a neighbour; where there is no room, it waits with the stream.
    fn serve_range(
        &mut self,
        now: Instant,
        id: StreamId,
        asker: crate::stream::Asker,
        content: ContentId,
        (start, end): (u64, u64),
    ) {
        let (neighbour, handle) = asker;
        let since = self.there_since(now);
        let Some(hop) = self.hops.get_mut(&neighbour) else {
            return;
        };
        let item = queue::Item::Own { start, end };
        let next = queue::Next {
            content,
            handle,
            item,
        };
        if !hop.queue.push(now, since, next) {
            self.stats.queue_drops += 1;
            if let Some(streams) = &mut self.streams {
                streams.park(id, asker);
            }
        }
    }

    /// A neighbour asks for a live content. Returns whether that is dealt with here.
    pub(super) fn want_of_stream(
        &mut self,
        now: Instant,
        (from, handle): (NeighbourId, u64),
        content: ContentId,
        range: (u64, u64),
    ) -> bool {
        let Some(streams) = &mut self.streams else {
            return false;
        };
        let mut salt = [0; 8];
        self.random.fill_bytes(&mut salt);
        // Zeros name the other content.
        salt[0] = salt[0].max(1);
        let (is_relayed, can_ask) = (self.ways.knows(content), self.pending.has_room());
        match streams.asked(now, content, salt, is_relayed, can_ask) {
            Asked::Elsewhere => return false,
            Asked::Refuse => {
                self.stats.refused.unknown += 1;
                self.refuse(now, Asker::Neighbour(from, handle));
            }
            Asked::Full => {
                self.stats.refused.overflow += 1;
                self.refuse(now, Asker::Neighbour(from, handle));
            }
            Asked::Here(id) => {
                let (ready, fetched) = (
                    streams.ask(now, id, (from, handle), range),
                    streams.fetched(id),
                );
                if let Some(range) = ready {
                    self.serve_range(now, id, (from, handle), content, range);
                }
                if let Some((content, true)) = fetched {
                    self.set_route(now, content, Some(from));
                }
                self.settle_streams(now);
            }
        }
        true
    }

    /// A stream is over for one who asked for it: what waits for it leaves no more.
    pub(super) fn forget_queued(&mut self, asker: Asker, content: ContentId) {
        if let Asker::Neighbour(id, handle) = asker
            && let Some(hop) = self.hops.get_mut(&id)
        {
            hop.queue.forget(content, handle);
        }
    }

    /// Whether the number by which one asked for a content means another one by now.
    pub(super) fn is_reused(&self, asker: Asker, content: ContentId) -> bool {
        let Asker::Neighbour(id, handle) = asker else {
            return false;
        };
        let hop = self.hops.get(&id);
        hop.is_some_and(|hop| hop.queue.is_reused(content, handle))
    }

    /// A content is asked for that does not grow: it comes from upstream. A neighbour that had asked for it as one of a stream, by malice, had it sought at an
    /// opener, which any neighbour may be.
    pub(super) fn take_for_whole(&mut self, now: Instant, content: ContentId) {
        let (was_live, had_way) = (self.pending.set_whole(content), self.ways.release(content));
        if was_live || had_way {
            self.reroute(now, content);
        }
    }

    /// An Interest for what the opener of a stream serves waits for the opener's Interest if none is known yet: this node, or one on the way, may
    /// have begun a new life. Returns whether it is one.
    pub(super) fn waits_for_opener(
        &mut self,
        now: Instant,
        asker: Asker,
        content: ContentId,
        range: (u64, u64),
    ) -> bool {
        if id::parts(content).1.is_none() || !matches!(asker, Asker::Neighbour(..)) {
            return false;
        }
        let is_new = !self.pending.knows(content);
        let has_room = self.pending.ranges_of(content) < MOST_WAITING;
        let pending = &mut self.pending;
        let asked = has_room.then(|| pending.ask(now, content, range, asker, Duration::ZERO));
        pending.set_live(content);
        if asked.flatten().is_none() {
            self.stats.refused.overflow += 1;
            if is_new {
                self.refuse(now, asker);
            }
        }
        self.sweep_at.get_or_insert(now + SWEEP);
        true
    }

    /// A segment of a stream's content arrived.
    pub(super) fn deliver_to_stream(&mut self, now: Instant, id: StreamId, segment: &Segment) {
        let Some(streams) = &mut self.streams else {
            return;
        };
        match streams.handle_segment(now, id, segment) {
            Taken::New => {}
            Taken::Known => self.stats.duplicates += 1,
            Taken::Damaged => self.stats.refused.damaged += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ContentSecret, Event, NeighbourConfig, NeighbourKey, NodeConfig, Outcome, StreamEvent,
    };

    /// Opener, relay and accepting node, which know so many contents at most.
    fn chain(now: Instant, contents: [usize; 3]) -> [Node; 3] {
        let mut nodes = [0_u8, 1, 2].map(|at| {
            let config = NodeConfig {
                contents: contents[usize::from(at)],
                ..NodeConfig::default()
            };
            let mut node = Node::new(now, config, [at; 32]).unwrap();
            let mut streams = StreamConfig::new(ContentSecret::new(&[8; 32]));
            streams.accepts = at == 2;
            if at != 1 {
                node.enable_streams(streams);
            }
            node
        });
        for (down, up) in [(0_u8, 1_u8), (1, 2)] {
            let key = NeighbourKey::new(&[down; 32]);
            for (at, other) in [(down, up), (up, down)] {
                let config = NeighbourConfig { key: key.clone() };
                let other = NeighbourId(u32::from(other));
                let node = &mut nodes[usize::from(at)];
                node.add_neighbour(now, other, config).unwrap();
            }
            nodes[usize::from(down)].set_upstream(now, Some(NeighbourId(u32::from(up))));
        }
        nodes
    }

    /// Runs for so many milliseconds, one for each hop; returns what the opener's application is told.
    fn run(nodes: &mut [Node; 3], now: &mut Instant, millis: u32) -> Vec<StreamEvent> {
        let mut told = Vec::new();
        for _ in 0..millis {
            *now += Duration::from_millis(1);
            let mut sent = Vec::new();
            for (at, node) in (0_u32..).zip(nodes.iter_mut()) {
                node.handle_timeout(*now);
                let mut datagram = Vec::new();
                while let Some(to) = node.poll_transmit(*now, &mut datagram) {
                    sent.push((NeighbourId(at), to, std::mem::take(&mut datagram)));
                }
            }
            for (from, NeighbourId(to), datagram) in sent {
                nodes[usize::try_from(to).unwrap()].handle_datagram(*now, from, &datagram);
            }
            while let Some(event) = nodes[2].poll_event() {
                if let Event::Stream(StreamEvent::Accepted(id)) = event {
                    nodes[2].answer_stream(*now, id, b"");
                }
            }
            while let Some(event) = nodes[0].poll_event() {
                if let Event::Stream(event) = event {
                    told.push(event);
                }
            }
        }
        told
    }

    #[test]
    fn a_stream_that_finds_no_room_on_its_way_ends_at_once() {
        for (contents, fit) in [
            ([8, 1, 8], 0),
            ([8, 2, 8], 1),
            ([8, 8, 1], 1),
            ([1, 8, 8], 1),
        ] {
            let mut now = Instant::now();
            let mut nodes = chain(now, contents);
            run(&mut nodes, &mut now, 500);
            for number in 0..fit {
                let id = nodes[0].open_stream(now, b"").unwrap();
                let told = run(&mut nodes, &mut now, 100);
                assert_eq!(told, [StreamEvent::Answered(id)], "{contents:?} {number}");
            }
            let id = nodes[0].open_stream(now, b"").unwrap();
            let told = run(&mut nodes, &mut now, 100);
            let closed = StreamEvent::Closed(id, Outcome::Unknown);
            assert_eq!(told, [closed], "{contents:?}");
            assert_eq!(nodes.each_ref().map(Node::streams), [fit, 0, fit]);
            assert_eq!(nodes[1].relayed_streams(), fit, "{contents:?}");
        }
    }

    /// The numbers of streams began anew, while those of before were still waited for: a new stream was given what was an old one's.
    #[test]
    fn streams_that_are_enabled_anew_take_nothing_of_those_before() {
        let mut now = Instant::now();
        let mut nodes = chain(now, [8; 3]);
        let mut config = StreamConfig::new(ContentSecret::new(&[8; 32]));
        run(&mut nodes, &mut now, 500);
        let former = nodes[0].open_stream(now, b"").unwrap();
        let told = run(&mut nodes, &mut now, 100);
        assert_eq!(told, [StreamEvent::Answered(former)]);
        assert!(nodes[0].pending_ranges() > 0, "more of it is waited for");
        nodes[0].enable_streams(config.clone());
        assert_eq!(nodes[0].pending_ranges(), 0);
        let id = nodes[0].open_stream(now, b"").unwrap();
        assert_ne!(id, former);
        let told = run(&mut nodes, &mut now, 5000);
        assert_eq!(told, [StreamEvent::Answered(id)]);
        assert_eq!(nodes[0].stats().refused.damaged, 0);
        assert_eq!(nodes.each_ref().map(Node::streams), [1, 0, 1]);
        // What comes late for a stream of before opens none.
        config.accepts = true;
        nodes[2].enable_streams(config);
        let told = run(&mut nodes, &mut now, 5000);
        assert_eq!(told, [StreamEvent::Closed(id, Outcome::Unknown)]);
        assert_eq!(nodes.each_ref().map(Node::streams), [0; 3]);
    }
}
