//! Blocks that are sent several times to a peer that cannot answer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use bytes::Bytes;
use pair::{
    Filter, Kind, Pair, RECEIVER, SENDER, SERVICE, content,
    direct::{delivered, engine, output},
};
use starhaul_ltp::{Batch, Body, Coding, Engine, Event, Outgoing, PeerConfig, SessionId, parse};
use starhaul_units::Bandwidth;

const SEGMENT: usize = 128;
const SEGMENTS: usize = 300;

fn config(passes: u32, coding: Option<Coding>) -> PeerConfig {
    let rate = Some(Bandwidth::from_mbit(20));
    let mut config = PeerConfig::new(Duration::from_secs(1), rate);
    config.segment_data = SEGMENT;
    config.coding = coding;
    config.is_one_way = true;
    config.passes = passes;
    config
}

/// Loses of each pass the data segments with these numbers; a pass ends with the block.
fn loses(lost: Vec<Range<u64>>) -> Filter {
    let mut pass = 0;
    Box::new(move |segment| {
        let Body::Data(data) = segment.body else {
            return true;
        };
        let number = data.offset / SEGMENT as u64;
        let is_lost = lost.get(pass).is_some_and(|lost| lost.contains(&number));
        let is_end = matches!(Kind::of(segment), Kind::RedEnd | Kind::GreenEnd);
        pass += usize::from(is_end);
        !is_lost
    })
}

/// Sends a block, and returns the ends when all is over.
fn run(config: &PeerConfig, red: usize, lost: Vec<Range<u64>>) -> Pair {
    let mut pair = Pair::new(3, config, "delay=1s", "delay=1s");
    pair.sender().passes = loses(lost);
    let block = content(SEGMENTS * SEGMENT, 3);
    pair.send(&block, red);
    pair.finish();
    let sender = pair.sender().happened();
    let is_told = |event: &&&Event| matches!(event, Event::Transmitted { .. });
    assert_eq!(sender.iter().filter(is_told).count(), 1, "{sender:?}");
    assert!(pair.receiver().sent.is_empty(), "nothing comes back");
    pair
}

/// More is lost in each pass than its repair segments give back, and not the same.
#[test]
fn a_further_pass_brings_what_the_first_one_lost_and_nothing_arrives_twice() {
    let all = content(SEGMENTS * SEGMENT, 3);
    for coding in [None, Some(Coding::new(0.02))] {
        let lost = vec![10..110, 150..250];
        let mut once = run(&config(1, coding), all.len(), lost.clone());
        assert!(once.receiver().delivered().is_empty(), "{coding:?}");
        let mut twice = run(&config(2, coding), all.len(), lost.clone());
        assert!(twice.receiver().delivered() == [all.clone()], "{coding:?}");
        // The rest of a pass after which nothing is missing, and all of those behind it, are late.
        let mut often = run(&config(5, coding), all.len(), lost);
        assert!(often.receiver().delivered() == [all.clone()], "{coding:?}");
        assert!(often.receiver().engine.stats().dropped.late > 2 * SEGMENTS as u64);
        // Where nothing is lost the first is enough.
        let mut whole = run(&config(3, coding), all.len(), vec![]);
        assert!(whole.receiver().delivered() == [all.clone()], "{coding:?}");
        assert!(whole.receiver().engine.stats().dropped.late >= 2 * SEGMENTS as u64);
    }
}

/// Green data arrive as they come; each byte once, whichever pass brings it.
#[test]
fn green_data_of_a_further_pass_arrive_if_they_are_new() {
    let all = content(SEGMENTS * SEGMENT, 3);
    let mut pair = run(&config(2, None), 0, vec![0..20, 5..300]);
    let mut green = pair.receiver().green();
    green.sort_by_key(|(offset, _)| *offset);
    let lengths = green.iter().map(|(_, data)| data.len());
    // 5 to 19 were lost twice.
    assert_eq!(lengths.sum::<usize>(), (SEGMENTS - 15) * SEGMENT);
    for (offset, data) in green {
        let from = usize::try_from(offset).unwrap();
        assert_eq!(data, all.slice(from..from + data.len()));
    }
}

