//! What waits to be sent to a neighbour: repairs first, then the contents in turn, each at the rate that the neighbour
//! takes of it.

mod unwanted;

use std::{
    cell::Cell,
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use rustc_hash::FxHashSet;

use super::pace::Pace;
use crate::name::{ContentId, SEAL_BYTES, Segment};

/// A flow that was not asked for so long is forgotten, and what waits of it: the neighbour waits for it no more.
const IDLE: Duration = Duration::from_secs(30);
/// The time over which the rate of a flow is averaged.
const AVERAGED: Duration = Duration::from_millis(200);
/// Of more contents than these, what leaves in all is found so often at most: each packet that is relayed asks for it.
const FEW_FLOWS: usize = 64;
const LEAVING_KNOWN: Duration = Duration::from_millis(1);
/// Ranges of own bytes that wait at most: of a content, and of all.
const MOST_OWN_OF_ONE: usize = 512;
const MOST_OWN: usize = 1 << 13;
/// Contents that have fewer ranges waiting have room in any case: others behind the same relay may have filled the queue.
const FEW_OWN: usize = 8;
/// Bytes of a content that wait in these ranges at most, as many as a requester waits for: others who want it wait behind them.
const MOST_OWN_BYTES: u64 = 64 << 20;
/// The segments of one content take at most so many times the room that is left: alone, three quarters of all.
const SHARE: usize = 3;
/// What a segment takes of the queue at least: one without data takes memory, too.
const LEAST_BYTES: usize = 192;
/// Flows are looked through for idle ones this often at most.
const SWEEP: Duration = Duration::from_secs(1);
/// Ranges of own bytes that wait as repairs at most; the requester asks for others again.
const MOST_REPAIRS: usize = 1 << 16;

/// Something to send.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// A segment that came from upstream or out of the cache. `is_repair`: it was lost somewhere; `left`: what its responder said, where
    /// that alone is paced.
    Segment {
        segment: Segment,
        is_repair: bool,
        left: Option<Left>,
    },
    /// Bytes of a content of this node.
    Own { start: u64, end: u64 },
}

/// How a segment left its responder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub(crate) stamp: u32,
    /// The responder had less to send than it might.
    pub(crate) is_limited: bool,
    /// The round trip from this relay to the responder and back, if the packet told it.
    pub(crate) beyond: Option<Duration>,
}

/// How a range of own bytes leaves: a segment, and what may follow it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) rest: Option<(u64, u64)>,
}

impl Cut {
    /// Up to the next multiple of `length`, and the rest.
    pub(crate) fn at_multiple(length: u64, start: u64, end: u64) -> Self {
        let at = (start / length + 1).saturating_mul(length).min(end);
        let rest = (at < end).then_some((at, end));
        Self {
            start,
            end: at,
            rest,
        }
    }
}

/// The item to send next, and its content with the neighbour's handle for it.
#[derive(Clone, Debug)]
pub(crate) struct Next {
    pub(crate) content: ContentId,
    pub(crate) handle: u64,
    pub(crate) item: Item,
}

/// The queue of one neighbour.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// A flow for each content, by the neighbour's handle for it.
    flows: BTreeMap<u64, Flow>,
    /// With the instants since when they could have left.
    repairs: VecDeque<(Instant, Next)>,
    /// Handles of flows with items, in turn.
    turn: VecDeque<u64>,
    waiting: Waiting,
    bytes: usize,
    /// Items that wait, without repairs.
    items: usize,
    swept: Option<Instant>,
    /// All contents that wait, wait for their own pace, the first of them until then: they need not be looked at before.
    paced_until: Option<Instant>,
    /// What left of late, and when that was found.
    leaving: Cell<Option<(Instant, Leaving)>>,
    /// Contents that were looked at.
    #[cfg(test)]
    looks: Cell<usize>,
    /// When something came into the empty queue.
    busy_since: Option<Instant>,
    most_bytes: usize,
    most_flows: usize,
    slack: Duration,
}

/// The contents that leave to a neighbour.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leaving {
    count: f64,
    /// Bytes per second.
    rate: f64,
}

/// Which segment it is: its offset, and how its bytes are sealed.
type Mark = (u64, [u8; SEAL_BYTES]);

/// What is said of the flows with items.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    /// Bytes per second that the neighbour takes of them. Whole numbers of kbit/s: nothing is left of those that went.
    rate: f64,
    /// Of so many it said nothing.
    without_rate: usize,
}

