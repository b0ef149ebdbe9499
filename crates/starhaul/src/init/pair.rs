//! Two gateways as answered, and their configurations.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use starhaul_gateway::{EgressRule, Host, Target};
use starhaul_quic::PublicKey;

/// A side's key in its folder, which can be handed to a service that may not read the key itself.
pub(super) const KEY: &str = "keys/gateway.key";

/// A gateway's configuration in its folder.
pub(super) const CONFIGURATION: &str = "gateway.toml";

/// Where the units of the package keep what outlives the gateway: their `StateDirectory`.
pub(super) const STATE: &str = "/var/lib/starhaul";

/// What both configurations are made of.
pub(super) struct Pair {
    /// Name of the side that opens the session.
    pub(super) here: String,
    /// Name of the side that accepts it.
    pub(super) there: String,
    pub(super) remote: Target,
    /// Addresses at which the accepting gateway listens.
    pub(super) listen: Vec<SocketAddr>,
    pub(super) paths: Vec<OnePath>,
    /// The key of the other side, if it has one already.
    pub(super) peer_key: Option<PublicKey>,
    pub(super) socks5: Option<SocketAddr>,
    /// What `here` may reach through `there`.
    pub(super) allow: Vec<EgressRule>,
    pub(super) metrics: Option<SocketAddr>,
    /// Both run by the units of the package.
    pub(super) by_units: bool,
}

/// A path over one of our interfaces.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OnePath {
    name: String,
    interface: String,
    cost: f64,
    is_leo: bool,
}

/// An address, or `none`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Optional(pub(super) Option<SocketAddr>);

impl FromStr for Optional {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let address = text.parse();
        address.map(|address| Self(Some(address))).map_err(|_| {
            format!(
                "{text:?} is neither none nor an address and a port, for example 127.0.0.1:9464"
            )
        })
    }
}

impl FromStr for OnePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let (name, interface) = parts
            .next()
            .and_then(|first| first.split_once('='))
            .ok_or_else(|| format!("{text:?} is not NAME=INTERFACE, for example leo=eth0"))?;
        let mut path = Self {
            name: self::name(name)?,
            interface: interface.to_owned(),
            cost: 0.0,
            is_leo: false,
        };
        for part in parts {
            match part.split_once('=') {
                Some(("cost", cost)) => {
                    let cost = cost.parse().ok().filter(|cost: &f64| *cost >= 0.0);
                    path.cost = cost.ok_or_else(|| format!("{part}: write a number from 0"))?;
                }
                Some(("link", "leo")) => path.is_leo = true,
                Some(("link", "other")) => path.is_leo = false,
                _ => return Err(format!("{part:?} is neither cost=N nor link=leo")),
            }
        }
        Ok(path)
    }
}

/// A name for a side or a path, which is the name of a folder too.
pub(super) fn name(text: &str) -> Result<String, String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = (1..=64).contains(&text.len()) && text.bytes().all(good);
    if !is_name || text.starts_with('.') {
        return Err(format!(
            "{text:?} is no name here: write 1 to 64 letters, digits, '-', '_' and '.', with no '.' first"
        ));
    }
    // The folder of the other side lies beside this side's files.
    if text == "keys" || text.starts_with(CONFIGURATION) {
        return Err(format!(
            "{text:?} is no name here: a file of this side has it"
        ));
    }
    Ok(text.to_owned())
}

/// A path over each interface, the later ones dearer.
pub(super) fn default_paths(interfaces: &[String]) -> String {
    let paths = interfaces.iter().enumerate();
    let paths = paths.map(|(index, name)| match index {
        0 => format!("{name}={name}"),
        cost => format!("{name}={name},cost={cost}"),
    });
    paths.collect::<Vec<_>>().join(" ")
}

/// All local addresses by which a remote of this kind can be reached.
pub(super) fn all_addresses(remote: &Target) -> Vec<SocketAddr> {
    let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, remote.port));
    let v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, remote.port));
    match remote.host {
        Host::Ip(IpAddr::V4(_)) => vec![v4],
        Host::Ip(IpAddr::V6(_)) => vec![v6],
        Host::Name(_) => vec![v4, v6],
    }
}

impl Pair {
    /// The configuration of the side that opens the session.
    pub(super) fn opening(&self, there: &PublicKey) -> String {
        let mut text = self.beginning(&self.there, there);
        text += "\n# A session that we open and keep open. All its paths are used at once; any of them may be down.\n";
        text += &format!("[[session]]\npeer = {}\n", quoted(&self.there));
        for path in &self.paths {
            text += &format!(
                "\n[[session.path]]\nname = {}\nremote = {}\ninterface = {}\n",
                quoted(&path.name),
                quoted(&self.remote.to_string()),
                quoted(&path.interface)
            );
            text += &format!("cost = {}\n", path.cost);
            if path.is_leo {
                text += "link = \"leo\"\n";
            }
        }
        if let Some(listen) = self.socks5 {
            text += &format!(
                "\n# A proxy for applications; what it may reach is for {} to allow.\n[[socks5]]\nname = \"proxy\"\nlisten = \"{listen}\"\n",
                self.there
            );
        }
        text
    }

