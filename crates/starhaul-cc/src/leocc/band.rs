//! The range of a path's RTT without a queue: LeoCC §4.2.1, eq. 3, by a middle-pass filter over the flow's own samples
//! since the last reconfiguration.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Maximum number of samples; longer times are sampled more sparsely.
const MAX_SAMPLES: usize = 256;
/// The window is at least so many RTTs: longer than from one Adaptation without a signal to the next, which alone finds RTTs without a
/// queue on a long path.
const WINDOW_RTTS: u32 = 125;
/// Resolution of a band as a share of the RTT, at least 1 ms.
const BIN_SHARE: f64 = 1.0 / 32.0;
const MIN_BIN: Duration = Duration::from_millis(1);
/// A bin belongs to a band when it holds at least this share of the average bin's samples.
const BAND_SHARE: f64 = 0.4;

/// Collects RTT samples taken while the path was not full.
#[derive(Clone, Debug)]
pub(crate) struct RttBand {
    window: Duration,
    since: Option<Instant>,
    samples: VecDeque<(Instant, Duration)>,
    band: Option<(Duration, Duration)>,
    middle: Option<Duration>,
}

impl RttBand {
    /// Creates a band of samples not older than `window`.
    pub(crate) fn new(window: Duration) -> Self {
        Self {
            window,
            since: None,
            samples: VecDeque::new(),
            band: None,
            middle: None,
        }
    }

    /// Discards the samples before now.
    pub(crate) fn reset(&mut self, now: Instant) {
        self.samples.clear();
        self.band = None;
        self.middle = None;
        self.since = Some(now);
    }

    /// Adds a sample from a path that was not full.
    pub(crate) fn update(&mut self, now: Instant, rtt: Duration) {
        let window = self.window.max(rtt.saturating_mul(WINDOW_RTTS));
        let age = now.saturating_duration_since(*self.since.get_or_insert(now));
        let spacing = age.min(window) / u32::try_from(MAX_SAMPLES).unwrap_or(u32::MAX);
        if let Some(&(last, _)) = self.samples.back()
            && now.saturating_duration_since(last) < spacing
        {
            return;
        }
        self.samples.push_back((now, rtt));
        while self.samples.len() > MAX_SAMPLES
            || self
                .samples
                .front()
                .is_some_and(|&(at, _)| now.saturating_duration_since(at) > window)
        {
            self.samples.pop_front();
        }
        let mut rtts: Vec<Duration> = self.samples.iter().map(|&(_, rtt)| rtt).collect();
        rtts.sort_unstable();
        self.band = middle_pass(&rtts);
        self.middle = self.band.and_then(|band| median_within(&rtts, band));
    }

    /// The edges bRTT_l and bRTT_h.
    pub(crate) fn band(&self) -> Option<(Duration, Duration)> {
        self.band
    }

    /// The median of the band's samples. Flows that share a path find the same median, while the edges, with few
    /// samples, differ from flow to flow.
    pub(crate) fn middle(&self) -> Option<Duration> {
        self.middle
    }
}

fn median_within(rtts: &[Duration], (low, high): (Duration, Duration)) -> Option<Duration> {
    let first = rtts.partition_point(|rtt| *rtt < low);
    let end = rtts.partition_point(|rtt| *rtt <= high);
    rtts.get(first + (end - first) / 2).copied()
}

