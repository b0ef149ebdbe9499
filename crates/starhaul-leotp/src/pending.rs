//! What has been asked for upstream, and the askers that wait for it: ranges of contents, so that many ask and one is asked.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;

use crate::{
    config::NeighbourId,
    name::{ContentId, Kind},
    requester::FetchId,
    stream::StreamId,
};

/// The origin of an Interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A neighbour, which calls the content by this handle.
    Neighbour(NeighbourId, u64),
    /// A transfer of this node itself.
    Local(FetchId),
    /// A stream of this node.
    Stream(StreamId),
}

/// Ranges and contents that a neighbour made the table hold are at most so many times those for which there is room: one alone has three
/// quarters of the table, and a neighbour that comes later always finds room.
pub(crate) const SHARE: usize = 3;
/// Each time that a range is asked for again upstream and nothing of it comes, it waits longer for the next time by this factor, as its requester does.
/// Relays that ask each other in a ring would pass one Interest round for ever.
const BACKOFF: f64 = 1.5;
/// The wait that grows is this at least, and grows up to the other one: requesters ask again each five seconds.
const LEAST_WAIT: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// Beyond, the longest wait is reached.
const MOST_REPEATS: u32 = 32;

impl Asker {
    fn neighbour(&self) -> Option<NeighbourId> {
        match self {
            Self::Neighbour(id, _) => Some(*id),
            Self::Local(_) | Self::Stream(_) => None,
        }
    }
}

/// What each content is waited for.
#[derive(Debug)]
pub(crate) struct Pending {
    contents: FxHashMap<ContentId, Awaited>,
    totals: Totals,
    most_ranges: usize,
    most_contents: usize,
    patience: Duration,
    /// Ranges that were forgotten for want of room and are not counted as expired yet.
    crowded_out: u64,
    /// Ranges that were searched for their askers, or for askers that wait too long.
    #[cfg(test)]
    pub(crate) looks: std::cell::Cell<usize>,
}

/// What is known of all contents together, so that no search goes through all of them.
#[derive(Debug, Default)]
struct Totals {
    ranges: usize,
    /// Ranges and contents, by the neighbour whose Interest made them.
    held: FxHashMap<NeighbourId, Held>,
    own: Held,
    /// Contents that are waited for, by the neighbour that was asked: those that do not grow, and those that do.
    of_upstream: FxHashMap<NeighbourId, [usize; 2]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    ranges: usize,
    contents: usize,
}

#[derive(Debug)]
struct Awaited {
    /// By start; they do not overlap.
    ranges: BTreeMap<u64, Range>,
    last_asked: Instant,
    /// When some of what was waited for came last: over a slow link, the rest may be on its way for longer than it is waited for.
    last_came: Option<Instant>,
    /// Parts of it may not exist yet.
    is_live: bool,
    /// The neighbour that was asked.
    upstream: Option<NeighbourId>,
    /// The neighbour that made it, if one did.
    made_by: Option<NeighbourId>,
    /// As what it counts in [`Totals`].
    counted: Counted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    ranges: usize,
    of_upstream: Option<(NeighbourId, bool)>,
}

#[derive(Clone, Debug)]
struct Range {
    end: u64,
    asked: Instant,
    /// How often upstream was asked again since some of it came.
    repeats: u32,
    askers: Vec<Asker>,
    /// The neighbour whose Interest made it, if one did.
    made_by: Option<NeighbourId>,
}

/// What came of asking for a range.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The parts that upstream is to be asked for.
    pub(crate) parts: Vec<(u64, u64)>,
    /// Bytes that no asker waited for before.
    pub(crate) unasked: u64,
}

/// The parts of a range that are not waited for.
struct Gaps {
    gaps: Vec<(u64, u64)>,
    /// How many ranges more there are when they are.
    more: usize,
    /// The end of what was looked at, and at how many ranges.
    end: u64,
    looked: usize,
}

