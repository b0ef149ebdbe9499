//! A reliable stream with a writer that never rests and a reader that compares every byte.

use std::sync::LazyLock;

use starhaul_session::{Mode, StreamId};

use super::net::{CLIENT, Net};

/// Most bytes written at once.
const WRITE: usize = 300_000;
/// Bytes after which the pattern repeats: a prime, so that no exchange of equal parts goes unseen.
const PERIOD: usize = 65_521;

/// The pattern, long enough for a write that begins anywhere in it.
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let byte = |at: usize| ((at % PERIOD) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..PERIOD + WRITE)
        .map(|at| byte(at).to_be_bytes()[0])
        .collect()
});

/// At most `most` bytes of the stream from an offset on.
fn pattern(offset: u64, most: usize) -> &'static [u8] {
    let start = usize::try_from(offset % PERIOD as u64).unwrap();
    &PATTERN[start..start + most.min(WRITE)]
}

pub(super) struct Transfer {
    from: usize,
    stream: StreamId,
    pub(super) total: u64,
    written: u64,
    pub(super) read: u64,
}

impl Transfer {
    pub(super) fn open(net: &mut Net, from: usize, total: u64) -> Self {
        let stream = net.open_stream(from, Mode::Reliable);
        Self {
            from,
            stream,
            total,
            written: 0,
            read: 0,
        }
    }

    /// An upload without an end.
    pub(super) fn upload(net: &mut Net) -> Self {
        Self::open(net, CLIENT, u64::MAX)
    }

    /// Writes and reads every 5 ms for so long, or until all has arrived.
    pub(super) fn run_ms(&mut self, net: &mut Net, millis: u64) {
        for _ in 0..millis / 5 {
            let (now, session) = (net.sim.now(), net.session);
            if let Some(sender) = net.party(self.from).node.session(session) {
                let left = usize::try_from(self.total - self.written).unwrap_or(usize::MAX);
                let data = pattern(self.written, left);
                self.written += sender.write(now, self.stream, data).unwrap() as u64;
            }
            net.run_ms(5);
            self.read_all(net);
            if self.read == self.total {
                return;
            }
        }
    }

    fn read_all(&mut self, net: &mut Net) {
        let (now, session) = (net.sim.now(), net.session);
        let Some(receiver) = net.party(1 - self.from).node.session(session) else {
            return;
        };
        while let Ok(Some(bytes)) = receiver.read(now, self.stream, WRITE)
            && !bytes.is_empty()
        {
            let expected = pattern(self.read, bytes.len());
            assert!(bytes[..] == *expected, "other bytes after {}", self.read);
            self.read += bytes.len() as u64;
        }
    }
}
