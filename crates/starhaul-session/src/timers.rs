//! When a session wants to be called although nothing arrives; what belongs to a path or a block is known there.

use std::time::{Duration, Instant};

/// How long a path may be left idle for a better one before the choice is made anew.
const RECHECK: Duration = Duration::from_millis(5);
/// An application is told of overload at most so often.
const OVERLOAD_INTERVAL: Duration = Duration::from_secs(1);

/// The timers of the session itself.
#[derive(Debug)]
pub(crate) struct Timers {
    /// When all that was due had been done last. Inputs may come before the timers of the same instant.
    done: Instant,
    /// When a path that was left to a better one is asked again.
    recheck_at: Option<Instant>,
    /// Until when nothing is said of overload.
    overload_at: Option<Instant>,
}

impl Timers {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            done: now,
            recheck_at: None,
            overload_at: None,
        }
    }

    /// What is due until now is done by the caller.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        self.done = now;
        self.recheck_at = self.recheck_at.filter(|at| *at > now);
    }

    /// A path that may send is left to a better one.
    pub(crate) fn recheck(&mut self, now: Instant) {
        self.recheck_at = Some(now + RECHECK);
    }

    /// Whether a path was left to a better one, and has not been asked again.
    pub(crate) const fn rechecks(&self) -> bool {
        self.recheck_at.is_some()
    }

    /// The next of these times, which paths are asked for, and of rechecks. Each is told until it has come and the timers of its instant
    /// were done: a path may not be allowed to send then.
    pub(crate) fn next_asked_for(
        &self,
        times: impl Iterator<Item = Instant>,
    ) -> impl Iterator<Item = Instant> {
        let (times, done) = (times.chain(self.recheck_at), self.done);
        times.filter(move |at| *at > done)
    }

    /// Whether an overload may be told again.
    pub(crate) fn may_warn(&self, now: Instant) -> bool {
        self.overload_at.is_none_or(|at| at <= now)
    }

    /// An overload was found.
    pub(crate) fn on_overload(&mut self, now: Instant) {
        self.overload_at = Some(now + OVERLOAD_INTERVAL);
    }
}
