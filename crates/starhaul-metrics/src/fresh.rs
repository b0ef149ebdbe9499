//! What clients ask for, taken anew only when the last one is old, whatever number of clients asks.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Ages up to which a value is given again, at least and at most.
const FRESH: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(1500)];
/// In between, taking one costs at most one part in so many of the time: some take long.
const SPARE: u32 = 100;

/// The last value, and how to take the next.
pub struct Fresh<T> {
    take: Box<dyn Fn() -> T + Send + Sync>,
    last: Mutex<Option<Last<T>>>,
}

struct Last<T> {
    taken: Instant,
    fresh_for: Duration,
    value: Arc<T>,
}

impl<T> Fresh<T> {
    /// Values that `take` gives.
    pub fn new(take: impl Fn() -> T + Send + Sync + 'static) -> Self {
        let (take, last) = (Box::new(take), Mutex::new(None));
        Self { take, last }
    }

    /// The present value: one that is 200 ms old at most, or up to 1.5 s if taking it costs much.
    pub fn get(&self) -> Arc<T> {
        // Locked meanwhile, so that clients that ask at once get the same one.
        let mut last = self.last.lock();
        let is_fresh = |last: &&Last<T>| last.taken.elapsed() < last.fresh_for;
        if let Some(last) = last.as_ref().filter(is_fresh) {
            return last.value.clone();
        }
        let began = Instant::now();
        let value = Arc::new((self.take)());
        let took = began.elapsed();
        *last = Some(Last {
            taken: began + took,
            fresh_for: (took * SPARE).clamp(FRESH[0], FRESH[1]),
            value: value.clone(),
        });
        value
    }
}

impl<T> fmt::Debug for Fresh<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fresh").finish_non_exhaustive()
    }
}
