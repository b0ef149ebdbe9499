//! Metrics of rules and classes: what streams carried, and what became of their blocks. A class is the sum of the series with
//! its `priority`. Rules of a peer, whose names are its choice, count together for each priority.

use std::{collections::BTreeMap, fmt};

use starhaul_metrics::{Families, Unit};

use crate::status::{Blocks, FlowTotals, IngressStatus, Status};

type Labels<'s> = [(&'static str, &'s str); 4];

/// The totals of a rule at one peer with one priority.
struct Row {
    peer: String,
    rule: String,
    rule_of: String,
    priority: String,
    totals: FlowTotals,
}

impl Row {
    fn labels(&self) -> Labels<'_> {
        [
            ("peer", &self.peer),
            ("rule", &self.rule),
            ("rule_of", &self.rule_of),
            ("priority", &self.priority),
        ]
    }
}

pub(super) fn write(status: &Status, families: &mut Families<'_>) -> fmt::Result {
    let rows = rows(status);
    totals(&rows, families)?;
    outcomes(&rows, families)?;
    ingress(&status.ingress, families)
}

fn rows(status: &Status) -> Vec<Row> {
    let mut rows = BTreeMap::new();
    for peer in &status.peers {
        for flow in &peer.flows {
            let rule = flow.rule.as_deref().filter(|_| flow.rule_of == "us");
            let key = (
                &peer.name,
                rule.unwrap_or_default(),
                &flow.rule_of,
                flow.totals.priority,
            );
            let sum: &mut FlowTotals = rows.entry(key).or_default();
            sum.add(&flow.totals);
        }
    }
    let rows = rows.into_iter();
    rows.map(|((peer, rule, rule_of, priority), totals)| Row {
        peer: peer.clone(),
        rule: rule.to_owned(),
        rule_of: rule_of.clone(),
        priority: priority.to_string(),
        totals,
    })
    .collect()
}

fn totals(rows: &[Row], families: &mut Families<'_>) -> fmt::Result {
    type Value = fn(&FlowTotals) -> u64;
    let all: [(&str, &str, Option<Unit>, Value); 6] = [
        (
            "starhaul_rule_sent",
            "Bytes of applications to the peer",
            Some(Unit::Bytes),
            |sum| sum.traffic.sent_bytes,
        ),
        (
            "starhaul_rule_received",
            "Bytes of applications from the peer",
            Some(Unit::Bytes),
            |sum| sum.traffic.received_bytes,
        ),
        ("starhaul_rule_streams", "Streams", None, |sum| {
            sum.streams_total
        }),
        (
            "starhaul_rule_sent_blocks",
            "Blocks given to sessions",
            None,
            |sum| sum.blocks.blocks_sent,
        ),
        (
            "starhaul_rule_received_blocks",
            "Blocks given to applications",
            None,
            |sum| sum.blocks.blocks_received,
        ),
        (
            "starhaul_rule_redundancy",
            "Redundancy and second copies of blocks sent to the peer",
            Some(Unit::Bytes),
            |sum| sum.blocks.redundancy_bytes,
        ),
    ];
    for (name, help, unit, value) in all {
        let series = rows.iter().map(|row| (row.labels(), value(&row.totals)));
        families.counter(name, help, unit, series)?;
    }
    let series = rows
        .iter()
        .map(|row| (row.labels(), row.totals.streams as f64));
    families.gauge("starhaul_rule_open_streams", "Open streams", None, series)
}

fn outcomes(rows: &[Row], families: &mut Families<'_>) -> fmt::Result {
    let ends = |blocks: &Blocks| {
        [
            ("on_time", blocks.on_time),
            ("late", blocks.late),
            ("expired_capacity", blocks.expired.capacity),
            ("expired_loss", blocks.expired.loss),
            ("expired_unreachable", blocks.expired.unreachable),
            ("cancelled", blocks.cancelled),
            ("failed", blocks.failed),
        ]
    };
    let series = rows
        .iter()
        .flat_map(|row| with(row, "outcome", ends(&row.totals.blocks)));
    families.counter(
        "starhaul_rule_block_outcomes",
        "Sent blocks by what became of them: expired ones were dropped for lack of capacity, by loss, or since no path was fast enough",
        None,
        series,
    )?;
    let recovered = |blocks: &Blocks| {
        [
            ("redundancy", blocks.recovered.redundancy),
            ("retransmission", blocks.recovered.retransmission),
        ]
    };
    let series = rows
        .iter()
        .flat_map(|row| with(row, "by", recovered(&row.totals.blocks)));
    families.counter(
        "starhaul_rule_recovered_blocks",
        "Sent blocks that lost fragments and were delivered",
        None,
        series,
    )
}

fn with<'r, const N: usize>(
    row: &'r Row,
    label: &'static str,
    values: [(&'static str, u64); N],
) -> [([(&'static str, &'r str); 5], u64); N] {
    let [peer, rule, rule_of, priority] = row.labels();
    values.map(|(value, count)| ([peer, rule, rule_of, priority, (label, value)], count))
}

fn ingress(rules: &[IngressStatus], families: &mut Families<'_>) -> fmt::Result {
    let labels = |rule| -> [(&'static str, &str); 2] {
        let rule: &IngressStatus = rule;
        [("rule", &rule.rule), ("kind", &rule.kind)]
    };
    let series = rules.iter().map(|rule| (labels(rule), rule.clients as f64));
    families.gauge(
        "starhaul_ingress_present_clients",
        "Client addresses or connections now",
        None,
        series,
    )?;
    type Value = fn(&IngressStatus) -> u64;
    let all: [(&str, &str, Value); 5] = [
        (
            "starhaul_ingress_clients",
            "Client addresses or connections",
            |rule| rule.clients_total,
        ),
        (
            "starhaul_ingress_displaced_clients",
            "Clients forgotten early to make room",
            |rule| rule.displaced_clients,
        ),
        (
            "starhaul_ingress_failed_connections",
            "Connections that failed or broke off",
            |rule| rule.failed_connections,
        ),
        (
            "starhaul_ingress_received_datagrams",
            "Datagrams from applications",
            |rule| rule.datagrams_in,
        ),
        (
            "starhaul_ingress_sent_datagrams",
            "Datagrams to applications",
            |rule| rule.datagrams_out,
        ),
    ];
    for (name, help, value) in all {
        let series = rules.iter().map(|rule| (labels(rule), value(rule)));
        families.counter(name, help, None, series)?;
    }
    let refused = rules.iter().flat_map(|rule| {
        let [name, kind] = labels(rule);
        let refusals = &rule.refusals;
        let causes = [
            ("not_allowed", refusals.not_allowed),
            ("connection_refused", refusals.connection_refused),
            ("unreachable", refusals.unreachable),
        ];
        causes.map(|(cause, count)| ([name, kind, ("cause", cause)], count))
    });
    families.counter(
        "starhaul_ingress_refused_connections",
        "Connections that the far side did not make",
        None,
        refused,
    )?;
    let dropped = rules.iter().flat_map(|rule| {
        let [name, kind] = labels(rule);
        let dropped = &rule.dropped;
        let causes = [
            ("no_session", dropped.no_session),
            ("too_many_clients", dropped.too_many_clients),
            ("refused", dropped.refused),
        ];
        causes.map(|(cause, count)| ([name, kind, ("cause", cause)], count))
    });
    families.counter(
        "starhaul_ingress_dropped_datagrams",
        "Datagrams from applications that were dropped",
        None,
        dropped,
    )
}
