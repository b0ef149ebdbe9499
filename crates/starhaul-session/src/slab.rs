//! What datagrams are written into: one behind the other, each shared with the transport without a copy.

use bytes::{Bytes, BytesMut};

/// Datagrams are written one behind the other into buffers of this size.
const BUFFER_BYTES: usize = 64 << 10;

/// The buffer for the next datagrams; empty between two of them.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    buffer: BytesMut,
}

impl Slab {
    /// Makes room for datagrams of so many bytes, of which at most one buffer is made. The buffer of a batch that has left is written again
    /// from its beginning.
    pub(crate) fn begin_batch(&mut self, bytes: usize) {
        self.reserve(bytes.min(BUFFER_BYTES));
    }

    /// The datagram that `encode` appends, of about `bytes`.
    pub(crate) fn write(&mut self, bytes: usize, encode: impl FnOnce(&mut BytesMut)) -> Bytes {
        self.reserve(bytes);
        encode(&mut self.buffer);
        self.buffer.split().freeze()
    }

    fn reserve(&mut self, bytes: usize) {
        if self.buffer.capacity() - self.buffer.len() < bytes {
            self.buffer.reserve(bytes.max(BUFFER_BYTES));
        }
    }
}
