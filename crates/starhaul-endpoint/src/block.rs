//! Received blocks.

use std::time::Duration;

use bytes::Bytes;
use starhaul_session::BlockId;

/// A received block.
#[derive(Clone, Debug)]
pub struct Block {
    /// Number of the block in its stream.
    pub id: BlockId,
    /// The bytes of the block.
    pub data: Bytes,
    /// From the peer's `send_block` to its arrival, by the estimated clock offset.
    pub latency: Duration,
}
