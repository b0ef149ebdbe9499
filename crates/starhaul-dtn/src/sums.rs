//! CRC32C of large bundles in memory, as it was computed when they came or were made.
//!
//! LTP computes it of each block that comes, the log of bundles of each record that it reads, and the code that makes a bundle, of its
//! payload. The checksum that the payload carries, that of the block in which the bundle goes on and that of its record follow from it
//! without reading all bytes again. The agent hands on nothing but the bytes, so it is noted here where they are, for as long as they are
//! there.
//!
//! To read them again would find only what has changed in this process's memory meanwhile: such bytes are never written to, since code that
//! wants to write gets a copy, of which nothing is noted. What comes over a link or from a medium is other bytes, and is read.

use std::{collections::HashMap, sync::LazyLock};

use hardy_bpa::Bytes;
use parking_lot::Mutex;

/// To look at fewer bytes costs no more than to find what is noted of them.
const LEAST: usize = 64 << 10;

/// The address of the first byte, and how many there are.
type Place = (usize, usize);

/// Of all nodes of the process: no two have bytes at the same place.
static SUMS: LazyLock<Mutex<HashMap<Place, u32>>> = LazyLock::new(Mutex::default);

/// Bytes of which it is noted.
struct Noted(Bytes);

impl AsRef<[u8]> for Noted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Noted {
    /// It is forgotten before the bytes are given back: others may be at their place then.
    fn drop(&mut self) {
        SUMS.lock().remove(&place(&self.0));
    }
}

/// The same bytes, of which `sum` is noted.
pub(crate) fn note(bytes: Bytes, sum: u32) -> Bytes {
    if bytes.len() < LEAST {
        return bytes;
    }
    SUMS.lock().insert(place(&bytes), sum);
    Bytes::from_owner(Noted(bytes))
}

/// What is noted of exactly these bytes.
pub(crate) fn of(bytes: &[u8]) -> Option<u32> {
    if bytes.len() < LEAST {
        return None;
    }
    SUMS.lock().get(&place(bytes)).copied()
}

fn place(bytes: &[u8]) -> Place {
    (bytes.as_ptr().addr(), bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_of_the_bytes_of_which_it_was_noted_and_of_no_others() {
        let sum = |bytes: &Bytes| Some(crc32c::crc32c(bytes));
        let plain = Bytes::from(vec![7; 2 * LEAST]);
        let noted = note(plain.clone(), crc32c::crc32c(&plain));
        assert_eq!(noted, plain);
        // Copies of the handle are the same bytes.
        let shared = noted.clone();
        drop(noted);
        assert_eq!(of(&shared), sum(&shared));
        assert_eq!(of(&shared.slice(..)), sum(&shared));
        for part in [shared.slice(1..), shared.slice(..2 * LEAST - 1)] {
            assert_eq!(of(&part), None, "{} bytes", part.len());
        }
        assert_eq!(of(&vec![7; 2 * LEAST]), None);
        // A slice keeps them.
        let part = shared.slice(5..10);
        drop(shared);
        assert_eq!(of(&plain), sum(&plain));
        drop(part);
        assert_eq!(of(&plain), None, "nobody has them any more");
    }

    #[test]
    fn nobody_writes_to_bytes_of_which_a_sum_is_noted() {
        let noted = note(vec![7; LEAST].into(), 1);
        let noted = noted.try_into_mut().unwrap_err();
        let mut copy = bytes::BytesMut::from(noted);
        copy[0] = 8;
        assert_eq!(of(&copy), None);
    }

    #[test]
    fn what_is_at_the_place_of_bytes_that_are_gone_has_no_sum() {
        for byte in 0..100 {
            let bytes = vec![byte; LEAST];
            assert_eq!(of(&bytes), None);
            drop(note(bytes.into(), byte.into()));
        }
    }

    #[test]
    fn little_is_not_noted() {
        let bytes = note(vec![7; LEAST - 1].into(), 1);
        assert_eq!(of(&bytes), None);
        assert!(bytes.try_into_mut().is_ok());
    }
}
