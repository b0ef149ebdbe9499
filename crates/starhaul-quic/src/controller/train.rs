//! The train of packets by which a new path is measured (`starhaul_paths::Train`). It is no part of the flow: the controller sees
//! neither its packets nor their losses, and they leave room in its window.

use std::time::Duration;

/// As many as any first flight may have (RFC 9002 §7.2).
pub(crate) const TRAIN_PACKETS: usize = 10;
/// A shorter path finds its capacity by itself before a train is worth its bytes.
const LEAST_RTT: Duration = Duration::from_millis(100);

/// Whether a path was measured, and the packets that are under way for it.
#[derive(Debug, Default)]
pub(super) struct TrainFlight {
    decided: bool,
    /// What it shows is still to come, and is of the present path.
    awaited: bool,
    /// Numbers of its packets without a fate.
    numbers: Vec<u64>,
    bytes: u64,
    /// The numbers of its first packet and of its last.
    ends: Option<(u64, u64)>,
}

impl TrainFlight {
    /// Whether one is to leave now. `rtt`: the path's least, once it is known.
    pub(super) fn is_due(&mut self, rtt: Option<Duration>, is_limited: bool) -> bool {
        let Some(rtt) = rtt.filter(|_| !self.decided) else {
            return false;
        };
        self.decided = rtt < LEAST_RTT || is_limited;
        !self.decided
    }

    /// The train leaves.
    pub(super) fn begin(&mut self) {
        (self.decided, self.awaited) = (true, true);
    }

    /// What it shows came; whether it counts.
    pub(super) fn take_result(&mut self) -> bool {
        std::mem::take(&mut self.awaited)
    }

    /// What the path carried when it left is no measure any more.
    pub(super) fn give_up(&mut self) {
        self.awaited = false;
    }

    /// Whether the packet lies between the first and the last of the train, whatever became of it.
    pub(super) fn spans(&self, number: u64) -> bool {
        self.ends
            .is_some_and(|(least, greatest)| (least..=greatest).contains(&number))
    }

    pub(super) fn on_sent(&mut self, number: u64, bytes: u64) {
        self.numbers.push(number);
        let (least, _) = self.ends.unwrap_or((number, number));
        self.ends = Some((least, number));
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// The fate of a packet is known; whether it is one of the train's.
    pub(super) fn take(&mut self, number: u64, bytes: u64) -> bool {
        let Some(index) = self.numbers.iter().position(|known| *known == number) else {
            return false;
        };
        self.numbers.swap_remove(index);
        self.bytes = self.bytes.saturating_sub(bytes);
        true
    }

    /// Bytes of its packets without a fate.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// This end is at another network, which is to be measured. What left is still acknowledged.
    pub(super) fn leave(&mut self) {
        (self.decided, self.awaited) = (false, false);
        self.ends = None;
    }

    /// The stack reports no fate of what left.
    pub(super) fn abandon(&mut self) {
        self.numbers.clear();
        self.bytes = 0;
    }
}