impl Pending {
    /// A table of so many ranges and contents at most, which forgets what did not come for `patience` although nothing else of its content did.
    pub(crate) fn new(most_ranges: usize, most_contents: usize, patience: Duration) -> Self {
        Self {
            contents: FxHashMap::default(),
            totals: Totals::default(),
            most_ranges,
            most_contents,
            patience,
            crowded_out: 0,
            #[cfg(test)]
            looks: std::cell::Cell::default(),
        }
    }

    /// The number of ranges waited for.
    pub(crate) fn ranges(&self) -> usize {
        self.totals.ranges
    }

    /// Whether nothing is waited for of any content.
    pub(crate) fn is_empty(&self) -> bool {
        self.contents.is_empty()
    }

    /// Whether a range of another content finds room.
    pub(crate) fn has_room(&self) -> bool {
        self.contents.len() < self.most_contents && self.totals.ranges + 3 <= self.most_ranges
    }

    /// Whether a content is in the table, or finds room in it for who asks.
    pub(crate) fn admits(&self, content: ContentId, asker: Asker) -> bool {
        let free = self.most_contents.saturating_sub(self.contents.len());
        let may_add = || self.totals.may_add_content(asker.neighbour(), free);
        self.knows(content) || self.has_room() && may_add()
    }

    /// Whether a content is in the table.
    pub(crate) fn knows(&self, content: ContentId) -> bool {
        self.contents.contains_key(&content)
    }

    /// Contents that are waited for and that this neighbour was asked for: those that do not grow, and those that do.
    pub(crate) fn awaited_of(&self, upstream: NeighbourId) -> [usize; 2] {
        let counted = self.totals.of_upstream.get(&upstream);
        counted.copied().unwrap_or_default()
    }

    /// Notes which neighbour is asked for a content.
    pub(crate) fn set_upstream(&mut self, content: ContentId, upstream: Option<NeighbourId>) {
        if let Some(awaited) = self.contents.get_mut(&content) {
            awaited.upstream = upstream;
            self.totals.count(awaited);
        }
    }

