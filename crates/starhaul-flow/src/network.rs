//! Flows over links in virtual time, and their figures.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use starhaul_cc::{Controller, DetectorConfig, QueueWish, Reconfiguration, ReconfigurationSource};
use starhaul_link::{Delays, LinkSpec, LinkStats, Opportunities, Passage};
use starhaul_sim::{LinkId, NodeId, Simulation};

use crate::{
    AckPolicy, Metrics, PACKET_BYTES, ProbeSide, Receiver, RecoveryStats, Sample, Sender, Source,
    hosts::{Alarm, DATA, Host, PROBE, Peer, ReceivingHost, SendingHost},
    metrics::{Deliveries, mbps, mean_between, real},
    prober::Prober,
};

const SENDING: NodeId = NodeId(0);
const RECEIVING: NodeId = NodeId(1);

/// The links between sender and receiver, each direction in the order in which packets pass them. The first link
/// forward and the last one backward are the satellite link.
#[derive(Clone, Debug)]
pub struct FlowPath {
    /// The links of the data.
    pub forward: Vec<LinkSpec>,
    /// The links of the acknowledgements.
    pub backward: Vec<LinkSpec>,
}

/// The description of one flow.
#[derive(Debug)]
pub struct FlowSetup {
    /// Its congestion controller.
    pub controller: Box<dyn Controller>,
    /// Its application data.
    pub source: Source,
    /// The acknowledgement policy of its receiver.
    pub policy: AckPolicy,
    /// Its start, after that of the links.
    pub start: Duration,
    /// What is asked of the queue that its packets make, as by a session with deadlines.
    pub queue: QueueWish,
    /// When the link can carry each packet, if the sender knows it beforehand ([`Sender::foresee`]).
    pub foresight: Option<Arc<Opportunities>>,
}

impl FlowSetup {
    /// Creates a flow that begins at once and always has data.
    pub fn saturating(controller: Box<dyn Controller>) -> Self {
        Self {
            controller,
            source: Source::Saturating,
            policy: AckPolicy::default(),
            start: Duration::ZERO,
            queue: QueueWish::default(),
            foresight: None,
        }
    }
}

/// The results of one flow.
#[derive(Clone, Debug)]
pub struct FlowReport {
    /// The figures, from the flow's start or the last [`FlowNetwork::restart_figures`] to the end of the run.
    pub metrics: Metrics,
    /// Counters of its sender.
    pub recovery: RecoveryStats,
    /// Its time series, if the run was sampled.
    pub samples: Vec<Sample>,
    /// When the controller entered each state, in seconds, and the state's name, if the run was sampled.
    pub states: Vec<(f64, &'static str)>,
}

/// A path and the flows that share it.
#[derive(Debug)]
pub struct FlowNetwork {
    sim: Simulation<Host>,
    start: Instant,
    forward: Vec<LinkId>,
    backward: Vec<LinkId>,
    figures: Vec<Figures>,
    sampling: Option<Sampling>,
}

#[derive(Debug)]
struct Sampling {
    interval: Duration,
    next: Instant,
}

/// The start of a flow's figures, and its samples.
#[derive(Debug)]
struct Figures {
    /// The flow's start, or the last [`FlowNetwork::restart_figures`].
    since: Instant,
    sent_before: u64,
    received_before: u64,
    capacity_before: u64,
    last: Totals,
    samples: Vec<Sample>,
}

/// Running totals, whose differences make a [`Sample`].
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    capacity: u64,
    new_bytes: u64,
    waited: (u64, Duration),
    rtt: (u64, Duration),
}

impl FlowNetwork {
    /// Creates a path without flows. `seed` determines the losses of the links, `start` is virtual time 0.
    pub fn new(path: &FlowPath, seed: u64, start: Instant) -> Self {
        let address = |host: u8, socket: u32| -> SocketAddr {
            ([10, 0, 0, host], if socket == DATA { 1 } else { 2 }).into()
        };
        let peer = |host| Peer {
            data: address(host, DATA),
            probe: address(host, PROBE),
        };
        let mut sim = Simulation::new(seed, start);
        let sending = sim.add_node(Host::Sending(SendingHost::new(start, peer(2))));
        let receiving = sim.add_node(Host::Receiving(ReceivingHost::new(peer(1))));
        let network = &mut sim.network;
        for (node, host) in [(sending, 1), (receiving, 2)] {
            for socket in [DATA, PROBE] {
                network.bind(node, socket, address(host, socket));
            }
        }
        let mut links = |specs: &[LinkSpec]| -> Vec<LinkId> {
            specs.iter().map(|spec| network.add_link(spec)).collect()
        };
        let (forward, backward) = (links(&path.forward), links(&path.backward));
        network.set_route(address(1, DATA), address(2, DATA), &forward);
        network.set_route(address(2, DATA), address(1, DATA), &backward);
        let satellite = forward.get(..1).unwrap_or_default();
        network.set_route(address(1, PROBE), address(2, PROBE), satellite);
        let satellite = backward.last().map(std::slice::from_ref);
        let satellite = satellite.unwrap_or_default();
        network.set_route(address(2, PROBE), address(1, PROBE), satellite);
        Self {
            sim,
            start,
            forward,
            backward,
            figures: Vec::new(),
            sampling: None,
        }
    }

