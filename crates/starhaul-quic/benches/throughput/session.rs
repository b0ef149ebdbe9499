//! Blocks over a session of two nodes.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_cc::{ControllerConfig, RateFeed};
use starhaul_quic::{Identity, LocalId, Node, NodeConfig, NodeEvent, PathSpec, SessionHandle};
use starhaul_session::{BlockOptions, Event, Mode, PathStats, StreamConfig, StreamId};

use crate::{
    Contender,
    wire::{CLIENT, PACKET_BYTES, RATE, SERVER, Wire},
};

/// 40 fragments of a packet each, so that 20 % are 8.
const BLOCK_BYTES: usize = 40 * 1380;
const MAX_CODING_RATE: f64 = 0.2;
/// Blocks that have not ended are kept at this many: what the rate carries in two round trips.
const LIVE_BLOCKS: usize = 100;

pub(crate) struct Sessions {
    now: Instant,
    nodes: [Node; 2],
    session: SessionHandle,
    stream: Option<StreamId>,
    /// One for each path, by the number of its socket at either side.
    wires: Vec<Wire>,
    data: Bytes,
    live: usize,
    delivered: usize,
    failed: usize,
    recovered: usize,
}

impl Sessions {
    /// A session whose paths share [`RATE`] equally, and lose this share of packets.
    pub(crate) fn new(mode: Mode, loss: f64, paths: u32) -> Self {
        let now = Instant::now();
        let identities = [
            Identity::from_secret([1; 32]),
            Identity::from_secret([2; 32]),
        ];
        let keys = identities.each_ref().map(Identity::public_key);
        let mut nodes = identities.map(|identity| {
            let mut config = NodeConfig::new(identity);
            config.trusted = vec![keys[CLIENT]];
            config.accept_controller = controller(paths);
            (config.packet_bytes, config.sure_packet_bytes) = (PACKET_BYTES, PACKET_BYTES);
            let mut node = Node::new(config, now).unwrap();
            (0..paths).for_each(|path| node.add_local(LocalId(path), true));
            node
        });
        let path = |path: u32| {
            let spec = PathSpec {
                cost: 0.0,
                controller: controller(paths),
                ..PathSpec::new(path.to_string(), address(path, SERVER))
            };
            (LocalId(path), spec)
        };
        let session = nodes[CLIENT]
            .connect(now, keys[SERVER], (0..paths).map(path).collect())
            .unwrap();
        let mut sessions = Self {
            now,
            nodes,
            session,
            stream: None,
            wires: (0..paths).map(|_| Wire::new(loss)).collect(),
            data: vec![7; BLOCK_BYTES].into(),
            live: 0,
            delivered: 0,
            failed: 0,
            recovered: 0,
        };
        // The handshake, and the search for the largest packet.
        let ready = now + Duration::from_secs(5);
        while sessions.now < ready {
            sessions.turn();
        }
        let config = StreamConfig {
            mode,
            deadline: Duration::from_secs(1),
            max_coding_rate: MAX_CODING_RATE,
            ..StreamConfig::default()
        };
        let client = sessions.nodes[CLIENT].session(session).unwrap();
        sessions.stream = Some(client.open_stream(sessions.now, config).unwrap());
        sessions.transfer(20_000_000);
        (sessions.failed, sessions.recovered) = (0, 0);
        sessions
    }

    fn offer(&mut self) {
        let Some(stream) = self.stream.filter(|_| self.live < LIVE_BLOCKS) else {
            return;
        };
        let session = self.nodes[CLIENT].session(self.session).unwrap();
        while self.live < LIVE_BLOCKS {
            let options = BlockOptions::default();
            session
                .send_block(self.now, stream, self.data.clone(), options)
                .unwrap();
            self.live += 1;
        }
    }

    /// Everything that happens at one instant, and on to the next one.
    fn turn(&mut self) {
        self.offer();
        for (side, node) in self.nodes.iter_mut().enumerate() {
            while let Some(batch) = node.poll_transmit(self.now) {
                let wire = &mut self.wires[batch.local.0 as usize];
                wire.send(self.now, side, &batch.contents, batch.segment_size);
            }
        }
        self.take_events();
        let timeouts = self.nodes.iter_mut().filter_map(Node::poll_timeout);
        let arrivals = self.wires.iter().filter_map(Wire::next_arrival);
        let next = timeouts.chain(arrivals).min().unwrap();
        self.now = self.now.max(next);
        for (side, node) in self.nodes.iter_mut().enumerate() {
            // What has arrived is taken at once, as the bare side and the driver of sockets do.
            for (path, wire) in (0..).zip(&mut self.wires) {
                let packets = std::iter::from_fn(|| wire.receive(self.now, side));
                let from = (address(path, 1 - side), None);
                node.handle_datagrams(self.now, LocalId(path), from, 0, packets);
            }
            if node.poll_timeout().is_some_and(|at| at <= self.now) {
                node.handle_timeout(self.now);
            }
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.nodes[CLIENT].poll_event() {
            let NodeEvent::Session {
                event: Event::BlockOutcome { outcome, .. },
                ..
            } = event
            else {
                continue;
            };
            self.live -= 1;
            match outcome {
                starhaul_session::Outcome::Delivered {
                    recovered_by_redundancy,
                    ..
                } => {
                    self.recovered += usize::from(recovered_by_redundancy);
                }
                _ => self.failed += 1,
            }
        }
        while let Some(event) = self.nodes[SERVER].poll_event() {
            if let NodeEvent::Session {
                event: Event::BlockReceived { data, .. },
                ..
            } = event
            {
                assert_eq!(data.len(), BLOCK_BYTES);
                self.delivered += data.len();
            }
        }
    }
}

impl Contender for Sessions {
    fn transfer(&mut self, bytes: usize) -> usize {
        let before = self.delivered;
        while self.delivered < before + bytes {
            self.turn();
        }
        self.delivered - before
    }

    fn remark(&mut self) -> String {
        let status = self.nodes[CLIENT].path_status(self.session);
        let stats: Vec<_> = status
            .iter()
            .filter_map(|path| path.stats.as_ref())
            .collect();
        assert_eq!(stats.len(), self.wires.len(), "a path is down");
        let sum = |count: fn(&PathStats) -> u64| stats.iter().map(|path| count(path)).sum::<u64>();
        let bytes = sum(|path| path.bytes_sent);
        let least = stats.iter().map(|path| path.bytes_sent).min().unwrap();
        format!(
            "({} bytes sent for each 1000 delivered, of which a path has {:.0} % at least, {} blocks recovered, {} lost, {:.1} % of datagrams lost)",
            bytes * 1000 / self.delivered as u64,
            100.0 * least as f64 / bytes as f64,
            self.recovered,
            self.failed,
            100.0 * sum(|path| path.datagrams_lost) as f64 / sum(|path| path.datagrams_sent) as f64,
        )
    }
}

/// Of one of so many paths.
fn controller(paths: u32) -> ControllerConfig {
    ControllerConfig::Dedicated(RateFeed::new(RATE.scaled(1.0 / f64::from(paths))))
}

fn address(path: u32, side: usize) -> SocketAddr {
    let port = if side == CLIENT { 1000 } else { 2000 };
    SocketAddr::from((Ipv4Addr::from(0x0a00_0001 + path), port))
}
