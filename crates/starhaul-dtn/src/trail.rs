//! Which nodes a bundle has passed, as it says itself.
//!
//! A second copy that comes over several other nodes has made as many hops more as one that has gone round in a circle: counts do not tell
//! them apart, and the one may be dropped while the other may be the only one that is left. So each node leaves a mark in the bundles that
//! it sends on: in a block of its own, which nodes that do not know it pass on. The block has always the same length, so that only the
//! first node moves what stands behind it: the marks are bits, of which a node sets a few by its name (a filter of Bloom's).

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::{ltp::blocks::item_length, plan::NodeId};

/// The block's type, of those for private use (RFC 9171 §9.1).
const BLOCK: u64 = 227;
/// Bytes of the marks.
const MARKS: usize = 16;
/// Bits that a node sets. After ten nodes one that was not there seems to have been there in one of eighty cases.
const BITS: usize = 3;
/// Nesting of what is no payload.
const MOST_LEVELS: usize = 16;
/// An array without a length (RFC 8949 §3.2.2), and its end.
const ARRAY: u8 = 0x9f;
const END: u8 = 0xff;
/// The arrays of a block without a checksum, and of one with it.
const BLOCKS: [u8; 2] = [0x85, 0x86];
/// The beginning of a byte string as long as the marks.
const STRING: u8 = 0x50;

/// What a node leaves in the bundles that pass it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark([u8; MARKS]);

impl Mark {
    /// That of a node, in each of its lives.
    pub(crate) fn of(node: &NodeId) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, node.to_string().as_bytes());
        let mut mark = [0; MARKS];
        for byte in digest.as_ref().iter().take(BITS) {
            let bit = usize::from(*byte) % (8 * MARKS);
            if let Some(byte) = mark.get_mut(bit / 8) {
                *byte |= 1 << (bit % 8);
            }
        }
        Self(mark)
    }

    /// Whether the node has sent this bundle on, so far as the bundle says; `None` if it says nothing.
    pub(crate) fn is_in(&self, bundle: &[u8]) -> Option<bool> {
        let marks = bundle.get(find(bundle)?.marks?)?;
        let mut both = marks.iter().zip(self.0);
        Some(both.all(|(there, own)| there & own == own))
    }

    /// The bundle with this mark. What is no bundle stays as it is.
    pub(crate) fn leave_in(&self, bundle: Bytes) -> Bytes {
        let Some(found) = find(&bundle) else {
            return bundle;
        };
        let Some(at) = found.marks else {
            let Some((head, tail)) = bundle.split_at_checked(found.place) else {
                return bundle;
            };
            let block = block(found.free, &self.0);
            return [head, &block, tail].concat().into();
        };
        // Without a copy, if nobody else has it.
        let mut bundle = BytesMut::from(bundle);
        if let Some(marks) = bundle.get_mut(at) {
            let both = marks.iter_mut().zip(self.0);
            both.for_each(|(there, own)| *there |= own);
        }
        bundle.freeze()
    }
}

/// A block of this number with these marks, for all parts of a bundle that is cut up, and without a checksum.
fn block(number: u64, marks: &[u8; MARKS]) -> Vec<u8> {
    let (replicated, no_checksum) = (0x01, 0x00);
    let [array, _] = BLOCKS;
    let mut block = vec![array];
    block.extend_from_slice(&whole_number(BLOCK));
    block.extend_from_slice(&whole_number(number));
    block.extend_from_slice(&[replicated, no_checksum, STRING]);
    block.extend_from_slice(marks);
    block
}

/// As CBOR, in the shortest form (RFC 8949 §4.2.1).
fn whole_number(number: u64) -> Vec<u8> {
    let all = number.to_be_bytes();
    let (major, bytes) = match number {
        0..=0x17 => return all[7..].to_vec(),
        0x18..=0xff => (0x18, &all[7..]),
        0x100..=0xffff => (0x19, &all[6..]),
        0x1_0000..=0xffff_ffff => (0x1a, &all[4..]),
        _ => (0x1b, &all[..]),
    };
    [&[major][..], bytes].concat()
}

/// What a bundle has.
struct Found {
    /// Where its marks are.
    marks: Option<Range<usize>>,
    /// Where a block may be inserted.
    place: usize,
    /// A number that no block has.
    free: u64,
}

/// `None` for what is no bundle in the form that RFC 9171 (§4.1) asks for.
fn find(bundle: &[u8]) -> Option<Found> {
    let primary = bundle.strip_prefix(&[ARRAY])?;
    let place = 1 + item_length(primary, MOST_LEVELS)?;
    // The payload is 1.
    let (mut at, mut free, mut marks) = (place, 2, None);
    while *bundle.get(at)? != END {
        let length = item_length(bundle.get(at..)?, MOST_LEVELS)?;
        let block = bundle.get(at..at.checked_add(length)?)?;
        let (kind, number, data) = head(block)?;
        free = free.max(number.checked_add(1)?);
        if kind == BLOCK && marks.is_none() {
            marks = data.map(|data| at + data.start..at + data.end);
        }
        at += length;
    }
    Some(Found { marks, place, free })
}

