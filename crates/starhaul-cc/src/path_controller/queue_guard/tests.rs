use super::*;

mod repeated;

const MS: Duration = Duration::from_millis(1);

/// Acknowledges 1000 bytes each millisecond for `count` ms with this round trip.
fn acks(guard: &mut QueueGuard, from: Instant, count: u32, rtt_ms: u32) -> Instant {
    for step in 0..count {
        guard.on_ack(from + step * MS, rtt_ms * MS, 1_000, 100 * MS, None);
    }
    from + count * MS
}

#[test]
fn a_queue_beyond_the_bound_holds_back_until_it_is_gone() {
    let mut guard = QueueGuard {
        bound: Some(50 * MS),
        ..QueueGuard::default()
    };
    let window = |guard: &QueueGuard| guard.window(1 << 20, 100 * MS, Bandwidth::from_mbit(80));
    let now = acks(&mut guard, Instant::now(), 300, 110);
    assert_eq!(window(&guard), 1 << 20);
    let now = acks(&mut guard, now, 300, 200);
    // 8 Mbit/s for the round trip and what may be queued.
    let held = window(&guard);
    assert!((140_000..160_000).contains(&held), "{held}");
    // The queue is gone, but the controller's estimate is as wrong as before.
    let now = acks(&mut guard, now, 1_000, 120);
    assert!(window(&guard) > held && window(&guard) < 2 * held);
    guard.on_ack(
        now,
        120 * MS,
        1_000,
        100 * MS,
        Some(Bandwidth::from_mbit(8)),
    );
    assert_eq!(window(&guard), 1 << 20, "a controller that has learnt it");
}

#[test]
fn nothing_is_held_back_without_deadlines_nor_when_the_path_became_longer() {
    let mut guard = QueueGuard::default();
    let window = |guard: &QueueGuard| guard.window(1 << 20, 100 * MS, Bandwidth::from_mbit(80));
    let now = acks(&mut guard, Instant::now(), 300, 300);
    assert_eq!(window(&guard), 1 << 20);
    guard.bound = Some(50 * MS);
    let now = acks(&mut guard, now, 1_000, 300);
    assert!(window(&guard) < 200_000);
    let now = acks(&mut guard, now, 1_000, 300);
    assert_eq!(window(&guard), 1 << 20, "a queue would have gone");
    acks(&mut guard, now, 300, 340);
    assert!(window(&guard) < 400_000, "measured against the longer path");
}

/// A path of 8 Mbit/s whose controller thinks of 80, each millisecond a packet of 1000 bytes for so long. Returns the longest round trip
/// of the last half of that time, and the bytes delivered in it.
fn flow(
    guard: &mut QueueGuard,
    sent: &mut VecDeque<Instant>,
    now: &mut Instant,
    propagation: Duration,
    steps: u32,
) -> (Duration, u64) {
    let mut longest = Duration::ZERO;
    let mut delivered = 0;
    for step in 0..steps {
        *now += MS;
        let arrived = |at: &Instant| now.saturating_duration_since(*at) >= propagation;
        if let Some(at) = sent.front().copied().filter(arrived) {
            sent.pop_front();
            let rtt = now.saturating_duration_since(at);
            guard.on_ack(*now, rtt, 1_000, 100 * MS, None);
            if step >= steps / 2 {
                longest = longest.max(rtt);
                delivered += 1_000;
            }
        }
        let window = guard.window(1 << 20, 100 * MS, Bandwidth::from_mbit(80));
        while (sent.len() as u64) * 1_000 < window.max(4_000) {
            sent.push_back(*now);
        }
    }
    (longest, delivered)
}

#[test]
fn a_queue_is_held_however_long_the_controller_is_wrong_and_a_longer_path_found() {
    let mut guard = QueueGuard {
        bound: Some(50 * MS),
        ..QueueGuard::default()
    };
    let mut now = Instant::now();
    let mut sent = VecDeque::new();
    acks(&mut guard, now, 300, 100);
    now += 300 * MS;
    let (longest, delivered) = flow(&mut guard, &mut sent, &mut now, 100 * MS, 20_000);
    // A quarter more than was shown is tried.
    assert!(longest < 200 * MS, "{longest:?}");
    assert!(delivered > 9_900_000, "{delivered}");
    // What fills it is 180 ms long now.
    let (longest, delivered) = flow(&mut guard, &mut sent, &mut now, 180 * MS, 8_000);
    assert!(longest < 300 * MS, "{longest:?}");
    assert!(delivered > 3_900_000, "{delivered}");
}

