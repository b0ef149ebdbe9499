//! Paths over time as JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Error, MAX_STEP, MAX_STEPS, PathOverTime, path::Step};

/// The form of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// When the first step begins, UTC.
    start: String,
    step_ms: u64,
    /// Names; the first two are the stations at the ends.
    nodes: Vec<String>,
    steps: Vec<FileStep>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileStep {
    /// Indices of nodes, none without a path.
    path: Vec<u32>,
    delays_ns: Vec<u64>,
}

const MAX_DELAY: Duration = Duration::from_secs(600);
const MAX_PATH_NODES: usize = 1_000;
const MAX_NAME_BYTES: usize = 256;

impl PathOverTime {
    /// The path as JSON.
    pub fn to_json(&self) -> String {
        let nanos = |delay: &Duration| u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let step = |step: &Step| FileStep {
            path: step.nodes.clone(),
            delays_ns: step.delays.iter().map(nanos).collect(),
        };
        let file = File {
            start: self.start.to_string(),
            step_ms: u64::try_from(self.step.as_millis()).unwrap_or(u64::MAX),
            nodes: self.nodes.clone(),
            steps: self.steps.iter().map(step).collect(),
        };
        // Strings and numbers alone: nothing that could fail.
        serde_json::to_string(&file).unwrap_or_default()
    }

    /// Reads what [`PathOverTime::to_json`] writes; `name` is used in errors.
    ///
    /// # Errors
    /// [`Error::File`] for another text, or values out of range.
    pub fn from_json(name: &str, text: &str) -> Result<Self, Error> {
        let error = |reason: String| Error::File {
            file: name.to_owned(),
            reason,
        };
        let file: File = serde_json::from_str(text)
            .map_err(|why| error(format!("is no path over time: {why}")))?;
        let start = file.start.parse()?;
        let step = Duration::from_millis(file.step_ms);
        let too_long = file.nodes.iter().any(|name| name.len() > MAX_NAME_BYTES);
        if file.nodes.len() < 2 || too_long {
            return Err(error(format!(
                "needs two nodes, with names of at most {MAX_NAME_BYTES} bytes"
            )));
        }
        if step.is_zero() || step > MAX_STEP {
            let most = MAX_STEP.as_millis();
            return Err(error(format!("has no step from 1 to {most} ms")));
        }
        let most = usize::try_from(MAX_STEPS).unwrap_or(usize::MAX);
        if file.steps.is_empty() || file.steps.len() > most {
            return Err(error(format!("has no steps, or more than {MAX_STEPS}")));
        }
        let nodes = file.nodes.len();
        let steps = (1..).zip(file.steps).map(|(number, step)| {
            read_step(nodes, step).map_err(|why| error(format!("step {number} {why}")))
        });
        Ok(Self {
            start,
            step,
            steps: steps.collect::<Result<_, Error>>()?,
            nodes: file.nodes,
        })
    }
}

fn read_step(nodes: usize, step: FileStep) -> Result<Step, &'static str> {
    let FileStep { path, delays_ns } = step;
    if path.is_empty() && delays_ns.is_empty() {
        return Ok(Step::default());
    }
    if path.len() > MAX_PATH_NODES || path.len() != delays_ns.len() + 1 {
        return Err("has not one delay for each two nodes");
    }
    if path.iter().any(|node| *node as usize >= nodes) {
        return Err("has a node that is not listed");
    }
    if path.first() != Some(&0) || path.last() != Some(&1) || path.len() < 3 {
        return Err("does not go from node 0 over others to node 1");
    }
    let delays: Vec<Duration> = delays_ns.into_iter().map(Duration::from_nanos).collect();
    if delays.iter().any(|delay| *delay > MAX_DELAY) {
        return Err("has a delay of more than 600 s");
    }
    Ok(Step {
        nodes: path,
        delays,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_files_are_refused_with_the_reason() {
        let file = |nodes: &str, steps: &str| {
            format!(r#"{{"start":"2000-01-01","step_ms":1000,"nodes":{nodes},"steps":{steps}}}"#)
        };
        let (names, good) = (
            r#"["a","b","c"]"#,
            r#"[{"path":[0,2,1],"delays_ns":[5,6]}]"#,
        );
        assert!(PathOverTime::from_json("f", &file(names, good)).is_ok());
        for (text, part) in [
            ("{".to_owned(), "no path over time"),
            (file(r#"["a"]"#, good), "two nodes"),
            (file(names, "[]"), "no steps"),
            (
                file(names, r#"[{"path":[0,2,1],"delays_ns":[5]}]"#),
                "step 1 has not one delay",
            ),
            (
                file(names, r#"[{"path":[0,3,1],"delays_ns":[5,6]}]"#),
                "not listed",
            ),
            (
                file(names, r#"[{"path":[0,1],"delays_ns":[5]}]"#),
                "over others",
            ),
            (
                file(names, r#"[{"path":[0,2,1],"delays_ns":[5,999999999999]}]"#),
                "600 s",
            ),
            (file(names, good).replace("1000", "0"), "no step"),
            (
                file(names, good).replace("2000-01-01", "then"),
                "write an instant",
            ),
        ] {
            let error = PathOverTime::from_json("f.json", &text)
                .unwrap_err()
                .to_string();
            assert!(error.contains(part), "{error} has no {part:?}");
        }
    }
}
