//! What the light flow shows of an outage: all that was sent in it arrives at once, one delay after its end. That wait is no
//! delay. After an outage the delay may be greater for a while, and what is sent while it falls arrives at once, too; the
//! heavy flow tells the two apart, since in an outage nothing of it leaves.

use crate::delay::median;

/// Milliseconds without any arrival that may be an outage.
const LEAST_GAP_MS: usize = 30;
/// Packets of the light flow that arrive within this time after a gap were held up in it.
const TOGETHER_US: i64 = 5_000;
/// At least so many of them, that were sent over at least this time.
const LEAST_HELD: usize = 3;
const LEAST_HELD_US: i64 = 25_000;
/// What is sent for so long after the first arrival tells the delay after the outage.
const SETTLED_US: i64 = 40_000;
/// Milliseconds in which arrivals come together behind an outage; more where a greater delay falls slowly.
const ARRIVAL_MS: usize = 3;
const SLOW_ARRIVAL_MS: usize = 25;
/// Milliseconds after those whose mean says what the link carries.
const AFTERWARDS_MS: usize = 200;

/// Takes from `points`, instants of departure and delays in order, the time for which packets waited for the end of an outage.
/// `arrivals` has the bytes that arrived in each millisecond from `begin_us` on, by the same clock.
pub(crate) fn leave_after_outages(points: &mut [(i64, i64)], begin_us: i64, arrivals: &[u64]) {
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
    let together = first_us - 1000..first_us + TOGETHER_US;
    let is_held = |(at, delay): &(i64, i64)| together.contains(&(at + delay));
    let Some(oldest) = points.iter().position(is_held) else {
        return;
    };
    let held = points.get_mut(oldest..).unwrap_or(&mut []);
    let count = held.iter().take_while(|point| is_held(point)).count();
    let (Some(&first), Some(&last)) = (held.first(), held.get(count.saturating_sub(1))) else {
        return;
    };
    if count < LEAST_HELD || last.0 - first.0 < LEAST_HELD_US {
        return;
    }
    let arrived = first.0 + first.1;
    let after = arrived..arrived + SETTLED_US;
    let settled = held.iter().filter(|(at, _)| after.contains(at));
    let settled = median(settled.map(|(_, delay)| *delay)).unwrap_or(last.1);
    let ended = arrived - settled - sending_time_us(first_ms, arrivals);
    for (_, delay) in held.iter_mut().filter(|(at, _)| *at < ended) {
        *delay = (*delay).min((arrived - ended).max(0));
    }
}

/// For how much longer a link sends what arrived from this millisecond on than it took to arrive, at the rate of the time after
/// it.
fn sending_time_us(first_ms: usize, arrivals: &[u64]) -> i64 {
    let sum = |from: usize, count: usize| -> u64 {
        let rest = arrivals.get(first_ms + from..).unwrap_or(&[]);
        rest.iter().take(count).sum()
    };
    let afterwards = sum(SLOW_ARRIVAL_MS, AFTERWARDS_MS);
    // In microseconds of sending.
    let time = |bytes: u64| (bytes * 1000 * AFTERWARDS_MS as u64).checked_div(afterwards);
    let slow = time(sum(ARRIVAL_MS, SLOW_ARRIVAL_MS - ARRIVAL_MS)).unwrap_or(0);
    let ordinary = 1000 * (SLOW_ARRIVAL_MS - ARRIVAL_MS) as u64;
    let came_slowly = slow > ordinary * 2;
    let (bytes, within_ms) = match came_slowly {
        true => (sum(0, SLOW_ARRIVAL_MS), SLOW_ARRIVAL_MS),
        false => (sum(0, ARRIVAL_MS), ARRIVAL_MS),
    };
    let longer = time(bytes)
        .unwrap_or(0)
        .saturating_sub(1000 * within_ms as u64);
    i64::try_from(longer).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a link of 1500 bytes a millisecond makes of an outage from 500 to `end` ms, after which the delay is `spike` ms and
    /// falls to 10 ms as fast as time passes: its light flow, and its arrivals.
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