#[test]
fn a_path_that_lost_all_that_was_under_way_is_tried_anew() {
    let mut guard = QueueGuard {
        bound: Some(50 * MS),
        ..QueueGuard::default()
    };
    let estimate = Bandwidth::from_mbit(8);
    let window = |guard: &QueueGuard| guard.window(1 << 20, 100 * MS, estimate);
    let mut now = Instant::now() + 1_000 * MS;
    let pass = |guard: &mut QueueGuard, now: &mut Instant, packets: u64| {
        for packet in 0..packets {
            *now += 100 * MS / u32::try_from(packets).unwrap();
            guard.on_sent(*now - 100 * MS, false);
            let bytes = if packet == 0 && packets == 1 {
                50
            } else {
                1_000
            };
            guard.on_ack(*now, 100 * MS, bytes, 100 * MS, Some(estimate));
        }
    };
    pass(&mut guard, &mut now, 100);
    // A loss or two are none.
    for _ in 0..3 {
        guard.on_sent(now, false);
    }
    now += 400 * MS;
    pass(&mut guard, &mut now, 1);
    assert_eq!(window(&guard), 1 << 20);
    // A window is full of them, and nothing but a probe leaves later; the queue was held before.
    guard.holding_since = Some(now);
    for _ in 0..40 {
        guard.on_sent(now, false);
    }
    now += 800 * MS;
    pass(&mut guard, &mut now, 1);
    // Four packets in a round trip, and what may be queued.
    assert!(
        (5_500..6_500).contains(&window(&guard)),
        "{}",
        window(&guard)
    );
    let mut rounds = 0;
    while window(&guard) < 1 << 20 {
        let packets = window(&guard) / 1_500;
        pass(&mut guard, &mut now, packets);
        rounds += 1;
        assert!(rounds < 8, "{}", window(&guard));
    }
    assert!(rounds >= 3, "{rounds}");
}

#[test]
fn a_signal_of_another_path_ends_what_the_former_one_showed() {
    let mut guard = QueueGuard {
        bound: Some(50 * MS),
        ..QueueGuard::default()
    };
    let window = |guard: &QueueGuard, floor| guard.window(1 << 20, floor, Bandwidth::from_mbit(80));
    let now = acks(&mut guard, Instant::now(), 300, 110);
    let now = acks(&mut guard, now, 300, 200);
    assert!(window(&guard, 100 * MS) < 200_000);
    guard.on_other_path();
    // The path is as long as its round trips are now.
    for step in 0..500 {
        guard.on_ack(now + step * MS, 200 * MS, 1_000, 200 * MS, None);
        assert_eq!(window(&guard, 200 * MS), 1 << 20, "after {step} ms");
    }
}

/// A flow at 8 Mbit/s whose controller thinks of 80 pauses; its packets come again at 1 Mbit/s.
#[test]
fn after_a_pause_nothing_leaves_until_the_rate_is_known() {
    let mut guard = QueueGuard {
        bound: Some(50 * MS),
        ..QueueGuard::default()
    };
    let estimate = Bandwidth::from_mbit(80);
    let window = |guard: &QueueGuard| guard.window(1 << 20, 100 * MS, estimate);
    let now = acks(&mut guard, Instant::now(), 300, 100);
    assert_eq!(window(&guard), 1 << 20);
    let resumed = now + 500 * MS;
    for step in 0..30_u32 {
        let rtt = (600 + 8 * step) * MS;
        guard.on_ack(resumed + 8 * step * MS, rtt, 1_000, 100 * MS, None);
        let held = window(&guard);
        match 8 * step {
            ..100 => assert_eq!(held, 0, "after {} ms", 8 * step),
            // 1 Mbit/s for the round trip and what may be queued.
            _ => assert!(
                (15_000..28_000).contains(&held),
                "{held} after {} ms",
                8 * step
            ),
        }
    }
}

/// What left since the pause tells that the path is as it was.
#[test]
fn a_small_flow_is_not_held_back_after_a_pause() {
    let mut guard = QueueGuard {
        bound: Some(50 * MS),
        ..QueueGuard::default()
    };
    let window = |guard: &QueueGuard| guard.window(1 << 20, 20 * MS, Bandwidth::from_mbit(80));
    let mut now = Instant::now();
    let mut ack = |guard: &mut QueueGuard, after: u32, rtt: u32| {
        now += after * MS;
        guard.on_ack(now, rtt * MS, 1_000, 20 * MS, None);
    };
    (0..20).for_each(|_| ack(&mut guard, 20, 20));
    ack(&mut guard, 400, 410);
    assert_eq!(window(&guard), 0);
    ack(&mut guard, 20, 20);
    assert_eq!(window(&guard), 1 << 20);
    // Round trips longer than an interval are no pauses.
    (0..20).for_each(|_| ack(&mut guard, 120, 120));
    assert!(!guard.is_resuming);
}

