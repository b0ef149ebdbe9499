//! How many bundles this host carries over loopback, beside LTP alone in the same run. What arrives is compared with what was
//! sent, and each must arrive once.

mod ends;
mod nodes;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use serde::Serialize;

use crate::{Error, Storage};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bundles of [`LARGE_BYTES`] from one node to its neighbour.
    pub large: u32,
    /// Bundles of [`SMALL_BYTES`] through one node.
    pub small: u32,
    /// Where bundles are kept.
    pub places: Vec<Place>,
    /// Folder in which those on disk are; it is made, and removed afterwards.
    pub folder: PathBuf,
}

/// Where the nodes keep bundles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In memory.
    Memory,
    /// On disk, which the system writes when it likes.
    Unsynced,
    /// On disk, and there before a bundle is taken.
    Disk,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// LTP alone, one block for each large payload: Gbit/s of payload.
    pub ltp_gbit_per_s: f64,
    /// The nodes.
    pub rows: Vec<Row>,
}

/// What nodes do that keep bundles in one of the places.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Where they keep bundles.
    pub place: Place,
    /// Large bundles sent, all of which arrived.
    pub large: u32,
    /// Gbit/s of their payload, from the first that an application gives to its node to the last that another application gets.
    pub gbit_per_s: f64,
    /// That by LTP's own rate.
    pub share_of_ltp: f64,
    /// Small bundles sent, all of which arrived.
    pub small: u32,
    /// How many of them a node receives, stores, forwards and removes per second. Its neighbours are engines of LTP only.
    pub small_per_s: f64,
}

/// Payload of a large bundle.
pub const LARGE_BYTES: usize = 1_000_000;
/// Payload of a small bundle.
pub const SMALL_BYTES: usize = 1_000;

/// Measures.
///
/// # Errors
/// [`Error::Bench`] when a bundle is lost, comes twice or is not what was sent; what starting a node can fail with.
pub async fn run(options: &Options) -> Result<Report, Error> {
    let large = options.large.max(1);
    let ltp_time = blocking(move || ends::large(large)).await?;
    let mut report = Report {
        ltp_gbit_per_s: gbit(large, ltp_time),
        rows: Vec::new(),
    };
    for &place in &options.places {
        let folder = Folder(options.folder.clone());
        let large_time = nodes::large(large, |name| folder.storage(place, name)).await?;
        let small = options.small.max(1);
        let small_time = nodes::small(small, folder.storage(place, "through")).await?;
        let gbit_per_s = gbit(large, large_time);
        report.rows.push(Row {
            place,
            large,
            gbit_per_s,
            share_of_ltp: gbit_per_s / report.ltp_gbit_per_s,
            small,
            small_per_s: f64::from(small) / small_time.as_secs_f64(),
        });
    }
    Ok(report)
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
        let (number, rest) = payload.split_first_chunk::<4>().ok_or_else(changed)?;
        if Some(rest) != self.pattern.get(4..) {
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
            database: None,
            folder: (place != Place::Memory).then(|| self.0.join(node)),
            sync: place == Place::Disk,
            bytes: 4 << 30,
            bundles: 1_000_000,
            bundle_bytes: 64 << 20,
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It is not there if nothing was on disk.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
