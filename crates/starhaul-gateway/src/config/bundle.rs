//! `[bundle]`: the bundle node that carries flows to far gateways, and who those are.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use starhaul_config::{Definition, Error, Example, Key, Table, nearest};
use starhaul_dtn_client::carriage::far_endpoint;

use super::{
    addresses::Transport,
    delivery::DELIVERY,
    values::{path, rule_name},
};

pub(super) static BUNDLE: Definition = Definition {
    introduction: "A bundle node (starhaul dtn node) on this host, which stores flows of rules whose \"service\" is \"bundle\" and forwards them when contacts open, to the gateways at other nodes. What comes from those obeys [egress].",
    keys: &[&[
        Key::text("socket", "file")
            .or_none("the node's default places")
            .such_as("\"dtn.sock\"")
            .means("The node's socket, `control` of its configuration. The node need not be there: the gateway connects again every second."),
        Key::text("service", "text")
            .or_none("`101`, or `gateway` of a node with a name")
            .such_as("\"101\"")
            .means("Number or name of this gateway's endpoint."),
        Key::whole("max_flows", 1..=65_536)
            .or_count(256)
            .means("Flows that each far gateway may have open here, and this one there. So many streams, and as many flows of datagrams; more streams are refused, of datagrams the flow that was silent for longest gives way."),
        Key::size("window", 1 << 20..=1 << 30)
            .or_count(4 << 20)
            .means("Bytes of a stream that may come before its application reads them. Beyond them the far gateway stops reading its own."),
        Key::tables("peer", &PEER)
            .or_none("at least one")
            .means("[The far gateways](#bundlepeer). Bundles of others are dropped."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[("socket", "\"dtn.sock\"")],
    }],
};

static PEER: Definition = Definition {
    introduction: "",
    keys: &[&[
        Key::text("name", "name")
            .such_as("\"base\"")
            .means("Unique among the far gateways."),
        Key::text("endpoint", "endpoint")
            .such_as("\"ipn:2.0\"")
            .means("Its node (`ipn:2.0`, `dtn://station/`), or its endpoint (`ipn:2.101`)."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[("name", "\"base\""), ("endpoint", "\"ipn:2.0\"")],
    }],
};

/// Of a rule whose flows travel as bundles.
pub(super) const LIFETIME: Key = Key::duration("lifetime", LIFETIMES)
    .or_duration(DEFAULT_LIFETIME)
    .with(&[("service", "\"bundle\"")])
    .means("How long bundles live, in both directions. A connection of which one has expired is reset.");

/// How long the bundles of a rule live that names no lifetime.
pub(super) const DEFAULT_LIFETIME: Duration = Duration::from_secs(3600);
/// The least and the greatest lifetime: 30 days.
const LIFETIMES: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);

/// The bundle node of this host, and the gateways at other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleRule {
    /// The node's control socket; without it, the first default place where one answers.
    pub socket: Option<PathBuf>,
    /// Number or name of this gateway's endpoint, if it is not that of gateways.
    pub service: Option<String>,
    /// Streams, and as many flows of datagrams, that each far gateway may have open.
    pub max_flows: usize,
    /// Bytes of a stream that may come before they are read.
    pub window: u64,
    /// The far gateways.
    pub peers: Vec<BundlePeer>,
}

/// A gateway at another bundle node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundlePeer {
    /// Its name in this configuration.
    pub name: String,
    /// Its endpoint, `ipn:2.101` for example.
    pub endpoint: String,
}

impl BundleRule {
    fn names(&self) -> Vec<&str> {
        self.peers.iter().map(|peer| peer.name.as_str()).collect()
    }

    /// The far gateway that a rule names by `peer`, or the only one.
    pub(super) fn peer_of(&self, table: &Table<'_>) -> Result<String, Error> {
        let names = self.names();
        let peer = table.text_if("peer", |text| match names.contains(&text) {
            true => Ok(text.to_owned()),
            false => {
                let near = nearest(text, &names);
                Err(format!("there is no [[bundle.peer]] {text:?}; {near}"))
            }
        })?;
        match (peer, names.as_slice()) {
            (Some(peer), _) => Ok(peer),
            (None, [only]) => Ok((*only).to_owned()),
            (None, _) => {
                Err(table
                    .problem("the key \"peer\" is missing, and there are several [[bundle.peer]]"))
            }
        }
    }
}

pub(super) fn read(table: &Table<'_>, directory: &Path) -> Result<BundleRule, Error> {
    let (mut names, mut endpoints) = (BTreeSet::new(), BTreeSet::new());
    let mut peers = Vec::new();
    for table in table.tables("peer")? {
        let endpoint = |text: &str| far_endpoint(text).map_err(|error| error.to_string());
        let peer = BundlePeer {
            name: table.text("name", rule_name)?,
            endpoint: table.text("endpoint", endpoint)?,
        };
        if !names.insert(peer.name.clone()) {
            let problem = format!("{:?} is the name of two far gateways", peer.name);
            return Err(table.key_problem("name", problem));
        }
        if !endpoints.insert(peer.endpoint.clone()) {
            let problem = format!("{} is the endpoint of two far gateways", peer.endpoint);
            return Err(table.key_problem("endpoint", problem));
        }
        peers.push(peer);
    }
    if peers.is_empty() {
        return Err(table.problem("no [[bundle.peer]]: only bundles of known gateways are taken"));
    }
    let service = |text: &str| match text.is_empty() {
        true => Err("write the number of a service, or its name"),
        false => Ok(text.to_owned()),
    };
    Ok(BundleRule {
        socket: table.text_if("socket", |text| path(directory, text))?,
        service: table.text_if("service", service)?,
        max_flows: table.count("max_flows")?,
        window: table.size("window")?,
        peers,
    })
}

/// The key `lifetime` of a rule whose flows travel as bundles.
pub(super) fn read_lifetime(table: &Table<'_>) -> Result<Duration, Error> {
    table.duration("lifetime")
}

/// The far gateway of a rule over bundles, which has nothing of sessions.
pub(super) fn check(
    table: &Table<'_>,
    transport: Transport,
    bundle: Option<&BundleRule>,
) -> Result<String, Error> {
    let of_sessions = ["priority"].into_iter().chain(DELIVERY);
    let of_sessions = of_sessions.filter(|key| transport != Transport::Udp || *key != "ordered");
    if let Some(key) = table.first_of(of_sessions) {
        let problem = match key {
            "deadline" => "bundles have a \"lifetime\" instead",
            _ => "this is of sessions: with service = \"bundle\" it has no effect",
        };
        return Err(table.key_problem(key, problem));
    }
    let bundle = bundle.ok_or_else(|| {
        let problem = "\"bundle\" needs a table [bundle] with a [[bundle.peer]]";
        table.key_problem("service", problem)
    })?;
    bundle.peer_of(table)
}
