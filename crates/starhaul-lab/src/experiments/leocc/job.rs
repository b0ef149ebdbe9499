//! A run of the experiment, and what it gives.

use std::time::{Duration, Instant};

use super::{
    case::{DataLoss, TraceCase},
    results::{DetectorRow, FairnessRow, Params, Results, Row, TimeSeries},
    section::Section,
};
use crate::Error;

/// The result of a job, by its section.
#[derive(Clone, Debug)]
pub(super) enum Output {
    Row(Row),
    Series(TimeSeries),
    Fairness(FairnessRow),
    Detector(DetectorRow),
}

type Work<'a> = Box<dyn Fn(Instant) -> Result<Output, Error> + Send + Sync + 'a>;

/// One run, or a few that belong together.
pub(super) struct Job<'a> {
    pub(super) section: Section,
    /// Whose flows run, once for each flow or kind of flow.
    pub(super) systems: Vec<String>,
    pub(super) trace: &'a str,
    /// How long it takes: packets, about.
    pub(super) weight: f64,
    pub(super) time: Duration,
    pub(super) work: Work<'a>,
}

pub(super) fn params(case: &TraceCase, loss: DataLoss, queue: usize) -> Params {
    let (loss, recorded_loss) = match loss {
        DataLoss::Random(loss) => (loss, false),
        DataLoss::Recorded => (case.recorded_loss().unwrap_or(0.0), true),
    };
    Params {
        trace: case.name.clone(),
        direction: case.direction.name().to_owned(),
        loss,
        queue,
        kind: case.kind,
        recorded_loss,
    }
}

impl Results {
    pub(super) fn add(&mut self, section: Section, output: Output) {
        match (section, output) {
            (Section::Ablation, Output::Row(row)) => self.ablation.push(row),
            (Section::Queues, Output::Row(row)) => self.queues.push(row),
            (Section::Sensitivity, Output::Row(row)) => self.sensitivity.push(row),
            (Section::Shift, Output::Row(row)) => self.shift.push(row),
            (Section::Paths, Output::Row(row)) => self.paths.push(row),
            (Section::Unseen, Output::Row(row)) => self.unseen.push(row),
            (_, Output::Row(row)) => self.rows.push(row),
            (_, Output::Series(series)) => self.series.push(series),
            (_, Output::Fairness(row)) => self.fairness.push(row),
            (_, Output::Detector(row)) => self.detector.push(row),
        }
    }
}
