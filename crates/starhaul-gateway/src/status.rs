//! The status that `starhaul status` shows: the JSON object of the control socket, as types for both of its ends.

mod bundle;
mod check;
mod detector;
mod known_paths;
mod numbers;
mod process;
mod service;
mod snapshot;
mod traffic;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::path_change::PathChange;

pub(crate) use self::traffic::{INTERVAL, Rates};
pub use self::{
    bundle::Bundle,
    check::Lack,
    detector::DetectorStatus,
    known_paths::KnownPath,
    process::Process,
    service::{HoursStatus, PathService, QuotaStatus},
    traffic::Traffic,
};

/// The present state of a gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Version of the software.
    pub version: String,
    /// The gateway's public key, by which peers know it.
    pub public_key: String,
    /// Seconds since the start.
    pub uptime_s: f64,
    /// Addresses on which peers are accepted.
    pub listen: Vec<SocketAddr>,
    /// Address of the metrics and the live page, with the port that the kernel chose; absent where they are not configured.
    #[serde(default)]
    pub metrics: Option<SocketAddr>,
    /// What the process uses of the computer.
    #[serde(default)]
    pub process: Process,
    /// The peers in the order of the configuration.
    pub peers: Vec<PeerStatus>,
    /// The ingress rules, those for datagrams first, in the order of the configuration.
    pub ingress: Vec<IngressStatus>,
    /// The tunnels, in the order of the configuration.
    #[serde(default)]
    pub tunnels: Vec<TunnelStatus>,
    /// The open sessions.
    pub sessions: Vec<Session>,
    /// This gateway's end of a chain of LEOTP relays, if it has one.
    #[serde(default)]
    pub leotp: Option<Leotp>,
    /// The flows that travel as bundles, if there is a bundle node for them.
    #[serde(default)]
    pub bundle: Option<Bundle>,
    /// All streams with all peers since the start, by priority.
    #[serde(default)]
    pub classes: Vec<Class>,
    /// Bounds that can be reached: those of the gateway, then those of each rule.
    #[serde(default)]
    pub limits: Vec<LimitStatus>,
}

/// A `[[tun]]` rule and its device; counters since the device was first created.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TunnelStatus {
    /// Name of the rule.
    pub rule: String,
    /// Name of the device; absent while it is gone.
    pub device: Option<String>,
    /// Name of the peer.
    pub peer: String,
    /// Packets from the device.
    pub packets_in: u64,
    /// Bytes of these packets.
    pub bytes_in: u64,
    /// Packets to the device.
    pub packets_out: u64,
    /// Bytes of these packets.
    pub bytes_out: u64,
    /// Packets marked with "congestion experienced" instead of being dropped.
    pub marked: u64,
    /// Packets dropped, by cause.
    pub dropped: DroppedPackets,
    /// Bytes of its streams.
    pub traffic: Traffic,
}

/// Packets of a tunnel that were dropped.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct DroppedPackets {
    /// There was no session with the peer.
    pub no_session: u64,
    /// They waited too long for a reliable stream, or found no room.
    pub queue: u64,
    /// The session refused them, full of others.
    pub refused: u64,
    /// To a destination that is not behind the peer, or from the peer and not from behind it.
    pub forbidden: u64,
    /// No whole IP packets, or such as the kernel refused.
    pub malformed: u64,
}

/// The end of a chain of LEOTP relays; counters since the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Leotp {
    /// Its UDP address, with the port that the kernel chose.
    pub listen: SocketAddr,
    /// The nodes beside this one.
    pub neighbours: Vec<LeotpNeighbourStatus>,
    /// Number of open streams.
    pub streams: u64,
    /// Number of streams since the start.
    pub streams_total: u64,
    /// Bytes of all packets to neighbours, without IP and UDP headers.
    pub bytes_sent: u64,
    /// Packets with data from neighbours.
    pub packets_received: u64,
    /// Packets that were lost on the way from them.
    pub packets_lost: u64,
    /// Packets sent to them again.
    pub packets_repaired: u64,
    /// Reconfigurations of hops that it was told of.
    #[serde(default)]
    pub reconfigurations: u64,
}

