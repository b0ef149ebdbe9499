//! Bounds that an operator can meet: none is reached in silence, and each can be raised.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

use bytes::Bytes;
use fast_socks5::{
    ReplyError, SocksError,
    client::{Config, Socks5Stream},
};
use starhaul_endpoint::{BlockOptions, Endpoint, EndpointConfig, PathSpec, StreamConfig};
use starhaul_gateway::{Gateway, Resolver, status::LimitStatus};
use starhaul_quic::Identity;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UdpSocket},
};

use super::gateways::{
    ALLOW_LOOPBACK, ask, head, pair, pair_with, run, session, start, tcp_echo_after_end, until,
};

const SOCKS: &str = "[[socks5]]\nname = \"proxy\"\nlisten = \"127.0.0.1:0\"\n";

fn limit(gateway: &Gateway, key: &str) -> LimitStatus {
    let limits = gateway.report().limits;
    let mut found = limits.into_iter().filter(|limit| limit.key == key);
    found.next().unwrap_or_else(|| panic!("no limit {key}"))
}

#[test]
fn a_connection_beyond_the_streams_of_a_session_is_refused_and_counted() {
    run(async {
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let top = "max_streams = 16\n";
        let pair = pair_with(top, SOCKS, ALLOW_LOOPBACK, Resolver::default()).await;
        let proxy = pair.near.ingress_address("proxy").unwrap();
        let connect = async || {
            let host = "127.0.0.1".to_owned();
            Socks5Stream::connect(proxy, host, server.port(), Config::default()).await
        };
        assert_eq!(limit(&pair.near, "max_streams").count, 0);
        let mut open = Vec::new();
        for _ in 0..16 {
            open.push(connect().await.unwrap());
        }
        let refused = connect().await;
        assert!(matches!(
            refused,
            Err(SocksError::ReplyError(ReplyError::GeneralFailure))
        ));
        let reached = limit(&pair.near, "max_streams");
        assert_eq!((reached.count, reached.limit, reached.rule), (1, 16, None));
        // With one less there is room again.
        assert_eq!(ask(open.pop().unwrap(), b"x").await, b"x");
        until(|| {
            let streams = pair.near.report().sessions[0].streams.clone();
            streams.iter().filter(|stream| !stream.ended).count() < 16
        })
        .await;
        assert_eq!(ask(connect().await.unwrap(), b"y").await, b"y");
        pair.end().await;
    });
}

#[test]
fn streams_that_a_peer_opens_beyond_what_egress_allows_are_refused_and_counted() {
    run(async {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = server.local_addr().unwrap();
        let rule = format!(
            "[[tcp]]\nname = \"r\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{target}\"\nmax_connections = 3\n"
        );
        let far = format!("{ALLOW_LOOPBACK}max_streams = 2\n");
        let pair = pair(&rule, &far).await;
        let near = pair.near.ingress_address("r").unwrap();
        let mut connections = Vec::new();
        for _ in 0..2 {
            let (client, accepted) = tokio::join!(TcpStream::connect(near), server.accept());
            connections.push((client.unwrap(), accepted.unwrap()));
        }
        // Its reset may come before it knows that it is connected.
        let third = async { TcpStream::connect(near).await?.read(&mut [0]).await };
        assert!(third.await.is_err(), "the third was carried");
        until(|| limit(&pair.far, "[egress] max_streams").count > 0).await;
        let reached = limit(&pair.far, "[egress] max_streams");
        assert_eq!((reached.count, reached.limit), (1, 2));
        assert_eq!(pair.far.report().sessions[0].refused_streams, 1);
        let reached = limit(&pair.near, "max_connections");
        assert_eq!(reached.rule.as_deref(), Some("r"));
        assert_eq!((reached.count, reached.limit), (1, 3));
        pair.end().await;
    });
}

#[test]
fn a_session_beyond_those_that_are_accepted_is_refused_and_counted() {
    run(async {
        let near = [Identity::generate(), Identity::generate()];
        let far_identity = Identity::generate();
        let peers = near.each_ref().map(|near| near.public_key());
        let far = start(&format!(
            "listen = [\"127.0.0.1:0\"]\n{}[[peer]]\nname = \"b\"\npublic_key = \"{}\"\n[accept]\nmax_sessions = 1\n",
            head(&far_identity, "a", &near[0]),
            peers[1]
        ))
        .await;
        let key = "[accept] max_sessions, or max_sessions_per_peer,";
        let dial = async |identity: &Identity| {
            let session = session("far", &far.listen_addresses());
            start(&format!(
                "{}{session}",
                head(identity, "far", &far_identity)
            ))
            .await
        };
        let first = dial(&near[0]).await;
        far.connected("a").await;
        assert_eq!(limit(&far, key).count, 0);
        let second = dial(&near[1]).await;
        until(|| limit(&far, key).count > 0).await;
        assert_eq!(limit(&far, key).limit, 1);
        until(|| {
            let error = second.report().peers[0].last_error.clone();
            error.is_some_and(|error| error.contains("as many sessions as it allows"))
        })
        .await;
        tokio::join!(first.shutdown(), second.shutdown(), far.shutdown());
    });
}

