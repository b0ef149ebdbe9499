//! The configuration of a node.

mod definition;
mod describe;
mod one_way;
mod read;
#[cfg(test)]
mod tests;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use hardy_eid_patterns::EidPattern;
use starhaul_config::{Definition, Document};
use starhaul_ltp::{AuthKey, EngineId, NumberWidth, Profile, RepairRate, SegmentSize};
use starhaul_net::{IoMode, LocalSocketFile, PeerAddress};
use starhaul_units::Bandwidth;

pub use self::one_way::OneWay;
use crate::{
    Error,
    plan::{Contact, ContactPlan, Moment, NodeId},
    priority::Class,
    security::Keys,
};

/// Begins the names of variables of the environment that stand for keys.
const VARIABLES: &str = "STARHAUL_DTN_";

/// A node: its number or name, its store, its neighbours, and the contact plan.
#[derive(Debug)]
pub struct Config {
    /// Its number or name, `ipn:1.0` or `dtn://lander/`.
    pub node: NodeId,
    /// The socket for `dtn send`, `receive`, `ping` and `status`; `None` for the default place.
    pub control: Option<PathBuf>,
    /// Where metrics are served over HTTP, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// The store of bundles, and its limits.
    pub storage: Storage,
    /// LTP, if it is used.
    pub ltp: Option<LtpConfig>,
    /// TCPCLv4, if it is used.
    pub tcp: Option<TcpConfig>,
    /// Routes that hold at any time: bundles for the pattern go to the node.
    pub routes: Vec<(EidPattern, NodeId)>,
    /// How soon bundles leave: the first pattern that matches a destination decides, and others are normal.
    pub priorities: Vec<(EidPattern, Class)>,
    /// When the node can exchange bundles with each neighbour; one that the plan does not name can be reached at any time.
    pub plan: ContactPlan,
    /// The keys of BPSec (RFC 9172).
    pub keys: Keys,
    /// Whether the node sends the status reports that bundles ask for (RFC 9171 §6.1), at a bounded rate. The sender of a bundle decides where its reports go.
    pub status_reports: bool,
}

/// Where bundles are kept, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The folder of the bundles; `None` keeps them in memory, where no restart finds them.
    pub folder: Option<PathBuf>,
    /// Whether each bundle is on the medium before its sender hears that it was taken.
    pub sync: bool,
    /// Whether SQLite keeps what is known of bundles, in place of the log in the folder; without a database on another machine.
    pub sqlite: bool,
    /// How to connect to the PostgreSQL that keeps what is known of bundles, in place of the log in the folder.
    pub database: Option<DatabaseUrl>,
    /// Where the data of bundles are, in place of files in the folder; with a database alone.
    pub bucket: Option<Bucket>,
    /// Greatest sum of their payloads in bytes; beyond it, bundles are refused.
    pub bytes: u64,
    /// Greatest number of them.
    pub bundles: usize,
    /// Greatest payload of one in bytes.
    pub bundle_bytes: u64,
}

#[cfg(test)]
impl Storage {
    /// Room for ten small bundles in memory.
    pub(crate) const fn small() -> Self {
        Self {
            folder: None,
            sync: false,
            sqlite: false,
            database: None,
            bucket: None,
            bytes: 1 << 20,
            bundles: 10,
            bundle_bytes: 1 << 10,
        }
    }
}

/// The connection string of a PostgreSQL, which may hold a password.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(pub String);

impl std::fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DatabaseUrl(..)")
    }
}

/// A bucket of S3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Name of the bucket.
    pub name: String,
    /// How the names of all objects begin, without a slash at either end; may be empty.
    pub prefix: String,
    /// Its region; without one, what the environment says.
    pub region: Option<String>,
    /// The server, if it is not Amazon's.
    pub endpoint: Option<String>,
}

impl std::fmt::Display for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "s3://{}/{}", self.name, self.prefix)
    }
}

/// LTP as a convergence layer: one engine.
#[derive(Debug)]
pub struct LtpConfig {
    /// Number of the engine.
    pub engine: EngineId,
    /// UDP address at which segments are received.
    pub listen: SocketAddr,
    /// The width of the numbers of its sessions.
    pub numbers: NumberWidth,
    /// Which system calls carry segments.
    pub mode: IoMode,
    /// The nodes that are reached by it.
    pub peers: Vec<LtpPeer>,
}

