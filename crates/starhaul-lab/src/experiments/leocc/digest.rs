//! The parts of the experiment beside the scatter, put together for tables: each line once for the terminal and the page.

use starhaul_flow::Metrics;

use super::results::{DetectorRow, FairnessRow, Results, Row, TimeSeries};
use crate::kit::statistics::{distinct, median, medians};

/// A part that varies something, with what there is to say of it.
pub(super) struct Study<'a> {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) rows: &'a [Row],
}

/// One system in one variant: medians over the traces.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Variant<'a> {
    pub(super) system: &'a str,
    pub(super) variant: &'a str,
    /// The loss as text.
    pub(super) loss: String,
    pub(super) metrics: Metrics,
    pub(super) traces: usize,
}

/// Flows of a kind, or one beside another: medians over the traces.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shared<'a> {
    pub(super) first: &'a str,
    pub(super) who: String,
    pub(super) jain: f64,
    pub(super) least_jain: f64,
    pub(super) rates_mbps: Vec<f64>,
    pub(super) utilisation: f64,
    pub(super) queue_delay_mean_ms: f64,
    pub(super) traces: usize,
}

/// The detector over all traces.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Detected<'a> {
    pub(super) beside: &'a str,
    pub(super) queue: &'a str,
    pub(super) reconfigurations: u32,
    pub(super) found: u32,
    pub(super) wrong: u32,
    pub(super) latest_ms: f64,
}

impl Detected<'_> {
    /// Share of alarms that were right, in percent.
    pub(super) fn precision(&self) -> f64 {
        percentage(self.found, self.found + self.wrong)
    }

    /// Share of reconfigurations that were found, in percent.
    pub(super) fn recall(&self) -> f64 {
        percentage(self.found, self.reconfigurations)
    }
}

impl Results {
    /// The parts that have rows, in the order of the report.
    pub(super) fn variations(&self) -> impl Iterator<Item = Study<'_>> {
        let study = |name, what, rows| Study { name, what, rows };
        [
            study(
                "Ablation",
                "LeoCC without one of its parts; BBRv1 beside it.",
                &self.ablation,
            ),
            study(
                "A queue of one BDP",
                "In place of the published queues.",
                &self.queues,
            ),
            study(
                "A ground link as the bottleneck",
                "Behind the satellite link, 60 % of its mean rate and 5 ms. Of capacity means of the narrower link's.",
                &self.shift,
            ),
            study(
                "When the signal is wrong",
                "Other thresholds of the detector; its alarms with some missing, or with false ones in between; the truth in their place; no \
                 signals at all.",
                &self.sensitivity,
            ),
        ]
        .into_iter()
        .filter(|study| !study.rows.is_empty())
    }

    /// The names of all systems that ran alone over a link.
    pub(super) fn system_names(&self) -> Vec<&str> {
        let rows = self.all_rows().map(|row| row.system.as_str());
        let series = self.series.iter().map(|series| series.system.as_str());
        let flows = self.fairness.iter().flat_map(|row| &row.flows);
        distinct(
            rows.chain(series)
                .chain(flows.map(|flow| flow.system.as_str())),
        )
    }

    /// The names of all traces that something ran over.
    pub(super) fn trace_names(&self) -> Vec<&str> {
        let rows = self.all_rows().map(|row| row.params.trace.as_str());
        let series = self.series.iter().map(|series| series.trace.as_str());
        let fairness = self.fairness.iter().map(|row| row.trace.as_str());
        let detector = self.detector.iter().map(|row| row.trace.as_str());
        distinct(rows.chain(series).chain(fairness).chain(detector))
    }

    fn all_rows(&self) -> impl Iterator<Item = &Row> {
        let studies = [
            &self.ablation,
            &self.queues,
            &self.shift,
            &self.sensitivity,
            &self.paths,
            &self.unseen,
        ];
        self.rows.iter().chain(studies.into_iter().flatten())
    }
}