    /// As [`Pending::ask_within`] for who may have all ranges looked at; returns the parts.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        content: ContentId,
        range: (u64, u64),
        asker: Asker,
        again_after: Duration,
    ) -> Option<Vec<(u64, u64)>> {
        let asked = self.ask_within(
            &mut { usize::MAX },
            now,
            content,
            range,
            (asker, again_after),
        );
        asked.map(|asked| asked.parts)
    }

    /// Records that `asker` wants a range, or the part of it for which no more than `looks` ranges have to be looked at, which are taken off.
    /// Returns the parts that upstream is to be asked for: those not asked for yet, and those that the same asker asks for again, if the last
    /// time is longer ago than `again_after`, which grows by [`BACKOFF`] each time. `None`: the table is full, or the asker's share of it. Then a
    /// range is still joined that lies within this one.
    pub(crate) fn ask_within(
        &mut self,
        looks: &mut usize,
        now: Instant,
        content: ContentId,
        (start, end): (u64, u64),
        (asker, again_after): (Asker, Duration),
    ) -> Option<Asked> {
        if !self.admits(content, asker) {
            return None;
        }
        let neighbour = asker.neighbour();
        let awaited = self.contents.entry(content).or_insert_with(|| {
            self.totals.of(neighbour).contents += 1;
            Awaited::new(now, neighbour)
        });
        awaited.last_asked = now;
        let Gaps {
            gaps,
            more,
            end,
            looked,
        } = awaited.gaps(start, end, *looks);
        *looks -= looked;
        #[cfg(test)]
        self.looks.update(|looks| looks + looked);
        let unasked = gaps.iter().map(|(start, end)| end - start).sum();
        let free = self.most_ranges.saturating_sub(self.totals.ranges);
        let is_full = more > free || !self.totals.may_add_ranges(neighbour, more, free);
        let mut parts = Vec::new();
        if !is_full {
            awaited.cut_at(start, neighbour, &mut self.totals);
            awaited.cut_at(end, neighbour, &mut self.totals);
        }
        for (&from, range) in awaited.ranges.range_mut(start..end) {
            if range.end > end {
                break;
            }
            let asks_again = range.add(asker);
            let since = now.saturating_duration_since(range.asked);
            if asks_again && since >= range.waits(again_after) {
                range.asked = now;
                range.repeats = (range.repeats + 1).min(MOST_REPEATS);
                parts.push((from, range.end));
            }
        }
        for (start, end) in gaps.into_iter().filter(|_| !is_full) {
            let range = Range {
                end,
                asked: now,
                repeats: 0,
                askers: vec![asker],
                made_by: neighbour,
            };
            self.totals.of(neighbour).ranges += 1;
            awaited.ranges.insert(start, range);
            parts.push((start, end));
        }
        self.totals.count(awaited);
        (!is_full || !parts.is_empty()).then_some(Asked { parts, unasked })
    }

    /// Ranges of a content.
    pub(crate) fn ranges_of(&self, content: ContentId) -> usize {
        let awaited = self.contents.get(&content);
        awaited.map_or(0, |awaited| awaited.ranges.len())
    }

    /// Notes that a content grows while it is waited for.
    pub(crate) fn set_live(&mut self, content: ContentId) {
        if let Some(awaited) = self.contents.get_mut(&content) {
            awaited.is_live = true;
            self.totals.count(awaited);
        }
    }

    /// Notes that a content does not grow. Returns whether it was taken for one that does.
    pub(crate) fn set_whole(&mut self, content: ContentId) -> bool {
        let awaited = self.contents.get_mut(&content);
        let Some(awaited) = awaited.filter(|awaited| awaited.is_live) else {
            return false;
        };
        awaited.is_live = false;
        self.totals.count(awaited);
        true
    }

    /// Whether a content is in the table as one that grows, or as one that does not.
    pub(crate) fn knows_as(&self, content: ContentId, is_live: bool) -> bool {
        let awaited = self.contents.get(&content);
        awaited.is_some_and(|awaited| awaited.is_live == is_live)
    }

    /// Whether a content is not waited for as what it is asked for.
    pub(crate) fn is_idle(&self, (content, is_live): Kind) -> bool {
        !self.knows_as(content, is_live) || !self.waits_for(content, 0, u64::MAX)
    }

    /// Whether a content grows while it is waited for.
    pub(crate) fn is_live(&self, content: ContentId) -> bool {
        self.contents
            .get(&content)
            .is_some_and(|awaited| awaited.is_live)
    }

    /// Whether any byte of a range is waited for.
    pub(crate) fn waits_for(&self, content: ContentId, start: u64, end: u64) -> bool {
        let Some(awaited) = self.contents.get(&content) else {
            return false;
        };
        let last = awaited.ranges.range(..end).next_back();
        last.is_some_and(|(_, range)| range.end > start)
    }

    /// The part of a range from the first byte to the last that are waited for.
    pub(crate) fn awaited_part(
        &self,
        content: ContentId,
        start: u64,
        end: u64,
    ) -> Option<(u64, u64)> {
        let ranges = &self.contents.get(&content)?.ranges;
        let (_, last) = ranges.range(..end).next_back()?;
        let end = end.min(last.end);
        let before = ranges.range(..=start).next_back();
        let start = match before.is_some_and(|(_, range)| range.end > start) {
            true => start,
            false => *ranges.range(start..).next()?.0,
        };
        (start < end).then_some((start, end))
    }

    /// Who waits for bytes of a range.
    pub(crate) fn askers(&self, content: ContentId, start: u64, end: u64) -> Vec<Asker> {
        self.askers_within(&mut { usize::MAX }, content, start, end)
    }

    /// The same, as far as no more than `looks` ranges have to be looked at, which are taken off: the last ones.
    pub(crate) fn askers_within(
        &self,
        looks: &mut usize,
        content: ContentId,
        start: u64,
        end: u64,
    ) -> Vec<Asker> {
        let mut askers: Vec<Asker> = Vec::new();
        if let Some(awaited) = self.contents.get(&content) {
            let overlapping = awaited.ranges.range(..end).rev();
            let overlapping = overlapping.take_while(|(_, range)| range.end > start);
            for (_, range) in overlapping.take(*looks) {
                *looks -= 1;
                #[cfg(test)]
                self.looks.update(|looks| looks + 1);
                for asker in &range.askers {
                    if !askers.contains(asker) {
                        askers.push(*asker);
                    }
                }
            }
        }
        askers
    }

    /// Takes a range out: it has come now. Puts who waited for bytes of it into `askers`, in place of what is there: so each packet with data is taken.
    /// Where the table is full, it may be the end of what is asked for before it, too.
    pub(crate) fn take_into(
        &mut self,
        askers: &mut Vec<Asker>,
        now: Instant,
        content: ContentId,
        (start, end): (u64, u64),
    ) {
        askers.clear();
        let Some(awaited) = self.contents.get_mut(&content) else {
            return;
        };
        awaited.note_progress(askers, start, end);
        if askers.is_empty() {
            return;
        }
        awaited.last_came = Some(now);
        if self.totals.ranges >= self.most_ranges {
            self.crowded_out += awaited.end_at(start, end);
        }
        if awaited.begin_at(start, end) {
            return;
        }
        awaited.cut_at(start, None, &mut self.totals);
        awaited.cut_at(end, None, &mut self.totals);
        let inside: Vec<u64> = awaited
            .ranges
            .range(start..end)
            .map(|(start, _)| *start)
            .collect();
        for start in inside {
            if let Some(range) = awaited.ranges.remove(&start) {
                self.totals.of(range.made_by).ranges -= 1;
            }
        }
        self.totals.count(awaited);
    }

    /// Notes that all that is waited for of a content is asked for now, and returns it.
    pub(crate) fn renew(&mut self, content: ContentId, now: Instant) -> Vec<(u64, u64)> {
        let ranges = self.contents.get_mut(&content).into_iter();
        let ranges = ranges.flat_map(|awaited| &mut awaited.ranges);
        let mut renewed: Vec<(u64, u64)> = Vec::new();
        for (&start, range) in ranges {
            (range.asked, range.repeats) = (now, 0);
            match renewed.last_mut() {
                Some((_, end)) if *end == start => *end = range.end,
                _ => renewed.push((start, range.end)),
            }
        }
        renewed
    }

    /// Notes that what was asked for in vain more than once is asked for now, and returns it.
    pub(crate) fn renew_repeated(&mut self, content: ContentId, now: Instant) -> Vec<(u64, u64)> {
        let ranges = self.contents.get_mut(&content).into_iter();
        let ranges = ranges.flat_map(|awaited| &mut awaited.ranges);
        let repeated = ranges.filter(|(_, range)| range.repeats > 1);
        let renewed = repeated.map(|(&start, range)| {
            (range.asked, range.repeats) = (now, 0);
            (start, range.end)
        });
        renewed.collect()
    }

    /// Notes that a range of a content is asked for now.
    pub(crate) fn note_asked(
        &mut self,
        content: ContentId,
        now: Instant,
        (start, end): (u64, u64),
    ) {
        let ranges = self.contents.get_mut(&content).into_iter();
        let before_end = ranges.flat_map(|awaited| awaited.ranges.range_mut(..end).rev());
        for (_, range) in before_end.take_while(|(_, range)| range.end > start) {
            (range.asked, range.repeats) = (now, 0);
        }
    }

    /// The contents in the table.
    pub(crate) fn contents(&self) -> impl Iterator<Item = ContentId> {
        self.contents.keys().copied()
    }

    /// Takes out what an asker waits for, alone, of a content.
    pub(crate) fn withdraw(&mut self, content: ContentId, asker: Asker) {
        if let Some(awaited) = self.contents.get_mut(&content) {
            awaited.ranges.retain(|_, range| {
                range.askers.retain(|other| *other != asker);
                self.totals.keeps(range, !range.askers.is_empty())
            });
            self.totals.count(awaited);
        }
    }

    /// Takes out what a neighbour waits for, alone, of all contents: its handles mean nothing any more.
    pub(crate) fn withdraw_neighbour(&mut self, id: NeighbourId) {
        for awaited in self.contents.values_mut() {
            awaited.ranges.retain(|_, range| {
                range
                    .askers
                    .retain(|asker| !matches!(asker, Asker::Neighbour(other, _) if *other == id));
                self.totals.keeps(range, !range.askers.is_empty())
            });
            self.totals.count(awaited);
        }
    }

    /// Forgets a content and returns who waited for it.
    pub(crate) fn refuse(&mut self, content: ContentId) -> Vec<Asker> {
        let askers = self.askers(content, 0, u64::MAX);
        if let Some(mut awaited) = self.contents.remove(&content) {
            for range in std::mem::take(&mut awaited.ranges).into_values() {
                self.totals.of(range.made_by).ranges -= 1;
            }
            self.totals.of(awaited.made_by).contents -= 1;
            self.totals.count(&mut awaited);
        }
        askers
    }

    /// Forgets ranges that were asked for too long ago, and contents that are not waited for. Returns how many ranges.
    pub(crate) fn expire(&mut self, now: Instant) -> u64 {
        let mut expired = std::mem::take(&mut self.crowded_out);
        let (patience, totals) = (self.patience, &mut self.totals);
        self.contents.retain(|_, awaited| {
            let came = awaited.last_came;
            awaited.ranges.retain(|_, range| {
                let last = came.map_or(range.asked, |came| came.max(range.asked));
                let is_kept = now.saturating_duration_since(last) < patience;
                expired += u64::from(!is_kept);
                totals.keeps(range, is_kept)
            });
            totals.count(awaited);
            let is_kept = !awaited.ranges.is_empty()
                || now.saturating_duration_since(awaited.last_asked) < patience;
            totals.of(awaited.made_by).contents -= usize::from(!is_kept);
            is_kept
        });
        expired
    }
}

