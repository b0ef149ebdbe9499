//! What is written is what others read: links, traces, the simulator, and this crate itself.
#![allow(clippy::unwrap_used, reason = "a test harness")]

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use starhaul_link::{
    Delay, Link, LinkSpec, Outcome, Rate, parse_csv, parse_delay, parse_leoem, write_delay,
};
use starhaul_orbit::{
    Constellation, End, MAX_STEP, Network, PathOverTime, Rules, Shell, leotp_table_2, write_leoem,
    write_table,
};
use starhaul_sim::{Datagram, Delivery, Node, Simulation, Udp};
use starhaul_units::Bandwidth;

const SECOND: Duration = Duration::from_secs(1);
const BASE: Bandwidth = Bandwidth::from_mbit(10);

/// Beijing to New York, with handovers.
fn path() -> PathOverTime {
    let network = leotp_table_2().unwrap();
    network.path(0, 3, 180 * SECOND, SECOND).unwrap()
}

/// Two stations that a few satellites serve now and then.
fn path_with_gaps() -> PathOverTime {
    let shell: Shell = "planes=12,satellites=12,altitude=550km,inclination=53"
        .parse()
        .unwrap();
    let start = "2000-01-01".parse().unwrap();
    let constellation = Constellation::of_shells(&[shell], start).unwrap();
    let stations = vec!["Rome".parse().unwrap(), "Vienna".parse().unwrap()];
    let network = Network::new(constellation, stations, Rules::default()).unwrap();
    let path = network.path(0, 1, 1200 * SECOND, SECOND).unwrap();
    let figures = path.figures();
    assert!(
        figures.connected > 60 && figures.connected < figures.steps,
        "{figures:?}"
    );
    path
}

#[test]
fn json_gives_the_same_path_back() {
    for path in [path(), path_with_gaps()] {
        assert_eq!(PathOverTime::from_json("f", &path.to_json()), Ok(path));
    }
}

#[test]
fn json_of_the_longest_steps_is_read_and_longer_ones_are_not_made() {
    let network = leotp_table_2().unwrap();
    let path = |step| network.path(0, 3, 2 * step, step);
    let daily = path(MAX_STEP).unwrap();
    assert_eq!(PathOverTime::from_json("f", &daily.to_json()), Ok(daily));
    assert!(path(MAX_STEP + SECOND).is_err());
}

#[test]
fn the_table_is_a_link_with_the_same_capacity_and_delay() {
    for path in [path(), path_with_gaps()] {
        let mut table = Vec::new();
        write_table(&path, Some((End::To, BASE)), &mut table).unwrap();
        let read = LinkSpec::from_trace(parse_csv("f", &*table).unwrap());
        let link = path.link(Some((End::To, BASE))).unwrap();
        let (Rate::Trace(read_rate), Rate::Trace(rate)) = (&read.rate, &link.rate) else {
            panic!("no capacity over time");
        };
        assert_eq!(read_rate, rate);
        let (Delay::Trace(read_delay), Delay::Trace(delay)) = (&read.delay, &link.delay) else {
            panic!("no delay over time");
        };
        for (at, _) in path.steps() {
            let apart = read_delay.at(at).abs_diff(delay.at(at));
            assert!(apart <= Duration::from_nanos(1), "{apart:?} at {at:?}");
            let lost = |link: &LinkSpec| link.loss_trace.as_ref().map_or(0.0, |loss| loss.at(at));
            assert_eq!(lost(&read), lost(&link));
        }
    }
}

