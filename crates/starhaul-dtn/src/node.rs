//! A running node: the bundle agent, its stores and convergence layers, and the tasks that follow the contact plan.

mod figures;
mod storage;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use hardy_bpa::{
    bpa::{Bpa, BpaRegistration as _},
    cla::ClaAddress,
    node_ids::NodeIds,
    storage::MetadataStorage,
};
use hardy_bpv7::eid::{Eid, Service};
use starhaul_dtn_client::{self as client, random};
use starhaul_ltp::LinkState;
use starhaul_net::PeerAddress;
use tokio::{sync::mpsc, task::JoinSet};
use tracing::{instrument::WithSubscriber as _, subscriber::NoSubscriber};

use crate::{
    Error,
    app::{App, Delivery, Desk, MOST_DELIVERING},
    config::{Config, LtpConfig, TcpPeer},
    egress::{MOST_BUNDLES, Pool, Window},
    files::LEAST_CONTACT,
    filters,
    gate::{Gate, Guests},
    ltp::{LtpCla, LtpLayer},
    plan::{Moment, NodeId},
    priority::Priorities,
    reports::ANONYMOUS,
    routes::Routes,
    schedule::Schedule,
    stock::Stock,
    tcp::TcpLayer,
};

/// Bundles that the agent keeps in memory for each queue beside the store: twice as many as are on their way to a neighbour. Beyond
/// it, the agent searches the store for what comes next, which reads all that was ever there.
const QUEUE: NonZeroUsize = NonZeroUsize::new(2 * MOST_BUNDLES).unwrap();
/// Bundles that are being routed at a time.
const ROUTING: usize = 128;
/// The agent has one limit for bundles that it routes and for those that wait for an application's acknowledgement: applications
/// that acknowledge nothing leave room for all others.
const PROCESSING: NonZeroUsize = NonZeroUsize::new(ROUTING + MOST_DELIVERING).unwrap();
/// Bytes on their way to a neighbour, if neither rate nor light time ask for more.
const WINDOW_BYTES: u64 = 64 << 20;
/// More is never on its way to one.
const MOST_WINDOW_BYTES: u64 = 1 << 30;
/// Bytes on their way to all neighbours together, unless the window of one is larger: they are all in memory.
const POOL_BYTES: u64 = 512 << 20;
/// Bytes on their way to each where the others have all these.
const OWN_BYTES: u64 = 8 << 20;
/// Round trips for which the window suffices: sending, and two repairs.
const WINDOW_ROUND_TRIPS: u32 = 3;
/// How long a link is busy with bundles that have begun to leave before an urgent one, beside the round trips; and the least bytes of these: fewer
/// would leave a slow link idle.
const AHEAD: Duration = Duration::from_secs(1);
const LEAST_USUAL_BYTES: u64 = 16 << 10;
/// How long the agent may take to end.
const MOST_SHUTDOWN: Duration = Duration::from_secs(5);
/// How long the node waits before it tries again what failed.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How long an address of a peer may take to answer, beside light, before the next one is tried; and the last or only one before all are
/// tried again: who answers late is not missed then.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
const LAST_PATIENCE: Duration = Duration::from_secs(30);
/// So many times light goes to and fro until a session is there: for the connection, the headers, and what each end takes.
const CONNECT_WAYS: u32 = 6;
/// The longest time between two attempts to connect to one who takes connections and ends them.
const MOST_DELAY: Duration = Duration::from_secs(60);
/// All that waits is tried again this often: each time costs a search of the store.
const LOOK_AT_ALL: Duration = Duration::from_secs(300);
/// The system's clock may be set: the plan is evaluated this often even if nothing should change.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(60);
/// The service number of the echo, and its name.
pub const ECHO: (u32, &str) = (7, "echo");

/// A running node. It ends with [`Node::shutdown`].
pub struct Node {
    parts: Arc<Parts>,
    tasks: JoinSet<()>,
    metrics: Option<SocketAddr>,
    writer: Option<storage::Writer>,
    /// Locks the folder of bundles.
    _lock: Option<Arc<storage::Lock>>,
}

struct Parts {
    agent: Bpa,
    config: Config,
    schedule: Arc<Schedule>,
    store: Arc<dyn MetadataStorage>,
    stock: Arc<Stock>,
    desk: Arc<Desk>,
    routes: Arc<Routes>,
    ltp: Option<(Arc<LtpLayer>, Arc<Gate>)>,
    tcp: Option<(Arc<TcpLayer>, Arc<Gate>)>,
    /// Only one at a time looks at the plan: an older evaluation must not overwrite a newer one.
    updating: tokio::sync::Mutex<()>,
    started: Instant,
}