/// A neighbour in a chain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeotpNeighbourStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Whether it has been heard since the start.
    pub has_been_heard: bool,
}

/// A bound, and how often it was reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LimitStatus {
    /// The bounded quantity.
    pub name: String,
    /// The ingress rule; absent for a bound of the whole gateway.
    #[serde(default)]
    pub rule: Option<String>,
    /// How often it was reached since the start of the gateway or of the rule.
    pub count: u64,
    /// Its present value.
    pub limit: u64,
    /// The key of the configuration that raises it, or another setting that does.
    pub key: String,
}

/// A configured peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Its public key.
    pub public_key: String,
    /// Number of open sessions.
    pub sessions: usize,
    /// Number of failed attempts to open a session since the last success.
    pub failed_attempts: u64,
    /// Cause of the last failure.
    pub last_error: Option<String>,
    /// Names of the paths configured for a session with it, without those that are ordered down; empty where this side opens none.
    #[serde(default)]
    pub configured_paths: Vec<String>,
    /// What an operator ordered of paths to it, on top of the configuration.
    #[serde(default)]
    pub orders: Vec<PathOrder>,
    /// Quotas and hours of the configured paths that have any, and which paths are out of service.
    #[serde(default)]
    pub service: Vec<PathService>,
    /// Bytes of all streams with it.
    #[serde(default)]
    pub traffic: Traffic,
    /// The streams with it by rule and priority.
    #[serde(default)]
    pub flows: Vec<FlowStatus>,
    /// The paths to it since the start, those of ended sessions included; bytes of a session's last half second may be missed.
    #[serde(default)]
    pub paths: Vec<PathTotals>,
}

/// What differs from the configuration of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathOrder {
    /// Name of the path.
    pub path: String,
    /// Out of service.
    pub down: bool,
    /// Its price per byte.
    pub cost: Option<f64>,
    /// Greatest rate of our direction, or `none`.
    pub limit: Option<String>,
    /// Bytes of a month, or `none`.
    #[serde(default)]
    pub monthly: Option<String>,
    /// Its hours, or `always`.
    #[serde(default)]
    pub active: Option<String>,
    /// All of this outlives the gateway.
    #[serde(default)]
    pub kept: bool,
    /// What comes back instead of this when the gateway is started again.
    #[serde(default)]
    pub kept_otherwise: Option<PathChange>,
}

/// The paths of one name in all sessions with a peer, since the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathTotals {
    /// Their name; `(others)` for all beyond 64 names.
    pub name: String,
    /// The side that opened their sessions: `us` or `peer`.
    pub opened_by: String,
    /// Bytes to the peer.
    pub bytes_sent: u64,
    /// Bytes from the peer.
    pub bytes_received: u64,
    /// Datagrams to the peer.
    pub datagrams_sent: u64,
    /// Lost datagrams of those.
    pub datagrams_lost: u64,
    /// Reconfigurations signalled to their controllers.
    pub reconfigurations: u64,
    /// Bytes of datagrams with data of streams, by class, the most important first. What is missing to the bytes of the path are
    /// acknowledgements, probes and control messages.
    #[serde(default)]
    pub by_class: Vec<ClassOnPath>,
}

/// What a path carried for streams of one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassOnPath {
    /// Priority; absent for all that come after the first 16, and for what arrived before its stream was known.
    pub priority: Option<u8>,
    /// Bytes to the peer, with redundancy and retransmissions.
    pub bytes_sent: u64,
    /// Bytes from the peer.
    pub bytes_received: u64,
}

/// The streams with a peer that belong to one rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowStatus {
    /// The rule's name; absent for streams that no gateway opened.
    pub rule: Option<String>,
    /// The side that has the rule: `us` or `peer`.
    pub rule_of: String,
    /// Totals of these streams.
    #[serde(flatten)]
    pub totals: FlowTotals,
}

