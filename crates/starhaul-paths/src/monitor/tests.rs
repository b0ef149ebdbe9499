use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

mod late;
mod rows;

const MS: Duration = Duration::from_millis(1);

fn update(rtt: Duration, mbit: u64) -> PathUpdate {
    PathUpdate {
        cwnd: 1_000_000,
        bytes_in_flight: 0,
        bandwidth: Bandwidth::from_mbit(mbit),
        smoothed_rtt: rtt,
        min_rtt: rtt,
        max_datagram: 1_200,
    }
}

fn monitor(now: Instant, update: PathUpdate) -> PathMonitor<()> {
    PathMonitor::new(now, 1.0, update, 0)
}

fn acked(path: &mut PathMonitor<()>, now: Instant, sequence: u64, one_way: Option<Duration>) {
    path.on_acked(now, sequence, sequence, one_way, &mut Vec::new());
}

/// Sends a datagram each millisecond for `count` ms over a path with acknowledgement time `rtt`; those that `lost`
/// selects by their number are never acknowledged.
fn exchange(
    path: &mut PathMonitor<()>,
    from: Instant,
    count: u32,
    rtt: Duration,
    lost: impl Fn(u64) -> bool,
) -> Instant {
    let mut flying = VecDeque::new();
    let mut now = from;
    for _ in 0..count {
        while let Some((sent, sequence)) = flying.pop_front_if(|(sent, _)| *sent + rtt <= now) {
            acked(path, sent + rtt, sequence, None);
        }
        let sequence = path.on_sent(now, 1_200, (), true);
        if !lost(sequence) {
            flying.push_back((now, sequence));
        }
        now += MS;
    }
    for (sent, sequence) in flying {
        now = sent + rtt;
        acked(path, now, sequence, None);
    }
    now
}

#[test]
fn the_floor_expires_when_the_path_became_longer() {
    let start = Instant::now();
    let mut path = monitor(start, update(30 * MS, 10));
    let longer = PathUpdate {
        smoothed_rtt: 50 * MS,
        ..update(30 * MS, 10)
    };
    for second in 1..=9 {
        path.update(start + second * 1000 * MS, longer);
        assert_eq!(path.min_rtt(), 30 * MS);
    }
    path.update(start + 11_000 * MS, longer);
    assert_eq!(
        path.min_rtt(),
        50 * MS,
        "the transport's own floor never expires"
    );
    path.update(
        start + 12_000 * MS,
        PathUpdate {
            min_rtt: 20 * MS,
            ..longer
        },
    );
    assert_eq!(path.min_rtt(), 20 * MS);
}

#[test]
fn without_a_transport_s_estimates_the_session_s_own_measurements_count() {
    let start = Instant::now();
    let mut path = monitor(
        start,
        PathUpdate {
            cwnd: 0,
            ..update(Duration::ZERO, 0)
        },
    );
    assert_eq!(path.delivery_rate(), Bandwidth::ZERO);
    assert!(path.bandwidth() > Bandwidth::ZERO);
    exchange(&mut path, start, 2_000, 80 * MS, |_| false);
    assert_eq!(
        (path.smoothed_rtt(), path.min_rtt(), path.one_way_delay()),
        (80 * MS, 80 * MS, 40 * MS)
    );
    // 1200 bytes per millisecond.
    assert!(
        (path.delivery_rate().mbit() - 9.6).abs() < 0.2,
        "{}",
        path.delivery_rate()
    );
    assert_eq!(path.bandwidth(), path.delivery_rate());
}

#[test]
fn one_way_delay_is_measured_apart_from_the_way_back() {
    let start = Instant::now();
    let mut path = monitor(start, update(400 * MS, 10));
    assert_eq!(path.one_way_delay(), 200 * MS);
    let sent = |sequence: u32| start + sequence * MS;
    for sequence in 0..100 {
        path.on_sent(sent(sequence), 1_200, (), true);
    }
    for sequence in 0..100 {
        let at = sent(sequence) + 350 * MS;
        acked(&mut path, at, sequence.into(), Some(300 * MS));
    }
    assert_eq!(path.one_way_delay(), 300 * MS);
    // An absurd clock cannot make the delay longer than the acknowledgement time.
    let sent = start + 500 * MS;
    path.on_sent(sent, 1_200, (), true);
    acked(
        &mut path,
        sent + 350 * MS,
        100,
        Some(Duration::from_secs(9_999)),
    );
    assert!(path.one_way_delay() <= 350 * MS);
}

