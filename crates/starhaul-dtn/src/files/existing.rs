//! Files that were there before one of the same name came. Each of its chunks asks for the same: a file is read once for all of
//! them, and its sender is told once.

use std::{
    collections::VecDeque,
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{hash::hash_of, wire::Chunk};

/// Files whose hashes are remembered.
const MOST_HASHES: usize = 64;
/// Senders and files that are remembered; one that is forgotten is told again.
const MOST_TOLD: usize = 1024;

/// Files that existed already, and what their senders were told.
#[derive(Debug, Default)]
pub(super) struct Existing {
    hashes: Mutex<VecDeque<(Stamp, String)>>,
    /// With the first chunk of which each was told.
    told: Mutex<VecDeque<(String, String, u64)>>,
    #[cfg(test)]
    pub(super) read: std::sync::atomic::AtomicUsize,
}

/// A file as it was when it was read; another content has another stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    length: u64,
    modified: (i64, i64),
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Self {
        Self {
            inode: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl Existing {
    /// Why what is at `path` is not the file; nothing if it is, since it was complete before, and its sender has not heard of it.
    pub(super) fn difference(&self, path: &Path, chunk: &Chunk) -> Option<String> {
        let name = &chunk.name;
        let is_same = fs::metadata(path).and_then(|metadata| {
            let is_like = metadata.is_file() && metadata.len() == chunk.length;
            Ok(is_like && self.hash(path, &metadata)? == chunk.sha256)
        });
        match is_same {
            Ok(true) => None,
            Ok(false) => Some(format!("{name} exists already with another content")),
            Err(error) => Some(format!("{name} exists already and cannot be read: {error}")),
        }
    }

    /// Whether a sender is to be told of a file: with its first chunk, and with the one that every attempt to send it begins with.
    pub(super) fn is_to_be_told(&self, source: &str, file: &str, offset: u64) -> bool {
        let mut told = locked(&self.told);
        let known = told
            .iter()
            .find(|(to, of, _)| (to.as_str(), of.as_str()) == (source, file));
        // A chunk comes again if its answer did not leave.
        if let Some((.., first)) = known {
            return offset == 0 || offset == *first;
        }
        told.push_back((source.to_owned(), file.to_owned(), offset));
        if told.len() > MOST_TOLD {
            told.pop_front();
        }
        true
    }

    fn hash(&self, path: &Path, metadata: &Metadata) -> io::Result<String> {
        let stamp = Stamp::from(metadata);
        let known = locked(&self.hashes)
            .iter()
            .find(|(of, _)| *of == stamp)
            .map(|(_, hash)| hash.clone());
        if let Some(hash) = known {
            return Ok(hash);
        }
        #[cfg(test)]
        self.read.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let hash = hash_of(path)?;
        let mut hashes = locked(&self.hashes);
        hashes.push_back((stamp, hash.clone()));
        if hashes.len() > MOST_HASHES {
            hashes.pop_front();
        }
        Ok(hash)
    }
}

fn locked<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}
