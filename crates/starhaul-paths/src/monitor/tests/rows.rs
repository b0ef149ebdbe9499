//! Losses in a row, and silence.

use super::*;

/// When a path with 100 ms there and back that was heard of until 1 s after its start becomes suspect, after it has lost as many datagrams in a
/// row as said now and then, in ms since then.
fn suspect_after(in_a_row: u64) -> Duration {
    let start = Instant::now();
    let mut path = monitor(start, update(100 * MS, 10));
    path.on_transport_acked(start, 0, 0, &mut Vec::new());
    let is_lost = |sequence: u64| sequence % 200 < in_a_row && sequence < 800;
    let (mut answered, mut now) = (0, start);
    for number in 0..2000_u32 {
        now = start + number * MS;
        while answered < 900 && start + (u32::try_from(answered).unwrap() + 100) * MS <= now {
            if !is_lost(answered) {
                path.on_transport_acked(now, answered, answered, &mut Vec::new());
            }
            if answered % 200 == 150 {
                for sequence in (0..answered).filter(|sequence| is_lost(*sequence)) {
                    path.on_lost(now, sequence);
                }
            }
            answered += 1;
        }
        if path.on_timeout(now) && number > 999 {
            break;
        }
        path.on_sent(now, 1_200, (), true);
    }
    now - (start + 999 * MS)
}

/// Of twenty in a row on average nearly seventy show nothing yet: then half a round trip more is waited for, and no longer.
#[test]
fn a_path_that_loses_in_a_row_is_suspect_once_more_than_such_a_row_is_unanswered() {
    let (soon, late) = (suspect_after(1), suspect_after(20));
    assert!((9 * MS..=20 * MS).contains(&soon), "{soon:?}");
    assert!((45 * MS..=60 * MS).contains(&late), "{late:?}");
    let between = suspect_after(5);
    assert!(
        soon < between && between < late,
        "{soon:?} {between:?} {late:?}"
    );
}
