//! Segments with fields at fixed offsets.

use proptest::{collection::vec, prelude::*};

use super::{SESSION, written};
use crate::segment::*;

/// A segment without extensions.
fn fixed(body: Body<'_>) -> Segment<'_> {
    Segment {
        encoding: Encoding::Fixed,
        session: SESSION,
        header: Extensions::default(),
        body,
        trailer: Extensions::default(),
    }
}

fn data(kind: DataKind, checkpoint: Option<Checkpoint>, payload: &[u8]) -> Segment<'_> {
    fixed(Body::Data(Data {
        kind,
        service: 1,
        offset: 128,
        checkpoint,
        payload,
    }))
}

/// The number at an offset.
fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

const CHECKPOINT: Option<Checkpoint> = Some(Checkpoint {
    serial: 7,
    report: 9,
});

/// Each field where the table in docs/ltp.md says, whatever the numbers are.
#[test]
fn fields_are_at_the_offsets_of_the_table() {
    let plain = written(&data(DataKind::Red, None, b"xy"));
    assert_eq!((plain[0], plain[1], plain.len()), (0xf0, 0, 44));
    assert_eq!([2, 10].map(|at| number(&plain, at)), [300, 5]);
    assert_eq!([18, 26, 34].map(|at| number(&plain, at)), [1, 128, 2]);
    assert_eq!(&plain[42..], b"xy");

    let checkpoint = written(&data(DataKind::RedEndOfBlock, CHECKPOINT, b"xy"));
    assert_eq!((checkpoint[0], checkpoint.len()), (0xf3, 60));
    assert_eq!([42, 50].map(|at| number(&checkpoint, at)), [7, 9]);
    assert_eq!(&checkpoint[58..], b"xy");

    let claims: Vec<u8> = [0_u64, 100, 128, 1].map(u64::to_be_bytes).concat();
    let report = fixed(Body::Report(Report {
        serial: 6,
        checkpoint: 7,
        upper: 130,
        lower: 1,
        claims: Claims {
            encoding: Encoding::Fixed,
            count: 2,
            bytes: &claims,
        },
    }));
    let bytes = written(&report);
    assert_eq!((bytes[0], bytes.len()), (0xf8, 90));
    let fields = [18, 26, 34, 42, 50].map(|at| number(&bytes, at));
    assert_eq!(fields, [6, 7, 130, 1, 2]);
    assert_eq!(bytes[58..], claims);
    let Body::Report(told) = report.body else {
        unreachable!()
    };
    let ranges: Vec<_> = told.claims.ranges(told.lower).collect();
    assert_eq!(ranges, [(1, 101), (129, 130)]);

    let repair = written(&fixed(Body::Repair(Repair {
        service: 1,
        offset: 0,
        red: 5,
        is_whole: true,
        symbols: 3,
        repairs: 2,
        index: 4,
        payload: b"xy",
    })));
    assert_eq!((repair[0], repair.len()), (0xf5, 56));
    assert_eq!([18, 26, 34].map(|at| number(&repair, at)), [1, 0, 5]);
    assert_eq!(
        (&repair[42..46], number(&repair, 46)),
        (&[1, 3, 2, 4][..], 2)
    );
    assert_eq!(&repair[54..], b"xy");

    let ack = written(&fixed(Body::ReportAck { report: 6 }));
    assert_eq!((ack[0], number(&ack, 18), ack.len()), (0xf9, 6, 26));
    let reason = CancelReason::Miscolored;
    for (by, code) in [(End::Sender, 0xfc), (End::Receiver, 0xfe)] {
        let cancel = written(&fixed(Body::Cancel { by, reason }));
        assert_eq!((cancel[0], cancel[18], cancel.len()), (code, 3, 19));
        let ack = written(&fixed(Body::CancelAck { by }));
        assert_eq!((ack[0], ack.len()), (code + 1, 18));
    }
}

/// Nothing of them moves what has a fixed offset.
#[test]
fn extensions_stand_behind_the_content() {
    let segment = Segment {
        header: Extensions {
            count: 1,
            bytes: &[0, 1, 9],
        },
        trailer: Extensions {
            count: 1,
            bytes: &[0xc3, 2, 8, 7],
        },
        ..data(DataKind::Red, None, b"xy")
    };
    let bytes = written(&segment);
    assert_eq!((bytes[1], &bytes[42..44]), (0x11, &b"xy"[..]));
    assert_eq!(bytes[44..], [0, 1, 9, 0xc3, 2, 8, 7]);
    assert_eq!(parse(&bytes), Ok((segment, [].as_slice())));
    assert_eq!(segment.header.value(0), Some([9].as_slice()));
    // Longer ones would be read as SDNVs elsewhere.
    let mut long = bytes[..44].to_vec();
    long.extend([0, 128]);
    long.resize(44 + 2 + 128 + 4, 0);
    assert_eq!(parse(&long), Err(ParseError::LongExtension));
}

#[test]
fn what_the_profile_does_not_have_is_refused() {
    let red_end = written(&data(DataKind::RedEnd, CHECKPOINT, b"xy"));
    assert_eq!(parse(&red_end), Err(ParseError::MixedBlock));
    let mut repair = written(&fixed(Body::Repair(Repair {
        service: 1,
        offset: 0,
        red: 5,
        is_whole: true,
        symbols: 3,
        repairs: 2,
        index: 4,
        payload: b"xy",
    })));
    repair[42] = 0;
    assert_eq!(parse(&repair), Err(ParseError::MixedBlock));
    let mut zero = written(&fixed(Body::ReportAck { report: 6 }));
    zero[25] = 0;
    assert_eq!(parse(&zero), Err(ParseError::ZeroSerial));
    for undefined in [0xf6, 0xfa, 0xfb] {
        zero[0] = undefined;
        let error = ParseError::Type(undefined & 0xf);
        assert_eq!(parse(&zero), Err(error));
    }
    zero[0] = 0xe9;
    assert_eq!(parse(&zero), Err(ParseError::Version(14)));
}

