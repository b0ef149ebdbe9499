//! The values of orders as people write them.

use starhaul_units::Bandwidth;

use crate::{
    config::read_monthly,
    hours::{Hours, Window},
    path_change::PathChange,
};

/// Highest price per byte, as in the configuration; a path that its quota made the dearest has it, and carries only what no other brings.
pub const MAX_COST: f64 = starhaul_session::LAST_RESORT;
/// In place of a value: as the configuration has it.
const CONFIGURED: &str = "configured";
/// In place of a rate or a quota: no limit, whatever the configuration has.
pub(super) const NONE: &str = "none";
/// In place of hours: all of them.
pub(super) const ALWAYS: &str = "always";

/// What is ordered of one path; by default nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Order {
    pub(super) down: bool,
    pub(super) cost: Option<f64>,
    /// `Some(None)`: no limit, even where the configuration has one.
    pub(super) limit: Option<Option<Bandwidth>>,
    /// `Some(None)`: no quota.
    pub(super) monthly: Option<Option<u64>>,
    /// `Some(None)`: in service at all hours.
    pub(super) active: Option<Option<Hours>>,
}

impl Order {
    /// The order after a change.
    ///
    /// # Errors
    /// A value is impossible.
    pub(super) fn changed(mut self, change: &PathChange) -> Result<Self, String> {
        if let Some(cost) = &change.cost {
            self.cost = read_cost(cost)?;
        }
        if let Some(limit) = &change.limit {
            self.limit = read_limit(limit)?;
        }
        if let Some(monthly) = &change.monthly {
            self.monthly = read_quota(monthly)?;
        }
        if let Some(active) = &change.active {
            self.active = read_hours(active)?;
        }
        if let Some(down) = change.down {
            self.down = down;
        }
        Ok(self)
    }

    /// The change that makes this order of none.
    pub(super) fn as_change(&self, peer: &str, path: &str) -> PathChange {
        let rate = |rate: Bandwidth| format!("{}bit", rate.bits_per_second());
        PathChange {
            path: path.to_owned(),
            peer: Some(peer.to_owned()),
            down: self.down.then_some(true),
            cost: self.cost.map(|cost| cost.to_string()),
            limit: self.limit.map(|limit| limit.map_or(NONE.to_owned(), rate)),
            monthly: self.monthly.map(show_quota),
            active: self.active.as_ref().map(|hours| show_hours(hours.as_ref())),
            used: None,
            keep: false,
        }
    }
}

impl PathChange {
    /// Whether its values can be read, whichever path they are for.
    ///
    /// # Errors
    /// Names the first that cannot, and what is possible.
    pub fn check_values(&self) -> Result<(), String> {
        Order::default().changed(self)?;
        match &self.used {
            Some(used) => read_used(used).map(drop),
            None => Ok(()),
        }
    }
}

pub(super) fn show_quota(bytes: Option<u64>) -> String {
    bytes.map_or(NONE.to_owned(), |bytes| format!("{bytes}B"))
}

pub(super) fn show_hours(hours: Option<&Hours>) -> String {
    hours.map_or(ALWAYS.to_owned(), Hours::windows)
}

fn read_cost(text: &str) -> Result<Option<f64>, String> {
    if text == CONFIGURED {
        return Ok(None);
    }
    let cost = text.parse().ok();
    let cost = cost.filter(|cost| (0.0..=MAX_COST).contains(cost));
    cost.map(Some).ok_or_else(|| {
        format!(
            "cost: {text:?} is no price: write a number from 0 to {MAX_COST:e}, or {CONFIGURED}"
        )
    })
}

fn read_limit(text: &str) -> Result<Option<Option<Bandwidth>>, String> {
    match text {
        CONFIGURED => Ok(None),
        NONE => Ok(Some(None)),
        rate => match rate.parse() {
            Ok(Bandwidth::ZERO) => {
                Err("limit: a rate of zero carries nothing; take the path down instead".to_owned())
            }
            Ok(rate) => Ok(Some(Some(rate))),
            Err(error) => Err(format!("limit: {error}; or {NONE}, or {CONFIGURED}")),
        },
    }
}

fn read_quota(text: &str) -> Result<Option<Option<u64>>, String> {
    match text {
        CONFIGURED => Ok(None),
        NONE => Ok(Some(None)),
        bytes => match read_monthly(bytes) {
            Ok(bytes) => Ok(Some(Some(bytes))),
            Err(error) => Err(format!("monthly: {error}; or {NONE}, or {CONFIGURED}")),
        },
    }
}

/// Bytes that a month has used, up to the greatest quota.
pub(super) fn read_used(text: &str) -> Result<u64, String> {
    let bytes = starhaul_config::size::between(0, 1 << 53)(text);
    bytes
        .map(|bytes| bytes as u64)
        .map_err(|error| format!("used: {error}"))
}

fn read_hours(text: &str) -> Result<Option<Option<Hours>>, String> {
    match text {
        CONFIGURED => Ok(None),
        ALWAYS => Ok(Some(None)),
        windows => {
            let windows = windows.split(',').map(|text| text.trim().parse::<Window>());
            match windows.collect::<Result<Vec<_>, _>>() {
                Ok(windows) => Ok(Some(Hours::new(windows, 0))),
                Err(error) => Err(format!("active: {error}; or {ALWAYS}, or {CONFIGURED}")),
            }
        }
    }
}
