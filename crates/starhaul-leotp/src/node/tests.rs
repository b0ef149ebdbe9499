//! Relays among neighbours that have a key and do what no node of ours does, in virtual time: each hop takes a millisecond.

mod forgeries;
mod full_queues;
mod names;
mod stamps;
mod voids;

use super::*;
use crate::{
    NeighbourKey, RawPacket, SEAL_BYTES,
    wire::{self, Body, Packet},
};

const C: ContentId = ContentId([1; 16]);
const MS: Duration = Duration::from_millis(1);
/// What packets without data, and those with data, begin with.
const CONTROL: u8 = 0x40;
const DATA: u8 = 0x80;

/// Nodes by their numbers.
struct Net {
    now: Instant,
    nodes: BTreeMap<u32, Node>,
    /// What is on its way: sender, receiver, datagram.
    wire: Vec<(u32, u32, Vec<u8>)>,
    /// Datagrams between these are lost.
    cut: Option<(u32, u32)>,
}

impl Net {
    /// So many nodes, with these hops between them, that know each other.
    fn new(count: u32, hops: &[(u32, u32)], config: &NodeConfig) -> Self {
        let now = Instant::now();
        let nodes = (0..count).map(|id| {
            let seed = [id.to_le_bytes()[0]; 32];
            (id, Node::new(now, config.clone(), seed).unwrap())
        });
        let mut net = Self {
            now,
            nodes: nodes.collect(),
            wire: Vec::new(),
            cut: None,
        };
        for &(a, b) in hops {
            let mut key = [7; 32];
            (key[0], key[1]) = (a.to_le_bytes()[0], b.to_le_bytes()[0]);
            for (at, other) in [(a, b), (b, a)] {
                let config = NeighbourConfig {
                    key: NeighbourKey::new(&key),
                };
                let node = net.node(at);
                node.add_neighbour(now, NeighbourId(other), config).unwrap();
            }
        }
        net.run(500);
        net
    }

    fn node(&mut self, id: u32) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    /// Gives a node with one neighbour a new life.
    fn restart(&mut self, id: u32, neighbour: u32) {
        let (now, mut key) = (self.now, [7; 32]);
        (key[0], key[1]) = (id.to_le_bytes()[0], neighbour.to_le_bytes()[0]);
        let key = NeighbourKey::new(&key);
        let mut node = Node::new(now, NodeConfig::default(), [99; 32]).unwrap();
        let config = NeighbourConfig { key };
        node.add_neighbour(now, NeighbourId(neighbour), config)
            .unwrap();
        self.nodes.insert(id, node);
    }

    /// Makes `to` the upstream of `from`.
    fn route(&mut self, from: u32, to: u32) {
        let now = self.now;
        self.node(from).set_upstream(now, Some(NeighbourId(to)));
    }

    /// Runs for so many milliseconds.
    fn run(&mut self, millis: u32) {
        for _ in 0..millis {
            self.now += MS;
            for (from, to, datagram) in std::mem::take(&mut self.wire) {
                let now = self.now;
                self.node(to)
                    .handle_datagram(now, NeighbourId(from), &datagram);
            }
            for (&id, node) in &mut self.nodes {
                node.handle_timeout(self.now);
                let mut datagram = Vec::new();
                while let Some(NeighbourId(to)) = node.poll_transmit(self.now, &mut datagram) {
                    let datagram = std::mem::take(&mut datagram);
                    if self.cut != Some((id, to)) {
                        self.wire.push((id, to, datagram));
                    }
                }
            }
        }
    }

    /// What a node tells its application.
    fn events(&mut self, id: u32) -> Vec<Event> {
        let node = self.node(id);
        std::iter::from_fn(|| node.poll_event()).collect()
    }

    /// Lets a node say frames to a neighbour, whatever it is itself.
    fn say(&mut self, from: u32, to: u32, frame: Frame) {
        let node = self.node(from);
        let hop = node.hops.get_mut(&NeighbourId(to)).unwrap();
        hop.queue_frame(frame);
    }

    /// Lets a node send a packet that it would not.
    fn send(&mut self, from: u32, to: u32, flags: u8, body: &[u8]) {
        let (now, mut datagram) = (self.now, Vec::new());
        let packet = RawPacket {
            flags,
            body,
            ..RawPacket::default()
        };
        let node = self.node(from);
        assert!(node.write_raw(now, NeighbourId(to), &packet, &mut datagram));
        self.wire.push((from, to, datagram));
    }

