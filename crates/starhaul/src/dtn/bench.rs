//! `starhaul dtn bench`: the benchmark is in `starhaul-dtn`.

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::ValueEnum;
use starhaul_dtn::bench::{self, LARGE_BYTES, Options, Place, Report, Row, SMALL_BYTES};

use tokio::signal::unix::{SignalKind, signal};

use crate::{
    goals::{self, Bound, Floor, Goal, Judged},
    output::{print, spinner},
};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Bundles of 1 MB, from an application of one node to one of its neighbour
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=3000))]
    large: u32,
    /// Bundles of 1 KB through one node
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=900_000))]
    small: u32,
    /// How often all is measured, after a first time that does not count; medians are told
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Only nodes that keep bundles there [default: memory,unsynced,disk]
    #[arg(long, value_enum, value_delimiter = ',')]
    storage: Vec<Storage>,
    /// Folder that is made for the stores on disk, and removed; it must not be there [default: one in the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Compare with the goals for two cores, and end with exit code 1 if one is missed: in memory bundles of 1 MB at 90 % of LTP's own rate, and
    /// there and on disk 20000 of 1 KB per second. The same of other stores is told and not promised
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    floor: Floor,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Storage {
    /// In memory
    Memory,
    /// On disk, which the system writes when it likes
    Unsynced,
    /// On disk, and there before a bundle is taken
    Disk,
    /// The same with SQLite and a file for each bundle: it commits one by one, so take fewer, as --small 2000
    Sqlite,
}

impl From<Storage> for Place {
    fn from(storage: Storage) -> Self {
        match storage {
            Storage::Memory => Self::Memory,
            Storage::Unsynced => Self::Unsynced,
            Storage::Disk => Self::Disk,
            Storage::Sqlite => Self::Sqlite,
        }
    }
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let chosen: Vec<Place> = arguments
        .storage
        .iter()
        .map(|at| Place::from(*at))
        .collect();
    let made = Made::new(arguments.folder)?;
    let options = Options {
        large: arguments.large,
        small: arguments.small,
        rounds: arguments.rounds,
        places: match chosen.is_empty() {
            true => vec![Place::Memory, Place::Unsynced, Place::Disk],
            false => chosen,
        },
        // Each measurement removes its stores.
        folder: made.path().join("stores"),
    };
    let progress = spinner();
    let tell = |step: &str| {
        progress.set_message(step.to_owned());
        progress.tick();
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let report = tokio::select! {
        report = bench::run(&options, tell) => report,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
        _ = terminate.recv() => anyhow::bail!("interrupted"),
    };
    progress.finish_and_clear();
    let report = report?;
    let judged = arguments
        .check
        .then(|| Judged::new(goals(&report), arguments.floor));
    let judged = judged.as_ref();
    let printed = print(match arguments.json {
        true => goals::json(&report, judged)?,
        false => table(&report) + &judged.map(Judged::lines).unwrap_or_default(),
    });
    // Whether or not the output is read.
    judged.map_or(Ok(()), Judged::judge).and(printed)
}

/// What nodes should reach. LTP's own rate is that of blocks in memory, which no disk need take; many small bundles are promised of the default
/// store, too, which keeps them on disk. Of other stores the same figures are told.
fn goals(report: &Report) -> Vec<Goal> {
    let of_row = |row: &Row| {
        let name = name(row.place);
        let (share, rate) = (row.share_of_ltp, row.small_per_s);
        let (large, small) = promised(row.place);
        let goal = |is_promised, goal: Goal| match is_promised {
            true => goal,
            false => goal.told_only(),
        };
        let share = Goal::new(name, "share_of_ltp", share, Bound::AtLeast(0.9));
        let rate = Goal::new(name, "small_per_s", rate, Bound::AtLeast(20_000.0));
        [goal(large, share), goal(small, rate)]
    };
    report.rows.iter().flat_map(of_row).collect()
}

/// Whether the goals for large and for small bundles are promised of a store.
const fn promised(place: Place) -> (bool, bool) {
    match place {
        Place::Memory => (true, true),
        Place::Disk => (false, true),
        Place::Unsynced | Place::Sqlite => (false, false),
    }
}

fn name(place: Place) -> &'static str {
    match place {
        Place::Memory => "memory",
        Place::Unsynced => "unsynced",
        Place::Disk => "disk",
        Place::Sqlite => "sqlite",
    }
}

