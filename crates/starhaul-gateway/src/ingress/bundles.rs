//! A client of a rule for datagrams whose flow travels as bundles.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::{
    CountedClient, Rule,
    clients::{Ends, Life},
    count_all,
};
use crate::{
    batch_socket::BatchSocket,
    bundles::BundleWay,
    config::DatagramService,
    label::{Flow, Label},
};

/// Greatest number of datagrams passed to a flow at once.
const BURST: usize = 64;

/// Where a client is, and when it was heard.
pub(super) struct Client {
    pub(super) socket: Arc<BatchSocket>,
    pub(super) ends: Ends,
    pub(super) life: Arc<Life>,
}

/// Serves a client until it and the target have been silent for long enough, or another rule or client took its place.
pub(super) async fn serve_client(
    rule: Arc<Rule<DatagramService>>,
    way: BundleWay,
    client: Client,
    mut datagrams: mpsc::Receiver<Bytes>,
) {
    let _counted = CountedClient::new(&rule.counters);
    let service = &rule.config.service;
    let target = service.target.clone();
    // The flow has a number of its own.
    let label = Label::new(&rule.config.name, Flow::Udp { id: 0, target });
    let is_ordered = service.delivery.ordered;
    let opened = way
        .flows
        .open_datagrams(way.peer, label.encode(), way.lifetime, is_ordered);
    let Some(mut flow) = opened else {
        if let Some(others) = rule.log.stream.is_due(Instant::now()) {
            let client = client.ends.client;
            tracing::warn!(rule = rule.config.name, %client, others, "as many flows over bundles as max_flows of [bundle] allows");
        }
        count_all(&rule.counters.dropped_refused, datagrams.len());
        return;
    };
    let mut burst = Vec::with_capacity(BURST);
    // Whether another rule or client took its place: then it only waits for answers, which are hours away perhaps.
    let mut is_replaced = false;
    loop {
        let ends = client.life.ends(&service.clients);
        tokio::select! {
            received = datagrams.recv_many(&mut burst, BURST), if !is_replaced => {
                if received == 0 && client.life.is_answered() {
                    return;
                }
                is_replaced = received == 0;
                let dropped = flow.send_all(burst.drain(..));
                count_all(&rule.counters.dropped_refused, dropped);
            }
            answers = flow.recv() => {
                let Some(answers) = answers else { return };
                count_all(&rule.counters.datagrams_out, answers.len());
                client.life.answered(Instant::now(), answers.len());
                let Ends { client: to, local } = client.ends;
                client.socket.send(to, local, &answers).await;
            }
            () = tokio::time::sleep_until(ends.into()) => {
                if client.life.ends(&service.clients) <= Instant::now() && datagrams.is_empty() {
                    return;
                }
            }
        }
    }
}
