//! One bulk TCP download through a SOCKS5 proxy (RFC 1928) from a small built-in HTTP server of seeded random bytes.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinHandle,
    time::{timeout, timeout_at},
};

use crate::Error;

const CHUNK: usize = 64 << 10;
/// Small, so that little remains to be carried when the server stops.
const SEND_BUFFER: u32 = 128 << 10;
const REQUEST_LIMIT: usize = 1_024;
const RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nConnection: close\r\n\r\n";
/// What a proxy may take to reach the server over the slowest path.
const SET_UP_LIMIT: Duration = Duration::from_secs(15);

/// The result of a download.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DownloadScore {
    /// Bytes of the body that arrived.
    pub bytes: u64,
    /// They are exactly the bytes that the server sent, and the end, if it came, came in order and where the server ended.
    pub sha256_ok: bool,
    /// Their rate from the request to the last byte, or to the time until which the server offered them if that is later.
    pub mbit_per_s: f64,
    /// Why the connection ended before the server did.
    #[serde(skip)]
    pub failure: Option<String>,
}

/// An HTTP server that answers every request with random bytes for a limited time. It stops when dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    seed: u64,
    duration: Duration,
    sent: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens on a loopback port; each answer lasts `duration` from its request on, and ends in order. Needs a tokio runtime.
    pub fn start(seed: u64, duration: Duration) -> Result<Self, Error> {
        let listener = listen().map_err(Error::io("listen on 127.0.0.1"))?;
        let address = listener
            .local_addr()
            .map_err(Error::io("ask a listener for its address"))?;
        let sent = Arc::new(AtomicU64::new(0));
        let counter = sent.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let counter = counter.clone();
                tokio::spawn(async move {
                    if let Err(error) = serve(stream, seed, duration, &counter).await {
                        tracing::debug!(%error, "a download ended early");
                    }
                });
            }
        });
        Ok(Self {
            address,
            seed,
            duration,
            sent,
            task,
        })
    }

    /// The address at which the server listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Downloads from this server through the SOCKS5 proxy, until the end or until `give_up`. `progress` counts the bytes.
    pub async fn download(
        &self,
        proxy: SocketAddr,
        give_up: Instant,
        progress: &AtomicU64,
    ) -> Result<DownloadScore, Error> {
        let started = Instant::now();
        let mut stream = timeout(SET_UP_LIMIT, connect(proxy, self.address))
            .await
            .map_err(|_| {
                Error::Failed(format!(
                    "the proxy {proxy} did not reach the server within {SET_UP_LIMIT:?}"
                ))
            })?
            .map_err(Error::io(format!("download through the proxy {proxy}")))?;
        let mut body = Body::new(self.seed);
        let mut buffer = vec![0; CHUNK];
        let end = loop {
            match timeout_at(give_up.into(), stream.read(&mut buffer)).await {
                Err(_) => break End::CutOff,
                Ok(Err(error)) => break End::Broken(error),
                Ok(Ok(0)) => break End::InOrder,
                Ok(Ok(length)) => body.push(&buffer[..length]),
            }
            progress.store(body.bytes, Ordering::Relaxed);
            body.last_byte = Some(Instant::now());
        };
        Ok(self.score(body, &end, started))
    }

    fn score(&self, body: Body, end: &End, started: Instant) -> DownloadScore {
        let (bytes, sent) = (body.bytes, self.sent.load(Ordering::Relaxed));
        let failure = match end {
            End::Broken(error) => Some(format!("{error}, after {bytes} bytes")),
            End::InOrder if bytes != sent => {
                Some(format!("it ended after {bytes} of {sent} bytes"))
            }
            End::InOrder | End::CutOff => None,
        };
        let last_byte = body.last_byte.unwrap_or(started);
        // What a stall cost counts too.
        let elapsed = (last_byte - started).max(self.duration);
        DownloadScore {
            bytes,
            sha256_ok: bytes > 0 && failure.is_none() && body.equals_what_was_sent(),
            mbit_per_s: mbit_per_s(bytes, elapsed),
            failure,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The reason for which a download ends.
enum End {
    /// The time was over.
    CutOff,
    InOrder,
    Broken(std::io::Error),
}

/// The answer as far as it has come.
struct Body {
    /// The header as far as it has come, while the body has not begun.
    header: Vec<u8>,
    begun: bool,
    bytes: u64,
    digest: Sha256,
    expected: Expected,
    last_byte: Option<Instant>,
}

/// What the server sends, as far as the body has come.
struct Expected {
    random: ChaCha8Rng,
    chunk: Vec<u8>,
    used: usize,
    digest: Sha256,
}

impl Expected {
    fn advance(&mut self, mut bytes: usize) {
        while bytes > 0 {
            if self.used == self.chunk.len() {
                self.random.fill_bytes(&mut self.chunk);
                self.used = 0;
            }
            let next = &self.chunk[self.used..];
            let next = &next[..next.len().min(bytes)];
            self.digest.update(next);
            self.used += next.len();
            bytes -= next.len();
        }
    }
}

impl Body {
    fn new(seed: u64) -> Self {
        Self {
            header: Vec::new(),
            begun: false,
            bytes: 0,
            digest: Sha256::new(),
            expected: Expected {
                random: ChaCha8Rng::seed_from_u64(seed),
                chunk: vec![0; CHUNK],
                used: CHUNK,
                digest: Sha256::new(),
            },
            last_byte: None,
        }
    }

    fn equals_what_was_sent(self) -> bool {
        self.digest.finalize() == self.expected.digest.finalize()
    }

    fn push(&mut self, data: &[u8]) {
        if self.begun {
            return self.push_body(data);
        }
        self.header.extend_from_slice(data);
        if let Some(end) = self.header.windows(4).position(|four| four == b"\r\n\r\n") {
            self.begun = true;
            let first = self.header.split_off(end + 4);
            self.push_body(&first);
        }
    }

    fn push_body(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        self.digest.update(data);
        self.expected.advance(data.len());
    }
}

fn listen() -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    socket.listen(8)
}

async fn serve(
    mut stream: TcpStream,
    seed: u64,
    duration: Duration,
    sent: &AtomicU64,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") && request.len() < REQUEST_LIMIT {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    stream.write_all(RESPONSE).await?;
    let end = Instant::now() + duration;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut chunk = vec![0; CHUNK];
    let mut written = 0;
    while Instant::now() < end {
        random.fill_bytes(&mut chunk);
        stream.write_all(&chunk).await?;
        written += chunk.len() as u64;
        sent.store(written, Ordering::Relaxed);
    }
    stream.shutdown().await
}

/// Connects to `server` through a SOCKS5 proxy without authentication and asks for the bytes.
async fn connect(proxy: SocketAddr, server: SocketAddr) -> std::io::Result<TcpStream> {
    let refused = |what: &str| std::io::Error::other(format!("the SOCKS5 proxy {what}"));
    let SocketAddr::V4(target) = server else {
        return Err(refused("is asked for an IPv6 server"));
    };
    let mut stream = TcpStream::connect(proxy).await?;
    stream.write_all(&[5, 1, 0]).await?;
    let mut method = [0; 2];
    stream.read_exact(&mut method).await?;
    if method != [5, 0] {
        return Err(refused("wants authentication"));
    }
    let mut request = vec![5, 1, 0, 1];
    request.extend(target.ip().octets());
    request.extend(target.port().to_be_bytes());
    stream.write_all(&request).await?;
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).await?;
    if reply[1] != 0 {
        return Err(refused(&format!("answered with code {}", reply[1])));
    }
    let bound_bytes = match reply[3] {
        1 => 6,
        4 => 18,
        other => return Err(refused(&format!("answered with address type {other}"))),
    };
    stream.read_exact(&mut vec![0; bound_bytes]).await?;
    stream
        .write_all(
            format!("GET /random HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n")
                .as_bytes(),
        )
        .await?;
    Ok(stream)
}

