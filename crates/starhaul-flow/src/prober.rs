//! Probes over the satellite link, from which a detector finds reconfigurations (LeoCC §4.1.1, §5.1).

use std::time::Instant;

use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use starhaul_cc::{Detector, DetectorConfig, Reconfiguration};

/// The end of the path with the terminal, which probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeSide {
    /// The terminal sends the data and signals its own controllers at once.
    Sender,
    /// The terminal receives the data; its findings travel with the acknowledgements.
    Receiver,
}

#[derive(Debug)]
pub(crate) struct Prober {
    pub(crate) detector: Detector,
    /// The share of findings to drop, and the random generator that selects them.
    mute: Option<(f64, ChaCha8Rng)>,
}

impl Prober {
    pub(crate) fn new(config: DetectorConfig, now: Instant) -> Self {
        Self {
            detector: Detector::new(config, now),
            mute: None,
        }
    }

    /// Drops this share of the findings from now on.
    pub(crate) fn lose(&mut self, share: f64, seed: u64) {
        self.mute = Some((share, ChaCha8Rng::seed_from_u64(seed)));
    }

    /// Handles the answer to a probe; returns the reconfiguration that it reveals, if any.
    pub(crate) fn on_response(&mut self, now: Instant, sequence: u64) -> Option<Reconfiguration> {
        let found = self.detector.on_response(now, sequence)?;
        let lost = self
            .mute
            .as_mut()
            .is_some_and(|(share, rng)| rng.random::<f64>() < *share);
        (!lost).then_some(found)
    }

    /// The sequence number of a probe that is due now.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u64> {
        (self.detector.next_probe() <= now).then(|| self.detector.on_probe_sent(now))
    }
}
