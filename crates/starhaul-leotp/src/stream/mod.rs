//! Streams: pairs of contents that grow while they are served, one each way, for connections of applications. The table of
//! a node's streams, without the network.

mod content;
mod fetch;
pub(crate) mod id;
mod inbox;
mod machine;
mod memory;
mod outgoing;
mod record;
mod successor;
mod table;
mod trim;
mod window;

use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;
use content::Growing;
use machine::{News, Stream};
use memory::Limits;
use rustc_hash::{FxHashMap, FxHashSet};
use table::Table;

pub(crate) use content::Asker;
use id::{Number, Salt};

use crate::{
    config::NeighbourId,
    hop::queue::Cut,
    keys::ContentSecret,
    name::{ContentId, Segment},
    requester::{Taken, Wanted},
};

/// Numbers of streams that are over and remembered, so that what comes late opens none anew.
const MOST_OVER: usize = 1 << 12;
/// Events that wait at most; beyond, those that only tell of room or data are dropped.
const MOST_EVENTS: usize = 1 << 14;
/// Streams that ended and are gone may stay in the list of those that linger, up to so many and as many as linger.
const FEW_ENDED: usize = 64;
/// An opener that lives is heard within so long, as a rule: three round trips over a geostationary satellite.
const HALF_OPEN_FOR: Duration = Duration::from_secs(2);
/// Times that a peer is heard in the time after which it is given up.
const ALIVE_PARTS: u32 = 3;
/// An Interest that waits is repeated so often before relays forget it.
const REFRESH_SHARE: f64 = 0.4;

/// A stream of a node: its number, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u64);

/// How a node has streams.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// The secret of both ends.
    pub secret: ContentSecret,
    /// Whether others may open streams to this node.
    pub accepts: bool,
    /// Bytes of data of a stream that arrived and were not read, at most; at least [`StreamConfig::LEAST_WINDOW`]. It begins with 1 MiB, and grows
    /// to this where path and reader need it. What is out of order takes a quarter more at most.
    pub window_bytes: usize,
    /// Bytes of a stream that were written and that the other side does not have, at most. Of these 1 MiB at most waits to leave.
    pub buffer_bytes: usize,
    /// Bytes that all streams may hold together, and have promised to take. Where little is left, windows and buffers become small, but for
    /// [`StreamConfig::LEAST_WINDOW`] of each.
    pub memory_bytes: usize,
    /// Streams at most, and as many again of which only the end is still asked for.
    pub most_streams: usize,
    /// Of them, accepted ones of which the other side has sent nothing yet.
    pub most_half_open: usize,
    /// A stream whose other side is not heard for this time is given up.
    pub give_up: Duration,
}

impl StreamConfig {
    /// What a side may send before it knows how much the other takes.
    pub const LEAST_WINDOW: usize = outgoing::FIRST_CREDIT;
    /// Bytes of what the ends say of a stream when it begins, each way, at most.
    pub const MOST_HEADER_BYTES: usize = record::MOST_HEADER_BYTES;

    /// Streams of up to 64 MiB each way, of 256 MiB together and 30 s, which others may not open.
    pub fn new(secret: ContentSecret) -> Self {
        Self {
            secret,
            accepts: false,
            window_bytes: 64 << 20,
            buffer_bytes: 64 << 20,
            memory_bytes: 256 << 20,
            most_streams: 1024,
            most_half_open: 64,
            give_up: Duration::from_secs(30),
        }
    }
}

/// What happened to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// Another node opened it; its header is there.
    Accepted(StreamId),
    /// The other side answered; its header is there.
    Answered(StreamId),
    /// There are data to read, or their end.
    Readable(StreamId),
    /// There is room again, where a write found too little.
    Writable(StreamId),
    /// It is over and no more. What was not read is dropped; it is the last event of the stream, and may be the only one.
    Closed(StreamId, Outcome),
}

impl StreamEvent {
    /// The stream that it is about.
    pub fn stream(self) -> StreamId {
        match self {
            Self::Accepted(id)
            | Self::Answered(id)
            | Self::Readable(id)
            | Self::Writable(id)
            | Self::Closed(id, _) => id,
        }
    }
}

