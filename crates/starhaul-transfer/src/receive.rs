//! Receiving files into a folder.

mod arriving;

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bytes::Bytes;
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};
use starhaul_ltp::{EngineId, Event, Outgoing};
use starhaul_net::ltp::LtpDriver;

pub use self::arriving::Arriving;
use crate::{
    Error, SERVICE, file_error,
    wire::{Chunk, Verdict},
};

/// Greatest number of unfinished files; beyond it, the one whose sender was silent longest is given up.
const MOST_FILES: usize = 64;

/// After so long without a block a sender is gone with which nothing is under way, or after as long as it tries if that is more. It may be
/// far away, and this end not know how far.
const GONE: Duration = Duration::from_secs(3600);
/// The same where the disk is full: as long as a sender tries that does not know how far this end is.
const GONE_IF_FULL: Duration = Duration::from_secs(360);
/// How often senders are looked for that are gone.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// A file that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The engine that sent it.
    pub from: EngineId,
    /// Path under which it was stored.
    pub path: PathBuf,
    /// Length of the file in bytes.
    pub length: u64,
    /// SHA-256 of the file.
    pub hash: [u8; 32],
}

/// Stores received files in a folder; an existing file is never replaced. Parts of files that are unfinished go with it, and with their
/// senders.
#[derive(Debug)]
pub struct FileReceiver {
    folder: PathBuf,
    unfinished: BTreeMap<(EngineId, u64), Unfinished>,
    /// Whether senders are told what became of their files.
    answers: bool,
}

#[derive(Debug)]
struct Unfinished {
    name: String,
    part: PathBuf,
    file: File,
    length: u64,
    /// First byte and length of each block that was written.
    chunks: BTreeMap<u64, u64>,
    /// The hash of the bytes before `hashed`: a long file would take too long at its end.
    hash: Sha256,
    hashed: u64,
    /// Whether a chunk came for what was hashed.
    is_rewritten: bool,
    /// When the last one came.
    heard: Instant,
}

