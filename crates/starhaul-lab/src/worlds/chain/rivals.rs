//! Rivals over the same links: flows from end to end, and a chain of reliable hops.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    time::{Duration, Instant},
};

use starhaul_flow::{
    ACK_BYTES, Ack, AckPolicy, DataPacket, PACKET_BYTES, Receiver, Sender, Source,
};
use starhaul_sim::{Delivery, LinkId, Load, Node, Packet, Simulation};

use super::{Figures, Plan, plan::address};
use crate::{Error, systems::System};

/// Data in a full packet of QUIC: without headers of IP, UDP, packet and frame, and the tag.
const QUIC_BYTES: u64 = PACKET_BYTES - 60;
/// Data in a full packet of TCP with time stamps.
const TCP_BYTES: u64 = PACKET_BYTES - 52;
/// How often the end of a transfer is looked for.
const SLICE: Duration = Duration::from_millis(5);

/// Each flow by one sender and one receiver.
pub(super) fn end_to_end(plan: &Plan, system: &System, seed: u64) -> Result<Vec<Figures>, Error> {
    let start = Instant::now();
    let mut sim = Simulation::new(seed, start);
    let links = plan.links(&mut sim.network)?;
    for (number, flow) in plan.flows.iter().enumerate() {
        let socket = u16::try_from(number * 2).unwrap_or(u16::MAX);
        let (from, to) = (address(0, socket), address(1, socket));
        let sender = sim.add_node(End::sending(
            start + flow.start,
            Source::Saturating,
            system.build(start),
            to,
        ));
        let receiver = sim.add_node(End::receiving(from));
        sim.network.bind(sender, 0, from);
        sim.network.bind(receiver, 0, to);
        for (at, path) in &flow.path {
            let hops: Vec<[LinkId; 2]> = path
                .windows(2)
                .filter_map(|pair| links.get(&(pair[0], pair[1])).copied())
                .collect();
            let forward: Vec<LinkId> = hops.iter().map(|hop| hop[0]).collect();
            let back: Vec<LinkId> = hops.iter().rev().map(|hop| hop[1]).collect();
            for (from, to, links) in [(from, to, &forward), (to, from, &back)] {
                match at.is_zero() {
                    true => sim.network.set_route(from, to, links),
                    false => sim.network.set_route_at(start + *at, from, to, links),
                }
            }
        }
    }
    run(plan, sim, &links, 2, QUIC_BYTES)
}

/// Each flow by a sender and a receiver for each hop. The path is the first one throughout: a connection cannot move.
pub(super) fn split(plan: &Plan, seed: u64) -> Result<Vec<Figures>, Error> {
    let start = Instant::now();
    let mut sim = Simulation::new(seed, start);
    let links = plan.links(&mut sim.network)?;
    let cubic = System::named("cubic")?;
    let mut per_flow = 0;
    for (number, flow) in plan.flows.iter().enumerate() {
        let path = flow.path_at(Duration::ZERO);
        per_flow = path.len();
        let socket = u16::try_from(number).unwrap_or(u16::MAX);
        for (at, _) in path.iter().enumerate() {
            let next = (at + 1 < path.len()).then(|| address(at + 1, socket));
            let before = at.checked_sub(1).map(|before| address(before, socket));
            let source = if at == 0 {
                Source::Saturating
            } else {
                Source::Given(0)
            };
            let sender = next.map(|to| {
                Out::new(
                    Sender::new(
                        start + flow.start,
                        source,
                        AckPolicy::default(),
                        cubic.build(start),
                    ),
                    to,
                )
            });
            let mut end = End::receiving(before.unwrap_or(address(usize::MAX, socket)));
            end.out = sender;
            let node = sim.add_node(end);
            sim.network.bind(node, 0, address(at, socket));
        }
        for (at, pair) in path.windows(2).enumerate() {
            if let Some([forward, back]) = links.get(&(pair[0], pair[1])) {
                let (a, b) = (address(at, socket), address(at + 1, socket));
                sim.network.set_route(a, b, &[*forward]);
                sim.network.set_route(b, a, &[*back]);
            }
        }
    }
    run(plan, sim, &links, per_flow, TCP_BYTES)
}

