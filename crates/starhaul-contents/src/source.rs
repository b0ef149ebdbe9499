//! The bytes of a file as a content. A content never changes, but a file may: each chunk is compared with its hash before any
//! of it is served.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
};
use sha2::{Digest as _, Sha256};
use starhaul_leotp::Source;

/// Bytes of a chunk at least, and chunks of a file at most.
const LEAST_CHUNK: u64 = 64 << 10;
const MOST_CHUNKS: u64 = 1 << 16;

/// Bytes of chunks that are kept in memory. Where they are too many, a file with so many chunks gives one of its own: who reads many files at
/// once needs the last chunk of each.
const MANY_OF_FILE: usize = 16;
const MOST_BYTES_KEPT: usize = 256 << 20;

/// The hashes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hashes {
    pub(crate) bytes: u64,
    pub(crate) whole: [u8; 32],
    chunk: u64,
    chunks: Vec<[u8; 16]>,
}

impl Hashes {
    /// Reads a whole file.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        let bytes = file.metadata()?.len();
        let chunk = LEAST_CHUNK.max(bytes.div_ceil(MOST_CHUNKS));
        let mut hashes = Self {
            bytes,
            chunk,
            ..Self::default()
        };
        let mut whole = Sha256::new();
        let mut at = 0;
        while at < bytes {
            let part = read(&file, at, chunk.min(bytes - at))?;
            whole.update(&part);
            hashes.chunks.push(short(&part));
            at += part.len() as u64;
        }
        hashes.whole = whole.finalize().into();
        Ok(hashes)
    }
}

/// Chunks that were read last, of all files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunks(Arc<Mutex<Kept>>);

/// A file's hash and a chunk's number.
type Of = ([u8; 32], u64);

#[derive(Debug, Default)]
struct Kept {
    /// With when each was used last.
    chunks: BTreeMap<Of, (u64, Arc<[u8]>)>,
    by_use: BTreeMap<u64, Of>,
    uses: u64,
    bytes: usize,
    /// How often a chunk was read.
    #[cfg(test)]
    reads: usize,
}

impl Chunks {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock()
    }
}

impl Kept {
    fn get(&mut self, of: Of) -> Option<Arc<[u8]>> {
        let (used, bytes) = self.chunks.get_mut(&of)?;
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, of);
        Some(Arc::clone(bytes))
    }

    fn keep(&mut self, of: Of, bytes: Arc<[u8]>) {
        #[cfg(test)]
        {
            self.reads += 1;
        }
        self.forget(of);
        if self.bytes + bytes.len() > MOST_BYTES_KEPT {
            let of_file = self.chunks.range((of.0, 0)..=(of.0, u64::MAX));
            let of_file = of_file.map(|(of, (used, _))| (*used, *of));
            if of_file.clone().count() >= MANY_OF_FILE
                && let Some((_, oldest)) = of_file.min()
            {
                self.forget(oldest);
            }
        }
        while self.bytes + bytes.len() > MOST_BYTES_KEPT
            && let Some((_, &oldest)) = self.by_use.first_key_value()
        {
            self.forget(oldest);
        }
        self.uses += 1;
        self.bytes += bytes.len();
        self.by_use.insert(self.uses, of);
        self.chunks.insert(of, (self.uses, bytes));
    }

    fn forget(&mut self, of: Of) {
        if let Some((used, bytes)) = self.chunks.remove(&of) {
            self.by_use.remove(&used);
            self.bytes -= bytes.len();
        }
    }
}

/// A file whose bytes are those that were hashed. It is opened for each chunk: files may be many, and descriptors are few.
pub(crate) struct FileSource {
    path: PathBuf,
    hashes: Hashes,
    chunks: Chunks,
}

impl FileSource {
    pub(crate) fn new(path: PathBuf, hashes: Hashes, chunks: Chunks) -> Self {
        Self {
            path,
            hashes,
            chunks,
        }
    }

    /// A chunk, if it still is what it was.
    fn chunk(&self, number: u64) -> Option<Arc<[u8]>> {
        let of = (self.hashes.whole, number);
        if let Some(bytes) = self.chunks.lock().get(of) {
            return Some(bytes);
        }
        let start = number * self.hashes.chunk;
        let length = self.hashes.chunk.min(self.hashes.bytes.checked_sub(start)?);
        let bytes = open(&self.path).and_then(|file| read(&file, start, length));
        let bytes = bytes.ok()?;
        let known = self.hashes.chunks.get(usize::try_from(number).ok()?)?;
        if short(&bytes) != *known {
            return None;
        }
        let bytes: Arc<[u8]> = bytes.into();
        self.chunks.lock().keep(of, Arc::clone(&bytes));
        Some(bytes)
    }
}

impl Source for FileSource {
    fn length(&self) -> u64 {
        self.hashes.bytes
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> bool {
        let size = self.hashes.chunk.max(1);
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let Some(chunk) = self.chunk(at / size) else {
                return false;
            };
            let rest = chunk.get(usize::try_from(at % size).unwrap_or(usize::MAX)..);
            let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
                return false;
            };
            let count = rest.len().min(out.len() - done);
            out[done..done + count].copy_from_slice(&rest[..count]);
            done += count;
        }
        true
    }
}

/// Opens a file, and nothing else that has its name meanwhile: a link may lead to what is not to be served, and a pipe may keep the caller
/// waiting for ever. The path has no links, as [`crate::index`] finds it.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    let opened = match opened {
        // An old kernel, or a sandbox that does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            openat(CWD, path, flags | OFlags::NOFOLLOW, Mode::empty())
        }
        opened => opened,
    };
    let file = File::from(opened?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no file")),
    }
}

