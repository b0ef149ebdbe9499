//! Where neighbours are taken to be, whatever is replayed, held back or sent in floods.

use std::collections::VecDeque;

use starhaul_cc::{Detector, DetectorConfig, ProbeTarget, Reconfiguration};
use starhaul_leotp::{NeighbourConfig, NeighbourKey, NodeConfig};

use super::*;
use crate::prober::ProberEvent;

const PEER: NeighbourId = NeighbourId(1);

fn node(now: Instant, seed: u8) -> Node {
    let key = NeighbourKey::new(&[7; 32]);
    let mut node = Node::new(now, NodeConfig::default(), [seed; 32]).unwrap();
    node.add_neighbour(now, PEER, NeighbourConfig { key })
        .unwrap();
    node
}

fn drain(now: Instant, node: &mut Node) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut datagram = Vec::new();
    while node.poll_transmit(now, &mut datagram).is_some() {
        all.push(std::mem::take(&mut datagram));
    }
    all
}

#[test]
fn a_neighbour_moves_by_what_only_it_can_send_now() {
    let mut now = Instant::now();
    let (mut far, mut place) = (node(now, 1), Place::new(node(now, 2), Vec::new(), false));
    place.set_way(PEER, None);
    let [first, second, attacker] = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let mut recorded = Vec::new();
    for _ in 0..100 {
        now += Duration::from_millis(20);
        for datagram in drain(now, &mut far) {
            place.take((now, now), (first, None), &datagram);
            recorded.push(datagram);
        }
        for datagram in drain(now, &mut place.node) {
            far.handle_datagram(now, PEER, &datagram);
        }
    }
    assert!(place.node.has_met(PEER) && far.has_met(PEER));
    assert_eq!(address(&place), Some(first));
    for datagram in &recorded {
        place.take((now, now), (attacker, None), datagram);
    }
    place.take((now, now), (attacker, None), b"no packet");
    assert_eq!(address(&place), Some(first), "a replay moved it");
    // A packet that asks for data is new.
    let secret = starhaul_leotp::ContentSecret::new(&[3; 32]);
    let content = secret.id_of_name("any");
    far.set_upstream(now, Some(PEER));
    far.fetch(now, starhaul_leotp::FetchConfig::new(content, secret));
    for datagram in drain(now, &mut far) {
        place.take((now, now), (second, None), &datagram);
    }
    assert_eq!(address(&place), Some(second));
}

/// Two nodes that know each other, the second one at its place, where the first was heard at `from`.
fn met(now: &mut Instant, from: SocketAddr) -> (Node, Place) {
    let (mut far, mut place) = (node(*now, 1), Place::new(node(*now, 2), Vec::new(), false));
    place.set_way(PEER, None);
    for _ in 0..100 {
        *now += Duration::from_millis(20);
        for datagram in drain(*now, &mut far) {
            place.take((*now, *now), (from, None), &datagram);
        }
        for datagram in drain(*now, &mut place.node) {
            far.handle_datagram(*now, PEER, &datagram);
        }
    }
    assert!(place.node.has_met(PEER) && far.has_met(PEER));
    far.set_upstream(*now, Some(PEER));
    (far, place)
}

/// A packet of a node that is new to its neighbour.
fn new_packet(now: Instant, node: &mut Node, name: &str) -> Vec<u8> {
    let secret = starhaul_leotp::ContentSecret::new(&[3; 32]);
    let content = secret.id_of_name(name);
    node.fetch(now, starhaul_leotp::FetchConfig::new(content, secret));
    drain(now, node).remove(0)
}

fn address(place: &Place) -> Option<SocketAddr> {
    place.neighbours[&PEER].way.map(|way| way.to)
}

#[test]
fn a_neighbour_is_sought_where_its_name_says_unless_it_is_heard_or_has_moved_on_from_there() {
    let mut now = Instant::now();
    let [home, other, moved] = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let (mut far, mut place) = met(&mut now, home);
    // Each neighbour has the address of the answer that came first, until there is another.
    place.take_answer(now, PEER, vec![other, home]);
    assert_eq!(address(&place), Some(home), "one of its own is as good");
    place.take_answer(now, PEER, vec![other]);
    assert_eq!(address(&place), Some(home), "it is heard there");
    now += SILENT;
    place.take_answer(now, PEER, vec![home, other]);
    assert_eq!(address(&place), Some(home));
    place.take_answer(now, PEER, vec![other]);
    assert_eq!(address(&place), Some(other), "it is where its name says");
    let packet = new_packet(now, &mut far, "first");
    place.take((now, now), (moved, None), &packet);
    assert_eq!(address(&place), Some(moved));
    now += SILENT;
    place.take_answer(now, PEER, vec![other]);
    assert_eq!(address(&place), Some(moved), "its name is as it was");
}

