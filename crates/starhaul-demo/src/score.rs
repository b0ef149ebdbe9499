//! Counting blocks on time, late and lost, by the same rule for every system.
//!
//! A block is on time when it is whole within its class's deadline, counted from the application's sending to the
//! application's receiving. A P frame is judged by its own deadline alone, also when its I frame was late or lost: the
//! transport below decides what to do about the dependency, the score does not.

use std::time::Duration;

use serde::Serialize;

use crate::load::{Class, Classes};

/// For how long the applications listen at least after the last block: the longest deadline and one second more, so that what is
/// late is told from what is lost.
pub const LISTENING: Duration = Duration::from_secs(4);

/// What became of each block of one class: written by the sending and the receiving application.
#[derive(Clone, Debug)]
pub struct ClassLog {
    class: Class,
    blocks: Vec<BlockLog>,
    arrived: u64,
    on_time: u64,
    /// The deadlines of so many blocks, from the first on, have passed.
    due: usize,
    /// So many of those have not arrived.
    missing: u64,
}

/// How a class fares, for display.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Blocks that the application sent.
    pub sent: u64,
    /// Arrived whole within the deadline.
    pub on_time: u64,
}

/// One block: when it was sent, and its latency once it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLog {
    /// When the application sent it, counted from the start of the run.
    pub sent_at: Duration,
    /// From sending to whole arrival; `None` while it has not arrived.
    pub latency: Option<Duration>,
}

/// The result of one class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassScore {
    /// Blocks that the application sent.
    pub sent: u64,
    /// Arrived whole within the deadline.
    pub on_time: u64,
    /// Arrived whole, but after the deadline.
    pub late: u64,
    /// Not arrived whole when the application stopped listening.
    pub lost: u64,
    /// Median latency of the blocks that arrived, in ms; `None` when none did.
    pub p50_ms: Option<f64>,
    /// 95th percentile of the same.
    pub p95_ms: Option<f64>,
    /// 99th percentile of the same.
    pub p99_ms: Option<f64>,
}

impl ClassLog {
    /// An empty log.
    pub const fn new(class: Class) -> Self {
        Self {
            class,
            blocks: Vec::new(),
            arrived: 0,
            on_time: 0,
            due: 0,
            missing: 0,
        }
    }

    /// The class of the blocks.
    pub const fn class(&self) -> Class {
        self.class
    }

    /// A block was sent, `sent_at` after the start. Blocks are numbered in order of these calls.
    pub fn on_sent(&mut self, sent_at: Duration) {
        self.blocks.push(BlockLog {
            sent_at,
            latency: None,
        });
    }

    /// Block `sequence` arrived whole for the first time; repeats and blocks never sent are ignored.
    pub fn on_received(&mut self, sequence: u32, latency: Duration) {
        let number = sequence as usize;
        let block = self.blocks.get_mut(number);
        if let Some(block) = block.filter(|block| block.latency.is_none()) {
            block.latency = Some(latency);
            self.arrived += 1;
            self.on_time += u64::from(latency <= self.class.deadline());
            self.missing -= u64::from(number < self.due);
        }
    }

    /// Whether every block that was sent has arrived.
    pub const fn is_complete(&self) -> bool {
        self.arrived == self.blocks.len() as u64
    }

    /// All blocks in order of sending.
    pub fn blocks(&self) -> &[BlockLog] {
        &self.blocks
    }

    /// How many have come in time so far, `now` after the start: blocks still within their deadline are not counted as sent. It
    /// costs the blocks that became due since the last call, so that it may be asked at any time of a long run.
    pub fn so_far(&mut self, now: Duration) -> Tally {
        let deadline = self.class.deadline();
        while let Some(block) = self.blocks.get(self.due)
            && block.sent_at + deadline < now
        {
            self.missing += u64::from(block.latency.is_none());
            self.due += 1;
        }
        Tally {
            sent: self.arrived + self.missing,
            on_time: self.on_time,
        }
    }

