//! The connections of a node. One is taken out while the node works on it, so that the rest of the node stays usable.

use super::conn_key::ConnKey;
use crate::path::Conn;

/// All connections of a node.
#[derive(Debug, Default)]
pub(crate) struct Conns {
    slots: Vec<Slot>,
    free: Vec<usize>,
    generation: u64,
    len: usize,
}

#[derive(Debug)]
struct Slot {
    generation: u64,
    conn: Option<Box<Conn>>,
}

impl Conns {
    /// Reserves a place; [`Conns::put`] fills it.
    pub(crate) fn reserve(&mut self) -> ConnKey {
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
        ConnKey { slot, generation }
    }

    /// Frees the place of a connection that was taken out.
    pub(crate) fn release(&mut self, key: ConnKey) {
        if let Some(slot) = self.slot_mut(key) {
            slot.conn = None;
            // No key has this generation.
            slot.generation = 0;
            self.free.push(key.slot);
            self.len -= 1;
        }
    }

    pub(crate) fn take(&mut self, key: ConnKey) -> Option<Box<Conn>> {
        self.slot_mut(key)?.conn.take()
    }

    pub(crate) fn put(&mut self, conn: Box<Conn>) {
        if let Some(slot) = self.slot_mut(conn.key) {
            slot.conn = Some(conn);
        }
    }

    pub(crate) fn get(&self, key: ConnKey) -> Option<&Conn> {
        let slot = self.slots.get(key.slot)?;
        let conn = slot.conn.as_deref();
        conn.filter(|_| slot.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: ConnKey) -> Option<&mut Conn> {
        self.slot_mut(key)?.conn.as_deref_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn slot_mut(&mut self, key: ConnKey) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(key.slot)?;
        (slot.generation == key.generation).then_some(slot)
    }
}
