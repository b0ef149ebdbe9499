//! Blocks become datagrams for the target; what it answers becomes a reply stream.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_endpoint::RecvStream;
use tokio::net::UdpSocket;

use super::{
    associate::Association,
    outlet::{FULL, Outlet, Permit, Slot, Slots},
    refuse,
    replies::{MAX_DATAGRAM, ReplySender, bind_like},
};
use crate::{
    config::Framing, label::Flow, peer::PeerSession, policy::reply_config, socks5::Reply,
    target::Target,
};

/// A flow that could not begin is tried again after this time, if its client still sends.
const RETRY: Duration = Duration::from_secs(10);
/// What a peer may ask for, whatever it writes.
const MAX_FRAME_TIMEOUT: Duration = Duration::from_secs(1);

/// A flow that the peer opened, not yet served.
pub(super) struct Start {
    pub(super) session: Arc<PeerSession>,
    pub(super) outlet: Arc<Outlet>,
    pub(super) slots: Arc<Slots>,
    pub(super) rule: String,
    pub(super) flow: Flow,
}

/// The sockets of a flow that has begun.
enum Begun {
    Target(UdpSocket, Slot),
    Association(Arc<Association>, Slot),
}

impl Start {
    /// Serves the flow until the peer ends it. One that cannot begin is tried again as long as its client sends: the peer
    /// does not hear of it, and its client would be unheard for as long as it goes on.
    pub(super) async fn serve(self, mut stream: RecvStream) {
        let (id, framing, target) = match &self.flow {
            Flow::Udp { id, target } => (*id, Framing::Datagrams, Some(target)),
            Flow::Rtp {
                id,
                target,
                codec,
                frame_timeout_ms,
            } => {
                let timeout = Duration::from_millis((*frame_timeout_ms).into());
                (
                    *id,
                    Framing::Rtp {
                        codec: *codec,
                        frame_timeout: timeout.min(MAX_FRAME_TIMEOUT),
                    },
                    Some(target),
                )
            }
            Flow::Associate { id } => (*id, Framing::Datagrams, None),
            Flow::Reply { .. } | Flow::Tcp { .. } => {
                refuse(&self.session, "it opened a stream of blocks for bytes");
                return;
            }
        };
        let config = reply_config(stream.config(), &self.rule, id);
        let replies = ReplySender::new(self.session.clone(), config, framing);
        let begun = match self.begin(target).await {
            Ok(begun) => Some(begun),
            Err(reason) => {
                refuse(&self.session, &reason);
                self.begin_later(&mut stream, target).await
            }
        };
        match begun {
            Some(Begun::Target(socket, _slot)) => {
                carry(&self.session, &socket, stream, framing, replies).await;
            }
            Some(Begun::Association(association, _slot)) => {
                association.serve(stream, replies).await;
            }
            None => {}
        }
    }

    /// By the policy of now.
    async fn begin(&self, target: Option<&Target>) -> Result<Begun, String> {
        let (permit, peer) = (self.outlet.permit(), &self.session.peer);
        let slot = self.slots.take(&permit, peer).ok_or(FULL)?;
        match target {
            Some(target) => match connect(&permit, peer, target).await {
                Ok(socket) => Ok(Begun::Target(socket, slot)),
                Err(reply) => Err(format!("{target} cannot be reached: {reply:?}")),
            },
            None => {
                let association = Association::bind(permit, peer).await;
                let association = association.map_err(|error| format!("no socket: {error}"))?;
                Ok(Begun::Association(Arc::new(association), slot))
            }
        }
    }

    /// Tries until it begins; `None` when the peer has ended the flow. What arrives meanwhile is lost.
    async fn begin_later(&self, stream: &mut RecvStream, target: Option<&Target>) -> Option<Begun> {
        loop {
            stream.recv_block().await?;
            let until = tokio::time::Instant::now() + RETRY;
            while let Ok(block) = tokio::time::timeout_at(until, stream.recv_block()).await {
                block?;
            }
            match self.begin(target).await {
                Ok(begun) => return Some(begun),
                Err(reason) => tracing::debug!(peer = self.session.peer, reason, "refused again"),
            }
        }
    }
}

async fn carry(
    session: &PeerSession,
    socket: &UdpSocket,
    mut stream: RecvStream,
    framing: Framing,
    mut replies: ReplySender,
) {
    let forward = async {
        while let Some(block) = stream.recv_block().await {
            match framing.datagrams(block.data) {
                Ok(datagrams) => {
                    for datagram in datagrams {
                        // An ICMP error to an earlier datagram ends up here too; the target may come back.
                        let _ = socket.send(&datagram).await;
                    }
                }
                Err(error) => {
                    if let Some(others) = session.log.frames.is_due(Instant::now()) {
                        tracing::warn!(peer = session.peer, %error, others, "block dropped");
                    }
                }
            }
        }
    };
    let backward = async {
        let mut buffer = vec![0; MAX_DATAGRAM];
        loop {
            tokio::select! {
                received = socket.recv(&mut buffer) => {
                    if let Ok(length) = received {
                        replies.send(Bytes::copy_from_slice(buffer.get(..length).unwrap_or_default())).await;
                    }
                }
                () = replies.wait() => replies.send_due(),
            }
        }
    };
    tokio::select! {
        () = forward => {}
        () = backward => {}
    }
}

/// A socket that sends to the target and hears nobody else.
async fn connect(permit: &Permit, peer: &str, target: &Target) -> Result<UdpSocket, Reply> {
    let mut last = Reply::HostUnreachable;
    for address in permit.addresses(peer, target).await? {
        let connected = async {
            let socket = bind_like(address).await?;
            socket.connect(address).await?;
            io::Result::Ok(socket)
        };
        match connected.await {
            Ok(socket) => return Ok(socket),
            Err(error) => {
                permit.limits().note_io(peer, &error);
                last = Reply::NetworkUnreachable;
            }
        }
    }
    Err(last)
}
