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
use starhaul_session::{Session, StreamError, StreamId};
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
        let taken = self.held.with(|machine, entry, now, id| {
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
        let chunks = ready!(self.poll_chunks(context, max))?;
        chunks.iter().for_each(|chunk| buffer.put_slice(chunk));
        Poll::Ready(Ok(()))
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
mod tests {
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        task::{Wake, Waker},
        time::Duration,
    };

    use starhaul_session::{Mode, SessionConfig, Side, StreamConfig};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::{Endpoint, EndpointConfig, Identity, IncomingStream, PathSpec};

    /// Two endpoints, and the session as each of them sees it.
    async fn pair() -> ([Endpoint; 2], [crate::Session; 2]) {
        let [ours, theirs] = [1, 2].map(|secret| Identity::from_secret([secret; 32]));
        let config = EndpointConfig {
            trusted: vec![ours.public_key()],
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            ..EndpointConfig::new(theirs.clone())
        };
        let server = Endpoint::bind(config).await.unwrap();
        let client = Endpoint::bind(EndpointConfig::new(ours)).await.unwrap();
        let path = PathSpec::new("loopback", server.listen_addresses()[0]);
        let near = client.connect(theirs.public_key(), vec![path]);
        let near = near.await.unwrap();
        let far = server.accept().await.unwrap();
        ([client, server], [near, far])
    }

    async fn accept(session: &crate::Session) -> ByteStream {
        match session.accept_stream().await {
            Some(IncomingStream::Bytes(stream)) => stream,
            other => panic!("expected a byte stream, got {other:?}"),
        }
    }

    fn wakes(endpoint: &Endpoint) -> u64 {
        endpoint.shared().wakes.load(Ordering::Relaxed)
    }

    /// Each wake costs the driver a turn of system calls.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_reads_what_has_come_does_not_wake_the_driver() {
        let ([_client, server], [near, far]) = pair().await;
        let mut writer = near.open_bytes(3, Bytes::new()).await.unwrap();
        writer.write_all(&[7; 40_000]).await.unwrap();
        let mut reader = accept(&far).await;
        while near.held_bytes().0 > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let before = wakes(&server);
        let mut part = [0; 1000];
        for _ in 0..40 {
            reader.read_exact(&mut part).await.unwrap();
        }
        assert_eq!(wakes(&server), before, "no credit is due for so little");
        // Of more than a megabyte some is.
        let writing = tokio::spawn(async move {
            writer.write_all(&vec![7; 3_000_000]).await.unwrap();
            writer
        });
        reader.read_exact(&mut vec![0; 3_000_000]).await.unwrap();
        drop(writing.await.unwrap());
        assert!(wakes(&server) > before, "nobody told the sender of room");
    }

    /// A writer with more than there is room for, by all ways of writing and reading.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_passed_without_copying_arrives_as_what_is_copied() {
        const TOTAL: usize = 6_000_000;
        let ([_client, _server], [near, far]) = pair().await;
        let data: Vec<u8> = (0..TOTAL).map(|at| (at % 251).to_le_bytes()[0]).collect();
        let data = Bytes::from(data);
        let stream = near.open_bytes(3, Bytes::new()).await.unwrap();
        let (_unread, mut writer) = stream.into_split();
        let mut left = data.clone();
        let writing = tokio::spawn(async move {
            while !left.is_empty() {
                for length in [100_000, 3_000, 10] {
                    let mut chunk = left.split_to(length.min(left.len()));
                    while !chunk.is_empty() {
                        let before = chunk.len();
                        let written = writer.write_chunk(&mut chunk).await.unwrap();
                        assert!(written > 0 && chunk.len() == before - written);
                    }
                    let copied = left.split_to(length.min(left.len()));
                    writer.write_all(&copied).await.unwrap();
                }
            }
            assert_eq!(writer.write_chunk(&mut Bytes::new()).await.unwrap(), 0);
            writer.shutdown().await.unwrap();
        });
        let mut reader = accept(&far).await.into_split().0;
        let mut read = Vec::<u8>::new();
        let mut part = vec![0; 50_000];
        loop {
            let chunks = reader.read_chunks_within(30_000).await.unwrap();
            if chunks.is_empty() {
                break;
            }
            let before = read.len();
            chunks
                .iter()
                .for_each(|chunk| read.extend_from_slice(chunk));
            assert!(read.len() - before <= 30_000);
            let count = reader.read(&mut part).await.unwrap();
            read.extend_from_slice(&part[..count]);
        }
        writing.await.unwrap();
        assert!(read == data, "{} of {TOTAL} bytes, or others", read.len());
        // What was written uncopied is let go once the peer has it.
        while near.held_bytes().0 > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// The session may have less room than a writer counts on: other streams have filled it, or its paths have become slow.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_writer_that_counts_on_room_which_is_gone_waits_for_it() {
        let ([_client, _server], [near, far]) = pair().await;
        let data: Vec<u8> = (0..3_000_000_usize)
            .map(|at| (at % 251).to_le_bytes()[0])
            .collect();
        let stream = near.open_bytes(3, Bytes::new()).await.unwrap();
        let (_unread, mut writer) = stream.into_split();
        let sent = data.clone();
        let writing = tokio::spawn(async move {
            for part in sent.chunks(100_000) {
                writer.room = usize::MAX;
                writer.write_all(part).await.unwrap();
            }
            writer.shutdown().await.unwrap();
        });
        let mut reader = accept(&far).await.into_split().0;
        let mut read = Vec::new();
        reader.read_to_end(&mut read).await.unwrap();
        writing.await.unwrap();
        assert!(
            read == data,
            "{} of {} bytes, or others",
            read.len(),
            data.len()
        );
    }

    #[test]
    fn of_a_copy_for_which_there_is_no_room_a_session_keeps_nothing() {
        let now = Instant::now();
        let config = SessionConfig {
            max_send_bytes: 10_000,
            ..SessionConfig::default()
        };
        let mut session = Session::new(config, Side::Client, now);
        let reliable = StreamConfig {
            mode: Mode::Reliable,
            ..StreamConfig::default()
        };
        let stream = session.open_stream(now, reliable).unwrap();
        let mut write = |length: usize| {
            let memory = Bytes::from(vec![7; length]);
            let taken =
                write_copy(&mut session, now, stream, (&memory[..], memory.clone())).unwrap();
            (taken, memory)
        };
        let (taken, memory) = write(2_000);
        assert_eq!(taken, 2_000);
        assert!(!memory.is_unique(), "copied although there is room");
        let (taken, memory) = write(MAX_COPY);
        assert!((1..10_000).contains(&taken), "{taken}");
        assert!(memory.is_unique(), "{taken} bytes keep {MAX_COPY}");
        assert_eq!(write(MAX_COPY).0, 0);
    }

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicU64);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many bytes can be read now, at most 10.
    fn poll_read(reader: &mut ByteReader, waker: &Waker) -> Poll<usize> {
        let mut buffer = [0; 10];
        let mut buffer = ReadBuf::new(&mut buffer);
        let read = Pin::new(reader).poll_read(&mut Context::from_waker(waker), &mut buffer);
        read.map(|read| {
            read.unwrap();
            buffer.filled().len()
        })
    }

    /// Whether a reader waits while another thread has the lock for itself.
    fn waits_while_locked(
        session: &crate::Session,
        mut reader: ByteReader,
        waker: &'static Waker,
    ) -> (bool, ByteReader) {
        let (told, polled) = std::sync::mpsc::channel();
        let driver = session.shared.lock();
        let asking = std::thread::spawn(move || {
            let waits = poll_read(&mut reader, waker).is_pending();
            told.send(waits).unwrap();
            reader
        });
        let waits = polled.recv_timeout(Duration::from_secs(20));
        drop(driver);
        (waits == Ok(true), asking.join().unwrap())
    }

    /// The task of a relay is polled for what its other half waits for, and the driver may have the lock for long.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_that_waits_already_asks_nobody_and_misses_nothing() {
        let ([_client, _server], [near, far]) = pair().await;
        let mut writer = near.open_bytes(3, Bytes::new()).await.unwrap();
        let (mut reader, _answers) = accept(&far).await.into_split();
        let woken = Arc::new(Woken::default());
        let (first, second) = (Waker::noop(), Waker::from(woken.clone()));
        assert!(poll_read(&mut reader, first).is_pending());
        let (waits, mut reader) = waits_while_locked(&far, reader, first);
        assert!(waits, "it wanted the lock");
        for turn in 1..=20 {
            // Another task takes over, and is the one that is woken; then the first has its turn again.
            assert!(poll_read(&mut reader, &second).is_pending());
            assert!(poll_read(&mut reader, &second).is_pending());
            writer.write_all(b"abc").await.unwrap();
            while woken.0.load(Ordering::Relaxed) < turn {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(poll_read(&mut reader, first), Poll::Ready(3));
            let (waits, back) = waits_while_locked(&far, reader, first);
            assert!(waits, "it has read all, and wanted the lock");
            reader = back;
        }
        writer.shutdown().await.unwrap();
        let mut byte = [0];
        let end = tokio::time::timeout(Duration::from_secs(20), reader.read(&mut byte));
        assert_eq!(end.await.expect("its end is missed").unwrap(), 0);
    }

    /// A half that has used up what there was asks for no more before it is told: an end must be told, too, also to a half that does not wait
    /// yet.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn halves_that_have_used_up_what_there_was_hear_of_every_end() {
        use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};

        const LENGTH: usize = 8 << 20;
        for end in ["dropped", "closed here", "closed there"] {
            let ([client, server], [near, far]) = pair().await;
            let opened = near.open_bytes(3, Bytes::new()).await.unwrap();
            let (mut reader, mut writer) = opened.into_split();
            writer.write_all(b"?").await.unwrap();
            let (their_reader, mut their_writer) = accept(&far).await.into_split();
            their_writer.write_all(b"abc").await.unwrap();
            assert_eq!(reader.read(&mut [0; 10]).await.unwrap(), 3);
            let mut data = Bytes::from(vec![7; LENGTH]);
            let written = writer.write_chunk(&mut data).await.unwrap();
            assert!(written < LENGTH, "there was room for all");
            let expected = match end {
                "dropped" => {
                    drop((their_reader, their_writer));
                    [ConnectionReset, BrokenPipe]
                }
                "closed here" => {
                    client.close().await;
                    [ConnectionAborted; 2]
                }
                _ => {
                    server.close().await;
                    [ConnectionAborted; 2]
                }
            };
            let ends = async {
                let read = reader.read(&mut [0; 10]).await.unwrap_err();
                let write = loop {
                    if let Err(error) = writer.write_chunk(&mut data).await {
                        break error;
                    }
                };
                [read.kind(), write.kind()]
            };
            let ends = tokio::time::timeout(Duration::from_secs(20), ends).await;
            assert_eq!(ends.expect("an end is missed"), expected, "{end}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_short_connection_wakes_each_driver_for_what_it_sends() {
        let (ends, [near, far]) = pair().await;
        let before = ends.each_ref().map(wakes);
        let serving = tokio::spawn(async move {
            let mut stream = accept(&far).await;
            let mut request = [0; 200];
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(&[8; 10_000]).await.unwrap();
            let end = stream.read_to_end(&mut Vec::new()).await.unwrap();
            assert_eq!(end, 0);
            stream.shutdown().await.unwrap();
            far
        });
        let mut stream = near.open_bytes(3, Bytes::new()).await.unwrap();
        stream.write_all(&[7; 200]).await.unwrap();
        let mut answer = [0; 10_000];
        stream.read_exact(&mut answer).await.unwrap();
        stream.shutdown().await.unwrap();
        let end = stream.read_to_end(&mut Vec::new()).await.unwrap();
        assert_eq!(end, 0);
        drop(stream);
        let far = serving.await.unwrap();
        let after = ends.each_ref().map(wakes);
        let [ours, theirs] = [0, 1].map(|end| after[end] - before[end]);
        assert!(ours <= 3, "{ours}: it opens, asks and ends");
        assert!(theirs <= 2, "{theirs}: it answers and ends");
        for session in [near, far] {
            let state = session.shared.lock();
            let entries = state.sessions.values();
            let held: usize = entries.map(|entry| entry.bytes.len()).sum();
            assert_eq!(held, 0, "both halves are gone");
        }
    }
}
