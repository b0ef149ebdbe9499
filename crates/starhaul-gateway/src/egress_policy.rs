//! What a peer may reach through this gateway. Nothing, unless the configuration allows it.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
    str::FromStr,
    sync::Arc,
};

use ipnet::IpNet;
use parking_lot::RwLock;

use crate::target::Host;

/// The `[egress]` table: a destination is reachable when a rule of `allow` matches and none of `deny` does.
///
/// A requested name is checked twice: before it is looked up, whether a rule permits the lookup, and then for each of its
/// addresses. Unspecified, multicast and broadcast addresses are reachable by no rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// Rules that allow destinations.
    pub allow: Vec<EgressRule>,
    /// Rules that exclude destinations again.
    pub deny: Vec<EgressRule>,
    /// Networks in whose name peers may open TCP connections: their clients, whose addresses are kept.
    pub clients: Vec<IpNet>,
    /// Bounds on what peers may use at once.
    pub limits: EgressLimits,
}

/// Bounds on what peers may use at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EgressLimits {
    /// Greatest number of streams of one session.
    pub max_streams: usize,
    /// Greatest number of lookups of names, of all peers together.
    pub max_lookups: usize,
    /// Greatest number of targets of one UDP ASSOCIATE that are kept, and from which replies are taken.
    pub max_targets: usize,
}

impl EgressLimits {
    /// Where the configuration says nothing.
    pub const DEFAULT: Self = Self {
        max_streams: 4096,
        max_lookups: 256,
        max_targets: 1024,
    };
}

impl Default for EgressLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Hosts and ports, written `10.0.0.0/8:*`, `[2001:db8::/32]:443`, `example.org:80-90`, `*.example.org:443`, `*:53`, or
/// `nas.example.org=10.0.0.0/8:445`: a name where it leads into a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressRule {
    hosts: Hosts,
    ports: RangeInclusive<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    Any,
    /// Addresses that were asked for as such; a name only where its resolver is this host (`localhost`).
    Network(IpNet),
    /// Names, where they lead to public addresses.
    Names(Names),
    /// Names, where they lead into a network; `None` stands for every address.
    NamesWithin(Names, Option<IpNet>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    Any,
    One(String),
    /// All names below this one, which starts with a dot.
    Below(String),
}

/// The text is not an egress rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a rule: write hosts and ports, for example 10.0.0.0/8:*, [2001:db8::/32]:443, *.example.org:80-90, nas.example.org=10.0.0.0/8:445 or *:*"
)]
pub struct ParseEgressRuleError(String);

/// The policy that holds now; flows keep the one under which they began.
#[derive(Debug, Default)]
pub(crate) struct CurrentPolicy(RwLock<Arc<EgressPolicy>>);

impl CurrentPolicy {
    pub(crate) fn get(&self) -> Arc<EgressPolicy> {
        self.0.read().clone()
    }

    pub(crate) fn set(&self, policy: EgressPolicy) {
        *self.0.write() = Arc::new(policy);
    }
}

impl EgressPolicy {
    /// Whether the name may be asked from the resolver for a peer that wants this port. Only a rule that names it allows
    /// that, or one for all names: otherwise a peer could learn which names there are.
    pub fn may_look_up(&self, name: &str, port: u16) -> bool {
        let by_name = |rule: &&EgressRule| rule.ports.contains(&port);
        let allowed = self.allow.iter().filter(by_name);
        let denied = self.deny.iter().filter(by_name);
        allowed.into_iter().any(|rule| rule.hosts.opens(name))
            && !denied.into_iter().any(|rule| rule.hosts.closes(name))
    }

    /// Whether a peer may open TCP connections from this address, in a client's name.
    pub fn lends(&self, client: IpAddr) -> bool {
        self.clients.iter().any(|network| network.contains(&client))
    }

    /// Whether rules for all addresses open what listens on this host for itself alone, and no rule says that this is meant.
    pub(crate) fn opens_loopback_unasked(&self) -> bool {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let is_for_all = |rule: &&EgressRule| match &rule.hosts {
            Hosts::Any => true,
            Hosts::Network(network) => network.prefix_len() == 0,
            Hosts::Names(_) | Hosts::NamesWithin(..) => false,
        };
        let is_meant = |rule: &EgressRule| match &rule.hosts {
            Hosts::Network(network) => network.prefix_len() > 0 && network.contains(&loopback),
            _ => false,
        };
        let is_open = |port| self.permits(&Host::Ip(loopback), loopback, port);
        let mut for_all = self.allow.iter().filter(is_for_all);
        !self.allow.iter().any(is_meant)
            && for_all.any(|rule| is_open(*rule.ports.start()) || is_open(*rule.ports.end()))
    }

