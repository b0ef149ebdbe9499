//! The sending direction of a reliable stream: bytes wait, leave in frames over any path, and stay until acknowledged.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use bytes::Bytes;

use starhaul_paths::RangeSet;

use super::lost::Lost;

/// What the receiver takes before it has said more.
pub(crate) const INITIAL_CREDIT: u64 = 64 << 10;
/// So much may wait beyond what the receiver takes: memory that a reader who stands still would keep from all others.
const BEYOND_CREDIT: u64 = 16 << 10;

/// Which bytes of the stream a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Bytes that leave for the first time.
    New,
    /// It has the lowest bytes that were lost.
    FirstLost,
    /// It has the highest bytes that were lost.
    LastLost,
    /// Another of it is under way still.
    Copy,
}

/// A frame to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextFrame {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) fin: bool,
    pub(crate) origin: Origin,
}

impl NextFrame {
    pub(crate) fn is_retransmission(self) -> bool {
        self.origin != Origin::New
    }
}

#[derive(Debug)]
pub(crate) struct SendBytes {
    segments: VecDeque<Segment>,
    /// First byte that is held: that of the first segment.
    base: u64,
    /// One past the last byte taken from the application.
    end: u64,
    /// First byte never sent.
    next: u64,
    acked: RangeSet,
    lost: Lost,
    /// Frames under way on a path slower than another, by offset: end, whether the stream ends there, and when they arrive.
    stragglers: BTreeMap<u64, (u64, bool, Instant)>,
    credit: u64,
    /// Most bytes that are kept, sent or not.
    most_held: u64,
    fin: Fin,
    /// Reset or stopped: nothing is sent any more.
    pub(crate) abandoned: bool,
}

/// Writes are joined up to so many bytes.
const SMALL_WRITES: usize = 1024;

/// Bytes that the application wrote at once, or some small writes.
#[derive(Debug)]
struct Segment {
    start: u64,
    bytes: Bytes,
}

impl Segment {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fin {
    Open,
    Asked,
    Sent,
    Acked,
}

impl SendBytes {
    pub(crate) fn new(credit: u64, most_held: u64) -> Self {
        Self {
            segments: VecDeque::new(),
            base: 0,
            end: 0,
            next: 0,
            acked: RangeSet::new(usize::MAX),
            lost: Lost::default(),
            stragglers: BTreeMap::new(),
            credit,
            most_held,
            fin: Fin::Open,
            abandoned: false,
        }
    }

    /// Bytes kept until acknowledged.
    pub(crate) fn held(&self) -> u64 {
        self.end - self.base
    }

    /// How many bytes were ever taken.
    pub(crate) const fn written(&self) -> u64 {
        self.end
    }

    /// Everything below this was acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acked.contiguous()
    }

    /// How many more bytes may be taken when at most `unsent_limit` may wait unsent.
    pub(crate) fn room(&self, unsent_limit: u64) -> u64 {
        let unsent = self.end - self.next;
        self.most_unsent(unsent_limit)
            .saturating_sub(unsent)
            .min(self.most_held.saturating_sub(self.held()))
    }

    /// Whether there is so much room that the application should be told of it.
    pub(crate) fn has_room(&self, unsent_limit: u64) -> bool {
        let enough = (unsent_limit / 4).min(self.most_unsent(unsent_limit) / 2);
        self.room(unsent_limit) >= enough
    }

    /// How much may wait unsent: little where the receiver takes no more.
    fn most_unsent(&self, unsent_limit: u64) -> u64 {
        let credit = self.credit.saturating_sub(self.next);
        unsent_limit.min(credit.saturating_add(BEYOND_CREDIT))
    }

    /// Takes what the application wrote. Small writes share memory: each would take several times its bytes.
    pub(crate) fn push(&mut self, data: &[u8]) {
        let start = self.end;
        self.end += data.len() as u64;
        if let Some(last) = self.segments.back_mut()
            && last.bytes.len() + data.len() <= SMALL_WRITES
        {
            last.bytes = [&last.bytes, data].concat().into();
            return;
        }
        let bytes = Bytes::copy_from_slice(data);
        self.segments.push_back(Segment { start, bytes });
    }

    /// Takes what the application wrote without a copy, unless it is a small write: that would keep much memory for few bytes.
    pub(crate) fn push_shared(&mut self, data: Bytes) {
        if data.len() <= SMALL_WRITES {
            return self.push(&data);
        }
        let start = self.end;
        self.end += data.len() as u64;
        self.segments.push_back(Segment { start, bytes: data });
    }

    pub(crate) const fn is_writable(&self) -> bool {
        matches!(self.fin, Fin::Open) && !self.abandoned
    }