#[test]
fn acknowledgements_are_overdue_soon_after_a_steady_path_and_later_after_a_jittery_one() {
    let start = Instant::now();
    let mut path = monitor(start, update(100 * MS, 10));
    assert_eq!(path.overdue_after(), 150 * MS);
    let now = exchange(&mut path, start, 200, 100 * MS, |_| false);
    assert_eq!(path.overdue_after(), 101 * MS);
    for round in 0..100 {
        let sent = now + round * 200 * MS;
        let sequence = path.on_sent(sent, 1_200, (), true);
        acked(
            &mut path,
            sent + (100 + 40 * (round % 2)) * MS,
            sequence,
            None,
        );
    }
    let jittery = path.overdue_after();
    assert!(jittery > 140 * MS && jittery <= 200 * MS, "{jittery:?}");
}

/// A path with 600 ms there and back, of which acknowledgements come over another after 320 and 360 ms in turn. Of 50 datagrams so many are
/// lost in a row.
fn answered_elsewhere(lost_in_a_row: u32) -> PathMonitor<()> {
    let start = Instant::now();
    let mut path = monitor(start, update(600 * MS, 10));
    for round in 0..400 {
        let sent = start + round * 400 * MS;
        let sequence = path.on_sent(sent, 1_200, (), true);
        if round % 50 < lost_in_a_row {
            path.on_lost(sent + 400 * MS, sequence);
        } else {
            let after = (320 + 40 * (round % 2)) * MS;
            acked(&mut path, sent + after, sequence, None);
        }
    }
    path
}

#[test]
fn what_may_be_lost_in_a_row_is_doubtful_before_it_is_overdue() {
    let path = answered_elsewhere(5);
    let (doubtful, overdue) = (path.doubtful_after(), path.overdue_after());
    assert!(doubtful > path.acknowledged_after(), "{doubtful:?}");
    assert!(doubtful + 20 * MS < overdue, "{doubtful:?} and {overdue:?}");
    // Without losses in a row an acknowledgement is late, and what is sent next tells of a loss.
    for lost_in_a_row in [0, 1] {
        let path = answered_elsewhere(lost_in_a_row);
        let sooner = path.overdue_after() - path.doubtful_after();
        assert!(sooner < MS, "{lost_in_a_row}: {sooner:?}");
    }
}

/// Nothing is doubtful only because acknowledgements come over a longer way than before.
#[test]
fn while_acknowledgements_move_nothing_is_doubtful_before_they_can_have_come() {
    let mut path = answered_elsewhere(5);
    assert!(path.doubtful_after() < 600 * MS);
    path.on_answers_moved();
    let doubtful = path.doubtful_after();
    assert!(doubtful >= 600 * MS, "{doubtful:?}");
    assert!(doubtful <= path.overdue_after(), "{doubtful:?}");
}

#[test]
fn a_silent_path_is_suspect_after_an_rtt_and_margin_and_comes_back_by_itself() {
    let start = Instant::now();
    let mut path = monitor(start, update(100 * MS, 10));
    assert_eq!(path.silence_deadline(), None, "an idle path owes nothing");
    let cut = exchange(&mut path, start, 300, 100 * MS, |_| false);
    assert!(!path.on_timeout(cut + 3_600_000 * MS) && !path.is_suspect());

    let cut = cut + 3_600_000 * MS;
    let mut suspect_at = None;
    for tick in 0..200 {
        let now = cut + tick * MS;
        if path
            .silence_deadline()
            .is_some_and(|deadline| deadline <= now)
            && path.on_timeout(now)
        {
            assert_eq!(suspect_at.replace(now), None, "told twice");
        }
        path.on_sent(now, 1_200, (), true);
        // The transport declares datagrams lost one by one; that is no sign of life.
        if let Some(lost) = tick.checked_sub(105) {
            path.on_lost(now, 300 + u64::from(lost));
        }
    }
    let silent = suspect_at.expect("never suspect") - cut;
    assert!(silent >= 100 * MS && silent <= 125 * MS, "{silent:?}");
    assert!(path.is_suspect() && path.silence_deadline().is_none());

    // What was in flight before the cut is acknowledged over another path: no sign of life either.
    acked(&mut path, cut + 250 * MS, 300, None);
    assert!(path.is_suspect());

    let mut probed = path.clone();
    let probe = probed.on_sent(cut + 260 * MS, 20, (), true);
    acked(&mut probed, cut + 360 * MS, probe, None);
    assert!(!probed.is_suspect());

    // The transport's acknowledgement counts the same.
    let probe = path.on_sent(cut + 260 * MS, 20, (), true);
    path.on_transport_acked(cut + 300 * MS, probe, probe, &mut Vec::new());
    assert!(!path.is_suspect() && path.silence_deadline().is_none());
    assert!(path.overdue_at().is_some());
}

