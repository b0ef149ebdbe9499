//! Packets fit into the MTU of the path on which they are served.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    fs,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use starhaul_contents::{ContentSecret, Fetching, NeighbourKey, ServeOptions, Server};

/// Passes datagrams on between one client and a server; returns its address and the length of the longest one.
fn between(server: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind(SocketAddr::new(server.ip(), 0)).unwrap();
    let address = socket.local_addr().unwrap();
    let longest = Arc::new(AtomicUsize::new(0));
    let counted = longest.clone();
    // It ends with the process.
    thread::spawn(move || {
        let (mut client, mut buffer) = (None, vec![0; 65_535]);
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            counted.fetch_max(length, Ordering::Relaxed);
            let to = match from == server {
                true => client,
                false => {
                    client = Some(from);
                    Some(server)
                }
            };
            if let Some(to) = to {
                let _ = socket.send_to(&buffer[..length], to);
            }
        }
    });
    (address, longest)
}

/// The longest datagram of a transfer of 200 kB that is served at this address.
fn longest(listen: &str, packet_bytes: Option<u16>) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    fs::write(folder.path().join("content"), &content).unwrap();
    let (key, secret) = (NeighbourKey::new(&[1; 32]), ContentSecret::new(&[2; 32]));
    let options = ServeOptions {
        root: folder.path().join("content"),
        listen: listen.parse().unwrap(),
        packet_bytes,
        neighbours: vec![key.clone()],
        secret: secret.clone(),
    };
    let mut server = Server::open(options, |_| {}).unwrap();
    let (from, longest) = between(server.local_addr());
    // It ends with the process.
    thread::spawn(move || server.run());
    let fetching = Fetching {
        name: "content".into(),
        from: vec![from],
        key,
        secret,
        into: folder.path().join("copy"),
        patience: Duration::from_secs(60),
    };
    let fetched = fetching.run(|_| {}).unwrap();
    assert!(fs::read(&fetched.path).unwrap() == content);
    longest.load(Ordering::Relaxed)
}

#[test]
fn packets_fill_ethernet_frames_and_no_more() {
    let over_ipv4 = longest("127.0.0.1:0", None);
    assert!((1440..=1472).contains(&over_ipv4), "{over_ipv4}");
    let asked_for = longest("127.0.0.1:0", Some(1280));
    assert!((1248..=1280).contains(&asked_for), "{asked_for}");
    if UdpSocket::bind("[::1]:0").is_err() {
        starhaul_needs::skip(starhaul_needs::Need::Ipv6, "no address ::1");
        return;
    }
    let over_ipv6 = longest("[::1]:0", None);
    assert!((1420..=1452).contains(&over_ipv6), "{over_ipv6}");
}
