//! What targets answer, on its way back, and the sockets on which they do.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use bytes::Bytes;
use starhaul_endpoint::StreamConfig;
use tokio::net::UdpSocket;

use crate::{
    config::Framing,
    ingress::enlarge_buffers,
    peer::PeerSession,
    policy::{BlockSender, NotSent},
};

/// The longest UDP datagram.
pub(super) const MAX_DATAGRAM: usize = 65_535;
/// Sends replies; their stream is opened with the first.
pub(super) struct ReplySender {
    session: Arc<PeerSession>,
    config: StreamConfig,
    framing: Framing,
    sender: Option<BlockSender>,
}

impl ReplySender {
    pub(super) fn new(session: Arc<PeerSession>, config: StreamConfig, framing: Framing) -> Self {
        Self {
            session,
            config,
            framing,
            sender: None,
        }
    }

    /// Sends a datagram back. One that the session refuses is dropped; the session counts it.
    pub(super) async fn send(&mut self, datagram: Bytes) {
        if self.sender.is_none() {
            match self.session.inner.open_stream(self.config.clone()).await {
                Ok(stream) => self.sender = Some(BlockSender::new(stream, self.framing)),
                Err(error) => {
                    self.session.note(&error);
                    tracing::debug!(%error, "no stream for replies");
                    return;
                }
            }
        }
        if let Some(sender) = &mut self.sender {
            let sent = sender.send(datagram);
            self.note(sent);
        }
    }

    pub(super) async fn wait(&self) {
        match &self.sender {
            Some(sender) => sender.wait().await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn send_due(&mut self) {
        if let Some(sender) = &mut self.sender {
            let sent = sender.send_due();
            self.note(sent);
        }
    }

    fn note(&self, sent: Result<(), NotSent>) {
        if let Err(error) = sent {
            self.session.note_unsent(&error);
            tracing::debug!(%error, "reply refused");
        }
    }
}

/// A socket from which `address` can be reached.
pub(super) async fn bind_like(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await,
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await,
    }?;
    enlarge_buffers(&socket);
    Ok(socket)
}