/// The path comes back slow: late acknowledgements make its measure grow, but what was in flight when it fell silent is not waited for any
/// longer.
#[test]
fn what_was_in_flight_when_the_path_fell_silent_is_overdue_by_what_was_known_then() {
    let start = Instant::now();
    let mut path = monitor(start, update(100 * MS, 10));
    let cut = exchange(&mut path, start, 300, 100 * MS, |_| false);
    let usual = path.overdue_after();
    let first = path.next_sequence();
    for tick in 0..100 {
        path.on_sent(cut + tick * MS, 1_200, (), true);
    }
    let silent = (100..200).map(|tick| cut + tick * MS);
    let silent = silent.clone().find(|now| path.on_timeout(*now));
    assert!(silent.is_some_and(|at| at < cut + 160 * MS), "{silent:?}");
    let mut lost = Vec::new();
    path.find_lost(cut + 160 * MS, &mut lost);
    let known = first + lost.len() as u64;
    assert_eq!(lost.len(), 60);
    // Over a millisecond each, what is left trickles in.
    for late in 0..5 {
        let at = cut + (165 + 5 * late) * MS;
        acked(&mut path, at, first + u64::from(late), None);
        acked(&mut path, at, known + u64::from(late), None);
    }
    assert!(path.overdue_after() > usual + 20 * MS);
    let probe = path.on_sent(cut + 190 * MS, 20, (), true);
    lost.clear();
    assert_eq!(path.overdue_at(), Some(cut + 65 * MS + usual));
    path.find_lost(cut + 99 * MS + usual, &mut lost);
    assert_eq!(lost.len(), 35);
    // What left since is judged by the measure of now.
    let overdue_at = cut + 190 * MS + path.overdue_after();
    assert_eq!(path.overdue_at(), Some(overdue_at));
    assert_eq!(path.next_sequence(), probe + 1);
}

/// Audio alone, 47 packets a second, over a path cut just after one of them: silence is detected within 1.5 RTT and 50
/// ms.
#[test]
fn a_cut_path_that_carries_little_is_suspect_in_time() {
    for rtt in [20, 40, 60, 150, 300].map(|ms| ms * MS) {
        let start = Instant::now();
        let mut path = monitor(start, update(rtt, 10));
        let sent = |number: u32| start + number * Duration::from_secs(1) / 47;
        let cut = sent(100);
        let mut answered = 0;
        for number in 0..200 {
            let now = sent(number);
            while answered <= 100 && sent(answered) + rtt <= now {
                let (at, sequence) = (sent(answered) + rtt, answered.into());
                path.on_transport_acked(at, sequence, sequence, &mut Vec::new());
                answered += 1;
            }
            if path.silence_deadline().is_some_and(|due| due <= now) {
                break;
            }
            path.on_sent(now, 200, (), true);
        }
        let due = path.silence_deadline().unwrap() - cut;
        assert!(path.on_timeout(cut + due), "{rtt:?}");
        assert!(
            due >= rtt && due <= rtt.mul_f64(1.5) + 50 * MS,
            "{due:?} at {rtt:?}"
        );
    }
}

