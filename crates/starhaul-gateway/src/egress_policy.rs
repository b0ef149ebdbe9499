//! What a peer may reach through this gateway. Nothing, unless the configuration allows it.

use std::{
    fmt,
    net::IpAddr,
    ops::RangeInclusive,
    str::FromStr,
    sync::{Arc, PoisonError, RwLock},
};

use ipnet::IpNet;

use crate::target::Host;

/// The `[egress]` table: a destination is reachable when a rule of `allow` matches and none of `deny` does.
///
/// Rules on addresses are asked after a name was resolved, for each address, so that a name cannot lead to an address
/// that is denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// Rules that open.
    pub allow: Vec<EgressRule>,
    /// Rules that close again.
    pub deny: Vec<EgressRule>,
}

/// Hosts and ports, written `10.0.0.0/8:*`, `[2001:db8::/32]:443`, `example.org:80-90`, `*.example.org:443`, `*:53`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressRule {
    hosts: Hosts,
    ports: RangeInclusive<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    Any,
    Network(IpNet),
    Name(String),
    /// All names below this one, which starts with a dot.
    Below(String),
}

/// A text is not an egress rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a rule: write hosts and ports, for example 10.0.0.0/8:*, [2001:db8::/32]:443, *.example.org:80-90 or *:*"
)]
pub struct ParseEgressRuleError(String);

/// The policy that holds now; flows keep the one under which they began.
#[derive(Debug, Default)]
pub(crate) struct CurrentPolicy(RwLock<Arc<EgressPolicy>>);

impl CurrentPolicy {
    pub(crate) fn get(&self) -> Arc<EgressPolicy> {
        let policy = self.0.read().unwrap_or_else(PoisonError::into_inner);
        policy.clone()
    }

    pub(crate) fn set(&self, policy: EgressPolicy) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }
}

impl EgressPolicy {
    /// Whether `ip`, to which the requested `host` was resolved, may be reached on `port`.
    pub fn permits(&self, host: &Host, ip: IpAddr, port: u16) -> bool {
        let ip = ip.to_canonical();
        let any = |rules: &[EgressRule]| rules.iter().any(|rule| rule.matches(host, ip, port));
        any(&self.allow) && !any(&self.deny)
    }
}

impl EgressRule {
    fn matches(&self, host: &Host, ip: IpAddr, port: u16) -> bool {
        self.ports.contains(&port)
            && match (&self.hosts, host) {
                (Hosts::Any, _) => true,
                (Hosts::Network(network), _) => network.contains(&ip),
                (Hosts::Name(name), Host::Name(asked)) => name == asked,
                (Hosts::Below(suffix), Host::Name(asked)) => asked.ends_with(suffix),
                (Hosts::Name(_) | Hosts::Below(_), Host::Ip(_)) => false,
            }
    }
}

impl FromStr for EgressRule {
    type Err = ParseEgressRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseEgressRuleError(text.to_owned()))
    }
}

impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::Any => f.write_str("*")?,
            Hosts::Network(IpNet::V4(network)) => write!(f, "{network}")?,
            Hosts::Network(IpNet::V6(network)) => write!(f, "[{network}]")?,
            Hosts::Name(name) => f.write_str(name)?,
            Hosts::Below(suffix) => write!(f, "*{suffix}")?,
        }
        match (self.ports.start(), self.ports.end()) {
            (0, &u16::MAX) => f.write_str(":*"),
            (first, last) if first == last => write!(f, ":{first}"),
            (first, last) => write!(f, ":{first}-{last}"),
        }
    }
}

fn parse(text: &str) -> Option<EgressRule> {
    let (hosts, ports) = text.rsplit_once(':')?;
    let ports = match ports.split_once('-') {
        _ if ports == "*" => 0..=u16::MAX,
        None => port(ports)?..=port(ports)?,
        Some((first, last)) => port(first)?..=port(last)?,
    };
    let hosts = if let Some(inside) = hosts.strip_prefix('[') {
        match network(inside.strip_suffix(']')?)? {
            IpNet::V4(_) => return None,
            v6 => Hosts::Network(v6),
        }
    } else if hosts == "*" {
        Hosts::Any
    } else if let Some(suffix) = hosts.strip_prefix('*') {
        match Host::parse(suffix.strip_prefix('.')?)? {
            Host::Name(name) => Hosts::Below(format!(".{name}")),
            Host::Ip(_) => return None,
        }
    } else if let Some(network @ IpNet::V4(_)) = network(hosts) {
        Hosts::Network(network)
    } else {
        match Host::parse(hosts)? {
            Host::Name(name) => Hosts::Name(name),
            Host::Ip(_) => return None,
        }
    };
    (!ports.is_empty()).then_some(EgressRule { hosts, ports })
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0)
}

