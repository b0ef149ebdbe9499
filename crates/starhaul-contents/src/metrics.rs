//! The figures of a relay for Prometheus. The relay's own thread takes them between two turns, when an HTTP client asks: so they
//! are of one moment, and cost nothing without requests.

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    time::Duration,
};

use starhaul_leotp::Stats;
use starhaul_metrics::{Background, Families, Process, Scrapes, Unit};
use starhaul_net::Waker;

use crate::Error;

/// A turn of the relay takes a part of it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a relay has carried since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Counters of the node.
    pub node: Stats,
    /// Bytes in the cache.
    pub cache_bytes: usize,
    /// Datagrams that no neighbour sent.
    pub strangers: u64,
}

/// What is told of a relay at one moment.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Seconds since it began.
    pub uptime_s: f64,
    /// Counters of packets and bytes since the start.
    pub traffic: Traffic,
    /// Greatest number of bytes in the cache.
    pub cache_max_bytes: usize,
    /// Its neighbours, and whether each has been heard since the start.
    pub neighbours: Vec<(String, bool)>,
    /// Memory, processor time and files of the process.
    pub process: Process,
}

/// Where the relay hears that its figures are asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    server: Background,
    questions: Receiver<SyncSender<Figures>>,
}

impl Asked {
    /// Serves metrics at this address; a request wakes the relay.
    pub(crate) fn start(address: SocketAddr, waker: Waker) -> Result<Self, Error> {
        let (ask, questions) = channel();
        let site = Scrapes::new(move || question(&ask, &waker).map(Figures::text));
        let server = Background::start(address, site)
            .map_err(|reason| Error::Metrics { address, reason })?;
        Ok(Self { server, questions })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The next request without an answer.
    pub(crate) fn next(&self) -> Option<SyncSender<Figures>> {
        self.questions.try_recv().ok()
    }
}

fn question(ask: &Sender<SyncSender<Figures>>, waker: &Waker) -> Option<Figures> {
    let (answer, answered) = sync_channel(1);
    ask.send(answer).ok()?;
    waker.wake();
    answered.recv_timeout(PATIENCE).ok()
}

impl Figures {
    /// Returns the figures as OpenMetrics text.
    pub fn text(self) -> String {
        starhaul_metrics::encode(&Arc::new(self))
    }
}

impl starhaul_metrics::Figures for Figures {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        families.program(env!("CARGO_PKG_VERSION"), self.uptime_s, self.process)?;
        of_traffic(&self.traffic.node, families)?;
        of_cache(self, families)?;
        of_repairs(&self.traffic.node, families)?;
        of_refused(&self.traffic, families)?;
        of_limits(&self.traffic.node, families)?;
        let heard = self.neighbours.iter().map(|(name, heard)| {
            let labels = [("neighbour", name.as_str())];
            (labels, f64::from(u8::from(*heard)))
        });
        families.gauge(
            "starhaul_relay_neighbour_heard",
            "Whether a neighbour has been heard since the start",
            None,
            heard,
        )
    }
}

fn of_traffic(stats: &Stats, families: &mut Families<'_>) -> fmt::Result {
    families.counter(
        "starhaul_relay_interests",
        "Ranges that neighbours asked for",
        None,
        [([], stats.interests)],
    )?;
    families.counter(
        "starhaul_relay_aggregated_interests",
        "Those of which a part had been asked for by others",
        None,
        [([], stats.aggregated)],
    )?;
    families.counter(
        "starhaul_relay_received_data_packets",
        "Packets with data from neighbours",
        None,
        [([], stats.data_received)],
    )?;
    families.counter(
        "starhaul_relay_sent_data_packets",
        "Packets with data to neighbours",
        None,
        [([], stats.data_sent)],
    )?;
    families.counter(
        "starhaul_relay_sent_control_packets",
        "Packets without data to neighbours",
        None,
        [([], stats.control_sent)],
    )?;
    families.counter(
        "starhaul_relay_sent",
        "Bytes to neighbours, without headers of IP and UDP",
        Some(Unit::Bytes),
        [([], stats.bytes_sent)],
    )?;
    families.counter(
        "starhaul_relay_reconfigurations",
        "Reconfigurations of hops that timetables, schedules and probes told of",
        None,
        [([], stats.reconfigurations)],
    )
}

fn of_cache(figures: &Figures, families: &mut Families<'_>) -> fmt::Result {
    families.gauge(
        "starhaul_relay_cache",
        "Bytes in the cache",
        Some(Unit::Bytes),
        [([], figures.traffic.cache_bytes as f64)],
    )?;
    families.gauge(
        "starhaul_relay_cache_max",
        "Greatest number of bytes in the cache",
        Some(Unit::Bytes),
        [([], figures.cache_max_bytes as f64)],
    )?;
    families.counter(
        "starhaul_relay_cache_hit",
        "Bytes that came out of the cache",
        Some(Unit::Bytes),
        [([], figures.traffic.node.cache_hits)],
    )?;
    families.counter(
        "starhaul_relay_evicted_segments",
        "Segments that left the cache for others",
        None,
        [([], figures.traffic.node.evicted)],
    )
}

fn of_repairs(stats: &Stats, families: &mut Families<'_>) -> fmt::Result {
    families.counter(
        "starhaul_relay_lost_packets",
        "Packets lost on the way from neighbours",
        None,
        [([], stats.reported_lost)],
    )?;
    families.counter(
        "starhaul_relay_repaired_segments",
        "Segments sent to neighbours again",
        None,
        [([], stats.repaired)],
    )?;
    families.counter(
        "starhaul_relay_refetched_segments",
        "Segments lost on the way to neighbours that had to be asked for upstream",
        None,
        [([], stats.repairs_refetched)],
    )?;
    families.counter(
        "starhaul_relay_expired_ranges",
        "Ranges that did not come and were forgotten",
        None,
        [([], stats.expired)],
    )
}

fn of_refused(traffic: &Traffic, families: &mut Families<'_>) -> fmt::Result {
    let refused = &traffic.node.refused;
    let causes = [
        ("strangers", traffic.strangers),
        ("malformed", refused.malformed),
        ("forged", refused.forged),
        ("replayed", refused.replayed),
        ("unsolicited", refused.unsolicited),
        ("unknown", refused.unknown),
    ];
    families.counter(
        "starhaul_relay_refused",
        "Packets and Interests that were refused, by cause",
        None,
        causes.map(|(cause, count)| ([("cause", cause)], count)),
    )
}

fn of_limits(stats: &Stats, families: &mut Families<'_>) -> fmt::Result {
    let limits = [
        ("interests", stats.refused.overflow),
        ("queue", stats.queue_drops),
        ("frames", stats.frame_drops),
    ];
    families.counter(
        "starhaul_relay_limit_reached",
        "How often there was no room: for an Interest, for a segment in a neighbour's queue, for its control frames",
        None,
        limits.map(|(limit, count)| ([("limit", limit)], count)),
    )
}
