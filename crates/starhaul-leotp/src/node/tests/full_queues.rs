//! Requesters of streams that are slower than what comes for them.

use std::collections::BTreeSet;

use super::*;
use crate::stream::id;

const LENGTH: u64 = 1000;
const SEGMENTS: u64 = 80;
/// Of them, the relay beside the requester has these.
const NEAR: u64 = 40;

fn segment_at(number: u64) -> Segment {
    let fill = number.to_le_bytes()[0];
    let length = usize::try_from(LENGTH).unwrap() + SEAL_BYTES;
    Segment {
        offset: number * LENGTH,
        is_end: false,
        sealed: vec![fill; length].into(),
    }
}

/// Runs for so long; adds the numbers of the segments that arrive whole at node 2.
fn arrivals(net: &mut Net, millis: u32, arrived: &mut BTreeSet<u64>) {
    for _ in 0..millis {
        net.run(1);
        for (_, _, datagram) in net.wire.iter().filter(|(_, to, _)| *to == 2) {
            if let Ok(Packet::Numbered(packet)) = wire::parse(datagram)
                && let Body::Data(data) = packet.body
            {
                let number = data.offset / LENGTH;
                assert_eq!(data.sealed, &segment_at(number).sealed[..], "{number}");
                arrived.insert(number);
            }
        }
    }
}

/// While the queue to the requester was full, the relay before it did not hear that the stream is wanted, and dropped what waited of it after 10 s.
#[test]
fn a_stream_whose_requester_is_slow_is_wanted_all_the_way() {
    let config = NodeConfig {
        queue_bytes: 20_000,
        ..NodeConfig::default()
    };
    let mut net = Net::new(3, &[(0, 1), (1, 2)], &config);
    net.route(1, 0);
    let content = id::backward([7; 8]);
    for number in 0..SEGMENTS {
        let segment = segment_at(number);
        net.node(0).cache.insert((content, true), &segment);
        if number < NEAR {
            net.node(1).cache.insert((content, true), &segment);
        }
    }
    let ask = |net: &mut Net, kbit, arrived: &BTreeSet<u64>| {
        let missing = (0..SEGMENTS).find(|number| !arrived.contains(number));
        let want = Frame::Want {
            content,
            handle: 0,
            start: missing.unwrap_or(SEGMENTS - 1) * LENGTH,
            end: SEGMENTS * LENGTH,
            is_fresh: false,
            is_live: true,
        };
        net.say(2, 1, want);
        net.say(2, 1, Frame::Flow { handle: 0, kbit });
    };
    let mut arrived = BTreeSet::new();
    let mut handle = 0;
    // The first of what is upstream leave before the relay says how slowly it takes them.
    for turn in 0..7 {
        ask(&mut net, 1, &arrived);
        arrivals(&mut net, 100, &mut arrived);
        let upstream = net.node(1).hops.get_mut(&NeighbourId(0)).unwrap();
        handle = upstream.handle_of((content, true), |_| false).unwrap();
        // Who says nothing at all has gone, and what waits for it, too.
        for _ in 0..10 {
            net.say(2, 1, Frame::Flow { handle: 0, kbit: 1 });
            net.say(1, 0, Frame::Flow { handle, kbit: 1 });
            arrivals(&mut net, 400, &mut arrived);
        }
        let up = net.node(0);
        assert!(up.stats().interests > turn, "not asked for in turn {turn}");
        let (waits, _) = up.hops[&NeighbourId(1)].queue.backlog(handle);
        assert!(turn == 0 || waits > 0, "gone in turn {turn}");
        assert!(net.node(1).stats().queue_drops > 0, "it is not full");
    }
    assert!(arrived.len() < 20, "{} arrived", arrived.len());
    // An Interest of the requester is one upstream, or two around what came meanwhile.
    assert!(net.node(0).stats().interests <= 14);
    for _ in 0..20 {
        ask(&mut net, 100_000, &arrived);
        let kbit = 100_000;
        net.say(1, 0, Frame::Flow { handle, kbit });
        arrivals(&mut net, 1000, &mut arrived);
    }
    assert_eq!(arrived, (0..SEGMENTS).collect());
}