/// A neighbour over LTP.
#[derive(Clone, Debug)]
pub struct LtpPeer {
    /// The node at the other end of the link.
    pub node: NodeId,
    /// The number of its engine.
    pub engine: EngineId,
    /// Where it receives segments; without it, where its first data come from.
    pub address: Option<PeerAddress>,
    /// How long a signal takes.
    pub light_time: Duration,
    /// How fast the link is, if known.
    pub rate: Option<Bandwidth>,
    /// Bytes of data in its segments, or that they adapt.
    pub segment: SegmentSize,
    /// What both engines agree on.
    pub profile: Profile,
    /// The loss that repair segments make up for, if there are any.
    pub repair: Option<RepairRate>,
    /// Which way the link carries segments.
    pub one_way: OneWay,
    /// The key of LTP's authentication (RFC 5327).
    pub key: Option<AuthKey>,
}

/// TCPCLv4 (RFC 9174) as a convergence layer.
#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// TCP address at which connections are accepted; without one, none are.
    pub listen: Option<SocketAddr>,
    /// Nodes that are connected to, and whose connections are accepted.
    pub peers: Vec<TcpPeer>,
    /// Whether bundles of other nodes are taken, too. Anyone may then claim to be any of them: TCPCLv4 without TLS authenticates no peer.
    pub accepts_unknown: bool,
}

/// A neighbour over TCPCLv4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpPeer {
    /// The node at the other end of the connection.
    pub node: NodeId,
    /// Where it accepts connections; without it, it connects.
    pub address: Option<PeerAddress>,
}

impl Config {
    /// Reads and checks a file, those that it includes, what variables `STARHAUL_DTN_…` of the environment put in place of its keys,
    /// and the files that it names. Relative times of the plan count from `start`.
    ///
    /// # Errors
    /// [`Error::Config`] names file, line, key and the nearest valid key; [`Error::Read`].
    pub fn load(file: &Path, start: Moment) -> Result<Self, Error> {
        let text = read_file(file)?;
        let mut document = Document::new(file, &text);
        document.include()?;
        document.set_variables(VARIABLES, &definition::TOP, std::env::vars_os())?;
        read::read(&document, file, start)
    }

    /// The same for text alone, without the environment; `include` has no effect. `name` stands for the file, and other files are
    /// sought beside it.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, name: &Path, start: Moment) -> Result<Self, Error> {
        read::read(&Document::new(name, text), name, start)
    }

    /// Whether the control socket can be made where the configuration says, as far as its file tells.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn check_control(&self) -> Result<(), Error> {
        let Some(path) = &self.control else {
            return Ok(());
        };
        LocalSocketFile::check(path).map_err(|reason| Error::Control {
            path: path.clone(),
            reason,
        })
    }

    /// Contacts without an end with the neighbours that the plan does not name: they can be talked to at any time.
    pub(crate) fn always(&self) -> Vec<Contact> {
        let ltp = self.ltp.iter().flat_map(|ltp| &ltp.peers);
        let ltp = ltp.filter(|peer| peer.one_way != OneWay::In);
        let ltp = ltp.map(|peer| (&peer.node, peer.rate, peer.light_time));
        let tcp = self.tcp.iter().flat_map(|tcp| &tcp.peers);
        let tcp = tcp.map(|peer| (&peer.node, None, Duration::ZERO));
        let unplanned = ltp.chain(tcp).filter(|(node, _, _)| {
            !self.plan.knows(&self.node, node) && !self.plan.knows(node, &self.node)
        });
        let contacts = unplanned.map(|(node, rate, light_time)| Contact {
            from: self.node.clone(),
            to: node.clone(),
            start: Moment::default(),
            end: Moment::MAX,
            rate: rate.unwrap_or(Bandwidth::MAX),
            light_time,
        });
        contacts.collect()
    }

    /// What it configures, for people.
    pub fn describe(&self, now: Moment) -> String {
        describe::describe(self, now)
    }

    /// What is allowed and hardly meant.
    pub fn warning(&self) -> Option<String> {
        let told = "the names of all neighbours, and what is stored";
        self.metrics
            .and_then(|address| starhaul_metrics::warning(address, told))
    }

    /// What a file may hold, of which sample, reference and manual page are made.
    pub fn definition() -> &'static Definition {
        &definition::TOP
    }

    /// A commented sample, in which every key appears.
    pub fn sample() -> String {
        starhaul_config::sample(&definition::TOP)
    }
}

fn read_file(file: &Path) -> Result<String, Error> {
    std::fs::read_to_string(file).map_err(|reason| Error::Read {
        file: file.to_owned(),
        reason,
    })
}
