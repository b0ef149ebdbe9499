//! LTP as a convergence layer: a bundle is *sent* when the far side's LTP has acknowledged it, and it acknowledges what its
//! node has stored. Over a link without a way back it is sent when it has left.

pub mod blocks;
pub(crate) mod settings;
mod thread;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Instant,
};

use hardy_bpa::{
    Bytes, async_trait,
    cla::{Cla, ClaAddress, ClaAddressType, Error, ForwardBundleResult, Result, Sink},
};
use starhaul_log::Seldom;
use starhaul_ltp::{Block, Engine, EngineId, LinkState, SegmentChoice, SessionId, Stats};
use starhaul_net::{PeerAddress, Waker, host_memory, ltp::LtpDriver};
use tokio::{
    sync::{Semaphore, oneshot},
    task::JoinSet,
};

use self::thread::{Arrived, Command, Neighbours, Unsent, Worker};
use crate::{
    config::LtpConfig,
    egress,
    halves::{Carrier, Halves},
    plan::NodeId,
    sums,
};

/// Blocks whose bundles are being stored at a time.
const MOST_BLOCKS: usize = 64;
/// Bundles of a block that are being stored at a time: the store brings to the medium at once what it is given meanwhile.
const MOST_OF_BLOCK: usize = 64;
/// Bundles of all blocks that are being stored at a time. The agent needs some 50 KB for each meanwhile: of many more, the memory would
/// not stay in the processor's cache.
const MOST_STORING: usize = 768;

/// The convergence layer.
pub(crate) struct LtpLayer {
    peers: Vec<(EngineId, NodeId)>,
    /// Those of them to which nothing is sent.
    unreached: BTreeSet<EngineId>,
    commands: mpsc::Sender<Command>,
    waker: Waker,
    arrived: Mutex<Option<tokio::sync::mpsc::UnboundedReceiver<Arrived>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    counters: Arc<Counters>,
    agent: OnceLock<Arc<dyn Sink>>,
    address: SocketAddr,
    /// Of blocks that cannot be read.
    log: Seldom,
}

/// The engine's counters, which its thread writes and others read.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Data segments sent, repetitions included.
    pub segments: AtomicU64,
    /// Data segments sent again.
    pub resent: AtomicU64,
    /// Datagrams of addresses that are no peer's.
    pub strangers: AtomicU64,
    /// Segments dropped for any reason.
    pub dropped: AtomicU64,
    /// Blocks refused since they hold something else than bundles.
    pub unreadable: AtomicU64,
    /// The size of segments to each neighbour.
    sizes: Mutex<BTreeMap<EngineId, SegmentChoice>>,
}

impl Counters {
    fn set_sizes(&self, sizes: BTreeMap<EngineId, SegmentChoice>) {
        *self.sizes.lock().unwrap_or_else(PoisonError::into_inner) = sizes;
    }

    fn set(&self, stats: &Stats, strangers: u64) {
        let dropped = stats.dropped;
        let all = dropped.malformed
            + dropped.unauthenticated
            + dropped.other_profile
            + dropped.misdirected
            + dropped.late
            + dropped.false_report
            + dropped.contradiction
            + dropped.no_room;
        // Of an engine that no neighbour has.
        let strangers = strangers + dropped.unknown_peer;
        self.segments
            .store(stats.data_segments_sent, Ordering::Relaxed);
        self.resent
            .store(stats.data_segments_resent, Ordering::Relaxed);
        self.strangers.store(strangers, Ordering::Relaxed);
        self.dropped.store(all, Ordering::Relaxed);
    }
}

