//! `[[tcp]]` from end to end: bytes, half closes, resets.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use socket2::SockRef;
use starhaul_gateway::Resolver;
use starhaul_quic::Identity;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream, UdpSocket},
};

use super::gateways::{
    ALLOW_LOOPBACK, Pair, ask, closed_port, head, pair, pair_with, pattern, reset, run, session,
    start, tcp_echo_after_end, until,
};

fn rule(target: impl std::fmt::Display) -> String {
    format!("[[tcp]]\nname = \"r\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{target}\"\n")
}

/// A forwarded connection and its far end.
async fn connect(near: SocketAddr, server: &TcpListener) -> (TcpStream, TcpStream) {
    let (client, accepted) = tokio::join!(TcpStream::connect(near), server.accept());
    (client.unwrap(), accepted.unwrap().0)
}

fn has_open_streams(pair: &Pair) -> bool {
    let sessions = pair.near.report().sessions;
    let mut streams = sessions.iter().flat_map(|session| &session.streams);
    streams.any(|stream| !stream.ended)
}

async fn broken(tcp: &mut TcpStream) -> bool {
    let mut data = Vec::new();
    tcp.read_to_end(&mut data)
        .await
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

#[test]
fn a_half_close_ends_one_direction_only() {
    run(async {
        let server = tcp_echo_after_end("127.0.0.1:0").await;
        let pair = pair(&rule(server), ALLOW_LOOPBACK).await;
        let near = pair.near.ingress_address("r").unwrap();
        // The server answers only once it has seen our end, and its answer comes after our half close.
        for data in [&b""[..], b"x", &pattern(3_000_000)] {
            let answer = ask(TcpStream::connect(near).await.unwrap(), data).await;
            assert!(answer == data, "{} of {} bytes", answer.len(), data.len());
        }
        pair.end().await;
    });
}

#[test]
fn both_directions_flow_at_once() {
    run(async {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pair = pair(&rule(server.local_addr().unwrap()), ALLOW_LOOPBACK).await;
        let (client, far) = connect(pair.near.ingress_address("r").unwrap(), &server).await;
        let (up, down) = (pattern(2_000_000), pattern(1_500_000));
        let (at_client, at_server) = tokio::join!(ask(client, &up), ask(far, &down));
        assert!(at_client == down && at_server == up);
        pair.end().await;
    });
}

#[test]
fn a_reset_is_a_reset_at_the_other_side() {
    run(async {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pair = pair(&rule(server.local_addr().unwrap()), ALLOW_LOOPBACK).await;
        let near = pair.near.ingress_address("r").unwrap();

        let (client, mut far) = connect(near, &server).await;
        reset(client);
        assert!(broken(&mut far).await, "the client's reset");

        let (mut client, far) = connect(near, &server).await;
        reset(far);
        assert!(broken(&mut client).await, "the server's reset");

        // After a half close there is still a direction to reset.
        let (mut client, mut far) = connect(near, &server).await;
        client.shutdown().await.unwrap();
        assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
        reset(far);
        assert!(broken(&mut client).await, "a reset after a half close");
        pair.end().await;
    });
}

/// The kernel resets what came for a connection that was closed, and forgets one after a minute; what it sent may still be on its way.
#[test]
fn what_was_sent_before_the_end_arrives_though_the_connection_is_gone() {
    run(async {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pair = pair(&rule(server.local_addr().unwrap()), ALLOW_LOOPBACK).await;
        let near = pair.near.ingress_address("r").unwrap();
        let data = pattern(3_000_000);
        for answer in [&b""[..], &pattern(100_000)] {
            let (mut client, mut far) = connect(near, &server).await;
            client.write_all(&data).await.unwrap();
            client.shutdown().await.unwrap();
            // The gateway has read all of it, and its kernel the end behind that.
            until(|| {
                let report = pair.near.report();
                let mut streams = report.sessions.iter().flat_map(|session| &session.streams);
                streams.any(|stream| !stream.ended && stream.bytes_sent >= data.len() as u64)
            })
            .await;
            reset(client);
            far.write_all(answer).await.unwrap();
            let received = ask(far, b"").await;
            assert!(received == data, "{} bytes", received.len());
            // Otherwise the next connection is taken for this one.
            until(|| !has_open_streams(&pair)).await;
        }
        pair.end().await;
    });
}

/// The server ended first, and the client does not take it: then the kernel tells nobody whether a reset came behind the client's end.
#[test]
fn what_was_sent_before_the_end_arrives_though_the_other_direction_ended_first() {
    // proc(5), as the kernel numbers them.
    const FIN_WAIT_1: &str = "04";
    const CLOSING: &str = "0B";
    run(async {
        for ends in [true, false] {
            let (pair, mut client, far) = with_little_room().await;
            let (mut from_gateway, mut to_gateway) = far.into_split();
            let written = fill(&pair, &mut client).await;
            // The gateway's kernel keeps most of it, and the end behind that.
            SockRef::from(&client)
                .set_recv_buffer_size(64 << 10)
                .unwrap();
            to_gateway.write_all(&pattern(400_000)).await.unwrap();
            to_gateway.shutdown().await.unwrap();
            let (local, remote) = (client.peer_addr().unwrap(), client.local_addr().unwrap());
            let is = |state| in_kernels_table(local, remote, 3).is_some_and(|now| now == state);
            until(|| is(FIN_WAIT_1)).await;
            if ends {
                client.shutdown().await.unwrap();
                until(|| is(CLOSING)).await;
            }
            reset(client);
            let mut received = Vec::new();
            let read = from_gateway.read_to_end(&mut received).await;
            assert_eq!(read.is_ok(), ends, "{read:?}");
            assert!(!ends || received == written, "{} bytes", received.len());
            until(|| !has_open_streams(&pair)).await;
            pair.end().await;
        }
    });
}

/// A pair that holds little, a client, and the server's end of its connection, which reads nothing.
async fn with_little_room() -> (Pair, TcpStream, TcpStream) {
    let server = TcpSocket::new_v4().unwrap();
    server.set_recv_buffer_size(64 << 10).unwrap();
    server.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let server = server.listen(1).unwrap();
    let rule = rule(server.local_addr().unwrap());
    let top = "max_send_bytes = \"1MiB\"\nmax_receive_bytes = \"1MiB\"\n";
    let pair = pair_with(top, &rule, ALLOW_LOOPBACK, Resolver::default()).await;
    let near = pair.near.ingress_address("r").unwrap();
    let (client, far) = connect(near, &server).await;
    (pair, client, far)
}

/// Writes until the gateway waits with the last bytes, for which the far side has no room; returns what was written.
async fn fill(pair: &Pair, client: &mut TcpStream) -> Vec<u8> {
    const PATIENCE: Duration = Duration::from_millis(500);
    let piece = pattern(16 << 10);
    let (mut written, mut waits) = (Vec::new(), 0);
    loop {
        client.write_all(&piece).await.unwrap();
        written.extend_from_slice(&piece);
        let taken = until(|| {
            let report = pair.near.report();
            let mut streams = report.sessions.iter().flat_map(|session| &session.streams);
            streams.any(|stream| stream.bytes_sent >= written.len() as u64)
        });
        // A slow host may leave one write for a while: then the next is taken with it.
        waits = match tokio::time::timeout(PATIENCE, taken).await {
            Ok(()) => 0,
            Err(_) => waits + 1,
        };
        if waits == 2 {
            // The sockets behind the stream hold 64 KiB at least, and its first credit is as much.
            assert!(written.len() > 128 << 10, "{} bytes", written.len());
            return written;
        }
    }
}

/// Bytes that the kernel holds at one end of a connection: sent and not acknowledged, and received and not read.
fn held_by_kernel(local: SocketAddr, remote: SocketAddr) -> Option<u64> {
    let queues = in_kernels_table(local, remote, 4)?;
    let (sent, received) = queues.split_once(':').unwrap();
    let bytes = [sent, received].map(|number| u64::from_str_radix(number, 16).unwrap());
    Some(bytes.iter().sum())
}

/// A field of one end of a connection. The kernel's table, in which others come and go while it is read, may lack the end.
fn in_kernels_table(local: SocketAddr, remote: SocketAddr, field: usize) -> Option<String> {
    // proc(5): as numbers of this host.
    let shown = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => {
            let ip = u32::from_ne_bytes(v4.ip().octets());
            format!("{ip:08X}:{:04X}", v4.port())
        }
        SocketAddr::V6(_) => panic!("{address} is not of IPv4"),
    };
    let ends = [shown(local), shown(remote)];
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(1..3)? == ends).then(|| fields[field].to_owned())
    })
}

