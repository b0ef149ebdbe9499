//! Addresses of other hosts, as typed.

use std::net::{SocketAddr, ToSocketAddrs as _};

use crate::output::Usage;

/// The addresses of `host` or `host:port`, given with `option`: at least one.
///
/// # Errors
/// [`Usage`]: it is none, or the name has no address.
pub(crate) fn resolve_all(option: &str, text: &str, port: u16) -> anyhow::Result<Vec<SocketAddr>> {
    let found = text
        .to_socket_addrs()
        .or_else(|_| (text, port).to_socket_addrs());
    let found = found.map_err(|error| {
        Usage(format!(
            "{option} {text}: {error}; write it as host or host:port"
        ))
    })?;
    let found = Vec::from_iter(found);
    match found.is_empty() {
        true => Err(Usage(format!("{option} {text} has no address")).into()),
        false => Ok(found),
    }
}