impl LtpLayer {
    /// Binds the socket and starts the engine's thread.
    ///
    /// # Errors
    /// The address cannot be bound, or the peers contradict each other.
    pub(crate) fn start(
        config: &LtpConfig,
        bundle_bytes: u64,
    ) -> std::result::Result<Arc<Self>, crate::Error> {
        let listen = |reason: String| crate::Error::Listen {
            address: config.listen,
            reason,
        };
        let (seed, host) = (starhaul_dtn_client::random::bytes()?, host_memory());
        let mut engine = Engine::new(settings::engine(config, bundle_bytes, seed, host));
        engine.open_service(blocks::BUNDLE);
        engine.open_service(blocks::AGGREGATE);
        let now = Instant::now();
        for peer in &config.peers {
            let settings = settings::peer(peer, bundle_bytes, host);
            engine
                .add_peer(now, peer.engine, settings)
                .map_err(|error| listen(error.to_string()))?;
        }
        let driver = LtpDriver::bind(config.listen, config.mode, engine);
        let mut driver = driver.map_err(|error| listen(error.to_string()))?;
        for peer in &config.peers {
            match &peer.address {
                Some(PeerAddress::At(address)) => driver.set_address(peer.engine, *address),
                Some(PeerAddress::Named(name)) => driver
                    .follow_name(peer.engine, name)
                    .map_err(|error| listen(error.to_string()))?,
                None => {}
            }
        }
        let (commands, inbox) = mpsc::channel();
        let (outbox, arrived) = tokio::sync::mpsc::unbounded_channel();
        let address = driver.local_addr();
        let (waker, counters) = (driver.waker(), Arc::new(Counters::default()));
        let neighbours = Neighbours::of(config);
        let unreached = neighbours.unreached.clone();
        let worker = Worker::new(driver, inbox, outbox, (counters.clone(), neighbours));
        let thread = std::thread::Builder::new()
            .name("ltp".to_owned())
            .spawn(move || worker.run());
        let thread = thread.map_err(|error| listen(error.to_string()))?;
        Ok(Arc::new(Self {
            peers: config
                .peers
                .iter()
                .map(|peer| (peer.engine, peer.node.clone()))
                .collect(),
            unreached,
            commands,
            waker,
            arrived: Mutex::new(Some(arrived)),
            thread: Mutex::new(Some(thread)),
            counters,
            agent: OnceLock::new(),
            address,
            log: Seldom::default(),
        }))
    }

    /// UDP address at which segments are received.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters of the engine.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The size of segments to a neighbour, and why they have it.
    pub(crate) fn segments_to(&self, node: &NodeId) -> Option<SegmentChoice> {
        let (engine, _) = self.peers.iter().find(|(_, peer)| peer == node)?;
        let sizes = self.counters.sizes.lock();
        let sizes = sizes.unwrap_or_else(PoisonError::into_inner);
        sizes.get(engine).copied()
    }

    /// Tells what the contact plan says of the neighbours' links, and whether no contact is left.
    pub(crate) fn set_links(&self, link: impl Fn(&NodeId) -> (LinkState, bool)) {
        for (engine, node) in &self.peers {
            let (state, is_over) = link(node);
            let peer = *engine;
            self.command(Command::Link {
                peer,
                state,
                is_over,
            });
        }
    }

    fn command(&self, command: Command) {
        // The engine's thread has stopped when the node ends.
        if self.commands.send(command).is_ok() {
            self.waker.wake();
        }
    }

    fn node(&self, engine: EngineId) -> Option<&NodeId> {
        self.peers
            .iter()
            .find(|(id, _)| *id == engine)
            .map(|(_, node)| node)
    }
}

fn address(engine: EngineId) -> ClaAddress {
    ClaAddress::Private(Bytes::copy_from_slice(&engine.0.to_be_bytes()))
}

fn engine(address: &ClaAddress) -> Option<EngineId> {
    match address {
        ClaAddress::Private(bytes) => Some(EngineId(u64::from_be_bytes(
            bytes.as_ref().try_into().ok()?,
        ))),
        ClaAddress::Tcp(_) => None,
    }
}

/// A convergence layer that the agent holds; the layer itself is needed by the node, too.
pub(crate) struct LtpCla(pub Arc<LtpLayer>);

#[async_trait]
impl Cla for LtpCla {
    async fn on_register(&self, sink: Box<dyn Sink>, _: &[NodeId]) {
        let layer = self.0.clone();
        let sink: Arc<dyn Sink> = sink.into();
        // It is registered once.
        let _ = layer.agent.set(sink.clone());
        for (engine, node) in &layer.peers {
            // The agent sends to whomever it knows.
            if layer.unreached.contains(engine) {
                continue;
            }
            if let Err(error) = sink
                .add_peer(address(*engine), std::slice::from_ref(node))
                .await
            {
                tracing::warn!(%node, %error, "the agent refuses a neighbour");
            }
        }
        let arrived = layer
            .arrived
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(arrived) = arrived {
            tokio::spawn(store_all(layer.clone(), sink, arrived));
        }
    }

