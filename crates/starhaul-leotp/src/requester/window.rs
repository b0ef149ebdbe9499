//! How many bytes a requester has in flight: twice the bandwidth-delay product, so that the responder always has Interests that
//! wait, and no more.
//!
//! Interests that wait make the round trip of all that follow longer. The base round trip is therefore measured anew at
//! intervals, after the window was less than one bandwidth-delay product for long enough that none waited.

use std::time::{Duration, Instant};

use crate::config::Scope;

/// The window in bandwidth-delay products.
const PRODUCTS: f64 = 2.0;
/// The same while the base is measured: below one, so that a base that became shorter is found, in several measurements.
const PRODUCTS_MEASURING: f64 = 0.9;
/// A round lasts a round trip, and so long at least.
const LEAST_ROUND: Duration = Duration::from_millis(1);
/// Segments in flight until a rate is known, and at least.
const FIRST_SEGMENTS: u64 = 64;
const LEAST_SEGMENTS: u64 = 16;
/// The base is measured again after this, and after so many round trips; twice as late each time that it was as known, up to so many
/// times as late: each measurement leaves the path idle for a part of a round trip.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
const AGAIN_ROUNDS: u32 = 50;
const MOST_DELAYED: u32 = 8;
/// ... or when each round trip of a round takes longer than the window explains by so much: the path became longer.
const LONGER: f64 = 1.25;
/// A base that differs by less than this share is the one that was known.
const SAME: f64 = 0.1;

/// The window of a transfer.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The rate of the responder follows from the base: it has to be known where a round trip carries few segments, too.
    controls: bool,
    base: Option<Duration>,
    /// The present round, its bytes and its least round trip.
    round: Option<Instant>,
    bytes: f64,
    least: Option<Duration>,
    /// The longest data that came at once.
    longest: f64,
    /// Bytes per second of the last rounds.
    rates: [f64; 4],
    measured: Option<Instant>,
    measuring: Option<Measuring>,
    /// Times as late as at first; 0 is 1.
    delayed: u32,
}

/// A measurement of the base: the requests of its first round trip still wait behind others.
#[derive(Clone, Copy, Debug)]
struct Measuring {
    /// The base before it.
    known: Duration,
    from: Instant,
    until: Instant,
    least: Option<Duration>,
}

impl Window {
    /// A window of a transfer, of which nothing is known; `control` is that of the path.
    pub(super) fn new(control: Scope) -> Self {
        Self {
            controls: control == Scope::EndToEnd,
            ..Self::default()
        }
    }

