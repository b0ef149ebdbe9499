//! How the satellite hop of a path is probed for reconfigurations.

use std::{net::IpAddr, str::FromStr};

use crate::{DetectorConfig, Timetable};

/// The host to probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProbeTarget {
    /// The nearest stable address behind the satellite, which the prober finds on the path to the peer.
    #[default]
    Auto,
    /// This host, e.g. 100.64.0.1 behind most Starlink dishes.
    Host(IpAddr),
}

/// Why a text is no [`ProbeTarget`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither \"auto\" nor an IP address")]
pub struct ParseProbeTargetError(String);

impl FromStr for ProbeTarget {
    type Err = ParseProbeTargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let address = text.parse().map(Self::Host);
        address.map_err(|_| ParseProbeTargetError(text.to_owned()))
    }
}

/// The protocol of the probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProbeMethod {
    /// ICMP if permitted and answered, else UDP.
    #[default]
    Auto,
    /// ICMP echo only.
    Icmp,
    /// UDP echo to the peer, if its host answers that.
    Udp,
}

/// How the satellite hop of a path is probed for reconfigurations. The default needs no tuning: the host is found
/// automatically, a probe each 10 ms, by ICMP if permitted, Δ_outage 45 ms, no timetable.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Detection {
    /// The host to probe.
    pub target: ProbeTarget,
    /// The protocol of the probes.
    pub method: ProbeMethod,
    /// Interval, Δ_outage and refractory time. Its schedule is ignored and comes from `timetable`.
    pub detector: DetectorConfig,
    /// The operator's timetable, if known.
    pub timetable: Option<Timetable>,
}
