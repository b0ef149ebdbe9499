//! `[leotp]`: the chain of relays that this gateway is an end of.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use starhaul_config::{
    Definition, Error, Example, Key, Table, definition::names, nearest, shared_secret,
};
use starhaul_endpoint::RateRule;
use starhaul_net::leotp::{HopSignals, PACKET_BYTES, RULE_KEYS, read_rule};

use super::bundle::DEFAULT_LIFETIME;
use super::values::{rule_name, secret, socket_address, target};
use crate::target::{Host, Target};

pub(super) static LEOTP: Definition = Definition {
    introduction: "A chain of relays that recover losses on each hop (starhaul relay), with a gateway at each end. Connections of rules whose \"service\" is \"leotp\" go along it; those that come obey [egress].",
    keys: &[&[
        Key::text("listen", "address")
            .such_as("\"0.0.0.0:4511\"")
            .means("UDP address toward the neighbours."),
        Key::whole("packet_bytes", *PACKET_BYTES.start() as u64..=*PACKET_BYTES.end() as u64)
            .or_none("1472; 1452 if `listen` is an IPv6 address")
            .such_as("1400")
            .means("UDP payload of the packets that this end sends along the whole chain. Less for a hop whose MTU is below 1500: IPv4 adds 28 bytes and IPv6 48."),
        Key::text("secret", "file")
            .such_as("\"chain.key\"")
            .means("Secret of the gateways at both ends, any text of 16 bytes or more. Relays do not need it. Who has it and a way through the relays may reach what `[egress]` allows."),
        Key::size("window", 64 << 10..=64 << 20)
            .or_count(64 << 20)
            .means("Bytes of a connection that may be on the way to this gateway or unread, and bytes that it sent and the far one has not confirmed, at most. It begins with 1 MiB and doubles each round trip while that is what the sender waits for. Beyond, the far gateway stops reading its application."),
        Key::size("memory", 32 << 20..=1 << 40)
            .or_count(256 << 20)
            .means("Bytes that all connections together may hold or have promised to take. One alone may have a quarter in each direction. Where many have much, or do not read, each has less, but at least 32 KiB in each direction."),
        Key::text("upstream", "name")
            .or_none("none")
            .such_as("\"orbiter\"")
            .means("Neighbour toward the gateway that accepts connections. Rules with `service = \"leotp\"` need it."),
    ], RULE_KEYS, &[
        Key::tables("neighbour", &NEIGHBOUR)
            .or_none("at least one")
            .means("[The relays or gateways beside this one](#leotpneighbour)."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[
            ("listen", "\"0.0.0.0:4511\""),
            ("secret", "\"chain.key\""),
            ("upstream", "\"orbiter\""),
        ],
    }],
};

static NEIGHBOUR: Definition = Definition {
    introduction: "",
    keys: &[&[
        Key::text("name", "name")
            .such_as("\"orbiter\"")
            .means("Unique in the chain."),
        Key::text("address", "target")
            .or_none("where its packets come from")
            .such_as("\"192.0.2.20:4511\"")
            .means("Where it is at first. A name is looked up until it has an address, and again each minute: a neighbour that is not heard is sought where it says."),
        Key::text("key", "file")
            .such_as("\"orbiter.key\"")
            .means("The key shared with this neighbour."),
    ], HopSignals::KEYS],
    examples: &[Example {
        comment: "",
        written: &[
            ("name", "\"orbiter\""),
            ("address", "\"192.0.2.20:4511\""),
            ("key", "\"orbiter.key\""),
        ],
    }],
};

/// The carriers that a rule for connections may name.
pub(super) const CARRIERS: [(&str, Carrier); 3] = [
    ("session", Carrier::Session),
    ("leotp", Carrier::Leotp),
    ("bundle", Carrier::Bundle(DEFAULT_LIFETIME)),
];
/// The carriers that a rule for datagrams may name.
pub(super) const DATAGRAM_CARRIERS: [(&str, Carrier); 2] = [
    ("session", Carrier::Session),
    ("bundle", Carrier::Bundle(DEFAULT_LIFETIME)),
];

pub(super) const CARRIER_NAMES: [&str; CARRIERS.len()] = names(&CARRIERS);
pub(super) const DATAGRAM_CARRIER_NAMES: [&str; DATAGRAM_CARRIERS.len()] =
    names(&DATAGRAM_CARRIERS);

/// What carries the flows of a rule to the far gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// The session with its peer.
    #[default]
    Session,
    /// Streams over the chain of LEOTP relays.
    Leotp,
    /// Bundles, which live for so long.
    Bundle(Duration),
}

