//! `[[socks5]]`: CONNECT becomes a byte stream, UDP ASSOCIATE a flow whose blocks carry their targets.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
};

use super::{
    ConnectionWay, Rule, SESSION_WAIT, count, datagrams::Replies, enlarge_buffers, stream::open,
};
use crate::{
    batch_socket::receive_one,
    byte_stream::{Reader, Writer},
    config::{ConnectionService, Credentials, Delivery, Framing},
    label::{Flow, Label},
    policy::{BlockSender, stream_config},
    relay::{ConnectAnswer, NotConnected, broken, relay, settle},
    socks5::{
        Command, Handshake, Reply, Request, Step, read_address, read_datagram, write_address,
        write_datagram,
    },
    target::Target,
};

/// Time limit of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Serves one client from its greeting to its end.
pub(super) async fn serve_connection(
    rule: &Rule<ConnectionService>,
    credentials: Option<Credentials>,
    delivery: &Delivery,
    mut tcp: TcpStream,
) -> io::Result<()> {
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, shake_hands(&mut tcp, credentials));
    let (request, early) = handshake.await.map_err(|_| io::ErrorKind::TimedOut)??;
    match request.command {
        Command::Connect => connect(rule, tcp, &request.target, &early).await,
        Command::UdpAssociate => associate(rule, tcp, &request.target, delivery).await,
    }
}

async fn shake_hands(
    tcp: &mut TcpStream,
    credentials: Option<Credentials>,
) -> io::Result<(Request, Vec<u8>)> {
    let mut handshake = Handshake::new(credentials);
    let mut buffer = [0; 1024];
    loop {
        match handshake.poll() {
            Step::Send(bytes) => tcp.write_all(&bytes).await?,
            Step::Request(request) => return Ok((request, handshake.into_rest())),
            Step::Refuse(bytes, error) => {
                refuse(tcp, &bytes).await?;
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
            Step::Read => match tcp.read(&mut buffer).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => handshake.handle(buffer.get(..read).unwrap_or_default()),
            },
        }
    }
}

async fn connect(
    rule: &Rule<ConnectionService>,
    mut tcp: TcpStream,
    target: &Target,
    early: &[u8],
) -> io::Result<()> {
    let begun = tokio::select! {
        begun = begin(rule, target) => begun,
        () = gave_up(&tcp) => return Err(io::ErrorKind::UnexpectedEof.into()),
    };
    let ((reader, writer), answer) = match begun {
        Ok(begun) => begun,
        Err((reply, error)) => {
            refuse(&mut tcp, &reply.message(NOWHERE)).await?;
            return Err(error);
        }
    };
    if answer.reply != Reply::Succeeded {
        refuse(&mut tcp, &answer.reply.message(NOWHERE)).await?;
        return Err(NotConnected(answer.reply).into());
    }
    tcp.write_all(&answer.reply.message(answer.bound)).await?;
    let idle = rule.config.service.limits.idle_timeout;
    relay(tcp, reader, writer, early, false, idle).await
}

/// Opens a stream to the target and waits for the far side's answer, which over bundles may take hours. An error comes with what the
/// client is told.
async fn begin(
    rule: &Rule<ConnectionService>,
    target: &Target,
) -> Result<((Reader, Writer), ConnectAnswer), (Reply, io::Error)> {
    let opened = open(rule, target, None).await;
    let (mut reader, writer) = opened.map_err(|error| {
        // Anything but a missing session means that it takes no further stream.
        let reply = match error.kind() {
            io::ErrorKind::NetworkUnreachable => Reply::NetworkUnreachable,
            _ => Reply::GeneralFailure,
        };
        (reply, error)
    })?;
    let answer = ConnectAnswer::read(&mut reader).await;
    let answer = answer.map_err(|error| (Reply::GeneralFailure, error))?;
    Ok(((reader, writer), answer))
}

/// Waits until a client that has no answer yet closes its connection. What it sent early stays where it is.
async fn gave_up(tcp: &TcpStream) {
    match tcp.peek(&mut [0]).await {
        Ok(0) | Err(_) => {}
        // Its end shows behind that data only when it was reset.
        Ok(_) => _ = broken(tcp).await,
    }
}

