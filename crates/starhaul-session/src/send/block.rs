//! One block on its way: its codes, the fate of each fragment, and what is left to send.

mod rows;

use std::{collections::VecDeque, time::Instant};

use bytes::Bytes;
use starhaul_fec::{Codec, FecError};
use starhaul_paths::PathId;

use super::few::Few;
use crate::{
    facts::Purpose,
    item::{BlockKey, FragmentId},
    types::{BlockId, Mode},
    wire::{Fragment, wrap},
};

/// Copies of so many fragments at the most cost less than what they may save.
pub(super) const SHORT_BLOCK: usize = 3;

/// What a timer of a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BlockTimer {
    /// The paths may not be any more what they were when its timer was set.
    Review,
    /// What is overdue is sent again now or never over a slower path than the fastest.
    Chance,
    /// What is under way is so much that it could not all be sent again later, and some of it is doubtful.
    Crowded,
    /// What is not known to have arrived is sent again now or never.
    LastChance,
    /// It must have arrived.
    Deadline,
    /// Its acknowledgement must have come.
    Acknowledgement,
    /// Enough fragments have arrived, but the receiver has not named the block: it is asked.
    Query,
}

#[derive(Clone, Copy, Debug, Default)]
struct FragmentState {
    acked: bool,
    /// Waits in `retransmit`.
    queued: bool,
    in_flight: u8,
    last: Option<LastSent>,
}

/// Where and when a fragment was sent last, as the path was then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastSent {
    pub(crate) path: PathId,
    pub(crate) at: Instant,
    /// By when its acknowledgement is expected.
    pub(crate) acknowledged_by: Instant,
    /// From when on it is likelier lost than its acknowledgement late.
    pub(crate) doubtful_at: Instant,
    /// From when on a missing acknowledgement counts as overdue.
    pub(crate) overdue_at: Instant,
}

#[derive(Debug)]
struct Code {
    start: usize,
    length: usize,
    fragment_length: usize,
    data_count: u8,
    redundancy_count: u8,
    redundancy: Vec<Bytes>,
    fragments: Few<FragmentState>,
    acked: usize,
    in_flight: usize,
    /// Data that never left yet.
    unsent: usize,
    unsent_redundancy: usize,
}

/// Counted for each block beside its bytes: for what is known of it, and for its places in tables and queues.
pub(crate) const SEND_OVERHEAD_BYTES: usize = 768;
/// Of this at least so much is for its places: in the table of blocks, among the timers, in the order of sending.
const PLACES_BYTES: usize = 128;
const _: () = assert!(size_of::<SendBlock>() + PLACES_BYTES <= SEND_OVERHEAD_BYTES);

/// A block that has not ended.
#[derive(Debug)]
pub(crate) struct SendBlock {
    pub(crate) key: BlockKey,
    pub(crate) data: Bytes,
    pub(crate) mode: Mode,
    pub(crate) born: Instant,
    pub(crate) deadline: Instant,
    pub(crate) priority: u8,
    pub(crate) max_coding_rate: f64,
    pub(crate) dependents: Vec<u64>,
    /// The number of the block without which it is useless, which had not ended when it came.
    pub(crate) depends_on: Option<u64>,
    /// Redundancy must go out with the data, because a retransmission would come too late.
    pub(crate) redundancy_is_urgent: bool,
    pub(crate) retransmitted: bool,
    pub(crate) any_lost: bool,
    /// Where it stands in the order of sending, if it waits there.
    pub(crate) rank: Option<(u8, u32, Instant)>,
    /// Later blocks of its stream are not delivered before it arrives or ends.
    pub(crate) is_ordered: bool,
    /// What of it waits [aside](super::aside), if it does.
    pub(super) aside_bytes: Option<u64>,
    /// It did before.
    pub(super) was_aside: bool,
    /// Its next timer, and what that is for.
    pub(crate) timer: (Instant, BlockTimer),
    /// It waits for spare capacity to send redundancy.
    pub(crate) in_spare: bool,
    /// Enough fragments have arrived for the whole of it; what is left needs no sending.
    pub(crate) has_arrived: bool,
    /// How often the receiver was asked for it since.
    pub(crate) queries: u8,
    /// One of them waits to leave.
    pub(crate) query_waits: bool,
    codes: Few<Code>,
    largest_fragment: usize,
    /// How often it was cut anew.
    cut: u8,
    /// Bytes that are counted for it.
    pub(super) counted: usize,
    fresh: Cursor,
    redundancy: Cursor,
    retransmit: VecDeque<FragmentId>,
    copies: VecDeque<FragmentId>,
    /// Data fragments by path, to tell where most of the block went.
    carried: Few<(PathId, usize)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    code: usize,
    index: usize,
    left_bytes: usize,
}

