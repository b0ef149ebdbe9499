//! The server, for reading alone. A client costs at most a connection of bounded buffers for a bounded time.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use starhaul_log::Seldom;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinSet,
};
use tokio_io_timeout::TimeoutStream;

use crate::{Site, request::answer};

/// Connections at once; more wait in the kernel.
const MAX_CONNECTIONS: usize = 32;
/// Time for a request to arrive, counted from the connection or from the request before.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// A client that takes nothing of its answer for so long is disconnected.
const STUCK_TIME: Duration = Duration::from_secs(5);
/// Bytes of a request's head, which is also hyper's least buffer.
const MAX_HEAD_BYTES: usize = 8192;
const MAX_HEADERS: usize = 64;

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Binds this address.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// The address, with the port that the kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until dropped.
    pub async fn serve(self, site: impl Site) {
        let site = Arc::new(site);
        let mut clients = JoinSet::new();
        let log = Seldom::default();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept(), if clients.len() < MAX_CONNECTIONS => accepted,
                Some(_) = clients.join_next() => continue,
            };
            match accepted {
                Ok((client, _)) => {
                    let is_local = self.address.ip().is_loopback();
                    clients.spawn(serve_client(client, site.clone(), is_local));
                }
                Err(error) => {
                    site.note_refused(&error);
                    if let Some(others) = log.is_due(Instant::now()) {
                        tracing::warn!(%error, others, "the server of metrics cannot accept");
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn serve_client(client: TcpStream, site: Arc<impl Site>, is_local: bool) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut client = TimeoutStream::new(client);
    client.set_write_timeout(Some(STUCK_TIME));
    let service = service_fn(|request| {
        let site = site.clone();
        async move {
            let answer = answer(&*site, is_local, &request);
            Ok::<_, std::convert::Infallible>(answer.into_response())
        }
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

/// A server on a thread of its own, for a program without a runtime; it ends when this is dropped.
#[derive(Debug)]
pub struct Background {
    address: SocketAddr,
    _end: oneshot::Sender<()>,
}

impl Background {
    /// Binds this address and answers there.
    ///
    /// # Errors
    /// Those of the socket and of the thread.
    pub fn start(address: SocketAddr, site: impl Site) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let server = runtime.block_on(Server::bind(address))?;
        let address = server.address();
        let (end, ended) = oneshot::channel();
        let serve = async {
            tokio::select! {
                () = server.serve(site) => {}
                _ = ended => {}
            }
        };
        std::thread::Builder::new()
            .name("starhaul-metrics".to_owned())
            .spawn(move || runtime.block_on(serve))?;
        Ok(Self { address, _end: end })
    }

    /// The address, with the port that the kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
