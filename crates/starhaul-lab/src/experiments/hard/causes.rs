//! What was decided about each block: gathered from the session's facts, kept for those that failed.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use starhaul_demo::load::Class;
use starhaul_session::{BlockId, Fact, Observer, Outcome, PathId, Purpose, StreamId};

/// Decisions that are told of one block.
const MOST_TOLD: usize = 12;

/// A block that did not arrive in time.
#[derive(Clone, Debug)]
pub struct LostBlock {
    /// Its class.
    pub class: Class,
    /// When it was handed over, from the start of the run.
    pub queued_at: Duration,
    outcome: Outcome,
    steps: Vec<(Duration, Step)>,
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
}

/// All blocks under way, and those that failed.
#[derive(Debug, Default)]
struct Log {
    blocks: BTreeMap<(StreamId, BlockId), Story>,
    failed: Vec<(StreamId, Outcome, Story)>,
}

impl Story {
    fn add(&mut self, now: Instant, step: Step) {
        let at = now.saturating_duration_since(self.queued);
        self.steps.push((at, step));
    }
}

/// Observes a sender.
#[derive(Clone, Debug, Default)]
pub(super) struct Causes(Arc<Mutex<Log>>);

impl Observer for Causes {
    fn on_fact(&mut self, now: Instant, fact: &Fact<'_>) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
                };
                self.blocks.insert((*stream, *block), story);
            }
            Fact::FragmentSent {
                stream,
                block,
                datagram,
                purpose,
                ..
            } => self.add(now, *stream, *block, Step::Sent(datagram.path, *purpose)),
            Fact::DatagramLost {
                datagram,
                stream: Some(stream),
                block: Some(block),
            } => self.add(now, *stream, *block, Step::Lost(datagram.path)),
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
                let is_on_time = matches!(outcome, Outcome::Delivered { on_time: true, .. });
                if let Some(story) = ended.filter(|_| !is_on_time) {
                    self.failed.push((*stream, *outcome, story));
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, now: Instant, stream: StreamId, block: BlockId, step: Step) {
        if let Some(story) = self.blocks.get_mut(&(stream, block)) {
            story.add(now, step);
        }
    }
}

impl Causes {
    /// The blocks that failed since `start`, of the streams that `class_of` knows.
    pub(super) fn lost(
        &self,
        start: Instant,
        class_of: impl Fn(StreamId) -> Option<Class>,
    ) -> Vec<LostBlock> {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = log.failed.iter();
        let lost = failed.filter_map(|(stream, outcome, story)| {
            Some(LostBlock {
                class: class_of(*stream)?,
                queued_at: story.queued.saturating_duration_since(start),
                outcome: *outcome,
                steps: story.steps.clone(),
            })
        });
        lost.collect()
    }
}

impl LostBlock {
    pub(super) fn outcome(&self) -> String {
        match self.outcome {
            Outcome::Delivered { latency, .. } => format!("late: {:.0?}", latency),
            Outcome::Expired(cause) => format!("expired: {cause:?}").to_lowercase(),
            Outcome::Cancelled { .. } => "cancelled".to_owned(),
            Outcome::Failed => "failed".to_owned(),
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
