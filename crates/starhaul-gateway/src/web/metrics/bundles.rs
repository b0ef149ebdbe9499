//! Metrics of what a gateway sends as bundles.

use std::fmt;

use starhaul_dtn_client::flows::Counters;
use starhaul_metrics::{Families, Unit};

use crate::status::Bundle;

pub(super) fn write(bundle: Option<&Bundle>, families: &mut Families<'_>) -> fmt::Result {
    type State = fn(&Bundle) -> f64;
    let states: [(&str, &str, State); 4] = [
        (
            "starhaul_bundle_node_present",
            "Whether the bundle node answers",
            |bundle| f64::from(u8::from(bundle.endpoint.is_some())),
        ),
        (
            "starhaul_bundle_node_full",
            "Whether the bundle node has no room for the next bundle",
            |bundle| f64::from(u8::from(bundle.node_is_full)),
        ),
        (
            "starhaul_bundle_open_streams",
            "Open streams over bundles",
            |bundle| bundle.counters.streams as f64,
        ),
        (
            "starhaul_bundle_open_flows",
            "Open flows of datagrams over bundles",
            |bundle| bundle.counters.flows as f64,
        ),
    ];
    for (name, help, value) in states {
        families.gauge(name, help, None, bundle.map(|bundle| ([], value(bundle))))?;
    }
    type Count = fn(&Counters) -> u64;
    let counts: [(&str, &str, Option<Unit>, Count); 8] = [
        (
            "starhaul_bundle_streams",
            "Streams over bundles",
            None,
            |counters| counters.streams_total,
        ),
        (
            "starhaul_bundle_failed_streams",
            "Streams over bundles that broke off",
            None,
            |counters| counters.streams_failed,
        ),
        (
            "starhaul_bundle_sent_bundles",
            "Bundles that the node has taken",
            None,
            |counters| counters.bundles_sent,
        ),
        (
            "starhaul_bundle_sent",
            "Their bytes",
            Some(Unit::Bytes),
            |counters| counters.bytes_sent,
        ),
        (
            "starhaul_bundle_received_bundles",
            "Bundles of far gateways",
            None,
            |counters| counters.bundles_received,
        ),
        (
            "starhaul_bundle_received",
            "Their bytes",
            Some(Unit::Bytes),
            |counters| counters.bytes_received,
        ),
        (
            "starhaul_bundle_limited_flows",
            "Streams of far gateways that max_flows refused, and flows of datagrams that it ended early",
            None,
            |counters| counters.limited,
        ),
        (
            "starhaul_bundle_dropped_datagrams",
            "Datagrams dropped since too many waited, or since the node refuses them",
            None,
            |counters| counters.dropped,
        ),
    ];
    for (name, help, unit, value) in counts {
        let series = bundle.map(|bundle| ([], value(&bundle.counters)));
        families.counter(name, help, unit, series)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::status::Status;

    /// An alert on them has to see a node that is away, what was refused, and a path's limit.
    #[test]
    fn a_node_that_is_away_and_what_was_refused_have_series() {
        let path = serde_json::json!({ "name": "lte", "opened_by": "us", "bytes_sent": 0, "bytes_received": 0,
            "datagrams_sent": 0, "datagrams_lost": 0, "reconfigurations": 0 });
        let now = serde_json::json!({ "name": "lte", "remote": "192.0.2.1:1", "state": "up", "controller": "",
            "controller_state": "", "cwnd_bytes": 0, "bytes_in_flight": 0, "last_error": null, "limit_bit_per_s": 5_000_000 });
        let session = |refused: u64| {
            serde_json::json!({ "peer": "far", "opened_by": "us", "age_s": 1.0, "refused_streams": refused,
                "paths": [now], "streams": [] })
        };
        let status = serde_json::json!({ "version": "0", "public_key": "k", "uptime_s": 1.0, "listen": [],
            "ingress": [], "sessions": [session(2), session(3)],
            "peers": [{ "name": "far", "public_key": "k", "sessions": 2, "failed_attempts": 0,
                "last_error": null, "configured_paths": ["lte"], "paths": [path] }],
            "bundle": { "endpoint": null, "peers": ["far"], "node_is_full": true, "streams": 1,
                "streams_total": 2, "streams_failed": 3, "flows": 4, "bundles_sent": 5, "bytes_sent": 6,
                "bundles_received": 7, "bytes_received": 8, "unreadable": 0, "former_life": 0, "repeated": 0,
                "limited": 9, "dropped": 10 } });
        let status: Status = serde_json::from_value(status).unwrap();
        let text = starhaul_metrics::encode(&Arc::new(status));
        for (series, value) in [
            ("starhaul_bundle_node_present", 0.0),
            ("starhaul_bundle_node_full", 1.0),
            ("starhaul_bundle_failed_streams_total", 3.0),
            ("starhaul_bundle_sent_bytes_total", 6.0),
            ("starhaul_bundle_limited_flows_total", 9.0),
            ("starhaul_bundle_dropped_datagrams_total", 10.0),
            ("starhaul_session_refused_streams{peer=\"far\"}", 5.0),
            (
                "starhaul_path_limit_bits_per_second{peer=\"far\",path=\"lte\",opened_by=\"us\"}",
                5e6,
            ),
        ] {
            let mut lines = text.lines();
            let found = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
            let found = found.and_then(|found| found.parse::<f64>().ok());
            assert_eq!(found, Some(value), "{series} in {text}");
        }
    }
}
