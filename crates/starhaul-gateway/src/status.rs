//! What `starhaul status` shows: the JSON object of the control socket, as types for both of its ends.

mod detector;

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use starhaul_endpoint::{PathModel, PathStatus, StreamStats};
use starhaul_units::Bandwidth;

use crate::{
    config::mode_name,
    gateway::Shared,
    ingress::Rule,
    label::Label,
    link::{Link, PeerState},
};

pub use self::detector::Detector;

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
    /// Datagrams from applications that went nowhere.
    pub dropped: Dropped,
    /// Connections that were not made or broke off.
    pub failed_connections: u64,
}

/// Why datagrams went nowhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Dropped {
    /// No session with the peer was open.
    pub no_session: u64,
    /// More clients than the rule allows.
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
    /// The peer's address on it.
    pub remote: SocketAddr,
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
    /// What the path is believed to carry.
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
    /// How its blocks are protected.
    pub mode: String,
    /// It has ended; its figures are kept for a while.
    #[serde(default)]
    pub ended: bool,
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
    /// By the application.
    pub bytes_sent: u64,
    /// For the application.
    pub bytes_received: u64,
}

/// Blocks dropped because they could not arrive in time, by cause.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Expired {
    /// Other blocks went first.
    pub capacity: u64,
    /// Lost and not recovered in time.
    pub loss: u64,
    /// No path is fast enough.
    pub unreachable: u64,
}

/// Blocks that lost fragments and arrived whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recovered {
    /// Rebuilt from redundancy.
    pub redundancy: u64,
    /// Sent again.
    pub retransmission: u64,
}

/// The whole gateway.
pub(crate) fn status(shared: &Shared) -> Status {
    let peers = shared.seen.peers();
    let rules = shared.seen.rules();
    let links = peers.iter().flat_map(|peer| peer.links());
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        public_key: shared.public_key.to_string(),
        uptime_s: rounded(shared.started.elapsed().as_secs_f64()),
        listen: shared.listen.clone(),
        peers: peers.iter().map(|peer| peer_status(peer)).collect(),
        ingress: rules.iter().map(|rule| ingress(rule)).collect(),
        sessions: links.map(|link| session(&link)).collect(),
    }
}

fn peer_status(peer: &PeerState) -> Peer {
    let attempts = peer.attempts();
    Peer {
        name: peer.name.clone(),
        public_key: peer.public_key.to_string(),
        sessions: peer.links().len(),
        failed_attempts: attempts.failed,
        last_error: attempts.last_error,
    }
}

fn ingress(rule: &Rule) -> Ingress {
    let counters = &rule.counters;
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Ingress {
        rule: rule.config.name.clone(),
        kind: rule.config.service.kind().to_owned(),
        listen: rule.address,
        peer: rule.peer.name.clone(),
        clients: read(&counters.clients),
        clients_total: read(&counters.clients_total),
        datagrams_in: read(&counters.datagrams_in),
        datagrams_out: read(&counters.datagrams_out),
        dropped: Dropped {
            no_session: read(&counters.dropped_no_session),
            too_many_clients: read(&counters.dropped_too_many_clients),
            refused: read(&counters.dropped_refused),
        },
        failed_connections: read(&counters.failed_connections),
    }
}

fn session(link: &Link) -> Session {
    let problems = link.session.path_problems();
    let probers = link.session.path_probers();
    let paths = link.session.path_status();
    let now = Instant::now();
    let paths = paths.iter().map(|status| Path {
        last_error: problems.get(&status.name).cloned(),
        detector: probers.get(&status.name).map(detector::detector),
        ..path(status, now)
    });
    Session {
        peer: link.peer.clone(),
        opened_by: if link.opened_by_us { "us" } else { "peer" }.to_owned(),
        age_s: rounded(link.age().as_secs_f64()),
        refused_streams: link.refused.load(Ordering::Relaxed),
        paths: paths.collect(),
        streams: link.session.stream_stats().iter().map(stream).collect(),
    }
}

