//! One-way delay over time from the light flow, and its removal from arrivals: a trace gives departures from the
//! bottleneck, while a receiver sees them one delay later.

use std::time::Duration;

use starhaul_link::DelaySeries;

/// Step of a LeoReplayer delay file.
const GRID_US: i64 = 10_000;
const GRID: Duration = Duration::from_millis(10);

/// Whether the light flow waits in the same queue as the heavy one: whether its RTT grows by about the queue's length.
/// `queue_us` is the additional delay of heavy-flow packets over their least.
pub(crate) fn shares_queue(
    quiet_us: impl IntoIterator<Item = u32>,
    loaded_us: impl IntoIterator<Item = u32>,
    queue_us: i64,
) -> bool {
    /// Queues shorter than this do not matter.
    const LEAST_QUEUE_US: i64 = 3000;
    match (median(quiet_us), median(loaded_us)) {
        (Some(quiet), Some(loaded)) => {
            let growth = i64::from(loaded) - i64::from(quiet);
            growth > (queue_us / 2).max(LEAST_QUEUE_US)
        }
        // No packet arrived beside the heavy flow.
        _ => true,
    }
}

pub(crate) fn median<T: Ord + Copy>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
}

/// One-way delay on a grid, in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DelayCurve {
    begin_us: i64,
    cells_us: Vec<i64>,
}

impl DelayCurve {
    /// Creates the mean of the measured delays in each cell from about `begin_us` to `end_us`; a cell without a
    /// measurement takes that of the cell before. `points` are instants of departure and delays; at a steady interval
    /// of one step they lie in the middle of the cells. `None` without any point in the range.
    pub(crate) fn new(begin_us: i64, end_us: i64, points: &[(i64, i64)]) -> Option<Self> {
        let phase_us = phase(points.iter().map(|(at, _)| *at)) - GRID_US / 2;
        let begin_us = begin_us - (begin_us - phase_us).rem_euclid(GRID_US);
        let count = usize::try_from((end_us - begin_us).max(0) / GRID_US + 1).ok()?;
        let mut sums = vec![(0_i64, 0_i64); count];
        for (at, delay) in points {
            let cell = usize::try_from((at - begin_us).div_euclid(GRID_US)).ok();
            if let Some(sum) = cell.and_then(|cell| sums.get_mut(cell)) {
                *sum = (sum.0 + delay, sum.1 + 1);
            }
        }
        let first = sums.iter().find(|sum| sum.1 > 0)?;
        let mut last = first.0 / first.1;
        let cells = sums.iter().map(|(sum, count)| {
            if *count > 0 {
                last = sum / count;
            }
            last.max(0)
        });
        Some(Self {
            begin_us,
            cells_us: cells.collect(),
        })
    }

    /// The curve with each delay reduced by this much.
    pub(crate) fn shortened(mut self, by_us: i64) -> Self {
        for cell in &mut self.cells_us {
            *cell = (*cell - by_us).max(0);
        }
        self
    }

    /// The first start of a cell at or after `us`.
    pub(crate) fn next_step(&self, us: i64) -> i64 {
        us + (self.begin_us - us).rem_euclid(GRID_US)
    }

    /// The delay of a packet that leaves at this instant.
    pub(crate) fn at(&self, us: i64) -> i64 {
        let cell = usize::try_from((us - self.begin_us).div_euclid(GRID_US)).unwrap_or(0);
        let cell = cell.min(self.cells_us.len().saturating_sub(1));
        self.cells_us.get(cell).copied().unwrap_or(0)
    }

    /// The curve from `begin_us` on, as the series of a trace.
    pub(crate) fn series(&self, begin_us: i64, end_us: i64) -> Option<DelaySeries> {
        let begins = std::iter::successors(Some(begin_us), |at| Some(at + GRID_US));
        let steps = begins.take_while(|at| *at < end_us).map(|at| {
            // The middle of the step, in case the two grids differ.
            let delay = u64::try_from(self.at(at + GRID_US / 2)).unwrap_or(0);
            (GRID, Duration::from_micros(delay))
        });
        DelaySeries::from_steps(steps)
    }

