//! Hours of the week in which a path is in service: `mon-fri 22:00-06:00`, `sat`, `daily 08:00-18:00`.

use std::fmt;

use crate::quota::local;

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const DAILY: &str = "daily";
const ALL_DAYS: u8 = 0x7f;
const DAY_MINUTES: u16 = 24 * 60;
const WEEK_MINUTES: i64 = 7 * 24 * 60;

/// The hours of a path, by a calendar of a fixed distance from UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hours {
    /// The windows of a week, at least one.
    windows: Vec<Window>,
    offset_s: i32,
}

/// Hours that begin on some days of the week; after midnight they belong to the day before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// A bit for each day from Monday.
    days: u8,
    /// Minutes since midnight.
    from: u16,
    /// Minutes since that midnight; beyond 24 hours it is the next day.
    until: u16,
}

impl Hours {
    /// Hours by a clock `offset_s` seconds ahead of UTC; `None` without a window.
    pub fn new(windows: Vec<Window>, offset_s: i32) -> Option<Self> {
        (!windows.is_empty()).then_some(Self { windows, offset_s })
    }

    /// The same windows by another clock.
    #[must_use]
    pub fn with_offset(self, offset_s: i32) -> Self {
        Self { offset_s, ..self }
    }

    /// Seconds that its clock is ahead of UTC.
    pub fn offset_s(&self) -> i32 {
        self.offset_s
    }

    /// The windows as they are written, with commas between them.
    pub fn windows(&self) -> String {
        let windows: Vec<_> = self.windows.iter().map(ToString::to_string).collect();
        windows.join(", ")
    }

    /// Whether the path is in service at this time, in seconds since 1970.
    pub fn is_open(&self, calendar: i64) -> bool {
        let now = local(calendar, self.offset_s);
        let day = u16::from(now.weekday().number_days_from_monday());
        let minute = u16::from(now.hour()) * 60 + u16::from(now.minute());
        let is_in = |window: &Window, day: u16, minute: u16| {
            window.days & (1 << day) != 0 && (window.from..window.until).contains(&minute)
        };
        self.windows.iter().any(|window| {
            is_in(window, day, minute) || is_in(window, (day + 6) % 7, minute + DAY_MINUTES)
        })
    }

    /// When it is next taken into service or out of it, in seconds since 1970; `None` if it never is.
    pub fn next_change(&self, calendar: i64) -> Option<i64> {
        let now = self.is_open(calendar);
        let minute = calendar.div_euclid(60);
        let mut minutes = (1..=WEEK_MINUTES).map(|after| minute.saturating_add(after) * 60);
        minutes.find(|at| self.is_open(*at) != now)
    }
}

impl std::str::FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || {
            format!(
                "{text:?} are no hours: write days and times, for example \"mon-fri 22:00-06:00\", \"sat\" or \"{DAILY} 08:00-18:00\""
            )
        };
        let mut words = text.split_whitespace();
        let days = words.next().and_then(read_days).ok_or_else(error)?;
        let (from, until) = match (words.next(), words.next()) {
            (None, _) => (0, DAY_MINUTES),
            (Some(times), None) => {
                let (from, until) = times.split_once('-').ok_or_else(error)?;
                let from = read_time(from).filter(|from| *from < DAY_MINUTES);
                let from = from.ok_or_else(error)?;
                (from, read_time(until).ok_or_else(error)?)
            }
            _ => return Err(error()),
        };
        let until = match until {
            same if same == from => {
                return Err(format!(
                    "{text:?} ends when it begins: for the whole day write the day alone"
                ));
            }
            earlier if earlier < from => earlier + DAY_MINUTES,
            later => later,
        };
        Ok(Self { days, from, until })
    }
}

