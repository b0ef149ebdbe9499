//! Takes the status of a running gateway.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use starhaul_endpoint::{Chain, ClassBytes, PathId, PathModel, PathStatus, StreamStats};
use starhaul_units::Bandwidth;

use super::{
    Blocks, BudgetStatus, Bundle, Class, ClassOnPath, DropCounts, DroppedPackets, Expired,
    FlowStatus, FlowTotals, IngressStatus, Leotp, LeotpNeighbourStatus, LimitStatus, Model, Path,
    PathFigures, PathTotals, PeerStatus, PlannedClass, PlannedWayStatus, ReconfigurationStatus,
    Reconfigurations, Recovered, Scheduler, Session, Status, StreamStatus, Traffic, detector,
    numbers::{finite, millis, rounded},
    process::process,
    service,
    traffic::{Counted, Meter, Volume, Volumes},
};
use crate::{
    ingress::{Rule, Service, Way as _},
    label::Label,
    ledger::{Group, Totals},
    path_names::Unresolved,
    peer::{PeerSession, PeerState, Streams},
    shared::Shared,
    tunnel::Tunnel,
};

/// The side to which a rule or session belongs.
const US: &str = "us";
const PEER: &str = "peer";

impl Shared {
    /// The whole gateway.
    pub(crate) fn status(&self) -> Status {
        status(self, true)
    }

    /// The same without the streams of the sessions, of which there may be thousands.
    pub(crate) fn summary(&self) -> Status {
        status(self, false)
    }

    /// The present counters of everything with a rate in the status.
    pub(crate) fn counters(&self) -> Volumes {
        count(&peers_and_streams(self))
    }
}

fn status(shared: &Shared, lists_streams: bool) -> Status {
    let rules = shared.seen.rules();
    let known: Vec<_> = peers_and_streams(shared);
    let meter = shared.rates.meter(Instant::now());
    let uptime = shared.started.elapsed();
    let peers: Vec<_> = known
        .iter()
        .map(|(peer, streams)| peer_status(peer, streams, &meter, uptime))
        .collect();
    let sessions = known.iter().flat_map(|(peer, streams)| {
        let open = streams.open.iter();
        open.map(move |(session, streams)| (peer, session, streams))
    });
    let outlet = &shared.seen.outlet;
    let mut limits = outlet.limits.snapshot(outlet.policy.get().limits);
    limits.extend(shared.bundles.as_ref().map(Bundle::limit));
    Status {
        leotp: shared.chain.as_ref().map(chain),
        bundle: shared.bundles.as_ref().map(Bundle::of),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        public_key: shared.public_key.to_string(),
        uptime_s: rounded(uptime.as_secs_f64()),
        listen: shared.listen.clone(),
        metrics: shared.metrics,
        process: process(),
        ingress: [
            ingress(&rules.datagrams, &peers),
            ingress(&rules.connections, &peers),
        ]
        .concat(),
        tunnels: outlet
            .tunnels
            .all()
            .iter()
            .map(|tunnel| tunnel_status(tunnel, &peers))
            .collect(),
        classes: classes(&peers),
        peers,
        sessions: sessions
            .map(|(peer, session, streams)| {
                let streams = if lists_streams {
                    streams.as_slice()
                } else {
                    &[]
                };
                session_status(peer, session, streams, &meter)
            })
            .collect(),
        limits: [
            limits,
            limits_of(&rules.datagrams),
            limits_of(&rules.connections),
        ]
        .concat(),
    }
}

fn chain(chain: &Chain) -> Leotp {
    let now = chain.status();
    let neighbours = now.neighbours.into_iter();
    Leotp {
        listen: chain.local_addr(),
        neighbours: neighbours
            .map(|(name, has_been_heard)| LeotpNeighbourStatus {
                name,
                has_been_heard,
            })
            .collect(),
        streams: now.streams,
        streams_total: now.streams_total,
        bytes_sent: now.node.bytes_sent,
        packets_received: now.node.data_received,
        packets_lost: now.node.reported_lost,
        packets_repaired: now.node.repaired,
        reconfigurations: now.node.reconfigurations,
    }
}

type Known = (Arc<PeerState>, Streams);

fn peers_and_streams(shared: &Shared) -> Vec<Known> {
    let peers = shared.seen.peers().into_iter();
    peers
        .map(|peer| {
            let streams = peer.streams();
            (peer, streams)
        })
        .collect()
}

fn count(known: &[Known]) -> Volumes {
    let mut counters = Volumes::default();
    for (peer, streams) in known {
        for (group, totals) in &streams.groups {
            let counted = Counted::Group(peer.name.clone(), group.clone());
            counters.insert(counted, stream_bytes(&totals.sum));
        }
        for (session, streams) in &streams.open {
            let id = session.inner.id();
            for path in session.inner.path_status() {
                counters.insert(Counted::Path(id, path.path), path_bytes(&path));
            }
            for stats in streams {
                counters.insert(Counted::Stream(id, stats.stream), stream_bytes(stats));
            }
        }
    }
    counters
}

