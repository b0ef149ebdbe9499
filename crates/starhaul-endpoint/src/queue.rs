//! Bounded queues between the driver and the application: the driver never waits, the application always can.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The budget of all receive queues of one session.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    bytes: AtomicUsize,
    dropped: AtomicU64,
}

impl Budget {
    /// Number of items dropped because a bound was reached.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) items: usize,
    pub(crate) bytes: usize,
    /// Bytes of all queues that share the budget.
    pub(crate) budget_bytes: usize,
}

impl Bounds {
    /// Bounds of each stream's received blocks in a session that keeps at most this many bytes on receipt: a 16th of them, but
    /// at least 16 MiB if there are that many, and as many blocks as that is with 4 KiB each: of datagrams that fill packets, what comes at
    /// 1 Gbit/s in 40 ms.
    pub(crate) fn of_blocks(max_receive_bytes: usize) -> Self {
        let bytes = (max_receive_bytes / 16).max(max_receive_bytes.min(16 << 20));
        Self {
            items: (bytes >> 12).max(1024),
            bytes,
            budget_bytes: max_receive_bytes,
        }
    }
}

/// A first-in, first-out queue with a bound on items and bytes.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    inner: Mutex<Inner<T>>,
    filled: Notify,
    bounds: Bounds,
    budget: Arc<Budget>,
}

#[derive(Debug)]
struct Inner<T> {
    items: VecDeque<(usize, T)>,
    bytes: usize,
    closed: bool,
    dropped: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new(bounds: Bounds, budget: Arc<Budget>) -> Self {
        let inner = Inner {
            items: VecDeque::new(),
            bytes: 0,
            closed: false,
            dropped: 0,
        };
        Self {
            inner: Mutex::new(inner),
            filled: Notify::new(),
            bounds,
            budget,
        }
    }

    /// A queue bounded by its number of items alone.
    pub(crate) fn of_items(items: usize) -> Self {
        let bounds = Bounds {
            items,
            bytes: usize::MAX,
            budget_bytes: usize::MAX,
        };
        Self::new(bounds, Arc::default())
    }

    /// Appends an item unless that would break a bound or the queue is closed.
    pub(crate) fn try_push(&self, item: T, bytes: usize) -> Result<(), T> {
        let mut inner = self.inner.lock();
        if inner.closed || !self.fits(&inner, bytes) {
            return Err(item);
        }
        self.push(&mut inner, item, bytes);
        drop(inner);
        self.announce();
        Ok(())
    }

    /// Appends an item and drops the oldest ones if a bound is reached; the item itself is dropped if it never fits. Call
    /// [`Queue::announce`] afterwards, once for many.
    pub(crate) fn push_dropping_oldest(&self, item: T, bytes: usize) {
        let mut inner = self.inner.lock();
        if inner.closed {
            return;
        }
        while !self.fits(&inner, bytes) {
            inner.dropped += 1;
            self.budget.dropped.fetch_add(1, Ordering::Relaxed);
            if self.take(&mut inner).is_none() {
                return;
            }
        }
        self.push(&mut inner, item, bytes);
    }

    /// Wakes who waits for an item.
    pub(crate) fn announce(&self) {
        self.filled.notify_one();
    }

    /// The next item; `None` when the queue is closed and empty. Cancelling loses nothing.
    pub(crate) async fn pop(&self) -> Option<T> {
        self.pop_with(|inner| self.take(inner)).await
    }

    /// The next items, at least one and at most `most`; `None` when the queue is closed and empty. Cancelling loses nothing.
    pub(crate) async fn pop_some(&self, most: usize) -> Option<Vec<T>> {
        self.pop_with(|inner| {
            let count = inner.items.len().min(most.max(1));
            let items = std::iter::from_fn(|| self.take(inner)).take(count);
            (count > 0).then(|| items.collect())
        })
        .await
    }

    /// Waits until `take` takes something; `None` when the queue is closed and it takes nothing.
    async fn pop_with<R>(&self, take: impl Fn(&mut Inner<T>) -> Option<R>) -> Option<R> {
        loop {
            let filled = self.filled.notified();
            {
                let mut inner = self.inner.lock();
                let taken = take(&mut inner);
                if taken.is_some() || inner.closed {
                    return taken;
                }
            }
            filled.await;
        }
    }

