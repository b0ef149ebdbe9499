//! The keys of `[[tproxy]]`: which passing connections are taken.

use std::ops::RangeInclusive;

use ipnet::IpNet;
use starhaul_config::{Error, Key, Table};

use super::{
    ConnectionService, ConnectionTargets, IngressRule,
    values::{interface_name, network, ports},
};

pub(super) const LISTEN: Key = Key::text("listen", "address")
    .such_as("\"0.0.0.0:4700\"")
    .means("Where taken connections arrive. Its port is not 0, its version of IP is that of the connections.");
pub(super) const KEYS: &[Key] = &[
    Key::texts("networks", "networks, 1 to 1024")
        .required()
        .such_as("[\"10.20.0.0/16\"]")
        .means("Destinations of the connections, of the IP version of `listen`. This host's own addresses are left alone, and so are connections that are open already. Two rules must not take the same connections."),
    Key::texts("ports", "ports and ranges, at most 1024")
        .or_none("all")
        .such_as("[\"80\", \"8000-8099\"]")
        .means("Ports of the destination."),
    Key::text("interface", "interface")
        .or_none("any")
        .such_as("\"lan0\"")
        .means("Interface over which the connections come."),
    Key::flag("keep_client")
        .or_flag(false)
        .means("The peer connects from the client's address, not its own. Its [`[egress]`](#egress) must have it in `clients`."),
];

/// Most networks, and most ports, of a rule.
const MAX_ENTRIES: usize = 1024;

/// TCP connections that pass this host, carried to where they lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransparentTargets {
    /// Networks of the destinations.
    pub networks: Vec<IpNet>,
    /// Ports of the destination; all if empty.
    pub ports: Vec<RangeInclusive<u16>>,
    /// The interface over which they come; any if `None`.
    pub interface: Option<String>,
    /// The far side connects from the client's address.
    pub keep_client: bool,
}

impl TransparentTargets {
    /// Whether the kernel passes the same connections on as for another rule.
    pub(crate) fn intercepts_as(&self, other: &Self) -> bool {
        self.networks == other.networks
            && self.ports == other.ports
            && self.interface == other.interface
    }

    fn overlaps(&self, other: &Self) -> bool {
        let interfaces = match (&self.interface, &other.interface) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        let share = |one: &RangeInclusive<u16>, other: &RangeInclusive<u16>| {
            one.start() <= other.end() && other.start() <= one.end()
        };
        let ports = self.ports.is_empty()
            || other.ports.is_empty()
            || self
                .ports
                .iter()
                .any(|one| other.ports.iter().any(|other| share(one, other)));
        let within = |one: &IpNet, other: &IpNet| one.contains(other) || other.contains(one);
        interfaces
            && ports
            && self
                .networks
                .iter()
                .any(|one| other.networks.iter().any(|other| within(one, other)))
    }
}

/// Reads them for a socket of this version of IP.
pub(super) fn read(table: &Table<'_>, is_ipv4: bool) -> Result<TransparentTargets, Error> {
    let networks = match table.has("networks") {
        true => table.texts("networks", network)?,
        false => return Err(table.missing("networks")),
    };
    let of_version = |network: &IpNet| matches!(network, IpNet::V4(_)) == is_ipv4;
    if networks.is_empty() || networks.len() > MAX_ENTRIES {
        let problem = format!("write 1 to {MAX_ENTRIES} networks");
        return Err(table.key_problem("networks", problem));
    }
    if let Some(other) = networks.iter().find(|network| !of_version(network)) {
        return Err(table.key_problem(
            "networks",
            format!("{other} and \"listen\" are not of one IP version: write a rule for each"),
        ));
    }
    let ports = table.texts("ports", ports)?;
    if ports.len() > MAX_ENTRIES {
        return Err(table.key_problem("ports", format!("write at most {MAX_ENTRIES}")));
    }
    Ok(TransparentTargets {
        networks,
        ports,
        interface: table.text_if("interface", interface_name)?,
        keep_client: table.flag("keep_client")?,
    })
}

/// Refuses two rules that take the same connections: which of them would, depends on which was changed last.
pub(super) fn check_overlaps(rules: &[IngressRule<ConnectionService>]) -> Result<(), String> {
    let mut before: Vec<(&str, &TransparentTargets)> = Vec::new();
    for rule in rules {
        let ConnectionTargets::Transparent(targets) = &rule.service.targets else {
            continue;
        };
        if let Some((other, _)) = before.iter().find(|(_, other)| targets.overlaps(other)) {
            return Err(format!(
                "[[tproxy]] {other:?} and {:?} take the same connections: give them other networks, ports or interfaces",
                rule.name
            ));
        }
        before.push((&rule.name, targets));
    }
    Ok(())
}
