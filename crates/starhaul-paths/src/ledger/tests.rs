use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);
const OVERDUE: Duration = Duration::from_secs(1);

fn ledger(now: Instant, count: u32) -> PathLedger<u32> {
    let mut ledger = PathLedger::starting_at(0);
    for item in 0..count {
        ledger.push(now + item * MS, 100, item, true);
    }
    ledger
}

fn arrived(ledger: &mut PathLedger<u32>, first: u64, last: u64) -> Vec<(u32, bool, bool)> {
    let mut arrived = Vec::new();
    ledger.ack(first, last, |fated| {
        arrived.push((fated.item, fated.given_up, fated.was_lost));
    });
    arrived
}

fn lost(ledger: &mut PathLedger<u32>, now: Instant) -> Vec<u32> {
    std::iter::from_fn(|| ledger.next_lost(now, |_| OVERDUE))
        .map(|fated| fated.item)
        .collect()
}

fn settled(ledger: &mut PathLedger<u32>) -> Vec<(u64, bool)> {
    std::iter::from_fn(|| ledger.next_settled())
        .map(|datagram| (datagram.sequence, datagram.lost))
        .collect()
}

#[test]
fn each_datagram_arrives_once_and_fates_are_reported_in_the_order_of_sending() {
    let now = Instant::now();
    let mut ledger = ledger(now, 6);
    assert_eq!(
        arrived(&mut ledger, 2, 3),
        [(2, false, false), (3, false, false)]
    );
    assert_eq!(
        arrived(&mut ledger, 0, 2),
        [(0, false, false), (1, false, false)]
    );
    assert_eq!(
        settled(&mut ledger),
        [(0, false), (1, false), (2, false), (3, false)]
    );
    assert_eq!(arrived(&mut ledger, 0, 3), []);
    assert_eq!(arrived(&mut ledger, 5, 9), [(5, false, false)]);
    assert_eq!(settled(&mut ledger), [], "the fate of 4 is open");
    assert_eq!(ledger.lose(4).map(|fated| fated.given_up), Some(false));
    assert_eq!(settled(&mut ledger), [(4, true), (5, false)]);
    assert!(ledger.lose(4).is_none() && ledger.is_reported(4));
    assert_eq!(arrived(&mut ledger, 4, 4), [(4, true, true)]);
}

#[test]
fn what_is_overtaken_or_overdue_is_lost_and_reordering_that_was_seen_is_allowed_for() {
    let now = Instant::now();
    let mut ledger = ledger(now, 20);
    arrived(&mut ledger, 5, 5);
    assert_eq!(
        lost(&mut ledger, now),
        [0, 1, 2],
        "three later ones must have arrived"
    );
    assert_eq!(arrived(&mut ledger, 0, 0), [(0, true, true)]);
    arrived(&mut ledger, 8, 8);
    assert_eq!(lost(&mut ledger, now), [], "six have overtaken before");
    assert_eq!(lost(&mut ledger, now + OVERDUE + 4 * MS), [3, 4]);
    assert_eq!(
        ledger.oldest_outstanding(),
        Some((6, now + 6 * MS)),
        "5 has arrived"
    );
}

#[test]
fn a_silent_path_releases_once_and_what_arrives_after_all_is_told() {
    let now = Instant::now();
    let mut ledger = ledger(now, 3);
    ledger.push(now, 50, 99, false);
    arrived(&mut ledger, 1, 1);
    let released: Vec<u32> = ledger
        .release(|_, _| true)
        .iter()
        .map(|fated| fated.item)
        .collect();
    assert_eq!(released, [0, 2]);
    assert!(ledger.release(|_, _| true).is_empty());
    assert_eq!(arrived(&mut ledger, 0, 0), [(0, true, false)]);
    assert_eq!(lost(&mut ledger, now + OVERDUE + 2 * MS), [2]);
}

/// At 87 000 datagrams in a second so many records stand behind one that was lost three seconds ago.
#[test]
fn what_is_in_flight_outlives_a_loss_that_many_datagrams_ago() {
    let now = Instant::now();
    let most = u32::try_from(MAX_RECORDS).unwrap();
    let mut ledger = ledger(now, 1);
    assert!(ledger.lose(0).is_some());
    for item in 1..most + 10 {
        ledger.push(now, 1, item, true);
    }
    arrived(&mut ledger, 1, u64::from(most) - 1000);
    assert_eq!(lost(&mut ledger, now), []);
    while ledger.next_settled().is_some() {}
    ledger.prune(now, Duration::ZERO);
    assert!(ledger.records.len() <= MAX_RECORDS);
}

#[test]
fn an_endless_flow_without_answers_is_declared_lost_from_its_oldest_end() {
    let now = Instant::now();
    let mut ledger = PathLedger::starting_at(0);
    let count = u32::try_from(MAX_RECORDS).unwrap() + 1000;
    for item in 0..count {
        ledger.push(now, 1, item, true);
        if item % 100 == 0 {
            while ledger.next_lost(now, |_| OVERDUE).is_some() {}
            while ledger.next_settled().is_some() {}
            ledger.prune(now, Duration::ZERO);
        }
    }
    assert!(ledger.records.len() <= MAX_RECORDS + 100);
    assert_eq!(arrived(&mut ledger, 5, 5), []);
    let last = u64::from(count) - 1;
    assert_eq!(
        arrived(&mut ledger, last, last),
        [(count - 1, false, false)]
    );
}