/// The streams of one priority.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Class {
    /// Totals of these streams.
    #[serde(flatten)]
    pub totals: FlowTotals,
}

/// Totals of streams since the start, including those that have ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FlowTotals {
    /// Priority, 0 the most important.
    pub priority: u8,
    /// Number of open streams.
    pub streams: u64,
    /// Number of streams since the start.
    pub streams_total: u64,
    /// Bytes of applications.
    pub traffic: Traffic,
    /// Outcomes of the blocks.
    pub blocks: Blocks,
}

/// An ingress rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IngressStatus {
    /// Name of the rule.
    pub rule: String,
    /// `udp`, `rtp`, `tcp` or `socks5`.
    pub kind: String,
    /// The address on which it listens, with the port that the kernel chose.
    pub listen: SocketAddr,
    /// Name of the peer that carries it; empty over LEOTP.
    pub peer: String,
    /// Number of present client addresses or connections.
    pub clients: u64,
    /// Number of client addresses or connections since the start.
    pub clients_total: u64,
    /// Datagrams from applications.
    pub datagrams_in: u64,
    /// Datagrams to applications.
    pub datagrams_out: u64,
    /// Clients that were forgotten early to make room for new ones.
    #[serde(default)]
    pub displaced_clients: u64,
    /// Datagrams from applications that were dropped.
    pub dropped: DropCounts,
    /// Number of connections that failed or broke off.
    pub failed_connections: u64,
    /// Those of them that the far side did not make.
    #[serde(default)]
    pub refusals: RefusalCounts,
    /// Bytes of its streams.
    #[serde(default)]
    pub traffic: Traffic,
}

/// Connections that the far side did not make, by cause.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct RefusalCounts {
    /// Its `[egress]` does not allow the target.
    pub not_allowed: u64,
    /// Nothing listens there.
    pub connection_refused: u64,
    /// The target, or its name, was not found, or did not answer.
    pub unreachable: u64,
}

/// Dropped datagrams by cause.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DropCounts {
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
    /// Seconds since it was opened.
    pub age_s: f64,
    /// Number of refused streams of the peer: unreadable label, forbidden target, or too many streams.
    pub refused_streams: u64,
    /// Bytes held until the peer has acknowledged them.
    #[serde(default)]
    pub held_send_bytes: u64,
    /// Bytes held until they are complete and read.
    #[serde(default)]
    pub held_receive_bytes: u64,
    /// What all usable paths together can carry of what we send, by their estimates.
    #[serde(default)]
    pub available_bit_per_s: u64,
    /// Bytes over all its paths.
    #[serde(default)]
    pub traffic: Traffic,
    /// Who chooses the paths of what we send.
    #[serde(default)]
    pub scheduler: Scheduler,
    /// The paths that the session has now.
    pub paths: Vec<Path>,
    /// Its open streams, and the last few that have ended.
    pub streams: Vec<StreamStatus>,
}

/// Who chooses the paths of a session, and the plan in force.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Scheduler {
    /// `rules` or `optimizer`.
    pub name: String,
    /// How often the plan changed.
    pub plans: u64,
    /// Why it changed last; absent without a plan.
    #[serde(default)]
    pub reason: Option<String>,
    /// The plan, the most important blocks first.
    #[serde(default)]
    pub classes: Vec<PlannedClass>,
    /// What the paths with a cost may carry, and do; absent without a budget.
    #[serde(default)]
    pub spending: Option<BudgetStatus>,
}

/// What a session spends of its budget: rates over a path of cost 1.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct BudgetStatus {
    /// The budget.
    pub budget_bit_per_s: u64,
    /// What was spent in the last ten seconds.
    pub spent_bit_per_s: u64,
    /// What is left of a second's budget to be spent at once, 0 to 1.
    pub left: Option<f64>,
}

