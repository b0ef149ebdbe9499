//! Trailer extensions with tags for private use (RFC 5326 §3.1.4, the IANA registry of LTP extension tags), which other
//! engines skip.
//!
//! The checksum of a block is CRC32C. On the segment that ends the red part it covers the red part, on a green segment its
//! data. UDP's own checksum lets one in 65 536 wrong reassemblies of IP fragments pass (RFC 4963).
//!
//! The reception number on a report is random for each session at the receiver. A receiver that was started anew has
//! another one, so that the sender never unites what two lives of it claim into a block that neither has.
//!
//! Beside it stands how much the receiver's kernel keeps of what comes and was not taken yet: a sender near by has no more under way.
//! If red data of the session were lost, it tells how many did not come when those behind them did: repair segments give back what the
//! claims would show as missing. It tells that also where these leave something out, and where not all before the report's upper bound can
//! be told of: a report without it says that all came.

use crate::segment::{Extensions, Report};

/// Tag of the checksum: "C3" as in CRC-32C.
pub(crate) const CHECKSUM: u8 = 0xc3;
/// Tag of the reception number.
const RECEPTION: u8 = 0xc4;
/// Tag of the room in the socket.
const ROOM: u8 = 0xc5;
/// Tag of what was lost.
const LOSSES: u8 = 0xc6;
const VALUE_BYTES: usize = 4;
const TRAILER_BYTES: usize = 2 + VALUE_BYTES;
const LOSSES_BYTES: usize = 2 + 2 * VALUE_BYTES;
/// Bytes of all trailer extensions of a report, at most.
const REPORT_BYTES: usize = 2 * TRAILER_BYTES + LOSSES_BYTES;

/// A trailer extension as on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trailer([u8; TRAILER_BYTES]);

/// The trailer extensions of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportTrailers {
    bytes: [u8; REPORT_BYTES],
    length: usize,
    count: u8,
}

/// What became of the red data of a session on their way: bytes before the last that came, or before which repair symbols leave that came,
/// and those among them that did not come when something behind them did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    pub(crate) passed: u64,
    pub(crate) lost: u64,
}

impl ReportTrailers {
    /// The number of the reception, if that is known the bytes of memory that the kernel keeps for what the sender sends, and what was lost
    /// if the report is to tell that.
    pub(crate) fn new(reception: u32, room: Option<u32>, losses: Option<Losses>) -> Self {
        let mut trailers = Self {
            bytes: [0; REPORT_BYTES],
            length: 0,
            count: 0,
        };
        trailers.push(&Trailer::new(RECEPTION, reception).0);
        if let Some(room) = room {
            trailers.push(&Trailer::new(ROOM, room).0);
        }
        if let Some(losses) = losses {
            trailers.push(&losses.extension());
        }
        trailers
    }

    fn push(&mut self, extension: &[u8]) {
        let end = self.length + extension.len();
        if let Some(place) = self.bytes.get_mut(self.length..end) {
            place.copy_from_slice(extension);
            (self.length, self.count) = (end, self.count + 1);
        }
    }

    pub(crate) fn extensions(&self) -> Extensions<'_> {
        Extensions {
            count: self.count,
            bytes: self.bytes.get(..self.length).unwrap_or_default(),
        }
    }
}

impl Losses {
    /// What a report is to tell of it: nothing where all came before its upper bound.
    pub(crate) fn to_tell(self, report: &Report<'_>) -> Option<Self> {
        let is_told = self.lost > 0 || self.passed < report.upper || report.leaves_out();
        is_told.then_some(self)
    }

    /// As on the wire. Of a block above 4 GiB it tells no more than of its beginning.
    fn extension(self) -> [u8; LOSSES_BYTES] {
        let bytes = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
        let [a, b, c, d] = bytes(self.passed);
        let [e, f, g, h] = bytes(self.lost);
        [LOSSES, 8, a, b, c, d, e, f, g, h]
    }
}

impl Trailer {
    pub(crate) fn checksum(checksum: u32) -> Self {
        Self::new(CHECKSUM, checksum)
    }

    fn new(tag: u8, value: u32) -> Self {
        let [a, b, c, d] = value.to_be_bytes();
        Self([tag, 4, a, b, c, d])
    }

    pub(crate) fn extensions(&self) -> Extensions<'_> {
        Extensions {
            count: 1,
            bytes: &self.0,
        }
    }
}

/// The checksum that a segment carries.
pub(crate) fn checksum(trailer: Extensions<'_>) -> Option<u32> {
    value(trailer, CHECKSUM)
}

/// The reception number that a report carries.
pub(crate) fn reception(trailer: Extensions<'_>) -> Option<u32> {
    value(trailer, RECEPTION)
}

/// The bytes of memory that the kernel of whoever reports keeps for what comes, if the report tells.
pub(crate) fn room(trailer: Extensions<'_>) -> Option<u32> {
    value(trailer, ROOM)
}

/// What a report tells of data that were lost; `None` if all came before its upper bound, or if its engine does not tell that.
pub(crate) fn losses(trailer: Extensions<'_>) -> Option<Losses> {
    let value: [u8; 2 * VALUE_BYTES] = trailer.value(LOSSES)?.try_into().ok()?;
    let [a, b, c, d, e, f, g, h] = value;
    Some(Losses {
        passed: u32::from_be_bytes([a, b, c, d]).into(),
        lost: u32::from_be_bytes([e, f, g, h]).into(),
    })
}

fn value(trailer: Extensions<'_>, tag: u8) -> Option<u32> {
    let value: [u8; VALUE_BYTES] = trailer.value(tag)?.try_into().ok()?;
    Some(u32::from_be_bytes(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Claims, Encoding};

    #[test]
    fn a_report_tells_the_number_of_its_reception_what_was_lost_and_the_room_that_is_known() {
        let lost = Losses {
            passed: 150_000,
            lost: 2720,
        };
        for told in [None, Some(0), Some(425_984), Some(u32::MAX)] {
            for expected in [None, Some(Losses::default()), Some(lost)] {
                let trailers = ReportTrailers::new(0x0102_0304, told, expected);
                let found = trailers.extensions();
                assert_eq!(reception(found), Some(0x0102_0304));
                assert_eq!((room(found), checksum(found)), (told, None));
                assert_eq!(losses(found), expected);
                // Each as engines of former versions read it: tag, length, value.
                let all: Vec<(u8, &[u8])> = found.iter().collect();
                let count = 1 + usize::from(told.is_some()) + usize::from(expected.is_some());
                assert_eq!(all.len(), count);
                assert_eq!(all[0], (RECEPTION, &[1, 2, 3, 4][..]));
            }
        }
    }

    /// A report that tells nothing says that all came before its upper bound.
    #[test]
    fn a_report_tells_of_losses_unless_all_came_before_its_upper_bound() {
        let all = [0_u8, 100];
        let part = [10_u8, 90];
        for (passed, lost, claims, is_told) in [
            (100, 0, all, false),
            (200, 0, all, false),
            (100, 10, all, true),
            (90, 0, all, true),
            (0, 0, all, true),
            // As where there was no memory for what came.
            (100, 0, part, true),
        ] {
            let report = Report {
                serial: 1,
                checkpoint: 1,
                upper: 100,
                lower: 0,
                claims: Claims {
                    encoding: Encoding::default(),
                    count: 1,
                    bytes: &claims,
                },
            };
            let losses = Losses { passed, lost };
            let expected = is_told.then_some(losses);
            assert_eq!(losses.to_tell(&report), expected, "{losses:?}, {claims:?}");
        }
    }
}