    async fn on_unregister(&self) {
        self.0.command(Command::Stop);
        let thread = self
            .0
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // A thread that panicked has said so.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }

    fn address_type(&self) -> Option<ClaAddressType> {
        Some(ClaAddressType::Private)
    }

    async fn forward(
        &self,
        queue: Option<u32>,
        address: &ClaAddress,
        bundle: Bytes,
    ) -> Result<ForwardBundleResult> {
        self.carry(queue, address, Halves::whole(bundle)).await
    }
}

#[async_trait]
impl Carrier for LtpCla {
    async fn carry(
        &self,
        _: Option<u32>,
        address: &ClaAddress,
        bundle: Halves,
    ) -> Result<ForwardBundleResult> {
        let Some(to) = engine(address) else {
            return Ok(ForwardBundleResult::NoNeighbour);
        };
        let (answer, answered) = oneshot::channel();
        self.0.command(Command::Send {
            to,
            bundle,
            is_urgent: egress::is_urgent(),
            answer,
        });
        match answered.await {
            Ok(Ok(())) => Ok(ForwardBundleResult::Sent),
            Ok(Err(Unsent::Unanswered)) => Ok(ForwardBundleResult::NoNeighbour),
            Ok(Err(error)) => Err(Error::Internal(error.into())),
            Err(_) => Err(Error::Disconnected),
        }
    }
}

/// Gives arrived bundles to the agent; a block is accepted when all of its bundles are stored.
async fn store_all(
    layer: Arc<LtpLayer>,
    sink: Arc<dyn Sink>,
    mut arrived: tokio::sync::mpsc::UnboundedReceiver<Arrived>,
) {
    let storing = Arc::new(Semaphore::new(MOST_BLOCKS));
    let room = Arc::new(Semaphore::new(MOST_STORING));
    while let Some(block) = arrived.recv().await {
        let Ok(permit) = storing.clone().acquire_owned().await else {
            return;
        };
        let (layer, sink, room) = (layer.clone(), sink.clone(), room.clone());
        tokio::spawn(async move {
            let (session, bytes) = (block.session, block.block.len());
            let is_stored = store(&layer, &sink, &room, block).await;
            layer.command(Command::Settle {
                session,
                is_stored,
                bytes,
            });
            drop(permit);
        });
    }
}

/// The bytes of a block. If they are one bundle, what LTP has compared is noted: so it is not read again for another checksum of it.
fn in_one_piece(service: u64, block: Block) -> Bytes {
    let sum = block.checksum().filter(|_| service == blocks::BUNDLE);
    let bytes = block.into_bytes();
    match sum {
        Some(sum) => sums::note(bytes, sum),
        None => bytes,
    }
}

/// Whether all that a block holds is stored.
async fn store(layer: &LtpLayer, sink: &Arc<dyn Sink>, room: &Semaphore, arrived: Arrived) -> bool {
    let session = arrived.session;
    let node = layer.node(session.originator);
    let from = address(session.originator);
    let block = in_one_piece(arrived.service, arrived.block);
    let split = blocks::split(arrived.service, &block);
    // The agent may change a bundle where it is if no other reference to it is left.
    drop(block);
    let bundles = match split {
        Ok(bundles) => bundles,
        Err(error) => {
            let node = node.map(ToString::to_string);
            if let Some(others) = layer.log.is_due(Instant::now()) {
                tracing::warn!(%session, node, %error, others, "a block is refused");
            }
            layer.counters.unreadable.fetch_add(1, Ordering::Relaxed);
            return false;
        }
    };
    let at_a_time = bundles.len().min(MOST_OF_BLOCK);
    // The semaphore is never closed.
    let _room = room
        .acquire_many(u32::try_from(at_a_time).unwrap_or(1))
        .await;
    let mut storing = JoinSet::new();
    for bundle in bundles {
        if storing.len() >= MOST_OF_BLOCK && !is_taken(&mut storing, session).await {
            return false;
        }
        let (sink, node, from) = (sink.clone(), node.cloned(), from.clone());
        storing.spawn(async move { sink.dispatch(bundle, node.as_ref(), Some(&from)).await });
    }
    while !storing.is_empty() {
        if !is_taken(&mut storing, session).await {
            return false;
        }
    }
    true
}

/// Whether the next of some bundles is taken. If one is not, the others are taken all the same: a half of what the agent does with
/// one would be lost.
async fn is_taken(storing: &mut JoinSet<Result<()>>, session: SessionId) -> bool {
    let refused = match storing.join_next().await {
        None | Some(Ok(Ok(()))) => return true,
        Some(Ok(Err(error))) => error.to_string(),
        Some(Err(error)) => error.to_string(),
    };
    tracing::debug!(%session, error = refused, "a bundle is not taken");
    storing.detach_all();
    false
}