/// How the blocks of one priority with similar deadlines are sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedClass {
    /// 0 is the most important.
    pub priority: u8,
    /// Their deadlines are at least this, and less than twice as much.
    pub deadline_ms: u64,
    /// The rate that was planned for, headers included.
    pub rate_bit_per_s: u64,
    /// Share of the data that the plan brings in time.
    pub quality: Option<f64>,
    /// The paths on which they leave, and the share of each.
    pub ways: Vec<PlannedWayStatus>,
}

/// A path in a plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedWayStatus {
    /// Name of the path on which data leave first.
    pub path: String,
    /// The part of the class's data.
    pub share: Option<f64>,
    /// Name of the path on which they are sent again when lost; absent if they are not.
    #[serde(default)]
    pub again: Option<String>,
    /// Redundancy for each data fragment of the blocks that are coded.
    pub coding_rate: Option<f64>,
    /// The part of this path's data that is coded.
    pub coded_share: Option<f64>,
}

/// A path of a session; figures are absent until the path was up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Path {
    /// Name of the path.
    pub name: String,
    /// The peer's address on it; as configured while its name has none.
    pub remote: String,
    /// `up`, `suspect` (silent for longer than expected) or `down`.
    pub state: String,
    /// Name of the congestion controller.
    pub controller: String,
    /// Phase of the controller.
    pub controller_state: String,
    /// Congestion window in bytes.
    pub cwnd_bytes: u64,
    /// Bytes in flight.
    pub bytes_in_flight: u64,
    /// UDP payload of the largest packets that it is known to carry, in bytes; 0 without a connection.
    #[serde(default)]
    pub packet_bytes: u16,
    /// The controller's model of the path; absent if it keeps none.
    #[serde(default)]
    pub model: Option<Model>,
    /// Reconfigurations signalled to the controller.
    #[serde(default)]
    pub reconfigurations: Reconfigurations,
    /// Greatest rate at which we send on it, configured or ordered.
    #[serde(default)]
    pub limit_bit_per_s: Option<u64>,
    /// RTT of the satellite segments of both ends together; absent if neither end measures it.
    #[serde(default)]
    pub segment_rtt_ms: Option<f64>,
    /// Names of the session's other paths that seem to have their bottleneck in common with it.
    #[serde(default)]
    pub shares_bottleneck_with: Vec<String>,
    /// The prober that detects reconfigurations on this side, if there is one.
    #[serde(default)]
    pub detector: Option<DetectorStatus>,
    /// Cause if it cannot be used.
    #[serde(default)]
    pub last_error: Option<String>,
    /// Bytes since the session was opened, whether or not it is up.
    #[serde(default)]
    pub traffic: Traffic,
    /// Measured figures; absent until the path was up.
    #[serde(flatten)]
    pub figures: Option<PathFigures>,
}

/// A controller's model of its path (LeoCC's estimates).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Model {
    /// LeoCC's aggressive bandwidth estimate, bBW_a, in bit/s.
    pub bandwidth_aggressive_bit_per_s: Option<u64>,
    /// LeoCC's moderate bandwidth estimate, bBW_m, in bit/s.
    pub bandwidth_moderate_bit_per_s: Option<u64>,
    /// Range of the RTT without a queue.
    pub rtt_band_ms: Option<[f64; 2]>,
    /// Seconds since the last reconfiguration that the controller acted on.
    pub acted_on_ago_s: Option<f64>,
}

/// The reconfigurations signalled to a path's controller since its connection began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Reconfigurations {
    /// Number of reconfigurations.
    pub count: u64,
    /// The last one.
    pub last: Option<ReconfigurationStatus>,
}

/// A reconfiguration of a satellite path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReconfigurationStatus {
    /// Seconds since packets passed again.
    pub ago_s: f64,
    /// Length of the outage; absent when unknown.
    pub outage_ms: Option<f64>,
    /// Source of the signal: `probe`, `peer`, `schedule` or `ground_truth`.
    pub source: String,
    /// Confidence, 0 to 1.
    pub confidence: Option<f64>,
}

