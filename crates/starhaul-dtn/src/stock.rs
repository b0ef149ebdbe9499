//! What the node holds: how many bundles for each destination, whether there is room for more, and which of them are on their way.
//!
//! The agent's stores are wrapped, so that all that is inserted and removed is counted, and so that bundles whose transmission
//! has begun are not handed out again: their acknowledgement may take minutes, or the next contact. Nor are those that an
//! application has and did not acknowledge yet.

mod claims;
mod copies;
pub(crate) mod counted;
pub(crate) mod memory;
mod parts;
mod passed;
pub(crate) mod searches;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use hardy_bpa::bundle::Bundle;
use hardy_bpv7::{bundle::Id, eid::Eid, status_report::ReasonCode};
use time::OffsetDateTime;
use tokio::sync::Notify;

pub(crate) use self::parts::NoPart;
use self::{
    parts::Parts,
    passed::{Passed, Trace},
    searches::Searches,
};
use crate::{
    changes::{Changes, Seen},
    config::Storage,
    plan::NodeId,
    priority::Priorities,
    reports::{Allowance, PER_SECOND},
    schedule::Schedule,
    trail::Marks,
    unread,
};

/// How long the names of bundles of nodes without a clock are kept after the end of their lifetimes at most.
const GRACE: Duration = Duration::from_secs(3600);

/// How long the name of a bundle that is gone is kept after the end of its lifetime. Without a clock at its source each node counts how
/// old a bundle is: a copy that took another way may be thought younger, and live longer. Such a node uses its names again when it starts
/// anew, so that none is kept for longer than its bundle could live.
pub(crate) fn grace(id: &Id, lifetime: Duration) -> Duration {
    match id.timestamp.is_clocked() {
        true => Duration::ZERO,
        false => GRACE.min(lifetime),
    }
}

/// Bundles and the bytes that they take up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Number of bundles.
    pub bundles: u64,
    /// Bytes of all their blocks, and of what is known of them.
    pub bytes: u64,
}

/// The bundles that a node holds, and the room for more.
#[derive(Debug)]
pub struct Stock {
    own: NodeId,
    held: Mutex<Held>,
    limits: Storage,
    changed: Notify,
    recovered: Notify,
    /// That a part of a bundle was taken, or was not.
    part_ended: Notify,
    is_begun: AtomicBool,
    /// Which bundles leave first.
    priorities: OnceLock<Priorities>,
    /// What hears of the sizes of bundles.
    schedule: OnceLock<Arc<Schedule>>,
    /// Of the routes that the agent knows.
    pub(crate) changes: Changes,
    /// Of the store, for all that waits.
    pub(crate) searches: Searches,
}

#[derive(Debug, Default)]
struct Held {
    bundles: HashMap<Id, Item>,
    total: Amount,
    by_node: BTreeMap<NodeId, Amount>,
    /// Bundles that a convergence layer is sending, or that an application has.
    busy: HashMap<Id, Task>,
    /// Bundles that were sent, and are not here any more.
    passed: Passed,
    /// Parts of bundles for applications here.
    parts: Parts,
    /// Bytes of bundles that were let in, but are not stored yet.
    coming: Amount,
    /// Endpoints here whose applications have as many bundles as they may have at a time.
    full: HashSet<Eid>,
    /// How many bundles fit into no contacts that are left on their way.
    unfit: u64,
    /// How many bundles are reports that this node has made.
    reports: u64,
    /// How many more it may make.
    allowance: Allowance,
    ended: Ended,
}

/// Bundles that ended here or were not taken, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Those whose lifetime ended here.
    pub expired: u64,
    /// How often there was no room for one, or it could not be stored.
    pub refused: u64,
    /// How often one was larger than any may be.
    pub too_large: u64,
    /// Reports that bundles have asked for and that were not made, since there were too many.
    pub unreported: u64,
}

