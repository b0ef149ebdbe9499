//! A path that is alike in both directions.

use std::time::Duration;

use starhaul_cc::ControllerConfig;
use starhaul_link::{LinkSpec, Loss, QueueLimit};
use starhaul_units::Bandwidth;

use super::stack::PathSetup;
use crate::Error;

const SMALLEST_QUEUE: u64 = 64 << 10;

/// One path, alike in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pipe {
    /// Rate of the link in each direction.
    pub rate: Bandwidth,
    /// Its round-trip time.
    pub rtt: Duration,
    /// Random loss, 0 to 1.
    pub loss: f64,
}

impl Pipe {
    /// A path of so many Mbit/s and ms; `loss` is a share.
    pub const fn new(mbit: u64, rtt_ms: u64, loss: f64) -> Self {
        Self {
            rate: Bandwidth::from_mbit(mbit),
            rtt: Duration::from_millis(rtt_ms),
            loss,
        }
    }

    /// A path as the world needs it, with a queue of one bandwidth-delay product and BBR.
    pub fn setup(&self) -> Result<PathSetup, Error> {
        let queue = self.rate.bytes_in(self.rtt).max(SMALLEST_QUEUE);
        let link = LinkSpec::constant(self.rate, self.rtt / 2)
            .with_loss(Loss::bernoulli(self.loss)?)
            .with_queue(QueueLimit::Bytes(
                usize::try_from(queue).unwrap_or(usize::MAX),
            ));
        Ok(PathSetup {
            forward: link.clone(),
            backward: link,
            cost: 1.0,
            controller: ControllerConfig::Bbr,
        })
    }
}

impl std::fmt::Display for Pipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rtt, loss) = (self.rtt.as_millis(), self.loss * 100.0);
        write!(f, "{} {rtt} ms {loss} %", self.rate)
    }
}
