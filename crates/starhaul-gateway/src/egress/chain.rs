//! The streams that come over a chain of LEOTP relays.

use std::{sync::Arc, time::Instant};

use starhaul_endpoint::Chain;
use tokio::task::JoinSet;

use super::{
    outlet::{FULL, Outlet, Slots},
    tcp::{self, Opener},
};
use crate::{
    byte_stream::of_chain,
    label::{Flow, Label},
    peer::PeerLog,
};

/// The far gateway in logs and limits: the end that has the secret of the chain.
const NAME: &str = "leotp";

/// Serves streams until dropped; their tasks end with it.
pub(crate) async fn serve(chain: Chain, outlet: Arc<Outlet>) {
    let mut flows = JoinSet::new();
    let slots = Arc::new(Slots::default());
    let log = Arc::new(PeerLog::default());
    loop {
        let accepted = tokio::select! {
            accepted = chain.accept() => accepted,
            Some(_) = flows.join_next() => continue,
        };
        let Some((header, halves)) = accepted else {
            return;
        };
        let (target, client) = match Label::parse(&header).map(|label| label.flow) {
            Ok(Flow::Tcp { target, client }) => (target, client),
            Ok(flow) => {
                refuse(&log, &format!("it is for {}", flow.kind()));
                continue;
            }
            Err(error) => {
                refuse(&log, &error.to_string());
                continue;
            }
        };
        let permit = outlet.permit();
        let Some(slot) = slots.take(&permit, NAME) else {
            // Dropping the stream resets it, which the far side sees.
            refuse(&log, FULL);
            continue;
        };
        let opener = Opener {
            name: NAME.to_owned(),
            log: log.clone(),
        };
        flows.spawn(async move {
            tcp::serve(&opener, permit, of_chain(halves), target, client).await;
            drop(slot);
        });
    }
}

/// Logs one refused stream a minute.
fn refuse(log: &PeerLog, reason: &str) {
    if let Some(others) = log.refused.is_due(Instant::now()) {
        tracing::warn!(reason, others, "stream over LEOTP refused");
    }
}
