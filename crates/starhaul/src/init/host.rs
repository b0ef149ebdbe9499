//! The network interfaces of this host by which the other side may be reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};

use starhaul_gateway::{Host, Target};
use starhaul_net::{BindOptions, Routing, interface_index, source_toward};

/// The interfaces that are up, carry, and have an address of the remote's kind and a route to it, without loopback: no bridges of
/// containers, and no tunnels that lead elsewhere.
pub(super) fn interfaces(remote: &Target) -> Vec<String> {
    // This process's view, in whatever namespace it is.
    let listed = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let names = listed.lines().filter_map(|line| line.split_once(':'));
    let remote = example(remote);
    names
        .map(|(name, _)| name.trim())
        .filter(|name| *name != "lo" && is_up(name) && has_way(name, remote))
        .map(str::to_owned)
        .collect()
}

/// An address of the remote's kind; a name that cannot be looked up now counts as IPv4.
fn example(remote: &Target) -> SocketAddr {
    let ip = match &remote.host {
        Host::Ip(ip) => *ip,
        Host::Name(name) => {
            let found = (name.as_str(), remote.port).to_socket_addrs();
            let found = found.ok().and_then(|mut found| found.next());
            found.map_or(IpAddr::from(Ipv4Addr::new(192, 0, 2, 1)), |found| {
                found.ip()
            })
        }
    };
    SocketAddr::new(ip, remote.port)
}

fn is_up(name: &str) -> bool {
    let state = interface_index(name).and_then(|index| Routing::open()?.interface(index));
    state.is_ok_and(|state| state.is_up && state.has_carrier)
}

fn has_way(name: &str, remote: SocketAddr) -> bool {
    let any = match remote {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let options = BindOptions {
        interface: Some(name.to_owned()),
        ..BindOptions::new(SocketAddr::new(any, 0))
    };
    let source = source_toward(remote, &options).filter(|source| !source.is_unspecified());
    source.is_some_and(|source| {
        let index = interface_index(name);
        let route = index.and_then(|index| Routing::open()?.has_route(index, source, remote.ip()));
        // A kernel that cannot tell hides no interface.
        route.unwrap_or(true)
    })
}
