//! Which nodes a bundle has passed, as it says itself.
//!
//! A second copy that comes over several other nodes has made as many hops more as one that has gone round in a circle: counts do not tell
//! them apart, and the one may be dropped while the other may be the only one that is left. So each node leaves a mark in the bundles that
//! it sends on: in a block of its own, which nodes that do not know it pass on. The block has always the same length, so that only the
//! first node moves what stands behind it: the marks are bits, of which a node sets a few by its name (a filter of Bloom's).
//!
//! A node that is not among the marks has not sent the bundle on only if they have been there from the beginning: nodes of others may have
//! removed the block, and the next of ours has begun a new one. So the mark of the source's node must be among them. Where marks do not
//! tell, hops are counted.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::{ltp::blocks::item_length, plan::NodeId};

/// The block's type, of those for private use (RFC 9171 §9.1).
const BLOCK: u64 = 227;
/// Bytes of the marks.
const MARKS: usize = 16;
/// Bits that a node sets. After ten nodes one that was not there seems to have been there in one of eighty cases.
const BITS: usize = 3;
/// Blocks that a bundle's security blocks protect at most, and blocks of marks that are looked at: a bundle with more is no usual one.
const MOST_PROTECTED: usize = 1024;
const MOST_BLOCKS: usize = 16;
/// Nesting of what is no payload.
const MOST_LEVELS: usize = 16;
/// Blocks that protect others: Block Integrity and Block Confidentiality (RFC 9172 §11.1).
const SECURITY: [u64; 2] = [11, 12];
/// An array without a length (RFC 8949 §3.2.2), and its end.
const ARRAY: u8 = 0x9f;
const END: u8 = 0xff;
/// The arrays of a block without a checksum, and of one with it.
const BLOCKS: [u8; 2] = [0x85, 0x86];
/// The beginning of a byte string as long as the marks.
const STRING: u8 = 0x50;
/// Whole numbers, byte strings and arrays (RFC 8949 §3.1).
const NUMBER: u8 = 0;
const BYTES: u8 = 2;
const ITEMS: u8 = 4;

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
        // Without a copy, if there is no other reference to it.
        let mut bundle = BytesMut::from(bundle);
        if let Some(marks) = bundle.get_mut(at) {
            let both = marks.iter_mut().zip(self.0);
            both.for_each(|(there, own)| *there |= own);
        }
        bundle.freeze()
    }
}

/// The marks in a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks([u8; MARKS]);

impl Marks {
    /// Those of a bundle, if it has any.
    pub(crate) fn of(bundle: &[u8]) -> Option<Self> {
        let marks = bundle.get(find(bundle)?.marks?)?;
        Some(Self(marks.try_into().ok()?))
    }

    /// Whether the node `own` has sent the bundle of this source's node on; `None` if the marks do not tell.
    pub(crate) fn tell(&self, own: &NodeId, source: Option<&NodeId>) -> Option<bool> {
        let is_whole = || source.is_some_and(|source| self.has(&Mark::of(source)));
        match self.has(&Mark::of(own)) {
            true => Some(true),
            false => is_whole().then_some(false),
        }
    }

