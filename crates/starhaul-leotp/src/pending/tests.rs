use super::*;

const C: ContentId = ContentId([1; 16]);
const A: Asker = Asker::Neighbour(NeighbourId(1), 0);
const B: Asker = Asker::Neighbour(NeighbourId(2), 9);
const RTT: Duration = Duration::from_millis(20);

fn pending() -> Pending {
    Pending::new(100, 2, Duration::from_secs(10))
}

impl Pending {
    /// As [`Pending::take_into`], which must leave nothing of what was there.
    fn take(&mut self, now: Instant, content: ContentId, range: (u64, u64)) -> Vec<Asker> {
        let mut askers = vec![Asker::Neighbour(NeighbourId(77), 77)];
        self.take_into(&mut askers, now, content, range);
        askers
    }
}

#[test]
fn one_asks_for_many_and_what_comes_goes_to_all() {
    let now = Instant::now();
    let mut pending = pending();
    assert_eq!(pending.ask(now, C, (0, 100), A, RTT), Some(vec![(0, 100)]));
    assert_eq!(
        pending.ask(now, C, (50, 150), B, RTT),
        Some(vec![(100, 150)])
    );
    assert_eq!(pending.ranges(), 3);
    assert_eq!(pending.take(now, C, (40, 60)), [A, B]);
    assert_eq!(pending.take(now, C, (40, 60)), []);
    assert_eq!(pending.renew(C, now), [(0, 40), (60, 150)]);
    assert!(pending.waits_for(C, 30, 41) && !pending.waits_for(C, 40, 60));
    for (range, part) in [
        ((0, 150), Some((0, 150))),
        ((10, 50), Some((10, 40))),
        ((45, 150), Some((60, 150))),
        ((40, 60), None),
        ((50, 100), Some((60, 100))),
        ((140, 1000), Some((140, 150))),
        ((150, 1000), None),
    ] {
        assert_eq!(pending.awaited_part(C, range.0, range.1), part, "{range:?}");
    }
    assert_eq!(pending.take(now, C, (0, 40)), [A]);
    assert_eq!(
        pending.take(now, C, (0, 1000)),
        [B, A],
        "the last range first"
    );
    assert_eq!(pending.ranges(), 0);
}

#[test]
fn a_neighbour_that_asks_under_many_handles_waits_once() {
    let now = Instant::now();
    let mut pending = pending();
    for handle in 0..1000 {
        pending.ask(
            now,
            C,
            (0, 100),
            Asker::Neighbour(NeighbourId(1), handle),
            RTT,
        );
    }
    pending.ask(now, C, (0, 100), B, RTT);
    let last = Asker::Neighbour(NeighbourId(1), 999);
    assert_eq!(pending.take(now, C, (0, 100)), [last, B]);
}

#[test]
fn what_is_awaited_of_a_neighbour_is_counted_whatever_happens() {
    let now = Instant::now();
    let (mut pending, up, other) = (pending(), NeighbourId(5), NeighbourId(6));
    let d = ContentId([2; 16]);
    for content in [C, d] {
        pending.ask(now, content, (0, 100), A, RTT);
        assert_eq!(pending.awaited_of(up)[0], usize::from(content == d));
        pending.set_upstream(content, Some(up));
    }
    pending.set_live(d);
    assert_eq!(pending.awaited_of(up), [1, 1]);
    assert!(pending.knows_as(d, true) && !pending.knows_as(d, false));
    assert!(pending.is_idle((d, false)) && !pending.is_idle((d, true)));
    assert_eq!([pending.set_whole(d), pending.set_whole(d)], [true, false]);
    assert!(pending.knows_as(d, false) && !pending.knows_as(d, true));
    assert_eq!(pending.awaited_of(up), [2, 0]);
    pending.set_live(d);
    pending.set_upstream(d, Some(other));
    assert_eq!(
        (pending.awaited_of(up), pending.awaited_of(other)),
        ([1, 0], [0, 1])
    );
    pending.take(now, C, (0, 60));
    assert_eq!(pending.awaited_of(up), [1, 0]);
    pending.take(now, C, (60, 100));
    assert_eq!(pending.awaited_of(up), [0, 0]);
    pending.ask(now, C, (0, 100), B, RTT);
    assert_eq!(pending.awaited_of(up), [1, 0]);
    pending.withdraw(C, B);
    pending.refuse(d);
    assert_eq!(
        (pending.awaited_of(up), pending.awaited_of(other)),
        ([0; 2], [0; 2])
    );
    pending.ask(now, C, (0, 100), B, RTT);
    pending.withdraw_neighbour(NeighbourId(2));
    assert_eq!(pending.awaited_of(up), [0, 0]);
    pending.ask(now, C, (0, 100), A, RTT);
    pending.expire(now + Duration::from_secs(11));
    assert_eq!((pending.awaited_of(up), pending.ranges()), ([0, 0], 0));
}

