use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_link::{Band, LinkSpec, Loss, Passage, Rate};

use crate::*;

const MS: Duration = Duration::from_millis(1);

/// Sends a numbered datagram each interval to one peer, and records the datagrams that it receives.
#[derive(Debug, Default)]
struct Flow {
    peer: Option<(u32, SocketAddr)>,
    interval: Duration,
    payload_bytes: usize,
    next: Option<Instant>,
    sent: u32,
    outbox: VecDeque<Datagram>,
    received: Vec<Received>,
}

#[derive(Clone, Debug, PartialEq)]
struct Received {
    at: Instant,
    local: u32,
    from: SocketAddr,
    ecn: u8,
    number: u32,
}

impl Flow {
    fn to(peer: SocketAddr, interval: Duration, start: Instant) -> Self {
        Self {
            peer: Some((0, peer)),
            interval,
            payload_bytes: 1472,
            next: Some(start),
            ..Self::default()
        }
    }

    fn numbers(&self) -> Vec<u32> {
        self.received
            .iter()
            .map(|received| received.number)
            .collect()
    }

    fn send(&mut self, local: u32, to: SocketAddr) {
        let mut payload = vec![0; self.payload_bytes.max(4)];
        payload[..4].copy_from_slice(&self.sent.to_be_bytes());
        self.sent += 1;
        self.outbox
            .push_back(Datagram::udp(local, to, 2, payload.into()));
    }
}

