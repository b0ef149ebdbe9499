//! The server's clock as the client's exchanges show it. Two quartz clocks drift apart by some milliseconds in minutes, which is more
//! than the time within which arrivals of two flows are compared.

use crate::delay::median;

/// Exchanges within this time give one offset.
const WINDOW_US: i64 = 15_000_000;
/// Fewer exchanges than this give none.
const LEAST_EXCHANGES: usize = 5;
/// Windows whose offsets show a drift.
const LEAST_WINDOWS: usize = 5;
/// The halves of a round trip change by some milliseconds when a satellite is replaced, which is no drift: it must be greater than this,
/// and than so many times what the offsets differ from it, but for one in so many at either end.
const LEAST_DRIFT_US: f64 = 3_000.0;
const CLEAR: f64 = 6.0;
const OUTLIERS: usize = 16;
/// A clock that is corrected over the network is slower or faster by no more than this; quartz alone by 100 ppm.
const MOST_DRIFT: f64 = 500e-6;

/// A round trip with the time that the server's clock showed on the way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// When it left, by the client's clock.
    pub(crate) at_us: i64,
    pub(crate) rtt_us: i64,
    pub(crate) server_us: i64,
}

/// The server's clock less the client's, over the client's time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerClock {
    from_us: i64,
    offset_us: i64,
    /// By so much the server's second is longer.
    drift: f64,
}

impl ServerClock {
    /// Fits the clock to exchanges of an empty path, `idle`, if these are all that is known to be from one time, and to `all` that waited
    /// in no queue, in order of time. `None` without any.
    pub(crate) fn fit(idle: &[Exchange], all: &[Exchange]) -> Option<Self> {
        let constant = offset(if idle.is_empty() { all } else { idle })?;
        Some(Self::drifting(all).unwrap_or(Self {
            from_us: 0,
            offset_us: constant,
            drift: 0.0,
        }))
    }

    fn drifting(exchanges: &[Exchange]) -> Option<Self> {
        let from_us = exchanges.first()?.at_us;
        let window = |exchange: &Exchange| (exchange.at_us - from_us) / WINDOW_US;
        let windows = exchanges.chunk_by(|a, b| window(a) == window(b));
        let offsets: Vec<(f64, f64)> = windows
            .filter(|inside| inside.len() >= LEAST_EXCHANGES)
            .filter_map(|inside| {
                let at = median(inside.iter().map(|exchange| exchange.at_us))?;
                Some((real(at - from_us), real(offset(inside)?)))
            })
            .collect();
        let (first, last) = (offsets.first()?, offsets.last()?);
        if offsets.len() < LEAST_WINDOWS {
            return None;
        }
        // The median of all pairs' slopes (Theil and Sen), which outliers do not move.
        let slopes = offsets.iter().enumerate().flat_map(|(index, a)| {
            let later = offsets.iter().skip(index + 1);
            later.map(move |b| (b.1 - a.1) / (b.0 - a.0))
        });
        let drift = median_real(slopes.collect())?;
        let mut levels: Vec<f64> = offsets.iter().map(|(at, us)| us - drift * at).collect();
        levels.sort_by(f64::total_cmp);
        let outliers = levels.len() / OUTLIERS;
        let (low, high) = (
            *levels.get(outliers)?,
            *levels.get(levels.len() - 1 - outliers)?,
        );
        let (level, spread) = (f64::midpoint(low, high), (high - low) / 2.0);
        let change = (drift * (last.0 - first.0)).abs();
        let is_drift = drift.abs() <= MOST_DRIFT && change > LEAST_DRIFT_US.max(CLEAR * spread);
        is_drift.then_some(Self {
            from_us,
            offset_us: whole(level),
            drift,
        })
    }

    /// What the client's clock shows when the server's shows this.
    pub(crate) fn client_us(&self, server_us: i64) -> i64 {
        let since = real(server_us - self.offset_us - self.from_us) / (1.0 + self.drift);
        self.from_us + whole(since)
    }

    /// When the first of these milliseconds of the server's began by the client's clock, and what belongs to each of the client's from then on.
    pub(crate) fn by_client(&self, first_ms: i64, bins: &[u64]) -> (i64, Vec<u64>) {
        let begin_us = self.client_us(first_ms * 1000);
        let mut moved = Vec::with_capacity(bins.len());
        for (ms, bytes) in (first_ms..).zip(bins) {
            let place = (self.client_us(ms * 1000 + 500) - begin_us) / 1000;
            let Ok(place) = usize::try_from(place) else {
                continue;
            };
            if moved.len() <= place {
                moved.resize(place + 1, 0);
            }
            if let Some(sum) = moved.get_mut(place) {
                *sum += bytes;
            }
        }
        (begin_us, moved)
    }
}

