//! Reliable byte streams as tokio readers and writers. All bytes wait in the session, which limits them; this file has only
//! the wakers.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Instant,
};

use bytes::Bytes;
use starhaul_session::{Session, StreamError, StreamId};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};

use crate::state::{ByteEntry, SessionShared, Shared, State};

/// The code of the reset or stop of a half that was dropped before its end.
pub(crate) const CODE_DROPPED: u32 = 0;
/// Bytes copied at once while the stack is locked.
const MAX_COPY: usize = 64 << 10;
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
    half: Half,
    ended: bool,
}

/// The writing half: `AsyncWrite`; `shutdown` finishes, dropping it unfinished resets.
/// When the peer no longer reads, writing is an error of kind `BrokenPipe`.
#[derive(Debug)]
pub struct ByteWriter {
    half: Half,
    ended: bool,
    stopped: watch::Receiver<Option<u32>>,
}

impl ByteStream {
    /// The stream `id`, which the session's entry must have already.
    pub(crate) fn new(
        shared: Arc<Shared>,
        session: Arc<SessionShared>,
        id: StreamId,
        label: Bytes,
    ) -> Self {
        let stopped = {
            let state = shared.lock();
            let entry = state.sessions.get(&session.handle);
            match entry.and_then(|entry| entry.bytes.get(&id)) {
                Some(bytes) => bytes.stopped.subscribe(),
                None => watch::Sender::new(None).subscribe(),
            }
        };
        let half = || Half {
            shared: shared.clone(),
            session: session.clone(),
            id,
        };
        Self {
            reader: ByteReader {
                half: half(),
                ended: false,
            },
            writer: ByteWriter {
                half: half(),
                ended: false,
                stopped,
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
        self.reader.half.id
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
        // Fails when there is nothing left to stop.
        let _ = self
            .half
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
        poll_fn(|context| {
            let mut chunks = Vec::new();
            let taken = self.poll_take(context, MAX_CHUNKS, |data| chunks.push(data));
            taken.map_ok(|()| chunks)
        })
        .await
    }

    /// Passes at most `max` bytes that can be read now to `take`; none at the end.
    fn poll_take(
        &mut self,
        context: &Context<'_>,
        max: usize,
        mut take: impl FnMut(Bytes),
    ) -> Poll<io::Result<()>> {
        if self.ended {
            return Poll::Ready(Ok(()));
        }
        let taken = self.half.with(|machine, entry, now, id| {
            let mut taken = 0;
            loop {
                let result = match machine.read(now, id, max - taken) {
                    // The session forgets a stream once its reset was read.
                    _ if entry.reset.is_some() => Err(io::ErrorKind::ConnectionReset.into()),
                    Ok(Some(data)) if data.is_empty() => Ok(true),
                    Ok(Some(data)) => {
                        taken += data.len();
                        take(data);
                        match taken < max {
                            true => continue,
                            false => Ok(false),
                        }
                    }
                    Ok(None) if taken == 0 => return wait(&mut entry.reader, context),
                    Ok(None) => Ok(false),
                    Err(error) => Err(stream_error(&error)),
                };
                return Poll::Ready(result);
            }
        });
        taken.map(|result| {
            self.ended = result??;
            Ok(())
        })
    }
}

impl ByteWriter {
    /// Abandons our direction; the peer's reader fails with `ConnectionReset`.
    pub fn reset(&mut self, code: u32) {
        self.ended = true;
        // Fails when all has been delivered already.
        let _ = self
            .half
            .with(|machine, _, now, id| Poll::Ready(machine.reset(now, id, code)));
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
        self.poll_take(context, max, |data| buffer.put_slice(&data))
    }
}

impl AsyncWrite for ByteWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let data = data.get(..MAX_COPY).unwrap_or(data);
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let written = self.half.with(|machine, entry, now, id| {
            if entry.stopped.borrow().is_some() {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            match machine.write(now, id, data) {
                Ok(0) => wait(&mut entry.writer, context),
                Ok(written) => Poll::Ready(Ok(written)),
                Err(error) => Poll::Ready(Err(stream_error(&error))),
            }
        });
        written.map(|result| result?)
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
            .half
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
struct Half {
    shared: Arc<Shared>,
    session: Arc<SessionShared>,
    id: StreamId,
}

impl Half {
    /// Runs `operation` on the locked session; the driver is woken unless the operation has to wait.
    fn with<T>(
        &self,
        operation: impl FnOnce(&mut Session, &mut ByteEntry, Instant, StreamId) -> Poll<T>,
    ) -> Poll<io::Result<T>> {
        let mut state = self.shared.lock();
        let State { node, sessions, .. } = &mut *state;
        let (Some(machine), Some(bytes)) = (
            node.session(self.session.handle),
            sessions
                .get_mut(&self.session.handle)
                .and_then(|entry| entry.bytes.get_mut(&self.id)),
        ) else {
            let ended = self.session.ended_error();
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, ended)));
        };
        let result = operation(machine, bytes, Instant::now(), self.id);
        drop(state);
        if result.is_ready() {
            self.shared.wake_driver();
        }
        result.map(Ok)
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let entry = state.sessions.get_mut(&self.session.handle);
        if let Some(entry) = entry
            && let Some(bytes) = entry.bytes.get_mut(&self.id)
        {
            bytes.halves = bytes.halves.saturating_sub(1);
            if bytes.halves == 0 {
                entry.bytes.remove(&self.id);
            }
        }
    }
}

impl std::fmt::Debug for Half {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.id.fmt(f)
    }
}

fn wait<T>(slot: &mut Option<Waker>, context: &Context<'_>) -> Poll<T> {
    match slot {
        Some(waker) => waker.clone_from(context.waker()),
        None => *slot = Some(context.waker().clone()),
    }
    Poll::Pending
}

fn stream_error(error: &StreamError) -> io::Error {
    let kind = match error {
        StreamError::Reset { .. } => io::ErrorKind::ConnectionReset,
        StreamError::Closed => io::ErrorKind::ConnectionAborted,
        _ => io::ErrorKind::BrokenPipe,
    };
    io::Error::new(kind, error.clone())
}
