//! The end that serves transfers.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use starhaul_endpoint::{
    ByteStream, ControllerConfig, Endpoint, EndpointConfig, IncomingStream, Session,
};
use tokio::io::AsyncWriteExt as _;

use super::{
    Secret, Toward,
    bulk::{failed, fill, read_all},
    request::Request,
};
use crate::Error;

/// A client that is silent for so long after its time has gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server of transfers.
#[derive(Debug)]
pub struct Server {
    endpoint: Endpoint,
}

impl Server {
    /// Listens; what it sends is governed by `controller`, in packets of this UDP payload.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn bind(
        listen: SocketAddr,
        secret: &Secret,
        controller: ControllerConfig,
        packet_bytes: u16,
    ) -> Result<Self, Error> {
        let endpoint = Endpoint::bind(EndpointConfig {
            trusted: vec![secret.client().public_key()],
            listen: vec![listen],
            accept_controller: controller,
            packet_bytes,
            sure_packet_bytes: packet_bytes,
            ..EndpointConfig::new(secret.server())
        })
        .await?;
        Ok(Self { endpoint })
    }

    /// Where it listens, with the port that the kernel chose.
    pub fn address(&self) -> Option<SocketAddr> {
        self.endpoint.listen_addresses().first().copied()
    }

    /// Serves all sessions until the endpoint ends.
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