/// This gateway's end of a chain of LEOTP relays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeotpRule {
    /// Its UDP address.
    pub listen: SocketAddr,
    /// UDP payload of its packets; what a path of 1500 bytes carries if `None`.
    pub packet_bytes: Option<u16>,
    /// How the rates of what its neighbours send are found.
    pub rate_rule: RateRule,
    /// The file of the secret that the gateways at both ends share; relays do not need it.
    pub secret: PathBuf,
    /// Bytes of a connection that may be under way or unread, and as many unconfirmed.
    pub window: usize,
    /// Bytes that all connections may hold together.
    pub memory: usize,
    /// The neighbour that leads to the far gateway; a gateway that only accepts streams needs none.
    pub upstream: Option<String>,
    /// The relays or gateways beside this one.
    pub neighbours: Vec<LeotpNeighbour>,
}

/// A neighbour in a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeotpNeighbour {
    /// Its name in this configuration.
    pub name: String,
    /// Where it is at first; without it, where its packets come from.
    pub address: Option<Target>,
    /// The file of the key that both share.
    pub key: PathBuf,
    /// How it is known when the hop to it is reconfigured. Times in a file are not read yet.
    pub signals: HopSignals,
}

impl LeotpRule {
    /// What the files of keys hold: the secret, and the neighbours' keys in their order.
    pub(crate) fn load_keys(&self) -> Result<([u8; 32], Vec<[u8; 32]>), crate::Error> {
        let load = |of: String, file: &Path| {
            shared_secret(file).map_err(|error| crate::Error::LeotpKey(format!("{of}: {error}")))
        };
        let secret = load("secret".to_owned(), &self.secret)?;
        let (mut keys, mut owners) = (Vec::new(), BTreeMap::new());
        for LeotpNeighbour { name, key, .. } in &self.neighbours {
            let key = load(format!("key of neighbour {name:?}"), key)?;
            if let Some(other) = owners.insert(key, name) {
                return Err(crate::Error::LeotpKey(format!(
                    "neighbour {name:?} has the key of {other:?}: each needs one of its own"
                )));
            }
            keys.push(key);
        }
        Ok((secret, keys))
    }

    /// How the hops to the neighbours are known to be reconfigured, in their order, with the times in files.
    pub(crate) fn load_signals(&self) -> Result<Vec<HopSignals>, crate::Error> {
        let load = |neighbour: &LeotpNeighbour| {
            let mut signals = neighbour.signals.clone();
            let loaded = signals.load_times().map(|()| signals);
            loaded.map_err(|error| {
                let name = &neighbour.name;
                crate::Error::LeotpKey(format!("schedule of neighbour {name:?}: {error}"))
            })
        };
        self.neighbours.iter().map(load).collect()
    }
}

pub(super) fn read(table: &Table<'_>, directory: &Path) -> Result<LeotpRule, Error> {
    let listen = table.text("listen", socket_address)?;
    let mut names = BTreeSet::new();
    let mut neighbours = Vec::new();
    for table in table.tables("neighbour")? {
        let neighbour = LeotpNeighbour {
            name: table.text("name", rule_name)?,
            address: table.text_if("address", |text| neighbour_address(listen, text))?,
            key: table.text("key", |text| secret(directory, text))?,
            signals: HopSignals::read(&table, directory)?,
        };
        if !names.insert(neighbour.name.clone()) {
            let problem = format!("{:?} is the name of two neighbours", neighbour.name);
            return Err(table.key_problem("name", problem));
        }
        let other = |known: &&LeotpNeighbour| known.key == neighbour.key;
        if let Some(other) = neighbours.iter().find(other) {
            let problem = format!(
                "{:?} has the same key: each needs one of its own",
                other.name
            );
            return Err(table.key_problem("key", problem));
        }
        neighbours.push(neighbour);
    }
    if neighbours.is_empty() {
        return Err(table.problem("no [[leotp.neighbour]]: a chain begins with one"));
    }
    let upstream = table.text_if("upstream", |text| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        match names.contains(&text) {
            true => Ok(text.to_owned()),
            false => Err(format!(
                "there is no [[leotp.neighbour]] {text:?}; {}",
                nearest(text, &names)
            )),
        }
    })?;
    Ok(LeotpRule {
        listen,
        packet_bytes: match table.has("packet_bytes") {
            true => u16::try_from(table.whole("packet_bytes")?).ok(),
            false => None,
        },
        rate_rule: read_rule(table)?,
        secret: table.text("secret", |text| secret(directory, text))?,
        window: table.bytes("window")?,
        memory: table.bytes("memory")?,
        upstream,
        neighbours,
    })
}

/// Where a neighbour is. A name may have an address that the socket reaches.
fn neighbour_address(listen: SocketAddr, text: &str) -> Result<Target, String> {
    let target = target(text)?;
    match target.host {
        Host::Ip(ip) if ip.is_ipv4() != listen.is_ipv4() => Err(format!(
            "{target} has another IP version than {listen}, where [leotp] listens"
        )),
        _ => Ok(target),
    }
}
