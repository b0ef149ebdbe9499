//! The files below a folder, by name, and how they change.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{
    entry::{self, Entry},
    source::Hashes,
};

/// Files at most; more are left out.
const MOST_FILES: usize = 1 << 20;
/// Folders below folders at most.
const DEEPEST: usize = 64;

/// A file that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// What is said of it.
    pub entry: Entry,
    pub(crate) path: PathBuf,
    pub(crate) hashes: Hashes,
    stamp: Stamp,
}

/// What changes when a file does.
type Stamp = (Option<SystemTime>, u64);

/// All files, by name.
#[derive(Debug, Default)]
pub(crate) struct Index {
    files: BTreeMap<String, Served>,
    /// Names by [`entry::hash`].
    names: BTreeMap<u32, BTreeSet<String>>,
}

/// How files differ from the index.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// New ones and those that changed: name, path and stamp.
    pub(crate) changed: Vec<(String, PathBuf, Stamp)>,
    pub(crate) gone: Vec<String>,
}

impl Served {
    pub(crate) fn read(name: String, path: PathBuf, stamp: Stamp) -> io::Result<Self> {
        let hashes = Hashes::of(&path)?;
        let sha256 = hashes
            .whole
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let bytes = hashes.bytes;
        Ok(Self {
            entry: Entry {
                name,
                bytes,
                sha256,
            },
            path,
            hashes,
            stamp,
        })
    }

    #[cfg(test)]
    pub(crate) fn for_test(name: &str, bytes: u64) -> Self {
        Self {
            entry: Entry {
                name: name.into(),
                bytes,
                sha256: "00".repeat(32),
            },
            path: name.into(),
            hashes: Hashes::default(),
            stamp: (None, bytes),
        }
    }
}

impl Index {
    pub(crate) fn insert(&mut self, served: Served) -> Option<Served> {
        let name = served.entry.name.clone();
        self.names
            .entry(entry::hash(&name))
            .or_default()
            .insert(name.clone());
        self.files.insert(name, served)
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Served> {
        if let Some(names) = self.names.get_mut(&entry::hash(name)) {
            names.remove(name);
        }
        self.files.remove(name)
    }

    /// The files whose names have this hash.
    pub(crate) fn named(&self, hash: u32) -> impl Iterator<Item = Entry> {
        let names = self.names.get(&hash).into_iter().flatten();
        names.filter_map(|name| Some(self.files.get(name)?.entry.clone()))
    }

    /// Whether a file has these bytes.
    pub(crate) fn has(&self, entry: &Entry) -> bool {
        let is_same = |other: &Entry| (other.bytes, &other.sha256) == (entry.bytes, &entry.sha256);
        self.files.values().any(|served| is_same(&served.entry))
    }

    /// How the files below `root`, or `root` itself if it is one, differ from these.
    pub(crate) fn compare(&self, root: &Path) -> io::Result<Found> {
        let mut seen = BTreeSet::new();
        let mut changed = Vec::new();
        walk(root, &mut |name, path, stamp| {
            if self
                .files
                .get(&name)
                .is_none_or(|served| served.stamp != stamp)
            {
                changed.push((name.clone(), path, stamp));
            }
            seen.insert(name);
        })?;
        let gone = self.files.keys().filter(|name| !seen.contains(*name));
        let gone = gone.cloned().collect();
        Ok(Found { changed, gone })
    }
}

/// Visits the files below a folder but for hidden ones and symbolic links.
fn walk(root: &Path, visit: &mut impl FnMut(String, PathBuf, Stamp)) -> io::Result<()> {
    let stamp = |metadata: &fs::Metadata| (metadata.modified().ok(), metadata.len());
    let metadata = fs::metadata(root)?;
    if metadata.is_file() {
        if let Some(name) = root.file_name().and_then(|name| name.to_str()) {
            visit(name.to_owned(), root.to_owned(), stamp(&metadata));
        }
        return Ok(());
    }
    let mut count = 0;
    let mut folders = vec![(root.to_owned(), String::new(), 0)];
    while let Some((folder, prefix, depth)) = folders.pop() {
        // A folder may go while it is visited.
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else {
                continue;
            };
            let (path, name) = (entry.path(), format!("{prefix}{name}"));
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() && count < MOST_FILES => {
                    count += 1;
                    visit(name, path, stamp(&metadata));
                }
                Ok(metadata) if metadata.is_dir() && depth < DEEPEST => {
                    folders.push((path, format!("{name}/"), depth + 1));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_changed_and_removed_files_are_found() {
        let root = tempfile::tempdir().unwrap();
        let file = |name: &str| root.path().join(name);
        fs::create_dir(file("sub")).unwrap();
        for name in ["a", "sub/b", ".hidden", "c"] {
            fs::write(file(name), name).unwrap();
        }
        std::os::unix::fs::symlink("/etc/hostname", file("link")).unwrap();
        let mut index = Index::default();
        let update = |index: &mut Index| {
            let found = index.compare(root.path()).unwrap();
            let mut names: Vec<String> = found
                .changed
                .iter()
                .map(|(name, ..)| name.clone())
                .collect();
            names.sort();
            for (name, path, stamp) in found.changed {
                index.insert(Served::read(name, path, stamp).unwrap());
            }
            found.gone.iter().for_each(|name| drop(index.remove(name)));
            (names, found.gone)
        };
        let list = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(update(&mut index), (list(&["a", "c", "sub/b"]), vec![]));
        assert_eq!(update(&mut index), (vec![], vec![]));
        fs::write(file("a"), "other bytes").unwrap();
        fs::remove_file(file("c")).unwrap();
        assert_eq!(update(&mut index), (list(&["a"]), list(&["c"])));
        assert_eq!(index.named(entry::hash("c")).count(), 0);
        let a = index.named(entry::hash("a")).next().unwrap();
        assert_eq!((a.bytes, index.has(&a)), (11, true));
        assert!(!index.has(&Entry { bytes: 12, ..a }));
    }
}
