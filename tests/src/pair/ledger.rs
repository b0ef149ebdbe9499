//! The promises and their fulfilment, observed from outside both sessions.

use std::{collections::BTreeMap, time::Instant};

use bytes::Bytes;
use starhaul_session::{BlockId, BlockOptions, Event, Mode, Outcome, StreamConfig, StreamId};

use super::operation::Side;

/// All streams of both sides.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) streams: BTreeMap<StreamId, Stream>,
    /// The peer sent forged messages, so only safety is checked.
    pub(super) is_tainted: bool,
    /// The application of the side does not take its events now, so its blocks may have ended.
    pub(super) unheard: [bool; 2],
    /// Reconfigurations signalled by the side's detector, and received from the peer.
    pub(super) signals_told: [u32; 2],
    signals_heard: [u32; 2],
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) opener: Side,
    pub(super) config: StreamConfig,
    /// The peer has learnt of the stream.
    pub(super) is_known: bool,
    pub(super) finished: bool,
    /// The peer has learnt that all has ended.
    end_seen: bool,
    /// The greatest block that an ordered stream has delivered.
    last_received: Option<u32>,
    pub(super) blocks: Vec<Block>,
    /// Both directions, by writer.
    pub(super) bytes: [Direction; 2],
}

#[derive(Debug)]
pub(super) struct Block {
    length: usize,
    depends_on: Option<BlockId>,
    retreated: bool,
    sent: Instant,
    pub(super) outcome: Option<Outcome>,
    pub(super) received: bool,
    missing: bool,
}

/// One direction of a reliable stream.
#[derive(Debug, Default)]
pub(super) struct Direction {
    pub(super) written: u64,
    pub(super) read: u64,
    pub(super) finished: bool,
    pub(super) reset: Option<u32>,
    pub(super) stopped: Option<u32>,
    /// The writer was refused for lack of credit and has had no event since.
    pub(super) blocked: bool,
    /// The reader had a readable event, and has not read to the end since.
    pub(super) readable: bool,
    /// The reader saw the end or the reset.
    pub(super) ended: bool,
    /// The writer had the event of the stop.
    pub(super) stop_seen: bool,
}

impl Ledger {
    pub(super) fn on_signal(&mut self, side: Side) {
        self.signals_heard[side] += 1;
        let (heard, told) = (self.signals_heard[side], self.signals_told[1 - side]);
        assert!(
            heard <= told || self.is_tainted,
            "side {side} heard of {heard} reconfigurations, of {told} told"
        );
    }

    pub(super) fn on_opened(&mut self, opener: Side, stream: StreamId, config: StreamConfig) {
        let fresh = Stream {
            opener,
            config,
            is_known: false,
            finished: false,
            end_seen: false,
            last_received: None,
            blocks: Vec::new(),
            bytes: Default::default(),
        };
        assert!(
            self.streams.insert(stream, fresh).is_none(),
            "{stream:?} was opened twice"
        );
    }

    pub(super) fn on_sent(
        &mut self,
        now: Instant,
        stream: StreamId,
        block: BlockId,
        length: usize,
        options: &BlockOptions,
    ) {
        let entry = self
            .streams
            .get_mut(&stream)
            .expect("only streams that were opened are sent on");
        assert_eq!(
            block.0 as usize,
            entry.blocks.len(),
            "blocks are numbered from 0 in order"
        );
        entry.blocks.push(Block {
            length,
            depends_on: options.depends_on,
            retreated: false,
            sent: now,
            outcome: None,
            received: false,
            missing: false,
        });
    }

    pub(super) fn on_retreated(&mut self, stream: StreamId, block: BlockId) {
        self.block(stream, block).retreated = true;
    }

    /// Streams that match, in order of their number.
    pub(super) fn matching(&self, test: impl Fn(&Stream) -> bool) -> Vec<StreamId> {
        let matching = self.streams.iter().filter(|(_, stream)| test(stream));
        matching.map(|(id, _)| *id).collect()
    }

