//! Byte streams of the peer become TCP connections; the peer is told first whether there is one.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use socket2::SockRef;
use starhaul_net::Routing;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpSocket, TcpStream},
};

use super::outlet::Permit;
use crate::{
    byte_stream::{Reader, Writer},
    peer::PeerLog,
    relay::{ConnectAnswer, relay, unsettle},
    socks5::Reply,
    target::Target,
};

/// Time limit for trying all addresses of a target.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// The peer or far gateway that opened a stream.
#[derive(Debug)]
pub(super) struct Opener {
    /// Its name, for people.
    pub(super) name: String,
    pub(super) log: Arc<PeerLog>,
}

/// Connects to the target, in the client's name if one is given, answers, and relays until both directions have ended.
pub(super) async fn serve(
    opener: &Opener,
    permit: Permit,
    (reader, mut writer): (Reader, Writer),
    target: Target,
    client: Option<IpAddr>,
) {
    let connect = async |address: SocketAddr| {
        let tcp = match client {
            // What answers a client that is not of this host goes out, and not to our socket.
            Some(_) if Routing::open()?.is_local(address.ip())? => {
                if let Some(others) = opener.log.own_services.is_due(Instant::now()) {
                    tracing::warn!(peer = opener.name, to = %address, others, "the peer asked for a service of this host in its client's name, which works only for other hosts: set keep_client = false there");
                }
                return Err(ErrorKind::AddrNotAvailable.into());
            }
            Some(client) => connect_as(client, address).await?,
            None => TcpStream::connect(address).await?,
        };
        let bound = tcp.local_addr()?;
        io::Result::Ok((tcp, bound))
    };
    let connected = async {
        match client {
            Some(client) if !permit.policy.lends(client) => Err(Reply::NotAllowed),
            _ => permit.connect(&opener.name, &target, connect).await,
        }
    };
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connected).await;
    let result = match connected.unwrap_or(Err(Reply::HostUnreachable)) {
        Ok((tcp, bound)) => {
            unsettle(&tcp);
            let answer = ConnectAnswer {
                reply: Reply::Succeeded,
                bound,
            }
            .encode();
            relay(tcp, reader, writer, &answer, false, None).await
        }
        Err(reply) => {
            if reply == Reply::NotAllowed
                && let Some(others) = opener.log.forbidden.is_due(Instant::now())
            {
                tracing::warn!(peer = opener.name, to = %target, others, "the peer asked for a target that [egress] does not allow");
            }
            let bound = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
            let answered = writer
                .write_all(&ConnectAnswer { reply, bound }.encode())
                .await;
            // The reader, dropped at the end, asks the peer to stop sending.
            answered.and(writer.shutdown().await)
        }
    };
    if let Err(error) = result {
        tracing::debug!(peer = opener.name, to = %target, %error, "connection ended badly");
    }
}

/// Connects from an address that is not of this host.
async fn connect_as(client: IpAddr, target: SocketAddr) -> io::Result<TcpStream> {
    let socket = match client {
        IpAddr::V4(_) => TcpSocket::new_v4()?,
        IpAddr::V6(_) => TcpSocket::new_v6()?,
    };
    let options = SockRef::from(&socket);
    match client {
        IpAddr::V4(_) => options.set_ip_transparent_v4(true)?,
        IpAddr::V6(_) => options.set_ip_transparent_v6(true)?,
    }
    socket.bind(SocketAddr::new(client, 0))?;
    socket.connect(target).await
}
