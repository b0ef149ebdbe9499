#![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

use bytes::Bytes;
use starhaul_fec::Codec;
use starhaul_paths::PathUpdate;

use super::{
    super::{any_loses, block::LastSent},
    *,
};
use crate::{
    facts::Purpose,
    item::Item,
    rules::Rules,
    types::{Mode, StreamId},
};

const MS: Duration = Duration::from_millis(1);
const FAST: PathId = PathId(0);
const OTHER: PathId = PathId(1);
const FRAGMENT: usize = 1_000;
const BYTES: usize = 20 * FRAGMENT;

fn add(paths: &mut Paths, now: Instant, id: PathId, (mbit, rtt): (u64, Duration), cost: f64) {
    let update = PathUpdate {
        cwnd: 1 << 20,
        bytes_in_flight: 0,
        bandwidth: Bandwidth::from_mbit(mbit),
        smoothed_rtt: rtt,
        min_rtt: rtt,
        max_datagram: 1_200,
    };
    paths.add(now, id, cost, update);
}

/// A path of 60 ms there and back of which nothing else is known.
fn fast(now: Instant, mbit: u64) -> Paths {
    let mut paths = Paths::default();
    add(&mut paths, now, FAST, (mbit, 60 * MS), 1.0);
    paths
}

/// The path has carried 200 datagrams, of which it lost each so many-th, if any.
fn teach(paths: &mut Paths, now: Instant, id: PathId, lost_each: Option<u64>) {
    let path = &mut paths.get_mut(id).unwrap().monitor;
    let sent = (0..200).map(|_| path.on_sent(now, FRAGMENT, Item::Probe, true));
    let sent: Vec<u64> = sent.collect();
    let answered = now + path.smoothed_rtt();
    for sequence in sent {
        if lost_each.is_some_and(|each| sequence % each == 0) {
            path.on_lost(answered, sequence);
        } else {
            path.on_acked(answered, sequence, sequence, None, &mut Vec::new());
        }
    }
}

fn block(now: Instant, deadline: Duration, fragments: usize) -> SendBlock {
    let data = Bytes::from(vec![7; FRAGMENT * fragments]);
    let (key, mode) = ((StreamId(1), 0), Mode::FecRetransmit);
    SendBlock::new(key, data, mode, now, now + deadline, 1, 1.0)
}

fn cut(block: &mut SendBlock, redundancy_for: impl Fn(u8) -> u8) {
    let capacity = FRAGMENT;
    block
        .split(&mut Codec::new(), capacity, redundancy_for)
        .unwrap();
}

/// All data leave at once, and are heard of when the path has it.
fn send_all(block: &mut SendBlock, paths: &Paths, at: Instant) {
    while let Some(fragment) = block.next_fresh() {
        block.on_sent(fragment, last_sent(paths, at), Purpose::Data);
    }
}

fn last_sent(paths: &Paths, at: Instant) -> LastSent {
    let monitor = &paths.get(FAST).unwrap().monitor;
    LastSent {
        path: FAST,
        at,
        acknowledged_by: at + monitor.acknowledged_after(),
        doubtful_at: at + monitor.doubtful_after(),
        overdue_at: at + monitor.overdue_after(),
    }
}

fn cargo(deadline: Instant) -> Cargo {
    Cargo {
        bytes: BYTES as u64,
        fragment: 1_030,
        deadline,
    }
}

fn fragment(code: u8, index: u8) -> FragmentId {
    FragmentId {
        cut: 0,
        code,
        index,
    }
}

/// Blocks are cut without asking for redundancy where no path has lost anything: however long a block is, and however little time is left,
/// it would get none.
#[test]
fn where_no_path_loses_anything_no_block_gets_redundancy() {
    let start = Instant::now();
    let now = start + 500 * MS;
    let mut paths = fast(start, 10);
    add(&mut paths, start, OTHER, (10, 40 * MS), 1.0);
    teach(&mut paths, start, FAST, None);
    teach(&mut paths, start, OTHER, None);
    assert!(!any_loses(&paths));
    for (is_overloaded, may_repair) in [(false, false), (false, true), (true, true)] {
        for deadline in [10 * MS, 150 * MS, 2_000 * MS] {
            let cargo = cargo(now + deadline);
            let carriers = Carriers::of(now, &paths, FAST, cargo);
            let (figures, at) = ((1.0, 1), (now, cargo));
            let rule = redundancy_rule(
                &paths,
                FAST,
                &carriers,
                figures,
                is_overloaded,
                may_repair,
                at,
            );
            assert_eq!([1, 3, 4, 20, 200].map(rule), [0; 5], "{deadline:?}");
        }
    }
    teach(&mut paths, start, OTHER, Some(10));
    assert!(any_loses(&paths));
}

