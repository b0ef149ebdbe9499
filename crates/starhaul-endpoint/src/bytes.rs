//! Reliable byte streams as tokio readers and writers. All bytes wait in the session, which limits them; where the tasks of both halves
//! wait is in `waiting.rs`.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use starhaul_session::{Session, SparePage, StreamError, StreamId};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};

use crate::{
    state::{ByteEntry, SessionShared, Shared, Signs, State},
    waiting::Waiter,
};

/// The code of the reset or stop of a half that was dropped before its end.
pub(crate) const CODE_DROPPED: u32 = 0;
/// Bytes copied at once.
const MAX_COPY: usize = 64 << 10;
/// So many bytes are copied while the stack is locked; more would keep the driver waiting, and are copied before or after.
const LOCKED_COPY: usize = 2 << 10;
/// Bytes taken at once without copying.
const MAX_CHUNKS: usize = 256 << 10;

/// A reliable byte stream in both directions: `AsyncRead + AsyncWrite`; `shutdown` half closes.
/// Split it with `tokio::io::split` or [`ByteStream::into_split`].
#[derive(Debug)]
pub struct ByteStream {
    reader: ByteReader,
    writer: ByteWriter,
    label: Bytes,
}

/// The reading half: `AsyncRead`; a peer's reset is an error of kind `ConnectionReset`.
/// Dropping it before the end asks the peer to stop.
#[derive(Debug)]
pub struct ByteReader {
    held: Arc<Held>,
    ended: bool,
    waiter: Arc<Waiter>,
    /// Empty between two reads.
    chunks: Vec<Bytes>,
    /// Empty between two reads.
    spare: Vec<SparePage>,
}

/// The writing half: `AsyncWrite`; `shutdown` finishes, dropping it unfinished resets.
/// When the peer no longer reads, writing is an error of kind `BrokenPipe`.
#[derive(Debug)]
pub struct ByteWriter {
    held: Arc<Held>,
    ended: bool,
    stopped: watch::Receiver<Option<u32>>,
    waiter: Arc<Waiter>,
    /// For so many bytes more there seems to be room. The session knows it for certain: this spares asking it before each copy.
    room: usize,
}

impl ByteStream {
    /// The stream `id`, whose entry the session must have already, and which has the `signs` of it.
    pub(crate) fn new(
        shared: Arc<Shared>,
        session: Arc<SessionShared>,
        id: StreamId,
        label: Bytes,
        signs: Signs,
    ) -> Self {
        let held = Arc::new(Held {
            shared,
            session,
            id,
        });
        Self {
            reader: ByteReader {
                held: held.clone(),
                ended: false,
                waiter: signs.reader,
                chunks: Vec::new(),
                spare: Vec::new(),
            },
            writer: ByteWriter {
                held,
                ended: false,
                stopped: signs.stopped,
                waiter: signs.writer,
                room: 0,
            },
            label,
        }
    }

    /// The label given by the opener of the stream.
    pub fn label(&self) -> &Bytes {
        &self.label
    }

    /// The stream's number in its session.
    pub fn id(&self) -> StreamId {
        self.reader.held.id
    }

    /// Two halves that different tasks may own.
    pub fn into_split(self) -> (ByteReader, ByteWriter) {
        (self.reader, self.writer)
    }
}

impl ByteReader {
    /// Asks the peer to stop sending; its writer fails with `BrokenPipe`, and ours is unharmed.
    pub fn stop(&mut self, code: u32) {
        self.ended = true;
        self.waiter.release_memory();
        // Fails when there is nothing left to stop.
        let _ = self
            .held
            .with(|machine, _, now, id| Poll::Ready(machine.stop(now, id, code)));
    }
}

impl ByteReader {
    /// The bytes that can be read now, uncopied, in chunks as they arrived; none at the end. Waits while there are none.
    /// Cancelling loses nothing.
    ///
    /// # Errors
    /// As reading: the peer reset the stream, or the session has ended.
    pub async fn read_chunks(&mut self) -> io::Result<Vec<Bytes>> {
        self.read_chunks_within(MAX_CHUNKS).await
    }

    /// As [`ByteReader::read_chunks`], but at most so many bytes of them, at least one.
    ///
    /// # Errors
    /// As reading.
    pub async fn read_chunks_within(&mut self, most: usize) -> io::Result<Vec<Bytes>> {
        poll_fn(|context| self.poll_chunks(context, most.clamp(1, MAX_CHUNKS))).await
    }

