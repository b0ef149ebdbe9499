//! Link models, which need no recording.

mod cellular;
mod drawn;
mod geo;
mod leo;

use std::{f64::consts::TAU, ops::RangeInclusive, str::FromStr, time::Duration};

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use starhaul_units::Bandwidth;

pub use cellular::CellularModel;
pub use geo::GeoModel;
pub use leo::LeoModel;

use crate::{
    DelaySeries, Error, LossSeries, Opportunities, Trace,
    text::{self, setting},
};

/// The step of all models' series.
const GRID: Duration = Duration::from_millis(10);

/// A model by its name: `leo`, `geo` or `cellular`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// A path over a low-orbit constellation ([`LeoModel`]).
    Leo,
    /// A path over a geostationary satellite ([`GeoModel`]).
    Geo,
    /// A cellular link ([`CellularModel`]).
    Cellular,
}

impl Model {
    /// All models with their names.
    pub const ALL: [(&str, Self); 3] = [
        ("leo", Self::Leo),
        ("geo", Self::Geo),
        ("cellular", Self::Cellular),
    ];

    /// Generates a trace of the model's defaults, with this (mean) rate and duration if given. The same seed gives the
    /// same trace. Errors: a rate or duration that makes no trace.
    pub fn generate(
        self,
        rate: Option<Bandwidth>,
        duration: Option<Duration>,
        seed: u64,
    ) -> Result<Trace, Error> {
        match self {
            Self::Leo => {
                let mut model = LeoModel::default().with_rate(rate);
                model.duration = duration.unwrap_or(model.duration);
                model.generate(seed)
            }
            Self::Geo => {
                let mut model = GeoModel::default().with_rate(rate);
                model.duration = duration.unwrap_or(model.duration);
                model.generate(seed)
            }
            Self::Cellular => {
                let mut model = CellularModel::default().with_rate(rate);
                model.duration = duration.unwrap_or(model.duration);
                model.generate(seed)
            }
        }
    }
}

impl FromStr for Model {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.iter().find(|(name, _)| *name == text);
        known.map(|(_, model)| *model).ok_or_else(|| {
            let all = "the models are leo, geo and cellular";
            let reason = match text::nearest(text, &Self::ALL.map(|(name, _)| name)) {
                Some(name) => format!("did you mean {name:?}? {all}"),
                None => all.to_owned(),
            };
            setting("synth", text, reason)
        })
    }
}

fn finish(
    model: &str,
    capacity: Opportunities,
    delays: Vec<(Duration, Duration)>,
    loss: f64,
) -> Result<Trace, Error> {
    let loss = LossSeries::constant(loss).ok_or_else(|| no_trace(model, "impossible loss"))?;
    Ok(Trace::new(capacity, DelaySeries::from_steps(delays))?.with_loss(loss))
}

/// A value of the range; its start if it is empty.
fn draw(range: &RangeInclusive<u64>, rng: &mut ChaCha8Rng) -> u64 {
    if range.is_empty() {
        return *range.start();
    }
    rng.random_range(range.clone())
}

/// Number of whole grid steps.
fn steps(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / GRID.as_millis()).unwrap_or(u32::MAX)
}

fn no_trace(model: &str, reason: impl ToString) -> Error {
    setting("synth", model, reason)
}

/// A normal random number with mean 0 and variance 1 (Box and Muller 1958).
fn gaussian(rng: &mut ChaCha8Rng) -> f64 {
    let (radius, angle): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (TAU * angle).cos()
}

#[cfg(test)]
mod tests;