fn path_bytes(path: &PathStatus) -> Volume {
    Volume {
        sent: path.totals.bytes_sent,
        received: path.totals.bytes_received,
    }
}

fn stream_bytes(stats: &StreamStats) -> Volume {
    Volume {
        sent: stats.bytes_sent,
        received: stats.bytes_received,
    }
}

fn peer_status(
    peer: &PeerState,
    streams: &Streams,
    meter: &Meter<'_>,
    uptime: Duration,
) -> PeerStatus {
    let mut attempts = peer.attempts.lock().clone();
    if attempts.last_error.is_none() && streams.open.is_empty() {
        // No attempt was made yet for lack of an address.
        let mut unresolved = peer.unresolved_paths().into_iter();
        attempts.last_error = unresolved
            .next()
            .map(|path| format!("path {:?}: {}", path.name, path.problem));
    }
    let flows: Vec<_> = streams
        .groups
        .iter()
        .map(|(group, totals)| flow(&peer.name, group, totals, meter, uptime))
        .collect();
    let paths = path_totals(peer);
    PeerStatus {
        name: peer.name.clone(),
        public_key: peer.public_key.to_string(),
        sessions: streams.open.len(),
        failed_attempts: attempts.failed,
        last_error: attempts.last_error,
        configured_paths: peer.orders.path_names(),
        orders: peer.orders.snapshot(),
        service: service::all(&peer.orders.standings()),
        traffic: flows.iter().map(|flow| flow.totals.traffic).sum(),
        flows,
        paths,
    }
}

fn path_totals(peer: &PeerState) -> Vec<PathTotals> {
    let totals = peer.path_totals().into_iter();
    totals
        .map(|(key, counters)| PathTotals {
            name: key.name,
            opened_by: side(!key.of_peer).to_owned(),
            bytes_sent: counters.bytes_sent,
            bytes_received: counters.bytes_received,
            datagrams_sent: counters.datagrams_sent,
            datagrams_lost: counters.datagrams_lost,
            reconfigurations: counters.reconfigurations,
            by_class: by_class(&counters.sent_by_class, &counters.received_by_class),
        })
        .collect()
}

fn by_class(sent: &ClassBytes, received: &ClassBytes) -> Vec<ClassOnPath> {
    let mut classes: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for (priority, bytes) in sent.known() {
        classes.entry(priority).or_default().0 = bytes;
    }
    for (priority, bytes) in received.known() {
        classes.entry(priority).or_default().1 = bytes;
    }
    let known = classes
        .into_iter()
        .map(|(class, bytes)| (Some(class), bytes));
    let others = (None, (sent.others(), received.others()));
    let others = Some(others).filter(|(_, bytes)| *bytes != (0, 0));
    let all = known.chain(others);
    all.map(|(priority, (bytes_sent, bytes_received))| ClassOnPath {
        priority,
        bytes_sent,
        bytes_received,
    })
    .collect()
}

fn flow(
    peer: &str,
    group: &Group,
    totals: &Totals,
    meter: &Meter<'_>,
    uptime: Duration,
) -> FlowStatus {
    let counted = Counted::Group(peer.to_owned(), group.clone());
    FlowStatus {
        rule: group.rule.clone(),
        rule_of: side(group.ours).to_owned(),
        totals: FlowTotals {
            priority: group.class,
            streams: totals.open,
            streams_total: totals.streams,
            traffic: meter.traffic(&counted, stream_bytes(&totals.sum), uptime),
            blocks: blocks(&totals.sum),
        },
    }
}

fn classes(peers: &[PeerStatus]) -> Vec<Class> {
    let mut classes: BTreeMap<u8, FlowTotals> = BTreeMap::new();
    for flow in peers.iter().flat_map(|peer| &peer.flows) {
        let priority = flow.totals.priority;
        let class = classes.entry(priority).or_default();
        class.priority = priority;
        class.add(&flow.totals);
    }
    let classes = classes.into_values();
    classes.map(|totals| Class { totals }).collect()
}

fn side(ours: bool) -> &'static str {
    if ours { US } else { PEER }
}

fn limits_of<S: Service>(rules: &[Arc<Rule<S>>]) -> Vec<LimitStatus> {
    rules.iter().flat_map(|rule| S::limits(rule)).collect()
}

fn ingress<S: Service>(rules: &[Arc<Rule<S>>], peers: &[PeerStatus]) -> Vec<IngressStatus> {
    let rules = rules.iter();
    rules.map(|rule| ingress_status(rule, peers)).collect()
}

