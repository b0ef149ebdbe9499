//! The signal that a satellite path was reconfigured (LeoCC §3), the path phase boundary of draft-lai-ccwg-lsncc-01: a
//! best-effort hint that any controller may use or ignore and that must be safe when wrong.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

/// The operator moved the path to another satellite, beam or ground station, so that capacity, RTT and loss before this
/// moment do not predict those after it.
///
/// It is a hint. A false one may cost a controller one short adaptation and nothing lasting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reconfiguration {
    /// When the path began to carry packets again, on the clock of the receiving host.
    pub at: Instant,
    /// Length of the outage; zero when unknown.
    pub outage: Duration,
    /// The source of the signal.
    pub source: ReconfigurationSource,
    /// Probability that the signal is right, from 0 to 1.
    pub confidence: f64,
}

/// The source of a [`Reconfiguration`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReconfigurationSource {
    /// This host's probes to the nearest stable address behind the satellite (LeoCC §4.1.1).
    Probe,
    /// The peer's detector, through the session's acknowledgements (LeoCC §5.1).
    Peer,
    /// The operator's known timetable.
    Schedule,
    /// The trace or model of the link, in experiments.
    GroundTruth,
}

impl ReconfigurationSource {
    /// A short name for logs and tables, e.g. `probe`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Peer => "peer",
            Self::Schedule => "schedule",
            Self::GroundTruth => "ground_truth",
        }
    }
}

/// The path model of a controller, for people and logs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathModel {
    /// The aggressive bandwidth estimate (LeoCC's bBW_a).
    pub bandwidth_aggressive: Option<Bandwidth>,
    /// The moderate bandwidth estimate (LeoCC's bBW_m).
    pub bandwidth_moderate: Option<Bandwidth>,
    /// Range of the RTT without a queue (LeoCC's bRTT_l and bRTT_h).
    pub rtt_band: Option<(Duration, Duration)>,
    /// The last reconfiguration that the controller acted on.
    pub last_reconfiguration: Option<Instant>,
}
