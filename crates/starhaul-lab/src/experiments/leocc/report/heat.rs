//! Heat maps: each system's throughput and queue against those of BBR and of the oracle, by added delay and capacity. The queue above the
//! oracle's is graded by what BBR has of it.

use maud::{Markup, html};

use super::super::{
    goals::{OF_ORACLE, RIVAL, THROUGHPUT},
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
                tr { th { "path" } @for line in &systems { th colspan="4" { (line.system) } } }
                tr {
                    th {}
                    @for _ in &systems {
                        th { "throughput × BBR" }
                        th { "queue × BBR" }
                        th { "throughput × oracle" }
                        th { "queue − oracle, ms" }
                    }
                }
            }
            tbody {
                @for (change, rows) in &of_change {
                    @let rival = at(&Standing::of(RIVAL, rows).over_oracle_ms, 0.5);
                    tr {
                        td { (change) }
                        @for line in &systems {
                            @let line = Standing::of(&line.system, rows);
                            (cell(at(&line.throughput, 0.5), |ratio| (ratio - THROUGHPUT) / 0.1))
                            (cell(at(&line.queue, 0.5), |ratio| (QUEUE_GOAL - ratio) / 0.5))
                            (cell(at(&line.of_oracle, 0.5), |ratio| (ratio - OF_ORACLE) / 0.1))
                            (over_oracle(at(&line.over_oracle_ms, 0.5), rival))
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
    match value {
        Some(value) => graded(&format!("{value:.3}"), grade(value)),
        None => html! { td { "–" } },
    }
}

/// Milliseconds of queue above the oracle's, beside those of BBR; on no ground where BBR has none.
fn over_oracle(ms: Option<f64>, rival_ms: Option<f64>) -> Markup {
    let Some(ms) = ms else {
        return html! { td { "–" } };
    };
    let text = format!("{ms:.1}");
    match rival_ms.filter(|rival| *rival > 0.0) {
        Some(rival) => graded(&text, (QUEUE_GOAL - ms / rival) / 0.5),
        None => html! { td { (text) } },
    }
}

fn graded(text: &str, grade: f64) -> Markup {
    let grade = grade.clamp(-1.0, 1.0);
    let ground = if grade < 0.0 { "--bad" } else { "--good" };
    let share = 10.0 + 50.0 * grade.abs();
    html! {
        td style=(format!("background: color-mix(in srgb, var({ground}) {share:.0}%, transparent)")) { (text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{experiments::leocc::summary::tests::row, systems::ORACLE};

    #[test]
    fn the_queue_above_that_of_the_oracle_is_told_and_graded_by_that_of_bbr() {
        let run = |system, ms| {
            let mut row = row(system, "x", 10.0, 0.0);
            row.variant = Some("+80 ms × 1".to_owned());
            row.metrics.queue_delay_mean_ms = ms;
            row
        };
        let rows = [run("leocc2", 21.0), run("bbr", 81.0), run(ORACLE, 1.0)];
        let page = map(&rows).into_string();
        assert!(page.contains("queue − oracle, ms"), "{page}");
        assert!(
            page.contains("var(--good) 41%, transparent)\">20.0<"),
            "{page}"
        );
        assert!(
            page.contains("var(--bad) 54%, transparent)\">80.0<"),
            "{page}"
        );
        // Without the oracle there is nothing to tell.
        let page = map(&rows[..2]).into_string();
        assert!(!page.contains("20.0") && page.contains('–'), "{page}");
    }
}
