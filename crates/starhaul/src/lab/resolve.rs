//! Where a server is.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use anyhow::Context as _;

/// A host without a port has this one.
pub(super) fn resolve(server: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let with_port = server.parse::<IpAddr>().is_err() && server.contains(':');
    let found = match with_port {
        true => server.to_socket_addrs(),
        false => (server, port).to_socket_addrs(),
    };
    found
        .ok()
        .and_then(|mut addresses| addresses.next())
        .with_context(|| format!("no address is known for {server}: write host or host:port"))
}
