//! The loop of virtual time: it jumps from event to event, passes packets and timeouts to nodes, and collects what they
//! send.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{Delivery, Load, Network, NodeId, Packet};

/// The finest step of time of a timer: one that is still due after it was handled is handled again this much later, so
/// that a node whose timer is always due cannot stop time.
const TIMER_GRAIN: Duration = Duration::from_micros(1);

/// A sans-IO machine with numbered sockets.
pub trait Node {
    /// The load of its packets.
    type Load: Load;

    /// Takes a packet that arrived.
    fn handle_packet(&mut self, now: Instant, packet: Delivery<Self::Load>);

    /// Puts the next packets to send into `out`; called after every input until it puts none.
    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Packet<Self::Load>>);

    /// The time at which [`Node::handle_timeout`] is due.
    fn poll_timeout(&mut self) -> Option<Instant>;

    /// Handles the timer returned by [`Node::poll_timeout`].
    fn handle_timeout(&mut self, now: Instant);
}

/// Nodes of one type `N`, which may be an enum of several or a `Box<dyn Node<Load = …>>`, and the network between them.
#[derive(Debug)]
pub struct Simulation<N: Node> {
    /// The links; addresses and routes are set here.
    pub network: Network<N::Load>,
    /// The nodes, in the order of their [`NodeId`]s.
    pub nodes: Vec<N>,
    start: Instant,
    now: Instant,
    timers_handled: Option<Instant>,
    /// Packets on their way from a node to the network; empty between calls.
    outbox: VecDeque<Packet<N::Load>>,
}

impl<N: Node> Simulation<N> {
    /// An empty simulation whose time begins at `start`; `seed` determines all random choices of the links.
    pub fn new(seed: u64, start: Instant) -> Self {
        Self {
            network: Network::new(seed, start),
            nodes: Vec::new(),
            start,
            now: start,
            timers_handled: None,
            outbox: VecDeque::new(),
        }
    }

    /// Adds a node, which has no address yet.
    pub fn add_node(&mut self, node: N) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }

    /// The virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Virtual time since the start.
    pub fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Advances to the next event if it comes by `until`, handles all events of that instant, and returns `true`;
    /// otherwise advances to `until` and returns `false`. First sends what nodes have to send after the last event or
    /// the caller's calls.
    pub fn step(&mut self, until: Instant) -> bool {
        self.send_all();
        match self.next_event() {
            Some(at) if at <= until => self.now = at,
            _ => {
                self.now = self.now.max(until);
                return false;
            }
        }
        while let Some(delivery) = self.network.poll(self.now) {
            if let Some(node) = self.nodes.get_mut(delivery.node.0) {
                node.handle_packet(self.now, delivery);
            }
        }
        for node in &mut self.nodes {
            if node.poll_timeout().is_some_and(|at| at <= self.now) {
                node.handle_timeout(self.now);
            }
        }
        self.timers_handled = Some(self.now);
        true
    }

    /// Runs for `time` without calling an application.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time, |_| None);
    }

    /// Runs until `until`, and calls `application` at once, after every event, and at the end: it uses the nodes,
    /// changes the network, and returns the latest instant of its next call.
    pub fn run_until(
        &mut self,
        until: Instant,
        mut application: impl FnMut(&mut Self) -> Option<Instant>,
    ) {
        loop {
            let timer = application(self).map_or(until, |at| at.max(self.now + TIMER_GRAIN));
            if !self.step(timer.min(until)) && self.now >= until {
                application(self);
                self.send_all();
                return;
            }
        }
    }

    /// Runs until no packet is in flight and no timer is set, and returns `true`; or until `limit`, and returns
    /// `false`.
    pub fn run_until_idle(&mut self, limit: Instant) -> bool {
        loop {
            self.send_all();
            if self.next_event().is_none() {
                return true;
            }
            if !self.step(limit) {
                return false;
            }
        }
    }

    fn next_event(&mut self) -> Option<Instant> {
        let timers = self.nodes.iter_mut().filter_map(Node::poll_timeout);
        let timer = timers
            .min()
            .map(|at| match self.timers_handled == Some(self.now) {
                true => at.max(self.now + TIMER_GRAIN),
                false => at.max(self.now),
            });
        [timer, self.network.next_event()]
            .into_iter()
            .flatten()
            .min()
    }

    fn send_all(&mut self) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            loop {
                node.poll_transmit(self.now, &mut self.outbox);
                if self.outbox.is_empty() {
                    break;
                }
                for packet in self.outbox.drain(..) {
                    self.network.send(self.now, NodeId(index), packet);
                }
            }
        }
    }
}

impl<N: Node + ?Sized> Node for Box<N> {
    type Load = N::Load;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<N::Load>) {
        (**self).handle_packet(now, packet);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Packet<N::Load>>) {
        (**self).poll_transmit(now, out);
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        (**self).poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        (**self).handle_timeout(now);
    }
}
