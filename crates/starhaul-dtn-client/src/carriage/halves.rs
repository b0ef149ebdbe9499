//! Streams and flows of datagrams as applications have them.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};

use super::shared::{Inlet, Shared, State};
use crate::flows::{CODE_DROPPED, CODE_FULL, CODE_LOST, CODE_SILENT, CODE_UNKNOWN, FlowId, Read};

/// The reading half: `AsyncRead`. Dropped before the end, what comes is dropped too.
#[derive(Debug)]
pub struct BundleReader {
    half: Half,
    /// What did not fit into the buffer of the last read.
    rest: Bytes,
}

/// The writing half: `AsyncWrite`; `shutdown` finishes, dropping it unfinished resets the stream.
#[derive(Debug)]
pub struct BundleWriter {
    half: Half,
    is_broken: watch::Receiver<bool>,
}

/// A flow of datagrams, which ends when this is dropped.
#[derive(Debug)]
pub struct DatagramFlow {
    shared: Arc<Shared>,
    id: FlowId,
    incoming: Inlet,
}

#[derive(Debug)]
struct Half {
    shared: Arc<Shared>,
    id: FlowId,
    has_ended: bool,
}

/// Both halves of a stream that the state holds.
pub(super) fn pair(shared: &Arc<Shared>, id: FlowId) -> (BundleReader, BundleWriter) {
    let half = || Half {
        shared: shared.clone(),
        id,
        has_ended: false,
    };
    let reader = BundleReader {
        half: half(),
        rest: Bytes::new(),
    };
    let writer = BundleWriter {
        half: half(),
        is_broken: shared.broken(id),
    };
    (reader, writer)
}

impl Drop for Half {
    fn drop(&mut self) {
        self.shared.release(self.id);
    }
}

impl BundleReader {
    /// The bytes that can be read now; none at the end. Waits while there are none. Cancelling loses nothing.
    ///
    /// # Errors
    /// The stream broke off.
    pub async fn read_chunks(&mut self) -> io::Result<Vec<Bytes>> {
        poll_fn(|context| self.poll_chunks(context)).await
    }

    /// Breaks the stream off, with a code for the far side.
    pub fn stop(&mut self, code: u32) {
        self.half.reset(code);
    }

    fn poll_chunks(&mut self, context: &Context<'_>) -> Poll<io::Result<Vec<Bytes>>> {
        let id = self.half.id;
        let mut chunks = Vec::new();
        if !self.rest.is_empty() {
            chunks.push(std::mem::take(&mut self.rest));
        }
        if self.half.has_ended {
            return Poll::Ready(Ok(chunks));
        }
        let ended = self.half.shared.with(|state| {
            loop {
                match state.machine.read(id) {
                    Ok(Some(Read::Data(data))) => chunks.push(data),
                    Ok(Some(Read::End)) => return Poll::Ready(Ok(true)),
                    Ok(None) if chunks.is_empty() => {
                        state.wait_to_read(id, context.waker());
                        return Poll::Pending;
                    }
                    Ok(None) => return Poll::Ready(Ok(false)),
                    Err(code) => return Poll::Ready(Err(failure(code))),
                }
            }
        });
        ended.map_ok(|has_ended| {
            self.half.has_ended = has_ended;
            chunks
        })
    }
}

impl AsyncRead for BundleReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.rest.is_empty() && !self.half.has_ended {
            let id = self.half.id;
            let read = self.half.shared.with(|state| match state.machine.read(id) {
                Ok(None) => {
                    state.wait_to_read(id, context.waker());
                    Poll::Pending
                }
                Ok(Some(read)) => Poll::Ready(Ok(read)),
                Err(code) => Poll::Ready(Err(failure(code))),
            });
            match read {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(Read::End)) => self.half.has_ended = true,
                Poll::Ready(Ok(Read::Data(data))) => self.rest = data,
            }
        }
        let length = self.rest.len().min(buffer.remaining());
        buffer.put_slice(self.rest.get(..length).unwrap_or_default());
        self.rest.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl Drop for BundleReader {
    fn drop(&mut self) {
        if !self.half.has_ended {
            let id = self.half.id;
            self.half.shared.with(|state| state.machine.discard(id));
        }
    }
}

