//! The room for bundles on their way, to each neighbour and to all of them together, and where each neighbour's bundles leave.

use std::{
    collections::BTreeMap,
    future::Future,
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

tokio::task_local! {
    /// Where to note the room of the neighbour for which the agent asks for a controller.
    static LANES: Lanes;
}

/// Place and bytes of a bundle among those on their way to its neighbour, and its room in memory.
pub(super) type Room = [OwnedSemaphorePermit; 3];

/// The room of a neighbour that the agent knows. It is closed when it knows it no longer: what is on its way may never end, and what waits
/// behind that goes another way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lanes(Arc<Mutex<Vec<Lane>>>);

impl Lanes {
    /// Tells the agent of the neighbour whose room this is.
    pub(crate) async fn of<T>(&self, adding: impl Future<Output = T>) -> T {
        LANES.scope(self.clone(), adding).await
    }

    /// Notes the room of a controller in what its neighbour has, if that is to be closed.
    pub(super) fn open(urgent: &Lane, usual: &Lane) {
        let open = |lanes: &Self| lanes.held().extend([urgent.clone(), usual.clone()]);
        // Not where the agent is told of a neighbour in another way.
        let _ = LANES.try_with(open);
    }

    /// Closes it: nothing waits for it any more. Whether a bundle found none.
    pub(crate) fn close(&self) -> bool {
        let mut is_awaited = false;
        for lane in self.held().drain(..) {
            for room in [&lane.bundles, &lane.bytes, &lane.own] {
                room.close();
            }
            is_awaited |= lane.take_awaited();
        }
        is_awaited
    }

    fn held(&self) -> MutexGuard<'_, Vec<Lane>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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

    /// Room for a bundle of so many units, if there is some now.
    pub(super) fn free(&self, lane: &Lane, units: u32) -> Option<Room> {
        let place = lane.bundles.clone().try_acquire_owned().ok()?;
        let bytes = lane.bytes.clone().try_acquire_many_owned(units).ok()?;
        let shared = || {
            self.shared
                .clone()
                .try_acquire_many_owned(units.min(self.units))
        };
        let own = || lane.own.clone().try_acquire_many_owned(units.min(self.own));
        let room = shared().or_else(|_| own()).ok()?;
        Some([place, bytes, room])
    }

    /// The same, or of what is kept for such bundles. If there is none, it is noted that a bundle awaits it: something is on its way to that
    /// neighbour then, whose end tells.
    pub(super) fn take(&self, lane: &Lane, units: u32) -> Option<Room> {
        let kept = lane.turn().take(units);
        kept.or_else(|| self.free(lane, units)).or_else(|| {
            lane.is_awaited.store(true, Ordering::SeqCst);
            // The last of it may have become free meanwhile, and nobody would tell.
            self.free(lane, units)
        })
    }

    /// Waits for room among all that waits for it, for a bundle of so many units and others that are handed over: what has a queue of its own
    /// would take each part of it as it becomes free, for as long as the queue lasts. `None` if that is done already, or the neighbour leaves.
    pub(super) async fn keep(&self, lane: &Lane, units: u32) -> Option<u64> {
        let most = lane.turn().begin(units)?;
        let units = most.saturating_add(lane.units / KEPT_PART).min(lane.units);
        let room = self.wait_for(lane, KEPT_BUNDLES, units).await;
        lane.turn().set(room)
    }

    /// Waits until a bundle of so many units may leave; `None` if the agent does not know its neighbour any more. In memory it has room among
    /// those of all neighbours, or beyond them, for each class, where they have none.
    pub(super) async fn wait(&self, lane: &Lane, units: u32) -> Option<Room> {
        self.wait_for(lane, 1, units).await
    }

    async fn wait_for(&self, lane: &Lane, bundles: u32, units: u32) -> Option<Room> {
        let place = lane.bundles.clone().acquire_many_owned(bundles);
        let place = place.await.ok()?;
        let bytes = lane.bytes.clone().acquire_many_owned(units).await.ok()?;
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
        Some([place, bytes, room.ok()?])
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
        // One of former times gets more and more room, and what is given to it comes back.
        let exits = exits.filter(|exit| !exit.usual.bytes.is_closed());
        exits.max_by_key(|exit| exit.usual.free_units())
    }

    fn exits(&self) -> MutexGuard<'_, BTreeMap<NodeId, Vec<Weak<Controller>>>> {
        self.exits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of a lane's bytes, and how many bundles have a place in that: what is kept for those that are handed over, beside the largest of them.
const KEPT_PART: u32 = 8;
const KEPT_BUNDLES: u32 = 256;

/// The turn of bundles that are handed over, whose own neighbour's queue the agent has.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Whether room is waited for or kept.
    is_on: bool,
    /// Which turn it is: the one before may still be looked after.
    number: u64,
    kept: Option<Room>,
    /// The units of the largest bundle that has found no room in this turn, for the next one; and of the largest before it, until that has left:
    /// small ones that come first each time must not take its room.
    refused: u32,
    largest: u32,
}

impl Turn {
    /// Begins one for a bundle of so many units, unless there is one; the units of the largest that found no room since the last one began.
    fn begin(&mut self, units: u32) -> Option<u32> {
        self.refused = self.refused.max(units);
        let begins = !std::mem::replace(&mut self.is_on, true);
        begins.then(|| {
            self.largest = std::mem::take(&mut self.refused);
            self.largest
        })
    }

    /// Keeps room, if there is any; the number of the turn.
    fn set(&mut self, room: Option<Room>) -> Option<u64> {
        self.is_on = room.is_some();
        self.number += 1;
        self.kept = room;
        self.is_on.then_some(self.number)
    }

    /// Room for a bundle, if so much is kept; it counts all that is left of memory if that is less.
    fn take(&mut self, units: u32) -> Option<Room> {
        let [place, bytes, memory] = self.kept.as_mut()?;
        let (is_largest, largest) = (units >= self.largest, self.largest as usize);
        // What the largest one has not taken yet: its bytes, and of memory what there is.
        let (others, units) = (if is_largest { 0 } else { largest }, units as usize);
        let least = if is_largest { 1 } else { units + 1 };
        if place.num_permits() == 0
            || bytes.num_permits() < units + others
            || memory.num_permits() < least
        {
            return None;
        }
        if is_largest {
            self.largest = 0;
        }
        let counted = units.min(memory.num_permits());
        Some([place.split(1)?, bytes.split(units)?, memory.split(counted)?])
    }

    /// Ends this turn; what is left of its room.
    pub(super) fn end(&mut self, number: u64) -> Option<Room> {
        let is_this = self.number == number;
        self.is_on &= !is_this;
        self.kept.take_if(|_| is_this)
    }
}

/// So many bytes as a semaphore counts them.
pub(super) fn units(bytes: u64) -> u32 {
    let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
    units.clamp(1, MOST_UNITS)
}

/// What may be on its way to a neighbour of the bundles of a class.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    bundles: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    units: u32,
    /// Its own part beyond the pool.
    own: Arc<Semaphore>,
    /// Whether a bundle found no room.
    is_awaited: Arc<AtomicBool>,
    /// Of those that are handed over.
    turn: Arc<Mutex<Turn>>,
}

