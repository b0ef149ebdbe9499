//! Whether this computer had time for a test.

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{Need, skip};

/// Interval of a [`Sleeper`].
const SLEEP: Duration = Duration::from_millis(10);
/// A later wake-up counts as late.
const LATE: Duration = Duration::from_millis(5);
/// So late a program wakes up on a computer that has a processor for it.
const EXACT: Duration = Duration::from_micros(300);
/// A single later wake-up may show as a gap as long as an outage.
const TOO_LATE: Duration = Duration::from_millis(35);
/// The share of exact wake-ups of a computer with nothing else to do.
pub const FREE: f64 = 0.98;

/// A thread that wakes up a hundred times a second with ordinary priority, as programs do; it ends with the value.
#[derive(Debug)]
pub struct Sleeper {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Wakes>>,
}

/// How much too late a [`Sleeper`] was woken each time.
#[derive(Debug, Default)]
pub struct Wakes(Vec<Duration>);

impl Wakes {
    /// Wake-ups were in time, except for one in fifty and none by far.
    pub fn were_in_time(&self) -> bool {
        let late = self.0.iter().filter(|late| **late > LATE).count();
        let latest = self.0.iter().max().copied().unwrap_or_default();
        late * 50 <= self.0.len() && latest < TOO_LATE
    }

    /// The share that was so exact that a program can measure a millisecond.
    pub fn exact_share(&self) -> f64 {
        let exact = self.0.iter().filter(|late| **late <= EXACT).count();
        exact as f64 / self.0.len().max(1) as f64
    }
}

impl Sleeper {
    /// Begins to watch.
    pub fn start() -> Self {
        let over = Arc::<AtomicBool>::default();
        let told = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let mut wakes = Vec::new();
            while !told.load(Ordering::Relaxed) {
                let asleep = Instant::now();
                thread::sleep(SLEEP);
                wakes.push(asleep.elapsed().saturating_sub(SLEEP));
            }
            Wakes(wakes)
        });
        Self {
            over,
            thread: Some(thread),
        }
    }

    /// What it has seen since its start.
    pub fn end(mut self) -> Wakes {
        self.over.store(true, Ordering::Relaxed);
        let thread = self.thread.take();
        let wakes = thread.and_then(|thread| thread.join().ok());
        wakes.unwrap_or_default()
    }

    /// Fails a test that something took too long for, unless this computer was too busy since the start: then that is reported, and the test
    /// may go on with the rest.
    ///
    /// # Panics
    /// This computer had time; or as [`skip`] does.
    pub fn fail(self, why: impl Display) {
        assert!(!self.end().were_in_time(), "{why}");
        skip(
            Need::Time,
            format!("this computer is too busy to keep it: {why}"),
        );
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_late_wake_up_of_fifty_is_in_time_and_one_by_far_is_not() {
        let [exact, late, far] = [0, 6, 40].map(Duration::from_millis);
        for (late_ones, far_ones, in_time) in [(2, 0, true), (3, 0, false), (0, 1, false)] {
            let mut all = vec![exact; 100 - late_ones - far_ones];
            all.extend(vec![late; late_ones]);
            all.extend(vec![far; far_ones]);
            let wakes = Wakes(all);
            assert_eq!(wakes.were_in_time(), in_time, "{late_ones} {far_ones}");
            assert_eq!(wakes.exact_share() < FREE, late_ones + far_ones > 2);
        }
    }
}