impl Totals {
    /// What a neighbour holds. What this node itself asks for has no limit of its own.
    fn of(&mut self, neighbour: Option<NeighbourId>) -> &mut Held {
        match neighbour {
            Some(id) => self.held.entry(id).or_default(),
            None => &mut self.own,
        }
    }

    fn may_add_content(&self, neighbour: Option<NeighbourId>, free: usize) -> bool {
        let held = neighbour.and_then(|id| self.held.get(&id));
        held.is_none_or(|held| held.contents < SHARE * free)
    }

    fn may_add_ranges(&self, neighbour: Option<NeighbourId>, more: usize, free: usize) -> bool {
        let held = neighbour.and_then(|id| self.held.get(&id));
        held.is_none_or(|held| more == 0 || held.ranges + more <= SHARE * free)
    }

    /// Notes that a range goes, unless it is kept; returns whether it is.
    fn keeps(&mut self, range: &Range, is_kept: bool) -> bool {
        self.of(range.made_by).ranges -= usize::from(!is_kept);
        is_kept
    }

    /// Counts a content as it is now, instead of as it was.
    fn count(&mut self, awaited: &mut Awaited) {
        let before = awaited.counted;
        let is_awaited = !awaited.ranges.is_empty();
        let of_upstream = awaited.upstream.filter(|_| is_awaited);
        let present = Counted {
            ranges: awaited.ranges.len(),
            of_upstream: of_upstream.map(|id| (id, awaited.is_live)),
        };
        awaited.counted = present;
        self.ranges = self.ranges - before.ranges + present.ranges;
        if before.of_upstream == present.of_upstream {
            return;
        }
        if let Some((id, is_live)) = before.of_upstream
            && let Some(counts) = self.of_upstream.get_mut(&id)
        {
            counts[usize::from(is_live)] -= 1;
        }
        if let Some((id, is_live)) = present.of_upstream {
            self.of_upstream.entry(id).or_default()[usize::from(is_live)] += 1;
        }
    }
}

