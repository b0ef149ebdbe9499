//! The figures of a node for Prometheus: those of its status. Labels hold the configured neighbours alone, also when other nodes connect.

use std::{collections::BTreeSet, fmt, sync::Arc};

use starhaul_metrics::{Families, Process, Unit};

use starhaul_dtn_client::status::{Counters, NeighbourStatus, Status, StorageStatus};

/// What is told of a node at one moment.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Its status; the lists of what is stored for each destination are not used.
    pub status: Status,
    /// The neighbours of the configuration.
    pub neighbours: Vec<Configured>,
    /// Memory, processor time and files of the process.
    pub process: Process,
}

/// A neighbour of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Configured {
    /// Number or name of the neighbour.
    pub node: String,
    /// `ltp` or `tcp`.
    pub by: String,
    /// Whether a contact is open now, or none is needed.
    pub is_due: bool,
}

impl Figures {
    /// Returns the figures as OpenMetrics text.
    pub fn text(self) -> String {
        starhaul_metrics::encode(&Arc::new(self))
    }
}

impl starhaul_metrics::Figures for Figures {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        families.program(
            env!("CARGO_PKG_VERSION"),
            self.status.uptime_s,
            self.process,
        )?;
        of_storage(&self.status.storage, families)?;
        of_bundles(&self.status.counters, families)?;
        of_neighbours(&self.neighbours, &self.status.neighbours, families)?;
        of_ltp(&self.status.counters, families)
    }
}

fn of_storage(storage: &StorageStatus, families: &mut Families<'_>) -> fmt::Result {
    let one = |value: u64| [([], value as f64)];
    families.gauge(
        "starhaul_dtn_storage_bundles",
        "Bundles in the store",
        None,
        one(storage.bundles),
    )?;
    families.gauge(
        "starhaul_dtn_storage_max_bundles",
        "Greatest number of bundles in the store",
        None,
        one(storage.max_bundles),
    )?;
    families.gauge(
        "starhaul_dtn_storage",
        "Bytes of the bundles in the store and of what is known of them",
        Some(Unit::Bytes),
        one(storage.bytes),
    )?;
    families.gauge(
        "starhaul_dtn_storage_max",
        "Greatest number of bytes in the store",
        Some(Unit::Bytes),
        one(storage.max_bytes),
    )?;
    families.gauge(
        "starhaul_dtn_in_flight_bundles",
        "Bundles that are being sent, until they are acknowledged",
        None,
        one(storage.in_flight),
    )
}

fn of_bundles(counters: &Counters, families: &mut Families<'_>) -> fmt::Result {
    for (name, help, count) in [
        (
            "starhaul_dtn_received_bundles",
            "Bundles that came from neighbours",
            counters.received,
        ),
        (
            "starhaul_dtn_sent_bundles",
            "Bundles that neighbours took",
            counters.sent,
        ),
        (
            "starhaul_dtn_expired_bundles",
            "Bundles whose lifetime ended here",
            counters.expired,
        ),
        (
            "starhaul_dtn_refused_bundles",
            "Bundles for which there was no room",
            counters.refused,
        ),
        (
            "starhaul_dtn_too_large_bundles",
            "Bundles that were larger than max_bundle_bytes or max_bytes allows",
            counters.too_large,
        ),
    ] {
        families.counter(name, help, None, [([], count)])?;
    }
    Ok(())
}

fn of_neighbours(
    configured: &[Configured],
    present: &[NeighbourStatus],
    families: &mut Families<'_>,
) -> fmt::Result {
    let key = |at: &NeighbourStatus| (at.node.clone(), at.by.clone());
    let open = present.iter().filter(|at| at.is_open).map(key);
    let open: BTreeSet<_> = open.collect();
    let known = configured.iter().map(|at| (at.node.clone(), at.by.clone()));
    let known: BTreeSet<_> = known.collect();
    let each = |is: &dyn Fn(&Configured) -> bool| {
        let series = configured.iter().map(|at| {
            let labels = [
                ("neighbour", at.node.as_str()),
                ("protocol", at.by.as_str()),
            ];
            (labels, f64::from(u8::from(is(at))))
        });
        series.collect::<Vec<_>>()
    };
    families.gauge(
        "starhaul_dtn_neighbour_open",
        "Whether bundles may be sent to a neighbour now",
        None,
        each(&|at| open.contains(&(at.node.clone(), at.by.clone()))),
    )?;
    families.gauge(
        "starhaul_dtn_neighbour_due",
        "Whether a contact with a neighbour is open by the plan, or none is needed",
        None,
        each(&|at| at.is_due),
    )?;
    let strange = present.iter().filter(|at| !known.contains(&key(at)));
    families.gauge(
        "starhaul_dtn_unknown_neighbours",
        "Connected nodes that the configuration does not name",
        None,
        [([], strange.count() as f64)],
    )
}

fn of_ltp(counters: &Counters, families: &mut Families<'_>) -> fmt::Result {
    for (name, help, count) in [
        (
            "starhaul_dtn_ltp_sent_segments",
            "LTP data segments sent",
            counters.ltp_segments,
        ),
        (
            "starhaul_dtn_ltp_resent_segments",
            "Those among them that were sent again",
            counters.ltp_resent,
        ),
        (
            "starhaul_dtn_ltp_dropped_segments",
            "LTP segments that were dropped",
            counters.ltp_dropped,
        ),
        (
            "starhaul_dtn_ltp_unreadable_blocks",
            "LTP blocks that held something else than bundles",
            counters.ltp_unreadable,
        ),
        (
            "starhaul_dtn_ltp_stranger_datagrams",
            "Datagrams at the port of LTP from addresses of no neighbour",
            counters.ltp_strangers,
        ),
    ] {
        families.counter(name, help, None, [([], count)])?;
    }
    Ok(())
}
