//! A gateway's configuration: TOML read strictly. Unknown keys and impossible values are errors that name file, line,
//! key and what would be right.

mod accept;
mod addresses;
mod bundle;
mod carriers;
mod controllers;
mod delivery;
mod describe;
mod detection;
mod group;
mod keys;
mod leotp;
mod missing;
mod restart;
mod rules;
mod service;
#[cfg(test)]
mod tests;
mod transparent;
mod tunnels;
mod values;
mod warnings;

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use starhaul_cc::{ControllerConfig, RateFeed};
use starhaul_config::{Definition, Document};
use starhaul_endpoint::{Detection, LinkKind, QlogFolder};
use starhaul_net::LocalSocketFile;
use starhaul_quic::{Identity, PublicKey};
use starhaul_session::{Mode, SchedulerChoice};
use starhaul_units::Bandwidth;

use crate::{
    Error, egress_policy::EgressPolicy, hours::Hours, quota::Quota, rtp::Codec, target::Target,
};

pub(crate) use self::{group::group_number, service::monthly as read_monthly};

pub use self::{
    accept::AcceptRule,
    bundle::{BundlePeer, BundleRule},
    leotp::{Carrier, LeotpNeighbour, LeotpRule},
    missing::MissingKey,
    transparent::TransparentTargets,
    tunnels::{Carriage, DeviceRule, PacketClass, PacketMatch, TunnelRule},
};

/// A gateway's configuration, checked. All fields may be changed before [`Gateway::start`](crate::Gateway::start).
#[derive(Clone, Debug)]
pub struct Config {
    /// The key pair of this gateway.
    pub identity: IdentitySource,
    /// Addresses on which peers may open sessions; empty for a gateway that only opens them.
    pub listen: Vec<SocketAddr>,
    /// Settings of the sessions that they open.
    pub accept: AcceptRule,
    /// Bytes of the largest UDP payload on our paths.
    pub packet_bytes: u16,
    /// Interval of the probes on an idle path.
    pub keepalive: Duration,
    /// Who chooses the paths of every session, in our direction.
    pub scheduler: SchedulerChoice,
    /// What the paths with a cost may carry together in each session, in our direction, each byte times the cost of its path.
    pub budget: Option<Bandwidth>,
    /// Bounds of every session.
    pub session_limits: SessionLimits,
    /// The control socket, which `starhaul status` asks.
    pub control: ControlPath,
    /// A group, by name or number, whose members may read the status from the control socket.
    pub control_group: Option<String>,
    /// Where metrics and the live page are served over HTTP, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// The folder of what outlives the gateway: counts of quotas, and orders that are kept.
    pub state: Option<PathBuf>,
    /// Where qlog records of sessions and paths go: `None` as read from a file, since a run is recorded, not a configuration.
    pub qlog: Option<QlogFolder>,
    /// The known gateways.
    pub peers: Vec<Peer>,
    /// The sessions that are kept open.
    pub sessions: Vec<SessionRule>,
    /// The rules for datagrams of local applications.
    pub datagram_rules: Vec<IngressRule<DatagramService>>,
    /// The rules for connections of local applications.
    pub connection_rules: Vec<IngressRule<ConnectionService>>,
    /// The tunnels: devices whose IP packets travel to peers.
    pub tunnels: Vec<TunnelRule>,
    /// The chain of LEOTP relays that this gateway is an end of.
    pub leotp: Option<LeotpRule>,
    /// The bundle node that carries flows to gateways at other nodes.
    pub bundle: Option<BundleRule>,
    /// The targets that peers may reach through this gateway.
    pub egress: EgressPolicy,
}

/// Bounds of every session, in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Streams that this side may have open: TCP connections and UDP clients, each with its replies on the other side.
    pub max_streams: usize,
    /// Bytes that may wait for sending or acknowledgement.
    pub max_send_bytes: usize,
    /// Bytes that may wait for reassembly or for a slow reader.
    pub max_receive_bytes: usize,
}

impl SessionLimits {
    /// Where the configuration says nothing.
    pub const DEFAULT: Self = Self {
        max_streams: 4096,
        max_send_bytes: 128 << 20,
        max_receive_bytes: 256 << 20,
    };
}