impl FileReceiver {
    /// Receives into `folder`, which is made if need be. Parts there that a receiver has left which could not remove them go.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn new(folder: &Path) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(file_error(folder))?;
        remove_left(folder);
        Ok(Self {
            folder: folder.to_owned(),
            unfinished: BTreeMap::new(),
            answers: true,
        })
    }

    /// The same over a link without a way back: no sender is told what became of its file.
    #[must_use]
    pub fn without_answers(mut self) -> Self {
        self.answers = false;
        self
    }

    /// Handles what the engine tells, and returns a file that is complete now. What is wrong with a file is told to its sender; a sender
    /// that cannot be told gives up after a time of its own.
    pub fn handle(&mut self, driver: &mut LtpDriver, event: Event) -> Option<Received> {
        let Event::RedPart { session, block, .. } = event else {
            return None;
        };
        let from = session.originator;
        let Some(chunk) = Chunk::parse(&block.into_bytes()) else {
            tracing::warn!(%session, "a block that is no part of a file");
            return None;
        };
        let transfer = chunk.transfer;
        let mut stored = self.store(from, &chunk);
        // Files whose senders are gone make room for what comes.
        if stored.as_ref().is_err_and(is_full) && self.drop_gone(driver, GONE_IF_FULL) > 0 {
            stored = self.store(from, &chunk);
        }
        let (received, result) = match stored {
            Ok(None) => return None,
            Ok(Some(received)) => (Some(received.clone()), Ok(received.hash)),
            Err(error) => {
                tracing::warn!(%from, %error, "a file cannot be stored");
                self.drop_part(from, transfer);
                (None, Err(error.to_string()))
            }
        };
        if !self.answers {
            return received;
        }
        let block: Bytes = Verdict { transfer, result }.encode();
        let (red, service, to) = (block.len() as u64, SERVICE, from);
        let outgoing = Outgoing {
            to,
            service,
            block,
            red,
        };
        if let Err(error) = driver.engine().send(Instant::now(), outgoing) {
            tracing::warn!(%from, %error, "the sender is not told what became of its file");
        }
        received
    }

    /// Gives up the files whose senders are gone, and returns when to look again; `None` while no file is unfinished.
    pub fn give_up(&mut self, driver: &mut LtpDriver) -> Option<Instant> {
        self.drop_gone(driver, GONE);
        (!self.unfinished.is_empty()).then(|| Instant::now() + LOOK_EVERY)
    }

    /// Drops the files of senders with which nothing is under way, and that were silent for longer than this and than they try; returns how
    /// many.
    fn drop_gone(&mut self, driver: &mut LtpDriver, silence: Duration) -> usize {
        let (engine, now) = (driver.engine(), Instant::now());
        let is_gone = |from: EngineId, heard: Instant| {
            let silent = now.saturating_duration_since(heard);
            let tries = || engine.longest_silence(from).unwrap_or_default();
            silent > silence && engine.is_idle(from) && silent > tries()
        };
        let files = self.unfinished.iter();
        let gone: Vec<(EngineId, u64)> = files
            .filter(|((from, _), file)| is_gone(*from, file.heard))
            .map(|(key, _)| *key)
            .collect();
        for &(from, transfer) in &gone {
            tracing::warn!(%from, "a file is given up: its sender is gone");
            self.drop_part(from, transfer);
        }
        gone.len()
    }

    fn store(&mut self, from: EngineId, chunk: &Chunk) -> io::Result<Option<Received>> {
        let key = (from, chunk.transfer);
        if !self.unfinished.contains_key(&key) {
            if self.unfinished.len() >= MOST_FILES {
                self.drop_oldest();
            }
            let unfinished = self.begin(from, chunk)?;
            self.unfinished.insert(key, unfinished);
        }
        let Some(file) = self.unfinished.get_mut(&key) else {
            return Ok(None);
        };
        if (file.length, file.name.as_str()) != (chunk.length, chunk.name.as_str()) {
            return Err(io::Error::other(
                "the transfer's blocks name different files",
            ));
        }
        file.heard = Instant::now();
        file.file.write_all_at(&chunk.data, chunk.offset)?;
        file.chunks.insert(chunk.offset, chunk.data.len() as u64);
        file.hash_on(chunk)?;
        if !file.is_complete() {
            return Ok(None);
        }
        let hash = file.finish()?;
        let path = self.folder.join(&file.name);
        starhaul_files::give_name(&file.part, &path)?;
        let length = file.length;
        self.unfinished.remove(&key);
        Ok(Some(Received {
            from,
            path,
            length,
            hash,
        }))
    }

    fn begin(&self, from: EngineId, chunk: &Chunk) -> io::Result<Unfinished> {
        if self.folder.join(&chunk.name).exists() {
            return Err(io::Error::other(format!("{} exists already", chunk.name)));
        }
        let part = self
            .folder
            .join(format!(".{}-{:016x}.part", from, chunk.transfer));
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&part)?;
        // Another receiver takes it for left otherwise. Some file systems have no locks.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        Ok(Unfinished {
            name: chunk.name.clone(),
            part,
            file,
            length: chunk.length,
            chunks: BTreeMap::new(),
            hash: Sha256::new(),
            hashed: 0,
            is_rewritten: false,
            heard: Instant::now(),
        })
    }

    fn drop_oldest(&mut self) {
        let oldest = self.unfinished.iter().min_by_key(|(_, file)| file.heard);
        if let Some((&(from, transfer), _)) = oldest {
            self.drop_part(from, transfer);
        }
    }

    fn drop_part(&mut self, from: EngineId, transfer: u64) {
        if let Some(file) = self.unfinished.remove(&(from, transfer)) {
            // Nothing else can be done with a part that cannot be removed.
            let _ = fs::remove_file(file.part);
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Removes the parts in a folder that no receiver has a lock on: those that ran have crashed.
fn remove_left(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(is_part)
            && entry.file_type().is_ok_and(|kind| kind.is_file());
        let file = match is_ours {
            true => OpenOptions::new().write(true).open(entry.path()),
            false => continue,
        };
        let is_left =
            file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok());
        if is_left && fs::remove_file(entry.path()).is_ok() {
            let part = entry.path();
            tracing::info!(part = %part.display(), "removed what a receiver had left");
        }
    }
}

