//! The tables `[[tun]]` and `[[tun.class]]`: a device whose IP packets travel to a peer.

use std::{collections::HashSet, net::IpAddr, ops::RangeInclusive, time::Duration};

use ipnet::IpNet;
use starhaul_config::{Error, Keys, Table, choice};

use super::{
    Delivery, SessionRule,
    rules::{DELIVERY, MODES, read_delivery_with, read_priority},
    values::{interface_name, rule_name},
};
use crate::target::Host;

pub(super) const KEYS: Keys = &[
    &[
        "name",
        "peer",
        "device",
        "addresses",
        "mtu",
        "networks",
        "add_routes",
        "priority",
        "class",
    ],
    DELIVERY,
];
pub(super) const CLASS: Keys = &[&["name", "protocol", "ports", "dscp", "priority"], DELIVERY];

/// Every packet is matched against these in turn.
const MAX_CLASSES: usize = 16;
const MAX_NETWORKS: usize = 1024;
const DEFAULT_MTU: u64 = 1500;
/// What IPv6 asks of every link (RFC 8200 §5).
const LEAST_MTU: u64 = 1280;
/// The kernel's bound for TUN devices.
const MOST_MTU: u64 = 65_521;
/// Deadline of packets of which nothing else is said: a conversation bears about a second.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(1);

/// Protocols by their names; ICMP has one number for each version of IP.
const PROTOCOLS: &[(&str, &[u8])] = &[
    ("tcp", &[6]),
    ("udp", &[17]),
    ("icmp", &[1, 58]),
    ("sctp", &[132]),
    ("gre", &[47]),
    ("esp", &[50]),
];
/// Code points by their names (RFC 2474, 2597, 3246, 5865, 8622).
const CODE_POINTS: &[(&str, u8)] = &[
    ("cs0", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

/// A TUN device whose packets travel to a peer, where a rule of the same name passes them to a device there.
#[derive(Clone, Debug, PartialEq)]
pub struct TunnelRule {
    /// Name for people, unique among the rules, and the same at both ends.
    pub name: String,
    /// Name of the peer.
    pub peer: String,
    /// The device.
    pub device: DeviceRule,
    /// The first that a packet matches says how it is carried; the last one matches all.
    pub classes: Vec<PacketClass>,
}

/// A TUN device as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceRule {
    /// Name of the interface; with `%d` the kernel chooses a number.
    pub name: String,
    /// Its addresses, each with the length of the prefix of the network that the tunnel is.
    pub addresses: Vec<IpNet>,
    /// Longest packet, in bytes.
    pub mtu: u16,
    /// The networks behind the peer: packets go to no others, and come from no others.
    pub networks: Vec<IpNet>,
    /// The kernel is told that these networks are reached through the device.
    pub add_routes: bool,
}

/// Packets that are carried alike.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketClass {
    /// Name for people.
    pub name: String,
    /// Which they are.
    pub matches: PacketMatch,
    /// 0 is the most important.
    pub priority: u8,
    /// How they are carried.
    pub carriage: Carriage,
}

/// Conditions on a packet; one that says nothing matches all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PacketMatch {
    /// IP protocol numbers.
    pub protocols: Vec<u8>,
    /// Ports of UDP or TCP, of which source or destination is one.
    pub ports: Vec<RangeInclusive<u16>>,
    /// DiffServ code points.
    pub dscp: Vec<u8>,
}

/// How packets are carried.
#[derive(Clone, Debug, PartialEq)]
pub enum Carriage {
    /// Each is a block with a deadline.
    Deadline(Delivery),
    /// In order on a reliable stream: for TCP, which takes loss and reordering for congestion.
    Reliable,
}

