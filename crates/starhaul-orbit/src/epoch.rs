//! Instants as satellites know them: UTC, which is a value and comes from no clock.

use std::{fmt, str::FromStr, time::Duration};

use sgp4::chrono::{Datelike as _, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta};

use crate::{Error, setting};

/// An instant in UTC, as text `2000-01-01T00:00:00Z`; from 1957 to 2099.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(NaiveDateTime);

impl Epoch {
    /// None outside of the years that two digits of a TLE can name, and some more.
    pub(crate) fn new(time: NaiveDateTime) -> Option<Self> {
        (1957..2100).contains(&time.year()).then_some(Self(time))
    }

    /// The time since 1970-01-01 00:00:00 UTC; `None` before that.
    pub fn unix(self) -> Option<Duration> {
        let origin = NaiveDate::from_ymd_opt(1970, 1, 1)?.and_time(NaiveTime::MIN);
        (self.0 - origin).to_std().ok()
    }

    /// The instant so much later; the same one when that is out of range.
    pub(crate) fn after(self, offset: Duration) -> Self {
        let later = TimeDelta::from_std(offset).ok();
        let later = later.and_then(|offset| self.0.checked_add_signed(offset));
        later.map_or(self, Self)
    }

    /// Minutes from `other` to this instant.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a century is 47 bits of microseconds"
    )]
    pub(crate) fn minutes_since(self, other: Self) -> f64 {
        let distance = self.0 - other.0;
        let micros = distance.num_microseconds().unwrap_or_default();
        micros as f64 / 60e6
    }

    /// Years since 2000-01-01 12:00, as SGP4 counts.
    pub(crate) fn julian_years(self) -> f64 {
        sgp4::julian_years_since_j2000(&self.0)
    }

    /// The angle from the vernal equinox to the meridian of Greenwich, radians.
    pub(crate) fn sidereal_angle(self) -> f64 {
        sgp4::iau_epoch_to_sidereal_time(self.julian_years())
    }
}

impl FromStr for Epoch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let form = "write an instant in UTC from 1957 to 2099, as 2022-09-14T12:00:00Z";
        let trimmed = text.trim();
        let trimmed = trimmed.strip_suffix('Z').unwrap_or(trimmed);
        // A day alone is its midnight.
        let midnight = format!("{trimmed}T00:00:00");
        let time = trimmed.parse().or_else(|_| midnight.parse());
        let epoch = time.ok().and_then(Self::new);
        epoch.ok_or_else(|| setting("at", text, form))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}Z", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Position;

    #[test]
    fn text_says_what_the_value_says() {
        let epoch: Epoch = "2022-09-14T12:00:00Z".parse().unwrap();
        assert_eq!(epoch.to_string(), "2022-09-14T12:00:00Z");
        assert_eq!("2022-09-14T12:00:00".parse(), Ok(epoch));
        let later = epoch.after(Duration::from_millis(1_500));
        assert_eq!(later.to_string(), "2022-09-14T12:00:01.500Z");
        let unix = Duration::from_millis(1_663_156_801_500);
        assert_eq!(later.unix(), Some(unix));
        let early: Epoch = "1969-12-31T23:59:59Z".parse().unwrap();
        assert_eq!(early.unix(), None);
        assert_eq!(later.to_string().parse(), Ok(later));
        assert!((later.minutes_since(epoch) - 0.025).abs() < 1e-12);
        assert_eq!(
            "2022-09-14".parse::<Epoch>().unwrap().to_string(),
            "2022-09-14T00:00:00Z"
        );
        for bad in [
            "",
            "noon",
            "1950-01-01T00:00:00Z",
            "2022-13-01",
            "+99999-01-01",
        ] {
            assert!(bad.parse::<Epoch>().is_err(), "{bad:?} was read");
        }
    }

    #[test]
    fn the_meridian_of_greenwich_is_where_almanacs_say() {
        // Greenwich mean sidereal time at J2000.0 is 280.46062°.
        let noon: Epoch = "2000-01-01T12:00:00Z".parse().unwrap();
        assert!((noon.sidereal_angle().to_degrees() - 280.460_62).abs() < 1e-4);
    }

    #[test]
    fn axes_turn_as_in_the_published_example() {
        // Vallado et al., AIAA 2006-6753, appendix C: TEME to the pseudo-Earth-fixed axes, at the UT1 of the example.
        let epoch: Epoch = "2004-04-06T07:51:27.946047".parse().unwrap();
        let teme = Position::new([5_094.180_162_1, 6_127.644_659_5, 6_380.344_532_7]);
        let fixed = teme.turned(epoch.sidereal_angle());
        let expected = Position::new([-1_033.475_031_3, 7_901.305_585_6, 6_380.344_532_7]);
        assert!(fixed.distance(expected) < 1e-3, "{fixed:?}");
    }
}
