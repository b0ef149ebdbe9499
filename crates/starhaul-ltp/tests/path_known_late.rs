//! Blocks that wait when the path's MTU becomes known: they are cut and coded by it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::{cell::Cell, rc::Rc, time::Duration};

use bytes::Bytes;
use pair::{Filter, Pair, RECEIVER, SERVICE, content};
use starhaul_ltp::{Body, Event, Outgoing, PeerConfig, RepairRate};
use starhaul_units::Bandwidth;

const SEED: u64 = 23;
const LIGHT: Duration = Duration::from_secs(4);
/// The least MTU of IPv6, and the data of a segment that fills such a packet.
const MTU: usize = 1280;
const SINGLE: usize = 1140;

/// Notes the bytes of the longest segment of data or for repair, and loses none.
fn longest(noted: &Rc<Cell<usize>>) -> Filter {
    let noted = noted.clone();
    Box::new(move |segment| {
        let bytes = match segment.body {
            Body::Data(data) => data.payload.len(),
            Body::Repair(repair) => repair.payload.len(),
            Body::Parity(parity) => parity.payload.len(),
            _ => 0,
        };
        noted.set(noted.get().max(bytes));
        true
    })
}

fn config(repair: RepairRate) -> PeerConfig {
    let mut config = PeerConfig::new(LIGHT, Some(Bandwidth::from_mbit(1000)));
    config.set_repair(Some(repair));
    config
}

/// Reports have told of losses by the time that blocks are queued, and a route with a smaller MTU comes before they leave.
#[test]
fn by_measured_loss_blocks_that_waited_are_coded() {
    let link = "delay=4s,loss=5%";
    let mut pair = Pair::new(SEED, &config(RepairRate::Auto), link, link);
    let block = content(150_000, SEED);
    for _ in 0..200 {
        pair.send(&block, block.len());
    }
    pair.sim.run_for(3 * LIGHT);
    let choice = pair.sender().engine.repair_choice(RECEIVER).unwrap();
    assert!(choice.loss.is_some(), "{choice:?}, seed {SEED}");
    let before = pair.sender().engine.stats().repair_segments_sent;
    assert_eq!(before, 0, "no report had come yet, seed {SEED}");

    let queued = pair.sim.now();
    let waiting: Vec<_> = (0..100).map(|_| pair.send(&block, block.len())).collect();
    let noted = Rc::new(Cell::new(0));
    pair.sender().passes = longest(&noted);
    pair.sender().engine.set_path_mtu(queued, RECEIVER, MTU);
    pair.finish();

    let repairs = pair.sender().engine.stats().repair_segments_sent;
    assert!(repairs > 0, "they have no repair segments, seed {SEED}");
    assert_eq!(noted.get(), SINGLE, "seed {SEED}");
    let arrived = pair.receiver().events.iter().filter_map(|(at, event)| {
        let Event::RedPart { session, .. } = event else {
            return None;
        };
        waiting.contains(session).then_some(*at - queued)
    });
    let arrived: Vec<Duration> = arrived.collect();
    assert_eq!(arrived.len(), waiting.len(), "seed {SEED}");
    let late = arrived.iter().filter(|took| **took > 2 * LIGHT).count();
    assert!(late <= 1, "{late} waited for a retransmission, seed {SEED}");
    assert!(pair.receiver().delivered().iter().all(|it| *it == block));
}

/// Blocks in two buffers, whose segments must be symbols of one length, with a way back and without.
#[test]
fn for_a_given_loss_blocks_that_waited_have_segments_of_one_packet() {
    for is_one_way in [false, true] {
        let mut config = config(RepairRate::Fixed(0.05));
        config.is_one_way = is_one_way;
        let mut pair = Pair::new(SEED, &config, "delay=4s", "delay=4s");
        let noted = Rc::new(Cell::new(0));
        pair.sender().passes = longest(&noted);
        let now = pair.sim.now();
        // Of one segment, of one code and of several; the head ends within a segment.
        let blocks = [900, 150_000, 900_000].map(|length| content(length, SEED));
        for block in &blocks {
            let (head, rest) = (block.slice(..100), block.slice(100..));
            let outgoing = Outgoing {
                to: RECEIVER,
                service: SERVICE,
                block: head,
                red: block.len() as u64,
            };
            let engine = &mut pair.sender().engine;
            engine.send_with(now, outgoing, rest, None).unwrap();
        }
        pair.sender().engine.set_path_mtu(now, RECEIVER, MTU);
        pair.finish();
        let stats = pair.sender().engine.stats();
        assert!(stats.repair_segments_sent > 0, "one way: {is_one_way}");
        let length = noted.get();
        assert!(length <= SINGLE, "{length} bytes, one way: {is_one_way}");
        let mut delivered: Vec<Bytes> = pair.receiver().delivered();
        delivered.sort_by_key(Bytes::len);
        assert!(delivered == blocks, "one way: {is_one_way}");
    }
}