#[expect(clippy::cast_precision_loss, reason = "a display value")]
fn mbit_per_s(bytes: u64, elapsed: Duration) -> f64 {
    let rate = bytes as f64 * 8.0 / 1e6 / elapsed.as_secs_f64().max(1e-3);
    (rate * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;

    use super::*;

    const OFFERED: Duration = Duration::from_secs(3);

    /// What a proxy does to a download.
    #[derive(Clone, Copy)]
    enum Deed {
        /// Resets the connection after so many bytes.
        Reset(usize),
        /// Ends it in order after so many bytes.
        Close(usize),
        /// Carries nothing more from then on, but keeps it.
        Stall(Duration),
    }

    async fn proxy(deed: Deed) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { carry(listener.accept().await.unwrap().0, deed).await });
        address
    }

    async fn carry(mut client: TcpStream, deed: Deed) {
        let begun = Instant::now();
        let (mut greeting, mut request) = ([0; 3], [0; 10]);
        client.read_exact(&mut greeting).await.unwrap();
        client.write_all(&[5, 0]).await.unwrap();
        client.read_exact(&mut request).await.unwrap();
        let port = u16::from_be_bytes([request[8], request[9]]);
        let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .unwrap();
        let answer = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        client.write_all(&answer).await.unwrap();
        let (mut asked, mut buffer, mut carried) = (vec![0; 1_024], vec![0; CHUNK], 0);
        let length = client.read(&mut asked).await.unwrap();
        server.write_all(&asked[..length]).await.unwrap();
        loop {
            let length = server.read(&mut buffer).await.unwrap();
            client.write_all(&buffer[..length]).await.unwrap();
            carried += length;
            match deed {
                Deed::Reset(bytes) if carried >= bytes => {
                    // What was sent must have been read before the reset throws it away.
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    let reset = Some(Duration::ZERO);
                    return SockRef::from(&client).set_linger(reset).unwrap();
                }
                Deed::Close(bytes) if carried >= bytes => return,
                Deed::Stall(after) if begun.elapsed() >= after => {
                    return tokio::time::sleep(2 * OFFERED).await;
                }
                Deed::Reset(_) | Deed::Close(_) | Deed::Stall(_) => {}
            }
            // Some 10 Mbit/s.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn download(deed: Deed) -> DownloadScore {
        let server = Server::start(1, OFFERED).unwrap();
        let give_up = Instant::now() + OFFERED + Duration::from_millis(500);
        let proxy = proxy(deed).await;
        let progress = AtomicU64::new(0);
        server.download(proxy, give_up, &progress).await.unwrap()
    }

    fn over_all_the_time(score: &DownloadScore) -> bool {
        let most = mbit_per_s(score.bytes, OFFERED);
        score.bytes > 500_000 && score.mbit_per_s > 0.0 && score.mbit_per_s <= most
    }

    #[tokio::test]
    async fn a_download_that_is_reset_is_not_intact_and_says_so() {
        let score = download(Deed::Reset(1_000_000)).await;
        assert!(!score.sha256_ok && over_all_the_time(&score), "{score:?}");
        let failure = score.failure.unwrap();
        assert!(
            failure.contains("reset") && failure.contains("bytes"),
            "{failure}"
        );
    }

    #[tokio::test]
    async fn one_that_ends_before_the_server_does_is_not_intact() {
        let score = download(Deed::Close(1_000_000)).await;
        assert!(!score.sha256_ok && over_all_the_time(&score), "{score:?}");
        let failure = score.failure.unwrap();
        assert!(
            failure.contains("it ended after") || failure.contains("reset"),
            "{failure}"
        );
    }

    #[tokio::test]
    async fn one_that_stalls_has_no_more_than_came_in_all_the_time() {
        let score = download(Deed::Stall(Duration::from_secs(2))).await;
        assert!(score.sha256_ok && score.failure.is_none(), "{score:?}");
        assert!(over_all_the_time(&score), "{score:?}");
    }
}
