//! Bundles on disk: an append-only log, which holds small bundles whole and of large ones what is known of them.
//!
//! A store that brings each bundle to the medium on its own takes some hundred per second. Here all that waits at a moment is
//! written at once, and the medium is waited for once. A change is a record behind the others, in segments; an index in memory
//! says where the records of each bundle are, and answers the agent. Segments of which much is useless are written again without
//! that. After a crash the records are read again in their order; whatever had been waited for is among them.
//!
//! | file | |
//! |---|---|
//! | `record.rs` | the format, and how records are found in what a crash has left |
//! | `index.rs` | what the records say |
//! | `prepared.rs` | a bundle as the log needs it |
//! | `segments.rs` | the segments as they are read |
//! | `queue.rs` | changes of it, and the records that are to be written |
//! | `batch.rs` | what is written at a time |
//! | `writer.rs` | writes them, also when the medium fails |
//! | `cleaner.rs` | removes segments |
//! | `store.rs` | all that as the stores of the agent |
//! | `upgrade.rs` | takes over a folder with the database of earlier versions |

mod batch;
#[cfg(test)]
mod cases;
mod cleaner;
mod index;
#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "numbers of a test are small"
)]
mod model;
mod prepared;
mod queue;
pub mod record;
mod segments;
mod store;
#[cfg(test)]
mod together;
pub(crate) mod upgrade;
mod writer;

use std::{collections::BTreeMap, io, path::Path, sync::Arc, thread::JoinHandle};

use parking_lot::{Condvar, Mutex};
use starhaul_dtn_client::random;
use tokio::sync::Notify;

use self::{
    index::Index,
    queue::{Log, Settings, State},
    segments::{Held, Unread, parse_name},
    writer::Writer,
};
use crate::{
    config::Storage,
    medium::{Folder, Medium},
};

pub(crate) use self::store::LoggedBundles;

/// Stands for the identity of a bundle.
pub type Key = [u8; 16];

/// The folder of the segments.
pub(crate) const FOLDER: &str = "log";
/// Bytes of a segment, at least and at most.
const SEGMENT: (u64, u64) = (16 << 20, 2 << 30);
/// Segments in which all that may be stored has room: each is an open file.
const SEGMENTS: u64 = 64;
/// Bytes of a segment that a start reads at a time.
const PART: usize = 4 << 20;
/// Useless segments that are always allowed.
const SLACK: u64 = 4;
const QUEUE: usize = 32 << 20;
const YOUNG: usize = 64 << 20;
/// Bundles that are remembered after they are gone, for each that may be there.
const GONE: usize = 4;
/// More than this of a file is no segment: offsets are numbers of 32 bits.
const MOST_SEGMENT: u64 = u32::MAX as u64;

/// What is said of a segment with an [`Unread`] part.
const LEFT: &str =
    "a file of the log cannot be read as a whole: it stays, and the next start reads it again";

/// The log of a node. It ends with [`BundleLog::close`], or when it is dropped.
pub(crate) struct BundleLog {
    log: Arc<Log>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Settings {
    fn new(config: &Storage) -> Self {
        let segment = (config.bytes / SEGMENTS).clamp(SEGMENT.0, SEGMENT.1);
        Self {
            is_synced: config.sync,
            segment_bytes: u32::try_from(segment).unwrap_or(u32::MAX),
            queue_bytes: QUEUE,
            young_bytes: YOUNG,
            most_gone: config.bundles.saturating_mul(GONE),
            slack_bytes: SLACK * segment,
        }
    }
}

impl BundleLog {
    /// Reads the log in a folder, or begins one. `lock` is held as long as it may be written.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn open(
        folder: &Path,
        config: &Storage,
        lock: impl Send + 'static,
    ) -> io::Result<Self> {
        let medium = Folder::new(folder.join(FOLDER))?;
        let writer = read(Box::new(medium), Settings::new(config), salt)?;
        let log = writer.log.clone();
        let thread = std::thread::Builder::new().name("bundle-log".to_owned());
        let thread = thread.spawn(move || {
            writer.run();
            drop(lock);
        });
        Ok(Self {
            log,
            writer: Mutex::new(Some(thread?)),
        })
    }

    /// Writes what is queued, and ends. Blocks until then.
    pub(crate) fn close(&self) {
        self.end();
        if let Some(thread) = self.writer.lock().take() {
            // If it panicked, it has said so.
            let _ = thread.join();
        }
    }

    fn end(&self) {
        self.log.state.lock().is_ending = true;
        self.log.wake.notify_one();
    }
}

impl Drop for BundleLog {
    fn drop(&mut self) {
        self.end();
    }
}

fn salt() -> io::Result<u64> {
    let bytes = random::bytes().map_err(|error| io::Error::other(error.to_string()))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Reads what is there. What is written from now on goes to a segment of its own: nothing stands behind what a crash has torn.
fn read(
    medium: Box<dyn Medium>,
    settings: Settings,
    salt: impl FnMut() -> io::Result<u64> + Send + 'static,
) -> io::Result<Writer> {
    let mut names = medium.names()?;
    names.sort_unstable();
    let (mut index, mut segments) = (Index::new(settings.young_bytes), BTreeMap::new());
    let mut next = 0;
    for name in names {
        let Some((number, salt)) = parse_name(&name) else {
            continue;
        };
        next = number.saturating_add(1);
        let file = medium.open(&name)?;
        if settings.is_synced {
            // A life that was killed may have left what is not on the medium; from now on what is read is taken for certain.
            file.settle()?;
        }
        let length = file.length()?.min(MOST_SEGMENT);
        let held = Held {
            name,
            salt,
            file,
            length,
            unread: Unread::default(),
        };
        if read_segment(&mut index, number, &held) {
            segments.insert(number, held);
        } else if held.unread.is_noted() {
            tracing::error!(segment = held.name, "{LEFT}");
        } else {
            // A crash has left a name only, or nothing that can be read.
            medium.remove(&held.name)?;
        }
    }
    index.end_reading();
    index.begin_numbers(next);
    if settings.is_synced {
        medium.sync_names()?;
    }
    let log = Log {
        state: Mutex::new(State::new(index, segments)),
        wake: Condvar::new(),
        written: Notify::new(),
        medium,
        settings,
    };
    Ok(Writer::new(Arc::new(log), next, salt))
}

/// Whether there are records.
fn read_segment(index: &mut Index, number: u32, held: &Held) -> bool {
    let (mut at, mut count, mut damaged) = (0, 0_u64, 0);
    while at < held.length {
        damaged += held.scan(&mut at, PART, |span, record| {
            index.read(number, span, record);
            count += 1;
            true
        });
    }
    if damaged > 0 {
        tracing::warn!(
            segment = held.name,
            bytes = damaged,
            "a part of the log is no record: a crash has cut it off, or it is damaged"
        );
    }
    count > 0
}
