//! What a receiving session counts and remembers.

use super::*;
use crate::segment::DataKind;

fn session() -> ReceiveSession {
    ReceiveSession::new(1, 1, 0, PeerTime::default())
}

fn data(kind: DataKind, offset: u64, payload: &[u8]) -> Data<'_> {
    Data {
        kind,
        service: 1,
        offset,
        checkpoint: None,
        payload,
    }
}

/// Red data of ten bytes each come, in this order.
fn come(session: &mut ReceiveSession, numbers: &[u64]) {
    for number in numbers {
        let start = number * 10;
        session.pass(start, start + 10);
        session.take_red(&data(DataKind::Red, start, &[7; 10]), None);
    }
}

fn losses(passed: u64, lost: u64) -> Losses {
    Losses { passed, lost }
}

/// What was only overtaken was not lost; what comes twice brings nothing that was.
#[test]
fn before_the_first_report_late_data_make_up_for_themselves_once() {
    let mut session = session();
    come(&mut session, &[0, 1, 4]);
    assert_eq!(session.losses, losses(50, 20));
    come(&mut session, &[1, 0, 4]);
    assert_eq!(session.losses, losses(50, 20), "these are here");
    come(&mut session, &[2]);
    assert_eq!(session.losses, losses(50, 10));
    come(&mut session, &[2, 1, 7]);
    assert_eq!(session.losses, losses(80, 30));
    session.report(1, 0, 80, 100);
    come(&mut session, &[3, 5, 6]);
    assert_eq!(session.losses, losses(80, 30), "that was sent again");
}

/// One run, or each segment of it by itself.
#[test]
fn segments_that_come_together_count_as_each_by_itself() {
    for before in [&[0, 4][..], &[3], &[0, 2, 6], &[5, 1]] {
        for (first, behind) in [(0, 3), (1, 5), (1, 9), (2, 7), (6, 9)] {
            let (mut together, mut alone) = (session(), session());
            come(&mut together, before);
            come(&mut alone, before);
            let all: Vec<u64> = (first..behind).collect();
            come(&mut alone, &all);
            together.pass(first * 10, behind * 10);
            let what = format!("{before:?}, {first}..{behind}");
            assert_eq!(together.losses, alone.losses, "{what}");
        }
    }
}

/// With more separate runs than are remembered, those that are come once, and runs that grow together make place for others.
#[test]
fn green_data_of_many_runs_are_new_once() {
    let mut session = session();
    let mut is_new = |at: u64| session.take_green(&data(DataKind::Green, at, &[7]));
    let most = MOST_GREEN_RUNS as u64;
    for number in 0..most + 100 {
        assert!(is_new(number * 2), "{number}");
    }
    for number in 0..most {
        assert!(!is_new(number * 2), "{number} comes again");
        assert!(is_new(number * 2 + 1), "{number}");
        assert!(!is_new(number * 2 + 1), "{number} comes again");
    }
    assert!(is_new(most * 2 + 1000));
    assert!(!is_new(most * 2 + 1000), "there is place again");
}