    /// Whether `ip`, to which the requested `host` was resolved, may be reached on `port`.
    pub fn permits(&self, host: &Host, ip: IpAddr, port: u16) -> bool {
        let ip = ip.to_canonical();
        let embedded = embedded(ip);
        let scopes = [Some(ip), embedded].into_iter().flatten().map(Scope::of);
        let Some(scope) = scopes.max().filter(|scope| *scope < Scope::Never) else {
            return false;
        };
        let applies = |rule: &&EgressRule| rule.ports.contains(&port);
        let allowed = |rule: &EgressRule| rule.hosts.allows(host, ip, scope);
        let denied = |rule: &EgressRule| {
            rule.hosts.denies(host, ip) || embedded.is_some_and(|ip| rule.hosts.denies(host, ip))
        };
        self.allow.iter().filter(applies).any(allowed)
            && !self.deny.iter().filter(applies).any(denied)
    }
}

impl Hosts {
    /// Whether an `allow` rule lets a name be looked up.
    fn opens(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Network(_) => false,
            Self::Names(names) | Self::NamesWithin(names, _) => names.contain(name),
        }
    }

    /// Whether a `deny` rule forbids a name whatever it leads to.
    fn closes(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Names(names) | Self::NamesWithin(names, None) => names.contain(name),
            Self::Network(_) | Self::NamesWithin(_, Some(_)) => false,
        }
    }

    /// Whether an `allow` rule opens an address of a host.
    fn allows(&self, host: &Host, ip: IpAddr, scope: Scope) -> bool {
        match (self, host) {
            (Self::Any, _) => true,
            (Self::Network(network), Host::Ip(_)) => network.contains(&ip),
            (Self::Network(network), Host::Name(asked)) => {
                is_localhost(asked) && network.contains(&ip)
            }
            (Self::Names(names), Host::Name(asked)) => {
                // This name stands for loopback only.
                let meant = scope == Scope::Public || is_localhost(asked) && *names != Names::Any;
                names.contain(asked) && meant
            }
            (Self::NamesWithin(names, network), Host::Name(asked)) => {
                names.contain(asked) && network.is_none_or(|network| network.contains(&ip))
            }
            (Self::Names(_) | Self::NamesWithin(..), Host::Ip(_)) => false,
        }
    }

    /// Whether a `deny` rule closes an address of a host.
    fn denies(&self, host: &Host, ip: IpAddr) -> bool {
        match (self, host) {
            (Self::Any, _) => true,
            (Self::Network(network), _) => network.contains(&ip),
            (Self::Names(names), Host::Name(asked)) => names.contain(asked),
            (Self::NamesWithin(names, network), Host::Name(asked)) => {
                names.contain(asked) && network.is_none_or(|network| network.contains(&ip))
            }
            (Self::Names(_) | Self::NamesWithin(..), Host::Ip(_)) => false,
        }
    }
}

impl Names {
    fn contain(&self, asked: &str) -> bool {
        match self {
            Self::Any => true,
            Self::One(name) => name == asked,
            Self::Below(suffix) => asked.ends_with(suffix),
        }
    }
}

/// How far an address reaches; a later one needs more care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Public,
    /// Loopback, link-local, private, shared (RFC 6890 and RFC 4193): a name leads there only where a rule says so.
    Local,
    /// Unspecified, multicast, broadcast: no single host, or, for 0.0.0.0 and ::, this one by another name.
    Never,
}

impl Scope {
    fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Self::of_v4(ip),
            IpAddr::V6(ip) if ip.is_unspecified() || ip.is_multicast() => Self::Never,
            IpAddr::V6(ip) => {
                let [first, ..] = ip.segments();
                // The last are site-local addresses (RFC 3879), which old networks still have.
                let local = ip.is_loopback()
                    || ip.is_unicast_link_local()
                    || ip.is_unique_local()
                    || first & 0xffc0 == 0xfec0;
                if local { Self::Local } else { Self::Public }
            }
        }
    }

    fn of_v4(ip: Ipv4Addr) -> Self {
        let [a, b, c, _] = ip.octets();
        match (a, b, c) {
            (0 | 224..=239, ..) => Self::Never,
            _ if ip.is_broadcast() => Self::Never,
            (127 | 10 | 240..=255, ..)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0)
            | (192, 168, _)
            | (198, 18 | 19, _) => Self::Local,
            _ => Self::Public,
        }
    }
}

