use super::*;

#[test]
fn a_segment_without_data_that_does_not_open_is_asked_for_past_caches() {
    let now = Instant::now();
    let secret = ContentSecret::new(&[1; 32]);
    let config = FetchConfig::new(ContentId([2; 16]), secret);
    let mut fetch = Fetch::new(config, (Scope::Hop, Scope::Hop), 100);
    while fetch.poll_want(now).is_some() {}
    let wrong = Segment {
        offset: 700,
        is_end: true,
        sealed: Bytes::from_static(&[0; crate::SEAL_BYTES]),
    };
    assert_eq!(fetch.handle_segment(now, &wrong), Taken::Damaged);
    let again = Wanted {
        start: 700,
        end: 701,
        is_fresh: true,
    };
    assert_eq!(fetch.poll_want(now), Some(again));
}

/// The part of a segment behind the range that was asked for was asked for once more, and again after each timeout.
#[test]
fn what_came_with_longer_segments_than_expected_is_not_asked_for() {
    let now = Instant::now();
    let config = FetchConfig {
        window_bytes: 1000,
        ..FetchConfig::new(ContentId([2; 16]), ContentSecret::new(&[1; 32]))
    };
    let mut fetch = Fetch::new(config, (Scope::Hop, Scope::Hop), 100);
    let wants = |fetch: &mut Fetch| -> Vec<(u64, u64)> {
        let wants = std::iter::from_fn(|| fetch.poll_want(now));
        wants.map(|want| (want.start, want.end)).collect()
    };
    let take = |fetch: &mut Fetch, offset: u64| {
        let segment = fetch.key.seal(offset, false, &[7; 130]);
        assert_eq!(fetch.handle_segment(now, &segment), Taken::New);
    };
    assert_eq!(wants(&mut fetch).last(), Some(&(900, 1000)));
    (0..8).for_each(|number| take(&mut fetch, number * 130));
    while fetch.read().is_some() {}
    let asked = wants(&mut fetch);
    let expected: Vec<(u64, u64)> = (8..15).map(|at| (at * 130, at * 130 + 130)).collect();
    assert_eq!(asked, expected);
    asked.iter().for_each(|(start, _)| take(&mut fetch, *start));
    assert_eq!(fetch.handle_timeout(now + Duration::from_secs(60)), 0);
    // Where an earlier try ended within a segment, the first Interest ends with it.
    fetch.next += 50;
    while fetch.read().is_some() {}
    assert_eq!(wants(&mut fetch)[..2], [(2000, 2080), (2080, 2210)]);
}

const RTT: Duration = Duration::from_millis(40);
/// RFC 6298 §2.2: the round trip, and four times half of it.
const RTO: Duration = Duration::from_millis(120);
const LAST: (u64, u64) = (1000, 1100);

/// A transfer of which the first segment came a round trip after it was asked for, and when that was. Ten ranges of a segment are in flight; only
/// the last of them was asked for when a round trip was known, then.
fn begun(start: Instant) -> (Fetch, Instant) {
    let config = FetchConfig {
        window_bytes: 1000,
        ..FetchConfig::new(ContentId([2; 16]), ContentSecret::new(&[1; 32]))
    };
    let mut fetch = Fetch::new(config, (Scope::Hop, Scope::Hop), 100);
    while fetch.poll_want(start).is_some() {}
    let now = start + RTT;
    come(&mut fetch, now, 0);
    assert!(fetch.read().is_some());
    let last = fetch.poll_want(now);
    assert_eq!(last.map(|want| (want.start, want.end)), Some(LAST));
    assert_eq!(fetch.poll_want(now), None);
    (fetch, now)
}

/// The segment at an offset arrives.
fn come(fetch: &mut Fetch, now: Instant, offset: u64) {
    let segment = fetch.key.seal(offset, false, &[7; 100]);
    assert_eq!(fetch.handle_segment(now, &segment), Taken::New);
}

/// What is overdue at an instant, and therefore asked for again.
fn overdue(fetch: &mut Fetch, now: Instant) -> Vec<(u64, u64)> {
    let count = fetch.handle_timeout(now);
    let again: Vec<(u64, u64)> = std::iter::from_fn(|| fetch.again.pop_front())
        .map(|want| (want.start, want.end))
        .collect();
    assert_eq!(count, again.len() as u64);
    again
}