impl SendBlock {
    pub(crate) fn new(
        key: BlockKey,
        data: Bytes,
        mode: Mode,
        born: Instant,
        deadline: Instant,
        priority: u8,
        max_coding_rate: f64,
    ) -> Self {
        let left_bytes = data.len();
        Self {
            key,
            data,
            mode,
            born,
            deadline,
            priority,
            max_coding_rate,
            dependents: Vec::new(),
            depends_on: None,
            redundancy_is_urgent: false,
            retransmitted: false,
            any_lost: false,
            rank: None,
            is_ordered: false,
            aside_bytes: None,
            was_aside: false,
            timer: (deadline, BlockTimer::Deadline),
            in_spare: false,
            has_arrived: false,
            queries: 0,
            query_waits: false,
            codes: Few::None,
            largest_fragment: 0,
            cut: 0,
            fresh: Cursor {
                left_bytes,
                ..Cursor::default()
            },
            redundancy: Cursor::default(),
            retransmit: VecDeque::new(),
            copies: VecDeque::new(),
            counted: 0,
            carried: Few::None,
        }
    }

    pub(crate) fn is_split(&self) -> bool {
        !self.codes.is_empty()
    }

    /// Its receiver may have heard of it.
    pub(crate) fn was_split(&self) -> bool {
        self.cut > 0 || self.is_split()
    }

    /// The fragment with which the receiver is asked for the whole block.
    pub(crate) fn query(&self) -> FragmentId {
        FragmentId {
            cut: self.cut,
            code: 0,
            index: 0,
        }
    }

    /// No path carries its fragments any more: it goes from the beginning, in new ones, for which the receiver gives up the old.
    pub(crate) fn recut(&mut self) {
        self.cut = self.cut.wrapping_add(1);
        self.codes.clear();
        self.largest_fragment = 0;
        self.fresh = Cursor {
            left_bytes: self.data.len(),
            ..Cursor::default()
        };
        self.redundancy = Cursor::default();
        self.redundancy_is_urgent = false;
        self.has_arrived = false;
        self.retransmit.clear();
        self.copies.clear();
        self.carried.clear();
    }

    /// Cuts the block into codes of equal fragments of at most `capacity` bytes, and adds redundancy:
    /// `redundancy_for` gives the count for a number of data fragments.
    pub(crate) fn split(
        &mut self,
        codec: &mut Codec,
        capacity: usize,
        redundancy_for: impl Fn(u8) -> u8,
    ) -> Result<(), FecError> {
        let codes = starhaul_fec::plan(self.data.len(), capacity, self.max_coding_rate)?.codes();
        // Fragments name their code in a byte.
        if codes.len() > 1 + usize::from(u8::MAX) {
            return Err(FecError::NoCapacity);
        }
        for cut in codes {
            let redundancy_count = if self.mode.codes() {
                redundancy_for(cut.data_count)
            } else {
                0
            };
            let mut code = Code::new(&cut, redundancy_count.min(u8::MAX - cut.data_count));
            if code.redundancy_count > 0 {
                code.redundancy =
                    codec.encode(&code.data_fragments(&self.data), code.redundancy_count)?;
                self.redundancy.left_bytes +=
                    usize::from(code.redundancy_count) * code.fragment_length;
            }
            self.largest_fragment = self.largest_fragment.max(code.fragment_length);
            self.codes.push(code);
        }
        self.pass_needless_redundancy();
        Ok(())
    }