impl Node for Flow {
    type Load = Udp;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Udp>) {
        let Udp { ecn, payload } = packet.load;
        let number = payload[..4].try_into().map(u32::from_be_bytes).unwrap();
        self.received.push(Received {
            at: now,
            local: packet.local,
            from: packet.from,
            ecn,
            number,
        });
    }

    fn poll_transmit(&mut self, _now: Instant, out: &mut VecDeque<Datagram>) {
        out.extend(self.outbox.pop_front());
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.next
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some((local, peer)) = self.peer {
            self.send(local, peer);
        }
        self.next = Some(now + self.interval);
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn spec(text: &str) -> LinkSpec {
    text.parse().unwrap()
}

/// A sender (node 0) that reaches a silent receiver (node 1) over one link with this description.
fn pair(
    seed: u64,
    start: Instant,
    forward: &str,
    interval: Duration,
) -> (Simulation<Flow>, PathLinks) {
    let (a, b) = (address("10.0.0.1:10"), address("10.0.0.2:20"));
    let mut sim = Simulation::new(seed, start);
    let sender = sim.add_node(Flow::to(b, interval, start));
    let receiver = sim.add_node(Flow::default());
    sim.network.bind(sender, 0, a);
    sim.network.bind(receiver, 5, b);
    let path = sim
        .network
        .connect(a, b, &spec(forward), &spec("delay=1ms"));
    (sim, path)
}

#[test]
fn a_datagram_arrives_as_it_was_sent_and_pays_for_its_headers() {
    let start = Instant::now();
    // 1472 bytes of payload are 1500 on the link: 1 ms
    let (mut sim, path) = pair(1, start, "rate=12mbit,delay=25ms", MS * 10);
    sim.run_for(MS * 45);
    let received = |ms, number| Received {
        at: start + MS * ms,
        local: 5,
        from: address("10.0.0.1:10"),
        ecn: 2,
        number,
    };
    assert_eq!(sim.nodes[1].received, [received(26, 0), received(36, 1)]);
    assert_eq!(sim.network[path.forward].stats().delivered_bytes, 3000);
    assert_eq!(sim.elapsed(), MS * 45);
}

#[test]
fn a_route_of_several_links_adds_them_up_and_can_change() {
    let start = Instant::now();
    let (mut sim, path) = pair(1, start, "rate=12mbit,delay=10ms", MS * 10);
    let (a, b) = (address("10.0.0.1:10"), address("10.0.0.2:20"));
    let second = sim.network.add_link(&spec("rate=6mbit,delay=30ms"));
    // against the order in which the links were made
    sim.network.set_route(a, b, &[second, path.forward]);
    sim.run_until(start + MS * 55, |_| None);
    assert_eq!(sim.nodes[1].received[0].at, start + MS * (2 + 30 + 1 + 10));
    sim.network.set_route(a, b, &[path.forward]);
    sim.run_for(MS * 45);
    // packets on the shorter route overtake those on the longer one
    assert_eq!(sim.nodes[1].numbers(), [0, 1, 2, 6, 3, 7, 4, 8, 5]);
    sim.network.remove_route(a, b);
    sim.run_for(MS * 100);
    assert_eq!(sim.nodes[1].received.len(), 11);
    assert_eq!(sim.network.stats().no_route, 10);
}

#[test]
fn a_route_changes_by_itself_at_the_instants_told_beforehand() {
    let start = Instant::now();
    let (mut sim, path) = pair(1, start, "delay=5ms", MS * 10);
    let (a, b) = (address("10.0.0.1:10"), address("10.0.0.2:20"));
    let longer = sim.network.add_link(&spec("delay=7ms"));
    for (at, links) in [(25, &[longer][..]), (45, &[]), (65, &[path.forward])] {
        sim.network.set_route_at(start + MS * at, a, b, links);
    }
    sim.run_for(MS * 90);
    let received = sim.nodes[1].received.iter();
    let received: Vec<_> = received.map(|r| (r.at - start, r.number)).collect();
    let expected = [(5, 0), (15, 1), (25, 2), (37, 3), (47, 4), (75, 7), (85, 8)];
    assert_eq!(received, expected.map(|(ms, number)| (MS * ms, number)));
    assert_eq!(sim.network.stats().no_route, 2);
}

#[test]
fn a_route_of_the_present_instant_is_used_at_once() {
    let start = Instant::now();
    let (mut sim, path) = pair(1, start, "delay=5ms", MS * 10);
    let (a, b) = (address("10.0.0.1:10"), address("10.0.0.2:20"));
    sim.network.remove_route(a, b);
    sim.network.set_route_at(start, a, b, &[path.forward]);
    let datagram = Datagram::udp(0, b, 0, Bytes::from(vec![0; 100]));
    sim.network.send(start, NodeId(0), datagram);
    sim.run_until(start + MS * 8, |_| None);
    assert_eq!(sim.network.stats().no_route, 0);
    assert_eq!(sim.nodes[1].received[0].at, start + MS * 5);
}

#[test]
fn a_link_that_its_owner_changes_is_visited_when_it_is_due_then() {
    let start = Instant::now();
    let (mut sim, path) = pair(1, start, "rate=0mbit", MS * 1000);
    sim.run_for(MS * 10);
    assert_eq!(sim.nodes[1].received, []);
    let rate = "12mbit".parse().unwrap();
    sim.network[path.forward].set_rate(start + MS * 10, Rate::Constant(rate));
    sim.run_for(MS * 10);
    assert_eq!(sim.nodes[1].received[0].at, start + MS * 11);
}

/// Packets of another load type: pings, which have a band of their own on the link, and bulk, which fills its queue.
#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Ping,
    Bulk,
}

impl Load for Kind {
    fn bytes(&self) -> usize {
        match self {
            Self::Ping => 84,
            Self::Bulk => 1500,
        }
    }

    fn band(&self) -> Band {
        match self {
            Self::Ping => Band::Icmp,
            Self::Bulk => Band::Data,
        }
    }
}

#[test]
fn packets_of_any_kind_travel_in_the_band_that_they_name() {
    let start = Instant::now();
    let (a, b) = (address("10.0.0.1:1"), address("10.0.0.2:1"));
    let mut network = Network::new(1, start);
    network.bind(NodeId(0), 0, a);
    network.bind(NodeId(1), 0, b);
    network.connect(a, b, &spec("rate=12mbit,icmp=band"), &spec("delay=1ms"));
    for load in [Kind::Bulk, Kind::Bulk, Kind::Bulk, Kind::Ping] {
        let packet = Packet {
            local: 0,
            to: b,
            load,
        };
        network.send(start, NodeId(0), packet);
    }
    let mut arrived = Vec::new();
    while let Some(at) = network.next_event() {
        let packets = std::iter::from_fn(|| network.poll(at));
        arrived.extend(packets.map(|packet| (packet.load, packet.waited)));
    }
    let (first, waited) = &arrived[0];
    assert_eq!((first, *waited < MS), (&Kind::Ping, true), "{arrived:?}");
    assert_eq!(arrived.len(), 4);
    assert!(arrived[3].1 >= MS * 3, "{arrived:?}");
}

