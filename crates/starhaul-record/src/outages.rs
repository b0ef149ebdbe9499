//! Outages in the light flow: all packets sent in an outage arrive together, one delay after its end; that wait is no
//! path delay. After an outage the delay may be greater for a while, and packets sent while it falls arrive together,
//! too. The heavy flow separates the two, as none of it leaves in an outage.

use crate::delay::median;

/// Milliseconds without any arrival that may be an outage.
const LEAST_GAP_MS: usize = 30;
/// The first packet of the light flow after a gap arrives within this time.
const FIRST_US: i64 = 5_000;
/// Packets of the light flow that arrive within this time of each other left together.
const TOGETHER_US: i64 = 1_000;
/// After a group of this size further packets may have had to wait again, and arrive within this time.
const LARGE_GROUP: usize = 30;
const LATER_US: i64 = 30_000;
/// Least number of packets of such a group, which were sent over at least this time.
const LEAST_HELD: usize = 3;
const LEAST_HELD_US: i64 = 25_000;
/// Approximate upper bound of the wait of a light-flow packet.
const LONGEST_US: i64 = 4_000_000;
/// Milliseconds in which the heavy flow's packets arrive together after an outage, and those after them whose mean
/// gives the link's capacity. Capacity grows after an outage, so the nearest time counts.
const ARRIVAL_MS: usize = 3;
const AFTERWARDS_MS: usize = 40;
/// The same where a greater delay falls so slowly that they arrive one after the other, but faster than the link's
/// capacity.
const SLOW_ARRIVAL_MS: usize = 25;
const SLOW_AFTERWARDS_MS: usize = 200;
/// Packets sent for this long after the first arrival give the delay after that phase.
const SETTLED_US: i64 = 40_000;

/// Subtracts from `points`, instants of departure and delays, the wait for the end of an outage; they are in order
/// then. `arrivals` has the bytes that arrived in each millisecond from `begin_us` on, by the same clock.
pub(crate) fn leave_after_outages(points: &mut [(i64, i64)], begin_us: i64, arrivals: &[u64]) {
    points.sort_unstable();
    let mut gap = 0;
    for (ms, bytes) in arrivals.iter().enumerate() {
        if *bytes > 0 {
            if gap >= LEAST_GAP_MS {
                let first_us = begin_us + 1000 * i64::try_from(ms).unwrap_or(i64::MAX / 2000);
                after_gap(points, first_us, ms, arrivals);
            }
            gap = 0;
        } else {
            gap += 1;
        }
    }
}

/// The first arrival after a gap lies in the millisecond from `first_us` on.
fn after_gap(points: &mut [(i64, i64)], first_us: i64, first_ms: usize, arrivals: &[u64]) {
    let comes_first =
        |(at, delay): &(i64, i64)| (first_us - 1000..first_us + FIRST_US).contains(&(at + delay));
    // In a long recording, only packets that may have arrived then.
    let early = points.partition_point(|(at, _)| *at < first_us - LONGEST_US);
    let late = points.partition_point(|(at, _)| *at < first_us + FIRST_US);
    let mut candidates = points.get(early..late).unwrap_or(&[]).iter();
    let Some(oldest) = candidates.position(comes_first).map(|index| early + index) else {
        return;
    };
    let waited = points.get_mut(oldest..).unwrap_or(&mut []);
    let Held { count, at_once } = held(waited);
    let (Some(&first), Some(&last)) = (waited.first(), waited.get(count - 1)) else {
        return;
    };
    if count < LEAST_HELD || last.0 - first.0 < LEAST_HELD_US {
        return;
    }
    let arrived = first.0 + first.1;
    let ended = match rush(first_ms, arrivals) {
        Rush::AtOnce { longer_us } => {
            // The next packet sent gives the delay right after the outage. It left later than all that arrived before
            // it.
            let next = waited.get(count).map_or(last.1, |next| next.1);
            let left = match at_once {
                true => (arrived - next).max(last.0),
                // The last ones may have been sent while others of the group were leaving.
                false => arrived - next,
            };
            left - longer_us
        }
        Rush::Slow { longer_us } => {
            let after = waited
                .iter()
                .skip_while(|(at, _)| *at < arrived)
                .take_while(|(at, _)| *at < arrived + SETTLED_US);
            let settled = median(after.map(|(_, delay)| *delay)).unwrap_or(last.1);
            arrived - settled - longer_us
        }
    };
    for (_, delay) in waited.iter_mut().filter(|(at, _)| *at < ended) {
        *delay = (*delay).min((arrived - ended).max(0));
    }
}

