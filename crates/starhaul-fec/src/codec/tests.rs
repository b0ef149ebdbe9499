use proptest::prelude::*;
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

use super::*;

fn block(rng: &mut ChaCha8Rng, count: u8, length: usize) -> Vec<Bytes> {
    let fragment = |_| {
        (0..length)
            .map(|_| rng.random::<u8>())
            .collect::<Vec<_>>()
            .into()
    };
    (0..count).map(fragment).collect()
}

/// Encodes, drops all fragments but the number needed, shuffles those, and decodes.
fn roundtrip(codec: &mut Codec, seed: u64, data_count: u8, redundancy_count: u8, length: usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let data = block(&mut rng, data_count, length);
    let redundancy = codec.encode(&data, redundancy_count).unwrap();
    assert_eq!(redundancy.len(), usize::from(redundancy_count));
    assert!(redundancy.iter().all(|fragment| fragment.len() == length));
    let mut fragments: Vec<_> = (0..).zip(data.iter().chain(&redundancy).cloned()).collect();
    fragments.shuffle(&mut rng);
    fragments.truncate(data_count.into());
    let decoded = codec
        .decode(data_count, redundancy_count, &fragments)
        .unwrap();
    assert!(
        decoded == data,
        "seed {seed}: {data_count} + {redundancy_count} of {length} bytes"
    );
}

#[test]
fn every_size_of_code_recovers_its_data() {
    let mut codec = Codec::new();
    for data in 1..=254u8 {
        for redundancy in [1, 2, data.min(255 - data), 255 - data] {
            if u16::from(data) + u16::from(redundancy) <= 255 {
                let seed = u64::from(data) << 8 | u64::from(redundancy);
                roundtrip(
                    &mut codec,
                    seed,
                    data,
                    redundancy,
                    1 + usize::from(redundancy % 4),
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_sufficient_part_recovers_any_block(
        seed: u64, data in 1..=254u8, redundancy in 1..=254u8, length in 0..200usize,
    ) {
        roundtrip(&mut Codec::new(), seed, data, redundancy.min(255 - data), length);
    }

    /// No input of a peer causes a panic, and a successful result has the requested length.
    #[test]
    fn wild_fragments_give_an_answer_or_an_error(
        data: u8, redundancy: u8,
        fragments in prop::collection::vec((any::<u8>(), 0..4usize), 0..12),
        small: bool,
    ) {
        let (data, redundancy) = if small { (data % 6, redundancy % 6) } else { (data, redundancy) };
        let fragments: Vec<_> = fragments
            .into_iter()
            .map(|(index, length)| (if small { index % 12 } else { index }, Bytes::from(vec![index; length])))
            .collect();
        if let Ok(decoded) = Codec::new().decode(data, redundancy, &fragments) {
            prop_assert_eq!(decoded.len(), usize::from(data));
        }
    }
}

#[test]
fn what_cannot_be_encoded_is_refused() {
    let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
    assert_eq!(
        encode(&[], 1),
        Err(FecError::Counts {
            data: 0,
            redundancy: 1
        })
    );
    assert_eq!(
        encode(&vec![bytes("x"); 200], 56),
        Err(FecError::Counts {
            data: 200,
            redundancy: 56
        })
    );
    assert_eq!(
        encode(&[bytes("one"), bytes("four")], 1),
        Err(FecError::UnequalLength {
            index: 1,
            expected: 3,
            found: 4
        })
    );
    assert_eq!(encode(&[bytes("one"), bytes("two")], 0), Ok(vec![]));
}

#[test]
fn what_cannot_be_decoded_says_why() {
    let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
    let (one, two) = (bytes("one"), bytes("two"));
    let decode = |fragments: &[(u8, &Bytes)]| {
        let fragments: Vec<_> = fragments
            .iter()
            .map(|(index, bytes)| (*index, Bytes::clone(bytes)))
            .collect();
        decode(2, 1, &fragments)
    };
    assert_eq!(
        decode(&[(0, &one)]),
        Err(FecError::TooFew {
            given: 1,
            needed: 2
        })
    );
    assert_eq!(
        decode(&[]),
        Err(FecError::TooFew {
            given: 0,
            needed: 2
        })
    );
    assert_eq!(
        decode(&[(0, &one), (3, &two)]),
        Err(FecError::Index { index: 3, count: 3 })
    );
    assert_eq!(
        decode(&[(2, &one), (2, &two)]),
        Err(FecError::Duplicate { index: 2 })
    );
    assert_eq!(
        decode(&[(0, &one), (2, &bytes("short ones"))]),
        Err(FecError::UnequalLength {
            index: 2,
            expected: 3,
            found: 10
        })
    );
    assert_eq!(decode(&[(1, &two), (0, &one)]), Ok(vec![one, two]));
}

#[test]
fn a_codec_works_on_after_an_error() {
    let mut codec = Codec::new();
    roundtrip(&mut codec, 1, 20, 4, 1001);
    let half = vec![(0, Bytes::from_static(b"abcd")); 2];
    assert!(codec.decode(20, 4, &half).is_err());
    assert!(
        codec
            .encode(&[Bytes::from_static(b"ab"), Bytes::from_static(b"abc")], 2)
            .is_err()
    );
    roundtrip(&mut codec, 2, 20, 4, 1000);
}