#[test]
fn losses_alone_do_not_make_a_path_suspect() {
    let start = Instant::now();
    let mut path = monitor(start, update(100 * MS, 10));
    let end = exchange(&mut path, start, 1_000, 100 * MS, |sequence| {
        sequence % 3 == 0
    });
    for sequence in (0..1_000).filter(|sequence| sequence % 3 == 0) {
        path.on_lost(end, sequence);
    }
    assert!(!path.is_suspect() && !path.on_timeout(end));
    assert_eq!(path.overdue_at(), None);
    assert!((path.loss().rate - 1.0 / 3.0).abs() < 0.01 && path.loss().burst_length == 1.0);
    // Half of them had only been late.
    for sequence in (0..1_000).filter(|sequence| sequence % 6 == 0) {
        acked(&mut path, end, sequence, None);
    }
    assert!(
        (path.loss().rate - 1.0 / 6.0).abs() < 0.01,
        "{:?}",
        path.loss()
    );
}

/// A sender with a window and a link with a queue, byte by byte where the monitor works with sums: gives the arrival of
/// the queue's last byte. All datagrams have 1000 bytes.
struct QueuedLink {
    rate: Bandwidth,
    one_way: Duration,
    cwnd: u64,
    link_free: Instant,
    /// Arrival of the acknowledgement of each datagram in flight.
    in_flight: VecDeque<Instant>,
}

impl QueuedLink {
    /// Sends one datagram as soon as the window allows it from `now` on; returns when it left and when it arrives.
    fn send(&mut self, now: Instant) -> (Instant, Instant) {
        let full = self.in_flight.len() as u64 * 1_000 >= self.cwnd;
        let leaves = if full {
            self.in_flight[0].max(now)
        } else {
            now
        };
        while self
            .in_flight
            .pop_front_if(|acked| *acked <= leaves)
            .is_some()
        {}
        self.link_free = self.link_free.max(leaves) + self.rate.time_to_send(1_000);
        let arrives = self.link_free + self.one_way;
        self.in_flight.push_back(arrives + self.one_way);
        (leaves, arrives)
    }
}

/// Sends `before` datagrams, waits, predicts for `queue` more and compares with the simulated arrivals.
fn check_prediction(mbit: u64, one_way_ms: u32, cwnd: u64, before: u32, wait_ms: u32, queue: u32) {
    let start = Instant::now();
    let one_way = one_way_ms * MS;
    let mut link = QueuedLink {
        rate: Bandwidth::from_mbit(mbit),
        one_way,
        cwnd,
        link_free: start,
        in_flight: VecDeque::new(),
    };
    let mut path = monitor(start, update(2 * one_way, mbit));
    let (mut acks, mut now) = (Vec::new(), start);
    for _ in 0..before {
        let (leaves, arrives) = link.send(now);
        now = leaves.max(link.link_free);
        let sequence = path.on_sent(leaves, 1_000, (), true);
        acks.push((arrives + one_way, sequence));
    }
    now += wait_ms * MS;
    for (at, sequence) in acks.into_iter().filter(|(at, _)| *at <= now) {
        acked(&mut path, at, sequence, None);
    }
    while link.in_flight.pop_front_if(|acked| *acked <= now).is_some() {}
    let bytes_in_flight = link.in_flight.len() as u64 * 1_000;
    path.update(
        now,
        PathUpdate {
            cwnd,
            bytes_in_flight,
            ..update(2 * one_way, mbit)
        },
    );

    let predicted = path.predict_arrival(now, u64::from(queue - 1) * 1_000, 1_000) - now;
    let arrived = (0..queue).map(|_| link.send(now).1).last().unwrap() - now;
    let error = predicted.abs_diff(arrived);
    assert!(
        error <= arrived / 10 + 2 * link.rate.time_to_send(1_000),
        "{mbit} Mbit/s, {one_way_ms} ms, window {cwnd}, {before} sent, {wait_ms} ms later {queue}: predicted {predicted:?}, arrived {arrived:?}"
    );
}

