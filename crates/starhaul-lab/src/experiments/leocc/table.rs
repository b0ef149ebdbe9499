//! The files of the results, and every part that ran as text for a terminal: medians over its traces.

use super::{
    plural,
    results::{Results, Row},
    standing,
    summary::{groups, losses},
    tables,
};
use crate::{
    Error,
    kit::{Found, experiment::to_json, repeats::failure, statistics::distinct},
};

impl Found for Results {
    fn failure(&self) -> Option<String> {
        failure(&self.skipped)
    }

    fn json(&self) -> Result<String, Error> {
        to_json(self)
    }

    fn files(&self) -> Vec<(String, String)> {
        let tables = [
            ("results.csv", self.all_runs()),
            ("rivals.csv", self.rivals()),
            ("fairness.csv", self.shares()),
            ("detector.csv", self.detections()),
            ("paths.csv", standing::table(&self.paths)),
            ("unseen.csv", standing::table(&self.unseen)),
            ("series.csv", self.series_table()),
        ];
        let with_rows = |(name, table): &(&str, starhaul_plot::Table)| {
            *name == "results.csv" || !table.is_empty()
        };
        let tables = tables.into_iter().filter(with_rows);
        let tables = tables.map(|(name, table)| (name.to_owned(), table.csv()));
        let page = ("report.html".to_owned(), self.html());
        let files = std::iter::once(page).chain(tables);
        files.chain(self.pictures()).collect()
    }

    fn table(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        for loss in losses(&self.rows) {
            for (kind, rows) in groups(&self.rows, &loss) {
                let of = match distinct(rows.iter().map(|row| &row.params.trace)).len() {
                    1 => "one trace".to_owned(),
                    traces => format!("medians of {traces} traces"),
                };
                let table = tables::medians(rows).without("trace");
                parts.push(format!("{kind}, loss {loss}, {of}\n{}", table.text()));
            }
        }
        for (system, loss, table) in self.beside_tables() {
            parts.push(format!(
                "{system} beside others, loss {loss}: throughput and mean queueing delay per theirs, run by run\n{}",
                table.text()
            ));
        }
        if let Some(first) = self.series.first() {
            let table = tables::time_series(&self.series).text();
            parts.push(format!(
                "Over time, trace {}; --out DIR draws it\n{table}",
                first.trace
            ));
        }
        for study in self.variations() {
            for loss in losses(study.rows) {
                let of_loss = |row: &&Row| row.params.loss_name() == loss;
                let table = tables::medians(study.rows.iter().filter(of_loss));
                parts.push(format!("{}, loss {loss}\n{}", study.name, table.text()));
            }
        }
        if !self.fairness.is_empty() {
            let table = tables::fairness(&self.fairness).text();
            parts.push(format!("Fairness, no random loss\n{table}"));
        }
        if !self.detector.is_empty() {
            let table = tables::detector(&self.detector).text();
            parts.push(format!("Detector\n{table}"));
        }
        for (name, rows) in self.standings() {
            parts.push(format!("{name}\n{}", standing::table(rows).text()));
        }
        let left_out = self.skipped.iter().filter(|_| self.real.is_some());
        let said = self.beside_kernel().into_iter().chain(left_out.cloned());
        let said: Vec<String> = said.chain(self.late_runs()).collect();
        if !said.is_empty() {
            parts.push(said.join("\n") + "\n");
        }
        parts.join("\n")
    }
}

impl Results {
    /// LeoCC and its variants beside each other system: who, at which loss, and the table.
    pub(super) fn beside_tables(&self) -> Vec<(String, String, starhaul_plot::Table)> {
        let mut tables = Vec::new();
        for (system, of_system) in self.rivals().split(&["system"]) {
            for (loss, table) in of_system.split(&["loss"]) {
                tables.push((system.clone(), loss, table));
            }
        }
        tables
    }

    /// The parts beside an oracle that ran, by what they show.
    pub(super) fn standings(&self) -> impl Iterator<Item = (String, &[Row])> {
        [
            ("Longer paths and other capacities", &self.paths),
            ("Links that no controller was tuned on", &self.unseen),
        ]
        .into_iter()
        .filter(|(_, rows)| !rows.is_empty())
        .map(move |(name, rows)| {
            let links = distinct(rows.iter().map(|row| &row.params.trace)).len();
            let how = if self.probed { ", probed" } else { "" };
            let title = format!("{name}, {}{how}", plural(links, "link"));
            (title, rows.as_slice())
        })
    }

    /// What must be said when this computer was too busy.
    pub(super) fn late_runs(&self) -> Option<String> {
        let real = self.real.filter(|real| real.invalid_runs > 0)?;
        Some(format!(
            "{} of {} runs do not count: packets left over 1 ms late, because this computer was too busy",
            real.invalid_runs,
            self.runs.len()
        ))
    }
}
