//! Quotas: how many bytes a path may carry in a month, and what happens when it has.
//!
//! [`Book`] counts and knows no clock and no file; `keeper` reads the meters, the clock and the file.

mod account;
mod book;
mod file;
pub(crate) mod keeper;
#[cfg(test)]
mod month;
mod period;

#[doc(hidden)]
pub use self::file::seal;
pub(crate) use self::period::local;
pub use self::{
    account::DOUBT,
    book::{Book, Key, Usage},
    file::{FileError, MAX_BYTES},
    period::{Period, Scheme},
};

/// What becomes of a path at a share of its quota, the mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// It is told.
    Warn,
    /// The path is the dearest: it carries what no other one brings in time.
    Costly,
    /// The path is out of service, even if it is the last one.
    Down,
}

/// The quota of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Bytes on the wire of a month, both ways together.
    pub monthly: u64,
    /// When the provider's months begin.
    pub scheme: Scheme,
    /// What happens when 80 % of it are used.
    pub at_80: Action,
    /// What happens when all of it is used.
    pub at_100: Action,
}

/// How much of a quota is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Less than 80 %.
    Below,
    /// At least 80 %, and less than all.
    Nearly,
    /// All of it.
    Reached,
}

impl Action {
    /// Every one, with its name.
    pub const ALL: [(&'static str, Self); 3] = [
        ("warn", Self::Warn),
        ("costly", Self::Costly),
        ("down", Self::Down),
    ];

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::Costly => "costly",
            Self::Down => "down",
        }
    }
}

impl Level {
    /// Its name in the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Below => "below",
            Self::Nearly => "nearly",
            Self::Reached => "reached",
        }
    }
}

impl Quota {
    /// A quota with the default actions, of calendar months in UTC.
    pub fn new(monthly: u64) -> Self {
        Self {
            monthly,
            scheme: Scheme::default(),
            at_80: Action::Warn,
            at_100: Action::Down,
        }
    }

    /// How much of it these bytes are.
    pub fn level(&self, used: u64) -> Level {
        match used {
            used if used >= self.monthly => Level::Reached,
            used if u128::from(used) * 5 >= u128::from(self.monthly) * 4 => Level::Nearly,
            _ => Level::Below,
        }
    }

    /// What holds for the path now. A figure that is not to be relied on counts as the whole quota: what cannot be counted is
    /// not spent.
    pub fn action(&self, usage: &Usage) -> Option<Action> {
        match (usage.unsure.is_some(), self.level(usage.used)) {
            (true, _) | (false, Level::Reached) => Some(self.at_100),
            (false, Level::Nearly) => Some(self.at_80),
            (false, Level::Below) => None,
        }
    }
}
