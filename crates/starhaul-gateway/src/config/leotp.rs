//! `[leotp]`: the chain of relays that this gateway is an end of.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use starhaul_config::{Error, Keys, Table, nearest};

use super::bundle::DEFAULT_LIFETIME;
use super::values::{rule_name, secret, socket_address, target};
use crate::target::Target;

pub(super) const KEYS: Keys = &[&["listen", "secret", "upstream", "neighbour"]];
pub(super) const NEIGHBOUR: Keys = &[&["name", "address", "key"]];

/// The carriers that a rule for connections may name.
pub(super) const CARRIERS: &[(&str, Carrier)] = &[
    ("session", Carrier::Session),
    ("leotp", Carrier::Leotp),
    ("bundle", Carrier::Bundle(DEFAULT_LIFETIME)),
];
/// The carriers that a rule for datagrams may name.
pub(super) const DATAGRAM_CARRIERS: &[(&str, Carrier)] = &[
    ("session", Carrier::Session),
    ("bundle", Carrier::Bundle(DEFAULT_LIFETIME)),
];

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
    /// The file of the secret that the gateways at both ends share; relays do not need it.
    pub secret: PathBuf,
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
    /// Where it is; without it, where its packets come from. A name is resolved at the start.
    pub address: Option<Target>,
    /// The file of the key that both share.
    pub key: PathBuf,
}

pub(super) fn read(table: &Table<'_>, directory: &Path) -> Result<LeotpRule, Error> {
    let mut names = BTreeSet::new();
    let mut neighbours = Vec::new();
    for table in table.tables("neighbour", NEIGHBOUR)? {
        let neighbour = LeotpNeighbour {
            name: table.required("name", rule_name)?,
            address: table.text("address", target)?,
            key: table.required("key", |text| secret(directory, text))?,
        };
        if !names.insert(neighbour.name.clone()) {
            let problem = format!("{:?} is the name of two neighbours", neighbour.name);
            return Err(table.key_problem("name", problem));
        }
        neighbours.push(neighbour);
    }
    if neighbours.is_empty() {
        return Err(table.problem("no [[leotp.neighbour]]: a chain begins with one"));
    }
    let upstream = table.text("upstream", |text| {
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
        listen: table.required("listen", socket_address)?,
        secret: table.required("secret", |text| secret(directory, text))?,
        upstream,
        neighbours,
    })
}