    /// Converts arrivals to departures: the bytes of each millisecond from `begin_us` on. A link keeps the order, so
    /// packets that leave while the delay falls arrive together; their bytes are spread over the time in which they can
    /// have left.
    ///
    /// Both clocks are the same. `arrivals` holds bytes by millisecond of arrival from `arrivals_begin_us` on.
    pub(crate) fn departures(
        &self,
        arrivals_begin_us: i64,
        arrivals: &[u64],
        begin_us: i64,
        count: usize,
    ) -> Vec<u64> {
        let mut departures = vec![0_u64; count];
        let mut taken = 0;
        let mut latest = i64::MIN;
        let mut group = 0..0_usize;
        for index in 0..=count {
            let leaves = begin_us + 1000 * i64::try_from(index).unwrap_or(i64::MAX / 2000);
            latest = latest.max(leaves + self.at(leaves));
            // Bins that end by then left earlier.
            let ended = (latest - arrivals_begin_us).div_euclid(1000);
            let ended = usize::try_from(ended).unwrap_or(0).min(arrivals.len());
            group.end = index;
            if ended > taken && index > 0 {
                let bytes: u64 = arrivals.get(taken..ended).unwrap_or(&[]).iter().sum();
                spread(bytes, departures.get_mut(group.clone()).unwrap_or(&mut []));
                taken = ended;
                group.start = index;
            } else if index == 0 {
                taken = ended;
            }
        }
        departures
    }
}

/// The position in a step at which most instants lie.
fn phase(instants: impl Iterator<Item = i64>) -> i64 {
    /// Number of instants that suffice for the position.
    const SAMPLE: usize = 1000;
    let mut instants = instants.peekable();
    let first = instants.peek().copied().unwrap_or(0);
    let half = GRID_US / 2;
    let apart = instants
        .take(SAMPLE)
        .map(|at| (at - first + half).rem_euclid(GRID_US) - half);
    (first + median(apart).unwrap_or(0)).rem_euclid(GRID_US)
}

/// Adds the bytes to the bins in equal parts; the first ones take the remainder.
fn spread(bytes: u64, bins: &mut [u64]) {
    let count = bins.len() as u64;
    if count == 0 {
        return;
    }
    for (index, bin) in (0_u64..).zip(bins) {
        *bin += bytes / count + u64::from(index < bytes % count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_go_back_to_when_they_left_through_a_spike_of_delay() {
        // 10 ms, for 100 ms 40 ms, then 10 ms again
        let points = (0..100).map(|cell| {
            (
                cell * 10_000,
                if (30..40).contains(&cell) {
                    40_000
                } else {
                    10_000
                },
            )
        });
        let points: Vec<_> = points.map(|(at, delay)| (at + 5_000, delay)).collect();
        let curve = DelayCurve::new(0, 1_000_000, &points).unwrap();
        // The true arrivals: one packet leaves each millisecond, and the order is kept.
        let mut arrivals = vec![0_u64; 1100];
        let mut latest = 0;
        for left in 0..1000_i64 {
            latest = latest.max(left * 1000 + curve.at(left * 1000));
            arrivals[usize::try_from(latest / 1000).unwrap()] += 1500;
        }
        let departures = curve.departures(0, &arrivals, 0, 900);
        for (ms, window) in departures.windows(20).enumerate() {
            let bytes: u64 = window.iter().sum();
            assert!(
                (28_500..=31_500).contains(&bytes),
                "{bytes} bytes in 20 ms from {ms} ms"
            );
        }
    }

    #[test]
    fn a_light_flow_with_its_own_band_is_told_from_one_in_the_queue() {
        let quiet: Vec<u32> = (0..100).map(|n| 22_000 + n * 20).collect();
        let shifted = |by: u32| quiet.iter().map(move |rtt| rtt + by);
        let shares = |loaded: Vec<u32>| shares_queue(quiet.clone(), loaded, 100_000);
        assert!(
            !shares(shifted(8_000).collect()),
            "the base delay moved a little"
        );
        assert!(shares(shifted(95_000).collect()));
        assert!(shares(Vec::new()), "nothing came through");
    }
}