    /// Bytes of redundancy of the code that has most: what of a long block leaves with its last retransmissions, for other codes are complete
    /// by then.
    pub(super) fn most_redundancy_bytes(&self) -> usize {
        let codes = self.codes.iter();
        let redundancy =
            codes.map(|code| usize::from(code.redundancy_count) * code.fragment_length);
        redundancy.max().unwrap_or_default()
    }

    /// Bytes that are counted for it. What is known of each of several fragments, some 80 bytes, is not: how many these will be is known when it
    /// is cut, after it was taken.
    pub(super) fn memory(&self) -> usize {
        let redundancy = |code: &Code| usize::from(code.redundancy_count) * code.fragment_length;
        let redundancy: usize = self.codes.iter().map(redundancy).sum();
        SEND_OVERHEAD_BYTES + self.data.len() + redundancy
    }

    /// Bytes that must still be sent: new data, retransmissions, copies, urgent redundancy.
    pub(crate) fn waiting_bytes(&self) -> usize {
        if self.has_arrived {
            return 0;
        }
        let fragment = self.codes.first().map_or(0, |code| code.fragment_length);
        let urgent = if self.redundancy_is_urgent {
            self.redundancy.left_bytes
        } else {
            0
        };
        self.fresh.left_bytes + urgent + (self.retransmit.len() + self.copies.len()) * fragment
    }

    /// Those of them without which it is of no use to send the others. Redundancy that leaves with what is sent again helps as far as it arrives,
    /// and what is sent again may come although it is late.
    pub(crate) fn needed_bytes(&self) -> usize {
        let leaves_again = self.redundancy_is_urgent && self.retransmitted && !self.has_fresh();
        let beside = if leaves_again {
            self.redundancy.left_bytes
        } else {
            0
        };
        let may_come = self.retransmit.iter().filter(|id| self.is_in_flight(**id));
        let twice = may_come.count() * self.fragment_length().unwrap_or_default();
        self.waiting_bytes().saturating_sub(beside + twice)
    }

    /// Redundancy waits that need not go out with the data.
    pub(crate) fn wants_spare(&self) -> bool {
        !self.has_arrived && !self.redundancy_is_urgent && self.redundancy.left_bytes > 0
    }

    /// No data fragment was ever sent.
    pub(crate) fn is_untouched(&self) -> bool {
        self.fresh.left_bytes == self.data.len()
    }

    pub(crate) fn has_fresh(&self) -> bool {
        self.fresh.left_bytes > 0
    }

    /// Something waits that left before or is no data.
    pub(crate) fn has_more_than_fresh(&self) -> bool {
        let is_urgent = self.redundancy_is_urgent && self.redundancy.left_bytes > 0;
        is_urgent || !self.retransmit.is_empty() || !self.copies.is_empty()
    }

    /// So much of each code has left that the receiver may have the whole, if nothing was lost.
    pub(crate) fn may_be_whole(&self) -> bool {
        let stood_in_for = |code: &Code| {
            usize::from(code.redundancy_count) >= code.unsent_redundancy + code.unsent
        };
        !self.has_fresh() || self.is_split() && self.codes.iter().all(stood_in_for)
    }

    /// The share that must still be sent of all data, 0.0 to 1.0 (MPDTP `unsent_ratio`).
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub(crate) fn unsent_ratio(&self) -> f64 {
        (self.waiting_bytes() as f64 / self.data.len().max(1) as f64).min(1.0)
    }

    /// The path that carried most of the data so far.
    pub(crate) fn main_path(&self) -> Option<PathId> {
        self.carried
            .iter()
            .max_by_key(|(path, count)| (*count, std::cmp::Reverse(*path)))
            .map(|(path, _)| *path)
    }