/// Measured figures of a path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathFigures {
    /// Configured price per byte.
    pub cost: Option<f64>,
    /// Smoothed round-trip time, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Lowest recent RTT.
    pub min_rtt_ms: Option<f64>,
    /// Estimated one-way delay to the peer.
    pub one_way_delay_ms: Option<f64>,
    /// Estimated bandwidth towards the peer, in bit/s.
    pub rate_bit_per_s: u64,
    /// Share of datagrams lost, 0 to 1.
    pub loss: Option<f64>,
    /// Greatest loss of a recent window, 0 to 1.
    pub loss_window_max: Option<f64>,
    /// Mean number of datagrams lost in a row.
    pub loss_burst_length: Option<f64>,
    /// The loss that its modem's bit-error rate lets expect, 0 to 0.5; absent where no modem tells of one.
    #[serde(default)]
    pub told_loss: Option<f64>,
    /// Bytes to the peer.
    pub bytes_sent: u64,
    /// Bytes from the peer.
    pub bytes_received: u64,
    /// Datagrams to the peer.
    pub datagrams_sent: u64,
    /// Lost datagrams of those.
    pub datagrams_lost: u64,
    /// Whether the peer has the newest datagram that asks for an acknowledgement; it may say so over another path.
    #[serde(default)]
    pub newest_acked: bool,
}

/// A stream of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamStatus {
    /// Number of the stream in its session.
    pub stream: u32,
    /// The ingress rule behind it, on either side.
    pub rule: Option<String>,
    /// `udp`, `rtp`, `associate`, `reply` or `tcp`.
    pub kind: Option<String>,
    /// Its destination on the far side.
    pub target: Option<String>,
    /// Priority, 0 the most important.
    #[serde(default)]
    pub priority: u8,
    /// Its mode: how blocks are protected.
    pub mode: String,
    /// Whether its bytes wait because the peer's application has not read those before.
    #[serde(default)]
    pub peer_reads_no_more: bool,
    /// Whether it has ended; its figures are kept for a while.
    #[serde(default)]
    pub ended: bool,
    /// Its bytes and rates.
    #[serde(default)]
    pub traffic: Traffic,
    /// Outcomes of its blocks.
    #[serde(flatten)]
    pub blocks: Blocks,
    /// Bytes from the application.
    pub bytes_sent: u64,
    /// Bytes for the application.
    pub bytes_received: u64,
}

/// Numbers of blocks by outcome.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Blocks {
    /// Blocks given to the session for sending.
    pub blocks_sent: u64,
    /// Whole blocks handed to the application.
    pub blocks_received: u64,
    /// Sent blocks that arrived before their deadline.
    pub on_time: u64,
    /// Sent blocks that arrived after their deadline.
    pub late: u64,
    /// Sent blocks that expired.
    pub expired: Expired,
    /// Sent blocks that were retreated, or that depended on a block that was not delivered.
    pub cancelled: u64,
    /// Sent blocks whose stream or session ended first.
    pub failed: u64,
    /// Sent blocks that were recovered.
    pub recovered: Recovered,
    /// Bytes of redundancy and of second copies that were sent for them, without headers.
    #[serde(default)]
    pub redundancy_bytes: u64,
}

/// Blocks dropped because they could not arrive in time, by cause.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Expired {
    /// Dropped in favour of other blocks.
    pub capacity: u64,
    /// Lost, and not recovered in time.
    pub loss: u64,
    /// No path was fast enough.
    pub unreachable: u64,
}

/// Blocks that lost fragments and were delivered.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recovered {
    /// Decoded with redundancy.
    pub redundancy: u64,
    /// A fragment was retransmitted.
    pub retransmission: u64,
}

impl FlowTotals {
    /// Adds what other streams of the same kind have carried.
    pub(crate) fn add(&mut self, other: &Self) {
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
        self.redundancy_bytes += other.redundancy_bytes;
    }
}