fn read(file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

fn short(bytes: &[u8]) -> [u8; 16] {
    let hash = <[u8; 32]>::from(Sha256::digest(bytes));
    std::array::from_fn(|at| hash[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_served_as_it_was_hashed_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&path, &bytes).unwrap();
        let hashes = Hashes::of(&path).unwrap();
        assert_eq!(hashes.whole, <[u8; 32]>::from(Sha256::digest(&bytes)));
        let mut source = FileSource::new(path.clone(), hashes.clone(), Chunks::default());
        for (offset, length) in [(0, 10), (65_530, 12), (131_000, 200_000), (799_999, 1)] {
            let mut out = vec![0; length];
            assert!(source.read(offset as u64, &mut out));
            assert!(out == bytes[offset..offset + length]);
        }
        assert!(!source.read(799_999, &mut [0; 2]));
        let mut changed = bytes.clone();
        changed[70_000] ^= 1;
        std::fs::write(&path, &changed).unwrap();
        let mut source = FileSource::new(path.clone(), hashes, Chunks::default());
        assert!(!source.read(66_000, &mut [0; 5]));
        assert!(source.read(0, &mut [0; 5]));
        std::fs::write(&path, b"short").unwrap();
        assert!(!source.read(500_000, &mut [0; 5]));
    }

    /// With more files at once than chunks were kept, each segment had a whole chunk read and hashed.
    #[test]
    fn many_files_at_once_are_read_once() {
        const FILES: usize = 64;
        const LENGTH: usize = 200_000;
        const STEP: usize = 1418;
        let folder = tempfile::tempdir().unwrap();
        let chunks = Chunks::default();
        let sources = (0..FILES).map(|number| {
            let path = folder.path().join(number.to_string());
            let bytes = vec![number.to_le_bytes()[0]; LENGTH];
            std::fs::write(&path, bytes).unwrap();
            let hashes = Hashes::of(&path).unwrap();
            FileSource::new(path, hashes, chunks.clone())
        });
        let mut sources: Vec<FileSource> = sources.collect();
        for at in (0..LENGTH).step_by(STEP) {
            for source in &mut sources {
                let mut out = vec![0; STEP.min(LENGTH - at)];
                assert!(source.read(at as u64, &mut out));
            }
        }
        let of_file = LENGTH.div_ceil(usize::try_from(LEAST_CHUNK).unwrap());
        assert_eq!(chunks.lock().reads, FILES * of_file);
    }

    #[test]
    fn what_is_kept_is_bounded_and_of_one_file_leaves_others_theirs() {
        let mut kept = Kept::default();
        let chunk = |length: usize| Arc::<[u8]>::from(vec![0; length]);
        for file in 1..40 {
            kept.keep(([file; 32], 0), chunk(10));
        }
        for number in 0..1_000 {
            kept.keep(([50; 32], number), chunk(4 << 20));
            assert!(kept.bytes <= MOST_BYTES_KEPT);
        }
        assert_eq!(
            kept.chunks.len(),
            39 + 63,
            "the last of one, and all others"
        );
        for file in 60..100 {
            kept.keep(([file; 32], 0), chunk(16 << 20));
            assert!(kept.bytes <= MOST_BYTES_KEPT);
        }
        assert!(kept.get(([1; 32], 0)).is_none() && kept.get(([99; 32], 0)).is_some());
        assert_eq!((kept.chunks.len(), kept.by_use.len()), (16, 16));
    }

    /// With more readers than chunks of a file were kept, each segment had a whole chunk read and hashed.
    #[test]
    fn a_file_with_many_readers_at_different_places_is_read_once() {
        const READERS: usize = 40;
        let chunk = usize::try_from(LEAST_CHUNK).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![7; READERS * chunk]).unwrap();
        let hashes = Hashes::of(file.path()).unwrap();
        let chunks = Chunks::default();
        let mut source = FileSource::new(file.path().into(), hashes, chunks.clone());
        for at in (0..chunk).step_by(1418) {
            for reader in 0..READERS {
                let mut out = vec![0; 1418.min(chunk - at)];
                assert!(source.read((reader * chunk + at) as u64, &mut out));
            }
        }
        assert_eq!(chunks.lock().reads, READERS);
    }

    /// A program that may write to the folder could have the thread that serves wait for a pipe, and files of others be served.
    #[test]
    fn what_became_a_pipe_or_a_link_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["file", "other"].map(|name| folder.path().join(name));
        std::fs::write(&path, b"bytes").unwrap();
        std::fs::write(&other, b"bytes").unwrap();
        let hashes = Hashes::of(&path).unwrap();
        let mut source = FileSource::new(path.clone(), hashes, Chunks::default());
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(!source.read(0, &mut [0; 5]), "and does not wait");
        assert!(Hashes::of(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(!source.read(0, &mut [0; 5]));
        assert!(Hashes::of(&path).is_err());
        std::os::unix::fs::symlink(folder.path(), folder.path().join("away")).unwrap();
        assert!(Hashes::of(&folder.path().join("away/other")).is_err());
        assert!(Hashes::of(&other).is_ok());
    }

    #[test]
    fn an_empty_file_has_nothing_to_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let hashes = Hashes::of(file.path()).unwrap();
        let mut source = FileSource::new(file.path().into(), hashes, Chunks::default());
        assert_eq!(source.length(), 0);
        assert!(source.read(0, &mut []));
    }
}
