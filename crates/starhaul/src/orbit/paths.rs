//! `starhaul orbit paths`: figures as a table or JSON, and the paths as files.

use std::{
    fs,
    io::{BufWriter, Write as _},
    path::Path,
    str::FromStr,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde_json::json;
use starhaul_link::{Delay, write_delay};
use starhaul_orbit::{End, Figures, Network, PathOverTime, write_leoem, write_table};
use starhaul_plot::{Column, Table, Value};
use starhaul_units::Bandwidth;

use super::{PathsArguments, progress::Bar};
use crate::output::{Usage, check_folder, ending, print};

/// Most steps of all paths that are written at once.
const MAX_STEPS: u128 = 2_000_000;

/// The end of a path, as on the command line.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitedAt(End);

impl FromStr for LimitedAt {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "from" => Ok(Self(End::From)),
            "to" => Ok(Self(End::To)),
            _ => Err("write from or to"),
        }
    }
}

pub(super) fn run(arguments: &PathsArguments) -> anyhow::Result<()> {
    let network = arguments.source.network(2)?;
    let stations = network.stations().len();
    let pairs: Vec<(usize, usize)> = match arguments.all_pairs {
        true => (0..stations)
            .flat_map(|a| (a + 1..stations).map(move |b| (a, b)))
            .collect(),
        false => (1..stations).map(|to| (0, to)).collect(),
    };
    let (duration, step) = (arguments.steps.duration, arguments.steps.step);
    let begun = Instant::now();
    let bar = Bar::new();
    let told = |done, all| bar.show(done, all);
    let figures = match &arguments.out {
        None => network.figures(&pairs, duration, step, told)?,
        Some(out) => {
            check_out(out, &pairs, duration, step)?;
            let paths = network.paths(&pairs, duration, step, told)?;
            let capacity = arguments.rate.map(|rate| (arguments.limited_at.0, rate));
            write_paths(out, &paths, capacity)?;
            paths.iter().map(PathOverTime::figures).collect()
        }
    };
    bar.finish();
    let took = begun.elapsed();
    let rows: Vec<Row> = pairs
        .iter()
        .zip(figures)
        .map(|(pair, figures)| Row::new(&network, *pair, figures))
        .collect();
    match arguments.json {
        true => print(format!("{}\n", summary(&network, duration, step, &rows)))?,
        false => print(Table::of(&columns(), &rows).text())?,
    }
    eprintln!(
        "{} satellites and {stations} stations, {} paths: {} s in {:.1} s, {:.0} times as fast as they move",
        network.constellation().satellites().len(),
        pairs.len(),
        duration.as_secs_f64(),
        took.as_secs_f64(),
        duration.as_secs_f64() / took.as_secs_f64().max(1e-6)
    );
    Ok(())
}

/// A pair of stations and what their path does.
struct Row {
    from: String,
    to: String,
    figures: Figures,
}

impl Row {
    fn new(network: &Network, (from, to): (usize, usize), figures: Figures) -> Self {
        let name = |station| network.node_name(network.station_node(station)).to_owned();
        Self {
            from: name(from),
            to: name(to),
            figures,
        }
    }
}

fn columns() -> Vec<Column<Row>> {
    let ms = |time: Option<Duration>| match time {
        Some(time) => Value::Number(time.as_secs_f64() * 1e3),
        None => Value::Nothing,
    };
    let count = |count: u32| Value::Count(count.into());
    vec![
        Column::name("from", "from", |row: &Row| row.from.clone().into()),
        Column::name("to", "to", |row: &Row| row.to.clone().into()),
        Column::share("connected", "connected", 1, |row: &Row| {
            let steps = f64::from(row.figures.steps.max(1));
            Value::Number(f64::from(row.figures.connected) / steps)
        }),
        Column::number("propagation_mean_ms", "mean", "ms", 2, move |row: &Row| {
            ms(row.figures.propagation_mean())
        }),
        Column::number(
            "propagation_least_ms",
            "least",
            "ms",
            2,
            move |row: &Row| ms(row.figures.propagation_range().map(|range| range.0)),
        ),
        Column::number("propagation_most_ms", "most", "ms", 2, move |row: &Row| {
            ms(row.figures.propagation_range().map(|range| range.1))
        }),
        Column::number("links_mean", "links", "", 2, |row: &Row| {
            row.figures
                .links_mean()
                .map_or(Value::Nothing, Value::Number)
        }),
        Column::count("changes", "changes", move |row: &Row| {
            count(row.figures.changes)
        }),
        Column::count("handovers", "handovers", move |row: &Row| {
            count(row.figures.handovers)
        }),
    ]
}