/// The fast path loses a tenth. The other loses nothing, and helps only if it is in time when a loss is known, and then once more or never.
#[test]
fn a_safe_path_that_is_late_for_the_last_try_saves_no_redundancy() {
    let start = Instant::now();
    let now = start + 500 * MS;
    let redundancy = |deadline: Duration, (rtt, cost): (Duration, f64)| {
        let mut paths = fast(start, 10);
        add(&mut paths, start, OTHER, (10, rtt), cost);
        teach(&mut paths, start, FAST, Some(10));
        teach(&mut paths, start, OTHER, None);
        let cargo = cargo(now + deadline);
        let carriers = Carriers::of(now, &paths, FAST, cargo);
        assert_eq!(carriers.iter().collect::<Vec<_>>(), [(FAST, 1.0)]);
        let rule = redundancy_rule(&paths, FAST, &carriers, (1.0, 1), false, true, (now, cargo));
        rule(20)
    };
    // A loss is known after 61 ms, and what is sent again takes 30 over the fast path.
    let slow = (240 * MS, 0.0);
    let once = redundancy(150 * MS, slow);
    assert!(once >= 5, "{once}");
    // Of three tries the first two seldom fail.
    let thrice = redundancy(240 * MS, slow);
    assert!((1..once).contains(&thrice), "{thrice}");
    assert_eq!(redundancy(700 * MS, slow), 0, "ten tries");
    // As dear, and so near that it takes what was lost.
    assert_eq!(redundancy(150 * MS, (100 * MS, 2.0)), 0);
}

/// Acknowledgements of the path take 60 or 64 ms, and arrivals so much more or less than 30.
fn varying(start: Instant, vary: Duration) -> (Paths, Instant) {
    let mut paths = fast(start, 10);
    let path = &mut paths.get_mut(FAST).unwrap().monitor;
    let mut now = start;
    for number in 0..100 {
        let sequence = path.on_sent(now, FRAGMENT, Item::Probe, true);
        let is_even = number % 2 == 0;
        let answered = now + if is_even { 60 * MS } else { 64 * MS };
        let one_way = if is_even {
            30 * MS - vary
        } else {
            30 * MS + vary
        };
        let arrived = &mut Vec::new();
        path.on_acked(answered, sequence, sequence, Some(one_way), arrived);
        now += 100 * MS;
    }
    (paths, now)
}

/// All of a block is lost, and nothing that comes after it tells of that.
#[test]
fn a_block_that_counts_on_its_last_chance_is_sent_again_in_time() {
    let (paths, now) = varying(Instant::now(), Duration::ZERO);
    let least_delay = paths.least_delay();
    let mut counted = 0;
    for deadline in (360..520).map(|quarters| quarters * MS / 4) {
        let mut block = block(now, deadline, 20);
        cut(&mut block, |_| 0);
        let (key, due) = (block.key, block.deadline);
        let carriers = Carriers::of(now, &paths, FAST, cargo(due));
        if !has_time_for_rounds(1, &block, now, &paths, &carriers) {
            continue;
        }
        counted += 1;
        let last = now + Bandwidth::from_mbit(10).time_to_send(BYTES as u64);
        send_all(&mut block, &paths, last);
        let mut again_at = last_sent(&paths, last).overdue_at;
        let mut blocks = BlocksOut::new(now, 0.5, FRAGMENT);
        blocks.insert(now, &paths, block);
        while let Some(at) = blocks.next_expiry().filter(|at| *at < again_at.min(due)) {
            blocks.expire(at, &paths);
            let block = blocks.get(key);
            if block.and_then(SendBlock::next_retransmission).is_some() {
                again_at = at;
            }
        }
        let late = (again_at + least_delay).saturating_duration_since(due);
        assert_eq!(late, Duration::ZERO, "deadline {deadline:?}");
    }
    assert!(counted > 20, "{counted}");
}

