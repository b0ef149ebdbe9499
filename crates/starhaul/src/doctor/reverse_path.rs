//! Strict reverse-path filtering: the kernel drops what comes over one interface from where it would send over another.

use std::{fs, path::Path};

use starhaul_gateway::Config;
use starhaul_net::{FoundRoute, Routing, interface_index, source_toward};

use super::{Cause, Finding, network::Way};

/// The value of `rp_filter` with which packets must come over the interface that leads back.
const STRICT: u8 = 1;

/// The paths whose answers this host drops, or will drop when its tunnels have their routes.
pub(super) fn examine(config: &Config, ways: &[Way]) -> Vec<Finding> {
    ways.iter().filter_map(|way| of_way(config, way)).collect()
}

fn of_way(config: &Config, way: &Way) -> Option<Finding> {
    let interface = way.options.interface.as_deref()?;
    let to = way.remote.ip();
    if !to.is_ipv4() || filter(interface)? != STRICT || has_master(interface) {
        return None;
    }
    let from = source_toward(way.remote, &way.options)?;
    let route = Routing::open().ok()?.route(from, to).ok()??;
    let leads = match route.interface? == interface_index(interface).ok()? {
        false => "leads over another interface".to_owned(),
        true => format!("will lead into the tunnel {}", captor(config, way, route)?),
    };
    let finding = Finding::problem(
        Cause::ReversePath,
        format!("path {}", way.path),
        format!(
            "strict reverse-path filtering drops what comes from {to} over {interface}, for the route to it {leads}"
        ),
        // The names of these settings have a dot for a slash, and the other way round.
        format!(
            "sysctl -w net.ipv4.conf.{}.rp_filter=2, and the same in /etc/sysctl.d",
            interface.replace('.', "/")
        ),
    );
    Some(finding.on(&way.peer, &way.path))
}

/// Whether another interface has this one, as a VRF: the kernel then looks in that one's routes, which are not asked for here.
fn has_master(interface: &str) -> bool {
    Path::new("/sys/class/net")
        .join(interface)
        .join("master")
        .exists()
}

/// The filter of an interface: the kernel takes the greater value of both.
fn filter(interface: &str) -> Option<u8> {
    let read = |name: &str| {
        let file = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        fs::read_to_string(file).ok()?.trim().parse::<u8>().ok()
    };
    Some(read("all")?.max(read(interface)?))
}

/// The configured tunnel whose route goes before this one to the path's remote.
fn captor<'c>(config: &'c Config, way: &Way, route: FoundRoute) -> Option<&'c str> {
    let to = way.remote.ip();
    let tunnels = config
        .tunnels
        .iter()
        .filter(|tunnel| tunnel.device.add_routes);
    let mut captors = tunnels.filter(|tunnel| {
        let mut networks = tunnel.device.networks.iter();
        // All addresses are routed in two halves.
        networks.any(|net| net.contains(&to) && net.prefix_len().max(1) > route.bits)
    });
    let captor = captors.next().filter(|_| route.is_main)?;
    Some(&captor.name)
}
