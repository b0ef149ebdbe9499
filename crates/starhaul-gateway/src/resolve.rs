//! From a requested target to the addresses that may be reached.

use std::{io, net::SocketAddr, time::Duration};

use crate::{
    egress_policy::EgressPolicy,
    socks5::Reply,
    target::{Host, Target},
};

/// A resolver that takes longer is as good as none.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// All addresses of a target; a name is asked from the system's resolver.
pub(crate) async fn addresses(target: &Target) -> io::Result<Vec<SocketAddr>> {
    let name = match &target.host {
        Host::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, target.port)]),
        Host::Name(name) => (name.as_str(), target.port),
    };
    let found = tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host(name))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    Ok(found.collect())
}

/// The addresses of a target that the policy lets peers reach; never none.
pub(crate) async fn permitted(
    policy: &EgressPolicy,
    target: &Target,
) -> Result<Vec<SocketAddr>, Reply> {
    let mut found = addresses(target)
        .await
        .map_err(|_| Reply::HostUnreachable)?;
    if target.port == 0 || found.is_empty() {
        return Err(Reply::HostUnreachable);
    }
    found.retain(|address| policy.permits(&target.host, address.ip(), address.port()));
    if found.is_empty() {
        return Err(Reply::NotAllowed);
    }
    Ok(found)
}