    /// Adds a flow.
    pub fn add_flow(&mut self, setup: FlowSetup) {
        let begin = self.start + setup.start;
        let mut sender = Sender::new(begin, setup.source, setup.policy, setup.controller);
        sender.path().set_queue_wish(setup.queue);
        if let Some(opportunities) = setup.foresight {
            sender.foresee(self.start, opportunities);
        }
        let capacity_before = self.capacity_bytes(self.start, begin);
        self.sending().add_flow(sender);
        self.receiving().add_flow(Receiver::new(setup.policy));
        self.figures.push(Figures {
            since: begin,
            sent_before: 0,
            received_before: 0,
            capacity_before,
            last: Totals::default(),
            samples: Vec::new(),
        });
    }

    /// Signals every controller, at `told` after the start, a reconfiguration that ended at `at` after the start.
    pub fn tell(
        &mut self,
        told: Duration,
        at: Duration,
        outage: Duration,
        source: ReconfigurationSource,
    ) {
        let reconfiguration = Reconfiguration {
            at: self.start + at,
            outage,
            source,
            confidence: 1.0,
        };
        let told = self.start + told;
        self.sending().tell(told, reconfiguration);
    }

    /// Probes the satellite link from one of its ends, and signals every controller what a detector finds. The links'
    /// descriptions decide whether probes wait behind data.
    pub fn probe(&mut self, config: DetectorConfig, side: ProbeSide) {
        let prober = Prober::new(config, self.start);
        let NodeId(host) = match side {
            ProbeSide::Sender => SENDING,
            ProbeSide::Receiver => RECEIVING,
        };
        *self.sim.nodes[host].prober() = Some(prober);
    }

    /// The prober, at either end.
    fn prober(&mut self) -> Option<&mut Prober> {
        let mut hosts = self.sim.nodes.iter_mut();
        hosts.find_map(|host| host.prober().as_mut())
    }

    /// Drops this share of the detector's findings at random, from a seed of its own; segment RTTs are not dropped.
    pub fn lose_alarms(&mut self, share: f64, seed: u64) {
        if let Some(prober) = self.prober() {
            prober.lose(share, seed);
        }
    }

    /// The RTT of the satellite segment, as measured by the prober.
    pub fn segment_rtt(&mut self) -> Option<Duration> {
        self.prober()?.detector.segment_rtt()
    }

    /// Reconfigurations signalled to the controllers so far; recorded also without flows.
    pub fn alarms(&mut self) -> &[Alarm] {
        &self.sending().alarms
    }

    /// Samples every flow at each `interval`.
    pub fn sample_each(&mut self, interval: Duration) {
        self.sending().notes_states = true;
        self.sampling = Some(Sampling {
            interval,
            next: self.start + interval,
        });
    }

    /// Records what the first link of each direction delivers, for [`FlowNetwork::take_passages`].
    pub fn watch(&mut self) {
        for link in self
            .forward
            .first()
            .into_iter()
            .chain(self.backward.first())
        {
            self.sim.network.watch(*link);
        }
    }

    /// Deliveries of the first forward and backward links, if they are watched, and the counters of the first forward
    /// link.
    pub fn take_passages(&mut self) -> ([Vec<Passage>; 2], LinkStats) {
        let links = [self.forward.first(), self.backward.first()];
        let network = &mut self.sim.network;
        let passages = links.map(|link| link.map(|link| network.take_passages(*link)));
        let stats = links[0].map(|link| network[*link].stats());
        (
            passages.map(Option::unwrap_or_default),
            stats.unwrap_or_default(),
        )
    }

    /// Resets the figures: reports cover what follows.
    pub fn restart_figures(&mut self) {
        let now = self.sim.now();
        let capacity = self.capacity_bytes(self.start, now);
        for number in 0..self.figures.len() {
            let under_way = self.under_way(number);
            let sending = &mut self.sending().flows[number];
            let sent = sending.sender.stats().sent;
            sending.round_trips = Delays::default();
            let receiving = &mut self.receiving().flows[number];
            let received = receiving.receiver.received();
            receiving.deliveries = Deliveries::default();
            let figures = &mut self.figures[number];
            figures.since = now;
            figures.capacity_before = capacity;
            figures.received_before = received;
            figures.sent_before = sent.saturating_sub(under_way);
            figures.last = Totals {
                capacity: figures.last.capacity,
                ..Totals::default()
            };
        }
    }

