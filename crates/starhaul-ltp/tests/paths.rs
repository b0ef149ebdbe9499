//! Light time, loss, outages and rates with the computed defaults.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use pair::{
    Kind, LtpNode, Pair, RECEIVER, SENDER, SERVICE, content,
    direct::{converse, delivered, engine, output},
    lose,
};
use starhaul_ltp::{Coding, Error, Event, LinkState, Outgoing, PeerConfig, RepairRate, SessionId};
use starhaul_units::Bandwidth;

/// Blocks of random size arrive byte for byte at every light time and loss, and nothing is left of any session.
#[test]
fn blocks_arrive_at_any_light_time_and_loss() {
    for (light, unknown) in [(0, false), (1, false), (4, false), (4, true), (600, false)] {
        for loss in [0, 1, 5, 10, 20] {
            let known = Duration::from_secs(if unknown { 0 } else { light });
            let config = PeerConfig::new(known, Some(Bandwidth::from_mbit(50)));
            let link = format!("rate=60mbit,delay={light}s,loss={loss}%,queue=100000p");
            let mut pair = Pair::new(light * 100 + loss, &config, &link, &link);
            let blocks: Vec<_> = (1..8)
                .map(|i| content(i * i * 20_000 + 1, loss + i as u64))
                .collect();
            for block in &blocks {
                pair.send(block, block.len());
            }
            pair.finish();
            let mut delivered = pair.receiver().delivered();
            delivered.sort_by_key(bytes::Bytes::len);
            assert_eq!(delivered, blocks, "light time {light} s, loss {loss} %");
            let sent = pair.sender().happened();
            let sent = sent
                .iter()
                .filter(|event| matches!(event, Event::Sent { .. }));
            assert_eq!(sent.count(), blocks.len());
        }
    }
}

/// An application that puts a header before a large buffer need not copy that. The segments on the wire are the same.
#[test]
fn a_block_in_two_pieces_arrives_in_the_segments_of_one() {
    let (seed, block) = (7, content(300_000, 3));
    for coding in [None, Some(Coding::new(0.02))] {
        for loss in [0, 10] {
            let mut config =
                PeerConfig::new(Duration::from_secs(1), Some(Bandwidth::from_mbit(50)));
            config.coding = coding;
            let link = format!("rate=60mbit,delay=1s,loss={loss}%,queue=100000p");
            let segments = [0, 1, 200, 1360, 5000, 299_999, 300_000].map(|cut| {
                let mut pair = Pair::new(seed, &config, &link, &link);
                let now = pair.sim.now();
                let outgoing = Outgoing {
                    to: RECEIVER,
                    service: SERVICE,
                    block: block.slice(..cut),
                    red: block.len() as u64,
                };
                let engine = &mut pair.sender().engine;
                // Nor does it tell whether the checksum was known.
                let checksum = (cut > 200).then(|| crc32c::crc32c(&block));
                engine
                    .send_with(now, outgoing, block.slice(cut..), checksum)
                    .unwrap();
                pair.finish();
                let arrived = pair.receiver().delivered() == [block.clone()];
                assert!(arrived, "cut at {cut}, loss {loss} %, seed {seed}");
                pair.sender().engine.stats().data_segments_sent
            });
            let [whole, ..] = segments;
            assert_eq!(segments, [whole; 7], "loss {loss} %, seed {seed}");
        }
    }
}

/// A contact during which blocks of 1 MB are offered without end.
#[derive(Clone, Copy, Debug)]
struct Contact {
    mbit: u64,
    /// In seconds.
    light: u64,
    /// In percent, either way.
    loss: u64,
    /// What repair segments make up for, in percent.
    repair: Option<u64>,
}

impl Contact {
    fn new(mbit: u64, light: u64, loss: u64) -> Self {
        Self {
            mbit,
            light,
            loss,
            repair: None,
        }
    }

    fn pair(&self) -> Pair {
        let Self {
            mbit, light, loss, ..
        } = *self;
        let rate = Bandwidth::from_mbit(mbit);
        let mut config = PeerConfig::new(Duration::from_secs(light), Some(rate));
        let share = |percent: u64| RepairRate::Fixed(percent as f64 / 100.0);
        config.set_repair(self.repair.map(share));
        let back = format!("delay={light}s,loss={loss}%");
        let forward = format!("rate={mbit}mbit,{back},queue=100p");
        let mut pair = Pair::new(light + loss, &config, &forward, &back);
        for node in &mut pair.sim.nodes {
            node.keeps_log = false;
        }
        pair
    }

