//! Whether two paths share a bottleneck: what RFC 8382 asks, answered for the two paths of one sender, where more is known. Packets that
//! left at one time wait in a common queue for equally long, so that the round trips of both paths vary by the same number of milliseconds,
//! while queues apart from each other may at most look alike. It is a hint: nothing is decided by it.
//!
//! - Round trips need no common clock. Their least within a bin leaves out what hosts, radio links and delayed acknowledgements add.
//! - Lin's concordance without its offset, 1 − Var(a − b) / (Var(a) + Var(b)), tells equal variations from those that are only correlated.
//! - Alike are also queues that one load fills in the same rhythm, or that a controller probes with the same period. These are as much alike
//!   some seconds later, so that a common queue must show that it is more so at the same time. It must do so in both halves of the window: one
//!   event may be chance.

use std::{
    collections::VecDeque,
    fmt,
    time::{Duration, Instant},
};

/// Histories of two paths begin at different times, so that their slots, parts of a bin, are a little apart.
const SLOT_MICROS: i64 = 50_000;
const BIN_MICROS: i64 = 4 * SLOT_MICROS;
/// Half a minute.
const BINS: usize = 150;
const KEPT_SLOTS: u32 = 600;
/// So many bins must be known of both paths, 60 % of the window and of each of its halves; of the comparison with other times, 40 %.
const LEAST_PAIRS: usize = 90;
const LEAST_OTHER_PAIRS: usize = 60;
/// Round trips that vary by less, as standard deviation, show no queue.
const LEAST_SPREAD_MS: f64 = 4.0;
/// So much alike are paths with a common queue in each half of the window …
const ALIKE: f64 = 0.8;
/// … and by so much less at any other time.
const LESS_AT_OTHER_TIMES: f64 = 0.25;
/// Paths apart are less alike.
const APART: f64 = 0.5;
/// The queue may be behind ways of different lengths: what waits in it together left by at most so many bins apart.
const MOST_LAG: i32 = 5;
/// Other times are these bins away: longer than most queues stay full, and the third of the window.
const OTHER_TIMES: std::ops::RangeInclusive<i32> = 5..=50;

/// Least round trips of a path over the last half minute, by the time at which the packets left: what [`RttHistory::sharing`] compares.
/// Some 5 kB of a path in use.
///
/// ```
/// use std::time::{Duration, Instant};
/// use starhaul_paths::{RttHistory, Sharing};
///
/// let start = Instant::now();
/// let mut paths = [(); 2].map(|()| RttHistory::new(start));
/// for tick in 0..3000_u32 {
///     // A queue that other traffic fills at times.
///     let queue = if (tick / 40 + 1).pow(3) % 97 % 2 == 0 { 40 } else { 5 };
///     for (path, way) in paths.iter_mut().zip([30, 50]) {
///         let sent = start + tick * Duration::from_millis(10);
///         path.add(sent, Duration::from_millis(way + queue));
///     }
/// }
/// assert_eq!(paths[0].sharing(&paths[1]), Sharing::Common);
/// ```
#[derive(Clone)]
pub struct RttHistory {
    epoch: Instant,
    slots: VecDeque<Slot>,
}

impl fmt::Debug for RttHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RttHistory")
            .field("slots", &self.slots.len())
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Counted from the epoch.
    number: u32,
    least_micros: u32,
}

/// What two histories say of the paths' bottleneck, in either direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Too little was carried, or waited in queues, to tell.
    Unknown,
    /// Each has its own.
    Apart,
    /// They seem to share one.
    Common,
}

impl RttHistory {
    /// The history of a path that begins at `epoch`.
    pub const fn new(epoch: Instant) -> Self {
        Self {
            epoch,
            slots: VecDeque::new(),
        }
    }

    /// A packet that left at `sent` was acknowledged over the path itself after `rtt`. One that left before others that have been
    /// acknowledged already is not needed.
    pub fn add(&mut self, sent: Instant, rtt: Duration) {
        let since = micros(sent.saturating_duration_since(self.epoch));
        let (Ok(number), Ok(rtt_micros)) = (
            u32::try_from(since / SLOT_MICROS),
            u32::try_from(rtt.as_micros()),
        ) else {
            return;
        };
        match self.slots.back_mut() {
            Some(newest) if newest.number > number => {}
            Some(newest) if newest.number == number => {
                newest.least_micros = newest.least_micros.min(rtt_micros);
            }
            _ => {
                self.slots.push_back(Slot {
                    number,
                    least_micros: rtt_micros,
                });
                let is_old = |oldest: &mut Slot| number - oldest.number >= KEPT_SLOTS;
                while self.slots.pop_front_if(is_old).is_some() {}
            }
        }
    }

    /// Whether the paths of both histories share a bottleneck, as far as it shows.
    pub fn sharing(&self, other: &Self) -> Sharing {
        let Some((ours, theirs)) = self.common_bins(other) else {
            return Sharing::Unknown;
        };
        // The nearer one's packets leave later for the same place in a queue behind both ways.
        let (near, far) = if ours.least() <= theirs.least() {
            (ours, theirs)
        } else {
            (theirs, ours)
        };
        compare(&near, &far)
    }

