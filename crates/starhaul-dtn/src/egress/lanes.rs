//! The room for bundles on their way, to each neighbour and to all of them together, and where each neighbour's bundles leave.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Controller;
use crate::plan::NodeId;

/// Greatest number of bundles of a class on their way to a neighbour.
pub(crate) const MOST_BUNDLES: usize = 8192;
/// Unit in which the bytes on their way are counted: permits are 32-bit numbers.
pub(super) const UNIT: u64 = 1 << 10;
/// What a semaphore of this width can count on every platform.
const MOST_UNITS: u32 = u32::MAX >> 4;

/// What the neighbours of a node share over all its layers: bytes of bundles that are on their way to any of them, and so in memory; and the
/// exits to which one that the agent gave to another is handed over.
pub(crate) struct Pool {
    pub(super) shared: Arc<Semaphore>,
    units: u32,
    own: u32,
    /// A neighbour has one over each layer, and one of former times until what it was given has left.
    exits: Mutex<BTreeMap<NodeId, Vec<Weak<Controller>>>>,
}

impl Pool {
    /// At most `bytes` for all together. Where others have them all, each neighbour has `own` bytes more for each class, or one larger bundle: those that do
    /// not answer must not keep the others from theirs.
    pub(crate) fn new(bytes: u64, own: u64) -> Arc<Self> {
        let units = units(bytes);
        Arc::new(Self {
            shared: Arc::new(Semaphore::new(units as usize)),
            units,
            own: self::units(own),
            exits: Mutex::default(),
        })
    }

    /// Room in memory for a bundle of so many units: among those of all neighbours, or beyond them, for each class, where they have none.
    pub(super) async fn room(&self, lane: &Lane, units: u32) -> Option<OwnedSemaphorePermit> {
        let shared = self
            .shared
            .clone()
            .acquire_many_owned(units.min(self.units));
        let own = lane.own.clone().acquire_many_owned(units.min(self.own));
        let room = tokio::select! {
            biased;
            room = shared => room,
            room = own => room,
        };
        room.ok()
    }

    /// Notes where bundles for a neighbour leave.
    pub(super) fn open(&self, neighbour: &NodeId, exit: &Arc<Controller>) {
        let mut exits = self.exits();
        exits.retain(|_, exits| {
            exits.retain(|exit| exit.strong_count() > 0);
            !exits.is_empty()
        });
        let known = exits.entry(neighbour.clone()).or_default();
        known.push(Arc::downgrade(exit));
    }

    /// Where bundles for a neighbour leave, if the agent knows it: the exit with the most room, as one may stand still.
    pub(super) fn exit(&self, neighbour: &NodeId) -> Option<Arc<Controller>> {
        let exits = self.exits();
        let exits = exits.get(neighbour)?.iter().filter_map(Weak::upgrade);
        exits.max_by_key(|exit| exit.usual.free_units())
    }

    fn exits(&self) -> MutexGuard<'_, BTreeMap<NodeId, Vec<Weak<Controller>>>> {
        self.exits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// So many bytes as a semaphore counts them.
pub(super) fn units(bytes: u64) -> u32 {
    let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
    units.clamp(1, MOST_UNITS)
}

/// What may be on its way to a neighbour of the bundles of a class.
#[derive(Clone)]
pub(super) struct Lane {
    bundles: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    units: u32,
    /// Its own part beyond the pool.
    own: Arc<Semaphore>,
    /// Whether a bundle found no place.
    is_awaited: Arc<AtomicBool>,
}

impl Lane {
    pub(super) fn new(units: u32, pool: &Pool) -> Self {
        Self {
            bundles: Arc::new(Semaphore::new(MOST_BUNDLES)),
            bytes: Arc::new(Semaphore::new(units as usize)),
            units,
            own: Arc::new(Semaphore::new(pool.own as usize)),
            is_awaited: Arc::default(),
        }
    }

    /// As how many units a bundle of so many bytes counts.
    pub(super) fn units_of(&self, bytes: u64) -> u32 {
        let units = u32::try_from(bytes / UNIT + 1).unwrap_or(u32::MAX);
        units.min(self.units)
    }

    /// Waits until a bundle of so many units may leave.
    pub(super) async fn enter(
        &self,
        units: u32,
    ) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let place = self.bundles.clone().acquire_owned().await.ok()?;
        Some((place, self.bytes(units).await?))
    }

    /// The place of a bundle among those on their way, if one is free now. If not, it is noted that one is awaited.
    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        let place = || self.bundles.clone().try_acquire_owned().ok();
        place().or_else(|| {
            self.is_awaited.store(true, Ordering::SeqCst);
            // The last one may have become free meanwhile, and nobody would tell.
            place()
        })
    }

    /// Waits for the bytes of a bundle that has its place.
    pub(super) async fn bytes(&self, units: u32) -> Option<OwnedSemaphorePermit> {
        self.bytes.clone().acquire_many_owned(units).await.ok()
    }

    /// Whether a bundle found no place since this was asked last.
    pub(super) fn take_awaited(&self) -> bool {
        self.is_awaited.swap(false, Ordering::SeqCst)
    }

    fn free_units(&self) -> usize {
        self.bytes.available_permits()
    }
}