/// A folder of this run, which no other user can have put anything into; removed when dropped.
enum Made {
    Named(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Made {
    fn new(named: Option<PathBuf>) -> anyhow::Result<Self> {
        let Some(folder) = named else {
            let made = tempfile::Builder::new()
                .prefix("starhaul-dtn-bench-")
                .tempdir();
            return Ok(Self::Temporary(made?));
        };
        let made = DirBuilder::new().mode(0o700).create(&folder);
        let advice = || {
            let folder = folder.display();
            format!(
                "--folder {folder}: the benchmark makes its folder, and removes it: name one that is not there"
            )
        };
        made.with_context(advice)?;
        Ok(Self::Named(folder))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Named(folder) => folder,
            Self::Temporary(folder) => folder.path(),
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Self::Named(folder) = self
            && let Err(error) = std::fs::remove_dir_all(&*folder)
        {
            tracing::warn!(folder = %folder.display(), %error, "the folder of the benchmark stays");
        }
    }
}

fn table(report: &Report) -> String {
    let mut text = format!(
        "payloads of {} MB: LTP alone {:.2} Gbit/s, {:.0} us of processor time each; bundles between two nodes, and bundles of {} KB through one node:\n\n{:9} {:>7} {:>7} {:>13} {:>12} {:>7} {:>9} {:>9} {:>7}\n",
        LARGE_BYTES / 1_000_000,
        report.ltp_gbit_per_s,
        report.ltp_cpu_us,
        SMALL_BYTES / 1_000,
        "storage",
        "1 MB",
        "Gbit/s",
        "share of LTP",
        "disk alone",
        "CPU us",
        "1 KB",
        "per s",
        "CPU us"
    );
    for row in &report.rows {
        let place = name(row.place);
        let disk = row.disk_gbit_per_s;
        let disk = disk.map_or("-".to_owned(), |rate| format!("{rate:.2}"));
        text += &format!(
            "{place:9} {:7} {:7.2} {:12.0}% {disk:>12} {:7.0} {:9} {:9.0} {:7.0}\n",
            row.large,
            row.gbit_per_s,
            100.0 * row.share_of_ltp,
            row.cpu_us,
            row.small,
            row.small_per_s,
            row.small_cpu_us
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_store_is_held_to_what_is_promised_of_it() {
        let row = |place, share_of_ltp, small_per_s| Row {
            place,
            large: 300,
            gbit_per_s: 10.0,
            share_of_ltp,
            disk_gbit_per_s: None,
            cpu_us: 1.0,
            small: 100_000,
            small_per_s,
            small_cpu_us: 1.0,
        };
        let is_met = |row: Row| {
            let report = Report {
                ltp_gbit_per_s: 11.0,
                ltp_cpu_us: 1.0,
                rows: vec![row],
            };
            // Both figures of each store are told.
            let goals = goals(&report);
            assert_eq!(goals.len(), 2);
            Goal::missed(&goals).is_none()
        };
        assert!(is_met(row(Place::Memory, 0.9, 20_000.0)));
        for (place, large, small) in [
            (Place::Memory, false, false),
            (Place::Disk, true, false),
            (Place::Unsynced, true, true),
            (Place::Sqlite, true, true),
        ] {
            assert_eq!(is_met(row(place, 0.89, 20_000.0)), large, "{place:?}");
            assert_eq!(is_met(row(place, 0.9, 19_999.0)), small, "{place:?}");
        }
    }
}