/// Connections that begin and say no more: answers to them are lost.
#[test]
fn handshakes_beyond_those_of_one_host_are_refused_and_counted() {
    run(async {
        let (near, far_identity) = (Identity::generate(), Identity::generate());
        let far = start(&format!(
            "listen = [\"127.0.0.1:0\"]\n{}[accept]\nmax_handshakes_per_host = 1\n",
            head(&far_identity, "near", &near)
        ))
        .await;
        let key = "[accept] max_handshakes, or max_handshakes_per_host,";
        let target = far.listen_addresses()[0];
        let one_way = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let remote = one_way.local_addr().unwrap();
        tokio::spawn(async move {
            // Each client is another one for the far gateway.
            let mut senders = HashMap::new();
            let mut datagram = [0; 2048];
            while let Ok((bytes, from)) = one_way.recv_from(&mut datagram).await {
                let sender = match senders.entry(from) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => new.insert(UdpSocket::bind("127.0.0.1:0").await.unwrap()),
                };
                sender.send_to(&datagram[..bytes], target).await.unwrap();
            }
        });
        assert_eq!(limit(&far, key).count, 0);
        let mut clients = Vec::new();
        for _ in 0..4 {
            let client = Endpoint::bind(EndpointConfig::new(Identity::generate()));
            let client = client.await.unwrap();
            let path = vec![PathSpec::new("a", remote)];
            let key = far_identity.public_key();
            let opener = client.clone();
            let opening = tokio::spawn(async move { opener.connect(key, path).await.map(drop) });
            clients.push((client, opening));
        }
        until(|| limit(&far, key).count > 0).await;
        assert_eq!(limit(&far, key).limit, 256);
        clients.iter().for_each(|(_, opening)| opening.abort());
        far.shutdown().await;
    });
}

/// A block that is larger than all that the gateway may hold of blocks.
#[test]
fn blocks_for_which_there_is_no_memory_on_receipt_are_counted() {
    run(async {
        let (near_identity, far_identity) = (Identity::generate(), Identity::generate());
        let far_key = far_identity.public_key();
        let far = start(&format!(
            "listen = [\"127.0.0.1:0\"]\nmax_receive_bytes = \"1MiB\"\n{}",
            head(&far_identity, "near", &near_identity)
        ))
        .await;
        let near = Endpoint::bind(EndpointConfig::new(near_identity));
        let near = near.await.unwrap();
        let path = PathSpec::new("a", far.listen_addresses()[0]);
        let session = near.connect(far_key, vec![path]).await.unwrap();
        let config = StreamConfig {
            deadline: Duration::from_secs(10),
            ..StreamConfig::default()
        };
        let stream = session.open_stream(config).await.unwrap();
        let block = Bytes::from(vec![7; 3 << 20]);
        let handle = stream.send_block(block, BlockOptions::default()).unwrap();
        until(|| limit(&far, "max_receive_bytes").count > 0).await;
        assert_eq!(limit(&far, "max_receive_bytes").limit, 1 << 20);
        drop(handle);
        drop(session);
        far.shutdown().await;
    });
}

#[test]
fn more_than_1024_connections_are_carried_at_once() {
    run(async {
        const CONNECTIONS: usize = 1200;
        // Client, ingress, egress and server are one process here.
        if starhaul_gateway::raise_open_files() < CONNECTIONS * 4 + 200 {
            let why = format!("this process may not open {} files", CONNECTIONS * 4);
            return starhaul_needs::skip(starhaul_needs::Need::OpenFiles, why);
        }
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = server.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut tcp, _) = server.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut word = [0; 4];
                    while tcp.read_exact(&mut word).await.is_ok() {
                        tcp.write_all(&word).await.unwrap();
                    }
                });
            }
        });
        let rule =
            format!("[[tcp]]\nname = \"r\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{target}\"\n");
        let pair = pair(&rule, ALLOW_LOOPBACK).await;
        let near = pair.near.ingress_address("r").unwrap();
        let mut open = Vec::new();
        for number in 0..CONNECTIONS {
            let mut tcp = TcpStream::connect(near).await.unwrap();
            let word = u32::try_from(number).unwrap().to_be_bytes();
            tcp.write_all(&word).await.unwrap();
            let mut answer = [0; 4];
            tcp.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer, word, "connection {number}");
            open.push(tcp);
        }
        assert_eq!(limit(&pair.near, "max_streams").count, 0);
        pair.end().await;
    });
}
