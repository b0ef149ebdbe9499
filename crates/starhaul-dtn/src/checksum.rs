//! A checksum of large payloads from their source to their destination.
//!
//! The library computes the CRC of a payload block (RFC 9171 §4.2.1) byte by byte, and every node on the way does so anew: for large
//! payloads that takes longer than all else. The CRC may be left out. So large payloads carry CRC32C, computed by the processor's
//! own instruction, in a block of their own that only the destination looks at; other nodes pass it on unread.

use std::borrow::Cow;

use hardy_bpa::Bytes;
use hardy_bpv7::{
    block::{Flags, Type},
    builder::Builder,
    bundle::Bundle,
    crc::CrcType,
    creation_timestamp::CreationTimestamp,
};
use starhaul_ltp::{checksum_behind, combined_checksum};

use crate::{payload::Payload, sums};

/// The block's type, of those for private use (RFC 9171 §9.1).
const BLOCK: u64 = 226;
/// Payloads above this length carry the checksum instead of a CRC.
const LARGE: usize = 16 << 10;
/// The number of the payload block (RFC 9171 §4.1).
const PAYLOAD: u64 = 1;

/// What a bundle with an empty payload block without a CRC ends with: an empty byte string, and the end of the bundle's array.
const EMPTY: [u8; 2] = [0x40, END];
const END: u8 = 0xff;
/// The beginning of a byte string whose length has two bytes, four or eight (RFC 8949 §3); the shortest that suffices is asked for.
const BYTE_STRING: [u8; 3] = [0x59, 0x5a, 0x5b];

/// A bundle with this payload and a checksum of it: the payload block's CRC, or this one where it is large.
///
/// # Errors
/// What the library reports.
pub(crate) fn build(
    builder: Builder<'_>,
    payload: &mut Payload,
    stamp: CreationTimestamp,
) -> Result<Bytes, String> {
    let length = payload.bytes().len();
    if length <= LARGE {
        let builder = builder.with_payload(Cow::Borrowed(payload.bytes()));
        let built = builder.build(stamp);
        let (_, data) = built.map_err(|error| error.to_string())?;
        return Ok(data.into_vec().into());
    }
    let builder = add_checksum(builder, payload.checksum())?;
    let (_, empty) = builder.build(stamp).map_err(|error| error.to_string())?;
    let head = empty.strip_suffix(&EMPTY);
    let head = head.ok_or("the payload is not at the end of the bundle")?;
    let mut head = head.to_vec();
    let [two, four, eight] = BYTE_STRING;
    if let Ok(length) = u16::try_from(length) {
        head.push(two);
        head.extend_from_slice(&length.to_be_bytes());
    } else if let Ok(length) = u32::try_from(length) {
        head.push(four);
        head.extend_from_slice(&length.to_be_bytes());
    } else {
        head.push(eight);
        head.extend_from_slice(&(length as u64).to_be_bytes());
    }
    // The library would copy the payload for each array around it.
    Ok(payload.enclosed(&head, END))
}

/// With an empty payload block.
fn add_checksum(builder: Builder<'_>, checksum: u32) -> Result<Builder<'_>, String> {
    let checksum = checksum.to_be_bytes().to_vec();
    let block = builder.add_extension_block(Type::Unrecognised(BLOCK));
    let builder = block
        .map_err(|error| error.to_string())?
        .build(checksum.into());
    let block = builder.add_extension_block(Type::Payload);
    let flags = Flags {
        delete_bundle_on_failure: true,
        ..Flags::default()
    };
    let block = block.map_err(|error| error.to_string())?;
    let block = block.with_flags(flags).with_crc_type(CrcType::None);
    Ok(block.build(Cow::Borrowed(&[])))
}

/// Whether the payload is the one that was sent, as far as the bundle says; `data` are the bytes of the bundle.
pub(crate) fn matches(bundle: &Bundle, data: &[u8], payload: &[u8]) -> bool {
    let mut blocks = bundle.blocks.values();
    let block = blocks.find(|block| block.block_type == Type::Unrecognised(BLOCK));
    let Some(block) = block else {
        return true;
    };
    let told: Option<[u8; 4]> = block.payload(data).and_then(|told| told.try_into().ok());
    let Some(told) = told.map(u32::from_be_bytes) else {
        return false;
    };
    match sums::of(data).zip(around(bundle, data, payload)) {
        // LTP or the log has looked at all bytes as they came, and two payloads of one length that differ in their CRC32C make bundles that
        // do: to look at the payload again would find nothing else.
        Some((all, (before, behind))) => {
            let bytes = payload.len() as u64;
            let sum = combined_checksum(crc32c::crc32c(before), told, bytes);
            crc32c::crc32c_append(sum, behind) == all
        }
        None => checksum_behind(0, payload) == told,
    }
}

/// What is before the payload and what is behind it; `None` for one that is not in the data, as it was encrypted there.
fn around<'a>(bundle: &Bundle, data: &'a [u8], payload: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bundle.blocks.get(&PAYLOAD)?.payload_range();
    let (before, behind) = (data.get(..at.start)?, data.get(at.end..)?);
    std::ptr::eq(data.get(at)?, payload).then_some((before, behind))
}