impl Range {
    /// How long upstream is not asked again, if it is not so for `first` at first.
    fn waits(&self, first: Duration) -> Duration {
        let Some(repeats) = i32::try_from(self.repeats).ok().filter(|it| *it > 0) else {
            return first;
        };
        let grown = first.max(LEAST_WAIT).mul_f64(BACKOFF.powi(repeats));
        grown.min(LONGEST_WAIT.max(first))
    }

    /// Adds an asker; returns whether it asks again. A neighbour counts once, by its last handle.
    fn add(&mut self, asker: Asker) -> bool {
        let is_same = |known: &Asker| match (known, asker) {
            (Asker::Neighbour(known, _), Asker::Neighbour(id, _)) => *known == id,
            (known, asker) => *known == asker,
        };
        let found = self.askers.iter_mut().find(|known| is_same(known));
        match found {
            Some(known) => {
                *known = asker;
                true
            }
            None => {
                self.askers.push(asker);
                false
            }
        }
    }
}

impl Awaited {
    fn new(now: Instant, made_by: Option<NeighbourId>) -> Self {
        Self {
            made_by,
            ranges: BTreeMap::new(),
            last_asked: now,
            last_came: None,
            is_live: false,
            upstream: None,
            counted: Counted::default(),
        }
    }

    /// What is not waited for of a range, up to the first that would be looked at beyond so many.
    fn gaps(&self, start: u64, mut end: u64, most: usize) -> Gaps {
        let is_cut = |at: u64| {
            let before = self.ranges.range(..at).next_back();
            before.is_some_and(|(_, range)| range.end > at)
        };
        let before = self.ranges.range(..start).next_back();
        let mut next = before.map_or(start, |(_, range)| range.end.max(start));
        let mut gaps = Vec::new();
        let mut looked = 0;
        for (&from, range) in self.ranges.range(start..end) {
            if looked == most {
                end = from;
                break;
            }
            looked += 1;
            if from > next {
                gaps.push((next, from));
            }
            next = range.end;
        }
        if next < end {
            gaps.push((next, end));
        }
        let more = gaps.len() + usize::from(is_cut(start)) + usize::from(is_cut(end));
        Gaps {
            gaps,
            more,
            end,
            looked,
        }
    }