#[test]
fn no_neighbour_takes_the_room_of_others() {
    let now = Instant::now();
    let mut pending = Pending::new(100, 20, Duration::from_secs(10));
    let ask = |pending: &mut Pending, asker, number: u64| {
        let range = (number * 2, number * 2 + 1);
        pending.ask(now, C, range, asker, RTT).is_some()
    };
    let asked = (0..1000).filter(|number| ask(&mut pending, A, *number));
    assert_eq!(asked.count(), 75);
    let asked = (1000..2000).filter(|number| ask(&mut pending, B, *number));
    assert!(asked.count() > 15);
    let again = pending.ask(now + RTT, C, (0, 1), A, RTT);
    assert_eq!(
        again,
        Some(vec![(0, 1)]),
        "what it waits for it may ask for again"
    );
    pending.expire(now + Duration::from_secs(11));
    assert_eq!(pending.ranges(), 0);
    for (asker, most) in [(A, 15), (B, 4)] {
        let contents = (0..100).filter(|number| {
            let mut content = [0; 16];
            (content[0], content[1]) = ((asker == A).into(), *number);
            let asked = pending.ask(now, ContentId(content), (0, 5), asker, RTT);
            asked.is_some()
        });
        assert_eq!(contents.count(), most);
    }
    pending.withdraw_neighbour(NeighbourId(1));
    pending.withdraw_neighbour(NeighbourId(2));
    pending.expire(now + Duration::from_secs(11));
    let held = pending.totals.held.values();
    assert!(
        held.into_iter()
            .all(|held| (held.ranges, held.contents) == (0, 0))
    );
}

#[test]
fn what_cuts_the_ranges_of_others_is_bounded_and_counts_for_who_cuts() {
    let now = Instant::now();
    let mut pending = pending();
    pending.ask(now, C, (0, 10_000), A, RTT);
    for number in 0..1000 {
        pending.ask(now, C, (number * 4 + 1, number * 4 + 2), B, RTT);
    }
    assert!(pending.ranges() <= 100, "{}", pending.ranges());
    assert_eq!(pending.totals.held[&NeighbourId(1)].ranges, 1);
    // What comes leaves holes, too.
    for number in 500..1000 {
        pending.take(now, C, (number * 4, number * 4 + 1));
        assert!(pending.ranges() <= 100, "{}", pending.ranges());
    }
    assert!(pending.waits_for(C, 9_999, 10_000));
    assert!(pending.expire(now) > 300, "what was given up is counted");
    pending.take(now, C, (0, 10_000));
    let held = pending.totals.held.values();
    assert!(held.into_iter().all(|held| held.ranges == 0));
}

#[test]
fn asking_again_is_passed_on_after_a_round_trip() {
    let now = Instant::now();
    let mut pending = pending();
    pending.ask(now, C, (0, 100), A, RTT);
    assert_eq!(pending.ask(now + RTT / 2, C, (0, 50), A, RTT), Some(vec![]));
    assert_eq!(
        pending.ask(now + RTT, C, (0, 50), A, RTT),
        Some(vec![(0, 50)])
    );
    assert_eq!(pending.ask(now + RTT, C, (0, 50), B, RTT), Some(vec![]));
}

