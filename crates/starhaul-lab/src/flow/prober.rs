//! Probes beside the flows, from which a detector finds reconfigurations (LeoCC §4.1.1).
//!
//! They have a queue of their own on the links, as LeoCC measured it on Starlink (§5.2), but share delay and outages.

use std::time::Instant;

use starhaul_cc::{Detector, DetectorConfig, Reconfiguration};
use starhaul_link::LinkSpec;

use super::hop::Hop;

/// An ICMP echo of 56 bytes with its headers.
const PROBE_BYTES: usize = 84;

#[derive(Debug)]
pub(super) struct Prober {
    detector: Detector,
    forward: Hop<u64>,
    backward: Hop<u64>,
}

impl Prober {
    pub(super) fn new(
        config: DetectorConfig,
        forward: &LinkSpec,
        backward: &LinkSpec,
        seed: u64,
        now: Instant,
    ) -> Self {
        Self {
            detector: Detector::new(config, now),
            forward: Hop::new(forward, seed, now),
            backward: Hop::new(backward, seed.wrapping_add(1), now),
        }
    }

    pub(super) fn next_event(&self) -> Option<Instant> {
        [
            Some(self.detector.next_probe()),
            self.forward.next_event(),
            self.backward.next_event(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Does what is due; gives what was found to `found`.
    pub(super) fn advance(&mut self, now: Instant, mut found: impl FnMut(Reconfiguration)) {
        while self.detector.next_probe() <= now {
            let sequence = self.detector.on_probe_sent(now);
            self.forward.enqueue(now, PROBE_BYTES, sequence);
        }
        while let Some((sequence, _)) = self.forward.poll(now) {
            self.backward.enqueue(now, PROBE_BYTES, sequence);
        }
        while let Some((sequence, _)) = self.backward.poll(now) {
            if let Some(reconfiguration) = self.detector.on_response(now, sequence) {
                found(reconfiguration);
            }
        }
    }

    pub(super) fn detector(&self) -> &Detector {
        &self.detector
    }
}
