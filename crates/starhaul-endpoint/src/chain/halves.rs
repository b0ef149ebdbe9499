//! Streams of a chain as tokio readers and writers.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};

use super::state::{ChainShared, StreamState};
use crate::bytes::CODE_DROPPED;

/// Bytes copied at once.
const MOST_AT_ONCE: usize = 64 << 10;

/// The reading half: `AsyncRead`. Dropped before the end, what comes is dropped too.
pub struct ChainReader(Half);

/// The writing half: `AsyncWrite`; `shutdown` finishes, dropping it unfinished resets the stream.
pub struct ChainWriter {
    half: Half,
    is_closed: watch::Receiver<bool>,
}

struct Half {
    shared: Arc<ChainShared>,
    key: u64,
    ended: bool,
}

/// Both halves of a stream that the state has.
pub(super) fn pair(shared: &Arc<ChainShared>, key: u64) -> (ChainReader, ChainWriter) {
    let half = || Half {
        shared: shared.clone(),
        key,
        ended: false,
    };
    let is_closed = {
        let state = shared.lock();
        let entry = state.entries.get(&key);
        let known = entry.map(|entry| entry.is_closed.subscribe());
        known.unwrap_or_else(|| watch::Sender::new(true).subscribe())
    };
    let writer = ChainWriter {
        half: half(),
        is_closed,
    };
    (ChainReader(half()), writer)
}

impl Half {
    fn with<T>(&self, act: impl FnOnce(&mut StreamState, usize) -> (T, bool)) -> io::Result<T> {
        let done = self.shared.with(self.key, act);
        done.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl ChainReader {
    /// The bytes that can be read now, uncopied; none at the end. Waits while there are none. Cancelling loses nothing.
    ///
    /// # Errors
    /// The stream broke off.
    pub async fn read_chunks(&mut self) -> io::Result<Vec<Bytes>> {
        poll_fn(|context| {
            self.poll_take(context, |entry| {
                entry.inbound_bytes = 0;
                std::mem::take(&mut entry.inbound).into()
            })
        })
        .await
    }

    /// Breaks the stream off, with a code for the far side.
    pub fn stop(&mut self, code: u32) {
        self.0.ended = true;
        let _ = self.0.with(|entry, _| {
            entry.reset.get_or_insert(code.into());
            ((), true)
        });
    }

    fn poll_take<T: Default>(
        &mut self,
        context: &Context<'_>,
        take: impl FnOnce(&mut StreamState) -> T,
    ) -> Poll<io::Result<T>> {
        if self.0.ended {
            return Poll::Ready(Ok(T::default()));
        }
        let taken = self.0.with(|entry, most| {
            if !entry.inbound.is_empty() {
                let taken = take(entry);
                // The driver waits for room only where there was none.
                let is_news = entry.is_full && entry.inbound_bytes < most;
                entry.is_full &= !is_news;
                return (Poll::Ready(Ok((taken, false))), is_news);
            }
            let step = match entry.failure() {
                Some(why) => Poll::Ready(Err(why)),
                None if entry.has_ended => Poll::Ready(Ok((T::default(), true))),
                None => entry.wait_to_read(context),
            };
            (step, false)
        })?;
        taken.map_ok(|(taken, ended)| {
            self.0.ended = ended;
            taken
        })
    }
}

impl ChainWriter {
    /// Breaks the stream off, with a code for the far side.
    pub fn reset(&mut self, code: u32) {
        self.half.ended = true;
        let _ = self.half.with(|entry, _| {
            entry.reset.get_or_insert(code.into());
            ((), true)
        });
    }

    /// Resolves when the stream broke off.
    pub async fn stopped(&self) {
        let mut is_closed = self.is_closed.clone();
        // Its sender is gone where the stream ended well.
        if is_closed.wait_for(|is_closed| *is_closed).await.is_err() {
            std::future::pending().await
        }
    }
}

impl AsyncRead for ChainReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        self.poll_take(context, |entry| {
            while buffer.remaining() > 0
                && let Some(chunk) = entry.inbound.front_mut()
            {
                let part = chunk.split_to(chunk.len().min(buffer.remaining()));
                if chunk.is_empty() {
                    entry.inbound.pop_front();
                }
                entry.inbound_bytes -= part.len();
                buffer.put_slice(&part);
            }
        })
    }
}

impl AsyncWrite for ChainWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.half.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let data = data.get(..MOST_AT_ONCE).unwrap_or(data);
        self.half.with(|entry, most| {
            if entry.outcome.is_some() {
                let why = entry.failure();
                let why = why.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into());
                return (Poll::Ready(Err(why)), false);
            }
            if entry.outbound_bytes >= most {
                return (entry.wait_to_write(context), false);
            }
            let data = data.get(..most).unwrap_or(data);
            entry.outbound_bytes += data.len();
            entry.outbound.push_back(Bytes::copy_from_slice(data));
            (Poll::Ready(Ok(data.len())), true)
        })?
    }

    /// Written bytes leave by themselves.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.half.ended {
            return Poll::Ready(Ok(()));
        }
        self.half.ended = true;
        let finished = self.half.with(|entry, _| {
            entry.is_finished = true;
            let failed = entry.failure();
            (failed.map_or(Ok(()), Err), true)
        });
        Poll::Ready(finished?)
    }
}

impl Drop for ChainReader {
    fn drop(&mut self) {
        if !self.0.ended {
            let _ = self.0.with(|entry, _| {
                entry.discards = true;
                entry.inbound.clear();
                entry.inbound_bytes = 0;
                ((), true)
            });
        }
        self.0.shared.release(self.0.key);
    }
}

impl Drop for ChainWriter {
    fn drop(&mut self) {
        if !self.half.ended {
            self.reset(CODE_DROPPED);
        }
        self.half.shared.release(self.half.key);
    }
}

impl std::fmt::Debug for ChainReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ChainReader").field(&self.0.key).finish()
    }
}

impl std::fmt::Debug for ChainWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ChainWriter").field(&self.half.key).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_each_may_have_little_a_long_write_does_not_wait_here_as_a_whole() {
        let poller = starhaul_net::Poller::new().unwrap();
        let shared = Arc::new(ChainShared::new(poller.waker(), 0));
        let key = shared.lock().add();
        let (_reader, mut writer) = pair(&shared, key);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let data = vec![1_u8; MOST_AT_ONCE];
        let mut written = 0;
        while let Poll::Ready(taken) = Pin::new(&mut writer).poll_write(&mut context, &data) {
            written += taken.unwrap();
        }
        let most = shared.lock().most_waiting();
        assert!((most..2 * most).contains(&written), "{written}, not {most}");
    }
}