/// Whether a file has a name as [`FileReceiver`] gives to parts.
fn is_part(name: &str) -> bool {
    let within = name
        .strip_prefix('.')
        .and_then(|name| name.strip_suffix(".part"));
    let Some((engine, transfer)) = within.and_then(|name| name.split_once('-')) else {
        return false;
    };
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    engine.parse::<u64>().is_ok() && transfer.len() == 16 && transfer.bytes().all(is_hex)
}

impl Drop for FileReceiver {
    /// Removes unfinished files, which no other receiver continues.
    fn drop(&mut self) {
        for file in self.unfinished.values() {
            // As above.
            let _ = fs::remove_file(&file.part);
        }
    }
}

impl Unfinished {
    fn is_complete(&self) -> bool {
        let mut end = 0;
        for (&offset, &length) in &self.chunks {
            if offset > end {
                return false;
            }
            end = end.max(offset + length);
        }
        end == self.length
    }

    /// Adds to the hash what follows on it: this chunk, and those behind it that came before.
    fn hash_on(&mut self, chunk: &Chunk) -> io::Result<()> {
        if chunk.offset < self.hashed {
            self.is_rewritten = true;
        }
        if chunk.offset != self.hashed {
            return Ok(());
        }
        self.hash.update(&chunk.data);
        self.hashed += chunk.data.len() as u64;
        let mut buffer = Vec::new();
        while let Some(&length) = self.chunks.get(&self.hashed).filter(|length| **length > 0) {
            buffer.resize(usize::try_from(length).map_err(io::Error::other)?, 0);
            self.file.read_exact_at(&mut buffer, self.hashed)?;
            self.hash.update(&buffer);
            self.hashed += length;
        }
        Ok(())
    }

    /// Writes all to the disk, and returns the hash of what came.
    fn finish(&mut self) -> io::Result<[u8; 32]> {
        self.file.sync_all()?;
        if self.hashed == self.length && !self.is_rewritten {
            return Ok(self.hash.clone().finalize().into());
        }
        // Its chunks overlap: what is there counts.
        self.file.seek(SeekFrom::Start(0))?;
        let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
        loop {
            match self.file.read(&mut buffer)? {
                0 => return Ok(hash.finalize().into()),
                count => hash.update(buffer.get(..count).unwrap_or_default()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_of_the_file_in_whatever_order_its_chunks_come() {
        let whole: Vec<u8> = (0..100_u8).collect();
        for (number, order) in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2]]
            .into_iter()
            .enumerate()
        {
            let folder = tempfile::tempdir().unwrap();
            let mut receiver = FileReceiver::new(folder.path()).unwrap();
            let mut stored = None;
            // The second chunk overlaps the first in the last run.
            let early = if number == 2 { 5 } else { 0 };
            for place in order {
                let begin = place * 25 - if place == 1 { early } else { 0 };
                let chunk = Chunk {
                    transfer: 1,
                    name: "file".into(),
                    length: 100,
                    offset: begin as u64,
                    data: whole[begin..place * 25 + 25].to_vec().into(),
                };
                stored = receiver.store(EngineId(1), &chunk).unwrap().or(stored);
            }
            let stored = stored.unwrap();
            assert_eq!(fs::read(&stored.path).unwrap(), whole);
            assert_eq!(stored.hash, <[u8; 32]>::from(Sha256::digest(&whole)));
        }
    }

    #[test]
    fn the_hash_is_of_what_is_there_when_a_chunk_comes_again_with_other_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let mut receiver = FileReceiver::new(folder.path()).unwrap();
        let mut stored = None;
        for (offset, byte) in [(0, 1), (0, 2), (10, 3)] {
            let chunk = Chunk {
                transfer: 1,
                name: "file".into(),
                length: 20,
                offset,
                data: vec![byte; 10].into(),
            };
            stored = receiver.store(EngineId(1), &chunk).unwrap().or(stored);
        }
        let stored = stored.unwrap();
        let there = fs::read(&stored.path).unwrap();
        assert_eq!(there[..10], [2; 10]);
        assert_eq!(stored.hash, <[u8; 32]>::from(Sha256::digest(&there)));
    }

    /// Parts of transfers that had not ended stayed in the folder for ever.
    #[test]
    fn parts_of_unfinished_files_go_with_their_receiver() {
        let folder = tempfile::tempdir().unwrap();
        let mut receiver = FileReceiver::new(folder.path()).unwrap();
        let mut store = |name: &str, transfer, length| {
            let chunk = Chunk {
                transfer,
                name: name.into(),
                length,
                offset: 0,
                data: vec![7; 10].into(),
            };
            receiver.store(EngineId(1), &chunk).unwrap().is_some()
        };
        assert!(store("whole", 1, 10) && !store("unfinished", 2, 20));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        drop(receiver);
        let left = fs::read_dir(folder.path()).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["whole"]);
    }

