//! Where the segments of a log are: files of a folder, or what a test puts in their place.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, IoSlice},
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::Arc,
};

use rustix::io::{Errno, pwritev};

/// Parts that the system takes at a time.
const MOST_PARTS: usize = 1024;

/// A folder of segments.
pub(super) trait Medium: Send + Sync {
    /// The names of all files.
    fn names(&self) -> io::Result<Vec<String>>;
    /// A new file.
    fn create(&self, name: &str) -> io::Result<Arc<dyn Segment>>;
    /// A file that is there.
    fn open(&self, name: &str) -> io::Result<Arc<dyn Segment>>;
    /// Removes a file, if it is there; who has it open can still read it.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Brings to the medium which files there are.
    fn sync_names(&self) -> io::Result<()>;
    /// Bytes that may still be written.
    fn free(&self) -> io::Result<u64>;
}

/// A file of records.
pub(super) trait Segment: Send + Sync {
    /// Writes all bytes at this offset; no part is empty.
    fn write(&self, at: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()>;
    /// Brings all that was written to the medium.
    fn sync(&self) -> io::Result<()>;
    /// The same, and what is read from now on is what came there: after a sync that failed, the system shows what it has lost.
    fn settle(&self) -> io::Result<()>;
    /// Takes back what is beyond this length.
    fn cut(&self, length: u64) -> io::Result<()>;
    /// Fills `bytes` from this offset on.
    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// The bytes of the file.
    fn length(&self) -> io::Result<u64>;
}

/// A folder of the file system.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder if it is not there.
    pub(super) fn new(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        // The name of the folder itself is in the one above; a former life may have ended before this.
        if let Some(above) = path.parent() {
            File::open(above)?.sync_all()?;
        }
        Ok(Self(path))
    }
}

impl Medium for Folder {
    fn names(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.0)?.map(|entry| Ok(entry?.file_name()));
        let names: io::Result<Vec<_>> = names.collect();
        let names = names?
            .into_iter()
            .filter_map(|name| name.into_string().ok());
        Ok(names.collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn Segment>> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true);
        Ok(Arc::new(options.open(self.0.join(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Segment>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.0.join(name))?;
        Ok(Arc::new(file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    fn free(&self) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(&self.0)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

impl Segment for File {
    fn write(&self, mut at: u64, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        while !parts.is_empty() {
            let most = parts.len().min(MOST_PARTS);
            match pwritev(self, parts.get(..most).unwrap_or_default(), at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut parts, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn settle(&self) -> io::Result<()> {
        self.sync_data()?;
        // A system that does not follow the advice has nothing else to offer.
        let _ = rustix::fs::fadvise(self, 0, None, rustix::fs::Advice::DontNeed);
        Ok(())
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(bytes, at)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}
