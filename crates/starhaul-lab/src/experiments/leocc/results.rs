//! The results of the experiment.

use serde::{Deserialize, Serialize, Serializer};
use starhaul_flow::{Alarm, Metrics, Sample};

use super::{
    case::{Kind, percent},
    reconfigurations::Outage,
};

/// All rows of an experiment; what `--json` prints and `results.json` holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The experiment's name.
    pub experiment: String,
    /// The command line that made the results.
    pub command: String,
    /// Seed of all that is random.
    pub seed: u64,
    /// What was left out, one sentence each.
    pub skipped: Vec<String>,
    /// How runs in real time were made; absent in virtual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real: Option<RealTime>,
    /// Every system over every trace at every loss.
    pub rows: Vec<Row>,
    /// In real time, the runs of which the rows are the medians.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Row>,
    /// Variants of LeoCC.
    pub ablation: Vec<Row>,
    /// A queue of one bandwidth-delay product.
    pub queues: Vec<Row>,
    /// Other thresholds of the detector, missing and false signals.
    pub sensitivity: Vec<Row>,
    /// A ground link as the bottleneck.
    pub shift: Vec<Row>,
    /// Links on longer paths and with other capacities; `variant` is the path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<Row>,
    /// Links that no controller was tuned on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<Row>,
    /// Whether a prober ran over all links of `paths` and `unseen` that have no dips.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub probed: bool,
    /// Flows that share a link.
    pub fairness: Vec<FairnessRow>,
    /// Precision and recall of the detector.
    pub detector: Vec<DetectorRow>,
    /// Each system over one trace.
    #[serde(
        rename = "courses",
        skip_deserializing,
        skip_serializing_if = "Vec::is_empty"
    )]
    pub series: Vec<TimeSeries>,
}

/// How runs in real time were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RealTime {
    /// Of each row, of which the medians count.
    pub runs: u32,
    /// Runs of all rows that do not count, and were made again, because packets left late: this computer was too busy.
    pub invalid_runs: u32,
}

/// The results of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the controller.
    pub system: String,
    /// What is unlike the other runs, in the parts that vary something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The link and its settings.
    pub params: Params,
    /// Throughput, delay and loss of the flow.
    pub metrics: Metrics,
}

/// What a run went over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Params {
    /// Name of the trace.
    pub trace: String,
    /// `up` or `down`.
    pub direction: String,
    /// Random loss of the data, 0 to 1; on average where it was recorded.
    pub loss: f64,
    /// What the link queues, in packets.
    pub queue: usize,
    /// Where the trace comes from.
    pub kind: Kind,
    /// Whether the loss is the trace's own, as it was recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recorded_loss: bool,
}

impl Params {
    /// The loss for people, the same for all runs that may be compared by it.
    pub(super) fn loss_name(&self) -> String {
        match self.recorded_loss {
            true => "as recorded".to_owned(),
            false => percent(self.loss),
        }
    }
}

/// Flows that shared a link, at the end of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FairnessRow {
    /// Name of the trace.
    pub trace: String,
    /// The share of each flow.
    pub flows: Vec<Share>,
    /// Jain's index of the throughputs: 1 when they are equal.
    pub jain: f64,
    /// All throughputs together per capacity.
    pub utilisation: f64,
    /// Mean of the flows' mean queueing delays.
    pub queue_delay_mean_ms: f64,
}

/// One of several flows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Name of the flow's controller.
    pub system: String,
    /// Its throughput in Mbit/s.
    pub throughput_mbps: f64,
}

/// What the detector found over one trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DetectorRow {
    /// Name of the trace.
    pub trace: String,
    /// The controller of the flow beside the probes, or `nothing`.
    pub beside: String,
    /// Whether probes have a queue of their `own` or one `shared` with the flow.
    pub queue: String,
    /// Reconfigurations in the run.
    pub reconfigurations: u32,
    /// Found within 150 ms of their end.
    pub found: u32,
    /// Number of other alarms.
    pub false_alarms: u32,
    /// Share of alarms that were right.
    pub precision: f64,
    /// Share of reconfigurations that were found.
    pub recall: f64,
    /// The latest alarm after its reconfiguration's end.
    pub latest_ms: f64,
}

/// One flow over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeSeries {
    /// Name of the controller.
    pub system: String,
    /// Name of the trace.
    pub trace: String,
    /// Random loss of the data, for people.
    pub loss: String,
    /// Reconfigurations of the trace.
    pub outages: Vec<Outage>,
    /// What the prober reported; as seconds from the start.
    #[serde(rename = "told_s", serialize_with = "told")]
    pub alarms: Vec<Alarm>,
    /// The flow, ten times a second.
    pub samples: Vec<Sample>,
    /// The controller's state and since which second.
    pub states: Vec<(f64, &'static str)>,
}

fn told<S: Serializer>(alarms: &[Alarm], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(alarms.iter().map(|alarm| alarm.told.as_secs_f64()))
}
