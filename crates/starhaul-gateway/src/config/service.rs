//! When a path may be used: its quota and its hours.

use starhaul_config::{Error, Table, choice, size};

use crate::{
    hours::{Hours, Window, read_offset},
    quota::{Action, Quota, Scheme},
};

/// The keys of a path's quota and hours.
pub(super) const KEYS: &[&str] = &[
    "monthly",
    "month_begins",
    "at_80",
    "at_100",
    "active",
    "utc_offset",
];
/// Keys that mean nothing without a quota.
const OF_QUOTA: [&str; 3] = ["month_begins", "at_80", "at_100"];

/// Reads a quota's bytes, as an order does too.
pub(crate) fn monthly(text: &str) -> Result<u64, String> {
    size::between(1_000_000, 1 << 53)(text).map(|bytes| bytes as u64)
}

/// The quota and the hours of a path.
pub(super) fn read(table: &Table<'_>) -> Result<(Option<Quota>, Option<Hours>), Error> {
    let offset = table.text("utc_offset", read_offset)?;
    let windows = table.texts("active", |text| text.parse::<Window>())?;
    let hours = Hours::new(windows, offset.unwrap_or(0));
    if table.has("active") && hours.is_none() {
        return Err(table.key_problem(
            "active",
            "a path that is never in service: leave it out, or name its hours",
        ));
    }
    let quota = table.text("monthly", monthly)?;
    if offset.is_some() && quota.is_none() && hours.is_none() {
        return Err(table.key_problem(
            "utc_offset",
            "means nothing without \"monthly\" or \"active\"",
        ));
    }
    let Some(bytes) = quota else {
        return match OF_QUOTA.iter().find(|key| table.has(key)) {
            Some(key) => Err(table.key_problem(key, "means nothing without \"monthly\"")),
            None => Ok((None, hours)),
        };
    };
    let begins = table.integer("month_begins", 1..=28)?;
    let default = Quota::new(bytes);
    let action = |key| table.text(key, |text| choice(text, &Action::ALL));
    let quota = Quota {
        scheme: Scheme {
            begins: begins.and_then(|day| u8::try_from(day).ok()).unwrap_or(1),
            offset_s: offset.unwrap_or(0),
        },
        at_80: action("at_80")?.unwrap_or(default.at_80),
        at_100: action("at_100")?.unwrap_or(default.at_100),
        ..default
    };
    if quota.at_100 < quota.at_80 {
        return Err(table.key_problem(
            "at_100",
            format!(
                "{:?} is milder than {:?} of \"at_80\": at 100 % a path may not do more again",
                quota.at_100.name(),
                quota.at_80.name()
            ),
        ));
    }
    Ok((Some(quota), hours))
}