    /// The score once everything that could arrive has arrived.
    pub fn score(&self) -> ClassScore {
        let arrived = self.blocks.iter().filter_map(|block| block.latency);
        let mut latencies: Vec<Duration> = arrived.collect();
        latencies.sort_unstable();
        let percentile = |percent| {
            percentile(&latencies, percent).map(|latency| round(latency.as_secs_f64() * 1e3, 10.0))
        };
        let sent = self.blocks.len() as u64;
        ClassScore {
            sent,
            on_time: self.on_time,
            late: self.arrived - self.on_time,
            lost: sent - self.arrived,
            p50_ms: percentile(50),
            p95_ms: percentile(95),
            p99_ms: percentile(99),
        }
    }
}

impl ClassScore {
    /// Blocks on time per block sent; 1 when none was sent.
    pub fn on_time_share(&self) -> f64 {
        self.tally().share()
    }

    /// What was sent, and what came in time.
    pub const fn tally(&self) -> Tally {
        Tally {
            sent: self.sent,
            on_time: self.on_time,
        }
    }
}

impl Tally {
    /// Blocks on time per block sent; 1 when none was sent.
    #[expect(clippy::cast_precision_loss, reason = "a share for display")]
    pub fn share(self) -> f64 {
        if self.sent == 0 {
            1.0
        } else {
            self.on_time as f64 / self.sent as f64
        }
    }
}

/// Σ over classes of blocks on time × weight {3, 2, 1}/3 (MPDTP's QoE), rounded to 0.01.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of blocks stay far below 2^53"
)]
pub fn qoe<'a>(scores: impl IntoIterator<Item = (Class, &'a ClassScore)>) -> f64 {
    let sum: f64 = scores
        .into_iter()
        .map(|(class, score)| score.on_time as f64 * class.weight())
        .sum();
    round(sum, 100.0)
}

/// A block that was not whole by then may still have been under way.
pub(crate) fn lost_means() -> String {
    format!(
        "Lost: not whole when the demo stopped listening, {} s or more after the last block.",
        LISTENING.as_secs()
    )
}

/// The nearest-rank percentile of sorted values.
pub fn percentile<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

fn round(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

impl Classes<ClassScore> {
    /// The QoE of these scores.
    pub fn qoe(&self) -> f64 {
        qoe(Class::ALL.map(|class| (class, self.of(class))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn late_lost_and_repeated_blocks_are_told_apart() {
        let mut log = ClassLog::new(Class::Text);
        for n in 0..4 {
            log.on_sent(ms(50 * n));
        }
        log.on_received(0, ms(800));
        log.on_received(1, ms(801));
        log.on_received(1, ms(10)); // A duplicate does not make a late block good.
        log.on_received(9, ms(10)); // Nor does a block that was never sent count.
        let score = log.score();
        assert_eq!(
            (score.sent, score.on_time, score.late, score.lost),
            (4, 1, 1, 2)
        );
        assert_eq!((score.p50_ms, score.p99_ms), (Some(800.0), Some(801.0)));
        // 850 ms after the start the block sent at 100 ms may still arrive in time.
        let tally = |sent| Tally { sent, on_time: 1 };
        assert_eq!(log.so_far(ms(850)), tally(2));
        assert_eq!(log.so_far(ms(901)), tally(3));
        assert!(!log.is_complete());
        // One that was missing comes late, another one in time.
        log.on_received(2, ms(900));
        assert_eq!(log.so_far(ms(901)), tally(3));
        log.on_received(3, ms(10));
        assert_eq!(
            log.so_far(ms(951)),
            Tally {
                sent: 4,
                on_time: 2
            }
        );
        assert!(log.is_complete());
        assert_eq!(ClassLog::new(Class::Video).score().p50_ms, None);
    }

    #[test]
    fn qoe_weighs_by_priority() {
        let mut logs = Class::ALL.map(ClassLog::new);
        for log in &mut logs {
            for sequence in 0..3 {
                log.on_sent(ms(0));
                log.on_received(sequence, ms(1));
            }
        }
        let scores = logs.each_ref().map(|log| (log.class(), log.score()));
        assert_eq!(
            qoe(scores.iter().map(|(class, score)| (*class, score))),
            6.0
        );
    }
}