#[test]
fn a_neighbour_without_an_address_has_that_of_its_name() {
    let now = Instant::now();
    let mut place = Place::new(node(now, 1), Vec::new(), false);
    place.set_way(PEER, None);
    let home = SocketAddr::from(([127, 0, 0, 1], 1));
    place.take_answer(now, PEER, vec![home]);
    assert_eq!(address(&place), Some(home));
    assert_eq!(place.by_address.get(&home), Some(&PEER));
}

#[test]
fn a_packet_that_was_held_back_moves_no_neighbour() {
    let mut now = Instant::now();
    let [home, attacker] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let (mut far, mut place) = met(&mut now, home);
    let held_back = new_packet(now, &mut far, "first");
    let next = new_packet(now, &mut far, "second");
    place.take((now, now), (home, None), &next);
    now += Duration::from_secs(30);
    let before = place.node.stats();
    place.take((now, now), (attacker, None), &held_back);
    assert_eq!(address(&place), Some(home));
    assert!(place.neighbours[&PEER].unproven.is_empty());
    let taken = place.node.stats().interests - before.interests;
    assert!(taken > 0, "one that is overtaken while it moves is taken");
}

#[test]
fn a_flood_keeps_no_neighbour_from_where_it_was() {
    let mut now = Instant::now();
    let [home, attacker, others] = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let (mut far, mut place) = met(&mut now, home);
    let overtaken = new_packet(now, &mut far, "first");
    place.take((now, now), (attacker, None), &overtaken);
    assert_eq!(address(&place), Some(attacker));
    now += Duration::from_secs(2);
    let before = place.compared;
    for _ in 0..2 * MOST_COMPARED {
        place.take((now, now), (others, None), b"no packet");
    }
    assert_eq!(place.compared, before, "what is no packet is not compared");
    for _ in 0..2 * MOST_COMPARED {
        place.take((now, now), (others, None), &overtaken);
    }
    let next = new_packet(now, &mut far, "second");
    place.take((now, now), (home, None), &next);
    assert_eq!(address(&place), Some(home));
}

#[test]
fn a_replayed_hello_changes_no_source() {
    let now = Instant::now();
    let server: IpAddr = [192, 0, 2, 1].into();
    let mut far = node(now, 1);
    let mut place = Place::new(node(now, 2), vec![server], false);
    place.set_way(PEER, None);
    let from = SocketAddr::from(([127, 0, 0, 1], 1));
    let mut recorded = Vec::new();
    let mut now = now;
    for _ in 0..100 {
        now += Duration::from_millis(20);
        for datagram in drain(now, &mut far) {
            place.take((now, now), (from, Some(server)), &datagram);
            recorded.push(datagram);
        }
        for datagram in drain(now, &mut place.node) {
            far.handle_datagram(now, PEER, &datagram);
        }
    }
    let source = |place: &Place| place.neighbours[&PEER].way.and_then(|way| way.from);
    assert_eq!(source(&place), Some(server));
    for datagram in &recorded {
        place.take((now, now), (from, Some([10, 0, 0, 1].into())), datagram);
    }
    assert_eq!(source(&place), Some(server), "a replay changed it");
}

/// One replayed hello had all hellos go to its sender for good: a server that began a new life and knows no addresses was never asked again.
#[test]
fn a_replayed_hello_keeps_no_hello_from_where_the_neighbour_is() {
    let mut now = Instant::now();
    let [home, attacker] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let hello = drain(now, &mut node(now, 1)).remove(0);
    assert!(is_hello(&hello));
    let (_, mut place) = met(&mut now, home);
    let [mut at_home, mut elsewhere] = [0, 0];
    // The neighbour is gone, and may be back: it is greeted since it is asked.
    for _ in 0..10 {
        place.take((now, now), (attacker, None), &hello);
        for _ in 0..50 {
            now += Duration::from_millis(20);
            place.node.handle_timeout(now);
            for datagram in drain(now, &mut place.node) {
                let neighbour = place.neighbours.get_mut(&PEER).unwrap();
                let ways = neighbour.ways_of(now, &datagram).into_iter().flatten();
                for way in ways.filter(|_| is_hello(&datagram)) {
                    at_home += usize::from(way.to == home);
                    elsewhere += usize::from(way.to == attacker);
                }
            }
        }
    }
    assert!(at_home >= 10, "{at_home}");
    assert!((1..=10).contains(&elsewhere), "{elsewhere}");
}

