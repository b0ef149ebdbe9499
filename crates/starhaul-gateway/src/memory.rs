//! Memory that ended connections leave behind goes back to the system, also where nothing else happens: an allocator gives it back while it
//! is asked for more.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use starhaul_endpoint::Endpoint;
use starhaul_net::release_memory;
use tokio::{runtime::Handle, task::JoinSet};

/// A burst of connections has ended when none has for so long.
const QUIET: Duration = Duration::from_millis(1500);
/// What fewer connections leave behind waits until memory was not given back for [`SELDOM`].
const MANY: u64 = 64;
const SELDOM: Duration = Duration::from_secs(30);
/// So many tasks for each thread of the runtime let idle threads take some of them.
const TASKS_PER_THREAD: usize = 4;

/// Connections that have ended, of all gateways of this process: memory is the process's.
static ENDED: AtomicU64 = AtomicU64::new(0);
/// How often memory was given back.
#[cfg(test)]
static RELEASES: AtomicU64 = AtomicU64::new(0);

/// A connection, which counts as ended when this is dropped.
#[derive(Debug)]
pub(crate) struct CountedEnd;

impl Drop for CountedEnd {
    fn drop(&mut self) {
        ENDED.fetch_add(1, Ordering::Relaxed);
    }
}

/// How many connections have ended.
pub(crate) fn ended() -> u64 {
    ENDED.load(Ordering::Relaxed)
}

/// How often memory was given back.
#[cfg(test)]
pub(crate) fn releases() -> u64 {
    RELEASES.load(Ordering::Relaxed)
}

/// Tells when memory is to be given back.
#[derive(Debug)]
pub(crate) struct Release {
    /// Connections that had ended when that was last checked, and since when there are so many.
    seen: (u64, Instant),
    /// Those of them at the time when memory was given back last.
    released: (u64, Instant),
}

impl Release {
    /// When so many connections have ended.
    pub(crate) const fn new(now: Instant, ended: u64) -> Self {
        Self {
            seen: (ended, now),
            released: (ended, now),
        }
    }

    /// Whether memory is to be given back when so many connections have ended: ask a few times a second.
    pub(crate) fn is_due(&mut self, now: Instant, ended: u64) -> bool {
        if self.seen.0 != ended {
            self.seen = (ended, now);
        }
        let age = |at| now.saturating_duration_since(at);
        let (released, at) = self.released;
        let new = ended.saturating_sub(released);
        let is_worth_it = new >= MANY || (new > 0 && age(at) >= SELDOM);
        let is_due = is_worth_it && age(self.seen.1) >= QUIET;
        if is_due {
            self.released = (ended, now);
        }
        is_due
    }
}

/// Gives back what the endpoint keeps, and what the allocator keeps for the threads of this runtime: for those that are idle, since
/// others ask it for more.
pub(crate) async fn release(endpoint: &Endpoint) {
    #[cfg(test)]
    RELEASES.fetch_add(1, Ordering::Relaxed);
    endpoint.release_memory();
    let threads = Handle::current().metrics().num_workers();
    let done = Arc::new(Mutex::new(HashSet::new()));
    let mut tasks = JoinSet::new();
    for _ in 0..threads * TASKS_PER_THREAD {
        let done = done.clone();
        tasks.spawn(async move {
            let is_first_here = done.lock().insert(thread::current().id());
            if is_first_here {
                release_memory();
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(500);

    /// After how much time memory is given back when so many connections have ended at each tick.
    fn due_after(ended: impl Fn(u32) -> u64) -> Vec<Duration> {
        let start = Instant::now();
        let mut release = Release::new(start, 7);
        let ticks = (1..=120).filter(|tick| release.is_due(start + TICK * *tick, 7 + ended(*tick)));
        ticks.map(|tick| TICK * tick).collect()
    }

    #[test]
    fn memory_is_given_back_once_soon_after_the_last_connection_of_a_burst() {
        let burst = |tick: u32| u64::from(tick.min(10)) * 100;
        assert_eq!(due_after(burst), [TICK * 10 + QUIET]);
        assert!(due_after(|_| 0).is_empty(), "nothing has ended");
    }

    #[test]
    fn a_busy_gateway_is_left_alone_and_one_with_few_connections_is_seldom_asked() {
        assert!(due_after(|tick| u64::from(tick) * 10).is_empty(), "busy");
        // One in ten seconds.
        assert_eq!(due_after(|tick| u64::from(tick / 20)).len(), 1);
    }
}