pub(super) fn read(table: &Table<'_>, name: String, peer: String) -> Result<TunnelRule, Error> {
    let device = read_device(table)?;
    let mut classes = Vec::new();
    let mut names = HashSet::new();
    for class in table.tables("class", CLASS)? {
        if classes.len() == MAX_CLASSES {
            return Err(class.problem(format!("a tunnel has at most {MAX_CLASSES} classes")));
        }
        let class_read = read_class(&class)?;
        if !names.insert(class_read.name.clone()) {
            let name = &class_read.name;
            return Err(class.key_problem("name", format!("{name:?} is the name of two classes")));
        }
        classes.push(class_read);
    }
    let priority = read_priority(table)?;
    classes.push(PacketClass {
        name: "tcp".to_owned(),
        matches: PacketMatch {
            protocols: vec![crate::tunnel::TCP],
            ..PacketMatch::default()
        },
        priority,
        carriage: Carriage::Reliable,
    });
    classes.push(PacketClass {
        name: "other".to_owned(),
        matches: PacketMatch::default(),
        priority,
        carriage: read_carriage(table)?,
    });
    Ok(TunnelRule {
        name,
        peer,
        device,
        classes,
    })
}

fn read_device(table: &Table<'_>) -> Result<DeviceRule, Error> {
    let addresses = table.texts("addresses", address)?;
    if addresses.is_empty() {
        return Err(table.missing("addresses"));
    }
    for (index, address) in addresses.iter().enumerate() {
        if addresses[..index]
            .iter()
            .any(|other| other.addr() == address.addr())
        {
            return Err(
                table.key_problem("addresses", format!("{} is there twice", address.addr()))
            );
        }
    }
    let mtu = table.integer("mtu", LEAST_MTU..=MOST_MTU)?;
    let mtu = mtu.unwrap_or(DEFAULT_MTU);
    let mut networks = match table.has("networks") {
        true => table.texts("networks", network)?,
        // Those of the tunnel itself.
        false => addresses.iter().map(IpNet::trunc).collect(),
    };
    networks.sort();
    networks.dedup();
    if networks.is_empty() || networks.len() > MAX_NETWORKS {
        let problem = format!("write 1 to {MAX_NETWORKS} networks behind the peer");
        return Err(table.key_problem("networks", problem));
    }
    Ok(DeviceRule {
        name: table
            .text("device", interface_name)?
            .unwrap_or_else(|| "starhaul%d".to_owned()),
        addresses,
        mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        networks,
        add_routes: table.flag("add_routes")?.unwrap_or(true),
    })
}

fn read_class(table: &Table<'_>) -> Result<PacketClass, Error> {
    let protocol = table.text("protocol", |text| choice(text, PROTOCOLS))?;
    let class = PacketClass {
        name: table.required("name", rule_name)?,
        matches: PacketMatch {
            protocols: protocol.unwrap_or_default().to_vec(),
            ports: table.texts("ports", ports)?,
            dscp: table.texts("dscp", code_point)?,
        },
        priority: read_priority(table)?,
        carriage: read_carriage(table)?,
    };
    if class.matches == PacketMatch::default() {
        return Err(table.problem(
            "this class has neither \"protocol\", \"ports\" nor \"dscp\": what is in no class is carried as the table [[tun]] itself says",
        ));
    }
    let has_ports = |protocol: &u8| matches!(*protocol, crate::tunnel::TCP | crate::tunnel::UDP);
    if !class.matches.ports.is_empty() && !class.matches.protocols.iter().all(has_ports) {
        return Err(table.key_problem("ports", "this protocol has no ports"));
    }
    Ok(class)
}

fn read_carriage(table: &Table<'_>) -> Result<Carriage, Error> {
    let is_reliable = table.text("mode", |text| match text {
        "reliable" => Ok(true),
        text => choice(text, MODES).map(|_| false),
    })?;
    if is_reliable != Some(true) {
        let delivery = read_delivery_with(table, Some(DEFAULT_DEADLINE), false)?;
        return Ok(Carriage::Deadline(delivery));
    }
    for key in DELIVERY.iter().filter(|key| **key != "mode") {
        if table.has(key) {
            let problem = "it has no effect with mode = \"reliable\": nothing is late there";
            return Err(table.key_problem(key, problem));
        }
    }
    Ok(Carriage::Reliable)
}