impl BundleWriter {
    /// Breaks the stream off, with a code for the far side.
    pub fn reset(&mut self, code: u32) {
        self.half.reset(code);
    }

    /// Resolves when the stream breaks off.
    pub async fn stopped(&self) {
        let mut is_broken = self.is_broken.clone();
        // Its sender is gone where the stream ended well.
        if is_broken.wait_for(|is_broken| *is_broken).await.is_err() {
            std::future::pending().await
        }
    }
}

impl AsyncWrite for BundleWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.half.has_ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let id = self.half.id;
        let write = |state: &mut State| match state.machine.write(id, data) {
            Ok(0) if !data.is_empty() => {
                state.wait_to_write(id, context.waker());
                Poll::Pending
            }
            Ok(taken) => Poll::Ready(Ok(taken)),
            Err(code) => Poll::Ready(Err(failure(code))),
        };
        self.half.shared.with(write)
    }

    /// Written bytes leave by themselves.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.half.has_ended {
            return Poll::Ready(Ok(()));
        }
        self.half.has_ended = true;
        let id = self.half.id;
        let failed = self.half.shared.with(|state| {
            state.machine.finish(id);
            state.machine.failure(id)
        });
        Poll::Ready(failed.map_or(Ok(()), |code| Err(failure(code))))
    }
}

impl Drop for BundleWriter {
    fn drop(&mut self) {
        if !self.half.has_ended {
            self.half.reset(CODE_DROPPED);
        }
    }
}

impl Half {
    fn reset(&mut self, code: u32) {
        self.has_ended = true;
        self.shared.with(|state| state.machine.reset(self.id, code));
    }
}

impl DatagramFlow {
    pub(super) const fn new(shared: Arc<Shared>, id: FlowId, incoming: Inlet) -> Self {
        Self {
            shared,
            id,
            incoming,
        }
    }

    /// Sends datagrams to the far side; returns how many were dropped, and counted, since too many wait.
    pub fn send_all(&self, datagrams: impl Iterator<Item = Bytes>) -> usize {
        let now = super::now();
        self.shared.with(|state| {
            let is_open = state.is_open(self.id, self.incoming.of);
            let machine = &mut state.machine;
            if !is_open {
                let dropped = datagrams.count();
                machine.note_dropped(dropped);
                return dropped;
            }
            datagrams
                .filter(|datagram| !machine.send_datagram(now, self.id, datagram.clone()))
                .count()
        })
    }

    /// The next datagrams of the far side, in their order; `None` when it is silent for so long that it is forgotten. Cancelling
    /// loses nothing.
    pub async fn recv(&mut self) -> Option<Vec<Bytes>> {
        self.incoming.recv().await
    }
}

impl Drop for DatagramFlow {
    fn drop(&mut self) {
        self.shared.close_flow(self.id, self.incoming.of);
    }
}

fn failure(code: u32) -> io::Error {
    let (kind, why) = match code {
        CODE_UNKNOWN => (
            io::ErrorKind::ConnectionReset,
            "the far gateway does not know the stream: it has restarted",
        ),
        CODE_FULL => (
            io::ErrorKind::ConnectionRefused,
            "the far gateway has as many streams over bundles as it takes",
        ),
        CODE_LOST => (
            io::ErrorKind::TimedOut,
            "a bundle of the stream has expired on its way",
        ),
        CODE_SILENT => (
            io::ErrorKind::TimedOut,
            "nothing of the far gateway came for three lifetimes of a bundle",
        ),
        _ => return io::ErrorKind::ConnectionReset.into(),
    };
    io::Error::new(kind, why)
}
