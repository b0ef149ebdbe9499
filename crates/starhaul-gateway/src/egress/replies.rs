//! Sends the answers of targets back to the peer, and binds the sockets that receive them.

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

/// Sends replies; their stream is opened with the first one.
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

    /// Sends datagrams back. Those that the session refuses are dropped, and the session counts them.
    pub(super) async fn send_all(&mut self, datagrams: impl ExactSizeIterator<Item = Bytes>) {
        if datagrams.len() == 0 {
            return;
        }
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
        let session = &self.session;
        if let Some(sender) = &mut self.sender {
            sender.send_all(datagrams, |error| note(session, &error));
        }
    }

    pub(super) async fn wait(&self) {
        match &self.sender {
            Some(sender) => sender.wait().await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn send_due(&mut self) {
        if let Some(sender) = &mut self.sender
            && let Err(error) = sender.send_due()
        {
            note(&self.session, &error);
        }
    }
}

fn note(session: &PeerSession, error: &NotSent) {
    session.note_unsent(error);
    tracing::debug!(%error, "reply refused");
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