    pub(crate) fn finish(&mut self) {
        self.fin = Fin::Asked;
    }

    /// Drops what waits; returns how many bytes that were.
    pub(crate) fn abandon(&mut self) -> u64 {
        let held = self.held();
        self.abandoned = true;
        self.segments.clear();
        self.base = self.end;
        self.lost.clear();
        self.stragglers.clear();
        held
    }

    /// Everything was delivered, or nothing will be.
    pub(crate) fn is_done(&self) -> bool {
        self.abandoned || (self.fin == Fin::Acked && self.acked.contiguous() >= self.end)
    }

    pub(crate) fn grant(&mut self, credit: u64) {
        self.credit = self.credit.max(credit);
    }

    /// Bytes that may leave now and never did.
    pub(crate) fn unsent(&self) -> u64 {
        self.end.min(self.credit).saturating_sub(self.next)
    }

    /// Bytes wait that the receiver does not take yet, and none that it takes.
    pub(crate) fn waits_for_credit(&self) -> bool {
        !self.abandoned && self.next >= self.credit && self.end > self.next
    }

    /// New bytes, lost ones or the end of the stream wait.
    pub(crate) fn has_something_to_send(&self) -> bool {
        self.unsent() > 0 || !self.lost.is_empty() || self.fin == Fin::Asked
    }

    /// What to send next, at most `capacity` bytes of it.
    pub(crate) fn next_frame_within(&mut self, capacity: u64) -> Option<NextFrame> {
        self.first_lost(capacity)
            .or_else(|| self.new_frame(capacity))
    }

    /// The lost bytes that the reader waits for first.
    pub(crate) fn first_lost(&mut self, capacity: u64) -> Option<NextFrame> {
        let (start, end) = self.lost.first(&self.acked, capacity)?;
        Some(self.frame(start, end, Origin::FirstLost))
    }

    /// The lost bytes that the reader waits for last.
    pub(crate) fn last_lost(&mut self, capacity: u64) -> Option<NextFrame> {
        let (start, end) = self.lost.last(&self.acked, capacity)?;
        Some(self.frame(start, end, Origin::LastLost))
    }

    /// Lost bytes that wait to leave again.
    pub(crate) const fn lost_bytes(&self) -> u64 {
        self.lost.bytes()
    }

    /// Bytes, or the end, that leave for the first time; the end also when it was lost.
    pub(crate) fn new_frame(&self, capacity: u64) -> Option<NextFrame> {
        if self.abandoned {
            return None;
        }
        let end = self.end.min(self.credit).min(self.next + capacity);
        let has_data = end > self.next;
        let frame = self.frame(self.next.min(end), end, Origin::New);
        (has_data || (frame.fin && self.fin == Fin::Asked)).then_some(frame)
    }

    fn frame(&self, start: u64, end: u64, origin: Origin) -> NextFrame {
        NextFrame {
            start,
            end,
            fin: end == self.end && self.fin != Fin::Open,
            origin,
        }
    }

    /// A frame left on a path on which it arrives at `arrives`, later than over another.
    pub(crate) fn on_straggling(&mut self, frame: NextFrame, arrives: Instant) {
        self.stragglers
            .insert(frame.start, (frame.end, frame.fin, arrives));
    }

    pub(crate) fn has_stragglers(&self) -> bool {
        !self.stragglers.is_empty()
    }

    /// Takes the last frame under way that would arrive sooner if sent once more to arrive at `by`: the transfer ends when
    /// its last frame arrives.
    pub(crate) fn next_straggler(&mut self, by: Instant, capacity: u64) -> Option<NextFrame> {
        while let Some((start, (end, fin, arrives))) = self.stragglers.pop_last() {
            let gap = self.acked.gaps(start, end).next();
            let is_bare_fin = start == end && fin && self.fin != Fin::Acked;
            let Some((start, end)) = gap.or(is_bare_fin.then_some((start, end))) else {
                continue;
            };
            if arrives <= by {
                self.stragglers.insert(start, (end, fin, arrives));
                return None;
            }
            return Some(self.frame(start, end.min(start + capacity), Origin::Copy));
        }
        None
    }

    /// Those within what was acknowledged now are under way no more, nor are the lowest ones whose bytes were acknowledged in several
    /// parts.
    fn forget_stragglers(&mut self, start: u64, end: u64, acknowledged: u64) {
        let fin = self.fin;
        let has_come = |fins: bool| !fins || fin == Fin::Acked;
        let within =
            |(_, (to, fins, _)): &(&u64, &(u64, bool, Instant))| *to <= end && has_come(*fins);
        while let Some((&from, _)) = self.stragglers.range(start..=end).find(within) {
            self.stragglers.remove(&from);
        }
        while let Some(first) = self.stragglers.first_entry() {
            let (to, fins, _) = *first.get();
            if to > acknowledged || !has_come(fins) {
                break;
            }
            first.remove();
        }
    }

