//! Datagrams over one QUIC connection, with nothing of ours: equally large, in batches, with an open window.

use std::{
    any::Any,
    net::SocketAddr,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use noq_proto::{
    Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, FourTuple, RttEstimator,
    TransportConfig,
    congestion::{Controller, ControllerFactory, ControllerMetrics},
};
use starhaul_quic::{Identity, tls::pinned_configs};

use crate::{
    Contender,
    wire::{CLIENT, PACKET_BYTES, RATE, SERVER, Wire},
};

pub(crate) struct Bare {
    now: Instant,
    ends: [End; 2],
    wire: Wire,
    /// Datagrams offered to the connection at once.
    batch: NonZeroUsize,
    data: Bytes,
    next_batch: Option<Instant>,
    delivered: usize,
}

struct End {
    endpoint: Endpoint,
    conn: Option<(ConnectionHandle, Connection)>,
    buffer: Vec<u8>,
}

impl Bare {
    pub(crate) fn new(batch: usize) -> Self {
        let now = Instant::now();
        let identity = Identity::from_secret([3; 32]);
        let (client_config, server_config) = pinned_configs(&identity, &[], &transport()).unwrap();
        let mut ends = [None, Some(server_config)].map(|server| End {
            endpoint: Endpoint::new(
                Arc::new(EndpointConfig::default()),
                server.map(Arc::new),
                true,
            ),
            conn: None,
            buffer: Vec::new(),
        });
        let client = &mut ends[CLIENT];
        let remote = address(SERVER);
        let conn = client.endpoint.connect(now, client_config, remote, "bare");
        client.conn = Some(conn.unwrap());
        let mut bare = Self {
            now,
            ends,
            wire: Wire::new(0.0),
            batch: NonZeroUsize::new(batch).unwrap(),
            data: Bytes::new(),
            next_batch: None,
            delivered: 0,
        };
        // The handshake.
        let ready = now + Duration::from_secs(5);
        while bare.now < ready {
            bare.turn();
        }
        let size = bare.ends[CLIENT].conn().datagrams().max_size().unwrap();
        bare.data = vec![7; size].into();
        bare.next_batch = Some(bare.now);
        bare.transfer(20_000_000);
        bare
    }

    /// Offers a batch as soon as the rate allows it.
    fn offer(&mut self) {
        let Some(at) = self.next_batch.filter(|at| *at <= self.now) else {
            return;
        };
        let mut datagrams = self.ends[CLIENT].conn().datagrams();
        for _ in 0..self.batch.get() {
            datagrams.send(self.data.clone(), false).unwrap();
        }
        let bytes = self.batch.get() * self.data.len();
        self.next_batch = Some(at + RATE.time_to_send(bytes as u64));
    }

    /// Everything that happens at one instant, and on to the next one.
    fn turn(&mut self) {
        self.offer();
        let mut timeout = None;
        for (side, end) in self.ends.iter_mut().enumerate() {
            timeout = [
                timeout,
                end.transmit(self.now, self.batch, side, &mut self.wire),
            ]
            .into_iter()
            .flatten()
            .min();
        }
        let times = [timeout, self.wire.next_arrival(), self.next_batch];
        let next = times.into_iter().flatten().min();
        self.now = self
            .now
            .max(next.unwrap_or(self.now + Duration::from_millis(100)));
        for (side, end) in self.ends.iter_mut().enumerate() {
            self.delivered += end.receive(self.now, side, &mut self.wire);
        }
    }
}

impl Contender for Bare {
    fn transfer(&mut self, bytes: usize) -> usize {
        let before = self.delivered;
        while self.delivered < before + bytes {
            self.turn();
        }
        self.delivered - before
    }
}

impl End {
    fn conn(&mut self) -> &mut Connection {
        &mut self.conn.as_mut().unwrap().1
    }

    /// Sends what there is; returns when the connection wants to be woken.
    fn transmit(
        &mut self,
        now: Instant,
        batch: NonZeroUsize,
        side: usize,
        wire: &mut Wire,
    ) -> Option<Instant> {
        let (handle, conn) = self.conn.as_mut()?;
        loop {
            self.buffer.clear();
            let Some(transmit) = conn.poll_transmit(now, batch, &mut self.buffer) else {
                break;
            };
            let size = transmit.segment_size.unwrap_or(transmit.size);
            wire.send(now, side, &self.buffer, size);
        }
        while let Some(event) = conn.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(*handle, event) {
                conn.handle_event(answer);
            }
        }
        conn.poll_timeout()
    }

    /// Takes what has arrived; returns the bytes of the datagrams in it.
    fn receive(&mut self, now: Instant, side: usize, wire: &mut Wire) -> usize {
        let from = FourTuple::from_remote(address(1 - side));
        while let Some(packet) = wire.receive(now, side) {
            self.buffer.clear();
            match self
                .endpoint
                .handle(now, from, None, packet, &mut self.buffer)
            {
                Some(DatagramEvent::ConnectionEvent(_, event)) => self.conn().handle_event(event),
                Some(DatagramEvent::NewConnection(incoming)) => {
                    let accepted = self.endpoint.accept(incoming, now, &mut self.buffer, None);
                    self.conn = accepted.ok();
                }
                _ => {}
            }
        }
        let Some((_, conn)) = &mut self.conn else {
            return 0;
        };
        if conn.poll_timeout().is_some_and(|at| at <= now) {
            conn.handle_timeout(now);
        }
        while conn.poll().is_some() {}
        let mut bytes = 0;
        while let Some(datagram) = conn.datagrams().recv() {
            bytes += datagram.len();
        }
        bytes
    }
}

fn address(side: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], if side == CLIENT { 1000 } else { 2000 }))
}

fn transport() -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .keep_alive_interval(Some(Duration::from_secs(1)))
        .mtu_discovery_config(None)
        .initial_mtu(PACKET_BYTES)
        .min_mtu(PACKET_BYTES)
        .congestion_controller_factory(Arc::new(Open));
    Arc::new(config)
}

/// A window that never closes and that the stack does not pace.
#[derive(Clone, Debug)]
struct Open;

impl ControllerFactory for Open {
    fn build(self: Arc<Self>, _now: Instant, _mtu: u16) -> Box<dyn Controller> {
        Box::new(Self)
    }
}

impl Controller for Open {
    fn on_ack(
        &mut self,
        _now: Instant,
        _sent: Instant,
        _bytes: u64,
        _number: u64,
        _app_limited: bool,
        _rtt: &RttEstimator,
    ) {
    }

    fn on_congestion_event(
        &mut self,
        _now: Instant,
        _sent: Instant,
        _is_persistent_congestion: bool,
        _is_ecn: bool,
        _lost_bytes: u64,
        _largest_lost_number: u64,
    ) {
    }

    fn on_mtu_update(&mut self, _new_mtu: u16) {}

    fn window(&self) -> u64 {
        u64::MAX / 2
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = u64::MAX;
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self)
    }

    fn initial_window(&self) -> u64 {
        self.window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
