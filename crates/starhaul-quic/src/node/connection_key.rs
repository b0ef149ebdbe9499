//! Keys of the connections of a node.

/// The key of a connection, never used for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionKey {
    pub(super) slot: usize,
    pub(super) generation: u64,
}
