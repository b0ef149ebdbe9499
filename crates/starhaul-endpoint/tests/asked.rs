//! An endpoint that listens at all addresses of its host, behind a relay that sees from where it answers.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use starhaul_endpoint::{Endpoint, EndpointConfig, Identity, IncomingStream, PathSpec};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UdpSocket,
    time::timeout,
};

/// Passes datagrams between a client and the server; those that come from elsewhere than the client asks are counted and lost, as at any
/// client or firewall.
async fn relay(socket: Arc<UdpSocket>, server: SocketAddr, astray: Arc<AtomicUsize>) {
    let mut client = None;
    let mut buffer = vec![0; 2000];
    while let Ok((bytes, from)) = socket.recv_from(&mut buffer).await {
        let to = match from {
            _ if from == server => client,
            _ if from.port() == server.port() => {
                astray.fetch_add(1, Ordering::Relaxed);
                None
            }
            _ => {
                client = Some(from);
                Some(server)
            }
        };
        if let Some(to) = to {
            let _ = socket.send_to(&buffer[..bytes], to).await;
        }
    }
}

#[tokio::test]
async fn one_forged_datagram_does_not_turn_the_answers_away() {
    let identity = Identity::generate();
    let server_identity = Identity::generate();
    let config = EndpointConfig {
        trusted: vec![identity.public_key()],
        listen: vec!["0.0.0.0:0".parse().unwrap()],
        ..EndpointConfig::new(server_identity.clone())
    };
    let server = Endpoint::bind(config).await.unwrap();
    let port = server.listen_addresses()[0].port();
    let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let astray = Arc::new(AtomicUsize::new(0));
    // Not the one from which the kernel answers by itself.
    let asked = SocketAddr::from(([127, 0, 0, 2], port));
    let relay = tokio::spawn(relay(socket.clone(), asked, astray.clone()));

    let client = Endpoint::bind(EndpointConfig::new(identity)).await.unwrap();
    let path = PathSpec::new("relayed", socket.local_addr().unwrap());
    let connecting = client.connect(server_identity.public_key(), vec![path]);
    let ours = timeout(Duration::from_secs(60), connecting).await;
    let ours = ours.expect("answered from where it was asked").unwrap();
    let theirs = server.accept().await.unwrap();
    let mut there = ours.open_bytes(1, Bytes::new()).await.unwrap();
    there.write_all(b"hello").await.unwrap();
    let Some(IncomingStream::Bytes(mut here)) = theirs.accept_stream().await else {
        panic!("no stream of bytes");
    };
    assert_eq!(astray.load(Ordering::Relaxed), 0);

    for _ in 0..20 {
        let elsewhere = SocketAddr::from(([127, 0, 0, 3], port));
        socket.send_to(&[7], elsewhere).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        here.write_all(&[1; 1000]).await.unwrap();
    }
    let mut read = vec![0; 20_000];
    let reading = there.read_exact(&mut read);
    timeout(Duration::from_secs(60), reading)
        .await
        .expect("all answers come")
        .unwrap();
    assert_eq!(astray.load(Ordering::Relaxed), 0);
    relay.abort();
}