/// There it is counted, and bounded by `max_receive_bytes`.
#[test]
fn what_a_server_does_not_read_waits_in_the_session_or_the_kernel_and_nowhere_between() {
    run(async {
        let (pair, mut client, far) = with_little_room().await;
        fill(&pair, &mut client).await;
        let (server, gateway) = (far.local_addr().unwrap(), far.peer_addr().unwrap());
        until(|| {
            let report = pair.far.report();
            let streams = report.sessions.iter().flat_map(|session| &session.streams);
            let taken = streams.map(|stream| stream.bytes_received).max();
            let ends = [(gateway, server), (server, gateway)];
            let held = ends.map(|(local, remote)| held_by_kernel(local, remote));
            let [Some(near), Some(far)] = held else {
                return false;
            };
            taken == Some(near + far)
        })
        .await;
        reset(client);
        pair.end().await;
    });
}

#[test]
fn a_reset_does_not_wait_for_what_was_sent_before_it() {
    run(async {
        let (pair, mut client, mut far) = with_little_room().await;
        fill(&pair, &mut client).await;
        reset(client);
        // The server has read nothing yet.
        until(|| !has_open_streams(&pair)).await;
        assert!(broken(&mut far).await, "the client's reset");
        pair.end().await;
    });
}

#[test]
fn what_waits_in_the_gateway_arrives_though_its_connection_was_closed_behind_its_end() {
    run(async {
        let (pair, mut client, far) = with_little_room().await;
        let written = fill(&pair, &mut client).await;
        client.shutdown().await.unwrap();
        reset(client);
        let received = ask(far, b"").await;
        assert!(received == written, "{} bytes", received.len());
        until(|| !has_open_streams(&pair)).await;
        pair.end().await;
    });
}