fn read_days(text: &str) -> Option<u8> {
    let day = |text: &str| DAYS.iter().position(|name| *name == text);
    if text == DAILY {
        return Some(ALL_DAYS);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (day(first)?, day(last)?);
    // "sat-mon" goes on over the end of the week.
    let days = (0..=(last + 7 - first) % 7).map(|after| (first + after) % 7);
    Some(days.fold(0, |days, day| days | 1 << day))
}

/// Minutes of `HH:MM`, up to `24:00`.
fn read_time(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let is_short = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_short(hours) || !is_short(minutes) {
        return None;
    }
    let (hours, minutes) = (hours.parse::<u16>().ok()?, minutes.parse::<u16>().ok()?);
    let time = hours * 60 + minutes;
    (minutes < 60 && time <= DAY_MINUTES).then_some(time)
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_day = |day: usize| self.days & (1 << (day % 7)) != 0;
        if self.days == ALL_DAYS {
            f.write_str(DAILY)?;
        } else {
            let first = (0..7).find(|day| is_day(*day) && !is_day(day + 6));
            let first = first.unwrap_or(0);
            let length = (0..7).take_while(|after| is_day(first + after)).count();
            let name = |day: usize| DAYS.get(day % 7).copied().unwrap_or_default();
            match length {
                1 => f.write_str(name(first))?,
                _ => write!(f, "{}-{}", name(first), name(first + length - 1))?,
            }
        }
        if (self.from, self.until) == (0, DAY_MINUTES) {
            return Ok(());
        }
        let until = match self.until {
            DAY_MINUTES => DAY_MINUTES,
            until => until % DAY_MINUTES,
        };
        let time = |minutes: u16| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        write!(f, " {}-{}", time(self.from), time(until))
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.windows())?;
        match self.offset_s {
            0 => f.write_str(" UTC"),
            offset => write!(f, " UTC{}", show_offset(offset)),
        }
    }
}

/// Shows an offset from UTC as `+02:00`.
pub(crate) fn show_offset(offset_s: i32) -> String {
    let sign = if offset_s < 0 { '-' } else { '+' };
    let minutes = offset_s.unsigned_abs() / 60;
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

/// Reads `+02:00` or `-05:30`, at most 14 hours: seconds ahead of UTC.
pub(crate) fn read_offset(text: &str) -> Result<i32, String> {
    let minutes = match text.split_at_checked(1) {
        Some(("+", time)) => read_time(time).map(i32::from),
        Some(("-", time)) => read_time(time).map(|minutes| -i32::from(minutes)),
        _ => None,
    };
    let minutes = minutes.filter(|minutes| minutes.abs() <= 14 * 60);
    minutes.map(|minutes| minutes * 60).ok_or_else(|| {
        format!("{text:?} is no distance from UTC: write for example \"+02:00\" or \"-05:30\"")
    })
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    fn hours(windows: &[&str], offset: &str) -> Hours {
        let windows = windows.iter().map(|text| text.parse().unwrap()).collect();
        Hours::new(windows, read_offset(offset).unwrap()).unwrap()
    }

    #[test]
    fn nights_belong_to_the_day_on_which_they_begin() {
        // 2026-11-24 is a Tuesday.
        let nights = hours(&["mon-fri 22:00-06:00", "sat"], "+00:00");
        for (at, open) in [
            (datetime!(2026-11-23 05:59 UTC), false),
            (datetime!(2026-11-23 22:00 UTC), true),
            (datetime!(2026-11-24 05:59:59 UTC), true),
            (datetime!(2026-11-24 06:00 UTC), false),
            // Friday night goes on into Saturday, which is open as a whole.
            (datetime!(2026-11-28 03:00 UTC), true),
            (datetime!(2026-11-28 23:59 UTC), true),
            (datetime!(2026-11-29 00:00 UTC), false),
        ] {
            assert_eq!(nights.is_open(at.unix_timestamp()), open, "{at}");
        }
        let at = datetime!(2026-11-24 12:00:30 UTC).unix_timestamp();
        let opens = datetime!(2026-11-24 22:00 UTC).unix_timestamp();
        assert_eq!(nights.next_change(at), Some(opens));
        let east = hours(&["mon-fri 22:00-06:00"], "+02:00");
        assert_eq!(east.next_change(at), Some(opens - 7200));
        assert_eq!(hours(&["daily"], "-05:30").next_change(at), None);
    }

    #[test]
    fn what_is_read_is_shown_the_same() {
        for text in [
            "daily",
            "sat",
            "sat-mon",
            "mon-fri 22:00-06:00",
            "daily 00:30-24:00",
            "tue-sun 00:00-00:01",
        ] {
            assert_eq!(text.parse::<Window>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "noon",
            "mon 22:00",
            "mon 24:00-02:00",
            "mon 1:00-2:00",
            "mon 08:60-09:00",
            "mon 08:00-08:00",
            "mon 08:00-24:01",
            "mon 08:00-09:00 more",
        ] {
            text.parse::<Window>().unwrap_err();
        }
        for text in ["+02:00", "-05:30", "+14:00"] {
            assert_eq!(show_offset(read_offset(text).unwrap()), text);
        }
        for text in ["", "02:00", "+2", "+14:01", "UTC"] {
            read_offset(text).unwrap_err();
        }
    }
}