impl Waiting {
    fn begins(&mut self, rate: Option<f64>) {
        match rate {
            Some(rate) => self.rate += rate,
            None => self.without_rate += 1,
        }
    }

    fn ends(&mut self, rate: Option<f64>) {
        match rate {
            Some(rate) => self.rate -= rate,
            None => self.without_rate -= 1,
        }
    }
}

/// What waits of one content.
#[derive(Debug)]
struct Flow {
    content: ContentId,
    items: VecDeque<Item>,
    /// Segments among them.
    segments: FxHashSet<Mark>,
    /// Bytes of the segments.
    bytes: usize,
    /// What they take of the queue.
    weight: usize,
    /// Of ranges of own bytes.
    own_bytes: u64,
    /// The end of own bytes that have left.
    own_left: u64,
    /// Bytes per second that the neighbour takes of it.
    rate: Option<f64>,
    pace: Pace,
    /// From when on something waits.
    ready: Instant,
    /// When something was asked for or came last.
    asked: Instant,
    /// When the neighbour itself asked for it last, or the first came that waits, if it is of a stream.
    wanted: Option<Instant>,
    used: Instant,
    /// Bytes per second that leave, averaged over [`AVERAGED`], at `used`.
    leaving: f64,
}

impl SendQueue {
    /// A queue of at most so many bytes of segments and contents, whose packets may leave `slack` sooner.
    pub(crate) fn new(most_bytes: usize, most_flows: usize, slack: Duration) -> Self {
        Self {
            most_bytes,
            most_flows,
            slack,
            ..Self::default()
        }
    }

    /// Packets may leave so much sooner than their paces say.
    pub(crate) fn slack(&self) -> Duration {
        self.slack
    }

    /// Sets the slack.
    pub(crate) fn set_slack(&mut self, slack: Duration) {
        self.slack = slack;
    }

    /// Bytes of segments that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of segments of one content that wait, and the rate at which the neighbour takes it.
    pub(crate) fn backlog(&self, handle: u64) -> (usize, Option<f64>) {
        self.flows
            .get(&handle)
            .map_or((0, None), |flow| (flow.bytes, flow.rate))
    }

    /// How many contents leave of late, and at what rate in all.
    pub(crate) fn leaving(&self, now: Instant) -> Leaving {
        let is_fresh = |at: Instant| now.saturating_duration_since(at) < LEAVING_KNOWN;
        if let Some((at, leaving)) = self.leaving.get()
            && is_fresh(at)
            && self.flows.len() > FEW_FLOWS
        {
            return leaving;
        }
        #[cfg(test)]
        self.looks.update(|looks| looks + self.flows.len());
        let recent = self.flows.values().filter(|flow| flow.is_recent(now));
        let leaving = recent.fold(Leaving::default(), |sum, flow| Leaving {
            count: sum.count + 1.0,
            rate: sum.rate + flow.leaving(now),
        });
        self.leaving.set(Some((now, leaving)));
        leaving
    }

    /// The part of a rate that a content may have: an equal share, and if it is more, what others leave, which is known less well.
    pub(crate) fn share(&self, now: Instant, handle: u64, rate: f64, all: &Leaving) -> [f64; 2] {
        let own = self.flows.get(&handle).filter(|flow| flow.is_recent(now));
        let (count, leaving) = match own {
            Some(flow) => (all.count, all.rate - flow.leaving(now)),
            None => (all.count + 1.0, all.rate),
        };
        // What is counted may be a moment older than the flow.
        let equal = rate / count.max(1.0);
        [equal, equal.max(rate - leaving)]
    }

    /// Whether what waits is less than a neighbour takes at this rate.
    pub(crate) fn is_limited(&self, rate: f64) -> bool {
        let Waiting { without_rate, .. } = self.waiting;
        self.repairs.is_empty() && without_rate == 0 && self.waiting.rate < rate
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.turn.is_empty() && self.repairs.is_empty()
    }

    /// How many segments, and ranges of this node's own contents, wait.
    pub(crate) fn waiting(&self) -> u64 {
        u64::try_from(self.items + self.repairs.len()).unwrap_or(u64::MAX)
    }

    /// When something came into the empty queue the last time.
    pub(crate) fn busy_since(&self) -> Option<Instant> {
        self.busy_since
    }

