//! Profiles: what two engines agree on beyond RFC 5326, or leave out of what this engine adds to it.

use std::{fmt, str::FromStr};

use crate::Encoding;

/// What the engines at both ends of a link agree on. Both must have the same one, but for the first two, which understand each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// RFC 5326 with extensions for private use, which other engines skip, and repair segments if they are asked for.
    #[default]
    Rfc5326,
    /// For engines that keep to CCSDS 734.1: session numbers of 32 bits, no extension but those of a key (RFC 5327), no repair segments.
    Ccsds7341,
    /// Ours, with the stated aims of the High-Performance Reliability Protocol that CCSDS has announced: fields at fixed offsets and no
    /// SDNVs, blocks of one colour, what is lost is sent again segment by segment. CCSDS has published no text, so that no conformance is
    /// claimed.
    Fixed,
}

/// The width of session numbers (CCSDS 734.1 asks for 32 bits; some engines know no more).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NumberWidth {
    /// From 1 to 2³² − 1.
    #[default]
    Bits32,
    /// From 1 to 2⁶⁴ − 1.
    Bits64,
}

/// Text that is no [`Profile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write rfc5326, ccsds-734.1 or fixed")]
pub struct ParseProfileError;

impl NumberWidth {
    /// All widths, as people write them.
    pub const ALL: [(&'static str, Self); 2] = [("32", Self::Bits32), ("64", Self::Bits64)];
}

impl Profile {
    /// All profiles, as people write them.
    pub const ALL: [(&'static str, Self); 3] = [
        ("rfc5326", Self::Rfc5326),
        ("ccsds-734.1", Self::Ccsds7341),
        ("fixed", Self::Fixed),
    ];

    /// How people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rfc5326 => Self::ALL[0].0,
            Self::Ccsds7341 => Self::ALL[1].0,
            Self::Fixed => Self::ALL[2].0,
        }
    }

    /// How its segments are written.
    pub const fn encoding(self) -> Encoding {
        match self {
            Self::Rfc5326 | Self::Ccsds7341 => Encoding::Rfc5326,
            Self::Fixed => Encoding::Fixed,
        }
    }

    /// What is asked for of a link and this profile does not have, if there is anything: repair segments, or session numbers of 64 bits.
    pub const fn lacking(self, has_repair: bool, numbers: NumberWidth) -> Option<&'static str> {
        match (self.has_additions(), has_repair, numbers) {
            (false, true, _) => Some("repair segments"),
            (false, false, NumberWidth::Bits64) => Some("session numbers of 64 bits"),
            _ => None,
        }
    }

    /// Whether it has what this engine adds to the RFC on the wire: extensions for private use, repair segments, numbers of 64 bits.
    pub const fn has_additions(self) -> bool {
        !matches!(self, Self::Ccsds7341)
    }
}

impl FromStr for Profile {
    type Err = ParseProfileError;

    fn from_str(text: &str) -> Result<Self, ParseProfileError> {
        let known = Self::ALL.into_iter().find(|(name, _)| *name == text);
        known.map(|(_, profile)| profile).ok_or(ParseProfileError)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read_as_they_are_written() {
        for (name, profile) in Profile::ALL {
            assert_eq!(name.parse(), Ok(profile));
            assert_eq!(profile.to_string(), name);
        }
        for other in ["", "hprp", "RFC5326", "ccsds"] {
            assert_eq!(other.parse::<Profile>(), Err(ParseProfileError));
        }
    }
}
