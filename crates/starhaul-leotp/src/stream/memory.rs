//! What each stream may hold, and what all of them do. A stream may take a third of what the others leave: alone it has what a long path needs, many have
//! equal parts, and something is left for the next one (dynamic thresholds: A. K. Choudhury, E. L. Hahne, 1998).

use std::time::Duration;

use super::StreamConfig;

/// The window of a stream that begins, if there is memory.
const FIRST_WINDOW: usize = 1 << 20;
/// Data of a stream that were written and wait to leave, at most: the application is asked for more before they have left.
const MOST_WAITING: usize = 1 << 20;
/// A stream takes at most this part of what the others leave, and its first window at most the other one.
const SHARE: usize = 3;
const FIRST_SHARE: usize = 16;

/// The limits of each stream, and what all of them hold.
#[derive(Debug)]
pub(super) struct Limits {
    /// Bytes of data that may be unread when a stream begins, and later at most.
    pub(super) first_window: usize,
    pub(super) window: usize,
    /// Bytes of data that wait to leave, and with these that the other side does not have, at most.
    pub(super) waiting: usize,
    pub(super) buffer: usize,
    /// For all streams: the bytes that they may have, and those that they hold or have promised to take.
    pub(super) memory: usize,
    pub(super) reserved: usize,
    pub(super) refresh: Duration,
    pub(super) patience: Duration,
    pub(super) alive: Duration,
    pub(super) give_up: Duration,
    pub(super) linger: Duration,
}

impl Limits {
    /// `patience`: how long relays remember Interests, which are repeated after `refresh`; `alive`: what shows that a side is there.
    pub(super) fn new(
        config: &StreamConfig,
        patience: Duration,
        refresh: Duration,
        alive: Duration,
    ) -> Self {
        let window = config.window_bytes.max(StreamConfig::LEAST_WINDOW);
        let buffer = config.buffer_bytes.max(1);
        Self {
            first_window: window.min(FIRST_WINDOW),
            window,
            waiting: buffer.min(MOST_WAITING),
            buffer,
            memory: config.memory_bytes,
            reserved: 0,
            refresh,
            patience,
            alive,
            give_up: config.give_up,
            linger: patience,
        }
    }

    /// Bytes that a stream may have which has `own` of those that all have.
    pub(super) fn share(&self, own: usize) -> usize {
        (self.left_to(own) / SHARE).max(StreamConfig::LEAST_WINDOW)
    }

    /// Its first window.
    pub(super) fn first_window_of(&self, own: usize) -> usize {
        let share = self.left_to(own) / FIRST_SHARE;
        self.first_window.min(share).max(StreamConfig::LEAST_WINDOW)
    }

    fn left_to(&self, own: usize) -> usize {
        let others = self.reserved.saturating_sub(own);
        self.memory.saturating_sub(others)
    }

    /// What windows are to leave free.
    pub(super) const fn most_reserved(&self) -> usize {
        self.memory / 4 * 3
    }

    pub(super) fn is_memory_short(&self) -> bool {
        self.reserved > self.most_reserved()
    }
}

/// The most that each may have so that all together have no more than `memory`: those that have less keep it, the others have equal parts.
pub(super) fn level(mut held: Vec<usize>, memory: usize) -> usize {
    held.sort_unstable();
    let (mut left, mut count) = (memory, held.len());
    for bytes in held {
        let part = left / count.max(1);
        if bytes > part {
            return part;
        }
        left -= bytes;
        count -= 1;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ContentSecret;

    fn limits(memory: usize) -> Limits {
        let config = StreamConfig {
            memory_bytes: memory,
            ..StreamConfig::new(ContentSecret::new(&[1; 32]))
        };
        let time = Duration::from_secs(1);
        Limits::new(&config, time, time, time)
    }

    #[test]
    fn shares_are_equal_and_never_exceed_the_memory() {
        const MEMORY: usize = 256 << 20;
        for count in [1, 2, 10, 100, 1000] {
            let fair = MEMORY / (count + 2);
            let mut limits = limits(MEMORY);
            limits.reserved = fair * count;
            let share = limits.share(fair);
            assert!(share.abs_diff(fair) <= count, "{count}: {share} of {fair}");
            // The stream that comes first takes more, and leaves enough for the next.
            limits.reserved = 0;
            let mut held = vec![0; count];
            for turn in 0..100 * count {
                let own = &mut held[turn % count];
                let share = limits.share(*own).max(*own);
                limits.reserved += share - *own;
                *own = share;
            }
            let most = MEMORY + count * StreamConfig::LEAST_WINDOW;
            assert!(limits.reserved <= most, "{count}: {}", limits.reserved);
        }
    }

    #[test]
    fn first_windows_become_small_before_memory_ends() {
        const MEMORY: usize = 64 << 20;
        let mut limits = limits(MEMORY);
        let mut windows = Vec::new();
        for _ in 0..1000 {
            let window = limits.first_window_of(0);
            limits.reserved += window;
            windows.push(window);
        }
        assert_eq!(windows[..48], [FIRST_WINDOW; 48]);
        assert!(windows.is_sorted_by(|a, b| a >= b));
        assert_eq!(windows[999], StreamConfig::LEAST_WINDOW);
        assert!(limits.reserved <= MEMORY + 1000 * StreamConfig::LEAST_WINDOW);
    }

    #[test]
    fn those_that_have_little_keep_it() {
        assert_eq!(level(vec![], 100), usize::MAX);
        assert_eq!(level(vec![10, 20, 30], 100), usize::MAX);
        assert_eq!(level(vec![80, 10, 50], 100), 45);
        assert_eq!(level(vec![40, 40, 40, 40], 100), 25);
        assert_eq!(level(vec![1, 1], 0), 0);
    }
}
