//! `[[udp]]` and `[[rtp]]` from end to end.

use std::{
    collections::HashSet,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use starhaul_gateway::Resolver;
use starhaul_quic::Identity;
use tokio::{
    net::{TcpListener, TcpStream, UdpSocket},
    sync::mpsc,
};

use super::gateways::{
    ALLOW_LOOPBACK, Pair, head, pair, pair_with, pattern, run, run_on_one_thread, session, start,
    udp_echo, until,
};

async fn client(pair: &Pair, rule: &str) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket
        .connect(pair.near.ingress_address(rule).unwrap())
        .await
        .unwrap();
    socket
}

async fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65_535];
    let length = socket.recv(&mut buffer).await.unwrap();
    buffer[..length].to_vec()
}

/// Empties the socket at once, so that its buffer never overflows.
fn receive_all(socket: Arc<UdpSocket>) -> mpsc::UnboundedReceiver<(Vec<u8>, SocketAddr)> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut buffer = vec![0; 65_535];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            if sender.send((buffer[..length].to_vec(), from)).is_err() {
                return;
            }
        }
    });
    receiver
}

fn rule(kind: &str, target: SocketAddr, more: &str) -> String {
    format!(
        "[[{kind}]]\nname = \"r\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{target}\"\ndeadline = \"20s\"\n{more}\n"
    )
}

#[test]
fn datagrams_of_every_size_come_back_each_to_its_client() {
    run(async {
        let echo = udp_echo().await;
        let pair = pair(&rule("udp", echo, ""), ALLOW_LOOPBACK).await;
        let (one, other) = (client(&pair, "r").await, client(&pair, "r").await);
        for length in [1, 100, 1200, 1500, 9000, 65_000] {
            let (a, b) = (pattern(length), vec![7; length]);
            one.send(&a).await.unwrap();
            other.send(&b).await.unwrap();
            assert_eq!(receive(&one).await, a, "{length} bytes");
            assert_eq!(receive(&other).await, b, "{length} bytes");
        }
        // The last one is counted when it has left.
        until(|| pair.near.report().ingress[0].datagrams_out == 12).await;
        let report = pair.near.report();
        assert_eq!(
            (
                report.ingress[0].clients,
                report.ingress[0].datagrams_in,
                report.ingress[0].datagrams_out
            ),
            (2, 12, 12)
        );
        let forward: Vec<_> = report.sessions[0]
            .streams
            .iter()
            .filter(|stream| stream.kind.as_deref() == Some("udp"))
            .collect();
        assert_eq!(forward.len(), 2, "a stream for each client");
        assert!(
            forward
                .iter()
                .all(|stream| stream.blocks.blocks_sent == 6 && stream.rule.as_deref() == Some("r"))
        );
        pair.end().await;
    });
}

/// A gateway that had no processor for a moment finds more in its socket than may wait for the session.
#[test]
fn what_waited_in_the_socket_is_passed_on_as_the_session_takes_it() {
    const SENT: u64 = 300;
    run_on_one_thread(async {
        let sink = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let rule = rule("udp", sink.local_addr().unwrap(), "max_queued = 64");
        let pair = pair(&rule, ALLOW_LOOPBACK).await;
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let ingress = pair.near.ingress_address("r").unwrap();
        client.connect(ingress).unwrap();
        for number in 0..SENT {
            client.send(&number.to_be_bytes()).unwrap();
        }
        until(|| pair.near.report().ingress[0].datagrams_in == SENT).await;
        assert_eq!(pair.near.report().ingress[0].dropped.refused, 0);
        let taken = || {
            let report = pair.near.report();
            let streams = report.sessions[0].streams.iter();
            streams.map(|stream| stream.blocks.blocks_sent).sum::<u64>()
        };
        until(|| taken() == SENT).await;
        pair.end().await;
    });
}

#[test]
fn what_egress_does_not_allow_is_not_reached() {
    run(async {
        let sink = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let pair = pair(&rule("udp", sink.local_addr().unwrap(), ""), "").await;
        client(&pair, "r").await.send(b"x").await.unwrap();
        until(|| pair.far.report().sessions[0].refused_streams > 0).await;
        assert!(sink.try_recv(&mut [0]).is_err());
        pair.end().await;
    });
}

