//! The requester of a content that grows: asks far ahead of what exists, and again only for holes, and at long intervals for
//! what it waits for, so that relays remember it.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    keys::ContentKey,
    name::Segment,
    requester::{Taken, Wanted},
};

/// The least time after which a hole is asked for again; relays recover most of them sooner.
const LEAST_TIMEOUT: Duration = Duration::from_millis(100);
/// Before a round-trip time is known (RFC 6298 §2.1).
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
/// With one (RFC 6298 §2.2).
const ROUND_TRIPS: u32 = 3;
const GREATEST_TIMEOUT: Duration = Duration::from_secs(5);
const BACKOFF: f64 = 1.5;
/// A hole's timer is put off by relays that recover it so often at most.
const MOST_POSTPONED: u32 = 4;
/// Ranges that are asked for again at once at most.
const MOST_AT_ONCE: usize = 64;
/// Segments out of order at most, or one for so many bytes of the window.
const MOST_EARLY: usize = 1 << 12;
const EARLY_BYTES: u64 = 1 << 9;
/// More is asked for when a quarter of the window came, or so much.
const MOST_STEP: u64 = 4 << 20;
/// The stream is given up after so many segments that do not open.
const MOST_DAMAGED: u32 = 64;

/// The content that the other side of a stream serves, as it arrives.
#[derive(Debug)]
pub(crate) struct LiveFetch {
    key: Option<ContentKey>,
    window: u64,
    refresh: Duration,
    /// What was asked for beyond what is in order: parts that follow each other, by their ends, and when.
    asked: VecDeque<(u64, Instant)>,
    /// How often all was asked for before anything came.
    unheard: u32,
    in_order: u64,
    early: BTreeMap<u64, Bytes>,
    early_bytes: usize,
    ready: VecDeque<Bytes>,
    end: Option<u64>,
    /// The least known bound of the time from an Interest to what exists already.
    round_trip: Option<Duration>,
    /// Something was asked for twice: what comes may answer either Interest.
    is_repeated: bool,
    hole: Option<Hole>,
    again: VecDeque<Wanted>,
    damaged: u32,
    /// Segments that came contradict each other.
    is_broken: bool,
    /// This side opened the stream: relays find it by its Interests, as long as there are any.
    keeps_way: bool,
    /// When what is behind the end is asked for, to that purpose.
    way_at: Option<Instant>,
}

/// Bytes behind which others came, and before them those in order.
#[derive(Clone, Copy, Debug)]
struct Hole {
    deadline: Instant,
    attempts: u32,
    postponed: u32,
}

impl LiveFetch {
    /// Asks for up to `window` bytes ahead at first, and again for all of it after `refresh`.
    /// `keeps_way`: goes on asking behind the end.
    pub(crate) fn new(window: u64, refresh: Duration, keeps_way: bool) -> Self {
        Self {
            key: None,
            window,
            refresh,
            asked: VecDeque::new(),
            unheard: 0,
            in_order: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            ready: VecDeque::new(),
            end: None,
            round_trip: None,
            is_repeated: false,
            hole: None,
            again: VecDeque::new(),
            damaged: 0,
            is_broken: false,
            keeps_way,
            way_at: None,
        }
    }

    /// Nothing more is wanted.
    pub(crate) fn abandon(&mut self) {
        let end = self.end.unwrap_or(self.asked_to());
        *self = Self {
            in_order: end,
            end: Some(end),
            ..Self::new(self.window, self.refresh, self.keeps_way)
        };
    }

    /// Asks for so many bytes ahead from now on, if that is more. Less would leave no room for what is no data, behind data that the
    /// application does not read.
    pub(crate) fn widen(&mut self, window: u64) {
        self.window = self.window.max(window);
    }

    /// Sets the key; nothing opens before.
    pub(crate) fn set_key(&mut self, key: ContentKey) {
        self.key = Some(key);
    }