/// Claims, as first byte and length each, one behind the other with a gap between.
fn claims_of(runs: &[(u64, u64)]) -> (Vec<(u64, u64)>, u64) {
    let (mut claims, mut at) = (Vec::new(), 0);
    for (gap, length) in runs {
        claims.push((at + gap, *length));
        at += gap + length;
    }
    (claims, at)
}

fn extensions(all: &[(u8, Vec<u8>)]) -> (u8, Vec<u8>) {
    let mut bytes = Vec::new();
    for (tag, value) in all {
        bytes.extend([*tag, value.len().to_le_bytes()[0]]);
        bytes.extend_from_slice(value);
    }
    (all.len().to_le_bytes()[0], bytes)
}

/// Contents of all types, by a number that chooses one.
fn body<'a>(
    which: u8,
    numbers: [u64; 3],
    payload: &'a [u8],
    claims: Claims<'a>,
    scope: u64,
) -> Body<'a> {
    let [first, second, third] = numbers.map(|number| number >> 8);
    let checkpoint = Checkpoint {
        serial: second + 1,
        report: third,
    };
    let data = |kind, checkpoint| {
        Body::Data(Data {
            kind,
            service: third,
            offset: first,
            checkpoint,
            payload,
        })
    };
    let by = match third % 2 {
        0 => End::Sender,
        _ => End::Receiver,
    };
    match which {
        0 => data(DataKind::Red, None),
        1 => data(DataKind::RedCheckpoint, Some(checkpoint)),
        2 => data(DataKind::RedEndOfBlock, Some(checkpoint)),
        3 => data(DataKind::Green, None),
        4 => data(DataKind::GreenEndOfBlock, None),
        5 => Body::Repair(Repair {
            service: third,
            offset: first,
            // The last of two symbols begins in it.
            red: first + payload.len() as u64 + 1,
            is_whole: true,
            symbols: 2,
            repairs: 9,
            index: 10,
            payload,
        }),
        6 => Body::Report(Report {
            serial: second + 1,
            checkpoint: third,
            lower: first,
            upper: first + scope,
            claims,
        }),
        7 => Body::ReportAck { report: second + 1 },
        8 => Body::Cancel {
            by,
            reason: CancelReason::from_code(third.to_le_bytes()[0]),
        },
        _ => Body::CancelAck { by },
    }
}

proptest! {
    /// In either encoding; the one with fixed fields has one way to write a segment.
    #[test]
    fn segments_are_read_as_they_were_written(
        which in 0_u8..10,
        ids in any::<[u64; 2]>(),
        numbers in any::<[u64; 3]>(),
        payload in vec(any::<u8>(), 1..300),
        runs in vec((1_u64..1 << 40, 1_u64..1 << 40), 1..9),
        before in vec((any::<u8>(), vec(any::<u8>(), 0..=127)), 0..3),
        behind in vec((any::<u8>(), vec(any::<u8>(), 0..=127)), 0..3),
        encoding in prop::sample::select(vec![Encoding::Rfc5326, Encoding::Fixed]),
    ) {
        let (ranges, scope) = claims_of(&runs);
        let mut bytes = Vec::new();
        for (offset, length) in &ranges {
            encoding.write_number(*offset, &mut bytes);
            encoding.write_number(*length, &mut bytes);
        }
        let claims = Claims { encoding, count: ranges.len() as u64, bytes: &bytes };
        let (before, behind) = (extensions(&before), extensions(&behind));
        let segment = Segment {
            encoding,
            session: SessionId { originator: EngineId(ids[0]), number: ids[1] },
            header: Extensions { count: before.0, bytes: &before.1 },
            body: body(which, numbers, &payload, claims, scope),
            trailer: Extensions { count: behind.0, bytes: &behind.1 },
        };
        let bytes = written(&segment);
        prop_assert_eq!(Encoding::of(bytes[0]), Some(encoding));
        let two = [&bytes[..], &[1, 2]].concat();
        prop_assert_eq!(parse(&two), Ok((segment, [1, 2].as_slice())));
        for length in 0..bytes.len() {
            prop_assert!(parse(&bytes[..length]).is_err(), "cut to {}", length);
        }
    }

    /// There is one way to write each.
    #[test]
    fn what_parses_with_fixed_fields_is_written_byte_for_byte(mut bytes in vec(any::<u8>(), 18..400), zeros in 0_usize..60) {
        bytes[0] = 0xf0 | bytes[0] & 0xf;
        // Small numbers, so that lengths are those of what is there.
        let end = bytes.len().min(18 + zeros);
        for (at, byte) in bytes[18..end].iter_mut().enumerate() {
            *byte &= u8::from(at % 8 == 7) * 0x1f;
        }
        bytes[1] &= 0x11;
        if let Ok((segment, rest)) = parse(&bytes) {
            let read = bytes.len() - rest.len();
            prop_assert_eq!(written(&segment), &bytes[..read]);
        }
    }
}