/// The number of light-flow packets that waited together.
struct Held {
    count: usize,
    /// They arrived in one group; on a slow link a few leave at a time.
    at_once: bool,
}

fn held(points: &[(i64, i64)]) -> Held {
    let arrival = |index: usize| points.get(index).map(|(at, delay)| at + delay);
    let apart = |index: usize| Some(arrival(index + 1)? - arrival(index)?);
    let is_group = |index: usize| apart(index).is_some_and(|apart| apart < TOGETHER_US);
    let (mut count, mut at_once) = (1, true);
    loop {
        if is_group(count - 1) {
            count += 1;
        } else if count >= LARGE_GROUP
            && is_group(count)
            && apart(count - 1).is_some_and(|apart| apart < LATER_US)
        {
            (count, at_once) = (count + 1, false);
        } else {
            return Held { count, at_once };
        }
    }
}

/// How much longer the link took to send what arrived after an outage than its arrival took, in microseconds.
enum Rush {
    AtOnce { longer_us: i64 },
    Slow { longer_us: i64 },
}

fn rush(first_ms: usize, arrivals: &[u64]) -> Rush {
    let sum = |from: usize, count: usize| -> u64 {
        let rest = arrivals.get(first_ms + from..).unwrap_or(&[]);
        rest.iter().take(count).sum()
    };
    let longer_us = |within_ms: usize, afterwards_ms: usize| {
        let afterwards = sum(within_ms, afterwards_ms);
        let time_us = (sum(0, within_ms) * 1000 * afterwards_ms as u64).checked_div(afterwards);
        let longer = time_us.unwrap_or(0).saturating_sub(1000 * within_ms as u64);
        i64::try_from(longer).unwrap_or(i64::MAX / 4)
    };
    // At twice the rate of the following time, without those that arrived at once.
    let between = sum(ARRIVAL_MS, SLOW_ARRIVAL_MS - ARRIVAL_MS) * SLOW_AFTERWARDS_MS as u64;
    let usual = sum(SLOW_ARRIVAL_MS, SLOW_AFTERWARDS_MS) * (SLOW_ARRIVAL_MS - ARRIVAL_MS) as u64;
    match between > 2 * usual {
        true => Rush::Slow {
            longer_us: longer_us(SLOW_ARRIVAL_MS, SLOW_AFTERWARDS_MS),
        },
        false => Rush::AtOnce {
            longer_us: longer_us(ARRIVAL_MS, AFTERWARDS_MS),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The light flow and the arrivals of a link of 1500 bytes per millisecond with an outage from 500 to `end` ms,
    /// after which the delay is `spike` ms and falls to 10 ms by 1 ms per millisecond.
    fn link(end: i64, spike: i64) -> (Vec<(i64, i64)>, Vec<u64>) {
        let delay = |at: i64| match at {
            at if at < end => 10,
            at => (spike - (at - end)).max(10),
        };
        let (mut arrivals, mut latest) = (vec![0; 2000], 0);
        let arrival = |at: i64, latest: &mut i64| {
            let leaves = if (500..end).contains(&at) { end } else { at };
            *latest = (*latest).max(leaves + delay(leaves));
            *latest
        };
        let mut points = Vec::new();
        for at in 0..1900 {
            if at % 10 == 5 {
                points.push((at * 1000, (arrival(at, &mut latest) - at) * 1000));
            }
            if !(500..end).contains(&at) {
                arrivals[usize::try_from(arrival(at, &mut latest)).unwrap()] += 1500;
            }
        }
        (points, arrivals)
    }

    #[test]
    fn the_wait_for_the_end_of_an_outage_is_no_delay() {
        for (end, spike) in [(560, 10), (1600, 10), (560, 60), (700, 40)] {
            let (mut points, arrivals) = link(end, spike);
            leave_after_outages(&mut points, 0, &arrivals);
            for (at, delay) in &points {
                let at_ms = at / 1000;
                let held = (500..end).contains(&at_ms);
                let truth = match at_ms {
                    _ if held => spike,
                    at if at < end => 10,
                    at => (spike - (at - end)).max(10),
                };
                let off = (delay / 1000 - truth).abs();
                assert!(
                    off <= 3,
                    "{end} {spike}: {delay} µs at {at} µs, not {truth} ms"
                );
            }
        }
    }

    #[test]
    fn a_delay_that_falls_without_an_outage_is_left_alone() {
        let (points, arrivals) = link(500, 80);
        let mut after = points.clone();
        leave_after_outages(&mut after, 0, &arrivals);
        assert_eq!(after, points);
    }
}
