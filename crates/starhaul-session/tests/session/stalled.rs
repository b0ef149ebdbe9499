//! Readers that stop reading: what their streams hold is theirs, and takes nothing from the others.

use std::collections::BTreeMap;

use crate::pair::{Pair, ms};
use starhaul_session::{Event, Mode, SessionConfig, StreamConfig, StreamId};

/// The link: 160 Mbit/s, 20 ms there and back, so that 64 KiB in a round trip are a sixth of it.
const MBIT: f64 = 160.0;
const DELAY_MS: u64 = 10;
/// Clients that stop reading.
const STALLED: usize = 200;

/// Streams from the client, whose server writes whenever there is room, and whose application at the other end reads so many bytes
/// at once and then no more.
struct Downloads {
    pair: Pair,
    chunk: Vec<u8>,
    /// Bytes that the application still reads, and those that it has read.
    readers: BTreeMap<StreamId, (u64, u64)>,
    seen: [usize; 2],
}

impl Downloads {
    fn new(config: SessionConfig) -> Self {
        let mut pair = Pair::new(config);
        pair.lane(0, MBIT, DELAY_MS, 0.0, 0.0, 1);
        pair.run_for(ms(100));
        Self {
            pair,
            chunk: vec![7; 256 << 10],
            readers: BTreeMap::new(),
            seen: [0, 0],
        }
    }

    /// Begins to send without end; the application reads `limit` bytes.
    fn begin(&mut self, limit: u64) -> StreamId {
        let stream = self.pair.open(StreamConfig {
            mode: Mode::Reliable,
            ..StreamConfig::default()
        });
        self.readers.insert(stream, (limit, 0));
        self.write(stream);
        stream
    }

    fn write(&mut self, stream: StreamId) {
        let (session, now) = (&mut self.pair.sessions[0], self.pair.now);
        while session.write(now, stream, &self.chunk).unwrap() == self.chunk.len() {}
    }

    fn read(&mut self, stream: StreamId) {
        let (limit, read) = self.readers.get_mut(&stream).unwrap();
        while *read < *limit {
            let max = usize::try_from(*limit - *read).unwrap();
            let (session, now) = (&mut self.pair.sessions[1], self.pair.now);
            let Some(bytes) = session.read(now, stream, max).unwrap() else {
                return;
            };
            *read += bytes.len() as u64;
        }
    }

    /// Runs for so long; the applications do what they are told, and only then.
    fn run_ms(&mut self, millis: u64) {
        for _ in 0..millis {
            self.pair.run_for(ms(1));
            for side in 0..2 {
                for (_, event) in self.pair.events[side].split_off(self.seen[side]) {
                    match event {
                        Event::Writable(stream) => self.write(stream),
                        Event::Readable(stream) => self.read(stream),
                        _ => {}
                    }
                }
                self.seen[side] = self.pair.events[side].len();
                self.pair.sent[side].clear();
            }
        }
    }

    /// Bytes of `stream` that were read in `millis`, as a share of what the link carries.
    fn share(&mut self, stream: StreamId, millis: u64) -> f64 {
        let before = self.readers[&stream].1;
        self.run_ms(millis);
        let bytes = self.readers[&stream].1 - before;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let mbit = bytes as f64 * 8.0 / (millis as f64 / 1e3) / 1e6;
        mbit / MBIT
    }

    fn held(&self) -> [usize; 2] {
        [0, 1].map(|side| {
            let (sending, receiving) = self.pair.sessions[side].held_bytes();
            sending + receiving
        })
    }
}

/// Shares of the link that one download has: alone, beside two hundred whose reader stops after `read_first` bytes, and together
/// with another one that begins then.
fn beside_stalled(read_first: u64, every_ms: u64) -> [f64; 3] {
    let mut downloads = Downloads::new(SessionConfig::default());
    let running = downloads.begin(u64::MAX);
    downloads.run_ms(500);
    let alone = downloads.share(running, 500);
    for _ in 0..STALLED {
        downloads.begin(read_first);
        downloads.run_ms(every_ms);
    }
    // Until each has what it may hold.
    let bytes = STALLED as u64 * (read_first + (200 << 10));
    downloads.run_ms(1000 + bytes * 8 / 100_000);
    let beside = downloads.share(running, 1000);
    let late = downloads.begin(u64::MAX);
    downloads.run_ms(500);
    let late = downloads.share(late, 1000);
    let [sending, receiving] = downloads.held();
    println!(
        "read {read_first} bytes, then stopped: alone {alone:.3}, beside them {beside:.3}, a late one {late:.3}; \
         held {sending} bytes to send, {receiving} received"
    );
    [alone, beside, late]
}

fn assert_undisturbed([alone, beside, late]: [f64; 3]) {
    assert!(alone > 0.9, "the link carries {alone:.2} of its rate");
    assert!(beside > 0.97 * alone, "{beside:.2} instead of {alone:.2}");
    assert!(late > 0.45 * alone, "a late one {late:.2} of {alone:.2}");
}

#[test]
fn two_hundred_clients_that_never_read_take_nothing_from_another_download() {
    assert_undisturbed(beside_stalled(0, 2));
}

#[test]
fn two_hundred_clients_that_stop_reading_half_way_take_nothing_from_another_download() {
    assert_undisturbed(beside_stalled(100_000, 2));
}

/// As when the buffers of the applications' sockets take much before they are full.
#[test]
fn a_crowd_that_stops_reading_all_at_once_takes_nothing_from_another_download() {
    assert_undisturbed(beside_stalled(500_000, 0));
}
