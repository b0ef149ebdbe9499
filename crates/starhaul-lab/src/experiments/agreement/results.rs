//! The results of the comparison, and their files.

use maud::html;
use serde::{Deserialize, Serialize};
use starhaul_flow::Metrics;
use starhaul_plot::{Column, Table, Value, made_by, page};

use crate::{
    Error,
    kit::{self, Found, columns, repeats::failure},
    systems::family,
};

/// Virtual against real time, in throughput and mean queueing delay; ours against the kernel's, in throughput.
const THROUGHPUT_BOUND: f64 = 0.05;
const DELAY_BOUND: f64 = 0.10;
const KERNEL_BOUND: f64 = 0.15;

/// The results: what `--json` prints and `results.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Name of the experiment: `agreement`.
    pub experiment: String,
    /// The command line that made the results.
    pub command: String,
    /// Seed of the first run of each.
    pub seed: u64,
    /// What could not run here, one sentence each.
    pub skipped: Vec<String>,
    /// Each controller over each link in each way.
    pub rows: Vec<Row>,
    /// Comparisons of two rows each, with their bounds.
    pub verdicts: Vec<Verdict>,
}

/// The runs of one controller over one link in one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Our controller, or `kernel-` and the kernel's.
    pub system: String,
    /// The link, and the kind of run.
    pub params: Params,
    /// The median of each figure.
    pub metrics: Metrics,
    /// The runs that count by themselves.
    pub runs: Vec<Metrics>,
    /// Number of further runs that do not count, because packets left late on a busy computer.
    pub invalid_runs: u32,
}

/// The link and the kind of run of a [`Row`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Params {
    /// The link's name.
    pub link: String,
    /// `packets`, `simulator` or `real`.
    pub way: String,
}

/// A comparison of two rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Name of the link.
    pub link: String,
    /// The two compared figures.
    pub what: String,
    /// The first figure.
    pub value: f64,
    /// The second figure.
    pub reference: f64,
    /// How far the first is from the second, as a share of it.
    pub difference: f64,
    /// How far it may be; `None` when it is shown only.
    pub bound: Option<f64>,
}

impl Verdict {
    /// The difference is within the bound.
    pub fn holds(&self) -> bool {
        self.bound
            .is_none_or(|bound| self.difference.abs() <= bound)
    }
}

impl Results {
    pub(super) fn new(command: &str, seed: u64, skipped: Vec<String>) -> Self {
        Self {
            experiment: "agreement".to_owned(),
            command: command.to_owned(),
            seed,
            skipped,
            rows: Vec::new(),
            verdicts: Vec::new(),
        }
    }

    /// Compares the rows.
    pub(super) fn judge(&mut self) {
        let throughput: fn(&Metrics) -> f64 = |m| m.throughput_mbps;
        let delay: fn(&Metrics) -> f64 = |m| m.queue_delay_mean_ms;
        let mut verdicts = Vec::new();
        for real in self.rows.iter().filter(|row| row.params.way == "real") {
            let (link, system) = (&real.params.link, &real.system);
            let of = |system: &str, way: &str| {
                self.rows.iter().find(|row| {
                    row.system == system && row.params.way == way && row.params.link == *link
                })
            };
            let mut add = |what: String, value: &Row, pick: fn(&Metrics) -> f64, bound| {
                let (value, reference) = (pick(&value.metrics), pick(&real.metrics));
                verdicts.push(Verdict {
                    link: link.clone(),
                    what,
                    value,
                    reference,
                    difference: value / reference.max(f64::MIN_POSITIVE) - 1.0,
                    bound,
                });
            };
            if let Some(own) = system.strip_prefix("kernel-") {
                if let Some(ours) = of(own, "real") {
                    let bound = (own == "cubic").then_some(KERNEL_BOUND);
                    add(
                        format!("{own}: ours against the kernel's, Mbit/s"),
                        ours,
                        throughput,
                        bound,
                    );
                    add(
                        format!("{own}: ours against the kernel's, queue ms"),
                        ours,
                        delay,
                        None,
                    );
                }
                continue;
            }
            if let Some(simulator) = of(system, "simulator") {
                let what = |figure| format!("{system}: simulator against real time, {figure}");
                add(
                    what("Mbit/s"),
                    simulator,
                    throughput,
                    Some(THROUGHPUT_BOUND),
                );
                add(what("queue ms"), simulator, delay, Some(DELAY_BOUND));
            }
            if let Some(packets) = of(system, "packets") {
                let what = |figure| format!("{system}: packets alone against real time, {figure}");
                add(what("Mbit/s"), packets, throughput, None);
                add(what("queue ms"), packets, delay, None);
            }
        }
        self.verdicts = verdicts;
    }

    /// Everything that was promised holds.
    pub fn agrees(&self) -> bool {
        self.verdicts.iter().all(Verdict::holds)
    }

    /// What was measured over each link in each way.
    fn measured(&self) -> Table {
        let mut columns = vec![
            Column::name("link", "link", |row: &Row| (&row.params.link).into()),
            Column::name("system", "system", |row: &Row| (&row.system).into()),
            Column::name("way", "way", |row: &Row| (&row.params.way).into()),
        ];
        columns.extend(columns::metrics(|row: &Row| &row.metrics));
        columns.extend([
            Column::name("runs", "runs, Mbit/s", |row: &Row| {
                let runs = row
                    .runs
                    .iter()
                    .map(|run| format!("{:.2}", run.throughput_mbps));
                runs.collect::<Vec<_>>().join(", ").into()
            }),
            Column::name("late", "", |row: &Row| late(row).into()),
        ]);
        let table = Table::of(&columns, &self.rows);
        table
            .without("capacity_mbps")
            .without("rtt_p95_ms")
            .coloured("system", family)
    }