/// A peer that answers gets each block once, whatever is configured.
#[test]
fn a_peer_that_answers_is_sent_each_block_once() {
    let mut config = config(3, None);
    config.is_one_way = false;
    let mut pair = Pair::new(3, &config, "delay=1s", "delay=1s");
    let block = content(SEGMENTS * SEGMENT, 3);
    pair.send(&block, block.len());
    pair.finish();
    let stats = pair.sender().engine.stats();
    assert_eq!(stats.data_segments_sent, SEGMENTS as u64);
}

/// A sender that has nothing to wait for, and a session of it that sends a block of red data.
fn sending(passes: u32, now: Instant) -> (Engine, Bytes, SessionId) {
    let mut config = config(passes, None);
    config.rate = None;
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
    let block = content(SEGMENTS * SEGMENT, 3);
    let outgoing = Outgoing {
        to: RECEIVER,
        service: SERVICE,
        block: block.clone(),
        red: block.len() as u64,
    };
    let session = sender.send(now, outgoing).unwrap();
    (sender, block, session)
}

fn take(receiver: &mut Engine, now: Instant, datagrams: &[Vec<u8>]) {
    for datagram in datagrams {
        receiver.handle_datagrams(now, SENDER, datagram, datagram.len());
    }
}

/// A receiver gives a block up after some minutes of silence, which is no reason to refuse what comes of it then.
#[test]
fn a_block_that_was_given_up_arrives_with_a_further_pass() {
    let start = Instant::now();
    let config = config(3, None);
    let (mut sender, block, _) = sending(3, start);
    let all = output(&mut sender, start);
    assert_eq!(all.len(), 3 * SEGMENTS);
    let mut receiver = engine(RECEIVER, 2, &[SENDER], &config, start);
    take(&mut receiver, start, &all[..100]);
    let later = start + config.longest_silence() * 2;
    receiver.handle_timeout(later);
    assert_eq!(receiver.sessions(), (0, 0), "it is given up");
    // The rest of the first pass, and the second one.
    take(&mut receiver, later, &all[200..2 * SEGMENTS]);
    assert!(delivered(&mut receiver) == [block]);
    take(&mut receiver, later, &all[2 * SEGMENTS..]);
    assert!(delivered(&mut receiver).is_empty(), "it came before");
    assert_eq!(receiver.sessions(), (0, 0));
}

/// So it is with one that came damaged, as its checksum tells.
#[test]
fn a_block_that_came_damaged_arrives_with_a_further_pass() {
    let now = Instant::now();
    let (mut sender, block, _) = sending(2, now);
    let mut all = output(&mut sender, now);
    if let Some(byte) = all[5].last_mut() {
        *byte ^= 1;
    }
    let mut receiver = engine(RECEIVER, 2, &[SENDER], &config(2, None), now);
    take(&mut receiver, now, &all[..SEGMENTS]);
    let events = std::iter::from_fn(|| receiver.poll_event());
    let is_told = |event: &Event| matches!(event, Event::ReceiveCancelled { .. });
    assert_eq!(events.filter(is_told).count(), 1);
    take(&mut receiver, now, &all[SEGMENTS..]);
    assert!(delivered(&mut receiver) == [block]);
}

/// Between two passes nothing of the present one has left, and the receiver has the one before.
#[test]
fn a_block_that_is_cancelled_between_two_passes_is_told_to_be() {
    let now = Instant::now();
    let (mut sender, _, session) = sending(2, now);
    let mut batch = Batch::new(65_507, 1);
    loop {
        assert!(sender.poll_transmit(now, &mut batch).is_some());
        let (segment, _) = parse(batch.contents()).unwrap();
        if Kind::of(&segment) == Kind::RedEnd {
            break;
        }
    }
    sender.cancel(now, session);
    let told = output(&mut sender, now);
    let kinds: Vec<Kind> = told
        .iter()
        .map(|told| Kind::of(&parse(told).unwrap().0))
        .collect();
    assert_eq!(kinds, [Kind::CancelBySender]);
}
