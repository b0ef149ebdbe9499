//! The connections of a node. One is taken out while the node works on it, so that the rest of the node stays usable.

use super::connection_key::ConnectionKey;
use crate::connection::Connection;

/// All connections of a node.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: Vec<Slot>,
    free: Vec<usize>,
    generation: u64,
    len: usize,
}

#[derive(Debug)]
struct Slot {
    generation: u64,
    conn: Option<Box<Connection>>,
}

impl Connections {
    /// Reserves a place; [`Connections::put`] fills it.
    pub(crate) fn reserve(&mut self) -> ConnectionKey {
        self.generation += 1;
        let generation = self.generation;
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let empty = Slot {
            generation,
            conn: None,
        };
        match self.slots.get_mut(slot) {
            Some(place) => *place = empty,
            None => self.slots.push(empty),
        }
        self.len += 1;
        ConnectionKey { slot, generation }
    }

    /// Frees the place of a connection that was taken out.
    pub(crate) fn release(&mut self, key: ConnectionKey) {
        if let Some(slot) = self.slot_mut(key) {
            slot.conn = None;
            // No key has this generation.
            slot.generation = 0;
            self.free.push(key.slot);
            self.len -= 1;
        }
    }

    pub(crate) fn take(&mut self, key: ConnectionKey) -> Option<Box<Connection>> {
        self.slot_mut(key)?.conn.take()
    }

    pub(crate) fn put(&mut self, conn: Box<Connection>) {
        if let Some(slot) = self.slot_mut(conn.key) {
            slot.conn = Some(conn);
        }
    }

    pub(crate) fn get(&self, key: ConnectionKey) -> Option<&Connection> {
        let slot = self.slots.get(key.slot)?;
        let conn = slot.conn.as_deref();
        conn.filter(|_| slot.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        self.slot_mut(key)?.conn.as_deref_mut()
    }

    /// Whether one that is not taken out is such.
    pub(crate) fn any(&self, is_such: impl Fn(&Connection) -> bool) -> bool {
        let mut conns = self.slots.iter().filter_map(|slot| slot.conn.as_deref());
        conns.any(is_such)
    }

    fn slot_mut(&mut self, key: ConnectionKey) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(key.slot)?;
        (slot.generation == key.generation).then_some(slot)
    }
}