fn network(text: &str) -> Option<IpNet> {
    text.parse()
        .ok()
        .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow: &[&str], deny: &[&str]) -> EgressPolicy {
        let rules = |texts: &[&str]| {
            let parsed = texts.iter().map(|text| text.parse::<EgressRule>());
            parsed.collect::<Result<_, _>>().unwrap()
        };
        EgressPolicy {
            allow: rules(allow),
            deny: rules(deny),
        }
    }

    fn permits(policy: &EgressPolicy, host: &str, ip: &str, port: u16) -> bool {
        policy.permits(&Host::parse(host).unwrap(), ip.parse().unwrap(), port)
    }

    #[test]
    fn nothing_is_reachable_by_default() {
        assert!(!permits(
            &EgressPolicy::default(),
            "127.0.0.1",
            "127.0.0.1",
            80
        ));
    }

    #[test]
    fn rules_match_networks_names_and_ports() {
        let policy = policy(
            &[
                "10.0.0.0/8:*",
                "[2001:db8::/32]:443",
                "*.example.org:80-90",
                "192.0.2.7:53",
            ],
            &["10.1.0.0/16:22"],
        );
        for (host, ip, port, expected) in [
            ("10.2.3.4", "10.2.3.4", 22, true),
            ("10.1.3.4", "10.1.3.4", 22, false),
            ("10.1.3.4", "10.1.3.4", 23, true),
            ("11.0.0.1", "11.0.0.1", 23, false),
            ("2001:db8::1", "2001:db8::1", 443, true),
            ("2001:db8::1", "2001:db8::1", 444, false),
            ("192.0.2.7", "192.0.2.7", 53, true),
            ("192.0.2.8", "192.0.2.8", 53, false),
            ("www.example.org", "198.51.100.1", 85, true),
            ("www.example.org", "198.51.100.1", 91, false),
            ("example.org", "198.51.100.1", 85, false),
            ("evilexample.org", "198.51.100.1", 85, false),
            // A name that resolves into an allowed network is as good as the address.
            ("inside.test", "10.2.3.4", 80, true),
            // Mapped addresses are the addresses they stand for.
            ("::ffff:10.1.0.1", "::ffff:10.1.0.1", 22, false),
        ] {
            assert_eq!(
                permits(&policy, host, ip, port),
                expected,
                "{host} {ip} {port}"
            );
        }
    }

    #[test]
    fn a_name_cannot_lead_to_a_denied_address() {
        let policy = policy(&["*:*"], &["127.0.0.0/8:*", "[::1]:*"]);
        assert!(permits(&policy, "example.org", "198.51.100.1", 80));
        assert!(!permits(&policy, "example.org", "127.0.0.1", 80));
        assert!(!permits(&policy, "example.org", "::ffff:127.0.0.1", 80));
        assert!(!permits(&policy, "example.org", "::1", 80));
    }

    #[test]
    fn rules_show_as_they_are_written_and_nonsense_is_refused() {
        for text in [
            "10.0.0.0/8:*",
            "[2001:db8::/32]:443",
            "*.example.org:80-90",
            "a.b:1",
            "*:*",
        ] {
            assert_eq!(text.parse::<EgressRule>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "*",
            "10.0.0.0/33:*",
            "10.0.0.0/8",
            "10.0.0.0/8:0",
            "a:90-80",
            "[10.0.0.0/8]:1",
            "2001:db8::/32:1",
            "*x.org:1",
            "*.:1",
            "*.10.0.0.1:1",
        ] {
            assert!(text.parse::<EgressRule>().is_err(), "{text:?} was accepted");
        }
    }
}
