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