    /// Bytes in flight at most.
    pub(super) fn bytes(&self, segment: u64, most: u64) -> u64 {
        let base = self.base.unwrap_or_default().as_secs_f64();
        let products = match self.measuring {
            Some(_) => PRODUCTS_MEASURING,
            None => PRODUCTS,
        };
        // While a transfer becomes faster, the present round has brought more than any whole one did. Of a round that lasts longer than
        // so short a round trip, a part counts.
        let came = match self.measuring {
            Some(_) => 0.0,
            None => self.bytes * (base / LEAST_ROUND.as_secs_f64()).min(1.0),
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "bytes, rounded down"
        )]
        let product = (products * (self.rate() * base).max(came)) as u64;
        let least = match (self.rates, self.measuring) {
            ([.., 0.0], _) => FIRST_SEGMENTS,
            // More would wait for each other.
            (_, Some(_)) if self.controls => 1,
            _ => LEAST_SEGMENTS,
        };
        product.max(least.saturating_mul(segment)).min(most)
    }

    /// The round trip of a request that does not wait, if one is known.
    pub(super) fn base(&self) -> Option<Duration> {
        self.base
    }

    /// Takes the time from a request to its data.
    pub(super) fn add_round_trip(&mut self, now: Instant, sample: Duration) {
        self.base = Some(self.base.map_or(sample, |base| base.min(sample)));
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        let Some(measuring) = &mut self.measuring else {
            return;
        };
        if now >= measuring.from {
            measuring.least = Some(measuring.least.map_or(sample, |least| least.min(sample)));
        }
        if now >= measuring.until {
            let (known, found) = (measuring.known, measuring.least);
            self.end_measuring(now, known, found);
        }
    }

    fn end_measuring(&mut self, now: Instant, known: Duration, found: Option<Duration>) {
        let off = found.map_or(Duration::ZERO, |found| found.abs_diff(known));
        self.delayed = if off > known.mul_f64(SAME) {
            1
        } else {
            (self.delayed.max(1) * 2).min(MOST_DELAYED)
        };
        self.base = found.or(self.base);
        self.measured = Some(now);
        self.measuring = None;
    }

    /// Takes the length of data that arrived.
    pub(super) fn add_bytes(&mut self, now: Instant, bytes: usize) {
        let bytes = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.bytes += bytes;
        self.longest = self.longest.max(bytes);
        let round = *self.round.get_or_insert(now);
        let elapsed = now.saturating_duration_since(round);
        let base = self.base.unwrap_or_default();
        if elapsed >= base.max(LEAST_ROUND) {
            self.rates.rotate_right(1);
            self.rates[0] = self.bytes / elapsed.as_secs_f64();
            self.bytes = 0.0;
            self.round = Some(now);
            if let Some(least) = self.least.take() {
                self.end_round(now, base, least);
            }
        }
    }

    fn rate(&self) -> f64 {
        self.rates.into_iter().fold(0.0, f64::max)
    }

    /// How long a round trip takes in which the window waits, in seconds.
    fn explained(&self, base: Duration) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a few segments")]
        let least = LEAST_SEGMENTS as f64 * self.longest / self.rate().max(1.0);
        let products = PRODUCTS * base.as_secs_f64();
        match self.controls {
            true => least.max(products),
            // The base is no less than it was measured with so many segments.
            false => products,
        }
    }

    fn end_round(&mut self, now: Instant, base: Duration, least: Duration) {
        if self.measuring.is_some() {
            return;
        }
        let measured = *self.measured.get_or_insert(now);
        let since = now.saturating_duration_since(measured);
        let is_old = since > AGAIN_AFTER.max(base * AGAIN_ROUNDS) * self.delayed.max(1);
        let is_longer = least.as_secs_f64() > LONGER * self.explained(base) && since > least * 8;
        if is_old || is_longer {
            self.measuring = Some(Measuring {
                known: base,
                from: now + least,
                until: now + least * 3 / 2,
                least: None,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A responder that sends at a constant rate what was asked for, in steps of a segment.
    struct Path {
        now: Instant,
        base: Duration,
        /// From one segment to the next.
        gap: Duration,
        window: Window,
        /// When what is in flight was asked for.
        asked: std::collections::VecDeque<Instant>,
        busy_until: Instant,
        arrivals: std::collections::VecDeque<Instant>,
        /// Segments that arrived, and the most in flight.
        arrived: u32,
        most: usize,
    }

    const SEGMENT: u64 = 1000;

    impl Path {
        fn new(base: Duration) -> Self {
            let now = Instant::now();
            Self {
                now,
                base,
                gap: Duration::from_micros(500),
                window: Window::default(),
                asked: Default::default(),
                busy_until: now,
                arrivals: Default::default(),
                arrived: 0,
                most: 0,
            }
        }

        fn run(&mut self, time: Duration) {
            let end = self.now + time;
            (self.arrived, self.most) = (0, 0);
            while self.now < end {
                let most = self.window.bytes(SEGMENT, u64::MAX) / SEGMENT;
                while (self.asked.len() as u64) < most {
                    self.asked.push_back(self.now);
                    self.busy_until = self.busy_until.max(self.now + self.base / 2) + self.gap;
                    self.arrivals.push_back(self.busy_until + self.base / 2);
                }
                self.most = self.most.max(self.asked.len());
                self.now = self.now.max(self.arrivals.pop_front().unwrap());
                let asked = self.asked.pop_front().unwrap();
                let sample = self.now.saturating_duration_since(asked);
                self.window.add_round_trip(self.now, sample);
                self.window.add_bytes(self.now, 1000);
                self.arrived += 1;
            }
        }
    }

    /// A round counted only when it was over, so that the window doubled in every second round trip, and a transfer took five of them to fill
    /// a path of three first windows.
    #[test]
    fn the_window_doubles_in_each_round_trip_until_the_path_is_full() {
        let base = Duration::from_millis(100);
        let mut path = Path::new(base);
        path.run(base);
        let mut round = || {
            path.run(base);
            (path.arrived, path.most)
        };
        let rounds = [round(), round(), round(), round()];
        let least = [63, 126, 198, 198];
        for ((arrived, most), least) in rounds.into_iter().zip(least) {
            assert!(arrived >= least, "{rounds:?} of 200 in a round trip");
            // And no more waits than later.
            assert!(most <= 402, "{rounds:?} of 200 in a round trip");
        }
    }

    /// A round of a millisecond brings what five such round trips do, and all of that, twice, was in flight.
    #[test]
    fn over_a_short_path_no_more_waits_than_over_a_long_one() {
        let mut path = Path::new(Duration::from_micros(200));
        path.gap = Duration::from_micros(5);
        path.run(Duration::from_millis(20));
        path.run(Duration::from_millis(200));
        assert!(path.most <= 90, "{} segments of 41", path.most);
        assert!(path.arrived > 39_000, "{} of 40000", path.arrived);
    }

    #[test]
    fn what_waits_at_the_responder_does_not_grow_and_the_link_stays_full() {
        let mut path = Path::new(Duration::from_millis(100));
        path.run(Duration::from_secs(2));
        path.run(Duration::from_secs(600));
        assert!(path.most < 450, "{} segments of 200", path.most);
        assert!(path.arrived > 1_199_000, "{} of 1200000", path.arrived);
    }

    /// As behind a hop of 100 kbit/s: what waits for the hop is not the path's, of which control from end to end has to know.
    #[test]
    fn the_base_of_a_path_that_carries_little_is_its_own() {
        let mut path = Path::new(Duration::from_millis(100));
        path.gap = Duration::from_millis(100);
        path.window = Window::new(Scope::EndToEnd);
        path.run(Duration::from_secs(600));
        let base = path.window.base().unwrap();
        assert!(base < Duration::from_millis(310), "{base:?} of 200 ms");
        assert!(path.arrived > 5900, "{} of 6000", path.arrived);
    }

    #[test]
    fn a_path_that_becomes_longer_is_filled_again() {
        for base in [300, 2000, 30] {
            let mut path = Path::new(Duration::from_millis(100));
            path.run(Duration::from_secs(30));
            path.base = Duration::from_millis(base);
            path.run(Duration::from_secs(30));
            path.run(Duration::from_secs(20));
            assert!(
                path.arrived > 39_500,
                "{base} ms: {} of 40000",
                path.arrived
            );
            assert!(
                path.most as u64 <= 5 * base.max(30),
                "{base} ms: {}",
                path.most
            );
        }
    }
}
