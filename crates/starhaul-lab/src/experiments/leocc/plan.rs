//! The experiment as asked for: its traces, systems, losses and queue.

use super::{
    case::{Changed, DataLoss, TraceCase, TraceSet},
    options::QueueChoice,
    run::{Setup, Signal},
    section::{STUDY_LOSS, Section},
};
use crate::systems::System;

/// LeoCC §6.1 replays 0.2 and 0.5 %; none shows what else costs throughput.
const LOSSES: [f64; 3] = [0.0, 0.002, 0.005];
const LOSSES_QUICK: [f64; 2] = [0.0, 0.005];
/// The three recorded traces and some synthetic ones.
const STUDY_TRACES: usize = 6;
/// Flows of one kind that share a link.
pub(super) const FLOW_COUNTS: [usize; 3] = [2, 4, 8];
const FLOW_COUNTS_QUICK: [usize; 2] = [2, 8];

/// The experiment as asked for, before it runs.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) traces: TraceSet,
    pub(super) systems: Vec<System>,
    /// The links of [`Section::Paths`], those of [`Section::Unseen`], and who runs over both.
    pub(super) paths: Vec<Changed>,
    pub(super) unseen: Vec<Changed>,
    pub(super) path_systems: Vec<System>,
    /// Whether a prober runs over all of both that have no dips.
    pub(super) probed: bool,
    pub(super) ablations: Vec<System>,
    /// As asked for, if they were.
    pub(super) losses: Vec<f64>,
    pub(super) queue: QueueChoice,
    pub(super) sections: Vec<Section>,
    pub(super) quick: bool,
    pub(super) seed: u64,
    /// Whether the results are compared with goals.
    pub(super) is_checked: bool,
}

impl Plan {
    pub(super) fn cases(&self) -> &[TraceCase] {
        &self.traces.cases
    }

    /// The traces of the studies beside the scatter: recorded ones and a few synthetic ones.
    pub(super) fn study_cases(&self) -> &[TraceCase] {
        let count = if self.quick { 1 } else { STUDY_TRACES };
        self.traces.cases.get(..count).unwrap_or(&self.traces.cases)
    }

    /// The traces of most studies, each with its losses.
    pub(super) fn studied(&self) -> impl Iterator<Item = (&TraceCase, DataLoss)> {
        let of_case = |case| {
            self.study_losses(case)
                .into_iter()
                .map(move |loss| (case, loss))
        };
        self.study_cases().iter().flat_map(of_case)
    }

    pub(super) fn systems(&self) -> &[System] {
        &self.systems
    }

    /// LeoCC, its variants and ablations, and BBR, from which it descends; nothing when LeoCC was not asked for.
    pub(super) fn ablations(&self) -> &[System] {
        &self.ablations
    }

    /// The losses of the scatter.
    pub(super) fn losses(&self, case: &TraceCase) -> Vec<DataLoss> {
        let usual: &[f64] = if self.quick { &LOSSES_QUICK } else { &LOSSES };
        case.losses(&self.losses, usual)
    }

    /// The losses of the other parts.
    pub(super) fn study_losses(&self, case: &TraceCase) -> Vec<DataLoss> {
        case.losses(&self.losses, &[STUDY_LOSS])
    }

    /// The loss of the parts that are made with one only.
    pub(super) fn first_study_loss(&self, case: &TraceCase) -> DataLoss {
        let first = self.study_losses(case).first().copied();
        first.unwrap_or(DataLoss::Random(STUDY_LOSS))
    }

    /// How many flows of a kind share a link.
    pub(super) fn flow_counts(&self) -> &[usize] {
        if self.quick {
            &FLOW_COUNTS_QUICK
        } else {
            &FLOW_COUNTS
        }
    }

    pub(super) fn queue(&self) -> QueueChoice {
        self.queue
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// A run as it is when nothing else is said.
    pub(super) fn setup<'a>(
        &self,
        system: &'a System,
        case: &'a TraceCase,
        loss: DataLoss,
    ) -> Setup<'a> {
        Setup {
            system,
            case,
            loss,
            queue: case.queue(self.queue),
            signal: Signal::default(),
            ground: None,
            // The same losses for every system.
            seed: self.seed,
            sample_each: None,
        }
    }
}
