//! This gateway's end of a chain of LEOTP relays, as configured.

use std::net::SocketAddr;

use starhaul_endpoint::{Chain, ChainConfig, ChainNeighbour, ContentSecret, NeighbourKey};
use starhaul_net::PeerAddress;

use crate::{
    Error,
    config::{LeotpNeighbour, LeotpRule},
    target::{Host, Target},
};

/// Reads the keys and binds the socket.
pub(crate) fn bind(rule: &LeotpRule) -> Result<Chain, Error> {
    let (secret, keys) = rule.load_keys()?;
    let neighbours = rule.neighbours.iter().zip(&keys).zip(rule.load_signals()?);
    let neighbours = neighbours.map(|((neighbour, key), signals)| ChainNeighbour {
        name: neighbour.name.clone(),
        key: NeighbourKey::new(key),
        address: neighbour.address.as_ref().map(address),
        signals,
    });
    let is_upstream = |neighbour: &LeotpNeighbour| rule.upstream.as_ref() == Some(&neighbour.name);
    let chain = Chain::bind(ChainConfig {
        listen: rule.listen,
        packet_bytes: rule.packet_bytes,
        rate_rule: rule.rate_rule,
        secret: ContentSecret::new(&secret),
        window_bytes: rule.window,
        memory_bytes: rule.memory,
        upstream: rule.neighbours.iter().position(is_upstream),
        neighbours: neighbours.collect(),
        accepts: true,
    });
    chain.map_err(|error| Error::Leotp(error.to_string()))
}

/// A name is left to the chain, which looks it up until it has an address: the gateway does more than this.
fn address(target: &Target) -> PeerAddress {
    match target.host {
        Host::Ip(ip) => SocketAddr::new(ip, target.port).into(),
        Host::Name(_) => PeerAddress::Named(target.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use starhaul_endpoint::RateRule;
    use starhaul_net::leotp::HopSignals;

    use super::*;

    #[test]
    fn keys_that_cannot_be_used_are_the_configurations_fault() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["secret", "a.key", "b.key"] {
            std::fs::write(file(name), "0123456789abcdef").unwrap();
        }
        let neighbour = |name: &str| LeotpNeighbour {
            name: name.into(),
            address: None,
            key: file(&format!("{name}.key")),
            signals: HopSignals::default(),
        };
        let mut rule = LeotpRule {
            listen: ([127, 0, 0, 1], 0).into(),
            packet_bytes: None,
            rate_rule: RateRule::default(),
            secret: file("secret"),
            window: 1 << 20,
            memory: 64 << 20,
            upstream: None,
            neighbours: vec![neighbour("a"), neighbour("b")],
        };
        let refused = |rule: &LeotpRule, expected: &str| {
            let error = bind(rule).map(drop).unwrap_err();
            // Such a gateway is not to be started again as it is.
            assert!(error.is_configuration(), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        };
        refused(&rule, "\"b\" has the key of \"a\"");
        std::fs::write(file("b.key"), "short").unwrap();
        refused(&rule, "key of neighbour \"b\": ");
        std::fs::remove_file(file("secret")).unwrap();
        refused(&rule, "[leotp]: secret: ");
        for name in ["secret", "b.key"] {
            std::fs::write(file(name), format!("0123456789abcdef {name}")).unwrap();
        }
        rule.neighbours[1].signals.schedule = Some(file("b.times"));
        refused(&rule, "[leotp]: schedule of neighbour \"b\": cannot read ");
        std::fs::write(file("b.times"), "1767225612\n").unwrap();
        // The chain gets the times and the file, which it reads again.
        let signals = rule.load_signals().unwrap().remove(1);
        assert_eq!(signals.times.iter().count(), 1);
        assert_eq!(signals.schedule, Some(file("b.times")));
        drop(bind(&rule).unwrap());
    }
}