/// Where a new life begins at another address than the one that is known, or none is known, its hello was answered where the last one came from: a recorded
/// one, sent from elsewhere each millisecond, kept it unanswered for as long as that lasted.
#[test]
fn a_recorded_hello_takes_no_answer_from_a_neighbour_that_begins_elsewhere() {
    let ms = Duration::from_millis(1);
    let [home, elsewhere, attacker] =
        [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let all = [(false, false), (false, true), (true, false), (true, true)];
    for (is_known, is_own) in all {
        let mut now = Instant::now();
        let mut place = match is_known {
            true => met(&mut now, home).1,
            false => Place::new(node(now, 2), Vec::new(), false),
        };
        if !is_known {
            place.set_way(PEER, None);
        }
        let mut far = node(now, 4);
        let mut from_far = drain(now, &mut far);
        let recorded = match is_own {
            true => from_far[0].clone(),
            false => drain(now, &mut node(now, 3)).remove(0),
        };
        assert!(is_hello(&recorded));
        let mut millis = 0;
        while !far.has_met(PEER) || address(&place) != Some(elsewhere) {
            place.take((now, now), (attacker, None), &recorded);
            for datagram in from_far.drain(..) {
                place.take((now, now), (elsewhere, None), &datagram);
            }
            place.node.handle_timeout(now);
            for datagram in drain(now, &mut place.node) {
                let neighbour = place.neighbours.get_mut(&PEER).unwrap();
                let mut ways = neighbour.ways_of(now, &datagram).into_iter().flatten();
                if ways.any(|way| way.to == elsewhere) {
                    far.handle_datagram(now, PEER, &datagram);
                }
            }
            now += ms;
            millis += 1;
            far.handle_timeout(now);
            from_far = drain(now, &mut far);
            assert!(millis < 100, "known: {is_known}, its own: {is_own}");
        }
    }
}

/// One that is said to have come from many addresses takes the places of none but itself.
#[test]
fn a_hello_from_many_addresses_is_answered_at_each_once_and_pushes_out_no_other() {
    let now = Instant::now();
    let [recorded, own] = [3, 4].map(|seed| drain(now, &mut node(now, seed)).remove(0));
    let at = |port: u16| straight(SocketAddr::from(([127, 0, 0, 1], port)));
    let mut unproven = Unproven::default();
    unproven.note(&own, at(1));
    for port in 2..100 {
        unproven.note(&recorded, at(port));
        unproven.note(&recorded, at(port));
    }
    let [to_own, to_recorded] = [answer_to(&own), answer_to(&recorded)];
    assert_eq!(unproven.answered_by(&to_own, true), Some(at(1)));
    assert_eq!(unproven.answered_by(&to_own, false), Some(at(1)));
    assert_eq!(unproven.answered_by(&to_own, false), None);
    for port in 93..100 {
        let way = unproven.answered_by(&to_recorded, false);
        assert_eq!(way, Some(at(port)));
    }
    assert!(unproven.is_empty());
    unproven.note(b"no hello", at(1));
    assert!(unproven.is_empty());
}

/// A hello whose sender asks nothing else, with the challenge of this one as its echo.
fn answer_to(hello: &[u8]) -> Vec<u8> {
    let mut answer = hello.to_vec();
    let challenge = starhaul_leotp::hello_challenges(hello).unwrap().own;
    answer[41..49].copy_from_slice(&challenge);
    let challenges = starhaul_leotp::hello_challenges(&answer).unwrap();
    assert_eq!(challenges.echo, challenge);
    answer
}

/// As long as no address was known, each hello of this node went to where one that may be a replay was said to have come from: one forged datagram cost that
/// host one each 2 s without end.
#[test]
fn one_recorded_hello_has_few_leave_for_where_it_is_said_to_come_from() {
    let mut now = Instant::now();
    let victim = SocketAddr::from(([127, 0, 0, 1], 3));
    let recorded = drain(now, &mut node(now, 3)).remove(0);
    let mut place = Place::new(node(now, 2), Vec::new(), false);
    place.set_way(PEER, None);
    for times in 1..=2 {
        place.take((now, now), (victim, None), &recorded);
        let (mut made, mut sent) = (0, 0);
        for _ in 0..3000 {
            now += Duration::from_millis(20);
            place.node.handle_timeout(now);
            for datagram in drain(now, &mut place.node) {
                let neighbour = place.neighbours.get_mut(&PEER).unwrap();
                let ways = neighbour.ways_of(now, &datagram).into_iter().flatten();
                let here = ways.filter(|way| way.to == victim).count();
                assert!(here <= 1, "{here} of one");
                (made, sent) = (made + 1, sent + here);
            }
        }
        assert!(made > 20, "{made}: it goes on asking");
        assert_eq!(sent, usize::from(unproven::ANSWERS), "time {times}");
    }
}

/// While the socket took nothing, the thread turned without a pause: what waits is due all the time.
#[test]
fn a_socket_that_takes_nothing_is_waited_for() {
    let now = Instant::now();
    let [past, soon] = [now - BLOCKED, now + 5 * BLOCKED];
    let (is_due, is_blocked) = (true, true);
    let waits = |is_due, is_blocked, timer| waits_for(is_due, is_blocked, now, timer);
    assert_eq!(
        waits(is_due, is_blocked, Some(past)),
        Some(Some(now + BLOCKED))
    );
    assert_eq!(waits(false, is_blocked, Some(soon)), Some(Some(soon)));
    assert_eq!(waits(is_due, false, Some(soon)), None, "it may be news");
    assert_eq!(waits(false, false, Some(soon)), Some(Some(soon)));
    assert_eq!(waits(false, false, None), Some(None));
}

/// The first address that a name had was asked for ever, although it has others.
#[test]
fn the_addresses_of_a_silent_neighbour_are_tried_in_turn() {
    let mut now = Instant::now();
    let all = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let mut place = Place::new(node(now, 1), Vec::new(), false);
    place.set_way(PEER, None);
    for expected in [1, 2, 0, 1] {
        // Whatever comes first in an answer.
        place.take_answer(now, PEER, vec![all[1], all[0], all[2]]);
        assert_eq!(address(&place), Some(all[expected]));
        let asks = |place: &mut Place| place.neighbours.get_mut(&PEER).unwrap().ways_of(now, &[]);
        asks(&mut place);
        now += TRIED / 2;
        place.take_answer(now, PEER, all.to_vec());
        assert_eq!(address(&place), Some(all[expected]), "it may be slow");
        now += TRIED;
    }
    let (_, mut place) = met(&mut now, all[0]);
    now += TRIED / 2;
    place.take_answer(now, PEER, all.to_vec());
    assert_eq!(address(&place), Some(all[0]), "it was heard");
    now += TRIED;
    place.take_answer(now, PEER, vec![all[0]]);
    assert_eq!(address(&place), Some(all[0]), "it has no other");
    // Of one that is asked for nothing nothing is heard.
    let (_, mut place) = met(&mut now, all[0]);
    place.neighbours.get_mut(&PEER).unwrap().unanswered = None;
    for _ in 0..5 {
        now += TRIED * 2;
        place.take_answer(now, PEER, all.to_vec());
        assert_eq!(address(&place), Some(all[0]));
    }
}

#[test]
fn a_replayed_hello_is_no_sign_of_a_neighbour() {
    let mut now = Instant::now();
    let [home, other] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let hello = drain(now, &mut node(now, 1)).remove(0);
    let (_, mut place) = met(&mut now, home);
    place.take_answer(now, PEER, vec![home]);
    now += SILENT;
    place.take((now, now), (home, None), &hello);
    place.take_answer(now, PEER, vec![other]);
    assert_eq!(address(&place), Some(other));
}

/// A NAT or a firewall lets in what comes from where was sent to.
#[test]
fn a_node_of_several_addresses_answers_from_that_which_was_asked() {
    let now = Instant::now();
    let from = SocketAddr::from(([192, 0, 2, 1], 1));
    let second = IpAddr::from([198, 51, 100, 2]);
    for (is_anywhere, is_placed) in [(true, false), (true, true), (false, false)] {
        let mut place = Place::new(node(now, 1), Vec::new(), is_anywhere);
        place.set_way(PEER, None);
        place.note_placed(PEER, is_placed);
        let way = place.way(Some(PEER), from, Some(second));
        let keeps = is_anywhere && !is_placed;
        assert_eq!((way.to, way.from), (from, keeps.then_some(second)));
    }
}

/// One neighbour behind a tunnel took segmentation offload from all: the kernel refused a batch of datagrams that are longer than its MTU.
#[test]
fn datagrams_that_leave_in_fragments_are_no_batch() {
    let bind = || BulkSocket::bind(([127, 0, 0, 1], 0).into(), IoMode::Gso).unwrap();
    let (sender, receiver) = (bind(), bind());
    let contents: Vec<u8> = (0..5 * 1472_u32).map(|at| at.to_le_bytes()[1]).collect();
    let way = straight(receiver.local_addr());
    let sent = send(&sender, way, &contents, (1472, false)).unwrap();
    assert_eq!(sent, contents.len());
    let (mut poller, mut buffer) = (Poller::new().unwrap(), RecvBuffer::new());
    let mut received: Vec<Vec<u8>> = Vec::new();
    while received.iter().map(Vec::len).sum::<usize>() < contents.len() {
        poller.wait(&[(receiver.socket(), false)], None).unwrap();
        while receiver.try_recv(&mut buffer).unwrap() {
            received.extend(buffer.messages().map(|message| message.contents.to_vec()));
        }
    }
    assert_eq!(received.concat(), contents);
    assert_eq!(received.len(), 5, "each leaves alone");
}

#[test]
fn a_batch_takes_datagrams_of_one_length_and_way_until_a_shorter_one_ends_it() {
    let [one, other] = [1, 2].map(|port| straight(([127, 0, 0, 1], port).into()));
    let mut batch = Batch::default();
    assert!(batch.push(one, &[1; 100]) && batch.push(one, &[2; 100]));
    assert!(!batch.push(other, &[3; 100]) && !batch.push(one, &[3; 101]));
    assert_eq!(batch.bytes.len(), 200, "what it does not take is not in it");
    batch.bytes.extend([4; 50]);
    assert!(batch.keep(one, 200) && batch.is_closed);
    batch.clear();
    for _ in 0..MOST_DATAGRAMS {
        assert!(batch.push(other, &[5; 10]));
    }
    assert!(!batch.push(other, &[5; 10]));
}

/// What a detector finds in four seconds of probes with a round trip of 30 ms, of which those of 90 ms are lost, two seconds after the start.
fn found_among_probes(start: Instant) -> Vec<Reconfiguration> {
    const MS: Duration = Duration::from_millis(1);
    let mut detector = Detector::new(DetectorConfig::DEFAULT, start);
    let mut answers: VecDeque<(Instant, u64)> = VecDeque::new();
    let mut found = Vec::new();
    loop {
        let now = detector.next_probe();
        if now >= start + 4000 * MS {
            return found;
        }
        while let Some((at, sequence)) = answers.pop_front_if(|(at, _)| *at <= now) {
            found.extend(detector.on_response(at, sequence));
        }
        let sequence = detector.on_probe_sent(now);
        let is_lost = (2000 * MS..2090 * MS).contains(&(now - start));
        if !is_lost {
            answers.push_back((now + 30 * MS, sequence));
        }
    }
}

/// From the answers to probes on to the node: nothing else tells of it.
#[test]
fn an_outage_among_the_probes_of_a_hop_is_heard_by_its_node() {
    let now = Instant::now();
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut driver = LeotpDriver::bind(here, node(now, 1)).unwrap();
    let host = ProbeTarget::Host(here.ip());
    let probed = HopSignals {
        probe: Some(host),
        ..HopSignals::default()
    };
    driver.watch(PEER, probed);
    // Its prober rests, as nothing is carried: it finds nothing by itself.
    driver.turn(Some(now)).unwrap();
    assert_eq!(driver.node().stats().reconfigurations, 0);
    let found = found_among_probes(now);
    assert_eq!(found.len(), 1, "{found:?}");
    let event = ProberEvent::Reconfiguration(found[0]);
    // Two signals of one event are one.
    driver.signals.say(PEER, event.clone());
    driver.signals.say(PEER, event);
    driver.turn(Some(Instant::now())).unwrap();
    assert_eq!(driver.node().stats().reconfigurations, 1);
    driver.watch(PEER, HopSignals::default());
    driver.turn(Some(Instant::now())).unwrap();
    assert_eq!(driver.node().stats().reconfigurations, 1);
}
