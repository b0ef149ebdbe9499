//! What datagrams that arrived measure of their path: acknowledgement time, one-way delay, rate. Those that left together and are
//! acknowledged together, as a batch that leaves as one is, measure the same and are taken together.

use std::{cmp::Reverse, time::Duration};

use starhaul_units::Bandwidth;

use super::{FOREVER, LEAST_MARGIN, MOST_LEAST_MARGIN, PathMonitor, RATE_WINDOW};
use crate::{Fated, delay::Smoothed};

/// Shortest interval of a rate sample; acknowledgements come in batches.
const RATE_INTERVAL: Duration = Duration::from_millis(100);

impl<T: Copy> PathMonitor<T> {
    /// These have arrived, oldest first; `one_way` is that of `last`.
    pub(super) fn measure(&mut self, news: &[Fated<T>], last: u64, one_way: Option<Duration>) {
        let is_plain = |fated: &Fated<T>| {
            let has_delay = one_way.is_some() && fated.sequence == last;
            fated.elicits_ack && !fated.was_lost && !has_delay
        };
        let alike = |fated: &Fated<T>, next: &Fated<T>| {
            fated.sent == next.sent && is_plain(fated) && is_plain(next)
        };
        for run in news.chunk_by(alike) {
            let Some((first, rest)) = run.split_first() else {
                continue;
            };
            if first.elicits_ack {
                self.on_arrived(first, one_way.filter(|_| first.sequence == last));
            }
            if !rest.is_empty() {
                self.on_arrived_alike(rest);
            }
        }
    }

    fn on_arrived(&mut self, fated: &Fated<T>, one_way: Option<Duration>) {
        if fated.was_lost && self.ledger.is_reported(fated.sequence) {
            self.loss.take_back(fated.sequence);
            self.told_loss.take_back();
        }
        let turnaround = self.now.saturating_duration_since(fated.sent);
        self.note_lateness(turnaround);
        self.add_turnaround(turnaround);
        self.answers_move = self.answers_move.and_then(|(first, left)| {
            let left = left - u8::from(fated.sequence >= first);
            (left > 0).then_some((first, left))
        });
        if let Some(one_way) = one_way.filter(|_| !fated.was_lost) {
            // No datagram arrives later than its acknowledgement, whatever the clocks give.
            let one_way = one_way.min(turnaround);
            add(&mut self.one_way, one_way);
            self.latest_one_way = one_way;
            self.least_one_way.add(self.now, one_way);
        }
        self.count_delivered(if fated.was_lost { 0 } else { fated.bytes });
        self.recent.count(self.now, fated.bytes);
    }

    /// What [`PathMonitor::on_arrived`] does for each of these, where another one that left with them was the last to arrive.
    fn on_arrived_alike(&mut self, alike: &[Fated<T>]) {
        // What they are judged by must not depend on them: how acknowledgements come, and the least RTT.
        let is_fixed = self.answers_move.is_none() && !self.transport.smoothed_rtt.is_zero();
        let (Some(first), Some(smoothed), true) = (alike.first(), self.turnaround, is_fixed) else {
            for fated in alike {
                self.on_arrived(fated, None);
            }
            return;
        };
        let sample = self.now.saturating_duration_since(first.sent);
        self.add_turnarounds(sample, smoothed, alike.len());
        // The first one of this instant ended what intervals were over.
        let bytes = alike.iter().map(|fated| fated.bytes);
        let bytes = bytes.fold(0, usize::saturating_add);
        self.count_delivered(bytes);
        self.recent.count(self.now, bytes);
    }

    /// An acknowledgement came after so long.
    fn note_lateness(&mut self, turnaround: Duration) {
        if self.may_be_tardy() && turnaround > self.usually_overdue_after() {
            let late = turnaround.saturating_sub(self.answered_after());
            self.tardy.note(self.now, late.min(MOST_LEAST_MARGIN));
        }
    }

    fn add_turnaround(&mut self, sample: Duration) {
        let sample = credible(sample, self.turnaround().mean());
        add(&mut self.turnaround, sample);
        // Acknowledgements may return over a faster path, so the transport's own RTT has precedence.
        if self.transport.smoothed_rtt.is_zero() {
            self.add_floor(sample);
        }
    }

    /// So many acknowledgements came after so long: what [`PathMonitor::note_lateness`] and [`PathMonitor::add_turnaround`] do for each,
    /// where acknowledgements do not move and the transport has an RTT.
    fn add_turnarounds(&mut self, turnaround: Duration, mut smoothed: Smoothed, count: usize) {
        let may_be_tardy = self.may_be_tardy();
        let mut latest = None;
        for _ in 0..count {
            let mean = smoothed.mean();
            if may_be_tardy
                && turnaround > mean
                && turnaround > mean + usual_margin(mean, smoothed.variation())
            {
                let late = (turnaround - mean).min(MOST_LEAST_MARGIN);
                latest = latest.max(Some(late));
            }
            smoothed.add(credible(turnaround, mean));
        }
        self.turnaround = Some(smoothed);
        if let Some(late) = latest {
            self.tardy.note(self.now, late);
        }
    }

    fn count_delivered(&mut self, bytes: usize) {
        let interval = RATE_INTERVAL.max(self.smoothed_rtt().min(RATE_WINDOW));
        let Some((start, delivered)) = &mut self.interval else {
            self.interval = Some((self.now, 0));
            return;
        };
        *delivered = delivered.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        let elapsed = self.now.saturating_duration_since(*start);
        if elapsed >= interval {
            let rate = Bandwidth::from_bytes_over(*delivered, elapsed);
            self.rates.add(self.now, Reverse(rate));
            self.delivery_rate = self
                .rates
                .least()
                .map_or(rate, |Reverse(greatest)| greatest);
            self.interval = Some((self.now, 0));
        }
    }
}

/// By so much more than they usually take acknowledgements are overdue: four variations, in bounds.
pub(super) fn usual_margin(mean: Duration, variation: Duration) -> Duration {
    let most = (mean / 2).max(MOST_LEAST_MARGIN);
    (variation * 4).clamp(LEAST_MARGIN, most)
}

/// An acknowledgement that was lost and repeated is no sample of the path.
fn credible(sample: Duration, mean: Duration) -> Duration {
    let most = mean.saturating_mul(4).max(MOST_LEAST_MARGIN);
    sample.min(most).min(FOREVER)
}

fn add(smoothed: &mut Option<Smoothed>, sample: Duration) {
    match smoothed {
        Some(smoothed) => smoothed.add(sample),
        None => *smoothed = Some(Smoothed::first(sample)),
    }
}

#[cfg(test)]
mod tests;