#[test]
fn one_round_needs_time_for_all_that_leaves_in_it_however_late_that_arrives() {
    let start = Instant::now();
    let has_time = |(paths, now): &(Paths, Instant), deadline_ms: u32, redundancy: u8| {
        let mut block = block(*now, deadline_ms * MS, 20);
        cut(&mut block, |_| redundancy);
        let carriers = Carriers::of(*now, paths, FAST, cargo(block.deadline));
        has_time_for_rounds(1, &block, *now, paths, &carriers)
    };
    // 16 ms for the data, 61 or so until a loss is known, and 30 to arrive.
    let mut steady = (fast(start, 10), start + 100 * MS);
    teach(&mut steady.0, start, FAST, None);
    assert!(has_time(&steady, 110, 0));
    // It takes 9.6 ms by itself.
    assert!(!has_time(&steady, 115, 12));
    assert!(has_time(&steady, 122, 12));
    // Acknowledgements are overdue after 71 ms or so; twice as far from 30 ms is nothing unusual.
    assert!(has_time(&varying(start, Duration::ZERO), 122, 0));
    assert!(!has_time(&varying(start, 8 * MS), 122, 0));
    assert!(has_time(&varying(start, 8 * MS), 160, 0));
}

/// A block of two codes, the second one longer by a fragment.
fn two_codes(now: Instant, redundancy_for: impl Fn(u8) -> u8) -> SendBlock {
    let mut block = block(now, 800 * MS, 129);
    cut(&mut block, redundancy_for);
    assert_eq!(block.fragment_counts().0, 64 + 65);
    send_all(&mut block, &fast(now, 10), now);
    block
}

/// A fragment that does not exist would keep all blocks behind it waiting.
#[test]
fn where_the_first_code_needs_no_redundancy_that_of_the_second_leaves() {
    let now = Instant::now();
    let mut block = two_codes(now, |data| u8::from(data > 64));
    block.redundancy_is_urgent = true;
    let next = block.next_redundancy();
    assert_eq!(next, Some(fragment(1, 65)));
    assert!(block.fragment(fragment(1, 65), 0).is_some());
    let sent = last_sent(&fast(now, 10), now);
    block.on_sent(fragment(1, 65), sent, Purpose::Redundancy);
    assert_eq!((block.next_redundancy(), block.waiting_bytes()), (None, 0));
}

#[test]
fn redundancy_of_a_code_that_has_arrived_does_not_leave_before_that_of_others() {
    let now = Instant::now();
    let mut block = two_codes(now, |_| 3);
    block.redundancy_is_urgent = true;
    assert_eq!(block.next_redundancy(), Some(fragment(0, 64)));
    let length = block.fragment_length().unwrap();
    for index in 0..64 {
        assert_eq!(block.waiting_bytes(), 6 * length, "{index}");
        assert!(!block.on_acked(fragment(0, index), false));
    }
    assert_eq!(block.next_redundancy(), Some(fragment(1, 65)));
    assert_eq!(block.waiting_bytes(), 3 * length);
}

/// Two fragments were lost. What leaves with the first that is sent again is more than the path brings in time, and the second is not.
#[test]
fn redundancy_that_leaves_too_late_keeps_no_lost_fragment_from_being_sent_again() {
    let now = Instant::now() + 2_000 * MS;
    let paths = fast(now, 1);
    let mut block = block(now, 200 * MS, 20);
    let key = block.key;
    cut(&mut block, |_| 8);
    send_all(&mut block, &paths, now);
    let mut blocks = BlocksOut::new(now, 0.5, FRAGMENT);
    blocks.insert(now, &paths, block);
    let later = now + 100 * MS;
    let block = blocks.get_mut(key).unwrap();
    assert!(block.on_lost(fragment(0, 3)) && block.on_lost(fragment(0, 7)));
    let again = last_sent(&paths, later);
    block.on_sent(fragment(0, 3), again, Purpose::Retransmission);
    block.insist(fragment(0, 3));
    blocks.requeue(later, key);
    // There was never nothing to send, so that the path's rate is known.
    blocks.busy_since = Some(now - 1_000 * MS);
    let view = View::new(later, &paths, FAST, paths.overview(FAST));
    let choice = blocks.pick(&view, &Rules).unwrap();
    assert_eq!(
        (choice.fragment, choice.purpose),
        (fragment(0, 7), Purpose::Retransmission)
    );
}