#[derive(Debug)]
struct Item {
    node: Option<NodeId>,
    bytes: u64,
    expiry: OffsetDateTime,
    /// When it was last handed to the agent.
    seen: Seen,
    /// How the bundle reached this node.
    trace: Trace,
    /// Whether a neighbour may have it.
    may_have_left: bool,
    /// How often neighbours refused it.
    refusals: u32,
    /// Whether it fits into no contact that is left with the next node on its way.
    is_unfit: bool,
    /// Whether its data could not be read when it was to be sent.
    is_unread: bool,
    /// Why no application can have it, if it is known.
    unusable: Option<ReasonCode>,
    /// Whether this node has made it to report of another one.
    is_report: bool,
}

/// What is being done with a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// A convergence layer sends it.
    Sending,
    /// An application has it.
    Delivering,
    /// It was refused again and again, and is left alone for a while.
    Resting,
}

/// Why a bundle is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// It is larger than `max_bundle_bytes` or all of `max_bytes` allows.
    #[error("the bundle is larger than max_bundle_bytes or max_bytes allows")]
    TooLarge,
    /// All of `max_bytes` or `max_bundles` is in use.
    #[error("the storage is full")]
    Full,
}

impl From<NoRoom> for starhaul_dtn_client::Error {
    fn from(reason: NoRoom) -> Self {
        match reason {
            NoRoom::Full => Self::Full,
            NoRoom::TooLarge => Self::Refused(reason.to_string()),
        }
    }
}

/// Room for a bundle that is about to be stored; given back when dropped.
#[derive(Debug)]
pub struct Room<'a> {
    stock: &'a Stock,
    bytes: u64,
}

/// A bundle that something is done with; it is handed out again after this is dropped.
#[derive(Debug)]
pub(crate) struct Busy {
    stock: Arc<Stock>,
    id: Id,
}

/// Bundles that may be here beyond the limits, as many as neighbours that are as full.
const BEYOND: u64 = 8;

impl Stock {
    /// An empty one with these limits, of the node `own`.
    pub fn new(own: NodeId, limits: Storage) -> Arc<Self> {
        Arc::new(Self {
            own,
            held: Mutex::default(),
            limits,
            changed: Notify::new(),
            recovered: Notify::new(),
            part_ended: Notify::new(),
            is_begun: AtomicBool::new(false),
            priorities: OnceLock::new(),
            schedule: OnceLock::new(),
            changes: Changes::default(),
            searches: Searches::default(),
        })
    }

    /// Gives the rules by which some bundles leave before others; without them, none does.
    pub(crate) fn set_priorities(&self, priorities: Priorities) {
        // They are given once, before there are bundles.
        let _ = self.priorities.set(priorities);
    }

    /// Gives the contacts, by whose routes the agent hands out bundles.
    pub(crate) fn set_schedule(&self, schedule: Arc<Schedule>) {
        // It is given once, before there are bundles.
        let _ = self.schedule.set(schedule);
    }

    /// Has the agent hand out a bundle for another node if one of its size has a way now.
    fn meet(&self, bundle: &Bundle) {
        let is_own = |node: NodeId| self.is_own(&node);
        let is_own = bundle.bundle.destination.to_node_id().is_ok_and(is_own);
        if !is_own && let Some(schedule) = self.schedule.get() {
            schedule.meet(bundle_bytes(bundle), Schedule::now());
        }
    }

    /// Which bundles leave first.
    pub(crate) fn priorities(&self) -> &Priorities {
        self.priorities.get_or_init(Priorities::default)
    }

    /// All that is held.
    pub fn total(&self) -> Amount {
        self.held().total
    }

    /// What is held for each node.
    pub fn by_node(&self) -> BTreeMap<NodeId, Amount> {
        self.held().by_node.clone()
    }

    /// How many bundles are being sent.
    pub fn in_flight(&self) -> usize {
        let held = self.held();
        let tasks = held.busy.values();
        tasks.filter(|task| **task == Task::Sending).count()
    }

    /// How many bundles ended here or were not taken.
    pub fn ended(&self) -> Ended {
        self.held().ended
    }

