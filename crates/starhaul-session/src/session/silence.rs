//! What left over a path that fell silent leaves over others when it can wait no longer.
//!
//! A row of losses looks like silence until the next acknowledgement, and what leaves again meanwhile leaves twice.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use starhaul_paths::PathId;
use starhaul_units::Bandwidth;

use super::Session;
use crate::{
    facts::Fact,
    item::{BlockKey, Item},
    paths::{LAST_RESORT, Paths},
    rules::{EPSILON, LAST_CHANCE_MARGIN},
    send::BlocksOut,
    types::StreamId,
};

/// Silent paths with fragments that can still wait.
#[derive(Debug, Default)]
pub(super) struct Silent(Vec<(Instant, PathId)>);

impl Silent {
    /// When the first of the fragments can wait no longer.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.iter().map(|(at, _)| *at).min()
    }

    /// Something of this path can wait until then.
    fn wait(&mut self, at: Instant, path: PathId) {
        self.0.push((at, path));
    }

    /// Nothing waits for this path, or anew.
    fn forget(&mut self, path: PathId) {
        self.0.retain(|(_, other)| *other != path);
    }

    fn take_due(&mut self, now: Instant) -> Vec<PathId> {
        let due = self.0.extract_if(.., |(at, _)| *at <= now);
        due.map(|(_, path)| path).collect()
    }
}

impl Session {
    /// A path may be heard again after all were silent.
    pub(super) fn on_heard_again(&mut self) {
        if self.paths.awaits_another() {
            self.find_silent_paths();
        }
    }

    pub(super) fn find_silent_paths(&mut self) {
        let now = self.clocks.now();
        let silence = self.paths.find_silent(now);
        for path in silence.fallen {
            self.observers.note(now, || Fact::PathSilent { path });
        }
        for id in self.silent.take_due(now) {
            if !self.paths.is_silent(id) || silence.released.contains(&id) {
                continue;
            }
            match self.paths.all_silent() {
                true => self.paths.release_when_another_is_heard(id),
                false => self.release_fragments(id),
            }
        }
        if silence.released.is_empty() {
            return;
        }
        for id in silence.released {
            self.release_others(id);
            self.release_fragments(id);
        }
        self.blocks_out.on_silence(now, &self.paths);
    }

    /// All but fragments of blocks leaves again at once. Over the last resort bytes wait a little longer: see `rules::takes_frame`.
    fn release_others(&mut self, id: PathId) {
        let is_last_resort = |cost: f64| cost >= LAST_RESORT;
        let is_dear = self
            .paths
            .usable()
            .all(|(_, path)| is_last_resort(path.monitor.cost()));
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        let waits = is_dear && !is_last_resort(path.monitor.cost());
        let released = path.monitor.release_where(|_, item| match item {
            Item::Fragment { .. } => false,
            Item::Frame { stream, .. } => !waits || stream == StreamId::CONTROL,
            _ => true,
        });
        for fated in released {
            self.on_datagram_lost(id, &fated);
        }
    }

    /// Gives up the fragments that would be late if they left over others when they are overdue. Where the others lose nothing they do at the last
    /// moment at which they are not late, and the next of these moments is waited for; else at once, since more than one attempt is needed.
    fn release_fragments(&mut self, id: PathId) {
        let now = self.clocks.now();
        self.silent.forget(id);
        let Some(under_way) = UnderWay::of(now, &self.paths, &self.blocks_out, id) else {
            return;
        };
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        let mut next: Option<Instant> = None;
        let released = path.monitor.release_where(|overdue_at, item| {
            let Item::Fragment { block, .. } = item else {
                return false;
            };
            let leaves_at = under_way.leaves_at(now, block, overdue_at);
            let waits = leaves_at.filter(|at| *at > now);
            next = [next, waits].into_iter().flatten().min();
            leaves_at.is_some() && waits.is_none()
        });
        if let Some(next) = next {
            self.silent.wait(next, id);
        }
        for fated in released {
            self.on_datagram_lost(id, &fated);
        }
    }
}

/// The fragments that are under way over a silent path, and what the others would make of them.
struct UnderWay {
    blocks: BTreeMap<BlockKey, Waiting>,
    /// In what time something small arrives over the others, with a margin.
    soonest: Duration,
    /// The rates of the silent path, and of the others together.
    rates: [Bandwidth; 2],
    /// The others lose nothing.
    are_sure: bool,
}

/// What is under way of one block.
struct Waiting {
    deadline: Instant,
    bytes: u64,
    /// The same with that of blocks that are due before.
    all_bytes: u64,
}

impl UnderWay {
    fn of(now: Instant, paths: &Paths, blocks: &BlocksOut, id: PathId) -> Option<Self> {
        let path = paths.get(id)?;
        let mut found: BTreeMap<(Instant, BlockKey), u64> = BTreeMap::new();
        for item in path.monitor.under_way() {
            if let Item::Fragment { block: key, .. } = item
                && let Some(block) = blocks.get(key)
            {
                let bytes = found.entry((block.deadline, key)).or_default();
                *bytes += block.largest_fragment().unwrap_or(0) as u64;
            }
        }
        let mut all_bytes = 0;
        let blocks = found.into_iter().map(|((deadline, key), bytes)| {
            all_bytes += bytes;
            let waiting = Waiting {
                deadline,
                bytes,
                all_bytes,
            };
            (key, waiting)
        });
        Some(Self {
            blocks: blocks.collect(),
            soonest: paths.soonest(now).saturating_add(LAST_CHANCE_MARGIN),
            rates: [path.monitor.bandwidth(), paths.bandwidth()],
            are_sure: paths
                .usable()
                .all(|(_, path)| path.monitor.loss().feared() <= EPSILON),
        })
    }

    /// When a fragment leaves over the others, if it would be late when it is overdue.
    fn leaves_at(&self, now: Instant, block: BlockKey, overdue_at: Instant) -> Option<Instant> {
        let waiting = self.blocks.get(&block)?;
        let [from, over] = self.rates;
        let before_deadline = |needed: Duration| waiting.deadline.checked_sub(needed);
        if self.are_sure {
            // All that is due before leaves before it.
            let needed = self
                .soonest
                .saturating_add(over.time_to_send(waiting.all_bytes));
            let last = before_deadline(needed).map_or(now, |last| last.max(now));
            return (last < overdue_at).then_some(last);
        }
        // The rest of its block becomes overdue as fast as it left.
        let longer = over.time_to_send(waiting.bytes);
        let longer = longer.saturating_sub(from.time_to_send(waiting.bytes));
        let last = before_deadline(self.soonest.saturating_add(longer));
        last.is_none_or(|last| last < overdue_at).then_some(now)
    }
}
