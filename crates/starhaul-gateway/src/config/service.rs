//! When a path may be used: its quota and its hours.

use std::ops::RangeInclusive;

use starhaul_config::{Error, Key, Table, definition::names, size};

use crate::{
    hours::{Hours, Window, read_offset},
    quota::{Action, Quota, Scheme},
};

/// The keys of a path's quota and hours.
pub(super) const KEYS: &[Key] = &[
    Key::size("monthly", MONTHLY)
        .or_none("none")
        .such_as("\"50GB\"")
        .means("[Quota](operate.md#quotas) of a month: bytes on the wire, both ways. Needs `state`."),
    Key::whole("month_begins", 1..=28)
        .or_count(1)
        .with(QUOTA)
        .means("Day of the month on which the bill begins, at 00:00."),
    Key::words("at_80", &ACTION_NAMES)
        .or(Action::Warn.name())
        .with(QUOTA)
        .means("What happens when 80 % of the quota are used. `warn`: it is told; `costly`: the path is the dearest, used only for what no other path brings in time; `down`: it is out of service."),
    Key::words("at_100", &ACTION_NAMES)
        .or(Action::Down.name())
        .with(QUOTA)
        .means("The same when it is used up. Not milder than `at_80`. `down` holds for the last path, too."),
    Key::texts("active", "hours")
        .or_none("always")
        .such_as("[\"mon-fri 22:00-06:00\", \"sat\"]")
        .means("[Hours](operate.md#hours) in which the path is in service. Days (`mon`, `mon-fri`, `daily`) and times (`22:00-06:00`, until the next day; none: the whole day)."),
    Key::text("utc_offset", "text, `-14:00` to `+14:00`")
        .or("+00:00")
        .with(QUOTA)
        .means("The clock of month and hours. It has no summer time."),
];
const MONTHLY: RangeInclusive<u64> = 1_000_000..=1 << 53;
/// With what they mean something.
const QUOTA: &[(&str, &str)] = &[("monthly", "\"50GB\"")];
const ACTION_NAMES: [&str; Action::ALL.len()] = names(&Action::ALL);
/// Keys that mean nothing without a quota.
const OF_QUOTA: [&str; 3] = ["month_begins", "at_80", "at_100"];

/// Reads a quota's bytes, as an order does too.
pub(crate) fn monthly(text: &str) -> Result<u64, String> {
    size::between(*MONTHLY.start(), *MONTHLY.end())(text).map(|bytes| bytes as u64)
}

/// The quota and the hours of a path.
pub(super) fn read(table: &Table<'_>) -> Result<(Option<Quota>, Option<Hours>), Error> {
    let offset = table.text("utc_offset", read_offset)?;
    let windows = table.texts("active", |text| text.parse::<Window>())?;
    let hours = Hours::new(windows, offset);
    if table.has("active") && hours.is_none() {
        return Err(table.key_problem(
            "active",
            "a path that is never in service: leave it out, or name its hours",
        ));
    }
    let quota = table.size_if("monthly")?;
    if table.has("utc_offset") && quota.is_none() && hours.is_none() {
        return Err(table.key_problem(
            "utc_offset",
            "means nothing without \"monthly\" or \"active\"",
        ));
    }
    let Some(bytes) = quota else {
        return match table.first_of(OF_QUOTA) {
            Some(key) => Err(table.key_problem(key, "means nothing without \"monthly\"")),
            None => Ok((None, hours)),
        };
    };
    let begins = table.whole("month_begins")?;
    let quota = Quota {
        scheme: Scheme {
            begins: u8::try_from(begins).unwrap_or(1),
            offset_s: offset,
        },
        at_80: table.choice("at_80", &Action::ALL)?,
        at_100: table.choice("at_100", &Action::ALL)?,
        ..Quota::new(bytes)
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