    /// The fragment to send again first.
    pub(crate) fn next_retransmission(&self) -> Option<FragmentId> {
        self.retransmit.front().copied()
    }

    /// Where a fragment was sent last.
    pub(crate) fn last_path(&self, id: FragmentId) -> Option<PathId> {
        Some(self.state(id)?.last?.path)
    }

    /// A copy of the fragment may still arrive.
    pub(crate) fn is_in_flight(&self, id: FragmentId) -> bool {
        self.state(id).is_some_and(|state| state.in_flight > 0)
    }

    fn pop_retransmission(&mut self) {
        if let Some(id) = self.retransmit.pop_front()
            && let Some(code) = self.codes.get_mut(usize::from(id.code))
            && let Some(state) = code.fragments.get_mut(usize::from(id.index))
        {
            state.queued = false;
        }
    }

    /// Drops retransmissions that became needless: of a fragment that arrived after all, or of a code that is complete.
    fn forget_needless(&mut self, id: FragmentId) {
        let Some(code) = self.codes.get_mut(usize::from(id.code)) else {
            return;
        };
        let complete = code.is_complete();
        self.retransmit.retain(|queued| {
            let needless = *queued == id || (complete && queued.code == id.code);
            if needless && let Some(state) = code.fragments.get_mut(usize::from(queued.index)) {
                state.queued = false;
            }
            !needless
        });
    }

    /// The next copy and the path that carried the first.
    pub(crate) fn next_copy(&self) -> Option<(FragmentId, Option<PathId>)> {
        let id = *self.copies.front()?;
        Some((id, self.last_path(id)))
    }

    pub(crate) fn next_fresh(&self) -> Option<FragmentId> {
        if self.fresh.left_bytes > 0 {
            self.fresh.id(self.cut)
        } else {
            None
        }
    }

    pub(crate) fn next_redundancy(&self) -> Option<FragmentId> {
        if self.redundancy.left_bytes == 0 {
            return None;
        }
        let code = self.codes.get(self.redundancy.code)?;
        let index = u8::try_from(usize::from(code.data_count) + self.redundancy.index).ok()?;
        Some(FragmentId {
            cut: self.cut,
            code: u8::try_from(self.redundancy.code).ok()?,
            index,
        })
    }

    /// A fragment leaves for `purpose`; it must be what the `next_…` of that purpose gave.
    pub(crate) fn on_sent(&mut self, id: FragmentId, sent: LastSent, purpose: Purpose) {
        let path = sent.path;
        match purpose {
            Purpose::Data => self.advance_fresh(id),
            Purpose::Redundancy => self.advance_redundancy(),
            Purpose::Retransmission => {
                self.retransmitted = true;
                self.pop_retransmission();
            }
            Purpose::Copy => drop(self.copies.pop_front()),
            Purpose::Query => {}
        }
        if purpose == Purpose::Data {
            match self
                .carried
                .iter_mut()
                .find(|(carrier, _)| *carrier == path)
            {
                Some((_, count)) => *count += 1,
                None => self.carried.push((path, 1)),
            }
        }
        if let Some(code) = self.codes.get_mut(usize::from(id.code))
            && let Some(state) = code.fragments.get_mut(usize::from(id.index))
        {
            state.last = Some(sent);
            match purpose {
                Purpose::Data => code.unsent = code.unsent.saturating_sub(1),
                Purpose::Redundancy => {
                    code.unsent_redundancy = code.unsent_redundancy.saturating_sub(1);
                }
                Purpose::Retransmission | Purpose::Copy | Purpose::Query => {}
            }
            if state.in_flight == 0 && !state.acked {
                code.in_flight += 1;
            }
            state.in_flight = state.in_flight.saturating_add(1);
        }
    }

