//! How the satellite hop of a path is watched.

use std::net::{IpAddr, SocketAddr};

use starhaul_cc::DetectorConfig;
use starhaul_net::prober::{ProbeMethod, ProbeTarget, ProberConfig, Timetable, Via};

/// How the satellite hop of a path is watched for reconfigurations. The default needs no tuning.
#[derive(Clone, Debug, PartialEq)]
pub struct Detection {
    /// Whom to probe.
    pub target: ProbeTarget,
    /// How to probe.
    pub method: ProbeMethod,
    /// Interval and thresholds; its schedule is made of `timetable`.
    pub detector: DetectorConfig,
    /// The operator's timetable, if it is known.
    pub timetable: Option<Timetable>,
}

impl Default for Detection {
    /// Finds whom to probe by itself, every 10 ms, by ICMP where it may; Δ_outage 45 ms, no timetable.
    fn default() -> Self {
        Self {
            target: ProbeTarget::Auto,
            method: ProbeMethod::Auto,
            detector: DetectorConfig::default(),
            timetable: None,
        }
    }
}

impl Detection {
    /// What this asks of a prober for a path to `remote` by this way out.
    pub(crate) fn prober(
        &self,
        remote: SocketAddr,
        local: Option<IpAddr>,
        interface: Option<String>,
    ) -> ProberConfig {
        ProberConfig {
            target: self.target,
            toward: Some(remote),
            method: self.method,
            via: Via {
                local: local.filter(|local| !local.is_unspecified()),
                interface,
            },
            detector: self.detector,
            timetable: self.timetable,
        }
    }
}
