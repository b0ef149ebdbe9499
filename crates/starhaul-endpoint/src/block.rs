//! What arrives on a stream of blocks.

use std::time::Duration;

use bytes::Bytes;
use starhaul_session::BlockId;

/// A whole block as received.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its number in the stream.
    pub id: BlockId,
    /// Its bytes.
    pub data: Bytes,
    /// From the peer's `send_block` to its arrival, by the estimated clock offset.
    pub latency: Duration,
}
