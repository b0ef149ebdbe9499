use super::*;

fn own(handle: u64, start: u64, end: u64) -> Next {
    Next {
        content: ContentId([1; 16]),
        handle,
        item: Item::Own { start, end },
    }
}

fn in_hundreds(_: ContentId, _: u64, (start, end): (u64, u64)) -> Option<Cut> {
    Some(Cut::at_multiple(100, start, end))
}

fn pop(queue: &mut SendQueue, now: Instant) -> Option<(u64, u64, u64)> {
    let (next, _) = queue.pop(now, now, in_hundreds).ok()?;
    match next.item {
        Item::Own { start, end } => Some((next.handle, start, end)),
        Item::Segment { segment, .. } => Some((next.handle, segment.offset, segment.end())),
    }
}

#[test]
fn contents_take_turns_and_nothing_waits_twice() {
    let now = Instant::now();
    let mut queue = SendQueue::new(10_000, 10, Duration::ZERO);
    for (handle, start, end) in [(1, 0, 200), (2, 50, 150), (1, 100, 300), (1, 100, 300)] {
        assert!(queue.push(now, now, own(handle, start, end)));
    }
    queue.repair_own(now, ContentId([1; 16]), 2, 0, 50);
    let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue, now)).collect();
    assert_eq!(
        order,
        [
            (2, 0, 50),
            (1, 0, 100),
            (2, 50, 100),
            (1, 100, 200),
            (2, 100, 150),
            (1, 200, 300)
        ]
    );
    assert!(queue.is_empty());
}

#[test]
fn what_does_not_exist_leaves_its_turn_to_others() {
    let now = Instant::now();
    let mut queue = SendQueue::new(10_000, 10, Duration::ZERO);
    queue.push(now, now, own(1, 0, 1000));
    queue.push(now, now, own(2, 0, 1000));
    let exists = |_, handle, (start, end)| {
        let cut = Cut {
            start,
            end: start + 7,
            rest: (start < 7).then_some((start + 7, end)),
        };
        (handle == 2).then_some(cut)
    };
    let sent = std::iter::from_fn(|| queue.pop(now, now, exists).ok());
    assert_eq!(
        sent.map(|(next, _)| next.handle).collect::<Vec<_>>(),
        [2, 2]
    );
    assert!(queue.is_empty() && queue.items == 0);
}

#[test]
fn a_range_without_end_keeps_others_of_the_content_waiting_for_its_first_part_only() {
    let now = Instant::now();
    let mut queue = SendQueue::new(10_000, 10, Duration::ZERO);
    let far = 1 << 61;
    queue.push(now, now, own(1, 0, 1 << 62));
    assert!(!queue.push(now, now, own(1, far, far + 100)), "no room yet");
    let in_parts = |_, _, (start, end)| Some(Cut::at_multiple(1 << 20, start, end));
    assert!(queue.pop(now, now, in_parts).is_ok());
    assert!(queue.push(now, now, own(1, far, far + 100)));
    let before = std::iter::from_fn(|| queue.pop(now, now, in_parts).ok());
    let before = before.take_while(|(next, _)| next.item.length() > 100);
    assert_eq!(before.take(1000).count(), 63);
    assert!(queue.is_empty());
    let taken = (0..100).filter(|at| queue.push(now, now, own(1, at << 20, (at + 1) << 20)));
    assert_eq!(taken.count(), 64);
}

#[test]
fn a_slow_content_holds_no_other_back() {
    let now = Instant::now();
    let mut queue = SendQueue::new(10_000, 10, Duration::ZERO);
    queue.push(now, now, own(1, 0, 200));
    queue.push(now, now, own(2, 0, 300));
    queue.set_rate(1, 1000.0);
    assert_eq!(pop(&mut queue, now), Some((1, 0, 100)));
    assert_eq!(
        [
            pop(&mut queue, now),
            pop(&mut queue, now),
            pop(&mut queue, now)
        ]
        .map(|next| next.unwrap().0),
        [2; 3]
    );
    let at = queue.pop(now, now, in_hundreds).unwrap_err();
    assert_eq!(at, Some(now + Duration::from_millis(100)));
    assert_eq!(pop(&mut queue, at.unwrap()), Some((1, 100, 200)));
}

