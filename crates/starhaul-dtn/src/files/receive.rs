//! Receiving files into a folder. Each chunk is a file of its own until all are there, so that nothing that was acknowledged is
//! lost when the command ends or the host crashes.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sha2::{Digest as _, Sha256};

use super::{
    existing::Existing,
    hash::hex,
    wire::{Chunk, PARTS, Verdict, decode, encode},
};
use starhaul_dtn_client::control::Bundle;

use crate::Error;

/// How long an answer lives at least: the way back may open later than the one that the file came.
const LEAST_ANSWER: Duration = Duration::from_secs(86_400);
/// Unfinished files of which it is known what is there; of others, the folder of their chunks is read.
const MOST_KNOWN: usize = 64;

/// Stores received files in a folder; an existing file is never replaced.
#[derive(Debug)]
pub struct FileReceiver {
    folder: PathBuf,
    /// What is there of unfinished files, by the name of the folder of their chunks.
    known: Mutex<HashMap<String, Ranges>>,
    existing: Existing,
}

/// Ranges that neither overlap nor touch: where each begins and ends.
type Ranges = BTreeMap<u64, u64>;

/// A file that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The endpoint that sent it.
    pub from: String,
    /// Path of the file.
    pub path: PathBuf,
    /// Length of the file in bytes.
    pub length: u64,
    /// Its SHA-256 in hexadecimal digits.
    pub sha256: String,
}

/// What the sender of a file is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The payload of its bundle.
    pub payload: Vec<u8>,
    /// How long that is to live: as long as the file's own, and a day at least.
    pub lifetime: Duration,
}