    fn poll_chunks(&mut self, context: &Context<'_>, max: usize) -> Poll<io::Result<Vec<Bytes>>> {
        let mut chunks = Vec::new();
        let taken = self.poll_take(context, max, |data| chunks.push(data));
        taken.map_ok(|()| chunks)
    }

    /// Passes at most `max` bytes that can be read now to `take`; none at the end.
    fn poll_take(
        &mut self,
        context: &Context<'_>,
        max: usize,
        take: impl FnMut(Bytes),
    ) -> Poll<io::Result<()>> {
        if self.ended {
            return Poll::Ready(Ok(()));
        }
        if self.waiter.waits(context) {
            return Poll::Pending;
        }
        self.waiter.take_spare(&mut self.spare);
        let spare = &mut self.spare;
        let taken = self.held.with(|machine, entry, now, id| {
            machine.recycle(id, spare);
            let result = match machine.read_chunks(now, id, max, take) {
                // The session forgets a stream once its reset was read.
                _ if entry.reset.is_some() => Err(io::ErrorKind::ConnectionReset.into()),
                Ok((0, false)) => return entry.reader.wait(context),
                Ok((taken, is_end)) => {
                    if taken < max && !is_end {
                        // It was all, of which the next read need not ask.
                        entry.reader.use_up();
                    }
                    Ok(is_end)
                }
                Err(error) => Err(stream_error(&error)),
            };
            Poll::Ready(result)
        });
        // What the session has no use for is freed without its lock.
        self.spare.clear();
        taken.map(|result| {
            self.ended = result??;
            Ok(())
        })
    }

    /// Lets the session use the memory of chunks again that were copied. At the end there is nothing more to come.
    fn give_back(&mut self, chunks: &mut Vec<Bytes>) {
        let spare = chunks.drain(..).filter_map(SparePage::of);
        self.spare.extend(spare);
        if self.ended {
            self.spare.clear();
        }
        self.waiter.put_spare(&mut self.spare);
    }
}

impl ByteWriter {
    /// Abandons our direction; the peer's reader fails with `ConnectionReset`.
    pub fn reset(&mut self, code: u32) {
        self.ended = true;
        // Fails when all has been delivered already.
        let _ = self
            .held
            .with(|machine, _, now, id| Poll::Ready(machine.reset(now, id, code)));
    }

    /// Writes bytes without copying them, as many as there is room for, and returns how many: `data` loses those. Waits while there is no
    /// room. Their memory is kept until the peer has all of them. Cancelling loses nothing.
    ///
    /// # Errors
    /// As writing: the peer reads no more, or the session has ended.
    pub async fn write_chunk(&mut self, data: &mut Bytes) -> io::Result<usize> {
        let wanted = data.len();
        if wanted == 0 {
            return Ok(0);
        }
        poll_fn(|context| {
            self.poll_with(context, wanted, |machine, now, id| {
                machine.write_bytes(now, id, data, wanted)
            })
        })
        .await
    }

    /// Lets `write` write `wanted` bytes, or ask for room with none wanted; waits when there is no room.
    fn poll_with(
        &mut self,
        context: &Context<'_>,
        wanted: usize,
        write: impl FnOnce(&mut Session, Instant, StreamId) -> Result<usize, StreamError>,
    ) -> Poll<io::Result<usize>> {
        if self.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.waiter.waits(context) {
            return Poll::Pending;
        }
        let written = self.held.with(|machine, entry, now, id| {
            if entry.stopped.borrow().is_some() {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            match write(machine, now, id) {
                Ok(0) => entry.writer.wait(context),
                Ok(written) => {
                    if written < wanted {
                        // There was no room for more, and the session tells of the next.
                        entry.writer.use_up();
                    }
                    Poll::Ready(Ok(written))
                }
                Err(error) => Poll::Ready(Err(stream_error(&error))),
            }
        });
        written.map(|result| result?)
    }

    /// Resolves when the peer no longer reads: with its code, or `None` when the session ended.
    pub async fn stopped(&self) -> Option<u32> {
        let mut stopped = self.stopped.clone();
        stopped
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|code| *code)
    }
}