    /// Whether a node is this one.
    pub(crate) fn is_own(&self, node: &NodeId) -> bool {
        *node == self.own || *node == NodeId::LocalNode
    }

    /// Whether this node has sent a bundle on, so far as the marks in it tell.
    fn is_passed(&self, bundle: &Bundle, marks: Option<Marks>) -> Option<bool> {
        let source = bundle.bundle.id.source.to_node_id().ok();
        marks?.tell(&self.own, source.as_ref())
    }

    /// The greatest bundle that is taken.
    pub(crate) const fn most_bundle_bytes(&self) -> u64 {
        self.limits.bundle_bytes
    }

    /// Room for a bundle of this size; what is known of it is added.
    ///
    /// # Errors
    /// All of [`NoRoom`].
    pub fn admit(&self, bytes: u64) -> std::result::Result<Room<'_>, NoRoom> {
        self.room(bytes)
            .inspect_err(|reason| self.not_taken(*reason))
    }

    /// The same for one that may wait where there is none: it is not refused yet.
    pub(crate) fn room(&self, bytes: u64) -> std::result::Result<Room<'_>, NoRoom> {
        self.room_within(bytes, 0)
    }

    /// The same somewhat beyond the limits, for one without which nothing would leave either.
    pub(crate) fn room_beyond(&self, bytes: u64) -> std::result::Result<Room<'_>, NoRoom> {
        self.room_within(bytes, BEYOND)
    }

    fn room_within(&self, bytes: u64, beyond: u64) -> std::result::Result<Room<'_>, NoRoom> {
        let mut held = self.held();
        let (bundles, all) = (
            held.total.bundles + held.coming.bundles,
            held.total.bytes + held.coming.bytes,
        );
        let is_large = bytes > self.limits.bundle_bytes.saturating_add(OVERHEAD)
            || bytes.saturating_add(KNOWN) > self.limits.bytes;
        let bytes = bytes.saturating_add(KNOWN);
        let most_bytes = self
            .limits
            .bytes
            .saturating_add(bytes.saturating_mul(beyond));
        let is_full = bundles >= (self.limits.bundles as u64).saturating_add(beyond)
            || all.saturating_add(bytes) > most_bytes;
        if is_full || is_large {
            return Err(if is_large {
                NoRoom::TooLarge
            } else {
                NoRoom::Full
            });
        }
        held.coming.bundles += 1;
        held.coming.bytes += bytes;
        Ok(Room { stock: self, bytes })
    }

    /// Whether this node has made a bundle to report of another one: nothing has let it in, as the gate and applications do others.
    pub(crate) fn is_report(&self, bundle: &Bundle) -> bool {
        let source = bundle.bundle.id.source.to_node_id();
        bundle.bundle.flags.is_admin_record
            && bundle.metadata.read_only.ingress_cla.is_none()
            && source.is_ok_and(|node| self.is_own(&node))
    }

    /// Room for a report that this node makes now; `None` if it has made too many, or there is no room.
    pub(crate) fn admit_report(&self, bytes: u64, now: Instant) -> Option<Room<'_>> {
        let may = {
            let mut held = self.held();
            let most = (self.limits.bundles as u64 / REPORTS_SHARE).max(LEAST_REPORTS);
            let may = held.reports < most && held.allowance.take(now);
            held.ended.unreported += u64::from(!may);
            may
        };
        may.then(|| self.admit(bytes).ok()).flatten()
    }

    /// Notes that a bundle which was let in could not be stored.
    pub(crate) fn refused(&self) {
        self.held().ended.refused += 1;
    }

    /// Notes that a bundle was not let in.
    pub(crate) fn not_taken(&self, reason: NoRoom) {
        match reason {
            NoRoom::Full => self.refused(),
            NoRoom::TooLarge => self.held().ended.too_large += 1,
        }
    }

    /// Notes that a bundle fits into no contact that is left with the next node on its way; whether that is news.
    pub(crate) fn fits_nowhere(&self, id: &Id) -> bool {
        let mut held = self.held();
        let held = &mut *held;
        // The agent may hand out one that is on its way already.
        if held.busy.contains_key(id) {
            return false;
        }
        let Some(item) = held.bundles.get_mut(id).filter(|item| !item.is_unfit) else {
            return false;
        };
        item.is_unfit = true;
        held.unfit += 1;
        true
    }

    /// Notes whether the application at an endpoint here has as many bundles as it may have at a time.
    pub(crate) fn set_full(&self, endpoint: &Eid, is_full: bool) {
        let mut held = self.held();
        if is_full {
            held.full.insert(endpoint.clone());
        } else {
            held.full.remove(endpoint);
        }
    }

    /// Whether the application that a bundle is for, if it is here, has as many as it may have at a time.
    pub(crate) fn is_full(&self, endpoint: &Eid) -> bool {
        self.held().full.contains(endpoint)
    }

    /// The limits that are reached, for people.
    pub fn limits_met(&self) -> Vec<String> {
        let held = self.held();
        let mut met = Vec::new();
        if held.total.bundles >= self.limits.bundles as u64 {
            met.push(format!(
                "storage holds {} bundles, as many as max_bundles allows",
                held.total.bundles
            ));
        }
        if held.total.bytes.saturating_add(self.limits.bundle_bytes) > self.limits.bytes {
            met.push(format!(
                "storage holds {} bytes: a bundle of the greatest size has no room",
                held.total.bytes
            ));
        }
        if held.ended.refused > 0 {
            met.push(format!(
                "{} times a bundle was refused for want of room",
                held.ended.refused
            ));
        }
        if held.ended.too_large > 0 {
            met.push(format!(
                "{} times a bundle was refused that is larger than max_bundle_bytes or max_bytes allows",
                held.ended.too_large
            ));
        }
        if held.ended.unreported > 0 {
            met.push(format!(
                "{} status reports were not made: more than {PER_SECOND} in a second were asked for, or an eighth of max_bundles waits",
                held.ended.unreported
            ));
        }
        if held.unfit > 0 {
            met.push(format!(
                "bundles that are larger than the contacts that are left on their way carry: {}",
                held.unfit
            ));
        }
        met
    }

    /// Notes what is being done with a bundle; `None` if something is done with it already.
    pub(crate) fn begin(self: &Arc<Self>, id: &Id, task: Task) -> Option<Busy> {
        let mut held = self.held();
        let held = &mut *held;
        let Entry::Vacant(entry) = held.busy.entry(id.clone()) else {
            return None;
        };
        entry.insert(task);
        if task == Task::Sending
            && let Some(item) = held.bundles.get_mut(id)
        {
            item.may_have_left = true;
            held.unfit -= u64::from(std::mem::take(&mut item.is_unfit));
        }
        Some(Busy {
            stock: self.clone(),
            id: id.clone(),
        })
    }

    /// Waits until something is removed, or a moment.
    pub async fn wait_for_room(&self) {
        // Something may have been removed before this began to wait.
        let _ = tokio::time::timeout(LOOK_AGAIN, self.changed.notified()).await;
    }

    /// Lets bundles of a former life be handed to the agent, which is whole now.
    pub(crate) fn begin_life(&self) {
        self.is_begun.store(true, Ordering::SeqCst);
    }

    /// Hands out no bundle that waits any more. The agent would process it after it has ended all that it waits for, and aborts
    /// the process when the runtime drops such a task.
    pub(crate) fn end_life(&self) {
        self.is_begun.store(false, Ordering::SeqCst);
    }

    /// Waits until the stores of a former life have been read.
    pub async fn recovered(&self) {
        self.recovered.notified().await;
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a bundle that is known already has left this node and comes back, by way of others or changed on its way. It may say
    /// itself whether this node has sent it on.
    fn has_come_back(&self, bundle: &Bundle, says: Option<bool>) -> bool {
        let is_for = bundle.bundle.destination.to_node_id();
        if says == Some(false) || is_for.is_ok_and(|node| self.is_own(&node)) {
            return false;
        }
        let (held, id) = (self.held(), &bundle.bundle.id);
        let left = match held.bundles.get(id) {
            Some(item) if item.may_have_left => item.trace,
            Some(_) => return false,
            None => match held.passed.of(id) {
                Some(trace) => trace,
                // Of what a former life has sent on nothing else is known.
                None => return says == Some(true),
            },
        };
        held.passed.trace(bundle).is_back(left)
    }

    /// Notes a bundle; one of a former life may have left in that.
    pub(crate) fn insert(&self, bundle: &Bundle, may_have_left: bool) {
        self.meet(bundle);
        let mut held = self.held();
        let held = &mut *held;
        let node = bundle.bundle.destination.to_node_id().ok();
        let item = Item {
            bytes: held_bytes(bundle),
            expiry: bundle.expiry(),
            seen: self.changes.seen(),
            trace: held.passed.trace(bundle),
            // What is for applications here does not leave.
            may_have_left: may_have_left && node.as_ref() != Some(&self.own),
            node,
            refusals: 0,
            is_unfit: false,
            is_unread: false,
            unusable: None,
            is_report: self.is_report(bundle),
        };
        if held.bundles.contains_key(&bundle.bundle.id) {
            return;
        }
        if item.node.as_ref().is_some_and(|node| self.is_own(node)) {
            held.parts.insert(&bundle.bundle.id, payload_bytes(bundle));
        }
        add(&mut held.total, item.bytes);
        held.reports += u64::from(item.is_report);
        if let Some(node) = &item.node {
            add(held.by_node.entry(node.clone()).or_default(), item.bytes);
        }
        held.bundles.insert(bundle.bundle.id.clone(), item);
    }

    pub(crate) fn remove(&self, id: &Id) {
        let mut held = self.held();
        let held = &mut *held;
        let Some(item) = held.bundles.remove(id) else {
            return;
        };
        take(&mut held.total, item.bytes);
        held.parts.remove(id);
        held.unfit -= u64::from(item.is_unfit);
        held.reports = held.reports.saturating_sub(u64::from(item.is_report));
        if item.may_have_left {
            let most = self.limits.bundles.saturating_mul(MOST_PASSED);
            held.passed.note(id, item.trace, most);
        }
        if let Some(node) = item.node
            && let Some(amount) = held.by_node.get_mut(&node)
        {
            take(amount, item.bytes);
            if amount.bundles == 0 {
                held.by_node.remove(&node);
            }
        }
        if item.expiry <= OffsetDateTime::now_utc() {
            held.ended.expired += 1;
        }
        self.changed.notify_waiters();
    }

    /// Whether a bundle is here.
    pub(crate) fn has(&self, id: &Id) -> bool {
        self.held().bundles.contains_key(id)
    }

    /// Notes that no application can have a bundle, and why: the agent is to end it, and to say so.
    pub(crate) fn set_unusable(&self, id: &Id, reason: ReasonCode) {
        if let Some(item) = self.held().bundles.get_mut(id) {
            item.unusable = Some(reason);
        }
    }

    /// Why no application can have a bundle, if it is known.
    pub(crate) fn unusable(&self, id: &Id) -> Option<ReasonCode> {
        self.held().bundles.get(id)?.unusable
    }

    /// Leaves a bundle alone for a while whose data cannot be read.
    pub(crate) fn put_aside(self: &Arc<Self>, id: &Id) {
        if let Some(resting) = self.begin(id, Task::Resting) {
            tokio::spawn(async move {
                tokio::time::sleep(unread::REST).await;
                drop(resting);
            });
        } else if let Some(item) = self.held().bundles.get_mut(id) {
            // Who was to send it lets it rest.
            item.is_unread = true;
        }
    }

    /// Whether a bundle may be handed to the agent, which is noted: nothing is being done with it.
    fn hand_out(&self, id: &Id) -> bool {
        let mut held = self.held();
        let is_idle = !held.busy.contains_key(id);
        if is_idle && let Some(item) = held.bundles.get_mut(id) {
            item.seen = self.changes.seen();
        }
        is_idle
    }

    /// Notes that a bundle waits for a route or an application from now on.
    fn waits(&self, id: &Id) {
        let seen = self.held().bundles.get(id).map(|item| item.seen);
        seen.into_iter().for_each(|seen| self.changes.waits(seen));
    }

    /// Bundles that are not handed out.
    fn busy(&self) -> usize {
        self.held().busy.len()
    }
}

