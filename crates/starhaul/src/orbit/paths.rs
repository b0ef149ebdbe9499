//! `starhaul orbit paths`: figures as a table or JSON, and the paths as files.

use std::{
    str::FromStr,
    time::{Duration, Instant},
};

use serde_json::json;
use starhaul_orbit::{End, Figures, Network, PathOverTime};
use starhaul_plot::{Column, Table, Value};

use super::{PathsArguments, files::Target, progress::Bar};
use crate::output::{print, tell};

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
            let capacity = arguments.rate.map(|rate| (arguments.limited_at.0, rate));
            let target = Target::new(out, &pairs, (duration, step), capacity)?;
            let paths = network.paths(&pairs, duration, step, told)?;
            target.write(&paths)?;
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
    tell(format!(
        "{} satellites and {stations} stations, {} paths: {} s in {:.1} s, {:.0} times as fast as they move\n",
        network.constellation().satellites().len(),
        pairs.len(),
        duration.as_secs_f64(),
        took.as_secs_f64(),
        duration.as_secs_f64() / took.as_secs_f64().max(1e-6)
    ));
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

/// The share of steps with a path, rounded down to a tenth of a percent: 100 % is the whole time.
fn connected(figures: &Figures) -> f64 {
    let thousand = u64::from(figures.connected) * 1_000;
    let shown = thousand / u64::from(figures.steps.max(1));
    f64::from(u32::try_from(shown).unwrap_or(1_000)) / 1e3
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
            Value::Number(connected(&row.figures))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_gap_is_not_connected_all_the_time() {
        for (steps, gaps, shown) in [
            (7_200, 0, "100.0"),
            (7_200, 1, "99.9"),
            (1_000, 430, "57.0"),
            (7_200, 7_200, "0.0"),
        ] {
            let mut figures = Figures::default();
            for step in 0..steps {
                let nodes: &[u32] = if step < gaps { &[] } else { &[0, 2, 1] };
                figures.add(nodes, Duration::from_millis(30));
            }
            let row = Row {
                from: "a".to_owned(),
                to: "b".to_owned(),
                figures,
            };
            let text = Table::of(&columns(), &[row]).text();
            let cell = text.lines().nth(1).unwrap().split_whitespace().nth(2);
            assert_eq!(cell, Some(shown), "{text}");
        }
    }
}
