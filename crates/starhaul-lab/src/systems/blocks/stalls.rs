//! When this computer stood still: what is late then says nothing about who sent it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use starhaul_net::{run_as_others, sharpen_timers};

use crate::Error;

/// How often it is looked at.
const ROUND: Duration = Duration::from_millis(2);
/// A thread with ordinary priority that is woken later than this could not run, and no program of a rival could.
const STALL: Duration = Duration::from_millis(10);

/// A thread that looks at the clock. It ends with this, also when a run fails, and disturbs none of those that follow.
pub(crate) struct Watch {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Stalls>>,
}

/// Times in which nothing could run, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stalls(Vec<(Instant, Instant)>);

impl Watch {
    pub(crate) fn start() -> Result<Self, Error> {
        let over = Arc::new(AtomicBool::new(false));
        let told = over.clone();
        let thread = std::thread::Builder::new().name("stalls".into());
        let thread = thread.spawn(move || {
            // As the programs of rivals.
            let _ = run_as_others();
            sharpen_timers();
            let mut stalls = Stalls::default();
            while !told.load(Ordering::Relaxed) {
                let before = Instant::now();
                std::thread::sleep(ROUND);
                stalls.add(before + ROUND, Instant::now());
            }
            stalls
        });
        Ok(Self {
            over,
            thread: Some(thread.map_err(Error::io("cannot start a thread"))?),
        })
    }

    pub(crate) fn end(mut self) -> Stalls {
        self.join()
    }

    fn join(&mut self) -> Stalls {
        self.over.store(true, Ordering::Relaxed);
        let joined = self.thread.take().map(JoinHandle::join);
        joined.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

impl Stalls {
    /// It should have run at one time and did at another.
    fn add(&mut self, due: Instant, ran: Instant) {
        if ran.saturating_duration_since(due) >= STALL {
            self.0.push((due, ran));
        }
    }

    /// Whether there was one in this time.
    pub(crate) fn touch(&self, from: Instant, to: Instant) -> bool {
        self.0.iter().any(|(due, ran)| *due <= to && *ran >= from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_of_a_run_that_fails_ends_with_it() {
        let watch = Watch::start().unwrap();
        let thread = Arc::downgrade(&watch.over);
        drop(watch);
        assert!(thread.upgrade().is_none(), "it holds its flag still");
    }

    #[test]
    fn a_stall_touches_what_was_under_way_meanwhile() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut stalls = Stalls::default();
        stalls.add(at(100), at(109));
        assert!(!stalls.touch(at(0), at(1000)));
        stalls.add(at(200), at(230));
        for (from, to, touches) in [
            (0, 199, false),
            (0, 200, true),
            (210, 220, true),
            (230, 400, true),
            (231, 400, false),
        ] {
            assert_eq!(stalls.touch(at(from), at(to)), touches, "{from}..{to}");
        }
    }
}
