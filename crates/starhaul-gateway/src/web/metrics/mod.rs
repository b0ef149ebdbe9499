//! A status in OpenMetrics text (OpenMetrics 1.0). Labels hold names of the configuration, names of peers' paths as far as the
//! ledger tells them apart, and fixed texts: no client adds one.

mod bundles;
mod controllers;
mod paths;
mod rules;
mod service;
mod tunnels;

use std::fmt;

use starhaul_metrics::{Families, Figures, Unit};

use crate::status::Status;

impl Figures for Status {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        of_process(self, families)?;
        of_peers(self, families)?;
        let rows = paths::rows(self);
        paths::write(&rows, families)?;
        controllers::write(&rows, families)?;
        service::write(self, families)?;
        rules::write(self, families)?;
        tunnels::write(&self.tunnels, families)?;
        bundles::write(self.bundle.as_ref(), families)?;
        of_limits(self, families)?;
        of_chain(self, families)
    }
}

fn of_process(status: &Status, families: &mut Families<'_>) -> fmt::Result {
    let process = starhaul_metrics::Process {
        resident_bytes: status.process.resident_bytes,
        cpu_s: status.process.cpu_s,
    };
    families.program(&status.version, status.uptime_s, process)?;
    let driver = status.process.driver_cpu_s.map(|value| ([], value));
    families.counter(
        "starhaul_driver_cpu",
        "Processor time of the thread that drives all sessions",
        Some(Unit::Seconds),
        driver,
    )
}

fn of_peers(status: &Status, families: &mut Families<'_>) -> fmt::Result {
    let per_peer = |value: fn(&crate::status::PeerStatus) -> f64| {
        let peers = status.peers.iter();
        peers.map(move |peer| ([("peer", peer.name.as_str())], value(peer)))
    };
    families.gauge(
        "starhaul_sessions",
        "Open sessions with a peer",
        None,
        per_peer(|peer| peer.sessions as f64),
    )?;
    families.gauge(
        "starhaul_failed_attempts",
        "Failed attempts to open a session since the last success",
        None,
        per_peer(|peer| peer.failed_attempts as f64),
    )?;
    let held = status.peers.iter().flat_map(|peer| {
        let sessions = || {
            status
                .sessions
                .iter()
                .filter(|session| session.peer == peer.name)
        };
        let sent: u64 = sessions().map(|session| session.held_send_bytes).sum();
        let received: u64 = sessions().map(|session| session.held_receive_bytes).sum();
        [("sent", sent), ("received", received)].map(|(direction, bytes)| {
            (
                [("peer", peer.name.as_str()), ("direction", direction)],
                bytes as f64,
            )
        })
    });
    let refused = status.peers.iter().map(|peer| {
        let sessions = status.sessions.iter();
        let of_peer = sessions.filter(|session| session.peer == peer.name);
        let refused: u64 = of_peer.map(|session| session.refused_streams).sum();
        ([("peer", peer.name.as_str())], refused as f64)
    });
    families.gauge(
        "starhaul_session_refused_streams",
        "Streams of a peer that were refused, of its open sessions",
        None,
        refused,
    )?;
    families.gauge(
        "starhaul_session_held",
        "Memory of the sessions with a peer: data sent and not acknowledged, data received and not read",
        Some(Unit::Bytes),
        held,
    )
}

fn of_limits(status: &Status, families: &mut Families<'_>) -> fmt::Result {
    let per_limit = |value: fn(&crate::status::LimitStatus) -> u64| {
        let limits = status.limits.iter();
        limits.map(move |limit| {
            let rule = limit.rule.as_deref().unwrap_or_default();
            (
                [("limit", limit.name.as_str()), ("rule", rule)],
                value(limit),
            )
        })
    };
    families.counter(
        "starhaul_limit_reached",
        "How often a bound was reached",
        None,
        per_limit(|limit| limit.count),
    )?;
    let bounds = per_limit(|limit| limit.limit).map(|(labels, value)| (labels, value as f64));
    families.gauge("starhaul_limit", "The bound", None, bounds)
}

fn of_chain(status: &Status, families: &mut Families<'_>) -> fmt::Result {
    let chain = status.leotp.as_ref();
    let one = |value: fn(&crate::status::Leotp) -> u64| chain.map(|chain| ([], value(chain)));
    families.gauge(
        "starhaul_leotp_open_streams",
        "Open streams of the chain of relays",
        None,
        one(|chain| chain.streams).map(|(labels, value)| (labels, value as f64)),
    )?;
    families.counter(
        "starhaul_leotp_streams",
        "Streams of the chain",
        None,
        one(|chain| chain.streams_total),
    )?;
    families.counter(
        "starhaul_leotp_sent",
        "Bytes to neighbours",
        Some(Unit::Bytes),
        one(|chain| chain.bytes_sent),
    )?;
    families.counter(
        "starhaul_leotp_received_packets",
        "Packets with data from neighbours",
        None,
        one(|chain| chain.packets_received),
    )?;
    families.counter(
        "starhaul_leotp_lost_packets",
        "Packets lost on the way from neighbours",
        None,
        one(|chain| chain.packets_lost),
    )?;
    families.counter(
        "starhaul_leotp_repaired_packets",
        "Packets sent to neighbours again",
        None,
        one(|chain| chain.packets_repaired),
    )?;
    families.counter(
        "starhaul_leotp_reconfigurations",
        "Reconfigurations of hops that it was told of",
        None,
        one(|chain| chain.reconfigurations),
    )?;
    let neighbours = chain.into_iter().flat_map(|chain| &chain.neighbours);
    let heard = neighbours.map(|neighbour| {
        (
            [("neighbour", neighbour.name.as_str())],
            f64::from(u8::from(neighbour.has_been_heard)),
        )
    });
    families.gauge(
        "starhaul_leotp_neighbour_heard",
        "Whether a neighbour has been heard since the start",
        None,
        heard,
    )
}
