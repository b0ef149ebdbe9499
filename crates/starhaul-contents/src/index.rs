//! The files below a folder, by name, and how they change.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
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
pub(crate) struct Served {
    /// What is said of it.
    pub(crate) entry: Entry,
    pub(crate) path: PathBuf,
    pub(crate) hashes: Hashes,
}

/// What changes when a file does: its time of change does even where length and time of modification are put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    changed: (i64, i64),
    inode: u64,
    length: u64,
}

/// Where files are, by name.
type Files = BTreeMap<String, (PathBuf, Stamp)>;

/// All files, by name.
#[derive(Debug, Default)]
pub(crate) struct Index {
    files: BTreeMap<String, Served>,
    /// Names by [`entry::hash`].
    names: BTreeMap<u32, BTreeSet<String>>,
    /// Names by what the files are: length and hash.
    same: BTreeMap<(u64, String), BTreeSet<String>>,
    /// How many names with this hash are those of files that are there and not read yet.
    unread: BTreeMap<u32, usize>,
}

/// The files below a folder.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) files: Files,
    /// Folders that could not be read and what was left out, by their names: what is known of files below them holds.
    pub(crate) unread: BTreeMap<String, String>,
    /// Files beyond [`MOST_FILES`].
    pub(crate) surplus: usize,
}

/// The files that the index has, as they were, for the thread that compares: the index itself is asked for while that lasts.
#[derive(Debug, Default)]
pub(crate) struct Known(BTreeMap<String, Stamp>);

/// How files differ from those that are known.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// New ones and those that changed: name, path and stamp.
    pub(crate) changed: Vec<(String, PathBuf, Stamp)>,
    pub(crate) gone: Vec<String>,
}

impl Served {
    /// Reads a file. `None`: it is no more as this stamp has it.
    pub(crate) fn read(name: String, path: PathBuf, stamp: Stamp) -> io::Result<Option<Self>> {
        let hashes = Hashes::of(&path)?;
        if Stamp::of(&fs::symlink_metadata(&path)?) != stamp {
            return Ok(None);
        }
        let (bytes, sha256) = (hashes.bytes, entry::hex(&hashes.whole));
        Ok(Some(Self {
            entry: Entry {
                name,
                bytes,
                sha256,
                segment_bytes: None,
            },
            path,
            hashes,
        }))
    }

    #[cfg(test)]
    pub(crate) fn for_test(name: &str, bytes: u64) -> Self {
        Self {
            entry: Entry {
                name: name.into(),
                bytes,
                sha256: "00".repeat(32),
                segment_bytes: None,
            },
            path: name.into(),
            hashes: Hashes::default(),
        }
    }
}

impl Index {
    pub(crate) fn insert(&mut self, served: Served) {
        let name = served.entry.name.clone();
        self.remove(&name);
        self.names
            .entry(entry::hash(&name))
            .or_default()
            .insert(name.clone());
        self.same
            .entry(bytes_of(&served.entry))
            .or_default()
            .insert(name.clone());
        self.files.insert(name, served);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let Some(served) = self.files.remove(name) else {
            return;
        };
        forget(&mut self.names, &entry::hash(name), name);
        forget(&mut self.same, &bytes_of(&served.entry), name);
    }

    /// A file of this name will be read.
    pub(crate) fn note_unread(&mut self, name: &str) {
        *self.unread.entry(entry::hash(name)).or_default() += 1;
    }

    /// A file that was noted is read, or cannot be.
    pub(crate) fn settle(&mut self, name: &str) {
        let hash = entry::hash(name);
        let left = self.unread.get_mut(&hash).map(|count| {
            *count = count.saturating_sub(1);
            *count
        });
        if left == Some(0) {
            self.unread.remove(&hash);
        }
    }

    /// Whether it is known what all names with this hash mean.
    pub(crate) fn is_settled(&self, hash: u32) -> bool {
        !self.unread.contains_key(&hash)
    }

    /// Whether it is there, with the same bytes at the same place.
    pub(crate) fn has(&self, served: &Served) -> bool {
        self.files.get(&served.entry.name) == Some(served)
    }

    /// The files whose names have this hash.
    pub(crate) fn named(&self, hash: u32) -> impl Iterator<Item = Entry> {
        let names = self.names.get(&hash).into_iter().flatten();
        names.filter_map(|name| Some(self.files.get(name)?.entry.clone()))
    }

    /// A file that has these bytes.
    pub(crate) fn same_as(&self, entry: &Entry) -> Option<&Served> {
        let names = self.same.get(&bytes_of(entry))?;
        self.files.get(names.first()?)
    }
}

impl Known {
    pub(crate) fn insert(&mut self, name: String, stamp: Stamp) {
        self.0.insert(name, stamp);
    }

