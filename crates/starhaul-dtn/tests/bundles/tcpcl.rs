//! TCPCLv4 with peers that do not keep to it: what they claim costs the node nothing, and others are served.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::kit::{LIFETIME, Running, connected, content, hello, stop, tcp, until};

const END: u8 = 1;
const START: u8 = 2;
const PATIENCE: Duration = Duration::from_secs(60);

fn listening(number: u32, address: std::net::SocketAddr) -> String {
    format!(
        "node = \"ipn:{number}.0\"\n[storage]\nkind = \"memory\"\n[tcp]\nlisten = \"{address}\"\naccept_unknown = true\n"
    )
}

fn connecting(number: u32, peer: u32, address: std::net::SocketAddr) -> String {
    format!(
        "node = \"ipn:{number}.0\"\n[storage]\nkind = \"memory\"\n[tcp]\n[[tcp.peer]]\nnode = \"ipn:{peer}.0\"\naddress = \"{address}\"\n"
    )
}

/// A bundle from one node to another that listens.
async fn one_arrives(address: std::net::SocketAddr, station: &Running) {
    let lander = Running::start(&connecting(1, 2, address)).await;
    let mut client = station.client().await;
    client.open(Some("5")).await.unwrap();
    let mut sender = lander.client().await;
    sender.open(None).await.unwrap();
    sender.send("ipn:2.5", b"x", LIFETIME).await.unwrap();
    assert!(client.has_bundle(LIFETIME).await.unwrap());
    assert_eq!(client.next_bundle().await.unwrap().payload, b"x");
    stop([lander]).await;
}

/// A segment of 1 TiB: the node neither reads nor keeps what follows.
#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_claims_any_length_ends_its_connection() {
    /// More than the sockets between hold.
    const MOST: usize = 128 << 20;
    let address = tcp();
    let station = Running::start(&listening(2, address)).await;
    let stranger = tokio::task::spawn_blocking(move || {
        let mut stream = connected(address);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let claims: Vec<u8> = [
            hello("ipn:3.0").as_slice(),
            &[1, START | END],
            &1_u64.to_be_bytes(),
            &0_u32.to_be_bytes(),
            &(1_u64 << 40).to_be_bytes(),
        ]
        .concat();
        stream.write_all(&claims).unwrap();
        let (part, mut written) = (vec![7_u8; 64 << 10], 0);
        while written < MOST && stream.write_all(&part).is_ok() {
            written += part.len();
        }
        let mut answer = [0; 1000];
        let end = loop {
            match stream.read(&mut answer) {
                Ok(0) => break ErrorKind::UnexpectedEof,
                Ok(_) => {}
                Err(error) => break error.kind(),
            }
        };
        (written, end)
    });
    let (written, end) = stranger.await.unwrap();
    assert!(written < MOST);
    assert!(
        !matches!(end, ErrorKind::WouldBlock | ErrorKind::TimedOut),
        "the connection stays: {end}"
    );
    one_arrives(address, &station).await;
    stop([station]).await;
}

/// More connections than one address may have, of which none says anything: a neighbour at the same address takes the place of one.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_shut_nobody_out() {
    let address = tcp();
    let station = Running::start(&listening(2, address)).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    one_arrives(address, &station).await;
    // The first of them had to go.
    let read = tokio::time::timeout(PATIENCE, silent[0].read_u8()).await;
    assert!(read.unwrap().is_err());
    stop([station]).await;
}

/// What the peer reads until the end of each transfer: the number of its connection, and how many bytes came.
type Transfers = mpsc::UnboundedSender<(usize, u64)>;

/// A peer that takes 600 bytes in a segment and acknowledges as `dtnd` does: with no flags.
async fn acknowledge_without_flags(listener: TcpListener, transfers: Transfers) {
    for number in 0.. {
        let (stream, _) = listener.accept().await.unwrap();
        // However it ends, the node may connect again.
        let _ = take_transfers(stream, number, &transfers).await;
    }
}

async fn take_transfers(
    mut stream: TcpStream,
    number: usize,
    transfers: &Transfers,
) -> std::io::Result<()> {
    let mut greeting = hello("ipn:2.0");
    greeting[9..17].copy_from_slice(&600_u64.to_be_bytes());
    stream.write_all(&greeting).await?;
    stream.read_exact(&mut [0; 6]).await?;
    let mut length = 0_u64;
    loop {
        match stream.read_u8().await? {
            7 => {
                stream.read_exact(&mut [0; 18]).await?;
                let name = stream.read_u16().await?;
                stream
                    .read_exact(&mut vec![0_u8; usize::from(name)])
                    .await?;
                assert_eq!(stream.read_u32().await?, 0, "no extension items");
            }
            1 => {
                let flags = stream.read_u8().await?;
                let id = stream.read_u64().await?;
                if flags & START != 0 {
                    assert_eq!(stream.read_u32().await?, 0, "no extension items");
                    length = 0;
                }
                let bytes = stream.read_u64().await?;
                assert!(bytes <= 600);
                let mut data = vec![0_u8; usize::try_from(bytes).unwrap()];
                stream.read_exact(&mut data).await?;
                length += bytes;
                let ack: Vec<u8> =
                    [[2, 0].as_slice(), &id.to_be_bytes(), &length.to_be_bytes()].concat();
                stream.write_all(&ack).await?;
                if flags & END != 0 {
                    transfers.send((number, length)).unwrap();
                }
            }
            4 => {}
            _ => return Ok(()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_acknowledges_without_flags_gets_each_bundle_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, mut transfers) = mpsc::unbounded_channel();
    let peer = tokio::spawn(acknowledge_without_flags(listener, sender));
    let running = Running::start(&connecting(1, 2, address)).await;
    let mut client = running.client().await;
    client.open(None).await.unwrap();
    for length in [100, 20_000, 600] {
        let payload = content(length, length as u64);
        client.send("ipn:2.5", &payload, LIFETIME).await.unwrap();
        // One after the other, so that they come in this order.
        let (number, bytes) = tokio::time::timeout(PATIENCE, transfers.recv())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(number, 0, "it connects again");
        assert!(bytes > length as u64, "{bytes}");
    }
    until(&running, "each counts as sent", |status| {
        status.counters.sent == 3 && status.storage.bundles == 0
    })
    .await;
    assert!(transfers.try_recv().is_err(), "one comes again");
    stop([running]).await;
    peer.abort();
}
