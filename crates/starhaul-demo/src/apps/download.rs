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
const SIZE_LIMIT: u64 = 4 << 30;
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
    /// They are exactly the bytes that the server sent, and the end came where the server ended.
    pub sha256_ok: bool,
    /// Their rate from the request to the last byte.
    pub mbit_per_s: f64,
}

/// An HTTP server that answers every request with random bytes for a limited time. It stops when dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    seed: u64,
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
            sent,
            task,
        })
    }

    /// Where it listens.
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
        let mut body = Body::default();
        let mut buffer = vec![0; CHUNK];
        while let Ok(Ok(length)) = timeout_at(give_up.into(), stream.read(&mut buffer)).await {
            if length == 0 {
                body.ended = true;
                break;
            }
            body.push(&buffer[..length]);
            progress.store(body.bytes, Ordering::Relaxed);
            body.last_byte = Some(Instant::now());
        }
        Ok(self.score(body, started))
    }

    fn score(&self, body: Body, started: Instant) -> DownloadScore {
        let right_end = !body.ended || body.bytes == self.sent.load(Ordering::Relaxed);
        let elapsed = body.last_byte.map_or(Duration::ZERO, |last| {
            last.saturating_duration_since(started)
        });
        DownloadScore {
            bytes: body.bytes,
            sha256_ok: body.bytes > 0
                && right_end
                && body.digest.finalize() == digest(self.seed, body.bytes),
            mbit_per_s: if body.bytes == 0 {
                0.0
            } else {
                mbit_per_s(body.bytes, elapsed)
            },
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The answer as far as it has come.
#[derive(Default)]
struct Body {
    /// The header as far as it has come, while the body has not begun.
    header: Vec<u8>,
    begun: bool,
    bytes: u64,
    digest: Sha256,
    ended: bool,
    last_byte: Option<Instant>,
}

impl Body {
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
    while Instant::now() < end && written < SIZE_LIMIT {
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

fn digest(seed: u64, bytes: u64) -> sha2::digest::Output<Sha256> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut chunk = vec![0; CHUNK];
    let mut digest = Sha256::new();
    let mut left = bytes;
    while left > 0 {
        random.fill_bytes(&mut chunk);
        let take = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
        digest.update(&chunk[..take]);
        left -= take as u64;
    }
    digest.finalize()
}

#[expect(clippy::cast_precision_loss, reason = "a display value")]
fn mbit_per_s(bytes: u64, elapsed: Duration) -> f64 {
    let rate = bytes as f64 * 8.0 / 1e6 / elapsed.as_secs_f64().max(1e-3);
    (rate * 100.0).round() / 100.0
}
