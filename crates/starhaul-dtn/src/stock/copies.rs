//! Copies of bundles that wait until it is known what the first one of the name is.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use hardy_bpv7::bundle::Id;

/// Copies of a bundle that wait at a time; of more, each stays with its sender at once. As many come at a time as ways lead here. Each that
/// waits takes the place of what others send: whoever sends one bundle again and again must not have them all.
pub(super) const MOST_OF_ONE: usize = 8;

/// How many copies of each bundle wait.
#[derive(Default)]
pub(super) struct Copies(Mutex<HashMap<Id, usize>>);

/// Taken by a copy as long as it waits.
pub(super) struct Place<'a> {
    copies: &'a Copies,
    id: Id,
}

impl Copies {
    /// A place for a copy of a bundle, if it may wait.
    pub(super) fn place(&self, id: &Id) -> Option<Place<'_>> {
        let mut waiting = self.waiting();
        let count = waiting.entry(id.clone()).or_default();
        if *count >= MOST_OF_ONE {
            return None;
        }
        *count += 1;
        let (copies, id) = (self, id.clone());
        Some(Place { copies, id })
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.waiting().values().sum()
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Id, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.copies.waiting();
        if let Some(count) = waiting.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.id);
            }
        }
    }
}