#[test]
fn predictions_agree_with_a_simulated_queue() {
    for (mbit, one_way_ms) in [(5, 300), (20, 15), (50, 60)] {
        let bandwidth_delay =
            Bandwidth::from_mbit(mbit).bytes_in(2 * one_way_ms * MS) / 1_000 * 1_000;
        for queue in [1, 10, 40] {
            // An idle path, and one with a window that never fills.
            check_prediction(mbit, one_way_ms, 10_000_000, 0, 0, queue);
            check_prediction(mbit, one_way_ms, 10_000_000, 20, 0, queue);
            // A window as large as the path, full and then draining.
            check_prediction(mbit, one_way_ms, bandwidth_delay, 500, 0, queue);
            check_prediction(mbit, one_way_ms, bandwidth_delay, 500, one_way_ms, queue);
            // A small window, just filled: the rest must wait for an RTT.
            check_prediction(mbit, one_way_ms, 40_000, 40, 0, queue);
        }
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Sent(bool),
    Acked(u64, u64, Option<u32>),
    TransportAcked(u64, u64),
    Lost(u64),
    FindLost,
    Release,
    Heard,
    Timeout,
    Update(u64, u64, u32, u32),
}

fn sequence() -> impl Strategy<Value = u64> {
    prop_oneof![8 => (0..40u64).prop_map(|offset| (1 << 32) - 20 + offset), 1 => any::<u64>()]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => any::<bool>().prop_map(Operation::Sent),
        4 => (sequence(), sequence(), any::<Option<u32>>()).prop_map(|(first, last, one_way)| Operation::Acked(first, last, one_way)),
        2 => (sequence(), sequence()).prop_map(|(first, last)| Operation::TransportAcked(first, last)),
        2 => sequence().prop_map(Operation::Lost),
        1 => Just(Operation::FindLost),
        1 => Just(Operation::Release),
        1 => Just(Operation::Heard),
        2 => Just(Operation::Timeout),
        1 => (any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>())
            .prop_map(|(cwnd, rate, rtt, flying)| Operation::Update(cwnd, rate, rtt, flying)),
    ]
}

proptest! {
    #[test]
    fn garbage_leaves_the_monitor_sane(
        operations in prop::collection::vec((operation(), -50..200i64), 1..120), ahead: u64, bytes: u64,
    ) {
        let base = Instant::now() + Duration::from_secs(1_000_000);
        let mut elapsed_ms = 0i64;
        // The numbers that travel have 32 bits.
        let mut path = PathMonitor::new(base, 1.0, update(50 * MS, 1), (1 << 32) - 20);
        let mut fated = Vec::new();
        for (operation, step_ms) in operations {
            elapsed_ms += step_ms;
            let offset = Duration::from_millis(elapsed_ms.unsigned_abs());
            let now = if elapsed_ms < 0 { base - offset } else { base + offset };
            match operation {
                Operation::Sent(elicits) => drop(path.on_sent(now, 1_200, (), elicits)),
                Operation::Acked(first, last, one_way) => {
                    path.on_acked(now, first, last, one_way.map(|micros| Duration::from_micros(micros.into())), &mut fated);
                }
                Operation::TransportAcked(first, last) => path.on_transport_acked(now, first, last, &mut fated),
                Operation::Lost(sequence) => fated.extend(path.on_lost(now, sequence)),
                Operation::FindLost => path.find_lost(now, &mut fated),
                Operation::Release => fated.extend(path.release()),
                Operation::Heard => path.on_heard(now),
                Operation::Timeout => { let became = path.on_timeout(now); prop_assert!(!became || path.is_suspect()); }
                Operation::Update(cwnd, rate, rtt, flying) => {
                    let update = PathUpdate {
                        cwnd,
                        bytes_in_flight: if flying % 3 == 0 { u64::MAX } else { flying.into() },
                        bandwidth: Bandwidth::from_bits_per_second(rate),
                        smoothed_rtt: if rtt % 5 == 0 { Duration::MAX } else { Duration::from_micros(rtt.into()) },
                        min_rtt: Duration::from_micros((rtt / 2).into()),
                        max_datagram: 1_200,
                    };
                    path.update(now, update);
                }
            }
            let loss = path.loss();
            for share in [loss.rate, loss.window_max] {
                prop_assert!((0.0..=1.0).contains(&share), "{loss:?}");
            }
            prop_assert!(loss.burst_length >= 1.0 && loss.burst_length.is_finite(), "{loss:?}");
            prop_assert!(path.bandwidth() > Bandwidth::ZERO);
            prop_assert!(path.overdue_after() > Duration::ZERO);
            prop_assert!(path.silence_deadline().is_none() || !path.is_suspect());
            for (ahead, bytes) in [(0, 0), (0, 1_200), (ahead, bytes)] {
                prop_assert!(path.predict_arrival(now, ahead, bytes) >= now);
            }
        }
    }
}

