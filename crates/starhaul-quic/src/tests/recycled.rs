//! Buffers of batches that were sent hold the next ones, but never while others hold references to what is in them.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use starhaul_session::{Mode, StreamConfig};

use super::net::{client_address, client_config, path_spec, server_address, server_config};
use crate::{LocalId, Node, NodeEvent};

const SOCKET: LocalId = LocalId(0);
const TOTAL: usize = 3_000_000;

/// Packets of one side that the other has not received yet.
type Flying = Vec<Vec<BytesMut>>;

/// Sends what a node has, and recycles every batch at once; keeps the first large ones, and copies of what was in them.
fn send(node: &mut Node, now: Instant, flying: &mut Flying, kept: &mut Vec<(Bytes, Vec<u8>)>) {
    while let Some(batch) = node.poll_transmit(now) {
        let payloads = batch.contents.chunks(batch.segment_size.max(1));
        flying.push(payloads.map(BytesMut::from).collect());
        if batch.contents.len() >= 4096 && kept.len() < 20 {
            kept.push((batch.contents.clone(), batch.contents.to_vec()));
        }
        node.recycle(batch.contents);
    }
}

#[test]
fn a_transfer_by_recycled_batches_arrives_and_changes_none_that_is_kept() {
    let mut now = Instant::now();
    let mut client = Node::new(client_config(), now).unwrap();
    let mut server = Node::new(server_config(), now).unwrap();
    client.add_local(SOCKET, false);
    server.add_local(SOCKET, true);
    let peer = server_config().identity.public_key();
    let ours = client.connect(now, peer, vec![path_spec(0)]).unwrap();
    let data: Vec<u8> = (0..TOTAL).map(|at| (at % 251).to_le_bytes()[0]).collect();
    let (mut written, mut read, mut kept) = (0, Vec::<u8>::new(), Vec::new());
    let (mut stream, mut theirs) = (None, None);
    for step in 0..20_000 {
        let [mut there, mut back] = [Flying::new(), Flying::new()];
        send(&mut client, now, &mut there, &mut kept);
        send(&mut server, now, &mut back, &mut kept);
        now += Duration::from_millis(1);
        for packets in there {
            server.handle_datagrams(now, SOCKET, (client_address(0), None), 0, packets);
        }
        for packets in back {
            client.handle_datagrams(now, SOCKET, (server_address(0), None), 0, packets);
        }
        for node in [&mut client, &mut server] {
            if node.poll_timeout().is_some_and(|at| at <= now) {
                node.handle_timeout(now);
            }
        }
        while let Some(event) = client.poll_event() {
            if let NodeEvent::Connected(session) = event {
                let config = StreamConfig {
                    mode: Mode::Reliable,
                    ..StreamConfig::default()
                };
                let machine = client.session(session).unwrap();
                stream = Some(machine.open_stream(now, config).unwrap());
            }
        }
        while let Some(event) = server.poll_event() {
            if let NodeEvent::Accepted { session, .. } = event {
                theirs = Some(session);
            }
        }
        let (Some(stream), Some(theirs)) = (stream, theirs) else {
            continue;
        };
        let write =
            client.with_session(ours, |machine| machine.write(now, stream, &data[written..]));
        written += write.unwrap().0.unwrap();
        // Fails until the stream's opening has come.
        let taken = server.with_session(theirs, |machine| {
            machine.read_chunks(now, stream, usize::MAX, |bytes| {
                read.extend_from_slice(&bytes)
            })
        });
        assert!(taken.is_some(), "the session has ended");
        if step % 1000 == 0 {
            server.release_memory();
        }
        if read.len() == TOTAL {
            break;
        }
    }
    assert!(read == data, "{} of {TOTAL} bytes, or others", read.len());
    assert!(!kept.is_empty(), "no large batch was sent");
    for (contents, copy) in &kept {
        assert!(contents[..] == copy[..], "a batch that is kept was written");
    }
}