#[cfg(test)]
mod tests {
    use hardy_bpv7::{
        bpsec::no_keys,
        bundle::{ParsedBundle, RewrittenBundle},
    };

    use super::*;

    /// The bundle, its bytes, and where its payload is.
    fn bundle(payload: &[u8]) -> (Vec<u8>, std::ops::Range<usize>) {
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
        let data = build(builder, &mut Payload::of(payload), CreationTimestamp::now());
        let data = data.unwrap().to_vec();
        let bundle = ParsedBundle::parse(&data, no_keys).unwrap().bundle;
        let range = bundle.blocks.get(&1).unwrap().payload_range();
        assert!(data[range.clone()] == *payload);
        (data, range)
    }

    /// Whether an application gets it.
    fn is_taken(data: &[u8], payload: &std::ops::Range<usize>) -> bool {
        let parsed = ParsedBundle::parse(data, no_keys);
        parsed.is_ok_and(|parsed| matches(&parsed.bundle, data, &data[payload.clone()]))
    }

    #[test]
    fn each_changed_byte_of_a_payload_is_noticed() {
        for length in [0, 1, LARGE, LARGE + 1, 3 * LARGE] {
            let (data, range) = bundle(&vec![7; length]);
            assert!(is_taken(&data, &range), "{length}");
            // A node that does not know the block passes the bundle on as it is.
            let passed = RewrittenBundle::parse(&data, no_keys);
            assert!(
                matches!(passed, Ok(RewrittenBundle::Valid { .. })),
                "{length}"
            );
            for at in range.clone().step_by(997).chain(range.clone().last()) {
                let mut changed = data.clone();
                changed[at] ^= 1;
                assert!(!is_taken(&changed, &range), "{length} {at}");
            }
        }
    }

    /// As LTP gives it to the agent: the checksum of the block is that of the bytes that came.
    fn came_over_ltp(data: Vec<u8>) -> Bytes {
        let sum = crc32c::crc32c(&data);
        sums::note(data.into(), sum)
    }

    #[test]
    fn what_is_known_of_a_bundle_tells_of_its_payload_what_a_look_at_it_tells() {
        for length in [65_536, 100_000, 1_000_000] {
            let (data, range) = bundle(&vec![7; length]);
            let whole = came_over_ltp(data.clone());
            assert!(sums::of(&whole).is_some() && is_taken(&whole, &range));
            // Before the payload, within it and behind: a changed checksum or a changed byte is noticed, and nothing else is to be.
            let within = range.clone().step_by(99_991);
            let edges = [range.start, range.start + 1, range.end - 1];
            for at in (0..range.start).chain(edges).chain(within) {
                for bit in [0, 7] {
                    let mut changed = data.clone();
                    changed[at] ^= 1 << bit;
                    let expected = is_taken(&changed, &range);
                    let changed = came_over_ltp(changed);
                    let taken = is_taken(&changed, &range);
                    assert_eq!(taken, expected, "{length}: bit {bit} of byte {at}");
                    assert!(!taken || at < range.start, "{length}: byte {at}");
                }
            }
        }
    }

    #[test]
    fn a_payload_that_is_not_in_its_bundle_is_looked_at() {
        let (data, range) = bundle(&vec![7; 100_000]);
        let data = came_over_ltp(data);
        let bundle = ParsedBundle::parse(&data, no_keys).unwrap().bundle;
        // As one that was decrypted.
        let mut elsewhere = data[range].to_vec();
        assert!(matches(&bundle, &data, &elsewhere));
        elsewhere[50_000] ^= 1;
        assert!(!matches(&bundle, &data, &elsewhere));
    }

    #[test]
    fn a_bundle_that_is_made_again_differs_in_its_name_alone() {
        let mut payload = Payload::of(&vec![7; 100_000]);
        let builder = || Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
        let mut ids = Vec::new();
        for number in 1..4 {
            let stamp = CreationTimestamp::from_parts(None, number);
            let data = build(builder(), &mut payload, stamp).unwrap();
            assert_eq!(sums::of(&data), Some(crc32c::crc32c(&data)));
            let bundle = ParsedBundle::parse(&data, no_keys).unwrap().bundle;
            let range = bundle.blocks.get(&1).unwrap().payload_range();
            assert!(data[range.clone()] == [7; 100_000]);
            assert!(matches(&bundle, &data, &data[range]));
            ids.push(bundle.id);
        }
        ids.dedup();
        assert_eq!(ids.len(), 3);
    }
}
