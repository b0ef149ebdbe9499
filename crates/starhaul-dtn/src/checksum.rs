//! A checksum of large payloads from their source to their destination.
//!
//! The library computes the CRC of a payload block (RFC 9171 §4.2.1) byte by byte, and every node on the way does so anew: for large
//! payloads that takes longer than all else. The CRC may be left out. So large payloads carry CRC32C, computed by the processor's
//! own instruction, in a block of their own that only the destination looks at; other nodes pass it on unread.

use std::borrow::Cow;

use hardy_bpv7::{
    block::{Flags, Type},
    builder::Builder,
    bundle::Bundle,
    crc::CrcType,
    creation_timestamp::CreationTimestamp,
};

/// The block's type, of those for private use (RFC 9171 §9.1).
const BLOCK: u64 = 226;
/// Payloads above this length carry the checksum instead of a CRC.
const LARGE: usize = 16 << 10;

/// What a bundle with an empty payload block without a CRC ends with: an empty byte string, and the end of the bundle's array.
const EMPTY: [u8; 2] = [0x40, 0xff];
/// The beginning of a byte string whose length has two bytes, four or eight (RFC 8949 §3); the shortest that suffices is asked for.
const BYTE_STRING: [u8; 3] = [0x59, 0x5a, 0x5b];

/// A bundle with this payload and a checksum of it: the payload block's CRC, or this one where it is large.
///
/// # Errors
/// What the library reports.
pub(crate) fn build(
    builder: Builder<'_>,
    payload: &[u8],
    stamp: CreationTimestamp,
) -> Result<Vec<u8>, String> {
    if payload.len() <= LARGE {
        let built = builder.with_payload(Cow::Borrowed(payload)).build(stamp);
        let (_, data) = built.map_err(|error| error.to_string())?;
        return Ok(data.into_vec());
    }
    let builder = add_checksum(builder, payload)?;
    let (_, empty) = builder.build(stamp).map_err(|error| error.to_string())?;
    let head = empty.strip_suffix(&EMPTY);
    let head = head.ok_or("the payload is not at the end of the bundle")?;
    // The library would copy the payload for each array around it.
    let mut data = Vec::with_capacity(empty.len() + 8 + payload.len());
    data.extend_from_slice(head);
    let [two, four, eight] = BYTE_STRING;
    if let Ok(length) = u16::try_from(payload.len()) {
        data.push(two);
        data.extend_from_slice(&length.to_be_bytes());
    } else if let Ok(length) = u32::try_from(payload.len()) {
        data.push(four);
        data.extend_from_slice(&length.to_be_bytes());
    } else {
        data.push(eight);
        data.extend_from_slice(&(payload.len() as u64).to_be_bytes());
    }
    data.extend_from_slice(payload);
    data.extend(EMPTY.last());
    Ok(data)
}

/// With an empty payload block.
fn add_checksum<'a>(builder: Builder<'a>, payload: &[u8]) -> Result<Builder<'a>, String> {
    let checksum = crc32c::crc32c(payload).to_be_bytes().to_vec();
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
    block.is_none_or(|block| block.payload(data) == Some(&crc32c::crc32c(payload).to_be_bytes()))
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
        let data = build(builder, payload, CreationTimestamp::now()).unwrap();
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
}
