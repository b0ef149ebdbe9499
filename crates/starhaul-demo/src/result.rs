//! What the demo found: the figures that `--json` prints, and the time series of the run from which the report is drawn.

use std::time::Duration;

use serde::Serialize;

use crate::{
    apps::download::DownloadScore,
    baseline::Controller,
    load::{Applications, Classes},
    score::{ClassLog, ClassScore},
};

/// The object that `starhaul demo --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DemoResult {
    /// Seed of losses, synthetic links and random bytes.
    pub seed: u64,
    /// For how long the applications sent.
    pub seconds: u64,
    /// The baseline's congestion control.
    pub baseline: Controller,
    /// Which applications ran; not told where all did.
    #[serde(skip_serializing_if = "Applications::are_all")]
    pub applications: Applications,
    /// Figures of both systems.
    pub systems: Systems<SystemResult>,
    /// What makes the figures doubtful, for people; empty when all is well.
    pub warnings: Vec<String>,
}

/// A value for each system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Systems<T> {
    /// Two gateways of this project.
    pub starhaul: T,
    /// The baseline: blocks over noq's own multipath QUIC.
    pub mpquic: T,
}

/// A value for each path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Paths<T> {
    /// The low-orbit path.
    pub leo: T,
    /// The geostationary path.
    pub geo: T,
}

/// The result of one system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SystemResult {
    /// Each class's score.
    pub classes: Classes<ClassScore>,
    /// Σ blocks on time × weight {3, 2, 1}/3.
    pub qoe: f64,
    /// Figures of each path.
    pub paths: Paths<PathResult>,
    /// The TCP download.
    pub download: DownloadScore,
}

/// The result of one path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PathResult {
    /// Bytes given to the path's links in both directions, IP and UDP headers included.
    pub bytes: u64,
    /// The congestion controller of the direction towards the receiving applications, as the system names it.
    pub controller: String,
    /// Reconfigurations of which that controller was told; `None` where nothing looks for them.
    pub reconfigurations: Option<u64>,
}

/// Time series of one system's run.
#[derive(Clone, Debug)]
pub struct SystemSeries {
    /// Every block of each class.
    pub logs: Classes<ClassLog>,
    /// Samples at even intervals.
    pub samples: Vec<Sample>,
}

/// Counters at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// When, counted from the start of the applications.
    pub at: Duration,
    /// Bytes delivered so far by each path towards the receiving applications, headers included.
    pub delivered: Paths<u64>,
    /// Bytes that each path could have delivered so far in that direction.
    pub capacity: Paths<u64>,
    /// Bytes of the download so far.
    pub downloaded: u64,
}

impl<T> Systems<T> {
    /// Each system's name and value, ours first.
    pub fn named(&self) -> [(&'static str, &T); 2] {
        [("starhaul", &self.starhaul), ("mpquic", &self.mpquic)]
    }
}

impl<T> Paths<T> {
    /// Each path's name and value.
    pub fn named(&self) -> [(&'static str, &T); 2] {
        [("leo", &self.leo), ("geo", &self.geo)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_object_has_the_documented_form() {
        let system = || SystemResult {
            classes: Classes::from_fn(|class| ClassLog::new(class).score()),
            qoe: 0.0,
            paths: Paths::default(),
            download: DownloadScore::default(),
        };
        let mut result = DemoResult {
            seed: 1,
            seconds: 30,
            baseline: Controller::Cubic,
            applications: Applications::All,
            systems: Systems {
                starhaul: system(),
                mpquic: system(),
            },
            warnings: vec!["mpquic: late".to_owned()],
        };
        let class =
            r#"{"sent":0,"on_time":0,"late":0,"lost":0,"p50_ms":null,"p95_ms":null,"p99_ms":null}"#;
        let path = r#"{"bytes":0,"controller":"","reconfigurations":null}"#;
        let system = format!(
            r#"{{"classes":{{"text":{class},"audio":{class},"video":{class}}},"qoe":0.0,"paths":{{"leo":{path},"geo":{path}}},"download":{{"bytes":0,"sha256_ok":false,"mbit_per_s":0.0}}}}"#
        );
        let expected = format!(
            r#"{{"seed":1,"seconds":30,"baseline":"cubic","systems":{{"starhaul":{system},"mpquic":{system}}},"warnings":["mpquic: late"]}}"#
        );
        assert_eq!(serde_json::to_string(&result).unwrap(), expected);
        result.applications = Applications::Blocks;
        let json = serde_json::to_value(&result).unwrap();
        assert_eq!(json["applications"], Applications::Blocks.name());
    }
}
