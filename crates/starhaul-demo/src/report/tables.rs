//! The tables of the demo, the same on a terminal and on the page.

use starhaul_plot::{Column, Table, Value};

use crate::{
    DemoResult, PathResult, SystemResult,
    load::Class,
    score::{ClassScore, Tally},
};

/// A class as one system carried it.
type Carried<'a> = (Class, &'static str, &'a ClassScore);
type Named<'a> = (&'static str, &'a SystemResult);

/// Every class, both systems below each other.
pub(crate) fn classes(result: &DemoResult) -> Table {
    let latency = |key, name, of: fn(&ClassScore) -> Option<f64>| {
        Column::number(key, name, "ms", 1, move |row: &Carried<'_>| {
            of(row.2).into()
        })
    };
    let columns = [
        Column::name("class", "class", |(class, ..): &Carried<'_>| {
            format!("{}, {} ms", class.name(), class.deadline().as_millis()).into()
        }),
        Column::name("system", "system", |row: &Carried<'_>| row.1.into()),
        Column::count("sent", "sent", |row: &Carried<'_>| row.2.sent.into()),
        Column::count("on_time", "on time", |row: &Carried<'_>| {
            row.2.on_time.into()
        }),
        Column::count("late", "late", |row: &Carried<'_>| row.2.late.into()),
        Column::count("lost", "lost", |row: &Carried<'_>| row.2.lost.into()),
        Column::number("on_time_share", "on time", "%", 2, |row: &Carried<'_>| {
            percent(row.2.tally()).into()
        })
        .brief(""),
        latency("p50_ms", "p50", |score| score.p50_ms),
        latency("p95_ms", "p95", |score| score.p95_ms),
        latency("p99_ms", "p99", |score| score.p99_ms),
    ];
    let mut rows = Vec::new();
    for class in Class::ALL {
        let named = result.systems.named().into_iter();
        rows.extend(named.map(|(name, system)| (class, name, system.classes.of(class))));
    }
    let table = Table::of(&columns, &rows);
    table.grouped().coloured("system", colour)
}

/// The download, if there was one, and what went over which path.
pub(crate) fn paths(result: &DemoResult) -> Table {
    let columns = [
        Column::name("system", "system", |row: &Named<'_>| row.0.into()),
        Column::number("qoe", "QoE", "", 1, |row: &Named<'_>| row.1.qoe.into()),
        Column::number("download_mb", "download", "MB", 1, |row: &Named<'_>| {
            megabytes(row.1.download.bytes).into()
        }),
        Column::number("download_mbps", "", "Mbit/s", 2, |row: &Named<'_>| {
            row.1.download.mbit_per_s.into()
        }),
        Column::number("sha256", "SHA-256", "", 0, |row: &Named<'_>| {
            let intact = row.1.download.sha256_ok;
            let said = if intact { "intact" } else { "NOT INTACT" };
            Value::Verdict(said.to_owned(), intact)
        }),
        Column::number("leo_mb", "LEO both ways", "MB", 1, |row: &Named<'_>| {
            megabytes(row.1.paths.leo.bytes).into()
        })
        .brief("LEO"),
        Column::number("geo_mb", "GEO both ways", "MB", 1, |row: &Named<'_>| {
            megabytes(row.1.paths.geo.bytes).into()
        })
        .brief("GEO"),
        Column::name("leo_by", "LEO by", |row: &Named<'_>| {
            controller(&row.1.paths.leo).into()
        }),
        Column::name("geo_by", "GEO by", |row: &Named<'_>| {
            controller(&row.1.paths.geo).into()
        }),
    ];
    let mut table = Table::of(&columns, &result.systems.named());
    if !result.applications.have_blocks() {
        table = table.without("qoe");
    }
    if !result.applications.have_download() {
        for column in ["download_mb", "download_mbps", "sha256"] {
            table = table.without(column);
        }
    }
    table.coloured("system", colour)
}

/// The controller, and how many reconfigurations its prober told it.
fn controller(path: &PathResult) -> String {
    match path.reconfigurations {
        Some(told) => format!("{}, told {told}", path.controller),
        None => path.controller.clone(),
    }
}

/// The share on time in percent; 100 only when nothing is missing, and no share of nothing.
pub(crate) fn percent(tally: Tally) -> String {
    if tally.sent == 0 {
        return "–".to_owned();
    }
    let percent = tally.share() * 100.0;
    if tally.on_time == tally.sent {
        "100".to_owned()
    } else {
        format!("{:.2}", (percent * 100.0).floor() / 100.0)
    }
}

fn colour(system: &str) -> &'static str {
    match system {
        "starhaul" => "starhaul",
        _ => "mpquic",
    }
}

#[expect(clippy::cast_precision_loss, reason = "a display value")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