/// The place of the secret key.
#[derive(Clone, Debug)]
pub enum IdentitySource {
    /// In a file as `starhaul keygen` writes it.
    File(PathBuf),
    /// The configuration itself has it.
    Inline(Identity),
}

/// The control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlPath {
    /// At the default place; a gateway that cannot make it there starts without.
    Default,
    /// A socket at this path.
    At(PathBuf),
    /// No control socket.
    Off,
}

/// A known gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Name in this configuration.
    pub name: String,
    /// Its public key.
    pub public_key: PublicKey,
}

/// A session that is opened, and opened again when it ends.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionRule {
    /// Name of the peer.
    pub peer: String,
    /// The paths of the session, at least one.
    pub paths: Vec<PathRule>,
}

/// One way to a peer.
#[derive(Clone, Debug, PartialEq)]
pub struct PathRule {
    /// Name for people, unique in its session.
    pub name: String,
    /// Local address; the kernel chooses when absent.
    pub local: Option<SocketAddr>,
    /// Network interface to bind to.
    pub interface: Option<String>,
    /// The peer's address; a name is resolved whenever the session is opened.
    pub remote: Target,
    /// Price per byte; only the order of the paths by price matters.
    pub cost: f64,
    /// Greatest rate of the direction to the peer.
    pub limit: Option<Bandwidth>,
    /// How many bytes it may carry in a month.
    pub quota: Option<Quota>,
    /// When it is in service; always when absent.
    pub hours: Option<Hours>,
    /// The kind of link over which it leads.
    pub link: LinkKind,
    /// Controller of the direction to the peer.
    pub controller: ControllerRule,
    /// How its reconfigurations are detected; `None`: not at all.
    pub detection: Option<Detection>,
}

/// A congestion controller as configured.
#[derive(Clone, Debug, PartialEq)]
pub enum ControllerRule {
    /// One that estimates the rate.
    SelfReliant(ControllerConfig),
    /// A dedicated link with a known rate.
    Dedicated {
        /// The rate; with a feed, the initial one.
        rate: Bandwidth,
        /// File or local stream socket from which the rate is read again and again.
        feed: Option<PathBuf>,
    },
}

/// A rule for local applications; `S` is the service at its socket.
#[derive(Clone, Debug, PartialEq)]
pub struct IngressRule<S> {
    /// Name of its table: `udp`, `rtp`, `tcp`, `tproxy` or `socks5`.
    pub kind: &'static str,
    /// Name for people, unique among the rules.
    pub name: String,
    /// Where the applications send; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// Name of the peer that carries it on; empty over LEOTP.
    pub peer: String,
    /// 0 is the most important.
    pub priority: u8,
    /// The kind of traffic that is served, and its settings.
    pub service: S,
}

/// Carries the datagrams of local applications to one target: `[[udp]]` and `[[rtp]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct DatagramService {
    /// What carries them to the far gateway: a session, or bundles, whose lifetime is the deadline of the delivery, too.
    pub carrier: Carrier,
    /// Address and port to which the far side sends the datagrams.
    pub target: Target,
    /// Deadline and protection.
    pub delivery: Delivery,
    /// Bounds on clients.
    pub clients: ClientLimits,
    /// Which datagrams form a block.
    pub framing: Framing,
}

/// The rule by which datagrams become blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Each UDP datagram is a block.
    Datagrams,
    /// The RTP packets of one timestamp are a block.
    Rtp {
        /// The codec whose dependencies between frames are understood.
        codec: Codec,
        /// A frame without marker bit ends when none of its packets came for this long.
        frame_timeout: Duration,
    },
}

/// Carries TCP connections: `[[tcp]]`, `[[tproxy]]` and `[[socks5]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionService {
    /// What carries them to the far gateway.
    pub carrier: Carrier,
    /// Bounds on the connections.
    pub limits: ConnectionLimits,
    /// Where the connections lead, and which side decides that.
    pub targets: ConnectionTargets,
}

