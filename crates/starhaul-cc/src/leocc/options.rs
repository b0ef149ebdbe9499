//! Which parts of LeoCC are in use: the paper's, the published code's, ours, and each with a part taken away.

/// What of LeoCC is in use; the lab takes parts away to see what each is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeoCcOptions {
    /// Follow the published code where it differs from the paper (the kernel module of SpaceNetLab/LeoCC).
    pub published_code: bool,
    /// Bound what is in flight by the moderate estimate, the middle of the band and a small target queue, in place of
    /// twice the aggressive BDP: this is `leocc2`.
    pub target_queue: bool,
    /// Listen to reconfigurations.
    pub detector: bool,
    /// Filter rates and RTTs by Kalman filters; otherwise the last sample counts.
    pub kalman: bool,
    /// Allow the RTT to swing in its band; otherwise only its least value is free of a queue.
    pub band: bool,
    /// Drain and measure anew after a reconfiguration; otherwise only forget.
    pub adaptation: bool,
}

impl LeoCcOptions {
    /// `leocc`: all that the paper describes.
    pub const PAPER: Self = Self {
        published_code: false,
        target_queue: false,
        detector: true,
        kalman: true,
        band: true,
        adaptation: true,
    };
    /// `leocc-code`: what its authors published as code.
    pub const PUBLISHED_CODE: Self = Self {
        published_code: true,
        ..Self::PAPER
    };
    /// `leocc2`: ours.
    pub const TARGET_QUEUE: Self = Self {
        target_queue: true,
        ..Self::PAPER
    };
    /// The paper's and ours with one part taken away, by the names under which experiments ask for them.
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

    /// The name by which this choice is asked for; that of the nearest one where it has none of its own.
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