/// How a stream ended: in order, or which side or fault ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Outcome {
    /// Both applications finished and read all.
    #[error("all was sent and read")]
    Done,
    /// The other application broke it off.
    #[error("the other side reset the stream with code {0}")]
    Reset(u64),
    /// The other application did not take it.
    #[error("the other side refused the stream with code {0}")]
    Refused(u64),
    /// No node on the way knows of it: it is not accepted, or the other side began a new life or gave up.
    #[error(
        "no node on the way knows of this stream: none accepts it or has room for it, or the other side restarted"
    )]
    Unknown,
    /// Nothing came from the other side for too long.
    #[error("the other side was silent for too long")]
    Silent,
    /// What came is none of the protocol, or does not open.
    #[error("the other side breaks the protocol or has another secret")]
    Broken,
}

/// What is read from a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamRead {
    /// The next data.
    Data(Bytes),
    /// There are no more. Comes once.
    End,
}

/// What is to be done about an Interest for a live content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// This stream serves it.
    Here(StreamId),
    /// It will never be served.
    Refuse,
    /// There is no room for it.
    Full,
    /// It is no content of this node.
    Elsewhere,
}

/// The streams of a node.
#[derive(Debug)]
pub(crate) struct Streams {
    config: StreamConfig,
    limits: Limits,
    segment_bytes: usize,
    streams: Table,
    by_number: FxHashMap<Number, StreamId>,
    begun: u64,
    /// Streams that are over and linger, and some that are gone, in the order in which they ended.
    ended: VecDeque<StreamId>,
    lingering: usize,
    over: VecDeque<Number>,
    over_set: FxHashSet<Number>,
    events: VecDeque<StreamEvent>,
    /// Streams that may have something to ask for or to serve.
    touched: BTreeSet<StreamId>,
    /// What is not waited for any more.
    dropped: Vec<(StreamId, ContentId)>,
    /// When windows give way, if memory is still short then.
    trim_at: Option<Instant>,
}

impl Streams {
    /// `patience`: how long relays remember Interests.
    pub(crate) fn new(config: StreamConfig, patience: Duration, segment_bytes: usize) -> Self {
        let refresh = patience.mul_f64(REFRESH_SHARE);
        let alive = config.give_up / ALIVE_PARTS;
        Self {
            limits: Limits::new(&config, patience, refresh, alive),
            config,
            segment_bytes,
            streams: Table::default(),
            by_number: FxHashMap::default(),
            begun: 0,
            ended: VecDeque::new(),
            lingering: 0,
            over: VecDeque::new(),
            over_set: FxHashSet::default(),
            events: VecDeque::new(),
            touched: BTreeSet::new(),
            dropped: Vec::new(),
            trim_at: None,
        }
    }

    /// Opens a stream with a number that was never used; `None`: there are too many.
    pub(crate) fn open(&mut self, now: Instant, number: Number, header: &[u8]) -> Option<StreamId> {
        if !self.has_room() || header.len() > StreamConfig::MOST_HEADER_BYTES {
            return None;
        }
        let id = self.next_id();
        let stream = Stream::open(now, id, number, &self.limits, header);
        self.insert(id, stream);
        self.watch_memory(now);
        Some(id)
    }

    fn next_id(&mut self) -> StreamId {
        self.begun += 1;
        StreamId(self.begun)
    }

    fn insert(&mut self, id: StreamId, stream: Stream) {
        self.by_number.insert(stream.number, id);
        self.streams.insert(id, stream);
        self.touched.insert(id);
    }

    fn has_room(&self) -> bool {
        self.count() < self.config.most_streams
    }

    /// Streams that are not over.
    pub(crate) fn count(&self) -> usize {
        self.streams.len() - self.lingering
    }

    /// All streams, those that linger among them.
    pub(crate) fn asked_for(&self) -> usize {
        self.streams.len()
    }

    /// Bytes of memory of all streams.
    pub(crate) fn memory(&self) -> usize {
        self.streams.values().map(Stream::memory).sum()
    }

