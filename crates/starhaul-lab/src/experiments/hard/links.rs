//! Two links of a kind that a recording showed: the low one stops and changes as satellites do on a bad day.

use std::time::Duration;

use starhaul_link::{LeoModel, LinkSpec, Loss};
use starhaul_units::Bandwidth;

use crate::Error;

/// A pause every 10 s is a dozen in two minutes.
const INTERVAL: Duration = Duration::from_secs(10);
const PAUSE_MS: std::ops::RangeInclusive<u64> = 50..=950;
/// 4 to 110 Mbit/s, evenly by the logarithm.
const MEAN_KBIT: u64 = 21_000;
const STEP: f64 = 27.5;
const GEO_MBIT: u64 = 10;
const GEO_DELAY: Duration = Duration::from_millis(300);
const LOSS: f64 = 0.01;

/// The LEO link and the GEO link with this number, alike in both directions.
pub(super) fn pair(number: u64, duration: Duration) -> Result<[LinkSpec; 2], Error> {
    let loss = Loss::bernoulli(LOSS)?;
    let model = LeoModel {
        duration,
        interval: INTERVAL,
        mean_rate: Bandwidth::from_kbit(MEAN_KBIT),
        rate_spread: 0.0,
        rate_step: STEP,
        outage_ms: PAUSE_MS,
        base_delay_ms: 10..=60,
        delay_variation_ms: 0..=8,
        drift_ms: 10,
        spike_ms: 40..=120,
        ..LeoModel::default()
    };
    let leo = LinkSpec::from_trace(model.generate(number)?).with_loss(loss);
    let geo = LinkSpec::constant(Bandwidth::from_mbit(GEO_MBIT), GEO_DELAY).with_loss(loss);
    Ok([leo, geo])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

    use std::time::Instant;

    use starhaul_link::{Delay, Link, Rate};

    use super::*;

    #[test]
    fn the_low_link_stops_a_dozen_times_and_its_capacity_moves() {
        let time = Duration::from_secs(120);
        let mut of_all = Vec::new();
        for number in 0..20 {
            let [leo, geo] = pair(number, time).unwrap();
            let Rate::Trace(capacity) = &leo.rate else {
                panic!("no trace");
            };
            let pauses = capacity.gaps(Duration::from_millis(45));
            assert!((10..=14).contains(&pauses.len()), "{number}: {pauses:?}");
            assert!(
                pauses
                    .iter()
                    .all(|(_, pause)| *pause <= Duration::from_millis(1_000)),
                "{number}: {pauses:?}"
            );
            of_all.extend(capacity.rates(Duration::from_secs(10)));
            assert_eq!(geo.delay, Delay::Constant(GEO_DELAY));
            let now = Instant::now();
            let link: Link<()> = Link::new(&geo, 1, now);
            assert_eq!(link.capacity_bytes_between(now, now + time), 150_000_000);
        }
        let least = of_all.iter().min().unwrap().mbit();
        let most = of_all.iter().max().unwrap().mbit();
        assert!(least < 6.0 && most > 70.0 && most < 115.0, "{least} {most}");
    }
}
