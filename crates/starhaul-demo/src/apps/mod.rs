//! Real applications that know nothing of what carries them: they speak UDP, RTP and TCP on loopback sockets.
//!
//! Each block holds its number, its time of sending and a body that can be checked, so the receiving application alone
//! decides what was on time, late or lost. Both ends share one clock because they live in one process.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::net::UdpSocket;

use crate::{
    Error,
    load::{BlockSpec, Class},
    score::ClassLog,
};

pub mod block;
pub mod download;
pub mod rtp;

/// A video frame of 84 packets fits a default socket buffer only just; the system may grant less than asked for.
const SOCKET_BUFFER: usize = 4 << 20;
/// Like a real video sender, an application spreads the packets of a frame instead of sending them in one burst.
const BURST_PACKETS: usize = 10;
const BURST_PAUSE: Duration = Duration::from_millis(1);
const LARGEST_UDP_PAYLOAD: usize = 65_535;

/// A log that the sending and the receiving application and the live table share.
pub type SharedLog = Arc<Mutex<ClassLog>>;

/// An empty shared log.
pub fn shared_log(class: Class) -> SharedLog {
    Arc::new(Mutex::new(ClassLog::new(class)))
}

/// A UDP socket on an unused loopback port with a large receive buffer.
pub fn loopback_socket() -> Result<UdpSocket, Error> {
    let open = || {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_recv_buffer_size(SOCKET_BUFFER)?;
        socket.set_send_buffer_size(SOCKET_BUFFER)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))?;
        UdpSocket::from_std(socket.into())
    };
    open().map_err(Error::io("open a UDP socket on 127.0.0.1"))
}

/// The address of a socket that is bound.
pub fn local_address(socket: &UdpSocket) -> Result<SocketAddr, Error> {
    socket
        .local_addr()
        .map_err(Error::io("ask a UDP socket for its address"))
}

/// The sending application of one class: sends its blocks to `target` for `duration` from `start` on.
pub async fn send(
    class: Class,
    target: SocketAddr,
    start: Instant,
    duration: Duration,
    log: SharedLog,
) -> Result<(), Error> {
    let socket = loopback_socket()?;
    let mut packetizer = rtp::Packetizer::new(1);
    for block in class.blocks(duration) {
        tokio::time::sleep_until((start + block.at).into()).await;
        let sent_at = start.elapsed();
        log.lock().on_sent(sent_at);
        let packets = encode(&block, sent_at, &mut packetizer);
        for (number, packet) in packets.iter().enumerate() {
            if number > 0 && number % BURST_PACKETS == 0 {
                tokio::time::sleep(BURST_PAUSE).await;
            }
            // A refused packet is a lost one, and counted as such by the receiver.
            let _ = socket.send_to(packet, target).await;
        }
    }
    Ok(())
}

/// The receiving application of one class: logs every whole block until it is dropped.
pub async fn receive(class: Class, socket: UdpSocket, start: Instant, log: SharedLog) {
    let mut buffer = vec![0; LARGEST_UDP_PAYLOAD];
    let mut reassembler = rtp::Reassembler::default();
    loop {
        let Ok(length) = socket.recv(&mut buffer).await else {
            continue;
        };
        let now = start.elapsed();
        let packet = &buffer[..length];
        let header = match class {
            Class::Video => reassembler
                .push(packet)
                .and_then(|nal| block::parse(&nal[1..])),
            Class::Text | Class::Audio => block::parse(packet),
        };
        if let Some(header) = header {
            log.lock()
                .on_received(header.sequence, now.saturating_sub(header.sent_at));
        }
    }
}

fn encode(block: &BlockSpec, sent_at: Duration, packetizer: &mut rtp::Packetizer) -> Vec<Vec<u8>> {
    match block.class {
        Class::Text | Class::Audio => vec![block::build(block.sequence, sent_at, block.bytes)],
        Class::Video => {
            let mut nal = vec![if block.key {
                rtp::NAL_IDR
            } else {
                rtp::NAL_NON_IDR
            }];
            nal.extend(block::build(block.sequence, sent_at, block.bytes - 1));
            packetizer.packets(&nal, rtp::timestamp(block.at))
        }
    }
}
