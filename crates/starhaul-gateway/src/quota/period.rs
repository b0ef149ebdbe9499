//! Months as a provider bills them, by a calendar of a fixed distance from UTC.

use serde::{Deserialize, Serialize};
use time::{Date, Month, OffsetDateTime, UtcOffset};

/// Days for which every month is long enough to begin on them.
pub(super) const FIRST_DAYS: std::ops::RangeInclusive<u8> = 1..=28;

/// The day and the time zone by which a provider's months begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheme {
    /// The day of the month on which one begins at 00:00, 1 to 28.
    pub begins: u8,
    /// Seconds that the provider's clock is ahead of UTC, without summer time.
    pub offset_s: i32,
}

/// A month, by the day on which it begins: days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Period(i32);

impl Default for Scheme {
    fn default() -> Self {
        Self {
            begins: 1,
            offset_s: 0,
        }
    }
}

impl Scheme {
    /// The month at this time of the calendar clock, in seconds since 1970 UTC.
    pub fn period(&self, calendar: i64) -> Period {
        let today = local(calendar, self.offset_s).date();
        let this = with_day(today.year(), today.month(), self.begins);
        let begun = match today >= this {
            true => this,
            false => {
                let before = today.month().previous();
                let year = today.year() - i32::from(before == Month::December);
                with_day(year, before, self.begins)
            }
        };
        Period(begun.to_julian_day() - EPOCH.to_julian_day())
    }

    /// The time of the calendar clock at which the month after this one begins.
    pub fn end(&self, period: Period) -> i64 {
        let begun = period.date();
        let next = begun.month().next();
        let year = begun.year() + i32::from(next == Month::January);
        let next = with_day(year, next, self.begins);
        let days = i64::from(next.to_julian_day() - EPOCH.to_julian_day());
        days * 86_400 - i64::from(self.offset_s)
    }
}

impl Period {
    fn date(self) -> Date {
        Date::from_julian_day(self.0.saturating_add(EPOCH.to_julian_day())).unwrap_or(EPOCH)
    }
}

impl std::fmt::Display for Period {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.date().fmt(f)
    }
}

const EPOCH: Date = OffsetDateTime::UNIX_EPOCH.date();

/// The date and time of a clock `offset_s` seconds ahead of UTC. Times beyond the calendar are its epoch.
pub(crate) fn local(calendar: i64, offset_s: i32) -> OffsetDateTime {
    let offset = UtcOffset::from_whole_seconds(offset_s).unwrap_or(UtcOffset::UTC);
    let time = OffsetDateTime::from_unix_timestamp(calendar).ok();
    let time = time.and_then(|time| time.checked_to_offset(offset));
    time.unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn with_day(year: i32, month: Month, day: u8) -> Date {
    Date::from_calendar_date(year, month, day).unwrap_or(EPOCH)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn months_begin_on_their_day_by_the_providers_clock() {
        let scheme = |begins, hours: i32| Scheme {
            begins,
            offset_s: hours * 3600,
        };
        for (scheme, at, month, end) in [
            (
                scheme(1, 0),
                datetime!(2026-11-30 23:59:59 UTC),
                "2026-11-01",
                datetime!(2026-12-01 0:00 UTC),
            ),
            (
                scheme(1, 0),
                datetime!(2026-12-01 00:00:00 UTC),
                "2026-12-01",
                datetime!(2027-01-01 0:00 UTC),
            ),
            // It is December already two hours east, and still November five hours west.
            (
                scheme(1, 2),
                datetime!(2026-11-30 22:00:00 UTC),
                "2026-12-01",
                datetime!(2026-12-31 22:00 UTC),
            ),
            (
                scheme(1, -5),
                datetime!(2026-12-01 04:59:59 UTC),
                "2026-11-01",
                datetime!(2026-12-01 5:00 UTC),
            ),
            (
                scheme(28, 0),
                datetime!(2028-03-27 12:00:00 UTC),
                "2028-02-28",
                datetime!(2028-03-28 0:00 UTC),
            ),
            (
                scheme(15, 0),
                datetime!(2027-01-14 12:00:00 UTC),
                "2026-12-15",
                datetime!(2027-01-15 0:00 UTC),
            ),
        ] {
            let period = scheme.period(at.unix_timestamp());
            assert_eq!(period.to_string(), month, "{at}");
            assert_eq!(scheme.end(period), end.unix_timestamp(), "{at}");
        }
        // No clock is too wrong.
        for calendar in [i64::MIN, -1, 0, i64::MAX] {
            let scheme = scheme(28, -12);
            scheme.end(scheme.period(calendar));
        }
    }
}