    fn fetch(&mut self, id: u32, content: ContentId) -> FetchId {
        let (now, config) = (self.now, FetchConfig::new(content, secret()));
        self.node(id).fetch(now, config)
    }

    /// Whether a transfer of a node has finished since its application was asked last.
    fn has_finished(&mut self, id: u32) -> bool {
        let events = self.events(id).into_iter();
        events.fold(false, |is_over, event| match event {
            Event::Failed(_, why) => panic!("{why}"),
            event => is_over || matches!(event, Event::Finished(_)),
        })
    }
}

/// The body of a packet with a segment that no responder sealed.
fn segment(handle: u64, offset: u64) -> Vec<u8> {
    let mut body = Vec::new();
    crate::varint::write(handle, &mut body);
    crate::varint::write(offset, &mut body);
    body.extend([7; NodeConfig::SEGMENT_BYTES + SEAL_BYTES]);
    body
}

/// The frames of a packet.
fn frames_of(datagram: &[u8]) -> Vec<Frame> {
    let Ok(Packet::Numbered(packet)) = wire::parse(datagram) else {
        return Vec::new();
    };
    let Body::Control(mut rest) = packet.body else {
        return Vec::new();
    };
    std::iter::from_fn(|| Frame::read(&mut rest).ok()).collect()
}

/// The range of bytes of a packet with data.
fn range_of(datagram: &[u8]) -> Option<(u64, u64)> {
    let Ok(Packet::Numbered(packet)) = wire::parse(datagram) else {
        return None;
    };
    let Body::Data(data) = packet.body else {
        return None;
    };
    let length = data.sealed.len() - SEAL_BYTES;
    Some((data.offset, data.offset + length as u64))
}

fn secret() -> ContentSecret {
    ContentSecret::new(&[8; 32])
}

fn want(content: ContentId, handle: u64, start: u64, end: u64) -> Frame {
    Frame::Want {
        content,
        handle,
        start,
        end,
        is_fresh: false,
        is_live: false,
    }
}

/// The end of an empty content of another secret hid a whole content: requesters asked the cache for it until they gave up.
#[test]
fn a_wrong_segment_without_data_in_a_cache_hides_nothing() {
    let mut net = Net::new(4, &[(0, 2), (1, 2), (2, 3)], &NodeConfig::default());
    let wrong = ContentSecret::new(&[9; 32]);
    net.node(0).serve(C, &wrong, Box::new(Bytes::new()));
    net.node(1)
        .serve(C, &secret(), Box::new(Bytes::from(vec![5; 100_000])));
    net.route(2, 0);
    net.route(3, 2);
    let first = net.fetch(3, C);
    net.run(4);
    assert!(net.node(2).memory().0 > 0, "the relay keeps it");
    net.node(3).end(first);
    net.route(2, 1);
    net.events(3);
    let fetch = net.fetch(3, C);
    net.run(5000);
    let events = net.events(3);
    assert!(events.contains(&Event::Finished(fetch)), "{events:?}");
}

/// A content of zeros.
#[derive(Debug)]
struct Endless;

impl Source for Endless {
    fn length(&self) -> u64 {
        1 << 60
    }

    fn read(&mut self, _: u64, buffer: &mut [u8]) -> bool {
        buffer.fill(0);
        true
    }
}

/// One neighbour asked for a whole content, in one Interest: a neighbour that wanted another part of it waited for all that comes before.
#[test]
fn an_interest_for_all_of_a_content_stops_no_other() {
    let config = NodeConfig {
        segment_bytes: 60_000,
        ..NodeConfig::default()
    };
    let mut net = Net::new(4, &[(0, 1), (1, 2), (1, 3)], &config);
    net.node(0).serve(C, &secret(), Box::new(Endless));
    net.route(1, 0);
    net.route(3, 1);
    net.say(2, 1, want(C, 0, 0, 1 << 61));
    net.run(20);
    let (now, start) = (net.now, 1 << 50);
    let config = FetchConfig {
        start,
        ..FetchConfig::new(C, secret())
    };
    let fetch = net.node(3).fetch(now, config);
    for _ in 0..100 {
        net.run(100);
        while net.nodes.get_mut(&3).unwrap().read(now, fetch).is_some() {}
        if net.node(3).progress(fetch).unwrap().0 > start {
            break;
        }
    }
    assert!(net.node(3).progress(fetch).unwrap().0 > start, "stopped");
    assert_eq!(net.node(1).stats().refused.overflow, 1);
}

