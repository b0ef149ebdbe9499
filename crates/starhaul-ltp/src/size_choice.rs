//! What an engine tells of the size of its segments to a peer.

use std::{fmt, str::FromStr};

/// How the size of segments is chosen, as people write it: `auto`, or bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentSize {
    /// It follows the path's MTU, losses and speed.
    #[default]
    Auto,
    /// So many bytes of block data in each segment.
    Bytes(usize),
}

/// Bytes that may be written: more do not fit into a datagram with their headers.
const WRITABLE: std::ops::RangeInclusive<usize> = 64..=65_400;

/// Text that is no [`SegmentSize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write auto, or a number of bytes from 64 to 65400")]
pub struct ParseSegmentSizeError;

impl FromStr for SegmentSize {
    type Err = ParseSegmentSizeError;

    fn from_str(text: &str) -> Result<Self, ParseSegmentSizeError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let bytes = text.parse().ok().filter(|bytes| WRITABLE.contains(bytes));
        bytes.map(Self::Bytes).ok_or(ParseSegmentSizeError)
    }
}

impl fmt::Display for SegmentSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

/// The size of the segments to a peer, and why they have it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SegmentChoice {
    /// Bytes of block data in a segment.
    pub data_bytes: usize,
    /// IP packets that carry it; 1 if it is not fragmented.
    pub packets: u32,
    /// The path's MTU in bytes, once it is known.
    pub path_mtu: Option<usize>,
    /// Why this size was chosen.
    pub reason: SizeReason,
    /// The share of packets that is lost, as reports tell; from 0 to 1.
    pub packet_loss: f64,
    /// How often the size has changed.
    pub changes: u64,
    /// Segments sent to find out whether a size arrives.
    pub probes: u64,
    /// How often a size was left of which nothing arrived.
    pub black_holes: u64,
}

/// Why segments have their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeReason {
    /// The configuration says so.
    Fixed,
    /// The path's MTU is not known.
    UnknownMtu,
    /// It fills a packet of the path, or of Ethernet while larger ones were not reported.
    PathMtu,
    /// The same, and a larger one carried no more.
    NoGain,
    /// It carried more than smaller ones.
    Faster,
    /// Larger ones lose too many of their packets.
    Losses,
    /// Where the link's rate is what bounds, its headers and losses take least.
    RateBound,
    /// None of a larger one arrived.
    BlackHole,
    /// Nothing was heard after larger ones.
    Silence,
    /// Red parts have repair segments.
    Coded,
}

impl fmt::Display for SizeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fixed => "as configured",
            Self::UnknownMtu => "the path's MTU is unknown",
            Self::PathMtu => "fills a packet of the path",
            Self::NoGain => "fills a packet of the path; larger ones carry no more",
            Self::Faster => "carries more than smaller ones",
            Self::Losses => "larger ones lose too many packets",
            Self::RateBound => "headers and losses take least of the rate",
            Self::BlackHole => "larger ones do not arrive",
            Self::Silence => "nothing was heard after larger ones",
            Self::Coded => "repair segments have one packet each",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_auto_or_bytes_that_fit_into_a_datagram() {
        for text in ["auto", "64", "1360", "65400"] {
            let size: SegmentSize = text.parse().unwrap();
            assert_eq!(size.to_string(), text);
        }
        for text in [
            "",
            "Auto",
            "63",
            "65401",
            "-1",
            "1e3",
            "99999999999999999999",
        ] {
            let error = text.parse::<SegmentSize>().unwrap_err().to_string();
            assert!(error.contains("auto"), "{text}: {error}");
        }
    }
}
