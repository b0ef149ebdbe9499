//! A neighbour that has the key, and asks for a file as if it were a content of a stream, whose way any neighbour may turn to itself; or for names
//! without end.

use super::*;
use crate::stream::id;

const LENGTH: u64 = 100_000;

/// A server of [`C`], a relay, and two neighbours of it.
fn net() -> Net {
    let mut net = Net::new(4, &[(0, 1), (1, 2), (1, 3)], &NodeConfig::default());
    let bytes = Bytes::from(vec![5; usize::try_from(LENGTH).unwrap()]);
    net.node(0).serve(C, &secret(), Box::new(bytes));
    net.route(1, 0);
    net.route(3, 1);
    net
}

/// An Interest for a content of a stream.
fn of_stream(content: ContentId, handle: u64) -> Frame {
    Frame::Want {
        content,
        handle,
        start: 0,
        end: LENGTH,
        is_fresh: false,
        is_live: true,
    }
}

/// The content that the accepting side would serve if [`C`] were what an opener serves.
fn other_of_stream() -> ContentId {
    id::backward(id::parts(C).0)
}

/// It was refused to all behind the relay, or sought at the neighbour, after one Interest.
#[test]
fn a_file_that_was_asked_for_as_one_of_a_stream_comes_from_upstream() {
    for claims_way in [false, true] {
        let mut net = net();
        net.say(2, 1, of_stream(C, 0));
        if claims_way {
            net.say(2, 1, of_stream(other_of_stream(), 1));
        }
        net.run(10);
        net.fetch(3, C);
        net.run(2000);
        assert!(net.has_finished(3), "{claims_way}");
        assert_eq!(net.node(3).stats().refused.damaged, 0);
    }
}

/// How many milliseconds a transfer takes.
fn lasts(is_disturbed: bool) -> u32 {
    let mut net = net();
    net.fetch(3, C);
    for millis in 1..5000 {
        if is_disturbed {
            net.say(2, 1, of_stream(C, 0));
            net.say(2, 1, of_stream(other_of_stream(), 1));
        }
        net.run(1);
        if net.has_finished(3) {
            return millis;
        }
    }
    panic!("{:?}", net.node(3).stats());
}

#[test]
fn who_asks_for_a_file_as_one_of_a_stream_meanwhile_slows_no_other_down() {
    let (alone, disturbed) = (lasts(false), lasts(true));
    println!("{alone} and {disturbed} ms");
    assert!(disturbed <= alone + 5, "{disturbed} instead of {alone} ms");
}

/// What a neighbour made a relay ask it for came into the cache of all under the name of the file, and each segment of it was one that did not open.
#[test]
fn what_a_neighbour_sends_of_a_stream_is_not_kept_for_those_who_want_the_file() {
    let mut net = net();
    net.say(2, 1, of_stream(C, 0));
    net.run(2);
    net.say(2, 1, of_stream(other_of_stream(), 1));
    net.run(5);
    let asked = net.nodes[&1].hops[&NeighbourId(2)].content_of(0);
    assert_eq!(asked, Some((C, true)), "the relay asks it");
    let offsets = (0..LENGTH).step_by(NodeConfig::SEGMENT_BYTES);
    for offset in offsets.clone() {
        net.send(2, 1, DATA, &segment(0, offset));
    }
    net.run(5);
    let stats = net.node(1).stats();
    assert!(net.node(1).memory().0 > 0 && stats.refused.unsolicited == 0);
    net.fetch(3, C);
    net.run(5);
    // Since it is known as a file, the neighbour is not asked for it any more.
    for offset in offsets.clone() {
        net.send(2, 1, DATA, &segment(0, offset));
    }
    net.run(2000);
    assert!(net.has_finished(3));
    assert_eq!(net.node(3).stats().refused.damaged, 0);
    let refused = net.node(1).stats().refused;
    assert_eq!(refused.unsolicited, offsets.count() as u64);
}

/// The Interest for the content of a stream was lost, and was said again when it was asked for as a file already: the server sent that twice, and the relay refused
/// each byte of it once.
#[test]
fn a_lost_interest_of_a_stream_is_not_said_again_for_what_is_a_file_by_now() {
    let mut net = net();
    // One that an opener serves would be sought there.
    let file = other_of_stream();
    let bytes = Bytes::from(vec![6; usize::try_from(LENGTH).unwrap()]);
    net.node(0).serve(file, &secret(), Box::new(bytes));
    net.cut = Some((1, 0));
    net.say(2, 1, of_stream(file, 0));
    net.run(2);
    let asked = net.nodes[&1].hops[&NeighbourId(0)].content_of(0);
    assert_eq!(asked, Some((file, true)), "the relay has asked for it");
    net.fetch(3, file);
    net.run(1);
    net.cut = None;
    net.run(2000);
    assert!(net.has_finished(3));
    let [server, relay] = [0, 1].map(|id| net.node(id).stats());
    assert!(server.reported_lost > 0, "no Interest was lost");
    assert_eq!(relay.refused.unsolicited, 0);
    let segments = LENGTH.div_ceil(NodeConfig::SEGMENT_BYTES as u64);
    assert!(server.data_sent < segments * 5 / 4, "{server:?}");
}

const CONTENTS: usize = 100;
/// Names that are asked for in each millisecond.
const NAMES: u64 = 5;

/// A server that does not deny what it lacks, a relay with room for [`CONTENTS`], and two neighbours of it.
fn net_of_few_names() -> Net {
    let config = NodeConfig {
        contents: CONTENTS,
        ..NodeConfig::default()
    };
    let mut net = Net::new(4, &[(0, 1), (1, 2), (1, 3)], &config);
    let bytes = Bytes::from(vec![5; 4 * usize::try_from(LENGTH).unwrap()]);
    net.node(0).serve(C, &secret(), Box::new(bytes));
    net.node(0).hold_refusals(true);
    net.route(1, 0);
    net.route(3, 1);
    net
}

/// How many milliseconds a transfer takes, and the names that a neighbour asked for before and meanwhile.
fn lasts_beside_names(net: &mut Net, a_millisecond: u64) -> (u32, u64) {
    let mut names = 0;
    let mut ask = |net: &mut Net| {
        for _ in 0..a_millisecond {
            net.say(2, 1, want(numbered(names), names, 0, 100));
            names += 1;
        }
        net.run(1);
    };
    for _ in 0..100 {
        ask(net);
    }
    net.fetch(3, C);
    for millis in 1..5000 {
        ask(net);
        if net.has_finished(3) {
            return (millis, names);
        }
    }
    panic!("{:?}", net.node(3).stats());
}

#[test]
fn names_without_end_slow_no_other_down_and_are_counted_and_forgotten() {
    let (alone, _) = lasts_beside_names(&mut net_of_few_names(), 0);
    let mut net = net_of_few_names();
    let (beside, names) = lasts_beside_names(&mut net, NAMES);
    println!("{beside} ms beside {names} names, {alone} ms alone");
    assert!(beside <= alone + alone / 10 + 5, "{beside} and {alone} ms");
    net.run(10);
    let relay = net.node(1);
    assert!(relay.relayed.len() <= CONTENTS);
    let refused = relay.stats().refused.overflow;
    assert!(
        refused + CONTENTS as u64 >= names,
        "{refused} of {names} refused"
    );
    net.run(12_000);
    assert_eq!(net.node(1).pending_ranges(), 0);
    assert!(net.node(1).stats().expired > 0);
}
