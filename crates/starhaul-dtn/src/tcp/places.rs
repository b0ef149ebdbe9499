//! The tasks that carry connections, each with a place among them, which it gives back when it ends.

use std::{collections::BTreeMap, net::IpAddr, pin::pin, sync::Arc};

use parking_lot::Mutex;
use tokio::{sync::Notify, task::AbortHandle};

use super::roster::Roster;

/// The places of all connections of a node.
#[derive(Debug)]
pub(super) struct Places {
    table: Mutex<Table>,
    /// There may be room again for what comes.
    room: Notify,
}

#[derive(Debug)]
struct Table {
    roster: Roster,
    tasks: BTreeMap<u64, AbortHandle>,
    /// Tells a connection that it has to end.
    told: BTreeMap<u64, Arc<Notify>>,
}

impl Table {
    /// Ends connections that have lost their places. One of which the library may have something is not dropped: its task keeps the place
    /// until the library has closed its side, for that holds what waits for room in the store as long.
    fn end(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            if let Some(told) = self.told.get(&number) {
                told.notify_one();
            }
            if self.roster.is_empty(number)
                && let Some(task) = self.tasks.remove(&number)
            {
                task.abort();
            }
        }
    }

    /// The place of a connection with this number.
    fn place(&mut self, number: u64, places: &Arc<Places>) -> Place {
        let told = Arc::<Notify>::default();
        self.told.insert(number, told.clone());
        Place {
            number,
            told,
            places: places.clone(),
        }
    }
}

impl Places {
    /// As many as may be; all of them together may hold `most_held` bytes of transfers that have not ended.
    pub(super) fn new(most_held: u64) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::new(Table {
                roster: Roster::new(most_held),
                tasks: BTreeMap::new(),
                told: BTreeMap::new(),
            }),
            room: Notify::new(),
        })
    }

    /// A place for a connection that has come, if there is one, and whether another connection had to end for it.
    pub(super) fn accept(self: &Arc<Self>, from: IpAddr) -> Option<(Place, bool)> {
        let mut table = self.table.lock();
        let (number, instead_of) = table.roster.accept(from)?;
        table.end(instead_of);
        Some((table.place(number, self), instead_of.is_some()))
    }

    /// A place for a connection of this node's own.
    pub(super) fn connect(self: &Arc<Self>, to: IpAddr) -> Place {
        let mut table = self.table.lock();
        let number = table.roster.connect(to);
        table.place(number, self)
    }

    /// Notes the task that carries a connection, and ends it at once if its place is gone; if the library has something of it, it is told
    /// already that it has to end.
    pub(super) fn set_task(&self, number: u64, task: AbortHandle) {
        let mut table = self.table.lock();
        match table.roster.has(number) || !table.roster.is_empty(number) {
            true => {
                table.tasks.insert(number, task);
            }
            false => task.abort(),
        }
    }

    /// Notes that a connection has a session.
    pub(super) fn begin_session(&self, number: u64) {
        self.table.lock().roster.begin_session(number);
    }
}

/// The place of one connection.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) number: u64,
    told: Arc<Notify>,
    places: Arc<Places>,
}

impl Place {
    /// Notes how many bytes of transfers that have not ended the connection holds. Returns whether others had to end for it, or it
    /// has to end itself; they are told.
    pub(super) fn hold(&self, bytes: u64) -> bool {
        let mut table = self.places.table.lock();
        let ended = table.roster.hold(self.number, bytes);
        let is_too_much = !ended.is_empty();
        table.end(ended);
        let has_room = table.roster.has_room();
        drop(table);
        if has_room {
            self.places.room.notify_waiters();
        }
        is_too_much
    }

    /// Waits while connections that are ending still hold what others may not have beside it.
    pub(super) async fn room(&self) {
        loop {
            let mut freed = pin!(self.places.room.notified());
            // What is freed from now on counts.
            freed.as_mut().enable();
            if self.places.table.lock().roster.has_room() {
                return;
            }
            freed.await;
        }
    }

    /// Waits until the connection has to end for others.
    pub(super) async fn lost(&self) {
        self.told.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.places.table.lock();
        table.roster.remove(self.number);
        table.tasks.remove(&self.number);
        table.told.remove(&self.number);
        drop(table);
        self.places.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Of a connection that holds too much the library may still have all: it goes on to count, and others wait until it has ended.
    #[tokio::test]
    async fn what_ends_keeps_its_place_until_the_library_has_closed_it() {
        let places = Places::new(1000);
        let [hoard, honest] =
            [1, 2].map(|number| places.accept(IpAddr::from([192, 0, 2, number])).unwrap().0);
        places.begin_session(hoard.number);
        let task = tokio::spawn(std::future::pending::<()>());
        places.set_task(hoard.number, task.abort_handle());
        assert!(!honest.hold(400));
        assert!(hoard.hold(601));
        // It is told, and not dropped.
        hoard.lost().await;
        tokio::task::yield_now().await;
        assert!(!task.is_finished());
        let moment = Duration::from_millis(20);
        assert!(timeout(moment, honest.room()).await.is_err());
        assert!(!honest.hold(416), "it ends no other");
        let waits = honest.room();
        let mut waits = pin!(waits);
        assert!(timeout(moment, waits.as_mut()).await.is_err());
        drop(hoard);
        waits.await;
        task.abort();
    }

    /// One that has said nothing needs no end of its own.
    #[tokio::test]
    async fn a_connection_without_a_session_is_dropped_for_others() {
        let places = Places::new(1000);
        let from = IpAddr::from([192, 0, 2, 1]);
        let task = tokio::spawn(std::future::pending::<()>());
        let mut all = Vec::new();
        for _ in 0..super::super::roster::MOST_OF_ONE {
            all.push(places.accept(from).unwrap().0);
        }
        places.set_task(all[0].number, task.abort_handle());
        assert!(places.accept(from).unwrap().1);
        assert!(task.await.unwrap_err().is_cancelled());
    }
}
