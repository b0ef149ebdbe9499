//! Stands between a convergence layer and the agent: neighbours are shown to the agent only while a contact with them is open and
//! what goes there arrives first, and bundles are let in only while there is room.

mod entrance;
mod head_on;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use hardy_bpa::{
    Bytes, async_trait,
    cla::{Cla, ClaAddress, ClaAddressType, ForwardBundleResult, Result, Sink},
};
use starhaul_log::Seldom;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::{entrance::Entrance, head_on::HeadOn};
use crate::{
    config::{LtpConfig, TcpConfig},
    egress,
    halves::{Carrier, Halves},
    layers::Layer,
    plan::{Moment, NodeId},
    schedule::{Fit, Schedule},
    steady::Became,
    stock::{NoPart, NoRoom, Stock},
    trail::Mark,
};

/// Bundles that a neighbour over TCPCLv4 is given at a time. A session carries one, and the others are there only so that it goes on with
/// the next; each that is there when a connection breaks fails with it.
const MOST_AT_ONCE: usize = 8;

/// A convergence layer behind its gate.
pub(crate) struct Gate {
    layer: Arc<dyn Carrier>,
    door: Arc<Door>,
}

/// What the gate and the layer's sink share.
struct Door {
    /// Number or name of this node.
    own: NodeId,
    /// What it leaves in the bundles that it sends on.
    mark: Mark,
    layer: Layer,
    schedule: Arc<Schedule>,
    stock: Arc<Stock>,
    guests: Guests,
    /// Whether any bundle without room waits; otherwise it is refused, but for [few](HeadOn).
    waits: bool,
    /// Whether the node ends: nothing waits for room any more.
    is_closed: AtomicBool,
    agent: OnceLock<Box<dyn Sink>>,
    neighbours: Mutex<BTreeMap<ClaAddress, Neighbour>>,
    /// Where nodes are connected that may be no neighbours.
    strangers: Mutex<BTreeSet<ClaAddress>>,
    /// For which nodes bundles wait here or are on their way.
    head_on: HeadOn,
    /// Only one at a time tells the agent of neighbours.
    telling: tokio::sync::Mutex<()>,
    sent: AtomicU64,
    received: AtomicU64,
    dropped: AtomicU64,
    /// How many neighbours have come.
    came: AtomicU64,
    /// Limits the log lines on what strangers send.
    log: Seldom,
    /// Of strangers that connect under a name that is kept for another layer.
    names: Seldom,
    /// Of bundles that come back.
    returns: Seldom,
    /// Of bundles that are not let in.
    full: Seldom,
    /// Of bundles that the agent drops as they come.
    drops: Seldom,
    /// Of bundles that neighbours do not take.
    refusals: Seldom,
}

/// Which nodes may be neighbours.
#[derive(Clone, Debug)]
pub(crate) enum Guests {
    /// These nodes alone.
    Only(Vec<NodeId>),
    /// Any but these, who prove over another layer who they are.
    AllBut(Vec<NodeId>),
}

impl Guests {
    /// Who may be a neighbour over TCPCLv4, which authenticates no peer.
    pub(crate) fn over_tcp(tcp: &TcpConfig, ltp: Option<&LtpConfig>) -> Self {
        let named: Vec<NodeId> = tcp.peers.iter().map(|peer| peer.node.clone()).collect();
        if !tcp.accepts_unknown {
            return Self::Only(named);
        }
        let keyed = ltp.into_iter().flat_map(|ltp| &ltp.peers);
        let keyed = keyed.filter(|peer| peer.key.is_some());
        let kept = keyed.map(|peer| peer.node.clone());
        Self::AllBut(kept.filter(|node| !named.contains(node)).collect())
    }

    fn may_enter(&self, node: Option<&NodeId>) -> bool {
        match self {
            Self::Only(known) => node.is_some_and(|node| known.contains(node)),
            Self::AllBut(kept) => node.is_none_or(|node| !kept.contains(node)),
        }
    }
}

#[derive(Clone, Debug)]
struct Neighbour {
    node: NodeId,
    /// How many had come before it. Of several connections of a node, the latest is used: those before it may have broken without
    /// a sign.
    number: u64,
    /// Of the bundles that it is given at a time, where connections limit them. It is closed when the neighbour leaves: those that have
    /// a turn may never end, and what waits behind them goes another way.
    turns: Turns,
    /// Its room in the agent's windows.
    lanes: egress::Lanes,
    /// Whether the agent knows of it.
    is_shown: bool,
}

/// Turns for all that a neighbour is given at a time. Urgent bundles have turns of their own, and wait behind none of the others.
#[derive(Clone, Debug)]
struct Turns {
    usual: Arc<Semaphore>,
    urgent: Arc<Semaphore>,
}