    fn has(&self, mark: &Mark) -> bool {
        let mut both = self.0.iter().zip(mark.0);
        both.all(|(there, own)| there & own == own)
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

/// What was found in a bundle.
struct Found {
    /// The bytes of its marks.
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
    let (mut at, mut free) = (place, 2);
    let (mut marks, mut protected) = (Vec::new(), Vec::new());
    while *bundle.get(at)? != END {
        let length = item_length(bundle.get(at..)?, MOST_LEVELS)?;
        let block = bundle.get(at..at.checked_add(length)?)?;
        let (kind, number, data) = head(block)?;
        free = free.max(number.checked_add(1)?);
        if let Some(data) = data.filter(|_| marks.len() < MOST_BLOCKS) {
            marks.push((number, at + data.start..at + data.end));
        }
        if SECURITY.contains(&kind) {
            protected.extend(targets(block)?);
            if protected.len() > MOST_PROTECTED {
                return None;
            }
        }
        at += length;
    }
    // What is encrypted are no marks, and what is signed must not change.
    let mut marks = marks.into_iter();
    let marks = marks.find(|(number, _)| !protected.contains(number));
    let marks = marks.map(|(_, at)| at);
    Some(Found { marks, place, free })
}

/// Type and number of a block, and where its marks are, if it is as [`block`] makes it.
fn head(block: &[u8]) -> Option<(u64, u64, Option<Range<usize>>)> {
    let (array, rest) = block.split_first()?;
    if !BLOCKS.contains(array) {
        return None;
    }
    let (kind, length) = argument(rest, NUMBER)?;
    let (number, _) = argument(rest.get(length..)?, NUMBER)?;
    Some((kind, number, marks(block, kind, number)))
}

/// The numbers of the blocks that a security block protects, with which its data begin (RFC 9172 §3.6).
fn targets(block: &[u8]) -> Option<Vec<u64>> {
    let mut rest = block.get(1..)?;
    // Type, number, flags and checksum's type.
    for major in [NUMBER, NUMBER, NUMBER, NUMBER, BYTES] {
        rest = rest.get(argument(rest, major)?.1..)?;
    }
    let (count, length) = argument(rest, ITEMS)?;
    let (mut targets, mut at) = (Vec::new(), length);
    for _ in 0..count {
        if targets.len() > MOST_PROTECTED {
            return None;
        }
        let (target, length) = argument(rest.get(at..)?, NUMBER)?;
        targets.push(target);
        at += length;
    }
    Some(targets)
}

fn marks(block: &[u8], kind: u64, number: u64) -> Option<Range<usize>> {
    let begin = block.len().checked_sub(MARKS).filter(|_| kind == BLOCK)?;
    let made = self::block(number, block.get(begin..)?.try_into().ok()?);
    (made == block).then_some(begin..block.len())
}

/// The number in the head of the item of this type that bytes begin with, and the head's length.
fn argument(bytes: &[u8], major: u8) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first >> 5 != major {
        return None;
    }
    let length = match first & 0x1f {
        small @ 0..=0x17 => return Some((u64::from(small), 1)),
        wide @ 0x18..=0x1b => 1_usize << (wide - 0x18),
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

    fn node(number: u32) -> NodeId {
        format!("ipn:{number}.0").parse().unwrap()
    }

    fn mark(number: u32) -> Mark {
        Mark::of(&node(number))
    }

    impl Mark {
        /// Whether it is in a bundle; `None` if that has no marks.
        fn is_in(&self, bundle: &[u8]) -> Option<bool> {
            Some(Marks::of(bundle)?.has(self))
        }
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
        // A block of this type that another program made.
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

    /// It has gone round over a node that removed the marks and one that has left its own: it would be taken for a copy, and lost.
    #[test]
    fn marks_that_were_not_there_from_the_beginning_tell_of_no_node_that_it_was_not_passed() {
        let source = node(1);
        let tells = |bundle: &Bytes, own: u32, source| {
            let marks = Marks::of(bundle);
            marks.and_then(|marks| marks.tell(&node(own), source))
        };
        let later = mark(3).leave_in(bundle(b"x"));
        assert_eq!(tells(&later, 2, Some(&source)), None);
        assert_eq!(tells(&later, 2, None), None);
        assert_eq!(tells(&later, 3, Some(&source)), Some(true));
        let all = mark(3).leave_in(mark(1).leave_in(bundle(b"x")));
        assert_eq!(tells(&all, 2, Some(&source)), Some(false));
        assert_eq!(tells(&all, 1, Some(&source)), Some(true));
        assert_eq!(tells(&bundle(b"x"), 2, Some(&source)), None);
    }

    /// Another byte would make the signature or the ciphertext wrong, and the bundle worth nothing.
    #[test]
    fn marks_that_a_security_block_protects_stay_as_they_are() {
        let one = mark(1).leave_in(bundle(b"x"));
        let found = find(&one).unwrap();
        let number = found.free - 1;
        for (kind, target, is_kept) in [(11, number, true), (12, number, true), (11, 1, false)] {
            // An abstract security block that protects the payload and another.
            let mut block = vec![BLOCKS[0]];
            block.extend_from_slice(&whole_number(kind));
            block.extend_from_slice(&whole_number(found.free));
            let security = [&[0x82, 1][..], &whole_number(target), &[1, 0, 0x80]].concat();
            let length = u8::try_from(security.len()).unwrap();
            block.extend_from_slice(&[0, 0, BYTES << 5 | length]);
            block.extend_from_slice(&security);
            let (head, tail) = one.split_at(found.place);
            let protected = Bytes::from([head, &block, tail].concat());
            let two = mark(2).leave_in(protected.clone());
            assert_eq!(mark(2).is_in(&two), Some(true));
            assert_eq!(mark(1).is_in(&two), Some(!is_kept));
            let old = find(&one).unwrap().marks.unwrap();
            let kept = two.windows(MARKS).any(|part| *part == one[old.clone()]);
            assert_eq!((kept, two.len() > protected.len()), (is_kept, is_kept));
            // The next adds none.
            assert_eq!(mark(3).leave_in(two.clone()).len(), two.len());
            // What cannot be understood is left alone.
            let at = found.place + block.len() - security.len();
            let mut odd = protected.to_vec();
            odd[at] = 0x9f;
            let odd = Bytes::from(odd);
            assert_eq!(mark(2).leave_in(odd.clone()), odd);
            assert_eq!(mark(1).is_in(&odd), None);
        }
    }

    #[test]
    fn few_nodes_have_the_same_marks() {
        let passed = (1..=10).fold(bundle(b"x"), |bundle, node| mark(node).leave_in(bundle));
        let others = (11..10_011).filter(|node| mark(*node).is_in(&passed) == Some(true));
        let others = others.count();
        assert!(others < 400, "{others} of 10 000 seem to have been there");
    }
}
