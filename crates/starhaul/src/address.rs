//! Addresses of other hosts, as typed.

use std::net::{SocketAddr, ToSocketAddrs as _};

use crate::output::Usage;

/// The address of `host` or `host:port`, given with `option`.
///
/// # Errors
/// [`Usage`]: it is none, or the name has no address.
pub(crate) fn resolve(option: &str, text: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let found = text
        .to_socket_addrs()
        .or_else(|_| (text, port).to_socket_addrs());
    let mut found = found.map_err(|error| {
        Usage(format!(
            "{option} {text}: {error}; write it as host or host:port"
        ))
    })?;
    let first = found.next();
    first.ok_or_else(|| Usage(format!("{option} {text} has no address")).into())
}
