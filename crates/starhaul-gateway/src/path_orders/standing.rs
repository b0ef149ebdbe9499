//! Whether a path is in service: what is ordered, its hours, and its quota.

use crate::{
    config::PathRule,
    hours::Hours,
    quota::{Action, Level, Quota, Usage},
};

use super::values::Order;

/// Why a path is out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// An operator took it down.
    Ordered,
    /// It is outside of its hours.
    Hours,
    /// Its quota says so.
    Quota,
    /// How much of its quota is used is not known for sure.
    Uncounted,
}

/// What holds for a path.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) out: Option<Why>,
    /// Its quota makes it the dearest path.
    pub(crate) costly: bool,
    pub(crate) quota: Option<(Quota, Usage)>,
    pub(crate) hours: Option<Hours>,
}

impl Why {
    /// Its name in the status and in logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ordered => "ordered",
            Self::Hours => "hours",
            Self::Quota => "quota",
            Self::Uncounted => "uncounted",
        }
    }
}

impl Order {
    /// The quota of a path under this order.
    pub(super) fn quota(&self, rule: &PathRule) -> Option<Quota> {
        match self.monthly {
            None => rule.quota,
            Some(None) => None,
            Some(Some(monthly)) => Some(Quota {
                monthly,
                ..rule.quota.unwrap_or(Quota::new(monthly))
            }),
        }
    }

    /// The hours of a path under this order, by the clock of those that are configured.
    pub(super) fn hours(&self, rule: &PathRule) -> Option<Hours> {
        let configured = rule.hours.as_ref();
        match &self.active {
            None => rule.hours.clone(),
            Some(ordered) => {
                let offset = configured.map_or(0, Hours::offset_s);
                ordered.clone().map(|hours| hours.with_offset(offset))
            }
        }
    }

    /// What holds for a path under this order at this time, with what its month has used.
    pub(super) fn standing(
        &self,
        rule: &PathRule,
        calendar: i64,
        usage: impl FnOnce() -> Option<Usage>,
    ) -> Standing {
        let hours = self.hours(rule);
        let quota = self.quota(rule).and_then(|quota| Some((quota, usage()?)));
        let action = quota
            .as_ref()
            .and_then(|(quota, usage)| quota.action(usage));
        let is_unsure = quota
            .as_ref()
            .is_some_and(|(_, usage)| usage.unsure.is_some());
        let is_closed = hours.as_ref().is_some_and(|hours| !hours.is_open(calendar));
        let out = match action {
            _ if self.down => Some(Why::Ordered),
            _ if is_closed => Some(Why::Hours),
            Some(Action::Down) if is_unsure => Some(Why::Uncounted),
            Some(Action::Down) => Some(Why::Quota),
            _ => None,
        };
        Standing {
            out,
            costly: action == Some(Action::Costly),
            quota,
            hours,
        }
    }
}

impl Standing {
    /// What helps a path that is out of service, for people.
    pub(super) fn remedy(&self, path: &str) -> String {
        match self.out {
            None | Some(Why::Ordered) => format!("`starhaul path up {path}` takes it into service"),
            Some(Why::Hours) => format!(
                "it is outside of its hours ({}): `starhaul path set {path} active=always` puts it into service all the same",
                self.hours
                    .iter()
                    .map(ToString::to_string)
                    .collect::<String>()
            ),
            Some(Why::Quota) => format!(
                "its quota of the month is used up: `starhaul path set {path} monthly=SIZE` gives it more, monthly=none all"
            ),
            Some(Why::Uncounted) => format!(
                "{}: `starhaul path set {path} used=SIZE` says what the month has used, monthly=none does without a quota",
                self.unsure().unwrap_or_default()
            ),
        }
    }

    pub(super) fn unsure(&self) -> Option<&str> {
        self.quota.as_ref()?.1.unsure.as_deref()
    }

    /// What the log is told once.
    pub(super) fn facts(&self) -> Facts {
        let level = self
            .quota
            .as_ref()
            .map(|(quota, usage)| quota.level(usage.used));
        Facts {
            out: self.out.filter(|why| *why != Why::Ordered),
            level: level.unwrap_or(Level::Below),
        }
    }
}

/// The facts of a standing that the log knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    out: Option<Why>,
    level: Level,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            out: None,
            level: Level::Below,
        }
    }
}

impl Facts {
    /// Writes what is new since `before` into the log, one line for each fact.
    pub(super) fn tell(self, before: Self, peer: &str, path: &str, standing: &Standing) {
        if let Some((quota, usage)) = &standing.quota
            && self.level != before.level
        {
            let (used, monthly) = (usage.used, quota.monthly);
            match self.level {
                Level::Nearly => {
                    tracing::warn!(
                        peer,
                        path,
                        used,
                        monthly,
                        action = quota.at_80.name(),
                        "80 % of a quota is used"
                    );
                }
                Level::Reached => {
                    tracing::warn!(
                        peer,
                        path,
                        used,
                        monthly,
                        action = quota.at_100.name(),
                        "a quota is reached"
                    );
                }
                Level::Below => tracing::info!(peer, path, used, monthly, "a quota has room again"),
            }
        }
        if self.out == before.out {
            return;
        }
        match self.out {
            Some(why) => {
                let (reason, help) = (why.name(), standing.remedy(path));
                tracing::warn!(peer, path, reason, help, "a path is out of service");
            }
            None => tracing::info!(peer, path, "a path is in service again"),
        }
    }
}
