//! How many bundles this host carries over loopback, beside LTP alone in the same run. What arrives is compared with what was
//! sent, and each must arrive once.
//!
//! A shared machine differs from second to second. So LTP alone is measured again beside each measurement of nodes, which is
//! compared with that one; which of the two comes first changes from pair to pair. All is repeated, and medians are told. The first round
//! is for warmth: memory that a process has for the first time is slow.

mod disk;
mod ends;
mod nodes;

use std::{
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::{Error, Storage};

/// Size and places of a measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bundles of [`LARGE_BYTES`] from one node to its neighbour.
    pub large: u32,
    /// Bundles of [`SMALL_BYTES`] through one node.
    pub small: u32,
    /// How often all is measured; medians are told.
    pub rounds: u32,
    /// The stores that are measured one after the other.
    pub places: Vec<Place>,
    /// Folder in which those on disk are; it is made, and removed afterwards.
    pub folder: PathBuf,
}

/// Where the nodes keep bundles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In memory, without a file.
    Memory,
    /// On disk, which the system writes when it likes.
    Unsynced,
    /// On disk, and there before a bundle is taken.
    Disk,
    /// The same, with what is known of bundles in SQLite and a file for each.
    Sqlite,
}

/// The figures of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// LTP alone, one block for each large payload: Gbit/s of payload.
    pub ltp_gbit_per_s: f64,
    /// Processor time of all threads for each of them.
    pub ltp_cpu_us: f64,
    /// Figures of nodes, a row for each place.
    pub rows: Vec<Row>,
}

/// What nodes do that keep bundles in one of the places.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The store of these nodes.
    pub place: Place,
    /// Large bundles sent, all of which arrived.
    pub large: u32,
    /// Gbit/s of their payload, from the first that an application gives to its node to the last that another application gets.
    pub gbit_per_s: f64,
    /// That by LTP's own rate just before or after: the median of all pairs.
    pub share_of_ltp: f64,
    /// Gbit/s of payload if both nodes only wrote it to the same disk, in the same run: no more can be stored.
    pub disk_gbit_per_s: Option<f64>,
    /// Processor time of all threads for each of them.
    pub cpu_us: f64,
    /// Small bundles sent, all of which arrived.
    pub small: u32,
    /// How many of them a node receives, stores, forwards and removes per second. Its neighbours are engines of LTP only.
    pub small_per_s: f64,
    /// Processor time for each of them: of the node, and of the engines that send and receive.
    pub small_cpu_us: f64,
}

/// Time that some bundles took.
#[derive(Clone, Copy)]
struct Cost {
    time: Duration,
    /// Processor time of all threads.
    cpu: Duration,
}

/// Measures a [`Cost`] from its making on.
struct Stopwatch {
    start: Instant,
    cpu: Duration,
}

impl Stopwatch {
    fn start() -> Self {
        Self {
            start: Instant::now(),
            cpu: cpu_time(),
        }
    }

    fn stop(&self) -> Cost {
        Cost {
            time: self.start.elapsed(),
            cpu: cpu_time().saturating_sub(self.cpu),
        }
    }
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.try_into().unwrap_or_default()
}

/// Pairs of LTP alone and nodes in each round: one takes little more than a tenth of a second, in which anything else that runs shows.
const PAIRS: u32 = 5;

/// Payload of a large bundle.
pub const LARGE_BYTES: usize = 1_000_000;
/// Payload of a small bundle.
pub const SMALL_BYTES: usize = 1_000;

/// Measures, and calls `tell` with what it does now.
///
/// # Errors
/// [`Error::Bench`] when a bundle is lost, comes twice or is not what was sent; what starting a node can fail with.
pub async fn run(options: &Options, tell: impl Fn(&str)) -> Result<Report, Error> {
    let large = options.large.max(1);
    let mut all: Vec<Measured> = options.places.iter().map(|_| Measured::default()).collect();
    for round in 0..=options.rounds.max(1) {
        for (&place, measured) in options.places.iter().zip(&mut all) {
            let folder = Folder(options.folder.clone());
            let step = |what: &str| {
                let of = options.rounds.max(1);
                tell(&format!("round {round} of {of}, {place:?}: {what}"));
            };
            step("1 MB");
            if round == 0 {
                // Not counted.
                pair(large, (place, &folder), true).await?;
            } else {
                for number in 0..PAIRS {
                    let pair = pair(large, (place, &folder), number % 2 == 0).await?;
                    measured.large.push(pair);
                }
                step("1 KB");
                let storage = folder.storage(place, "through");
                measured
                    .small
                    .push(nodes::small(options.small.max(1), storage).await?);
                let at = options.folder.clone();
                let disk = blocking(move || disk::seconds(&at, place, large)).await?;
                measured.disk.extend(disk);
            }
        }
    }
    let ltp = || {
        all.iter()
            .flat_map(|measured| &measured.large)
            .map(|(ltp, _)| ltp)
    };
    let rows = options.places.iter().zip(&all);
    Ok(Report {
        ltp_gbit_per_s: median(ltp().map(|ltp| gbit(large, ltp.time))),
        ltp_cpu_us: median(ltp().map(|ltp| cpu_us(ltp, large))),
        rows: rows
            .map(|(place, measured)| measured.row(*place, options))
            .collect(),
    })
}