    /// The file as it is known.
    pub(crate) fn get(&self, name: &str) -> Option<&Stamp> {
        self.0.get(name)
    }

    /// Returns whether it was known.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    /// How files differ from these. What is below a folder that could not be read is not gone.
    pub(crate) fn compare(&self, files: Files, unread: &BTreeMap<String, String>) -> Found {
        let is_known = |name: &String| {
            let is_below = |unread: &String| {
                let is_folder = unread.is_empty() || unread.ends_with('/');
                is_folder && name.starts_with(unread.as_str())
            };
            files.contains_key(name) || unread.keys().any(is_below)
        };
        let gone = self.0.keys().filter(|name| !is_known(name));
        let gone = gone.cloned().collect();
        let is_new = |name: &str, stamp: Stamp| self.0.get(name) != Some(&stamp);
        let changed = files.into_iter();
        let changed = changed.filter(|(name, (_, stamp))| is_new(name, *stamp));
        let mut changed: Vec<_> = changed
            .map(|(name, (path, stamp))| (name, path, stamp))
            .collect();
        // What takes long is read last.
        changed.sort_by_key(|(.., stamp)| stamp.length);
        Found { changed, gone }
    }
}

impl Listed {
    /// The files below `root` but for hidden ones and symbolic links, or `root` itself if it is one.
    ///
    /// # Errors
    /// `root` cannot be read. Folders below that cannot be read are noted.
    pub(crate) fn below(root: &Path) -> io::Result<Self> {
        let mut listed = Self::default();
        // Links lead to it, and to nothing below it.
        let root = &fs::canonicalize(root)?;
        let metadata = fs::metadata(root)?;
        if metadata.is_file() {
            if let Some(name) = root.file_name().and_then(|name| name.to_str()) {
                let file = (root.to_owned(), Stamp::of(&metadata));
                listed.files.insert(name.to_owned(), file);
            }
            return Ok(listed);
        }
        fs::read_dir(root)?;
        let mut folders = vec![(root.to_owned(), String::new(), 0)];
        while let Some((folder, name, depth)) = folders.pop() {
            match fs::read_dir(&folder) {
                Ok(entries) => listed.add(entries, &name, depth, &mut folders),
                // A folder may go while others are read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => listed.note_unread(&name, &error),
            }
        }
        Ok(listed)
    }

    fn add(
        &mut self,
        entries: fs::ReadDir,
        prefix: &str,
        depth: usize,
        folders: &mut Vec<(PathBuf, String, usize)>,
    ) {
        for entry in entries {
            match entry {
                Ok(entry) => {
                    let found = (entry.file_name(), entry.path());
                    self.add_entry(found, entry.metadata(), (prefix, depth), folders);
                }
                // What comes behind it is not known.
                Err(error) => self.note_unread(prefix, &error),
            }
        }
    }

    fn add_entry(
        &mut self,
        (name, path): (OsString, PathBuf),
        metadata: io::Result<fs::Metadata>,
        (prefix, depth): (&str, usize),
        folders: &mut Vec<(PathBuf, String, usize)>,
    ) {
        let Some(name) = name.to_str() else {
            let name = format!("{prefix}{}", name.to_string_lossy());
            self.unread.insert(name, "its name is no UTF-8".into());
            return;
        };
        if name.starts_with('.') {
            return;
        }
        let name = format!("{prefix}{name}");
        let metadata = match metadata {
            Ok(metadata) => metadata,
            // It went since its name was read; the others did not.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.note_unread(prefix, &error),
        };
        if metadata.is_file() && self.files.len() >= MOST_FILES {
            self.surplus += 1;
        } else if metadata.is_file() {
            self.files.insert(name, (path, Stamp::of(&metadata)));
        } else if metadata.is_dir() && depth >= DEEPEST {
            self.unread
                .insert(name, format!("more than {DEEPEST} folders deep"));
        } else if metadata.is_dir() {
            folders.push((path, format!("{name}/"), depth + 1));
        }
    }

    /// Something of a folder could not be read: what is known of its files holds. One reason is told of each folder.
    fn note_unread(&mut self, folder: &str, error: &io::Error) {
        self.unread
            .entry(folder.to_owned())
            .or_insert_with(|| error.to_string());
    }
}

/// What tells the bytes of a file from others.
fn bytes_of(entry: &Entry) -> (u64, String) {
    (entry.bytes, entry.sha256.clone())
}