/// The far resolver fails at first. The client asks on and on, so that its flow never ends.
#[test]
fn a_flow_that_could_not_begin_is_tried_again_while_its_client_sends() {
    run(async {
        let echo = udp_echo().await;
        let attempts = AtomicUsize::new(0);
        let resolver = Resolver::new(move |_, _| match attempts.fetch_add(1, Ordering::SeqCst) {
            0 => Err(io::Error::other("not now")),
            _ => Ok(vec![echo]),
        });
        let rule = format!(
            "[[udp]]\nname = \"r\"\nlisten = \"127.0.0.1:0\"\ntarget = \"echo.test:{}\"\ndeadline = \"5s\"\n",
            echo.port()
        );
        let far = "[egress]\nallow = [\"echo.test=127.0.0.0/8:*\"]\n";
        let pair = pair_with("", &rule, far, resolver).await;
        let client = client(&pair, "r").await;
        let asks = async {
            loop {
                client.send(b"still there?").await.unwrap();
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let answered = tokio::select! {
            answer = receive(&client) => answer,
            () = asks => unreachable!(),
        };
        assert_eq!(answered, b"still there?");
        assert_eq!(pair.far.report().sessions[0].refused_streams, 1);
        pair.end().await;
    });
}

/// The far gateway holds all the streams through the near one that it may have.
#[test]
fn replies_are_no_streams_through_us() {
    run(async {
        let echo = udp_echo().await;
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = format!("{}{ALLOW_LOOPBACK}max_streams = 1\n", rule("udp", echo, ""));
        let far = format!(
            "[[tcp]]\nname = \"back\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{}\"\n{ALLOW_LOOPBACK}",
            server.local_addr().unwrap()
        );
        let pair = pair(&near, &far).await;
        let back = TcpStream::connect(pair.far.ingress_address("back").unwrap());
        let _held = tokio::join!(back, server.accept());
        let client = client(&pair, "r").await;
        client.send(b"question").await.unwrap();
        assert_eq!(receive(&client).await, b"question");
        pair.end().await;
    });
}

#[test]
fn clients_beyond_the_limit_are_dropped_and_idle_ones_forgotten() {
    run(async {
        let echo = udp_echo().await;
        // Longer than a busy computer takes for the datagram of the other one.
        let limits = "max_clients = 1\nidle_timeout = \"2s\"";
        let pair = pair(&rule("udp", echo, limits), ALLOW_LOOPBACK).await;
        let (one, other) = (client(&pair, "r").await, client(&pair, "r").await);
        // More than a query and its answer, so that it does not give way at once.
        for _ in 0..5 {
            one.send(b"one").await.unwrap();
            assert_eq!(receive(&one).await, b"one");
        }
        other.send(b"early").await.unwrap();
        until(|| pair.near.report().ingress[0].dropped.too_many_clients > 0).await;
        until(|| pair.near.report().ingress[0].clients == 0).await;
        other.send(b"late").await.unwrap();
        assert_eq!(receive(&other).await, b"late");
        pair.end().await;
    });
}

/// As with DNS: each query comes from a port of its own, and is done once it is answered.
#[test]
fn one_client_per_query_is_served_however_many_come() {
    run(async {
        let echo = udp_echo().await;
        let pair = pair(&rule("udp", echo, "max_clients = 64"), ALLOW_LOOPBACK).await;
        let mut clients = Vec::new();
        for query in 0..300_u32 {
            let client = client(&pair, "r").await;
            client.send(&query.to_be_bytes()).await.unwrap();
            let hang = Duration::from_secs(60);
            let answer = tokio::time::timeout(hang, receive(&client)).await;
            let answer = answer.unwrap_or_else(|_| panic!("query {query} has no answer"));
            assert_eq!(answer, query.to_be_bytes());
            // It keeps its port, so that no other query has the same.
            clients.push(client);
        }
        let rule = pair.near.report().ingress[0].clone();
        assert_eq!(rule.dropped.too_many_clients, 0);
        assert_eq!(rule.displaced_clients, 300 - 64);
        until(|| pair.near.report().ingress[0].clients <= 64).await;
        pair.end().await;
    });
}

#[test]
fn a_client_whose_questions_are_answered_is_forgotten_early() {
    run(async {
        let echo = udp_echo().await;
        // Longer than a busy computer takes from one message of the talk to the next.
        let limits = "idle_timeout = \"1h\"\nanswered_timeout = \"2s\"";
        let pair = pair(&rule("udp", echo, limits), ALLOW_LOOPBACK).await;
        let (asks, talks) = (client(&pair, "r").await, client(&pair, "r").await);
        for _ in 0..9 {
            talks.send(b"talk").await.unwrap();
            receive(&talks).await;
        }
        asks.send(b"ask").await.unwrap();
        assert_eq!(receive(&asks).await, b"ask");
        until(|| pair.near.report().ingress[0].clients == 1).await;
        talks.send(b"still here").await.unwrap();
        assert_eq!(receive(&talks).await, b"still here");
        assert_eq!(pair.near.report().ingress[0].clients_total, 2);
        pair.end().await;
    });
}

/// Hands datagrams from one side to `server` after up to 20 ms each, so that they overtake each other, and the answers back
/// at once.
async fn disorder(server: SocketAddr) -> SocketAddr {
    let (outside, inside) = (
        Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap()),
        Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap()),
    );
    let address = outside.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut there, mut back) = (vec![0; 65_535], vec![0; 65_535]);
        let (mut client, mut state) = (None, 1_u64);
        loop {
            tokio::select! {
                Ok((length, from)) = outside.recv_from(&mut there) => {
                    client = Some(from);
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let (delay, inside) = (Duration::from_millis((state >> 33) % 20), inside.clone());
                    let datagram = there[..length].to_vec();
                    tokio::spawn(async move {
                        tokio::time::sleep(delay).await;
                        let _ = inside.send_to(&datagram, server).await;
                    });
                }
                Ok((length, _)) = inside.recv_from(&mut back) => if let Some(client) = client {
                    let _ = outside.send_to(&back[..length], client).await;
                },
            }
        }
    });
    address
}

