//! What the comparison found, and its files.

use std::{fmt::Write as _, fs, path::Path};

use serde::{Deserialize, Serialize};
use starhaul_flow::Metrics;

use crate::{
    Error,
    report::{CHART_STYLE, PAGE_STYLE, escape},
};

/// Virtual against real time, in throughput and mean queueing delay; ours against the kernel's, in throughput.
const THROUGHPUT_BOUND: f64 = 0.05;
const DELAY_BOUND: f64 = 0.10;
const KERNEL_BOUND: f64 = 0.15;

/// All that was found; what `--json` prints and `results.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// `agreement`.
    pub experiment: String,
    /// What was typed.
    pub command: String,
    /// Seed of the first run of each.
    pub seed: u64,
    /// What could not run here, one sentence each.
    pub skipped: Vec<String>,
    /// Each controller over each link in each way.
    pub rows: Vec<Row>,
    /// What agrees and what does not.
    pub verdicts: Vec<Verdict>,
}

/// The runs of one controller over one link in one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Our controller, or `kernel-` and the kernel's.
    pub system: String,
    /// Over what, and how.
    pub params: Params,
    /// The median of each figure.
    pub metrics: Metrics,
    /// The runs that count by themselves.
    pub runs: Vec<Metrics>,
    /// So many more do not count, because packets left late: this computer was too busy.
    pub invalid_runs: u32,
}

/// See [`Row`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Params {
    /// The link's name.
    pub link: String,
    /// `packets`, `simulator` or `real`.
    pub way: String,
}

/// Two rows compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Over which link.
    pub link: String,
    /// What is compared with what.
    pub what: String,
    /// The first figure.
    pub value: f64,
    /// The second.
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

    /// The object as text.
    ///
    /// # Errors
    /// None in practice.
    pub fn json(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|error| Error::Failed(error.to_string()))
    }

    /// For a terminal.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut link = None;
        // Writing to a string cannot fail.
        for row in &self.rows {
            if link.replace(&row.params.link) != Some(&row.params.link) {
                let _ = writeln!(
                    text,
                    "{}\n{:<14}{:<11}{:>8}{:>8}{:>10}{:>9}{:>9}{:>8}",
                    row.params.link,
                    "system",
                    "way",
                    "Mbit/s",
                    "use %",
                    "queue ms",
                    "p95 ms",
                    "rtt ms",
                    "lost %"
                );
            }
            let m = &row.metrics;
            let _ = writeln!(
                text,
                "{:<14}{:<11}{:>8.2}{:>8.1}{:>10.2}{:>9.1}{:>9.1}{:>8.2}{}",
                row.system,
                row.params.way,
                m.throughput_mbps,
                m.utilisation * 100.0,
                m.queue_delay_mean_ms,
                m.queue_delay_p95_ms,
                m.rtt_mean_ms,
                m.loss_rate * 100.0,
                late(row)
            );
        }
        text.push('\n');
        for skipped in &self.skipped {
            let _ = writeln!(text, "{skipped}");
        }
        for verdict in &self.verdicts {
            let _ = writeln!(
                text,
                "{:<9} {:<52}{:>8.2} {:>8.2} {:>+7.1} %{}  {}",
                said(verdict),
                verdict.what,
                verdict.value,
                verdict.reference,
                verdict.difference * 100.0,
                verdict
                    .bound
                    .map_or(String::new(), |bound| format!(" of {:.0} %", bound * 100.0)),
                verdict.link,
            );
        }
        text
    }

    /// Writes `report.html` and `results.json` into `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        fs::create_dir_all(folder)
            .map_err(Error::io(format!("cannot make {}", folder.display())))?;
        for (name, text) in [
            ("results.json", self.json()? + "\n"),
            ("report.html", self.html()),
        ] {
            let file = folder.join(name);
            fs::write(&file, text)
                .map_err(Error::io(format!("cannot write {}", file.display())))?;
        }
        Ok(())
    }

    /// The whole page.
    pub fn html(&self) -> String {
        let mut body = String::from(
            "<h1>Virtual and real time</h1><p>The same flow over the same links: packets alone and the whole stack in virtual time, the \
             stack in real time behind the replay, and the kernel's TCP beside it. Medians of the runs.</p>",
        );
        for skipped in &self.skipped {
            let _ = write!(body, "<p>{}</p>", escape(skipped));
        }
        body.push_str("<h2>What agrees</h2><div class=\"table\"><table><thead><tr><th>link</th><th>compared</th><th>first</th><th>second</th><th>difference</th><th>bound</th><th></th></tr></thead><tbody>");
        for verdict in &self.verdicts {
            let class = if verdict.holds() { "yes" } else { "no" };
            let _ = write!(
                body,
                "<tr><td>{}</td><td>{}</td><td>{:.2}</td><td>{:.2}</td><td>{:+.1} %</td><td>{}</td><td class=\"{class}\">{}</td></tr>",
                escape(&verdict.link),
                escape(&verdict.what),
                verdict.value,
                verdict.reference,
                verdict.difference * 100.0,
                verdict
                    .bound
                    .map_or_else(|| "–".to_owned(), |bound| format!("{:.0} %", bound * 100.0)),
                said(verdict),
            );
        }
        body.push_str("</tbody></table></div><h2>Runs</h2><div class=\"table\"><table><thead><tr><th>link</th><th>system</th><th>way</th><th>Mbit/s</th><th>of capacity, %</th><th>queue mean, ms</th><th>queue p95, ms</th><th>RTT mean, ms</th><th>lost, %</th><th>runs, Mbit/s</th></tr></thead><tbody>");
        for row in &self.rows {
            let m = &row.metrics;
            let runs: Vec<_> = row
                .runs
                .iter()
                .map(|run| format!("{:.2}", run.throughput_mbps))
                .collect();
            let _ = write!(
                body,
                "<tr><td>{}</td><td>{}</td><td>{}{}</td><td>{:.2}</td><td>{:.1}</td><td>{:.2}</td><td>{:.1}</td><td>{:.1}</td><td>{:.2}</td><td>{}</td></tr>",
                escape(&row.params.link),
                escape(&row.system),
                row.params.way,
                late(row),
                m.throughput_mbps,
                m.utilisation * 100.0,
                m.queue_delay_mean_ms,
                m.queue_delay_p95_ms,
                m.rtt_mean_ms,
                m.loss_rate * 100.0,
                runs.join(", ")
            );
        }
        let _ = write!(
            body,
            "</tbody></table></div><footer><p>Made by <code>{}</code>, seed {}, Starhaul {}.</p><p>Throughput: bytes of IP packets that the link \
             delivered, from the start of the program on. Queueing delay: from a packet's coming to the link until its last byte left. Both \
             are the link's own figures, the same in every way; those of packets alone leave out what was sent twice.</p></footer>",
            escape(&self.command),
            self.seed,
            env!("CARGO_PKG_VERSION")
        );
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
             <title>Starhaul lab: agreement, seed {}</title><style>{CHART_STYLE}{PAGE_STYLE}</style></head>\n<body><main>{body}</main></body></html>\n",
            self.seed
        )
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
        1 => "  1 late run does not count".to_owned(),
        runs => format!("  {runs} late runs do not count"),
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
