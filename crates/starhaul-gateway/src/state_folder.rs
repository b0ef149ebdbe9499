//! The folder in which a gateway keeps what outlives it: one gateway at a time, each file whole or not there.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

const LOCK: &str = "lock";

/// The folder; another gateway is refused it until this one ends, however it ends.
#[derive(Debug)]
pub(crate) struct StateFolder {
    path: PathBuf,
    lock: File,
}

impl Drop for StateFolder {
    fn drop(&mut self) {
        // Closing alone is late: a child process that is just being started has a copy of the file until its program runs.
        _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl StateFolder {
    /// Opens the folder, and makes it if it is not there.
    ///
    /// # Errors
    /// Another gateway has it, or the system refuses.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            let error = io::Error::from(error);
            match error.kind() {
                io::ErrorKind::WouldBlock => io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    "another gateway uses it: give each one a folder of its own",
                ),
                _ => error,
            }
        })?;
        Ok(Self {
            path: path.to_owned(),
            lock,
        })
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The contents of a file; `None` if it is not there. What is beyond `most` bytes is left out.
    pub(crate) fn read(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.file(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Replaces a file so that after a crash it is the old one or the new one.
    pub(crate) fn write(&self, name: &str, contents: &[u8]) -> io::Result<()> {
        let new = self.file(&format!("{name}.new"));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(contents)?;
        file.sync_all()?;
        std::fs::rename(&new, self.file(name))?;
        // The name is on the disk when the folder is.
        File::open(&self.path)?.sync_all()
    }

    /// Keeps a file that cannot be used under another name. It stays in its place, too, until the next [`Self::write`]: a life
    /// that ends before that must not look to the next one as if there had been no file.
    pub(crate) fn set_aside(&self, name: &str) -> io::Result<PathBuf> {
        let (file, aside) = (self.file(name), self.file(&format!("{name}.damaged")));
        match std::fs::remove_file(&aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // A link needs no room on a full disk; not every file system has them.
        if std::fs::hard_link(&file, &aside).is_err() {
            std::fs::copy(&file, &aside)?;
        }
        Ok(aside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_gateway_and_its_files_are_replaced_whole() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("made/by/us");
        let folder = StateFolder::open(&path).unwrap();
        let refused = StateFolder::open(&path).unwrap_err();
        assert!(refused.to_string().contains("another gateway"), "{refused}");
        assert_eq!(folder.read("figures", 10).unwrap(), None);
        folder.write("figures", b"old").unwrap();
        // A file that a crash left half written does not prevent another write.
        std::fs::write(path.join("figures.new"), b"half").unwrap();
        folder.write("figures", b"new").unwrap();
        assert_eq!(folder.read("figures", 10).unwrap().unwrap(), b"new");
        assert!(!path.join("figures.new").exists());
        for _ in 0..2 {
            let aside = folder.set_aside("figures").unwrap();
            assert_eq!(std::fs::read(aside).unwrap(), b"new");
            assert_eq!(folder.read("figures", 10).unwrap().unwrap(), b"new");
        }
        folder.write("figures", b"newer").unwrap();
        assert_eq!(std::fs::read(path.join("figures.damaged")).unwrap(), b"new");
        // As a child process has it that is just being started.
        let copy = folder.lock.try_clone().unwrap();
        drop(folder);
        StateFolder::open(&path).unwrap();
        drop(copy);
    }
}
