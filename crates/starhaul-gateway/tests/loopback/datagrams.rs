//! `[[udp]]` and `[[rtp]]` from end to end.

use std::{collections::HashSet, net::SocketAddr, sync::Arc};

use tokio::{net::UdpSocket, sync::mpsc};

use super::gateways::{ALLOW_LOOPBACK, Pair, pair, pattern, run, udp_echo, until};

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
                .all(|stream| stream.blocks_sent == 6 && stream.rule.as_deref() == Some("r"))
        );
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

#[test]
fn clients_beyond_the_limit_are_dropped_and_idle_ones_forgotten() {
    run(async {
        let echo = udp_echo().await;
        let limits = "max_clients = 1\nidle_timeout = \"200ms\"";
        let pair = pair(&rule("udp", echo, limits), ALLOW_LOOPBACK).await;
        let (one, other) = (client(&pair, "r").await, client(&pair, "r").await);
        one.send(b"one").await.unwrap();
        assert_eq!(receive(&one).await, b"one");
        other.send(b"early").await.unwrap();
        until(|| pair.near.report().ingress[0].dropped.too_many_clients > 0).await;
        until(|| pair.near.report().ingress[0].clients == 0).await;
        other.send(b"late").await.unwrap();
        assert_eq!(receive(&other).await, b"late");
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
        assert_eq!(stream.blocks_sent, 20, "a frame is a block");

        // RTCP of the receiver travels back.
        let receiver_report = [0x80, 201, 0, 1, 0, 0, 0, 1];
        sink.send_to(&receiver_report, source.unwrap())
            .await
            .unwrap();
        assert_eq!(receive(&camera).await, receiver_report);
        pair.end().await;
    });
}