#[test]
fn a_path_can_be_cut_and_restored_at_an_instant() {
    let start = Instant::now();
    let (mut sim, path) = pair(1, start, "delay=5ms", MS);
    let (cut, restore) = (start + MS * 20, start + MS * 40);
    let mut stage = 0;
    sim.run_until(start + MS * 60, |sim| {
        match stage {
            0 if sim.now() >= cut => sim.network.cut(cut, path),
            1 if sim.now() >= restore => sim.network.restore(restore, path),
            _ => return [cut, restore].get(stage).copied(),
        }
        stage += 1;
        [cut, restore].get(stage).copied()
    });
    let numbers = sim.nodes[1].numbers();
    let gap = numbers
        .windows(2)
        .find(|pair| pair[1] != pair[0] + 1)
        .unwrap();
    assert!(
        (19..=20).contains(&gap[0]) && (40..=41).contains(&gap[1]),
        "{numbers:?}"
    );
    assert!(sim.network[path.forward].stats().dropped_outage >= 19);
}

#[test]
fn what_cannot_be_carried_is_counted() {
    let start = Instant::now();
    let (mut sim, _) = pair(1, start, "delay=5ms", MS * 1000);
    let b = address("10.0.0.2:20");
    let sender = NodeId(0);
    let datagram = |local, to, bytes| Datagram::udp(local, to, 0, Bytes::from(vec![0; bytes]));
    sim.network.send(start, sender, datagram(9, b, 100));
    sim.network
        .send(start, sender, datagram(0, address("10.9.9.9:1"), 100));
    sim.network.send(start, sender, datagram(0, b, 1473));
    sim.network.send(start, sender, datagram(0, b, 1472));
    // the receiver moves away while a packet is in flight
    sim.network.bind(NodeId(1), 5, address("10.0.0.3:30"));
    sim.run_for(MS * 10);
    let expected = NetworkStats {
        no_route: 2,
        too_large: 1,
        no_receiver: 2, // and the sender's own first one
    };
    assert_eq!(sim.network.stats(), expected);
    assert_eq!(sim.nodes[1].received, []);
}

#[test]
fn a_socket_answers_from_its_new_address() {
    let start = Instant::now();
    let (mut sim, _) = pair(1, start, "delay=5ms", MS * 10);
    let (new, b) = (address("192.0.2.7:7"), address("10.0.0.2:20"));
    sim.run_for(MS * 9);
    sim.network
        .connect(new, b, &spec("delay=5ms"), &spec("delay=5ms"));
    sim.network.bind(NodeId(0), 0, new);
    sim.run_for(MS * 10);
    sim.nodes[1].send(5, new);
    sim.run_for(MS * 10);
    let from: Vec<_> = sim.nodes[1]
        .received
        .iter()
        .map(|received| received.from)
        .collect();
    assert_eq!(from, [address("10.0.0.1:10"), new, new]);
    assert_eq!(sim.nodes[0].received.len(), 1);
}

#[test]
fn the_application_is_called_when_it_asks_and_after_each_event() {
    let start = Instant::now();
    let (mut sim, _) = pair(1, start, "delay=5ms", MS * 40);
    let mut calls = Vec::new();
    sim.run_until(start + MS * 50, |sim| {
        calls.push(sim.elapsed());
        (sim.elapsed() < MS * 10).then_some(sim.now() + MS * 7)
    });
    calls.dedup();
    assert_eq!(calls, [0, 5, 12, 40, 45, 50].map(|ms| MS * ms));
}

#[test]
fn an_application_reaches_its_nodes_at_the_end_too() {
    let start = Instant::now();
    let (mut sim, path) = pair(1, start, "delay=5ms", MS * 1000);
    let end = start + MS * 50;
    sim.run_until(end, |sim| {
        if sim.now() == end {
            sim.nodes[1].send(5, address("10.0.0.1:10"));
        }
        None
    });
    assert_eq!(sim.network[path.backward].stats().enqueued, 1);
}

