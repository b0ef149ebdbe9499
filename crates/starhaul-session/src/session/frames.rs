//! What leaves of reliable streams: whose turn it is, and which of its bytes.

use std::time::{Duration, Instant};

use starhaul_paths::PathId;

use super::Session;
use crate::{
    batch::Batch,
    clocks::Clocks,
    facts::{Datagram, Fact, Observers},
    item::Item,
    paths::Path,
    rules,
    scheduler::{Frame, Scheduler, Thrift, View},
    send::bytes::{NextFrame, SendBytes},
    slab::Slab,
    streams::Kind,
    types::StreamId,
    wire::{STREAM_FRAME_HEADER_BYTES, StreamFrame},
};

/// Streams of one priority take turns, each for what the path carries in this time, or one stream frame.
const STREAM_TURN: Duration = Duration::from_millis(1);

impl Session {
    /// Adds frames of the first reliable stream, by priority and in turn, for which this path is a good choice.
    pub(super) fn add_bytes(&mut self, batch: &mut Batch<'_>, most: usize) -> bool {
        // A path that carries no frame says nothing of whether a stream has any.
        if self.frame_capacity(batch.path).is_none() {
            return false;
        }
        let added = self.add_first_bytes(batch, most);
        self.bytes_out.put_back_passed();
        added
    }

    fn add_first_bytes(&mut self, batch: &mut Batch<'_>, most: usize) -> bool {
        let is_due = self.bytes_out.is_starved();
        while let Some(ready) = self.bytes_out.take_first() {
            let (priority, _, stream) = ready;
            let first = self.next_frame(batch, stream, is_due);
            let Some((frame, takes)) = first else {
                if let Ok(pair) = self.pair(stream) {
                    pair.turn = None;
                }
                continue;
            };
            if !takes {
                if self.bytes_out.pass(ready) {
                    continue;
                }
                return false;
            }
            self.bytes_out.on_share();
            self.add_stream_frames(
                batch,
                stream,
                frame,
                most.min(self.turn(batch.path, priority)),
            );
            if self.pair(stream).is_ok() {
                let turn = self.bytes_out.enqueue(priority, stream);
                if let Ok(pair) = self.pair(stream) {
                    pair.turn = Some(turn);
                }
            }
            self.wake_writer(stream);
            return true;
        }
        false
    }

    /// How many frames a stream may send before the next of its priority has its turn.
    fn turn(&self, path: PathId, priority: u8) -> usize {
        if !self.bytes_out.alternates(priority) {
            return usize::MAX;
        }
        let path = self.paths.get(path);
        let frames = path.map_or(1, |path| {
            path.monitor.bandwidth().bytes_in(STREAM_TURN) / path.max_datagram().max(1) as u64
        });
        usize::try_from(frames).unwrap_or(usize::MAX).max(1)
    }

    /// The next frame of a stream, and whether it should leave on the path.
    fn next_frame(
        &mut self,
        batch: &Batch<'_>,
        stream: StreamId,
        is_due: bool,
    ) -> Option<(NextFrame, bool)> {
        let capacity = self.frame_capacity(batch.path)?;
        let bulk = self.is_bulk(stream);
        let pair = self.streams.pair_mut(stream)?;
        let view = View::new(self.clocks.now(), &self.paths, batch.path, batch.overview);
        choose(
            self.scheduler.as_ref(),
            &view,
            &mut pair.send,
            (capacity, bulk, is_due),
        )
    }

    /// Whether the application has, or had just now, more to send than it is given room for.
    fn is_bulk(&self, stream: StreamId) -> bool {
        let pair = self.streams.get(stream).and_then(|entry| entry.pair());
        let until = pair.and_then(|pair| pair.bulk_until);
        self.bytes_out.is_blocked(stream) || until.is_some_and(|until| until > self.clocks.now())
    }

