//! One byte stream over several streams of a connection, piece by piece.
//!
//! A stream over two paths waits for the slower one: while its bytes are on their way, the faster path carries more than a
//! stream's window. A larger window is no way out, since noq ends a connection when one of its streams has 1024 holes.

use std::sync::Arc;

use super::StreamId;

/// Streams of a byte stream: together their windows hold what LEO carries while GEO and its queue hold a packet back.
pub(super) const STREAMS: usize = 4;
/// Bytes that go over one stream before the next has its turn.
const PIECE: usize = 64 << 10;

/// Where the next byte goes, or comes from.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    streams: Arc<[StreamId]>,
    turn: usize,
    used: usize,
}

impl Cursor {
    /// The start of a byte stream over these streams; `None` without any.
    pub(super) fn new(streams: Arc<[StreamId]>) -> Option<Self> {
        let (turn, used) = (0, 0);
        (!streams.is_empty()).then_some(Self {
            streams,
            turn,
            used,
        })
    }

    /// The stream of the next byte.
    pub(super) fn stream(&self) -> StreamId {
        self.streams[self.turn]
    }

    /// How many bytes it has before another stream is next.
    pub(super) const fn room(&self) -> usize {
        PIECE - self.used
    }

    /// So many bytes, at most [`Cursor::room`], went over it.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.used += bytes;
        if self.used >= PIECE {
            self.used = 0;
            self.turn = (self.turn + 1) % self.streams.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use bytes::{Bytes, BytesMut};
    use starhaul_link::{Link, Loss, Outcome, link_seed};

    use super::*;
    use crate::{
        DemoOptions,
        baseline::{ConnectionId, MpQuicEvent, MpQuicNode, ReadOutcome},
    };

    const SEND: Duration = Duration::from_secs(30);
    const SET_UP: Duration = Duration::from_secs(3);

    /// Field and ground over the demo's links without loss, in virtual time.
    struct World {
        now: Instant,
        nodes: [MpQuicNode; 2],
        /// LEO and GEO, each toward the ground and toward the field.
        links: Vec<[Link<Bytes>; 2]>,
        /// What the field opened.
        opened: Vec<(ConnectionId, StreamId)>,
    }

    fn address(path: usize) -> std::net::SocketAddr {
        ([10, 0, 0, u8::try_from(path).unwrap()], 443).into()
    }

    impl World {
        fn new() -> Self {
            let now = Instant::now();
            let options = DemoOptions {
                seconds: 1,
                leo_trace: Vec::new(),
                leo_loss: Loss::NONE,
                geo_loss: Loss::NONE,
                seed: 1,
                qlog: None,
            };
            let specs = options.links().unwrap();
            let link = |spec, number| Link::new(spec, link_seed(1, number), now);
            let both = |spec, first| [link(spec, first), link(spec, first + 1)];
            let node = |server| MpQuicNode::new(server, 7, u64::from(server)).unwrap();
            Self {
                now,
                nodes: [node(false), node(true)],
                links: vec![both(&specs.leo, 0), both(&specs.geo, 2)],
                opened: Vec::new(),
            }
        }

        /// Carries what is sent, and goes on to the next event.
        fn step(&mut self, until: Instant) {
            for (side, node) in self.nodes.iter_mut().enumerate() {
                while let Some(batch) = node.poll_transmit(self.now) {
                    let path = usize::from(batch.remote == address(1));
                    for payload in batch.contents.chunks(batch.segment_size) {
                        let packet = batch.contents.slice_ref(payload);
                        self.links[path][side].enqueue(self.now, payload.len() + 28, packet);
                    }
                }
                while let Some(event) = node.poll_event() {
                    match event {
                        MpQuicEvent::StreamOpened { connection, stream } => {
                            self.opened.push((connection, stream));
                        }
                        MpQuicEvent::Lost { reason, .. } => panic!("{reason}"),
                        _ => {}
                    }
                }
            }
            let timers = self.nodes.iter().filter_map(MpQuicNode::poll_timeout);
            let arrivals = self.links.iter().flatten().filter_map(Link::next_arrival);
            let next = timers
                .chain(arrivals)
                .min()
                .map_or(until, |next| next.min(until));
            self.now = self.now.max(next);
            for (path, links) in self.links.iter_mut().enumerate() {
                for (link, node) in links.iter_mut().zip(self.nodes.iter_mut().rev()) {
                    while let Some(outcome) = link.poll(self.now) {
                        if let Outcome::Arrived(arrival) = outcome {
                            let payload = BytesMut::from(&arrival.packet[..]);
                            node.handle_datagram(self.now, address(path), payload);
                        }
                    }
                }
            }
            for node in &mut self.nodes {
                node.handle_timeout(self.now);
            }
        }

        fn run_until(&mut self, until: Instant) {
            while self.now < until {
                self.step(until);
            }
        }
    }

    /// One stream carries 35 Mbit/s, and with a larger window few, since its connection ends.
    #[test]
    fn a_download_fills_leo_while_geo_holds_packets_back() {
        let mut world = World::new();
        let paths = [address(0), address(1)];
        let field = world.nodes[0]
            .connect(world.now, "download", &paths)
            .unwrap();
        world.run_until(world.now + SET_UP);
        let open = |_| {
            let stream = world.nodes[0].open_stream(field).unwrap();
            assert_eq!(world.nodes[0].write(field, stream, b"x"), Some(1));
            stream
        };
        let streams: Arc<[StreamId]> = (0..STREAMS).map(open).collect();
        let (until, body) = (world.now + SEND, vec![0x55; PIECE]);
        let mut from = Cursor::new(streams).unwrap();
        let (mut to, mut received) = (None, 0);
        while world.now < until {
            world.step(until);
            if to.is_none() && world.opened.len() == STREAMS {
                world.opened.sort_unstable();
                let streams: Arc<[StreamId]> = world.opened.iter().map(|(_, id)| *id).collect();
                to = Cursor::new(streams);
            }
            if let (Some(to), Some((ground, _))) = (&mut to, world.opened.first()) {
                let node = &mut world.nodes[1];
                while let written @ 1.. = node
                    .write(*ground, to.stream(), &body[..to.room()])
                    .unwrap()
                {
                    to.advance(written);
                }
            }
            while let ReadOutcome::Data(data) =
                world.nodes[0].read(field, from.stream(), from.room())
            {
                received += data.len();
                from.advance(data.len());
            }
        }
        let mbit = received as f64 * 8.0 / 1e6 / SEND.as_secs_f64();
        assert!(mbit > 42.0, "{mbit} Mbit/s");
    }
}
