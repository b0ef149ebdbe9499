//! Metrics of tunnels.

use std::fmt;

use starhaul_metrics::{Families, Unit};

use crate::status::TunnelStatus;

fn labels(tunnel: &TunnelStatus) -> [(&'static str, &str); 2] {
    [("peer", &tunnel.peer), ("rule", &tunnel.rule)]
}

pub(super) fn write(tunnels: &[TunnelStatus], families: &mut Families<'_>) -> fmt::Result {
    let up = tunnels
        .iter()
        .map(|tunnel| (labels(tunnel), f64::from(u8::from(tunnel.device.is_some()))));
    families.gauge(
        "starhaul_tunnel_device_present",
        "Whether the device of a tunnel is there",
        None,
        up,
    )?;
    type Value = fn(&TunnelStatus) -> u64;
    let all: [(&str, &str, Option<Unit>, Value); 5] = [
        (
            "starhaul_tunnel_sent_packets",
            "Packets from the device",
            None,
            |tunnel| tunnel.packets_in,
        ),
        (
            "starhaul_tunnel_sent",
            "Bytes of packets from the device",
            Some(Unit::Bytes),
            |tunnel| tunnel.bytes_in,
        ),
        (
            "starhaul_tunnel_received_packets",
            "Packets to the device",
            None,
            |tunnel| tunnel.packets_out,
        ),
        (
            "starhaul_tunnel_received",
            "Bytes of packets to the device",
            Some(Unit::Bytes),
            |tunnel| tunnel.bytes_out,
        ),
        (
            "starhaul_tunnel_marked_packets",
            "Packets marked with \"congestion experienced\" instead of being dropped",
            None,
            |tunnel| tunnel.marked,
        ),
    ];
    for (name, help, unit, value) in all {
        let series = tunnels.iter().map(|tunnel| (labels(tunnel), value(tunnel)));
        families.counter(name, help, unit, series)?;
    }
    let dropped = tunnels.iter().flat_map(|tunnel| {
        let [peer, rule] = labels(tunnel);
        let dropped = &tunnel.dropped;
        let causes = [
            ("no_session", dropped.no_session),
            ("queue", dropped.queue),
            ("refused", dropped.refused),
            ("forbidden", dropped.forbidden),
            ("malformed", dropped.malformed),
        ];
        causes.map(|(cause, count)| ([peer, rule, ("cause", cause)], count))
    });
    families.counter(
        "starhaul_tunnel_dropped_packets",
        "Packets of a tunnel that were dropped",
        None,
        dropped,
    )
}