    /// Some of these ranges has come: what is left of them was not asked for in vain, however often it was before there was anything. Adds who
    /// waits for them.
    fn note_progress(&mut self, askers: &mut Vec<Asker>, start: u64, end: u64) {
        let overlapping = self.ranges.range_mut(..end).rev();
        for (_, range) in overlapping.take_while(|(_, range)| range.end > start) {
            range.repeats = 0;
            for asker in &range.askers {
                if !askers.contains(asker) {
                    askers.push(*asker);
                }
            }
        }
    }

    /// Lets a range that begins with what has come begin behind it, which needs no other range: so most data come. Returns whether it did.
    fn begin_at(&mut self, start: u64, end: u64) -> bool {
        let Entry::Occupied(entry) = self.ranges.entry(start) else {
            return false;
        };
        if entry.get().end <= end {
            return false;
        }
        let range = entry.remove();
        self.ranges.insert(end, range);
        true
    }

    /// Gives up what is waited for right before a range, if the same is right behind it: that would take a range more. Returns how many are
    /// given up.
    fn end_at(&mut self, start: u64, end: u64) -> u64 {
        let before = self.ranges.range(..start).next_back();
        let Some(from) = before
            .filter(|(_, range)| range.end > end)
            .map(|(from, _)| *from)
        else {
            return 0;
        };
        let range = self.ranges.remove(&from);
        self.ranges.extend(range.map(|range| (start, range)));
        1
    }

    /// Cuts the range around an offset into two; the second one is made by this neighbour, or by that which made the whole.
    fn cut_at(&mut self, at: u64, by: Option<NeighbourId>, totals: &mut Totals) {
        let Some((_, range)) = self.ranges.range_mut(..at).next_back() else {
            return;
        };
        if range.end > at {
            let mut behind = range.clone();
            behind.made_by = by.or(range.made_by);
            range.end = at;
            totals.of(behind.made_by).ranges += 1;
            self.ranges.insert(at, behind);
        }
    }
}

#[cfg(test)]
mod tests;