/// A path that answered each millisecond and then no more is expected to keep on with that for as long again.
#[test]
fn what_stalls_is_predicted_to_stall_on() {
    let start = Instant::now();
    let mut path = monitor(start, update(40 * MS, 10));
    let now = exchange(&mut path, start, 500, 40 * MS, |_| false);
    let arrives_after = |path: &PathMonitor<()>, now| path.predict_arrival(now, 0, 1_200) - now;
    let usual = arrives_after(&path, now);
    path.on_sent(now, 1_200, (), true);
    assert_eq!(arrives_after(&path, now + 60 * MS), usual, "it may be late");
    let [early, late] = [200, 400].map(|wait| arrives_after(&path, now + wait * MS));
    assert!(
        early > usual + 90 * MS && early < usual + 160 * MS,
        "{early:?}"
    );
    assert_eq!(late, early + 200 * MS);
}

/// What was sent behind a long queue arrived late; what is sent now finds a short one.
#[test]
fn the_present_delay_follows_what_is_in_flight() {
    let start = Instant::now();
    let mut path = monitor(start, update(600 * MS, 10));
    for datagram in 0..50 {
        path.on_sent(start + 10 * datagram * MS, 1_200, (), true);
    }
    for datagram in 0..50 {
        let now = start + (1_200 + 10 * datagram) * MS;
        acked(&mut path, now, datagram.into(), Some(900 * MS));
    }
    let now = start + 2_000 * MS;
    assert_eq!(path.one_way_delay(), 900 * MS);
    assert_eq!(path.present_delay(), 300 * MS);
    path.update(
        now,
        PathUpdate {
            bytes_in_flight: 1_000_000,
            ..update(600 * MS, 10)
        },
    );
    // 800 ms of the rate, of which the round trip hides 600.
    assert_eq!(path.present_delay(), 500 * MS);
}

/// The rate fell to a tenth, and with it the window; what is in flight since before leaves at the new rate first.
#[test]
fn nothing_leaves_before_what_the_window_does_not_admit_any_more() {
    let start = Instant::now();
    let mut path = monitor(start, update(40 * MS, 50));
    let mut now = exchange(&mut path, start, 500, 40 * MS, |_| false);
    for _ in 0..500 {
        path.on_sent(now, 1_200, (), true);
        now += Duration::from_micros(200);
    }
    let slower = |cwnd| PathUpdate {
        cwnd,
        bytes_in_flight: 600_000,
        ..update(40 * MS, 5)
    };
    path.update(now, slower(100_000));
    let arrives_after = path.predict_arrival(now, 0, 1_200) - now;
    // Of 5 Mbit/s, 500 kB, and half of the round trip.
    assert!(
        (810 * MS..850 * MS).contains(&arrives_after),
        "{arrives_after:?}"
    );
    path.update(now, slower(700_000));
    let arrives_after = path.predict_arrival(now, 0, 1_200) - now;
    assert!(arrives_after < 200 * MS, "{arrives_after:?}");
}

/// Padding that finds out what size of packet a path carries is often lost, and only the transport hears of it.
#[test]
fn what_is_not_watched_makes_no_path_silent() {
    let start = Instant::now();
    let silent_after = |is_watched: bool| {
        let mut path = monitor(start, update(100 * MS, 10));
        let first = path.on_sent(start, 1_200, (), true);
        path.on_transport_acked(start + 100 * MS, first, first, &mut Vec::new());
        let probed = start + 200 * MS;
        if is_watched {
            path.on_sent(probed, 1_400, (), false);
        } else {
            path.on_sent_unwatched(probed, 1_400, ());
        }
        path.silence_deadline().is_some()
    };
    assert!(silent_after(true));
    assert!(!silent_after(false));
}

