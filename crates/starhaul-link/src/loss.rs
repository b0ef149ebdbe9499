//! Random loss: independent (Bernoulli) or in bursts (the two-state model of Gilbert 1960 and Elliott 1963, with a good
//! state that loses nothing and a bad one that loses everything).

use std::{fmt, str::FromStr};

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use starhaul_units::{parse_decimal, parse_share};

use crate::Error;

/// Random loss of a link. Written `0.2%`, `0.002` or `ge:1%:5` (mean loss, mean burst length in packets).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss(Model);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Model {
    #[default]
    None,
    Bernoulli {
        probability: f64,
    },
    GilbertElliott {
        mean: f64,
        burst_packets: f64,
    },
}

impl Loss {
    /// No packet is lost.
    pub const NONE: Self = Self(Model::None);

    /// Independent losses with this probability, 0 to 1.
    pub fn bernoulli(probability: f64) -> Result<Self, Error> {
        if !(0.0..=1.0).contains(&probability) {
            return Err(impossible(
                format!("{probability}"),
                "a probability lies between 0 and 1",
            ));
        }
        Ok(match probability {
            0.0 => Self::NONE,
            _ => Self(Model::Bernoulli { probability }),
        })
    }

    /// Loss in bursts: `mean` is the share of packets lost in the long run (below 1), `burst_packets` the mean burst
    /// length (at least 1, and at least `mean / (1 − mean)`, as a delivered packet separates two bursts).
    pub fn gilbert_elliott(mean: f64, burst_packets: f64) -> Result<Self, Error> {
        let value = || format!("ge:{}%:{burst_packets}", mean * 100.0);
        if !(0.0..1.0).contains(&mean) {
            return Err(impossible(
                value(),
                "the mean loss lies between 0 % and 100 %",
            ));
        }
        if !burst_packets.is_finite() || burst_packets < 1.0 || burst_packets < mean / (1.0 - mean)
        {
            return Err(impossible(
                value(),
                "the burst length is at least 1 packet and long enough for the mean loss",
            ));
        }
        Ok(match mean {
            0.0 => Self::NONE,
            _ => Self(Model::GilbertElliott {
                mean,
                burst_packets,
            }),
        })
    }

    /// Whether losses come in bursts (`ge:`).
    pub fn is_bursty(&self) -> bool {
        matches!(self.0, Model::GilbertElliott { .. })
    }

    /// The share of packets lost in the long run.
    pub fn mean(&self) -> f64 {
        match self.0 {
            Model::None => 0.0,
            Model::Bernoulli { probability } => probability,
            Model::GilbertElliott { mean, .. } => mean,
        }
    }
}

impl FromStr for Loss {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        const FORM: &str = "write a share as 0.2% or 0.002, or ge:MEAN:BURST_PACKETS as ge:1%:5";
        let malformed = || impossible(text.to_owned(), FORM);
        match text.strip_prefix("ge:") {
            None => Self::bernoulli(parse_share(text).map_err(|_| malformed())?),
            Some(bursts) => {
                let (mean, burst) = bursts.split_once(':').ok_or_else(malformed)?;
                Self::gilbert_elliott(
                    parse_share(mean).map_err(|_| malformed())?,
                    parse_decimal(burst).ok_or_else(malformed)?,
                )
            }
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Model::None => f.write_str("0"),
            Model::Bernoulli { probability } => write!(f, "{}%", probability * 100.0),
            Model::GilbertElliott {
                mean,
                burst_packets,
            } => write!(f, "ge:{}%:{burst_packets}", mean * 100.0),
        }
    }
}

fn impossible(value: String, reason: &str) -> Error {
    Error::Setting {
        key: "loss",
        value,
        reason: reason.to_owned(),
    }
}

/// The state of a loss model.
#[derive(Debug)]
pub(crate) struct LossProcess {
    model: Model,
    bad: bool,
    rng: ChaCha8Rng,
}

impl LossProcess {
    pub(crate) fn new(loss: Loss, rng: ChaCha8Rng) -> Self {
        let mut process = Self {
            model: Model::None,
            bad: false,
            rng,
        };
        process.set(loss);
        process
    }

    /// Changes the model; a burst in progress ends, and the new model starts in its steady state.
    pub(crate) fn set(&mut self, loss: Loss) {
        self.model = loss.0;
        self.bad = match self.model {
            Model::GilbertElliott { mean, .. } => self.rng.random_bool(mean),
            _ => false,
        };
    }

    /// Whether the next packet is lost.
    pub(crate) fn next_is_lost(&mut self) -> bool {
        match self.model {
            Model::None => false,
            Model::Bernoulli { probability } => self.rng.random_bool(probability),
            Model::GilbertElliott {
                mean,
                burst_packets,
            } => {
                let leave_bad = 1.0 / burst_packets;
                let enter_bad = (leave_bad * mean / (1.0 - mean)).min(1.0);
                let change = if self.bad { leave_bad } else { enter_bad };
                self.bad ^= self.rng.random_bool(change);
                self.bad
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    /// The share of packets lost and the mean burst length.
    fn measure(loss: Loss, packets: u32) -> (f64, f64) {
        let mut process = LossProcess::new(loss, ChaCha8Rng::seed_from_u64(7));
        let (mut lost, mut bursts, mut before) = (0_u32, 0_u32, false);
        for _ in 0..packets {
            let now = process.next_is_lost();
            lost += u32::from(now);
            bursts += u32::from(now && !before);
            before = now;
        }
        (
            f64::from(lost) / f64::from(packets),
            f64::from(lost) / f64::from(bursts.max(1)),
        )
    }

    #[test]
    fn bursts_have_the_mean_and_length_asked_for() {
        for (mean, burst) in [(0.01, 5.0), (0.05, 2.0), (0.2, 20.0), (0.4, 1.0)] {
            let loss = Loss::gilbert_elliott(mean, burst).unwrap();
            let (share, length) = measure(loss, 1_000_000);
            assert!((share / mean - 1.0).abs() < 0.1, "{loss}: lost {share}");
            assert!(
                (length / burst - 1.0).abs() < 0.1,
                "{loss}: bursts of {length}"
            );
        }
    }

    #[test]
    fn independent_losses_come_singly() {
        let (share, length) = measure(Loss::bernoulli(0.02).unwrap(), 1_000_000);
        assert!((share - 0.02).abs() < 0.001, "lost {share}");
        assert!((length - 1.0 / 0.98).abs() < 0.01, "bursts of {length}");
        assert_eq!(measure(Loss::bernoulli(1.0).unwrap(), 100).0, 1.0);
        assert_eq!(measure(Loss::NONE, 100).0, 0.0);
    }

    #[test]
    fn text_form_round_trips_and_refuses_the_impossible() {
        for text in ["0", "0.2%", "ge:1%:5", "100%"] {
            assert_eq!(text.parse::<Loss>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "1.5",
            "ge:1%",
            "ge:1%:0.5",
            "ge:90%:2",
            "ge:100%:5",
            "ge:1%:nan",
            "-1%",
        ] {
            assert!(bad.parse::<Loss>().is_err(), "{bad:?} was accepted");
        }
    }
}