/// In a ring of relays what one of them passes on comes back to it: each time it had waited long enough to be passed on again.
#[test]
fn what_is_asked_for_again_in_vain_waits_longer_each_time() {
    let (mut now, mut pending) = (Instant::now(), pending());
    pending.ask(now, C, (0, 100), A, RTT);
    let mut passed = 0;
    for _ in 0..1000 {
        now += RTT * 3 / 2;
        let again = pending.ask(now, C, (0, 100), A, RTT);
        passed += again.map_or(0, |parts| parts.len());
    }
    // 30 s, at intervals that grow from 30 ms to 2 s.
    assert!((20..30).contains(&passed), "{passed}");
    // Past caches the first time may be at once.
    now += LONGEST_WAIT;
    pending.renew(C, now);
    let asks = [(); 20].map(|()| pending.ask(now, C, (0, 100), A, Duration::ZERO));
    let passed = asks.into_iter().flatten().flatten().count();
    assert_eq!(passed, 1);
    // Who asks again as requesters do is passed on each time.
    pending.renew(C, now);
    let mut timeout = RTT + RTT / 10;
    for _ in 0..20 {
        now += timeout;
        let again = pending.ask(now, C, (0, 100), A, RTT);
        assert_eq!(again, Some(vec![(0, 100)]), "after {timeout:?}");
        timeout = timeout.mul_f64(1.5).min(Duration::from_secs(5));
    }
}

/// A stream that was idle asked for what did not exist yet: a hole in what then came was not asked for again for up to two seconds.
#[test]
fn what_is_left_of_a_range_is_asked_for_as_soon_as_at_first_once_some_of_it_came() {
    for came in [(0, 10), (20, 30), (90, 100)] {
        let (mut now, mut pending) = (Instant::now(), pending());
        pending.ask(now, C, (0, 100), A, RTT);
        for _ in 0..10 {
            now += LONGEST_WAIT;
            let again = pending.ask(now, C, (0, 100), A, RTT);
            assert_eq!(again, Some(vec![(0, 100)]));
        }
        pending.take(now, C, came);
        now += RTT;
        let hole = pending.ask(now, C, (10, 20), A, RTT);
        assert_eq!(hole, Some(vec![(10, 20)]), "{came:?} came");
        // It alone waits longer now.
        now += RTT;
        assert_eq!(pending.ask(now, C, (10, 20), A, RTT), Some(vec![]));
        let other = pending.ask(now, C, (40, 50), A, RTT);
        assert_eq!(other, Some(vec![(40, 50)]), "{came:?} came");
    }
}

/// What a slow link brings for longer than it is waited for was forgotten before it came.
#[test]
fn what_the_rest_of_a_content_comes_before_is_waited_for() {
    let (mut now, mut pending) = (Instant::now(), pending());
    pending.ask(now, C, (0, 10), A, RTT);
    pending.ask(now, ContentId([2; 16]), (0, 10), A, RTT);
    for number in 0..9 {
        now += Duration::from_secs(5);
        pending.take(now, C, (number, number + 1));
        assert_eq!(pending.expire(now), u64::from(number == 1), "the other one");
    }
    assert!(pending.waits_for(C, 9, 10));
    assert_eq!(pending.expire(now + Duration::from_secs(11)), 1);
}

#[test]
fn endless_names_and_ranges_are_refused_and_time_out() {
    let now = Instant::now();
    let mut pending = pending();
    let mut asked = 0;
    for i in 0..1000 {
        let range = (i * 10, i * 10 + 5);
        asked += usize::from(pending.ask(now, C, range, A, RTT).is_some());
    }
    assert!(asked < 100 && pending.ranges() <= 100);
    assert!(
        pending
            .ask(now, ContentId([2; 16]), (0, 5), A, RTT)
            .is_none_or(|parts| parts.is_empty())
    );
    assert_eq!(pending.ask(now, ContentId([3; 16]), (0, 5), A, RTT), None);
    assert_eq!(pending.expire(now + Duration::from_secs(11)), asked as u64);
    assert!(pending.is_empty() && pending.ranges() == 0);
    assert_eq!(pending.ask(now, C, (0, 5), A, RTT), Some(vec![(0, 5)]));
    assert_eq!(pending.refuse(C), [A]);
    assert_eq!(pending.ranges(), 0);
}
