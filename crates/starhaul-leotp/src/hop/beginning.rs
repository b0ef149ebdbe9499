//! The first data to a neighbour, and those from it. Until they are measured, a sender sends what the first round trip supposes; but a hop may be far slower,
//! and what stands in its queue then keeps all else waiting. At most hops they are measured within a round trip and a half.

/// A neighbour that has got the packet of this place, or a later one, has measured a rate.
const MEASURED: usize = 8;
/// So many leave before it is known to have got those; then one leaves each second.
const MOST_UNDER_WAY: usize = 20;
/// A receiver says what it has got until it is so much.
const REPORTED: usize = 16;

/// How far both ways have come.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    /// Packets with data that left, and the number of the last that the neighbour has to get.
    sent: usize,
    last: u64,
    /// Packets with data that came.
    observed: usize,
}

impl Beginning {
    /// A packet with data leaves.
    pub(super) fn sent(&mut self, number: u64) {
        if self.sent < MEASURED {
            self.last = number;
        }
        self.sent += 1;
    }

    /// A packet with data came.
    pub(super) fn observe(&mut self) {
        self.observed += 1;
    }

    /// Whether the neighbour may not know yet what came of its first packets.
    pub(super) fn reports(&self) -> bool {
        self.observed < REPORTED
    }

    /// Whether more is under way than a hop may hold of which nothing is known. `received`: one more than the greatest number that is
    /// known to have come.
    pub(super) fn is_full(&self, received: u64) -> bool {
        self.sent >= MOST_UNDER_WAY && received <= self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_under_way_until_some_have_come() {
        let mut beginning = Beginning::default();
        for number in 100..120 {
            assert!(!beginning.is_full(100), "{number}");
            beginning.sent(number);
        }
        assert!(beginning.is_full(100) && beginning.is_full(107));
        assert!(!beginning.is_full(108));
    }
}