impl Turns {
    fn new() -> Self {
        let turns = || Arc::new(Semaphore::new(MOST_AT_ONCE));
        Self {
            usual: turns(),
            urgent: turns(),
        }
    }

    /// Waits for a turn of the bundle that this task sends; `None` when they are closed.
    async fn acquire(self) -> Option<OwnedSemaphorePermit> {
        let turns = match egress::is_urgent() {
            true => self.urgent,
            false => self.usual,
        };
        turns.acquire_owned().await.ok()
    }

    fn close(&self) {
        self.usual.close();
        self.urgent.close();
    }
}

/// The latest connection of each node.
fn latest(neighbours: &BTreeMap<ClaAddress, Neighbour>) -> BTreeMap<NodeId, Neighbour> {
    let mut latest: BTreeMap<NodeId, Neighbour> = BTreeMap::new();
    for neighbour in neighbours.values() {
        let is_older = |known: &Neighbour| known.number < neighbour.number;
        if latest.get(&neighbour.node).is_none_or(is_older) {
            latest.insert(neighbour.node.clone(), neighbour.clone());
        }
    }
    latest
}

/// Bundles that passed a gate, in either direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    /// Bundles that a neighbour took.
    pub sent: u64,
    /// Bundles that came and were stored.
    pub received: u64,
    /// Bundles that came and were dropped at once: damaged, expired, or against a rule.
    pub dropped: u64,
    /// The nodes at the other ends, and whether bundles may go there now.
    pub neighbours: Vec<(NodeId, bool)>,
}

impl Gate {
    /// A gate before `layer`. Bundles of nodes that are no `guests` are refused; one without room waits if `waits`, or for a
    /// while if bundles are for its node.
    pub(crate) fn new(
        own: NodeId,
        layer: Arc<dyn Carrier>,
        schedule: Arc<Schedule>,
        stock: Arc<Stock>,
        guests: Guests,
        waits: bool,
    ) -> Arc<Self> {
        let door = Door {
            mark: Mark::of(&own),
            own,
            layer: match layer.address_type() {
                Some(ClaAddressType::Tcp) => Layer::Tcp,
                _ => Layer::Ltp,
            },
            schedule,
            stock,
            guests,
            waits,
            is_closed: AtomicBool::new(false),
            agent: OnceLock::new(),
            neighbours: Mutex::default(),
            strangers: Mutex::default(),
            head_on: HeadOn::default(),
            telling: tokio::sync::Mutex::default(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            came: AtomicU64::new(0),
            log: Seldom::default(),
            names: Seldom::default(),
            returns: Seldom::default(),
            full: Seldom::default(),
            drops: Seldom::default(),
            refusals: Seldom::default(),
        };
        Arc::new(Self {
            layer,
            door: Arc::new(door),
        })
    }

    fn is_tcp(&self) -> bool {
        self.layer.address_type() == Some(ClaAddressType::Tcp)
    }

    /// The node at an address, when it can be given a bundle; `None` if it is not there, or has left while others had their turn.
    async fn turn(&self, address: &ClaAddress) -> Option<(NodeId, Option<OwnedSemaphorePermit>)> {
        let find = || self.door.neighbours().get(address).cloned();
        let Neighbour {
            node,
            number,
            turns,
            ..
        } = find()?;
        if !self.is_tcp() {
            return Some((node, None));
        }
        let turn = turns.acquire().await?;
        let is_there = find().is_some_and(|at| at.number == number);
        let is_open = !self.door.is_closed.load(Ordering::SeqCst);
        (is_there && is_open).then_some((node, Some(turn)))
    }

    /// Shows and hides neighbours as their contacts begin and end.
    pub(crate) async fn update(&self, now: Moment) {
        self.door.update(now).await;
    }

    /// Returns what passed this gate.
    pub(crate) fn passed(&self) -> Passed {
        let neighbours = latest(&self.door.neighbours());
        Passed {
            sent: self.door.sent.load(Ordering::Relaxed),
            received: self.door.received.load(Ordering::Relaxed),
            dropped: self.door.dropped.load(Ordering::Relaxed),
            neighbours: neighbours
                .into_iter()
                .map(|(node, at)| (node, at.is_shown))
                .collect(),
        }
    }

    /// Whether a node is at the other end.
    pub(crate) fn has(&self, node: &NodeId) -> bool {
        self.door
            .neighbours()
            .values()
            .any(|neighbour| neighbour.node == *node)
    }

    /// Whether a node is connected at an address, under any name.
    pub(crate) fn is_connected(&self, address: &ClaAddress) -> bool {
        self.door.neighbours().contains_key(address) || self.door.strangers().contains(address)
    }
}

impl Door {
    fn neighbours(&self) -> MutexGuard<'_, BTreeMap<ClaAddress, Neighbour>> {
        self.neighbours
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn strangers(&self) -> MutexGuard<'_, BTreeSet<ClaAddress>> {
        self.strangers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a node may be a neighbour. One that has the name of this node would get what is for applications here.
    fn may_enter(&self, node: Option<&NodeId>) -> bool {
        let is_own = node.is_some_and(|node| *node == self.own || *node == NodeId::LocalNode);
        self.guests.may_enter(node) && !is_own
    }

