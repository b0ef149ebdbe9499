//! Egress: the streams that peers open, and the sockets through which their data reach the targets.

mod answers;
mod associate;
pub(crate) mod bundles;
pub(crate) mod chain;
mod datagrams;
mod outlet;
mod replies;
mod tcp;
mod tunnel;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use starhaul_endpoint::IncomingStream;
use tokio::task::JoinSet;

use crate::{
    byte_stream::of_session,
    label::{Flow, Label},
    peer::PeerSession,
};

use self::outlet::Slots;
pub(crate) use self::{answers::Answers, outlet::Outlet};

/// Serves the streams that the peer opens in a session until the session ends; their tasks end with it.
pub(crate) async fn serve(session: Arc<PeerSession>, outlet: Arc<Outlet>) {
    let mut flows = JoinSet::new();
    let slots = Arc::new(Slots::default());
    loop {
        let stream = tokio::select! {
            stream = session.inner.accept_stream() => stream,
            Some(_) = flows.join_next() => continue,
        };
        let Some(stream) = stream else { return };
        let label = match &stream {
            IncomingStream::Blocks(stream) => Label::parse(&stream.config().label),
            IncomingStream::Bytes(stream) => Label::parse(stream.label()),
        };
        let label = match label {
            Ok(label) => label,
            Err(error) => {
                refuse(&session, &error.to_string());
                continue;
            }
        };
        match (stream, label.flow) {
            (IncomingStream::Blocks(stream), Flow::Reply { id }) => {
                if !session.deliver_reply(id, stream) {
                    tracing::debug!(peer = session.peer, id, "replies to a flow that is gone");
                }
            }
            (IncomingStream::Blocks(stream), Flow::Packets { .. }) => {
                let inflow = inflow(&session, &outlet, &slots, label.rule);
                flows.spawn(inflow.serve_blocks(stream));
            }
            (IncomingStream::Bytes(stream), Flow::Packets { .. }) => {
                let inflow = inflow(&session, &outlet, &slots, label.rule);
                flows.spawn(inflow.serve_frames(stream));
            }
            (IncomingStream::Blocks(stream), flow) => {
                let flow = datagrams::Start {
                    session: session.clone(),
                    outlet: outlet.clone(),
                    slots: slots.clone(),
                    rule: label.rule,
                    flow,
                };
                flows.spawn(flow.serve(stream));
            }
            (IncomingStream::Bytes(stream), Flow::Tcp { target, client }) => {
                let permit = outlet.permit();
                match slots.take(&permit, &session.peer) {
                    Some(slot) => {
                        let opener = tcp::Opener {
                            name: session.peer.clone(),
                            log: session.log.clone(),
                        };
                        flows.spawn(async move {
                            tcp::serve(&opener, permit, of_session(stream), target, client).await;
                            drop(slot);
                        });
                    }
                    // Dropping the stream resets it, which the peer sees.
                    None => refuse(&session, outlet::FULL),
                }
            }
            (IncomingStream::Bytes(_), flow) => {
                refuse(
                    &session,
                    &format!("it opened a byte stream for {}", flow.kind()),
                );
            }
        }
    }
}

/// A stream of packets.
fn inflow(
    session: &Arc<PeerSession>,
    outlet: &Arc<Outlet>,
    slots: &Arc<Slots>,
    rule: String,
) -> tunnel::Inflow {
    tunnel::Inflow {
        slot: slots.take(&outlet.permit(), &session.peer),
        session: session.clone(),
        outlet: outlet.clone(),
        slots: slots.clone(),
        is_refused: false,
        rule,
    }
}

/// Counts a refused stream, and logs one a minute. A byte stream is refused by being dropped; a refused stream of blocks is
/// not reported to the peer.
fn refuse(session: &PeerSession, reason: &str) {
    session.refused.fetch_add(1, Ordering::Relaxed);
    if let Some(others) = session.log.refused.is_due(Instant::now()) {
        tracing::warn!(
            peer = session.peer,
            reason,
            others,
            "stream of the peer refused"
        );
    }
}
