//! LEOTP's nodes in the simulator.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use starhaul_cc::{Reconfiguration, ReconfigurationSource};
use starhaul_leotp::{
    ContentId, ContentSecret, Event, Failure, FetchConfig, FetchId, NeighbourConfig, NeighbourId,
    NeighbourKey, Node, NodeConfig, Scope, Source,
};
use starhaul_sim::{Datagram, Delivery, LinkId, Node as SimNode, Simulation, Udp};

use super::{Figures, Plan, Text, plan::address, told};
use crate::Error;

/// How often the end of a transfer is looked for.
const SLICE: Duration = Duration::from_millis(50);

/// A cache that serves for recovery alone: seconds of data, at hundreds of relays of a constellation.
const RECOVERY_CACHE: usize = 4 << 20;

/// Headers of IPv4, UDP and LEOTP, without the echo that few packets carry.
const HEADER_BYTES: f64 = 63.0;
/// The share of a link's rate that is payload, while it carries full packets that arrive at the first try.
pub(crate) const PAYLOAD_SHARE: f64 =
    NodeConfig::SEGMENT_BYTES as f64 / (NodeConfig::SEGMENT_BYTES as f64 + HEADER_BYTES);

/// Runs a plan. `is_told`: the ends of a hop that a path takes newly hear of it; where control is from end to end, the receiver hears of the path's
/// changes, as senders of other flows from end to end do.
pub(super) fn run(
    plan: &Plan,
    config: &NodeConfig,
    is_told: bool,
    seed: u64,
) -> Result<Vec<Figures>, Error> {
    let start = Instant::now();
    let contents: BTreeSet<u64> = plan.flows.iter().map(|flow| flow.content).collect();
    let mut config = config.clone();
    if contents.len() == plan.flows.len() {
        config.cache_bytes = config.cache_bytes.min(RECOVERY_CACHE);
    }
    let mut world = LeotpChain::new(plan, &config, seed, start)?;
    let mut changes: VecDeque<Duration> = plan.changes().into();
    let mut told = match (is_told, config.control) {
        (false, _) => VecDeque::new(),
        (true, Scope::Hop) => told::changes(plan),
        (true, Scope::EndToEnd) => told::changes_of_paths(plan),
    };
    let mut starts: VecDeque<(Duration, usize)> = plan
        .flows
        .iter()
        .enumerate()
        .map(|(number, flow)| (flow.start, number))
        .collect();
    starts.make_contiguous().sort_unstable();
    let mut at = Duration::ZERO;
    while at < plan.time {
        if changes.pop_front_if(|change| *change <= at).is_some() {
            world.route(plan, at);
        }
        while let Some(change) = told.pop_front_if(|change| change.told <= at) {
            world.tell(change, at);
        }
        while let Some((_, flow)) = starts.pop_front_if(|(begin, _)| *begin <= at) {
            world.begin(plan, flow, at)?;
        }
        if starts.is_empty() && world.is_finished() {
            break;
        }
        let next = [
            changes.front().copied(),
            told.front().map(|change| change.told),
            starts.front().map(|(at, _)| *at),
        ];
        let next = next
            .into_iter()
            .flatten()
            .fold((at + SLICE).min(plan.time), Duration::min);
        world.sim.run_for(next - at);
        at = next;
    }
    world.figures(plan, at)
}

struct LeotpChain {
    sim: Simulation<End>,
    start: Instant,
    links: BTreeMap<(usize, usize), [LinkId; 2]>,
    secret: ContentSecret,
    /// Who asks for what was lost.
    recovery: Scope,
    /// When each segment of a content left first, by content.
    departures: BTreeMap<u64, Departures>,
    seed: u64,
}

type Departures = Arc<Mutex<Vec<Option<u64>>>>;