fn summary(network: &Network, duration: Duration, step: Duration, rows: &[Row]) -> String {
    let paths = rows.iter().map(|row| {
        let mut path = json!({ "from": row.from, "to": row.to });
        if let (Some(path), Ok(serde_json::Value::Object(figures))) =
            (path.as_object_mut(), serde_json::to_value(&row.figures))
        {
            path.extend(figures);
        }
        path
    });
    let summary = json!({
        "start": network.constellation().start().to_string(),
        "duration_s": duration.as_secs_f64(),
        "step_s": step.as_secs_f64(),
        "satellites": network.constellation().satellites().len(),
        "left_out": network.constellation().left_out(),
        "paths": paths.collect::<Vec<_>>(),
    });
    format!("{summary:#}")
}

/// Refuses what cannot be written before time is spent on it.
fn check_out(
    out: &Path,
    pairs: &[(usize, usize)],
    duration: Duration,
    step: Duration,
) -> anyhow::Result<()> {
    let steps = duration.as_nanos().div_ceil(step.as_nanos().max(1)) * pairs.len() as u128;
    if steps > MAX_STEPS {
        let problem = format!(
            "--out: {} paths make {steps} steps, more than {MAX_STEPS}; take fewer stations or longer steps",
            pairs.len()
        );
        return Err(Usage(problem).into());
    }
    if pairs.len() > 1 {
        return Ok(check_folder("--out", out)?);
    }
    match ending(out).as_str() {
        "log" if step.subsec_nanos() != 0 => Err(Usage(format!(
            "--out {}: a path log has whole seconds; take a --step of whole seconds, or another format",
            out.display()
        ))
        .into()),
        "json" | "csv" | "log" | "txt" | "" => Ok(()),
        _ => Err(Usage(format!(
            "--out {}: a path is written as .json, .csv, .log or .txt; `starhaul orbit plot` draws it",
            out.display()
        ))
        .into()),
    }
}

fn write_paths(
    out: &Path,
    paths: &[PathOverTime],
    capacity: Option<(End, Bandwidth)>,
) -> anyhow::Result<()> {
    if let ([path], false) = (paths, ending(out).is_empty()) {
        return write_path(out, path, capacity);
    }
    fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let whole_seconds = |path: &PathOverTime| path.step().subsec_nanos() == 0;
    for path in paths {
        let name = format!("{}-{}", file_name(path.from()), file_name(path.to()));
        for ending in ["json", "csv", "log"] {
            if ending != "log" || whole_seconds(path) {
                write_path(&out.join(format!("{name}.{ending}")), path, capacity)?;
            }
        }
    }
    Ok(())
}

/// A station's name as a part of the name of a file.
fn file_name(station: &str) -> String {
    let plain = |c: char| {
        if c.is_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    station.to_lowercase().chars().map(plain).collect()
}

fn write_path(
    file: &Path,
    path: &PathOverTime,
    capacity: Option<(End, Bandwidth)>,
) -> anyhow::Result<()> {
    let create = || fs::File::create(file).map(BufWriter::new);
    let written = create().and_then(|mut out| {
        match ending(file).as_str() {
            "json" => writeln!(out, "{}", path.to_json())?,
            "csv" => write_table(path, capacity, &mut out)?,
            "log" => write_leoem(path, &mut out)?,
            _ => {
                let link = path.link(None).map_err(std::io::Error::other)?;
                if let Delay::Trace(delay) = link.delay {
                    write_delay(&delay, &mut out)?;
                }
            }
        }
        out.flush()
    });
    written.with_context(|| format!("cannot write {}", file.display()))
}
