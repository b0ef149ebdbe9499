//! What `starhaul status` shows: the JSON object of the control socket, as types for both of its ends.

mod check;
mod detector;
mod numbers;
mod snapshot;
mod traffic;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use self::{detector::Detector, traffic::Traffic};
pub(crate) use self::{
    snapshot::{counters, status},
    traffic::{INTERVAL, Rates},
};

/// A gateway now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Of the software.
    pub version: String,
    /// By which peers know us.
    pub public_key: String,
    /// Since the start.
    pub uptime_s: f64,
    /// Where peers are accepted.
    pub listen: Vec<SocketAddr>,
    /// In order of the configuration.
    pub peers: Vec<Peer>,
    /// In order of the configuration.
    pub ingress: Vec<Ingress>,
    /// Those open now.
    pub sessions: Vec<Session>,
    /// All streams with all peers since the start, by priority.
    #[serde(default)]
    pub classes: Vec<Class>,
    /// Bounds that can be reached: those of the gateway, then those of each rule.
    #[serde(default)]
    pub limits: Vec<Limit>,
}

/// A bound, and how often it was reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Limit {
    /// What is bounded.
    pub name: String,
    /// At which ingress rule; absent for a bound of the whole gateway.
    #[serde(default)]
    pub rule: Option<String>,
    /// How often it was reached since the start of the gateway or of the rule.
    pub count: u64,
    /// Its value now.
    pub limit: u64,
    /// What raises it: a key of the configuration, unless it says otherwise.
    pub key: String,
}

/// A configured peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// Its name in the configuration.
    pub name: String,
    /// Its key.
    pub public_key: String,
    /// Open now.
    pub sessions: usize,
    /// Attempts to open a session that failed since the last success.
    pub failed_attempts: u64,
    /// Why the last of them failed.
    pub last_error: Option<String>,
    /// The paths that a session with it is to have, as configured; none where we open none.
    #[serde(default)]
    pub configured_paths: Vec<String>,
    /// All streams with it.
    #[serde(default)]
    pub traffic: Traffic,
    /// The same by rule and priority.
    #[serde(default)]
    pub flows: Vec<Flow>,
}

/// The streams with a peer that belong to one rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Flow {
    /// The rule's name; absent where the streams are not a gateway's.
    pub rule: Option<String>,
    /// Whose rule it is: `us` or `peer`.
    pub rule_of: String,
    /// What they have carried.
    #[serde(flatten)]
    pub totals: FlowTotals,
}

/// The streams of one priority.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Class {
    /// What they have carried.
    #[serde(flatten)]
    pub totals: FlowTotals,
}

/// What streams have carried since the start, those that have ended included.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FlowTotals {
    /// 0 is the most important.
    pub priority: u8,
    /// Open now.
    pub streams: u64,
    /// All that there were.
    pub streams_total: u64,
    /// Bytes of applications.
    pub traffic: Traffic,
    /// Of those with deadlines.
    pub blocks: Blocks,
}

/// An ingress rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ingress {
    /// Its name.
    pub rule: String,
    /// `udp`, `rtp`, `tcp` or `socks5`.
    pub kind: String,
    /// Where it really listens.
    pub listen: SocketAddr,
    /// Name of the peer behind it.
    pub peer: String,
    /// Client addresses or connections now.
    pub clients: u64,
    /// Client addresses or connections since the start.
    pub clients_total: u64,
    /// From applications.
    pub datagrams_in: u64,
    /// To applications.
    pub datagrams_out: u64,
    /// Clients that were forgotten early to make room for new ones.
    #[serde(default)]
    pub displaced_clients: u64,
    /// Datagrams from applications that went nowhere.
    pub dropped: Dropped,
    /// Connections that were not made or broke off.
    pub failed_connections: u64,
    /// What its streams have carried.
    #[serde(default)]
    pub traffic: Traffic,
}

/// Why datagrams went nowhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Dropped {
    /// No session with the peer was open.
    pub no_session: u64,
    /// More clients than the rule allows, and none that could give way.
    pub too_many_clients: u64,
    /// The session is full, or the datagram did not come from the client.
    pub refused: u64,
}

/// An open session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    /// Name of the peer.
    pub peer: String,
    /// `us` or `peer`.
    pub opened_by: String,
    /// Since it was opened.
    pub age_s: f64,
    /// Streams of the peer that we refused: label not understood, target not allowed, too many.
    pub refused_streams: u64,
    /// All its paths.
    #[serde(default)]
    pub traffic: Traffic,
    /// Its paths.
    pub paths: Vec<Path>,
    /// Its streams that have not ended.
    pub streams: Vec<Stream>,
}

/// A path of a session; figures are absent until the path was up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Path {
    /// Its name.
    pub name: String,
    /// The peer's address on it; as configured while its name has none.
    pub remote: String,
    /// `up`, `suspect` (silent for longer than expected) or `down`.
    pub state: String,
    /// Name of the congestion controller.
    pub controller: String,
    /// Its phase.
    pub controller_state: String,
    /// Bytes that may be in flight.
    pub cwnd_bytes: u64,
    /// Bytes that are.
    pub bytes_in_flight: u64,
    /// UDP payload of the largest packets that we send on it: what it is known to carry; 0 while there is no connection.
    #[serde(default)]
    pub packet_bytes: u16,
    /// What the controller believes of the path; absent where it keeps no model.
    #[serde(default)]
    pub model: Option<Model>,
    /// What the controller was told of reconfigurations.
    #[serde(default)]
    pub reconfigurations: Reconfigurations,
    /// Round trip of the satellite segments alone, of both ends together, where somebody measures it.
    #[serde(default)]
    pub segment_rtt_ms: Option<f64>,
    /// Who looks for reconfigurations on this side, if anybody does.
    #[serde(default)]
    pub detector: Option<Detector>,
    /// Why it cannot be used; absent while it can.
    #[serde(default)]
    pub last_error: Option<String>,
    /// What it has carried since the session began, whether or not it is up.
    #[serde(default)]
    pub traffic: Traffic,
    /// What was measured.
    #[serde(flatten)]
    pub figures: Option<PathFigures>,
}