    /// Whether a node is connected at another address, too.
    fn is_elsewhere(&self, node: &NodeId, address: &ClaAddress) -> bool {
        let neighbours = self.neighbours();
        let mut others = neighbours.iter().filter(|(at, _)| *at != address);
        others.any(|(_, neighbour)| neighbour.node == *node)
    }

    /// Notes whether a neighbour answers at an address; over a layer that does not tell refusals it may have refused the bundle.
    fn note(
        &self,
        node: &NodeId,
        address: &ClaAddress,
        forwarded: &Result<ForwardBundleResult>,
        tells_no_refusal: bool,
    ) {
        let now = Schedule::now();
        match forwarded {
            Ok(ForwardBundleResult::Sent) => {
                self.schedule.worked_over(node, self.layer, now);
                self.is_there(node);
            }
            Ok(ForwardBundleResult::NoNeighbour) => {
                // TCPCLv4 tells no refusal: the connection ends with it.
                if tells_no_refusal {
                    egress::refused();
                }
                // A connection of former times may break long after the node has made another.
                if !self.is_elsewhere(node, address) {
                    self.schedule.failed_over(node, self.layer, now);
                }
            }
            Err(error) => {
                egress::refused();
                self.schedule.refused(node, now);
                if let Some(others) = self.refusals.is_due(Instant::now()) {
                    tracing::warn!(%node, %error, others, "a neighbour does not take a bundle: it is tried again");
                }
            }
        }
    }

    fn is_there(&self, node: &NodeId) {
        if self.schedule.worked(node, Schedule::now()) {
            self.stock.changes.at_once();
        }
    }

    /// Forgets a neighbour; whether there was one.
    async fn forget(&self, address: &ClaAddress) -> Result<bool> {
        let _only_one = self.telling.lock().await;
        let _change = self.stock.changes.begin();
        let removed = {
            let mut neighbours = self.neighbours();
            let removed = neighbours.remove(address);
            if let Some(neighbour) = &removed {
                neighbour.turns.close();
                self.left(&neighbours, &neighbour.node);
            }
            removed
        };
        match (removed, self.agent.get()) {
            (Some(neighbour), Some(agent)) if neighbour.is_shown => {
                let told = agent.remove_peer(address).await;
                self.close(&neighbour);
                told
            }
            (removed, _) => Ok(removed.is_some()),
        }
    }

    /// Lets nothing wait for a neighbour that the agent does not know any more: it has taken back what it gave to it.
    fn close(&self, neighbour: &Neighbour) {
        if neighbour.lanes.close() {
            self.stock.changes.again();
        }
    }

    /// Notes that a node has left an address: what waits may go to it over another layer, which was perhaps hidden. These are those that
    /// are left, locked, so that none that comes meanwhile is taken for one that is away.
    fn left(&self, neighbours: &BTreeMap<ClaAddress, Neighbour>, node: &NodeId) {
        let has_left = neighbours.values().all(|neighbour| neighbour.node != *node);
        if has_left && self.schedule.left(node, self.layer) {
            self.stock.changes.at_once();
        }
    }

    fn log_name(&self, nodes: &[NodeId]) {
        let Guests::AllBut(kept) = &self.guests else {
            return;
        };
        if let Some(node) = nodes.iter().find(|node| kept.contains(node))
            && let Some(others) = self.names.is_due(Instant::now())
        {
            tracing::warn!(%node, others, "a connection under the name of a neighbour over LTP that has a key is not used");
        }
    }

    fn log_return(&self, node: Option<&NodeId>) {
        if let Some(others) = self.returns.is_due(Instant::now()) {
            tracing::warn!(
                node = node.map(ToString::to_string),
                others,
                "a bundle that was here before comes back, and is refused: the routes of several nodes make a circle"
            );
        }
    }

    fn log_full(&self, node: Option<&NodeId>, bytes: u64, error: NoRoom) {
        if let Some(others) = self.full.is_due(Instant::now()) {
            let node = node.map(ToString::to_string);
            tracing::warn!(node, bytes, %error, others, "a bundle of a neighbour is refused");
        }
    }

    fn log_part(&self, node: Option<&NodeId>, reason: NoPart) {
        if let Some(others) = self.full.is_due(Instant::now()) {
            let node = node.map(ToString::to_string);
            tracing::warn!(node, error = %reason, others, "a bundle of a neighbour is refused");
        }
    }

