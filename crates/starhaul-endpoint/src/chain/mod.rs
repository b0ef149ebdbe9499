//! Reliable streams over a chain of LEOTP relays: a thread drives the node, applications have tokio readers and writers.

mod driver;
mod halves;
mod state;

use std::{io, net::SocketAddr, sync::Arc, thread};

use bytes::Bytes;
use starhaul_leotp::{
    ContentSecret, NeighbourConfig, NeighbourId, NeighbourKey, Node, NodeConfig, RateRule, Stats,
    StreamConfig,
};
use starhaul_net::{
    PeerAddress,
    leotp::{HopSignals, LeotpDriver, full_packet_bytes},
};
use tokio::sync::{Mutex, mpsc};

pub use self::halves::{ChainReader, ChainWriter};
use self::{driver::ChainDriver, state::ChainShared};

/// Data may leave this much early, so that a system call carries several datagrams at high rates.
const BURST: std::time::Duration = std::time::Duration::from_micros(500);

/// Streams at once; more are refused.
const MOST_STREAMS: usize = 1024;
/// Of these, streams that were asked for and of which nothing authentic has come. As many as there are: those that had no time to be heard end no others.
const MOST_HALF_OPEN: usize = MOST_STREAMS;
/// The node has all but this part of the memory of streams, and what waits in each direction between it and applications the other one. An
/// application that writes that to a socket holds as much again.
const OTHERS_SHARE: usize = 4;
const WAITING_SHARE: usize = 16;

/// An end of a chain of relays.
#[derive(Clone, Debug)]
pub struct ChainConfig {
    /// The UDP address to bind.
    pub listen: SocketAddr,
    /// UDP payload of the packets of what streams send, in bytes; without it what a path of 1500 bytes carries.
    pub packet_bytes: Option<u16>,
    /// How the rates of what the neighbours send are found.
    pub rate_rule: RateRule,
    /// The secret that both ends of the chain share.
    pub secret: ContentSecret,
    /// Bytes of a stream that may be under way or unread, and as many that were written and are not confirmed, at most. Each begins with 1 MiB, and
    /// grows as far as path and reader need it.
    pub window_bytes: usize,
    /// Bytes that all streams may hold together. Where little is left, each has little, but 32 KiB in each direction.
    pub memory_bytes: usize,
    /// The relays, or the other end, that this end exchanges packets with.
    pub neighbours: Vec<ChainNeighbour>,
    /// Which of them leads to the end that accepts streams; `None` where streams only come.
    pub upstream: Option<usize>,
    /// Whether the other end may open streams, which are to be taken with [`Chain::accept`].
    pub accepts: bool,
}

/// A relay, or the other end, beside this one.
#[derive(Clone, Debug)]
pub struct ChainNeighbour {
    /// Its name, for people.
    pub name: String,
    /// The key that both share.
    pub key: NeighbourKey,
    /// Where it is at first; without it, where its packets come from.
    pub address: Option<PeerAddress>,
    /// How it is known when the hop to it is reconfigured.
    pub signals: HopSignals,
}

/// What an end of a chain has carried since it began.
#[derive(Clone, Debug, Default)]
pub struct ChainStatus {
    /// The neighbours' names, and whether they have been heard.
    pub neighbours: Vec<(String, bool)>,
    /// Streams that are open now.
    pub streams: u64,
    /// Streams since the start.
    pub streams_total: u64,
    /// Counters of the node.
    pub node: Stats,
}

/// An end of a chain; it ends with the last clone and the last stream, or with [`Chain::close`].
#[derive(Clone)]
pub struct Chain {
    shared: Arc<ChainShared>,
    alive: Arc<Alive>,
    address: SocketAddr,
    names: Arc<[String]>,
}

type Accepted = mpsc::UnboundedReceiver<(Bytes, u64)>;

/// What goes with the last clone.
struct Alive {
    shared: Arc<ChainShared>,
    accepted: Mutex<Accepted>,
}

impl Drop for Alive {
    fn drop(&mut self) {
        // Streams that the application has not accepted are reset as if they had been dropped.
        while let Ok((_, key)) = self.accepted.get_mut().try_recv() {
            drop(halves::pair(&self.shared, key));
        }
        self.shared.abandon();
    }
}

