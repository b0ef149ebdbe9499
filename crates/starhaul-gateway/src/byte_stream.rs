//! A byte stream to the far gateway, whatever carries it.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf as _, Bytes, BytesMut};
use starhaul_dtn_client::carriage::{BundleReader, BundleWriter};
use starhaul_endpoint::{ByteReader, ByteStream, ByteWriter, ChainReader, ChainWriter};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use crate::room::Fits;

/// Bytes from the far gateway.
pub(crate) enum Reader {
    Session(ByteReader),
    Chain(ChainReader),
    Bundles(BundleReader),
}

/// Bytes to the far gateway.
pub(crate) enum Writer {
    Session(ByteWriter),
    Chain(ChainWriter),
    Bundles(BundleWriter),
}

/// Both halves of a stream of a session.
pub(crate) fn of_session(stream: ByteStream) -> (Reader, Writer) {
    let (reader, writer) = stream.into_split();
    (Reader::Session(reader), Writer::Session(writer))
}

/// Both halves of a stream of a chain.
pub(crate) fn of_chain((reader, writer): (ChainReader, ChainWriter)) -> (Reader, Writer) {
    (Reader::Chain(reader), Writer::Chain(writer))
}

/// Both halves of a stream over bundles.
pub(crate) fn of_bundles(reader: BundleReader, writer: BundleWriter) -> (Reader, Writer) {
    (Reader::Bundles(reader), Writer::Bundles(writer))
}

impl Reader {
    /// The bytes that can be read now; none at the end. Cancelling loses nothing.
    ///
    /// # Errors
    /// The far side reset the stream, or what carries it has ended.
    pub(crate) async fn read_chunks(&mut self) -> io::Result<Vec<Bytes>> {
        match self {
            Self::Session(reader) => reader.read_chunks().await,
            Self::Chain(reader) => reader.read_chunks().await,
            Self::Bundles(reader) => reader.read_chunks().await,
        }
    }

    /// The same, but not more than fits.
    ///
    /// # Errors
    /// As [`Reader::read_chunks`].
    pub(crate) async fn read_fitting(&mut self, fits: Fits) -> io::Result<Vec<Bytes>> {
        let Fits::Some(most) = fits else {
            return self.read_chunks().await;
        };
        if let Self::Session(reader) = self {
            return reader.read_chunks_within(most).await;
        }
        poll_fn(|context| {
            // For this moment alone: a connection that waits for bytes holds no buffer.
            let mut bytes = BytesMut::with_capacity(most);
            let read = pin!(self.read_buf(&mut bytes)).poll(context);
            read.map_ok(|read| match read {
                0 => Vec::new(),
                _ => vec![bytes.freeze()],
            })
        })
        .await
    }

    /// Asks the far side to stop sending.
    pub(crate) fn stop(&mut self, code: u32) {
        match self {
            Self::Session(reader) => reader.stop(code),
            Self::Chain(reader) => reader.stop(code),
            Self::Bundles(reader) => reader.stop(code),
        }
    }
}

impl Writer {
    /// Writes as many bytes as there is room for, which `data` loses; waits while there is no room. Cancelling loses nothing.
    ///
    /// # Errors
    /// The far side reads no more, or what carries the stream has ended.
    pub(crate) async fn write_chunk(&mut self, data: &mut Bytes) -> io::Result<usize> {
        if let Self::Session(writer) = self {
            return writer.write_chunk(data).await;
        }
        let written = self.write(data).await?;
        data.advance(written);
        Ok(written)
    }

    /// Abandons this direction.
    pub(crate) fn reset(&mut self, code: u32) {
        match self {
            Self::Session(writer) => writer.reset(code),
            Self::Chain(writer) => writer.reset(code),
            Self::Bundles(writer) => writer.reset(code),
        }
    }

    /// How long what was sent may be on its way: hours between contacts of bundle nodes.
    pub(crate) const fn longest_on_its_way(&self) -> Duration {
        match self {
            Self::Session(_) | Self::Chain(_) => Duration::from_secs(3_600),
            Self::Bundles(_) => Duration::from_secs(86_400),
        }
    }

    /// Resolves when the far side reads no more.
    pub(crate) async fn stopped(&self) {
        match self {
            Self::Session(writer) => drop(writer.stopped().await),
            Self::Chain(writer) => writer.stopped().await,
            Self::Bundles(writer) => writer.stopped().await,
        }
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Session(reader) => Pin::new(reader).poll_read(context, buffer),
            Self::Chain(reader) => Pin::new(reader).poll_read(context, buffer),
            Self::Bundles(reader) => Pin::new(reader).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Writer {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Session(writer) => Pin::new(writer).poll_write(context, data),
            Self::Chain(writer) => Pin::new(writer).poll_write(context, data),
            Self::Bundles(writer) => Pin::new(writer).poll_write(context, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Session(writer) => Pin::new(writer).poll_flush(context),
            Self::Chain(writer) => Pin::new(writer).poll_flush(context),
            Self::Bundles(writer) => Pin::new(writer).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Session(writer) => Pin::new(writer).poll_shutdown(context),
            Self::Chain(writer) => Pin::new(writer).poll_shutdown(context),
            Self::Bundles(writer) => Pin::new(writer).poll_shutdown(context),
        }
    }
}