    /// Adds frames of a stream, `frame` first, at most `most` and as long as they should leave on the path. What does not change from one
    /// to the next is looked up once.
    fn add_stream_frames(
        &mut self,
        batch: &mut Batch<'_>,
        stream: StreamId,
        mut frame: NextFrame,
        most: usize,
    ) {
        if self.paths.leave_no_choice() {
            return self.add_all_frames(batch, stream, frame, most);
        }
        let (id, now) = (batch.path, self.clocks.now());
        let bulk = self.is_bulk(stream);
        let Some(capacity) = self.frame_capacity(id) else {
            return;
        };
        let Some(entry) = self.streams.get_mut(stream) else {
            return;
        };
        let priority = entry.config.priority;
        let Kind::Bytes(pair) = &mut entry.kind else {
            return;
        };
        let view = View::new(now, &self.paths, id, batch.overview);
        let mut arrives = rules::straggles(&view, frame.end - frame.start);
        let mut has_left = false;
        for _ in 0..most {
            let Some(path) = self.paths.get_mut(id) else {
                break;
            };
            let place = (path, &mut self.slab);
            let of = (stream, priority, &pair.send);
            let Some(sequence) = send_frame(place, &self.clocks, batch, of, frame) else {
                break;
            };
            has_left = true;
            self.paths.pay(now, id, batch.last_packet());
            note_frame(&mut self.observers, now, (id, sequence), stream, frame);
            pair.send.on_sent(frame);
            if let Some(arrives) = arrives {
                pair.send.on_straggling(frame, arrives);
                self.bytes_out.straggling.insert(stream);
            }
            if batch.is_full {
                break;
            }
            // This one is under way now.
            let view = View::new(now, &self.paths, id, batch.overview);
            let next = choose(
                self.scheduler.as_ref(),
                &view,
                &mut pair.send,
                (capacity, bulk, false),
            );
            match next {
                Some((next, true)) => frame = next,
                _ => break,
            }
            arrives = rules::straggles(&view, frame.end - frame.start);
        }
        if has_left {
            self.after_use(id);
        }
    }

    /// The same where there is no other path: of two that could carry a frame one must, so this one carries all that follow, and none
    /// of them would arrive sooner elsewhere.
    fn add_all_frames(
        &mut self,
        batch: &mut Batch<'_>,
        stream: StreamId,
        mut frame: NextFrame,
        most: usize,
    ) {
        let (id, now) = (batch.path, self.clocks.now());
        let Some(capacity) = self.frame_capacity(id) else {
            return;
        };
        let (Some(path), Some(entry)) = (self.paths.get_mut(id), self.streams.get_mut(stream))
        else {
            return;
        };
        let priority = entry.config.priority;
        let Kind::Bytes(pair) = &mut entry.kind else {
            return;
        };
        let mut has_left = false;
        for _ in 0..most {
            let place = (&mut *path, &mut self.slab);
            let of = (stream, priority, &pair.send);
            let Some(sequence) = send_frame(place, &self.clocks, batch, of, frame) else {
                break;
            };
            has_left = true;
            note_frame(&mut self.observers, now, (id, sequence), stream, frame);
            pair.send.on_sent(frame);
            if batch.is_full {
                break;
            }
            match pair.send.next_frame_within(capacity) {
                Some(next) => frame = next,
                None => break,
            }
        }
        if has_left {
            self.after_use(id);
        }
    }

    /// When nothing else wants the path: a frame that is under way on a slower path and would arrive sooner over this one, so
    /// that a slow path never delays the end of a transfer.
    pub(super) fn add_straggler(&mut self, batch: &mut Batch<'_>) -> Option<()> {
        if self.bytes_out.straggling.is_empty() {
            return None;
        }
        let capacity = self.frame_capacity(batch.path)?;
        let view = self.view(batch);
        let this = view.this()?;
        // A copy is not worth the price of a dearer path.
        if view.cheaper_than(this) > 0 {
            return None;
        }
        let arrives = this.predict_arrival(self.clocks.now(), 0, capacity);
        let streams = &mut self.streams;
        let mut found = None;
        self.bytes_out.straggling.retain(|stream| {
            let Some(pair) = streams.pair_mut(*stream) else {
                return false;
            };
            if found.is_none() {
                let frame = pair.send.next_straggler(arrives, capacity);
                found = frame.map(|frame| (*stream, frame));
            }
            pair.send.has_stragglers()
        });
        let (stream, frame) = found?;
        self.add_frame(batch, stream, frame)
    }

