//! Two nodes over two paths of fixed delay and rate in virtual time.

use std::collections::BTreeMap;

use super::*;

const RATE_BYTES_PER_MS: u32 = 1_000;

struct Pair {
    now: Instant,
    nodes: [MpQuicNode; 2],
    delays: [Duration; 2],
    /// When each direction of each path is free again.
    free: [[Instant; 2]; 2],
    /// Arrivals by time: receiver, path, payload.
    flying: BTreeMap<(Instant, u64), (usize, usize, Bytes)>,
    sent: u64,
    path_bytes: [usize; 2],
    events: Vec<(usize, MpQuicEvent)>,
}

fn address(path: usize) -> SocketAddr {
    ([10, 0, 0, u8::try_from(path).unwrap()], 443).into()
}

impl Pair {
    fn new(delays_ms: [u64; 2], server_key: u64) -> Self {
        let now = Instant::now();
        Self {
            now,
            nodes: [
                MpQuicNode::new(false, Controller::NewReno, 7, 1).unwrap(),
                MpQuicNode::new(true, Controller::NewReno, server_key, 2).unwrap(),
            ],
            delays: delays_ms.map(Duration::from_millis),
            free: [[now; 2]; 2],
            flying: BTreeMap::new(),
            sent: 0,
            path_bytes: [0; 2],
            events: Vec::new(),
        }
    }

    fn connect(&mut self) -> ConnectionId {
        let id = self.nodes[0]
            .connect(self.now, "text", &[address(0), address(1)])
            .unwrap();
        self.run(Duration::from_secs(3));
        id
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            for side in 0..2 {
                while let Some(batch) = self.nodes[side].poll_transmit(self.now) {
                    let path = (0..2).find(|&path| address(path) == batch.remote).unwrap();
                    for payload in batch.contents.chunks(batch.segment_size) {
                        self.fly(side, path, batch.contents.slice_ref(payload));
                    }
                }
                while let Some(event) = self.nodes[side].poll_event() {
                    self.events.push((side, event));
                }
            }
            let timer = self.nodes.iter().filter_map(MpQuicNode::poll_timeout).min();
            let arrival = self.flying.keys().next().map(|(at, _)| *at);
            let Some(next) = timer
                .into_iter()
                .chain(arrival)
                .min()
                .filter(|at| *at <= end)
            else {
                break;
            };
            self.now = self.now.max(next);
            while let Some(entry) = self
                .flying
                .first_entry()
                .filter(|entry| entry.key().0 <= self.now)
            {
                let (to, path, payload) = entry.remove();
                self.nodes[to].handle_datagram(
                    self.now,
                    address(path),
                    BytesMut::from(&payload[..]),
                );
            }
            for node in &mut self.nodes {
                node.handle_timeout(self.now);
            }
        }
        self.now = end;
    }

    fn fly(&mut self, from: usize, path: usize, payload: Bytes) {
        let busy =
            Duration::from_micros(payload.len() as u64 * 1_000 / u64::from(RATE_BYTES_PER_MS));
        let out = self.free[from][path].max(self.now) + busy;
        self.free[from][path] = out;
        self.sent += 1;
        self.path_bytes[path] += payload.len();
        self.flying.insert(
            (out + self.delays[path], self.sent),
            (1 - from, path, payload),
        );
    }

    fn server_connection(&self) -> ConnectionId {
        let (_, MpQuicEvent::Connected { connection, .. }) =
            self.events.iter().find(|(side, _)| *side == 1).unwrap()
        else {
            panic!("no connection at the server: {:?}", self.events)
        };
        *connection
    }
}

#[test]
fn blocks_arrive_whole_over_both_paths() {
    let mut pair = Pair::new([15, 300], 7);
    let client = pair.connect();
    let told = pair.events.iter().any(|(side, event)| {
        *side == 1 && matches!(event, MpQuicEvent::Connected { label, .. } if label == "text")
    });
    assert!(told, "{:?}", pair.events);
    pair.events.clear();
    // 3 MB/s over two paths of 1 MB/s each: neither path alone is enough.
    let blocks: Vec<_> = (0..200u8).map(|n| Bytes::from(vec![n; 30_000])).collect();
    for block in &blocks {
        assert!(pair.nodes[0].send_block(client, block.clone()));
        pair.run(Duration::from_millis(10));
    }
    pair.run(Duration::from_secs(20));
    let mut received: Vec<_> = pair
        .events
        .iter()
        .map(|(_, event)| match event {
            MpQuicEvent::BlockReceived { data, .. } => data.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    received.sort_unstable();
    assert_eq!(received, blocks);
    assert!(
        pair.path_bytes.iter().all(|&bytes| bytes > 500_000),
        "{:?}",
        pair.path_bytes
    );
}

/// A run of an hour in which the baseline cannot keep up.
#[test]
fn blocks_that_wait_are_bounded_and_those_that_left_make_room() {
    let mut pair = Pair::new([15, 300], 7);
    let client = pair.connect();
    let block = Bytes::from(vec![0; 1 << 20]);
    let mut give = || {
        let most = 2 * MAX_BACKLOG / block.len();
        let mut taken = 0;
        while taken < most && pair.nodes[0].send_block(client, block.clone()) {
            taken += 1;
        }
        pair.run(Duration::from_secs(5));
        taken * block.len()
    };
    let (first, then) = (give(), give());
    // What the connection itself buffers has left the backlog.
    assert!(
        (MAX_BACKLOG..MAX_BACKLOG + (32 << 20)).contains(&first),
        "{first}"
    );
    // Two paths of 1 MB/s for five seconds.
    assert!((2 << 20..16 << 20).contains(&then), "{then}");
    assert!(!pair.nodes[0].send_block(ConnectionId(99), block));
}

#[test]
fn byte_streams_are_exact_and_end() {
    let mut pair = Pair::new([15, 50], 7);
    let client = pair.connect();
    let stream = pair.nodes[0].open_stream(client).unwrap();
    assert_eq!(pair.nodes[0].write(client, stream, b"get"), Some(3));
    pair.run(Duration::from_millis(200));
    let server = pair.server_connection();
    assert_eq!(
        pair.nodes[1].read(server, stream, 100),
        ReadOutcome::Data(Bytes::from_static(b"get"))
    );

    let body: Vec<u8> = (0..3_000_000u32)
        .map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1])
        .collect();
    let (mut written, mut read) = (0, Vec::new());
    for _ in 0..2_000 {
        if written < body.len() {
            written += pair.nodes[1]
                .write(server, stream, &body[written..])
                .unwrap();
            if written == body.len() {
                pair.nodes[1].finish(server, stream);
            }
        }
        pair.run(Duration::from_millis(10));
        loop {
            match pair.nodes[0].read(client, stream, 65_536) {
                ReadOutcome::Data(data) => read.extend_from_slice(&data),
                ReadOutcome::Blocked => break,
                ReadOutcome::End => {
                    assert!(
                        read == body,
                        "{} of {} bytes, or other ones",
                        read.len(),
                        body.len()
                    );
                    return;
                }
            }
        }
    }
    panic!("{} of {} bytes after 20 s", read.len(), body.len());
}

#[test]
fn a_server_with_another_key_is_refused() {
    let mut pair = Pair::new([15, 50], 8);
    pair.connect();
    assert!(
        matches!(&pair.events[..], [(0, MpQuicEvent::Lost { .. }), ..]),
        "{:?}",
        pair.events
    );
}