/// Refusals of a bundle after which it rests: a store that is full may have room soon.
const PATIENT_REFUSALS: u32 = 8;
/// How long it rests first.
const FIRST_REST: Duration = Duration::from_secs(1);
/// How often that doubles, to a minute.
const REST_DOUBLINGS: u32 = 6;
/// How many bundles that have left are remembered for each that may be here: about as many as the stores remember.
const MOST_PASSED: usize = 4;
/// How long a bundle without room waits at most until its timer tries it again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The share of all bundles that may be reports of this node, but so many in any case: what nobody takes must not fill the store.
const REPORTS_SHARE: u64 = 8;
const LEAST_REPORTS: u64 = 64;
/// What a bundle's blocks may add to its payload.
const OVERHEAD: u64 = 64 << 10;
/// About the bytes by which a bundle of an empty payload makes the database larger, or memory: names, times, and its places in
/// the indices.
const KNOWN: u64 = 1 << 10;
/// The same for each of its blocks.
const KNOWN_OF_BLOCK: u64 = 128;

fn add(amount: &mut Amount, bytes: u64) {
    amount.bundles += 1;
    amount.bytes += bytes;
}

fn take(amount: &mut Amount, bytes: u64) {
    amount.bundles = amount.bundles.saturating_sub(1);
    amount.bytes = amount.bytes.saturating_sub(bytes);
}