impl LeotpChain {
    fn new(plan: &Plan, config: &NodeConfig, seed: u64, start: Instant) -> Result<Self, Error> {
        let mut sim = Simulation::new(seed, start);
        for number in 0..plan.nodes() {
            let mut random = [0; 32];
            random[..8].copy_from_slice(&seed.to_le_bytes());
            random[8..16].copy_from_slice(&(number as u64).to_le_bytes());
            let node = Node::new(start, config.clone(), random).map_err(failed)?;
            let id = sim.add_node(End::new(node, start));
            sim.network.bind(id, 0, address(number, 0));
        }
        let links = plan.links(&mut sim.network)?;
        for (&(a, b), &[forward, back]) in &links {
            sim.network
                .set_route(address(a, 0), address(b, 0), &[forward]);
            sim.network.set_route(address(b, 0), address(a, 0), &[back]);
            let mut secret = [0; 32];
            secret[..16].copy_from_slice(&[a as u64, b as u64].map(u64::to_le_bytes).concat());
            for (one, other) in [(a, b), (b, a)] {
                let key = NeighbourKey::new(&secret);
                let node = &mut sim.nodes[one].node;
                node.add_neighbour(start, neighbour(other), NeighbourConfig { key })
                    .map_err(failed)?;
            }
        }
        Ok(Self {
            sim,
            start,
            links,
            secret: ContentSecret::new(&[7; 32]),
            recovery: config.recovery,
            departures: BTreeMap::new(),
            seed,
        })
    }

    /// Sets the routes of all flows as they are at an instant. What is under way at a node that the path has left goes on, as
    /// packets from end to end do; a node of the path sends over its links alone.
    fn route(&mut self, plan: &Plan, at: Duration) {
        let now = self.start + at;
        let network = &mut self.sim.network;
        for flow in plan.flows.iter().filter(|flow| flow.path.len() > 1) {
            let path = flow.path_at(at);
            for pair in flow.path.iter().flat_map(|(_, path)| path.windows(2)) {
                let (a, b) = (pair[0], pair[1]);
                let is_used = path.windows(2).any(|used| used == pair);
                let Some(&[forward, back]) = self.links.get(&(a, b)) else {
                    continue;
                };
                for (from, to, link) in [(a, b, forward), (b, a, back)] {
                    match is_used || !path.contains(&from) {
                        true => network.set_route(address(from, 0), address(to, 0), &[link]),
                        false => network.remove_route(address(from, 0), address(to, 0)),
                    }
                }
            }
        }
        for flow in &plan.flows {
            for pair in flow.path_at(at).windows(2) {
                let node = &mut self.sim.nodes[pair[1]].node;
                node.set_route(now, content(flow.content), Some(neighbour(pair[0])));
                node.set_upstream(now, Some(neighbour(pair[0])));
            }
        }
    }

    /// Both ends of a hop hear that it is another one now.
    fn tell(&mut self, change: told::Change, at: Duration) {
        let event = Reconfiguration {
            at: self.start + change.at,
            // Nothing is lost on the way that was left.
            outage: Duration::ZERO,
            source: ReconfigurationSource::GroundTruth,
            confidence: 1.0,
        };
        let (a, b) = change.hop;
        for (node, other) in [(a, b), (b, a)] {
            let node = &mut self.sim.nodes[node].node;
            node.signal(self.start + at, neighbour(other), event);
        }
    }

    fn begin(&mut self, plan: &Plan, number: usize, at: Duration) -> Result<(), Error> {
        let flow = &plan.flows[number];
        let path = flow.path_at(at);
        let (Some(&first), Some(&last)) = (path.first(), path.last()) else {
            return Err(Error::Failed("a flow without nodes".into()));
        };
        let id = content(flow.content);
        if !self.departures.contains_key(&flow.content) {
            let departures = Departures::default();
            let text = self.text(plan, flow.content);
            let responder = &mut self.sim.nodes[first];
            let source = Noted {
                text,
                segment: NodeConfig::SEGMENT_BYTES as u64,
                clock: Arc::clone(&responder.clock),
                departures: Arc::clone(&departures),
            };
            responder.node.serve(id, &self.secret, Box::new(source));
            self.departures.insert(flow.content, departures);
        }
        let requester = &mut self.sim.nodes[last];
        let config = FetchConfig {
            notes_arrivals: true,
            ..FetchConfig::new(id, self.secret.clone())
        };
        let fetch = requester.node.fetch(self.start + at, config);
        requester.transfers.push(Transfer {
            flow: number,
            fetch,
            hash: Sha256::new(),
            began: at,
            ended: None,
            figures: Figures::default(),
            departures: Arc::clone(&self.departures[&flow.content]),
            furthest: 0,
        });
        Ok(())
    }

