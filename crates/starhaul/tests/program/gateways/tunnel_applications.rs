//! What people run through an IP tunnel, over two paths that lose packets: ping, DNS, a download over HTTP, a video over RTP.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use ring::digest;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use starhaul_needs::Sleeper;

use super::{
    gateway::{Pair, paths},
    network::{Network, Side},
    transfer::Transfer,
    tunnel::{FIELD, GROUND},
    wait_for,
};

/// Of each path, in both directions.
const LOST_PERCENT: u8 = 2;
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
/// No application waits longer for one answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Two paths that lose packets, and a tunnel over both.
fn start() -> Option<(Network, Pair)> {
    let network = Network::create(2)?;
    let pair = Pair::start_with(&network, &paths(&network), FIELD, GROUND);
    pair.wait_until_up(&["link0", "link1"]);
    for link in 0..2 {
        if !network.lose(link, LOST_PERCENT) {
            return None;
        }
    }
    for (side, peer) in [(Side::Field, "10.9.0.1"), (Side::Ground, "10.9.0.2")] {
        wait_for("the device", || {
            network.try_ip(side, &format!("route get {peer}")).ok()
        });
    }
    Some((network, pair))
}

fn at(port: u16) -> SocketAddr {
    (SERVER, port).into()
}

/// A socket of an application in the field.
fn field_socket(network: &Network) -> UdpSocket {
    let socket = network.field.inside(|| UdpSocket::bind("0.0.0.0:0"));
    let socket = socket.unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// A socket of a server on the ground, as soon as the device is there.
fn ground_socket(network: &Network, port: u16) -> UdpSocket {
    wait_for("the server's address", || {
        network.ground.inside(|| UdpSocket::bind(at(port))).ok()
    })
}

#[test]
fn every_ping_and_every_name_is_answered_at_the_first_try() {
    let Some((network, _pair)) = start() else {
        return;
    };
    let sleeper = Sleeper::start();
    let answered = ping(&network, 200).and_then(|()| resolve(&network, 200));
    // What a busy computer holds up for longer than its deadline is dropped.
    if let Err(missing) = answered {
        sleeper.fail(missing);
    }
}

/// Each echo request is sent once; an error names the one without an answer.
fn ping(network: &Network, count: u16) -> Result<(), String> {
    let open = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4));
    let socket = network.field.inside(open).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    for sequence in 0..count {
        let [high, low] = sequence.to_be_bytes();
        let mut request = [8, 0, 0, 0, 0x5a, 0x17, high, low];
        let words = request
            .chunks(2)
            .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let sum: u32 = words.sum();
        let folded = u16::try_from((sum >> 16) + (sum & 0xffff)).unwrap();
        request[2..4].copy_from_slice(&(!folded).to_be_bytes());
        socket.send_to(&request, &at(0).into()).unwrap();
        let mut reader = &socket;
        // A raw socket hears every answer, behind 20 bytes of IPv4.
        let mut answer = [0; 100];
        loop {
            let length = reader.read(&mut answer);
            let length = length.map_err(|error| format!("ping {sequence}: {error}"))?;
            if length >= 28 && answer[20] == 0 && answer[24..28] == request[4..8] {
                break;
            }
        }
    }
    Ok(())
}

/// Each query is sent once, for a resolver would send it again only after seconds; an error names the one without an answer.
fn resolve(network: &Network, count: u16) -> Result<(), String> {
    let server = ground_socket(network, 53);
    thread::spawn(move || {
        let mut query = [0; 512];
        // It ends with its namespace.
        while let Ok((length, from)) = server.recv_from(&mut query) {
            let mut answer = query[..length].to_vec();
            answer[2] |= 0x80;
            answer[7] = 1;
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
            let _ = server.send_to(&answer, from);
        }
    });
    let client = field_socket(network);
    client.connect(at(53)).unwrap();
    for number in 0..count {
        let mut query = number.to_be_bytes().to_vec();
        query.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 4]);
        query.extend(b"star\x04haul\0\0\x01\0\x01");
        client.send(&query).unwrap();
        let mut answer = [0; 512];
        let length = client.recv(&mut answer);
        let length = length.map_err(|error| format!("query {number}: {error}"))?;
        assert_eq!(answer[..2], query[..2], "an answer to another query");
        assert_eq!(answer[length - 4..length], [192, 0, 2, 1]);
    }
    Ok(())
}