    /// Adds a frame of a reliable stream.
    fn add_frame(
        &mut self,
        batch: &mut Batch<'_>,
        stream: StreamId,
        frame: NextFrame,
    ) -> Option<()> {
        let (id, now) = (batch.path, self.clocks.now());
        let entry = self.streams.get(stream)?;
        let of = (stream, entry.config.priority, &entry.pair()?.send);
        let place = (self.paths.get_mut(id)?, &mut self.slab);
        let sequence = send_frame(place, &self.clocks, batch, of, frame)?;
        self.paths.pay(now, id, batch.last_packet());
        note_frame(&mut self.observers, now, (id, sequence), stream, frame);
        self.after_use(id);
        Some(())
    }
}

/// The next frame of a stream, of at most `capacity` bytes, and whether it should leave on the path. Where another path is better for the
/// lost bytes that the reader waits for first, this one may still be good for the last of them, or for new ones: lost bytes that left over
/// the soonest path alone, however slow, would hold up the stream.
fn choose(
    scheduler: &dyn Scheduler,
    view: &View<'_>,
    send: &mut SendBytes,
    (capacity, bulk, is_due): (u64, bool, bool),
) -> Option<(NextFrame, bool)> {
    let takes = |frame: NextFrame, backlog: u64| {
        let wanted = Frame {
            backlog,
            bytes: frame.end - frame.start,
            is_due,
            thrift: match frame.is_retransmission() && bulk {
                true => Thrift::Prompt,
                false => Thrift::Patient,
            },
        };
        scheduler.takes_frame(view, wanted)
    };
    let first = send.first_lost(capacity);
    if let Some(first) = first {
        if takes(first, first.end - first.start) {
            return Some((first, true));
        }
        let last = send.last_lost(capacity);
        let lost = send.lost_bytes();
        if let Some(last) = last.filter(|last| last.start > first.start)
            && takes(last, lost)
        {
            return Some((last, true));
        }
    }
    let lost = send.lost_bytes();
    let new = send.new_frame(capacity).map(|frame| {
        let backlog = if bulk {
            u64::MAX
        } else {
            lost.saturating_add(send.unsent())
        };
        (frame, takes(frame, backlog))
    });
    match (first, new) {
        (Some(first), None | Some((_, false))) => Some((first, false)),
        (_, new) => new,
    }
}

/// A frame of a stream leaves on a path, with the priority of the stream; returns the number of its datagram there.
fn send_frame(
    (path, slab): (&mut Path, &mut Slab),
    clocks: &Clocks,
    batch: &mut Batch<'_>,
    (stream, priority, send): (StreamId, u8, &SendBytes),
    frame: NextFrame,
) -> Option<u64> {
    let NextFrame {
        start, end, fin, ..
    } = frame;
    let bytes = STREAM_FRAME_HEADER_BYTES + usize::try_from(end - start).ok()?;
    let sequence = path.monitor.next_sequence();
    let header = clocks.header(sequence);
    let slices = send.slices(start, end);
    let payload = slab.write(bytes, |out| {
        StreamFrame::encode(stream, start, fin, slices, header, out);
    });
    path.sent_by_class.add(Some(priority), payload.len() as u64);
    batch.push(path.send(clocks.now(), payload, item_of(stream, frame), batch.budget));
    Some(sequence)
}

/// A frame has left in the datagram with this number on a path.
pub(super) fn note_frame(
    observers: &mut Observers,
    now: Instant,
    (path, sequence): (PathId, u64),
    stream: StreamId,
    frame: NextFrame,
) {
    observers.note(now, || Fact::FrameSent {
        stream,
        start: frame.start,
        end: frame.end,
        datagram: Datagram { path, sequence },
        is_retransmission: frame.is_retransmission(),
    });
}

/// What a datagram carries that has this frame.
pub(super) const fn item_of(stream: StreamId, frame: NextFrame) -> Item {
    let NextFrame {
        start, end, fin, ..
    } = frame;
    Item::Frame {
        stream,
        start,
        end,
        fin,
    }
}
