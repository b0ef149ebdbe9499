//! The destination of a flow on the far side: a host, which may be a name that only the far side can resolve, and a port.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A host as an address or as a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address; IPv4 addresses mapped into IPv6 are kept as IPv4.
    Ip(IpAddr),
    /// A name of at most 253 bytes in lower case.
    Name(String),
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Address or name.
    pub host: Host,
    /// UDP or TCP port; 0 only inside SOCKS requests that do not know it.
    pub port: u16,
}

/// The text is not a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not host:port, for example 192.0.2.1:5000, [2001:db8::1]:5000 or example.org:5000"
)]
pub struct ParseTargetError(String);

impl Host {
    /// A host from a name or the text of an address. `None` if it can be neither: names are 1 to 253 letters, digits,
    /// `-`, `_` and dots (RFC 1123 §2.1, and underscores, which are met in practice).
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Some(Self::from(ip));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let good = (1..=253).contains(&name.len())
            && name.split('.').all(|label| {
                (1..=63).contains(&label.len())
                    && label
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            })
            // What looks like an address but is none must not reach a resolver, which may read 127.1 as one.
            && !name
                .rsplit('.')
                .next()
                .is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
        good.then(|| Self::Name(name.to_ascii_lowercase()))
    }
}

impl From<IpAddr> for Host {
    fn from(ip: IpAddr) -> Self {
        Self::Ip(ip.to_canonical())
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: address.ip().into(),
            port: address.port(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}

impl FromStr for Target {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseTargetError(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let port: u16 = Some(port)
            .filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|port| port.parse().ok())
            .ok_or_else(error)?;
        let host = if let Some(inside) = host.strip_prefix('[') {
            let inside = inside.strip_suffix(']').ok_or_else(error)?;
            Host::from(IpAddr::V6(inside.parse::<Ipv6Addr>().map_err(|_| error())?))
        } else {
            Host::parse(host)
                .filter(|host| !matches!(host, Host::Ip(IpAddr::V6(_))))
                .ok_or_else(error)?
        };
        if port == 0 {
            return Err(error());
        }
        Ok(Self { host, port })
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_addresses_or_names_with_a_port() {
        for (text, shown) in [
            ("192.0.2.1:5000", "192.0.2.1:5000"),
            ("[2001:db8::1]:443", "[2001:db8::1]:443"),
            ("[::ffff:192.0.2.1]:443", "192.0.2.1:443"),
            ("Example.ORG.:80", "example.org:80"),
            ("_sip.example.org:5060", "_sip.example.org:5060"),
            ("localhost:1", "localhost:1"),
        ] {
            let target: Target = text
                .parse()
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(target.to_string(), shown);
        }
    }

    #[test]
    fn what_a_resolver_might_misread_is_refused() {
        for text in [
            "",
            ":80",
            "host",
            "host:",
            "host:0",
            "host:65536",
            "::1:80",
            "[::1:80",
            "[host]:80",
            "127.1:80",
            "0x7f.1:80",
            "a b:80",
            "-:x",
            "a..b:80",
            "1.2.3.4.5:80",
            "host:+1",
        ] {
            let parsed = text.parse::<Target>();
            assert!(parsed.is_err(), "{text:?} was read as {parsed:?}");
        }
    }
}
