//! A link that is silent for seconds in the middle of a transfer, of which no contact plan tells: both ends are up, and know nothing of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::{cell::Cell, rc::Rc, time::Duration};

use pair::{Filter, Pair, content};
use starhaul_ltp::{Body, Event, PeerConfig, RepairRate};
use starhaul_units::Bandwidth;

/// When the link falls silent, and for how long.
const FROM: Duration = Duration::from_secs(4);
const LASTS: Duration = Duration::from_secs(12);
/// Each takes eight seconds: of the first an end is lost, the second as a whole.
const BLOCKS: u64 = 3;
const BLOCK: usize = 10_000_000;
/// In Mbit/s.
const RATE: u64 = 10;
/// Of those that were under way when it fell silent.
const MOST_CHECKPOINTS: u64 = 16;

/// What did not arrive.
#[derive(Default)]
struct Lost {
    is_silent: Cell<bool>,
    /// Data segments, those that were sent again among them.
    segments: Cell<u64>,
}

impl Lost {
    fn filter(self: &Rc<Self>) -> Filter {
        let lost = self.clone();
        Box::new(move |segment| {
            let is_lost = lost.is_silent.get();
            if is_lost && matches!(segment.body, Body::Data(_)) {
                lost.segments.set(lost.segments.get() + 1);
            }
            !is_lost
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    /// In seconds, one way.
    light: u64,
    repair: Option<RepairRate>,
    /// Whether the sender knows the link's rate; else reports limit what is under way.
    knows_rate: bool,
}

fn interrupt(case: Case) {
    let seed = 12;
    let rate = Bandwidth::from_mbit(RATE);
    let light = Duration::from_secs(case.light);
    let mut config = PeerConfig::new(light, case.knows_rate.then_some(rate));
    config.set_repair(case.repair);
    let back = format!("delay={}s", case.light);
    let forward = format!("rate={RATE}mbit,{back},queue=100000p");
    let mut pair = Pair::new(seed, &config, &forward, &back);
    let lost = Rc::new(Lost::default());
    for node in &mut pair.sim.nodes {
        node.hears = lost.filter();
    }
    let blocks: Vec<_> = (0..BLOCKS).map(|seed| content(BLOCK, seed)).collect();
    for block in &blocks {
        pair.send(block, block.len());
    }
    let all: u64 = blocks.iter().map(|block| block.len() as u64).sum();
    pair.sim.run_for(FROM);
    lost.is_silent.set(true);
    pair.sim.run_for(LASTS);
    lost.is_silent.set(false);
    let back_at = pair.sim.now();
    pair.finish();
    let mut delivered = pair.receiver().delivered();
    delivered.sort_by_key(|block| blocks.iter().position(|sent| sent == block));
    assert!(delivered == blocks, "{case:?}, seed {seed}");
    let cancelled = pair.sim.nodes.iter().flat_map(|node| &node.events);
    let cancelled = cancelled.filter(|(_, event)| {
        matches!(
            event,
            Event::SendCancelled { .. } | Event::ReceiveCancelled { .. }
        )
    });
    assert_eq!(cancelled.count(), 0, "{case:?}, seed {seed}");
    let again = pair.sender().engine.stats().data_segments_resent;
    // Checkpoints whose reports were lost are not.
    let most = lost.segments.get() + MOST_CHECKPOINTS;
    assert!(again <= most, "{case:?}: {again} of {most}, seed {seed}");
    let duplicate = pair.receiver().engine.stats().duplicate_bytes;
    // Repair symbols give back data that are on their way.
    let recovered = case.repair.map_or(0, |_| all / 50);
    let most = recovered + MOST_CHECKPOINTS * 1360;
    assert!(
        duplicate <= most,
        "{case:?}: {duplicate} bytes, seed {seed}"
    );
    let arrivals = pair.receiver().events.iter();
    let arrivals = arrivals.filter(|(_, event)| matches!(event, Event::RedPart { .. }));
    let took = arrivals.map(|(at, _)| *at - back_at).max().unwrap();
    // What is left and what was lost take the link 21 s; timers have doubled meanwhile.
    let most = Duration::from_secs(30) + light * 5;
    assert!(took < most, "{case:?}: {took:?}, seed {seed}");
}

#[test]
fn what_a_silence_of_twelve_seconds_has_taken_is_sent_again_and_no_more() {
    for light in [0, 1, 4] {
        for repair in [None, Some(RepairRate::Fixed(0.02)), Some(RepairRate::Auto)] {
            for knows_rate in [true, false] {
                interrupt(Case {
                    light,
                    repair,
                    knows_rate,
                });
            }
        }
    }
}
