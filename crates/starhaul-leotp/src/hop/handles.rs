//! This node's numbers of contents, for a neighbour that it asks.

use rustc_hash::FxHashMap;

use crate::name::Kind;

/// At most so many numbers in use; none is given twice in a life of the neighbour.
#[derive(Debug, Default)]
pub(super) struct Handles {
    by_content: FxHashMap<Kind, u64>,
    by_handle: FxHashMap<u64, Kind>,
    pub(super) next: u64,
    most: usize,
}

impl Handles {
    /// For so many contents at once at most.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// Forgets all of them: the neighbour began a new life.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.most);
    }

    /// The number of a content. Where there are too many, those that are `idle` go; `None`: all are in use.
    pub(super) fn of(&mut self, content: Kind, is_idle: impl Fn(Kind) -> bool) -> Option<u64> {
        if let Some(&handle) = self.by_content.get(&content) {
            return Some(handle);
        }
        if self.by_content.len() >= self.most {
            self.by_handle.retain(|_, content| !is_idle(*content));
            self.by_content.retain(|content, _| !is_idle(*content));
            if self.by_content.len() >= self.most {
                return None;
            }
        }
        let handle = self.next;
        self.next += 1;
        self.by_content.insert(content, handle);
        self.by_handle.insert(handle, content);
        Some(handle)
    }

    /// The content of a number.
    pub(super) fn content(&self, handle: u64) -> Option<Kind> {
        self.by_handle.get(&handle).copied()
    }
}