#[test]
fn a_timer_that_stays_due_does_not_stop_time() {
    let start = Instant::now();
    let (mut sim, _) = pair(1, start, "delay=5ms", Duration::ZERO);
    sim.run_for(MS);
    assert_eq!(sim.elapsed(), MS);
    assert!(sim.nodes[0].sent > 100);
}

#[test]
fn a_network_where_nothing_travels_is_idle() {
    let start = Instant::now();
    let (mut sim, _) = pair(1, start, "delay=5ms", MS);
    assert!(!sim.run_until_idle(start + MS * 10));
    sim.nodes[0].next = None;
    assert!(sim.run_until_idle(start + MS * 1000));
    assert!(sim.elapsed() < MS * 16);
    assert_eq!(sim.nodes[1].received.len(), sim.nodes[0].sent as usize);
}

/// The arrivals at the far end of a bad path, with their times.
fn log(seed: u64, start: Instant) -> Vec<(Duration, u32)> {
    let bad = "synth=leo,seed=2,loss=ge:3%:3,jitter=2ms,reorder=2%:8ms,duplicate=1%";
    let (mut sim, path) = pair(seed, start, bad, Duration::from_micros(700));
    let change = start + MS * 1500;
    sim.run_until(start + MS * 3000, |sim| {
        if sim.now() == change {
            sim.network[path.forward].set_loss(change, Loss::bernoulli(0.1).unwrap());
        }
        (sim.now() < change).then_some(change)
    });
    let received = &sim.nodes[1].received;
    received
        .iter()
        .map(|received| (received.at - start, received.number))
        .collect()
}

#[test]
fn a_seed_is_a_run_at_whatever_instant_it_begins() {
    let start = Instant::now();
    let first = log(5, start);
    assert!(first.len() > 3_000, "only {} arrived", first.len());
    assert_eq!(first, log(5, start + Duration::from_nanos(1_234_567)));
    assert_ne!(first, log(6, start));
}

#[test]
fn links_of_one_network_lose_different_packets() {
    let start = Instant::now();
    let mut sim = Simulation::new(1, start);
    let nodes = [sim.add_node(Flow::default()), sim.add_node(Flow::default())];
    let lossy = spec("loss=50%");
    for path in 0..2_u8 {
        let [a, b] = [1, 2].map(|host| SocketAddr::from(([10, 0, path, host], 1)));
        sim.network.bind(nodes[0], path.into(), a);
        sim.network.bind(nodes[1], path.into(), b);
        sim.network.connect(a, b, &lossy, &lossy);
    }
    for number in 0..200 {
        for path in 0..2_u8 {
            sim.nodes[0].sent = number;
            sim.nodes[0].send(path.into(), SocketAddr::from(([10, 0, path, 2], 1)));
        }
    }
    assert!(sim.run_until_idle(start + MS));
    let of = |local| -> Vec<u32> {
        let received = sim.nodes[1].received.iter();
        received
            .filter(|r| r.local == local)
            .map(|r| r.number)
            .collect()
    };
    assert!(of(0).len() > 60 && of(1).len() > 60);
    assert_ne!(of(0), of(1));
}

#[test]
fn a_watched_link_tells_how_long_each_datagram_waited() {
    let start = Instant::now();
    let [a, b]: [SocketAddr; 2] = [([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 1).into()];
    let mut sim = Simulation::new(1, start);
    // 1500 bytes take 1 ms and come each 0.5 ms: each waits half a millisecond longer than the one before it.
    let sender = sim.add_node(Flow::to(b, MS / 2, start));
    let receiver = sim.add_node(Flow::default());
    sim.network.bind(sender, 0, a);
    sim.network.bind(receiver, 0, b);
    let link: LinkSpec = "rate=12mbit,delay=20ms".parse().unwrap();
    let path = sim.network.connect(a, b, &link, &LinkSpec::default());
    sim.network.watch(path.forward);
    sim.run_for(25 * MS);
    let passages = sim.network.take_passages(path.forward);
    let expected: Vec<_> = (0..5)
        .map(|number| Passage {
            at: (21 + number) * MS,
            bytes: 1500,
            waited: MS + number * MS / 2,
            took: 21 * MS + number * MS / 2,
        })
        .collect();
    assert_eq!(passages, expected);
    assert_eq!(sim.network.take_passages(path.forward), []);
    assert_eq!(sim.network.take_passages(path.backward), []);
}
