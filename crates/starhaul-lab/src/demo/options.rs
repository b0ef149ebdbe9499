//! What the demo is asked to do, and the links it makes of it.

use std::{path::PathBuf, time::Duration};

use starhaul_link::{LeoModel, LinkSpec, Loss, QueueLimit, Trace};
use starhaul_units::Bandwidth;

use super::Paths;
use crate::Error;

/// 40 ms of queue at the rates below: enough for the bursts of a congestion controller, short enough for voice.
const LEO_QUEUE_BYTES: usize = 512 << 10;
const GEO_QUEUE_BYTES: usize = 512 << 10;
const GEO_RATE: Bandwidth = Bandwidth::from_mbit(10);
const GEO_ONE_WAY: Duration = Duration::from_millis(300);

/// What the demo is asked to do.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// For how long the applications send, in whole seconds, at least one.
    pub seconds: u64,
    /// The LEO path's trace: a capacity file and a delay file in LeoReplayer's form, or one CSV; synthetic when empty.
    pub leo_trace: Vec<PathBuf>,
    /// Random loss of the LEO path in each direction.
    pub leo_loss: Loss,
    /// Random loss of the GEO path in each direction.
    pub geo_loss: Loss,
    /// Seed of losses, of the synthetic link and of the download's bytes.
    pub seed: u64,
}

/// Reads a loss as people write it: `2%`, `0.02`, or `ge:1%:5` for bursts.
pub fn parse_loss(text: &str) -> Result<Loss, Error> {
    match text.parse::<f64>() {
        Ok(probability) if (0.0..=1.0).contains(&probability) => Ok(Loss::bernoulli(probability)?),
        Ok(_) => Err(Error::Settings(format!(
            "{text:?} is not a loss: write 2% or 0.02"
        ))),
        Err(_) => Ok(text.parse()?),
    }
}

impl DemoOptions {
    /// One direction of each path; both directions are alike.
    pub(super) fn links(&self) -> Result<Paths<LinkSpec>, Error> {
        if self.seconds == 0 {
            return Err(Error::Settings("the demo lasts at least 1 second".into()));
        }
        let trace = match &self.leo_trace[..] {
            [] => LeoModel::default().generate(self.seed)?,
            [csv] if csv.extension().is_some_and(|extension| extension == "csv") => {
                Trace::read_csv(csv)?
            }
            [capacity] => Trace::read(capacity, None)?,
            [capacity, delay] => Trace::read(capacity, Some(delay))?,
            _ => {
                return Err(Error::Settings(
                    "--leo-trace takes one CSV file, or a capacity file and a delay file".into(),
                ));
            }
        };
        let leo = LinkSpec::from_trace(trace)
            .with_loss(self.leo_loss)
            .with_queue(QueueLimit::Bytes(LEO_QUEUE_BYTES));
        let geo = LinkSpec::constant(GEO_RATE, GEO_ONE_WAY)
            .with_loss(self.geo_loss)
            .with_queue(QueueLimit::Bytes(GEO_QUEUE_BYTES));
        Ok(Paths { leo, geo })
    }

    /// The links in words.
    pub fn describe_links(&self) -> String {
        let leo = match &self.leo_trace[..] {
            [] => format!("a synthetic LEO path (seed {})", self.seed),
            [file, ..] => format!(
                "a LEO path replayed from {}",
                file.file_name().unwrap_or_default().display()
            ),
        };
        format!(
            "{leo} with {} loss, and a GEO path of 10 Mbit/s and 600 ms RTT with {} loss",
            self.leo_loss, self.geo_loss
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_may_be_written_as_percentage_or_probability() {
        assert_eq!(parse_loss("2%").unwrap(), parse_loss("0.02").unwrap());
        assert_eq!(parse_loss("0").unwrap(), Loss::NONE);
        assert!(parse_loss("ge:1%:5").is_ok());
        for bad in ["2", "-1%", "101%", "", "lots"] {
            assert!(parse_loss(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn impossible_settings_are_refused() {
        let options = |seconds, traces: &[&str]| DemoOptions {
            seconds,
            leo_trace: traces.iter().map(PathBuf::from).collect(),
            leo_loss: Loss::NONE,
            geo_loss: Loss::NONE,
            seed: 1,
        };
        assert!(options(1, &[]).links().is_ok());
        assert!(options(0, &[]).links().is_err());
        assert!(options(1, &["a", "b", "c"]).links().is_err());
        let missing = options(1, &["/no/such/trace"]).links().unwrap_err();
        assert!(missing.to_string().contains("/no/such/trace"), "{missing}");
    }
}
