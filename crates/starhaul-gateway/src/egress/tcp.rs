//! Byte streams of the peer become TCP connections; the peer is told first whether there is one.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use starhaul_endpoint::ByteStream;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use super::outlet::Permit;
use crate::{
    peer::PeerSession,
    relay::{Answer, relay},
    socks5::Reply,
    target::Target,
};

/// For all addresses of a target together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Connects, answers, and carries the connection to its end.
pub(super) async fn serve(
    session: Arc<PeerSession>,
    permit: Permit,
    stream: ByteStream,
    target: Target,
) {
    let (reader, mut writer) = stream.into_split();
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect(&permit, &session.peer, &target))
        .await
        .unwrap_or(Err(Reply::HostUnreachable));
    let result = match connected {
        Ok((tcp, bound)) => {
            let answer = Answer {
                reply: Reply::Succeeded,
                bound,
            }
            .encode();
            relay(tcp, reader, writer, &answer, false, None).await
        }
        Err(reply) => {
            if reply == Reply::NotAllowed
                && let Some(others) = session.log.forbidden.is_due(Instant::now())
            {
                tracing::warn!(peer = session.peer, %target, others, "the peer asked for a target that [egress] does not allow");
            }
            let bound = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
            let answered = writer.write_all(&Answer { reply, bound }.encode()).await;
            // The reader, dropped at the end, tells the peer that nobody takes its data.
            answered.and(writer.shutdown().await)
        }
    };
    if let Err(error) = result {
        tracing::debug!(peer = session.peer, %target, %error, "connection ended badly");
    }
}

async fn connect(
    permit: &Permit,
    peer: &str,
    target: &Target,
) -> Result<(TcpStream, SocketAddr), Reply> {
    let mut last = Reply::HostUnreachable;
    for address in permit.addresses(peer, target).await? {
        match TcpStream::connect(address).await {
            Ok(tcp) => {
                let bound = tcp.local_addr().map_err(|_| Reply::GeneralFailure)?;
                return Ok((tcp, bound));
            }
            Err(error) => {
                permit.limits().note_io(peer, &error);
                last = reply_for(error.kind());
            }
        }
    }
    Err(last)
}

fn reply_for(error: io::ErrorKind) -> Reply {
    match error {
        io::ErrorKind::ConnectionRefused => Reply::ConnectionRefused,
        io::ErrorKind::NetworkUnreachable => Reply::NetworkUnreachable,
        io::ErrorKind::HostUnreachable | io::ErrorKind::TimedOut => Reply::HostUnreachable,
        _ => Reply::GeneralFailure,
    }
}
