//! Both encodings; that with fixed fields alone is in `fixed.rs`.

mod fixed;

use proptest::prelude::*;

use super::*;

const SESSION: SessionId = SessionId {
    originator: EngineId(300),
    number: 5,
};

fn written(segment: &Segment<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    segment.write(&mut out);
    assert_eq!(segment.encoded_len(), out.len());
    out
}

fn plain(body: Body<'_>) -> Segment<'_> {
    Segment {
        encoding: Encoding::Rfc5326,
        session: SESSION,
        header: Extensions::default(),
        body,
        trailer: Extensions::default(),
    }
}

#[test]
fn segments_are_laid_out_as_in_the_rfc() {
    let data = |kind, checkpoint| {
        plain(Body::Data(Data {
            kind,
            service: 1,
            offset: 128,
            checkpoint,
            payload: b"xy",
        }))
    };
    let checkpoint = Some(Checkpoint {
        serial: 7,
        report: 9,
    });
    let claims = Claims {
        encoding: Encoding::Rfc5326,
        count: 2,
        bytes: &[0, 100, 0x81, 0, 1],
    };
    let report = plain(Body::Report(Report {
        serial: 6,
        checkpoint: 7,
        upper: 130,
        lower: 1,
        claims,
    }));
    let cancel = |by| {
        plain(Body::Cancel {
            by,
            reason: CancelReason::Miscolored,
        })
    };
    // Control byte, session 300/5, extension counts, content.
    let cases: [(Segment<'_>, u8, &[u8]); 12] = [
        (data(DataKind::Red, None), 0, &[1, 0x81, 0, 2, b'x', b'y']),
        (
            data(DataKind::RedCheckpoint, checkpoint),
            1,
            &[1, 0x81, 0, 2, 7, 9, b'x', b'y'],
        ),
        (
            data(DataKind::RedEnd, checkpoint),
            2,
            &[1, 0x81, 0, 2, 7, 9, b'x', b'y'],
        ),
        (
            data(DataKind::RedEndOfBlock, checkpoint),
            3,
            &[1, 0x81, 0, 2, 7, 9, b'x', b'y'],
        ),
        (data(DataKind::Green, None), 4, &[1, 0x81, 0, 2, b'x', b'y']),
        (
            data(DataKind::GreenEndOfBlock, None),
            7,
            &[1, 0x81, 0, 2, b'x', b'y'],
        ),
        (report, 8, &[6, 7, 0x81, 2, 1, 2, 0, 100, 0x81, 0, 1]),
        (plain(Body::ReportAck { report: 6 }), 9, &[6]),
        (cancel(End::Sender), 12, &[3]),
        (plain(Body::CancelAck { by: End::Sender }), 13, &[]),
        (cancel(End::Receiver), 14, &[3]),
        (plain(Body::CancelAck { by: End::Receiver }), 15, &[]),
    ];
    for (segment, code, content) in cases {
        let expected = [&[code, 0x82, 0x2c, 5, 0], content].concat();
        assert_eq!(written(&segment), expected, "{segment:?}");
        let two = [expected.as_slice(), &[1, 2]].concat();
        assert_eq!(parse(&two), Ok((segment, [1, 2].as_slice())));
        for length in 0..expected.len() {
            assert!(
                parse(&expected[..length]).is_err(),
                "{segment:?} cut to {length}"
            );
        }
    }
    let Body::Report(report) = report.body else {
        unreachable!()
    };
    let ranges: Vec<_> = report.claims.ranges(report.lower).collect();
    assert_eq!(ranges, [(1, 101), (129, 130)]);
}

#[test]
fn a_parity_is_a_repair_symbol_of_a_code_without_data() {
    let payload = [7; 64];
    let parity = plain(Body::Parity(Parity {
        service: 1,
        red: 300,
        is_whole: true,
        symbols: 3,
        index: 2,
        payload: &payload,
    }));
    // Control byte, session 300/5, extension counts; service, 0, red part, whole, no data symbols, those of a code, index, length.
    let head = [5, 0x82, 0x2c, 5, 0, 1, 0, 0x82, 0x2c, 1, 0, 3, 2, 64];
    let expected = [&head[..], &payload].concat();
    assert_eq!(written(&parity), expected);
    assert_eq!(parse(&expected), Ok((parity, [].as_slice())));
    // An offset, a wrong flag, a code of no symbol, one as long as the red part, a place outside it, a short symbol.
    for (at, byte) in [(6, 1), (9, 2), (11, 0), (11, 5), (12, 3), (13, 63)] {
        let mut wrong = expected.clone();
        wrong[at] = byte;
        assert_eq!(parse(&wrong), Err(ParseError::Code), "{byte} at {at}");
    }
}

#[test]
fn unknown_extensions_are_skipped_and_kept() {
    let segment = Segment {
        header: Extensions {
            count: 2,
            bytes: &[0xc0, 3, 1, 2, 3, 0x77, 0],
        },
        trailer: Extensions {
            count: 1,
            bytes: &[0xff, 1, 9],
        },
        ..plain(Body::ReportAck { report: 1 })
    };
    let bytes = written(&segment);
    assert_eq!(parse(&bytes), Ok((segment, [].as_slice())));
    assert_eq!(segment.header.value(0xc0), Some([1, 2, 3].as_slice()));
    assert_eq!(segment.header.value(0x77), Some([].as_slice()));
    assert_eq!(segment.header.value(0), None);
}

#[test]
fn what_the_rfc_forbids_is_refused() {
    use ParseError as E;
    let cases: [(&[u8], E); 12] = [
        (&[0x10, 1, 1, 0], E::Version(1)),
        (&[6, 1, 1, 0], E::Type(6)),
        (&[11, 1, 1, 0], E::Type(11)),
        (&[9, 1, 1, 0, 0], E::ZeroSerial),
        (&[1, 1, 1, 0, 1, 0, 1, 0, 0, 9], E::ZeroSerial),
        (&[0, 1, 1, 0, 1, 0, 0], E::EmptyData),
        // Bounds in the wrong order, no claim, an empty one, one beyond the bounds, an overlap, and a false count.
        (&[8, 1, 1, 0, 1, 1, 4, 5, 1, 0, 1], E::Claims),
        (&[8, 1, 1, 0, 1, 1, 9, 5, 0], E::Claims),
        (&[8, 1, 1, 0, 1, 1, 9, 5, 1, 0, 0], E::Claims),
        (&[8, 1, 1, 0, 1, 1, 9, 5, 1, 0, 5], E::Claims),
        (&[8, 1, 1, 0, 1, 1, 9, 5, 2, 0, 2, 2, 1], E::Claims),
        (
            &[8, 1, 1, 0, 1, 1, 9, 5, 0x7f, 0, 1],
            E::Number(crate::SdnvError::Truncated),
        ),
    ];
    for (bytes, error) in cases {
        assert_eq!(parse(bytes), Err(error), "{bytes:?}");
    }
    // The largest offset leaves no room for a byte.
    let mut beyond = vec![0, 1, 1, 0, 1];
    sdnv::encode(u64::MAX, &mut beyond);
    beyond.extend([1, 9]);
    assert_eq!(parse(&beyond), Err(E::EmptyData));
}

proptest! {
    #[test]
    fn what_parses_is_written_again_and_parses_to_the_same(bytes: Vec<u8>) {
        if let Ok((segment, rest)) = parse(&bytes) {
            prop_assert!(rest.len() < bytes.len());
            let again = written(&segment);
            prop_assert_eq!(parse(&again), Ok((segment, [].as_slice())));
        }
    }
}

/// Datagrams of red data without checkpoints, with this offset and length each.
fn plain_datagrams(spans: &[(u64, usize)], kind: DataKind) -> Vec<Vec<u8>> {
    datagrams_in(Encoding::Rfc5326, spans, kind)
}

fn datagrams_in(encoding: Encoding, spans: &[(u64, usize)], kind: DataKind) -> Vec<Vec<u8>> {
    let segments = spans.iter().map(|(offset, length)| {
        let body = Body::Data(Data {
            kind,
            service: 64,
            offset: *offset,
            checkpoint: None,
            payload: &vec![7; *length],
        });
        written(&Segment {
            encoding,
            ..plain(body)
        })
    });
    segments.collect()
}

#[test]
fn the_beginning_of_plain_red_data_is_that_of_their_segment() {
    let whole = plain_datagrams(&[(1 << 20, 3)], DataKind::Red).concat();
    let mut made = Vec::new();
    begin_plain(Encoding::Rfc5326, SESSION, 64, &mut made);
    sdnv::encode(1 << 20, &mut made);
    sdnv::encode(3, &mut made);
    assert_eq!([&made[..], &[7; 3]].concat(), whole);
}

#[test]
fn segments_that_follow_one_another_are_found_together_as_far_as_they_do() {
    let find = |all: &[Vec<u8>]| {
        let joined = all.concat();
        let run = PlainRun::find(
            Encoding::Rfc5326,
            &joined,
            all[0].len(),
            |session, service| {
                assert_eq!((session, service), (SESSION, 64));
                true
            },
        );
        run.map(|run| (run.start, run.end, run.payloads.len(), run.bytes))
    };
    let red = |spans: &[(u64, usize)]| plain_datagrams(spans, DataKind::Red);
    let stride = red(&[(1000, 100)])[0].len();
    // The last is shorter.
    let all = red(&[(1000, 100), (1100, 100), (1200, 40)]);
    assert_eq!(find(&all), Some((1000, 1240, 3, 2 * stride + all[2].len())));
    // One is missing, and one is there twice.
    for third in [1300, 1100] {
        let all = red(&[(1000, 100), (1100, 100), (third, 100)]);
        assert_eq!(find(&all), Some((1000, 1200, 2, 2 * stride)), "{third}");
    }
    assert_eq!(find(&red(&[(1000, 100)])), None);
    assert_eq!(find(&red(&[(1000, 100), (1200, 100)])), None);
    // What is of another kind, of another session, or has anything behind it is looked at by itself.
    let mut other = red(&[(1000, 100), (1100, 100)]);
    other[1][2] ^= 1;
    assert_eq!(find(&other), None);
    let mut longer = red(&[(1000, 100), (1100, 99)]);
    longer[1].push(0);
    assert_eq!(find(&longer), None);
    assert_eq!(
        find(&plain_datagrams(&[(0, 9), (9, 9)], DataKind::Green)),
        None
    );
    // Nobody wants it.
    assert!(PlainRun::find(Encoding::Rfc5326, &all.concat(), stride, |_, _| false).is_none());
}

proptest! {
    /// Whatever comes, in either encoding: a run is what its datagrams are one by one.
    #[test]
    fn what_is_found_together_is_what_each_is(
        starts in prop::collection::vec((0u64..4, 1u64..4), 1..8),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        encoding in prop::sample::select(vec![Encoding::Rfc5326, Encoding::Fixed]),
    ) {
        let spans = starts.iter().scan(120, |at, (skip, _)| {
            let start = *at + skip / 3;
            *at = start + 4;
            Some((start, 4))
        });
        let spans: Vec<(u64, usize)> = spans.collect();
        let mut all = datagrams_in(encoding, &spans, DataKind::Red).concat();
        let stride = datagrams_in(encoding, &spans[..1], DataKind::Red)[0].len();
        for (at, byte) in changes {
            let at = at.index(all.len());
            all[at] = byte;
        }
        if let Some(run) = PlainRun::find(encoding, &all, stride, |_, _| true) {
            let mut at = run.start;
            for (datagram, found) in all[..run.bytes].chunks(stride).zip(&run.payloads) {
                let (segment, behind) = parse(datagram).unwrap();
                prop_assert!(behind.is_empty());
                prop_assert_eq!((segment.encoding, segment.session), (encoding, run.session));
                prop_assert_eq!((segment.header.count, segment.trailer.count), (0, 0));
                let Body::Data(data) = segment.body else {
                    return Err(TestCaseError::fail("no data"));
                };
                prop_assert_eq!((data.kind, data.offset, data.payload), (DataKind::Red, at, *found));
                at += data.payload.len() as u64;
            }
            prop_assert_eq!((at, run.payloads.len()), (run.end, run.bytes.div_ceil(stride)));
        }
    }
}
