//! What a node tells of itself: its status, and the same for Prometheus.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
};

use starhaul_dtn_client::status::{Counters, NeighbourStatus, Status, StorageStatus, StoredFor};
use starhaul_metrics::{Scrapes, Server};

use super::{Handle, Parts};
use crate::{
    Error,
    metrics::{Configured, Figures},
    plan::{Moment, NodeId},
    schedule::Schedule,
};

/// Destinations of which a status tells one by one what is stored for them, and the name of the row for all others.
const MOST_ROWS: usize = 1000;
const OTHERS: &str = "others";

/// Binds the address for metrics.
pub(super) async fn bind(address: SocketAddr) -> Result<Server, Error> {
    let bound = Server::bind(address).await;
    bound.map_err(|reason| Error::Metrics { address, reason })
}

/// The metrics that are served over HTTP.
pub(super) fn site(parts: &Arc<Parts>) -> Scrapes {
    let parts = parts.clone();
    Scrapes::new(move || Some(parts.figures(Schedule::now()).text()))
}

impl Handle {
    /// The node at this moment.
    pub fn status(&self) -> Status {
        let now = Schedule::now();
        Status {
            stored: self.0.stored(now),
            ..self.0.summary(now)
        }
    }
}

impl Parts {
    fn figures(&self, now: Moment) -> Figures {
        let ltp = self.config.ltp.iter().flat_map(|ltp| &ltp.peers);
        let ltp = ltp.map(|peer| ("ltp", &peer.node));
        let tcp = self.config.tcp.iter().flat_map(|tcp| &tcp.peers);
        let tcp = tcp.map(|peer| ("tcp", &peer.node));
        let neighbours = ltp.chain(tcp).map(|(by, node)| Configured {
            node: node.to_string(),
            by: by.to_owned(),
            is_due: self.schedule.is_due(node, now),
        });
        Figures {
            neighbours: neighbours.collect(),
            status: self.summary(now),
            process: starhaul_metrics::process(),
        }
    }

    /// The status without the lists of what is stored for each destination, which takes long where that is many.
    fn summary(&self, now: Moment) -> Status {
        let (total, storage) = (self.stock.total(), &self.config.storage);
        let (neighbours, counters) = self.passed(now);
        let folder = storage
            .folder
            .as_ref()
            .map(|folder| folder.display().to_string());
        Status {
            node: self.config.node.to_string(),
            time: now.to_string(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            storage: StorageStatus {
                place: folder.unwrap_or_else(|| "memory".to_owned()),
                bundles: total.bundles,
                bytes: total.bytes,
                in_flight: self.stock.in_flight() as u64,
                max_bundles: storage.bundles as u64,
                max_bytes: storage.bytes,
            },
            stored: Vec::new(),
            neighbours,
            counters,
            limits_met: self.stock.limits_met(),
        }
    }

    /// The neighbours, and what came and went.
    fn passed(&self, now: Moment) -> (Vec<NeighbourStatus>, Counters) {
        let ended = self.stock.ended();
        let mut counters = Counters {
            expired: ended.expired,
            refused: ended.refused,
            too_large: ended.too_large,
            ..Counters::default()
        };
        let mut neighbours = Vec::new();
        for (by, gate) in self.gates() {
            let passed = gate.passed();
            counters.sent += passed.sent;
            counters.received += passed.received;
            counters.dropped += passed.dropped;
            let present = passed.neighbours.iter();
            neighbours
                .extend(present.map(|(node, is_open)| self.neighbour(node, by, *is_open, now)));
        }
        if let Some((_, gate)) = &self.tcp {
            let peers = self.config.tcp.iter().flat_map(|tcp| &tcp.peers);
            let away = peers.filter(|peer| !gate.has(&peer.node));
            neighbours.extend(away.map(|peer| self.neighbour(&peer.node, "tcp", false, now)));
        }
        if let Some((layer, _)) = &self.ltp {
            let ltp = layer.counters();
            counters.ltp_segments = ltp.segments.load(Ordering::Relaxed);
            counters.ltp_resent = ltp.resent.load(Ordering::Relaxed);
            counters.ltp_dropped = ltp.dropped.load(Ordering::Relaxed);
            counters.ltp_strangers = ltp.strangers.load(Ordering::Relaxed);
            counters.ltp_unreadable = ltp.unreadable.load(Ordering::Relaxed);
        }
        (neighbours, counters)
    }

    fn neighbour(&self, node: &NodeId, by: &str, is_open: bool, now: Moment) -> NeighbourStatus {
        let open = self.schedule.plan().contacts().iter().filter(|contact| {
            contact.from == self.config.node && contact.to == *node && contact.is_open(now)
        });
        let ltp = self.ltp.as_ref().filter(|_| by == "ltp");
        let segments = ltp.and_then(|(layer, _)| layer.segments_to(node));
        NeighbourStatus {
            segment_bytes: segments.map(|choice| choice.data_bytes),
            segment_reason: segments.map(|choice| choice.reason.to_string()),
            node: node.to_string(),
            by: by.to_owned(),
            is_open,
            closes: open
                .map(|contact| contact.end)
                .max()
                .filter(|end| *end < Moment::MAX)
                .map(|end| end.to_string()),
            opens: self
                .schedule
                .next_contact(node, now)
                .map(|contact| contact.start.to_string()),
        }
    }

    fn stored(&self, now: Moment) -> Vec<StoredFor> {
        let routes = self.schedule.routes(now);
        let mut amounts: Vec<_> = self.stock.by_node().into_iter().collect();
        let mut others = StoredFor {
            node: OTHERS.to_owned(),
            ..StoredFor::default()
        };
        if amounts.len() > MOST_ROWS {
            amounts.sort_by_key(|(_, amount)| std::cmp::Reverse(amount.bytes));
            for (_, amount) in amounts.drain(MOST_ROWS..) {
                others.bundles += amount.bundles;
                others.bytes += amount.bytes;
            }
        }
        let stored = amounts.into_iter().map(|(node, amount)| {
            let route = routes.get(&node);
            let first = route.and_then(|route| route.first(self.schedule.plan()));
            // Where no contact is planned, the node does not know when the neighbour can be reached.
            let is_planned = route.is_some_and(|route| {
                let contacts = self.schedule.plan().contacts();
                let mut own = route
                    .contacts
                    .iter()
                    .filter_map(|place| contacts.get(*place));
                own.any(|contact| contact.end < Moment::MAX)
            });
            let is_neighbour = self.gates().any(|(_, gate)| gate.has(&node));
            let next_hop = first.map(|contact| contact.to.to_string());
            let leaves = first
                .map(|contact| contact.start)
                .filter(|start| *start > now);
            StoredFor {
                bundles: amount.bundles,
                bytes: amount.bytes,
                next_hop: next_hop.or_else(|| is_neighbour.then(|| node.to_string())),
                leaves: leaves.map(|start| start.to_string()),
                arrives: route
                    .filter(|_| is_planned)
                    .map(|route| route.arrival.to_string()),
                node: node.to_string(),
            }
        });
        stored
            .chain(Some(others).filter(|others| others.bundles > 0))
            .collect()
    }
}