/// What a controller believes of its path (LeoCC's estimates).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Model {
    /// bBW_a.
    pub bandwidth_aggressive_bit_per_s: Option<u64>,
    /// bBW_m.
    pub bandwidth_moderate_bit_per_s: Option<u64>,
    /// Between these the RTT swings without a queue.
    pub rtt_band_ms: Option<[f64; 2]>,
    /// Since the last reconfiguration that the controller acted on.
    pub acted_on_ago_s: Option<f64>,
}

/// The reconfigurations of a path that its controller was told of since its connection began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Reconfigurations {
    /// How many.
    pub count: u64,
    /// The last.
    pub last: Option<Reconfiguration>,
}

/// A reconfiguration of a satellite path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reconfiguration {
    /// Since packets began to pass again.
    pub ago_s: f64,
    /// For how long nothing had passed; absent when unknown.
    pub outage_ms: Option<f64>,
    /// `probe`, `peer`, `schedule` or `ground_truth`.
    pub source: String,
    /// From 0 to 1.
    pub confidence: Option<f64>,
}

/// What was measured of a path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathFigures {
    /// Price per byte.
    pub cost: Option<f64>,
    /// Smoothed.
    pub rtt_ms: Option<f64>,
    /// Lowest of late.
    pub min_rtt_ms: Option<f64>,
    /// Towards the peer, where it can be estimated.
    pub one_way_delay_ms: Option<f64>,
    /// What the path is believed to be able to carry.
    pub rate_bit_per_s: u64,
    /// Share of datagrams lost, 0 to 1.
    pub loss: Option<f64>,
    /// The greatest share of any recent moment.
    pub loss_window_max: Option<f64>,
    /// Datagrams lost in a row, on average.
    pub loss_burst_length: Option<f64>,
    /// To the peer.
    pub bytes_sent: u64,
    /// From the peer.
    pub bytes_received: u64,
    /// To the peer.
    pub datagrams_sent: u64,
    /// Of those.
    pub datagrams_lost: u64,
}

/// A stream of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stream {
    /// Its number.
    pub stream: u32,
    /// The ingress rule behind it, on either side.
    pub rule: Option<String>,
    /// `udp`, `rtp`, `associate`, `reply` or `tcp`.
    pub kind: Option<String>,
    /// Where it goes on the far side.
    pub target: Option<String>,
    /// 0 is the most important.
    #[serde(default)]
    pub priority: u8,
    /// How its blocks are protected.
    pub mode: String,
    /// It has ended; its figures are kept for a while.
    #[serde(default)]
    pub ended: bool,
    /// Its bytes.
    #[serde(default)]
    pub traffic: Traffic,
    /// Its blocks.
    #[serde(flatten)]
    pub blocks: Blocks,
    /// By the application.
    pub bytes_sent: u64,
    /// For the application.
    pub bytes_received: u64,
}

/// What became of blocks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Blocks {
    /// Blocks from our side.
    pub blocks_sent: u64,
    /// Blocks from the peer.
    pub blocks_received: u64,
    /// Of the blocks sent.
    pub on_time: u64,
    /// Of the blocks sent: they arrived all the same.
    pub late: u64,
    /// Of the blocks sent.
    pub expired: Expired,
    /// Of the blocks sent: retreated, or the block they needed was not delivered.
    pub cancelled: u64,
    /// Of the blocks sent: the stream or session ended first.
    pub failed: u64,
    /// Of the blocks sent.
    pub recovered: Recovered,
}

/// Blocks dropped because they could not arrive in time, by cause.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Expired {
    /// Other blocks went first.
    pub capacity: u64,
    /// Lost and not recovered in time.
    pub loss: u64,
    /// No path is fast enough.
    pub unreachable: u64,
}

/// Blocks that lost fragments and arrived whole.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recovered {
    /// Rebuilt from redundancy.
    pub redundancy: u64,
    /// Sent again.
    pub retransmission: u64,
}

impl FlowTotals {
    /// Adds what other streams of the same kind have carried.
    fn add(&mut self, other: &Self) {
        self.streams += other.streams;
        self.streams_total += other.streams_total;
        self.traffic = [self.traffic, other.traffic].into_iter().sum();
        self.blocks.add(&other.blocks);
    }
}

impl Blocks {
    fn add(&mut self, other: &Self) {
        self.blocks_sent += other.blocks_sent;
        self.blocks_received += other.blocks_received;
        self.on_time += other.on_time;
        self.late += other.late;
        self.expired.capacity += other.expired.capacity;
        self.expired.loss += other.expired.loss;
        self.expired.unreachable += other.expired.unreachable;
        self.cancelled += other.cancelled;
        self.failed += other.failed;
        self.recovered.redundancy += other.recovered.redundancy;
        self.recovered.retransmission += other.recovered.retransmission;
    }
}
