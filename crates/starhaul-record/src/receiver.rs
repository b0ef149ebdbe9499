//! The receiver of the heavy flow, at the client or at the server: arrivals in bins of one millisecond, missing
//! packets, and delays.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::wire::{Data, Feedback, Interval, MAX_BINS};

const FEEDBACK_INTERVAL_MS: u64 = 50;
/// A bin is reported this long after its end, as arrivals are read a little late.
const SETTLE_MS: u64 = 4;
/// Greatest plausible gap in packet numbers; beyond it the sender's numbers have jumped.
const GREATEST_GAP: u64 = 1 << 24;

#[derive(Debug)]
pub(crate) struct Receiver {
    epoch: Instant,
    /// The first bin not yet reported; `bins` begins there.
    first_ms: u64,
    bins: VecDeque<u32>,
    next_sequence: u64,
    newest_sent_us: u64,
    number: u32,
    seen: Interval,
    received: u64,
}

impl Receiver {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            epoch: now,
            first_ms: 0,
            bins: VecDeque::new(),
            next_sequence: 0,
            newest_sent_us: 0,
            number: 0,
            seen: Interval::default(),
            received: 0,
        }
    }

    /// Packets of the heavy flow so far.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Takes a packet of the heavy flow with a verified tag.
    pub(crate) fn on_data(&mut self, arrived: Instant, data: &Data, ip_bytes: u32) {
        self.on_bytes(arrived, ip_bytes);
        self.received += 1;
        let way = i64::try_from(self.clock_us(arrived)).unwrap_or(i64::MAX)
            - i64::try_from(data.sent_us).unwrap_or(i64::MAX);
        let way = way.clamp(-(1 << 53), 1 << 53);
        let seen = &mut self.seen;
        if seen.received == 0 {
            (seen.way_min_us, seen.way_max_us) = (way, way);
        }
        seen.way_min_us = seen.way_min_us.min(way);
        seen.way_max_us = seen.way_max_us.max(way);
        seen.received = seen.received.saturating_add(1);
        seen.phase = seen.phase.max(data.phase);
        self.newest_sent_us = self.newest_sent_us.max(data.sent_us);
        match data.sequence.checked_sub(self.next_sequence) {
            Some(0) => {}
            Some(missing) => {
                let missing = missing.min(GREATEST_GAP);
                seen.lost = seen
                    .lost
                    .saturating_add(u32::try_from(missing).unwrap_or(u32::MAX));
                seen.bursts = seen.bursts.saturating_add(1);
            }
            // A packet that was overtaken and counted as lost.
            None => {
                seen.lost = seen.lost.saturating_sub(1);
                seen.bursts = seen.bursts.min(seen.lost);
                return;
            }
        }
        self.next_sequence = data.sequence.saturating_add(1);
    }

    /// Another packet of this session, which takes its share of the link.
    pub(crate) fn on_bytes(&mut self, arrived: Instant, ip_bytes: u32) {
        let ms = self.clock_us(arrived) / 1000;
        let index = usize::try_from(ms.saturating_sub(self.first_ms)).unwrap_or(usize::MAX);
        if index >= 64 * MAX_BINS {
            return;
        }
        if index >= self.bins.len() {
            self.bins.resize(index + 1, 0);
        }
        if let Some(bin) = self.bins.get_mut(index) {
            *bin = bin.saturating_add(ip_bytes).min((1 << 21) - 1);
        }
    }

    /// When the next feedback is due.
    pub(crate) fn poll_timeout(&self) -> Instant {
        self.epoch + Duration::from_millis(self.first_ms + FEEDBACK_INTERVAL_MS + SETTLE_MS)
    }

    /// The next feedback, once its interval is long enough.
    pub(crate) fn poll_feedback(
        &mut self,
        now: Instant,
        session: u64,
        end: bool,
    ) -> Option<Feedback> {
        let over_ms = (self.clock_us(now) / 1000).saturating_sub(SETTLE_MS);
        let count = over_ms.saturating_sub(self.first_ms).min(MAX_BINS as u64);
        if count < FEEDBACK_INTERVAL_MS {
            return None;
        }
        let mut seen = std::mem::take(&mut self.seen);
        // An interval without packets keeps its phase.
        self.seen.phase = seen.phase;
        seen.first_ms = u32::try_from(self.first_ms).unwrap_or(u32::MAX);
        seen.bins = (0..count)
            .map(|_| self.bins.pop_front().unwrap_or(0))
            .collect();
        self.first_ms += count;
        let number = self.number;
        self.number += 1;
        Some(Feedback {
            session,
            number,
            end,
            seen,
            newest_sent_us: self.newest_sent_us,
        })
    }

    fn clock_us(&self, at: Instant) -> u64 {
        let micros = at.saturating_duration_since(self.epoch).as_micros();
        u64::try_from(micros).unwrap_or(u64::MAX)
    }
}