impl Lane {
    pub(super) fn new(units: u32, pool: &Pool) -> Self {
        Self {
            bundles: Arc::new(Semaphore::new(MOST_BUNDLES)),
            bytes: Arc::new(Semaphore::new(units as usize)),
            units,
            own: Arc::new(Semaphore::new(pool.own as usize)),
            is_awaited: Arc::default(),
            turn: Arc::default(),
        }
    }

    pub(super) fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As how many units a bundle of so many bytes counts.
    pub(super) fn units_of(&self, bytes: u64) -> u32 {
        let units = u32::try_from(bytes / UNIT + 1).unwrap_or(u32::MAX);
        units.min(self.units)
    }

    /// Whether a bundle found no room since this was asked last.
    pub(super) fn take_awaited(&self) -> bool {
        self.is_awaited.swap(false, Ordering::SeqCst)
    }

    fn free_units(&self) -> usize {
        self.bytes.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_turn_has_room_for_the_largest_bundle_that_found_none() {
        let mut turn = Turn::default();
        assert_eq!(turn.begin(2), Some(2));
        assert_eq!(turn.begin(300), None, "the turn is that of the first");
        assert_eq!(turn.begin(5), None);
        assert_eq!(turn.set(None), None);
        assert_eq!(turn.begin(1), Some(300));
        assert_eq!(turn.set(None), None);
        assert_eq!(turn.begin(1), Some(1), "it had its turn");
    }

    #[test]
    fn small_bundles_that_come_first_leave_the_room_of_the_largest() {
        let permits = |count: u32| {
            let all = Arc::new(Semaphore::new(count as usize));
            all.try_acquire_many_owned(count).unwrap()
        };
        // Memory for all of it, or less where other neighbours have that.
        for memory in [320, 10] {
            let mut turn = Turn::default();
            assert_eq!(turn.begin(300), Some(300));
            assert!(turn.set(Some([8, 320, memory].map(permits))).is_some());
            let small = (0..20).filter(|_| turn.take(4).is_some()).count();
            assert_eq!(small, if memory == 320 { 5 } else { 2 });
            assert!(turn.take(313).is_none(), "so much is not kept");
            assert!(turn.take(300).is_some());
        }
        let mut turn = Turn::default();
        assert_eq!(turn.begin(300), Some(300));
        assert!(turn.set(Some([8, 320, 320].map(permits))).is_some());
        assert!(turn.take(300).is_some());
        let small = (0..20).filter(|_| turn.take(4).is_some()).count();
        assert_eq!(small, 5, "what is left is for all");
    }
}
