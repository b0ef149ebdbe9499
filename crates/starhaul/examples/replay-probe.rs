//! Traffic of known timing, which measures an emulated link from outside of the emulator:
//! `starhaul replay … --server 'replay-probe sink FILE' -- replay-probe blast 60 30 1472`
//!
//! - `sink FILE`: receives UDP on port 4700 until it is ended; answers each datagram that begins with `?`. FILE gets a line
//!   for each datagram: arrival in nanoseconds of the monotonic clock, bytes of the IP packet.
//! - `blast MBIT SECONDS BYTES`: sends datagrams of BYTES at MBIT (of IP packets) to `$STARHAUL_SERVER`.
//! - `ping MILLISECONDS SECONDS`: ICMP echo to `$STARHAUL_SERVER`; a line for each answer: round trip in nanoseconds.
//! - `ask FROM`: asks the sink from that local address, and prints the answer.
//!
//! Over IPv6 where `$STARHAUL_SERVER` is replaced by `$STARHAUL_SERVER6`.
#![allow(clippy::unwrap_used, reason = "a test tool")]

use std::{
    env,
    fs::File,
    io::{BufWriter, Read as _, Write as _},
    net::{IpAddr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use socket2::{Domain, Protocol, Socket, Type};

const PORT: u16 = 4700;
/// Size of the IPv4 and UDP headers.
const HEADER_BYTES: usize = 28;
/// Additional size of the IPv6 header.
const MORE_IN_IPV6: usize = 20;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["sink", file] => sink(file),
        ["blast", mbit, seconds, bytes] => blast(
            mbit.parse().unwrap(),
            Duration::from_secs_f64(seconds.parse().unwrap()),
            bytes.parse().unwrap(),
        ),
        ["ping", interval, seconds] => ping(
            Duration::from_secs_f64(interval.parse::<f64>().unwrap() / 1e3),
            Duration::from_secs_f64(seconds.parse().unwrap()),
        ),
        ["ask", from] => ask(from.parse().unwrap()),
        _ => panic!(
            "usage: sink FILE | blast MBIT SECONDS BYTES | ping MILLISECONDS SECONDS | ask FROM"
        ),
    }
}

fn server() -> IpAddr {
    env::var("STARHAUL_SERVER").unwrap().parse().unwrap()
}

fn sink(file: &str) {
    // Both families, where the kernel has both.
    let any = [
        (Domain::IPV6, SocketAddr::from(([0; 8], PORT))),
        (Domain::IPV4, SocketAddr::from(([0; 4], PORT))),
    ];
    let bound = any.into_iter().find_map(|(domain, address)| {
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).ok()?;
        if address.is_ipv6() {
            socket.set_only_v6(false).ok()?;
        }
        socket.bind(&address.into()).ok()?;
        Some(socket)
    });
    let socket = bound.unwrap();
    socket.set_recv_buffer_size(8 << 20).unwrap();
    let socket = UdpSocket::from(socket);
    // Written in whole blocks, so that a sudden end loses little.
    let mut out = BufWriter::new(File::create(file).unwrap());
    let start = Instant::now();
    socket
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let mut buffer = [0; 65_536];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else {
            out.flush().unwrap();
            continue;
        };
        let at = start.elapsed().as_nanos();
        let seen = SocketAddr::new(from.ip().to_canonical(), from.port());
        if buffer[0] == b'?' {
            socket.send_to(seen.to_string().as_bytes(), from).unwrap();
        }
        let more = if seen.is_ipv6() { MORE_IN_IPV6 } else { 0 };
        writeln!(out, "{at} {}", length + HEADER_BYTES + more).unwrap();
    }
}

fn blast(mbit: f64, length: Duration, bytes: usize) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect((server(), PORT)).unwrap();
    let payload = vec![0; bytes];
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let interval = Duration::from_secs_f64((bytes + HEADER_BYTES) as f64 * 8.0 / (mbit * 1e6));
    let (start, mut due) = (Instant::now(), Instant::now());
    while start.elapsed() < length {
        while due <= Instant::now() {
            // A full device queue drops packets, as on a real host.
            let _ = socket.send(&payload);
            due += interval;
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    // The run ends with this program; packets in flight should arrive, and be written.
    std::thread::sleep(Duration::from_millis(500));
}

fn ping(interval: Duration, length: Duration) {
    let to = SocketAddr::new(server(), 0);
    // The request and reply types, and the header before them: an IPv6 socket includes no header.
    let (protocol, request, answer, header) = match to {
        SocketAddr::V4(_) => (Protocol::ICMPV4, 8, 0, 20),
        SocketAddr::V6(_) => (Protocol::ICMPV6, 128, 129, 0),
    };
    let socket = Socket::new(Domain::for_address(to), Type::RAW, Some(protocol)).unwrap();
    socket.connect(&to.into()).unwrap();
    let start = Instant::now();
    let mut receiver = socket.try_clone().unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    let answers = std::thread::spawn(move || {
        let mut out = BufWriter::new(std::io::stdout());
        let mut buffer = [0; 2048];
        while let Ok(received) = receiver.read(&mut buffer) {
            let now = start.elapsed();
            let packet = buffer.get(header..received).unwrap_or_default();
            if packet.len() >= 16 && packet[0] == answer {
                let sent = u64::from_be_bytes(packet[8..16].try_into().unwrap());
                writeln!(out, "{}", now.as_nanos() - u128::from(sent)).unwrap();
            }
        }
        out.flush().unwrap();
    });
    let (mut due, mut number) = (start, 0u16);
    while start.elapsed() < length {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = u64::try_from(start.elapsed().as_nanos()).unwrap();
        let mut packet = vec![request, 0, 0, 0, 0x57, 0x41];
        packet.extend(number.to_be_bytes());
        packet.extend(now.to_be_bytes());
        packet.resize(64, 0);
        // The kernel writes the checksum of ICMPv6 itself.
        let checksum = checksum(&packet).to_be_bytes();
        packet[2..4].copy_from_slice(&checksum);
        socket.send(&packet).unwrap();
        (due, number) = (due + interval, number.wrapping_add(1));
    }
    answers.join().unwrap();
}

fn ask(from: SocketAddr) {
    let socket = UdpSocket::bind(from).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    socket.send_to(b"?", (server(), PORT)).unwrap();
    let mut buffer = [0; 100];
    let (length, _) = socket.recv_from(&mut buffer).unwrap();
    println!("{}", std::str::from_utf8(&buffer[..length]).unwrap());
}

/// The checksum of RFC 1071.
fn checksum(packet: &[u8]) -> u16 {
    let words = packet
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    u16::try_from(!(folded + (folded >> 16)) & 0xffff).unwrap()
}
