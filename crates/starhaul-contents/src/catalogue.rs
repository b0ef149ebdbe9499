//! Finding a file by its name. Contents must never change, and a name may mean another file tomorrow: so what a name means is
//! asked for under a number that is used once.
//!
//! A server serves one content that describes its files. It is endless, in slots: a slot's number begins with a hash of the
//! name that is asked for and ends with random bits of the one who asks, so that no cache has it yet.

use std::sync::{Arc, Mutex, PoisonError};

use starhaul_leotp::{ContentId, ContentSecret, Source};

use crate::{
    Error,
    entry::{Entry, hash},
    index::Index,
    keys::random,
};

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: u64 = 4096;
/// Random bits of a slot's number, of 50.
const RANDOM_BITS: u32 = 18;
/// The length of a description stands before it.
const PREFIX_BYTES: usize = 2;
/// The catalogue ends where names of bytes do.
const CATALOGUE_BYTES: u64 = (1 << 62) - 1;

/// The content that describes files.
pub(crate) fn content(secret: &ContentSecret) -> ContentId {
    secret.id_of_name("catalogue")
}

/// Where the description of a name begins, for one question.
pub(crate) fn question(name: &str) -> Result<u64, Error> {
    let random = u64::from(u32::from_le_bytes(random()?)) & ((1 << RANDOM_BITS) - 1);
    Ok((u64::from(hash(name)) << RANDOM_BITS | random) * SLOT_BYTES)
}

/// Reads a slot, or what has come of it. `Ok(None)`: more must come.
pub(crate) fn parse(slot: &[u8], name: &str) -> Result<Option<Entry>, Error> {
    let Some((prefix, rest)) = slot.split_first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    let Some(described) = rest.get(..u16::from_be_bytes(*prefix).into()) else {
        return Ok(None);
    };
    let unknown = || Error::Unknown(name.to_owned());
    let entries: Vec<Entry> = serde_json::from_slice(described).map_err(|_| unknown())?;
    let entry = entries.into_iter().find(|entry| entry.name == name);
    entry.map(Some).ok_or_else(unknown)
}

/// The catalogue of an index.
pub(crate) struct Catalogue(pub(crate) Arc<Mutex<Index>>);

impl Catalogue {
    /// What stands at the beginning of a slot: the description of all files whose names have its hash, of as many as fit.
    fn slot(&self, number: u64) -> Vec<u8> {
        let hash = u32::try_from(number >> RANDOM_BITS).unwrap_or(u32::MAX);
        let index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let most = usize::try_from(SLOT_BYTES).unwrap_or(0) - PREFIX_BYTES;
        let mut entries: Vec<Entry> = index.named(hash).collect();
        loop {
            let described = serde_json::to_vec(&entries).unwrap_or_default();
            match u16::try_from(described.len()) {
                Ok(length) if described.len() <= most => {
                    return [&length.to_be_bytes()[..], &described].concat();
                }
                _ => drop(entries.pop()),
            }
        }
    }
}

impl Source for Catalogue {
    fn length(&self) -> u64 {
        CATALOGUE_BYTES
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> bool {
        out.fill(0);
        let end = offset + out.len() as u64;
        for number in offset / SLOT_BYTES..end.div_ceil(SLOT_BYTES) {
            let slot = self.slot(number);
            let start = number * SLOT_BYTES;
            let from = offset.max(start);
            let to = end.min(start + slot.len() as u64);
            let range = |base: u64| {
                let at = |byte: u64| usize::try_from(byte - base).unwrap_or(usize::MAX);
                at(from)..at(to.max(from))
            };
            if let (Some(out), Some(part)) = (out.get_mut(range(offset)), slot.get(range(start))) {
                out.copy_from_slice(part);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Served;

    #[test]
    fn a_name_is_found_however_its_slot_is_cut_and_others_are_not() {
        let names = ["a.tif", "sub/b with space.bin", "c"];
        let mut index = Index::default();
        for (number, name) in names.into_iter().enumerate() {
            index.insert(Served::for_test(name, number as u64));
        }
        let mut catalogue = Catalogue(Arc::new(Mutex::new(index)));
        for name in names {
            let start = question(name).unwrap();
            assert_ne!(start, question("another").unwrap());
            for cut in [64, 1431, 4096, 5000] {
                let mut slot = Vec::new();
                // Segments begin at multiples of their size.
                let mut at = start - start % cut;
                while at < start + SLOT_BYTES {
                    let mut segment = vec![1; usize::try_from(cut).unwrap()];
                    assert!(catalogue.read(at, &mut segment));
                    let skipped = usize::try_from(start.saturating_sub(at)).unwrap();
                    slot.extend_from_slice(&segment[skipped..]);
                    at += cut;
                }
                let entry = parse(&slot, name).unwrap().unwrap();
                assert_eq!(entry.name, name);
                assert_eq!(parse(&slot[..1], name).unwrap(), None);
                assert_eq!(parse(&slot[..20], name).unwrap(), None);
            }
        }
        let mut slot = vec![1; 4096];
        catalogue.read(question("nothing").unwrap(), &mut slot);
        assert!(matches!(parse(&slot, "nothing"), Err(Error::Unknown(_))));
        assert!(matches!(
            parse(&[0, 3, b'x', b'y', b'z'], "x"),
            Err(Error::Unknown(_))
        ));
    }
}