#[test]
fn rtp_frames_come_out_in_order_over_a_path_that_reorders() {
    run(async {
        let sink = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let mut received = receive_all(sink.clone());
        let (near_identity, far_identity) = (Identity::generate(), Identity::generate());
        let far = start(&format!(
            "listen = \"127.0.0.1:0\"\n{}{ALLOW_LOOPBACK}",
            head(&far_identity, "near", &near_identity)
        ))
        .await;
        let path = disorder(far.listen_addresses()[0]).await;
        let near = start(&format!(
            "{}{}{}",
            head(&near_identity, "far", &far_identity),
            session("far", &[path]),
            rule("rtp", sink.local_addr().unwrap(), "")
        ))
        .await;
        near.connected("far").await;
        let pair = Pair { near, far };
        let camera = client(&pair, "r").await;
        for frame in 0..100_u16 {
            let packet = packet(frame, u32::from(frame) * 3000, true, &pattern(300));
            camera.send(&packet).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let mut order = Vec::new();
        while order.len() < 100 {
            let (packet, _) = received.recv().await.unwrap();
            order.push(u16::from_be_bytes([packet[2], packet[3]]));
        }
        assert!(order.is_sorted(), "{order:?}");
        pair.end().await;
    });
}

/// One RTP packet: `marker` ends the frame.
fn packet(sequence: u16, timestamp: u32, marker: bool, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x80, if marker { 0xe0 } else { 0x60 }];
    packet.extend(sequence.to_be_bytes());
    packet.extend(timestamp.to_be_bytes());
    packet.extend([0, 0, 0, 9]);
    packet.extend(payload);
    packet
}

#[test]
fn rtp_frames_arrive_packet_by_packet_as_they_were_sent() {
    run(async {
        let sink = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        // As much as the kernel gives: its reader may come to run late.
        let socket = socket2::SockRef::from(&*sink);
        socket.set_recv_buffer_size(1 << 20).unwrap();
        let mut received = receive_all(sink.clone());
        let rule = rule("rtp", sink.local_addr().unwrap(), "codec = \"h264\"");
        let pair = pair(&rule, ALLOW_LOOPBACK).await;
        let camera = client(&pair, "r").await;
        let mut sent = HashSet::new();
        let mut sequence = 0;
        for frame in 0..20_u32 {
            // A key frame of many fragments, then inter frames of a few.
            let (packets, fu_header) = if frame % 10 == 0 { (40, 5) } else { (4, 1) };
            for index in 0..packets {
                let payload = [&[0x7c, fu_header][..], &pattern(1100)].concat();
                let packet = packet(sequence, frame * 3000, index == packets - 1, &payload);
                camera.send(&packet).await.unwrap();
                sent.insert(packet);
                sequence += 1;
            }
            // As a camera would: not all at once.
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let mut last_of_frame = std::collections::HashMap::new();
        let mut source = None;
        while !sent.is_empty() {
            let (packet, from) = received.recv().await.unwrap();
            assert!(sent.remove(&packet), "a packet that was not sent, or twice");
            assert_eq!(
                *source.get_or_insert(from),
                from,
                "one client is one source"
            );
            let (sequence, timestamp) = (&packet[2..4], &packet[4..8]);
            if let Some(before) = last_of_frame.insert(timestamp.to_vec(), sequence.to_vec()) {
                assert!(
                    before.as_slice() < sequence,
                    "packets of a frame change their order"
                );
            }
        }
        let report = pair.near.report();
        let stream = report.sessions[0]
            .streams
            .iter()
            .find(|stream| stream.kind.as_deref() == Some("rtp"))
            .unwrap();
        assert_eq!(stream.blocks.blocks_sent, 20, "a frame is a block");

        // RTCP of the receiver travels back.
        let receiver_report = [0x80, 201, 0, 1, 0, 0, 0, 1];
        sink.send_to(&receiver_report, source.unwrap())
            .await
            .unwrap();
        assert_eq!(receive(&camera).await, receiver_report);
        pair.end().await;
    });
}

/// A client that is connected to one of several addresses of this host takes answers from nowhere else.
#[test]
fn answers_leave_from_the_address_that_was_asked() {
    run(async {
        let echo = udp_echo().await;
        let rule = rule("udp", echo, "").replace("127.0.0.1:0", "0.0.0.0:0");
        let pair = pair(&rule, ALLOW_LOOPBACK).await;
        let port = pair.near.ingress_address("r").unwrap().port();
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        for address in ["127.0.0.1", "127.0.0.2"] {
            client.connect((address, port)).await.unwrap();
            for _ in 0..2 {
                client.send(address.as_bytes()).await.unwrap();
                assert_eq!(receive(&client).await, address.as_bytes());
            }
        }
        assert_eq!(pair.near.report().ingress[0].clients, 2);
        pair.end().await;
    });
}
