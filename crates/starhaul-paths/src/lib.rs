//! What is known of each path, and when a fragment sent on it would arrive.

/// A path of a session, unique while the session lives and the same number on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);