    /// A neighbour asks for a content of a stream. `salt`: drawn anew for a stream that is accepted now; `is_relayed`: others
    /// behind this node may serve it; `can_ask`: what the opener serves can be asked for.
    pub(crate) fn asked(
        &mut self,
        now: Instant,
        content: ContentId,
        new_salt: Salt,
        is_relayed: bool,
        can_ask: bool,
    ) -> Asked {
        let (number, salt) = id::parts(content);
        if let Some(&id) = self.by_number.get(&number)
            && let Some(stream) = self.streams.get_mut(id)
        {
            let is_here = match (stream.is_opener, salt) {
                (true, Some(salt)) => stream.bind(now, salt, &self.config.secret),
                (false, None) => true,
                // What is asked for here does not come from here.
                _ => return Asked::Elsewhere,
            };
            self.touched.insert(id);
            return if is_here {
                Asked::Here(id)
            } else {
                Asked::Refuse
            };
        }
        let is_over = self.over_set.contains(&number);
        if is_over || salt.is_some() {
            return if is_over || !is_relayed {
                Asked::Refuse
            } else {
                Asked::Elsewhere
            };
        }
        if !self.config.accepts {
            return Asked::Elsewhere;
        }
        if !can_ask || !self.make_room_to_accept(now) {
            return Asked::Full;
        }
        let id = self.next_id();
        let secret = &self.config.secret;
        let stream = Stream::accept(now, id, number, new_salt, &self.limits, secret);
        self.insert(id, stream);
        Asked::Here(id)
    }

    /// Makes room for a stream that is accepted. Where too many are half open, the first of them ends if its opener had time to be heard: who only
    /// asks for streams must not keep others out for long, nor many that begin at once each other.
    fn make_room_to_accept(&mut self, now: Instant) -> bool {
        let half_open = self.streams.values().filter(|stream| stream.is_half_open());
        let (mut count, mut first) = (0, None);
        for stream in half_open {
            count += 1;
            first.get_or_insert((stream.begun, stream.id));
        }
        let is_full = count >= self.config.most_half_open.max(1) || !self.has_room();
        let is_late = |begun| now.saturating_duration_since(begun) >= HALF_OPEN_FOR;
        if let Some((_, first)) = first.filter(|(begun, _)| is_full && is_late(*begun)) {
            self.close(now, first, Outcome::Silent);
            count -= 1;
        }
        count < self.config.most_half_open && self.has_room()
    }

    /// The content that a stream asks for, and whether another node opened it. An opener asks as long as it may be asked.
    pub(crate) fn fetched(&self, id: StreamId) -> Option<(ContentId, bool)> {
        let stream = self.streams.get(id)?;
        if stream.is_over() && !stream.is_opener {
            return None;
        }
        Some((stream.fetched(), !stream.is_opener))
    }

    /// Whether a stream of this node serves a content.
    pub(crate) fn serves(&self, content: ContentId) -> bool {
        self.serving(content).is_some()
    }

    fn serving(&self, content: ContentId) -> Option<StreamId> {
        let (number, _) = id::parts(content);
        let id = *self.by_number.get(&number)?;
        let served = self.streams.get(id)?.served();
        (served == Some(content)).then_some(id)
    }

    // What leaves.