/// 500 kB are in flight at 40 Mbit/s when the path's rate falls to 4: what is sent then waits for a second.
#[test]
fn a_rate_that_falls_is_told_by_what_is_in_flight() {
    let start = Instant::now();
    let (fast, slow) = (240, 2_400);
    let leaving = |sent: u32| {
        let before = sent.min(1_000);
        Duration::from_micros(u64::from(before * fast + (sent - before) * slow))
    };
    let known = PathUpdate {
        cwnd: 600_000,
        bytes_in_flight: 500_000,
        ..update(40 * MS, 40)
    };
    let mut path = monitor(start, known);
    // Each leaves 100 ms before the link gets to it.
    let (sent_at, arrives_at) = (
        |number: u32| start + Duration::from_micros(u64::from(number * fast)),
        |number: u32| start + 80 * MS + leaving(number),
    );
    let mut next = 0;
    for number in 0..1_050_u32 {
        let arrival = arrives_at(number);
        while sent_at(next) < arrival + 20 * MS && next < 1_416 {
            path.update(sent_at(next), known);
            path.on_sent(sent_at(next), 1_200, (), true);
            next += 1;
        }
        let one_way = arrival - sent_at(number);
        acked(&mut path, arrival + 20 * MS, number.into(), Some(one_way));
    }
    // 120 ms after the fall.
    let now = arrives_at(1_049) + 20 * MS;
    path.update(now, known);
    let arrival = path.predict_arrival(now, 0, 1_200) - now;
    assert!((850 * MS..1_100 * MS).contains(&arrival), "{arrival:?}");
}

/// A few datagrams waited through a pause of a second: their rate says nothing of the path that has come back.
#[test]
fn a_pause_is_no_rate() {
    let start = Instant::now();
    let mut path = monitor(start, update(40 * MS, 40));
    let now = exchange(&mut path, start, 200, 40 * MS, |_| false);
    let last = path.on_sent(now, 1_200, (), true);
    let now = now + 40 * MS;
    acked(&mut path, now, last, Some(20 * MS));
    let waiting: Vec<_> = (0..20)
        .map(|_| path.on_sent(now, 1_200, (), true))
        .collect();
    let back = now + 1_000 * MS;
    for (number, sequence) in (0_u32..).zip(waiting) {
        acked(&mut path, back + number * MS, sequence, Some(990 * MS));
    }
    let now = back + 20 * MS;
    let known = PathUpdate {
        bytes_in_flight: 100_000,
        ..update(40 * MS, 40)
    };
    path.update(now, known);
    let late = path.one_way_delay() + 50 * MS;
    let arrival = path.predict_arrival(now, 0, 1_200) - now;
    assert!(arrival < late, "{arrival:?}, smoothed {late:?}");
}

#[test]
fn estimates_are_news_when_they_or_the_time_are_others() {
    let now = Instant::now();
    let mut path = monitor(now, update(40 * MS, 40));
    assert!(!path.update(now, update(40 * MS, 40)));
    let sent = PathUpdate {
        bytes_in_flight: 1_200,
        ..update(40 * MS, 40)
    };
    assert!(path.update(now, sent));
    assert!(!path.update(now, sent));
    path.on_queued(1_200);
    assert!(path.update(now, sent), "it counted more");
    assert!(path.update(now + MS, sent));
    assert!(!path.update(now, sent), "time runs backwards");
}

/// Acknowledgements take seconds, as over the Moon or through a queue of a mobile network, and then some longer.
#[test]
fn acknowledgements_that_take_seconds_are_believed_when_they_take_longer() {
    let start = Instant::now();
    let mut path = monitor(start, update(3_500 * MS, 10));
    let mut now = exchange(&mut path, start, 2_000, 3_500 * MS, |_| false);
    let before = path.overdue_after();
    assert!(before > 3_000 * MS && before < 3_600 * MS, "{before:?}");
    let mut flying = VecDeque::new();
    let (mut lost, mut arrived) = (Vec::new(), Vec::new());
    for _ in 0..12_000 {
        while let Some((sent, sequence)) =
            flying.pop_front_if(|(sent, _)| *sent + 3_700 * MS <= now)
        {
            path.on_acked(sent + 3_700 * MS, sequence, sequence, None, &mut arrived);
        }
        if flying.len() < 4_000 {
            flying.push_back((now, path.on_sent(now, 1_200, (), true)));
        }
        path.find_lost(now, &mut lost);
        now += MS;
    }
    assert!(arrived.len() > 5_000, "{} arrived", arrived.len());
    assert!(
        path.overdue_after() > 3_700 * MS,
        "{:?}",
        path.overdue_after()
    );
    let feared = path.loss().feared();
    assert!(feared < 0.01, "{feared}");
}