impl FileReceiver {
    /// Receives into `folder`, which is made if need be.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn new(folder: &Path) -> Result<Self, Error> {
        let parts = folder.join(PARTS);
        make_folder(&parts).map_err(|reason| Error::Write {
            file: parts,
            reason,
        })?;
        Ok(Self {
            folder: folder.to_owned(),
            known: Mutex::default(),
            existing: Existing::default(),
        })
    }

    /// Stores what a bundle carries. Returns a file that is complete now, and the answer to its sender, if there is one to give. After that, the bundle
    /// may be acknowledged.
    ///
    /// # Errors
    /// [`Error::Write`] when the chunk cannot be stored: the bundle is to come again.
    pub fn take(&self, bundle: &Bundle) -> Result<(Option<Received>, Option<Answer>), Error> {
        let chunk =
            decode::<Chunk>(&bundle.payload).filter(|(chunk, data)| chunk.is_proper(data.len()));
        let Some((chunk, data)) = chunk else {
            tracing::warn!(from = bundle.source, "a bundle that is no part of a file");
            return Ok((None, None));
        };
        let path = self.folder.join(&chunk.name);
        let received = || Received {
            from: bundle.source.clone(),
            path: path.clone(),
            length: chunk.length,
            sha256: chunk.sha256.clone(),
        };
        let answer = |problem| {
            let verdict = Verdict {
                name: chunk.name.clone(),
                sha256: chunk.sha256.clone(),
                problem,
            };
            let lifetime = Duration::from_millis(chunk.lifetime_ms.unwrap_or(0));
            Answer {
                payload: encode(&verdict, &[]),
                lifetime: lifetime.max(LEAST_ANSWER),
            }
        };
        let name = part_name(&chunk);
        let parts = self.folder.join(PARTS).join(&name);
        let write = |reason| Error::Write {
            file: parts.clone(),
            reason,
        };
        // Nothing but the answer is left of a file that is complete or never will be.
        let finish = |received, problem| {
            self.known().remove(&name);
            match fs::remove_dir_all(&parts) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(write(error)),
                _ => Ok((received, Some(answer(problem)))),
            }
        };
        match fs::symlink_metadata(&path) {
            Ok(_) => {
                let is_news = self
                    .existing
                    .is_to_be_told(&bundle.source, &name, chunk.offset);
                return match is_news {
                    true => finish(None, self.existing.difference(&path, &chunk)),
                    false => Ok((None, None)),
                };
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if is_due_to_name(&error) => return finish(None, Some(error.to_string())),
            Err(reason) => return Err(Error::Write { file: path, reason }),
        }
        store(&parts, &chunk, data).map_err(write)?;
        let is_complete = self.note(&name, &parts, &chunk, data.len() as u64);
        if !is_complete.map_err(write)? {
            return Ok((None, None));
        }
        match self.put_together(&parts, &chunk, &path) {
            Ok(true) => finish(Some(received()), None),
            Ok(false) => finish(None, Some("its hash differs".to_owned())),
            Err(error) if is_due_to_name(&error) => finish(None, Some(error.to_string())),
            Err(error) => {
                // What is stored is looked at anew.
                self.known().remove(&name);
                Err(write(error))
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Ranges>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a chunk that is stored; returns whether the file is complete.
    fn note(&self, name: &str, parts: &Path, chunk: &Chunk, bytes: u64) -> io::Result<bool> {
        let mut known = self.known();
        if !known.contains_key(name) {
            let mut ranges = Ranges::new();
            for (start, end, _) in chunks(parts)? {
                add(&mut ranges, start, end);
            }
            // What is forgotten is read again.
            if known.len() >= MOST_KNOWN {
                known.clear();
            }
            known.insert(name.to_owned(), ranges);
        }
        let ranges = known.entry(name.to_owned()).or_default();
        add(ranges, chunk.offset, chunk.offset + bytes);
        Ok(ranges.get(&0).is_some_and(|end| *end >= chunk.length))
    }

    /// Joins the chunks; `false` if the file has another hash than its sender said.
    fn put_together(&self, parts: &Path, chunk: &Chunk, path: &Path) -> io::Result<bool> {
        let whole = parts.join("whole");
        let mut file = File::create(&whole)?;
        let mut found = chunks(parts)?.into_iter().peekable();
        let (mut hash, mut at) = (Sha256::new(), 0);
        while at < chunk.length {
            // The chunk that reaches furthest of those that begin before its end.
            let mut best = (0, 0, PathBuf::new());
            while let Some(next) = found.next_if(|(start, _, _)| *start <= at) {
                if next.1 > best.1 {
                    best = next;
                }
            }
            let (start, end, part) = best;
            if end <= at {
                return Err(io::Error::other("a chunk of it was removed here"));
            }
            let data = fs::read(part)?;
            let new = usize::try_from(at - start)
                .ok()
                .and_then(|skip| data.get(skip..))
                .unwrap_or_default();
            if new.len() as u64 != end - at {
                return Err(io::Error::other("a chunk of it was cut here"));
            }
            file.write_all(new)?;
            hash.update(new);
            at = end;
        }
        file.sync_all()?;
        let is_right = hex(&hash.finalize()) == chunk.sha256;
        if is_right {
            let folder = path.parent().unwrap_or(&self.folder);
            make_folder(folder)?;
            starhaul_files::give_name(&whole, path)?;
            File::open(folder)?.sync_all()?;
        }
        Ok(is_right)
    }
}

/// Makes a folder and those above it, and brings them to the medium.
fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.exists() {
        return Ok(());
    }
    let above = folder.ancestors().skip(1);
    let missing = above.take_while(|above| !above.exists()).count();
    fs::create_dir_all(folder)?;
    for made in folder.ancestors().skip(1).take(missing + 1) {
        let made = Some(made).filter(|made| !made.as_os_str().is_empty());
        File::open(made.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

/// Whether a file cannot have this name here, now or later.
fn is_due_to_name(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AlreadyExists
            | io::ErrorKind::CrossesDevices
            | io::ErrorKind::InvalidFilename
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// A name for the chunks of a file, the same for each of them.
fn part_name(chunk: &Chunk) -> String {
    let mut hash = Sha256::new();
    for part in [
        chunk.name.as_bytes(),
        b"\0",
        chunk.sha256.as_bytes(),
        &chunk.length.to_be_bytes(),
    ] {
        hash.update(part);
    }
    hex(&hash.finalize())
}

/// A crash leaves the whole chunk or none.
fn store(parts: &Path, chunk: &Chunk, data: &[u8]) -> io::Result<()> {
    make_folder(parts)?;
    let name = format!("{:016x}-{:x}", chunk.offset, data.len());
    let new = parts.join("new");
    let mut file = File::create(&new)?;
    file.write_all(data)?;
    file.sync_data()?;
    fs::rename(&new, parts.join(name))?;
    File::open(parts)?.sync_all()
}

/// Where each chunk begins and ends, and its file, in order.
fn chunks(parts: &Path) -> io::Result<Vec<(u64, u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(parts)? {
        let entry = entry?;
        let name = entry.file_name();
        let place = name.to_str().and_then(|name| name.split_once('-'));
        let place = place.and_then(|(offset, length)| {
            let offset = u64::from_str_radix(offset, 16).ok()?;
            let length = u64::from_str_radix(length, 16).ok()?;
            Some((offset, offset.checked_add(length)?))
        });
        found.extend(place.map(|(start, end)| (start, end, entry.path())));
    }
    found.sort();
    Ok(found)
}

/// Adds a range, and joins it with those that it overlaps or touches.
fn add(ranges: &mut Ranges, mut start: u64, mut end: u64) {
    while let Some((&other, &its_end)) = ranges.range(..=end).next_back()
        && its_end >= start
    {
        ranges.remove(&other);
        (start, end) = (start.min(other), end.max(its_end));
    }
    ranges.insert(start, end);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn chunk(name: &str, content: &[u8]) -> Chunk {
        Chunk {
            name: name.to_owned(),
            length: content.len() as u64,
            sha256: hex(&Sha256::digest(content)),
            offset: 0,
            lifetime_ms: None,
        }
    }

    /// A part of a file of this content.
    fn bundle(name: &str, content: &[u8], part: std::ops::Range<usize>) -> Bundle {
        let chunk = Chunk {
            offset: part.start as u64,
            ..chunk(name, content)
        };
        Bundle {
            id: name.to_owned(),
            source: "ipn:1.5".to_owned(),
            payload: encode(&chunk, &content[part]),
        }
    }

    fn problem(answer: Option<Answer>) -> Option<String> {
        let (verdict, _) = decode::<Verdict>(&answer.unwrap().payload).unwrap();
        verdict.problem
    }

    fn receiver() -> (tempfile::TempDir, FileReceiver) {
        let folder = tempfile::tempdir().unwrap();
        let receiver = FileReceiver::new(folder.path()).unwrap();
        (folder, receiver)
    }

    #[test]
    fn a_name_that_cannot_be_given_is_told_to_its_sender() {
        let (folder, receiver) = receiver();
        fs::write(folder.path().join("file"), b"a file").unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        let long = ["n".repeat(255).as_str(); 16].join("/");
        for name in ["file/below", "file/far/below", "folder", &long] {
            let (received, answer) = receiver.take(&bundle(name, b"new", 0..3)).unwrap();
            assert_eq!(received, None, "{name}");
            assert!(problem(answer).is_some(), "{name}");
        }
        let parts = fs::read_dir(folder.path().join(PARTS)).unwrap();
        assert_eq!(parts.count(), 0);
        // Without a name that any file may have, it is no part of a file.
        let endless = bundle(&"n".repeat(256), b"new", 0..3);
        assert_eq!(receiver.take(&endless).unwrap(), (None, None));
        let (received, answer) = receiver.take(&bundle("good", b"new", 0..3)).unwrap();
        assert_eq!((received.unwrap().length, problem(answer)), (3, None));
    }

    #[test]
    fn chunks_in_any_order_and_overlapping_become_the_file() {
        let (folder, receiver) = receiver();
        let content: Vec<u8> = (0..=255).collect();
        for part in [200..256, 0..50, 90..210] {
            let took = receiver.take(&bundle("a", &content, part)).unwrap();
            assert_eq!(took, (None, None));
            // Another file between, which has chunks of its own.
            let other = receiver.take(&bundle("b", &content, 0..10)).unwrap();
            assert_eq!(other, (None, None));
        }
        let (received, answer) = receiver.take(&bundle("a", &content, 40..95)).unwrap();
        assert_eq!(received.unwrap().sha256, chunk("a", &content).sha256);
        assert_eq!(problem(answer), None);
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), content);
    }

    #[test]
    fn chunks_of_a_file_that_is_there_are_removed() {
        let (folder, receiver) = receiver();
        receiver.take(&bundle("a", b"content", 0..3)).unwrap();
        // A crash between the file and the removal of its chunks leaves both.
        fs::write(folder.path().join("a"), b"content").unwrap();
        let (_, answer) = receiver.take(&bundle("a", b"content", 3..7)).unwrap();
        assert_eq!(problem(answer), None);
        let parts = fs::read_dir(folder.path().join(PARTS)).unwrap();
        assert_eq!(parts.count(), 0);
    }

    #[test]
    fn a_file_that_is_there_is_read_once_for_all_chunks_and_told_once() {
        let (folder, receiver) = receiver();
        let content = vec![7; 100];
        fs::write(folder.path().join("a"), &content).unwrap();
        let reads = || receiver.existing.read.load(Ordering::Relaxed);
        let answers = |source: &str, content: &[u8]| {
            let taken = (0..10).map(|part| {
                let part = bundle("a", content, part * 10..part * 10 + 10);
                let source = source.to_owned();
                receiver.take(&Bundle { source, ..part }).unwrap().1
            });
            let answers = taken.flatten().map(|answer| problem(Some(answer)));
            answers.collect::<Vec<_>>()
        };
        assert_eq!(answers("ipn:1.5", &content), [None]);
        assert_eq!(answers("ipn:1.6", &content), [None]);
        // A sender that sends it again is told again.
        assert_eq!(answers("ipn:1.6", &content), [None]);
        assert_eq!(reads(), 1);
        // Another content of the same length, and one of another length, which need not be read.
        let different = [Some("a exists already with another content".to_owned())];
        assert_eq!(answers("ipn:1.5", &[8; 100]), different);
        assert_eq!(answers("ipn:1.5", &[7; 110]), different);
        assert_eq!(reads(), 1);
        fs::write(folder.path().join("a"), [&content[..], b"more"].concat()).unwrap();
        let longer = [&content[..], b"more"].concat();
        assert_eq!(answers("ipn:1.5", &longer), [None]);
        assert_eq!(reads(), 2);
    }

    /// The way back may open days later.
    #[test]
    fn an_answer_lives_as_long_as_its_file() {
        const DAY: u64 = 86_400_000;
        let (_folder, receiver) = receiver();
        for (name, sent, lives) in [
            ("week", Some(7 * DAY), 7 * DAY),
            ("minute", Some(60_000), DAY),
            ("of an earlier version", None, DAY),
        ] {
            let chunk = Chunk {
                lifetime_ms: sent,
                ..chunk(name, b"content")
            };
            let payload = encode(&chunk, b"content");
            let bundle = Bundle {
                payload,
                ..bundle(name, b"content", 0..7)
            };
            let (received, answer) = receiver.take(&bundle).unwrap();
            let lifetime = answer.unwrap().lifetime;
            assert!(received.is_some(), "{name}");
            assert_eq!(lifetime, Duration::from_millis(lives), "{name}");
        }
    }

    #[test]
    fn a_chunk_whose_answer_did_not_leave_is_answered_again() {
        let (folder, receiver) = receiver();
        let content = [7; 100];
        fs::write(folder.path().join("a"), content).unwrap();
        let part = |place: usize| bundle("a", &content, place * 10..place * 10 + 10);
        let is_answered = |place| receiver.take(&part(place)).unwrap().1.is_some();
        assert_eq!([2, 2, 3, 0].map(is_answered), [true, true, false, true]);
    }
}
