//! This gateway's end of a chain of LEOTP relays, as configured.

use std::{collections::BTreeMap, net::SocketAddr};

use starhaul_config::shared_secret;
use starhaul_endpoint::{Chain, ChainConfig, ChainNeighbour, ContentSecret, NeighbourKey};

use starhaul_net::PeerAddress;

use crate::{
    Error,
    config::{LeotpNeighbour, LeotpRule},
    target::Host,
};

/// Reads the keys and binds the socket.
pub(crate) fn bind(rule: &LeotpRule) -> Result<Chain, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Leotp(error.to_string());
    let secret = shared_secret(&rule.secret).map_err(|error| failed(&error))?;
    let (mut neighbours, mut secrets) = (Vec::new(), BTreeMap::new());
    for neighbour in &rule.neighbours {
        let key = shared_secret(&neighbour.key).map_err(|error| failed(&error))?;
        if let Some(other) = secrets.insert(key, &neighbour.name) {
            let (name, other) = (&neighbour.name, other);
            return Err(Error::Leotp(format!(
                "neighbour {name:?} has the key of {other:?}: each needs one of its own"
            )));
        }
        let address = address(neighbour, rule.listen);
        neighbours.push(ChainNeighbour {
            name: neighbour.name.clone(),
            key: NeighbourKey::new(&key),
            address: address.map_err(|error| failed(&error))?,
        });
    }
    let is_upstream = |neighbour: &LeotpNeighbour| rule.upstream.as_ref() == Some(&neighbour.name);
    let chain = Chain::bind(ChainConfig {
        listen: rule.listen,
        packet_bytes: rule.packet_bytes,
        secret: ContentSecret::new(&secret),
        upstream: rule.neighbours.iter().position(is_upstream),
        neighbours,
        accepts: true,
    });
    chain.map_err(|error| failed(&error))
}

/// A name is left to the chain, which looks it up until it has an address: the gateway does more than this.
fn address(neighbour: &LeotpNeighbour, local: SocketAddr) -> Result<Option<PeerAddress>, String> {
    let Some(target) = &neighbour.address else {
        return Ok(None);
    };
    match target.host {
        Host::Ip(ip) if ip.is_ipv4() != local.is_ipv4() => Err(format!(
            "neighbour {:?}: {target} has another IP version than {local}, where [leotp] listens",
            neighbour.name
        )),
        Host::Ip(ip) => Ok(Some(SocketAddr::new(ip, target.port).into())),
        Host::Name(_) => Ok(Some(PeerAddress::Named(target.to_string()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_neighbours_with_one_key_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["secret", "a.key", "b.key"] {
            std::fs::write(file(name), "0123456789abcdef").unwrap();
        }
        let neighbour = |name: &str| LeotpNeighbour {
            name: name.into(),
            address: None,
            key: file(&format!("{name}.key")),
        };
        let rule = LeotpRule {
            listen: ([127, 0, 0, 1], 0).into(),
            packet_bytes: None,
            secret: file("secret"),
            upstream: None,
            neighbours: vec![neighbour("a"), neighbour("b")],
        };
        let error = bind(&rule).map(drop).unwrap_err().to_string();
        assert!(error.contains("\"b\" has the key of \"a\""), "{error}");
    }
}
