//! Bulk transfers along the chain.

use starhaul_plot::Column;

use super::{Figures, Hops, System, kernel, own};
use crate::{
    Error,
    realtime::{Bench, Measured},
    worlds::chain::LEOTP_PAYLOAD_SHARE,
};

/// Name of the part, what it stands for, what it shows.
pub(super) const PART: (&str, &str, &str) = (
    "real",
    "LEOTP fig. 12",
    "a chain of lossy hops in real time",
);
pub(super) const WHAT: &str = "Transfers over emulated links between network namespaces. LEOTP runs as processes: a server, a relay in each node on \
     the way, and a requester; TCP passes the same links from end to end. Goodput is payload in order, as the receiving \
     program counts it; the ceiling is what full packets without a loss would carry.";

/// One run of a system.
pub(super) struct Row {
    system: String,
    restarts: u64,
    hops: u64,
    link: String,
    seed: u64,
    figures: Figures,
    ceiling_share: f64,
}

impl Row {
    pub(super) fn new(chain: &Hops, system: &System, seed: u64, figures: Figures) -> Self {
        let ceiling = chain.rate.mbit() * payload_share(system);
        Self {
            system: system.name(),
            restarts: system.restarts(),
            hops: chain.count as u64,
            link: chain.text.clone(),
            seed,
            figures,
            ceiling_share: figures.goodput_mbps / ceiling,
        }
    }
}

/// The share of the link's rate that is payload, while it carries full packets that arrive at the first try.
fn payload_share(system: &System) -> f64 {
    match system {
        System::Leotp { .. } => LEOTP_PAYLOAD_SHARE,
        System::Kernel(_) => kernel::PAYLOAD_SHARE,
    }
}

pub(super) fn run(
    bench: &Bench,
    hops: &Hops,
    seed: u64,
    system: &System,
) -> Result<Measured<Figures>, Error> {
    match system {
        System::Leotp { restart } => own::run(bench, hops, seed, *restart),
        System::Kernel(kernel) => kernel::run(bench, hops, seed, kernel),
    }
}

pub(super) fn columns() -> Vec<Column<Row>> {
    let number = |key, name, unit, decimals, of: fn(&Row) -> f64| {
        Column::number(key, name, unit, decimals, move |row: &Row| of(row).into()).median()
    };
    vec![
        Column::name("system", "system", |row: &Row| row.system.as_str().into()),
        Column::count("restarts", "relay restarts", |row: &Row| {
            row.restarts.into()
        }),
        Column::count("hops", "hops", |row: &Row| row.hops.into()),
        Column::name("link", "link", |row: &Row| row.link.as_str().into()).dropped(),
        Column::count("seed", "seed", |row: &Row| row.seed.into()).dropped(),
        number("goodput_mbps", "goodput", "Mbit/s", 2, |row| {
            row.figures.goodput_mbps
        }),
        Column::share("ceiling_share", "of ceiling", 1, |row: &Row| {
            row.ceiling_share.into()
        })
        .median(),
        Column::number("longest_pause_ms", "longest pause", "ms", 0, |row: &Row| {
            row.figures.longest_pause_ms.into()
        })
        .median(),
    ]
}