#[test]
fn a_download_over_http_is_whole() {
    let Some((network, _pair)) = start() else {
        return;
    };
    let page: Vec<u8> = (0_u32..1_000_000)
        .flat_map(|at| at.wrapping_mul(0x9E37_79B9).to_be_bytes())
        .collect();
    let wanted = digest::digest(&digest::SHA256, &page);
    let listener = wait_for("the server's address", || {
        network.ground.inside(|| TcpListener::bind(at(80))).ok()
    });
    let server = thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut request = BufReader::new(connection.try_clone().unwrap());
        let mut line = String::new();
        while request.read_line(&mut line).unwrap() > 2 {
            line.clear();
        }
        write!(
            connection,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            page.len()
        )
        .unwrap();
        connection.write_all(&page).unwrap();
    });
    let connect = || TcpStream::connect_timeout(&at(80), PATIENCE);
    let mut client = network.field.inside(connect).unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: ground\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    server.join().unwrap();
    let body = answer
        .windows(4)
        .position(|end| end == b"\r\n\r\n")
        .unwrap()
        + 4;
    let got = digest::digest(&digest::SHA256, &answer[body..]);
    assert_eq!(
        got.as_ref(),
        wanted.as_ref(),
        "{} bytes",
        answer.len() - body
    );
}

/// Each link in turn is deleted and made again under a download, beside a connection that is silent meanwhile.
#[test]
fn no_connection_breaks_while_interfaces_go_and_come_under_losses() {
    // More than all buffers on the way hold.
    const PROGRESS: u64 = 2 << 20;
    let Some((network, pair)) = start() else {
        return;
    };
    let listen = || network.ground.inside(|| TcpListener::bind(at(8002))).ok();
    let listener = wait_for("the server's address", listen);
    let connect = || TcpStream::connect_timeout(&at(8002), PATIENCE);
    let mut silent = network.field.inside(connect).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();

    let download = Transfer::download_from(&network, &at(8001).to_string());
    download.wait_for_progress(PROGRESS);
    for link in 0..2 {
        // Of the second one, all that arrives meanwhile comes over the interface that was made again.
        network.delete_link(link);
        download.wait_for_progress(PROGRESS);
        network.add_link(link);
        pair.wait_until_up(&["link0", "link1"]);
        download.wait_for_progress(PROGRESS);
    }
    download.finish();

    silent.write_all(b"still here").unwrap();
    let mut heard = [0; 10];
    far.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"still here");
}

/// Five seconds of 30 pictures, each of ten packets.
#[test]
fn a_video_over_rtp_keeps_its_pictures() {
    const PICTURES: u16 = 150;
    const PACKETS: u16 = 10;
    let Some((network, _pair)) = start() else {
        return;
    };
    let viewer = ground_socket(&network, 5004);
    // As much as the kernel gives: the viewer may come to run late.
    SockRef::from(&viewer)
        .set_recv_buffer_size(1 << 20)
        .unwrap();
    viewer.set_read_timeout(Some(PATIENCE)).unwrap();
    let sleeper = Sleeper::start();
    let seen = thread::spawn(move || {
        let mut pictures: BTreeMap<u32, u16> = BTreeMap::new();
        let mut packet = [0; 2000];
        while let Ok(length) = viewer.recv(&mut packet) {
            assert_eq!(length, 1212);
            let time = u32::from_be_bytes([packet[4], packet[5], packet[6], packet[7]]);
            *pictures.entry(time).or_default() += 1;
        }
        pictures
            .values()
            .filter(|packets| **packets == PACKETS)
            .count()
    });
    let camera = field_socket(&network);
    camera.connect(at(5004)).unwrap();
    let began = Instant::now();
    for picture in 0..PICTURES {
        let due = began + Duration::from_secs(1) * u32::from(picture) / 30;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        for packet in 0..PACKETS {
            let mut rtp = vec![0x80, 96];
            rtp.extend((picture * PACKETS + packet).to_be_bytes());
            rtp.extend((u32::from(picture) * 3000).to_be_bytes());
            rtp.resize(1212, 7);
            camera.send(&rtp).unwrap();
        }
    }
    let whole = seen.join().unwrap();
    // What a busy computer holds up for longer than its deadline is dropped.
    if whole != usize::from(PICTURES) {
        sleeper.fail(format!(
            "{whole} of {PICTURES} pictures with all their packets"
        ));
    }
}
