//! One flow of the whole stack over simulated links, measured by the link as in real time.

use std::{net::SocketAddr, time::Duration};

use starhaul_cc::ControllerConfig;
use starhaul_flow::Metrics;
use starhaul_link::LinkSpec;

use crate::{
    Error,
    transfer::full_packet_bytes,
    workload::bulk::Bulk,
    worlds::stack::{HostSettings, PathSetup, World},
};

/// A reliable stream kept full for `time`, counted from the begin of the handshake.
///
/// # Errors
/// The session does not come up, or a byte of the stream is not the one that was sent.
pub fn simulated(
    config: &ControllerConfig,
    forward: &LinkSpec,
    backward: &LinkSpec,
    time: Duration,
    seed: u64,
) -> Result<Metrics, Error> {
    let path = PathSetup {
        forward: forward.clone(),
        backward: backward.clone(),
        cost: 1.0,
        controller: config.clone(),
    };
    let settings = HostSettings {
        // As between two hosts with IPv4, which the run in real time has.
        packet_bytes: full_packet_bytes(SocketAddr::from(([0, 0, 0, 0], 0))),
        accept_controller: config.clone(),
        ..HostSettings::default()
    };
    let mut world = World::starhaul_with(seed, &[path], &[], &settings)?;
    if let Some(links) = world.paths.first().copied() {
        world.sim().network.watch(links.forward);
        world.sim().network.watch(links.backward);
    }
    let opening = world.sim().elapsed();
    let start = world.now() - opening;
    let mut bulk = Bulk::open(&mut world)?;
    world.run(time.saturating_sub(opening), |world| bulk.pump(world));
    if !bulk.intact {
        return Err(Error::Failed("the stream was damaged".to_owned()));
    }
    let links = world.paths.first().copied();
    let links = links.ok_or_else(|| Error::Failed("a world without a path".to_owned()))?;
    let network = &mut world.sim().network;
    let [data, back] = [links.forward, links.backward].map(|link| network.take_passages(link));
    let link = &network[links.forward];
    let capacity = link.capacity_bytes_between(start, start + time);
    Ok(Metrics::by_link(time, capacity, &data, &back, link.stats()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_fills_the_link_and_waits_in_its_queue() {
        let link: LinkSpec = "rate=10mbit,delay=10ms,queue=25p".parse().unwrap();
        let time = Duration::from_secs(5);
        let of = |config| simulated(&config, &link, &link, time, 7).unwrap();
        let cubic = of(ControllerConfig::Cubic);
        assert!((cubic.capacity_mbps - 10.0).abs() < 0.01, "{cubic:?}");
        assert!(
            cubic.utilisation > 0.9 && cubic.utilisation < 1.0,
            "{cubic:?}"
        );
        // 26 packets of 1.2 ms are the most that can wait.
        assert!(
            (5.0..31.3).contains(&cubic.queue_delay_mean_ms),
            "{cubic:?}"
        );
        assert!(
            cubic.queue_delay_p95_ms >= cubic.queue_delay_mean_ms,
            "{cubic:?}"
        );
        let rtt = 20.0 + cubic.queue_delay_mean_ms;
        assert!((cubic.rtt_mean_ms - rtt).abs() < 2.0, "{cubic:?}");
        assert_eq!(cubic, of(ControllerConfig::Cubic), "a seed is a run");
    }
}