/// One packet of Interests had each segment of a content in the cache looked for as often as there are Interests in it.
#[test]
fn interests_for_all_that_is_cached_cost_little_together() {
    let mut net = Net::new(3, &[(0, 1), (1, 2)], &NodeConfig::default());
    let bytes = 12_000_000_usize;
    let content = Bytes::from(vec![5; bytes]);
    net.node(0).serve(C, &secret(), Box::new(content));
    net.route(1, 0);
    net.route(2, 1);
    let fetch = net.fetch(2, C);
    while net
        .node(2)
        .progress(fetch)
        .is_none_or(|(got, _)| got < bytes as u64)
    {
        net.run(100);
        let now = net.now;
        while net.node(2).read(now, fetch).is_some() {}
    }
    net.node(2).end(fetch);
    let (before, stats) = (net.node(1).cache.looks, net.node(1).stats());
    for _ in 0..26 {
        net.say(2, 1, want(C, 0, 0, bytes as u64));
    }
    net.run(3);
    let after = net.node(1).stats();
    assert_eq!(after.interests - stats.interests, 26);
    let looks = net.node(1).cache.looks - before;
    assert!(looks <= MOST_LOOKS + 100, "{looks}");
    assert!(after.refused.overflow > stats.refused.overflow);
    let hits = after.cache_hits - stats.cache_hits;
    assert_eq!(hits, bytes as u64, "what waits already is no hit");
}

/// The same of ranges that are waited for, for those who ask and those who say that they are late.
#[test]
fn interests_and_voids_for_all_that_is_waited_for_cost_little_together() {
    let mut net = Net::new(3, &[(0, 1), (1, 2)], &NodeConfig::default());
    net.route(1, 0);
    net.cut = Some((1, 0));
    for start in 0..40_000 {
        net.say(2, 1, want(C, 0, start * 3, start * 3 + 1));
        if start % 1000 == 0 {
            net.run(20);
        }
    }
    net.run(100);
    assert!(net.node(1).pending_ranges() > 39_000);
    let looks = |net: &mut Net| net.node(1).pending.looks.replace(0);
    looks(&mut net);
    for _ in 0..26 {
        net.say(2, 1, want(C, 0, 0, 120_000));
    }
    net.run(3);
    let looked = looks(&mut net);
    assert!((1..=2 * MOST_LOOKS).contains(&looked), "{looked}");
    for _ in 0..26 {
        let (start, end) = (0, 120_000);
        net.say(
            0,
            1,
            Frame::Void {
                handle: 0,
                start,
                end,
            },
        );
    }
    net.run(3);
    let looked = looks(&mut net);
    assert!((1..=2 * MOST_LOOKS).contains(&looked), "{looked}");
}

/// One frame took a whole content out of the cache of every relay.
#[test]
fn a_long_interest_past_caches_empties_none() {
    let mut net = Net::new(3, &[(0, 1), (1, 2)], &NodeConfig::default());
    let bytes = Bytes::from(vec![5; 200_000]);
    net.node(0).serve(C, &secret(), Box::new(bytes));
    net.route(1, 0);
    net.route(2, 1);
    let fetch = net.fetch(2, C);
    net.run(1000);
    assert_eq!(net.events(2).last(), Some(&Event::Finished(fetch)));
    let cached = net.node(1).memory().0;
    assert!(cached > 200_000);
    let past_caches = |start, end| Frame::Want {
        content: C,
        handle: 0,
        start,
        end,
        is_fresh: true,
        is_live: false,
    };
    // What is taken out is not to come again.
    net.cut = Some((1, 0));
    net.say(2, 1, past_caches(0, 1 << 61));
    net.run(5);
    assert_eq!(net.node(1).memory().0, cached);
    assert_eq!(net.node(1).stats().refused.overflow, 1);
    let most = crate::MOST_SEGMENT_BYTES as u64;
    net.say(2, 1, past_caches(0, most));
    net.run(5);
    let left = net.node(1).memory().0;
    assert!(left < cached - crate::MOST_SEGMENT_BYTES, "{left}");
    assert_eq!(net.node(1).stats().refused.overflow, 1);
}

