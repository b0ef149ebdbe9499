//! Backpressure, by the sign of the paper's equation: the slides print the difference the other way round.

use super::*;
use crate::{
    NeighbourConfig, NeighbourKey, NodeConfig,
    hop::{
        bytes_per_second,
        queue::{Item, Next},
    },
    name::{SEAL_BYTES, Segment},
};

const C: ContentId = ContentId([1; 16]);
const UPSTREAM: NeighbourId = NeighbourId(1);
const DOWNSTREAM: NeighbourId = NeighbourId(2);
/// The number of the content downstream.
const HANDLE: u64 = 5;

/// A relay of a content whose neighbour downstream takes so much.
fn relay(now: Instant, kbit: u64) -> Node {
    let mut node = Node::new(now, NodeConfig::default(), [1; 32]).unwrap();
    for id in [UPSTREAM, DOWNSTREAM] {
        let key = NeighbourKey::new(&[2; 32]);
        node.add_neighbour(now, id, NeighbourConfig { key })
            .unwrap();
    }
    let hop = node.hops.get_mut(&DOWNSTREAM).unwrap();
    hop.handle_rate(kbit, 0);
    let asker = Asker::Neighbour(DOWNSTREAM, HANDLE);
    node.note_relayed(now, C, (UPSTREAM, 0), asker, 0);
    node
}

/// Lets a segment wait for the neighbour downstream; returns its bytes there.
fn wait(now: Instant, node: &mut Node, number: u64) -> f64 {
    let length = NodeConfig::SEGMENT_BYTES;
    let sealed = vec![7; length + SEAL_BYTES];
    let segment = Segment {
        offset: number * length as u64,
        is_end: false,
        sealed: sealed.into(),
    };
    let item = Item::Segment {
        segment,
        is_repair: false,
        left: None,
    };
    let next = Next {
        content: C,
        handle: HANDLE,
        item,
    };
    let hop = node.hops.get_mut(&DOWNSTREAM).unwrap();
    assert!(hop.queue.push(now, now, next));
    f64::from(u32::try_from(length + SEAL_BYTES).unwrap())
}

/// A segment that makes up for a loss of the hop before and one that leaves while the program waits for a processor were the same one: a hop
/// behind a program that is late ran dry with each loss.
#[test]
fn what_a_late_program_needs_waits_beside_what_makes_up_for_losses() {
    const KBIT: u64 = 20_000;
    let now = Instant::now();
    let (round, late) = (Duration::from_millis(20), Duration::from_millis(2));
    let mut node = relay(now, KBIT);
    let told = |node: &Node| {
        let relayed = &node.relayed[&C];
        node.backpressure(now, relayed, round, &mut LeavingTo::default())
            .unwrap()
    };
    let punctual = told(&node);
    node.waits.saw(now, late);
    let more = (told(&node) - punctual) * round.as_secs_f64();
    let expected = bytes_per_second(KBIT) * late.as_secs_f64();
    assert!(
        (more - expected).abs() < 1.0,
        "{more}, not {expected} bytes"
    );
}

#[test]
fn more_comes_than_leaves_while_too_little_waits_and_less_while_too_much_does() {
    let now = Instant::now();
    let hops = [(8_000, 8), (80_000, 20), (1_000_000, 8), (10_000_000, 20)];
    for (kbit, millis) in hops {
        let round = Duration::from_millis(millis);
        let mut node = relay(now, kbit);
        let leaves = bytes_per_second(kbit);
        let config = &node.config;
        let few = config.backlog_segments * f64::from(u32::try_from(config.segment_bytes).unwrap());
        let target = few.max(leaves * least_queue(round).as_secs_f64());
        let told = |node: &Node| {
            let relayed = &node.relayed[&C];
            node.backpressure(now, relayed, round, &mut LeavingTo::default())
                .unwrap()
        };
        let (mut backlog, mut last) = (0.0, told(&node));
        let expected = leaves + target / round.as_secs_f64();
        assert!((last - expected).abs() < 1.0, "{last}, not {expected} B/s");
        for number in 0.. {
            if backlog > 3.0 * target {
                break;
            }
            backlog += wait(now, &mut node, number);
            let rate = told(&node);
            let what = format!("{rate} B/s of {leaves}, {backlog} bytes wait, not {target}");
            assert_eq!(rate > leaves, backlog < target, "{what}");
            assert!(rate <= last && rate > 0.0, "{what} after {last}");
            last = rate;
        }
    }
}
