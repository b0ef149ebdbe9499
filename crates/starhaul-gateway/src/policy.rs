//! Configurations of the streams that carry rules; datagrams to blocks and back.

use std::time::Instant;

use bytes::Bytes;
use starhaul_endpoint::{BlockId, BlockOptions, Error, Mode, SendStream, StreamConfig};

use crate::{
    config::{Delivery, Framing},
    label::{Flow, Label},
    rtp::{self, Assembler, FrameError, KeyFrames, Needs},
};

impl Framing {
    /// Appends the datagrams of a block from the peer to `datagrams`.
    pub(crate) fn unpack(self, block: Bytes, datagrams: &mut Vec<Bytes>) -> Result<(), FrameError> {
        match self {
            Self::Datagrams => datagrams.push(block),
            Self::Rtp { .. } => datagrams.extend(rtp::packets(&block)?),
        }
        Ok(())
    }
}

/// The configuration of the stream for datagrams of a rule.
pub(crate) fn stream_config(delivery: &Delivery, priority: u8, label: &Label) -> StreamConfig {
    StreamConfig {
        mode: delivery.mode,
        deadline: delivery.deadline,
        priority,
        bandwidth: delivery.bandwidth,
        max_coding_rate: delivery.max_coding_rate,
        ordered: delivery.ordered,
        label: label.encode(),
    }
}

/// The configuration of the reply stream to a stream of the peer: the same as the peer's.
pub(crate) fn reply_config(forward: &StreamConfig, rule: &str, flow: u64) -> StreamConfig {
    StreamConfig {
        label: Label::new(rule, Flow::Reply { id: flow }).encode(),
        // The rate of the replies is not known.
        bandwidth: None,
        // Streams of blocks cannot be reliable, whatever the peer asked for.
        mode: match forward.mode {
            Mode::Reliable => Mode::FecRetransmit,
            mode => mode,
        },
        ..forward.clone()
    }
}

/// Why a block was not sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotSent {
    /// The session refused it.
    #[error(transparent)]
    Refused(#[from] Error),
    /// It depends on a key frame that was refused.
    #[error("the key frame that this frame needs was refused")]
    KeyFrameMissing,
}

/// Sends datagrams as blocks of one stream.
#[derive(Debug)]
pub(crate) struct BlockSender {
    stream: SendStream,
    assembler: Option<Assembler>,
    keys: KeyFrames<BlockId>,
}

impl BlockSender {
    pub(crate) fn new(stream: SendStream, framing: Framing) -> Self {
        let assembler = match framing {
            Framing::Datagrams => None,
            Framing::Rtp {
                codec,
                frame_timeout,
            } => Some(Assembler::new(codec, frame_timeout)),
        };
        Self {
            stream,
            assembler,
            keys: KeyFrames::new(),
        }
    }

    /// Sends a datagram, at once or with the rest of its frame.
    ///
    /// # Errors
    /// A block was refused.
    pub(crate) fn send(&mut self, datagram: Bytes) -> Result<(), NotSent> {
        let Some(assembler) = &mut self.assembler else {
            self.stream.queue_block(datagram, BlockOptions::default())?;
            return Ok(());
        };
        assembler.handle_packet(Instant::now(), &datagram);
        self.send_frames()
    }

    /// Sends datagrams, and calls `refused` for each block that was refused.
    pub(crate) fn send_all(
        &mut self,
        datagrams: impl IntoIterator<Item = Bytes>,
        mut refused: impl FnMut(NotSent),
    ) {
        let datagrams = datagrams.into_iter();
        match self.assembler {
            None => self
                .stream
                .queue_blocks(datagrams, |error| refused(error.into())),
            Some(_) => {
                let sent = datagrams.map(|datagram| self.send(datagram));
                sent.filter_map(Result::err).for_each(refused);
            }
        }
    }

    /// Waits until the timeout of an open frame; for ever if none is open.
    pub(crate) async fn wait(&self) {
        match self.assembler.as_ref().and_then(Assembler::poll_timeout) {
            Some(due) => tokio::time::sleep_until(due.into()).await,
            None => std::future::pending().await,
        }
    }

    /// Sends the frames whose timeout has passed.
    pub(crate) fn send_due(&mut self) -> Result<(), NotSent> {
        if let Some(assembler) = &mut self.assembler {
            assembler.handle_timeout(Instant::now());
        }
        self.send_frames()
    }

    fn send_frames(&mut self) -> Result<(), NotSent> {
        let Some(assembler) = &mut self.assembler else {
            return Ok(());
        };
        let mut result = Ok(());
        while let Some(frame) = assembler.poll_frame() {
            let depends_on = match self.keys.needed_by(&frame) {
                Needs::Nothing => None,
                Needs::Block(key) => Some(key),
                Needs::Missing => {
                    result = Err(NotSent::KeyFrameMissing);
                    continue;
                }
            };
            let options = BlockOptions {
                depends_on,
                ..BlockOptions::default()
            };
            match self.stream.queue_block(frame.block.clone(), options) {
                Ok(block) => self.keys.sent(&frame, block),
                Err(error) => {
                    self.keys.not_sent(&frame);
                    result = Err(error.into());
                }
            }
        }
        result
    }
}
