//! Metrics and the live page over HTTP, for reading alone. A client costs at most a connection of bounded buffers for a
//! bounded time, and however often clients ask, the gateway's status is taken five times a second at most.

mod answer;
mod metrics;
mod snapshots;

use std::{io, net::SocketAddr, sync::Arc, time::Duration, time::Instant};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_io_timeout::TimeoutStream;

use self::answer::Site;
use crate::{Error, limits::Seldom, shared::Shared};

/// Connections at once; more wait in the kernel.
const MAX_CONNECTIONS: usize = 32;
/// Time for a request to arrive, counted from the connection or from the request before.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// A client that takes nothing of its answer for so long is disconnected.
const STUCK_TIME: Duration = Duration::from_secs(5);
/// Bytes of a request's head, which is also hyper's least buffer.
const MAX_HEAD_BYTES: usize = 8192;
const MAX_HEADERS: usize = 64;

/// The listening server.
#[derive(Debug)]
pub(crate) struct WebServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl WebServer {
    /// Binds the configured address.
    pub(crate) async fn bind(address: SocketAddr) -> Result<Self, Error> {
        let bound = TcpListener::bind(address).await.and_then(|listener| {
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        });
        bound.map_err(|reason| Error::Metrics { address, reason })
    }

    /// The address, with the port that the kernel chose.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until dropped.
    pub(crate) async fn serve(self, shared: Arc<Shared>) {
        let site = Arc::new(Site::new(shared.clone(), self.address));
        let mut clients = JoinSet::new();
        let log = Seldom::default();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept(), if clients.len() < MAX_CONNECTIONS => accepted,
                Some(_) = clients.join_next() => continue,
            };
            match accepted {
                Ok((client, _)) => {
                    clients.spawn(serve_client(client, site.clone()));
                }
                Err(error) => {
                    shared.seen.outlet.limits.note_io("metrics", &error);
                    if log.is_due(Instant::now()).is_some() {
                        tracing::warn!(%error, "the server of metrics cannot accept");
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn serve_client(client: TcpStream, site: Arc<Site>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut client = TimeoutStream::new(client);
    client.set_write_timeout(Some(STUCK_TIME));
    let service = service_fn(|request| {
        let site = site.clone();
        async move { Ok::<_, std::convert::Infallible>(site.answer(&request)) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(Box::pin(client)), service)
        .await;
    // A client that breaks off or sends no HTTP concerns itself alone.
    served.map_err(io::Error::other)
}