    /// The configuration of the side that accepts it.
    pub(super) fn accepting(&self, here: &PublicKey) -> String {
        let listen: Vec<_> = self.listen.iter().map(|at| format!("\"{at}\"")).collect();
        let listen = format!("listen = [{}]\n", listen.join(", "));
        let allow: Vec<_> = self
            .allow
            .iter()
            .map(|rule| quoted(&rule.to_string()))
            .collect();
        format!(
            "{}{}\n# What {} may reach through us.\n[egress]\nallow = [{}]\n",
            listen,
            self.beginning(&self.here, here),
            self.here,
            allow.join(", ")
        )
    }

    /// What both sides have. Top-level keys come first.
    fn beginning(&self, peer: &str, key: &PublicKey) -> String {
        let metrics = self.metrics.map(|at| format!("metrics = \"{at}\"\n"));
        // Elsewhere two gateways may share a host, and each needs a folder of its own.
        let state = match self.by_units {
            true => format!(
                "# What outlives the gateway: counts of quotas, and orders that are kept.\nstate = \"{STATE}\"\n"
            ),
            false => String::new(),
        };
        format!(
            "{}{state}# Written by `starhaul init`; `starhaul gateway sample` and starhaul-gateway.toml(5) show every key.\n\n\
             [identity]\nfile = \"{}\"\n\n[[peer]]\nname = {}\npublic_key = \"{key}\"\n",
            metrics.unwrap_or_default(),
            KEY,
            quoted(peer)
        )
    }
}

/// A TOML string; what JSON writes is one.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_they_are_offered() {
        let offered = default_paths(&["eth0".to_owned(), "wwan0".to_owned()]);
        assert_eq!(offered, "eth0=eth0 wwan0=wwan0,cost=1");
        let read: Vec<OnePath> = offered.split(' ').map(|one| one.parse().unwrap()).collect();
        assert_eq!((read[1].name.as_str(), read[1].cost), ("wwan0", 1.0));
        let leo: OnePath = "leo=eth1,link=leo".parse().unwrap();
        assert!(leo.is_leo && leo.interface == "eth1");
        for (wrong, said) in [
            ("eth0", "NAME=INTERFACE"),
            ("../x=eth0", "no name here"),
            ("a=b,cost=-1", "cost=-1"),
            ("a=b,price=1", "neither cost=N nor link=leo"),
        ] {
            let error = wrong.parse::<OnePath>().unwrap_err();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }

    #[test]
    fn no_name_leads_out_of_its_folder() {
        for wrong in ["..", ".", "keys", "a/b", "", "a b", "gateway.toml"] {
            assert!(name(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(name("ground-2.example").as_deref(), Ok("ground-2.example"));
    }

    /// A quota or `--keep` works at once after the eight commands of docs/operate.md.
    #[test]
    fn what_the_units_run_has_their_state_directory_on_both_sides() {
        let key = starhaul_quic::Identity::generate().public_key();
        let mut pair = Pair {
            here: "field".to_owned(),
            there: "ground".to_owned(),
            remote: "192.0.2.1:4600".parse().unwrap(),
            listen: vec!["0.0.0.0:4600".parse().unwrap()],
            paths: vec!["leo=eth0".parse().unwrap()],
            peer_key: None,
            socks5: None,
            allow: Vec::new(),
            metrics: None,
            by_units: true,
        };
        let line = format!("state = \"{STATE}\"");
        for text in [pair.opening(&key), pair.accepting(&key)] {
            let file = std::path::Path::new("/etc/starhaul/gateway.toml");
            let config = starhaul_gateway::Config::parse(&text, file).unwrap();
            assert_eq!(config.state.as_deref(), Some(std::path::Path::new(STATE)));
        }
        for unit in [
            include_str!("../../../../contrib/systemd/starhaul-gateway.service"),
            include_str!("../../../../contrib/systemd/starhaul-router.service"),
        ] {
            let kept = unit
                .lines()
                .find_map(|line| line.strip_prefix("StateDirectory="));
            assert_eq!(
                kept.map(|name| format!("/var/lib/{name}")).as_deref(),
                Some(STATE)
            );
        }
        pair.by_units = false;
        assert!(!pair.opening(&key).contains(&line));
    }
}
