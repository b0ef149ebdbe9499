//! Searches of the store for all that waits: who has asked for one can tell when it is over. That of a large store takes minutes.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// Numbers them as they begin.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    begun: AtomicU64,
    /// The latest that has ended.
    ended: watch::Sender<u64>,
}

/// A search that goes on until this is dropped.
pub(crate) struct Search<'a> {
    searches: &'a Searches,
    number: u64,
}

impl Searches {
    /// Begins one.
    pub(crate) fn begin(&self) -> Search<'_> {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        Search {
            searches: self,
            number,
        }
    }

    /// How many have begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Waits until one has ended that began after the first `before`.
    pub(crate) async fn ended_after(&self, before: u64) {
        let mut ended = self.ended.subscribe();
        // What tells is not dropped meanwhile.
        let _ = ended.wait_for(|latest| *latest > before).await;
    }
}

impl Drop for Search<'_> {
    fn drop(&mut self) {
        let number = self.number;
        self.searches
            .ended
            .send_modify(|latest| *latest = number.max(*latest));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// One that was under way may have passed what waits since.
    #[tokio::test]
    async fn only_a_search_that_began_later_counts() {
        let searches = Searches::default();
        let is_over = async |before| {
            let moment = Duration::from_millis(20);
            let ended = tokio::time::timeout(moment, searches.ended_after(before));
            ended.await.is_ok()
        };
        let under_way = searches.begin();
        let before = searches.begun();
        drop(under_way);
        assert!(!is_over(before).await);
        let later = searches.begin();
        assert!(!is_over(before).await);
        drop(later);
        assert!(is_over(before).await);
    }
}
