//! Flows over links in virtual time: the loop that jumps from event to event.

use std::time::{Duration, Instant};

use starhaul_cc::{Controller, DetectorConfig, Reconfiguration, ReconfigurationSource};
use starhaul_link::{Arrival, Band, Link, LinkSpec};

use super::{
    ACK_BYTES, Ack, AckPolicy, DataPacket, Metrics, PACKET_BYTES, Receiver, Recorder,
    RecoveryStats, Sample, Sender, Source,
    metrics::{Totals, mbps, mean_between, real},
    prober::{PROBE_BYTES, ProbeSide, Prober},
};

/// The links between sender and receiver, each direction in the order in which packets pass them.
#[derive(Clone, Debug)]
pub struct PathSetup {
    /// What carries the data.
    pub forward: Vec<LinkSpec>,
    /// What carries the acknowledgements.
    pub backward: Vec<LinkSpec>,
}

/// One flow.
#[derive(Debug)]
pub struct FlowSetup {
    /// Its controller.
    pub controller: Box<dyn Controller>,
    /// What it has to send.
    pub source: Source,
    /// How its receiver acknowledges.
    pub policy: AckPolicy,
    /// When it begins, after the start of the links.
    pub start: Duration,
}

impl FlowSetup {
    /// A flow that begins at once and always has data.
    pub fn saturating(controller: Box<dyn Controller>) -> Self {
        Self {
            controller,
            source: Source::Saturating,
            policy: AckPolicy::default(),
            start: Duration::ZERO,
        }
    }
}

/// What a flow did.
#[derive(Clone, Debug)]
pub struct FlowReport {
    /// The figures, from the flow's begin or the last [`World::restart_figures`] to the end of the run.
    pub metrics: Metrics,
    /// Counters of its sender.
    pub recovery: RecoveryStats,
    /// Its course, if the run was sampled.
    pub samples: Vec<Sample>,
    /// The controller's state and when it entered it, if the run was sampled.
    pub states: Vec<(f64, &'static str)>,
}

/// Links and the flows that share them.
#[derive(Debug)]
pub struct World {
    start: Instant,
    now: Instant,
    forward: Vec<Link<Carried>>,
    backward: Vec<Link<Carried>>,
    flows: Vec<Flow>,
    /// What controllers are told, and when; sorted.
    signals: Vec<(Duration, Reconfiguration)>,
    signals_told: usize,
    prober: Option<Prober>,
    alarms: Vec<Alarm>,
    sampling: Option<Sampling>,
}

/// News of a reconfiguration that reached the controllers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alarm {
    /// When, after the start.
    pub told: Duration,
    /// What it said.
    pub reconfiguration: Reconfiguration,
}

#[derive(Debug)]
struct Sampling {
    interval: Duration,
    next: Instant,
}

#[derive(Debug)]
struct Flow {
    /// Since when its figures count: its begin, or the last [`World::restart_figures`].
    since: Instant,
    sent_before: u64,
    received_before: u64,
    sender: Sender,
    receiver: Receiver,
    recorder: Recorder,
    capacity_before: u64,
    last: Totals,
    last_capacity: u64,
    samples: Vec<Sample>,
    states: Vec<(f64, &'static str)>,
}

/// What a link carries.
#[derive(Clone, Debug)]
struct Carried {
    /// Which flow it belongs to; probes belong to none.
    flow: usize,
    /// When it came to the link where it is.
    came: Instant,
    /// What it waited at earlier links.
    waited: Duration,
    load: Load,
}

#[derive(Clone, Debug)]
enum Load {
    Data(DataPacket),
    Ack(Ack),
    Probe(u64),
    Echo(u64),
    News(Reconfiguration),
}

impl World {
    /// A path without flows. `seed` decides what the links lose, `start` stands for virtual time 0.
    pub fn new(path: &PathSetup, seed: u64, start: Instant) -> Self {
        // An odd factor, so that runs of neighbouring seeds share no link seed.
        let mut seeds =
            (0..).map(|n: u64| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(n));
        let mut links = |specs: &[LinkSpec]| -> Vec<Link<Carried>> {
            specs
                .iter()
                .zip(&mut seeds)
                .map(|(spec, seed)| Link::new(spec, seed, start))
                .collect()
        };
        Self {
            start,
            now: start,
            forward: links(&path.forward),
            backward: links(&path.backward),
            flows: Vec::new(),
            signals: Vec::new(),
            signals_told: 0,
            prober: None,
            alarms: Vec::new(),
            sampling: None,
        }
    }

