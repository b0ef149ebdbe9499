//! What the experiment found, and its files.

use std::{fmt::Write as _, fs, path::Path};

use serde::{Deserialize, Serialize};
use starhaul_link::QueueLimit;

use crate::{Error, flow::Metrics};

/// All rows of an experiment; what `--json` prints and `results.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The experiment's name.
    pub experiment: String,
    /// What was typed.
    pub command: String,
    /// Seed of all that is random.
    pub seed: u64,
    /// One row per run.
    pub rows: Vec<Row>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The controller.
    pub system: String,
    /// Over what.
    pub params: Params,
    /// What came of it.
    pub metrics: Metrics,
}

/// What a run went over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Params {
    /// Name of the trace.
    pub trace: String,
    /// `up` or `down`.
    pub direction: String,
    /// Random loss of the data, 0 to 1.
    pub loss: f64,
    /// What the link queues: a number of packets, or of bytes with a `B`.
    pub queue: String,
}

pub(super) fn queue_name(queue: QueueLimit) -> String {
    match queue {
        QueueLimit::Packets(packets) => packets.to_string(),
        QueueLimit::Bytes(bytes) => format!("{bytes}B"),
    }
}

impl Results {
    /// The same rows as a table for spreadsheets.
    pub fn csv(&self) -> String {
        let mut csv =
            "system,trace,direction,loss,queue,throughput_mbps,capacity_mbps,utilisation,\
                       queue_delay_mean_ms,queue_delay_p95_ms,rtt_mean_ms,rtt_p95_ms,loss_rate\n"
                .to_owned();
        for Row {
            system,
            params,
            metrics,
        } in &self.rows
        {
            // Writing to a string cannot fail.
            let _ = writeln!(
                csv,
                "{system},{},{},{},{},{:.4},{:.4},{:.5},{:.4},{:.4},{:.4},{:.4},{:.6}",
                quoted(&params.trace),
                params.direction,
                params.loss,
                params.queue,
                metrics.throughput_mbps,
                metrics.capacity_mbps,
                metrics.utilisation,
                metrics.queue_delay_mean_ms,
                metrics.queue_delay_p95_ms,
                metrics.rtt_mean_ms,
                metrics.rtt_p95_ms,
                metrics.loss_rate
            );
        }
        csv
    }

    /// The object as text.
    ///
    /// # Errors
    /// None in practice.
    pub fn json(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|error| Error::Failed(error.to_string()))
    }

    /// Writes `results.json` and `results.csv` into `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        fs::create_dir_all(folder)
            .map_err(Error::io(format!("cannot make {}", folder.display())))?;
        let put = |name: &str, text: String| {
            let file = folder.join(name);
            fs::write(&file, text).map_err(Error::io(format!("cannot write {}", file.display())))
        };
        put("results.json", self.json()? + "\n")?;
        put("results.csv", self.csv())
    }
}

/// A field of a CSV table; quoted where it must be (RFC 4180).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