#[test]
fn contents_that_wait_for_their_pace_are_not_looked_at_for_each_packet() {
    let now = Instant::now();
    for slack in [Duration::ZERO, Duration::from_millis(2)] {
        let mut queue = SendQueue::new(10_000, 2000, slack);
        for handle in 0..1000 {
            queue.push(now, now, own(handle, 0, 1000));
            queue.set_rate(handle, 1000.0);
        }
        while pop(&mut queue, now).is_some() {}
        queue.looks.set(0);
        let at = queue.pop(now, now, in_hundreds).unwrap_err();
        for _ in 0..1000 {
            queue.repair_own(now, ContentId([1; 16]), 7, 0, 100);
            assert_eq!(pop(&mut queue, now), Some((7, 0, 100)));
            assert_eq!(queue.pop(now, now, in_hundreds).unwrap_err(), at);
        }
        for number in 0..1000 {
            queue.push(now, now, own(number, 2000, 3000));
            assert_eq!(queue.pop(now, now, in_hundreds).unwrap_err(), at);
        }
        assert!(queue.looks.get() <= 1000, "{}", queue.looks.get());
        for _ in 0..1000 {
            assert!(queue.leaving(now).rate > 0.0);
        }
        assert!(queue.looks.get() <= 2000, "{}", queue.looks.get());
        // News of a rate, or of something else to send, is not missed.
        queue.set_rate(5, 1e15);
        assert_eq!(pop(&mut queue, now), Some((5, 100, 200)));
        queue.push(now, now, own(1001, 0, 100));
        assert_eq!(pop(&mut queue, now).map(|(handle, ..)| handle), Some(5));
        assert_eq!(pop(&mut queue, now), Some((1001, 0, 100)));
        while pop(&mut queue, now).is_some() {}
        assert_eq!(queue.pop(now, now, in_hundreds).unwrap_err(), at);
        assert!(pop(&mut queue, at.unwrap()).is_some());
    }
}

#[test]
fn segments_without_data_take_memory_too() {
    let now = Instant::now();
    let mut queue = SendQueue::new(100_000, 10, Duration::ZERO);
    let empty = |number: u64| Next {
        content: ContentId([1; 16]),
        handle: number % 3,
        item: Item::Segment {
            segment: Segment {
                offset: number,
                is_end: true,
                sealed: vec![0; 16].into(),
            },
            is_repair: number % 3 == 2,
            left: None,
        },
    };
    let fit = (0..100_000).filter(|number| queue.push(now, now, empty(*number)));
    assert_eq!(fit.count(), 100_000 / LEAST_BYTES);
    assert!(queue.backlog(0).0 < 10_000, "as a backlog it is what it is");
    queue.forget(ContentId([1; 16]), 1);
    while pop(&mut queue, now).is_some() {}
    assert!(queue.is_empty() && queue.bytes() == 0);
}

#[test]
fn memory_and_contents_are_bounded() {
    let now = Instant::now();
    let mut queue = SendQueue::new(1000, 3, Duration::ZERO);
    let segment = |handle, is_repair| Next {
        content: ContentId([1; 16]),
        handle,
        item: Item::Segment {
            segment: Segment {
                offset: 0,
                is_end: false,
                sealed: vec![0; 300].into(),
            },
            is_repair,
            left: None,
        },
    };
    let pushed = (0..9)
        .filter(|handle| queue.push(now, now, segment(*handle, *handle == 1)))
        .count();
    assert_eq!((pushed, queue.bytes()), (3, 900));
    queue.forget(ContentId([1; 16]), 1);
    queue.forget(ContentId([1; 16]), 2);
    assert_eq!(queue.bytes(), 300);
    for handle in 10..20 {
        queue.push(now, now, own(handle, 0, 5));
    }
    assert_eq!(queue.flows.len(), 3);
    queue.clear();
    assert!(queue.is_empty() && queue.bytes() == 0);
    let pushed = (0..2000)
        .filter(|at| queue.push(now, now, own(1, at * 2, at * 2 + 1)))
        .count();
    assert_eq!((pushed, queue.items), (MOST_OWN_OF_ONE, MOST_OWN_OF_ONE));
    while pop(&mut queue, now).is_some() {}
    assert!(queue.is_empty() && queue.items == 0);
}

