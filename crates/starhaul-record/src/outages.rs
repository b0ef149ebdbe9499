//! What the light flow shows of an outage: all that was sent in it arrives at once, one delay after its end. That wait is no
//! delay. After an outage the delay may be greater for a while, and what is sent while it falls arrives at once, too; the
//! heavy flow tells the two apart, since in an outage nothing of it leaves.

/// Packets of the light flow that arrive within this time of each other were held up.
const TOGETHER_US: i64 = 1_000;
/// Milliseconds after an arrival whose mean says what the link carries.
const AFTERWARDS_MS: usize = 200;
/// Milliseconds in which the packets that were held up arrive.
const ARRIVAL_MS: usize = 3;

/// Takes from `points`, instants of departure and delays in order, the time for which packets waited for the end of an outage.
/// `arrivals` has the bytes of the heavy flow in each millisecond from `begin_us` on, by the same clock.
pub(crate) fn leave_after_outages(points: &mut [(i64, i64)], begin_us: i64, arrivals: &[u64]) {
    let arrival = |(at, delay): &(i64, i64)| at + delay;
    let mut first = 0;
    while first < points.len() {
        let held = points
            .get(first..)
            .unwrap_or(&[])
            .windows(2)
            .take_while(|pair| match pair {
                [a, b] => arrival(b) - arrival(a) < TOGETHER_US,
                _ => false,
            })
            .count();
        let last = first + held;
        let (bunch, rest) = points.split_at_mut(last + 1);
        let bunch = bunch.get_mut(first..).unwrap_or(&mut []);
        first = last + 1;
        let (Some(&newest), true) = (bunch.last(), held > 0) else {
            continue;
        };
        let arrived = arrival(&newest);
        // The last packet of the heavy flow that arrived with them left before the next of the light flow.
        let left = rest.first().map_or(newest.0, |next| {
            (arrived - next.1).clamp(newest.0, next.0.max(newest.0))
        });
        let ended = left - sending_time_us(arrived - begin_us, arrivals);
        for (_, delay) in bunch.iter_mut().filter(|(at, _)| *at < ended) {
            *delay = (*delay).min((arrived - ended).max(0));
        }
    }
}

/// How long a link sends what arrived at this instant, at the rate of the time after it.
fn sending_time_us(arrived_us: i64, arrivals: &[u64]) -> i64 {
    let Ok(ms) = usize::try_from(arrived_us / 1000) else {
        return 0;
    };
    let sum = |from: usize, to: usize| -> u64 {
        let to = to.min(arrivals.len());
        arrivals.get(from.min(to)..to).unwrap_or(&[]).iter().sum()
    };
    let from = ms.saturating_sub(1);
    let together = sum(from, from + ARRIVAL_MS);
    let afterwards = sum(from + ARRIVAL_MS, from + ARRIVAL_MS + AFTERWARDS_MS);
    // Half of those milliseconds are ordinary ones.
    let ordinary_us = 500 * ARRIVAL_MS as u64;
    let time = (together * 1000 * AFTERWARDS_MS as u64).checked_div(afterwards);
    i64::try_from(time.unwrap_or(0).saturating_sub(ordinary_us)).unwrap_or(i64::MAX)
}
