//! Units that every crate shares. A bare number elsewhere has its unit in its name; a rate is always a [`Bandwidth`].
//!
//! ```
//! use starhaul_units::Bandwidth;
//! let rate: Bandwidth = "10mbit".parse()?;
//! assert_eq!(rate.time_to_send(1250), std::time::Duration::from_millis(1));
//! # Ok::<(), starhaul_units::ParseBandwidthError>(())
//! ```

mod text;

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use text::{
    ParseDurationError, ParseShareError, parse_decimal, parse_duration, parse_duration_in,
    parse_number, parse_share,
};

/// A data rate in bits per second. Zero is allowed and means that the sender cannot send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bandwidth(u64);

impl Bandwidth {
    /// The rate zero.
    pub const ZERO: Self = Self(0);
    /// The greatest rate that the type can hold.
    pub const MAX: Self = Self(u64::MAX);

    /// A rate of `bits` per second.
    pub const fn from_bits_per_second(bits: u64) -> Self {
        Self(bits)
    }

    /// A rate of `bytes` per second; saturates.
    pub const fn from_bytes_per_second(bytes: u64) -> Self {
        Self(bytes.saturating_mul(8))
    }

    /// A rate of `kbit` thousand bits per second; saturates.
    pub const fn from_kbit(kbit: u64) -> Self {
        Self(kbit.saturating_mul(1_000))
    }

    /// A rate of `mbit` million bits per second; saturates.
    pub const fn from_mbit(mbit: u64) -> Self {
        Self(mbit.saturating_mul(1_000_000))
    }

    /// The rate that delivers `bytes` in `elapsed`; [`Bandwidth::MAX`] if `elapsed` is zero.
    pub fn from_bytes_over(bytes: u64, elapsed: Duration) -> Self {
        if elapsed.is_zero() {
            return Self::MAX;
        }
        Self(scaled_ratio(bytes, 8_000_000_000, elapsed.as_nanos()))
    }

    /// The rate in bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// The rate in whole bytes per second, rounded down.
    pub const fn bytes_per_second(self) -> u64 {
        self.0 / 8
    }

    /// The rate in million bits per second.
    #[expect(clippy::cast_precision_loss, reason = "a display value")]
    pub fn mbit(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The time that sending `bytes` takes at this rate; [`Duration::MAX`] at rate zero.
    pub fn time_to_send(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        Duration::from_nanos(scaled_ratio(bytes, 8_000_000_000, u128::from(self.0)))
    }

    /// The whole bytes sent at this rate in `elapsed`; saturates.
    pub fn bytes_in(self, elapsed: Duration) -> u64 {
        let nanos = elapsed.as_nanos();
        if let Some(bits) = u64::try_from(nanos)
            .ok()
            .and_then(|nanos| self.0.checked_mul(nanos))
        {
            return bits / 8_000_000_000;
        }
        let bytes = u128::from(self.0).saturating_mul(nanos) / 8_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// This rate multiplied by `factor`, which must be finite and not negative (a negative or
    /// undefined factor gives zero); saturates.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "float-to-int casts saturate, and a rate needs no 53rd bit"
    )]
    pub fn scaled(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor) as u64)
    }

    /// The sum of two rates; saturates.
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// `value` · `factor` / `divisor`, which is not zero; saturates. A 128-bit division is slow and rarely needed.
fn scaled_ratio(value: u64, factor: u64, divisor: u128) -> u64 {
    match (value.checked_mul(factor), u64::try_from(divisor)) {
        (Some(product), Ok(divisor)) => product / divisor,
        _ => {
            let product = u128::from(value) * u128::from(factor);
            u64::try_from(product / divisor).unwrap_or(u64::MAX)
        }
    }
}

impl std::iter::Sum for Bandwidth {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Self::saturating_add)
    }
}

impl fmt::Display for Bandwidth {
    #[expect(clippy::cast_precision_loss, reason = "a display value")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precision = f.precision().unwrap_or(1);
        match self.0 {
            0..1_000 => write!(f, "{} bit/s", self.0),
            1_000..1_000_000 => write!(f, "{:.precision$} kbit/s", self.0 as f64 / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.precision$} Mbit/s", self.0 as f64 / 1e6),
            _ => write!(f, "{:.precision$} Gbit/s", self.0 as f64 / 1e9),
        }
    }
}

/// The text is not a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a rate: write a number and bit, kbit, mbit or gbit, for example 10mbit")]
pub struct ParseBandwidthError(String);

impl FromStr for Bandwidth {
    type Err = ParseBandwidthError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseBandwidthError(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        let lower = lower.strip_suffix("/s").unwrap_or(&lower);
        let digits = lower
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(error)?;
        let (number, unit) = lower.split_at(digits);
        let scale = match unit.trim() {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => return Err(error()),
        };
        let number: f64 = number.parse().map_err(|_| error())?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked to be finite and positive; the cast saturates"
        )]
        match (number * scale).round() {
            bits if bits.is_finite() && bits <= 1e15 => Ok(Self(bits as u64)),
            _ => Err(error()),
        }
    }
}

impl Serialize for Bandwidth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}bit", self.0))
    }
}

impl<'de> Deserialize<'de> for Bandwidth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_operators_write() {
        for (text, bits) in [
            ("10mbit", 10_000_000),
            ("1.5 Mbit/s", 1_500_000),
            ("64kbit", 64_000),
            ("1gbit", 1_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Bandwidth(bits)), "{text}");
        }
        for bad in ["", "10", "mbit", "-1mbit", "1e9mbit", "10 mb", "1.2.3mbit"] {
            assert!(bad.parse::<Bandwidth>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn time_and_bytes_are_inverse_and_never_overflow() {
        let rate = Bandwidth::from_mbit(15);
        assert_eq!(rate.bytes_in(rate.time_to_send(1_500_000)), 1_500_000);
        assert_eq!(Bandwidth::ZERO.time_to_send(1), Duration::MAX);
        assert_eq!(Bandwidth::MAX.bytes_in(Duration::MAX), u64::MAX);
        assert_eq!(
            Bandwidth::from_bytes_over(1, Duration::ZERO),
            Bandwidth::MAX
        );
        assert_eq!(rate.scaled(f64::NAN), Bandwidth::ZERO);
    }
}
