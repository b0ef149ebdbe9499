//! Metrics of paths. Where a peer has several sessions with a path of one name, counters are of all of them, and other figures
//! of the newest one.

use std::{collections::BTreeMap, fmt};

use starhaul_metrics::{Families, Unit};

use crate::status::{ClassOnPath, KnownPath, Path, PathFigures, PathTotals, Status};

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
/// told together, so that a class which changes its path adds no series.
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
    let mut names = BTreeMap::<_, BTreeMap<Option<u8>, String>>::new();
    for row in rows {
        let of_peer = names.entry(row.labels[0].1).or_default();
        of_peer.insert(None, String::new());
        for class in row.totals.by_class.iter().filter_map(|of| of.priority) {
            of_peer.insert(Some(class), class.to_string());
        }
    }
    for (name, help, value) in all {
        let series = rows.iter().flat_map(|row| {
            let [peer, path, opened_by] = row.labels;
            let of_peer = names.get(peer.1).into_iter().flatten();
            of_peer.map(move |(priority, text)| {
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
