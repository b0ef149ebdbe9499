//! The gap model (DMTP §V): packets that leave together arrive at the distances at which the narrowest link lets them go, so their
//! arrivals tell what the path carries before anything else has measured it.

use std::time::Duration;

use starhaul_units::Bandwidth;

/// Receivers read what waits in their socket together: of fewer readings than this the distance says nothing.
const LEAST_READINGS: usize = 3;
/// So much of a train must have arrived behind the first reading.
const LEAST_SHARE: u64 = 2;
/// Shorter distances are as much the receiver's scheduler as the path; a faster path counts as one that takes so long.
const LEAST_SPAN: Duration = Duration::from_millis(2);

/// Equally large packets that left one right after the other, and what acknowledgements say of their arrivals.
///
/// ```
/// use starhaul_paths::Train;
/// use starhaul_units::Bandwidth;
///
/// // Ten packets of 1250 bytes over 10 Mbit/s: one each millisecond.
/// let mut train = Train::new(0, 10, 1250);
/// for newest in 0..10 {
///     let is_over = train.on_ack(&[(0, newest)], 70_000 + 1000 * newest);
///     assert_eq!(is_over, newest == 9);
/// }
/// assert_eq!(train.rate(), Some(Bandwidth::from_mbit(10)));
/// ```
#[derive(Clone, Debug)]
pub struct Train {
    first: u64,
    packets: u64,
    packet_bytes: u64,
    readings: Vec<Reading>,
}

/// What had arrived when the receiver read its socket.
#[derive(Clone, Copy, Debug)]
struct Reading {
    newest: u64,
    arrived: u64,
    /// Microseconds of the receiver's clock.
    at: u64,
}

impl Train {
    /// The train of `packets` packets that begins with number `first`, each with `packet_bytes` bytes on the path.
    pub const fn new(first: u64, packets: u64, packet_bytes: u64) -> Self {
        Self {
            first,
            packets,
            packet_bytes,
            readings: Vec::new(),
        }
    }

    /// An acknowledgement names what has arrived (ranges of first and last number, newest first), the newest `at` this
    /// time in microseconds of the receiver's clock. Returns whether nothing more is to be learnt of the train.
    pub fn on_ack(&mut self, ranges: &[(u64, u64)], at: u64) -> bool {
        let end = self.first.saturating_add(self.packets);
        let Some(&(_, newest)) = ranges.first().filter(|(_, last)| *last >= self.first) else {
            return false;
        };
        if newest >= end {
            return true;
        }
        let within = ranges.iter().map(|&(first, last)| {
            let after = last.saturating_add(1).min(end);
            after.saturating_sub(first.max(self.first))
        });
        let reading = Reading {
            newest,
            arrived: within.sum(),
            at,
        };
        let last = self.readings.last();
        if last.is_none_or(|last| newest > last.newest && at > last.at) {
            self.readings.push(reading);
        }
        newest + 1 == end
    }

    /// What the path carried of it; `None` when too little arrived, or too much of it at once.
    pub fn rate(&self) -> Option<Bandwidth> {
        let (first, last) = (self.readings.first()?, self.readings.last()?);
        let behind = last.arrived.saturating_sub(first.arrived);
        if self.readings.len() < LEAST_READINGS || behind < self.packets / LEAST_SHARE {
            return None;
        }
        let span = Duration::from_micros(last.at.saturating_sub(first.at)).max(LEAST_SPAN);
        let bytes = behind.saturating_mul(self.packet_bytes);
        Some(Bandwidth::from_bytes_over(bytes, span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 1250;

    fn rate_of(acks: &[(&[(u64, u64)], u64)]) -> Option<Bandwidth> {
        let mut train = Train::new(100, 10, BYTES);
        for (ranges, at) in acks {
            train.on_ack(ranges, *at);
        }
        train.rate()
    }

    #[test]
    fn losses_and_late_acknowledgements_change_no_rate() {
        // Each packet takes 1 ms. 103 and 105 are lost, and with them their time at the link behind which they were lost.
        let acks: [(&[(u64, u64)], u64); 5] = [
            (&[(90, 100)], 1000),
            (&[(104, 104), (90, 102)], 5000),
            (&[(90, 101)], 2000),
            (&[(106, 107), (104, 104), (90, 102)], 8000),
            (&[(106, 109), (104, 104), (90, 102)], 10_000),
        ];
        // Seven packets in nine milliseconds.
        let expected = Bandwidth::from_bytes_over(7 * BYTES, Duration::from_millis(9));
        assert_eq!(rate_of(&acks), Some(expected));
    }

    #[test]
    fn what_a_frame_carries_at_once_is_no_rate() {
        assert_eq!(rate_of(&[(&[(100, 109)], 1000)]), None);
        let two: [(&[(u64, u64)], u64); 2] = [(&[(100, 104)], 1000), (&[(100, 109)], 1010)];
        assert_eq!(rate_of(&two), None, "of two readings");
        let front: [(&[(u64, u64)], u64); 3] = [
            (&[(100, 106)], 1000),
            (&[(100, 107)], 1010),
            (&[(100, 108)], 1020),
        ];
        assert_eq!(rate_of(&front), None, "too little behind the first reading");
    }

    #[test]
    fn a_path_too_fast_for_its_receiver_counts_as_slower() {
        let mut train = Train::new(100, 10, BYTES);
        for number in 0..10 {
            train.on_ack(&[(100, 100 + number)], 1000 + number);
        }
        let most = Bandwidth::from_bytes_over(9 * BYTES, LEAST_SPAN);
        assert_eq!(train.rate(), Some(most));
    }

    #[test]
    fn packets_before_and_after_the_train_do_not_count() {
        let mut train = Train::new(100, 10, BYTES);
        assert!(!train.on_ack(&[(90, 99)], 10));
        assert!(!train.on_ack(&[], 10));
        assert!(train.on_ack(&[(90, 110)], 20));
        assert_eq!(train.rate(), None);
        assert!(train.on_ack(&[(0, u64::MAX)], u64::MAX));
    }
}
