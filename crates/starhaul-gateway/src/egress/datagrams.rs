//! Blocks become datagrams for the target; its answers go back on a reply stream.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_endpoint::RecvStream;

use super::{
    associate::Association,
    outlet::{FULL, Outlet, Slot, Slots},
    refuse,
    replies::{ReplySender, bind_like},
};
use crate::{
    batch_socket::BatchSocket, config::Framing, label::Flow, peer::PeerSession,
    policy::reply_config, target::Target,
};

/// A flow that could not begin is tried again after this time if its client still sends.
const RETRY: Duration = Duration::from_secs(10);
/// Upper bound of the frame timeout that a peer asks for.
const MAX_FRAME_TIMEOUT: Duration = Duration::from_secs(1);

/// A flow that the peer opened, not yet served.
pub(super) struct Start {
    pub(super) session: Arc<PeerSession>,
    pub(super) outlet: Arc<Outlet>,
    pub(super) slots: Arc<Slots>,
    pub(super) rule: String,
    pub(super) flow: Flow,
}

/// Greatest number of blocks taken from a stream at once.
const BURST: usize = 64;

/// The sockets of a flow that has begun, and its slot.
enum Begun {
    Target((BatchSocket, SocketAddr), Slot),
    Association(Arc<Association>, Slot),
}

impl Start {
    /// Serves the flow until the peer ends it. One that cannot begin is tried again as long as its client sends: the peer is
    /// not told of the failure, so that its client would otherwise send to no target for ever.
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
            Flow::Reply { .. } | Flow::Tcp { .. } | Flow::Packets { .. } => {
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
                carry(&self.session, socket, stream, framing, replies).await;
            }
            Some(Begun::Association(association, _slot)) => {
                association.serve(stream, replies).await;
            }
            None => {}
        }
    }

    /// Binds the flow's sockets under the present policy.
    async fn begin(&self, target: Option<&Target>) -> Result<Begun, String> {
        let (permit, peer) = (self.outlet.permit(), &self.session.peer);
        let slot = self.slots.take(&permit, peer).ok_or(FULL)?;
        match target {
            Some(target) => match permit.connect(peer, target, connect).await {
                Ok(socket) => Ok(Begun::Target(socket, slot)),
                Err(reply) => Err(format!("{target} cannot be reached: {reply:?}")),
            },
            None => {
                let association = Association::bind(permit, self.session.log.clone(), peer).await;
                let association = association.map_err(|error| format!("no socket: {error}"))?;
                Ok(Begun::Association(Arc::new(association), slot))
            }
        }
    }

    /// Retries until the flow begins; `None` when the peer has ended it. Blocks that arrive meanwhile are lost.
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
    (socket, target): (BatchSocket, SocketAddr),
    mut stream: RecvStream,
    framing: Framing,
    mut replies: ReplySender,
) {
    let forward = async {
        while let Some(blocks) = stream.recv_blocks(BURST).await {
            let mut datagrams = Vec::with_capacity(blocks.len());
            for block in blocks {
                if let Err(error) = framing.unpack(block.data, &mut datagrams)
                    && let Some(others) = session.log.frames.is_due(Instant::now())
                {
                    tracing::warn!(peer = session.peer, %error, others, "block dropped");
                }
            }
            socket.send(target, None, &datagrams).await;
        }
    };
    let backward = async {
        let mut received = Vec::new();
        loop {
            tokio::select! {
                () = socket.readable() => {
                    socket.try_recv(|from, _, datagram| {
                        if is_same(from, target) {
                            received.push(Bytes::copy_from_slice(datagram));
                        }
                    });
                    replies.send_all(received.drain(..)).await;
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

/// A socket for a target that there is a route to. It is not connected: that would fix the address that datagrams leave from, also
/// when this host gets another one or reaches the target over another interface.
pub(super) async fn connect(address: SocketAddr) -> io::Result<(BatchSocket, SocketAddr)> {
    bind_like(address).await?.connect(address).await?;
    let socket = bind_like(address).await?;
    Ok((BatchSocket::new(socket)?, address))
}

/// Whether a datagram comes from the target.
pub(super) fn is_same(from: SocketAddr, target: SocketAddr) -> bool {
    (from.ip(), from.port()) == (target.ip(), target.port())
}