    /// Adds a flow.
    pub fn add_flow(&mut self, setup: FlowSetup) {
        let begin = self.start + setup.start;
        self.flows.push(Flow {
            since: begin,
            sent_before: 0,
            received_before: 0,
            sender: Sender::new(begin, setup.source, setup.policy, setup.controller),
            receiver: Receiver::new(setup.policy),
            recorder: Recorder::default(),
            capacity_before: 0,
            last: Totals::default(),
            last_capacity: 0,
            samples: Vec::new(),
            states: Vec::new(),
        });
        if let Some(flow) = self.flows.len().checked_sub(1) {
            self.flows[flow].capacity_before = self.capacity_bytes(self.start, begin);
        }
    }

    /// Tells every controller of a reconfiguration that ended `at` after the start, `told` after the start.
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
        self.signals.push((told, reconfiguration));
        self.signals.sort_by_key(|(told, _)| *told);
    }

    /// Probes the satellite link, which is the first forward and the last backward, and tells every controller what a detector
    /// finds. Whether probes wait behind data is for the links' descriptions to say.
    pub fn probe(&mut self, config: DetectorConfig, side: ProbeSide) {
        self.prober = Some(Prober::new(config, side, self.start));
    }

    /// Of what the prober finds this share is lost, by a chance of its own; what it measures of the segment is not.
    pub fn lose_alarms(&mut self, share: f64, seed: u64) {
        if let Some(prober) = &mut self.prober {
            prober.lose(share, seed);
        }
    }

    /// The RTT of the satellite segment as the prober measures it.
    pub fn segment_rtt(&self) -> Option<Duration> {
        self.prober.as_ref()?.detector.segment_rtt()
    }

    /// What controllers have been told so far.
    pub fn alarms(&self) -> &[Alarm] {
        &self.alarms
    }

    /// Samples every flow each `interval`.
    pub fn sample_each(&mut self, interval: Duration) {
        self.sampling = Some(Sampling {
            interval,
            next: self.start + interval,
        });
    }

    /// Forgets the figures so far: those reported at the end are of what follows.
    pub fn restart_figures(&mut self) {
        let (now, capacity) = (self.now, self.capacity_bytes(self.start, self.now));
        for flow in &mut self.flows {
            flow.since = now;
            flow.capacity_before = capacity;
            flow.recorder = Recorder::default();
            flow.last = Totals::default();
            flow.received_before = flow.receiver.received();
            let under_way = flow.sender.bytes_in_flight() / PACKET_BYTES;
            flow.sent_before = flow.sender.stats().sent.saturating_sub(under_way);
        }
    }