    /// Adds an item, which was there from `since` on, before the program came to it. Returns whether there was room.
    pub(crate) fn push(&mut self, now: Instant, since: Instant, next: Next) -> bool {
        let Next {
            content,
            handle,
            item,
        } = next;
        if let Item::Segment {
            ref segment,
            is_repair: false,
            ..
        } = item
            && self.has_waiting(now, content, handle, segment)
        {
            return true;
        }
        let (bytes, weight) = (item.bytes(), item.weight());
        if self.bytes + weight > self.most_bytes {
            return false;
        }
        if self.is_empty() {
            self.busy_since = Some(now);
        }
        if let Item::Segment {
            is_repair: true, ..
        } = item
        {
            self.bytes += weight;
            let next = Next {
                content,
                handle,
                item,
            };
            self.repairs.push_back((since, next));
            return true;
        }
        let (items, free) = (self.items, self.most_bytes - self.bytes);
        let Some(flow) = self.flow(now, content, handle) else {
            return false;
        };
        flow.asked = now;
        let before = flow.items.len();
        match item {
            Item::Own { .. } if before >= MOST_OWN_OF_ONE => return false,
            Item::Own { .. } if before >= FEW_OWN && items >= MOST_OWN => return false,
            Item::Own { .. } if flow.own_bytes >= MOST_OWN_BYTES => return false,
            Item::Own { start, end } => flow.add_own(start, end),
            Item::Segment { ref segment, .. } => {
                // One content with a long queue keeps no other out.
                if flow.weight + weight > SHARE * free {
                    return false;
                }
                flow.segments.insert(mark(segment));
                flow.items.push_back(item);
            }
        }
        let (was_idle, added) = (before == 0, flow.items.len() - before);
        flow.bytes += bytes;
        flow.weight += weight;
        if was_idle && added > 0 {
            flow.ready = since;
            let (due, rate) = (flow.due(), flow.rate);
            self.waiting.begins(rate);
            self.turn.push_back(handle);
            self.pace_ends(due);
        }
        self.items += added;
        self.bytes += weight;
        true
    }

    /// Whether a segment waits already, for which who waits for long asks again: it takes no room.
    fn has_waiting(
        &mut self,
        now: Instant,
        content: ContentId,
        handle: u64,
        segment: &Segment,
    ) -> bool {
        let flow = self.flows.get_mut(&handle);
        let flow = flow.filter(|flow| flow.content == content);
        let Some(flow) = flow.filter(|flow| flow.segments.contains(&mark(segment))) else {
            return false;
        };
        flow.asked = now;
        true
    }

    /// The end of the bytes of a content of this node that have left.
    pub(crate) fn own_left(&self, content: ContentId, handle: u64) -> u64 {
        let flow = self.flows.get(&handle);
        let flow = flow.filter(|flow| flow.content == content);
        flow.map_or(0, |flow| flow.own_left)
    }

    /// Adds bytes of a content of this node that were lost; they go before others. Returns whether there was room.
    pub(crate) fn repair_own(
        &mut self,
        since: Instant,
        content: ContentId,
        handle: u64,
        start: u64,
        end: u64,
    ) -> bool {
        let has_room = self.repairs.len() < MOST_REPAIRS;
        if has_room {
            let item = Item::Own { start, end };
            let next = Next {
                content,
                handle,
                item,
            };
            self.repairs.push_back((since, next));
        }
        has_room
    }

    /// Sets the rate at which the neighbour takes a content, in bytes per second.
    pub(crate) fn set_rate(&mut self, handle: u64, rate: f64) {
        if let Some(flow) = self.flows.get_mut(&handle) {
            let before = flow.rate.replace(rate);
            if !flow.items.is_empty() {
                let due = flow.due();
                self.waiting.ends(before);
                self.waiting.begins(Some(rate));
                self.pace_ends(due);
            }
        }
    }

    /// Another content waits, until its pace lets it send then; `None`: now.
    fn pace_ends(&mut self, at: Option<Instant>) {
        self.paced_until = self.paced_until.zip(at).map(|(until, at)| until.min(at));
    }

