//! What a gateway is for Starhaul, for the baseline: takes datagrams, RTP and SOCKS5 on loopback sockets, carries them
//! over [`MpQuicNode`] and gives them out at the other end. One connection per class and one for the download.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::{Notify, mpsc},
    task::JoinSet,
    time::timeout,
};

use super::{
    ConnectionId, Controller, MpQuicEvent, MpQuicNode, StreamId,
    driver::{Driver, Handle},
};
use crate::{
    Error,
    apps::{self, rtp},
    load::Class,
};

const DOWNLOAD: &str = "download";
const CHUNK: usize = 64 << 10;
const LONGEST_TARGET: usize = 64;

/// One end of the baseline with its ingress and egress. It stops when dropped.
#[derive(Debug)]
pub struct Carrier {
    driver: Driver,
    connections: Arc<Connections>,
    tasks: JoinSet<()>,
}

/// The connections by label, filled as they come up.
#[derive(Debug, Default)]
struct Connections {
    by_label: Mutex<HashMap<String, ConnectionId>>,
    changed: Notify,
    /// The first of them that was lost, and why.
    lost: Mutex<Option<String>>,
}

impl Carrier {
    /// Starts an end. Blocks that arrive go to the application at the address of their class.
    pub async fn start(
        server: bool,
        controller: Controller,
        seed: u64,
        egress: &[(Class, SocketAddr)],
    ) -> Result<Self, Error> {
        let node = MpQuicNode::new(server, controller, seed, seed ^ u64::from(server))?;
        let (driver, events) = Driver::start(node, ([127, 0, 0, 1], 0).into())?;
        let connections = Arc::<Connections>::default();
        let mut tasks = JoinSet::new();
        let targets = egress
            .iter()
            .map(|(class, target)| (class.name().to_owned(), (*class, *target)))
            .collect();
        let socket = apps::loopback_socket()?;
        tasks.spawn(emit(
            driver.handle(),
            events,
            connections.clone(),
            socket,
            targets,
        ));
        Ok(Self {
            driver,
            connections,
            tasks,
        })
    }

    /// Where the other end, or the links to it, must send.
    pub const fn address(&self) -> SocketAddr {
        self.driver.address()
    }

    /// Opens all connections over `paths`, of which the first is the lowest path, and waits until they are up.
    pub async fn connect(&self, paths: &[SocketAddr], limit: Duration) -> Result<(), Error> {
        let labels = Class::ALL.map(Class::name).into_iter().chain([DOWNLOAD]);
        for label in labels.clone() {
            self.driver.handle().connect(label, paths)?;
        }
        let all_up = async {
            for label in labels {
                self.connections.named(label).await;
            }
        };
        timeout(limit, all_up)
            .await
            .map_err(|_| Error::Baseline(format!("its connections were not up within {limit:?}")))
    }

    /// Why this end carries no longer all that it should, if so: a connection was lost, or the socket failed.
    pub fn failure(&self) -> Option<String> {
        let ended = || {
            let ended = self.driver.has_ended();
            ended.then(|| "the baseline stopped, for the reason logged before".to_owned())
        };
        self.connections.lost.lock().clone().or_else(ended)
    }

    /// Takes the datagrams of a class, or for video the RTP packets, on a loopback port.
    pub fn ingress(&mut self, class: Class) -> Result<SocketAddr, Error> {
        let socket = apps::loopback_socket()?;
        let address = apps::local_address(&socket)?;
        self.tasks.spawn(take_blocks(
            self.driver.handle(),
            self.connections.clone(),
            class,
            socket,
        ));
        Ok(address)
    }

    /// Takes TCP connections by SOCKS5 on a loopback port.
    pub async fn socks(&mut self) -> Result<SocketAddr, Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(Error::io("listen on 127.0.0.1"))?;
        let address = listener
            .local_addr()
            .map_err(Error::io("ask a listener for its address"))?;
        let (handle, connections) = (self.driver.handle(), self.connections.clone());
        self.tasks.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(take_stream(handle.clone(), connections.clone(), client));
            }
        });
        Ok(address)
    }
}

impl Connections {
    fn add(&self, label: String, connection: ConnectionId) {
        self.by_label.lock().insert(label, connection);
        self.changed.notify_waiters();
    }

    fn lose(&self, lost: ConnectionId, reason: &str) {
        let by_label = self.by_label.lock();
        // One that has never been up leaves its opener waiting, which tells of it.
        if let Some((label, _)) = by_label.iter().find(|(_, known)| **known == lost) {
            let why = format!("the baseline's connection for {label} was lost: {reason}");
            self.lost.lock().get_or_insert(why);
        }
    }

    async fn named(&self, label: &str) -> ConnectionId {
        loop {
            let changed = self.changed.notified();
            if let Some(connection) = self.by_label.lock().get(label) {
                return *connection;
            }
            changed.await;
        }
    }
}

async fn take_blocks(
    handle: Handle,
    connections: Arc<Connections>,
    class: Class,
    socket: UdpSocket,
) {
    let connection = connections.named(class.name()).await;
    let mut buffer = vec![0; usize::from(u16::MAX)];
    let mut frame = RtpFrame::default();
    loop {
        let Ok(length) = socket.recv(&mut buffer).await else {
            continue;
        };
        let packet = &buffer[..length];
        let block = match class {
            Class::Video => frame.push(packet),
            Class::Text | Class::Audio => Some(Bytes::copy_from_slice(packet)),
        };
        if let Some(block) = block {
            // A refused block is a lost one, and counted as such by the receiver.
            let _ = handle.send_block(connection, block);
        }
    }
}