/// The median over the faster half of the RTTs, with half of each RTT per direction. (The very fastest is fast because one of its
/// directions happened to be.)
fn offset(exchanges: &[Exchange]) -> Option<i64> {
    let mut offsets: Vec<_> = exchanges
        .iter()
        .map(|seen| (seen.rtt_us, seen.server_us - seen.at_us - seen.rtt_us / 2))
        .collect();
    offsets.sort_unstable();
    offsets.truncate(offsets.len().div_ceil(2));
    median(offsets.into_iter().map(|(_, offset)| offset))
}

fn median_real(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[expect(clippy::cast_precision_loss, reason = "hours in microseconds")]
fn real(us: i64) -> f64 {
    us as f64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the cast saturates, and offsets are far below its range"
)]
fn whole(us: f64) -> i64 {
    us.round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An exchange each 100 ms for this long; the halves of each RTT of 40 ms change by 4 ms every 15 s.
    fn exchanges(seconds: i64, ppm: i64) -> Vec<Exchange> {
        let exchange = |number: i64| {
            let at_us = 1_000_000 + number * 100_000;
            let up = 20_000
                + if at_us / 15_000_000 % 2 == 0 {
                    2_000
                } else {
                    -2_000
                };
            let server = 7_000_000 + at_us + up;
            Exchange {
                at_us,
                rtt_us: 40_000,
                server_us: server + server * ppm / 1_000_000,
            }
        };
        (0..seconds * 10).map(exchange).collect()
    }

    #[test]
    fn a_drift_is_told_from_satellites_that_change() {
        for ppm in [-50, 20] {
            let all = exchanges(1_200, ppm);
            let clock = ServerClock::fit(&all[..10], &all).unwrap();
            for client_us in [2_000_000, 600_000_000, 1_200_000_000] {
                let server = 7_000_000 + client_us;
                let server = server + server * ppm / 1_000_000;
                let found = clock.client_us(server);
                assert!(
                    (found - client_us).abs() < 3_000,
                    "{ppm} ppm: {found} {client_us}"
                );
            }
        }
        for seconds in [10, 60, 300] {
            let all = exchanges(seconds, 0);
            let clock = ServerClock::fit(&all[..10], &all).unwrap();
            assert_eq!(clock.drift.to_bits(), 0, "{seconds} s: {clock:?}");
        }
    }

    #[test]
    fn a_step_and_what_no_clock_does_are_no_drift() {
        for seconds in [30, 45, 60, 75, 90, 120] {
            for stepped in 1..seconds / 15 {
                let mut all = exchanges(seconds, 0);
                for exchange in &mut all {
                    let later = (exchange.at_us - 1_000_000) / WINDOW_US >= stepped;
                    exchange.server_us = 7_000_000 + exchange.at_us + 20_000;
                    exchange.server_us += if later { 4_000 } else { 0 };
                }
                let clock = ServerClock::fit(&all[..10], &all).unwrap();
                assert_eq!(
                    clock.drift.to_bits(),
                    0,
                    "{seconds} s, {stepped}: {clock:?}"
                );
            }
        }
        for speed in [0, 1, 999_999, 2_000_000] {
            let mut all = exchanges(300, 0);
            for exchange in &mut all {
                exchange.server_us = 5 + exchange.at_us * speed / 1_000_000;
            }
            let clock = ServerClock::fit(&all[..10], &all).unwrap();
            let (_, moved) = clock.by_client(0, &vec![1; 100_000]);
            assert_eq!(moved.len(), 100_000, "{speed}: {clock:?}");
        }
    }

    #[test]
    fn bytes_keep_their_number_when_clocks_drift() {
        let all = exchanges(1_200, -200);
        let clock = ServerClock::fit(&all[..10], &all).unwrap();
        let bins = vec![1_500; 600_000];
        let (begin_us, moved) = clock.by_client(60_000, &bins);
        assert_eq!(moved.iter().sum::<u64>(), 600_000 * 1_500);
        // The server's milliseconds are too few.
        assert!((600_110..600_130).contains(&moved.len()), "{}", moved.len());
        assert!((begin_us - clock.client_us(60_000_000)).abs() < 2);
    }
}