    /// The share of the link's rate used in a span of the contact, in seconds, and how many segments the receiver had no room for.
    fn used(&self, from: u64, to: u64) -> (f64, u64) {
        let rate = Bandwidth::from_mbit(self.mbit);
        let mut pair = self.pair();
        // All blocks share their bytes.
        let block = content(1_000_000, 7);
        // What fills the link while the sender waits for reports, repairs and their reports, or until all is over.
        let waits = (4 * 2 * self.light).min(to);
        let offered = 2_000_000 + rate.bytes_in(Duration::from_secs(waits + 1));
        let mut passed = [0; 2];
        for (bytes, until) in passed.iter_mut().zip([from, to]) {
            let until = pair.start + Duration::from_secs(until);
            pair.sim.run_until(until, |sim| {
                let now = sim.now();
                let node = &mut sim.nodes[0];
                while node.engine.send_bytes() < offered {
                    let block = block.clone();
                    let outgoing = Outgoing {
                        to: RECEIVER,
                        service: SERVICE,
                        red: block.len() as u64,
                        block,
                    };
                    match node.engine.send(now, outgoing) {
                        Ok(_) => {}
                        Err(Error::Full { .. }) => break,
                        Err(error) => panic!("{self:?}: {error}"),
                    }
                }
                sim.nodes[1].events.clear();
                Some(now + Duration::from_millis(100))
            });
            let stats = pair.sim.network[pair.path.forward].stats();
            assert_eq!(stats.dropped_queue, 0, "{self:?}: faster than the link");
            *bytes = stats.enqueued_bytes;
        }
        let used = passed[1] - passed[0];
        let used = Bandwidth::from_bytes_over(used, Duration::from_secs(to - from));
        let no_room = pair.receiver().engine.stats().dropped.no_room;
        (used.mbit() / rate.mbit(), no_room)
    }
}

/// What became of blocks of 1 MB of which one always waited to leave, for some round trips.
#[derive(Debug, Default)]
struct Flow {
    /// The share of the link's rate that was used in each round trip.
    used: Vec<f64>,
    /// When all of a block had left, and when it was there.
    left: BTreeMap<SessionId, Instant>,
    arrived: BTreeMap<SessionId, Instant>,
}

impl Flow {
    /// Takes what the engines told; each block arrives once, as it was sent.
    fn note(&mut self, nodes: &mut [LtpNode], sent: &Bytes) {
        let told = nodes
            .iter_mut()
            .map(|node| std::mem::take(&mut node.events));
        for (at, event) in told.flatten() {
            match event {
                Event::Transmitted { session } => {
                    self.left.insert(session, at);
                }
                Event::RedPart { session, block, .. } => {
                    assert!(block.into_bytes() == *sent, "{session} is another");
                    let before = self.arrived.insert(session, at);
                    assert_eq!(before, None, "{session} came twice");
                }
                event @ (Event::SendCancelled { .. } | Event::ReceiveCancelled { .. }) => {
                    panic!("{event:?}")
                }
                _ => {}
            }
        }
    }

    /// How many blocks were there later than this after they had left.
    fn later_than(&self, time: Duration) -> usize {
        let late = |(session, left): &(&SessionId, &Instant)| {
            let arrived = self.arrived.get(*session);
            arrived.is_none_or(|at| at.saturating_duration_since(**left) > time)
        };
        self.left.iter().filter(late).count()
    }
}

impl Contact {
    /// Offers blocks for so many round trips, and waits until all of them are there; the engines afterwards, too.
    fn flow(&self, round_trips: u32) -> (Flow, Pair) {
        let round_trip = Duration::from_secs(2 * self.light);
        let (mut pair, block) = (self.pair(), content(1_000_000, 7));
        let (mut flow, mut offered, mut passed) = (Flow::default(), 0, 0);
        for number in 1..=round_trips {
            let until = pair.start + round_trip * number;
            pair.sim.run_until(until, |sim| {
                let now = sim.now();
                flow.note(&mut sim.nodes, &block);
                while offered < flow.left.len() + 2 {
                    let outgoing = Outgoing {
                        to: RECEIVER,
                        service: SERVICE,
                        red: block.len() as u64,
                        block: block.clone(),
                    };
                    sim.nodes[0].engine.send(now, outgoing).unwrap();
                    offered += 1;
                }
                Some(now + Duration::from_millis(100))
            });
            let stats = pair.sim.network[pair.path.forward].stats();
            assert_eq!(stats.dropped_queue, 0, "{self:?}: faster than the link");
            let used = Bandwidth::from_bytes_over(stats.enqueued_bytes - passed, round_trip);
            flow.used
                .push(used.mbit() / Bandwidth::from_mbit(self.mbit).mbit());
            passed = stats.enqueued_bytes;
        }
        pair.finish();
        flow.note(&mut pair.sim.nodes, &block);
        assert_eq!(flow.arrived.len(), offered, "{self:?}");
        (flow, pair)
    }
}

