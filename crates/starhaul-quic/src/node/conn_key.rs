//! How the connections of a node are told apart.

/// A connection of a node. Never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnKey {
    pub(super) slot: usize,
    pub(super) generation: u64,
}