/// Collects the packets of one RTP timestamp: each goes into the block behind its length.
#[derive(Default)]
struct RtpFrame {
    block: BytesMut,
}

impl RtpFrame {
    fn push(&mut self, packet: &[u8]) -> Option<Bytes> {
        let length = u16::try_from(packet.len()).ok()?;
        self.block.put_u16(length);
        self.block.put_slice(packet);
        rtp::has_marker(packet).then(|| self.block.split().freeze())
    }
}

async fn emit(
    handle: Handle,
    mut events: mpsc::UnboundedReceiver<MpQuicEvent>,
    connections: Arc<Connections>,
    socket: UdpSocket,
    targets: HashMap<String, (Class, SocketAddr)>,
) {
    let mut classes = HashMap::new();
    while let Some(event) = events.recv().await {
        match event {
            MpQuicEvent::Connected { connection, label } => {
                if let Some(target) = targets.get(&label) {
                    classes.insert(connection, *target);
                }
                connections.add(label, connection);
            }
            MpQuicEvent::BlockReceived { connection, data } => {
                if let Some((class, target)) = classes.get(&connection) {
                    emit_block(&socket, *class, *target, data).await;
                }
            }
            MpQuicEvent::StreamOpened { connection, stream } => {
                tokio::spawn(give_stream(handle.clone(), connection, stream));
            }
            MpQuicEvent::Lost { connection, reason } => connections.lose(connection, &reason),
        }
    }
}

async fn emit_block(socket: &UdpSocket, class: Class, target: SocketAddr, mut data: Bytes) {
    match class {
        Class::Video => {
            while data.remaining() >= 2 {
                let length = usize::from(data.get_u16()).min(data.len());
                // A refused packet is a lost one, and counted as such by the receiver.
                let _ = socket.send_to(&data.split_to(length), target).await;
            }
        }
        Class::Text | Class::Audio => {
            let _ = socket.send_to(&data, target).await;
        }
    }
}

/// Serves one SOCKS5 client (RFC 1928, CONNECT to an IPv4 address without authentication).
async fn take_stream(handle: Handle, connections: Arc<Connections>, mut client: TcpStream) {
    let Ok(target) = socks_target(&mut client).await else {
        return;
    };
    let connection = connections.named(DOWNLOAD).await;
    let Some(stream) = handle.open_stream(connection) else {
        return;
    };
    if handle
        .write(connection, stream, format!("{target}\n").as_bytes())
        .await
    {
        splice(handle, connection, stream, client).await;
    }
}

async fn socks_target(client: &mut TcpStream) -> std::io::Result<SocketAddr> {
    let mut greeting = [0; 2];
    client.read_exact(&mut greeting).await?;
    client
        .read_exact(&mut vec![0; usize::from(greeting[1])])
        .await?;
    client.write_all(&[5, 0]).await?;
    let mut request = [0; 10];
    client.read_exact(&mut request).await?;
    let [5, 1, 0, 1, a, b, c, d, high, low] = request else {
        return Err(std::io::Error::other("only CONNECT to an IPv4 address"));
    };
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    Ok(([a, b, c, d], u16::from_be_bytes([high, low])).into())
}

/// Connects a stream that the peer opened to the target named in its first line.
async fn give_stream(handle: Handle, connection: ConnectionId, stream: StreamId) {
    let mut head = Vec::new();
    let end = loop {
        if let Some(end) = head.iter().position(|&byte| byte == b'\n') {
            break end;
        }
        match handle.read(connection, stream).await {
            Some(data) if head.len() <= LONGEST_TARGET => head.extend_from_slice(&data),
            _ => return,
        }
    };
    let target = std::str::from_utf8(&head[..end])
        .ok()
        .and_then(|line| line.parse::<SocketAddr>().ok());
    let server = match target {
        Some(target) => TcpStream::connect(target).await,
        None => return,
    };
    match server {
        Ok(mut server) => {
            if server.write_all(&head[end + 1..]).await.is_ok() {
                splice(handle, connection, stream, server).await;
            }
        }
        Err(_) => handle.finish(connection, stream),
    }
}

/// Copies both ways until both have ended.
async fn splice(handle: Handle, connection: ConnectionId, stream: StreamId, tcp: TcpStream) {
    let (mut from_tcp, mut to_tcp) = tcp.into_split();
    let out = async {
        let mut buffer = vec![0; CHUNK];
        while let Ok(length @ 1..) = from_tcp.read(&mut buffer).await {
            if !handle.write(connection, stream, &buffer[..length]).await {
                break;
            }
        }
        handle.finish(connection, stream);
    };
    let back = async {
        while let Some(data) = handle.read(connection, stream).await {
            if to_tcp.write_all(&data).await.is_err() {
                return;
            }
        }
        // Fails only when the client is gone.
        let _ = to_tcp.shutdown().await;
    };
    tokio::join!(out, back);
}
