//! Two TCP relays in a row that copy in user space and do nothing else, the first of them as a SOCKS5 server: the least that two
//! gateways cost which copy there, too.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional_with_sizes},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};

use crate::{Contender, connections, gateways, stream};

/// Bytes that a relay of short connections copies at once; each connection has memory of its own for them.
pub(crate) const SHORT_BYTES: usize = 16 << 10;

/// One connection through them.
pub(crate) struct Relays {
    runtime: Runtime,
    connections: Vec<(TcpStream, TcpStream)>,
}

impl Relays {
    pub(crate) fn new() -> Self {
        let runtime = stream::runtime();
        let connection = runtime.block_on(async {
            let proxy = start(stream::CHUNK_BYTES).await;
            let application = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let target = application.local_addr().unwrap();
            let (sender, accepted) = tokio::join!(
                connections::connect(Some(proxy), target),
                application.accept()
            );
            (sender, accepted.unwrap().0)
        });
        Self {
            runtime,
            connections: vec![connection],
        }
    }
}

impl Contender for Relays {
    fn transfer(&mut self, bytes: u64) {
        gateways::carry(&self.runtime, &mut self.connections, bytes);
    }
}

/// Starts both on the present runtime; returns the address of the first.
pub(crate) async fn start(copied_at_once: usize) -> SocketAddr {
    let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let second = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let [address, next] = [&first, &second].map(|listener| listener.local_addr().unwrap());
    tokio::spawn(serve(first, move |tcp| begin(tcp, next, copied_at_once)));
    tokio::spawn(serve(second, move |tcp| end(tcp, copied_at_once)));
    address
}

async fn serve<F>(listener: TcpListener, relay: impl Fn(TcpStream) -> F)
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        tokio::spawn(relay(tcp));
    }
}

/// The near relay: it tells the far one the target, and its client when that one is connected.
async fn begin(mut client: TcpStream, next: SocketAddr, copied_at_once: usize) -> io::Result<()> {
    client.set_nodelay(true)?;
    client.read_exact(&mut [0; 3]).await?;
    client.write_all(&[5, 0]).await?;
    let mut request = [0; 10];
    client.read_exact(&mut request).await?;
    let mut far = TcpStream::connect(next).await?;
    far.set_nodelay(true)?;
    far.write_all(&request[4..]).await?;
    far.read_exact(&mut [0; 1]).await?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    copy(client, far, copied_at_once).await
}

/// The far relay.
async fn end(mut near: TcpStream, copied_at_once: usize) -> io::Result<()> {
    near.set_nodelay(true)?;
    let mut target = [0; 6];
    near.read_exact(&mut target).await?;
    let [a, b, c, d, high, low] = target;
    let port = u16::from_be_bytes([high, low]);
    let target = TcpStream::connect(SocketAddr::from(([a, b, c, d], port))).await?;
    target.set_nodelay(true)?;
    near.write_all(&[0]).await?;
    copy(near, target, copied_at_once).await
}

async fn copy(mut one: TcpStream, mut other: TcpStream, at_once: usize) -> io::Result<()> {
    let copied = copy_bidirectional_with_sizes(&mut one, &mut other, at_once, at_once);
    copied.await.map(drop)
}