    /// The bytes of a frame, as they lie in the buffer.
    pub(crate) fn slices(&self, start: u64, end: u64) -> impl Iterator<Item = &[u8]> + '_ {
        let first = self
            .segments
            .partition_point(|segment| segment.end() <= start);
        let reached = self.segments.range(first..);
        let reached = reached.take_while(move |segment| segment.start < end);
        reached.filter_map(move |segment| {
            let from = usize::try_from(start.saturating_sub(segment.start)).ok()?;
            let to = usize::try_from(end - segment.start).ok()?;
            let slice = segment.bytes.get(from..to.min(segment.bytes.len()))?;
            (!slice.is_empty()).then_some(slice)
        })
    }

    pub(crate) fn on_sent(&mut self, frame: NextFrame) {
        if frame.fin && self.fin == Fin::Asked {
            self.fin = Fin::Sent;
        }
        match frame.origin {
            Origin::New => self.next = self.next.max(frame.end),
            Origin::FirstLost => self.lost.take_first(frame.end),
            Origin::LastLost => self.lost.take_last(frame.start),
            Origin::Copy => {}
        }
    }

    pub(crate) fn on_acked(&mut self, start: u64, end: u64, fin: bool) {
        self.acked.insert(start, end);
        if fin {
            self.fin = Fin::Acked;
        }
        let acknowledged = self.acked.contiguous();
        self.forget_stragglers(start, end, acknowledged);
        while let Some(front) = self.segments.front() {
            if front.end() > acknowledged {
                break;
            }
            self.base = front.end();
            self.segments.pop_front();
        }
    }

    /// True when there is something to send again.
    pub(crate) fn on_lost(&mut self, start: u64, end: u64, fin: bool) -> bool {
        if self.abandoned {
            return false;
        }
        if fin && self.fin == Fin::Sent {
            self.fin = Fin::Asked;
        }
        let gaps: Vec<_> = self.acked.gaps(start, end).collect();
        let again = !gaps.is_empty() || self.fin == Fin::Asked;
        gaps.into_iter().for_each(|gap| self.lost.insert(gap));
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(stream: &SendBytes, frame: NextFrame) -> Vec<u8> {
        stream
            .slices(frame.start, frame.end)
            .flatten()
            .copied()
            .collect()
    }

    #[test]
    fn small_writes_take_little_more_than_their_bytes() {
        let mut stream = SendBytes::new(INITIAL_CREDIT, u64::MAX);
        let data: Vec<u8> = (0..10_000_u32)
            .map(|number| number.to_le_bytes()[0])
            .collect();
        let mut sent = Vec::new();
        for (number, byte) in data.iter().enumerate() {
            stream.push(&[*byte]);
            if number % 100 == 99 {
                while let Some(frame) = stream.next_frame_within(37) {
                    sent.extend(text(&stream, frame));
                    stream.on_sent(frame);
                }
            }
        }
        assert_eq!(sent, data);
        assert!(stream.segments.len() < 20, "{}", stream.segments.len());
    }

    #[test]
    fn lost_frames_come_back_first_and_only_what_is_missing() {
        let mut stream = SendBytes::new(INITIAL_CREDIT, u64::MAX);
        stream.push(b"abcd");
        stream.push(b"efgh");
        let mut sent = Vec::new();
        while let Some(frame) = stream.next_frame_within(3) {
            sent.push(text(&stream, frame));
            stream.on_sent(frame);
        }
        assert_eq!(sent, [&b"abc"[..], b"def", b"gh"]);
        stream.on_acked(3, 5, false);
        assert!(stream.on_lost(0, 8, false));
        let frame = stream.next_frame_within(100).unwrap();
        assert_eq!(
            (text(&stream, frame), frame.is_retransmission()),
            (b"abc".to_vec(), true)
        );
        stream.on_sent(frame);
        let frame = stream.next_frame_within(2).unwrap();
        assert_eq!(text(&stream, frame), b"fg");
    }

    #[test]
    fn the_last_lost_bytes_leave_by_themselves_and_leave_the_first() {
        let mut stream = SendBytes::new(INITIAL_CREDIT, u64::MAX);
        stream.push(b"abcdefghij");
        while let Some(frame) = stream.next_frame_within(4) {
            stream.on_sent(frame);
        }
        assert!(stream.on_lost(0, 4, false) && stream.on_lost(4, 8, false));
        stream.on_acked(7, 8, false);
        let last = stream.last_lost(2).unwrap();
        assert_eq!(text(&stream, last), b"fg");
        stream.on_sent(last);
        assert_eq!(stream.lost_bytes(), 5);
        let first = stream.first_lost(8).unwrap();
        assert_eq!(text(&stream, first), b"abcd");
        stream.on_sent(first);
        let rest = stream.last_lost(8).unwrap();
        assert_eq!(
            (rest, stream.lost_bytes()),
            (
                NextFrame {
                    start: 4,
                    end: 5,
                    fin: false,
                    origin: Origin::LastLost
                },
                1
            )
        );
        stream.on_sent(rest);
        assert_eq!(
            (stream.next_frame_within(8), stream.lost_bytes()),
            (None, 0)
        );
    }

    #[test]
    fn the_end_travels_even_alone_and_again_when_lost() {
        let mut stream = SendBytes::new(INITIAL_CREDIT, u64::MAX);
        stream.push(b"ab");
        let first = stream.next_frame_within(10).unwrap();
        stream.on_sent(first);
        stream.on_acked(0, 2, false);
        assert_eq!(stream.next_frame_within(10), None);
        stream.finish();
        let fin = NextFrame {
            start: 2,
            end: 2,
            fin: true,
            origin: Origin::New,
        };
        assert_eq!(stream.next_frame_within(10), Some(fin));
        stream.on_sent(fin);
        assert_eq!(stream.next_frame_within(10), None);
        assert!(stream.on_lost(2, 2, true));
        assert_eq!(stream.next_frame_within(10), Some(fin));
        stream.on_sent(fin);
        stream.on_acked(2, 2, true);
        assert!(stream.is_done());
    }

    #[test]
    fn the_last_frame_on_a_slow_path_is_sent_again_first_and_once() {
        let now = Instant::now();
        let later = now + std::time::Duration::from_secs(1);
        let mut stream = SendBytes::new(INITIAL_CREDIT, u64::MAX);
        stream.push(b"abcdefgh");
        stream.finish();
        for arrives in [now, later, later, later] {
            let frame = stream.next_frame_within(2).unwrap();
            stream.on_sent(frame);
            stream.on_straggling(frame, arrives);
        }
        stream.on_acked(4, 6, false);
        let last = stream.next_straggler(now, 10).unwrap();
        assert_eq!((text(&stream, last), last.fin), (b"gh".to_vec(), true));
        let second = stream.next_straggler(now, 10).unwrap();
        assert_eq!((text(&stream, second), second.fin), (b"cd".to_vec(), false));
        assert_eq!(
            stream.next_straggler(now, 10),
            None,
            "it arrives as soon by itself"
        );
    }

    /// The copies of a frame may be cut otherwise than the frame itself.
    #[test]
    fn a_frame_that_came_in_pieces_is_under_way_no_more() {
        let now = Instant::now();
        let mut stream = SendBytes::new(INITIAL_CREDIT, u64::MAX);
        stream.push(b"abcdefgh");
        stream.finish();
        for _ in 0..2 {
            let frame = stream.next_frame_within(4).unwrap();
            stream.on_sent(frame);
            stream.on_straggling(frame, now);
        }
        for start in 0..4 {
            assert!(stream.has_stragglers());
            stream.on_acked(start, start + 1, false);
        }
        assert_eq!(stream.stragglers.len(), 1, "the second frame alone");
        stream.on_acked(4, 8, false);
        assert!(stream.has_stragglers(), "its end is under way");
        stream.on_acked(8, 8, true);
        assert!(!stream.has_stragglers());
    }

    #[test]
    fn a_reader_that_stands_still_holds_the_writer_back_soon() {
        let limit = 1 << 20;
        let mut stream = SendBytes::new(INITIAL_CREDIT, u64::MAX);
        let mut taken = 0;
        while stream.has_room(limit) {
            let room = stream.room(limit);
            taken += room;
            stream.push(&vec![0; usize::try_from(room).unwrap()]);
            while let Some(frame) = stream.next_frame_within(1 << 20) {
                stream.on_sent(frame);
            }
        }
        assert_eq!(taken, INITIAL_CREDIT + BEYOND_CREDIT);
        stream.grant(2 * INITIAL_CREDIT);
        assert!(stream.has_room(limit), "credit makes room");
    }

    #[test]
    fn credit_holds_bytes_back() {
        let mut stream = SendBytes::new(4, u64::MAX);
        stream.push(b"abcdefgh");
        let frame = stream.next_frame_within(10).unwrap();
        assert_eq!(text(&stream, frame), b"abcd");
        stream.on_sent(frame);
        assert_eq!(stream.next_frame_within(10), None);
        stream.grant(6);
        assert_eq!(
            stream
                .next_frame_within(10)
                .map(|frame| text(&stream, frame)),
            Some(b"ef".to_vec())
        );
    }
}
