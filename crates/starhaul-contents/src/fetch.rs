//! Fetching a file by its name: what it is, then its bytes, from where an earlier try ended, then their hash.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};
use starhaul_leotp::{
    ContentSecret, Event, Failure, FetchConfig, FetchId, NeighbourConfig, NeighbourId,
    NeighbourKey, RateRule,
};
use starhaul_net::leotp::{LeotpDriver, full_packet_bytes};

use crate::{
    Entry, Error,
    catalogue::{self, Answer, CatalogueKey, Question, SLOT_BYTES},
    entry::hex,
    file_error, keys,
};

const UPSTREAM: NeighbourId = NeighbourId(0);
const BUFFER_BYTES: usize = 1 << 20;
/// How often a name is asked for.
const QUESTIONS: usize = 3;
/// Own transfers need no cache: what arrives is written.
const CACHE_BYTES: usize = 0;

/// What to fetch, and from where.
#[derive(Clone, Debug)]
pub struct Fetching {
    /// Name of the file at its server.
    pub name: String,
    /// The next relay or the server. Of several addresses, that which answers first; they are asked in this order, and each has
    /// the same part of `patience` for it.
    pub from: Vec<SocketAddr>,
    /// The key shared with it.
    pub key: NeighbourKey,
    /// The secret shared with the server.
    pub secret: ContentSecret,
    /// The file to write, or the folder for it.
    pub into: PathBuf,
    /// How long nothing may come.
    pub patience: Duration,
}

/// A file that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Path of the file.
    pub path: PathBuf,
    /// Its length and hash.
    pub entry: Entry,
    /// How much of it an earlier try had brought.
    pub resumed_from: u64,
    /// From the query for the name to the last byte.
    pub took: Duration,
    /// The longest time between two arrivals of bytes in order.
    pub longest_pause: Duration,
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes in order.
    pub bytes: u64,
    /// Length of the file in bytes.
    pub length: u64,
}

impl Fetching {
    /// Fetches; `told` hears of the progress.
    ///
    /// # Errors
    /// What was fetched so far is kept for the next try, unless its hash is wrong.
    pub fn run(&self, mut told: impl FnMut(Progress)) -> Result<Fetched, Error> {
        let began = Instant::now();
        let (mut transfer, entry) = self.find()?;
        let path = self.target();
        let sum = |path: &Path| hash_of(path).map_err(file_error(path));
        if path.exists() {
            return match sum(&path)? == entry.sha256 {
                true => Ok(Fetched {
                    path,
                    resumed_from: entry.bytes,
                    entry,
                    took: transfer.heard.saturating_duration_since(began),
                    longest_pause: Duration::ZERO,
                }),
                false => Err(Error::Exists(path)),
            };
        }
        let mut part = Part::open(&path, &entry)?;
        let resumed_from = part.bytes;
        let longest_pause = transfer.fetch(&entry, &mut part, &mut told)?;
        part.finish(&path, &entry)?;
        Ok(Fetched {
            path,
            entry,
            resumed_from,
            took: transfer.heard.saturating_duration_since(began),
            longest_pause,
        })
    }

    /// What the name means, and who said so.
    fn find(&self) -> Result<(Transfer<'_>, Entry), Error> {
        let addresses = u32::try_from(self.from.len()).unwrap_or(u32::MAX).max(1);
        let mut unheard = Error::NoAddress;
        for &address in &self.from {
            let found = Transfer::new(self, address, self.patience / addresses)
                .and_then(|mut transfer| transfer.find().map(|entry| (transfer, entry)));
            match found {
                // Its family may have no way from here.
                Err(error @ (Error::Silent(_) | Error::Net(_))) => {
                    tracing::info!(%address, %error, "does not answer");
                    unheard = error;
                }
                decided => return decided,
            }
        }
        Err(unheard)
    }

    fn target(&self) -> PathBuf {
        let name = Path::new(&self.name).file_name().unwrap_or_default();
        match self.into.is_dir() {
            true => self.into.join(name),
            false => self.into.clone(),
        }
    }
}

/// A turn that begins so much later than it should: this program was stopped, or waited for a disk.
const STOOD_STILL: Duration = Duration::from_secs(1);

/// A node with one neighbour, which fetches.
struct Transfer<'a> {
    of: &'a Fetching,
    address: SocketAddr,
    /// How long nothing may come before the first answer.
    patience_at_first: Duration,
    driver: LeotpDriver,
    /// When something came last, and when the last turn began.
    heard: Instant,
    turned: Instant,
}