/// What is refused is forgotten: it was looked at for each packet without data, for ten seconds.
#[test]
fn contents_that_are_refused_are_not_remembered_as_relayed() {
    let config = NodeConfig {
        contents: 100,
        ..NodeConfig::default()
    };
    let mut net = Net::new(3, &[(0, 1), (1, 2)], &config);
    net.route(1, 0);
    for number in 0..5000_u64 {
        let mut content = [3; 16];
        content[..8].copy_from_slice(&number.to_be_bytes());
        net.say(2, 1, want(ContentId(content), number, 0, 100));
        if number % 50 == 49 {
            net.run(10);
        }
    }
    assert_eq!(net.node(0).stats().refused.unknown, 5000);
    assert_eq!(net.node(1).relayed.len(), 0);
}

/// One neighbour filled the table of what is waited for with ranges that never come, and renewed them all with one Interest.
#[test]
fn a_neighbour_that_waits_for_all_leaves_room_for_others() {
    let config = NodeConfig {
        pending_ranges: 400,
        contents: 40,
        ..NodeConfig::default()
    };
    let mut net = Net::new(4, &[(0, 1), (1, 2), (1, 3)], &config);
    let bytes = Bytes::from(vec![5; 1_000_000]);
    net.node(0).serve(C, &secret(), Box::new(bytes));
    net.route(1, 0);
    net.route(3, 1);
    // Streams whose openers no node knows.
    for number in 0..100_u8 {
        let content = crate::stream::id::forward([number; 8], [2; 8]);
        for start in 0..100 {
            net.say(
                2,
                1,
                Frame::Want {
                    content,
                    handle: number.into(),
                    start: start * 2,
                    end: start * 2 + 1,
                    is_fresh: false,
                    is_live: true,
                },
            );
        }
        net.run(10);
    }
    let fetch = net.fetch(3, C);
    net.run(2000);
    let events = net.events(3);
    assert_eq!(events.last(), Some(&Event::Finished(fetch)), "{events:?}");
    let stats = net.node(1).stats();
    assert!(stats.refused.overflow > 0 && net.node(1).pending_ranges() <= 400);
}

/// A slow neighbour repeated what it had asked for, so that the others' rates did not count for the content any more.
#[test]
fn who_asks_again_takes_no_other_out_of_the_rate() {
    let mut net = Net::new(4, &[(0, 1), (1, 2), (1, 3)], &NodeConfig::default());
    net.node(0).serve(C, &secret(), Box::new(Endless));
    net.route(1, 0);
    net.cut = Some((0, 1));
    let most = 32 * NodeConfig::SEGMENT_BYTES as u64;
    net.say(2, 1, want(C, 0, 0, most));
    net.run(2);
    for _ in 0..20 {
        for number in 0..3 {
            net.say(3, 1, want(C, 0, most * number, most * (number + 1)));
        }
        net.run(10);
    }
    let relayed = &net.nodes[&1].relayed[&C];
    let fast = relayed.fast_askers(NodeConfig::SEGMENT_BYTES);
    assert_eq!(fast.map(|asker| asker.id.0).collect::<Vec<_>>(), [2, 3]);
}

/// One Interest for all of a stream that never ends made the relay look at each part of it when its neighbour upstream began a new life.
#[test]
fn a_live_interest_without_end_costs_a_new_life_of_the_upstream_nothing() {
    let mut net = Net::new(3, &[(0, 1), (1, 2)], &NodeConfig::default());
    net.route(1, 0);
    net.cut = Some((1, 0));
    let mut all = want(crate::stream::id::backward([4; 8]), 0, 0, 1 << 44);
    if let Frame::Want { is_live, .. } = &mut all {
        *is_live = true;
    }
    net.say(2, 1, all);
    net.run(10);
    assert_eq!(net.node(1).pending_ranges(), 1);
    net.cut = None;
    net.restart(0, 1);
    net.run(1000);
    assert!(net.node(1).has_met(NeighbourId(0)));
    let stats = net.node(1).stats();
    assert_eq!((stats.frame_drops, stats.refused.overflow), (0, 1));
}

/// Relays that ask each other: what a requester asked for twice went round for ever, and was never forgotten.
#[test]
fn what_goes_round_in_a_ring_of_relays_ends_soon() {
    let mut hops: Vec<(u32, u32)> = (0..8).map(|at| (at, (at + 1) % 8)).collect();
    hops.push((8, 0));
    let mut net = Net::new(9, &hops, &NodeConfig::default());
    for (from, to) in hops {
        net.route(from, to);
    }
    let fetch = net.fetch(8, C);
    net.run(3000);
    assert!(net.node(0).pending_ranges() > 0);
    net.node(8).end(fetch);
    net.run(1000);
    let before = net.node(0).stats().interests;
    net.run(5000);
    let after = net.node(0).stats().interests;
    assert_eq!(after, before, "Interests go round");
    net.run(8000);
    for id in 0..8 {
        assert_eq!(net.node(id).pending_ranges(), 0, "at {id}");
    }
}