    fn advance_fresh(&mut self, id: FragmentId) {
        let Some(code) = self.codes.get(self.fresh.code) else {
            return;
        };
        self.fresh.left_bytes = self
            .fresh
            .left_bytes
            .saturating_sub(code.payload_length(id.index));
        self.fresh.index += 1;
        if self.fresh.index >= usize::from(code.data_count) {
            self.fresh.code += 1;
            self.fresh.index = 0;
        }
        if self.mode == Mode::Duplicate {
            self.copies.push_back(id);
        }
    }

    /// A fragment was sent again for the last time: redundancy that is left does not wait for spare capacity any more, or, of a short block
    /// without any, a copy leaves.
    pub(crate) fn insist(&mut self, id: FragmentId) {
        if self.redundancy.left_bytes > 0 {
            self.redundancy_is_urgent = true;
            return;
        }
        if self.is_short() {
            self.copies.push_back(id);
        }
    }

    /// No redundancy leaves with its data: only a retransmission makes up for what is lost. Of a block with a code that is known when it is cut.
    pub(crate) fn is_bare(&self) -> bool {
        match self.mode.codes() {
            true => {
                self.is_split() && (!self.redundancy_is_urgent || self.fragment_counts().1 == 0)
            }
            false => self.mode != Mode::Duplicate,
        }
    }

    /// Few fragments, of which copies cost little.
    pub(crate) fn is_short(&self) -> bool {
        let fragments = |code: &Code| usize::from(code.data_count);
        self.codes.iter().map(fragments).sum::<usize>() <= SHORT_BLOCK
    }

    /// More of each code is under way or has arrived than the receiver needs.
    pub(crate) fn is_insured(&self) -> bool {
        let is_insured = |code: &Code| code.acked + code.in_flight > usize::from(code.data_count);
        self.codes.iter().all(is_insured)
    }

    fn advance_redundancy(&mut self) {
        let Some(code) = self.codes.get(self.redundancy.code) else {
            return;
        };
        self.redundancy.left_bytes = self
            .redundancy
            .left_bytes
            .saturating_sub(code.fragment_length);
        self.redundancy.index += 1;
        self.pass_needless_redundancy();
    }

    /// Goes on to the next code that has redundancy left and needs it still: the first may have none where a longer one has.
    fn pass_needless_redundancy(&mut self) {
        let next = &mut self.redundancy;
        while let Some(code) = self.codes.get(next.code) {
            let left = usize::from(code.redundancy_count).saturating_sub(next.index);
            if left > 0 && !code.is_complete() {
                break;
            }
            next.left_bytes = next.left_bytes.saturating_sub(left * code.fragment_length);
            next.code += 1;
            next.index = 0;
        }
    }

    /// A copy of a fragment arrived. True when with it the whole block has.
    pub(crate) fn on_acked(&mut self, id: FragmentId, was_given_up: bool) -> bool {
        if id.cut != self.cut {
            return false;
        }
        if let Some(code) = self.codes.get_mut(usize::from(id.code))
            && let Some(state) = code.fragments.get_mut(usize::from(id.index))
            && !state.acked
        {
            state.acked = true;
            code.acked += 1;
            if state.in_flight > 0 {
                code.in_flight = code.in_flight.saturating_sub(1);
            }
            if !was_given_up {
                state.in_flight = state.in_flight.saturating_sub(1);
            }
        }
        if !self.retransmit.is_empty() {
            self.forget_needless(id);
        }
        self.pass_needless_redundancy();
        !self.codes.is_empty() && self.codes.iter().all(Code::is_complete)
    }

    /// A code has arrived, and not by its data alone.
    pub(crate) fn needed_redundancy(&self) -> bool {
        let needed = |code: &Code| {
            let mut data = code.fragments.iter().take(code.data_count.into());
            code.is_complete() && data.any(|state| !state.acked)
        };
        self.codes.iter().any(needed)
    }

