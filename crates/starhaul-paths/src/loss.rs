//! Loss of a path: its rate, the greatest share in a moving window (which sets the coding rate in DMTP §V) and the mean
//! burst length (for Gilbert–Elliott). Takes datagrams in the order of sending and counts them in buckets, so that a
//! loss that proves to be reordering can be taken back.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::ledger::Settled;

/// The loss of a path, as shares of datagrams from 0.0 to 1.0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Share lost over the last ten seconds, or the last 500 or so datagrams if they span more, of which those older than two minutes count
    /// less and less.
    pub rate: f64,
    /// Greatest share lost within any bucket (at least 64 datagrams and 100 ms) of the last four seconds, or of the
    /// last two buckets if they span more.
    pub window_max: f64,
    /// Mean number of datagrams lost in a row, at least 1.
    pub burst_length: f64,
}

impl Loss {
    /// The share to protect data against: a path that loses 1 % loses none of a few buckets of 64 now and then, and is no better for it.
    pub fn feared(&self) -> f64 {
        self.window_max.max(self.rate)
    }

    /// How many times as many are lost in a row as would be if each were lost by itself, which is 1 / (1 − the share lost); at least 1.
    pub fn beyond_chance(&self) -> f64 {
        (self.burst_length * (1.0 - self.rate)).max(1.0)
    }
}

/// A smaller bucket would make a single loss a large share.
const BUCKET_DATAGRAMS: u32 = 64;
const BUCKET_TIME: Duration = Duration::from_millis(100);
const RATE_WINDOW: Duration = Duration::from_secs(10);
const RATE_BUCKETS: usize = 8;
/// Buckets older than this count less and less, half after each [`HALF_LIFE`]: a path that carries next to nothing, as it lost much, is
/// judged by what its few datagrams tell of it now.
const FULL_AGE: Duration = Duration::from_secs(120);
const HALF_LIFE: Duration = Duration::from_secs(30);
const MAX_WINDOW: Duration = Duration::from_secs(4);
const MAX_BUCKETS: usize = 2;
/// Below this many datagrams the rate is taken as if this many had been sent.
const RATE_FLOOR_DATAGRAMS: u32 = 16;
/// A run of losses longer than this, and longer in time than the path's RTT, is an outage.
const OUTAGE_DATAGRAMS: u32 = 8;
const BURST_GAIN: f64 = 1.0 / 64.0;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    first_sequence: u64,
    start: Instant,
    total: u32,
    lost: u32,
}

impl Bucket {
    /// The share lost, if it is not too small to tell one.
    fn full_share(&self) -> Option<f64> {
        (self.total >= BUCKET_DATAGRAMS).then(|| share(self.lost, self.total))
    }
}

/// Losses in a row that have not ended yet.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: Settled,
    /// The number of the last one: those of datagrams that want no acknowledgement lie between.
    last: u64,
    length: u32,
    /// How many of them were not taken back.
    lost: u32,
    outage: bool,
}

/// An outage counts as loss while it lasts and is forgotten when it ends: no redundancy on the path could have bridged
/// it, and a window that kept it would ask for the greatest redundancy long after.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossEstimator {
    buckets: VecDeque<Bucket>,
    run: Option<Run>,
    /// Decayed numbers of bursts and of losses within them, and when the last burst ended.
    bursts: f64,
    losses: f64,
    last_burst: Option<Instant>,
    /// When old buckets were halved last.
    halved: Option<Instant>,
    /// Datagrams of all buckets, and how many of them were lost: each decision of a scheduler asks for the loss of several paths.
    total: u32,
    lost: u32,
    /// Greatest share lost within a bucket of the window but the newest.
    closed_max: f64,
}

impl LossEstimator {
    /// Adds the next datagram in the order of sending. `outage_after` is about one RTT.
    pub(crate) fn add(&mut self, datagram: Settled, outage_after: Duration) {
        if datagram.lost {
            let run = self.run.get_or_insert(Run {
                first: datagram,
                last: datagram.sequence,
                length: 0,
                lost: 0,
                outage: false,
            });
            run.last = datagram.sequence;
            run.length = run.length.saturating_add(1);
            run.lost = run.lost.saturating_add(1);
            run.outage = run.length > OUTAGE_DATAGRAMS
                && datagram.sent.saturating_duration_since(run.first.sent) > outage_after;
            return;
        }
        if let Some(run) = self.run.take()
            && !(run.outage && run.lost > 0)
        {
            self.count(run.first, run.length, run.lost);
            if run.lost > 0 {
                self.age_bursts(datagram.sent);
                self.bursts += 1.0 - self.bursts * BURST_GAIN;
                self.losses += f64::from(run.lost) - self.losses * BURST_GAIN;
            }
        }
        self.count(datagram, 1, 0);
    }

    /// Adds so many more that arrived and left with `last`, which was added last and arrived; their numbers follow its number.
    pub(crate) fn add_alike(&mut self, last: Settled, mut more: u32) {
        let mut next = last.sequence + 1;
        while more > 0 {
            let Some(newest) = self.buckets.back_mut() else {
                return;
            };
            // It took `last`: its age is that of no old bucket.
            let room = match last.sent.saturating_duration_since(newest.start) < BUCKET_TIME {
                true => more,
                false => BUCKET_DATAGRAMS.saturating_sub(newest.total).min(more),
            };
            if room == 0 {
                let sequence = next;
                self.count(Settled { sequence, ..last }, 1, 0);
                (next, more) = (next + 1, more - 1);
                continue;
            }
            newest.total = newest.total.saturating_add(room);
            self.total = self.total.saturating_add(room);
            (next, more) = (next + u64::from(room), more - room);
        }
    }