/// Where the connections of a rule go.
#[derive(Clone, Debug, PartialEq)]
pub enum ConnectionTargets {
    /// All to one target.
    Fixed(Target),
    /// Each to where it led when it was intercepted.
    Transparent(TransparentTargets),
    /// Each client asks for its own by SOCKS5 (RFC 1928).
    Socks5 {
        /// Required of clients (RFC 1929) when present.
        credentials: Option<Credentials>,
        /// How datagrams of UDP ASSOCIATE are carried.
        delivery: Delivery,
    },
}

/// Deadline and protection of datagrams.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// Time after which a datagram is useless.
    pub deadline: Duration,
    /// How lost fragments of blocks are replaced.
    pub mode: Mode,
    /// Most redundancy fragments per data fragment, 0.0 to 1.0.
    pub max_coding_rate: f64,
    /// Deliver in order of sending.
    pub ordered: bool,
    /// The known rate of the application.
    pub bandwidth: Option<Bandwidth>,
}

/// Bounds on the clients of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Most client addresses at once. A new one takes the place of one that has been answered, or else of the one that is
    /// silent longest; where there is none of these, its datagrams are dropped and counted.
    pub max_clients: usize,
    /// A client that neither sent nor was sent anything for so long is forgotten.
    pub idle_timeout: Duration,
    /// The same for one that sent at most four datagrams, each of which was answered, as a DNS query is.
    pub answered_timeout: Duration,
    /// Datagrams of one client that may wait until the session has taken those before them.
    pub max_queued: usize,
}

/// Bounds on the TCP connections of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Most at once; more wait in the kernel.
    pub max_connections: usize,
    /// A connection that carried nothing in either direction for so long is reset.
    pub idle_timeout: Option<Duration>,
}

/// User name and password of RFC 1929, each 1 to 255 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User name, 1 to 255 bytes.
    pub username: String,
    /// Password, 1 to 255 bytes.
    pub password: String,
    /// The file that it was read from; `None`: it is in the configuration.
    pub file: Option<PathBuf>,
}

/// Begins the names of variables of the environment that stand for keys.
const VARIABLES: &str = "STARHAUL_GATEWAY_";

impl Config {
    /// Reads and checks a TOML file, those that it includes, and what variables `STARHAUL_GATEWAY_…` of the environment put in
    /// place of its keys; errors name the file, the line, the key and the nearest valid key. The key file is read too, if it
    /// can be, so that one's own key is not taken for a peer's.
    pub fn load(file: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(file).map_err(|reason| Error::Read {
            file: file.to_owned(),
            reason,
        })?;
        // If the key file cannot be read, loading the identity reports it.
        let own_key = |identity: &IdentitySource| Some(identity.read().ok()?.public_key());
        let mut document = Document::new(file, &text);
        document.include()?;
        document.set_variables(VARIABLES, &keys::TOP, std::env::vars_os())?;
        let config = rules::read(&document, file, own_key)?;
        // One of the environment is in no file.
        let is_secret = |key: &[&str]| matches!(key, ["identity", "secret"] | [.., "password"]);
        document.files_with(is_secret).for_each(warn_of_readers);
        config.password_files().for_each(warn_of_readers);
        Ok(config)
    }

    /// The same for text alone, without the environment; `include` has no effect. `name` stands for the file in messages, and
    /// relative files are sought beside it.
    pub fn parse(text: &str, name: &Path) -> Result<Self, Error> {
        let document = Document::new(name, text);
        let config = rules::read(&document, name, |identity| match identity {
            IdentitySource::Inline(identity) => Some(identity.public_key()),
            IdentitySource::File(_) => None,
        })?;
        Ok(config)
    }

