//! What a disk takes, if two nodes only wrote the bytes of their bundles and did nothing else.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
    thread,
};

use super::{LARGE_BYTES, Place, Stopwatch, payload};
use crate::Error;

/// Payloads that share a sync.
const TOGETHER: u32 = 8;

/// Seconds for the writing of large payloads by two threads, each to a file in `folder`; with a sync after every few where nodes
/// would sync. `None` in memory.
pub(super) fn seconds(folder: &Path, place: Place, count: u32) -> Result<Option<f64>, Error> {
    if place == Place::Memory {
        return Ok(None);
    }
    let failed = |error: io::Error| Error::Bench(format!("{}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    let contents = payload(0, LARGE_BYTES);
    let is_synced = matches!(place, Place::Disk | Place::Sqlite);
    let write = |name: &str| -> io::Result<()> {
        let mut file = File::create(folder.join(name))?;
        for number in 1..=count {
            file.write_all(&contents)?;
            if is_synced && (number % TOGETHER == 0 || number == count) {
                file.sync_data()?;
            }
        }
        Ok(())
    };
    let watch = Stopwatch::start();
    let (one, other) = thread::scope(|scope| {
        let one = scope.spawn(|| write("disk-one"));
        let other = write("disk-other");
        (one.join(), other)
    });
    let time = watch.stop().time;
    one.map_err(|_| Error::Bench("a thread panicked".to_owned()))?
        .and(other)
        .map_err(failed)?;
    Ok(Some(time.as_secs_f64()))
}
