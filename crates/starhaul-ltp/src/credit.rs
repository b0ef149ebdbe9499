//! What may be sent to an engine that was not added as a peer and has not shown that it gets what is sent to it: little more than came
//! from there. A host that forges another host's address on datagrams must not have that host sent many times as much.

/// So many times the bytes that came may be sent.
const TIMES: usize = 3;
/// Reports that there are not may be acknowledged so often: those of a session that was forgotten and has begun anew. To guess a number
/// takes thousands.
const MOST_MISSES: u32 = 4;

/// The bytes that may still be sent; by default any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credit {
    left: Option<usize>,
    /// How often a report was acknowledged that there is not.
    misses: u32,
}

impl Credit {
    /// Credit for these bytes, which came.
    pub(crate) fn earned_by(bytes: usize) -> Self {
        Self {
            left: Some(bytes.saturating_mul(TIMES)),
            misses: 0,
        }
    }

    /// More bytes came.
    pub(crate) fn earn(&mut self, bytes: usize) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_add(bytes.saturating_mul(TIMES));
        }
    }

    /// The engine is there: it has answered something that only it was told.
    pub(crate) fn lift(&mut self) {
        *self = Self::default();
    }

    /// The engine knows the number of a report, unless it has tried others: there are few enough to try them all.
    pub(crate) fn lift_by_serial(&mut self) {
        if self.misses <= MOST_MISSES {
            self.lift();
        }
    }

    /// The engine does not know the number of a report.
    pub(crate) fn miss(&mut self) {
        self.misses = self.misses.saturating_add(u32::from(self.is_limited()));
    }

    /// Whether the engine has still to show that it is there.
    pub(crate) fn is_limited(self) -> bool {
        self.left.is_some()
    }

    /// Whether so many bytes may be sent.
    pub(crate) fn allows(self, bytes: usize) -> bool {
        self.left.is_none_or(|left| left >= bytes)
    }

    /// They are sent.
    pub(crate) fn spend(&mut self, bytes: usize) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_three_times_what_came_until_it_is_lifted() {
        let mut credit = Credit::earned_by(10);
        credit.earn(10);
        assert!(credit.allows(60) && !credit.allows(61));
        credit.spend(50);
        assert!(credit.allows(10) && !credit.allows(11) && credit.is_limited());
        credit.lift_by_serial();
        assert!(credit.allows(usize::MAX) && !credit.is_limited());
        // Repeated acknowledgements say nothing then.
        credit.miss();
        assert_eq!(credit, Credit::default());
    }

    #[test]
    fn few_reports_of_a_forgotten_session_may_be_acknowledged() {
        for (misses, is_lifted) in [(MOST_MISSES, true), (MOST_MISSES + 1, false)] {
            let mut credit = Credit::earned_by(10);
            (0..misses).for_each(|_| credit.miss());
            credit.lift_by_serial();
            assert_eq!(!credit.is_limited(), is_lifted, "{misses}");
        }
    }
}
