//! Reconfigurations that are known before they happen: by an operator's timetable, or by the times of a constellation that was computed.

use std::{
    fmt::Write as _,
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use starhaul_units::parse_decimal;

use crate::{
    Reconfiguration, Schedule, Timetable,
    timetable::{OVER_AFTER, last_and_next},
};

/// A day of changes each 100 ms, and more than any announcement holds.
const MOST_TIMES: usize = 1 << 20;
/// 2100-01-01 00:00:00 UTC: what is later is written in another unit, such as milliseconds.
const END: Duration = Duration::from_secs(4_102_444_800);
/// The wall clock may be set: it is looked at so often at least.
const LOOKED: Duration = Duration::from_secs(10);

/// The times of reconfigurations since 1970-01-01 00:00:00 UTC, ascending. As a text each is a line of seconds, whole or with decimals; what is
/// behind `#` is a comment.
///
/// ```
/// let times: starhaul_cc::KnownTimes = "# of the path\n1767225612\n1767225627.5 # another satellite".parse()?;
/// assert_eq!(times.iter().count(), 2);
/// # Ok::<(), starhaul_cc::ParseTimesError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownTimes(Arc<[Duration]>);

/// Why a text has no times.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseTimesError {
    /// A line is neither a time nor a comment.
    #[error(
        "line {line}: {text:?} is no time: write the seconds since 1970-01-01 00:00:00 UTC, such as 1767225612.5"
    )]
    Line {
        /// Counted from 1.
        line: usize,
        /// Text of the line.
        text: String,
    },
    /// It has comments at most.
    #[error("it has no time")]
    Empty,
    /// It is too long.
    #[error("it has more than {MOST_TIMES} times")]
    TooMany,
}

impl KnownTimes {
    /// These times, in whatever order.
    ///
    /// # Errors
    /// There are none, or too many.
    pub fn new(times: impl IntoIterator<Item = Duration>) -> Result<Self, ParseTimesError> {
        let mut times: Vec<Duration> = times.into_iter().take(MOST_TIMES + 1).collect();
        match times.len() {
            0 => return Err(ParseTimesError::Empty),
            1..=MOST_TIMES => {}
            _ => return Err(ParseTimesError::TooMany),
        }
        times.sort_unstable();
        times.dedup();
        Ok(Self(times.into()))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Duration> + '_ {
        self.0.iter().copied()
    }

    /// As a text that is read again, with a comment before.
    pub fn to_text(&self, comment: &str) -> String {
        let mut text = String::new();
        for line in comment.lines() {
            let _ = writeln!(text, "# {line}");
        }
        for time in self.iter() {
            let _ = writeln!(text, "{}.{:03}", time.as_secs(), time.subsec_millis());
        }
        text
    }

    /// The last that is not after an instant, and the next.
    fn around(&self, unix: Duration) -> [Option<Duration>; 2] {
        let next = self.0.partition_point(|time| *time <= unix);
        let last = next.checked_sub(1);
        [last, Some(next)].map(|at| self.0.get(at?).copied())
    }
}

impl FromStr for KnownTimes {
    type Err = ParseTimesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut times = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let time = line.split('#').next().unwrap_or_default().trim();
            if time.is_empty() {
                continue;
            }
            let seconds = parse_decimal(time).and_then(|it| Duration::try_from_secs_f64(it).ok());
            let seconds = seconds
                .filter(|it| *it < END)
                .ok_or_else(|| ParseTimesError::Line {
                    line: number,
                    text: time.chars().take(40).collect(),
                })?;
            if times.len() == MOST_TIMES {
                return Err(ParseTimesError::TooMany);
            }
            times.push(seconds);
        }
        Self::new(times)
    }
}

/// Signals reconfigurations that are known before, when the longest outages of their time are over: packets may pass again since 135 ms after
/// it.
#[derive(Clone, Debug, Default)]
pub struct Announcements {
    timetable: Option<Timetable>,
    times: KnownTimes,
    /// By the wall clock, up to when all is told.
    told: Option<Duration>,
    timeout: Option<Instant>,
}

impl Announcements {
    /// Those of a timetable with a known offset, and those at these times. A timetable without an offset announces nothing by itself.
    pub fn new(timetable: Option<Timetable>, times: KnownTimes) -> Self {
        Self {
            timetable: timetable.filter(|timetable| timetable.offset.is_some()),
            times,
            told: None,
            timeout: None,
        }
    }

    /// Whether there is nothing to tell, ever.
    pub fn is_empty(&self) -> bool {
        self.timetable.is_none() && self.times.0.is_empty()
    }

    /// Whether all listed times are over, if there were any.
    pub fn is_over(&self) -> bool {
        let last = self.times.0.last();
        last.is_some_and(|last| self.told.is_some_and(|told| *last <= told))
    }

