//! Bulk transfers along the chain.

use std::time::Duration;

use starhaul_plot::{Bound, Column, Goal};

use super::{Figures, Hops, Killed, LEOTP, System, kernel, own};
use crate::{
    Error,
    kit::statistics::median,
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

/// Payload in order is to be this share of the ceiling, start included.
const LEAST_SHARE: f64 = 0.95;
/// An interruption by a relay that is killed and started again may last so many round trips of the path, and what neighbours need to find it.
const INTERRUPTED_ROUNDS: u32 = 2;
const FOUND: Duration = Duration::from_millis(100);

/// One run of a system.
pub(super) struct Row {
    system: String,
    restarts: u64,
    away: Duration,
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
            away: system.away(),
            hops: chain.count as u64,
            link: chain.text.clone(),
            seed,
            figures,
            ceiling_share: figures.goodput_mbps / ceiling,
        }
    }
}

/// What LEOTP is to reach: its share of the ceiling in the median of the runs, and the longest interruption in each, beside the time that the relay is
/// away.
pub(super) fn goals(chain: &Hops, rows: &[Row]) -> Vec<Goal> {
    let ours = |restarts: u64| {
        rows.iter()
            .filter(move |row| row.system == LEOTP && row.restarts == restarts)
    };
    let share = match ours(0).count() {
        // Nothing was measured.
        0 => f64::NAN,
        _ => median(ours(0).map(|row| row.ceiling_share)),
    };
    let whole = Goal::new(LEOTP, "ceiling_share", share, Bound::AtLeast(LEAST_SHARE));
    let interrupted = chain.round_trip(0).into_iter().flat_map(|round_trip| {
        [Killed::Middle, Killed::First].map(|killed| {
            let away = killed.away();
            let pauses = ours(1).filter(|row| row.away == away);
            let pauses = pauses.filter_map(|row| row.figures.longest_pause_ms);
            let pause = pauses.fold(f64::NAN, f64::max);
            let bound = away + round_trip * INTERRUPTED_ROUNDS + FOUND;
            let row = match killed {
                Killed::Middle => format!("{LEOTP}, a relay killed and started again"),
                Killed::First => format!("{LEOTP}, the first relay away for a while"),
            };
            let bound = Bound::AtMost(bound.as_secs_f64() * 1e3);
            Goal::new(&row, "longest_pause_ms", pause, bound)
        })
    });
    std::iter::once(whole).chain(interrupted).collect()
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
        System::Leotp { killed } => own::run(bench, hops, seed, *killed),
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
        Column::number("away_s", "relay away", "s", 0, |row: &Row| {
            row.away.as_secs_f64().into()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::kernel::Kernel;

    const LINK: &str = "rate=20mbit,delay=10ms,loss=1%,queue=200p";

    fn chain() -> Hops {
        Hops {
            count: 5,
            text: LINK.to_owned(),
            forward: LINK.parse().unwrap(),
            rate: starhaul_units::Bandwidth::from_mbit(20),
            seconds: 30,
        }
    }

    fn row(system: &System, share: f64, pause_ms: f64) -> Row {
        let chain = chain();
        let figures = Figures {
            goodput_mbps: share * chain.rate.mbit() * payload_share(system),
            longest_pause_ms: Some(pause_ms),
        };
        Row::new(&chain, system, 1, figures)
    }

    fn met(rows: &[Row]) -> Vec<bool> {
        goals(&chain(), rows).iter().map(Goal::is_met).collect()
    }

    /// Two round trips of 100 ms and 100 ms more, beside 3 s that a relay is away.
    #[test]
    fn the_median_of_whole_runs_and_each_interruption_count() {
        let leotp = |killed| System::Leotp { killed };
        let whole = |share| row(&leotp(None), share, 1000.0);
        let killed = |pause_ms| row(&leotp(Some(Killed::Middle)), 0.5, pause_ms);
        let away = |pause_ms| row(&leotp(Some(Killed::First)), 0.5, pause_ms);
        let kernel = || row(&System::Kernel(Kernel("cubic".to_owned())), 0.1, 1000.0);
        let rows = [
            whole(0.9),
            whole(0.951),
            whole(0.96),
            killed(300.0),
            away(3300.0),
            kernel(),
        ];
        assert_eq!(met(&rows), [true, true, true]);
        let rows = [
            whole(0.9),
            whole(0.949),
            whole(0.96),
            killed(300.0),
            away(3300.1),
        ];
        assert_eq!(met(&rows), [false, true, false]);
        let rows = [whole(0.96), killed(90.0), killed(300.1), away(3000.0)];
        assert_eq!(met(&rows), [true, false, true]);
        // What was not measured is not reached.
        assert_eq!(met(&[whole(0.96)]), [true, false, false]);
        assert_eq!(met(&[]), [false, false, false]);
    }
}