/// A modem's bit-error rate holds before anything is lost; what arrives outweighs it, and what is seen to be lost counts in any case.
#[test]
fn what_a_modem_tells_of_losses_counts_until_datagrams_tell_otherwise() {
    let start = Instant::now();
    let mut path = monitor(start, update(40 * MS, 10));
    assert!(!path.loss_is_known());
    path.set_told_loss(Some(0.02));
    assert!(path.loss_is_known());
    let loss = path.loss();
    assert_eq!((loss.rate, loss.window_max), (0.02, 0.02));
    let now = exchange(&mut path, start, 2_000, 40 * MS, |_| false);
    let loss = path.loss();
    assert!(loss.rate > 0.0 && loss.feared() < 0.003, "{loss:?}");
    let now = exchange(&mut path, now, 1_000, 40 * MS, |sequence| {
        sequence % 10 == 0
    });
    path.find_lost(now + 500 * MS, &mut Vec::new());
    assert!(path.loss().rate > 0.025, "{:?}", path.loss());
    path.set_told_loss(None);
    assert!(path.loss().rate > 0.025, "{:?}", path.loss());
    assert_eq!(path.told_loss(), None);
}

/// A path of 10 Mbit/s and 20 ms one way that may carry 1 Mbit/s, and as much as that in a second at once.
#[test]
fn what_may_not_leave_yet_arrives_later_and_the_rate_is_what_may() {
    let now = Instant::now();
    let mut path = monitor(now, update(40 * MS, 10));
    let free = path.predict_arrival(now, 0, 12_500);
    let allow = |path: &mut PathMonitor<()>, missing_ms: u32| {
        let allowance = Allowance {
            rate: Bandwidth::from_mbit(1),
            most: 1_000 * MS,
            full_at: now + missing_ms * MS,
        };
        path.set_allowance(now, Some(allowance));
    };
    allow(&mut path, 0);
    assert_eq!(path.bandwidth(), Bandwidth::from_mbit(1));
    assert!(path.bandwidth_is_known() && !path.is_in_full_use());
    // What is left leaves as fast as the path carries it …
    assert_eq!(path.predict_arrival(now, 0, 12_500), free);
    assert_eq!(path.least_flight(12_500), 30 * MS);
    // … and what is not waits.
    allow(&mut path, 1_000);
    assert!(path.is_in_full_use());
    assert_eq!(path.predict_arrival(now, 0, 12_500), now + 120 * MS);
    assert_eq!(path.predict_arrival(now, 12_500, 12_500), now + 220 * MS);
    assert_eq!(path.least_flight(12_500), 120 * MS);
    assert!(path.most_of_startup(100 * MS) <= 12_500);
    // 1000 bytes are left: too little for a datagram of 1200, and so for a small one, too.
    allow(&mut path, 992);
    assert!(path.is_in_full_use());
    let waits = Duration::from_micros(1_600);
    assert_eq!(path.least_flight(100), 20 * MS + waits);
    assert_eq!(path.predict_arrival(now, 0, 100), now + 20 * MS + waits);
    path.set_allowance(now, None);
    assert_eq!(path.bandwidth(), Bandwidth::from_mbit(10));
    // A path that may carry nothing is late for any deadline, and no sum overflows.
    let nothing = Allowance {
        rate: Bandwidth::ZERO,
        most: MS,
        full_at: now,
    };
    path.set_allowance(now, Some(nothing));
    assert!(path.predict_arrival(now, 0, 1) > now + Duration::from_secs(80_000));
    assert!(now + path.least_flight(1) > now + Duration::from_secs(80_000));
}
