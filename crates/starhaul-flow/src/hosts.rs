//! The two ends of the path as nodes of the simulator: all senders at one, all receivers at the other, and the prober
//! of the satellite link at either.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use starhaul_cc::{PathEnd, PathSignal, Reconfiguration, ReconfigurationSource};
use starhaul_link::Delays;
use starhaul_sim::{Delivery, Node, Packet};

use crate::{Receiver, Sender, message::Message, metrics::Deliveries, prober::Prober};

/// The socket of data, acknowledgements and detector findings.
pub(crate) const DATA: u32 = 0;
/// The socket at the host's end of the satellite link.
pub(crate) const PROBE: u32 = 1;

/// The destination addresses of a host's sockets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) data: SocketAddr,
    pub(crate) probe: SocketAddr,
}

/// The sockets and messages that both hosts have.
#[derive(Debug)]
struct Sockets {
    peer: Peer,
    prober: Option<Prober>,
    out: VecDeque<Packet<Message>>,
}

/// The host of all senders.
#[derive(Debug)]
pub(crate) struct SendingHost {
    sockets: Sockets,
    start: Instant,
    pub(crate) flows: Vec<SendingFlow>,
    /// Signals to the controllers and their instants; sorted.
    signals: VecDeque<(Instant, Reconfiguration)>,
    pub(crate) alarms: Vec<Alarm>,
    /// Whether changes of the controllers' states are recorded.
    pub(crate) notes_states: bool,
}

#[derive(Debug)]
pub(crate) struct SendingFlow {
    pub(crate) sender: Sender,
    pub(crate) round_trips: Delays,
    pub(crate) states: Vec<(f64, &'static str)>,
}

/// The host of all receivers.
#[derive(Debug)]
pub(crate) struct ReceivingHost {
    sockets: Sockets,
    pub(crate) flows: Vec<ReceivingFlow>,
}

#[derive(Debug)]
pub(crate) struct ReceivingFlow {
    pub(crate) receiver: Receiver,
    pub(crate) deliveries: Deliveries,
}

/// A reconfiguration that was signalled to the controllers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alarm {
    /// When it was signalled, after the start.
    pub told: Duration,
    /// The reconfiguration that was signalled.
    pub reconfiguration: Reconfiguration,
}

/// A host at either end of the path.
#[derive(Debug)]
pub(crate) enum Host {
    Sending(SendingHost),
    Receiving(ReceivingHost),
}

impl Sockets {
    fn new(peer: Peer) -> Self {
        Self {
            peer,
            prober: None,
            out: VecDeque::new(),
        }
    }

    fn send(&mut self, load: Message) {
        let (local, to) = match load {
            Message::Data(..) | Message::Ack(..) | Message::News(_) => (DATA, self.peer.data),
            Message::Probe(_) | Message::Echo(_) => (PROBE, self.peer.probe),
        };
        self.out.push_back(Packet { local, to, load });
    }

    /// When the next probe leaves.
    fn next_probe(&self) -> Option<Instant> {
        let prober = self.prober.as_ref()?;
        Some(prober.detector.next_probe())
    }

    fn send_probes(&mut self, now: Instant) {
        while let Some(sequence) = self.prober.as_mut().and_then(|prober| prober.due(now)) {
            self.send(Message::Probe(sequence));
        }
    }

    /// Handles the answer to a probe; returns the reconfiguration that it reveals, if any.
    fn echoed(&mut self, now: Instant, sequence: u64) -> Option<Reconfiguration> {
        self.prober.as_mut()?.on_response(now, sequence)
    }
}

impl SendingHost {
    pub(crate) fn new(start: Instant, peer: Peer) -> Self {
        Self {
            sockets: Sockets::new(peer),
            start,
            flows: Vec::new(),
            signals: VecDeque::new(),
            alarms: Vec::new(),
            notes_states: false,
        }
    }

    pub(crate) fn add_flow(&mut self, sender: Sender) {
        self.flows.push(SendingFlow {
            sender,
            round_trips: Delays::default(),
            states: Vec::new(),
        });
    }

    /// Signals every controller at the instant `told`.
    pub(crate) fn tell(&mut self, told: Instant, reconfiguration: Reconfiguration) {
        let place = self.signals.partition_point(|(at, _)| *at <= told);
        self.signals.insert(place, (told, reconfiguration));
    }

    /// Lets every flow send what its window and pacer allow.
    pub(crate) fn transmit_all(&mut self, now: Instant) {
        for number in 0..self.flows.len() {
            self.transmit(now, number);
        }
    }

    fn transmit(&mut self, now: Instant, number: usize) {
        let Some(flow) = self.flows.get_mut(number) else {
            return;
        };
        while let Some(packet) = flow.sender.poll_transmit(now) {
            self.sockets.send(Message::Data(number, packet));
        }
        if self.notes_states {
            let state = flow.sender.path().controller().state();
            if flow.states.last().is_none_or(|(_, last)| *last != state) {
                let at = now.saturating_duration_since(self.start).as_secs_f64();
                flow.states.push((at, state));
            }
        }
    }