fn path(path: &PathStatus, now: Instant) -> Path {
    let state = match (path.up, &path.stats) {
        (false, _) => "down",
        (true, Some(stats)) if stats.suspect => "suspect",
        (true, _) => "up",
    };
    Path {
        name: path.name.clone(),
        remote: path.remote,
        state: state.to_owned(),
        controller: path.controller.to_owned(),
        controller_state: path.controller_state.to_owned(),
        cwnd_bytes: path.cwnd,
        bytes_in_flight: path.bytes_in_flight,
        model: path.model.as_ref().map(|known| model(known, now)),
        reconfigurations: Reconfigurations {
            count: path.reconfigurations.count,
            last: path.reconfigurations.last.map(|last| Reconfiguration {
                ago_s: ago(last.at, now),
                outage_ms: millis(last.outage).filter(|_| !last.outage.is_zero()),
                source: last.source.name().to_owned(),
                confidence: finite(last.confidence),
            }),
        },
        segment_rtt_ms: path.segment_rtt.and_then(millis),
        detector: None,
        last_error: None,
        figures: path.stats.as_ref().map(|stats| PathFigures {
            cost: finite(stats.cost),
            rtt_ms: millis(stats.smoothed_rtt),
            min_rtt_ms: millis(stats.min_rtt),
            one_way_delay_ms: millis(stats.one_way_delay),
            rate_bit_per_s: stats.bandwidth.bits_per_second(),
            loss: finite(stats.loss_rate),
            loss_window_max: finite(stats.loss_window_max),
            loss_burst_length: finite(stats.burst_length),
            bytes_sent: stats.bytes_sent,
            bytes_received: stats.bytes_received,
            datagrams_sent: stats.datagrams_sent,
            datagrams_lost: stats.datagrams_lost,
        }),
    }
}

fn model(model: &PathModel, now: Instant) -> Model {
    let bits = |rate: Option<Bandwidth>| rate.map(Bandwidth::bits_per_second);
    let band = model.rtt_band;
    Model {
        bandwidth_aggressive_bit_per_s: bits(model.bandwidth_aggressive),
        bandwidth_moderate_bit_per_s: bits(model.bandwidth_moderate),
        rtt_band_ms: band.and_then(|(low, high)| Some([millis(low)?, millis(high)?])),
        acted_on_ago_s: model.last_reconfiguration.map(|at| ago(at, now)),
    }
}

fn ago(at: Instant, now: Instant) -> f64 {
    rounded(now.saturating_duration_since(at).as_secs_f64())
}

fn stream(stats: &StreamStats) -> Stream {
    // A stream that was refused may have any label.
    let label = Label::parse(&stats.label).ok();
    let flow = label.as_ref().map(|label| &label.flow);
    Stream {
        stream: stats.stream.0,
        rule: label.as_ref().map(|label| label.rule.clone()),
        kind: flow.map(|flow| flow.kind().to_owned()),
        target: flow.and_then(|flow| flow.target()).map(ToString::to_string),
        mode: mode_name(stats.mode).to_owned(),
        ended: stats.ended,
        blocks_sent: stats.blocks_sent,
        blocks_received: stats.blocks_received,
        on_time: stats.on_time,
        late: stats.late,
        expired: Expired {
            capacity: stats.expired_capacity,
            loss: stats.expired_loss,
            unreachable: stats.expired_unreachable,
        },
        cancelled: stats.cancelled,
        failed: stats.failed,
        recovered: Recovered {
            redundancy: stats.recovered_by_redundancy,
            retransmission: stats.recovered_by_retransmission,
        },
        bytes_sent: stats.bytes_sent,
        bytes_received: stats.bytes_received,
    }
}

fn millis(duration: Duration) -> Option<f64> {
    // Before the first sample a round trip may stand at infinity.
    (duration < Duration::from_secs(86_400)).then(|| rounded(duration.as_secs_f64() * 1e3))
}

/// JSON knows no infinity.
fn finite(number: f64) -> Option<f64> {
    number.is_finite().then(|| (number * 1e6).round() / 1e6)
}

fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