/// Ten minutes away nothing arrives in the first minute. Whether it is lost does not matter then, and what is lost is not held: of the
/// receiver's room it says nothing.
const NOTHING_ARRIVES: u64 = 100;

#[test]
fn the_link_is_full_from_the_first_minute_of_a_contact() {
    for light in [0, 1, 4, 600] {
        for loss in [0, 10] {
            let (share, _) = Contact::new(20, light, loss).used(0, 60);
            assert!(share > 0.9, "light time {light} s, loss {loss} %: {share}");
        }
    }
    // Later, too, when repairs and new data share it.
    assert!(Contact::new(20, 4, 10).used(60, 120).0 > 0.9);
}

/// With computed defaults: near by while repairs and new data share the link, and far away.
#[test]
fn a_link_of_a_gigabit_is_full_as_well() {
    for (light, loss, lasts) in [(0, 10, 4), (600, NOTHING_ARRIVES, 10)] {
        let contact = Contact::new(1000, light, loss);
        let (share, no_room) = contact.used(0, lasts);
        assert!(share > 0.9, "{contact:?}: {share}");
        if loss < NOTHING_ARRIVES {
            assert_eq!(no_room, 0, "{contact:?}");
        }
    }
}

/// All of it with computed defaults. The receiver of the longest run holds some gigabytes: what is incomplete until it is repaired.
#[test]
#[ignore = "it takes a minute, and gigabytes of memory: STARHAUL_CI_LONG=1 .ci/run"]
fn a_gigabit_is_full_from_the_first_minute_of_a_contact() {
    let near = [0, 1, 4].map(|light| [(light, 0), (light, 10)]);
    let far = [(600, NOTHING_ARRIVES)];
    for (light, loss) in near.into_iter().flatten().chain(far) {
        let contact = Contact::new(1000, light, loss);
        let (share, no_room) = contact.used(0, 60);
        println!(
            "light time {light} s, loss {loss} %: {:.1} % of the link used; without room: {no_room} segments",
            100.0 * share
        );
        assert!(share > 0.9, "{contact:?}: {share}");
        if loss < NOTHING_ARRIVES {
            assert_eq!(no_room, 0, "{contact:?}");
        }
    }
}

/// Ten minutes away, at a rate at which what is incomplete finds room by the computed defaults: from the second round trip on repairs share the
/// link with new data.
#[test]
#[ignore = "it takes minutes, and half a gigabyte of memory: STARHAUL_CI_LONG=1 .ci/run"]
fn ten_minutes_away_the_link_stays_full_for_three_round_trips() {
    for (loss, repair) in [0_u64, 5, 10]
        .map(|loss| [(loss, None), (loss, Some(loss.max(1)))])
        .concat()
    {
        let contact = Contact {
            repair,
            ..Contact::new(1, 600, loss)
        };
        let (flow, mut pair) = contact.flow(3);
        let (blocks, late) = (flow.left.len(), flow.later_than(Duration::from_secs(601)));
        let stats = pair.sender().engine.stats();
        let again = stats.data_segments_resent as f64 / stats.data_segments_sent as f64;
        let no_room = pair.receiver().engine.stats().dropped.no_room;
        println!(
            "{contact:?}: {:.3?} of the link used; {blocks} blocks, {late} of them later than a light time; {:.2} % sent again",
            flow.used,
            100.0 * again
        );
        assert!(
            flow.used.iter().all(|used| *used > 0.9),
            "{contact:?}: {:?}",
            flow.used
        );
        assert_eq!(no_room, 0, "{contact:?}");
        match repair {
            // Of a thousand, one: three of some hundreds come hardly ever.
            Some(_) => assert!(
                late * 100 <= blocks,
                "{contact:?}: {late} of {blocks} blocks"
            ),
            // What was lost is sent again, and hardly anything else.
            None => assert!(again <= loss as f64 / 100.0 + 0.01, "{contact:?}: {again}"),
        }
    }
}