/// Lets applications use a node.
#[derive(Clone)]
pub struct Handle(Arc<Parts>);

impl Node {
    /// Starts a node, and returns when what a former life left in its store is counted.
    ///
    /// # Errors
    /// The store cannot be opened, or an address cannot be bound.
    pub async fn start(mut config: Config) -> Result<Self, Error> {
        // What cannot be served ends the start before a store is searched.
        let metrics = match config.metrics {
            Some(address) => Some(figures::bind(address).await?),
            None => None,
        };
        let stock = Stock::new(config.node.clone(), config.storage.clone());
        stock.set_priorities(Priorities::new(std::mem::take(&mut config.priorities)));
        let stores = storage::open(&config.storage, &stock).await?;
        let always = config.always();
        let plan = std::mem::take(&mut config.plan);
        let configured = std::mem::take(&mut config.routes);
        let schedule = Schedule::new(config.node.clone(), plan, always);
        let schedule = schedule.with_routes(configured.iter().cloned());
        let schedule = Arc::new(schedule);
        // Neighbours are shown by it.
        schedule.look(Schedule::now());
        stock.set_schedule(schedule.clone());
        let keys = Arc::new(std::mem::take(&mut config.keys));
        let mut agent = Bpa::builder()
            .node_ids(NodeIds::try_from(&[config.node.clone()][..]).map_err(agent_error)?)
            .metadata_storage(stores.metadata.clone())
            .bundle_storage(stores.bundles)
            .status_reports(config.status_reports)
            .poll_channel_depth(QUEUE)
            .processing_pool_size(PROCESSING);
        if config.storage.database.is_none() {
            // It would hold in memory again what is there anyway.
            agent = agent.no_cache();
        }
        let agent = agent
            .build()
            // It warns at each start that reports may be sent, of which the configuration says more.
            .with_subscriber(NoSubscriber::new())
            .await
            .map_err(|error| Error::Agent(error.to_string()))?;
        filters::register(&agent, &stock, &keys).map_err(agent_error)?;
        let is_persistent = config.storage.folder.is_some();
        stock.begin_life();
        agent.start(is_persistent);
        if is_persistent {
            stock.recovered().await;
        }
        let routes = Routes::new(schedule.clone(), stock.clone(), configured);
        let desk = Desk::new(keys, stores.journal, stock.clone());
        let started = Instant::now();
        let (desk, ltp, tcp) = (Arc::new(desk), None, None);
        let mut parts = Parts {
            agent,
            config,
            schedule,
            store: stores.metadata,
            stock,
            desk,
            routes,
            ltp,
            tcp,
            updating: tokio::sync::Mutex::default(),
            started,
        };
        if let Err(error) = parts.register().await {
            // What is registered already has sockets and tasks.
            parts.end_agent().await;
            close(stores.writer).await;
            return Err(error);
        }
        let parts = Arc::new(parts);
        let mut tasks = JoinSet::new();
        tasks.spawn(follow_plan(parts.clone()));
        tasks.spawn(try_again(parts.clone()));
        let address = metrics.as_ref().map(starhaul_metrics::Server::address);
        if let Some(server) = metrics {
            tasks.spawn(server.serve(figures::site(&parts)));
        }
        if let Some((layer, _)) = &parts.tcp {
            tasks.spawn(layer.clone().accept());
        }
        if let Some(tcp) = &parts.config.tcp {
            tasks.spawn(miss_connections(parts.clone(), tcp.peers.clone()));
            for peer in &tcp.peers {
                if let Some(address) = peer.address.clone() {
                    tasks.spawn(keep_connected(parts.clone(), peer.node.clone(), address));
                }
            }
        }
        Ok(Self {
            parts,
            tasks,
            metrics: address,
            writer: stores.writer,
            _lock: stores.lock,
        })
    }

    /// Where metrics are served, with the port that the kernel chose, if they are configured.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// For applications and for status.
    pub fn handle(&self) -> Handle {
        Handle(self.parts.clone())
    }

    /// Ends the node; what is stored stays there. Returns `false` if tasks of the agent did not end, and were left.
    pub async fn shutdown(mut self) -> bool {
        self.tasks.shutdown().await;
        let has_ended = self.parts.end_agent().await;
        close(self.writer.take()).await;
        has_ended
    }
}