    /// The table of comparisons.
    fn judged(&self) -> Table {
        let figure = |key, name, of: fn(&Verdict) -> f64| {
            Column::number(key, name, "", 2, move |verdict: &Verdict| {
                of(verdict).into()
            })
        };
        let columns = [
            Column::name("verdict", "", |verdict: &Verdict| {
                Value::Verdict(said(verdict).to_owned(), verdict.holds())
            }),
            Column::name("what", "compared", |verdict: &Verdict| {
                (&verdict.what).into()
            }),
            figure("value", "first", |verdict| verdict.value),
            figure("reference", "second", |verdict| verdict.reference),
            Column::number("difference", "difference", "%", 1, |verdict: &Verdict| {
                format!("{:+.1}", verdict.difference * 100.0).into()
            }),
            Column::number("bound", "bound", "%", 0, |verdict: &Verdict| {
                verdict
                    .bound
                    .map(|bound| format!("{:.0}", bound * 100.0))
                    .into()
            }),
            Column::name("link", "link", |verdict: &Verdict| (&verdict.link).into()),
        ];
        Table::of(&columns, &self.verdicts)
    }

    /// The whole page.
    pub fn html(&self) -> String {
        let body = html! {
            h1 { "Virtual and real time" }
            p {
                "The same flow over the same links: packets alone and the whole stack in virtual time, the stack in real time behind \
                 the replay, and the kernel's TCP beside it. Medians of the runs."
            }
            @for skipped in &self.skipped { p { (skipped) } }
            h2 { "What agrees" }
            (self.judged().html())
            h2 { "Runs" }
            (self.measured().without_empty().html())
            footer {
                (made_by(&self.command, Some(self.seed)))
                p {
                    "Throughput: bytes of IP packets that the link delivered, from the start of the program on. Queueing delay: from a \
                     packet's coming to the link until its last byte left. Both are the link's own figures, the same in every way; \
                     those of packets alone leave out what was sent twice."
                }
            }
        };
        let title = format!("Starhaul lab: agreement, seed {}", self.seed);
        page(&title, kit::STYLE, &body)
    }
}

impl Found for Results {
    fn table(&self) -> String {
        let mut text = String::new();
        for (link, table) in self.measured().split(&["link"]) {
            text += &format!("{link}\n{}\n", table.without("runs").without_empty().text());
        }
        for skipped in &self.skipped {
            text += &format!("{skipped}\n");
        }
        text + &self.judged().text()
    }

    fn failure(&self) -> Option<String> {
        failure(&self.skipped)
    }

    fn json(&self) -> Result<String, Error> {
        kit::experiment::to_json(self)
    }

    fn files(&self) -> Vec<(String, String)> {
        vec![("report.html".to_owned(), self.html())]
    }
}

fn said(verdict: &Verdict) -> &'static str {
    match (verdict.bound, verdict.holds()) {
        (None, _) => "beside",
        (Some(_), true) => "agrees",
        (Some(_), false) => "DISAGREES",
    }
}

fn late(row: &Row) -> String {
    match row.invalid_runs {
        0 => String::new(),
        1 => "1 late run does not count".to_owned(),
        runs => format!("{runs} late runs do not count"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(system: &str, way: &str, throughput_mbps: f64, queue_delay_mean_ms: f64) -> Row {
        Row {
            system: system.to_owned(),
            params: Params {
                link: "x<y".to_owned(),
                way: way.to_owned(),
            },
            metrics: Metrics {
                throughput_mbps,
                queue_delay_mean_ms,
                ..Metrics::default()
            },
            runs: Vec::new(),
            invalid_runs: 0,
        }
    }

    #[test]
    fn verdicts_compare_with_real_time_and_with_the_kernel() {
        let mut results = Results::new("c", 1, Vec::new());
        results.rows = vec![
            row("cubic", "packets", 12.0, 5.0),
            row("cubic", "simulator", 10.4, 5.6),
            row("cubic", "real", 10.0, 5.0),
            row("kernel-cubic", "real", 9.0, 1.0),
        ];
        results.judge();
        let judged: Vec<_> = results
            .verdicts
            .iter()
            .map(|v| (v.difference * 100.0).round())
            .collect();
        assert_eq!(judged, [4.0, 12.0, 20.0, 0.0, 11.0, 400.0]);
        let held: Vec<_> = results.verdicts.iter().map(Verdict::holds).collect();
        assert_eq!(held, [true, false, true, true, true, true]);
        assert!(!results.agrees());
        let (table, html) = (results.table(), results.html());
        assert_eq!(table.matches("DISAGREES").count(), 1, "{table}");
        assert!(html.contains("x&lt;y") && !html.contains("x<y"), "{html}");
        let back: Results = serde_json::from_str(&results.json().unwrap()).unwrap();
        assert_eq!(back.rows, results.rows);
        assert_eq!(back.verdicts.len(), 6);
    }
}