#[test]
fn the_datagram_that_frees_the_window_is_found_by_its_bytes() {
    let start = Instant::now();
    let mut ledger = ledger(start, 10);
    ledger.push(start, 50, 0, false);
    arrived(&mut ledger, 0, 0);
    settled(&mut ledger);
    let after = |bytes| ledger.sent_of_outstanding(bytes).map(|sent| sent - start);
    assert_eq!(after(1), Some(MS));
    assert_eq!(after(100), Some(MS));
    assert_eq!(after(101), Some(2 * MS));
    assert_eq!(after(900), Some(9 * MS));
    assert_eq!(after(901), Some(9 * MS), "acknowledgements take no window");
}

/// The next datagram that is settled, and if it arrived, how many are settled with it.
fn settled_together(ledger: &mut PathLedger<u32>) -> Option<(u64, Option<u32>)> {
    let first = ledger.next_settled()?;
    let more = (!first.lost).then(|| ledger.settle_alike(first));
    Some((first.sequence, more))
}

#[test]
fn what_left_and_arrived_together_is_settled_together() {
    let now = Instant::now();
    let mut ledger = PathLedger::starting_at(0);
    for item in 0..9 {
        let sent = if item < 5 { now } else { now + MS };
        ledger.push(sent, 100, item, item != 7);
    }
    arrived(&mut ledger, 0, 2);
    arrived(&mut ledger, 4, 8);
    assert_eq!(settled_together(&mut ledger), Some((0, Some(2))));
    assert_eq!(settled_together(&mut ledger), None, "the fate of 3 is open");
    assert!(ledger.lose(3).is_some());
    assert_eq!(settled_together(&mut ledger), Some((3, None)));
    assert_eq!(settled_together(&mut ledger), Some((4, Some(0))));
    // 7 elicits no acknowledgement.
    assert_eq!(settled_together(&mut ledger), Some((5, Some(1))));
    assert_eq!(settled_together(&mut ledger), Some((8, Some(0))));
    assert_eq!(settled_together(&mut ledger), None);
}

#[derive(Clone, Debug)]
enum Operation {
    Send(bool),
    Ack(u64, u64),
    Lose(u64),
    FindLost(u64),
    Release,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => any::<bool>().prop_map(Operation::Send),
        4 => (0..80u64, 0..6u64).prop_map(|(first, more)| Operation::Ack(first, first + more)),
        1 => (0..80u64).prop_map(Operation::Lose),
        2 => (0..4000u64).prop_map(Operation::FindLost),
        1 => Just(Operation::Release),
    ]
}

proptest! {
    /// Against a plain table: nothing arrives twice, nothing is given up twice, and no fate is reported twice or early.
    #[test]
    fn fates_agree_with_a_plain_table(operations in prop::collection::vec(operation(), 1..120)) {
        let mut now = Instant::now();
        let mut ledger = PathLedger::starting_at(7);
        let mut table: BTreeMap<u64, (bool, bool)> = BTreeMap::new();
        let mut reported = 7;
        for operation in operations {
            now += MS;
            match operation {
                Operation::Send(elicits) => {
                    let sequence = ledger.push(now, 10, 0u32, elicits);
                    prop_assert_eq!(sequence, 7 + table.len() as u64);
                    table.insert(sequence, (false, false));
                }
                Operation::Ack(first, last) => ledger.ack(first, last, |fated| {
                    let (acked, given_up) = table.get_mut(&fated.sequence).unwrap();
                    assert!(!std::mem::replace(acked, true));
                    assert_eq!(*given_up, fated.given_up);
                }),
                Operation::Lose(sequence) => {
                    if let Some(fated) = ledger.lose(sequence) {
                        let (acked, given_up) = table.get_mut(&sequence).unwrap();
                        assert!(!*acked && *given_up == fated.given_up);
                        *given_up = true;
                    }
                }
                Operation::FindLost(later) => {
                    now += Duration::from_millis(later);
                    while let Some(fated) = ledger.next_lost(now, |_| OVERDUE) {
                        let (acked, given_up) = table.get_mut(&fated.sequence).unwrap();
                        assert!(!*acked && *given_up == fated.given_up);
                        *given_up = true;
                    }
                }
                Operation::Release => for fated in ledger.release(|_, _| true) {
                    let (acked, given_up) = table.get_mut(&fated.sequence).unwrap();
                    assert!(!*acked && !std::mem::replace(given_up, true));
                },
            }
            while let Some(datagram) = ledger.next_settled() {
                prop_assert!(datagram.sequence >= reported);
                reported = datagram.sequence + 1;
                let (acked, given_up) = table[&datagram.sequence];
                prop_assert!(acked || given_up && datagram.lost);
            }
            ledger.prune(now, Duration::ZERO);
        }
    }
}