/// Each system in each variant at each loss, in order of first appearance.
pub(super) fn variants(rows: &[Row]) -> Vec<Variant<'_>> {
    let key = |row: &'_ Row| {
        (
            row.system.clone(),
            row.variant.clone(),
            row.params.loss_name(),
        )
    };
    let mut lines = Vec::new();
    for wanted in distinct(rows.iter().map(key)) {
        let of: Vec<&Row> = rows.iter().filter(|row| key(row) == wanted).collect();
        let Some(first) = of.first() else { continue };
        let metrics: Vec<Metrics> = of.iter().map(|row| row.metrics).collect();
        lines.push(Variant {
            system: &first.system,
            variant: first.variant.as_deref().unwrap_or_default(),
            loss: wanted.2,
            metrics: medians(&metrics),
            traces: distinct(of.iter().map(|row| row.params.trace.as_str())).len(),
        });
    }
    lines
}

/// Jain's index for flows of one kind, and who gets what beside Cubic and BBR.
pub(super) fn fairness(rows: &[FairnessRow]) -> Vec<Shared<'_>> {
    let mut lines = Vec::new();
    for flows in distinct(rows.iter().map(names)) {
        let same: Vec<&FairnessRow> = rows.iter().filter(|row| names(row) == flows).collect();
        let Some(&first) = flows.first() else {
            continue;
        };
        let of = |pick: fn(&FairnessRow) -> f64| median(same.iter().map(|row| pick(row)));
        let rate_of = |flow: usize| {
            let rates = same.iter().filter_map(|row| row.flows.get(flow));
            median(rates.map(|flow| flow.throughput_mbps))
        };
        lines.push(Shared {
            first,
            who: match flows.iter().all(|flow| *flow == first) {
                true => format!("{} × {first}", flows.len()),
                false => flows.join(" beside "),
            },
            jain: of(|row| row.jain),
            least_jain: same.iter().map(|row| row.jain).fold(1.0, f64::min),
            rates_mbps: (0..flows.len()).map(rate_of).collect(),
            utilisation: of(|row| row.utilisation),
            queue_delay_mean_ms: of(|row| row.queue_delay_mean_ms),
            traces: same.len(),
        });
    }
    lines
}

/// Whose flows they are, in the order in which they began.
fn names(row: &FairnessRow) -> Vec<&str> {
    row.flows.iter().map(|flow| flow.system.as_str()).collect()
}

/// What was found beside what, in which queue.
pub(super) fn detector(rows: &[DetectorRow]) -> Vec<Detected<'_>> {
    let key = |row: &'_ DetectorRow| (row.beside.clone(), row.queue.clone());
    let mut lines: Vec<Detected<'_>> = Vec::new();
    for wanted in distinct(rows.iter().map(key)) {
        let of: Vec<&DetectorRow> = rows.iter().filter(|row| key(row) == wanted).collect();
        let Some(first) = of.first() else { continue };
        let sum = |pick: fn(&DetectorRow) -> u32| of.iter().map(|row| pick(row)).sum();
        lines.push(Detected {
            beside: &first.beside,
            queue: &first.queue,
            reconfigurations: sum(|row| row.reconfigurations),
            found: sum(|row| row.found),
            wrong: sum(|row| row.false_alarms),
            latest_ms: of.iter().map(|row| row.latest_ms).fold(0.0, f64::max),
        });
    }
    lines
}

/// Each state of a series with the share of the time spent in it, the longest first.
pub(super) fn state_shares(series: &TimeSeries) -> Vec<(&str, f64)> {
    let end = series.samples.last().map_or(0.0, |sample| sample.at_s);
    let ends = series.states.iter().skip(1).map(|(at, _)| *at).chain([end]);
    let spans: Vec<(&str, f64)> = series
        .states
        .iter()
        .zip(ends)
        .map(|((from, state), to)| (*state, (to - from).max(0.0)))
        .collect();
    let share = |state| {
        let of_state = spans.iter().filter(|(name, _)| *name == state);
        let time: f64 = of_state.map(|(_, time)| time).sum();
        (state, time / end.max(f64::MIN_POSITIVE))
    };
    let mut shares: Vec<_> = distinct(spans.iter().map(|(state, _)| *state))
        .into_iter()
        .map(share)
        .collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

/// 100 of nothing.
fn percentage(part: u32, whole: u32) -> f64 {
    match whole {
        0 => 100.0,
        _ => f64::from(part) / f64::from(whole) * 100.0,
    }
}
