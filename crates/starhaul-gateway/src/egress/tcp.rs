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
    relay::{ConnectAnswer, relay},
    socks5::Reply,
    target::Target,
};

/// Time limit for trying all addresses of a target.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Connects to the target, answers, and relays until both directions have ended.
pub(super) async fn serve(
    session: Arc<PeerSession>,
    permit: Permit,
    stream: ByteStream,
    target: Target,
) {
    let (reader, mut writer) = stream.into_split();
    let connect = async |address: SocketAddr| {
        let tcp = TcpStream::connect(address).await?;
        let bound = tcp.local_addr()?;
        io::Result::Ok((tcp, bound))
    };
    let connected = permit.connect(&session.peer, &target, connect);
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connected).await;
    let result = match connected.unwrap_or(Err(Reply::HostUnreachable)) {
        Ok((tcp, bound)) => {
            let answer = ConnectAnswer {
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
            let answered = writer
                .write_all(&ConnectAnswer { reply, bound }.encode())
                .await;
            // The reader, dropped at the end, asks the peer to stop sending.
            answered.and(writer.shutdown().await)
        }
    };
    if let Err(error) = result {
        tracing::debug!(peer = session.peer, %target, %error, "connection ended badly");
    }
}