/// Large payloads over LTP alone and from node to node, the one just before the other.
async fn pair(
    large: u32,
    (place, folder): (Place, &Folder),
    is_ltp_first: bool,
) -> Result<(Cost, Cost), Error> {
    let nodes = || async {
        let cost = nodes::large(large, |name| folder.storage(place, name)).await;
        // The next nodes find none of their bundles.
        folder.clear();
        cost
    };
    let ltp = || blocking(move || ends::large(large));
    if is_ltp_first {
        let ltp = ltp().await?;
        return Ok((ltp, nodes().await?));
    }
    let nodes = nodes().await?;
    Ok((ltp().await?, nodes))
}

/// What was measured with bundles in one place.
#[derive(Default)]
struct Measured {
    /// LTP alone, and the nodes just after or before it.
    large: Vec<(Cost, Cost)>,
    /// Seconds that the disk alone takes.
    disk: Vec<f64>,
    small: Vec<Cost>,
}

impl Measured {
    fn row(&self, place: Place, options: &Options) -> Row {
        let (large, small) = (options.large.max(1), options.small.max(1));
        let pairs = || self.large.iter();
        let share = |(ltp, nodes): &(Cost, Cost)| ltp.time.as_secs_f64() / nodes.time.as_secs_f64();
        let rate = |cost: &Cost| f64::from(small) / cost.time.as_secs_f64();
        Row {
            place,
            large,
            gbit_per_s: median(pairs().map(|(_, nodes)| gbit(large, nodes.time))),
            share_of_ltp: median(pairs().map(share)),
            disk_gbit_per_s: (!self.disk.is_empty()).then(|| {
                median(
                    self.disk
                        .iter()
                        .map(|seconds| gbit(large, Duration::from_secs_f64(*seconds))),
                )
            }),
            cpu_us: median(pairs().map(|(_, nodes)| cpu_us(nodes, large))),
            small,
            small_per_s: median(self.small.iter().map(rate)),
            small_cpu_us: median(self.small.iter().map(|cost| cpu_us(cost, small))),
        }
    }
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = of.collect();
    all.sort_unstable_by(f64::total_cmp);
    let middle = all.len() / 2;
    match (all.get(middle.wrapping_sub(1)), all.get(middle)) {
        (Some(below), Some(above)) if all.len().is_multiple_of(2) => f64::midpoint(*below, *above),
        (_, at) => at.copied().unwrap_or(0.0),
    }
}

fn cpu_us(cost: &Cost, bundles: u32) -> f64 {
    cost.cpu.as_secs_f64() * 1e6 / f64::from(bundles)
}

/// Bytes that begin with a number, by which they are known.
fn payload(number: u32, length: usize) -> Vec<u8> {
    let pattern = (4..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]);
    number.to_le_bytes().into_iter().chain(pattern).collect()
}

/// Checks that each of some payloads comes once, and as it was sent.
struct Checklist {
    pattern: Vec<u8>,
    missing: Vec<bool>,
    left: u32,
}

impl Checklist {
    fn new(count: u32, length: usize) -> Self {
        Self {
            pattern: payload(0, length),
            missing: vec![true; count as usize],
            left: count,
        }
    }

    fn arrived(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.arrived_in_parts(&[payload])
    }

    fn arrived_in_parts<T: AsRef<[u8]>>(&mut self, parts: &[T]) -> Result<(), Error> {
        let mut parts = parts.iter().map(AsRef::as_ref);
        let first = parts.next().unwrap_or_default();
        let (number, first) = first.split_first_chunk::<4>().ok_or_else(changed)?;
        let mut expected = self.pattern.get(4..).unwrap_or_default();
        for part in std::iter::once(first).chain(parts) {
            expected = expected.strip_prefix(part).ok_or_else(changed)?;
        }
        if !expected.is_empty() {
            return Err(changed());
        }
        let missing = self.missing.get_mut(u32::from_le_bytes(*number) as usize);
        if !std::mem::take(missing.ok_or_else(changed)?) {
            return Err(Error::Bench("a bundle came twice".to_owned()));
        }
        self.left -= 1;
        Ok(())
    }
}

fn changed() -> Error {
    Error::Bench("a bundle that arrived is none that was sent".to_owned())
}

fn gbit(bundles: u32, time: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a display value")]
    let bits = LARGE_BYTES as f64 * 8.0 * f64::from(bundles);
    bits * 1e-9 / time.as_secs_f64().max(1e-9)
}

fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Error::Bench("a thread panicked".to_owned()))?
}

/// Removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn storage(&self, place: Place, node: &str) -> Storage {
        Storage {
            sqlite: place == Place::Sqlite,
            database: None,
            bucket: None,
            folder: (place != Place::Memory).then(|| self.0.join(node)),
            sync: matches!(place, Place::Disk | Place::Sqlite),
            bytes: 4 << 30,
            bundles: 1_000_000,
            bundle_bytes: 64 << 20,
        }
    }

    fn clear(&self) {
        // It is not there if nothing was on disk.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_what_was_sent_and_comes_once_in_any_parts() {
        let sent = payload(1, 100);
        for cut in 4..=100 {
            let mut list = Checklist::new(2, 100);
            let parts = [&sent[..cut], &sent[cut..]];
            list.arrived_in_parts(&parts).unwrap();
            assert!(list.arrived_in_parts(&parts).is_err() && list.left == 1);
            assert!(list.arrived_in_parts(&parts[..1]).is_err() || cut == 100);
        }
        let mut list = Checklist::new(2, 100);
        assert!(list.arrived(&payload(2, 100)).is_err());
        assert!(list.arrived(&payload(0, 101)).is_err());
        assert!(list.arrived(&[]).is_err());
        list.arrived(&payload(0, 100)).unwrap();
        assert_eq!(list.left, 1);
    }

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 3.0, 2.0].into_iter()), 2.5);
        assert_eq!(median([].into_iter()), 0.0);
    }
}
