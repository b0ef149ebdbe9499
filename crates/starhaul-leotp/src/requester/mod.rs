//! The requester's side: one transfer asks for ranges within a window, asks again for what does not come, opens what comes
//! and gives it in order.

mod window;

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;
use window::Window;

use crate::{
    config::Scope,
    hop::rtt::RoundTrips,
    keys::{ContentKey, ContentSecret},
    name::{ContentId, Segment},
};

/// The least time after which a range is asked for again.
const LEAST_TIMEOUT: Duration = Duration::from_millis(20);
/// Timers that were put off by progress are looked at again after this.
const SOONEST: Duration = Duration::from_millis(1);
/// Before a round-trip time is known (RFC 6298 §2.1).
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
const GREATEST_TIMEOUT: Duration = Duration::from_secs(5);
/// One that was lost, and one for the path that changed meanwhile.
const MOST_USUAL_ATTEMPTS: u32 = 2;
/// The timer of a range that comes to nothing grows by this.
const BACKOFF: f64 = 1.5;
/// A timer is put off by relays that recover the range so often at most.
const MOST_POSTPONED: u32 = 4;
/// Segments that are asked for at once at most.
const MOST_AT_ONCE: u64 = 32;
/// A transfer fails after so many segments that do not open.
const MOST_DAMAGED: u32 = 64;

/// A transfer of a node: its number, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FetchId(pub(crate) u64);

/// A content to fetch, and the limits of the transfer.
#[derive(Clone, Debug)]
pub struct FetchConfig {
    /// Name of the content.
    pub content: ContentId,
    /// The secret that its responder shares with those who may read it.
    pub secret: ContentSecret,
    /// Offset of the first byte to ask for: what comes before is there already.
    pub start: u64,
    /// The length of the content, if it is known.
    pub length: Option<u64>,
    /// Bytes in flight, out of order, and not read yet, all together at most.
    pub window_bytes: u64,
    /// Tell of each segment that arrives.
    pub notes_arrivals: bool,
}

impl FetchConfig {
    /// A whole content of unknown length, with at most 64 MiB in memory.
    pub fn new(content: ContentId, secret: ContentSecret) -> Self {
        Self {
            content,
            secret,
            start: 0,
            length: None,
            window_bytes: 64 << 20,
            notes_arrivals: false,
        }
    }
}

/// A range to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) is_fresh: bool,
}

/// Whether a segment brought new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    New,
    Known,
    Damaged,
}

/// State of one transfer.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) content: ContentId,
    pub(crate) notes_arrivals: bool,
    key: ContentKey,
    recovery: Scope,
    /// Ranges in flight, by start; they do not overlap.
    asked: BTreeMap<u64, Asked>,
    in_flight: u64,
    /// Offset from which new ranges are asked for.
    next: u64,
    end: Option<u64>,
    /// Bytes of a segment, as far as is known.
    segment: u64,
    /// Arrived out of order.
    early: BTreeMap<u64, Bytes>,
    early_bytes: u64,
    /// The end of what is in order.
    in_order: u64,
    ready: VecDeque<Bytes>,
    ready_bytes: u64,
    window_bytes: u64,
    rtt: RoundTrips,
    window: Window,
    /// The last arrival, and when the newest of what arrived was asked for.
    progress: Option<Instant>,
    newest_served: Option<Instant>,
    /// No timer expires before.
    next_timeout: Option<Instant>,
    /// Ranges to ask for again.
    again: VecDeque<Wanted>,
    damaged: u32,
}

#[derive(Clone, Debug)]
struct Asked {
    end: u64,
    at: Instant,
    deadline: Instant,
    attempts: u32,
    postponed: u32,
    overtaken: u32,
}

impl Fetch {
    /// A transfer that begins now. `segment_bytes` is a guess until data come.
    pub(crate) fn new(
        config: FetchConfig,
        (recovery, control): (Scope, Scope),
        segment_bytes: usize,
    ) -> Self {
        let start = config
            .length
            .map_or(config.start, |length| config.start.min(length));
        Self {
            content: config.content,
            notes_arrivals: config.notes_arrivals,
            key: config.secret.of(config.content),
            recovery,
            asked: BTreeMap::new(),
            in_flight: 0,
            next: start,
            end: config.length,
            segment: segment_bytes.max(1) as u64,
            early: BTreeMap::new(),
            early_bytes: 0,
            in_order: start,
            ready: VecDeque::new(),
            ready_bytes: 0,
            window_bytes: config.window_bytes,
            rtt: RoundTrips::default(),
            window: Window::new(control),
            progress: None,
            newest_served: None,
            next_timeout: None,
            again: VecDeque::new(),
            damaged: 0,
        }
    }