impl Chain {
    /// Binds the socket and starts the thread.
    ///
    /// # Errors
    /// The socket cannot be bound, a neighbour's key is not usable, or the system has no randomness or thread.
    pub fn bind(config: ChainConfig) -> io::Result<Self> {
        let now = std::time::Instant::now();
        let mut seed = [0; 32];
        let random = ring::rand::SystemRandom::new();
        ring::rand::SecureRandom::fill(&random, &mut seed)
            .map_err(|_| io::Error::other("the system gives no random numbers"))?;
        let packet_bytes = config.packet_bytes;
        let packet_bytes = packet_bytes.unwrap_or_else(|| full_packet_bytes(config.listen));
        let node = NodeConfig {
            segment_bytes: NodeConfig::segment_in(packet_bytes.into()),
            // What passes here ends here.
            cache_bytes: 0,
            burst: BURST,
            ..NodeConfig::default()
        };
        let node = node.by_rule(config.rate_rule);
        let mut node = Node::new(now, node, seed).map_err(io::Error::other)?;
        node.enable_streams(StreamConfig {
            accepts: config.accepts,
            window_bytes: config.window_bytes,
            buffer_bytes: config.window_bytes,
            memory_bytes: config.memory_bytes - config.memory_bytes / OTHERS_SHARE,
            most_streams: MOST_STREAMS,
            most_half_open: MOST_HALF_OPEN,
            ..StreamConfig::new(config.secret)
        });
        let ids = (0..).map(NeighbourId);
        let (mut names, mut addresses, mut watched) = (Vec::new(), Vec::new(), Vec::new());
        for (id, neighbour) in ids.zip(config.neighbours) {
            let key = neighbour.key;
            let added = node.add_neighbour(now, id, NeighbourConfig { key });
            added.map_err(io::Error::other)?;
            if config.upstream == Some(names.len()) {
                node.set_upstream(now, Some(id));
            }
            names.push((id, neighbour.name));
            addresses.push((id, neighbour.address));
            watched.push((id, neighbour.signals));
        }
        let mut driver = LeotpDriver::bind(config.listen, node).map_err(io::Error::other)?;
        for (id, address) in addresses {
            let placed = driver.place(id, address.as_ref());
            placed.map_err(io::Error::other)?;
        }
        for (id, signals) in watched {
            driver.watch(id, signals);
        }
        let address = driver.local_addr();
        let known: Arc<[String]> = names
            .iter()
            .map(|(_, name): &(_, String)| name.clone())
            .collect();
        let waiting_bytes = config.memory_bytes / WAITING_SHARE;
        let shared = Arc::new(ChainShared::new(driver.waker(), waiting_bytes));
        let (sender, accepted) = mpsc::unbounded_channel();
        let driver = ChainDriver::new(driver, names, shared.clone(), sender);
        thread::Builder::new()
            .name("leotp".into())
            .spawn(move || driver.run())?;
        Ok(Self {
            alive: Arc::new(Alive {
                shared: shared.clone(),
                accepted: Mutex::new(accepted),
            }),
            shared,
            address,
            names: known,
        })
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Opens a stream to the end that accepts; `header` is for it, at most [`StreamConfig::MOST_HEADER_BYTES`]. Data may be
    /// written at once. Where the other end does not accept it, reading and writing fail.
    ///
    /// # Errors
    /// The header is too long, or the chain's driver has ended.
    pub fn open(&self, header: Bytes) -> io::Result<(ChainReader, ChainWriter)> {
        if header.len() > StreamConfig::MOST_HEADER_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let key = self.shared.open(header)?;
        Ok(halves::pair(&self.shared, key))
    }

    /// The next stream that the other end opened, with its header; `None` when the driver has ended.
    pub async fn accept(&self) -> Option<(Bytes, (ChainReader, ChainWriter))> {
        let (header, key) = self.alive.accepted.lock().await.recv().await?;
        Some((header, halves::pair(&self.shared, key)))
    }

    /// Resets all streams, tells the far end, and returns when the socket is closed.
    pub async fn close(&self) {
        self.shared.close();
        self.shared.ended().await;
    }

    /// Resolves when its driver has ended: it was closed, or the driver cannot go on, and carries nothing any more.
    pub async fn ended(&self) {
        self.shared.ended().await;
    }

    /// Returns what this end has carried so far.
    pub fn status(&self) -> ChainStatus {
        let state = self.shared.lock();
        let up = state.up.iter().copied().chain(std::iter::repeat(false));
        ChainStatus {
            neighbours: self.names.iter().cloned().zip(up).collect(),
            streams: state.streams.0,
            streams_total: state.streams.1,
            node: state.node,
        }
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Chain").field(&self.address).finish()
    }
}