    /// A copy of a fragment was lost (or its path fell silent). True when a retransmission was queued.
    pub(crate) fn on_lost(&mut self, id: FragmentId) -> bool {
        self.any_lost = true;
        if id.cut != self.cut {
            return false;
        }
        let retransmits = self.mode.retransmits();
        let urgent = self.redundancy_is_urgent;
        let Some(code) = self.codes.get_mut(usize::from(id.code)) else {
            return false;
        };
        // Redundancy that leaves with the data stands in for what was lost; a retransmission is sooner than one that waits
        // for spare capacity.
        let hopeful = code.hopeful() - if urgent { 0 } else { code.unsent_redundancy };
        let Some(state) = code.fragments.get_mut(usize::from(id.index)) else {
            return false;
        };
        let was_in_flight = state.in_flight > 0;
        state.in_flight = state.in_flight.saturating_sub(1);
        if state.acked || state.in_flight > 0 || !was_in_flight {
            return false;
        }
        code.in_flight = code.in_flight.saturating_sub(1);
        if state.queued || !retransmits || hopeful > usize::from(code.data_count) {
            return false;
        }
        state.queued = true;
        // Lost fragments return to the head of their own block (MPDTP).
        self.retransmit.push_back(id);
        true
    }

    /// Queues again what has left and has not been heard of by now, though it was `due`, or was lost, as far as it is needed. Redundancy
    /// that waits for spare capacity may never leave. Nothing is declared lost.
    pub(crate) fn insure(&mut self, now: Instant, due: impl Fn(&LastSent) -> Instant) {
        let urgent = self.redundancy_is_urgent;
        for (code_index, code) in self.codes.iter_mut().enumerate() {
            let leaves_by_itself = |index: usize| urgent || index < usize::from(code.data_count);
            let sound = |index: usize, state: &FragmentState| {
                let may_come = match &state.last {
                    Some(last) => state.in_flight > 0 && due(last) > now,
                    None => leaves_by_itself(index),
                };
                state.acked || state.queued || may_come
            };
            let states = code.fragments.iter().enumerate();
            let hoped = states.filter(|(index, state)| sound(*index, state)).count();
            let missing = usize::from(code.data_count).saturating_sub(hoped);
            let states = code.fragments.iter().enumerate();
            let again =
                states.filter(|(index, state)| state.last.is_some() && !sound(*index, state));
            let again: Vec<usize> = again.map(|(index, _)| index).take(missing).collect();
            for index in again {
                if let (Some(state), Ok(index), Ok(code)) = (
                    code.fragments.get_mut(index),
                    u8::try_from(index),
                    u8::try_from(code_index),
                ) {
                    state.queued = true;
                    let cut = self.cut;
                    self.retransmit.push_back(FragmentId { cut, code, index });
                }
            }
        }
    }

    /// When the next of the fragments that have left and wait for their acknowledgement becomes [doubtful](LastSent::doubtful_at) after `now`.
    pub(crate) fn next_doubtful(&self, now: Instant) -> Option<Instant> {
        let open = self.codes.iter().filter(|code| !code.is_complete());
        let states = open.flat_map(|code| code.fragments.iter());
        let waiting = states.filter(|state| state.in_flight > 0 && !state.acked && !state.queued);
        let at = waiting.filter_map(|state| Some(state.last?.doubtful_at));
        at.filter(|at| *at > now).min()
    }

    /// Bytes that must be sent again if all that is under way is lost: of codes that are not complete, what these lack at the most.
    pub(crate) fn bytes_at_risk(&self) -> usize {
        let codes = self.codes.iter().filter(|code| !code.is_complete());
        let at_risk = codes.map(|code| {
            let missing = usize::from(code.data_count) - code.acked;
            code.in_flight.min(missing) * code.fragment_length
        });
        at_risk.sum()
    }

    /// Bytes of fragments that have left and of which nothing is known.
    pub(crate) fn bytes_in_flight(&self) -> usize {
        let codes = self.codes.iter();
        codes
            .map(|code| code.in_flight * code.fragment_length)
            .sum()
    }