    /// Takes the next item, with the instant since when it could have left: it was there and its content's pace allowed it, not
    /// before `made_up_since`; or says when a flow may send again. `cut` says how a range of own bytes of a content and handle
    /// leaves; `None`: nothing of it does.
    pub(crate) fn pop(
        &mut self,
        now: Instant,
        made_up_since: Instant,
        mut cut: impl FnMut(ContentId, u64, (u64, u64)) -> Option<Cut>,
    ) -> Result<(Next, Instant), Option<Instant>> {
        while let Some((since, next)) = self.repairs.pop_front() {
            self.bytes -= next.item.weight();
            let (content, handle) = (next.content, next.handle);
            let Some((item, rest)) = next.item.cut(|range| cut(content, handle, range)) else {
                continue;
            };
            if let Some(item) = rest {
                let rest = Next {
                    content,
                    handle,
                    item,
                };
                self.repairs.push_front((since, rest));
            }
            let next = Next {
                content,
                handle,
                item,
            };
            return Ok((next, since.max(made_up_since)));
        }
        if let Some(at) = self.paced_until.filter(|at| *at > now + self.slack) {
            // As the pace of that content has it.
            return Err(Some(at - self.slack / 2));
        }
        let mut soonest: Option<Instant> = None;
        for _ in 0..self.turn.len() {
            let Some(handle) = self.turn.pop_front() else {
                break;
            };
            let Some(flow) = self.flows.get_mut(&handle) else {
                continue;
            };
            #[cfg(test)]
            self.looks.update(|looks| looks + 1);
            if now.saturating_duration_since(flow.asked) >= IDLE {
                let content = flow.content;
                self.forget(content, handle);
                continue;
            }
            if let Some(at) = flow
                .rate
                .and_then(|rate| flow.pace.waits_until(now, rate, self.slack))
            {
                soonest = Some(soonest.map_or(at, |soonest| soonest.min(at)));
                self.turn.push_back(handle);
                continue;
            }
            let content = flow.content;
            while let Some(item) = flow.items.pop_front() {
                self.items -= 1;
                if let Item::Segment { segment, .. } = &item {
                    flow.segments.remove(&mark(segment));
                }
                flow.own_bytes -= item.own_bytes();
                flow.bytes -= item.bytes();
                flow.weight -= item.weight();
                self.bytes -= item.weight();
                let Some((item, rest)) = item.cut(|range| cut(content, handle, range)) else {
                    continue;
                };
                if let Some(rest) = rest {
                    flow.own_bytes += rest.own_bytes();
                    flow.items.push_front(rest);
                    self.items += 1;
                }
                if let Item::Own { end, .. } = item {
                    flow.own_left = flow.own_left.max(end);
                }
                let since = flow.sent(now, made_up_since, item.length());
                match flow.items.is_empty() {
                    true => self.waiting.ends(flow.rate),
                    false => self.turn.push_back(handle),
                }
                let next = Next {
                    content,
                    handle,
                    item,
                };
                return Ok((next, since));
            }
            self.waiting.ends(flow.rate);
        }
        self.paced_until = soonest.map(|at| at + self.slack / 2);
        Err(soonest)
    }

    /// Whether the neighbour's handle of a content means another one by now.
    pub(crate) fn is_reused(&self, content: ContentId, handle: u64) -> bool {
        let flow = self.flows.get(&handle);
        flow.is_some_and(|flow| flow.content != content)
    }

    /// Drops everything of a content. Of another one that its handle means by now nothing goes.
    pub(crate) fn forget(&mut self, content: ContentId, handle: u64) {
        self.forget_all(&[(handle, content)]);
    }

    /// The same for several contents, which are in the order of their handles.
    fn forget_all(&mut self, gone: &[(u64, ContentId)]) {
        for (handle, content) in gone {
            if !self.is_reused(*content, *handle)
                && let Some(flow) = self.flows.remove(handle)
            {
                self.bytes -= flow.weight;
                self.items -= flow.items.len();
                if !flow.items.is_empty() {
                    self.waiting.ends(flow.rate);
                }
            }
        }
        let flows = &self.flows;
        self.turn.retain(|handle| flows.contains_key(handle));
        let bytes = &mut self.bytes;
        self.repairs.retain(|(_, next)| {
            let at = gone.binary_search_by_key(&next.handle, |(handle, _)| *handle);
            let found = at.ok().and_then(|at| gone.get(at));
            let is_kept = found.is_none_or(|(_, content)| *content != next.content);
            *bytes -= if is_kept { 0 } else { next.item.weight() };
            is_kept
        });
    }

    /// Drops everything: the neighbour began a new life.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.most_bytes, self.most_flows, self.slack);
    }

    /// The flow of a content; where there are too many, an idle one goes, or else there is none.
    fn flow(&mut self, now: Instant, content: ContentId, handle: u64) -> Option<&mut Flow> {
        // A neighbour that went to another one and came back gives its numbers anew, in the same life.
        let former = self.flows.get(&handle).map(|flow| flow.content);
        if let Some(former) = former.filter(|former| *former != content) {
            self.forget(former, handle);
        }
        if !self.flows.contains_key(&handle) {
            let swept = *self.swept.get_or_insert(now);
            if now.saturating_duration_since(swept) >= SWEEP {
                self.swept = Some(now);
                self.flows.retain(|_, flow| {
                    !flow.items.is_empty() || now.saturating_duration_since(flow.used) < IDLE
                });
            }
            if self.flows.len() >= self.most_flows {
                let idle = self.flows.iter().filter(|(_, flow)| flow.items.is_empty());
                let oldest = idle
                    .min_by_key(|(_, flow)| flow.used)
                    .map(|(handle, _)| *handle)?;
                self.flows.remove(&oldest);
            }
        }
        Some(
            self.flows
                .entry(handle)
                .or_insert_with(|| Flow::new(now, content)),
        )
    }
}