    /// Takes the time from the first Interest to an answer that did not have to be produced, unless it is ambiguous
    /// (RFC 6298 §3).
    pub(crate) fn add_round_trip(&mut self, sample: Duration) {
        if !self.is_repeated {
            self.bound_round_trip(sample);
        }
    }

    /// A round trip takes no longer than this.
    pub(crate) fn bound_round_trip(&mut self, most: Duration) {
        self.round_trip = Some(self.round_trip.map_or(most, |least| least.min(most)));
    }

    /// The end of what is in order.
    pub(crate) fn in_order(&self) -> u64 {
        self.in_order
    }

    /// Bytes of memory out of order.
    pub(crate) fn memory(&self) -> usize {
        self.early_bytes
    }

    /// Whether what came contradicts itself, or so much was damaged that there is no use in going on.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.is_broken || self.damaged >= MOST_DAMAGED
    }

    /// The next bytes in order.
    pub(crate) fn read(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    fn asked_to(&self) -> u64 {
        self.asked.back().map_or(self.in_order, |(end, _)| *end)
    }

    fn is_finished(&self) -> bool {
        self.end.is_some_and(|end| self.in_order >= end)
    }

    fn most_early(bytes: u64) -> usize {
        usize::try_from(bytes / EARLY_BYTES).map_or(MOST_EARLY, |few| few.max(MOST_EARLY))
    }

    /// Whether what is out of order is more than belongs to so many bytes of data, with a quarter for what is no data.
    pub(crate) fn is_crowded(&self, data: usize) -> bool {
        self.early_bytes > data / 4 * 5 || self.early.len() >= Self::most_early(data as u64)
    }

    /// The next range to ask for now: what is asked for again, or a quarter of the window at least.
    pub(crate) fn poll_want(&mut self, now: Instant) -> Option<Wanted> {
        while let Some(again) = self.again.pop_front() {
            if again.end > self.in_order {
                return Some(again);
            }
        }
        if self.is_finished() {
            let is_due = self.keeps_way && self.way_at.is_none_or(|at| at <= now);
            return is_due.then(|| {
                self.way_at = Some(now + self.refresh);
                let (start, end) = self.behind_end();
                Wanted {
                    start,
                    end,
                    is_fresh: false,
                }
            });
        }
        let (start, end) = (self.asked_to(), self.in_order + self.window);
        let step = (self.window / 4).min(MOST_STEP);
        if self.end.is_some() || end.saturating_sub(start) < step {
            return None;
        }
        self.asked.push_back((end, now));
        Some(Wanted {
            start,
            end,
            is_fresh: false,
        })
    }

    /// The time at which [`LiveFetch::handle_timeout`] is due.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        if self.is_finished() {
            return self.way_at;
        }
        let refresh = self.asked.iter().map(|(_, at)| *at + self.refresh_after());
        refresh.chain(self.hole.map(|hole| hole.deadline)).min()
    }

    /// Asks again for holes, and for what was asked for long ago; returns how many holes.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> u64 {
        if self.is_finished() || self.timeout().is_none_or(|at| at > now) {
            return 0;
        }
        let mut count = 0;
        if let Some(mut hole) = self.hole.filter(|hole| hole.deadline <= now) {
            let newest = self.early.last_key_value().map(|(start, _)| *start);
            let holes = self.missing(self.in_order, newest.unwrap_or(self.in_order));
            count = holes.len() as u64;
            self.is_repeated = true;
            self.ask_again(holes);
            hole.attempts += 1;
            hole.deadline = now + self.timeout_after(hole.attempts);
            self.hole = Some(hole);
        }
        let after = self.refresh_after();
        let is_any_due = self.asked.iter().any(|(_, at)| *at + after <= now);
        let mut start = self.in_order;
        let mut again: Vec<(u64, u64)> = Vec::new();
        for (end, at) in &mut self.asked {
            // One Interest for all of them, from then on.
            if is_any_due && *at + after / 2 <= now {
                *at = now;
                match again.last_mut() {
                    Some((_, last)) if *last == start => *last = *end,
                    _ => again.push((start, *end)),
                }
            }
            start = *end;
        }
        for (start, end) in again {
            self.unheard += 1;
            self.is_repeated = true;
            let missing = self.missing(start, end);
            self.ask_again(missing);
        }
        count
    }

    /// Takes a segment.
    pub(crate) fn handle_segment(&mut self, now: Instant, segment: &Segment) -> Taken {
        let is_excess =
            segment.offset > self.in_order && self.early.len() >= Self::most_early(self.window);
        // One without bytes is none of the protocol, wherever it is.
        let is_behind = segment.end() <= self.in_order && segment.length() > 0;
        let is_known = is_behind || self.early.contains_key(&segment.offset);
        let Some(key) = self.key.as_ref().filter(|_| {
            !is_known && !is_excess && segment.offset < self.asked_to() && !self.is_finished()
        }) else {
            return Taken::Known;
        };
        let Some(data) = key.open(segment) else {
            self.damaged += 1;
            if self.again.len() < MOST_AT_ONCE {
                self.again.push_back(Wanted {
                    start: segment.offset,
                    end: segment.end().max(segment.offset + 1),
                    is_fresh: true,
                });
            }
            return Taken::Damaged;
        };
        if self.contradicts(segment) {
            self.is_broken = true;
            return Taken::Damaged;
        }
        self.unheard = 0;
        if segment.is_end {
            self.end = Some(segment.end());
        }
        self.early_bytes += data.len();
        self.early.insert(segment.offset, data);
        let before = self.in_order;
        self.put_in_order();
        if self.early.is_empty() {
            self.hole = None;
        } else if self.hole.is_none() || self.in_order > before {
            self.hole = Some(Hole {
                deadline: now + self.timeout_after(1),
                attempts: 1,
                postponed: 0,
            });
        }
        Taken::New
    }

    /// Segments hold bytes and have fixed bounds, and one end behind all of them.
    fn contradicts(&self, segment: &Segment) -> bool {
        let (start, end) = (segment.offset, segment.end());
        let before = self.early.range(..start).next_back();
        let last = self.early.last_key_value();
        let behind = |known: Option<(&u64, &Bytes)>| {
            known.map_or(self.in_order, |(start, data)| start + data.len() as u64)
        };
        let is_overlapping =
            start < behind(before) || self.early.range(start..end).next().is_some();
        let is_beyond_end = self.end.is_some_and(|known| end > known);
        let is_early_end = segment.is_end && (self.end.is_some() || end < behind(last));
        start == end || is_overlapping || is_beyond_end || is_early_end
    }

    /// A relay recovers a range: the hole's timer begins anew.
    pub(crate) fn handle_void(&mut self, now: Instant, start: u64, end: u64) {
        let timeout = self.timeout_after(1);
        let in_order = self.in_order;
        if let Some(hole) = self
            .hole
            .as_mut()
            .filter(|_| start <= in_order && in_order < end)
            && hole.postponed < MOST_POSTPONED
        {
            hole.postponed += 1;
            hole.deadline = hole.deadline.max(now + timeout);
        }
    }

    /// The neighbour is heard again: what was asked for in vain lengthens no timer.
    pub(crate) fn end_outage(&mut self, now: Instant) {
        let deadline = now + self.timeout_after(1);
        if let Some(hole) = self.hole.as_mut().filter(|hole| hole.deadline > deadline) {
            (hole.deadline, hole.attempts) = (deadline, 1);
        }
        self.unheard = 0;
    }

    /// The path is another, or relays forgot: all that is waited for is to be asked for at once, and what was asked for in vain before lengthens no
    /// timer.
    pub(crate) fn change_path(&mut self, now: Instant) -> Vec<(u64, u64)> {
        if self.is_finished() {
            return self
                .keeps_way
                .then(|| self.behind_end())
                .into_iter()
                .collect();
        }
        self.is_repeated = true;
        self.unheard = 0;
        let deadline = now + self.timeout_after(1);
        self.hole = self.hole.map(|_| Hole {
            deadline,
            attempts: 1,
            postponed: 0,
        });
        self.asked.iter_mut().for_each(|(_, at)| *at = now);
        self.missing(self.in_order, self.asked_to())
    }

    fn behind_end(&self) -> (u64, u64) {
        (self.in_order, self.in_order + 1)
    }

    /// At the begin, the first Interest may be lost as any packet.
    fn refresh_after(&self) -> Duration {
        match self.in_order == 0 && self.early.is_empty() {
            true => self.timeout_after(self.unheard + 1).min(self.refresh),
            false => self.refresh,
        }
    }

    fn timeout_after(&self, attempts: u32) -> Duration {
        let timeout = self.round_trip.map(|it| it * ROUND_TRIPS);
        let timeout = timeout.unwrap_or(FIRST_TIMEOUT).max(LEAST_TIMEOUT);
        let backoff = BACKOFF.powi(i32::try_from(attempts.saturating_sub(1).min(20)).unwrap_or(20));
        timeout.mul_f64(backoff).min(GREATEST_TIMEOUT.max(timeout))
    }

    /// The parts of a range that did not arrive.
    fn missing(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let end = end.min(self.end.unwrap_or(u64::MAX));
        let mut missing = Vec::new();
        let mut next = start.max(self.in_order);
        if let Some((from, data)) = self.early.range(..next).next_back() {
            next = next.max(from + data.len() as u64);
        }
        while next < end && missing.len() < MOST_AT_ONCE {
            let Some((&from, data)) = self.early.range(next..end).next() else {
                missing.push((next, end));
                break;
            };
            if next < from {
                missing.push((next, from));
            }
            next = next.max(from + data.len().max(1) as u64);
        }
        missing
    }

    fn ask_again(&mut self, ranges: Vec<(u64, u64)>) {
        for (start, end) in ranges {
            if self.again.len() < MOST_AT_ONCE {
                self.again.push_back(Wanted {
                    start,
                    end,
                    is_fresh: false,
                });
            }
        }
    }

    fn put_in_order(&mut self) {
        while let Some(data) = self.early.remove(&self.in_order) {
            self.early_bytes -= data.len();
            self.in_order += data.len() as u64;
            self.ready.push_back(data);
        }
        while self
            .asked
            .pop_front_if(|(end, _)| *end <= self.in_order)
            .is_some()
        {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{keys::ContentSecret, name::ContentId};

    const WINDOW: u64 = 1000;
    const REFRESH: Duration = Duration::from_secs(4);

    fn key() -> ContentKey {
        ContentSecret::new(&[1; 32]).of_stream(ContentId([2; 16]), &[3; 8])
    }

    fn wants(fetch: &mut LiveFetch, now: Instant) -> Vec<(u64, u64)> {
        let wants = std::iter::from_fn(|| fetch.poll_want(now));
        wants.map(|want| (want.start, want.end)).collect()
    }

    /// A fetch that has the first 10 bytes.
    fn begun(now: Instant) -> LiveFetch {
        let mut fetch = LiveFetch::new(WINDOW, REFRESH, false);
        fetch.set_key(key());
        fetch.add_round_trip(Duration::from_millis(80));
        assert_eq!(wants(&mut fetch, now), [(0, 1000)]);
        let segment = key().seal(0, false, &[7; 10]);
        assert_eq!(fetch.handle_segment(now, &segment), Taken::New);
        assert_eq!(fetch.handle_segment(now, &segment), Taken::Known);
        assert_eq!(fetch.read().as_deref(), Some(&[7; 10][..]));
        fetch
    }

    #[test]
    fn what_does_not_exist_yet_is_asked_for_seldom_and_a_hole_soon() {
        let mut now = Instant::now();
        let mut fetch = begun(now);
        assert_eq!(fetch.timeout(), Some(now + REFRESH));
        now += REFRESH;
        assert_eq!(fetch.handle_timeout(now), 0);
        assert_eq!(wants(&mut fetch, now), [(10, 1000)]);
        assert_eq!(fetch.timeout(), Some(now + REFRESH));
        fetch.handle_segment(now, &key().seal(20, false, &[8; 10]));
        let hole = fetch.timeout().unwrap();
        assert!(hole <= now + Duration::from_millis(300));
        fetch.handle_void(now + Duration::from_millis(50), 10, 20);
        now = fetch.timeout().unwrap();
        assert_eq!(now, hole + Duration::from_millis(50));
        assert_eq!(fetch.handle_timeout(now), 1);
        assert_eq!(wants(&mut fetch, now), [(10, 20)]);
        assert_eq!(
            fetch.change_path(now),
            [(10, 20), (30, 1000)],
            "another path"
        );
        fetch.handle_segment(now, &key().seal(10, false, &[9; 10]));
        assert_eq!(fetch.timeout(), Some(now + REFRESH));
        assert_eq!((fetch.in_order(), fetch.memory()), (30, 0));
    }

    #[test]
    fn the_window_moves_by_quarters_and_ends() {
        let now = Instant::now();
        let mut fetch = begun(now);
        fetch.handle_segment(now, &key().seal(10, false, &[1; 239]));
        assert_eq!(wants(&mut fetch, now), []);
        fetch.handle_segment(now, &key().seal(249, false, &[1; 1]));
        assert_eq!(wants(&mut fetch, now), [(1000, 1250)]);
        fetch.handle_segment(now, &key().seal(250, true, &[1; 50]));
        assert_eq!((fetch.timeout(), wants(&mut fetch, now)), (None, vec![]));
    }

    #[test]
    fn an_opener_is_found_as_long_as_it_may_be_asked() {
        let now = Instant::now();
        let mut fetch = begun(now);
        fetch.keeps_way = true;
        fetch.handle_segment(now, &key().seal(10, true, &[1; 5]));
        assert_eq!(wants(&mut fetch, now), [(15, 16)]);
        assert_eq!(fetch.timeout(), Some(now + REFRESH));
        assert_eq!(fetch.change_path(now), [(15, 16)]);
        assert_eq!(wants(&mut fetch, now + REFRESH), [(15, 16)]);
        fetch.abandon();
        assert_eq!(wants(&mut fetch, now), [(15, 16)]);
        let late = key().seal(15, false, &[1; 5]);
        assert_eq!(fetch.handle_segment(now, &late), Taken::Known);
    }

    #[test]
    fn damaged_segments_are_asked_for_past_caches_and_not_for_ever() {
        let now = Instant::now();
        let mut fetch = begun(now);
        let mut wrong = key().seal(10, false, &[1; 10]);
        wrong.is_end = true;
        assert_eq!(fetch.handle_segment(now, &wrong), Taken::Damaged);
        let again = fetch.poll_want(now).unwrap();
        assert_eq!((again.start, again.end, again.is_fresh), (10, 20, true));
        for _ in 0..MOST_DAMAGED {
            fetch.handle_segment(now, &wrong);
        }
        assert!(fetch.is_hopeless());
        for number in 0..10_000 {
            fetch.asked.push_back((WINDOW + number, now));
            fetch.handle_segment(now, &key().seal(12 + number * 2, false, &[1]));
        }
        assert!(fetch.early.len() <= MOST_EARLY);
    }

    /// They take far more memory than their bytes, and what is asked for ahead never becomes less.
    #[test]
    fn small_segments_out_of_order_are_no_more_than_belong_to_what_may_come() {
        let now = Instant::now();
        let mut fetch = begun(now);
        fetch.widen(64 << 20);
        wants(&mut fetch, now);
        for number in 0..MOST_EARLY as u64 {
            assert!(!fetch.is_crowded(1 << 14), "{number}");
            let segment = key().seal(12 + number * 2, false, &[1]);
            assert_eq!(fetch.handle_segment(now, &segment), Taken::New);
        }
        assert!(fetch.is_crowded(1 << 14) && !fetch.is_crowded(64 << 20));
    }

    #[test]
    fn what_was_asked_for_twice_tells_no_round_trip() {
        let mut now = Instant::now();
        let mut fetch = LiveFetch::new(WINDOW, REFRESH, true);
        assert_eq!(wants(&mut fetch, now), [(0, 1000)]);
        now += FIRST_TIMEOUT;
        fetch.handle_timeout(now);
        assert_eq!(wants(&mut fetch, now), [(0, 1000)]);
        fetch.add_round_trip(Duration::from_millis(1080));
        assert_eq!(fetch.timeout_after(1), FIRST_TIMEOUT);
        for most in [900, 90, 3000] {
            fetch.bound_round_trip(Duration::from_millis(most));
        }
        assert_eq!(fetch.timeout_after(1), Duration::from_millis(270));
    }

    #[test]
    fn what_contradicts_itself_breaks_the_stream() {
        let now = Instant::now();
        let none: &[u8] = &[];
        let known: [(u64, bool, &[u8]); 2] = [(20, false, &[1; 10]), (40, true, &[1; 10])];
        for wrong in [
            (10, false, none),
            (10, true, none),
            (35, true, none),
            (60, true, none),
            (30, true, &[1; 5]),
            (30, true, &[1; 10]),
            (30, true, &[1; 20]),
            (45, false, &[1; 10]),
            (50, false, &[1; 10]),
            (10, false, &[1; 11]),
            (29, false, &[1; 5]),
            (9, false, &[1; 5]),
        ] {
            let mut fetch = begun(now);
            for (offset, is_end, data) in known {
                let segment = key().seal(offset, is_end, data);
                assert_eq!(fetch.handle_segment(now, &segment), Taken::New);
            }
            let (offset, is_end, data) = wrong;
            let segment = key().seal(offset, is_end, data);
            assert_eq!(fetch.handle_segment(now, &segment), Taken::Damaged);
            assert!(fetch.is_hopeless(), "{wrong:?}");
        }
    }

    #[test]
    fn two_ends_do_not_keep_a_fetch_busy_for_ever() {
        let now = Instant::now();
        let mut fetch = begun(now);
        fetch.handle_segment(now, &key().seal(500, true, &[]));
        fetch.handle_segment(now, &key().seal(600, true, &[]));
        assert!(fetch.is_hopeless());
        fetch.early.insert(500, Bytes::new());
        assert_eq!(fetch.change_path(now), [(10, 500), (501, 1000)]);
    }

    #[test]
    fn no_segments_keep_a_fetch_busy_or_make_it_hold_more_than_its_window() {
        for seed in 0..500_u64 {
            let mut random = seed;
            let mut draw = |below: u64| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (random >> 33) % below
            };
            let mut now = Instant::now();
            let mut fetch = begun(now);
            while !fetch.is_hopeless() && !fetch.is_finished() && draw(200) > 0 {
                now += Duration::from_millis(draw(2000));
                let length = usize::try_from(draw(4) * draw(40)).unwrap();
                let offset = fetch.in_order + draw(30) * draw(30);
                let is_end = draw(40) == 0;
                fetch.handle_segment(now, &key().seal(offset, is_end, &vec![1; length]));
                fetch.handle_timeout(now);
                assert!(
                    wants(&mut fetch, now).len() <= MOST_AT_ONCE + 2,
                    "seed {seed}"
                );
                assert!(fetch.change_path(now).len() <= MOST_AT_ONCE, "seed {seed}");
                let held: usize = fetch.early.values().map(Bytes::len).sum();
                assert_eq!(fetch.memory(), held, "seed {seed}");
                assert!(held < 2 * usize::try_from(WINDOW).unwrap(), "seed {seed}");
                while fetch.read().is_some() {}
            }
        }
    }
}
