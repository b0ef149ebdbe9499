//! Metrics of paths. Where a peer has several sessions with a path of one name, counters are of all of them, and other figures
//! of the newest one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use starhaul_metrics::{Families, Unit};

use crate::status::{ClassOnPath, KnownPath, Path, PathFigures, PathTotals, Status};

/// The most classes of a peer of which every path has series; a session tells as many apart.
const MOST_CLASSES: usize = 16;
const STATES: [&str; 3] = ["up", "suspect", "down"];

/// A path with the labels of its series.
pub(super) struct Row<'s> {
    pub(super) labels: [(&'static str, &'s str); 3],
    totals: &'s PathTotals,
    pub(super) now: Option<&'s Path>,
    state: Option<&'s str>,
}

pub(super) fn rows(status: &Status) -> Vec<Row<'_>> {
    status.known_paths().map(row).collect()
}

pub(super) fn write(rows: &[Row<'_>], families: &mut Families<'_>) -> fmt::Result {
    states(rows, families)?;
    counters(rows, families)?;
    classes(rows, families)?;
    figures(rows, families)
}

fn row(known: KnownPath<'_>) -> Row<'_> {
    Row {
        labels: [
            ("peer", &known.peer.name),
            ("path", &known.totals.name),
            ("opened_by", &known.totals.opened_by),
        ],
        totals: known.totals,
        now: known.now,
        state: known.state(),
    }
}

/// One series per state, of which one is 1.
fn states(rows: &[Row<'_>], families: &mut Families<'_>) -> fmt::Result {
    let series = rows.iter().flat_map(|row| {
        let [peer, path, opened_by] = row.labels;
        row.state.into_iter().flat_map(move |state| {
            STATES.map(|name| {
                let is = f64::from(u8::from(name == state));
                ([peer, path, opened_by, ("state", name)], is)
            })
        })
    });
    families.gauge(
        "starhaul_path_state",
        "1 for the present state of a path: up, suspect (silent for longer than expected) or down",
        None,
        series,
    )
}

fn counters(rows: &[Row<'_>], families: &mut Families<'_>) -> fmt::Result {
    type Value = fn(&PathTotals) -> u64;
    let all: [(&str, &str, Option<Unit>, Value); 5] = [
        (
            "starhaul_path_sent",
            "Bytes to the peer",
            Some(Unit::Bytes),
            |path| path.bytes_sent,
        ),
        (
            "starhaul_path_received",
            "Bytes from the peer",
            Some(Unit::Bytes),
            |path| path.bytes_received,
        ),
        (
            "starhaul_path_sent_datagrams",
            "Datagrams to the peer",
            None,
            |path| path.datagrams_sent,
        ),
        (
            "starhaul_path_lost_datagrams",
            "Datagrams to the peer that were lost",
            None,
            |path| path.datagrams_lost,
        ),
        (
            "starhaul_path_reconfigurations",
            "Reconfigurations signalled to the controller",
            None,
            |path| path.reconfigurations,
        ),
    ];
    for (name, help, unit, value) in all {
        let series = rows.iter().map(|row| (row.labels, value(row.totals)));
        families.counter(name, help, unit, series)?;
    }
    Ok(())
}

/// Which class's bytes went where. Every path has the classes of all paths to its peer, and one without a name for all that are
/// told together, so that a class which changes its path adds no series. A peer that invents classes and paths gets those alone that
/// each path has.
fn classes(rows: &[Row<'_>], families: &mut Families<'_>) -> fmt::Result {
    type Value = fn(&ClassOnPath) -> u64;
    let all: [(&str, &str, Value); 2] = [
        (
            "starhaul_path_class_sent",
            "Bytes to the peer that carried data of streams of a class, with redundancy and retransmissions",
            |class| class.bytes_sent,
        ),
        (
            "starhaul_path_class_received",
            "Bytes from the peer that carried data of streams of a class",
            |class| class.bytes_received,
        ),
    ];
    let names = names_of_classes(rows);
    for (name, help, value) in all {
        let series = rows.iter().zip(&names).flat_map(|(row, names)| {
            let [peer, path, opened_by] = row.labels;
            names.iter().map(move |(priority, text)| {
                let mut known = row.totals.by_class.iter();
                let class = known.find(|class| class.priority == *priority);
                let labels = [peer, path, opened_by, ("priority", text.as_str())];
                (labels, class.map_or(0, value))
            })
        });
        families.counter(name, help, Some(Unit::Bytes), series)?;
    }
    Ok(())
}

/// The classes that are told of each path, with the texts of their label.
fn names_of_classes(rows: &[Row<'_>]) -> Vec<Vec<(Option<u8>, String)>> {
    let own = |row: &Row<'_>| -> BTreeSet<Option<u8>> {
        let classes = row.totals.by_class.iter();
        classes.map(|class| class.priority).collect()
    };
    let mut of_peers = BTreeMap::<&str, BTreeSet<Option<u8>>>::new();
    for row in rows {
        let of_peer = of_peers.entry(row.labels[0].1).or_default();
        of_peer.insert(None);
        of_peer.extend(own(row));
    }
    let told = rows.iter().map(|row| {
        let of_peer = of_peers.get(row.labels[0].1);
        let few = of_peer.filter(|classes| classes.len() <= MOST_CLASSES + 1);
        let classes = few.cloned().unwrap_or_else(|| own(row));
        let texts = classes.into_iter().map(|class| {
            let text = class.map(|class| class.to_string());
            (class, text.unwrap_or_default())
        });
        texts.collect()
    });
    told.collect()
}

fn figures(rows: &[Row<'_>], families: &mut Families<'_>) -> fmt::Result {
    type OfPath = fn(&Path) -> Option<f64>;
    type OfFigures = fn(&PathFigures) -> Option<f64>;
    let bits = || Some(Unit::Other("bits_per_second".to_owned()));
    let ratio = || Some(Unit::Other("ratio".to_owned()));
    let of_path: [(&str, &str, Option<Unit>, OfPath); 7] = [
        (
            "starhaul_path_sent_rate",
            "Rate to the peer over the last second",
            bits(),
            |path| path.traffic.sent_bit_per_s.map(|rate| rate as f64),
        ),
        (
            "starhaul_path_received_rate",
            "Rate from the peer over the last second",
            bits(),
            |path| path.traffic.received_bit_per_s.map(|rate| rate as f64),
        ),
        (
            "starhaul_path_limit",
            "Greatest rate to the peer, configured or ordered",
            bits(),
            |path| path.limit_bit_per_s.map(|rate| rate as f64),
        ),
        (
            "starhaul_path_segment_rtt",
            "RTT of the satellite segments of both ends",
            Some(Unit::Seconds),
            |path| path.segment_rtt_ms.map(seconds),
        ),
        (
            "starhaul_path_window",
            "Congestion window",
            Some(Unit::Bytes),
            |path| Some(path.cwnd_bytes as f64),
        ),
        (
            "starhaul_path_in_flight",
            "Bytes in flight",
            Some(Unit::Bytes),
            |path| Some(path.bytes_in_flight as f64),
        ),
        (
            "starhaul_path_packet",
            "Largest UDP payload that the path is known to carry",
            Some(Unit::Bytes),
            |path| Some(path.packet_bytes.into()),
        ),
    ];
    for (name, help, unit, value) in of_path {
        let series = rows
            .iter()
            .filter_map(|row| Some((row.labels, value(row.now?)?)));
        families.gauge(name, help, unit, series)?;
    }
    let measured: [(&str, &str, Option<Unit>, OfFigures); 8] = [
        (
            "starhaul_path_bandwidth",
            "Estimated bandwidth to the peer",
            bits(),
            |path| Some(path.rate_bit_per_s as f64),
        ),
        (
            "starhaul_path_rtt",
            "Smoothed RTT",
            Some(Unit::Seconds),
            |path| path.rtt_ms.map(seconds),
        ),
        (
            "starhaul_path_min_rtt",
            "Lowest recent RTT",
            Some(Unit::Seconds),
            |path| path.min_rtt_ms.map(seconds),
        ),
        (
            "starhaul_path_queue_delay",
            "Smoothed RTT above the lowest recent one",
            Some(Unit::Seconds),
            |path| Some(seconds((path.rtt_ms? - path.min_rtt_ms?).max(0.0))),
        ),
        (
            "starhaul_path_one_way_delay",
            "Estimated one-way delay to the peer",
            Some(Unit::Seconds),
            |path| path.one_way_delay_ms.map(seconds),
        ),
        (
            "starhaul_path_loss",
            "Share of datagrams lost",
            ratio(),
            |path| path.loss,
        ),
        (
            "starhaul_path_loss_window_max",
            "Greatest loss of a recent window",
            ratio(),
            |path| path.loss_window_max,
        ),
        (
            "starhaul_path_cost",
            "Configured price per byte",
            None,
            |path| path.cost,
        ),
    ];
    for (name, help, unit, value) in measured {
        let series = rows
            .iter()
            .filter_map(|row| Some((row.labels, value(row.now?.figures.as_ref()?)?)));
        families.gauge(name, help, unit, series)?;
    }
    Ok(())
}

pub(super) fn seconds(milliseconds: f64) -> f64 {
    milliseconds / 1e3
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// The series of classes where each of these paths has classes of its own.
    fn series(paths: u8, classes: u8) -> usize {
        let paths = (0..paths).map(|path| {
            let by_class = (0..classes).map(|class| {
                serde_json::json!({ "priority": path * classes + class, "bytes_sent": 1, "bytes_received": 1 })
            });
            serde_json::json!({ "name": format!("p{path}"), "opened_by": "peer", "bytes_sent": 0, "bytes_received": 0,
                "datagrams_sent": 0, "datagrams_lost": 0, "reconfigurations": 0, "by_class": by_class.collect::<Vec<_>>() })
        });
        let peer = serde_json::json!({ "name": "far", "public_key": "k", "sessions": 1, "failed_attempts": 0,
            "last_error": null, "paths": paths.collect::<Vec<_>>() });
        let status = serde_json::json!({ "version": "0", "public_key": "k", "uptime_s": 1.0, "listen": [],
            "ingress": [], "sessions": [], "peers": [peer] });
        let status: Status = serde_json::from_value(status).expect("a status");
        let text = starhaul_metrics::encode(&Arc::new(status));
        let lines = text.lines();
        lines
            .filter(|line| line.starts_with("starhaul_path_class_sent_bytes_total{"))
            .count()
    }

    #[test]
    fn classes_that_a_peer_invents_do_not_multiply_with_its_paths() {
        // Of each path all sixteen, and the one without a name.
        assert_eq!(series(4, 4), 4 * 17);
        assert_eq!(series(63, 4), 63 * 4);
    }
}
