//! The tables `[[tun]]` and `[[tun.class]]`: a device whose IP packets travel to a peer.

use std::{collections::HashSet, ops::RangeInclusive, time::Duration};

use ipnet::IpNet;
use starhaul_config::{Definition, Error, Example, Key, Table, choice, definition::names};
use starhaul_session::Mode;

use super::{
    Delivery, SessionRule,
    delivery::{
        BANDWIDTH, DEADLINES, DEFAULT_PRIORITY, DELIVERY, MAX_CODING_RATE, MODES, ORDERED,
        PRIORITY, read_delivery_with, read_priority,
    },
    values::{interface_name, network, ports, rule_name},
};
use crate::target::Host;

pub(super) static TUN: Definition = Definition {
    introduction: "An IP tunnel: a network interface whose packets travel to the peer, where a [[tun]] of the same name passes them on. For what no rule above fits: whole networks, any protocol. Needs CAP_NET_ADMIN; interface and routes go when the gateway ends.",
    keys: &[&[
        Key::text("name", "name")
            .such_as("\"vpn\"")
            .means("Unique among all rules, and the same at both ends."),
        Key::text("peer", "name")
            .or_none("the only peer")
            .such_as("\"ground\"")
            .means("The peer at the other end."),
        Key::text("device", "interface")
            .or("starhaul%d")
            .means("Name of the interface. With `%d` the kernel chooses a number; `status` shows the name."),
        Key::texts("addresses", "addresses with prefix length")
            .required()
            .such_as("[\"10.9.0.2/24\"]")
            .means("Addresses of the interface. At least one; the prefix is the network of the tunnel."),
        Key::texts("networks", "networks, 1 to 1024")
            .or_none("those of `addresses`")
            .such_as("[\"10.9.0.0/24\", \"192.168.50.0/24\"]")
            .means("Networks behind the peer. Packets to any other destination are answered with an ICMP error, and packets of the peer from any other source are dropped, but those from the networks of `addresses` and ICMP errors of routers about packets to these; both are counted as `forbidden`. Groups, broadcast and link-local addresses are carried only for a network that has no others, as `239.0.0.0/8`."),
        Key::flag("add_routes")
            .or_flag(true)
            .means("Adds a route to each of `networks` through the interface, with metric 0, or 1 in IPv6; to all addresses in two halves, before the host's own default routes. A network with the address of one of our paths is an error, unless that path has an `interface`: its own packets would enter the tunnel. So is a network that another `[[tun]]` routes, too; one within it is none."),
        Key::whole("mtu", LEAST_MTU..=MOST_MTU)
            .or_count(1500)
            .means("Longest packet, also over paths with smaller ones. Packets are cut and put together again."),
        Key::whole("priority", 0..=255)
            .or_count(DEFAULT_PRIORITY)
            .means("Of TCP, and of packets in no class. 0 is the most important."),
        DEADLINE,
        MODE,
        MAX_CODING_RATE,
        ORDERED,
        BANDWIDTH,
        Key::tables("class", &CLASS)
            .means("[Packets that are carried differently](#tunclass), at most 16."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[
            ("name", "\"vpn\""),
            ("peer", "\"ground\""),
            ("addresses", "[\"10.9.0.2/24\", \"fd09::2/64\"]"),
            ("networks", "[\"10.9.0.0/24\", \"fd09::/64\", \"192.168.50.0/24\"]"),
        ],
    }],
};

static CLASS: Definition = Definition {
    introduction: "The first class that a packet matches says how it is carried.",
    keys: &[&[
        Key::text("name", "name")
            .such_as("\"voice\"")
            .means("For people; unique in the tunnel."),
        Key::words("protocol", &PROTOCOL_NAMES)
            .or_none("any")
            .such_as("\"udp\"")
            .means("Protocol within IP."),
        Key::texts("ports", "ports and ranges")
            .or_none("any")
            .such_as("[\"5004\", \"16384-32767\"]")
            .means("Source or destination port of TCP or UDP. Fragments of IP packets have no ports and match no class that names some."),
        Key::texts("dscp", "names and numbers: `cs0` to `cs7`, `af11` to `af43`, `ef`, `va`, `le`, 0 to 63")
            .or_none("any")
            .such_as("[\"ef\", \"va\"]")
            .means("DiffServ code point."),
        PRIORITY,
        DEADLINE,
        MODE,
        MAX_CODING_RATE,
        ORDERED,
        BANDWIDTH,
    ]],
    examples: &[Example {
        comment: "",
        written: &[
            ("name", "\"voice\""),
            ("protocol", "\"udp\""),
            ("ports", "[\"5004\", \"16384-32767\"]"),
            ("dscp", "[\"ef\", \"va\"]"),
            ("priority", "0"),
            ("deadline", "\"200ms\""),
        ],
    }],
};

/// Of packets of which nothing else is said: a conversation bears about a second.
const DEADLINE: Key = Key::duration("deadline", DEADLINES)
    .or_duration(Duration::from_secs(1))
    .means("Time after which a packet is useless.");
const MODE: Key = Key::words("mode", &MODE_NAMES)
    .or(Mode::FecRetransmit.name())
    .means("Protection, as of [datagrams](#udp), or `reliable`. That is in order, and nothing is lost on the way, as TCP in no class is carried; what waits too long before it, or finds no room, is marked or dropped as in a router's queue. Then no other key of delivery is possible.");
const MODE_NAMES: [&str; MODES.len() + 1] = {
    let mut all = ["reliable"; MODES.len() + 1];
    let mut index = 0;
    while index < MODES.len() {
        all[index] = MODES[index].0;
        index += 1;
    }
    all
};
const PROTOCOL_NAMES: [&str; PROTOCOLS.len()] = names(&PROTOCOLS);

/// Every packet is matched against these in turn.
const MAX_CLASSES: usize = 16;
const MAX_NETWORKS: usize = 1024;
/// What IPv6 asks of every link (RFC 8200 §5).
const LEAST_MTU: u64 = 1280;
/// The kernel's bound for TUN devices.
const MOST_MTU: u64 = 65_521;

/// Protocols by their names; ICMP has one number for each version of IP.
const PROTOCOLS: [(&str, &[u8]); 6] = [
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
    /// Settings of the TUN device.
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
    /// Conditions on the packets of this class.
    pub matches: PacketMatch,
    /// 0 is the most important.
    pub priority: u8,
    /// Whether they are carried as blocks or on a reliable stream.
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

/// The kind of stream that carries packets.
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
    for class in table.tables("class")? {
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
    let mtu = table.whole("mtu")?;
    if !table.has("networks")
        && addresses
            .iter()
            .all(|net| net.prefix_len() == net.max_prefix_len())
    {
        return Err(table.problem(
            "\"networks\" is missing: the prefixes of \"addresses\" leave no room for the peer's",
        ));
    }
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
        name: table.text("device", device_name)?,
        addresses,
        mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        networks,
        add_routes: table.flag("add_routes")?,
    })
}

