//! Controlled delay: drops from the head of a queue whose packets wait too long (RFC 8289 §5). It does not mark ECN
//! itself, since a link does not inspect its packets: who gets the dropped ones may mark and send them instead.

use std::time::{Duration, Instant};

use crate::OPPORTUNITY_BYTES;

/// The settings of a CoDel queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    /// Acceptable standing wait (RFC 8289 §4.3).
    pub target: Duration,
    /// For how long the wait may exceed the target before a packet is dropped, about an RTT (RFC 8289 §4.3).
    pub interval: Duration,
}

impl Default for Codel {
    /// 5 ms in 100 ms, the defaults of RFC 8289 §4.4.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
        }
    }
}

/// A packet taken from the head of a queue.
#[derive(Debug)]
pub struct Head<T> {
    /// When the packet was appended to the queue.
    pub since: Instant,
    /// Bytes left in the queue behind it.
    pub bytes_left: usize,
    /// The packet itself.
    pub item: T,
}

/// Decides which packets of a queue are dropped; the caller has the queue. Variables as in RFC 8289 §5.3.
#[derive(Debug)]
pub struct CodelState {
    settings: Codel,
    first_above: Option<Instant>,
    drop_next: Option<Instant>,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl CodelState {
    /// The state for an empty queue.
    pub const fn new(settings: Codel) -> Self {
        Self {
            settings,
            first_above: None,
            drop_next: None,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }

    /// Changes the settings; what was decided before stays.
    pub const fn set(&mut self, settings: Codel) {
        self.settings = settings;
    }

    /// The next packet to send; `pop` takes packets from the head of the queue, `dropped` gets those that CoDel drops
    /// (§5.5), each before the packet that it returns.
    pub fn dequeue<T>(
        &mut self,
        now: Instant,
        mut pop: impl FnMut() -> Option<Head<T>>,
        mut dropped: impl FnMut(T),
    ) -> Option<T> {
        let mut head = pop();
        let mut may_drop = self.may_drop(now, head.as_ref());
        if self.dropping {
            self.dropping = may_drop;
            while self.dropping && self.drop_next.is_none_or(|at| at <= now) {
                head.into_iter().for_each(|head| dropped(head.item));
                self.count = self.count.saturating_add(1);
                head = pop();
                may_drop = self.may_drop(now, head.as_ref());
                self.dropping = may_drop;
                if may_drop {
                    self.drop_next = self.next_drop(self.drop_next.unwrap_or(now));
                }
            }
        } else if may_drop {
            head.into_iter().for_each(|head| dropped(head.item));
            head = pop();
            // The next drop decides whether this one may be dropped too.
            self.may_drop(now, head.as_ref());
            self.dropping = true;
            let recent = self.drop_next.is_some_and(|at| {
                now.saturating_duration_since(at) < self.settings.interval.saturating_mul(16)
            });
            let grown = self.count.saturating_sub(self.last_count);
            self.count = if recent && grown > 1 { grown } else { 1 };
            self.last_count = self.count;
            self.drop_next = self.next_drop(now);
        }
        head.map(|head| head.item)
    }

    /// `dodequeue` of §5.6: whether the wait has exceeded the target for long enough.
    fn may_drop<T>(&mut self, now: Instant, head: Option<&Head<T>>) -> bool {
        let above = head.is_some_and(|head| {
            now.saturating_duration_since(head.since) >= self.settings.target
                && head.bytes_left as u64 > OPPORTUNITY_BYTES
        });
        if !above {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = now.checked_add(self.settings.interval);
                false
            }
            Some(at) => now >= at,
        }
    }

    /// The control law of §5.4. An instant beyond the clock's end counts as now.
    fn next_drop(&self, from: Instant) -> Option<Instant> {
        let step = self
            .settings
            .interval
            .div_f64(f64::from(self.count.max(1)).sqrt());
        // At least a nanosecond, so that a tiny interval cannot hold one dequeue for ever.
        from.checked_add(step.max(Duration::from_nanos(1)))
    }
}
