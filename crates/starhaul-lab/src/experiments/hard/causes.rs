//! What was decided about each block: gathered from the session's facts, told of those that failed. Which did, their receiver says: what the
//! sender knows of the receiver's clock may be wrong by half of a queue.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use starhaul_demo::{
    load::{Class, Classes},
    score::ClassLog,
};
use starhaul_session::{BlockId, Fact, Observer, Outcome, PathId, Purpose, StreamId};

use super::departures::Departures;

/// Decisions that are told of one block.
const MOST_TOLD: usize = 12;

/// A block that did not arrive in time.
#[derive(Clone, Debug)]
pub struct LostBlock {
    /// Class of the block.
    pub class: Class,
    /// When it was handed over, from the start of the run.
    pub queued_at: Duration,
    outcome: Outcome,
    /// How long it took, if it arrived.
    latency: Option<Duration>,
    steps: Vec<(Duration, Step)>,
    departures: Departures,
}

/// Something that became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Sent(PathId, Purpose),
    Lost(PathId),
    Silent(PathId),
}

/// A block from its beginning.
#[derive(Clone, Debug)]
struct Story {
    queued: Instant,
    steps: Vec<(Duration, Step)>,
    departures: Departures,
}

/// All blocks under way, and those that have ended.
#[derive(Debug, Default)]
struct Log {
    blocks: BTreeMap<(StreamId, BlockId), Story>,
    ended: Vec<(StreamId, Outcome, Story)>,
}

impl Story {
    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.queued)
    }

    fn add(&mut self, now: Instant, step: Step) {
        self.steps.push((self.age(now), step));
    }
}

/// Observes a sender.
#[derive(Clone, Debug, Default)]
pub(super) struct Causes(Arc<Mutex<Log>>);

impl Observer for Causes {
    fn on_fact(&mut self, now: Instant, fact: &Fact<'_>) {
        let mut log = self.0.lock();
        log.on_fact(now, fact);
    }
}

impl Log {
    fn on_fact(&mut self, now: Instant, fact: &Fact<'_>) {
        match fact {
            Fact::BlockQueued { stream, block, .. } => {
                let story = Story {
                    queued: now,
                    steps: Vec::new(),
                    departures: Departures::default(),
                };
                self.blocks.insert((*stream, *block), story);
            }
            Fact::FragmentSent {
                stream,
                block,
                fragment,
                datagram,
                purpose,
                arrivals,
            } => {
                if let Some(story) = self.blocks.get_mut(&(*stream, *block)) {
                    story.add(now, Step::Sent(datagram.path, *purpose));
                    let at = story.age(now);
                    story
                        .departures
                        .add(at, *fragment, *datagram, *purpose, arrivals);
                }
            }
            Fact::DatagramLost {
                datagram,
                stream: Some(stream),
                block: Some(block),
            } => {
                if let Some(story) = self.blocks.get_mut(&(*stream, *block)) {
                    story.add(now, Step::Lost(datagram.path));
                    story.departures.lose(*datagram);
                }
            }
            Fact::PathSilent { path } => {
                for story in self.blocks.values_mut() {
                    story.add(now, Step::Silent(*path));
                }
            }
            Fact::BlockEnded {
                stream,
                block,
                outcome,
            } => {
                let ended = self.blocks.remove(&(*stream, *block));
                if let Some(story) = ended {
                    self.ended.push((*stream, *outcome, story));
                }
            }
            _ => {}
        }
    }
}

impl Causes {
    /// The blocks that failed, of the streams that `class_of` knows. Times in `logs` count from `start`.
    pub(super) fn lost(
        &self,
        start: Instant,
        class_of: impl Fn(StreamId) -> Option<Class>,
        logs: &Classes<ClassLog>,
    ) -> Vec<LostBlock> {
        let log = self.0.lock();
        let ended = log.ended.iter();
        let lost = ended.filter_map(|(stream, outcome, story)| {
            let class = class_of(*stream)?;
            let queued_at = story.queued.saturating_duration_since(start);
            let latency = latency(logs.of(class), queued_at);
            let is_late = latency.is_none_or(|latency| latency > class.deadline());
            is_late.then(|| LostBlock {
                class,
                queued_at,
                outcome: *outcome,
                latency,
                steps: story.steps.clone(),
                departures: story.departures.clone(),
            })
        });
        lost.collect()
    }
}

/// How long the block took that was sent then, if it arrived.
fn latency(log: &ClassLog, sent_at: Duration) -> Option<Duration> {
    let next = log
        .blocks()
        .partition_point(|block| block.sent_at < sent_at);
    let near = log.blocks().get(next.saturating_sub(1)..)?.iter().take(2);
    let block = near.min_by_key(|block| block.sent_at.abs_diff(sent_at))?;
    block.latency
}

impl LostBlock {
    pub(super) fn outcome(&self) -> String {
        if let Some(latency) = self.latency {
            return format!("late: {latency:.0?}");
        }
        match self.outcome {
            Outcome::Delivered { .. } => "acknowledged".to_owned(),
            Outcome::Expired(cause) => format!("expired: {cause:?}").to_lowercase(),
            Outcome::Cancelled { .. } => "cancelled".to_owned(),
            Outcome::Failed => "failed".to_owned(),
        }
    }

    /// The decision that lost it: what left last of what did not arrive in time, and when it was expected over each path. Of a block that was
    /// cancelled it is none of its own, whatever had left of it.
    pub fn lost_by(&self) -> String {
        match (self.outcome, self.departures.decision()) {
            (Outcome::Cancelled { .. }, _) => "what it depends on had failed".to_owned(),
            (_, Some(decision)) => decision,
            (_, None) => "no path took any of it in time".to_owned(),
        }
    }

    /// Its decisions in order: how many fragments left on which path for what purpose, from when to when, and what was lost.
    pub(super) fn decisions(&self) -> String {
        let mut runs: Vec<(Duration, Duration, Step, u32)> = Vec::new();
        for (at, step) in &self.steps {
            match runs.last_mut().filter(|(.., last, _)| last == step) {
                Some((_, until, _, count)) => {
                    *until = *at;
                    *count += 1;
                }
                None => runs.push((*at, *at, *step, 1)),
            }
        }
        let told = runs
            .iter()
            .take(MOST_TOLD)
            .map(|(from, until, step, count)| {
                let ms = |time: &Duration| time.as_millis();
                let when = match (ms(from), ms(until)) {
                    (from, until) if from == until => format!("{from} ms"),
                    (from, until) => format!("{from}-{until} ms"),
                };
                match step {
                    Step::Sent(path, purpose) => {
                        format!("{when}: {count} {} on {}", purpose.name(), path.0)
                    }
                    Step::Lost(path) => format!("{when}: {count} lost on {}", path.0),
                    Step::Silent(path) => format!("{when}: {} silent", path.0),
                }
            });
        let mut told: Vec<String> = told.collect();
        if runs.len() > MOST_TOLD {
            told.push(format!("{} more", runs.len() - MOST_TOLD));
        }
        told.join("; ")
    }
}