    fn chunk(transfer: u64, length: u64) -> Chunk {
        Chunk {
            transfer,
            name: format!("file-{transfer}"),
            length,
            offset: 0,
            data: vec![7; 10].into(),
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Parts that a power cut left were never removed.
    #[test]
    fn what_a_crash_left_goes_and_what_another_receiver_has_stays() {
        let folder = tempfile::tempdir().unwrap();
        let mut running = FileReceiver::new(folder.path()).unwrap();
        running.store(EngineId(1), &chunk(0xab, 20)).unwrap();
        let left = ".70000-00000000000000cd.part";
        let others = [
            ".1-ab.part",
            ".note-00000000000000cd.part",
            "1-00000000000000cd.part",
        ];
        for name in others.iter().chain([&left]) {
            fs::write(folder.path().join(name), "a").unwrap();
        }
        let next = FileReceiver::new(folder.path()).unwrap();
        let mut stay: Vec<&str> = others.into();
        stay.push(".1-00000000000000ab.part");
        stay.sort_unstable();
        assert_eq!(names(folder.path()), stay);
        drop((running, next));
    }

    #[test]
    fn files_go_whose_senders_are_gone() {
        let engine = starhaul_ltp::EngineConfig::new(EngineId(2), [7; 32]);
        let engine = starhaul_ltp::Engine::new(engine);
        let local = ([127, 0, 0, 1], 0).into();
        let mut driver = LtpDriver::bind(local, starhaul_net::IoMode::default(), engine).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut receiver = FileReceiver::new(folder.path()).unwrap();
        assert_eq!(receiver.give_up(&mut driver), None);
        for transfer in [1, 2] {
            receiver.store(EngineId(1), &chunk(transfer, 20)).unwrap();
        }
        assert!(receiver.give_up(&mut driver).is_some());
        let of_first = receiver.unfinished.get_mut(&(EngineId(1), 1)).unwrap();
        of_first.heard = of_first.heard.checked_sub(GONE * 2).unwrap();
        assert!(receiver.give_up(&mut driver).is_some());
        assert_eq!(names(folder.path()), [".1-0000000000000002.part"]);
        let of_second = receiver.unfinished.get_mut(&(EngineId(1), 2)).unwrap();
        of_second.heard = of_second.heard.checked_sub(GONE_IF_FULL * 2).unwrap();
        assert!(receiver.give_up(&mut driver).is_some(), "it may come yet");
        assert_eq!(receiver.drop_gone(&mut driver, GONE_IF_FULL), 1);
        assert!(names(folder.path()).is_empty());
    }
}