/// Bytes of a bundle with all its blocks.
pub(crate) fn bundle_bytes(bundle: &Bundle) -> u64 {
    let ends = bundle.bundle.blocks.values().map(|block| block.extent.end);
    // One more ends the array.
    ends.max().map_or(0, |end| end as u64 + 1)
}

/// Bytes of the payload of a bundle.
pub(crate) fn payload_bytes(bundle: &Bundle) -> u64 {
    let payload = bundle.bundle.blocks.get(&1);
    payload.map_or(0, |block| block.payload_range().len() as u64)
}

/// Bytes of a bundle and of what is known of it.
fn held_bytes(bundle: &Bundle) -> u64 {
    bundle_bytes(bundle) + KNOWN + KNOWN_OF_BLOCK * bundle.bundle.blocks.len() as u64
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        take(&mut self.stock.held().coming, self.bytes);
    }
}

impl Busy {
    /// How long to leave a bundle alone that could not be sent: each attempt costs all of it. Other reasons than refusals, and than data
    /// that cannot be read, pass.
    pub(crate) fn rest_after(&self, is_refused: bool) -> Option<Duration> {
        let mut held = self.stock.held();
        let held = &mut *held;
        let item = held.bundles.get_mut(&self.id)?;
        if std::mem::take(&mut item.is_unread) {
            held.busy.insert(self.id.clone(), Task::Resting);
            return Some(unread::REST);
        }
        if !is_refused {
            return None;
        }
        item.refusals += 1;
        let doublings = item.refusals.checked_sub(PATIENT_REFUSALS)?;
        held.busy.insert(self.id.clone(), Task::Resting);
        Some(FIRST_REST.saturating_mul(1 << doublings.min(REST_DOUBLINGS)))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut held = self.stock.held();
        let task = held.busy.remove(&self.id);
        // It was not sent. All searches for waiting bundles since then have passed it over.
        if task.is_some_and(|task| task != Task::Delivering) && held.bundles.contains_key(&self.id)
        {
            self.stock.changes.again();
        }
    }
}