    /// Signals all controllers.
    fn hear(&mut self, now: Instant, reconfiguration: Reconfiguration) {
        self.alarms.push(Alarm {
            told: now.saturating_duration_since(self.start),
            reconfiguration,
        });
        for number in 0..self.flows.len() {
            let path = self.flows[number].sender.path();
            path.on_signal(now, PathSignal::Reconfiguration(reconfiguration));
            // The controller may allow more at once.
            self.transmit(now, number);
        }
    }

    fn handle_packet(&mut self, now: Instant, load: Message) {
        match load {
            Message::Ack(number, ack) => {
                let Some(flow) = self.flows.get_mut(number) else {
                    return;
                };
                if let Some(rtt) = flow.sender.handle_ack(now, &ack) {
                    flow.round_trips.add(rtt);
                }
                self.transmit(now, number);
            }
            Message::Probe(sequence) => self.sockets.send(Message::Echo(sequence)),
            Message::Echo(sequence) => {
                let found = self.sockets.echoed(now, sequence);
                let prober = self.sockets.prober.as_ref();
                if let Some(rtt) = prober.and_then(|prober| prober.detector.segment_rtt()) {
                    let end = PathEnd::Local;
                    let signal = PathSignal::SegmentRtt { end, rtt };
                    for flow in &mut self.flows {
                        flow.sender.path().on_signal(now, signal);
                    }
                }
                if let Some(reconfiguration) = found {
                    self.hear(now, reconfiguration);
                }
            }
            Message::News(reconfiguration) => self.hear(now, reconfiguration),
            Message::Data(..) => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let flows = self.flows.iter().map(|flow| flow.sender.poll_timeout());
        let signal = self.signals.front().map(|(at, _)| *at);
        flows
            .chain([signal, self.sockets.next_probe()])
            .flatten()
            .min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some((_, reconfiguration)) = self.signals.pop_front_if(|(at, _)| *at <= now) {
            self.hear(now, reconfiguration);
        }
        self.sockets.send_probes(now);
        for number in 0..self.flows.len() {
            let sender = &mut self.flows[number].sender;
            if sender.poll_timeout().is_some_and(|at| at <= now) {
                sender.handle_timeout(now);
                self.transmit(now, number);
            }
        }
    }
}

impl ReceivingHost {
    pub(crate) fn new(peer: Peer) -> Self {
        Self {
            sockets: Sockets::new(peer),
            flows: Vec::new(),
        }
    }

    pub(crate) fn add_flow(&mut self, receiver: Receiver) {
        self.flows.push(ReceivingFlow {
            receiver,
            deliveries: Deliveries::default(),
        });
    }

    fn acknowledge(&mut self, now: Instant, number: usize) {
        let flow = self.flows.get_mut(number);
        if let Some(ack) = flow.and_then(|flow| flow.receiver.poll_transmit(now)) {
            self.sockets.send(Message::Ack(number, ack));
        }
    }

    fn handle_packet(&mut self, now: Instant, waited: Duration, load: Message) {
        match load {
            Message::Data(number, packet) => {
                let Some(flow) = self.flows.get_mut(number) else {
                    return;
                };
                let new = flow.receiver.handle_data(now, packet);
                flow.deliveries.add(waited, new);
                self.acknowledge(now, number);
            }
            Message::Probe(sequence) => self.sockets.send(Message::Echo(sequence)),
            Message::Echo(sequence) => {
                if let Some(mut reconfiguration) = self.sockets.echoed(now, sequence) {
                    reconfiguration.source = ReconfigurationSource::Peer;
                    self.sockets.send(Message::News(reconfiguration));
                }
            }
            Message::Ack(..) | Message::News(_) => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let flows = self.flows.iter().map(|flow| flow.receiver.poll_timeout());
        flows.chain([self.sockets.next_probe()]).flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.sockets.send_probes(now);
        for number in 0..self.flows.len() {
            self.acknowledge(now, number);
        }
    }
}

impl Host {
    pub(crate) fn prober(&mut self) -> &mut Option<Prober> {
        &mut self.sockets().prober
    }

    fn sockets(&mut self) -> &mut Sockets {
        match self {
            Self::Sending(host) => &mut host.sockets,
            Self::Receiving(host) => &mut host.sockets,
        }
    }
}

impl Node for Host {
    type Load = Message;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Message>) {
        match self {
            Self::Sending(host) => host.handle_packet(now, packet.load),
            Self::Receiving(host) => host.handle_packet(now, packet.waited, packet.load),
        }
    }

    fn poll_transmit(&mut self, _: Instant, out: &mut VecDeque<Packet<Message>>) {
        let waiting = &mut self.sockets().out;
        match out.is_empty() {
            true => std::mem::swap(out, waiting),
            false => out.append(waiting),
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        match self {
            Self::Sending(host) => host.poll_timeout(),
            Self::Receiving(host) => host.poll_timeout(),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Sending(host) => host.handle_timeout(now),
            Self::Receiving(host) => host.handle_timeout(now),
        }
    }
}