    /// What a file may hold, of which sample, reference and manual page are made.
    pub fn definition() -> &'static Definition {
        &keys::TOP
    }

    /// A commented sample, in which every key appears.
    pub fn sample() -> String {
        starhaul_config::sample(&keys::TOP)
    }

    /// Warnings of valid settings that are hardly intended, one line each; reads the host's network interfaces.
    pub fn warnings(&self) -> Vec<String> {
        warnings::warnings(self)
    }

    /// Whether the control socket can be made where the configuration says, as far as its file tells, and for the group that
    /// it names.
    ///
    /// # Errors
    /// [`Error::Control`], [`Error::ControlGroup`].
    pub fn check_control(&self) -> Result<(), Error> {
        if let (Some(group), false) = (&self.control_group, self.control == ControlPath::Off) {
            group_number(group)?;
        }
        let ControlPath::At(path) = &self.control else {
            return Ok(());
        };
        LocalSocketFile::check(path).map_err(|reason| Error::Control {
            path: path.clone(),
            reason,
        })
    }

    /// Whether the files of keys and of times that `[leotp]` names, if it is there, can be used.
    ///
    /// # Errors
    /// [`Error::LeotpKey`].
    pub fn check_leotp_keys(&self) -> Result<(), Error> {
        match &self.leotp {
            Some(leotp) => leotp.load_keys().and(leotp.load_signals()).map(drop),
            None => Ok(()),
        }
    }

    /// The files from which passwords were read.
    pub fn password_files(&self) -> impl Iterator<Item = &Path> {
        self.credentials().filter_map(|known| known.file.as_deref())
    }

    fn credentials(&self) -> impl Iterator<Item = &Credentials> {
        let rules = self.connection_rules.iter();
        rules.filter_map(|rule| match &rule.service.targets {
            ConnectionTargets::Socks5 { credentials, .. } => credentials.as_ref(),
            _ => None,
        })
    }

    /// The configuration as it was read, for people.
    pub fn describe(&self) -> String {
        describe::describe(self)
    }
}

impl IdentitySource {
    /// The key pair; reads the key file, and warns in the log when others may read that too.
    pub fn load(&self) -> Result<Identity, Error> {
        if let Self::File(file) = self {
            warn_of_readers(file);
        }
        self.read()
    }

    fn read(&self) -> Result<Identity, Error> {
        match self {
            Self::Inline(identity) => Ok(identity.clone()),
            Self::File(file) => {
                let text = std::fs::read_to_string(file).map_err(|reason| Error::Read {
                    file: file.clone(),
                    reason,
                })?;
                Identity::from_secret_text(text.trim()).map_err(|error| Error::Key {
                    file: file.clone(),
                    reason: error.to_string(),
                })
            }
        }
    }
}

/// Warns if all users may read a file with a secret, or users other than its owner may change it.
fn warn_of_readers(file: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    /// Read by others, written by the group or others.
    const TOO_MUCH: u32 = 0o026;
    let Ok(found) = std::fs::metadata(file) else {
        return;
    };
    let mode = found.permissions().mode() & 0o777;
    if mode & TOO_MUCH != 0 {
        let file = file.display();
        tracing::warn!("others may use the secret in {file} (mode {mode:o}): chmod 600 {file}");
    }
}

impl ControlPath {
    /// The default path of the socket: in the user's runtime directory, or in `/run/starhaul`.
    pub fn default_path() -> PathBuf {
        user_socket().unwrap_or_else(|| PathBuf::from(SYSTEM_SOCKET))
    }

    /// The default paths of gateways on this host: this user's first, then that of a system service.
    pub fn default_paths() -> Vec<PathBuf> {
        let system = PathBuf::from(SYSTEM_SOCKET);
        user_socket().into_iter().chain([system]).collect()
    }
}

/// Control socket of a gateway without a user's runtime directory, such as a system service.
const SYSTEM_SOCKET: &str = "/run/starhaul/control.sock";

fn user_socket() -> Option<PathBuf> {
    let directory =
        std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty())?;
    Some(PathBuf::from(directory).join("starhaul/control.sock"))
}

impl ControllerRule {
    /// Its name in the configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Self::SelfReliant(config) => config.name(),
            Self::Dedicated { .. } => "dedicated",
        }
    }

    /// Whether it uses reconfiguration signals.
    pub fn heeds_reconfigurations(&self) -> bool {
        match self {
            Self::SelfReliant(config) => config.heeds_reconfigurations(),
            Self::Dedicated { .. } => false,
        }
    }

    /// The controller's configuration; with a feed, its rate and the file or socket from which that is read.
    pub fn build(&self) -> (ControllerConfig, Option<(RateFeed, &Path)>) {
        match self {
            Self::SelfReliant(config) => (config.clone(), None),
            Self::Dedicated { rate, feed } => {
                let rate = RateFeed::new(*rate);
                let feed = feed.as_deref().map(|feed| (rate.clone(), feed));
                (ControllerConfig::Dedicated(rate), feed)
            }
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}