/// Type and number of a block, and where its marks are, if it is as [`block`] makes it.
fn head(block: &[u8]) -> Option<(u64, u64, Option<Range<usize>>)> {
    let (array, rest) = block.split_first()?;
    if !BLOCKS.contains(array) {
        return None;
    }
    let (kind, length) = whole_number_in(rest)?;
    let (number, _) = whole_number_in(rest.get(length..)?)?;
    Some((kind, number, marks(block, kind, number)))
}

fn marks(block: &[u8], kind: u64, number: u64) -> Option<Range<usize>> {
    let begin = block.len().checked_sub(MARKS).filter(|_| kind == BLOCK)?;
    let made = self::block(number, block.get(begin..)?.try_into().ok()?);
    (made == block).then_some(begin..block.len())
}

/// The whole number that bytes begin with, and its length.
fn whole_number_in(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = match first {
        0..=0x17 => return Some((u64::from(first), 1)),
        0x18..=0x1b => 1_usize << (first - 0x18),
        _ => return None,
    };
    let bytes = bytes.get(1..=length)?.iter();
    let number = bytes.fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Some((number, 1 + length))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hardy_bpv7::{
        block::Type,
        bpsec::no_keys,
        builder::Builder,
        bundle::{ParsedBundle, RewrittenBundle},
        creation_timestamp::CreationTimestamp,
        hop_info::HopInfo,
    };

    use super::*;

    fn mark(node: u32) -> Mark {
        Mark::of(&format!("ipn:{node}.0").parse().unwrap())
    }

    fn bundle(payload: &[u8]) -> Bytes {
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
        let builder = builder
            .with_hop_count(&HopInfo { limit: 9, count: 1 })
            .with_lifetime(Duration::from_secs(60));
        let builder = builder.with_payload(payload.into());
        let built = builder.build(CreationTimestamp::now());
        built.unwrap().1.into_vec().into()
    }

    #[test]
    fn a_bundle_says_which_nodes_it_has_passed() {
        for length in [0, 1, 100_000] {
            let payload = vec![7; length];
            let plain = bundle(&payload);
            assert_eq!(mark(1).is_in(&plain), None);
            let one = mark(1).leave_in(plain.clone());
            assert_eq!(
                (mark(1).is_in(&one), mark(2).is_in(&one)),
                (Some(true), Some(false))
            );
            let shared = one.clone();
            let two = mark(2).leave_in(one);
            assert_eq!(two.len(), shared.len());
            assert_eq!(
                [1, 2, 3].map(|node| mark(node).is_in(&two)),
                [Some(true), Some(true), Some(false)]
            );
            assert_eq!(mark(2).is_in(&shared), Some(false), "a copy has changed");
            // Others pass it on as it is, and the rest has not changed.
            let passed = RewrittenBundle::parse(&two, no_keys);
            assert!(matches!(passed, Ok(RewrittenBundle::Valid { .. })));
            let parse = |data: &Bytes| ParsedBundle::parse(data, no_keys).unwrap().bundle;
            let (first, last) = (parse(&plain), parse(&two));
            assert_eq!(
                (&first.id, first.blocks.len() + 1),
                (&last.id, last.blocks.len())
            );
            assert_eq!(last.blocks[&1].payload(&two).unwrap(), payload);
            let of_marks = last
                .blocks
                .values()
                .filter(|block| block.block_type == Type::Unrecognised(BLOCK));
            assert_eq!(of_marks.count(), 1);
        }
    }

    #[test]
    fn what_is_no_bundle_stays_as_it_is() {
        let whole = mark(1).leave_in(bundle(b"x"));
        for cut in 0..whole.len() {
            let part = whole.slice(..cut);
            assert_eq!(mark(2).leave_in(part.clone()), part);
            assert_eq!(mark(1).is_in(&part), None);
        }
        // Someone else's block of this type.
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
        let block = builder
            .add_extension_block(Type::Unrecognised(BLOCK))
            .unwrap();
        let builder = block.build(b"other".as_slice().into());
        let built = builder
            .with_payload(b"x".as_slice().into())
            .build(CreationTimestamp::now());
        let other = Bytes::from(built.unwrap().1.into_vec());
        assert_eq!(mark(1).is_in(&other), None);
        let marked = mark(1).leave_in(other);
        assert_eq!(mark(1).is_in(&marked), Some(true));
        assert!(ParsedBundle::parse(&marked, no_keys).is_ok());
    }

    #[test]
    fn few_nodes_have_the_same_marks() {
        let passed = (1..=10).fold(bundle(b"x"), |bundle, node| mark(node).leave_in(bundle));
        let others = (11..10_011).filter(|node| mark(*node).is_in(&passed) == Some(true));
        let others = others.count();
        assert!(others < 400, "{others} of 10 000 seem to have been there");
    }
}