    /// Counts a bundle that was not refused.
    fn count(&self, became: Became, node: Option<&NodeId>) {
        match became {
            Became::Stored => drop(self.received.fetch_add(1, Ordering::Relaxed)),
            Became::Known => {}
            Became::Dropped => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                if let Some(others) = self.drops.is_due(Instant::now()) {
                    tracing::warn!(
                        node = node.map(ToString::to_string),
                        others,
                        "a bundle of a neighbour is dropped as it comes: it is damaged, has expired, or breaks a rule"
                    );
                }
            }
        }
    }

    async fn update(&self, now: Moment) {
        let Some(agent) = self.agent.get() else {
            return;
        };
        let _only_one = self.telling.lock().await;
        let changes: Vec<(ClaAddress, Neighbour)> = {
            let mut neighbours = self.neighbours();
            let latest = latest(&neighbours);
            let changed = neighbours.iter_mut().filter_map(|(address, neighbour)| {
                let latest = latest.get(&neighbour.node);
                let is_latest = latest.is_some_and(|latest| latest.number == neighbour.number);
                let node = &neighbour.node;
                let is_open = is_latest
                    && self.schedule.is_shown(node, now)
                    && self.schedule.is_best_over(node, self.layer, now);
                let is_news = std::mem::replace(&mut neighbour.is_shown, is_open) != is_open;
                match is_open {
                    true if is_news => neighbour.turns = Turns::new(),
                    true => {}
                    // Its contact is over, or it has another connection.
                    false => neighbour.turns.close(),
                }
                is_news.then(|| (address.clone(), neighbour.clone()))
            });
            changed.collect()
        };
        for (address, neighbour) in changes {
            let _change = self.stock.changes.begin();
            let told = match neighbour.is_shown {
                true => {
                    let adding = agent.add_peer(address, std::slice::from_ref(&neighbour.node));
                    let adding = neighbour.lanes.of(adding);
                    egress::to(neighbour.node.clone(), adding).await
                }
                false => {
                    let told = agent.remove_peer(&address).await;
                    self.close(&neighbour);
                    told
                }
            };
            let (node, is_open) = (&neighbour.node, neighbour.is_shown);
            match told {
                Ok(_) => tracing::info!(%node, is_open, "contact"),
                Err(error) => tracing::warn!(%node, %error, "the agent does not hear of a contact"),
            }
        }
    }
}

#[async_trait]
impl Cla for Gate {
    async fn on_register(&self, sink: Box<dyn Sink>, node_ids: &[NodeId]) {
        // It is registered once.
        let _ = self.door.agent.set(sink);
        self.layer
            .on_register(Box::new(Entrance(self.door.clone())), node_ids)
            .await;
    }

    async fn on_unregister(&self) {
        // The layer's own end awaits what waits for room.
        self.door.is_closed.store(true, Ordering::SeqCst);
        self.layer.on_unregister().await;
    }

    fn address_type(&self) -> Option<ClaAddressType> {
        self.layer.address_type()
    }

    async fn forward(
        &self,
        queue: Option<u32>,
        address: &ClaAddress,
        bundle: Bytes,
    ) -> Result<ForwardBundleResult> {
        // If it has left: a node that answers there now is not this neighbour.
        let Some((node, turn)) = self.turn(address).await else {
            self.door.stock.changes.again();
            return Ok(ForwardBundleResult::NoNeighbour);
        };
        let Some(bundle) = Halves::of(bundle) else {
            // It would be found the same each second.
            egress::refused();
            self.door.stock.changes.again();
            return Ok(ForwardBundleResult::NoNeighbour);
        };
        let (now, bytes) = (Schedule::now(), bundle.len() as u64);
        let schedule = &self.door.schedule;
        // Its contact is over, or too short for what is left of it.
        let Some(booking) = schedule.book(&node, now, bytes) else {
            if schedule.fit(&node, now, bytes) == Fit::Never {
                // It would be read again each second.
                egress::refused();
            }
            self.door.stock.changes.again();
            return Ok(ForwardBundleResult::NoNeighbour);
        };
        let bundle = bundle.changed(|made| self.door.mark.leave_in(made));
        let leaving = self.door.head_on.leave_to(&node);
        let forwarded = self.layer.carry(queue, address, bundle).await;
        match &forwarded {
            Ok(ForwardBundleResult::Sent) => leaving.tell(false),
            // Where bundles without room wait, none is refused for want of it.
            Err(_) if !self.door.waits => leaving.tell(true),
            _ => {}
        }
        drop((leaving, turn));
        self.door.note(&node, address, &forwarded, self.is_tcp());
        match forwarded {
            Ok(ForwardBundleResult::Sent) => drop(self.door.sent.fetch_add(1, Ordering::Relaxed)),
            _ => {
                schedule.give_back(&booking, Schedule::now());
                self.door.stock.changes.again();
            }
        }
        forwarded
    }
}

#[cfg(test)]
mod tests;