impl Flow {
    fn is_recent(&self, now: Instant) -> bool {
        !self.items.is_empty() || now.saturating_duration_since(self.used) < AVERAGED
    }

    fn new(now: Instant, content: ContentId) -> Self {
        Self {
            content,
            items: VecDeque::new(),
            segments: FxHashSet::default(),
            bytes: 0,
            weight: 0,
            own_bytes: 0,
            own_left: 0,
            rate: None,
            pace: Pace::default(),
            ready: now,
            asked: now,
            wanted: None,
            used: now,
            leaving: 0.0,
        }
    }

    /// When its pace lets it send; `None`: at once.
    fn due(&self) -> Option<Instant> {
        self.rate.and_then(|rate| self.pace.next(rate))
    }

    /// Bytes per second that left of late.
    fn leaving(&self, now: Instant) -> f64 {
        let silence = now.saturating_duration_since(self.used).as_secs_f64();
        self.leaving * (-silence / AVERAGED.as_secs_f64()).exp()
    }

    /// Adds own bytes but for those that wait already, and those for which there is no room.
    fn add_own(&mut self, start: u64, end: u64) {
        let mut parts = vec![(start, end)];
        for item in &self.items {
            if let Item::Own { start, end } = *item {
                let without = |(from, to): (u64, u64)| [(from, to.min(start)), (from.max(end), to)];
                parts = parts
                    .into_iter()
                    .flat_map(without)
                    .filter(|(from, to)| from < to)
                    .collect();
            }
        }
        for (start, end) in parts {
            let room = MOST_OWN_BYTES.saturating_sub(self.own_bytes);
            let end = end.min(start.saturating_add(room));
            if start == end {
                return;
            }
            self.own_bytes += end - start;
            match self.items.back_mut() {
                Some(Item::Own { end: last, .. }) if *last == start => *last = end,
                _ => self.items.push_back(Item::Own { start, end }),
            }
        }
    }

    /// Returns since when its pace allowed it.
    fn sent(&mut self, now: Instant, made_up_since: Instant, length: u64) -> Instant {
        let length = f64::from(u32::try_from(length).unwrap_or(u32::MAX));
        self.leaving = self.leaving(now) + length / AVERAGED.as_secs_f64();
        self.used = now;
        let since = self.ready.max(made_up_since);
        self.pace
            .sent(since, length, self.rate.unwrap_or(f64::INFINITY))
    }
}

fn mark(segment: &Segment) -> Mark {
    let seal = segment.sealed.last_chunk().copied();
    (segment.offset, seal.unwrap_or_default())
}

impl Item {
    /// What it takes of the queue.
    fn weight(&self) -> usize {
        match self {
            Self::Segment { .. } => self.bytes().max(LEAST_BYTES),
            Self::Own { .. } => 0,
        }
    }

    /// Bytes of a segment.
    fn bytes(&self) -> usize {
        match self {
            Self::Segment { segment, .. } => segment.sealed.len(),
            Self::Own { .. } => 0,
        }
    }

    fn own_bytes(&self) -> u64 {
        match self {
            Self::Segment { .. } => 0,
            Self::Own { start, end } => end - start,
        }
    }

    fn length(&self) -> u64 {
        match self {
            Self::Segment { segment, .. } => segment.length(),
            Self::Own { start, end } => end - start,
        }
    }

    /// What leaves now, and the rest; `None`: nothing does.
    fn cut(self, cut: impl FnOnce((u64, u64)) -> Option<Cut>) -> Option<(Self, Option<Self>)> {
        match self {
            Self::Own { start, end } => {
                let Cut { start, end, rest } = cut((start, end))?;
                let rest = rest.map(|(start, end)| Self::Own { start, end });
                Some((Self::Own { start, end }, rest))
            }
            Self::Segment { .. } => Some((self, None)),
        }
    }
}

#[cfg(test)]
mod tests;
