//! What far gateways begin over bundles.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_dtn_client::carriage::{Accepted, Begun, DatagramFlow};
use tokio::task::JoinSet;

use super::{
    datagrams::{connect, is_same},
    outlet::{FULL, Outlet, Permit, Slots},
    tcp::{self, Opener},
};
use crate::{
    bundles::Bundles,
    byte_stream::of_bundles,
    label::{Flow, Label},
    peer::PeerLog,
    socks5::Reply,
    target::Target,
};

/// A target that cannot be reached is tried so often, this long apart, while the datagrams for it wait.
const TRIES: u32 = 12;
const RETRY: Duration = Duration::from_secs(5);

/// Datagrams that are sent in a row, so that what waited for minutes fits into the receiver's buffer.
const BURST: usize = 32;
/// The pause after them.
const PAUSE: Duration = Duration::from_millis(1);

/// Serves flows until dropped; their tasks end with it.
pub(crate) async fn serve(bundles: Bundles, outlet: Arc<Outlet>) {
    let mut tasks = JoinSet::new();
    let slots: Vec<Arc<Slots>> = bundles.names.iter().map(|_| Arc::default()).collect();
    let log = Arc::new(PeerLog::default());
    loop {
        let accepted = tokio::select! {
            accepted = bundles.flows.accept() => accepted,
            Some(_) = tasks.join_next() => continue,
        };
        let Some(Accepted {
            peer,
            header,
            begun,
        }) = accepted
        else {
            return;
        };
        let (Some(slots), Some(name)) = (slots.get(peer), bundles.names.get(peer)) else {
            continue;
        };
        let permit = outlet.permit();
        // Dropping a stream resets it, which the far side sees.
        let Some(slot) = slots.take(&permit, name) else {
            refuse(&log, name, FULL);
            continue;
        };
        let opener = Opener {
            name: name.clone(),
            log: log.clone(),
        };
        let flow = match Label::parse(&header) {
            Ok(label) => label.flow,
            Err(error) => {
                refuse(&log, name, &error.to_string());
                continue;
            }
        };
        match (flow, begun) {
            (Flow::Tcp { target, client }, Begun::Stream(reader, writer)) => {
                tasks.spawn(async move {
                    tcp::serve(&opener, permit, of_bundles(reader, writer), target, client).await;
                    drop(slot);
                });
            }
            (Flow::Udp { target, .. }, Begun::Datagrams(flow)) => {
                tasks.spawn(async move {
                    carry(&opener, permit, &target, flow).await;
                    drop(slot);
                });
            }
            (flow, _) => refuse(&log, name, &format!("it is for {}", flow.kind())),
        }
    }
}

/// Logs one refused flow a minute.
fn refuse(log: &PeerLog, peer: &str, reason: &str) {
    if let Some(others) = log.refused.is_due(Instant::now()) {
        tracing::warn!(peer, reason, others, "flow over bundles refused");
    }
}

/// Passes datagrams to the target, and its answers back, until the far side has been silent for a lifetime.
async fn carry(opener: &Opener, permit: Permit, target: &Target, mut flow: DatagramFlow) {
    let mut tries = 1;
    let (socket, address) = loop {
        match permit.connect(&opener.name, target, connect).await {
            Ok(connected) => break connected,
            // What came waits for a resolver or a network that fails for a moment.
            Err(reply) if reply != Reply::NotAllowed && tries < TRIES => {
                tries += 1;
                tokio::time::sleep(RETRY).await;
            }
            Err(reply) => {
                let reason = format!("{target} cannot be reached: {reply:?}");
                // The flow goes, and begins again with the client's next datagrams.
                return refuse(&opener.log, &opener.name, &reason);
            }
        }
    };
    let mut received: Vec<Bytes> = Vec::new();
    loop {
        tokio::select! {
            datagrams = flow.recv() => {
                let Some(datagrams) = datagrams else { return };
                for burst in datagrams.chunks(BURST) {
                    socket.send(address, None, burst).await;
                    if burst.len() == BURST {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
            () = socket.readable() => {
                socket.try_recv(|from, _, datagram| {
                    if is_same(from, address) {
                        received.push(Bytes::copy_from_slice(datagram));
                    }
                });
                flow.send_all(received.drain(..));
            }
        }
    }
}