/// A server that restarts, and has not read all its files again, ended the transfers of the others.
#[test]
fn what_may_be_served_soon_is_not_refused() {
    let mut net = Net::new(2, &[(0, 1)], &NodeConfig::default());
    net.route(1, 0);
    net.node(0).hold_refusals(true);
    let fetch = net.fetch(1, C);
    net.run(1500);
    let content = Bytes::from(vec![5; 10_000]);
    net.node(0).serve(C, &secret(), Box::new(content));
    net.run(5000);
    let events = net.events(1);
    assert_eq!(events.last(), Some(&Event::Finished(fetch)), "{events:?}");
    net.node(0).hold_refusals(false);
    let other = net.fetch(1, numbered(1));
    net.run(100);
    let refused = Event::Failed(other, Failure::Refused);
    assert_eq!(net.events(1), [refused]);
}

/// The content of this number.
fn numbered(number: u64) -> ContentId {
    let mut content = [3; 16];
    content[..8].copy_from_slice(&number.to_be_bytes());
    ContentId(content)
}

/// A name for which there was no room took a number all the same, for which those of others were gone through.
#[test]
fn names_without_room_take_no_number() {
    let config = NodeConfig {
        contents: 100,
        ..NodeConfig::default()
    };
    let mut net = Net::new(3, &[(0, 1), (1, 2)], &config);
    net.route(1, 0);
    net.cut = Some((1, 0));
    for number in 0..500 {
        net.say(2, 1, want(numbered(number), number, 0, 100));
        if number % 50 == 49 {
            net.run(2);
        }
    }
    let given = net.nodes[&1].hops[&NeighbourId(0)].handles_given();
    assert_eq!(given, 75);
}

/// For each control packet the rates of all contents were found: who asked for many names kept a relay busy with them.
#[test]
fn many_names_of_which_nothing_comes_cost_a_relay_little() {
    let mut net = Net::new(3, &[(0, 1), (1, 2)], &NodeConfig::default());
    net.route(1, 0);
    net.cut = Some((1, 0));
    for number in 0..2000 {
        net.say(2, 1, want(numbered(number), number, 0, 100));
        if number % 50 == 49 {
            net.run(2);
        }
    }
    net.run(10);
    assert_eq!(net.node(1).relayed.len(), 2000);
    net.node(1).rates_found.set(0);
    for number in 100..600 {
        net.say(2, 1, want(numbered(0), 0, number * 10, number * 10 + 5));
        net.run(1);
    }
    // All of them each 20 ms.
    let found = net.node(1).rates_found.get();
    assert!((1000..100_000).contains(&found), "{found}");
}

/// For each packet that came or left, the rate of its content was found, though the next report would leave no sooner for it.
#[test]
fn while_a_report_is_due_no_packet_has_rates_found() {
    let mut net = Net::new(3, &[(0, 1), (1, 2)], &NodeConfig::default());
    net.node(0).serve(C, &secret(), Box::new(Endless));
    net.route(1, 0);
    net.route(2, 1);
    net.fetch(2, C);
    let mut data = Vec::new();
    for _ in 0..1000 {
        net.run(1);
        let is_data = |(from, to, datagram): &(u32, u32, Vec<u8>)| {
            (*from, *to) == (0, 1) && datagram.len() > 1000
        };
        let (held, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut net.wire).into_iter().partition(is_data);
        net.wire = rest;
        data.extend(held);
        if data.len() >= 5 {
            break;
        }
    }
    assert!(data.len() >= 5);
    let (now, up) = (net.now + MS, NeighbourId(0));
    let node = net.node(1);
    node.hops.get_mut(&up).unwrap().send_control_by(now);
    node.rates_found.set(0);
    let before = node.stats().data_received;
    for (.., datagram) in &data {
        assert!(node.handle_datagram(now, up, datagram));
    }
    assert_eq!(node.stats().data_received - before, data.len() as u64);
    assert_eq!(node.rates_found.get(), 0);
    // The report tells what is so then.
    while node.poll_transmit(now, &mut Vec::new()).is_some() {}
    assert!(node.rates_found.get() > 0);
}