#[test]
fn timers_stand_still_while_the_contact_plan_says_that_nobody_transmits() {
    let light = Duration::from_secs(60);
    let mut config = PeerConfig::new(light, None);
    config.retransmission_limit = 2;
    let mut pair = Pair::new(9, &config, "delay=60s,loss=5%", "delay=60s,loss=5%");
    let block = content(200_000, 1);
    pair.send(&block, block.len());
    let hour = Duration::from_secs(3600);
    // Each contact is too short for a report to come back within it.
    for _ in 0..60 {
        for (is_up, time) in [(true, Duration::from_secs(90)), (false, hour * 5)] {
            let state = LinkState {
                may_transmit: is_up,
                peer_transmits: is_up,
            };
            let now = pair.sim.now();
            pair.sender().engine.set_link(now, RECEIVER, state);
            pair.receiver().engine.set_link(now, SENDER, state);
            let before: usize = pair.sim.nodes.iter().map(|node| node.sent.len()).sum();
            pair.sim.run_for(time);
            let after: usize = pair.sim.nodes.iter().map(|node| node.sent.len()).sum();
            assert!(is_up || before == after, "sent during an outage");
        }
    }
    let now = pair.sim.now();
    let up = LinkState {
        may_transmit: true,
        peer_transmits: true,
    };
    pair.sender().engine.set_link(now, RECEIVER, up);
    pair.receiver().engine.set_link(now, SENDER, up);
    pair.finish();
    assert_eq!(pair.receiver().delivered(), [block]);
    assert!(matches!(
        pair.sender().happened().last(),
        Some(Event::Sent { .. })
    ));
    // Hundreds of timeouts passed in the outages; the few attempts there are answer losses.
    assert!(pair.sender().count(Kind::RedEnd) <= 3);
}

/// A light time that the configuration does not state is learnt with the first report, so that later checkpoints are sent once.
#[test]
fn an_unknown_light_time_costs_repetitions_once() {
    let config = PeerConfig::new(Duration::ZERO, None);
    let link = "rate=200mbit,delay=300ms,queue=100000p";
    let mut pair = Pair::new(3, &config, link, link);
    for number in 0..30 {
        let block = content(50_000, number);
        pair.send(&block, block.len());
        pair.sim.run_for(Duration::from_secs(1));
    }
    pair.finish();
    assert_eq!(pair.receiver().delivered().len(), 30);
    let resent = pair.sender().engine.stats().data_segments_resent;
    assert!(resent <= 4, "{resent} checkpoints were sent again");
}

/// Below 100 kbit/s a segment and its report take longer to leave than the margin for processing.
#[test]
fn over_a_slow_link_checkpoints_are_sent_once() {
    for kbit in [16, 64] {
        let config = PeerConfig::new(Duration::from_secs(1), Some(Bandwidth::from_kbit(kbit)));
        let link = format!("rate={kbit}kbit,delay=1s,queue=100000p");
        let mut pair = Pair::new(4, &config, &link, &link);
        for number in 0..10 {
            let block = content(1300, number);
            pair.send(&block, block.len());
        }
        pair.finish();
        assert_eq!(pair.receiver().delivered().len(), 10);
        let resent = pair.sender().engine.stats().data_segments_resent;
        assert_eq!(resent, 0, "{kbit} kbit/s");
    }
}

/// The way back opens hours after the way there has closed.
#[test]
fn reports_wait_for_a_contact_of_their_own() {
    let config = PeerConfig::new(Duration::from_secs(1), None);
    let mut pair = Pair::new(6, &config, "delay=1s", "delay=1s");
    let links = |pair: &mut Pair, forward: bool, back: bool| {
        let now = pair.sim.now();
        let of = |may_transmit, peer_transmits| LinkState {
            may_transmit,
            peer_transmits,
        };
        pair.sender()
            .engine
            .set_link(now, RECEIVER, of(forward, back));
        pair.receiver()
            .engine
            .set_link(now, SENDER, of(back, forward));
    };
    links(&mut pair, true, false);
    let block = content(200_000, 1);
    pair.send(&block, block.len());
    pair.sim.run_for(Duration::from_secs(900));
    assert_eq!(pair.receiver().delivered().len(), 1);
    links(&mut pair, false, false);
    pair.sim.run_for(Duration::from_secs(3600));
    links(&mut pair, false, true);
    pair.sim.run_for(Duration::from_secs(60));
    assert!(matches!(
        pair.sender().happened().last(),
        Some(Event::Sent { .. })
    ));
    links(&mut pair, true, true);
    pair.finish();
    assert_eq!(pair.receiver().delivered(), [block]);
}

