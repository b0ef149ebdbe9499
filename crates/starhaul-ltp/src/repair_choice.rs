//! What an engine tells of the repair segments for a peer.

use std::{fmt, str::FromStr};

use starhaul_units::parse_share;

/// How many repair segments a red part has, as people write it: `auto`, or the share of segments that is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RepairRate {
    /// They follow the loss that reports show, where a retransmission takes long.
    Auto,
    /// They make up for this share of lost segments, 0 to 1.
    Fixed(f64),
}

/// Text that is no [`RepairRate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write auto, or a share of lost segments from 0 to 1 as 5% or 0.05")]
pub struct ParseRepairRateError;

impl FromStr for RepairRate {
    type Err = ParseRepairRateError;

    fn from_str(text: &str) -> Result<Self, ParseRepairRateError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let share = parse_share(text).map_err(|_| ParseRepairRateError)?;
        Ok(Self::Fixed(share))
    }
}

impl fmt::Display for RepairRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            // Not as far as a float goes.
            Self::Fixed(share) => write!(f, "{} %", (share * 1e6).round() / 1e4),
        }
    }
}

/// The loss that the repair segments to a peer make up for, and why it is that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RepairChoice {
    /// The share of lost segments for which the next red part has repair segments, 0 to 1; `None` if it has none.
    pub loss: Option<f64>,
    /// Why it is that.
    pub reason: RepairReason,
    /// The share that was lost of the segments that reports told of, 0 to 1; zero if they told of none.
    pub measured: f64,
}

/// Why red parts have as many repair segments as they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairReason {
    /// The configuration says so.
    Fixed,
    /// No report has told yet how far the peer is, or what is lost.
    Unknown,
    /// A retransmission takes less than a second.
    Near,
    /// The peer reports what is missing, and does not tell what was lost.
    Untold,
    /// Reports show no loss.
    NoLoss,
    /// As much as reports show is lost, and what chance may hide.
    Measured,
}

impl fmt::Display for RepairReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fixed => "as configured",
            Self::Unknown => "no report has told of losses",
            Self::Near => "a retransmission takes less than a second",
            Self::Untold => "the peer does not tell what was lost",
            Self::NoLoss => "reports show no loss",
            Self::Measured => "reports show losses",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repair_is_auto_or_a_share() {
        for (text, rate, shown) in [
            ("auto", RepairRate::Auto, "auto"),
            ("5%", RepairRate::Fixed(0.05), "5 %"),
            ("0.3%", RepairRate::Fixed(0.003), "0.3 %"),
            ("0", RepairRate::Fixed(0.0), "0 %"),
        ] {
            assert_eq!(text.parse(), Ok(rate), "{text}");
            assert_eq!(rate.to_string(), shown);
        }
        for text in ["", "Auto", "101%", "-1%", "5 percent"] {
            let error = text.parse::<RepairRate>().unwrap_err().to_string();
            assert!(error.contains("auto"), "{text}: {error}");
        }
    }
}