/// Ends what writes to the folder. What was taken is there anyway; it keeps the folder locked as long as it writes.
async fn close(writer: Option<storage::Writer>) {
    if let Some(writer) = writer {
        let _ = tokio::time::timeout(MOST_SHUTDOWN, writer.close()).await;
    }
}

impl Parts {
    /// Returns `false` if tasks of the agent did not end, and were left.
    async fn end_agent(&self) -> bool {
        self.stock.end_life();
        // What is stored is there also after a kill, so nothing is lost if a task of the agent does not end.
        let ended = tokio::time::timeout(MOST_SHUTDOWN, self.agent.shutdown());
        let has_ended = ended.await.is_ok();
        if !has_ended {
            tracing::warn!("the bundle agent does not end: it is left");
        }
        if let Some((layer, _)) = &self.tcp {
            layer.close().await;
        }
        has_ended
    }

    async fn register(&mut self) -> Result<(), Error> {
        let (agent, stock) = (&self.agent, self.stock.clone());
        let _change = stock.changes.begin();
        agent
            .register_routing_agent("routes".to_owned(), self.routes.clone())
            .await
            .map_err(agent_error)?;
        let echo = App::echo(self.desk.clone());
        agent
            .register_service(service(&self.config.node, ECHO), echo)
            .await
            .map_err(agent_error)?;
        let window = self.config.ltp.as_ref().map_or(0, window_over);
        let pool = Pool::new(window.max(POOL_BYTES), OWN_BYTES);
        if let Some(config) = &self.config.ltp {
            let layer = LtpLayer::start(config, self.config.storage.bundle_bytes)?;
            let known = config.peers.iter().map(|peer| peer.node.clone()).collect();
            let cla = Arc::new(LtpCla(layer.clone()));
            let gate = Gate::new(
                self.config.node.clone(),
                cla,
                self.schedule.clone(),
                self.stock.clone(),
                Guests::Only(known),
                false,
            );
            let policy = Window::new(
                self.store.clone(),
                self.stock.clone(),
                self.schedule.clone(),
                (window, usual_windows(config)),
                pool.clone(),
            );
            layer.set_links(|node| self.link(node, Schedule::now()));
            agent
                .register_cla("ltp".to_owned(), gate.clone(), Some(policy))
                .await
                .map_err(agent_error)?;
            self.ltp = Some((layer, gate));
        }
        if let Some(config) = &self.config.tcp {
            let layer = TcpLayer::start(config, self.config.storage.bundle_bytes).await?;
            let guests = Guests::over_tcp(config, self.config.ltp.as_ref());
            let gate = Gate::new(
                self.config.node.clone(),
                layer.library(),
                self.schedule.clone(),
                self.stock.clone(),
                guests,
                true,
            );
            let policy = Window::new(
                self.store.clone(),
                self.stock.clone(),
                self.schedule.clone(),
                (WINDOW_BYTES, BTreeMap::new()),
                pool,
            );
            agent
                .register_cla("tcp".to_owned(), gate.clone(), Some(policy))
                .await
                .map_err(agent_error)?;
            self.tcp = Some((layer, gate));
        }
        Ok(())
    }

    fn gates(&self) -> impl Iterator<Item = (&'static str, &Arc<Gate>)> {
        let ltp = self.ltp.iter().map(|(_, gate)| ("ltp", gate));
        ltp.chain(self.tcp.iter().map(|(_, gate)| ("tcp", gate)))
    }

    fn link(&self, node: &NodeId, now: Moment) -> (LinkState, bool) {
        (
            self.schedule.link(node, now),
            self.schedule.is_over(node, now),
        )
    }

    /// Opens and closes contacts.
    async fn update(&self) {
        let _only_one = self.updating.lock().await;
        let now = Schedule::now();
        if let Some((layer, _)) = &self.ltp {
            layer.set_links(|node| self.link(node, now));
        }
        // It looks for the neighbours that are to be shown.
        self.routes.update(now).await;
        for (_, gate) in self.gates() {
            gate.update(now).await;
        }
    }
}

/// Bytes on their way to a neighbour over LTP: those of the neighbour that needs most.
pub(crate) fn window_over(config: &LtpConfig) -> u64 {
    let windows = config.peers.iter().filter_map(|peer| {
        let round_trips = (peer.light_time * 2).saturating_mul(WINDOW_ROUND_TRIPS);
        Some(peer.rate?.bytes_in(round_trips))
    });
    let most = windows.max().unwrap_or(0);
    most.clamp(WINDOW_BYTES, MOST_WINDOW_BYTES)
}