    /// No more items will come; those queued can still be taken.
    pub(crate) fn close(&self) {
        self.inner.lock().closed = true;
        self.filled.notify_waiters();
    }

    /// Closes the queue and drops its items, which will not be taken.
    pub(crate) fn abandon(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        while self.take(&mut inner).is_some() {}
    }

    /// The number of items dropped because the application was too slow.
    pub(crate) fn dropped(&self) -> u64 {
        self.inner.lock().dropped
    }

    fn fits(&self, inner: &Inner<T>, bytes: usize) -> bool {
        let shared = self.budget.bytes.load(Ordering::Relaxed);
        inner.items.len() < self.bounds.items
            && inner.bytes.saturating_add(bytes) <= self.bounds.bytes
            && shared.saturating_add(bytes) <= self.bounds.budget_bytes
    }

    fn push(&self, inner: &mut Inner<T>, item: T, bytes: usize) {
        inner.items.push_back((bytes, item));
        inner.bytes += bytes;
        self.budget.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn take(&self, inner: &mut Inner<T>) -> Option<T> {
        let (bytes, item) = inner.items.pop_front()?;
        inner.bytes -= bytes;
        self.budget.bytes.fetch_sub(bytes, Ordering::Relaxed);
        Some(item)
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        self.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        items: 3,
        bytes: 100,
        budget_bytes: 150,
    };

    async fn drain(queue: &Queue<u32>) -> Vec<u32> {
        queue.close();
        let mut items = Vec::new();
        while let Some(item) = queue.pop().await {
            items.push(item);
        }
        items
    }

    #[tokio::test]
    async fn the_oldest_goes_when_items_or_bytes_run_over() {
        let queue = Queue::new(BOUNDS, Arc::default());
        for item in 0..5 {
            queue.push_dropping_oldest(item, 10);
        }
        queue.push_dropping_oldest(5, 85);
        assert_eq!(queue.dropped(), 4);
        assert_eq!(drain(&queue).await, [4, 5]);
    }

    #[tokio::test]
    async fn queues_of_one_session_share_its_budget_and_give_it_back() {
        let budget = Arc::new(Budget::default());
        let (a, b) = (
            Queue::new(BOUNDS, budget.clone()),
            Queue::new(BOUNDS, budget.clone()),
        );
        a.push_dropping_oldest(1, 100);
        b.push_dropping_oldest(2, 100);
        assert_eq!((a.dropped(), b.dropped()), (0, 1));
        drop(a);
        b.push_dropping_oldest(3, 100);
        assert_eq!(drain(&b).await, [3]);
        assert_eq!(budget.bytes.load(Ordering::Relaxed), 0);
    }

    /// Whoever is woken for the first of many finds one, and is woken for each of the others.
    #[tokio::test]
    async fn who_waits_is_woken_for_all_that_was_pushed_together() {
        let queue = Arc::new(Queue::new(BOUNDS, Arc::default()));
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.pop_some(9).await }
        });
        tokio::task::yield_now().await;
        for item in 1..4 {
            queue.push_dropping_oldest(item, 10);
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished(), "woken for some of them");
        queue.announce();
        assert_eq!(waiting.await.unwrap(), Some(vec![1, 2, 3]));
    }

    #[test]
    fn what_comes_at_a_gigabit_per_second_waits_for_an_application_that_is_late() {
        let queue = Queue::new(Bounds::of_blocks(256 << 20), Arc::default());
        // Datagrams of 35 ms.
        let datagrams = 35_000_000 / (8 * 1200);
        (0..datagrams).for_each(|item| queue.push_dropping_oldest(item, 1200));
        assert_eq!(queue.dropped(), 0, "of {datagrams}");
    }

    #[tokio::test]
    async fn closing_wakes_whoever_waits() {
        let queue = Arc::new(Queue::<u32>::of_items(1));
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.pop().await }
        });
        tokio::task::yield_now().await;
        queue.close();
        assert_eq!(waiting.await.unwrap(), None);
        assert_eq!(queue.try_push(1, 0), Err(1));
    }
}