    /// Bytes of each fragment of the first code, once the block is cut.
    pub(crate) fn fragment_length(&self) -> Option<usize> {
        self.codes.first().map(|code| code.fragment_length)
    }

    /// Bytes of the largest fragment, once the block is cut.
    pub(crate) fn largest_fragment(&self) -> Option<usize> {
        (self.largest_fragment > 0).then_some(self.largest_fragment)
    }

    /// How many fragments of data and of redundancy it was cut into.
    pub(crate) fn fragment_counts(&self) -> (usize, usize) {
        self.codes.iter().fold((0, 0), |(data, redundancy), code| {
            (
                data + usize::from(code.data_count),
                redundancy + usize::from(code.redundancy_count),
            )
        })
    }

    /// A fragment as it is written, of a block born at `born_micros` of our clock, its payload without padding, and the length to pad that to.
    pub(crate) fn fragment(
        &self,
        id: FragmentId,
        born_micros: u32,
    ) -> Option<(Fragment<&[u8]>, usize)> {
        let code = self.codes.get(usize::from(id.code))?;
        let payload = if id.index < code.data_count {
            self.data.get(code.payload_range(id.index))?
        } else {
            code.redundancy
                .get(usize::from(id.index - code.data_count))?
        };
        let padding = usize::from(code.data_count) * code.fragment_length - code.length;
        let (stream, number) = self.key;
        let fragment = Fragment {
            stream,
            block: BlockId(wrap(number)),
            born_micros,
            code: id.code,
            last_code: u8::try_from(self.codes.len().checked_sub(1)?).ok()?,
            index: id.index,
            data_count: code.data_count,
            redundancy_count: code.redundancy_count,
            padding: u8::try_from(padding).ok()?,
            payload,
        };
        Some((fragment, code.fragment_length))
    }

    fn state(&self, id: FragmentId) -> Option<&FragmentState> {
        self.codes
            .get(usize::from(id.code))?
            .fragments
            .get(usize::from(id.index))
    }
}

impl Cursor {
    fn id(self, cut: u8) -> Option<FragmentId> {
        Some(FragmentId {
            cut,
            code: u8::try_from(self.code).ok()?,
            index: u8::try_from(self.index).ok()?,
        })
    }
}

impl Code {
    fn new(cut: &starhaul_fec::Code, redundancy_count: u8) -> Self {
        let total = usize::from(cut.data_count) + usize::from(redundancy_count);
        Self {
            start: cut.offset,
            length: cut.len,
            fragment_length: cut.fragment_len,
            data_count: cut.data_count,
            redundancy_count,
            redundancy: Vec::new(),
            fragments: Few::repeated(FragmentState::default(), total),
            acked: 0,
            in_flight: 0,
            unsent: usize::from(cut.data_count),
            unsent_redundancy: usize::from(redundancy_count),
        }
    }

    fn is_complete(&self) -> bool {
        self.acked >= usize::from(self.data_count)
    }

    /// Fragments that have arrived or still may, each once.
    fn hopeful(&self) -> usize {
        let may_come = |state: &&FragmentState| state.acked || state.queued || state.in_flight > 0;
        self.fragments.iter().filter(may_come).count() + self.unsent + self.unsent_redundancy
    }

    fn payload_range(&self, index: u8) -> std::ops::Range<usize> {
        let from = (usize::from(index) * self.fragment_length).min(self.length);
        let to = (from + self.fragment_length).min(self.length);
        self.start + from..self.start + to
    }

    fn payload_length(&self, index: u8) -> usize {
        self.payload_range(index).len()
    }

    fn data_fragments(&self, data: &Bytes) -> Vec<Bytes> {
        (0..self.data_count)
            .map(|index| {
                let payload = data.slice(self.payload_range(index));
                if payload.len() == self.fragment_length {
                    return payload;
                }
                let mut padded = payload.to_vec();
                padded.resize(self.fragment_length, 0);
                padded.into()
            })
            .collect()
    }
}