/// Refuses networks whose route would lead the packets of a path into the tunnel, which needs the path.
pub(super) fn check_paths(
    table: &Table<'_>,
    rule: &TunnelRule,
    sessions: &[SessionRule],
) -> Result<(), Error> {
    if !rule.device.add_routes {
        return Ok(());
    }
    for path in sessions.iter().flat_map(|session| &session.paths) {
        // A path that is bound to an interface asks for no route but its own.
        let (Host::Ip(remote), None) = (&path.remote.host, &path.interface) else {
            continue;
        };
        if let Some(network) = rule.device.networks.iter().find(|net| net.contains(remote)) {
            return Err(table.key_problem(
                "networks",
                format!(
                    "the route to {network} would lead path {:?} to {remote} into the tunnel that needs it: give the path an \"interface\", or set add_routes = false",
                    path.name
                ),
            ));
        }
    }
    Ok(())
}

fn address(text: &str) -> Result<IpNet, String> {
    let address: IpNet = text
        .parse()
        .map_err(|_| format!("{text:?} is not address/length, for example 10.9.0.1/24"))?;
    let is_host = match address {
        IpNet::V4(v4) => {
            v4.prefix_len() >= 31 || (v4.addr() != v4.network() && v4.addr() != v4.broadcast())
        }
        IpNet::V6(v6) => v6.prefix_len() >= 127 || v6.addr() != v6.network(),
    };
    let ip = address.addr();
    match is_host && !ip.is_multicast() && !ip.is_unspecified() && !ip.is_loopback() {
        true => Ok(address),
        false => Err(format!(
            "{text} is not the address of a host in its network"
        )),
    }
}

fn network(text: &str) -> Result<IpNet, String> {
    let network = text
        .parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| {
            format!("{text:?} is not a network, for example 192.168.7.0/24 or 0.0.0.0/0")
        })?;
    match network.trunc() == network {
        true => Ok(network),
        false => Err(format!(
            "{text} has bits beyond its prefix; write {}",
            network.trunc()
        )),
    }
}

fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let range = match text.split_once('-') {
        Some((first, last)) => port(first)
            .zip(port(last))
            .map(|(first, last)| first..=last),
        None => port(text).map(|port| port..=port),
    };
    range.filter(|range| !range.is_empty()).ok_or_else(|| {
        format!("{text:?} is neither a port nor a range of ports like \"5000-5099\"")
    })
}

fn code_point(text: &str) -> Result<u8, String> {
    match text.parse::<u8>() {
        Ok(number) if number < 64 => Ok(number),
        Ok(number) => Err(format!("{number} is no DSCP: they go to 63")),
        Err(_) => choice(text, CODE_POINTS),
    }
}

/// The name of a code point, or its number.
pub(super) fn code_point_name(dscp: u8) -> String {
    let mut known = CODE_POINTS.iter();
    let known = known.find(|(_, number)| *number == dscp);
    known.map_or_else(|| dscp.to_string(), |(name, _)| (*name).to_owned())
}

/// The name of the protocol that these numbers are.
pub(super) fn protocol_name(protocols: &[u8]) -> &'static str {
    let mut known = PROTOCOLS.iter();
    known
        .find(|(_, numbers)| *numbers == protocols)
        .map_or("", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_keys_are_read_or_explained() {
        assert_eq!(ports("53"), Ok(53..=53));
        assert_eq!(ports("5000-5099"), Ok(5000..=5099));
        for wrong in ["0", "9-5", "x", "", "1-", "65536"] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
        assert_eq!(code_point("ef"), Ok(46));
        assert_eq!(code_point("63"), Ok(63));
        assert!(code_point("64").is_err());
        assert!(code_point("af44").unwrap_err().contains("af4"));
        assert_eq!(code_point_name(46), "ef");
        assert_eq!(network("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(network("10.1.2.3").unwrap().to_string(), "10.1.2.3/32");
        assert!(network("10.0.0.1/8").unwrap_err().contains("10.0.0.0/8"));
        assert!(address("10.0.0.0/8").is_err());
        assert!(address("10.0.0.0/31").is_ok());
        assert!(address("fd00::1/64").is_ok());
        assert!(address("127.0.0.1/8").is_err());
    }
}