/// A packet each 10 ms over the table as a link: those that are sent while there is no path are lost, not kept until there is
/// one again.
#[test]
fn packets_of_a_gap_are_lost_with_a_capacity_too() {
    let path = path_with_gaps();
    let mut table = Vec::new();
    write_table(&path, Some((End::To, BASE)), &mut table).unwrap();
    let spec = LinkSpec::from_trace(parse_csv("f", &*table).unwrap());
    let start = Instant::now();
    let mut link = Link::new(&spec, 1, start);
    let sent: Vec<Duration> = (0..1200 * 100).map(|n| SECOND / 100 * n).collect();
    let mut waited = Vec::new();
    for at in &sent {
        link.enqueue(start + *at, 100, *at);
        while let Some(outcome) = link.poll(start + *at) {
            if let Outcome::Arrived(arrival) = outcome {
                waited.push((arrival.packet, arrival.due - start - arrival.packet));
            }
        }
    }
    let connected: Vec<bool> = path.steps().map(|(_, step)| step.is_connected()).collect();
    let has_path = |at: &&Duration| connected[usize::try_from(at.as_secs()).unwrap()];
    let expected = sent.iter().filter(has_path).count();
    // At each end of a gap a packet may leave on the other side of it.
    let ends = path.changes().len();
    assert!(
        waited.len().abs_diff(expected) <= ends + 10,
        "{} of {expected}",
        waited.len()
    );
    let longest = waited.iter().map(|(_, waited)| *waited).max().unwrap();
    assert!(longest < SECOND / 10, "a packet waited for {longest:?}");
}

#[test]
fn a_log_of_leoem_and_delays_of_leoreplayer_have_the_same_delays() {
    for path in [path(), path_with_gaps()] {
        let Delay::Trace(delay) = path.link(None).unwrap().delay else {
            panic!("no delay over time");
        };
        let (mut log, mut lines) = (Vec::new(), Vec::new());
        write_leoem(&path, &mut log).unwrap();
        write_delay(&delay, &mut lines).unwrap();
        let log = parse_leoem("f", &*log).unwrap();
        let log_delay = log.delay.unwrap();
        let line_delay = parse_delay("f", &*lines).unwrap();
        for (at, step) in path.steps() {
            let expected = delay.at(at);
            assert!(log_delay.at(at).abs_diff(expected) <= Duration::from_nanos(1));
            assert!(line_delay.at(at).abs_diff(expected) <= Duration::from_micros(1));
            let lost = log.loss.as_ref().map_or(0.0, |loss| loss.at(at));
            assert_eq!(lost == 1.0, !step.is_connected());
        }
    }
}

/// Notes when packets arrive.
#[derive(Default)]
struct Station(VecDeque<Datagram>, Vec<Instant>);

impl Node for Station {
    type Load = Udp;

    fn handle_packet(&mut self, now: Instant, _: Delivery<Udp>) {
        self.1.push(now);
    }
    fn poll_transmit(&mut self, _: Instant, out: &mut VecDeque<Datagram>) {
        out.append(&mut self.0);
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }
    fn handle_timeout(&mut self, _: Instant) {}
}

#[test]
fn packets_of_the_simulator_follow_the_path() {
    for path in [path(), path_with_gaps()] {
        let start = Instant::now();
        let (a, b): (SocketAddr, SocketAddr) =
            ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:1".parse().unwrap());
        let mut sim = Simulation::new(1, start);
        let (from, to) = (
            sim.add_node(Station::default()),
            sim.add_node(Station::default()),
        );
        sim.network.bind(from, 0, a);
        sim.network.bind(to, 0, b);
        let hops = path.hops();
        let links: Vec<_> = hops
            .hops
            .into_iter()
            .map(|hop| {
                let spec = LinkSpec {
                    delay: Delay::Trace(Arc::new(hop.delay)),
                    ..LinkSpec::default()
                };
                sim.network.add_link(&spec)
            })
            .collect();
        for (at, route) in &hops.routes {
            let route: Vec<_> = route.iter().map(|hop| links[*hop]).collect();
            sim.network.set_route_at(start + *at, a, b, &route);
        }
        let mut expected = Vec::new();
        // In the middle of each step, so that a packet arrives before the next one.
        sim.run_for(SECOND / 2);
        for (at, step) in path.steps() {
            sim.nodes[0].0.push_back(Datagram::udp(0, b, 0, "x".into()));
            sim.run_for(SECOND);
            if step.is_connected() {
                expected.push(at + SECOND / 2 + step.propagation());
            }
        }
        let arrived: Vec<_> = sim.nodes[1]
            .1
            .iter()
            .map(|at| at.duration_since(start))
            .collect();
        assert_eq!(arrived, expected);
    }
}