/// The range from the lowest to the highest bin in which the sorted `rtts` concentrate.
fn middle_pass(rtts: &[Duration]) -> Option<(Duration, Duration)> {
    let (least, middle) = (*rtts.first()?, *rtts.get(rtts.len() / 2)?);
    let width = middle.mul_f64(BIN_SHARE).max(MIN_BIN);
    let bin_of = |rtt: Duration| (rtt - least).as_nanos() / width.as_nanos();
    // Runs of equal bins: first sample, last sample, count.
    let mut bins: Vec<(Duration, Duration, u32)> = Vec::new();
    for &rtt in rtts {
        match bins.last_mut() {
            Some((first, last, count)) if bin_of(*first) == bin_of(rtt) => {
                *last = rtt;
                *count += 1;
            }
            _ => bins.push((rtt, rtt, 1)),
        }
    }
    let total: u32 = bins.iter().map(|(_, _, count)| count).sum();
    let mean = f64::from(total) / f64::from(u32::try_from(bins.len()).unwrap_or(u32::MAX));
    let mut kept = bins
        .iter()
        .filter(|(_, _, count)| f64::from(*count) >= BAND_SHARE * mean);
    let low = kept.next()?.0;
    let high = kept.next_back().map_or_else(
        || {
            bins.iter()
                .find(|bin| bin.0 == low)
                .map_or(low, |bin| bin.1)
        },
        |bin| bin.1,
    );
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Two bands around 20 and 26 ms, as Starlink's frames make them, with a spike and one early
    /// outlier among a hundred.
    #[test]
    fn bands_make_the_range_and_outliers_do_not() {
        let start = Instant::now();
        let mut band = RttBand::new(20_000 * MS);
        for n in 0..200u32 {
            let rtt = match n {
                77 => 12 * MS,
                100..103 => 70 * MS,
                _ if n % 2 == 0 => 20 * MS + MS / 10 * (n % 9),
                _ => 26 * MS + MS / 10 * (n % 7),
            };
            band.update(start + 50 * MS * n, rtt);
        }
        let (low, high) = band.band().unwrap();
        assert!((20 * MS..21 * MS).contains(&low), "{low:?}");
        assert!((26 * MS..27 * MS).contains(&high), "{high:?}");
        let middle = band.middle().unwrap();
        assert!((20 * MS..27 * MS).contains(&middle), "{middle:?}");
    }

    /// A spike that widens the band of one flow and not of its neighbour hardly moves the middle.
    #[test]
    fn a_spike_moves_the_edge_and_not_the_middle() {
        let start = Instant::now();
        let mut band = RttBand::new(20_000 * MS);
        let rtt_of = |n: u32| {
            let swing = MS / 4 * (n % 8);
            if n < 5 { 60 * MS } else { 20 * MS + swing }
        };
        (0..24u32).for_each(|n| band.update(start + MS * n, rtt_of(n)));
        let (_, high) = band.band().unwrap();
        assert!(high >= 60 * MS, "{high:?}");
        let middle = band.middle().unwrap();
        assert!((20 * MS..22 * MS).contains(&middle), "{middle:?}");
    }

    /// On a path of 600 ms only what is measured while it is emptied, once a minute, is without a queue.
    #[test]
    fn a_long_path_keeps_its_band_until_it_is_measured_again() {
        let start = Instant::now();
        let mut band = RttBand::new(20_000 * MS);
        for n in 0..50u32 {
            band.update(start + MS * 20 * n, MS * (600 + n % 30));
        }
        band.update(start + 55_000 * MS, 600 * MS);
        let (low, high) = band.band().unwrap();
        assert!(high >= low + 15 * MS, "{low:?} {high:?}");
    }

    #[test]
    fn a_reset_forgets_all() {
        let start = Instant::now();
        let mut band = RttBand::new(20_000 * MS);
        (0..50u32).for_each(|n| band.update(start + MS * n, 40 * MS));
        band.reset(start + 60 * MS);
        assert_eq!(band.band(), None);
        band.update(start + 61 * MS, 25 * MS);
        assert_eq!(band.band(), Some((25 * MS, 25 * MS)));
    }

    #[test]
    fn old_samples_leave_and_memory_stays_small() {
        let start = Instant::now();
        let mut band = RttBand::new(20_000 * MS);
        for n in 0..100_000u32 {
            let rtt = if n < 50_000 { 20 * MS } else { 40 * MS };
            band.update(start + MS * n, rtt);
        }
        assert_eq!(band.band(), Some((40 * MS, 40 * MS)));
        assert!(band.samples.len() <= MAX_SAMPLES);
    }
}
