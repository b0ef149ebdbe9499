//! When a trace was reconfigured: the truth that detectors are measured against.

use std::time::Duration;

use serde::{Serialize, Serializer};
use starhaul_link::Trace;

/// Where a grid of 50 ms has blurred the gaps, capacity falls below this share of the mean in their place.
const DIP_SHARE: f64 = 0.12;
/// … over so long, or longer where not even one packet would pass at that share: an empty window is no dip then.
const DIP_WINDOW: Duration = Duration::from_millis(50);
/// Two dips closer than this are one.
const DIP_APART: Duration = Duration::from_secs(5);

/// A reconfiguration, from the start of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Outage {
    /// The last delivery before it.
    #[serde(rename = "start_s", serialize_with = "seconds")]
    pub start: Duration,
    /// The first delivery after it.
    #[serde(rename = "end_s", serialize_with = "seconds")]
    pub end: Duration,
    /// Nothing passes at all; otherwise the trace's grid is too coarse to say, and probes do not notice it.
    pub sharp: bool,
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// The outages of a trace's capacity (LeoCC §4.1.1: more than 45 ms; a slow link's regular gaps are none); or, if it has none,
/// its dips.
pub(super) fn outages(trace: &Trace) -> Vec<Outage> {
    let gaps = trace.capacity.outages();
    if !gaps.is_empty() {
        let outage = |(start, length)| Outage {
            start,
            end: start + length,
            sharp: true,
        };
        return gaps.into_iter().map(outage).collect();
    }
    dips(trace)
}

fn dips(trace: &Trace) -> Vec<Outage> {
    let capacity = &trace.capacity;
    let mean = capacity.mean_rate().scaled(DIP_SHARE);
    let window = DIP_WINDOW.max(mean.time_to_send(starhaul_link::OPPORTUNITY_BYTES));
    let few = mean.bytes_in(window) / starhaul_link::OPPORTUNITY_BYTES;
    let mut found: Vec<Outage> = Vec::new();
    let mut at = Duration::ZERO;
    while at + window <= capacity.period() {
        let end = at + window;
        let here = capacity.until(end).saturating_sub(capacity.until(at));
        let apart = found.last().is_none_or(|last| last.end + DIP_APART < at);
        if here <= few && apart {
            found.push(Outage {
                start: at,
                end,
                sharp: false,
            });
        }
        at += window;
    }
    found
}

#[cfg(test)]
mod tests {
    use starhaul_link::{OPPORTUNITY_BYTES, Opportunities};
    use starhaul_units::Bandwidth;

    use super::*;

    /// A link of constant rate, and the same with a dip.
    #[test]
    fn the_gaps_between_the_packets_of_a_slow_link_are_no_reconfigurations() {
        for kbit in [100, 200, 400, 1_000, 2_000, 20_000] {
            let rate = Bandwidth::from_kbit(kbit);
            let second = Duration::from_secs(1);
            let steady = Opportunities::from_rates([(60 * second, rate)]).unwrap();
            assert_eq!(dips(&Trace::new(steady, None).unwrap()), [], "{kbit}");
            let gone = rate.time_to_send(OPPORTUNITY_BYTES).max(second) * 20;
            let steps = [
                (20 * second, rate),
                (gone, Bandwidth::ZERO),
                (200 * gone, rate),
            ];
            let dipping = Opportunities::from_rates(steps).unwrap();
            assert!(
                !dips(&Trace::new(dipping, None).unwrap()).is_empty(),
                "{kbit}"
            );
        }
    }
}
