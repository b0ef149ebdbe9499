//! Deadline streams: sending blocks, their outcomes, and receiving blocks.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use starhaul_session::{BlockId, BlockOptions, Outcome, StreamConfig, StreamError, StreamId};
use tokio::sync::oneshot;

use crate::{
    Block, ByteStream, Error,
    queue::Queue,
    state::{SessionShared, Shared},
};

/// The sending side of a deadline stream. Dropping it finishes the stream; blocks on their way still arrive.
pub struct SendStream {
    pub(crate) shared: Arc<Shared>,
    pub(crate) session: Arc<SessionShared>,
    pub(crate) id: StreamId,
}

/// The receiving side of a deadline stream. Once it is dropped, blocks that arrive are dropped too.
pub struct RecvStream {
    pub(crate) shared: Arc<Shared>,
    pub(crate) session: Arc<SessionShared>,
    pub(crate) id: StreamId,
    pub(crate) config: StreamConfig,
    pub(crate) blocks: Arc<Queue<Block>>,
}

/// A block that was queued.
#[derive(Debug)]
pub struct BlockHandle {
    id: BlockId,
    outcome: oneshot::Receiver<Outcome>,
}

/// A stream that the peer opened.
#[derive(Debug)]
pub enum IncomingStream {
    /// Blocks with deadlines.
    Blocks(RecvStream),
    /// A reliable byte stream.
    Bytes(ByteStream),
}

impl SendStream {
    /// The stream's number in its session.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Queues a block; never waits.
    ///
    /// # Errors
    /// A block that does not fit the session's memory is refused, as is one after [`SendStream::finish`] or the end of the session.
    pub fn send_block(&self, data: Bytes, options: BlockOptions) -> Result<BlockHandle, Error> {
        self.shared
            .with_session(&self.session, |machine, entry, now| {
                let id = machine.send_block(now, self.id, data, options)?;
                let (waiting, outcome) = oneshot::channel();
                entry.outcomes.insert((self.id, id), waiting);
                Ok(BlockHandle { id, outcome })
            })
    }

    /// Queues a block whose outcome is counted in the statistics only; never waits.
    ///
    /// # Errors
    /// As [`SendStream::send_block`].
    pub fn queue_block(&self, data: Bytes, options: BlockOptions) -> Result<BlockId, Error> {
        self.shared.with_session(&self.session, |machine, _, now| {
            Ok(machine.send_block(now, self.id, data, options)?)
        })
    }

    /// Queues blocks as [`SendStream::queue_block`] does, all at once, and calls `refused` for each that is refused.
    pub fn queue_blocks(
        &self,
        blocks: impl IntoIterator<Item = Bytes>,
        mut refused: impl FnMut(Error),
    ) {
        let mut blocks = blocks.into_iter();
        let queued = self.shared.with_session(&self.session, |machine, _, now| {
            for data in blocks.by_ref() {
                let queued = machine.send_block(now, self.id, data, BlockOptions::default());
                queued
                    .map(drop)
                    .unwrap_or_else(|error| refused(error.into()));
            }
            Ok(())
        });
        if queued.is_err() {
            blocks.for_each(|_| refused(self.session.ended_error()));
        }
    }

    /// Changes the deadline (from now) or the priority of a block.
    ///
    /// # Errors
    /// The block has ended already, or the stream or session has.
    pub fn update_block(
        &self,
        block: BlockId,
        deadline: Option<Duration>,
        priority: Option<u8>,
    ) -> Result<(), Error> {
        self.change(|machine, now| machine.update_block(now, self.id, block, deadline, priority))
    }

    /// Cancels a block; its outcome becomes `Cancelled` unless it has ended already.
    ///
    /// # Errors
    /// No such block, or the stream or session has ended.
    pub fn retreat(&self, block: BlockId) -> Result<(), Error> {
        self.change(|machine, now| machine.retreat(now, self.id, block))
    }

    /// Finishes the stream: no more blocks will follow.
    ///
    /// # Errors
    /// The stream or session has ended.
    pub fn finish(&self) -> Result<(), Error> {
        self.change(|machine, now| machine.finish(now, self.id))
    }

    fn change(
        &self,
        change: impl FnOnce(
            &mut starhaul_session::Session,
            std::time::Instant,
        ) -> Result<(), StreamError>,
    ) -> Result<(), Error> {
        self.shared
            .with_session(&self.session, |machine, _, now| Ok(change(machine, now)?))
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        // Fails only if the stream has ended already.
        let _ = self.finish();
    }
}

impl BlockHandle {
    /// The block's number in its stream.
    pub fn id(&self) -> BlockId {
        self.id
    }

    /// The outcome of the block. The handle may be dropped instead; the outcome is then counted only in the statistics.
    pub async fn outcome(self) -> Outcome {
        // The sender is dropped with the session, and the block with it.
        self.outcome.await.unwrap_or(Outcome::Failed)
    }
}

impl RecvStream {
    /// The stream's number in its session.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// The peer's settings of the stream.
    pub fn config(&self) -> &StreamConfig {
        &self.config
    }

    /// The next whole block; `None` when the stream or session ended. Cancelling loses nothing.
    ///
    /// Blocks wait here up to 16 MiB or 4096 per stream and `max_receive_bytes` per session, with more of these also more per
    /// stream, and with less fewer; then the oldest is dropped.
    pub async fn recv_block(&mut self) -> Option<Block> {
        self.blocks.pop().await
    }

    /// The next whole blocks, at least one and at most `most`; `None` when the stream or session ended. Cancelling loses nothing.
    pub async fn recv_blocks(&mut self, most: usize) -> Option<Vec<Block>> {
        self.blocks.pop_some(most).await
    }

    /// The number of blocks dropped because the application did not fetch them.
    pub fn dropped_blocks(&self) -> u64 {
        self.blocks.dropped()
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        self.blocks.abandon();
        let mut state = self.shared.lock();
        if let Some(entry) = state.sessions.get_mut(&self.session.handle) {
            entry.blocks.remove(&self.id);
        }
    }
}

impl std::fmt::Debug for SendStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SendStream").field(&self.id).finish()
    }
}

impl std::fmt::Debug for RecvStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RecvStream").field(&self.id).finish()
    }
}
