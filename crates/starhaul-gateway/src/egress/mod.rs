//! What peers send through us: streams that they open, and the sockets that carry them on.

mod associate;
mod datagrams;
mod outlet;
mod tcp;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use starhaul_endpoint::IncomingStream;
use tokio::task::JoinSet;

use crate::{
    label::{Flow, Label},
    link::Link,
};

pub(crate) use self::outlet::Outlet;

/// Serves the streams that the peer opens in a session, until it ends. All that it started ends with it.
pub(crate) async fn serve(link: Arc<Link>, outlet: Arc<Outlet>) {
    let mut flows = JoinSet::new();
    loop {
        let stream = tokio::select! {
            stream = link.session.accept_stream() => stream,
            Some(_) = flows.join_next() => continue,
        };
        let Some(stream) = stream else { return };
        let permit = outlet.permit();
        let most = permit.policy.limits.max_streams;
        if flows.len() >= most {
            outlet.limits.peer_streams.reach(&link.peer, most);
            link.refused.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let label = match &stream {
            IncomingStream::Blocks(stream) => Label::parse(&stream.config().label),
            IncomingStream::Bytes(stream) => Label::parse(stream.label()),
        };
        let label = match label {
            Ok(label) => label,
            Err(error) => {
                refuse(&link, &error.to_string());
                continue;
            }
        };
        match (stream, label.flow) {
            (IncomingStream::Blocks(stream), Flow::Reply { id }) => {
                if !link.deliver_reply(id, stream) {
                    tracing::debug!(peer = link.peer, id, "replies to a flow that is gone");
                }
            }
            (IncomingStream::Blocks(stream), flow) => {
                let flow = datagrams::Start {
                    link: link.clone(),
                    permit,
                    rule: label.rule,
                    flow,
                };
                flows.spawn(flow.serve(stream));
            }
            (IncomingStream::Bytes(stream), Flow::Tcp { target }) => {
                flows.spawn(tcp::serve(link.clone(), permit, stream, target));
            }
            (IncomingStream::Bytes(_), flow) => {
                refuse(
                    &link,
                    &format!("it opened a byte stream for {}", flow.kind()),
                );
            }
        }
    }
}

/// Counts, and tells of one in a minute; the stream itself is refused by being dropped.
fn refuse(link: &Link, reason: &str) {
    link.refused.fetch_add(1, Ordering::Relaxed);
    if let Some(others) = link.log.refused.is_due(Instant::now()) {
        tracing::warn!(
            peer = link.peer,
            reason,
            others,
            "stream of the peer refused"
        );
    }
}