    /// When [`Announcements::poll`] is due: at once before the first time, and then for the next one, but looks at the wall clock in between.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        (!self.is_empty()).then(|| self.timeout.unwrap_or(now))
    }

    /// The last reconfiguration whose outage is over since the last call, while the wall clock is `unix` since 1970. What was before the first
    /// call is not told. Of what a step of the clock jumps over the last one is told; what it repeats is told again at its time.
    pub fn poll(&mut self, now: Instant, unix: Duration) -> Option<Reconfiguration> {
        let over = unix.saturating_sub(OVER_AFTER);
        let timetable = self.timetable.and_then(|it| last_and_next(it, over));
        let known = self.times.around(over);
        let timetable = timetable.map_or([None; 2], |both| both.map(Some));
        let last = known[0].max(timetable[0]);
        let next = [known[1], timetable[1]].into_iter().flatten().min();
        let wait = next.map_or(LOOKED, |next| next.saturating_sub(over));
        self.timeout = now.checked_add(wait.min(LOOKED));
        let told = self.told.replace(over)?;
        let last = last.filter(|last| *last > told)?;
        let at = now.checked_sub(over.saturating_sub(last))?;
        Some(Schedule::reconfiguration(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    /// 2026-01-01 00:00:00 UTC.
    const MIDNIGHT: Duration = Duration::from_secs(1_767_225_600);

    /// Drives announcements as a program does, for so long; returns when each was told, in milliseconds.
    fn told(announcements: &mut Announcements, lasts: Duration) -> Vec<u128> {
        let start = Instant::now();
        let (mut now, mut told) = (start, Vec::new());
        while now < start + lasts {
            let found = announcements.poll(now, MIDNIGHT + (now - start));
            told.extend(found.map(|event| (event.at - start).as_millis()));
            let due = announcements.poll_timeout(now).unwrap();
            assert!(due > now, "it would never wait");
            // A poller wakes a little late.
            now = due + MS / 10;
        }
        told
    }

    #[test]
    fn times_are_told_once_each_when_outages_are_over() {
        let starlink = Announcements::new(Some(Timetable::STARLINK), KnownTimes::default());
        let times = [5, 13, 17, 50].map(|at| MIDNIGHT + at * 1000 * MS - 10_000 * MS);
        let listed = Announcements::new(None, KnownTimes::new(times).unwrap());
        let both = Announcements::new(Some(Timetable::STARLINK), KnownTimes::new(times).unwrap());
        for (mut announcements, expected) in [
            (starlink, vec![12_135, 27_135, 42_135, 57_135]),
            (listed, vec![3135, 7135, 40_135]),
            (
                both,
                vec![3135, 7135, 12_135, 27_135, 40_135, 42_135, 57_135],
            ),
        ] {
            let found = told(&mut announcements, Duration::from_secs(60));
            let distance = |(found, expected): (&u128, &u128)| found.abs_diff(*expected);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(found.iter().zip(&expected).map(distance).max() <= Some(1));
        }
    }

    #[test]
    fn a_timetable_without_an_offset_announces_nothing() {
        let mut announcements = Announcements::new(Some(Timetable::ONEWEB), KnownTimes::default());
        assert!(announcements.is_empty());
        let now = Instant::now();
        assert_eq!(announcements.poll_timeout(now), None);
        assert_eq!(announcements.poll(now, MIDNIGHT), None);
    }

    #[test]
    fn a_list_is_over_when_its_last_time_was_told() {
        let times = KnownTimes::new([MIDNIGHT, MIDNIGHT + 1000 * MS]).unwrap();
        let starlink = Some(Timetable::STARLINK);
        let mut listed = Announcements::new(starlink, times);
        let mut unlisted = Announcements::new(starlink, KnownTimes::default());
        let now = Instant::now();
        for (after, is_over) in [(0, false), (1134, false), (1135, true), (60_000, true)] {
            let unix = MIDNIGHT + after * MS;
            listed.poll(now + after * MS, unix);
            unlisted.poll(now + after * MS, unix);
            assert_eq!(listed.is_over(), is_over, "{after} ms");
            assert!(!unlisted.is_over());
        }
    }

    #[test]
    fn a_step_of_the_wall_clock_is_followed_within_seconds() {
        let now = Instant::now();
        let mut announcements =
            Announcements::new(Some(Timetable::STARLINK), KnownTimes::default());
        assert_eq!(announcements.poll(now, MIDNIGHT), None);
        let due = announcements.poll_timeout(now).unwrap();
        assert!(due <= now + LOOKED);
        // An hour forward: of all the times that never were the last one is told.
        let hour = Duration::from_secs(3600);
        let told = announcements.poll(due, MIDNIGHT + hour + 5000 * MS);
        assert!(
            told.is_some_and(|event| event.at < due - 7000 * MS),
            "{told:?}"
        );
        // And back: nothing is told again before its time.
        let back = due + 100 * MS;
        assert_eq!(announcements.poll(back, MIDNIGHT + 6000 * MS), None);
        let next = announcements.poll(back + 6136 * MS, MIDNIGHT + 12_136 * MS);
        assert_eq!(next.map(|event| event.at), Some(back + 6135 * MS));
    }

    #[test]
    fn times_are_read_and_written() {
        let text = "\n# a path\n 1767225627.5 # another satellite\n1767225612\n1767225612\n";
        let times: KnownTimes = text.parse().unwrap();
        let expected = [MIDNIGHT + 12_000 * MS, MIDNIGHT + 27_500 * MS];
        assert_eq!(times.iter().collect::<Vec<_>>(), expected);
        let written = times.to_text("a path\nfrom there to here");
        assert_eq!(written.parse::<KnownTimes>(), Ok(times), "{written}");
        assert!(written.starts_with("# a path\n# from there to here\n1767225612.000\n"));
        for (text, line) in [
            ("12s", 1),
            ("1\n-2", 2),
            ("1e9", 1),
            ("\n\nstarlink", 3),
            ("1767225612000", 1),
        ] {
            let error = text.parse::<KnownTimes>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("line {line}: ")), "{error}");
        }
        assert_eq!("# none".parse::<KnownTimes>(), Err(ParseTimesError::Empty));
        let many = "1\n".repeat(MOST_TIMES + 1);
        assert_eq!(many.parse::<KnownTimes>(), Err(ParseTimesError::TooMany));
    }
}