/// Runs flows of so many nodes each; the last of each receives.
fn run(
    plan: &Plan,
    mut sim: Simulation<End>,
    links: &BTreeMap<(usize, usize), [LinkId; 2]>,
    per_flow: usize,
    data_bytes: u64,
) -> Result<Vec<Figures>, Error> {
    let wanted = plan.bytes.map(|bytes| bytes.div_ceil(data_bytes));
    let mut ended = vec![None; plan.flows.len()];
    while sim.elapsed() < plan.time && ended.iter().any(Option::is_none) {
        sim.run_for(SLICE.min(plan.time - sim.elapsed()));
        for (flow, ended) in ended.iter_mut().enumerate() {
            let last = &sim.nodes[(flow + 1) * per_flow - 1];
            let is_there = wanted.is_some_and(|wanted| last.in_order >= wanted);
            if is_there && ended.is_none() {
                *ended = Some(sim.elapsed());
            }
        }
    }
    let lost = links
        .values()
        .map(|links| sim.network[links[0]].stats().dropped())
        .sum();
    let elapsed = sim.elapsed();
    let of_flow = |(number, flow): (usize, &super::Flow)| {
        let first = &sim.nodes[number * per_flow];
        let last = &sim.nodes[(number + 1) * per_flow - 1];
        let sent = first.out.as_ref().map_or(0, |out| out.sender.stats().sent);
        Figures {
            bytes: last.in_order.min(wanted.unwrap_or(u64::MAX)) * data_bytes,
            time: ended[number].unwrap_or(elapsed) - flow.start,
            delays: last.delays.clone(),
            late_delays: last.late_delays.clone(),
            sender_bytes: sent * PACKET_BYTES,
            lost,
            asked_again: first.out.as_ref().map_or(0, |out| out.sender.stats().lost),
            timeouts: first
                .out
                .as_ref()
                .map_or(0, |out| out.sender.stats().timeouts),
            is_complete: ended[number].is_some(),
        }
    };
    Ok(plan.flows.iter().enumerate().map(of_flow).collect())
}

/// A packet of a flow.
#[derive(Clone, Debug)]
enum Message {
    /// Data, with the time at which its chunk left the source first.
    Data(DataPacket, Instant),
    Ack(Ack),
}

impl Load for Message {
    fn bytes(&self) -> usize {
        match self {
            Self::Data(..) => usize::try_from(PACKET_BYTES).unwrap_or(usize::MAX),
            Self::Ack(_) => ACK_BYTES,
        }
    }
}

/// An end of a flow or a relay of connections: it receives, and sends what it received on.
struct End {
    receiver: Receiver,
    from: SocketAddr,
    out: Option<Out>,
    /// Chunks that arrived in order, and those out of order, with the time at which they left the source.
    in_order: u64,
    early: BTreeMap<u64, Instant>,
    furthest: u64,
    delays: starhaul_link::Delays,
    late_delays: starhaul_link::Delays,
    answers: VecDeque<Packet<Message>>,
}

/// What an end sends.
struct Out {
    sender: Sender,
    to: SocketAddr,
    /// When chunks left the source, those of unknown ones leave it here.
    left: Vec<Instant>,
}

impl Out {
    fn new(sender: Sender, to: SocketAddr) -> Self {
        Self {
            sender,
            to,
            left: Vec::new(),
        }
    }
}

impl End {
    fn sending(
        start: Instant,
        source: Source,
        controller: Box<dyn starhaul_cc::Controller>,
        to: SocketAddr,
    ) -> Self {
        let sender = Sender::new(start, source, AckPolicy::default(), controller);
        Self {
            out: Some(Out::new(sender, to)),
            ..Self::receiving(to)
        }
    }

    fn receiving(from: SocketAddr) -> Self {
        Self {
            receiver: Receiver::new(AckPolicy::default()),
            from,
            out: None,
            in_order: 0,
            early: BTreeMap::new(),
            furthest: 0,
            delays: starhaul_link::Delays::default(),
            late_delays: starhaul_link::Delays::default(),
            answers: VecDeque::new(),
        }
    }

    fn take_data(&mut self, now: Instant, packet: DataPacket, left: Instant) {
        if self.receiver.handle_data(now, packet) {
            let delay = now.saturating_duration_since(left);
            self.delays.add(delay);
            if packet.chunk < self.furthest {
                self.late_delays.add(delay);
            }
            self.furthest = self.furthest.max(packet.chunk);
            self.early.insert(packet.chunk, left);
            while let Some(left) = self.early.remove(&self.in_order) {
                self.in_order += 1;
                if let Some(out) = &mut self.out {
                    out.left.push(left);
                    out.sender.offer(now, self.in_order);
                }
            }
        }
        self.acknowledge(now);
    }

    fn acknowledge(&mut self, now: Instant) {
        if let Some(ack) = self.receiver.poll_transmit(now) {
            let load = Message::Ack(ack);
            self.answers.push_back(Packet {
                local: 0,
                to: self.from,
                load,
            });
        }
    }
}

impl Node for End {
    type Load = Message;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Message>) {
        match packet.load {
            Message::Data(data, left) => self.take_data(now, data, left),
            Message::Ack(ack) => {
                if let Some(out) = &mut self.out {
                    out.sender.handle_ack(now, &ack);
                }
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Packet<Message>>) {
        out.append(&mut self.answers);
        if let Some(Out { sender, to, left }) = &mut self.out
            && let Some(packet) = sender.poll_transmit(now)
        {
            let chunk = usize::try_from(packet.chunk).unwrap_or(usize::MAX);
            if left.len() <= chunk {
                left.resize(chunk + 1, now);
            }
            let load = Message::Data(packet, left[chunk]);
            out.push_back(Packet {
                local: 0,
                to: *to,
                load,
            });
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let sender = self.out.as_ref().and_then(|out| out.sender.poll_timeout());
        [sender, self.receiver.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.acknowledge(now);
        if let Some(out) = &mut self.out {
            out.sender.handle_timeout(now);
        }
    }
}