impl AsyncRead for ByteReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let max = buffer.remaining().min(MAX_COPY);
        if max == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut chunks = std::mem::take(&mut self.chunks);
        let taken = self.poll_take(context, max, |data| chunks.push(data));
        if matches!(taken, Poll::Ready(Ok(()))) {
            chunks.iter().for_each(|chunk| buffer.put_slice(chunk));
        }
        self.give_back(&mut chunks);
        self.chunks = chunks;
        taken
    }
}

impl AsyncWrite for ByteWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if data.is_empty() && !self.ended {
            return Poll::Ready(Ok(0));
        }
        let data = data.get(..MAX_COPY).unwrap_or(data);
        if data.len() <= LOCKED_COPY {
            return self.poll_with(context, data.len(), |machine, now, id| {
                machine.write(now, id, data)
            });
        }
        let room = match self.room >= data.len() {
            true => self.room,
            false => {
                let asked = self.poll_with(context, 0, |machine, now, id| {
                    machine.write_room(now, id, usize::MAX)
                });
                ready!(asked)?
            }
        };
        let copy = Bytes::copy_from_slice(data.get(..room).unwrap_or(data));
        let written = self.poll_with(context, data.len(), |machine, now, id| {
            write_copy(machine, now, id, (data, copy))
        });
        self.room = match &written {
            Poll::Ready(Ok(count)) if *count == data.len() => room.saturating_sub(*count),
            _ => 0,
        };
        written
    }

    /// Nothing is buffered here: written bytes are in the session.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ended {
            return Poll::Ready(Ok(()));
        }
        self.ended = true;
        let finished = self
            .held
            .with(|machine, _, now, id| Poll::Ready(machine.finish(now, id)));
        finished.map(|result| result?.map_err(|error| stream_error(&error)))
    }
}

impl AsyncRead for ByteStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(context, buffer)
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(context)
    }
}

impl Drop for ByteReader {
    fn drop(&mut self) {
        // The other half may live on.
        self.waiter.release_memory();
        if !self.ended {
            self.stop(CODE_DROPPED);
        }
    }
}

impl Drop for ByteWriter {
    fn drop(&mut self) {
        if !self.ended {
            self.reset(CODE_DROPPED);
        }
    }
}

/// The part that both halves share; the session forgets the wakers when both are gone.
struct Held {
    shared: Arc<Shared>,
    session: Arc<SessionShared>,
    id: StreamId,
}

impl Held {
    /// Runs `operation` on the locked session; the driver is woken if that leaves it something to do. Most reads do not.
    fn with<T>(
        &self,
        operation: impl FnOnce(&mut Session, &mut ByteEntry, Instant, StreamId) -> Poll<T>,
    ) -> Poll<io::Result<T>> {
        let (handle, id) = (self.session.handle, self.id);
        let mut state = self.shared.lock();
        let State { node, sessions, .. } = &mut *state;
        let entry = sessions.get_mut(&handle);
        let bytes = entry.and_then(|entry| entry.bytes.get_mut(&id));
        let done = bytes.and_then(|bytes| {
            node.with_session(handle, |machine| {
                operation(machine, bytes, Instant::now(), id)
            })
        });
        drop(state);
        let Some((result, is_due)) = done else {
            let ended = self.session.ended_error();
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, ended)));
        };
        if is_due {
            self.shared.wake_driver();
        }
        result.map(Ok)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let entry = state.sessions.get_mut(&self.session.handle);
        let bytes = entry.and_then(|entry| entry.bytes.remove(&self.id));
        drop(state);
        // Its wakers may drop tasks.
        drop(bytes);
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.id.fmt(f)
    }
}

/// Writes of `data` what there is room for, of which `copy` is as much as there seemed to be room for. The session keeps that, or, where
/// it takes less, another copy: a part of this one would keep the memory of all, and count as little.
fn write_copy(
    machine: &mut Session,
    now: Instant,
    id: StreamId,
    (data, mut copy): (&[u8], Bytes),
) -> Result<usize, StreamError> {
    match machine.write_room(now, id, copy.len())? == copy.len() {
        true => machine.write_bytes(now, id, &mut copy, data.len()),
        false => machine.write(now, id, data),
    }
}

fn stream_error(error: &StreamError) -> io::Error {
    let kind = match error {
        StreamError::Reset { .. } => io::ErrorKind::ConnectionReset,
        StreamError::Closed => io::ErrorKind::ConnectionAborted,
        _ => io::ErrorKind::BrokenPipe,
    };
    io::Error::new(kind, error.clone())
}

#[cfg(test)]
mod tests;
