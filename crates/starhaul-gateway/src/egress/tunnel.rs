//! Packets of the peer's tunnels go to our device of the same name.

use std::sync::Arc;

use starhaul_endpoint::{ByteStream, RecvStream};

use super::{
    Outlet,
    outlet::{FULL, Slot, Slots},
    refuse,
};
use crate::{
    peer::PeerSession,
    tunnel::{Frames, Tunnel},
};

/// Greatest number of packets taken from a stream at once.
const BURST: usize = 64;

/// Streams of packets that a peer opens for one of its tunnels.
pub(super) struct Inflow {
    pub(super) session: Arc<PeerSession>,
    pub(super) outlet: Arc<Outlet>,
    /// Name of the rule at both ends.
    pub(super) rule: String,
    pub(super) slots: Arc<Slots>,
    pub(super) slot: Option<Slot>,
    /// Whether that was counted and told.
    pub(super) is_refused: bool,
}

impl Inflow {
    /// Says so, once a minute, if there is no such tunnel here. Its packets are dropped until there is: a reload may add it.
    fn check(&self) {
        let peer = &self.session.peer;
        if self.outlet.tunnels.find(peer, &self.rule).is_none() {
            let rule = &self.rule;
            let reason = format!(
                "it has packets for a [[tun]] {rule:?}, and there is none of this name with peer {peer:?}"
            );
            refuse(&self.session, &reason);
        }
    }

    /// The tunnel for the packets that came, if there is one and the peer may have one more stream. The peer does not learn that a stream is
    /// refused, and keeps it as long as the session lasts: it is served once others have ended.
    fn tunnel(&mut self) -> Option<Arc<Tunnel>> {
        let peer = &self.session.peer;
        if self.slot.is_none() {
            self.slot = self.slots.take_if_free(&self.outlet.permit());
        }
        if self.slot.is_none() {
            if !std::mem::replace(&mut self.is_refused, true) {
                refuse(&self.session, FULL);
            }
            return None;
        }
        self.outlet.tunnels.find(peer, &self.rule)
    }

    /// Delivers packets that are blocks until the peer ends the stream.
    pub(super) async fn serve_blocks(mut self, mut stream: RecvStream) {
        self.check();
        while let Some(blocks) = stream.recv_blocks(BURST).await {
            if let Some(tunnel) = self.tunnel() {
                blocks.iter().for_each(|block| tunnel.deliver(&block.data));
            }
        }
    }

    /// Delivers packets of a reliable stream until it ends.
    pub(super) async fn serve_frames(mut self, stream: ByteStream) {
        self.check();
        let (mut reader, _writer) = stream.into_split();
        let mut frames = Frames::default();
        while let Ok(chunks) = reader.read_chunks().await {
            if chunks.is_empty() {
                return;
            }
            let tunnel = self.tunnel();
            for chunk in chunks {
                frames.take(&chunk, |packet| {
                    if let Some(tunnel) = &tunnel {
                        tunnel.deliver(packet);
                    }
                });
            }
        }
    }
}