    /// Runs for `time` of virtual time.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        for flow in 0..self.flows.len() {
            self.transmit(flow);
        }
        while let Some(at) = self.next_event().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.deliver();
            self.fire();
        }
        self.now = end;
    }

    /// What each flow did, in the order in which they were added.
    pub fn reports(self) -> Vec<FlowReport> {
        let (now, capacity) = (self.now, self.capacity_bytes(self.start, self.now));
        self.flows
            .into_iter()
            .map(|flow| {
                let recovery = flow.sender.stats();
                let sent = recovery.sent.saturating_sub(flow.sent_before);
                // What is still under way was not dropped.
                let under_way = flow.sender.bytes_in_flight() / PACKET_BYTES;
                let arrived = flow
                    .receiver
                    .received()
                    .saturating_sub(flow.received_before);
                let dropped = sent.saturating_sub(arrived + under_way);
                let time = now.saturating_duration_since(flow.since);
                let capacity = capacity.saturating_sub(flow.capacity_before);
                FlowReport {
                    metrics: flow.recorder.metrics(time, capacity, sent, dropped),
                    recovery,
                    samples: flow.samples,
                    states: flow.states,
                }
            })
            .collect()
    }

    fn next_event(&self) -> Option<Instant> {
        let links = self.forward.iter().chain(&self.backward);
        let flows = self
            .flows
            .iter()
            .flat_map(|flow| [flow.sender.poll_timeout(), flow.receiver.poll_timeout()]);
        links
            .map(Link::next_event)
            .chain(flows)
            .chain([
                self.next_signal(),
                self.prober
                    .as_ref()
                    .map(|prober| prober.detector.next_probe()),
                self.sampling.as_ref().map(|s| s.next),
            ])
            .flatten()
            .min()
    }

    fn next_signal(&self) -> Option<Instant> {
        let (told, _) = self.signals.get(self.signals_told)?;
        Some(self.start + *told)
    }

    /// Moves what has come to the end of a link.
    fn deliver(&mut self) {
        for link in 0..self.forward.len() {
            while let Some(arrival) = self.forward[link].poll_arrival(self.now) {
                let carried = Carried::after(arrival, self.now);
                match (&carried.load, self.forward.get_mut(link + 1)) {
                    (Load::Probe(_) | Load::Echo(_), _) => self.probe_arrived(carried.load),
                    (_, Some(next)) => carried.enqueue(next, self.now),
                    (_, None) => self.arrive(carried),
                }
            }
        }
        for link in 0..self.backward.len() {
            while let Some(arrival) = self.backward[link].poll_arrival(self.now) {
                let carried = Carried::after(arrival, self.now);
                match (&carried.load, self.backward.get_mut(link + 1)) {
                    (Load::Probe(_) | Load::Echo(_), _) => self.probe_arrived(carried.load),
                    (_, Some(next)) => carried.enqueue(next, self.now),
                    (_, None) => self.arrive(carried),
                }
            }
        }
    }

    fn arrive(&mut self, carried: Carried) {
        let now = self.now;
        let Some(flow) = self.flows.get_mut(carried.flow) else {
            return;
        };
        match carried.load {
            Load::Data(packet) => {
                let new = flow.receiver.handle_data(now, packet);
                flow.recorder.on_delivered(carried.waited, new);
                self.acknowledge(carried.flow);
            }
            Load::Ack(ack) => {
                if let Some(rtt) = flow.sender.handle_ack(now, &ack) {
                    flow.recorder.on_rtt(rtt);
                }
                self.transmit(carried.flow);
            }
            Load::News(reconfiguration) => self.hear(reconfiguration),
            // These go no further than the satellite link.
            Load::Probe(_) | Load::Echo(_) => {}
        }
    }

    /// Timers that are due.
    fn fire(&mut self) {
        let now = self.now;
        while self.next_signal().is_some_and(|at| at <= now) {
            let (_, reconfiguration) = self.signals[self.signals_told];
            self.signals_told += 1;
            self.hear(reconfiguration);
        }
        self.send_probes();
        for flow in 0..self.flows.len() {
            let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            if due(self.flows[flow].sender.poll_timeout()) {
                self.flows[flow].sender.handle_timeout(now);
                self.transmit(flow);
            }
            if due(self.flows[flow].receiver.poll_timeout()) {
                self.acknowledge(flow);
            }
        }
        self.sample();
    }

    fn send_probes(&mut self) {
        let now = self.now;
        while let Some(prober) = &mut self.prober
            && let Some(sequence) = prober.due(now)
        {
            let side = prober.side;
            self.put_on_satellite_link(side, Load::Probe(sequence));
        }
    }

    /// Each satellite link is the first of its direction where data enter, and the last where acknowledgements leave.
    fn put_on_satellite_link(&mut self, from: ProbeSide, load: Load) {
        let link = match from {
            ProbeSide::Sender => self.forward.first_mut(),
            ProbeSide::Receiver => self.backward.last_mut(),
        };
        if let Some(link) = link {
            Carried::new(0, load, self.now).enqueue(link, self.now);
        }
    }

    fn probe_arrived(&mut self, load: Load) {
        let now = self.now;
        let Some(prober) = &mut self.prober else {
            return;
        };
        let far = match prober.side {
            ProbeSide::Sender => ProbeSide::Receiver,
            ProbeSide::Receiver => ProbeSide::Sender,
        };
        let sequence = match load {
            Load::Probe(sequence) => {
                return self.put_on_satellite_link(far, Load::Echo(sequence));
            }
            Load::Echo(sequence) => sequence,
            _ => return,
        };
        let found = prober.on_response(now, sequence);
        match prober.side {
            ProbeSide::Sender => {
                if let Some(rtt) = prober.detector.segment_rtt() {
                    for flow in &mut self.flows {
                        flow.sender.controller().on_segment_rtt(now, rtt);
                    }
                }
                if let Some(reconfiguration) = found {
                    self.hear(reconfiguration);
                }
            }
            ProbeSide::Receiver => {
                if let (Some(mut reconfiguration), Some(link)) = (found, self.backward.first_mut())
                {
                    reconfiguration.source = ReconfigurationSource::Peer;
                    Carried::new(0, Load::News(reconfiguration), now).enqueue(link, now);
                }
            }
        }
    }

    /// All controllers are told.
    fn hear(&mut self, reconfiguration: Reconfiguration) {
        let now = self.now;
        self.alarms.push(Alarm {
            told: now.saturating_duration_since(self.start),
            reconfiguration,
        });
        for number in 0..self.flows.len() {
            let flow = &mut self.flows[number];
            flow.sender
                .controller()
                .on_reconfiguration(now, reconfiguration);
            // It may let go more at once.
            self.transmit(number);
        }
    }

    fn transmit(&mut self, number: usize) {
        let (now, flow) = (self.now, &mut self.flows[number]);
        while let Some(packet) = flow.sender.poll_transmit(now) {
            if let Some(link) = self.forward.first_mut() {
                Carried::new(number, Load::Data(packet), now).enqueue(link, now);
            }
        }
        if self.sampling.is_some() {
            let state = flow.sender.controller().state();
            if flow.states.last().is_none_or(|(_, last)| *last != state) {
                let at = now.saturating_duration_since(self.start).as_secs_f64();
                flow.states.push((at, state));
            }
        }
    }

    fn acknowledge(&mut self, number: usize) {
        let now = self.now;
        if let Some(ack) = self.flows[number].receiver.poll_transmit(now)
            && let Some(link) = self.backward.first_mut()
        {
            Carried::new(number, Load::Ack(ack), now).enqueue(link, now);
        }
    }

    fn sample(&mut self) {
        let Some(sampling) = self.sampling.as_mut().filter(|s| s.next <= self.now) else {
            return;
        };
        let interval = sampling.interval;
        sampling.next += interval;
        let at = self.now.saturating_duration_since(self.start);
        let capacity = self.capacity_bytes(self.start, self.now);
        for flow in &mut self.flows {
            let totals = flow.recorder.totals();
            flow.samples.push(Sample {
                at_s: at.as_secs_f64(),
                throughput_mbps: mbps(totals.new_bytes - flow.last.new_bytes, interval),
                capacity_mbps: mbps(capacity.saturating_sub(flow.last_capacity), interval),
                rtt_ms: mean_between(flow.last.rtt, totals.rtt),
                queue_delay_ms: mean_between(flow.last.waited, totals.waited),
                cwnd_packets: real(flow.sender.controller().cwnd()) / real(PACKET_BYTES),
                pacing_mbps: flow.sender.pacing_rate().mbit(),
                state: flow.sender.controller().state(),
            });
            flow.last = totals;
            flow.last_capacity = capacity;
        }
    }

    /// What the narrowest link forward can carry between two instants.
    fn capacity_bytes(&self, from: Instant, to: Instant) -> u64 {
        self.forward
            .iter()
            .map(|link| link.capacity_bytes_between(from, to))
            .min()
            .unwrap_or(0)
    }
}

impl Carried {
    fn new(flow: usize, load: Load, now: Instant) -> Self {
        Self {
            flow,
            came: now,
            waited: Duration::ZERO,
            load,
        }
    }

    /// As it comes out of a link.
    fn after(arrival: Arrival<Self>, now: Instant) -> Self {
        let mut carried = arrival.packet;
        carried.waited += arrival.sent.saturating_duration_since(carried.came);
        carried.came = now;
        carried
    }

    fn enqueue(self, link: &mut Link<Self>, now: Instant) {
        let (band, bytes) = match self.load {
            Load::Data(_) => (
                Band::Data,
                usize::try_from(PACKET_BYTES).unwrap_or(usize::MAX),
            ),
            Load::Ack(_) | Load::News(_) => (Band::Data, ACK_BYTES),
            Load::Probe(_) | Load::Echo(_) => (Band::Icmp, PROBE_BYTES),
        };
        link.enqueue_in(band, now, bytes, self);
    }
}