    /// A datagram counted as lost has arrived.
    pub(crate) fn take_back(&mut self, sequence: u64) {
        if let Some(run) = &mut self.run
            && (run.first.sequence..=run.last).contains(&sequence)
        {
            run.lost = run.lost.saturating_sub(1);
            return;
        }
        let after = self
            .buckets
            .partition_point(|bucket| bucket.first_sequence <= sequence);
        if let Some(bucket) = after
            .checked_sub(1)
            .and_then(|index| self.buckets.get_mut(index))
            && bucket.lost > 0
        {
            bucket.lost -= 1;
            self.recount();
            // Its burst is no longer known: the mean length stays.
            let length = self.burst_length();
            self.losses = (self.losses - 1.0).max(0.0);
            self.bursts = self.losses / length;
        }
    }

    pub(crate) fn loss(&self) -> Loss {
        let open_lost = self.run.map_or(0, |run| run.lost);
        let (total, lost) = (
            self.total.saturating_add(open_lost),
            self.lost.saturating_add(open_lost),
        );
        Loss {
            rate: share(lost, total.max(RATE_FLOOR_DATAGRAMS)),
            window_max: self.window_max(open_lost),
            burst_length: self.burst_length(),
        }
    }

    /// Whether enough datagrams have been counted to tell a share.
    pub(crate) fn is_known(&self) -> bool {
        self.total >= BUCKET_DATAGRAMS
    }

    fn burst_length(&self) -> f64 {
        if self.bursts > 0.0 {
            (self.losses / self.bursts).max(1.0)
        } else {
            1.0
        }
    }

    fn window_max(&self, open_lost: u32) -> f64 {
        let Some(newest) = self.buckets.back() else {
            return share(open_lost, open_lost.max(BUCKET_DATAGRAMS));
        };
        let newest = newest.full_share().unwrap_or(0.0);
        self.closed_max
            .max(newest)
            .max(self.newest_share(open_lost))
    }

    /// Counts again, where more has changed than the newest bucket.
    fn recount(&mut self) {
        let sum = |count: fn(&Bucket) -> u32| {
            let counts = self.buckets.iter().map(count);
            counts.fold(0, u32::saturating_add)
        };
        (self.total, self.lost) = (sum(|bucket| bucket.total), sum(|bucket| bucket.lost));
        let mut buckets = self.buckets.iter().rev();
        let newest = buckets.next().map(|bucket| bucket.start);
        let recent = buckets.enumerate().filter(|(index, bucket)| {
            let age = newest.map(|newest| newest.saturating_duration_since(bucket.start));
            index + 1 < MAX_BUCKETS || age.is_some_and(|age| age < MAX_WINDOW)
        });
        let shares = recent.filter_map(|(_, bucket)| bucket.full_share());
        self.closed_max = shares.fold(0.0, f64::max);
    }

    /// Share of the newest bucket, extended by the one before it while it is small.
    fn newest_share(&self, open_lost: u32) -> f64 {
        let (mut total, mut lost) = (open_lost, open_lost);
        for bucket in self.buckets.iter().rev().take(2) {
            if total < BUCKET_DATAGRAMS {
                total = total.saturating_add(bucket.total);
                lost = lost.saturating_add(bucket.lost);
            }
        }
        share(lost, total.max(BUCKET_DATAGRAMS))
    }

    fn count(&mut self, first: Settled, total: u32, lost: u32) {
        let open = self.buckets.back_mut().filter(|bucket| {
            let age = first.sent.saturating_duration_since(bucket.start);
            age < FULL_AGE && (bucket.total < BUCKET_DATAGRAMS || age < BUCKET_TIME)
        });
        let mut has_changed = open.is_none();
        match open {
            Some(bucket) => {
                bucket.total = bucket.total.saturating_add(total);
                bucket.lost = bucket.lost.saturating_add(lost);
                self.total = self.total.saturating_add(total);
                self.lost = self.lost.saturating_add(lost);
            }
            None => self.buckets.push_back(Bucket {
                first_sequence: first.sequence,
                start: first.sent,
                total,
                lost,
            }),
        }
        has_changed |= self.age_buckets(first.sent);
        while self.buckets.len() > RATE_BUCKETS
            && let Some(oldest) = self.buckets.front()
            && first.sent.saturating_duration_since(oldest.start) > RATE_WINDOW
        {
            self.buckets.pop_front();
            has_changed = true;
        }
        if has_changed {
            self.recount();
        }
    }
}

impl LossEstimator {
    /// Bursts of long ago say less of the next than late ones do, however few those are.
    fn age_bursts(&mut self, now: Instant) {
        if let Some(last) = self.last_burst.replace(now) {
            let age = now.saturating_duration_since(last).as_secs_f64();
            let kept = (-age / HALF_LIFE.as_secs_f64()).exp2();
            self.bursts *= kept;
            self.losses *= kept;
        }
    }

    /// Whether buckets may have been halved.
    fn age_buckets(&mut self, now: Instant) -> bool {
        let halved = *self.halved.get_or_insert(now);
        if now.saturating_duration_since(halved) < HALF_LIFE {
            return false;
        }
        self.halved = Some(now);
        self.buckets.retain_mut(|bucket| {
            if now.saturating_duration_since(bucket.start) >= FULL_AGE {
                bucket.total /= 2;
                bucket.lost /= 2;
            }
            bucket.total > 0
        });
        true
    }
}

fn share(lost: u32, total: u32) -> f64 {
    f64::from(lost) / f64::from(total.max(1))
}

#[cfg(test)]
mod tests;