    /// The bins of both up to the last time of which both tell.
    fn common_bins(&self, other: &Self) -> Option<(Bins, Bins)> {
        let later = micros(other.epoch.saturating_duration_since(self.epoch))
            - micros(self.epoch.saturating_duration_since(other.epoch));
        let end = self.end()?.min(other.end()?.saturating_add(later));
        Some((self.bins(end), other.bins(end.saturating_sub(later))))
    }

    /// The end of the newest slot, in microseconds since the epoch.
    fn end(&self) -> Option<i64> {
        let newest = self.slots.back()?;
        Some((i64::from(newest.number) + 1) * SLOT_MICROS)
    }

    /// The window before `end`, in microseconds since the epoch.
    fn bins(&self, end: i64) -> Bins {
        let mut bins = Bins([None; BINS]);
        let start = end - BIN_MICROS * BINS as i64;
        for slot in &self.slots {
            let at = i64::from(slot.number) * SLOT_MICROS - start;
            let bin = usize::try_from(at.div_euclid(BIN_MICROS)).ok();
            if let Some(bin) = bin.and_then(|bin| bins.0.get_mut(bin)) {
                let rtt = f64::from(slot.least_micros) / 1e3;
                *bin = Some(bin.map_or(rtt, |least: f64| least.min(rtt)));
            }
        }
        bins
    }
}

/// At most 292 years, of which a quarter is left, so that sums of a few do not overflow.
fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).map_or(i64::MAX / 4, |micros| micros.min(i64::MAX / 4))
}

/// Round trips in milliseconds, oldest first.
struct Bins([Option<f64>; BINS]);

impl Bins {
    fn least(&self) -> f64 {
        self.0
            .iter()
            .flatten()
            .copied()
            .fold(f64::INFINITY, f64::min)
    }
}

/// How two series vary together.
#[derive(Clone, Copy)]
struct Likeness {
    pairs: usize,
    /// 1 where they vary by the same, 0 where they have nothing in common.
    alike: f64,
    /// Standard deviation in milliseconds, of the one that varies less.
    spread_ms: f64,
}

fn compare(near: &Bins, far: &Bins) -> Sharing {
    let whole = 0..BINS;
    let longer = ((far.least() - near.least()) * 1e3 / BIN_MICROS as f64).ceil();
    let lags = (0..=MOST_LAG).filter(|lag| f64::from(*lag) <= longer);
    let found = lags
        .map(|lag| (lag, likeness(near, far, lag, whole.clone())))
        .filter(|(_, likeness)| likeness.pairs >= LEAST_PAIRS)
        .max_by(|(_, one), (_, other)| one.alike.total_cmp(&other.alike));
    let Some((lag, best)) = found else {
        return Sharing::Unknown;
    };
    let halves = [0..BINS / 2, BINS / 2..BINS].map(|half| likeness(near, far, lag, half));
    let is_enough =
        |half: &Likeness| half.pairs >= LEAST_PAIRS / 2 && half.spread_ms >= LEAST_SPREAD_MS;
    if !halves.iter().all(is_enough) {
        return Sharing::Unknown;
    }
    if best.alike < APART {
        return Sharing::Apart;
    }
    if halves.iter().any(|half| half.alike < ALIKE) {
        return Sharing::Unknown;
    }
    let other_times = OTHER_TIMES.flat_map(|away| [lag - away, lag + away]);
    let at_other_times = other_times
        .map(|lag| likeness(near, far, lag, whole.clone()))
        .filter(|other| other.pairs >= LEAST_OTHER_PAIRS)
        .fold(0.0, |most, other| f64::max(most, other.alike));
    if best.alike - at_other_times < LESS_AT_OTHER_TIMES {
        return Sharing::Unknown;
    }
    Sharing::Common
}

/// Compares the bins `span` of the far path with those of the near one that are `lag` bins later.
fn likeness(near: &Bins, far: &Bins, lag: i32, span: std::ops::Range<usize>) -> Likeness {
    let later = |bin: usize| bin.checked_add_signed(isize::try_from(lag).ok()?);
    let pairs = span.filter_map(|bin| {
        let near = near.0.get(later(bin)?).copied().flatten()?;
        Some((near, far.0.get(bin).copied().flatten()?))
    });
    let (mut count, mut sums, mut squares, mut products) = (0, [0.0; 2], [0.0; 2], 0.0);
    for (near, far) in pairs {
        count += 1;
        sums = [sums[0] + near, sums[1] + far];
        squares = [squares[0] + near * near, squares[1] + far * far];
        products += near * far;
    }
    let number = f64::from(u32::try_from(count).unwrap_or(u32::MAX)).max(1.0);
    let variance = |at: usize| (squares[at] / number - (sums[at] / number).powi(2)).max(0.0);
    let covariance = products / number - sums[0] / number * (sums[1] / number);
    let both = variance(0) + variance(1);
    Likeness {
        pairs: count,
        alike: if both > 0.0 {
            2.0 * covariance / both
        } else {
            0.0
        },
        spread_ms: variance(0).min(variance(1)).sqrt(),
    }
}

#[cfg(test)]
mod tests;
