//! The tasks that carry connections, each with a place among them, which it gives back when it ends.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::roster::Roster;

/// The places of all connections of a node.
#[derive(Debug)]
pub(super) struct Places(Mutex<Table>);

#[derive(Debug)]
struct Table {
    roster: Roster,
    tasks: BTreeMap<u64, AbortHandle>,
}

impl Table {
    /// Ends connections that have lost their places.
    fn end(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            if let Some(task) = self.tasks.remove(&number) {
                task.abort();
            }
        }
    }
}

impl Places {
    /// As many as may be; all of them together may hold `most_held` bytes of transfers that have not ended.
    pub(super) fn new(most_held: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Table {
            roster: Roster::new(most_held),
            tasks: BTreeMap::new(),
        })))
    }

    /// A place for a connection that has come, if there is one, and whether another connection had to end for it.
    pub(super) fn accept(self: &Arc<Self>, from: IpAddr) -> Option<(Place, bool)> {
        let mut table = self.0.lock();
        let (number, instead_of) = table.roster.accept(from)?;
        table.end(instead_of);
        let places = self.clone();
        Some((Place { number, places }, instead_of.is_some()))
    }

    /// A place for a connection of this node's own.
    pub(super) fn connect(self: &Arc<Self>, to: IpAddr) -> Place {
        let number = self.0.lock().roster.connect(to);
        let places = self.clone();
        Place { number, places }
    }

    /// Notes the task that carries a connection, and ends it at once if its place is gone.
    pub(super) fn set_task(&self, number: u64, task: AbortHandle) {
        let mut table = self.0.lock();
        match table.roster.has(number) {
            true => {
                table.tasks.insert(number, task);
            }
            false => task.abort(),
        }
    }

    /// Notes that a connection has a session.
    pub(super) fn begin_session(&self, number: u64) {
        self.0.lock().roster.begin_session(number);
    }
}

/// The place of one connection.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) number: u64,
    places: Arc<Places>,
}

impl Place {
    /// Notes how many bytes of transfers that have not ended the connection holds. Returns whether others had to end for it, or it
    /// has to end itself; its task is told.
    pub(super) fn hold(&self, bytes: u64) -> bool {
        let mut table = self.places.0.lock();
        let ended = table.roster.hold(self.number, bytes);
        let is_too_much = !ended.is_empty();
        table.end(ended);
        is_too_much
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.places.0.lock();
        table.roster.remove(self.number);
        table.tasks.remove(&self.number);
    }
}