/// The published code leaves the timer alone, and asks for what a relay recovers already.
#[test]
fn a_void_restarts_the_timer() {
    let (mut fetch, asked) = begun(Instant::now());
    assert_eq!(overdue(&mut fetch, asked + RTO), [LAST], "without one");

    let (mut fetch, asked) = begun(Instant::now());
    let ms = Duration::from_millis(1);
    fetch.handle_void(asked + RTO - ms, 900, 1000);
    assert_eq!(overdue(&mut fetch, asked + RTO), [LAST], "that of another");

    let (mut fetch, asked) = begun(Instant::now());
    let mut due = asked + RTO;
    for number in 1..=MOST_POSTPONED {
        // Any part of the range will do.
        fetch.handle_void(due - ms, 1099, 2000);
        assert_eq!(overdue(&mut fetch, due), [], "after {number}");
        due = due - ms + RTO;
        assert!(fetch.timeout().is_some_and(|at| at <= due), "{number}");
    }
    fetch.handle_void(due - ms, 1000, 1100);
    assert_eq!(overdue(&mut fetch, due), [LAST], "after one too many");
    // Asked for again, it may be recovered again.
    let due = due + RTO.mul_f64(BACKOFF);
    fetch.handle_void(due - ms, 1000, 1100);
    assert_eq!(overdue(&mut fetch, due), []);
}

/// RFC 6298 §3: what comes may answer either Interest.
#[test]
fn a_range_asked_for_twice_tells_no_round_trip() {
    let (mut fetch, asked) = begun(Instant::now());
    let again = asked + RTO;
    assert_eq!(overdue(&mut fetch, again), [LAST]);
    let now = again + Duration::from_millis(5);
    come(&mut fetch, now, 1000);
    assert_eq!(fetch.rtt.smoothed(), Some(RTT));
    assert_eq!(fetch.base(), Some(RTT));
    // One that was asked for once does.
    come(&mut fetch, now, 100);
    let smoothed = (RTT * 7 + (now - asked + RTT)) / 8;
    assert_eq!(fetch.rtt.smoothed(), Some(smoothed));
    assert_eq!(fetch.base(), Some(RTT));

    // What comes may have left over the former path.
    let (mut fetch, asked) = begun(Instant::now());
    let now = asked + Duration::from_millis(1);
    assert!(fetch.change_path(now).contains(&LAST));
    come(&mut fetch, now, 1000);
    assert_eq!(fetch.rtt.smoothed(), Some(RTT));
    assert_eq!(fetch.base(), Some(RTT));
}

/// All was taken to be under way, and the timer of what was asked for again lasted as long as the outage had.
#[test]
fn after_an_outage_all_is_asked_for_at_once_and_timers_begin_anew() {
    for is_other_path in [true, false] {
        let (mut fetch, asked) = begun(Instant::now());
        let mut now = asked;
        while now < asked + Duration::from_secs(3) {
            now = fetch.timeout().unwrap();
            overdue(&mut fetch, now);
        }
        now += RTO;
        if is_other_path {
            assert_eq!(fetch.change_path(now), [(100, 1100)]);
        } else {
            fetch.begin_anew(now);
        }
        let due = now + RTO;
        assert_eq!(fetch.timeout(), Some(due), "{is_other_path}");
        assert_eq!(overdue(&mut fetch, due).len(), 10, "{is_other_path}");
        assert!(fetch.timeout().is_some_and(|next| next < due + RTO * 3));
        // It was asked for before.
        come(&mut fetch, due + RTT / 2, 1000);
        assert_eq!(fetch.rtt.smoothed(), Some(RTT), "{is_other_path}");
    }
}

#[test]
fn timeouts_grow_by_half_from_20_ms() {
    let start = Instant::now();
    // One segment in flight.
    let config = FetchConfig {
        window_bytes: 100,
        ..FetchConfig::new(ContentId([2; 16]), ContentSecret::new(&[1; 32]))
    };
    let mut fetch = Fetch::new(config, (Scope::Hop, Scope::Hop), 100);
    assert!(fetch.poll_want(start).is_some());
    let mut asked = start + Duration::from_millis(1);
    come(&mut fetch, asked, 0);
    assert!(fetch.read().is_some());
    assert!(fetch.poll_want(asked).is_some());
    let mut expected = Duration::from_millis(20);
    for number in 1..40 {
        let due = fetch.timeout().unwrap();
        let waited = due - asked;
        let off = waited.abs_diff(expected);
        assert!(off < Duration::from_micros(1), "{waited:?} as {number}.");
        assert_eq!(overdue(&mut fetch, due), [(100, 200)]);
        asked = due;
        expected = expected.mul_f64(1.5).min(Duration::from_secs(5));
    }
    assert_eq!(expected, Duration::from_secs(5));
}
