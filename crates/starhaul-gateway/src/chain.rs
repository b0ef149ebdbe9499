//! This gateway's end of a chain of LEOTP relays, as configured.

use std::net::SocketAddr;

use starhaul_config::shared_secret;
use starhaul_endpoint::{Chain, ChainConfig, ChainNeighbour, ContentSecret, NeighbourKey};

use crate::{
    Error,
    config::{LeotpNeighbour, LeotpRule},
    resolver::Resolver,
    target::Host,
};

/// Addresses of a neighbour's name at most.
const MOST_ADDRESSES: usize = 16;

/// Reads the keys, resolves the names and binds the socket.
pub(crate) async fn bind(rule: &LeotpRule, resolver: &Resolver) -> Result<Chain, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Leotp(error.to_string());
    let secret = shared_secret(&rule.secret).map_err(|error| failed(&error))?;
    let mut neighbours = Vec::new();
    for neighbour in &rule.neighbours {
        let key = shared_secret(&neighbour.key).map_err(|error| failed(&error))?;
        let address = address(neighbour, rule.listen, resolver).await;
        neighbours.push(ChainNeighbour {
            name: neighbour.name.clone(),
            key: NeighbourKey::new(&key),
            address: address.map_err(|error| failed(&error))?,
        });
    }
    let is_upstream = |neighbour: &LeotpNeighbour| rule.upstream.as_ref() == Some(&neighbour.name);
    let chain = Chain::bind(ChainConfig {
        listen: rule.listen,
        secret: ContentSecret::new(&secret),
        upstream: rule.neighbours.iter().position(is_upstream),
        neighbours,
        accepts: true,
    });
    chain.map_err(|error| failed(&error))
}

async fn address(
    neighbour: &LeotpNeighbour,
    local: SocketAddr,
    resolver: &Resolver,
) -> Result<Option<SocketAddr>, String> {
    let Some(target) = &neighbour.address else {
        return Ok(None);
    };
    let found = match &target.host {
        Host::Ip(ip) => vec![SocketAddr::new(*ip, target.port)],
        Host::Name(name) => {
            let found = resolver.addresses(name, target.port, MOST_ADDRESSES).await;
            found.map_err(|error| format!("neighbour {:?}: {target}: {error}", neighbour.name))?
        }
    };
    let mut found = found.into_iter();
    let fitting = found.find(|address| address.is_ipv4() == local.is_ipv4());
    fitting.map(Some).ok_or_else(|| {
        format!(
            "neighbour {:?}: {target} has no address of the IP version of {local}",
            neighbour.name
        )
    })
}
