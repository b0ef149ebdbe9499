//! Finding a file by its name. Contents must never change, and a name may mean another file tomorrow: so what a name means is
//! asked for under a number that is used once.
//!
//! A server serves one content that describes its files. It is endless, in slots: a slot's number begins with a hash of the
//! name that is asked for and ends with random bits of the one who asks, so that no cache has it yet. Each description is
//! sealed by itself, under a random nonce and for its slot: the seal of the content, whose nonce is the offset, must not be
//! relied on where the bytes behind an offset may differ.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use starhaul_leotp::{ContentId, ContentSecret, Source};

use crate::{
    Error,
    entry::{Entry, HASH_BITS, hash},
    index::Index,
    keys::random,
};

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: u64 = 4096;
/// Random bits of a slot's number, whose bytes must have offsets below 2^62.
const RANDOM_BITS: u32 = 50 - HASH_BITS;
/// The length of what is sealed stands before it.
const PREFIX_BYTES: usize = 2;
const SEAL_BYTES: usize = NONCE_LEN + 16;
/// The catalogue ends where names of bytes do.
const CATALOGUE_BYTES: u64 = (1 << 62) - 1;
/// Slots that are remembered, so that all segments of one are of the same sealing.
const REMEMBERED: usize = 256;

/// The content that describes files.
pub(crate) fn content(secret: &ContentSecret) -> ContentId {
    secret.id_of_name("catalogue")
}

/// The key of descriptions.
pub(crate) struct CatalogueKey(LessSafeKey);

impl CatalogueKey {
    pub(crate) fn new(secret: &ContentSecret) -> Self {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &secret.key_for("catalogue"));
        Self(LessSafeKey::new(key.expect("a key of 32 bytes")))
    }

    fn seal(&self, slot: u64, mut described: Vec<u8>) -> Option<Vec<u8>> {
        let nonce: [u8; NONCE_LEN] = random().ok()?;
        let aad = Aad::from(slot.to_be_bytes());
        let sealed = self.0.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            aad,
            &mut described,
        );
        sealed.ok()?;
        let length = u16::try_from(NONCE_LEN + described.len()).ok()?;
        Some([&length.to_be_bytes()[..], &nonce, &described].concat())
    }

    fn open(&self, slot: u64, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let (nonce, mut rest) = (Nonce::assume_unique_for_key(*nonce), rest.to_vec());
        let aad = Aad::from(slot.to_be_bytes());
        let opened = self.0.open_in_place(nonce, aad, &mut rest).ok()?;
        Some(opened.to_vec())
    }
}

/// A query for what a name means.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    slot: u64,
}

/// What has come of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// More must come.
    Incomplete,
    /// It is not that of the server, or not of one sealing.
    Damaged,
    Entry(Entry),
}

impl Question {
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        let random = u64::from_le_bytes(random()?) & ((1 << RANDOM_BITS) - 1);
        Ok(Self {
            slot: u64::from(hash(name)) << RANDOM_BITS | random,
        })
    }

    /// Offset in the catalogue at which the answer begins.
    pub(crate) fn start(self) -> u64 {
        self.slot * SLOT_BYTES
    }

    /// Reads the answer, or what has come of it.
    ///
    /// # Errors
    /// [`Error::Unknown`]: the server has no such name.
    pub(crate) fn read(
        self,
        key: &CatalogueKey,
        bytes: &[u8],
        name: &str,
    ) -> Result<Answer, Error> {
        let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
            return Ok(Answer::Incomplete);
        };
        let Some(sealed) = rest.get(..u16::from_be_bytes(*prefix).into()) else {
            return Ok(Answer::Incomplete);
        };
        let described = key.open(self.slot, sealed);
        let entries = described.and_then(|text| serde_json::from_slice::<Vec<Entry>>(&text).ok());
        let Some(entries) = entries else {
            return Ok(Answer::Damaged);
        };
        let entry = entries.into_iter().find(|entry| entry.name == name);
        let unknown = || Error::Unknown(name.to_owned());
        entry.map(Answer::Entry).ok_or_else(unknown)
    }
}

/// The catalogue of an index.
pub(crate) struct Catalogue {
    index: Arc<Mutex<Index>>,
    key: CatalogueKey,
    /// Slots that were asked for last.
    sealed: VecDeque<(u64, Vec<u8>)>,
}

impl Catalogue {
    pub(crate) fn new(index: Arc<Mutex<Index>>, secret: &ContentSecret) -> Self {
        Self {
            index,
            key: CatalogueKey::new(secret),
            sealed: VecDeque::new(),
        }
    }

    /// What stands at the beginning of a slot: the description of all files whose names have its hash, of as many as fit.
    fn slot(&mut self, number: u64) -> Option<&[u8]> {
        if self.sealed.iter().all(|(known, _)| *known != number) {
            let sealed = self.key.seal(number, self.describe(number))?;
            self.sealed.push_back((number, sealed));
            if self.sealed.len() > REMEMBERED {
                self.sealed.pop_front();
            }
        }
        let found = self.sealed.iter().find(|(known, _)| *known == number);
        found.map(|(_, sealed)| &sealed[..])
    }