/// The IPv4 address to which a translator or tunnel takes an IPv6 address: NAT64 (RFC 6052, RFC 8215), 6to4 (RFC 3056),
/// IPv4-compatible (RFC 4291 §2.5.5.1).
fn embedded(ip: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(ip) = ip else {
        return None;
    };
    let v4 = |high: u16, low: u16| {
        let bits = u32::from(high) << 16 | u32::from(low);
        Some(IpAddr::V4(Ipv4Addr::from(bits)))
    };
    match ip.segments() {
        [0x64, 0xff9b, 0 | 1, .., high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        [0, 0, 0, 0, 0, 0, high, low] if ip != Ipv6Addr::LOCALHOST => v4(high, low),
        _ => None,
    }
}

/// Names of this host, which are not looked up (RFC 6761 §6.3).
pub(crate) fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
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
            Hosts::Names(names) => write!(f, "{names}")?,
            Hosts::NamesWithin(names, None) => write!(f, "{names}=*")?,
            Hosts::NamesWithin(names, Some(IpNet::V4(network))) => write!(f, "{names}={network}")?,
            Hosts::NamesWithin(names, Some(IpNet::V6(network))) => {
                write!(f, "{names}=[{network}]")?;
            }
        }
        match (self.ports.start(), self.ports.end()) {
            (0, &u16::MAX) => f.write_str(":*"),
            (first, last) if first == last => write!(f, ":{first}"),
            (first, last) => write!(f, ":{first}-{last}"),
        }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::One(name) => f.write_str(name),
            Self::Below(suffix) => write!(f, "*{suffix}"),
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
    let hosts = match hosts.split_once('=') {
        Some((hosts, "*")) => Hosts::NamesWithin(names(hosts)?, None),
        Some((hosts, within)) => Hosts::NamesWithin(names(hosts)?, Some(bracketed(within)?)),
        None if hosts == "*" => Hosts::Any,
        None => bracketed(hosts)
            .map(Hosts::Network)
            .or_else(|| names(hosts).map(Hosts::Names))?,
    };
    (!ports.is_empty()).then_some(EgressRule { hosts, ports })
}

fn names(text: &str) -> Option<Names> {
    let name = |text: &str| match Host::parse(text)? {
        Host::Name(name) => Some(name),
        Host::Ip(_) => None,
    };
    match text.strip_prefix('*') {
        Some("") => Some(Names::Any),
        Some(below) => name(below.strip_prefix('.')?).map(|name| Names::Below(format!(".{name}"))),
        None => name(text).map(Names::One),
    }
}

