//! Acknowledgements of a peer that had no processor.

use super::*;

/// Sends 50 datagrams at once and acknowledges them together after `took`; returns the time then.
fn burst(path: &mut PathMonitor<()>, now: Instant, took: Duration) -> Instant {
    let first = path.next_sequence();
    let last = (0..50).map(|_| path.on_sent(now, 1_200, (), true)).last();
    path.on_acked(now + took, first, last.unwrap(), None, &mut Vec::new());
    now + took
}

/// How many of a burst that is sent now count as lost while nothing is heard for `silent`.
fn lost_within(path: &mut PathMonitor<()>, now: Instant, silent: Duration) -> usize {
    for _ in 0..50 {
        path.on_sent(now, 1_200, (), true);
    }
    let mut lost = Vec::new();
    path.find_lost(now + silent, &mut lost);
    lost.len()
}

#[test]
fn who_answered_late_on_a_short_path_is_waited_for_next_time_and_what_is_lost_is_found_all_the_same()
 {
    let start = Instant::now();
    let mut path = monitor(start, update(2 * MS, 1_000));
    let mut now = start;
    for _ in 0..20 {
        now = burst(&mut path, now, 2 * MS);
    }
    assert_eq!(path.overdue_after(), 3 * MS, "all came alike");
    // The peer had no processor for a while.
    now = burst(&mut path, now, 9 * MS);
    for _ in 0..20 {
        now = burst(&mut path, now, 2 * MS);
    }
    assert_eq!(path.overdue_after(), 9 * MS, "as late as that");
    let mut another = path.clone();
    assert_eq!(lost_within(&mut another, now, 8 * MS), 0);
    assert_eq!(lost_within(&mut path.clone(), now, 10 * MS), 50);
    // It is forgotten.
    let later = now + Duration::from_secs(11);
    now = burst(&mut path, later, 2 * MS);
    assert_eq!(path.overdue_after(), 3 * MS);
    // However late one was, nothing waits for long.
    now = burst(&mut path, now, 300 * MS);
    for _ in 0..20 {
        now = burst(&mut path, now, 2 * MS);
    }
    assert_eq!(path.overdue_after(), 2 * MS + MOST_LEAST_MARGIN);
}

#[test]
fn on_a_longer_path_late_answers_are_no_sign_of_a_busy_peer() {
    let start = Instant::now();
    let mut path = monitor(start, update(20 * MS, 1_000));
    let mut now = start;
    for took in [20_u32, 27, 20, 20] {
        for _ in 0..10 {
            now = burst(&mut path, now, took * MS);
        }
    }
    assert_eq!(path.overdue_after(), 21 * MS);
}