    fn describe(&self, number: u64) -> Vec<u8> {
        let hash = hash_of(number);
        let index = self.index.lock();
        let most = usize::try_from(SLOT_BYTES).unwrap_or(0) - PREFIX_BYTES - SEAL_BYTES;
        let mut entries: Vec<Entry> = index.named(hash).collect();
        loop {
            let described = serde_json::to_vec(&entries).unwrap_or_default();
            if described.len() <= most || entries.pop().is_none() {
                return described;
            }
        }
    }
}

/// The hash that a slot's number begins with.
fn hash_of(number: u64) -> u32 {
    u32::try_from(number >> RANDOM_BITS).unwrap_or(u32::MAX)
}

impl Source for Catalogue {
    fn length(&self) -> u64 {
        CATALOGUE_BYTES
    }

    /// Of a file that is not read yet nothing is known but that it is there: it must not be told to be unknown.
    fn is_ready(&mut self, offset: u64) -> bool {
        let index = self.index.lock();
        index.is_settled(hash_of(offset / SLOT_BYTES))
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> bool {
        out.fill(0);
        let end = offset + out.len() as u64;
        for number in offset / SLOT_BYTES..end.div_ceil(SLOT_BYTES) {
            let Some(slot) = self.slot(number) else {
                return false;
            };
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

    /// The bytes of a slot in segments, which begin at multiples of their size.
    fn answer(catalogue: &mut Catalogue, question: Question, segment: u64) -> Vec<u8> {
        let start = question.start();
        let mut bytes = Vec::new();
        let mut at = start - start % segment;
        while at < start + SLOT_BYTES {
            let mut part = vec![1; usize::try_from(segment).unwrap()];
            assert!(catalogue.read(at, &mut part));
            let skipped = usize::try_from(start.saturating_sub(at)).unwrap();
            bytes.extend_from_slice(&part[skipped..]);
            at += segment;
        }
        bytes
    }

    #[test]
    fn a_name_is_found_however_its_slot_is_cut_and_others_are_not() {
        let names = ["a.tif", "sub/b with space.bin", "c"];
        let mut index = Index::default();
        for (number, name) in names.into_iter().enumerate() {
            index.insert(Served::for_test(name, number as u64));
        }
        let (secret, index) = (ContentSecret::new(&[1; 32]), Arc::new(Mutex::new(index)));
        let mut catalogue = Catalogue::new(Arc::clone(&index), &secret);
        let key = CatalogueKey::new(&secret);
        for name in names {
            for segment in [64, 1418, 4096, 5000] {
                let question = Question::new(name).unwrap();
                let bytes = answer(&mut catalogue, question, segment);
                let Answer::Entry(entry) = question.read(&key, &bytes, name).unwrap() else {
                    panic!("{name} in segments of {segment}");
                };
                assert_eq!(entry.name, name);
                for cut in [1, 20] {
                    let part = question.read(&key, &bytes[..cut], name).unwrap();
                    assert_eq!(part, Answer::Incomplete);
                }
            }
        }
        let question = Question::new("nothing").unwrap();
        let mut bytes = answer(&mut catalogue, question, 4096);
        let read = |bytes: &[u8], key: &CatalogueKey| question.read(key, bytes, "nothing");
        assert!(matches!(read(&bytes, &key), Err(Error::Unknown(_))));
        let other = CatalogueKey::new(&ContentSecret::new(&[2; 32]));
        assert!(matches!(read(&bytes, &other), Ok(Answer::Damaged)));
        bytes[30] ^= 1;
        assert!(matches!(read(&bytes, &key), Ok(Answer::Damaged)));
    }

    #[test]
    fn what_is_not_read_yet_is_not_told_to_be_unknown() {
        let index = Arc::new(Mutex::new(Index::default()));
        let mut catalogue = Catalogue::new(Arc::clone(&index), &ContentSecret::new(&[1; 32]));
        let [a, b] = ["a", "b"].map(|name| Question::new(name).unwrap().start());
        let mut is_ready = |start: u64| {
            let ends = [start, start + SLOT_BYTES - 1];
            ends.map(|offset| catalogue.is_ready(offset))
        };
        for _ in 0..2 {
            index.lock().note_unread("a");
        }
        assert_eq!([is_ready(a), is_ready(b)], [[false; 2], [true; 2]]);
        index.lock().settle("a");
        assert_eq!(is_ready(a), [false; 2], "another name has its hash");
        index.lock().settle("a");
        assert_eq!(is_ready(a), [true; 2]);
    }

    #[test]
    fn an_answer_holds_for_its_question_alone() {
        let index = Arc::new(Mutex::new(Index::default()));
        let secret = ContentSecret::new(&[1; 32]);
        let mut catalogue = Catalogue::new(index, &secret);
        let [one, other] = ["a", "a"].map(|name| Question::new(name).unwrap());
        let bytes = answer(&mut catalogue, one, 4096);
        let read = other.read(&CatalogueKey::new(&secret), &bytes, "a");
        assert!(matches!(read, Ok(Answer::Damaged)));
    }
}
