//! Rivals over the same links: flows from end to end, and a chain of reliable hops.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use starhaul_cc::{Reconfiguration, ReconfigurationSource};
use starhaul_flow::PACKET_BYTES;
use starhaul_sim::{LinkId, Simulation};

use super::{Figures, Flow, Plan, end::End, plan::address, told};
use crate::{Error, systems::System};

/// Data in a full packet of QUIC: without headers of IP, UDP, packet and frame, and the tag.
pub(super) const QUIC_BYTES: u64 = PACKET_BYTES - 60;
/// Data in a full packet of TCP with time stamps.
pub(super) const TCP_BYTES: u64 = PACKET_BYTES - 52;
/// How often the end of a transfer is looked for.
const SLICE: Duration = Duration::from_millis(5);

/// Each flow by one sender and one receiver.
pub(super) fn end_to_end(plan: &Plan, system: &System, seed: u64) -> Result<Vec<Figures>, Error> {
    let start = Instant::now();
    let mut sim = Simulation::new(seed, start);
    let links = plan.links(&mut sim.network)?;
    let chunks = wanted(plan, QUIC_BYTES).unwrap_or(u64::MAX);
    for (number, flow) in plan.flows.iter().enumerate() {
        let socket = u16::try_from(number * 2).unwrap_or(u16::MAX);
        let (from, to) = (address(0, socket), address(1, socket));
        let begin = start + flow.start;
        let signals = signals(plan, flow, start);
        let sender = End::source(begin, chunks, system.build(start), to, signals);
        let sender = sim.add_node(sender);
        let receiver = sim.add_node(End::sink(from));
        sim.network.bind(sender, 0, from);
        sim.network.bind(receiver, 0, to);
        for (at, path) in &flow.path {
            let hops: Vec<[LinkId; 2]> = path
                .windows(2)
                .filter_map(|pair| links.get(&(pair[0], pair[1])).copied())
                .collect();
            let forward: Vec<LinkId> = hops.iter().map(|hop| hop[0]).collect();
            let back: Vec<LinkId> = hops.iter().rev().map(|hop| hop[1]).collect();
            for (from, to, links) in [(from, to, &forward), (to, from, &back)] {
                match at.is_zero() {
                    true => sim.network.set_route(from, to, links),
                    false => sim.network.set_route_at(start + *at, from, to, links),
                }
            }
        }
    }
    run(plan, sim, &links, 2, QUIC_BYTES)
}

/// Each change of a flow's path, and when its sender hears of it: when a probe from end to end has come back over the new one.
fn signals(plan: &Plan, flow: &Flow, start: Instant) -> VecDeque<(Instant, Reconfiguration)> {
    let signal = |(at, told, _)| {
        let reconfiguration = Reconfiguration {
            at: start + at,
            // Nothing is lost on the way that was left.
            outage: Duration::ZERO,
            source: ReconfigurationSource::GroundTruth,
            confidence: 1.0,
        };
        (start + told, reconfiguration)
    };
    let mut signals: Vec<_> = told::of_path(plan, flow).map(signal).collect();
    signals.sort_by_key(|(told, _)| *told);
    signals.into()
}

/// Each flow by a sender and a receiver for each hop. The path is the first one throughout: a connection cannot move.
pub(super) fn split(plan: &Plan, seed: u64) -> Result<Vec<Figures>, Error> {
    let start = Instant::now();
    let mut sim = Simulation::new(seed, start);
    let links = plan.links(&mut sim.network)?;
    let cubic = System::named("cubic")?;
    let chunks = wanted(plan, TCP_BYTES).unwrap_or(u64::MAX);
    let mut per_flow = 0;
    for (number, flow) in plan.flows.iter().enumerate() {
        let path = flow.path_at(Duration::ZERO);
        per_flow = path.len();
        let socket = u16::try_from(number).unwrap_or(u16::MAX);
        let begin = start + flow.start;
        for (at, _) in path.iter().enumerate() {
            let next = (at + 1 < path.len()).then(|| address(at + 1, socket));
            let before = at.checked_sub(1).map(|before| address(before, socket));
            let controller = || cubic.build(start);
            let end = match (before, next) {
                (Some(before), Some(next)) => End::relay(begin, before, controller(), next),
                (None, Some(next)) => End::first(begin, chunks, controller(), next),
                (before, None) => End::last(before.unwrap_or(address(at, socket))),
            };
            let node = sim.add_node(end);
            sim.network.bind(node, 0, address(at, socket));
        }
        for (at, pair) in path.windows(2).enumerate() {
            if let Some([forward, back]) = links.get(&(pair[0], pair[1])) {
                let (a, b) = (address(at, socket), address(at + 1, socket));
                sim.network.set_route(a, b, &[*forward]);
                sim.network.set_route(b, a, &[*back]);
            }
        }
    }
    run(plan, sim, &links, per_flow, TCP_BYTES)
}