#[test]
fn a_path_that_seems_longer_is_emptied_and_measured() {
    let mut guard = QueueGuard {
        bound: Some(300 * MS),
        ..QueueGuard::default()
    };
    let mut now = Instant::now();
    let mut seems_longer = |guard: &mut QueueGuard, count: u32, rtt: u32| {
        let verdicts = (0..count).map(|_| {
            now += MS;
            let verdict = guard.on_ack(now, rtt * MS, 1_000, 40 * MS, None);
            if verdict.seems_longer {
                guard.on_emptying(now);
            }
            verdict.seems_longer
        });
        verdicts.filter(|seems| *seems).count()
    };
    assert_eq!(seems_longer(&mut guard, 2_000, 70), 0);
    assert_eq!(seems_longer(&mut guard, 1_100, 130), 1);
    // It is as long when it is empty.
    assert_eq!(seems_longer(&mut guard, 5_000, 128), 0);
    assert_eq!(guard.floor, Some(128 * MS));
    // As short as ever, and then behind a queue: asked again ever more seldom.
    assert_eq!(seems_longer(&mut guard, 100, 40), 0);
    let mut asked = 0;
    for _ in 0..20 {
        asked += seems_longer(&mut guard, 1_000, 130);
        seems_longer(&mut guard, 20, 45);
    }
    assert!(asked <= 8, "{asked}");
}

/// Acknowledges each millisecond for 120 ms what makes this rate, and returns the path's RTT if that was found.
fn interval(
    guard: &mut QueueGuard,
    now: &mut Instant,
    mbit: u64,
    rtt: Duration,
) -> Option<Duration> {
    let verdicts = (0..120).map(|_| {
        *now += MS;
        guard.on_ack(*now, rtt, mbit * 125, 60 * MS, None).path_rtt
    });
    verdicts.fold(None, Option::or)
}

#[test]
fn round_trips_that_are_long_whatever_is_in_flight_are_the_paths() {
    let mut guard = QueueGuard {
        bound: Some(90 * MS),
        ..QueueGuard::default()
    };
    let mut now = acks(&mut guard, Instant::now(), 300, 60);
    let rates = [1, 5, 2, 6, 2].into_iter();
    let found = rates.filter_map(|mbit| interval(&mut guard, &mut now, mbit, 121 * MS));
    assert_eq!(found.collect::<Vec<_>>(), [121 * MS]);
    // Jitter does not take it back, a path that is as short as before does.
    for (rtt, floor) in [(119, Some(119 * MS)), (125, Some(119 * MS)), (62, None)] {
        guard.on_ack(now, rtt * MS, 1_000, 60 * MS, None);
        assert_eq!(guard.floor, floor, "after {rtt} ms");
    }
}

#[test]
fn a_queue_that_is_held_at_its_bound_is_no_longer_path() {
    for excess in [85, 100] {
        let mut guard = QueueGuard {
            bound: Some(90 * MS),
            ..QueueGuard::default()
        };
        let mut now = acks(&mut guard, Instant::now(), 300, 60);
        let rtt = (60 + excess) * MS;
        let found: Vec<_> = [1, 5, 2, 6, 2]
            .into_iter()
            .filter_map(|mbit| interval(&mut guard, &mut now, mbit, rtt))
            .collect();
        assert_eq!((found, guard.floor), (Vec::new(), None), "{excess} ms");
    }
}

#[test]
fn what_patience_was_learnt_before_a_pause_ends_with_it() {
    let mut guard = QueueGuard {
        bound: Some(300 * MS),
        ..QueueGuard::default()
    };
    let mut now = Instant::now();
    let mut asked_after = |guard: &mut QueueGuard, most: u32, rtt: u32| {
        (1..=most).find(|_| {
            now += MS;
            let verdict = guard.on_ack(now, rtt * MS, 1_000, 40 * MS, None);
            if verdict.seems_longer {
                guard.on_emptying(now);
            }
            verdict.seems_longer
        })
    };
    // Queues that are gone when the path was emptied.
    for _ in 0..4 {
        asked_after(&mut guard, 20_000, 130).unwrap();
        assert_eq!(asked_after(&mut guard, 1_100, 45), None);
    }
    assert_eq!(asked_after(&mut guard, 2_000, 130), None);
    // A pause of half a second, after which the path is longer.
    now += 500 * MS;
    let rtts = [630; 50].into_iter().chain([130; 1_500]);
    let asked = rtts.filter(|rtt| {
        now += MS;
        guard
            .on_ack(now, *rtt * MS, 1_000, 40 * MS, None)
            .seems_longer
    });
    assert_eq!(asked.count(), 1, "patient for {} s", guard.patience);
}

