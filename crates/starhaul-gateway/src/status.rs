//! What `starhaul status` shows, as one JSON object.

use std::{sync::atomic::Ordering, time::Duration};

use serde_json::{Value, json};
use starhaul_endpoint::{PathStatus, StreamStats};

use crate::{
    config::mode_name,
    gateway::Shared,
    ingress::Rule,
    label::Label,
    link::{Link, PeerState},
};

/// The whole gateway.
pub(crate) fn status(shared: &Shared) -> Value {
    let links = shared.peers.iter().flat_map(|peer| peer.links());
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "public_key": shared.public_key.to_string(),
        "uptime_s": seconds(shared.started.elapsed()),
        "listen": shared.listen,
        "peers": shared.peers.iter().map(|peer| peer_object(peer)).collect::<Vec<_>>(),
        "ingress": shared.rules.iter().map(|rule| rule_object(rule)).collect::<Vec<_>>(),
        "sessions": links.map(|link| session_object(shared, &link)).collect::<Vec<_>>(),
    })
}

fn peer_object(peer: &PeerState) -> Value {
    let attempts = peer.attempts();
    json!({
        "name": peer.name,
        "public_key": peer.public_key.to_string(),
        "sessions": peer.links().len(),
        "failed_attempts": attempts.failed,
        "last_error": attempts.last_error,
    })
}

fn rule_object(rule: &Rule) -> Value {
    let counters = &rule.counters;
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    json!({
        "rule": rule.config.name,
        "kind": rule.config.service.kind(),
        "listen": rule.address,
        "peer": rule.peer.name,
        "clients": read(&counters.clients),
        "clients_total": read(&counters.clients_total),
        "datagrams_in": read(&counters.datagrams_in),
        "datagrams_out": read(&counters.datagrams_out),
        "dropped": {
            "no_session": read(&counters.dropped_no_session),
            "too_many_clients": read(&counters.dropped_too_many_clients),
            "refused": read(&counters.dropped_refused),
        },
        "failed_connections": read(&counters.failed_connections),
    })
}

fn session_object(shared: &Shared, link: &Link) -> Value {
    let public_key = shared
        .peers
        .iter()
        .find(|peer| peer.name == link.peer)
        .map(|peer| peer.public_key.to_string());
    json!({
        "peer": link.peer,
        "public_key": public_key,
        "opened_by": if link.opened_by_us { "us" } else { "peer" },
        "age_s": seconds(link.age()),
        "refused_streams": link.refused.load(Ordering::Relaxed),
        "paths": link.session.path_status().iter().map(path_object).collect::<Vec<_>>(),
        "streams": link.session.stream_stats().iter().map(stream_object).collect::<Vec<_>>(),
    })
}

fn path_object(path: &PathStatus) -> Value {
    let stats = path.stats.as_ref();
    let state = match (path.up, stats) {
        (false, _) => "down",
        (true, Some(stats)) if stats.suspect => "suspect",
        (true, _) => "up",
    };
    json!({
        "name": path.name,
        "remote": path.remote,
        "state": state,
        "cost": stats.map(|stats| stats.cost),
        "rtt_ms": stats.map(|stats| millis(stats.smoothed_rtt)),
        "min_rtt_ms": stats.map(|stats| millis(stats.min_rtt)),
        "one_way_delay_ms": stats.and_then(|stats| stats.one_way_delay).map(millis),
        "rate_bit_per_s": stats.map(|stats| stats.bandwidth.bits_per_second()),
        "loss": stats.map(|stats| stats.loss_rate),
        "loss_window_max": stats.map(|stats| stats.loss_window_max),
        "loss_burst_length": stats.map(|stats| stats.burst_length),
        "bytes_sent": stats.map(|stats| stats.bytes_sent),
        "bytes_received": stats.map(|stats| stats.bytes_received),
        "datagrams_sent": stats.map(|stats| stats.datagrams_sent),
        "datagrams_lost": stats.map(|stats| stats.datagrams_lost),
        "controller": path.controller,
        "controller_state": path.controller_state,
        "cwnd_bytes": path.cwnd,
        "bytes_in_flight": path.bytes_in_flight,
    })
}

fn stream_object(stream: &StreamStats) -> Value {
    // Streams of other applications of the session have labels of their own.
    let label = Label::parse(&stream.label).ok();
    let flow = label.as_ref().map(|label| &label.flow);
    json!({
        "stream": stream.stream.0,
        "rule": label.as_ref().map(|label| label.rule.as_str()),
        "kind": flow.map(|flow| flow.kind()),
        "target": flow.and_then(|flow| flow.target()).map(ToString::to_string),
        "mode": mode_name(stream.mode),
        "blocks_sent": stream.blocks_sent,
        "blocks_received": stream.blocks_received,
        "on_time": stream.on_time,
        "late": stream.late,
        "expired": {
            "capacity": stream.expired_capacity,
            "loss": stream.expired_loss,
            "unreachable": stream.expired_unreachable,
        },
        "cancelled": stream.cancelled,
        "failed": stream.failed,
        "recovered": {
            "redundancy": stream.recovered_by_redundancy,
            "retransmission": stream.recovered_by_retransmission,
        },
        "bytes_sent": stream.bytes_sent,
        "bytes_received": stream.bytes_received,
    })
}

fn seconds(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64())
}

fn millis(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1e3)
}

fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