    /// Runs for `time` of virtual time.
    pub fn run(&mut self, time: Duration) {
        let now = self.sim.now();
        self.sending().transmit_all(now);
        let end = now + time;
        loop {
            let until = self.next_sample().map_or(end, |at| at.min(end));
            if !self.sim.step(until) && self.sim.now() >= end {
                break;
            }
            self.sample();
        }
        self.sample();
    }

    /// The results of each flow, in the order of [`FlowNetwork::add_flow`].
    pub fn reports(mut self) -> Vec<FlowReport> {
        let now = self.sim.now();
        let capacity = self.capacity_bytes(self.start, now);
        let figures = std::mem::take(&mut self.figures);
        let reports = figures.into_iter().enumerate().map(|(number, figures)| {
            let under_way = self.under_way(number);
            let receiving = &self.receiving().flows[number];
            let received = receiving.receiver.received();
            let deliveries = receiving.deliveries.clone();
            let sending = &mut self.sending().flows[number];
            let recovery = sending.sender.stats();
            let sent = recovery.sent.saturating_sub(figures.sent_before);
            let arrived = received.saturating_sub(figures.received_before);
            let dropped = sent.saturating_sub(arrived + under_way);
            let time = now.saturating_duration_since(figures.since);
            let capacity = capacity.saturating_sub(figures.capacity_before);
            FlowReport {
                metrics: Metrics::of_flow(
                    time,
                    capacity,
                    &deliveries,
                    &sending.round_trips,
                    real(dropped) / real(sent.max(1)),
                ),
                recovery,
                samples: figures.samples,
                states: std::mem::take(&mut sending.states),
            }
        });
        reports.collect()
    }

    /// How many packets of a flow may still arrive: they are not lost. Those that arrived and whose acknowledgements are under
    /// way are none of them.
    fn under_way(&mut self, flow: usize) -> u64 {
        let numbers: Vec<u64> = self.sending().flows[flow].sender.in_flight().collect();
        let receiver = &self.receiving().flows[flow].receiver;
        numbers.into_iter().filter(|it| !receiver.has(*it)).count() as u64
    }

    /// Bytes that the narrowest forward link can carry between two instants.
    pub fn capacity_bytes(&self, from: Instant, to: Instant) -> u64 {
        let links = self.forward.iter();
        links
            .map(|link| self.sim.network[*link].capacity_bytes_between(from, to))
            .min()
            .unwrap_or(0)
    }

    fn next_sample(&self) -> Option<Instant> {
        self.sampling.as_ref().map(|sampling| sampling.next)
    }

    fn sample(&mut self) {
        let now = self.sim.now();
        let Some(sampling) = self.sampling.as_mut().filter(|s| s.next <= now) else {
            return;
        };
        let interval = sampling.interval;
        sampling.next += interval;
        let at = now.saturating_duration_since(self.start);
        let capacity = self.capacity_bytes(self.start, now);
        for number in 0..self.figures.len() {
            let deliveries = &self.receiving().flows[number].deliveries;
            let (new_bytes, waited) = (deliveries.new_bytes(), deliveries.waited());
            let flow = &mut self.sending().flows[number];
            let totals = Totals {
                capacity,
                new_bytes,
                waited,
                rtt: flow.round_trips.total(),
            };
            let controller = flow.sender.path().controller();
            let (cwnd, state) = (controller.cwnd(), controller.state());
            let pacing_mbps = flow.sender.pacing_rate().mbit();
            let figures = &mut self.figures[number];
            let last = std::mem::replace(&mut figures.last, totals);
            figures.samples.push(Sample {
                at_s: at.as_secs_f64(),
                throughput_mbps: mbps(totals.new_bytes - last.new_bytes, interval),
                capacity_mbps: mbps(capacity.saturating_sub(last.capacity), interval),
                rtt_ms: mean_between(last.rtt, totals.rtt),
                queue_delay_ms: mean_between(last.waited, totals.waited),
                cwnd_packets: real(cwnd) / real(PACKET_BYTES),
                pacing_mbps,
                state,
            });
        }
    }

    fn sending(&mut self) -> &mut SendingHost {
        match &mut self.sim.nodes[SENDING.0] {
            Host::Sending(host) => host,
            Host::Receiving(_) => unreachable!("the first node sends"),
        }
    }

    fn receiving(&mut self) -> &mut ReceivingHost {
        match &mut self.sim.nodes[RECEIVING.0] {
            Host::Receiving(host) => host,
            Host::Sending(_) => unreachable!("the second node receives"),
        }
    }
}
