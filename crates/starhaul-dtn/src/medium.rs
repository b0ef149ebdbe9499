//! Where the files of a node are: a folder of the file system, or what a test puts in its place.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, IoSlice},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use rustix::io::{Errno, pwritev};

/// Parts that the system takes at a time.
const MOST_PARTS: usize = 1024;

/// A folder of files.
pub(crate) trait Medium: Send + Sync {
    /// The names of all files.
    fn names(&self) -> io::Result<Vec<String>>;
    /// All files with those in the folders below; folders below in which nothing is may go.
    fn all(&self) -> io::Result<Vec<Found>>;
    /// A new file; a folder in its name is made, if it is not there.
    fn create(&self, name: &str) -> io::Result<Arc<dyn MediumFile>>;
    /// A file that is there.
    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>>;
    /// Gives a file another name in the same folder; a file that has that name goes.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file, if it is there; who has it open can still read it.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Brings to the medium which files there are.
    fn sync_names(&self) -> io::Result<()>;
    /// Brings to the medium which files there are in the folder of this name, and that folder itself.
    fn sync_name(&self, name: &str) -> io::Result<()>;
    /// Bytes that may still be written.
    fn free(&self) -> io::Result<u64>;
}

/// A file of a medium.
pub(crate) trait MediumFile: Send + Sync {
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

/// A file that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its name, with the folders below that it is in.
    pub(crate) name: String,
    /// Its length in bytes.
    pub(crate) bytes: u64,
    /// When it was last written, by a clock that may have been set since.
    pub(crate) written: SystemTime,
}

/// A folder of the file system.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder if it is not there.
    ///
    /// # Errors
    /// It cannot be made, or its name not brought to the medium.
    pub(crate) fn new(path: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        // The name of the folder itself is in the one above; a former life may have ended before this.
        if let Some(above) = path.parent() {
            File::open(above)?.sync_all()?;
        }
        Ok(Self(path))
    }

    /// A folder that is there.
    pub(crate) fn of(path: &Path) -> Self {
        Self(path.to_owned())
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

    fn all(&self) -> io::Result<Vec<Found>> {
        let (mut found, mut folders) = (Vec::new(), vec![self.0.clone()]);
        while let Some(next) = folders.pop() {
            let Some(entries) = if_there(fs::read_dir(&next))? else {
                continue;
            };
            for entry in entries {
                let entry = entry?;
                let Some(metadata) = if_there(entry.metadata())? else {
                    continue;
                };
                let path = entry.path();
                if metadata.is_dir() {
                    folders.push(path);
                } else if metadata.is_file()
                    && let Ok(name) = path.strip_prefix(&self.0)
                {
                    found.push(Found {
                        name: name.to_string_lossy().into_owned(),
                        bytes: metadata.len(),
                        written: metadata.modified()?,
                    });
                }
            }
            if next != self.0 {
                // Unless something is in it.
                let _ = fs::remove_dir(&next);
            }
        }
        Ok(found)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        let path = self.0.join(name);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true);
        let below = path.parent().filter(|folder| *folder != self.0);
        let file = match (options.open(&path), below) {
            (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(folder)?;
                options.open(&path)?
            }
            (opened, _) => opened?,
        };
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        let path = self.0.join(name);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = match file {
            // What a system does not let us change any more, as after an error of the disk, can be read.
            Err(error) if is_protected(&error) => File::open(&path)?,
            opened => opened?,
        };
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
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

    fn sync_name(&self, name: &str) -> io::Result<()> {
        let path = self.0.join(name);
        let folders = path.ancestors().skip(1);
        for folder in folders.take_while(|folder| folder.starts_with(&self.0)) {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }

    fn free(&self) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(&self.0)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

/// What may be gone in the meantime.
fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_protected(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
    )
}

impl MediumFile for File {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn text(file: &Arc<dyn MediumFile>) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(file.length().unwrap()).unwrap()];
        file.read(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn files_in_folders_below_are_made_found_renamed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let medium = Folder::new(folder.path().join("data")).unwrap();
        let file = medium.create("a1/one").unwrap();
        file.write(0, &mut [IoSlice::new(b"whole")]).unwrap();
        assert!(medium.create("a1/one").is_err(), "it is there");
        medium.create("two").unwrap();
        medium.rename("a1/one", "a1/three").unwrap();
        medium.sync_name("a1/three").unwrap();
        medium.remove("two").unwrap();
        medium.remove("two").unwrap();
        fs::create_dir(folder.path().join("data/b2")).unwrap();
        let found = medium.all().unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|found| (&*found.name, found.bytes))
            .collect();
        assert_eq!(found, [("a1/three", 5)]);
        assert!(!folder.path().join("data/b2").exists());
        assert_eq!(text(&medium.open("a1/three").unwrap()), b"whole");
        let gone = medium.open("a1/one").map(drop).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        // The folder itself stays, though nothing is in it.
        medium.remove("a1/three").unwrap();
        assert!(medium.all().unwrap().is_empty());
        assert!(folder.path().join("data").exists());
    }

    #[test]
    fn a_folder_that_is_not_there_is_not_made_for_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let medium = Folder::of(&folder.path().join("away"));
        assert!(medium.create("one").is_err());
        assert!(medium.sync_name("one").is_err());
        assert!(medium.all().unwrap().is_empty());
    }
}
