//! A TCP transfer through the pair of gateways that lasts as long as a test needs and verifies its bytes.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use ring::digest;

use super::{PATIENCE, network::Network, wait_for};

/// 26 Mbit/s without a slower link: fills every queue, and is little for a busy computer.
const CHUNK_BYTES: usize = 32 << 10;
const CHUNK_INTERVAL: Duration = Duration::from_millis(10);
/// The listening address of the field's rule, and its target on the ground.
const ENTRY: &str = "127.0.0.1:8080";
const TARGET: &str = "127.0.0.1:8000";

type Hash = [u8; 32];

/// A transfer in progress.
pub(crate) struct Transfer {
    sent: JoinHandle<io::Result<Hash>>,
    received: JoinHandle<io::Result<Hash>>,
    bytes: Arc<AtomicU64>,
    enough: Arc<AtomicBool>,
}

impl Transfer {
    /// An application in the field downloads from the ground.
    pub(crate) fn download(network: &Network) -> Self {
        let (client, server) = Self::connect(network, TARGET, ENTRY);
        Self::between(server, client)
    }

    /// The same without a rule in between: from `target`, which is an address of the ground.
    pub(crate) fn download_from(network: &Network, target: &str) -> Self {
        let (client, server) = Self::connect(network, target, target);
        Self::between(server, client)
    }

    /// An application in the field uploads to the ground.
    pub(crate) fn upload(network: &Network) -> Self {
        let (client, server) = Self::connect(network, TARGET, ENTRY);
        Self::between(client, server)
    }

    /// Waits until `bytes` more have arrived.
    pub(crate) fn wait_for_progress(&self, bytes: u64) {
        let goal = self.received() + bytes;
        wait_for(&format!("{bytes} more bytes"), || {
            assert!(!self.received.is_finished(), "the transfer broke off");
            (self.received() >= goal).then_some(())
        });
    }

    /// Bytes that have arrived.
    pub(crate) fn received(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Ends it in order and compares sent and received bytes.
    pub(crate) fn finish(self) {
        self.enough.store(true, Ordering::Relaxed);
        let sent = self.sent.join().unwrap().expect("sending");
        let received = self.received.join().unwrap().expect("receiving");
        assert_eq!(sent, received, "other bytes arrived than were sent");
    }

    /// Returns the connections of the application in the field and of the one on the ground.
    fn connect(network: &Network, target: &str, entry: &str) -> (TcpStream, TcpStream) {
        let listener = network.ground.inside(|| TcpListener::bind(target)).unwrap();
        let client = network.field.inside(|| TcpStream::connect(entry)).unwrap();
        let (server, _) = listener.accept().unwrap();
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
        }
        (client, server)
    }

    fn between(from: TcpStream, to: TcpStream) -> Self {
        let (bytes, enough) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (count, end) = (bytes.clone(), enough.clone());
        Self {
            sent: thread::spawn(move || send(from, &end)),
            received: thread::spawn(move || receive(to, &count)),
            bytes,
            enough,
        }
    }
}

fn send(mut to: TcpStream, enough: &AtomicBool) -> io::Result<Hash> {
    let mut hash = digest::Context::new(&digest::SHA256);
    let mut chunk = vec![0; CHUNK_BYTES];
    // All chunks differ, so that none can replace another.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while !enough.load(Ordering::Relaxed) {
        for word in chunk.chunks_exact_mut(8) {
            // Xorshift64 (Marsaglia 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        hash.update(&chunk);
        to.write_all(&chunk)?;
        thread::sleep(CHUNK_INTERVAL);
    }
    to.shutdown(Shutdown::Write)?;
    Ok(value(hash))
}

fn receive(mut from: TcpStream, bytes: &AtomicU64) -> io::Result<Hash> {
    let mut hash = digest::Context::new(&digest::SHA256);
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok(value(hash));
        }
        hash.update(&buffer[..read]);
        bytes.fetch_add(read as u64, Ordering::Relaxed);
    }
}

fn value(hash: digest::Context) -> Hash {
    hash.finish().as_ref().try_into().unwrap()
}