impl<'a> Transfer<'a> {
    fn new(
        of: &'a Fetching,
        address: SocketAddr,
        patience_at_first: Duration,
    ) -> Result<Self, Error> {
        let local = match address.is_ipv4() {
            true => ([0, 0, 0, 0], 0).into(),
            false => ([0_u16; 8], 0).into(),
        };
        let (now, key) = (Instant::now(), of.key.clone());
        let mut node = keys::node(CACHE_BYTES, RateRule::default(), full_packet_bytes(local))?;
        node.add_neighbour(now, UPSTREAM, NeighbourConfig { key })?;
        node.set_upstream(now, Some(UPSTREAM));
        let mut driver = LeotpDriver::bind(local, node)?;
        driver.set_address(UPSTREAM, Some(address));
        Ok(Self {
            of,
            address,
            patience_at_first,
            driver,
            heard: now,
            turned: now,
        })
    }

    /// What the name means. An answer whose segments are of several sealings is asked for again.
    fn find(&mut self) -> Result<Entry, Error> {
        let key = CatalogueKey::new(&self.of.secret);
        for _ in 0..QUESTIONS {
            if let Some(entry) = self.ask(&key)? {
                return Ok(entry);
            }
        }
        Err(Error::Damaged)
    }

    fn ask(&mut self, key: &CatalogueKey) -> Result<Option<Entry>, Error> {
        let name = &self.of.name;
        let question = Question::new(name)?;
        let config = FetchConfig {
            start: question.start(),
            length: Some(question.start() + SLOT_BYTES),
            ..FetchConfig::new(catalogue::content(&self.of.secret), self.of.secret.clone())
        };
        let id = self.driver.node().fetch(Instant::now(), config);
        let mut bytes = Vec::new();
        loop {
            self.turn(id, |why| match why {
                Failure::Refused => Error::Unknown(name.clone()),
                why => why.into(),
            })?;
            while let Some(more) = self.read(id) {
                bytes.extend_from_slice(&more);
            }
            self.judge()?;
            let entry = match question.read(key, &bytes, name)? {
                Answer::Incomplete => continue,
                Answer::Damaged => None,
                Answer::Entry(entry) => Some(entry),
            };
            self.driver.node().end(id);
            return Ok(entry);
        }
    }

    /// Fetches what is missing of a file; returns the longest time between two arrivals.
    fn fetch(
        &mut self,
        entry: &Entry,
        part: &mut Part,
        told: &mut impl FnMut(Progress),
    ) -> Result<Duration, Error> {
        let length = entry.bytes;
        let (mut longest_pause, mut last) = (Duration::ZERO, None);
        if part.bytes == length {
            return Ok(longest_pause);
        }
        let config = FetchConfig {
            start: part.bytes,
            length: Some(length),
            ..FetchConfig::new(entry.content(&self.of.secret), self.of.secret.clone())
        };
        // What is there already may have taken long to read.
        self.heard = Instant::now();
        let id = self.driver.node().fetch(self.heard, config);
        while part.bytes < length {
            self.turn(id, |why| match why {
                Failure::Refused => Error::Changed(entry.name.clone()),
                why => why.into(),
            })?;
            while let Some(bytes) = self.read(id) {
                let last = last.replace(self.heard).unwrap_or(self.heard);
                longest_pause = longest_pause.max(self.heard - last);
                part.write(&bytes)?;
                let bytes = part.bytes;
                told(Progress { bytes, length });
            }
            self.judge()?;
        }
        Ok(longest_pause)
    }

    fn read(&mut self, id: FetchId) -> Option<bytes::Bytes> {
        let now = Instant::now();
        let bytes = self.driver.node().read(now, id)?;
        self.heard = now;
        Some(bytes)
    }

    fn patience(&mut self) -> (bool, Duration) {
        let has_met = self.driver.node().has_met(UPSTREAM);
        let patience = match has_met {
            true => self.of.patience,
            false => self.patience_at_first,
        };
        (has_met, patience)
    }