fn read_class(table: &Table<'_>) -> Result<PacketClass, Error> {
    let protocol = table.choice_if("protocol", &PROTOCOLS)?;
    let class = PacketClass {
        name: table.text("name", rule_name)?,
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
        text => choice(text, &MODES).map(|_| false),
    })?;
    if !is_reliable {
        return Ok(Carriage::Deadline(read_delivery_with(table, None)?));
    }
    match table.first_of(DELIVERY.into_iter().filter(|key| *key != "mode")) {
        Some(key) => {
            let problem = "it has no effect with mode = \"reliable\": nothing is late there";
            Err(table.key_problem(key, problem))
        }
        None => Ok(Carriage::Reliable),
    }
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
        if path.interface.is_some() {
            continue;
        }
        let leads_in = |network: &&IpNet| match &path.remote.host {
            Host::Ip(remote) => network.contains(remote),
            // It may lead anywhere.
            Host::Name(_) => network.prefix_len() == 0,
        };
        let remote = &path.remote.host;
        if let Some(network) = rule.device.networks.iter().find(leads_in) {
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

/// Refuses a network that leads into another tunnel already: the kernel takes one route to it, and what it adds itself for an
/// address counts. One within another is no clash, since the longer prefix goes first.
pub(super) fn check_routes(
    table: &Table<'_>,
    rule: &TunnelRule,
    others: &[TunnelRule],
) -> Result<(), Error> {
    let clash = |one: &DeviceRule, other: &DeviceRule| {
        let mut networks = one.networks.iter().filter(|_| one.add_routes);
        networks.find(|network| other.leads_to(network)).copied()
    };
    for other in others {
        let (new, old) = (&rule.device, &other.device);
        let Some(network) = clash(new, old).or_else(|| clash(old, new)) else {
            continue;
        };
        let key = match table.has("networks") {
            true => "networks",
            false => "addresses",
        };
        return Err(table.key_problem(
            key,
            format!(
                "{network} leads into the tunnel {:?} already: a network can be behind one of them; set add_routes = false and other addresses where routes are made otherwise",
                other.name
            ),
        ));
    }
    Ok(())
}

impl DeviceRule {
    /// Whether there is a route to exactly this network: one of ours, or the kernel's for an address.
    fn leads_to(&self, network: &IpNet) -> bool {
        let mut own = self.addresses.iter();
        let ours = self.add_routes && self.networks.contains(network);
        ours || own.any(|own| own.prefix_len() < own.max_prefix_len() && own.trunc() == *network)
    }
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

/// The name of an interface; `%d` stands for a number that the kernel chooses.
fn device_name(text: &str) -> Result<String, &'static str> {
    interface_name(&text.replacen("%d", "0", 1)).map(|_| text.to_owned())
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
