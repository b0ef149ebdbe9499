//! The timetables of operators' reconfigurations (LeoCC §3), by the wall clock or by the last one found.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, Instant},
};

use starhaul_units::parse_duration;

use crate::{Reconfiguration, ReconfigurationSource};

/// A shorter period would leave no time outside the margin of the detector.
const LEAST_PERIOD: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(60);
/// The longest outage (LeoCC §3): packets pass again at most this long after the time.
pub(crate) const OVER_AFTER: Duration = Duration::from_millis(135);
/// Confidence in a reconfiguration that was not detected: enough to be news, and less than any detector's.
const CONFIDENCE: f64 = 0.5;

/// An operator's timetable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timetable {
    /// Offset from 1970-01-01 00:00:00 UTC by this host's clock; if the period divides a minute, also after each full
    /// minute. `None` if unknown: the times then follow the last reconfiguration that was found.
    pub offset: Option<Duration>,
    /// Time between two reconfigurations.
    pub period: Duration,
}

impl Timetable {
    /// Starlink: 12, 27, 42 and 57 seconds after each full minute (LeoCC §3).
    pub const STARLINK: Self = Self {
        offset: Some(Duration::from_secs(12)),
        period: Duration::from_secs(15),
    };
    /// OneWeb: about each 11 s (LeoCC §3), with an unknown offset.
    pub const ONEWEB: Self = Self {
        offset: None,
        period: Duration::from_secs(11),
    };

    /// The timetable on the monotonic clock, while the wall clock is `unix` since 1970 and the last reconfiguration was
    /// found at `last`.
    pub fn schedule(self, unix: Duration, now: Instant, last: Option<Instant>) -> Option<Schedule> {
        let anchor = match self.offset {
            None => last?,
            Some(offset) => {
                let period = self.period.as_nanos().max(1);
                let past = (unix.as_nanos() + period - offset.as_nanos() % period) % period;
                let left = Duration::from_nanos(u64::try_from(period - past).ok()?);
                now.checked_add(left)?
            }
        };
        Some(Schedule {
            anchor,
            period: self.period,
        })
    }
}

/// The last of a timetable's times that is not after `unix` since 1970, and the next; `None` without an offset, and before the first.
pub(crate) fn last_and_next(timetable: Timetable, unix: Duration) -> Option<[Duration; 2]> {
    let period = timetable.period.as_nanos().max(1);
    let past = unix.checked_sub(timetable.offset?)?.as_nanos() % period;
    let last = unix.checked_sub(Duration::from_nanos(u64::try_from(past).ok()?))?;
    Some([last, last.checked_add(timetable.period)?])
}

/// A [`Timetable`] on the monotonic clock. Reconfigurations occur at other times, too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Any one of the times.
    pub anchor: Instant,
    /// Time between two of them.
    pub period: Duration,
}

impl Schedule {
    /// The distance from `at` to the nearest time, before or after.
    pub fn distance(&self, at: Instant) -> Duration {
        let period_ns = self.period.as_nanos().max(1);
        let from_anchor = if at >= self.anchor {
            at - self.anchor
        } else {
            self.anchor - at
        };
        let past_ns = from_anchor.as_nanos() % period_ns;
        let ns = past_ns.min(period_ns - past_ns);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// The first time after `at`; `None` when the clock cannot express it.
    pub fn next_after(&self, at: Instant) -> Option<Instant> {
        let period_ns = self.period.as_nanos().max(1);
        let ns = match at.checked_duration_since(self.anchor) {
            Some(since) => period_ns - since.as_nanos() % period_ns,
            None => match (self.anchor - at).as_nanos() % period_ns {
                0 => period_ns,
                rest => rest,
            },
        };
        at.checked_add(Duration::from_nanos(u64::try_from(ns).ok()?))
    }

    /// When packets pass again, at the latest, after the next time.
    pub fn next_hint(&self, now: Instant) -> Option<Instant> {
        let before = now.checked_sub(OVER_AFTER)?;
        self.next_after(before)?.checked_add(OVER_AFTER)
    }

    /// When packets passed again, at the latest, after the last time, if that is after `since`.
    pub fn last_hint(&self, now: Instant, since: Instant) -> Option<Instant> {
        let last = self.next_hint(now.checked_sub(self.period)?)?;
        (since..=now).contains(&last).then_some(last)
    }

    /// The reconfiguration that a schedule alone signals at one of its hints.
    pub fn reconfiguration(at: Instant) -> Reconfiguration {
        Reconfiguration {
            at,
            outage: Duration::ZERO,
            source: ReconfigurationSource::Schedule,
            confidence: CONFIDENCE,
        }
    }
}

/// Why a text is no timetable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseTimetableError {
    /// The text has no valid form.
    #[error(
        "{0:?} is no timetable: write starlink, oneweb, or for example \"12s every 15s\", or \"every 11s\" where only that is known"
    )]
    Form(String),
    /// The times are out of range.
    #[error("the period of a timetable is 1 s to 60 s, and its offset at most 60 s")]
    Range,
}