fn ingress_status<S: Service>(rule: &Rule<S>, peers: &[PeerStatus]) -> IngressStatus {
    let counters = &rule.counters;
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    IngressStatus {
        rule: rule.config.name.clone(),
        kind: rule.config.kind.to_owned(),
        listen: rule.address,
        peer: rule.way.name().to_owned(),
        clients: read(&counters.clients),
        clients_total: read(&counters.clients_total),
        datagrams_in: read(&counters.datagrams_in),
        datagrams_out: read(&counters.datagrams_out),
        displaced_clients: read(&counters.displaced_clients),
        dropped: DropCounts {
            no_session: read(&counters.dropped_no_session),
            too_many_clients: read(&counters.dropped_too_many_clients),
            refused: read(&counters.dropped_refused),
        },
        failed_connections: read(&counters.failed_connections),
        refusals: counters.refusals.snapshot(),
        traffic: traffic_of(peers, rule.way.name(), &rule.config.name, &[US]),
    }
}

fn tunnel_status(tunnel: &Tunnel, peers: &[PeerStatus]) -> super::TunnelStatus {
    let counters = &tunnel.counters;
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let rule = &tunnel.rule;
    super::TunnelStatus {
        rule: rule.name.clone(),
        device: tunnel.device_name(),
        peer: rule.peer.clone(),
        packets_in: read(&counters.packets_in),
        bytes_in: read(&counters.bytes_in),
        packets_out: read(&counters.packets_out),
        bytes_out: read(&counters.bytes_out),
        marked: read(&counters.marked),
        dropped: DroppedPackets {
            no_session: read(&counters.no_session),
            queue: read(&counters.queue),
            refused: read(&counters.refused),
            forbidden: read(&counters.forbidden),
            malformed: read(&counters.malformed),
        },
        traffic: traffic_of(peers, &rule.peer, &rule.name, &[US, PEER]),
    }
}

/// Bytes of the streams with a peer that belong to the rule of this name on these sides.
fn traffic_of(peers: &[PeerStatus], peer: &str, rule: &str, sides: &[&str]) -> Traffic {
    let flows = peers.iter().filter(|known| known.name == peer);
    let flows = flows.flat_map(|peer| &peer.flows).filter(|flow| {
        sides.contains(&flow.rule_of.as_str()) && flow.rule.as_deref() == Some(rule)
    });
    flows.map(|flow| flow.totals.traffic).sum()
}

fn session_status(
    peer: &PeerState,
    session: &PeerSession,
    streams: &[StreamStats],
    meter: &Meter<'_>,
) -> Session {
    let id = session.inner.id();
    let age = session.age();
    let problems = session.inner.path_problems();
    let probers = session.inner.path_probers();
    let known = session.inner.path_status();
    let now = Instant::now();
    let paths = known.iter().map(|status| Path {
        shares_bottleneck_with: sharers(status, &known),
        last_error: problems.get(&status.path).cloned(),
        detector: probers.get(&status.path).map(detector::detector),
        traffic: meter.traffic(&Counted::Path(id, status.path), path_bytes(status), age),
        ..path(status, now)
    });
    let unresolved = peer.unresolved_paths().into_iter();
    let unresolved = unresolved
        .filter(|_| session.opened_by_us)
        .map(unresolved_path);
    let paths: Vec<_> = paths.chain(unresolved).collect();
    let (held_send, held_receive) = session.inner.held_bytes();
    let waiting: BTreeSet<_> = match streams.is_empty() {
        true => BTreeSet::new(),
        false => session.inner.streams_without_credit().into_iter().collect(),
    };
    Session {
        peer: session.peer.clone(),
        opened_by: side(session.opened_by_us).to_owned(),
        age_s: rounded(age.as_secs_f64()),
        refused_streams: session.refused.load(Ordering::Relaxed),
        held_send_bytes: held_send as u64,
        held_receive_bytes: held_receive as u64,
        available_bit_per_s: session.inner.available().bits_per_second(),
        traffic: paths.iter().map(|path| path.traffic).sum(),
        scheduler: scheduler(session),
        paths,
        streams: streams
            .iter()
            .map(|stats| StreamStatus {
                traffic: meter.traffic(
                    &Counted::Stream(id, stats.stream),
                    stream_bytes(stats),
                    age,
                ),
                peer_reads_no_more: !stats.ended && waiting.contains(&stats.stream),
                ..stream(stats)
            })
            .collect(),
    }
}

