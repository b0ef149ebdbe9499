//! The one-way delays of a round trip: splits the light flow's RTTs by two unsynchronised clocks.

use crate::{
    Direction, Probe,
    delay::{DelayCurve, median},
};

/// The offset of two unsynchronised, drifting clocks is chosen such that the median delay of both directions is the
/// same over each interval between reconfigurations, since a constant asymmetry cannot be measured.
const WINDOW_US: i64 = 15_000_000;

/// Departures and delays in our direction from ICMP echoes beside the heavy flow.
pub(crate) fn beside(
    probes: &[Probe],
    direction: Direction,
    begin_us: i64,
    end_us: i64,
) -> Vec<(i64, i64)> {
    let icmp = || probes.iter().filter(|probe| probe.icmp);
    let answered: Vec<_> = icmp()
        .filter_map(|probe| Some((signed(probe.at_us), i64::from(probe.rtt_us?))))
        .collect();
    let stamped: Vec<_> = icmp()
        .filter_map(|probe| {
            let (at, rtt) = (signed(probe.at_us), i64::from(probe.rtt_us?));
            Some((at, rtt, signed(probe.server_us?)))
        })
        .filter(|(at, ..)| (begin_us..end_us).contains(at))
        .collect();
    if stamped.len() > answered.len() / 4 {
        return by_stamps(&stamped, direction);
    }
    let other = other_way(probes, &answered, direction, begin_us, end_us);
    let ways = answered.iter().map(|&(at, rtt)| {
        let other = other
            .as_ref()
            .map_or(rtt / 2, |other| unloaded(other, direction, at, rtt));
        match direction {
            Direction::Up => (at, rtt - other),
            Direction::Down => (at + other, rtt - other),
        }
    });
    ways.collect()
}

/// The same for packets with known arrival at the server: send time, RTT and arrival of each.
fn by_stamps(stamped: &[(i64, i64, i64)], direction: Direction) -> Vec<(i64, i64)> {
    let begin_us = stamped.first().map_or(0, |(at, ..)| *at);
    let whole_us = stamped.last().map_or(0, |(at, ..)| *at) - begin_us + 1;
    let windows = ((whole_us + WINDOW_US / 2) / WINDOW_US).max(1);
    let window = |(at, ..): &(i64, i64, i64)| (at - begin_us) * windows / whole_us;
    let mut points = Vec::with_capacity(stamped.len());
    for inside in stamped.chunk_by(|a, b| window(a) == window(b)) {
        let up = median(inside.iter().map(|(at, _, server)| server - at)).unwrap_or(0);
        let down = median(inside.iter().map(|(at, rtt, server)| at + rtt - server)).unwrap_or(0);
        let offset = (up - down) / 2;
        points.extend(inside.iter().map(|&(at, rtt, server)| {
            let up = (server - at - offset).clamp(0, rtt);
            match direction {
                Direction::Up => (at, up),
                Direction::Down => (at + up, rtt - up),
            }
        }));
    }
    points
}

/// The delay of the direction without the heavy flow, from UDP echoes. `icmp` holds instants and RTTs.
fn other_way(
    probes: &[Probe],
    icmp: &[(i64, i64)],
    direction: Direction,
    begin_us: i64,
    end_us: i64,
) -> Option<DelayCurve> {
    let ways = probes.iter().filter_map(|probe| {
        let (at, rtt) = (signed(probe.at_us), i64::from(probe.rtt_us?));
        let server = signed(probe.server_us?);
        Some(match direction {
            Direction::Up => (at + rtt, at + rtt - server),
            Direction::Down => (at, server - at),
        })
    });
    let ways: Vec<(i64, i64)> = ways.collect();
    let mut points = Vec::with_capacity(ways.len());
    let windows = std::iter::successors(Some(begin_us), |from| Some(from + WINDOW_US));
    for from in windows.take_while(|from| *from < end_us) {
        let inside = |at: &&(i64, i64)| (from..from + WINDOW_US).contains(&at.0);
        let ways: Vec<_> = ways.iter().filter(inside).copied().collect();
        let icmp: Vec<_> = icmp.iter().filter(inside).copied().collect();
        let half = median(icmp.iter().map(|(_, rtt)| rtt / 2));
        let way = median(ways.iter().map(|(_, way)| *way));
        let (Some(half), Some(way)) = (half, way) else {
            continue;
        };
        let mut window = departures(&ways, half - way, direction);
        // Half of a median is not the median of the halves: compare the results of both directions and divide the
        // difference.
        if let Some(curve) = DelayCurve::new(from, from + WINDOW_US, &window) {
            let other = |(at, rtt): &(i64, i64)| unloaded(&curve, direction, *at, *rtt);
            let others = median(icmp.iter().map(other)).unwrap_or(0);
            let ours = median(icmp.iter().map(|probe| probe.1 - other(probe))).unwrap_or(others);
            window = departures(&ways, half - way + (ours - others) / 2, direction);
        }
        points.append(&mut window);
    }
    DelayCurve::new(begin_us, end_us, &points)
}

/// Departures and delays of the unloaded direction, from instants at the client and differences of the two clocks.
fn departures(ways: &[(i64, i64)], clocks_us: i64, direction: Direction) -> Vec<(i64, i64)> {
    let departure = |&(at, way): &(i64, i64)| match direction {
        Direction::Up => (at - way - clocks_us, way + clocks_us),
        Direction::Down => (at, way + clocks_us),
    };
    ways.iter().map(departure).collect()
}

/// The part of a probe's RTT that belongs to the unloaded direction.
fn unloaded(other: &DelayCurve, direction: Direction, at_us: i64, rtt_us: i64) -> i64 {
    let delay = |leaves_us| other.at(leaves_us).clamp(0, rtt_us);
    match direction {
        // The delay determines when the answer was sent.
        Direction::Up => delay(at_us + rtt_us - delay(at_us + rtt_us / 2)),
        Direction::Down => delay(at_us),
    }
}

fn signed(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}