    fn text(&self, plan: &Plan, content: u64) -> Text {
        Text {
            seed: self.seed ^ content << 40,
            length: plan.content_bytes(),
        }
    }

    fn is_finished(&self) -> bool {
        self.sim
            .nodes
            .iter()
            .flat_map(|end| &end.transfers)
            .all(|transfer| transfer.ended.is_some())
    }

    fn figures(mut self, plan: &Plan, at: Duration) -> Result<Vec<Figures>, Error> {
        let mut all: BTreeMap<usize, Figures> = BTreeMap::new();
        let nodes = &mut self.sim.nodes;
        if let Some(why) = nodes.iter().find_map(|end| end.failed) {
            let seed = self.seed;
            return Err(Error::Failed(format!(
                "a transfer failed: {why:?}, seed {seed}"
            )));
        }
        let transfers: Vec<Transfer> = nodes
            .iter_mut()
            .flat_map(|end| std::mem::take(&mut end.transfers))
            .collect();
        let sum = |of: fn(&starhaul_leotp::Stats) -> u64| {
            nodes.iter().map(|end| of(&end.node.stats())).sum::<u64>()
        };
        let (asked_again, timeouts) = (
            sum(|stats| stats.reported_lost),
            sum(|stats| stats.timeouts),
        );
        let lost = self
            .links
            .values()
            .map(|links| self.sim.network[links[0]].stats().dropped())
            .sum();
        let asked_elsewhere = self.asked_elsewhere(plan);
        for transfer in transfers {
            let flow = &plan.flows[transfer.flow];
            let mut figures = transfer.figures;
            if <[u8; 32]>::from(transfer.hash.finalize())
                != self.text(plan, flow.content).hash(figures.bytes)
            {
                return Err(Error::Failed(format!(
                    "the bytes of a transfer are not those sent, seed {}",
                    self.seed
                )));
            }
            figures.is_complete = transfer.ended.is_some();
            figures.time = transfer.ended.unwrap_or(at) - transfer.began;
            figures.sender_bytes = self.sender_bytes(flow);
            (figures.asked_again, figures.timeouts, figures.lost) = (asked_again, timeouts, lost);
            figures.asked_elsewhere = asked_elsewhere;
            all.insert(transfer.flow, figures);
        }
        Ok(all.into_values().collect())
    }

    /// See [`Figures::asked_elsewhere`]. What all links into a node lost counts together: those from behind it lose nothing.
    fn asked_elsewhere(&self, plan: &Plan) -> Option<u64> {
        let moves = plan.flows.iter().any(|flow| flow.path.len() > 1);
        if moves || self.recovery == Scope::EndToEnd {
            return None;
        }
        let mut lost = vec![0; self.sim.nodes.len()];
        for (&(a, b), &[forward, back]) in &self.links {
            for (to, link) in [(b, forward), (a, back)] {
                lost[to] += self.sim.network[link].stats().dropped();
            }
        }
        let nodes = self.sim.nodes.iter().zip(lost);
        let beyond = nodes.map(|(end, lost)| end.node.stats().reported_lost.saturating_sub(lost));
        Some(beyond.sum())
    }

    /// What the first node of a flow's paths sent.
    fn sender_bytes(&self, flow: &super::Flow) -> u64 {
        let mut firsts: Vec<(usize, usize)> = flow
            .path
            .iter()
            .filter_map(|(_, path)| Some((*path.first()?, *path.get(1)?)))
            .collect();
        firsts.sort_unstable();
        firsts.dedup();
        let links = firsts.iter().filter_map(|nodes| self.links.get(nodes));
        links
            .map(|links| self.sim.network[links[0]].stats().enqueued_bytes)
            .sum()
    }
}

/// A node, and the transfers that it makes.
struct End {
    node: Node,
    start: Instant,
    /// Nanoseconds since the start, when the node may read a content.
    clock: Arc<AtomicU64>,
    transfers: Vec<Transfer>,
    /// Why a transfer ended too early.
    failed: Option<Failure>,
}