/// Sends a last message and closes in order, so that the client can read it.
async fn refuse(tcp: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    tcp.write_all(message).await?;
    tcp.shutdown().await?;
    settle(tcp);
    Ok(())
}

/// The same host, with its scope if it is a link-local one.
fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

async fn associate(
    rule: &Rule<ConnectionService>,
    mut tcp: TcpStream,
    expected: &Target,
    delivery: &Delivery,
) -> io::Result<()> {
    let ConnectionWay::Peer(peer) = &rule.way else {
        // A chain carries no datagrams, and bundles none with targets of their own.
        return refuse(&mut tcp, &Reply::CommandNotSupported.message(NOWHERE)).await;
    };
    let local = tcp.local_addr()?;
    let client = tcp.peer_addr()?;
    let socket = UdpSocket::bind(with_port(local, 0)).await;
    let socket = match socket {
        Ok(socket) => socket,
        Err(error) => {
            rule.shared_limits.note_io(&rule.config.name, &error);
            refuse(&mut tcp, &Reply::GeneralFailure.message(NOWHERE)).await?;
            return Err(error);
        }
    };
    enlarge_buffers(&socket);
    let Some(session) = peer.session_within(SESSION_WAIT).await else {
        return refuse(&mut tcp, &Reply::NetworkUnreachable.message(NOWHERE)).await;
    };
    let mut flow = session.open_flow();
    let label = Label::new(&rule.config.name, Flow::Associate { id: flow.id });
    let config = stream_config(delivery, rule.config.priority, &label);
    let stream = match session.inner.open_stream(config).await {
        Ok(stream) => stream,
        Err(error) => {
            session.note(&error);
            refuse(&mut tcp, &Reply::GeneralFailure.message(NOWHERE)).await?;
            return Err(io::Error::other(error));
        }
    };
    tcp.write_all(&Reply::Succeeded.message(socket.local_addr()?))
        .await?;

    let mut sender = BlockSender::new(stream, Framing::Datagrams);
    let mut replies = Replies::default();
    // RFC 1928 §7: only the client may use the relay; its port is fixed by the request or by its first datagram.
    let mut client_port = (expected.port != 0).then_some(expected.port);
    let mut client_address = client_port.map(|port| with_port(client, port));
    let next = || receive_one(&socket, |datagram, source| (addressed(datagram), source));
    let mut ignored = [0; 256];
    let mut closed = std::pin::pin!(session.inner.closed());
    let mut other = std::pin::pin!(peer.wait_for_other(&session));
    loop {
        tokio::select! {
            received = next() => {
                let Ok((block, source)) = received else { continue };
                count(&rule.counters.datagrams_in);
                let from_client = source.ip().to_canonical() == client.ip().to_canonical()
                    && client_port.is_none_or(|port| port == source.port());
                let sent = match block.filter(|_| from_client) {
                    Some(block) => {
                        client_port = Some(source.port());
                        client_address = Some(source);
                        let sent = sender.send(block);
                        sent.inspect_err(|error| session.note_unsent(error)).is_ok()
                    }
                    None => false,
                };
                if !sent {
                    count(&rule.counters.dropped_refused);
                }
            }
            blocks = replies.next(&mut flow) => {
                for block in blocks {
                    if let (Some(client), Ok(Some(_))) = (client_address, read_address(&block.data)) {
                        count(&rule.counters.datagrams_out);
                        let _ = socket.send_to(&write_datagram(&block.data), client).await;
                    }
                }
            }
            // RFC 1928 §7: the association ends with the connection that asked for it.
            read = tcp.read(&mut ignored) => if matches!(read, Ok(0) | Err(_)) { break },
            _ = &mut closed => break,
            // The peer began anew; the session may be found to have ended a minute later.
            () = &mut other => break,
        }
    }
    settle(&tcp);
    Ok(())
}

/// A client's datagram as a block of target and data; `None` if it is malformed or a fragment.
fn addressed(datagram: &[u8]) -> Option<Bytes> {
    let (target, data) = read_datagram(datagram).ok()?;
    let mut block = Vec::with_capacity(datagram.len());
    write_address(&target, &mut block);
    block.extend(data);
    Some(block.into())
}