/// Bytes of bundles that are not urgent on their way to each neighbour over LTP whose rate is known, where others may be.
pub(crate) fn usual_windows(config: &LtpConfig) -> BTreeMap<NodeId, u64> {
    let windows = config.peers.iter().filter_map(|peer| {
        let round_trips = (peer.light_time * 2).saturating_mul(WINDOW_ROUND_TRIPS);
        let bytes = peer.rate?.bytes_in(round_trips.saturating_add(AHEAD));
        Some((peer.node.clone(), bytes.max(LEAST_USUAL_BYTES)))
    });
    windows.collect()
}

fn agent_error(error: impl std::fmt::Display) -> Error {
    Error::Agent(error.to_string())
}

/// The service of a node that is called by number or by name, as the node is.
fn service(node: &NodeId, (number, name): (u32, &str)) -> Service {
    match node {
        NodeId::Dtn(_) => Service::Dtn(name.into()),
        _ => Service::Ipn(number),
    }
}

async fn follow_plan(parts: Arc<Parts>) {
    loop {
        let now = Schedule::now();
        parts.update().await;
        let next = parts
            .schedule
            .next_look(now)
            .map_or(LOOK_AT_CLOCK, |at| at.since(Schedule::now()));
        // A moment later, so that the change has come by then.
        let patience = next.min(LOOK_AT_CLOCK) + Duration::from_millis(1);
        let _ = tokio::time::timeout(patience, parts.schedule.news()).await;
    }
}

/// After a bundle was not sent or not taken, looks for other routes, and lets all that waits try again.
async fn try_again(parts: Arc<Parts>) {
    loop {
        let now = Schedule::now();
        let attempt = parts.schedule.next_attempt(now).map(|at| at.since(now));
        let asked = parts.stock.changes.asked(TRY_AGAIN);
        // A bundle that the agent has lost sight of must not wait for the end of its lifetime.
        let patience = attempt.map_or(LOOK_AT_ALL, |attempt| attempt.clamp(TRY_AGAIN, LOOK_AT_ALL));
        let _ = tokio::time::timeout(patience, asked).await;
        parts.update().await;
        parts.routes.try_again().await;
    }
}

/// How long an address of a peer so far away may take to answer.
fn connect_patience(light_time: Duration, is_last: bool) -> Duration {
    let own = match is_last {
        true => LAST_PATIENCE,
        false => CONNECT_PATIENCE,
    };
    own.saturating_add(light_time.saturating_mul(CONNECT_WAYS))
}

/// Connects to the first address of a peer that takes a connection, and returns the address under which the agent has it.
async fn connect(
    layer: &TcpLayer,
    address: &PeerAddress,
    light_time: Duration,
) -> Result<SocketAddr, String> {
    let addresses: Vec<SocketAddr> = match address {
        PeerAddress::At(address) => vec![*address],
        // A name is looked up at each attempt: a peer may be given another address.
        PeerAddress::Named(name) => {
            let found = tokio::net::lookup_host(name.as_str()).await;
            found.map_err(|error| error.to_string())?.collect()
        }
    };
    let mut failed = "the name has no address".to_owned();
    let mut addresses = addresses.into_iter().peekable();
    while let Some(address) = addresses.next() {
        // The system would try longer and longer, and lose the beginning of a contact.
        let patience = connect_patience(light_time, addresses.peek().is_none());
        match tokio::time::timeout(patience, layer.connect(address)).await {
            Ok(Ok(at)) => return Ok(at),
            Ok(Err(error)) => failed = error,
            Err(_) => failed = format!("{address} does not answer"),
        }
    }
    Err(failed)
}

/// Notes which neighbours could be talked to and are not connected: what is for others goes another way, if there is one.
async fn miss_connections(parts: Arc<Parts>, peers: Vec<TcpPeer>) {
    let mut missing = BTreeSet::new();
    loop {
        tokio::time::sleep(TRY_AGAIN).await;
        let (now, mut is_news) = (Schedule::now(), false);
        for TcpPeer { node, .. } in &peers {
            let is_there = parts.gates().any(|(_, gate)| gate.has(node));
            if is_there || !parts.schedule.is_open(node, now) {
                missing.remove(node);
            } else if !missing.insert(node) {
                // It had time to connect since the contact began.
                is_news |= parts.schedule.absent(node, now);
            }
        }
        if is_news {
            parts.stock.changes.at_once();
        }
    }
}