fn forget<K: Ord>(names: &mut BTreeMap<K, BTreeSet<String>>, key: &K, name: &str) {
    if let Some(of_key) = names.get_mut(key) {
        of_key.remove(name);
        if of_key.is_empty() {
            names.remove(key);
        }
    }
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            modified: metadata.modified().ok(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
            length: metadata.len(),
        }
    }

    pub(crate) const fn length(&self) -> u64 {
        self.length
    }

    /// Whether its owner, its links or who may read it may have changed, and nothing says that its bytes did.
    pub(crate) fn may_have_the_bytes_of(&self, other: &Self) -> bool {
        let of = |stamp: &Self| (stamp.modified, stamp.inode, stamp.length);
        of(self) == of(other)
    }

    /// Whether the file was not modified for so long.
    pub(crate) fn is_old(&self, now: SystemTime, than: Duration) -> bool {
        let age = self.modified.and_then(|at| now.duration_since(at).ok());
        age.is_some_and(|age| age >= than)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_goes_meanwhile_says_nothing_of_its_folder() {
        let mut listed = Listed::default();
        let mut add = |error: io::ErrorKind| {
            let found = ("a".into(), PathBuf::from("a"));
            listed.add_entry(found, Err(error.into()), ("of/", 1), &mut Vec::new());
            listed.unread.keys().cloned().collect::<Vec<_>>()
        };
        assert!(add(io::ErrorKind::NotFound).is_empty());
        assert_eq!(add(io::ErrorKind::PermissionDenied), ["of/"]);
    }

    /// Each file that went had all others looked at for the same bytes, on the thread that serves.
    #[test]
    fn what_is_found_by_bytes_is_what_a_look_at_all_files_finds() {
        let mut index = Index::default();
        let mut random = 1_u64;
        for _ in 0..3000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let [name, bytes, what] = [random >> 33, random >> 43, random >> 53];
            let served = Served::for_test(&format!("{}", name % 12), bytes % 5);
            match what % 3 {
                0 => index.remove(&served.entry.name),
                _ => index.insert(served.clone()),
            }
            let mut files = index.files.values();
            let expected = files.find(|other| other.entry.bytes == served.entry.bytes);
            assert_eq!(index.same_as(&served.entry), expected);
        }
        let names: Vec<String> = index.files.keys().cloned().collect();
        names.iter().for_each(|name| index.remove(name));
        assert!(index.names.is_empty() && index.same.is_empty());
    }

    #[test]
    fn new_changed_and_removed_files_are_found() {
        let root = tempfile::tempdir().unwrap();
        let file = |name: &str| root.path().join(name);
        fs::create_dir(file("sub")).unwrap();
        for name in ["a", "sub/b", ".hidden", "c"] {
            fs::write(file(name), name).unwrap();
        }
        std::os::unix::fs::symlink("/etc/hostname", file("link")).unwrap();
        let (mut index, mut known) = (Index::default(), Known::default());
        let mut update = |index: &mut Index| {
            let listed = Listed::below(root.path()).unwrap();
            let found = known.compare(listed.files, &listed.unread);
            let mut names: Vec<String> = found
                .changed
                .iter()
                .map(|(name, ..)| name.clone())
                .collect();
            names.sort();
            for (name, path, stamp) in found.changed {
                known.insert(name.clone(), stamp);
                index.insert(Served::read(name, path, stamp).unwrap().unwrap());
            }
            for name in &found.gone {
                known.remove(name);
                index.remove(name);
            }
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
        assert_eq!(a.bytes, 11);
        assert_eq!(index.same_as(&a).unwrap().entry, a);
        assert!(index.same_as(&Entry { bytes: 12, ..a }).is_none());
        // What cannot be read is not gone.
        let mut listed = Listed::below(root.path()).unwrap();
        listed.files.remove("sub/b");
        listed.unread.insert("sub/".into(), "no permission".into());
        assert_eq!(known.compare(listed.files, &listed.unread).gone, list(&[]));
        assert!(Listed::below(&file("nowhere")).is_err());
    }

    #[test]
    fn a_file_of_the_same_length_and_time_is_another() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        let stamp = |path: &Path| Stamp::of(&fs::metadata(path).unwrap());
        fs::write(&path, "one").unwrap();
        let before = stamp(&path);
        let put_back = |path: &Path| {
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(before.modified.unwrap()).unwrap();
        };
        // Changes within a tick of the kernel have one time.
        std::thread::sleep(Duration::from_millis(20));
        fs::write(&path, "two").unwrap();
        put_back(&path);
        let changed = stamp(&path);
        assert!((changed.modified, changed.length) == (before.modified, before.length));
        assert_ne!(changed, before);
        let other = root.path().join("b");
        fs::write(&other, "new").unwrap();
        put_back(&other);
        fs::rename(&other, &path).unwrap();
        assert_ne!(stamp(&path).inode, changed.inode);
        let is_old = |age| before.is_old(before.modified.unwrap() + age, Duration::from_secs(2));
        assert!(is_old(Duration::from_secs(2)) && !is_old(Duration::from_secs(1)));
        assert!(
            !before.is_old(SystemTime::UNIX_EPOCH, Duration::ZERO),
            "the future"
        );
    }
}
