//! The state of the prober that detects a path's reconfigurations.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use starhaul_endpoint::prober::{ProbedBy, ProberStatus, Stage};

use super::numbers::millis;

/// A prober at work for a path. Its counters hold for all paths that share it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DetectorStatus {
    /// `searching`, `probing`, `resting` (nothing flows over its paths) or `waiting`.
    pub state: String,
    /// The probed address.
    pub target: Option<IpAddr>,
    /// Number of hops to it, if it was found by searching.
    pub hops: Option<u8>,
    /// The method: an ICMP socket of one of two kinds, or UDP echo.
    pub by: Option<String>,
    /// Why it uses no better method, or none.
    pub problem: Option<String>,
    /// Number of probes.
    pub sent: u64,
    /// Number of answered probes.
    pub answered: u64,
    /// Number of probes that this host refused to send.
    pub refused: u64,
    /// Number of detected reconfigurations.
    pub found: u64,
    /// Median RTT of the last probes.
    pub rtt_ms: Option<f64>,
    /// Whether its thread has real-time priority.
    pub real_time_priority: bool,
}

pub(super) fn detector(status: &ProberStatus) -> DetectorStatus {
    let mut detector = DetectorStatus {
        state: "searching".to_owned(),
        target: None,
        hops: None,
        by: None,
        problem: status
            .problem
            .clone()
            .or_else(|| status.icmp_refused.clone()),
        sent: status.sent,
        answered: status.answered,
        refused: status.refused,
        found: status.found,
        rtt_ms: status.rtt.and_then(millis),
        real_time_priority: status.first,
    };
    match &status.stage {
        Stage::Searching => {}
        Stage::Probing { target, found, by } => {
            detector.state = if status.resting { "resting" } else { "probing" }.to_owned();
            detector.target = Some(*target);
            detector.hops = found.map(|found| found.hops);
            detector.by = Some(ProbedBy::name(*by).to_owned());
        }
        Stage::Waiting { .. } => detector.state = "waiting".to_owned(),
    }
    detector
}
