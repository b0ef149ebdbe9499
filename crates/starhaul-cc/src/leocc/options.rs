//! The parts of LeoCC in use: the paper's, the published code's, those of `leocc2`, and each with one part removed.

/// The parts of LeoCC in use; the lab removes parts to measure their effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeoCcOptions {
    /// Follow the published code (the kernel module of SpaceNetLab/LeoCC) where it differs from the paper.
    pub published_code: bool,
    /// Bound the flight by the moderate estimate, the middle of the band and a small target queue, instead of twice the
    /// aggressive BDP: this is `leocc2`.
    pub target_queue: bool,
    /// Use reconfiguration signals.
    pub detector: bool,
    /// Smooth rates and RTTs by Kalman filters; otherwise use the last sample.
    pub kalman: bool,
    /// Allow the RTT to vary within its band; otherwise only its minimum counts as free of a queue.
    pub band: bool,
    /// Drain and measure again after a reconfiguration; otherwise only discard the model.
    pub adaptation: bool,
}

impl LeoCcOptions {
    /// `leocc`: all parts that the paper describes.
    pub const PAPER: Self = Self {
        published_code: false,
        target_queue: false,
        detector: true,
        kalman: true,
        band: true,
        adaptation: true,
    };
    /// `leocc-code`: the variant that its authors published as code.
    pub const PUBLISHED_CODE: Self = Self {
        published_code: true,
        ..Self::PAPER
    };
    /// `leocc2`: the variant of this project.
    pub const TARGET_QUEUE: Self = Self {
        target_queue: true,
        ..Self::PAPER
    };
    /// `leocc` and `leocc2` with one part removed, by their names in experiments.
    pub const ABLATIONS: [(&str, Self); 8] = [
        ("leocc-no-detector", Self::PAPER.without_detector()),
        ("leocc-no-kalman", Self::PAPER.without_kalman()),
        ("leocc-no-band", Self::PAPER.without_band()),
        ("leocc-no-adaptation", Self::PAPER.without_adaptation()),
        ("leocc2-no-detector", Self::TARGET_QUEUE.without_detector()),
        ("leocc2-no-kalman", Self::TARGET_QUEUE.without_kalman()),
        ("leocc2-no-band", Self::TARGET_QUEUE.without_band()),
        (
            "leocc2-no-adaptation",
            Self::TARGET_QUEUE.without_adaptation(),
        ),
    ];

    /// The name of this choice, or of the nearest one that has a name.
    pub fn name(&self) -> &'static str {
        if self.published_code {
            return "leocc-code";
        }
        let whole = if self.target_queue { "leocc2" } else { "leocc" };
        Self::ABLATIONS
            .iter()
            .find(|(_, options)| options == self)
            .map_or(whole, |(name, _)| name)
    }

    const fn without_detector(self) -> Self {
        Self {
            detector: false,
            ..self
        }
    }

    const fn without_kalman(self) -> Self {
        Self {
            kalman: false,
            ..self
        }
    }

    const fn without_band(self) -> Self {
        Self {
            band: false,
            ..self
        }
    }

    const fn without_adaptation(self) -> Self {
        Self {
            adaptation: false,
            ..self
        }
    }
}

impl Default for LeoCcOptions {
    fn default() -> Self {
        Self::PAPER
    }
}