/// Twenty messages a second over a path whose round trips became longer for a while, as behind another flow.
#[test]
fn what_a_sender_of_little_delivers_is_no_bound() {
    for is_limited in [true, false] {
        let mut guard = QueueGuard {
            bound: Some(50 * MS),
            ..QueueGuard::default()
        };
        let mut now = Instant::now();
        let rtts = [40; 20].into_iter().chain([90; 15]).chain([40; 4]);
        for rtt in rtts {
            now += 50 * MS;
            guard.on_sent(now - rtt * MS, is_limited);
            guard.on_ack(now, rtt * MS, 200, 40 * MS, None);
        }
        let window = guard.window(1 << 20, 40 * MS, Bandwidth::from_mbit(80));
        assert_eq!(window == 1 << 20, is_limited, "{window}");
    }
}

/// The path dipped to 2 Mbit/s for a second, and the sender has had less than that to send since: what it then has is not held back for good.
#[test]
fn what_a_dip_showed_does_not_outlive_it_by_long() {
    let mut guard = QueueGuard {
        bound: Some(50 * MS),
        ..QueueGuard::default()
    };
    let estimate = Bandwidth::from_mbit(20);
    let mut now = Instant::now();
    let mut pass = |guard: &mut QueueGuard, count: u32, each_ms: u32, rtt_ms: u32, is_limited| {
        for _ in 0..count {
            now += each_ms * MS;
            guard.on_sent(now, is_limited);
            guard.on_ack(now, rtt_ms * MS, 1_000, 40 * MS, Some(estimate));
        }
        guard.shown()
    };
    assert_eq!(pass(&mut guard, 300, 1, 40, false), None);
    // A packet each 4 ms.
    let shown = pass(&mut guard, 250, 4, 100, false).unwrap();
    assert!(shown < Bandwidth::from_mbit(3), "{shown}");
    // A packet each 10 ms.
    assert!(pass(&mut guard, 1_000, 10, 40, true).is_some());
    assert_eq!(pass(&mut guard, 1_100, 10, 40, true), None);
    assert_eq!(guard.window(1 << 20, 40 * MS, estimate), 1 << 20);
    // A queue that stands is not forgotten.
    assert!(pass(&mut guard, 250, 4, 100, false).is_some());
}

/// The path became longer by more than the bound, and pauses for 300 ms each 0.9 s.
#[test]
fn pauses_do_not_end_the_patience_with_a_longer_path() {
    let mut guard = QueueGuard {
        bound: Some(50 * MS),
        ..QueueGuard::default()
    };
    let mut now = acks(&mut guard, Instant::now(), 300, 100);
    let mut found_after = None;
    for round in 0..10 {
        // What waited through the pause, then what left since.
        for step in 0..600_u32 {
            let rtt = 200 + 300_u32.saturating_sub(step);
            guard.on_ack(now + step * MS, rtt * MS, 1_000, 100 * MS, None);
        }
        now += 900 * MS;
        if guard.floor.is_some() {
            found_after.get_or_insert(round);
        }
    }
    assert!(
        found_after.is_some_and(|rounds| rounds < 4),
        "{found_after:?}"
    );
}

#[test]
fn delayed_acknowledgements_of_a_first_flight_are_no_queue() {
    let queues_at = |excess: u32| {
        let mut guard = QueueGuard {
            bound: Some(160 * MS),
            ..QueueGuard::default()
        };
        let start = Instant::now();
        let verdicts = (0..20_u32).map(|packet| {
            let (now, rtt) = (start + 30 * packet * MS, (600 + excess) * MS);
            guard.on_ack(now, rtt, 1_200, 600 * MS, None).queues
        });
        verdicts.fold(false, |queues, verdict| queues | verdict)
    };
    assert!(!queues_at(30));
    assert!(queues_at(50));
}

/// On a path that carries little the peer waits for a second packet with each answer.
#[test]
fn delayed_acknowledgements_of_packets_that_leave_one_by_one_are_no_queue() {
    let holds_at = |excess: u32, apart: u32| {
        let mut guard = QueueGuard {
            bound: Some(20 * MS),
            ..QueueGuard::default()
        };
        let start = Instant::now();
        for packet in 0..40_u32 {
            let sent = start + apart * packet * MS;
            guard.on_sent(sent, false);
            let rtt = (120 + excess) * MS;
            guard.on_ack(sent + rtt, rtt, 1_200, 120 * MS, None);
        }
        guard.is_holding()
    };
    assert!(!holds_at(26, 30));
    assert!(holds_at(26, 5), "as many as are answered at once");
    assert!(holds_at(40, 30));
}