impl FromStr for Timetable {
    type Err = ParseTimetableError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "starlink" => return Ok(Self::STARLINK),
            "oneweb" => return Ok(Self::ONEWEB),
            _ => {}
        }
        let form = || ParseTimetableError::Form(text.to_owned());
        let time = |text: &str| parse_duration(text).map_err(|_| form());
        let (offset, period) = text.split_once("every ").ok_or_else(form)?;
        let offset = match offset {
            "" => None,
            offset => Some(time(offset.strip_suffix(' ').ok_or_else(form)?)?),
        };
        let period = time(period)?;
        let fits = (LEAST_PERIOD..=MOST).contains(&period) && offset.is_none_or(|o| o <= MOST);
        fits.then_some(Self { offset, period })
            .ok_or(ParseTimetableError::Range)
    }
}

impl fmt::Display for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(offset) = self.offset {
            write!(f, "{}s ", offset.as_secs_f64())?;
        }
        write!(f, "every {}s", self.period.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn timetables_are_read_and_said() {
        for (text, said) in [
            ("starlink", "12s every 15s"),
            ("oneweb", "every 11s"),
            ("1500ms every 11.5s", "1.5s every 11.5s"),
            ("0 every 60s", "0s every 60s"),
        ] {
            let timetable: Timetable = text.parse().unwrap();
            assert_eq!(timetable.to_string(), said, "{text}");
        }
        for text in [
            "",
            "onweb",
            "every",
            "every ",
            "12s",
            "12severy 15s",
            "12s every 15",
            "-1s every 15s",
            " every 15s",
            "12s every 0.5s",
            "61s every 15s",
            "12s every 61s",
        ] {
            assert!(text.parse::<Timetable>().is_err(), "{text:?} was read");
        }
    }

    /// For any period the times continue over full minutes, hours and days.
    #[test]
    fn times_are_a_period_apart_also_where_a_minute_ends() {
        let now = Instant::now();
        for text in ["12s every 15s", "0s every 11s", "7300ms every 13.7s"] {
            let timetable: Timetable = text.parse().unwrap();
            let offset = timetable.offset.unwrap();
            // 2026-01-01 00:00:00 UTC, evaluated every second for some minutes.
            let midnight = Duration::from_secs(1_767_225_600);
            for look in 0..200 {
                let unix = midnight - 100 * 1000 * MS + look * 1000 * MS;
                let schedule = timetable.schedule(unix, now, None).unwrap();
                let next = schedule.next_after(now).unwrap();
                let at = unix + (next - now);
                let past = (at - offset).as_nanos() % timetable.period.as_nanos();
                assert_eq!(past, 0, "{text}: {at:?} of {unix:?}");
            }
        }
        let unix = Duration::from_secs(1_767_225_600 + 20);
        let starlink = Timetable::STARLINK.schedule(unix, now, None).unwrap();
        assert_eq!(starlink.next_after(now), Some(now + 7000 * MS));
    }

    #[test]
    fn a_timetable_without_an_offset_goes_by_what_was_found() {
        let now = Instant::now();
        let unix = Duration::from_secs(1_767_225_600);
        assert_eq!(Timetable::ONEWEB.schedule(unix, now, None), None);
        let found = now + 3000 * MS;
        let schedule = Timetable::ONEWEB.schedule(unix, now, Some(found)).unwrap();
        assert_eq!(schedule.next_after(found), Some(found + 11_000 * MS));
    }

    #[test]
    fn a_hint_comes_when_the_longest_outage_is_over() {
        let anchor = Instant::now();
        let schedule = Schedule {
            anchor,
            period: 15_000 * MS,
        };
        let first = anchor + 135 * MS;
        assert_eq!(schedule.next_hint(anchor), Some(first));
        assert_eq!(schedule.next_hint(anchor + 134 * MS), Some(first));
        assert_eq!(schedule.next_hint(first), Some(first + 15_000 * MS));
    }
}