    /// What of a range that a neighbour asks for can leave now; the rest waits for the stream.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        id: StreamId,
        asker: Asker,
        range: (u64, u64),
    ) -> Option<(u64, u64)> {
        let stream = self.streams.get_mut(id)?;
        stream.ask(now, &self.limits, asker, range)
    }

    /// A neighbour waits, since its queue has no room.
    pub(crate) fn park(&mut self, id: StreamId, asker: Asker) {
        let stream = self.streams.get_mut(id);
        if let Some(content) = stream.and_then(Stream::content_mut) {
            content.park(asker);
        }
    }

    /// The Interests that wait for what a stream has now.
    pub(crate) fn take_parked(
        &mut self,
        now: Instant,
        id: StreamId,
    ) -> Vec<(Asker, ContentId, (u64, u64))> {
        let patience = self.limits.patience;
        let Some(stream) = self.streams.get_mut(id).filter(|stream| stream.can_grow()) else {
            return Vec::new();
        };
        let served = stream.served();
        let Some((served, content)) = served.zip(stream.content_mut()) else {
            return Vec::new();
        };
        let start = content.end();
        let parked = content.take_parked(now, patience).into_iter();
        parked
            .filter(|(_, until)| *until > start)
            .map(|(asker, until)| (asker, served, (start, until)))
            .collect()
    }

    /// Cuts a range that leaves now; what does not exist yet waits. `None`: nothing leaves.
    pub(crate) fn cut(
        &mut self,
        now: Instant,
        content: ContentId,
        asker: Asker,
        (start, end): (u64, u64),
    ) -> Option<Cut> {
        let id = self.serving(content)?;
        let stream = self.streams.get_mut(id)?;
        let mut news = News::default();
        let known = stream.content()?;
        if start >= known.end() {
            // One that does not ask any more has moved.
            if !known.is_asked_by(now, asker, self.limits.patience) {
                return None;
            }
            stream.grow(now, &self.limits, self.segment_bytes, &mut news);
        }
        let can_grow = stream.can_grow();
        let content = stream.content_mut()?;
        let start = start.max(content.released());
        let segment = content.segment(start).map(|it| (it.offset, it.end()));
        let leaves = match segment.filter(|(_, behind)| start < end && *behind > start) {
            Some((start, behind)) => {
                let has_rest = behind < end && (behind < content.end() || can_grow);
                if !has_rest {
                    content.park(asker);
                }
                let rest = has_rest.then_some((behind, end));
                Some(Cut {
                    start,
                    end: behind,
                    rest,
                })
            }
            None => {
                content.park(asker);
                None
            }
        };
        self.take_news(now, id, news);
        leaves
    }

    /// A segment of a stream's content.
    pub(crate) fn segment(&self, content: ContentId, at: u64) -> Option<Segment> {
        let stream = self.streams.get(self.serving(content)?)?;
        stream.content()?.segment(at).cloned()
    }

    // What comes.

    /// The next range that a stream asks for.
    pub(crate) fn poll_want(&mut self, now: Instant, id: StreamId) -> Option<Wanted> {
        self.streams.get_mut(id)?.fetch.poll_want(now)
    }

    pub(crate) fn handle_segment(
        &mut self,
        now: Instant,
        id: StreamId,
        segment: &Segment,
    ) -> Taken {
        let Some(stream) = self.streams.get_mut(id).filter(|it| !it.is_over()) else {
            return Taken::Known;
        };
        let mut news = News::default();
        let taken = stream.handle_segment(now, &self.limits, segment, &mut news);
        self.touched.insert(id);
        self.watch_memory(now);
        self.take_news(now, id, news);
        taken
    }

    pub(crate) fn handle_void(&mut self, now: Instant, id: StreamId, start: u64, end: u64) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.fetch.handle_void(now, start, end);
        }
    }

    /// The ranges that are to be asked for over another path.
    pub(crate) fn change_path(&mut self, now: Instant, id: StreamId) -> Vec<(u64, u64)> {
        let stream = self.streams.get_mut(id);
        stream.map_or(Vec::new(), |stream| stream.fetch.change_path(now))
    }

    /// The neighbour that a stream comes from is heard again.
    pub(crate) fn end_outage(&mut self, now: Instant, id: StreamId) {
        let stream = self.streams.get_mut(id).into_iter();
        stream.for_each(|stream| stream.fetch.end_outage(now));
    }

    /// Nodes on the way do not know what a stream asks for. Returns who asks for what it served.
    pub(crate) fn refused(&mut self, now: Instant, id: StreamId) -> Vec<Asker> {
        let stream = self.streams.get(id).filter(|stream| !stream.is_over());
        let content = stream.and_then(Stream::content);
        let askers = content.map_or(Vec::new(), Growing::askers);
        self.close(now, id, Outcome::Unknown);
        askers
    }

    /// A neighbour began a new life.
    pub(crate) fn forget_neighbour(&mut self, neighbour: NeighbourId) {
        for content in self.streams.values_mut().filter_map(Stream::content_mut) {
            content.forget(neighbour);
        }
    }

    // What the application does.

    fn live(&mut self, id: StreamId) -> Option<(&mut Stream, &Limits)> {
        let stream = self.streams.get_mut(id).filter(|it| !it.is_over())?;
        self.touched.insert(id);
        Some((stream, &self.limits))
    }

    pub(crate) fn header(&self, id: StreamId) -> Option<Bytes> {
        self.streams.get(id)?.header.clone()
    }

    pub(crate) fn answer(&mut self, id: StreamId, header: &[u8]) -> bool {
        let is_short = header.len() <= StreamConfig::MOST_HEADER_BYTES;
        let live = self.live(id).filter(|_| is_short);
        live.map(|(stream, limits)| stream.answer(limits, header))
            .is_some()
    }

    pub(crate) fn write(&mut self, id: StreamId, data: &[u8]) -> usize {
        let live = self.live(id);
        live.map_or(0, |(stream, limits)| stream.write(limits, data))
    }

    pub(crate) fn read(&mut self, now: Instant, id: StreamId) -> Option<StreamRead> {
        let (stream, limits) = self.live(id)?;
        stream.read(now, limits)
    }

    pub(crate) fn finish(&mut self, id: StreamId) {
        if let Some((stream, _)) = self.live(id) {
            stream.finish();
        }
    }

    pub(crate) fn reset(&mut self, now: Instant, id: StreamId, code: u64) {
        let Some((stream, limits)) = self.live(id) else {
            return;
        };
        let fetched = stream.fetched();
        stream.end(now, limits, Some(code));
        let has_content = stream.content().is_some();
        self.dropped.push((id, fetched));
        self.note_ended(id);
        if !has_content {
            self.remove(id);
        }
    }

    // Time.

    pub(crate) fn timeout(&self) -> Option<Instant> {
        let due = self.streams.timeout(&self.limits);
        due.into_iter().chain(self.trim_at).min()
    }

    /// Handles what is due; returns how many ranges are asked for again.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> u64 {
        let due = self.streams.take_due(now, &mut self.limits);
        self.trim(now);
        let mut count = 0;
        for id in due {
            let Some(stream) = self.streams.get_mut(id) else {
                continue;
            };
            if let Some((until, _)) = stream.lingers {
                match until <= now {
                    true => self.remove(id),
                    false => drop(self.touched.insert(id)),
                }
                continue;
            }
            let mut news = News::default();
            count += stream.handle_timeout(now, &self.limits, &mut news);
            self.touched.insert(id);
            self.take_news(now, id, news);
        }
        count
    }

    /// Streams that may have something to ask for or to serve.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<StreamId> {
        self.streams.note_changes(&mut self.limits);
        std::mem::take(&mut self.touched)
    }

    /// What streams do not wait for any more.
    pub(crate) fn take_dropped(&mut self) -> Vec<(StreamId, ContentId)> {
        std::mem::take(&mut self.dropped)
    }

    pub(crate) fn poll_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    fn take_news(&mut self, now: Instant, id: StreamId, news: News) {
        for event in news.events {
            let may_drop = matches!(event, StreamEvent::Readable(_) | StreamEvent::Writable(_));
            if !may_drop || self.events.len() < MOST_EVENTS {
                self.events.push_back(event);
            }
        }
        if let Some(outcome) = news.outcome {
            self.close(now, id, outcome);
        }
    }

    /// A stream is over. One whose other side ended well may be asked for its end still.
    fn close(&mut self, now: Instant, id: StreamId, outcome: Outcome) {
        let Some(stream) = self.streams.get_mut(id).filter(|it| !it.is_over()) else {
            return;
        };
        // What the application was not told yet comes too late, and of what was never accepted it does not know.
        let is_unknown = stream.is_half_open() || self.events.contains(&StreamEvent::Accepted(id));
        self.events.retain(|event| event.stream() != id);
        if !is_unknown {
            self.events.push_back(StreamEvent::Closed(id, outcome));
        }
        if outcome == Outcome::Done {
            self.dropped.push((id, stream.fetched()));
            self.touched.insert(id);
            stream.end(now, &self.limits, None);
            self.note_ended(id);
        } else {
            self.remove(id);
        }
    }

    /// A stream is over and lingers. Where too many do, those go that ended first, never this one: its end has yet to leave.
    fn note_ended(&mut self, id: StreamId) {
        self.ended.push_back(id);
        self.lingering += 1;
        while self.lingering > self.config.most_streams.max(1)
            && let Some(first) = self.ended.pop_front()
        {
            self.remove(first);
        }
        if self.ended.len() > 2 * self.lingering + FEW_ENDED {
            let streams = &self.streams;
            self.ended.retain(|id| streams.contains(*id));
        }
    }

    fn remove(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.remove(id) {
            self.limits.reserved = self.limits.reserved.saturating_sub(stream.counted);
            self.lingering -= usize::from(stream.is_over());
            self.dropped.push((id, stream.fetched()));
            self.by_number.remove(&stream.number);
            if self.over_set.insert(stream.number) {
                self.over.push_back(stream.number);
            }
            if self.over.len() > MOST_OVER
                && let Some(oldest) = self.over.pop_front()
            {
                self.over_set.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_which_nothing_is_heard_keep_no_other_out() {
        let now = Instant::now();
        let config = StreamConfig {
            accepts: true,
            most_half_open: 4,
            ..StreamConfig::new(ContentSecret::new(&[1; 32]))
        };
        let mut streams = Streams::new(config, Duration::from_secs(10), 1000);
        let asked = |streams: &mut Streams, now, number: u8| {
            streams.asked(now, id::backward([number; 8]), [2; 8], false, true)
        };
        for number in 0..100 {
            let now = now + Duration::from_millis(600) * number.into();
            let taken = asked(&mut streams, now, number);
            assert!(matches!(taken, Asked::Here(_)), "{number} {taken:?}");
            assert!(streams.count() <= 4);
        }
        let now = now + Duration::from_millis(600) * 99;
        let taken = (200..250).filter(|number| asked(&mut streams, now, *number) != Asked::Full);
        assert_eq!(taken.count(), 0, "the others had no time to be heard");
        let later = now + HALF_OPEN_FOR;
        let taken = asked(&mut streams, later, 249);
        assert!(
            matches!(taken, Asked::Here(_)),
            "it was not over: {taken:?}"
        );
        assert!(streams.serves(id::backward([99; 8])));
        let taken = asked(&mut streams, later, 95);
        assert_eq!(taken, Asked::Refuse, "it is over");
        assert_eq!(streams.poll_event(), None);
    }

    #[test]
    fn a_long_stream_that_ends_among_many_still_serves_its_end() {
        let now = Instant::now();
        let config = StreamConfig {
            accepts: true,
            most_streams: 4,
            ..StreamConfig::new(ContentSecret::new(&[1; 32]))
        };
        let mut streams = Streams::new(config, Duration::from_secs(10), 1000);
        let asker = (NeighbourId(1), 0);
        let accept = |streams: &mut Streams, number: u8| {
            let content = id::backward([number; 8]);
            let Asked::Here(id) = streams.asked(now, content, [2; 8], false, true) else {
                panic!("stream {number} is not accepted");
            };
            streams.ask(now, id, asker, (0, 1000));
            (id, content)
        };
        let (long, content) = accept(&mut streams, 0);
        for number in 1..100 {
            let (id, _) = accept(&mut streams, number);
            streams.reset(now, id, 1);
            assert_eq!(streams.count(), 1);
        }
        streams.reset(now, long, 7);
        assert_eq!((streams.count(), streams.streams.len()), (0, 4));
        assert!(streams.cut(now, content, asker, (0, 1000)).is_some());
        assert!(streams.segment(content, 0).is_some(), "the reset leaves");
        assert!(!streams.serves(id::backward([96; 8])) && streams.serves(id::backward([97; 8])));
        streams.handle_timeout(now + Duration::from_secs(60));
        assert_eq!((streams.streams.len(), streams.lingering), (0, 0));
        for number in 100..=255 {
            let (id, _) = accept(&mut streams, number);
            streams.reset(now, id, 1);
            streams.handle_timeout(now + Duration::from_secs(60));
        }
        assert!(streams.ended.len() <= FEW_ENDED + 1);
    }
}