#[test]
fn contents_of_which_much_waits_take_no_room_of_others() {
    let now = Instant::now();
    let mut queue = SendQueue::new(1000, 4096, Duration::ZERO);
    let mut fit = |handle: u64, count: u64| {
        let ranges = (0..count).map(|at| own(handle, at * 2, at * 2 + 1));
        ranges
            .filter(|range| queue.push(now, now, range.clone()))
            .count()
    };
    for handle in 0..16 {
        assert_eq!(fit(handle, 512), 512);
    }
    for handle in 16..4096 {
        assert_eq!(fit(handle, 20), FEW_OWN);
    }
}

/// Who waits longer than usual asks again, and a relay gives what it has in its cache: that must not wait twice.
#[test]
fn a_segment_that_waits_is_not_queued_again() {
    let now = Instant::now();
    let mut queue = SendQueue::new(10_000, 10, Duration::ZERO);
    let segment = |offset, seal, is_repair| Next {
        content: ContentId([1; 16]),
        handle: 1,
        item: Item::Segment {
            segment: Segment {
                offset,
                is_end: false,
                sealed: vec![seal; 300].into(),
            },
            is_repair,
            left: None,
        },
    };
    for _ in 0..100 {
        for offset in [0, 284] {
            assert!(queue.push(now, now, segment(offset, 1, false)));
        }
        // Another one at its place may be the right one.
        assert!(queue.push(now, now, segment(0, 2, false)));
    }
    assert_eq!((queue.bytes(), queue.backlog(1).0), (900, 900));
    assert_eq!(pop(&mut queue, now), Some((1, 0, 284)));
    assert!(queue.push(now, now, segment(0, 1, false)), "it may be lost");
    assert_eq!(queue.bytes(), 900);
    assert!(queue.push(now, now, segment(284, 1, true)), "it was lost");
    assert_eq!(queue.bytes(), 1200);
    while pop(&mut queue, now).is_some() {}
    assert!(queue.is_empty() && queue.bytes() == 0);
    assert!(queue.flows.values().all(|flow| flow.segments.is_empty()));
}

/// All contents that waited were looked at for each packet, to say whether they use up the rate.
#[test]
fn whether_there_is_enough_to_send_is_known_without_a_look_at_all() {
    let start = Instant::now();
    let mut queue = SendQueue::new(100_000, 20, Duration::ZERO);
    let mut random = 1_u64;
    for number in 0..20_000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let [what, handle, amount] =
            [33, 40, 48].map(|bits| u64::from((random >> bits).to_le_bytes()[0]));
        let (handle, now) = (handle % 25, start + Duration::from_millis(number * 20));
        match what % 8 {
            0 | 1 => drop(queue.push(now, now, own(handle, amount, amount + 150))),
            2 => queue.set_rate(
                handle,
                f64::from(u32::try_from(amount + 1).unwrap()) * 125.0,
            ),
            3 if what == 3 => queue.forget(ContentId([1; 16]), handle),
            4 if what == 4 => queue.clear(),
            5 => drop(queue.pop(now, now, |_, _, _| None)),
            _ => drop(pop(&mut queue, now)),
        }
        let waiting = queue.flows.values().filter(|flow| !flow.items.is_empty());
        let rates = waiting.map(|flow| flow.rate).sum::<Option<f64>>();
        let most = rates.unwrap_or(f64::INFINITY);
        assert_eq!(queue.turn.is_empty(), queue.items == 0);
        assert!(!queue.is_limited(most), "{number}");
        assert_eq!(queue.is_limited(most + 1.0), rates.is_some(), "{number}");
    }
}