/// Two minutes until an answer are longer than an engine tries a near peer: it tries longer while it does not know where a peer is.
#[test]
fn a_minute_of_light_time_is_learnt_at_either_end() {
    let light = Duration::from_secs(60);
    let mut blind = PeerConfig::new(Duration::ZERO, None);
    blind.blind_doublings = 8;
    for sender in [PeerConfig::new(light, None), blind.clone()] {
        let mut pair = Pair::new(8, &sender, "delay=60s", "delay=60s");
        let now = pair.sim.now();
        pair.receiver().engine = engine(RECEIVER, 9, &[SENDER], &blind, now);
        pair.sender().passes = lose(Kind::Red, 1);
        let blocks = [content(20_000, 1), content(30_000, 2)];
        let mut reports = Vec::new();
        for block in &blocks {
            pair.send(block, block.len());
            pair.finish();
            reports.push(pair.receiver().count(Kind::Report));
        }
        assert_eq!(pair.receiver().delivered(), blocks);
        let sent = pair.sender().happened();
        let sent = sent
            .iter()
            .filter(|event| matches!(event, Event::Sent { .. }));
        assert_eq!(sent.count(), 2);
        // The second block needs no repetition: the receiver has learnt from the acknowledgements of its reports.
        let second = reports[1] - reports[0];
        assert!(second <= 2, "{second} reports on a block without losses");
    }
}

/// A segment takes 0.7 s, after which the receiver must not take the block for ended.
#[test]
fn green_data_over_a_slow_link_all_arrive() {
    let config = PeerConfig::new(Duration::ZERO, None);
    let forward = "rate=16kbit,delay=1ms,queue=100000p";
    let mut pair = Pair::new(7, &config, forward, "delay=1ms");
    pair.send(&content(20_000, 1), 0);
    pair.finish();
    let green = pair.receiver().green();
    let green: usize = green.iter().map(|(_, data)| data.len()).sum();
    assert_eq!(green, 20_000);
}

/// A rate of nothing is none: sending neither stops nor goes unlimited.
#[test]
fn with_a_rate_of_zero_reports_limit_what_is_under_way() {
    let config = PeerConfig::new(Duration::ZERO, Some(Bandwidth::ZERO));
    let mut pair = Pair::new(7, &config, "delay=1s", "delay=1s");
    let block = content(20_000_000, 1);
    pair.send(&block, block.len());
    pair.sim.run_for(Duration::from_millis(500));
    let sent = pair.sender().engine.stats().data_segments_sent * 1360;
    assert!((8_000_000..10_000_000).contains(&sent), "{sent} bytes");
    pair.finish();
    assert_eq!(pair.receiver().delivered(), [block]);
}

/// A checkpoint that overtakes data is answered without them. The last segment makes the block complete, and its report tells of them, too:
/// once its reports are acknowledged the receiver is done, and answers no repair.
#[test]
fn data_that_their_checkpoint_overtook_are_reported_with_the_last() {
    let now = Instant::now();
    let mut config = PeerConfig::new(Duration::from_secs(4), None);
    config.checkpoint_every = Some(5);
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
    let mut receiver = engine(RECEIVER, 2, &[SENDER], &config, now);
    let block = content(20_000, 3);
    let outgoing = Outgoing {
        to: RECEIVER,
        service: SERVICE,
        block: block.clone(),
        red: block.len() as u64,
    };
    let session = sender.send(now, outgoing).unwrap();
    let mut segments = output(&mut sender, now);
    let last = segments.pop().unwrap();
    segments.rotate_left(4);
    segments.push(last);
    for segment in &segments {
        receiver.handle_datagrams(now, SENDER, segment, segment.len());
    }
    converse(&mut sender, &mut receiver, now);
    let events: Vec<Event> = std::iter::from_fn(|| sender.poll_event()).collect();
    let expected = [Event::Transmitted { session }, Event::Sent { session }];
    assert_eq!(events, expected);
    assert_eq!(delivered(&mut receiver), [block]);
    assert_eq!((sender.sessions(), receiver.sessions()), ((0, 0), (0, 0)));
}