/// Packets of a content, if it ends.
fn wanted(plan: &Plan, data_bytes: u64) -> Option<u64> {
    plan.bytes.map(|bytes| bytes.div_ceil(data_bytes))
}

/// Runs flows of so many nodes each; the last of each receives.
fn run(
    plan: &Plan,
    mut sim: Simulation<End>,
    links: &BTreeMap<(usize, usize), [LinkId; 2]>,
    per_flow: usize,
    data_bytes: u64,
) -> Result<Vec<Figures>, Error> {
    let wanted = wanted(plan, data_bytes);
    let mut ended = vec![None; plan.flows.len()];
    while sim.elapsed() < plan.time && ended.iter().any(Option::is_none) {
        sim.run_for(SLICE.min(plan.time - sim.elapsed()));
        for (flow, ended) in ended.iter_mut().enumerate() {
            let last = &sim.nodes[(flow + 1) * per_flow - 1];
            let is_there = wanted.is_some_and(|wanted| last.in_order >= wanted);
            if is_there && ended.is_none() {
                *ended = Some(sim.elapsed());
            }
        }
    }
    let lost = links
        .values()
        .map(|links| sim.network[links[0]].stats().dropped())
        .sum();
    let elapsed = sim.elapsed();
    let of_flow = |(number, flow): (usize, &Flow)| {
        let first = &sim.nodes[number * per_flow];
        let last = &sim.nodes[(number + 1) * per_flow - 1];
        let sent = first.out.as_ref().map_or(0, |out| out.sender.stats().sent);
        Figures {
            bytes: last.in_order.min(wanted.unwrap_or(u64::MAX)) * data_bytes,
            time: ended[number].unwrap_or(elapsed) - flow.start,
            delays: last.delays.clone(),
            late_delays: last.late_delays.clone(),
            sender_bytes: sent * PACKET_BYTES,
            lost,
            asked_again: first.out.as_ref().map_or(0, |out| out.sender.stats().lost),
            asked_elsewhere: None,
            timeouts: first
                .out
                .as_ref()
                .map_or(0, |out| out.sender.stats().timeouts),
            is_complete: ended[number].is_some(),
            reconfigurations: first.out.as_ref().map_or(0, |out| out.heard),
        }
    };
    Ok(plan.flows.iter().enumerate().map(of_flow).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

    use super::*;
    use crate::worlds::chain::{Carrier, Hop, end::buffer_seconds};

    fn run(name: &str, plan: &Plan) -> Figures {
        let flows = Carrier::named(name).unwrap().run(plan, 1).unwrap();
        flows.into_iter().next().unwrap()
    }

    #[test]
    fn without_a_loss_the_sender_sends_what_is_wanted_once() {
        let mut plan = Plan::chain(&vec![Hop::new(20, 5, 0.0); 3], Duration::from_secs(9));
        plan.bytes = Some(200_000);
        for (name, data_bytes) in [
            ("bbr", QUIC_BYTES),
            ("cubic", QUIC_BYTES),
            ("split-tcp", TCP_BYTES),
        ] {
            let figures = run(name, &plan);
            assert!(
                figures.is_complete && figures.lost == 0,
                "{name}: {figures:?}"
            );
            let packets = 200_000_u64.div_ceil(data_bytes);
            assert_eq!(figures.sender_bytes, packets * PACKET_BYTES, "{name}");
        }
    }

    #[test]
    fn a_relay_holds_no_more_than_its_buffer() {
        let mut narrow = Hop::new(9, 10, 0.0);
        narrow.queue = 500;
        let hops = [Hop::new(20, 10, 0.0), narrow, Hop::new(20, 10, 0.0)];
        let figures = run("split-tcp", &Plan::chain(&hops, Duration::from_secs(60)));
        let (mean, most) = (figures.delays.mean_ms() / 1e3, buffer_seconds(9.0));
        // And the way, and what the first link holds.
        assert!(
            (most / 2.0..most + 0.15).contains(&mean),
            "{mean} s of {most}"
        );
        assert!(figures.goodput_mbps() > 8.2, "{figures:?}");
    }
}