/// A requester that went to a relay and came back numbers contents anew, in the same life.
#[test]
fn a_number_that_means_another_content_now_sends_that() {
    let now = Instant::now();
    let mut queue = SendQueue::new(10_000, 10, Duration::ZERO);
    let of = |content: u8, start, end| Next {
        content: ContentId([content; 16]),
        ..own(0, start, end)
    };
    queue.push(now, now, of(1, 0, 100));
    queue.pop(now, now, in_hundreds).unwrap();
    queue.push(now, now, of(1, 100, 300));
    queue.push(now, now, of(2, 500, 700));
    let sent = std::iter::from_fn(|| queue.pop(now, now, in_hundreds).ok());
    let contents: Vec<_> = sent.map(|(next, _)| next.content).collect();
    assert_eq!(contents, [ContentId([2; 16]); 2]);
    assert!(queue.is_empty() && queue.items == 0 && queue.bytes == 0);
}

/// Behind one relay, a content with a long queue took all the room: what others asked for out of the cache was dropped each time.
#[test]
fn one_content_leaves_room_in_the_queue_for_others() {
    let now = Instant::now();
    let mut queue = SendQueue::new(100_000, 10, Duration::ZERO);
    let segment = |handle: u64, offset: u64| Next {
        content: ContentId([1; 16]),
        handle,
        item: Item::Segment {
            segment: Segment {
                offset,
                is_end: false,
                sealed: vec![0; 1000].into(),
            },
            is_repair: false,
            left: None,
        },
    };
    let mut fit = |handle: u64| {
        let fit = (0..1000).filter(|at| queue.push(now, now, segment(handle, at * 984)));
        fit.count()
    };
    assert_eq!([1, 2, 3].map(&mut fit), [75, 19, 5]);
}

/// A stream that was refused took with it what waited of another, which had its number by then.
#[test]
fn what_waits_of_a_content_stays_when_one_that_had_its_number_is_forgotten() {
    let now = Instant::now();
    let mut queue = SendQueue::new(10_000, 10, Duration::ZERO);
    let segment = |content: u8, is_repair| Next {
        content: ContentId([content; 16]),
        handle: 0,
        item: Item::Segment {
            segment: Segment {
                offset: 0,
                is_end: false,
                sealed: vec![content; 1000].into(),
            },
            is_repair,
            left: None,
        },
    };
    for (content, is_repair) in [(1, true), (1, false), (2, true), (2, false)] {
        assert!(queue.push(now, now, segment(content, is_repair)));
    }
    assert_eq!(queue.bytes(), 2000, "what was of the first is gone");
    assert!(queue.is_reused(ContentId([1; 16]), 0));
    queue.forget(ContentId([1; 16]), 0);
    assert_eq!((queue.bytes(), queue.items), (2000, 1));
    queue.forget(ContentId([2; 16]), 0);
    assert!(queue.is_empty() && queue.items == 0 && queue.bytes == 0);
}

/// A requester that asked on for what waits was told by a full queue that there is no room for it.
#[test]
fn what_waits_already_needs_no_room() {
    let now = Instant::now();
    let mut queue = SendQueue::new(3000, 10, Duration::ZERO);
    let segment = |handle: u64| Next {
        content: ContentId([1; 16]),
        handle,
        item: Item::Segment {
            segment: Segment {
                offset: 0,
                is_end: false,
                sealed: vec![0; 1000].into(),
            },
            is_repair: false,
            left: None,
        },
    };
    let fit = |queue: &mut SendQueue| [1, 2, 3, 4].map(|it| queue.push(now, now, segment(it)));
    assert_eq!(fit(&mut queue), [true, true, true, false]);
    assert_eq!(fit(&mut queue), [true, true, true, false]);
    assert_eq!((queue.bytes(), queue.items), (3000, 3));
}
