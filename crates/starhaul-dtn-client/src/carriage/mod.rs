//! Flows between gateways for tokio: a task moves bundles between the [`Machine`] and a bundle node's control socket, applications
//! have readers and writers.

mod driver;
mod halves;
mod shared;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{Mutex, mpsc},
    task::JoinHandle,
};

pub use self::halves::{BundleReader, BundleWriter, DatagramFlow};
use self::shared::{Incoming, Shared};
use crate::{
    Error, endpoint_of,
    flows::{Counters, Limits, Machine},
};

/// The service of gateways: its number, and its name.
pub const SERVICE: (u32, &str) = (101, "gateway");
/// How long what ends may take to tell the far side.
const MOST_LEAVING: Duration = Duration::from_secs(2);

/// How a gateway uses a bundle node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleConfig {
    /// The node's control socket; `None` for the first default place where one answers.
    pub socket: Option<PathBuf>,
    /// Number or name of the gateway's endpoint; `None` for that of [`SERVICE`].
    pub service: Option<String>,
    /// The far gateways' endpoints, as [`far_endpoint`] gives them. Bundles of others are dropped.
    pub peers: Vec<String>,
    /// Bounds of the flows.
    pub limits: Limits,
}

/// What a far gateway has begun.
#[derive(Debug)]
pub enum Begun {
    /// A byte stream.
    Stream(BundleReader, BundleWriter),
    /// A flow of datagrams.
    Datagrams(DatagramFlow),
}

/// Something that a far gateway has begun, where it leads, and how long its bundles live.
#[derive(Debug)]
pub struct Accepted {
    /// The far gateway's place in [`BundleConfig::peers`].
    pub peer: usize,
    /// The header that it gave for it.
    pub header: Bytes,
    /// A stream or a flow of datagrams.
    pub begun: Begun,
}

/// The endpoint, room and counters of the flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BundleStatus {
    /// The endpoint, while the node answers.
    pub endpoint: Option<String>,
    /// Whether the node has no room for the next bundle.
    pub is_full: bool,
    /// What the flows have carried since the start.
    pub counters: Counters,
}

/// The flows of a gateway over a bundle node. They end with the last clone, or with [`BundleFlows::close`].
#[derive(Clone, Debug)]
pub struct BundleFlows {
    shared: Arc<Shared>,
    accepted: Arc<Mutex<mpsc::UnboundedReceiver<Incoming>>>,
    _task: Arc<Task>,
}

/// Ends with the last clone.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The endpoint of a far gateway that a text names: its node is enough.
///
/// # Errors
/// [`Error::Refused`] when it is none.
pub fn far_endpoint(text: &str) -> Result<String, Error> {
    endpoint_of(text, SERVICE)
}

impl BundleFlows {
    /// Starts the task, which connects to the node, and again when that has ended.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn start(config: BundleConfig) -> Result<Self, Error> {
        let life = u64::from_le_bytes(crate::random::bytes()?);
        let (incoming, accepted) = mpsc::unbounded_channel();
        let machine = Machine::new(life, config.limits);
        let shared = Arc::new(Shared::new(machine, incoming));
        let task = tokio::spawn(driver::run(shared.clone(), config));
        Ok(Self {
            shared,
            accepted: Arc::new(Mutex::new(accepted)),
            _task: Arc::new(Task(task)),
        })
    }

    /// Opens a stream to a far gateway; data may be written at once.
    ///
    /// # Errors
    /// There are too many streams.
    pub fn open(
        &self,
        peer: usize,
        header: Bytes,
        lifetime: Duration,
    ) -> io::Result<(BundleReader, BundleWriter)> {
        let id = self.shared.with(|state| {
            let id = state.machine.open_stream(now(), peer, header, lifetime)?;
            state.hold(id);
            Some(id)
        });
        id.map(|id| halves::pair(&self.shared, id))
            .ok_or_else(|| io::ErrorKind::QuotaExceeded.into())
    }

    /// Opens a flow of datagrams to a far gateway; `None` if there are too many.
    pub fn open_datagrams(
        &self,
        peer: usize,
        header: Bytes,
        lifetime: Duration,
        is_ordered: bool,
    ) -> Option<DatagramFlow> {
        let opened = self.shared.with(|state| {
            let machine = &mut state.machine;
            let id = machine.open_flow(now(), peer, header, lifetime, is_ordered)?;
            Some((id, state.receive(id)))
        });
        opened.map(|(id, incoming)| DatagramFlow::new(self.shared.clone(), id, incoming))
    }

    /// What a far gateway begins next; `None` after the end. Cancelling loses nothing.
    pub async fn accept(&self) -> Option<Accepted> {
        let incoming = self.accepted.lock().await.recv().await?;
        Some(accepted(incoming, &self.shared))
    }

    /// Returns the endpoint, room and counters of the flows.
    pub fn status(&self) -> BundleStatus {
        self.shared.status()
    }

    /// Resets all streams, and waits for a moment until the node has what the far sides must know.
    pub async fn close(&self) {
        self.shared.with(|state| {
            state.machine.close();
            state.is_closing = true;
        });
        // Where the node does not answer, the far sides find out by themselves.
        let _ = tokio::time::timeout(MOST_LEAVING, self.shared.ended()).await;
    }
}

/// What [`Incoming`] becomes when an application accepts it.
fn accepted(incoming: Incoming, shared: &Arc<Shared>) -> Accepted {
    let (id, header, begun) = match incoming {
        Incoming::Stream(id, header) => {
            let (reader, writer) = halves::pair(shared, id);
            (id, header, Begun::Stream(reader, writer))
        }
        Incoming::Datagrams(id, header, incoming) => {
            let flow = DatagramFlow::new(shared.clone(), id, incoming);
            (id, header, Begun::Datagrams(flow))
        }
    };
    Accepted {
        peer: id.peer(),
        header,
        begun,
    }
}

fn now() -> std::time::Instant {
    std::time::Instant::now()
}
