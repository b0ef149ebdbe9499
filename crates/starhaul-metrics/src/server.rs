//! The server, for reading alone. A client costs at most a connection of bounded buffers for a bounded time.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use http_body_util::Either;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use starhaul_log::Seldom;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::{AbortHandle, JoinSet},
};
use tokio_io_timeout::TimeoutStream;

use crate::{Site, request::answer};

/// Connections at once; one more takes the place of the oldest that follows no events.
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
        let mut clients = Clients::default();
        let log = Seldom::default();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some(_) = clients.tasks.join_next() => continue,
            };
            match accepted {
                Ok((client, _)) => {
                    let is_local = self.address.ip().is_loopback();
                    clients.make_room().await;
                    let follows = Arc::<AtomicBool>::default();
                    let served = serve_client(client, site.clone(), is_local, follows.clone());
                    let task = clients.tasks.spawn(served);
                    clients.present.push(Client { task, follows });
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

/// The clients that are connected.
#[derive(Default)]
struct Clients {
    tasks: JoinSet<io::Result<()>>,
    /// The oldest first.
    present: Vec<Client>,
}

struct Client {
    task: AbortHandle,
    /// Its answer is one of events.
    follows: Arc<AtomicBool>,
}

impl Clients {
    /// Ends the oldest connection where there are as many as may be, so that idle clients do not shut others out.
    async fn make_room(&mut self) {
        // Those that have ended have no place any more.
        while self.tasks.try_join_next().is_some() {}
        self.present.retain(|client| !client.task.is_finished());
        while self.tasks.len() >= MAX_CONNECTIONS {
            let mut clients = self.present.iter();
            let oldest = clients.position(|client| !client.follows.load(Ordering::Relaxed));
            if let Some(oldest) = oldest {
                self.present.remove(oldest).task.abort();
            }
            self.tasks.join_next().await;
        }
    }
}

async fn serve_client(
    client: TcpStream,
    site: Arc<impl Site>,
    is_local: bool,
    follows: Arc<AtomicBool>,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut client = TimeoutStream::new(client);
    client.set_write_timeout(Some(STUCK_TIME));
    let service = service_fn(|request| {
        let (site, follows) = (site.clone(), follows.clone());
        async move {
            let answer = answer(&*site, is_local, &request).into_response();
            follows.store(matches!(answer.body(), Either::Right(_)), Ordering::Relaxed);
            Ok::<_, std::convert::Infallible>(answer)
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::{Answer, Events};

    #[derive(Default)]
    struct Followed(Arc<Mutex<Vec<Events>>>);

    impl Site for Followed {
        fn answer(&self, path: &str) -> Option<Answer> {
            if path != "/events" {
                return Some(Answer::metrics(Bytes::from_static(b"# EOF\n")));
            }
            let (events, answer) = Answer::events();
            self.0.lock().push(events);
            Some(answer)
        }

        fn places(&self) -> &'static str {
            "/events"
        }
    }

    async fn begin(address: SocketAddr, request: &str) -> TcpStream {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        client
    }

    async fn rest(mut client: TcpStream) -> String {
        let mut got = Vec::new();
        // One that is thrown out may be reset.
        let _ = client.read_to_end(&mut got).await;
        String::from_utf8(got).unwrap()
    }

    #[tokio::test]
    async fn connections_that_stay_for_nothing_shut_nobody_out() {
        let site = Followed::default();
        let followers = site.0.clone();
        let server = Server::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = server.address();
        let server = tokio::spawn(server.serve(site));
        let mut follower = begin(address, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        let mut head = [0; 12];
        follower.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        let mut idle = Vec::new();
        for _ in 1..MAX_CONNECTIONS {
            idle.push(begin(address, "GET / HTTP/1.1\r\nHost: ").await);
        }
        let end = "localhost\r\nConnection: close\r\n\r\n";
        let request = format!("GET / HTTP/1.1\r\nHost: {end}");
        let answer = rest(begin(address, &request).await).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // The oldest has made room, not the youngest, and not who follows events.
        let mut youngest = idle.pop().unwrap();
        youngest.write_all(end.as_bytes()).await.unwrap();
        let answer = rest(youngest).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(rest(idle.remove(0)).await, "");
        let mut events = followers.lock().pop().unwrap();
        events.send(Bytes::from_static(b"news")).await.unwrap();
        drop(events);
        let told = rest(follower).await;
        assert!(told.contains("news"), "{told}");
        server.abort();
    }

    #[tokio::test]
    async fn a_connection_that_has_ended_costs_no_other_its_place() {
        let mut clients = Clients::default();
        for number in 0..MAX_CONNECTIONS {
            let task = clients.tasks.spawn(async move {
                if number > 0 {
                    std::future::pending::<()>().await;
                }
                Ok(())
            });
            let follows = Arc::default();
            clients.present.push(Client { task, follows });
        }
        while !clients.present[0].task.is_finished() {
            tokio::task::yield_now().await;
        }
        clients.make_room().await;
        assert_eq!(clients.present.len(), MAX_CONNECTIONS - 1);
    }
}