async fn keep_connected(parts: Arc<Parts>, node: NodeId, address: PeerAddress) {
    let Some((layer, gate)) = &parts.tcp else {
        return;
    };
    let (mut delay, mut told) = (TRY_AGAIN, String::new());
    loop {
        let is_wanted = || !gate.has(&node) && parts.schedule.is_open(&node, Schedule::now());
        let mut connected = None;
        if is_wanted() {
            let light_time = parts.schedule.light_time(&node, Schedule::now());
            match connect(layer, &address, light_time).await {
                Ok(at) => {
                    connected = Some(ClaAddress::Tcp(at));
                    told.clear();
                }
                Err(error) if error != told => {
                    tracing::warn!(%node, %address, %error, "no connection; it is tried again each second");
                    told = error;
                }
                Err(error) => tracing::debug!(%node, %address, %error, "no connection"),
            }
        }
        tokio::time::sleep(TRY_AGAIN).await;
        match connected {
            Some(at) if is_wanted() => {
                tracing::warn!(%node, %address, "whoever answers there is not this node, or ends the connection");
                // The library ends no connection by itself: another one would stay open beside this one.
                while gate.is_connected(&at) {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(MOST_DELAY);
            }
            _ => delay = TRY_AGAIN,
        }
    }
}

impl Handle {
    /// Opens an endpoint: by name or number, or any that is free.
    ///
    /// # Errors
    /// The name is wrong or in use.
    pub async fn open(
        &self,
        name: Option<&str>,
        deliveries: mpsc::Sender<Delivery>,
    ) -> Result<(Arc<App>, Eid), client::Error> {
        let app = App::new(self.0.desk.clone(), deliveries);
        let endpoint = self.register(name, app.clone()).await?;
        Ok((app, endpoint))
    }

    /// The same; what nodes report of bundles of this endpoint that ask for it goes to `reports`, and is dropped when that is full.
    ///
    /// # Errors
    /// As [`Handle::open`].
    pub async fn open_reporting(
        &self,
        name: Option<&str>,
        deliveries: mpsc::Sender<Delivery>,
        reports: mpsc::Sender<client::control::Report>,
    ) -> Result<(Arc<App>, Eid), client::Error> {
        let app = App::reporting(self.0.desk.clone(), deliveries, reports);
        let endpoint = self.register(name, app.clone()).await?;
        Ok((app, endpoint))
    }

    async fn register(&self, name: Option<&str>, app: Arc<App>) -> Result<Eid, client::Error> {
        let node = &self.0.config.node;
        let name = name.map(ToOwned::to_owned);
        let random = u64::from_le_bytes(random::bytes()?);
        let (least, prefix) = (u64::from(ANONYMOUS.0), ANONYMOUS.1);
        let name = name.unwrap_or_else(|| match node {
            NodeId::Dtn(_) => format!("{prefix}{random:016x}"),
            _ => (least + random % least).to_string(),
        });
        let service = match node {
            NodeId::Dtn(_) => Service::Dtn(name.as_str().into()),
            _ => Service::Ipn(name.parse().map_err(|_| {
                client::Error::Refused(format!("{name:?} is no service of {node}: write a number"))
            })?),
        };
        let _change = self.0.stock.changes.begin();
        let endpoint = self.0.agent.register_service(service, app).await;
        endpoint.map_err(|error| client::Error::Refused(error.to_string()))
    }

    /// The bundles that applications have acknowledged.
    pub fn desk(&self) -> &Desk {
        &self.0.desk
    }

    /// Greatest payload of a bundle in bytes.
    pub fn bundle_bytes(&self) -> u64 {
        self.0.config.storage.bundle_bytes
    }

    /// Bytes of the least contact that is left in the plan and carries some chunks of a file, if there is one.
    pub fn least_contact(&self) -> Option<u64> {
        self.0
            .schedule
            .least_contact(Schedule::now(), LEAST_CONTACT)
    }

    /// The socket that the configuration names.
    pub fn control(&self) -> Option<PathBuf> {
        self.0.config.control.clone()
    }

    /// Where LTP receives segments, if it is used.
    pub fn ltp_address(&self) -> Option<std::net::SocketAddr> {
        self.0.ltp.as_ref().map(|(layer, _)| layer.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three round trips, of which none is over in less than light takes.
    #[test]
    fn a_far_peer_has_time_to_answer() {
        let minute = Duration::from_secs(60);
        for is_last in [false, true] {
            assert!(connect_patience(minute, is_last) > minute * 6);
        }
        assert_eq!(connect_patience(Duration::ZERO, false), CONNECT_PATIENCE);
        assert_eq!(connect_patience(Duration::ZERO, true), LAST_PATIENCE);
    }
}