/// A network: IPv6 in brackets, IPv4 without. IPv4 addresses in IPv6 notation are matched as what they are, so that no rule in
/// that notation would ever hold.
fn bracketed(text: &str) -> Option<IpNet> {
    let is_ipv6 = |net: &IpNet| match net {
        IpNet::V6(net) => net.prefix_len() < 96 || net.network().to_ipv4_mapped().is_none(),
        IpNet::V4(_) => false,
    };
    match text.strip_prefix('[') {
        Some(inside) => network(inside.strip_suffix(']')?).filter(is_ipv6),
        None => network(text).filter(|net| matches!(net, IpNet::V4(_))),
    }
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
            ..EgressPolicy::default()
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
    fn who_allows_all_addresses_is_told_of_loopback_unless_a_rule_names_it() {
        for (allow, deny, told) in [
            (&["*:*"] as &[&str], &[] as &[&str], true),
            (&["10.0.0.0/8:*", "0.0.0.0/0:443"], &[], true),
            (&["*:*"], &["10.0.0.0/8:*"], true),
            (&["*:*"], &["127.0.0.0/8:*"], false),
            (&["*:*", "127.0.0.0/8:5000"], &[], false),
            (&["[::/0]:*"], &[], false),
            (&["*.example.org:*", "10.0.0.0/8:*"], &[], false),
            (&[], &[], false),
        ] {
            let policy = policy(allow, deny);
            assert_eq!(policy.opens_loopback_unasked(), told, "{allow:?} {deny:?}");
        }
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
            // A rule for a network allows no names: a peer that may look names up learns which exist.
            ("inside.test", "10.2.3.4", 80, false),
            ("localhost", "10.2.3.4", 80, true),
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
    fn no_rule_opens_what_is_no_single_host() {
        let documented = policy(&["*:*"], &["127.0.0.0/8:*", "[::1]:*"]);
        let plain = policy(&["*:*", "0.0.0.0/0:*", "[::/0]:*", "any.test=*:*"], &[]);
        for ip in [
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "::ffff:0.0.0.0",
            "224.0.0.1",
            "239.1.2.3",
            "ff02::1",
            "255.255.255.255",
            "64:ff9b::",
            "2002:e000:1::",
        ] {
            for policy in [&documented, &plain] {
                assert!(!permits(policy, ip, ip, 80), "{ip}");
                assert!(!permits(policy, "any.test", ip, 80), "a name to {ip}");
            }
        }
        // Nor does an IPv6 address that a translator takes to a denied one.
        assert!(permits(&plain, "64:ff9b::7f00:1", "64:ff9b::7f00:1", 80));
        assert!(!permits(
            &documented,
            "64:ff9b::7f00:1",
            "64:ff9b::7f00:1",
            80
        ));
    }

    #[test]
    fn rules_by_name_lead_into_local_networks_only_where_they_say_so() {
        let plain = policy(&["*.example.org:*", "nas.test:445"], &[]);
        let said = policy(
            &[
                "nas.test=10.0.0.0/8:445",
                "*.lan.test=[fd00::/8]:*",
                "printer.test=*:631",
                "*=192.168.7.0/24:80",
            ],
            &["forbidden.test:*"],
        );
        for ip in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.7.1",
            "169.254.169.254",
            "100.64.0.1",
            "::1",
            "fe80::1",
            "fd00::1",
            "fec0::1",
            "64:ff9b::a00:1",
            "::ffff:192.168.7.1",
        ] {
            assert!(!permits(&plain, "www.example.org", ip, 445), "{ip}");
            assert!(!permits(&plain, "nas.test", ip, 445), "{ip}");
            assert!(permits(&said, "printer.test", ip, 631), "{ip}");
        }
        assert!(permits(&plain, "nas.test", "198.51.100.1", 445));
        assert!(permits(&plain, "www.example.org", "2001:db8::1", 445));
        for (host, ip, port, expected) in [
            ("nas.test", "10.1.2.3", 445, true),
            ("nas.test", "11.1.2.3", 445, false),
            ("10.1.2.3", "10.1.2.3", 445, false),
            ("a.lan.test", "fd00::1", 9, true),
            ("a.lan.test", "fc00::1", 9, false),
            ("any.test", "192.168.7.9", 80, true),
            ("forbidden.test", "192.168.7.9", 80, false),
        ] {
            assert_eq!(permits(&said, host, ip, port), expected, "{host} {ip}");
        }
        // The one name that can mean nothing else.
        let localhost = policy(&["localhost:22"], &[]);
        assert!(permits(&localhost, "localhost", "127.0.0.1", 22));
        assert!(!permits(&localhost, "127.0.0.1", "127.0.0.1", 22));
    }

    #[test]
    fn only_names_that_a_rule_names_are_looked_up() {
        let policy = policy(
            &["10.0.0.0/8:*", "*.example.org:443", "*=10.0.0.0/8:80"],
            &["secret.example.org:*", "192.168.0.0/16:*"],
        );
        for (name, port, expected) in [
            ("www.example.org", 443, true),
            ("www.example.org", 444, false),
            ("example.org", 443, false),
            ("secret.example.org", 443, false),
            ("other.test", 443, false),
            ("other.test", 80, true),
        ] {
            assert_eq!(policy.may_look_up(name, port), expected, "{name}:{port}");
        }
        assert!(!EgressPolicy::default().may_look_up("example.org", 80));
    }

    #[test]
    fn rules_show_as_they_are_written_and_nonsense_is_refused() {
        for text in [
            "10.0.0.0/8:*",
            "[2001:db8::/32]:443",
            "*.example.org:80-90",
            "a.b:1",
            "*:*",
            "nas.test=10.0.0.0/8:445",
            "*.lan.test=[fd00::/8]:*",
            "*=*:80",
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
            "10.0.0.1=10.0.0.0/8:1",
            "a.b=c.d:1",
            "a.b=:1",
            "a.b=fd00::/8:1",
            "[::ffff:10.0.0.0/104]:*",
            "[::ffff:10.0.0.1]:22",
        ] {
            assert!(text.parse::<EgressRule>().is_err(), "{text:?} was accepted");
        }
    }
}
