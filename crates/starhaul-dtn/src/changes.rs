//! Notices bundles that wait although there is a way for them now.
//!
//! The agent looks for a bundle's route or application, finds none, and then writes that it waits. A route that comes in
//! between sets off the agent's search for waiting bundles before this one is among them, and the bundle would wait for the
//! next change. So changes of routes are counted, and a bundle that was handed out before the last of them is looked at again.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::sync::Notify;

/// Changes of the routes, neighbours and applications that the agent knows.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    begun: AtomicU64,
    ended: AtomicU64,
    again: Notify,
    at_once: Notify,
}

/// A change that goes on until this is dropped.
pub(crate) struct Change<'a>(&'a Changes);

/// How many changes had ended when a bundle was handed to the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Changes {
    /// Begins a change.
    pub(crate) fn begin(&self) -> Change<'_> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Change(self)
    }

    /// What a bundle that is handed to the agent now will see.
    pub(crate) fn seen(&self) -> Seen {
        Seen(self.ended.load(Ordering::SeqCst))
    }

    /// Notes that a bundle waits from now on, by a decision that may be as old as `seen`.
    pub(crate) fn waits(&self, seen: Seen) {
        if self.begun.load(Ordering::SeqCst) != seen.0 {
            self.again();
        }
    }

    /// Asks for all that waits to be looked at again, after a moment: what failed may fail again.
    pub(crate) fn again(&self) {
        self.again.notify_one();
    }

    /// Asks for the same without delay, after progress.
    pub(crate) fn at_once(&self) {
        self.at_once.notify_one();
    }

    /// Waits until either is asked for.
    pub(crate) async fn asked(&self, delay: Duration) {
        let again = async {
            self.again.notified().await;
            tokio::time::sleep(delay).await;
        };
        tokio::select! {
            () = self.at_once.notified() => {}
            () = again => {}
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_asked(changes: &Changes) -> bool {
        let asked = tokio::time::timeout(Duration::from_millis(20), changes.asked(Duration::ZERO));
        asked.await.is_ok()
    }

    #[tokio::test]
    async fn only_a_decision_older_than_a_change_is_made_again() {
        let changes = Changes::default();
        let before = changes.seen();
        changes.waits(before);
        assert!(!is_asked(&changes).await);
        let change = changes.begin();
        // The route may have come before the bundle was written, and after it was decided on.
        let during = changes.seen();
        for seen in [before, during] {
            changes.waits(seen);
            assert!(is_asked(&changes).await);
        }
        drop(change);
        for seen in [before, during] {
            changes.waits(seen);
            assert!(is_asked(&changes).await);
        }
        changes.waits(changes.seen());
        assert!(!is_asked(&changes).await);
    }
}