    fn turn(&mut self, id: FetchId, error: impl Fn(Failure) -> Error) -> Result<(), Error> {
        let (_, patience) = self.patience();
        self.turned = Instant::now();
        if self.turned > self.heard + patience + STOOD_STILL {
            // This program stood still, and what came meanwhile is not read yet.
            self.heard = self.turned;
        }
        let until = self.heard + patience;
        self.driver.turn(Some(until))?;
        while let Some(event) = self.driver.node().poll_event() {
            match event {
                Event::Failed(of, why) if of == id => return Err(error(why)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the silence is too long, once all is read that has come: this program itself may have stood still.
    fn judge(&mut self) -> Result<(), Error> {
        let (has_met, patience) = self.patience();
        // In a turn that began before, the program may have stood still.
        if self.turned < self.heard + patience {
            return Ok(());
        }
        Err(match has_met {
            true => Error::Stalled(patience.as_secs()),
            false => Error::Silent(self.address),
        })
    }
}

/// The end of the name of a part, and the digits of the hash before it.
const PART: &str = ".part";
const HASH_DIGITS: usize = 16;
/// Bytes of a file's name at most (`NAME_MAX`).
const MOST_OF_NAME: usize = 255;

/// How the names of parts of this file begin, as far as they have room for its own name.
fn beginning(target: &Path) -> String {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let room = MOST_OF_NAME - "..".len() - HASH_DIGITS - PART.len();
    let end = name.floor_char_boundary(room);
    format!(".{}.", name.get(..end).unwrap_or_default())
}

/// Removes parts of what had this name before, which no program will go on with. One that another program writes stays.
fn remove_other_parts(target: &Path) -> io::Result<()> {
    let folder = target
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let beginning = beginning(target);
    for file in fs::read_dir(folder.unwrap_or(Path::new(".")))? {
        let file = file?;
        let name = file.file_name();
        let digits = name.to_str().and_then(|name| {
            let rest = name.strip_prefix(beginning.as_str())?;
            rest.strip_suffix(PART)
        });
        let is_part = digits.is_some_and(|digits| {
            digits.len() == HASH_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        });
        if is_part && File::open(file.path()).is_ok_and(|part| part.try_lock().is_ok()) {
            fs::remove_file(file.path())?;
        }
    }
    Ok(())
}

/// The part of a file that has arrived, in a file beside the one that it becomes. Its name has the hash of the whole, so
/// that parts of other bytes are not continued.
struct Part {
    path: PathBuf,
    file: io::BufWriter<File>,
    hash: Sha256,
    bytes: u64,
}

impl Part {
    fn open(target: &Path, entry: &Entry) -> Result<Self, Error> {
        let hash = entry.sha256.get(..HASH_DIGITS).unwrap_or_default();
        let path = target.with_file_name(format!("{}{hash}{PART}", beginning(target)));
        let mut options = OpenOptions::new();
        let options = options.read(true).append(true).create(true);
        let mut file = options.open(&path).map_err(file_error(&path))?;
        file.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => Error::Busy(path.clone()),
            fs::TryLockError::Error(source) => file_error(&path)(source),
        })?;
        let (mut hash, mut buffer) = (Sha256::new(), vec![0; BUFFER_BYTES]);
        let mut bytes = 0;
        loop {
            match file.read(&mut buffer).map_err(file_error(&path))? {
                0 => break,
                count => {
                    hash.update(buffer.get(..count).unwrap_or_default());
                    bytes += count as u64;
                }
            }
        }
        if bytes > entry.bytes {
            file.set_len(0).map_err(file_error(&path))?;
            (hash, bytes) = (Sha256::new(), 0);
        }
        Ok(Self {
            path,
            file: io::BufWriter::with_capacity(BUFFER_BYTES, file),
            hash,
            bytes,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(file_error(&self.path))?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Gives the file its name, if it is what the server promised.
    fn finish(mut self, target: &Path, entry: &Entry) -> Result<(), Error> {
        let synced = self
            .file
            .flush()
            .and_then(|()| self.file.get_ref().sync_all());
        synced.map_err(file_error(&self.path))?;
        if hex(&self.hash.finalize()) != entry.sha256 {
            fs::remove_file(&self.path).map_err(file_error(&self.path))?;
            return Err(Error::Hash(entry.name.clone()));
        }
        starhaul_files::give_name(&self.path, target).map_err(file_error(target))?;
        if let Err(error) = remove_other_parts(target) {
            tracing::debug!(%error, "parts of former files stay");
        }
        Ok(())
    }
}

fn hash_of(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hash)?;
    Ok(hex(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lies beside the target is as it was left only if no program changed it.
    #[test]
    fn a_part_whose_bytes_changed_does_not_become_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("data");
        let entry = Entry {
            name: "data".to_owned(),
            bytes: 5,
            sha256: hex(&Sha256::digest("whole")),
            segment_bytes: None,
        };
        let open = || Part::open(&target, &entry).unwrap();
        let mut first = open();
        first.write(b"who").unwrap();
        let beside = first.path.clone();
        drop(first);
        assert_eq!(fs::read(&beside).unwrap(), b"who");

        fs::write(&beside, "wha").unwrap();
        let mut next = open();
        assert_eq!(next.bytes, 3, "it goes on");
        next.write(b"le").unwrap();
        let error = next.finish(&target, &entry).unwrap_err();
        assert!(matches!(&error, Error::Hash(name) if name == "data"));
        assert!(error.to_string().contains("fetch it again"), "{error}");
        assert!(!target.exists(), "a wrong file stands for the right one");

        // The try after that begins anew.
        let mut last = open();
        assert_eq!(last.bytes, 0);
        last.write(b"whole").unwrap();
        last.finish(&target, &entry).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"whole");
        assert!(!beside.exists());
    }
}