    /// Whether all has arrived.
    pub(crate) fn is_finished(&self) -> bool {
        self.end.is_some_and(|end| self.in_order >= end)
    }

    /// Whether so much was damaged that there is no use in going on.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.damaged >= MOST_DAMAGED
    }

    /// The next data in order, if there are any.
    pub(crate) fn read(&mut self) -> Option<Bytes> {
        let bytes = self.ready.pop_front()?;
        self.ready_bytes -= bytes.len() as u64;
        Some(bytes)
    }

    /// Whether data in order wait to be read.
    pub(crate) fn is_readable(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The ends of the content that have arrived: in order, and in all if it is known.
    pub(crate) fn progress(&self) -> (u64, Option<u64>) {
        (self.in_order, self.end)
    }

    /// The round-trip time of the whole path for an Interest that does not wait.
    pub(crate) fn base(&self) -> Option<Duration> {
        self.window.base()
    }

    /// The next range to ask for now.
    pub(crate) fn poll_want(&mut self, now: Instant) -> Option<Wanted> {
        if let Some(again) = self.again.pop_front() {
            return Some(again);
        }
        self.skip_held();
        let window = self.window.bytes(self.segment, self.window_bytes);
        let held = self.in_flight + self.early_bytes + self.ready_bytes;
        let at_once = self.segment * (window / self.segment / 32).clamp(1, MOST_AT_ONCE);
        let left = self
            .end
            .map_or(u64::MAX, |end| end.saturating_sub(self.next));
        // Up to the end of a segment: one that two Interests ask for parts of may come for each.
        let beyond = self.next.saturating_add(at_once) % self.segment;
        let length = (at_once - beyond).min(left);
        // An empty content consists of a segment without data, whose only name is its first byte's.
        if length == 0 || self.in_flight + length > window || held + length > self.window_bytes {
            return None;
        }
        let start = self.next;
        self.next += length;
        self.ask(now, start, self.next, 1, 0);
        Some(Wanted {
            start,
            end: self.next,
            is_fresh: false,
        })
    }

    /// What came with segments that are longer than was expected is not asked for: it would count as in flight for ever.
    fn skip_held(&mut self) {
        self.next = self.next.max(self.in_order);
        while let Some((offset, data)) = self.early.range(..=self.next).next_back() {
            let end = offset + data.len() as u64;
            if end <= self.next {
                return;
            }
            self.next = end;
        }
    }

    /// The time at which [`Fetch::handle_timeout`] is due.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.next_timeout
    }

    /// Asks again for what is overdue; returns how many ranges are.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> u64 {
        if self.next_timeout.is_none_or(|at| at > now) {
            return 0;
        }
        // A range whose turn has not come is slow, not lost, while others arrive (RFC 6298 §5.3).
        let stalls_at = self
            .progress
            .map(|progress| progress + self.timeout_after(1));
        // Two recoveries by hops may pass before it is overtaken for sure.
        let overtaken = self.rtt.smoothed().unwrap_or_default() / 4;
        let newest = self.newest_served;
        let overdue_at = |asked: &Asked| match stalls_at {
            Some(stalls_at) if newest.is_none_or(|newest| newest <= asked.at + overtaken) => {
                asked.deadline.max(stalls_at)
            }
            _ => asked.deadline,
        };
        let overdue = self
            .asked
            .iter()
            .filter(|(_, asked)| overdue_at(asked) <= now);
        let overdue: Vec<(u64, Asked)> = overdue
            .map(|(start, asked)| (*start, asked.clone()))
            .collect();
        for (start, asked) in &overdue {
            self.asked.remove(start);
            self.in_flight -= asked.end - start;
            self.ask(now, *start, asked.end, asked.attempts + 1, 0);
            self.again.push_back(Wanted {
                start: *start,
                end: asked.end,
                is_fresh: false,
            });
        }
        self.next_timeout = self
            .asked
            .values()
            .map(|asked| overdue_at(asked).max(now + SOONEST))
            .min();
        overdue.len() as u64
    }

    /// Takes a segment.
    pub(crate) fn handle_segment(&mut self, now: Instant, segment: &Segment) -> Taken {
        if segment.end() <= self.in_order && !(segment.is_end && self.end.is_none())
            || self.early.contains_key(&segment.offset)
        {
            return Taken::Known;
        }
        let Some(data) = self.key.open(segment) else {
            self.damaged += 1;
            if !self.is_hopeless() {
                // One without data hides what is at its place from those who ask caches.
                self.again.push_back(Wanted {
                    start: segment.offset,
                    end: segment.end().max(segment.offset + 1),
                    is_fresh: true,
                });
            }
            return Taken::Damaged;
        };
        let end = segment.end().max(segment.offset + 1);
        let is_again = self.recovery == Scope::EndToEnd && !self.is_asked_once(segment.offset, end);
        let asked = self.take_asked(now, segment.offset, end);
        if self.recovery == Scope::EndToEnd {
            self.note_overtaken(now, segment.offset, asked);
        }
        self.progress = Some(now);
        // What a responder sends again goes before what was asked for earlier, which is not lost therefore.
        if !is_again {
            self.newest_served = self.newest_served.max(asked);
        }
        self.window.add_bytes(now, data.len());
        if segment.is_end {
            self.end = Some(segment.end());
            self.next = self.next.max(segment.end());
            self.take_asked(now, segment.end(), u64::MAX);
        } else {
            self.segment = segment.length().max(1);
        }
        self.early_bytes += data.len() as u64;
        self.early.insert(segment.offset, data);
        self.put_in_order();
        Taken::New
    }

    /// A relay recovers a range: its timers begin anew.
    pub(crate) fn handle_void(&mut self, now: Instant, start: u64, end: u64) {
        let timeout = self.timeout_after(1);
        for (_, asked) in self
            .asked
            .range_mut(..end)
            .rev()
            .take_while(|(_, asked)| asked.end > start)
        {
            if asked.postponed < MOST_POSTPONED {
                asked.postponed += 1;
                asked.deadline = asked.deadline.max(now + timeout);
            }
        }
    }

    /// The path is another. Returns what is to be asked for again at once: all that is in flight but for data that are under
    /// way over the former path, as round trips tell. Those have until then to arrive. Where nothing has come for as long as a
    /// timer lasts, as after an outage, what should have come by now is lost.
    pub(crate) fn change_path(&mut self, now: Instant) -> Vec<(u64, u64)> {
        let (smoothed, base) = (self.rtt.smoothed(), self.window.base());
        let under_way = base.unwrap_or_default() / 2;
        let timeout = self.timeout_after(1);
        let is_stalled = self.progress.is_none_or(|last| last + timeout <= now);
        let mut again: Vec<(u64, u64)> = Vec::new();
        for (&start, asked) in &mut self.asked {
            let arrives = smoothed.map(|smoothed| asked.at + smoothed);
            let is_lost = is_stalled && asked.at + timeout <= now;
            // The former path's failures say nothing of this one.
            asked.attempts = match is_stalled {
                true => 2,
                false => asked.attempts + 1,
            };
            if !is_lost && arrives.is_some_and(|arrives| arrives <= now + under_way) {
                asked.deadline = now + under_way + LEAST_TIMEOUT;
                continue;
            }
            asked.deadline = now + timeout;
            match again.last_mut() {
                Some((_, end)) if *end == start => *end = asked.end,
                _ => again.push((start, asked.end)),
            }
        }
        self.next_timeout = self.asked.values().map(|asked| asked.deadline).min();
        again
    }

    /// All that is in flight is asked for again now, since nothing of it is under way: the neighbour began a new life. Timers begin anew, lest the next
    /// one lasts as long as the outage did. What comes tells no round trip (Karn): its sender begins slowly.
    pub(crate) fn begin_anew(&mut self, now: Instant) {
        let deadline = now + self.timeout_after(1);
        for asked in self.asked.values_mut() {
            (asked.at, asked.deadline) = (now, deadline);
            (asked.attempts, asked.postponed, asked.overtaken) = (2, 0, 0);
        }
        self.next_timeout = (!self.asked.is_empty()).then_some(deadline);
    }

    /// The neighbour is heard again: what was asked for in vain more than once is asked for now, and its timers begin anew.
    pub(crate) fn end_outage(&mut self, now: Instant) {
        for asked in self.asked.values_mut() {
            if asked.attempts > MOST_USUAL_ATTEMPTS {
                (asked.deadline, asked.attempts) = (now, MOST_USUAL_ATTEMPTS);
                self.next_timeout = Some(now);
            }
        }
    }

    fn ask(&mut self, now: Instant, start: u64, end: u64, attempts: u32, postponed: u32) {
        let deadline = now + self.timeout_after(attempts);
        self.next_timeout = Some(self.next_timeout.map_or(deadline, |at| at.min(deadline)));
        self.in_flight += end - start;
        let asked = Asked {
            end,
            at: now,
            deadline,
            attempts,
            postponed,
            overtaken: 0,
        };
        self.asked.insert(start, asked);
    }

    fn timeout_after(&self, attempts: u32) -> Duration {
        let timeout = self
            .rtt
            .timeout()
            .unwrap_or(FIRST_TIMEOUT)
            .max(LEAST_TIMEOUT);
        let backoff = BACKOFF.powi(
            i32::try_from(attempts.saturating_sub(1))
                .unwrap_or(20)
                .min(20),
        );
        timeout.mul_f64(backoff).min(GREATEST_TIMEOUT.max(timeout))
    }

    /// Whether nothing of a range was asked for twice.
    fn is_asked_once(&self, start: u64, end: u64) -> bool {
        let overlapping = self.asked.range(..end).rev();
        let mut overlapping = overlapping.take_while(|(_, asked)| asked.end > start);
        overlapping.all(|(_, asked)| asked.attempts == 1)
    }

    /// Takes a range out of what is in flight; returns when the last of it was asked for. A range that was asked for once
    /// gives a round-trip time (Karn).
    fn take_asked(&mut self, now: Instant, start: u64, end: u64) -> Option<Instant> {
        let overlapping = self
            .asked
            .range(..end)
            .rev()
            .take_while(|(_, asked)| asked.end > start);
        let overlapping: Vec<u64> = overlapping.map(|(start, _)| *start).collect();
        let mut last = None;
        for from in overlapping {
            let Some(asked) = self.asked.remove(&from) else {
                continue;
            };
            self.in_flight -= asked.end - from;
            if asked.attempts == 1 && end != u64::MAX {
                let sample = now.saturating_duration_since(asked.at);
                self.rtt.add(sample);
                self.window.add_round_trip(now, sample);
            }
            last = last.max(Some(asked.at));
            for (from, to) in [(from, start), (end, asked.end)] {
                if from < to {
                    self.in_flight += to - from;
                    self.asked.insert(
                        from,
                        Asked {
                            end: to,
                            ..asked.clone()
                        },
                    );
                }
            }
        }
        last
    }

    /// Without help from relays: what three later segments overtook is lost.
    fn note_overtaken(&mut self, now: Instant, offset: u64, asked_at: Option<Instant>) {
        let Some(asked_at) = asked_at else { return };
        let mut lost = Vec::new();
        for (start, asked) in self
            .asked
            .range_mut(..offset)
            .filter(|(_, asked)| asked.at <= asked_at)
        {
            asked.overtaken += 1;
            if asked.overtaken == 3 {
                lost.push((*start, asked.end, asked.attempts));
            }
        }
        for (start, end, attempts) in lost {
            self.asked.remove(&start);
            self.in_flight -= end - start;
            self.ask(now, start, end, attempts.max(1), 0);
            if let Some(asked) = self.asked.get_mut(&start) {
                asked.attempts = 2;
            }
            self.again.push_back(Wanted {
                start,
                end,
                is_fresh: false,
            });
        }
    }

    fn put_in_order(&mut self) {
        while let Some(entry) = self
            .early
            .first_entry()
            .filter(|entry| *entry.key() <= self.in_order)
        {
            let (offset, mut data) = entry.remove_entry();
            self.early_bytes -= data.len() as u64;
            let known = usize::try_from(self.in_order - offset).unwrap_or(usize::MAX);
            if known < data.len() {
                let fresh = data.split_off(known);
                self.in_order += fresh.len() as u64;
                self.ready_bytes += fresh.len() as u64;
                self.ready.push_back(fresh);
            }
        }
    }
}

#[cfg(test)]
mod tests;
