//! The status of a bundle node as text.

use std::fmt::Write as _;

use comfy_table::{Table, presets};
use starhaul_dtn_client::status::Status;

pub(super) fn tables(status: &Status) -> String {
    let storage = &status.storage;
    let counters = &status.counters;
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "node {} at {}, up {:.0} s",
        status.node, status.time, status.uptime_s
    );
    let _ = writeln!(
        text,
        "stored in {}: {} of {} bundles, {} of {} bytes; {} being sent",
        storage.place,
        storage.bundles,
        storage.max_bundles,
        storage.bytes,
        storage.max_bytes,
        storage.in_flight
    );
    let _ = writeln!(
        text,
        "bundles: {} received, {} sent, {} expired, {} refused, {} too large; LTP: {} segments, {} sent again, {} dropped",
        counters.received,
        counters.sent,
        counters.expired,
        counters.refused,
        counters.too_large,
        counters.ltp_segments,
        counters.ltp_resent,
        counters.ltp_dropped + counters.ltp_strangers
    );
    let dash = || "-".to_owned();
    if !status.stored.is_empty() {
        let rows = status.stored.iter().map(|row| {
            let leaves = row.leaves.clone().unwrap_or_else(|| {
                if row.next_hop.is_some() {
                    "now".to_owned()
                } else {
                    dash()
                }
            });
            [
                row.node.clone(),
                row.bundles.to_string(),
                row.bytes.to_string(),
                row.next_hop.clone().unwrap_or_else(dash),
                leaves,
            ]
        });
        let _ = writeln!(
            text,
            "\n{}",
            table(
                ["stored for", "bundles", "bytes", "next hop", "leaves"],
                rows
            )
        );
    }
    if !status.neighbours.is_empty() {
        let rows = status.neighbours.iter().map(|row| {
            let state = if row.is_open { "open" } else { "closed" };
            let until = row
                .closes
                .clone()
                .or_else(|| row.is_open.then(|| "always".to_owned()));
            [
                row.node.clone(),
                row.by.clone(),
                state.to_owned(),
                until.unwrap_or_else(dash),
                row.opens.clone().unwrap_or_else(dash),
            ]
        });
        let _ = writeln!(
            text,
            "\n{}",
            table(["neighbour", "by", "contact", "closes", "next opens"], rows)
        );
        for row in &status.neighbours {
            if let (Some(bytes), Some(reason)) = (row.segment_bytes, &row.segment_reason) {
                let _ = writeln!(text, "segments to {}: {bytes} bytes, {reason}", row.node);
            }
        }
    }
    for limit in &status.limits_met {
        let _ = writeln!(text, "limit: {limit}");
    }
    text
}

fn table(header: [&str; 5], rows: impl Iterator<Item = [String; 5]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table.to_string()
}
