//! The loop of virtual time: it jumps from event to event, hands datagrams and timeouts to nodes, and collects what they send.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::BytesMut;

use crate::{Datagram, Network, NodeId};

/// The finest step of time that a timer gets: one that is still due after it was handled is handled again this much later, so
/// that a node that never stops asking cannot stop time.
const TIMER_GRAIN: Duration = Duration::from_micros(1);

/// A sans-IO machine with numbered sockets.
pub trait Node {
    /// A datagram arrived at the socket `local`.
    fn handle_datagram(
        &mut self,
        now: Instant,
        local: u32,
        from: SocketAddr,
        ecn: u8,
        payload: BytesMut,
    );

    /// The next datagram to send; called until `None` after every input.
    fn poll_transmit(&mut self, now: Instant) -> Option<Datagram>;

    /// When [`Node::handle_timeout`] is due.
    fn poll_timeout(&mut self) -> Option<Instant>;

    /// The time asked for has come.
    fn handle_timeout(&mut self, now: Instant);
}

/// Nodes of one type `N`, which may be an enum of several or a `Box<dyn Node>`, and the network between them.
#[derive(Debug)]
pub struct Simulation<N> {
    /// The links; addresses and routes are set here.
    pub network: Network,
    /// The nodes, in the order of their [`NodeId`]s.
    pub nodes: Vec<N>,
    start: Instant,
    now: Instant,
    timers_handled: Option<Instant>,
}

impl<N: Node> Simulation<N> {
    /// An empty simulation whose time begins at `start`; `seed` decides all that links do at random.
    pub fn new(seed: u64, start: Instant) -> Self {
        Self {
            network: Network::new(seed, start),
            nodes: Vec::new(),
            start,
            now: start,
            timers_handled: None,
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

    /// Goes to the next event if it comes by `until`, does all that is due then, and returns `true`; otherwise goes to
    /// `until` and returns `false`. Begins by sending all that nodes want to send, after the last event or the caller's calls.
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
            let payload = BytesMut::from(delivery.payload);
            if let Some(node) = self.nodes.get_mut(delivery.node.0) {
                node.handle_datagram(
                    self.now,
                    delivery.local,
                    delivery.from,
                    delivery.ecn,
                    payload,
                );
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

    /// Runs for `time` without an application.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time, |_| None);
    }

    /// Runs until `until`, and calls `application` at once, after every event, and at the end: there it uses the nodes,
    /// changes the network, and says when it wants to be called at the latest.
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

    /// Runs until nothing travels and no timer is set, and returns `true`; or until `limit`, and returns `false`.
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
            while let Some(datagram) = node.poll_transmit(self.now) {
                self.network.send(self.now, NodeId(index), datagram);
            }
        }
    }
}

impl<N: Node + ?Sized> Node for Box<N> {
    fn handle_datagram(
        &mut self,
        now: Instant,
        local: u32,
        from: SocketAddr,
        ecn: u8,
        payload: BytesMut,
    ) {
        (**self).handle_datagram(now, local, from, ecn, payload);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Datagram> {
        (**self).poll_transmit(now)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        (**self).poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        (**self).handle_timeout(now);
    }
}
