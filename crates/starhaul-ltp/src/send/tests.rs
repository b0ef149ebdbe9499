//! Runs of segments are what is planned one by one, to the byte.

use proptest::prelude::*;
use starhaul_fec::Codec;

use super::*;
use crate::{
    coding::{Coding, Layout},
    segment::{Body, DataKind},
};

/// A block in two buffers, its bytes, and how many of them are red.
fn block(head: usize, rest: usize, green: usize) -> (Bytes, usize, u64) {
    let length = head + rest;
    let byte = |at: usize| ((at * 31) % 251).to_le_bytes()[0];
    let bytes: Vec<u8> = (0..length).map(byte).collect();
    (bytes.into(), head, length.saturating_sub(green) as u64)
}

fn session((bytes, head, red): &(Bytes, usize, u64), known: bool) -> SendSession {
    // It is not cut: the seam is where the head ends, within segments.
    let contents = Contents::new(bytes.slice(..*head), bytes.slice(*head..));
    let checksum = known.then(|| checksum_of(bytes, *red));
    SendSession::new(1, contents, (*red, checksum), 1)
}

fn checksum_of(bytes: &[u8], red: u64) -> u32 {
    crc32c::crc32c(&bytes[..usize::try_from(red).unwrap()])
}

/// Sends the next segment by itself; returns its plan and data.
fn send_one(
    session: &mut SendSession,
    sizes: (usize, usize),
    every: Option<u32>,
    integrity: bool,
) -> (Plan, Vec<u8>) {
    let now = PeerTime::default();
    let plan = session.plan_fresh(sizes, every, false).unwrap();
    if integrity {
        session.check_ahead(&plan);
    }
    if plan.kind == DataKind::Red {
        session.watch(&plan);
    }
    let data = session.data(&plan).to_vec();
    session.commit(&plan, now, |_| now, integrity);
    (plan, data)
}

proptest! {
    #[test]
    fn a_run_is_what_is_planned_one_by_one(
        (head, rest, green) in (0_usize..3000, 0_usize..60_000, 0_usize..500),
        every in prop::option::of(0_u32..12),
        (integrity, known) in any::<(bool, bool)>(),
        // How many segments may leave, the data of each, and by how much one that asks for a report is shorter.
        turns in prop::collection::vec((0_u64..40, 1_usize..3000, 0_usize..1000), 1..12),
        received in prop::collection::vec((0_u64..60_000, 1_u64..9000), 0..8),
    ) {
        let block = block(head, rest, green);
        let (bytes, _, red) = &block;
        let (mut together, mut alone) = (session(&block, known), session(&block, known));
        for (most, data, shorter) in turns.into_iter().cycle() {
            if together.is_transmitted() {
                break;
            }
            let sizes = (data, data.saturating_sub(shorter).max(1));
            let Some(run) = together.plan_run(sizes, every, most) else {
                let (plan, _) = send_one(&mut together, sizes, every, integrity);
                prop_assert!(most == 0 || plan.kind != DataKind::Red, "{plan:?}");
                send_one(&mut alone, sizes, every, integrity);
                continue;
            };
            prop_assert!((1..=most).contains(&run.segments), "{run:?} of {most}");
            let mut expected = Vec::new();
            for number in 0..run.segments {
                let (plan, data) = send_one(&mut alone, sizes, every, integrity);
                let start = run.start + number * run.bytes;
                prop_assert_eq!(plan.kind, DataKind::Red);
                prop_assert_eq!((plan.start, plan.end), (start, start + run.bytes));
                expected.extend(data);
            }
            if integrity {
                together.check_run_ahead(&run);
            }
            together.watch_run(&run);
            prop_assert!(together.data_of_run(&run) == expected, "{run:?}");
            together.commit_run(&run, integrity);
            prop_assert_eq!(together.next, alone.next);
            prop_assert_eq!(together.segments_since_checkpoint, alone.segments_since_checkpoint);
            // It ends where the next segment is another one, or lies in the other buffer.
            let next = alone.plan_fresh(sizes, every, false);
            let is_alike = next.is_some_and(|next| {
                next.kind == DataKind::Red && next.end - next.start == run.bytes
            });
            let ends_buffer = together.block.piece_end(run.start) == run.end();
            prop_assert!(run.segments == most || ends_buffer || !is_alike, "{run:?} of {most}");
        }
        prop_assert!(alone.is_transmitted());
        prop_assert_eq!(together.serials, alone.serials);
        if integrity {
            let checksum = checksum_of(bytes, *red);
            prop_assert_eq!([together.red_checksum(), alone.red_checksum()], [checksum; 2]);
        }
        let mut acked = RangeSet::default();
        for (start, length) in received {
            acked.insert(start.min(*red), (start + length).min(*red));
        }
        let told = together.fates.judge(&acked, 0, *red);
        prop_assert_eq!(told, alone.fates.judge(&acked, 0, *red));
    }
}

/// A run never ends the red part, nor is there one behind the last segment, in what is given up, or where none may leave.
#[test]
fn where_nothing_may_leave_there_is_no_run() {
    let block = block(1000, 1000, 0);
    let mut session = session(&block, false);
    assert!(session.plan_run((100, 100), None, 0).is_none());
    assert!(session.plan_run((2000, 2000), Some(1), 9).is_none());
    let run = session.plan_run((100, 100), None, 99).unwrap();
    assert_eq!((run.segments, run.end()), (10, 1000), "one buffer");
    session.commit_run(&run, true);
    let run = session.plan_run((100, 100), None, 99).unwrap();
    assert_eq!((run.segments, run.end()), (9, 1900));
    session.commit_run(&run, true);
    assert!(session.plan_run((100, 100), None, 99).is_none(), "it ends");
    session.give_up(CancelReason::User);
    assert!(session.plan_run((100, 100), None, 99).is_none());
}

/// Bytes of the repair symbol that is to leave next.
fn symbol_bytes(session: &SendSession) -> Option<usize> {
    let (body, _) = session.symbol()?;
    match body {
        Body::Repair(symbol) => Some(symbol.payload.len()),
        _ => None,
    }
}

/// The repair symbols of a block of one segment are made before anything of it leaves; if the path is known to carry less by then, they are not
/// those of the block.
#[test]
fn symbols_of_a_former_cut_never_leave() {
    let coding = Coding::new(0.25);
    let basis = |segment: usize| Basis {
        segment,
        single: segment,
        coding: Some(coding),
    };
    let mut session = session(&block(10, 2990, 0), false);
    let mut codec = Codec::new();
    for segment in [4000, 1000] {
        assert!(session.is_to_cut(&basis(segment)));
        let layout = Layout::usual(3000, segment, coding);
        session.cut(basis(segment), Some(layout));
        assert!(!session.is_to_cut(&basis(segment)));
        assert_eq!(symbol_bytes(&session), None, "{segment}");
        session.make_symbols(&mut codec);
        let made = (segment == 4000).then_some(4000);
        assert_eq!(symbol_bytes(&session), made, "{segment}");
    }
    for start in [0, 1000] {
        let (plan, _) = send_one(&mut session, (4000, 4000), None, true);
        assert_eq!((plan.start, plan.end), (start, start + 1000));
        session.make_symbols(&mut codec);
    }
    assert_eq!(symbol_bytes(&session), Some(1000));
    assert!(!session.is_to_cut(&basis(500)), "it has begun");
}