struct Transfer {
    flow: usize,
    fetch: FetchId,
    hash: Sha256,
    began: Duration,
    ended: Option<Duration>,
    figures: Figures,
    departures: Departures,
    furthest: u64,
}

impl End {
    fn new(node: Node, start: Instant) -> Self {
        Self {
            node,
            start,
            clock: Arc::default(),
            transfers: Vec::new(),
            failed: None,
        }
    }

    fn drain(&mut self, now: Instant) {
        let at = now.saturating_duration_since(self.start);
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::Arrived { fetch, offset } => {
                    if let Some(transfer) = self
                        .transfers
                        .iter_mut()
                        .find(|transfer| transfer.fetch == fetch)
                    {
                        transfer.arrived(at, offset);
                    }
                }
                Event::Finished(fetch) => {
                    let transfer = self
                        .transfers
                        .iter_mut()
                        .find(|transfer| transfer.fetch == fetch);
                    transfer
                        .into_iter()
                        .for_each(|transfer| transfer.ended = Some(at));
                }
                Event::Failed(_, why) => self.failed = Some(why),
                Event::Met(_) | Event::Shared(_) | Event::Readable(_) | Event::Stream(_) => {}
            }
        }
        for transfer in &mut self.transfers {
            while let Some(bytes) = self.node.read(now, transfer.fetch) {
                transfer.hash.update(&bytes);
                transfer.figures.bytes += bytes.len() as u64;
            }
        }
    }
}

impl Transfer {
    fn arrived(&mut self, at: Duration, offset: u64) {
        let segment =
            usize::try_from(offset / NodeConfig::SEGMENT_BYTES as u64).unwrap_or(usize::MAX);
        let departures = self.departures.lock();
        if let Some(left) = departures.get(segment).copied().flatten() {
            let delay = at.saturating_sub(Duration::from_nanos(left));
            self.figures.delays.add(delay);
            if offset < self.furthest {
                self.figures.late_delays.add(delay);
            }
        }
        self.furthest = self.furthest.max(offset);
    }
}

impl SimNode for End {
    type Load = Udp;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Udp>) {
        self.node
            .handle_datagram(now, from(packet.from), &packet.load.payload);
        self.drain(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Datagram>) {
        let nanos = now.saturating_duration_since(self.start).as_nanos();
        self.clock
            .store(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
        let mut datagram = Vec::with_capacity(1500);
        if let Some(NeighbourId(to)) = self.node.poll_transmit(now, &mut datagram) {
            let to = address(usize::try_from(to).unwrap_or(usize::MAX), 0);
            out.push_back(Datagram::udp(0, to, 0, Bytes::from(datagram)));
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.node.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
        self.drain(now);
    }
}

/// A content that notes when its segments are read first, which is when they leave.
struct Noted {
    text: Text,
    segment: u64,
    clock: Arc<AtomicU64>,
    departures: Departures,
}

impl Source for Noted {
    fn length(&self) -> u64 {
        self.text.length
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> bool {
        let mut departures = self.departures.lock();
        let segment = usize::try_from(offset / self.segment).unwrap_or(usize::MAX);
        if departures.len() <= segment {
            departures.resize(segment + 1, None);
        }
        departures[segment].get_or_insert(self.clock.load(Ordering::Relaxed));
        self.text.fill(offset, out);
        true
    }
}

fn content(number: u64) -> ContentId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    ContentId(id)
}

fn neighbour(node: usize) -> NeighbourId {
    NeighbourId(u32::try_from(node).unwrap_or(u32::MAX))
}

/// The neighbour with this address.
fn from(address: SocketAddr) -> NeighbourId {
    match address {
        SocketAddr::V4(address) => {
            let [_, _, high, low] = address.ip().octets();
            NeighbourId(u16::from_be_bytes([high, low]).into())
        }
        SocketAddr::V6(_) => NeighbourId(u32::MAX),
    }
}

fn failed(error: starhaul_leotp::Error) -> Error {
    Error::Failed(error.to_string())
}
