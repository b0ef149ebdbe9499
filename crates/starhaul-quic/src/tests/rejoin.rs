//! Paths that are lost and join again: what is left of their former life, and what overtakes the word of the new one.

use starhaul_cc::{ControllerConfig, RateFeed};
use starhaul_session::{Mode, StreamId};
use starhaul_sim::PathLinks;
use starhaul_units::Bandwidth;

use super::net::{CLIENT, Net, SERVER, path_spec, server_identity};

const LEO: &str = "rate=20mbit,delay=20ms";
const GEO: &str = "rate=10mbit,delay=300ms";

/// A reliable stream with a writer that never rests and a reader that takes all.
struct Upload {
    from: usize,
    stream: StreamId,
    total: u64,
    written: u64,
    read: u64,
}

fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9) >> 13).to_le_bytes()[0]
}

impl Upload {
    fn open(net: &mut Net, from: usize, total: u64) -> Self {
        let stream = net.open_stream(from, Mode::Reliable);
        Self {
            from,
            stream,
            total,
            written: 0,
            read: 0,
        }
    }

    /// Writes and reads each 5 ms for so long; byte for byte.
    fn run_ms(&mut self, net: &mut Net, millis: u64) {
        for _ in 0..millis / 5 {
            let (now, session) = (net.sim.now(), net.session);
            if let Some(sender) = net.party(self.from).node.session(session) {
                let end = self.total.min(self.written + 300_000);
                let data: Vec<u8> = (self.written..end).map(byte_at).collect();
                self.written += sender.write(now, self.stream, &data).unwrap() as u64;
            }
            net.run_ms(5);
            let now = net.sim.now();
            if let Some(receiver) = net.party(1 - self.from).node.session(session) {
                while let Ok(Some(bytes)) = receiver.read(now, self.stream, usize::MAX) {
                    let offset = self.read;
                    let same = (offset..).zip(&bytes[..]).all(|(at, b)| byte_at(at) == *b);
                    assert!(same, "other bytes after {offset}");
                    self.read += bytes.len() as u64;
                }
            }
            if self.read == self.total {
                return;
            }
        }
    }
}

fn assert_alive(net: &mut Net, what: &str) {
    for side in [CLIENT, SERVER] {
        assert_eq!(net.party(side).closed(), None, "{what}: side {side}");
    }
}

/// While a path was away, the acknowledgements of what left over it are still on their slow way back; the path is numbered from
/// where it was, so they are not taken for those of the new life.
#[test]
fn acknowledgements_of_a_former_life_are_not_those_of_the_new_one() {
    for (seed, ways) in [(1, [true, true]), (2, [false, true]), (3, [true, true])] {
        for outage_ms in [10_000, 10_700, 11_300] {
            let what = format!("seed {seed}, cut {ways:?} for {outage_ms} ms");
            let mut net = Net::new(seed, &[LEO, GEO]);
            net.connect();
            net.run_ms(3000);
            let mut upload = Upload::open(&mut net, CLIENT, u64::MAX);
            upload.run_ms(&mut net, 3000);
            let PathLinks { forward, backward } = net.links[0];
            let cut = PathLinks {
                forward: if ways[0] { forward } else { backward },
                backward,
            };
            let now = net.sim.now();
            net.sim.network.cut(now, cut);
            upload.run_ms(&mut net, outage_ms);
            let now = net.sim.now();
            net.sim.network.restore(now, cut);
            upload.run_ms(&mut net, 8000);
            assert_alive(&mut net, &what);
            assert_eq!(net.up(CLIENT), [0, 1], "{what}");
            assert!(net.client().ups_and_downs(0).1 > 0, "{what}: never lost");
            let before = upload.read;
            upload.run_ms(&mut net, 2000);
            assert!(upload.read > before + 1_000_000, "{what}: stalled");
        }
    }
}

/// The accepting side has a path to send on before the other side reads ACCEPT, which may be lost: until it heard of the other
/// side it must not send what the other side's stack would acknowledge and drop.
#[test]
fn nothing_is_lost_that_overtakes_the_word_of_acceptance() {
    for seed in 0..24 {
        let loss = if seed % 2 == 0 { "2%" } else { "20%" };
        let joining = format!("rate=80mbit,delay=25ms,loss={loss}");
        let mut net = Net::new(seed, &["rate=80mbit,delay=20ms", &joining]);
        let paths = [0, 1].map(|path| {
            let mut path = path_spec(path);
            path.1.cost = 0.0;
            path
        });
        let dedicated = ControllerConfig::Dedicated(RateFeed::new(Bandwidth::from_mbit(80)));
        net.accept_with(dedicated);
        net.cut(1);
        net.connect_with(server_identity().public_key(), paths.to_vec());
        net.run_ms(500);
        let mut download = Upload::open(&mut net, SERVER, 8_000_000);
        download.run_ms(&mut net, 200);
        net.restore(1);
        download.run_ms(&mut net, 60_000);
        assert_alive(&mut net, &format!("seed {seed}"));
        let Upload { read, total, .. } = download;
        assert_eq!(read, total, "seed {seed}: stalled");
    }
}
