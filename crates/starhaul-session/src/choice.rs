//! The multipath schedulers that exist, by name.

use crate::{optimized::Optimized, rules::Rules, scheduler::Scheduler};

/// Who chooses the paths of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulerChoice {
    /// Each fragment goes where it arrives first, or over a cheaper path that is in time.
    #[default]
    Rules,
    /// A plan divides the blocks over the paths, by quality and then cost (DMTP §V); rules do what it does not cover.
    Optimizer,
}

impl SchedulerChoice {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Rules, Self::Optimizer];

    /// Their names, in the same order.
    pub const NAMES: [&str; Self::ALL.len()] = {
        let mut names = [""; Self::ALL.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = Self::ALL[index].name();
            index += 1;
        }
        names
    };

    /// Its name, as configurations spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rules => "rules",
            Self::Optimizer => "optimizer",
        }
    }

    /// A scheduler for one session.
    pub fn build(self) -> Box<dyn Scheduler> {
        match self {
            Self::Rules => Box::new(Rules),
            Self::Optimizer => Box::new(Optimized::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_tells_the_name_by_which_it_is_chosen() {
        for choice in SchedulerChoice::ALL {
            assert_eq!(choice.build().status().name, choice.name());
        }
    }
}
