//! The end that serves transfers, and what both ends do with a stream.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use starhaul_endpoint::{
    ByteReader, ByteStream, ByteWriter, ControllerConfig, Endpoint, EndpointConfig, IncomingStream,
    Session,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::{
    PACKET_BYTES, Secret, Tally, Toward, client::failed, request::Request, tally::Counter,
};
use crate::Error;

/// Written at once.
const CHUNK_BYTES: usize = 64 << 10;
/// The end of a transfer: what has not arrived by now no longer counts.
const OVER: u32 = 1;
/// A client that is silent for so long after its time has gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server of transfers.
#[derive(Debug)]
pub struct Server {
    endpoint: Endpoint,
}

impl Server {
    /// Listens; what it sends is governed by `controller`.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn bind(
        listen: SocketAddr,
        secret: &Secret,
        controller: ControllerConfig,
    ) -> Result<Self, Error> {
        let endpoint = Endpoint::bind(EndpointConfig {
            trusted: vec![secret.client().public_key()],
            listen: vec![listen],
            accept_controller: controller,
            packet_bytes: PACKET_BYTES,
            sure_packet_bytes: PACKET_BYTES,
            ..EndpointConfig::new(secret.server())
        })
        .await?;
        Ok(Self { endpoint })
    }

    /// Where it listens, with the port that the kernel chose.
    pub fn address(&self) -> Option<SocketAddr> {
        self.endpoint.listen_addresses().first().copied()
    }

    /// Serves whoever comes until the endpoint ends.
    pub async fn run(self) {
        while let Some(session) = self.endpoint.accept().await {
            tokio::spawn(serve_session(Arc::new(session)));
        }
    }
}

async fn serve_session(session: Arc<Session>) {
    while let Some(stream) = session.accept_stream().await {
        let IncomingStream::Bytes(stream) = stream else {
            continue;
        };
        tokio::spawn(async move {
            if let Err(error) = serve(stream).await {
                tracing::warn!(%error, "a transfer ended early");
            }
        });
    }
}

async fn serve(stream: ByteStream) -> Result<(), Error> {
    let request = Request::parse(stream.label())?;
    let (mut reader, mut writer) = stream.into_split();
    match request.toward {
        Toward::Client => fill(&mut writer, Instant::now() + request.time()).await,
        Toward::Server => {
            let limit = Instant::now() + request.time() + PATIENCE;
            let tally = read_all(&mut reader, request.time(), limit).await?;
            let told = serde_json::to_vec(&tally).map_err(|error| failed(error.to_string()))?;
            let told = async {
                writer.write_all(&told).await?;
                writer.shutdown().await
            };
            told.await.map_err(Error::io("the client went away"))
        }
    }
}

/// Writes until the time is over, and takes back what has not arrived then.
pub(super) async fn fill(writer: &mut ByteWriter, until: Instant) -> Result<(), Error> {
    let chunk = vec![0; CHUNK_BYTES];
    let write = async {
        loop {
            writer.write_all(&chunk).await?;
            // Whoever always finds room must leave the other tasks a turn.
            tokio::task::yield_now().await;
        }
        #[expect(unreachable_code, reason = "names the error's type")]
        Ok::<(), io::Error>(())
    };
    match tokio::time::timeout_at(until.into(), write).await {
        Ok(ended) => ended.map_err(Error::io("the receiver went away"))?,
        Err(_) => writer.reset(OVER),
    }
    Ok(())
}

/// Reads until the sender says that the time is over.
pub(super) async fn read_all(
    reader: &mut ByteReader,
    time: Duration,
    limit: Instant,
) -> Result<Tally, Error> {
    let mut counter = Counter::new(time);
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let left = limit.saturating_duration_since(Instant::now());
        match timeout(left, reader.read(&mut buffer)).await {
            Err(_) => return Err(failed("the sender does not end")),
            Ok(Ok(0)) => break,
            Ok(Ok(bytes)) => counter.add(Instant::now(), bytes),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Ok(Err(error)) => return Err(Error::io("the sender went away")(error)),
        }
    }
    Ok(counter.finish())
}
