//! Probes over the satellite link, from which a detector finds reconfigurations (LeoCC §4.1.1, §5.1).

use std::time::Instant;

use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use starhaul_cc::{Detector, DetectorConfig, Reconfiguration};

/// At which end of the data's path the terminal is, which probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeSide {
    /// It sends the data, and hears of its own detector at once.
    Sender,
    /// It receives the data, and its news travel with the acknowledgements.
    Receiver,
}

#[derive(Debug)]
pub(crate) struct Prober {
    pub(crate) detector: Detector,
    /// The share of what it finds that nobody hears of, and by whose chance.
    mute: Option<(f64, ChaCha8Rng)>,
}

impl Prober {
    pub(crate) fn new(config: DetectorConfig, now: Instant) -> Self {
        Self {
            detector: Detector::new(config, now),
            mute: None,
        }
    }

    /// From now on nobody hears of this share of what it finds.
    pub(crate) fn lose(&mut self, share: f64, seed: u64) {
        self.mute = Some((share, ChaCha8Rng::seed_from_u64(seed)));
    }

    /// What there is to tell of the answer to this probe.
    pub(crate) fn on_response(&mut self, now: Instant, sequence: u64) -> Option<Reconfiguration> {
        let found = self.detector.on_response(now, sequence)?;
        let lost = self
            .mute
            .as_mut()
            .is_some_and(|(share, rng)| rng.random::<f64>() < *share);
        (!lost).then_some(found)
    }

    /// The numbers of the probes that leave now.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u64> {
        (self.detector.next_probe() <= now).then(|| self.detector.on_probe_sent(now))
    }
}
