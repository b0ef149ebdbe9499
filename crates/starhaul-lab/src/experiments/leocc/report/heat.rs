//! Heat maps: each system's throughput and queue against those of BBR and of the oracle, by added delay and capacity.

use maud::{Markup, html};

use super::super::{
    goals::{OF_ORACLE, THROUGHPUT},
    results::Row,
    rivals::QUEUE_GOAL,
    standing::{Standing, at},
};
use crate::kit::statistics::distinct;

/// One line for each change of the links, one column for each system and figure.
pub(super) fn map(rows: &[Row]) -> Markup {
    let changes = distinct(rows.iter().filter_map(|row| row.variant.as_deref()));
    let systems = Standing::of_all(rows);
    let of_change: Vec<(&str, Vec<Row>)> = changes
        .into_iter()
        .map(|change| {
            let same = |row: &&Row| row.variant.as_deref() == Some(change);
            (change, rows.iter().filter(same).cloned().collect())
        })
        .collect();
    html! {
        table {
            thead {
                tr { th { "path" } @for line in &systems { th colspan="3" { (line.system) } } }
                tr {
                    th {}
                    @for _ in &systems { th { "throughput × BBR" } th { "queue × BBR" } th { "throughput × oracle" } }
                }
            }
            tbody {
                @for (change, rows) in &of_change {
                    tr {
                        td { (change) }
                        @for line in &systems {
                            @let line = Standing::of(&line.system, rows);
                            (cell(at(&line.throughput, 0.5), |ratio| (ratio - THROUGHPUT) / 0.1))
                            (cell(at(&line.queue, 0.5), |ratio| (QUEUE_GOAL - ratio) / 0.5))
                            (cell(at(&line.of_oracle, 0.5), |ratio| (ratio - OF_ORACLE) / 0.1))
                        }
                    }
                }
            }
        }
    }
}

/// A figure on a ground that is green where it is better than the goal and red where it is worse, by `grade` from −1
/// to 1; empty without one.
fn cell(value: Option<f64>, grade: impl Fn(f64) -> f64) -> Markup {
    let Some(value) = value else {
        return html! { td { "–" } };
    };
    let grade = grade(value).clamp(-1.0, 1.0);
    let ground = if grade < 0.0 { "--bad" } else { "--good" };
    let share = 10.0 + 50.0 * grade.abs();
    html! {
        td style=(format!("background: color-mix(in srgb, var({ground}) {share:.0}%, transparent)")) {
            (format!("{value:.3}"))
        }
    }
}