/// A client that has sent its end and closed its connection does not read any more.
#[test]
fn a_server_that_goes_on_sending_to_nobody_is_reset() {
    run(async {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pair = pair(&rule(server.local_addr().unwrap()), ALLOW_LOOPBACK).await;
        let near = pair.near.ingress_address("r").unwrap();
        let (mut client, mut far) = connect(near, &server).await;
        client.shutdown().await.unwrap();
        assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
        reset(client);
        let data = pattern(1 << 20);
        while far.write_all(&data).await.is_ok() {}
        until(|| !has_open_streams(&pair)).await;
        pair.end().await;
    });
}

#[test]
fn without_a_session_a_connection_waits_for_one_and_is_then_reset() {
    run(async {
        // This socket does not answer.
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let near = start(&format!(
            "{}{}{}",
            head(&Identity::generate(), "far", &Identity::generate()),
            session("far", &[silent.local_addr().unwrap()]),
            rule("127.0.0.1:9")
        ))
        .await;
        let begun = Instant::now();
        let mut client = TcpStream::connect(near.ingress_address("r").unwrap())
            .await
            .unwrap();
        assert!(broken(&mut client).await);
        let waited = begun.elapsed();
        assert!(waited > Duration::from_secs(9), "{waited:?}");
        near.shutdown().await;
    });
}

/// A client that says nothing for long, gone or not, holds no stream for ever where the rule says so.
#[test]
fn an_idle_connection_is_reset_and_its_stream_ends() {
    run(async {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let rule = format!(
            "{}idle_timeout = \"2s\"\n",
            rule(server.local_addr().unwrap())
        );
        let pair = pair(&rule, ALLOW_LOOPBACK).await;
        let near = pair.near.ingress_address("r").unwrap();
        let (mut client, mut far) = connect(near, &server).await;
        client.write_all(b"a word").await.unwrap();
        far.read_exact(&mut [0; 6]).await.unwrap();
        assert!(broken(&mut client).await, "at the client");
        assert!(broken(&mut far).await, "at the server");
        until(|| !has_open_streams(&pair)).await;
        pair.end().await;
    });
}

#[test]
fn a_target_that_refuses_resets_the_client() {
    run(async {
        let closed = closed_port();
        let pair = pair(&rule(closed.local_addr().unwrap()), ALLOW_LOOPBACK).await;
        // The reset may come before the client has looked how its connect went.
        match TcpStream::connect(pair.near.ingress_address("r").unwrap()).await {
            Ok(mut client) => assert!(broken(&mut client).await),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
        until(|| pair.near.report().ingress[0].failed_connections > 0).await;
        pair.end().await;
    });
}

/// Data that broke off must not look like data that ended.
#[test]
fn the_end_of_the_far_gateway_resets_connections() {
    run(async {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pair = pair(&rule(server.local_addr().unwrap()), ALLOW_LOOPBACK).await;
        let (mut client, mut far) = connect(pair.near.ingress_address("r").unwrap(), &server).await;
        far.write_all(b"half of it").await.unwrap();
        client.read_exact(&mut [0; 10]).await.unwrap();
        pair.far.shutdown().await;
        assert!(broken(&mut client).await, "at the client");
        assert!(broken(&mut far).await, "at the server");
        pair.near.shutdown().await;
    });
}

/// An urgent byte, as of an interrupt of telnet, is one of the stream.
#[test]
fn urgent_bytes_stay_where_they_were_sent() {
    run(async {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pair = pair(&rule(server.local_addr().unwrap()), ALLOW_LOOPBACK).await;
        let near = pair.near.ingress_address("r").unwrap();
        let (mut client, mut target) = connect(near, &server).await;
        for end in [&mut client, &mut target] {
            end.write_all(b"before ").await.unwrap();
            let sent = socket2::SockRef::from(&*end).send_out_of_band(b"!");
            assert_eq!(sent.unwrap(), 1);
            end.write_all(b" after").await.unwrap();
            end.shutdown().await.unwrap();
        }
        for end in [&mut client, &mut target] {
            // What urgent bytes the gateway itself sends is not asked for: it sends none.
            let mut received = Vec::new();
            end.read_to_end(&mut received).await.unwrap();
            assert_eq!(received, b"before ! after");
        }
        pair.end().await;
    });
}