fn scheduler(session: &PeerSession) -> Scheduler {
    let status = session.inner.scheduler_status().unwrap_or_default();
    let known = session.inner.path_status();
    // A path may have gone since.
    let name = |path: PathId| {
        let named = known.iter().find(|known| known.path == path);
        named.map_or_else(|| path.0.to_string(), |known| known.name.clone())
    };
    let classes = status.classes.iter().map(|planned| PlannedClass {
        priority: planned.class.priority,
        deadline_ms: 1 << planned.class.span.min(63),
        rate_bit_per_s: planned.rate.bits_per_second(),
        quality: finite(planned.quality),
        ways: planned
            .ways
            .iter()
            .map(|way| PlannedWayStatus {
                path: name(way.path),
                share: finite(way.share),
                again: way.again.map(name),
                coding_rate: finite(way.coding_rate),
                coded_share: finite(way.coded_share),
            })
            .collect(),
    });
    Scheduler {
        name: status.name.to_owned(),
        plans: status.plans,
        reason: status.reason.clone(),
        classes: classes.collect(),
        spending: status.spending.map(|spending| BudgetStatus {
            budget_bit_per_s: spending.budget.bits_per_second(),
            spent_bit_per_s: spending.spent.bits_per_second(),
            left: finite(spending.left),
        }),
    }
}

/// Names of the other paths that seem to share a bottleneck with this one.
fn sharers(path: &PathStatus, known: &[PathStatus]) -> Vec<String> {
    let shares = |other: &&PathStatus| match (&path.stats, &other.stats) {
        (Some(ours), Some(theirs)) => {
            other.path != path.path && ours.shares_bottleneck_with(theirs)
        }
        _ => false,
    };
    let sharers = known.iter().filter(shares);
    sharers.map(|other| other.name.clone()).collect()
}

/// A path whose address is not known.
fn unresolved_path(path: Unresolved) -> Path {
    Path {
        name: path.name,
        remote: path.remote.to_string(),
        state: "down".to_owned(),
        controller: String::new(),
        controller_state: String::new(),
        cwnd_bytes: 0,
        bytes_in_flight: 0,
        packet_bytes: 0,
        model: None,
        reconfigurations: Reconfigurations::default(),
        limit_bit_per_s: None,
        segment_rtt_ms: None,
        shares_bottleneck_with: Vec::new(),
        detector: None,
        last_error: Some(path.problem),
        traffic: Traffic::default(),
        figures: None,
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
        remote: path.remote.to_string(),
        state: state.to_owned(),
        controller: path.controller.to_owned(),
        controller_state: path.controller_state.to_owned(),
        cwnd_bytes: path.cwnd,
        bytes_in_flight: path.bytes_in_flight,
        packet_bytes: path.packet_bytes,
        model: path.model.as_ref().map(|known| model(known, now)),
        reconfigurations: Reconfigurations {
            count: path.reconfigurations.count,
            last: path
                .reconfigurations
                .last
                .map(|last| ReconfigurationStatus {
                    ago_s: ago(last.at, now),
                    outage_ms: millis(last.outage).filter(|_| !last.outage.is_zero()),
                    source: last.source.name().to_owned(),
                    confidence: finite(last.confidence),
                }),
        },
        limit_bit_per_s: path.rate_limit.map(Bandwidth::bits_per_second),
        segment_rtt_ms: path.segment_rtt.and_then(millis),
        shares_bottleneck_with: Vec::new(),
        detector: None,
        last_error: None,
        traffic: Traffic::default(),
        figures: path.stats.as_ref().map(|stats| PathFigures {
            cost: finite(stats.cost),
            rtt_ms: millis(stats.smoothed_rtt),
            min_rtt_ms: millis(stats.min_rtt),
            one_way_delay_ms: millis(stats.one_way_delay),
            rate_bit_per_s: stats.bandwidth.bits_per_second(),
            loss: finite(stats.loss_rate),
            loss_window_max: finite(stats.loss_window_max),
            loss_burst_length: finite(stats.burst_length),
            told_loss: stats.told_loss,
            bytes_sent: stats.bytes_sent,
            bytes_received: stats.bytes_received,
            datagrams_sent: stats.datagrams_sent,
            datagrams_lost: stats.datagrams_lost,
            newest_acked: stats.newest_acked,
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

fn stream(stats: &StreamStats) -> StreamStatus {
    // A stream that was refused may have any label.
    let label = Label::parse(&stats.label).ok();
    let flow = label.as_ref().map(|label| &label.flow);
    StreamStatus {
        stream: stats.stream.0,
        rule: label.as_ref().map(|label| label.rule.clone()),
        kind: flow.map(|flow| flow.kind().to_owned()),
        target: flow.and_then(|flow| flow.target()).map(ToString::to_string),
        priority: stats.priority,
        mode: stats.mode.name().to_owned(),
        ended: stats.ended,
        peer_reads_no_more: false,
        traffic: Traffic::default(),
        blocks: blocks(stats),
        bytes_sent: stats.bytes_sent,
        bytes_received: stats.bytes_received,
    }
}

fn blocks(stats: &StreamStats) -> Blocks {
    Blocks {
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
        redundancy_bytes: stats.redundancy_bytes,
    }
}
