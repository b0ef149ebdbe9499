//! What peers send through us: streams that they open, and the sockets that carry them on.

mod associate;
mod datagrams;
mod tcp;

use std::sync::{Arc, atomic::Ordering};

use starhaul_endpoint::IncomingStream;
use tokio::task::JoinSet;

use crate::{
    egress_policy::CurrentPolicy,
    label::{Flow, Label},
    link::Link,
};

/// Streams that one peer may have through us at once; more are refused.
const MAX_FLOWS: usize = 4096;

/// Serves the streams that the peer opens in a session, until it ends. All that it started ends with it.
pub(crate) async fn serve(link: Arc<Link>, policy: Arc<CurrentPolicy>) {
    let mut flows = JoinSet::new();
    loop {
        let stream = tokio::select! {
            stream = link.session.accept_stream() => stream,
            Some(_) = flows.join_next() => continue,
        };
        let Some(stream) = stream else { return };
        if flows.len() >= MAX_FLOWS {
            refuse(&link, &format!("it has {MAX_FLOWS} streams open"));
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
                    policy: policy.get(),
                    rule: label.rule,
                    flow,
                };
                flows.spawn(flow.serve(stream));
            }
            (IncomingStream::Bytes(stream), Flow::Tcp { target }) => {
                flows.spawn(tcp::serve(link.clone(), policy.get(), stream, target));
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

/// Counts and tells; the stream itself is refused by being dropped.
fn refuse(link: &Link, reason: &str) {
    link.refused.fetch_add(1, Ordering::Relaxed);
    tracing::warn!(peer = link.peer, reason, "stream of the peer refused");
}
