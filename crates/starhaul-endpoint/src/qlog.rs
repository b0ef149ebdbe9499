//! A folder of qlog records with a bound on their bytes.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use rustix::fs::Access;
use starhaul_log::Seldom;
use starhaul_quic::{QlogFiles, QlogWriter};

/// Files of one name, such as the paths of runs with the same seed, get numbers up to this.
const MOST_OF_A_NAME: u32 = 100_000;

/// What each file counts before its first record: also files without any fill a disk.
const FILE_BYTES: u64 = 4096;
/// The ending of our files' names.
const ENDING: &str = "sqlog";

/// A folder into which an [`Endpoint`](crate::Endpoint) writes qlog records: a file for each path and one for each session.
#[derive(Clone, Debug)]
pub struct QlogFolder {
    folder: PathBuf,
    /// Begins each file's name.
    prefix: String,
    budget: Arc<Budget>,
}

/// How much may still be written into all files.
#[derive(Debug)]
struct Budget {
    left: AtomicU64,
    was_reported: AtomicBool,
    /// The line of files that cannot be made or written: each path and session has one.
    failures: Seldom,
}

impl QlogFolder {
    /// Bytes of all records in a folder together, unless told otherwise.
    pub const DEFAULT_BYTES: u64 = 1 << 30;

    /// Makes the folder if it is missing. Once its records have `bytes`, those of former processes included, nothing more is
    /// recorded, which the log says once.
    ///
    /// # Errors
    /// The folder cannot be made, read or written.
    pub fn create(folder: &Path, bytes: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)?;
        let left = bytes.saturating_sub(bytes_in(folder)?);
        Ok(Self {
            folder: folder.to_owned(),
            prefix: String::new(),
            budget: Arc::new(Budget {
                left: AtomicU64::new(left),
                was_reported: AtomicBool::new(false),
                failures: Seldom::default(),
            }),
        })
    }

    /// The same folder and bound, for files whose names begin with `prefix` and a dash.
    #[must_use]
    pub fn prefixed(&self, prefix: &str) -> Self {
        Self {
            prefix: format!("{}{prefix}-", self.prefix),
            ..self.clone()
        }
    }

    fn open(&self, name: &str) -> io::Result<File> {
        let (stem, ending) = name.rsplit_once('.').unwrap_or((name, ENDING));
        for number in 1..MOST_OF_A_NAME {
            let name = match number {
                1 => format!("{}{stem}.{ending}", self.prefix),
                _ => format!("{}{stem}-{number}.{ending}", self.prefix),
            };
            let opened = OpenOptions::new()
                .write(true)
                .create_new(true)
                // They tell which hosts exchanged data, when and how much.
                .mode(0o600)
                .open(self.folder.join(name));
            match opened {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                opened => return opened,
            }
        }
        Err(io::Error::other("too many files of one name"))
    }
}

impl QlogFiles for QlogFolder {
    fn create(&self, name: &str) -> Option<QlogWriter> {
        self.budget.take(FILE_BYTES).ok()?;
        match self.open(name) {
            Ok(file) => Some(Box::new(Bounded {
                file,
                budget: self.budget.clone(),
            })),
            Err(error) => {
                if let Some(others) = self.budget.failure_is_due() {
                    let folder = self.folder.display();
                    tracing::warn!(%folder, name, %error, others, "cannot make a qlog file");
                }
                None
            }
        }
    }
}

/// A file that takes whole records, one by each call, while the folder's bound allows. They go to the system at once: what was
/// recorded before the process is killed can be read.
struct Bounded {
    file: File,
    budget: Arc<Budget>,
}

impl Write for Bounded {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        self.budget.take(record.len() as u64)?;
        self.file.write_all(record).inspect_err(|error| {
            if let Some(others) = self.budget.failure_is_due() {
                tracing::warn!(%error, others, "cannot write a qlog file; it ends here");
            }
        })?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes of all records in a folder, also of those that other processes wrote.
fn bytes_in(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0_u64;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // Others may move one away meanwhile.
        if path.extension().is_some_and(|ending| ending == ENDING)
            && let Ok(found) = fs::metadata(&path)
        {
            bytes = bytes.saturating_add(found.len().saturating_add(FILE_BYTES));
        }
    }
    Ok(bytes)
}

impl Budget {
    /// The number of other failures, if a line of one is due.
    fn failure_is_due(&self) -> Option<u64> {
        self.failures.is_due(Instant::now())
    }

    /// Counts bytes that are about to be written.
    fn take(&self, bytes: u64) -> io::Result<()> {
        let left = |left: u64| Some(left.saturating_sub(bytes));
        let before = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        if before.is_ok_and(|before| before >= bytes) {
            return Ok(());
        }
        if !self.was_reported.swap(true, Ordering::Relaxed) {
            tracing::warn!("the folder of qlog records is full; nothing more is recorded");
        }
        Err(io::ErrorKind::StorageFull.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(folder: &Path) -> Vec<(String, String)> {
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                (name, fs::read_to_string(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn a_full_folder_takes_no_more_and_keeps_what_it_has() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("a/b");
        let files = QlogFolder::create(&folder, 3 * FILE_BYTES + 10).unwrap();
        for text in ["1234", "5678", "90ab", "cd"] {
            if let Some(mut file) = files.prefixed("run").create("x.sqlog") {
                assert_eq!(file.write_all(text.as_bytes()).is_ok(), text < "9");
            }
        }
        let expected = [
            ("run-x-2.sqlog", "5678"),
            ("run-x-3.sqlog", ""),
            ("run-x.sqlog", "1234"),
        ];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(contents(&folder), expected);
    }

    #[test]
    fn restarts_do_not_add_up() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("other.txt"), [0; 3 * 4096]).unwrap();
        let lives = (0..10).filter(|_| {
            let files = QlogFolder::create(scratch.path(), 2 * FILE_BYTES + 8).unwrap();
            let file = files.create("x.sqlog");
            file.is_some_and(|mut file| file.write_all(b"1234").is_ok())
        });
        assert_eq!(lives.count(), 2, "later ones find the folder full");
        assert_eq!(contents(scratch.path()).len(), 3);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error_at_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(QlogFolder::create(&file.path().join("in"), 1).is_err());
    }
}