    /// Blocks of `side` without outcome.
    pub(super) fn live_blocks(&self, side: Side) -> Vec<(StreamId, BlockId)> {
        let ours = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.opener == side);
        ours.flat_map(|(id, stream)| {
            let live = (0u32..)
                .zip(&stream.blocks)
                .filter(|(_, block)| block.outcome.is_none());
            live.map(|(number, _)| (*id, BlockId(number)))
        })
        .collect()
    }

    /// Checks an event of `side`'s session.
    pub(super) fn on_event(&mut self, now: Instant, side: Side, event: &Event) {
        match event {
            Event::BlockOutcome {
                stream,
                block,
                outcome,
            } => self.on_outcome(now, side, *stream, *block, *outcome),
            Event::BlockReceived {
                stream,
                block,
                data,
                ..
            } => self.on_received(side, *stream, *block, data),
            _ if self.is_tainted => {}
            Event::StreamOpened { stream, config } => {
                let entry = self.stream(*stream);
                assert!(
                    entry.opener != side && !entry.is_known,
                    "{stream:?} opened twice"
                );
                entry.is_known = true;
                let sent = &entry.config;
                let same = (
                    config.mode,
                    config.priority,
                    config.ordered,
                    &config.label,
                    config.deadline,
                ) == (
                    sent.mode,
                    sent.priority,
                    sent.ordered,
                    &sent.label,
                    sent.deadline,
                );
                assert!(
                    same,
                    "{stream:?} was opened with {sent:?} but arrived as {config:?}"
                );
            }
            Event::BlockMissing { stream, block } => {
                let entry = self.block(*stream, *block);
                assert!(
                    !entry.missing && !entry.received,
                    "{stream:?} {block:?} ended twice at its receiver"
                );
                entry.missing = true;
            }
            Event::Readable(stream) => self.stream(*stream).bytes[1 - side].readable = true,
            Event::Writable(stream) => self.stream(*stream).bytes[side].blocked = false,
            Event::Reset { stream, code } => {
                let direction = &mut self.stream(*stream).bytes[1 - side];
                assert_eq!(direction.reset, Some(*code), "{stream:?} was not reset so");
                direction.readable = true;
            }
            Event::Stopped { stream, code } => {
                let direction = &mut self.stream(*stream).bytes[side];
                assert_eq!(
                    direction.stopped,
                    Some(*code),
                    "{stream:?} was not stopped so"
                );
                assert!(!direction.stop_seen, "{stream:?} stopped twice");
                direction.stop_seen = true;
            }
            Event::StreamFinished(stream) => self.on_finished(side, *stream),
            Event::Overload { .. } => {}
        }
    }

    fn on_outcome(
        &mut self,
        now: Instant,
        side: Side,
        stream: StreamId,
        block: BlockId,
        outcome: Outcome,
    ) {
        let tainted = self.is_tainted;
        let entry = self.stream(stream);
        assert_eq!(
            entry.opener, side,
            "{stream:?} {block:?} ended at its receiver"
        );
        let mode = entry.config.mode;
        let entry = entry
            .blocks
            .get_mut(block.0 as usize)
            .expect("a block ended that was never sent");
        assert_eq!(
            entry.outcome, None,
            "{stream:?} {block:?} has two outcomes, the second {outcome:?}"
        );
        entry.outcome = Some(outcome);
        let (depends_on, retreated) = (entry.depends_on, entry.retreated);
        match outcome {
            Outcome::Delivered {
                latency,
                recovered_by_redundancy,
                recovered_by_retransmission,
                ..
            } => {
                assert!(
                    latency <= now - entry.sent,
                    "{stream:?} {block:?}: a latency above all time passed"
                );
                let codes = matches!(mode, Mode::Fec | Mode::FecRetransmit);
                let sends_again = matches!(mode, Mode::Retransmit | Mode::FecRetransmit);
                assert!(
                    tainted || codes || !recovered_by_redundancy,
                    "{mode:?} recovered by redundancy"
                );
                assert!(
                    sends_again || !recovered_by_retransmission,
                    "{mode:?} recovered by retransmission"
                );
            }
            Outcome::Cancelled { because_of: None } => {
                assert!(
                    retreated,
                    "{stream:?} {block:?} cancelled, but nobody asked"
                );
            }
            Outcome::Cancelled {
                because_of: Some(on),
            } => {
                assert_eq!(
                    depends_on,
                    Some(on),
                    "{stream:?} {block:?} cancelled for a stranger"
                );
                let on = self.block(stream, on).outcome;
                let useless = !matches!(on, None | Some(Outcome::Delivered { .. }));
                assert!(
                    useless,
                    "{stream:?} {block:?} cancelled because of a block that ended as {on:?}"
                );
            }
            Outcome::Expired(_) | Outcome::Failed => {}
        }
    }

    fn on_received(&mut self, side: Side, stream: StreamId, block: BlockId, data: &Bytes) {
        if self.is_tainted
            && self
                .streams
                .get(&stream)
                .is_none_or(|entry| entry.blocks.len() <= block.0 as usize)
        {
            return;
        }
        let tainted = self.is_tainted;
        let entry = self.stream(stream);
        assert_ne!(entry.opener, side, "{stream:?} {block:?} came back");
        if entry.config.ordered && !tainted {
            assert!(
                entry.last_received < Some(block.0),
                "{stream:?} {block:?} out of order"
            );
            entry.last_received = Some(block.0);
        }
        let entry = entry
            .blocks
            .get_mut(block.0 as usize)
            .expect("a block arrived that was never sent");
        assert!(!entry.received, "{stream:?} {block:?} delivered twice");
        entry.received = true;
        assert!(
            tainted || !entry.missing,
            "{stream:?} {block:?} delivered after it was given up"
        );
        assert!(
            tainted || *data == block_data(stream, block, entry.length),
            "{stream:?} {block:?} arrived changed"
        );
    }

    fn on_finished(&mut self, side: Side, stream: StreamId) {
        let entry = self.stream(stream);
        assert!(
            entry.opener != side && entry.finished && !entry.end_seen,
            "{stream:?} finished out of turn"
        );
        entry.end_seen = true;
    }

    /// The reader of `stream` got bytes; empty at the end.
    pub(super) fn on_read(&mut self, reader: Side, stream: StreamId, data: &[u8]) {
        let tainted = self.is_tainted;
        let direction = &mut self.stream(stream).bytes[1 - reader];
        if data.is_empty() {
            direction.ended = true;
            let whole = direction.finished && direction.read == direction.written;
            assert!(
                tainted || whole,
                "{stream:?} ended after {} of {} bytes",
                direction.read,
                direction.written
            );
            return;
        }
        let start = direction.read;
        direction.read += data.len() as u64;
        if tainted {
            return;
        }
        assert!(
            direction.read <= direction.written,
            "{stream:?}: more was read than written"
        );
        let expected = stream_data(stream, 1 - reader, start, data.len());
        assert!(
            data == expected,
            "{stream:?}: bytes from {start} arrived changed or out of order"
        );
    }

    /// The open items of both ledgers as text; empty when all has ended.
    pub(super) fn unfinished(&self) -> Vec<String> {
        let mut open = Vec::new();
        for (id, stream) in &self.streams {
            if stream.config.mode == Mode::Reliable {
                for (writer, direction) in stream.bytes.iter().enumerate() {
                    let gone = direction.stopped.is_some() || direction.ended;
                    if !gone
                        || (direction.blocked
                            && direction.reset.is_none()
                            && direction.stopped.is_none())
                    {
                        open.push(format!("{id:?} written by side {writer}: {direction:?}"));
                    }
                }
                continue;
            }
            for (number, block) in stream.blocks.iter().enumerate() {
                if block.outcome.is_none() {
                    open.push(format!(
                        "{id:?} block {number} ({:?}): {block:?}",
                        stream.config.mode
                    ));
                }
            }
            if !stream.end_seen {
                open.push(format!("{id:?}: its end was not told"));
            }
        }
        open
    }

    /// Blocks whose outcome differs between sender and receiver, once all has ended.
    pub(super) fn contradictions(&self) -> Vec<String> {
        let all = self.streams.iter().flat_map(|(id, stream)| {
            let blocks = stream.blocks.iter().enumerate();
            let wrong = blocks.filter(|(_, block)| {
                let delivered = matches!(block.outcome, Some(Outcome::Delivered { .. }));
                delivered && (!block.received || block.missing)
            });
            wrong.map(move |(number, block)| format!("{id:?} block {number}: {block:?}"))
        });
        all.collect()
    }

    pub(super) fn stream(&mut self, stream: StreamId) -> &mut Stream {
        self.streams
            .get_mut(&stream)
            .expect("an event named a stream that was never opened")
    }

    fn block(&mut self, stream: StreamId, block: BlockId) -> &mut Block {
        let blocks = &mut self.stream(stream).blocks;
        blocks
            .get_mut(block.0 as usize)
            .expect("an event named a block that was never sent")
    }
}

/// The content of a block with this id.
pub(super) fn block_data(stream: StreamId, block: BlockId, length: usize) -> Bytes {
    let seed = u64::from(stream.0) << 32 | u64::from(block.0);
    pattern(seed, 0, length).into()
}

/// The bytes that `writer` writes to a reliable stream from `start` on.
pub(super) fn stream_data(stream: StreamId, writer: Side, start: u64, length: usize) -> Vec<u8> {
    pattern(u64::from(stream.0) << 8 | writer as u64, start, length)
}

/// Bytes that differ at nearby offsets and between seeds.
fn pattern(seed: u64, start: u64, length: usize) -> Vec<u8> {
    let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let byte = |at: u64| {
        let mixed = (at ^ seed).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed.to_be_bytes()[0]
    };
    (start..start + length as u64).map(byte).collect()
}
