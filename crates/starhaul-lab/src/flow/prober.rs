//! Probes over the satellite link, from which a detector finds reconfigurations (LeoCC §4.1.1, §5.1).

use std::time::Instant;

use starhaul_cc::{Detector, DetectorConfig};

/// An ICMP echo of 56 bytes with its headers.
pub(super) const PROBE_BYTES: usize = 84;

/// At which end of the data's path the terminal is, which probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeSide {
    /// It sends the data, and hears of its own detector at once.
    Sender,
    /// It receives the data, and its news travel with the acknowledgements.
    Receiver,
}

#[derive(Debug)]
pub(super) struct Prober {
    pub(super) side: ProbeSide,
    pub(super) detector: Detector,
}

impl Prober {
    pub(super) fn new(config: DetectorConfig, side: ProbeSide, now: Instant) -> Self {
        Self {
            side,
            detector: Detector::new(config, now),
        }
    }

    /// The numbers of the probes that leave now.
    pub(super) fn due(&mut self, now: Instant) -> Option<u64> {
        (self.detector.next_probe() <= now).then(|| self.detector.on_probe_sent(now))
    }
}
