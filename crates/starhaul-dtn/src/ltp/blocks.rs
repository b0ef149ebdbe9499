//! Bundles in LTP blocks: one alone as the block of client service 1, several small ones one behind the other as service data
//! aggregation (client service 2), each behind the number of its own service (CCSDS 734.1 §7).

use bytes::{Bytes, BytesMut};

/// The client service whose blocks are single bundles.
pub const BUNDLE: u64 = 1;
/// The client service whose blocks hold several service data units.
pub const AGGREGATE: u64 = 2;
/// Nesting of a bundle's items: blocks are arrays of byte strings, a few levels at most.
const MOST_LEVELS: usize = 16;

/// A block that is no bundle and no aggregate of bundles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the block holds something else than bundles at byte {0}")]
pub struct NoBundle(pub usize);

/// One block of several bundles.
pub fn join(bundles: &[Bytes]) -> Bytes {
    let bytes = bundles.iter().map(|bundle| bundle.len() + 1).sum();
    let mut block = BytesMut::with_capacity(bytes);
    for bundle in bundles {
        block.extend_from_slice(&[1]);
        block.extend_from_slice(bundle);
    }
    block.freeze()
}

/// The bundles of a block; they share its memory.
///
/// # Errors
/// [`NoBundle`] when the block's structure is wrong; what is inside of a bundle is not looked at.
pub fn split(service: u64, block: &Bytes) -> Result<Vec<Bytes>, NoBundle> {
    if service == BUNDLE {
        return Ok(vec![block.clone()]);
    }
    let (mut bundles, mut at) = (Vec::new(), 0);
    while at < block.len() {
        let wrong = NoBundle(at);
        // The number 1 as an SDNV.
        if block.get(at) != Some(&1) {
            return Err(wrong);
        }
        at += 1;
        let rest = block.get(at..).ok_or(wrong)?;
        let length = item_length(rest, MOST_LEVELS)
            .filter(|length| *length > 1)
            .ok_or(wrong)?;
        bundles.push(block.slice(at..at + length));
        at += length;
    }
    Ok(bundles)
}

/// Bytes of the CBOR item (RFC 8949 §3) that `bytes` begin with.
pub(crate) fn item_length(bytes: &[u8], levels: usize) -> Option<usize> {
    let levels = levels.checked_sub(1)?;
    let (&first, rest) = bytes.split_first()?;
    let (major, information) = (first >> 5, first & 0x1f);
    let (argument, head) = match information {
        0..=23 => (Some(u64::from(information)), 1),
        24..=27 => {
            let width = 1_usize << (information - 24);
            let argument = rest
                .get(..width)?
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            (Some(argument), 1 + width)
        }
        31 => (None, 1),
        _ => return None,
    };
    let items = |count: Option<u64>| {
        let (mut at, mut seen) = (head, 0);
        loop {
            match count {
                Some(count) if seen == count => return Some(at),
                None if bytes.get(at) == Some(&0xff) => return Some(at + 1),
                _ => {}
            }
            at += item_length(bytes.get(at..)?, levels)?;
            seen += 1;
        }
    };
    match (major, argument) {
        (0 | 1 | 7, Some(_)) => Some(head),
        (2 | 3, Some(length)) => {
            let end = head.checked_add(usize::try_from(length).ok()?)?;
            (end <= bytes.len()).then_some(end)
        }
        (2..=4, count) => items(count),
        (5, Some(pairs)) => items(Some(pairs.checked_mul(2)?)),
        (5, None) => items(None),
        (6, Some(_)) => items(Some(1)),
        _ => None,
    }
    .filter(|length| *length <= bytes.len())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hardy_bpv7::{builder::Builder, creation_timestamp::CreationTimestamp};
    use proptest::prelude::*;

    use super::*;

    fn bundle(payload: &[u8]) -> Bytes {
        let builder = Builder::new(
            "ipn:1.5".parse().unwrap(),
            "dtn://station/files".parse().unwrap(),
        );
        let builder = builder
            .with_lifetime(Duration::from_secs(60))
            .with_payload(payload.into());
        builder
            .build(CreationTimestamp::now())
            .unwrap()
            .1
            .into_vec()
            .into()
    }

    proptest! {
        #[test]
        fn bundles_come_out_as_they_went_in(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..20)) {
            let bundles: Vec<Bytes> = payloads.iter().map(|payload| bundle(payload)).collect();
            let block = join(&bundles);
            prop_assert_eq!(split(AGGREGATE, &block), Ok(bundles));
            // Any end but the last is noticed, or is the end of a bundle.
            for end in 0..block.len() {
                if let Ok(found) = split(AGGREGATE, &block.slice(..end)) {
                    prop_assert_eq!(found.iter().map(|bundle| bundle.len() + 1).sum::<usize>(), end);
                }
            }
        }

        #[test]
        fn any_bytes_are_parts_of_the_block_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let block = Bytes::from(bytes);
            if let Ok(bundles) = split(AGGREGATE, &block) {
                prop_assert_eq!(join(&bundles), block);
            }
        }
    }

    #[test]
    fn deep_and_endless_items_are_refused() {
        for bytes in [
            vec![1],
            [vec![1], vec![0x81; 100_000]].concat(),
            vec![1, 0x9b, 255, 255, 255, 255, 255, 255, 255, 255],
            vec![2, 0x80],
        ] {
            assert!(split(AGGREGATE, &Bytes::from(bytes)).is_err());
        }
    }
}
