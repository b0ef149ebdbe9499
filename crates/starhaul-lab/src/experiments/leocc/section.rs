//! The parts of the experiment by name.

/// The loss with which everything but the scatter runs; that of the published uplink.
pub(super) const STUDY_LOSS: f64 = 0.002;
/// The variants of the sensitivity study with unaltered signals, and without any.
pub(super) const AS_IT_IS: &str = "as it is";
pub(super) const NO_SIGNALS: &str = "no prober";
/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Every system over every trace at every loss.
    Scatter,
    /// Each system over one trace, as time series.
    Series,
    /// LeoCC without one of its parts.
    Ablation,
    /// A queue of one bandwidth-delay product.
    Queues,
    /// Another Δ_outage; signals that are missing or false.
    Sensitivity,
    /// A ground link as the bottleneck.
    Shift,
    /// Flows that share a link.
    Fairness,
    /// Reconfigurations that the detector finds.
    Detector,
    /// Longer paths and other capacities, beside an oracle.
    Paths,
    /// Links that no controller was tuned on, beside an oracle.
    Unseen,
}

impl Section {
    /// All, in the order of the report.
    pub const ALL: [Self; 10] = [
        Self::Scatter,
        Self::Series,
        Self::Ablation,
        Self::Queues,
        Self::Sensitivity,
        Self::Shift,
        Self::Fairness,
        Self::Detector,
        Self::Paths,
        Self::Unseen,
    ];

    /// Those that run unless others are asked for: the paper's.
    pub fn usual() -> Vec<Self> {
        let of_paper = |section: &Self| !section.stands_for().is_empty();
        Self::ALL.into_iter().filter(of_paper).collect()
    }

    /// The figure or section of the paper.
    pub(super) fn stands_for(self) -> &'static str {
        match self {
            Self::Scatter => "LeoCC fig. 3",
            Self::Series => "LeoCC fig. 4",
            Self::Ablation => "LeoCC §4",
            Self::Queues => "LeoCC §6.1",
            Self::Sensitivity => "LeoCC §4.1",
            Self::Shift => "LeoCC §4.3",
            Self::Fairness => "LeoCC §6",
            Self::Detector => "LeoCC fig. 7",
            Self::Paths | Self::Unseen => "",
        }
    }

    /// One line that says what its figures show.
    pub(super) fn shows(self) -> &'static str {
        match self {
            Self::Scatter => "throughput against delay, with the Pareto front",
            Self::Series => "rate, capacity, RTT and state over one trace",
            Self::Ablation => "LeoCC without each of its parts; paper against published code",
            Self::Queues => "a queue of one bandwidth-delay product",
            Self::Sensitivity => "other detector thresholds; missing and false signals",
            Self::Shift => "a ground link as the bottleneck",
            Self::Fairness => "2, 4 and 8 flows of a kind; beside Cubic and BBR",
            Self::Detector => "precision and recall of the reconfiguration detector",
            Self::Paths => "longer paths and other capacities, beside an oracle",
            Self::Unseen => "links that no controller was tuned on, beside an oracle",
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scatter => "scatter",
            Self::Series => "series",
            Self::Ablation => "ablation",
            Self::Queues => "queues",
            Self::Sensitivity => "sensitivity",
            Self::Shift => "shift",
            Self::Fairness => "fairness",
            Self::Detector => "detector",
            Self::Paths => "paths",
            Self::Unseen => "unseen",
        }
    }
}

impl std::str::FromStr for Section {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|section| section.name() == name)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                format!("{name:?} is no part of the experiment: choose from {names}")
            })
    }
}

/// Why a part has nothing to run, and what to do about it.
pub(super) fn nothing_to_run(section: Section) -> &'static str {
    match section {
        Section::Ablation => "ablation takes LeoCC apart: add leocc or leocc2 to --systems",
        Section::Sensitivity => {
            "sensitivity is of controllers that take signals: add leocc, leocc2 or satcp to --systems"
        }
        Section::Detector => "detector needs a trace in which nothing passes for over 45 ms",
        _ => "there is no trace",
    }
}
