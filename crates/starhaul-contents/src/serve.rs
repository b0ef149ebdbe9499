//! Serving the files of a folder, and what becomes of them while they are served.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant, SystemTime},
};

use parking_lot::{Mutex, MutexGuard};
use starhaul_leotp::{
    ContentSecret, Event, NeighbourConfig, NeighbourId, NeighbourKey, NodeConfig, RateRule,
};
use starhaul_net::{
    Waker,
    leotp::{LeotpDriver, full_packet_bytes},
};

use crate::{
    Entry, Error,
    catalogue::{self, Catalogue},
    file_error,
    index::{Index, Known, Listed, Served, Stamp},
    keys,
    source::{Chunks, FileSource},
};

/// How often the folder is compared with what is served.
const COMPARED: Duration = Duration::from_secs(2);
/// Segments are read from files, which the system keeps: no cache beside.
const CACHE_BYTES: usize = 0;

/// What to serve, and the keys and secret of those that may ask.
#[derive(Debug)]
pub struct ServeOptions {
    /// A folder, or one file.
    pub root: PathBuf,
    /// The UDP address to listen on.
    pub listen: SocketAddr,
    /// UDP payload of the packets, in bytes; without it what a path of 1500 bytes carries.
    pub packet_bytes: Option<u16>,
    /// The keys of those that may ask, from wherever they are.
    pub neighbours: Vec<NeighbourKey>,
    /// The secret that those have who may read.
    pub secret: ContentSecret,
}

/// A server of files.
#[derive(Debug)]
pub struct Server {
    driver: LeotpDriver,
    secret: ContentSecret,
    index: Arc<Mutex<Index>>,
    changes: mpsc::Receiver<Change>,
    /// Ends the thread that compares, with the server.
    _running: mpsc::Sender<()>,
    /// What is served of each name.
    served: BTreeMap<String, Entry>,
    chunks: Chunks,
    shared: keys::SharedKeys,
}

/// What the thread that compares has found.
#[derive(Debug)]
enum Change {
    Changed(Box<Served>),
    Gone(String),
    /// All that was there at first is read.
    Settled,
}

impl Server {
    /// Reads all files, and calls `read` after each. Each is served from then on, while others are still read; queries for those are not
    /// answered before.
    ///
    /// # Errors
    /// [`Error::File`] for the root, and errors of the socket. A file that cannot be read is left out with a warning.
    pub fn open(options: ServeOptions, mut read: impl FnMut(&Entry)) -> Result<Self, Error> {
        let (mut server, mut compared, first, ended) = Self::begin(options)?;
        thread::Builder::new()
            .name("compare".into())
            .spawn(move || compared.run(first, &ended))
            .map_err(file_error("thread"))?;
        while !server.apply_changes(&mut read) {
            server.turn(Some(Instant::now() + COMPARED))?;
        }
        Ok(server)
    }

    /// A server that listens, what it is to read, and what tells that it has ended.
    fn begin(options: ServeOptions) -> Result<(Self, Compared, Unread, mpsc::Receiver<()>), Error> {
        check_keys(&options.neighbours)?;
        let packet_bytes = options.packet_bytes;
        let packet_bytes = packet_bytes.unwrap_or_else(|| full_packet_bytes(options.listen));
        let segment_bytes = NodeConfig::segment_in(packet_bytes.into());
        let mut node = keys::node(CACHE_BYTES, RateRule::default(), packet_bytes)?;
        let ids: Vec<NeighbourId> = (0..)
            .map(NeighbourId)
            .take(options.neighbours.len())
            .collect();
        for (id, key) in ids.iter().zip(options.neighbours) {
            node.add_neighbour(Instant::now(), *id, NeighbourConfig { key })?;
        }
        let mut driver = LeotpDriver::bind(options.listen, node)?;
        ids.into_iter().for_each(|id| driver.set_address(id, None));
        let (found, changes) = mpsc::channel();
        let mut compared = Compared::new(options.root, segment_bytes, found, driver.waker());
        let first = compared.begin()?;
        let index = Arc::clone(&compared.index);
        let catalogue = Box::new(Catalogue::new(Arc::clone(&index), &options.secret));
        let content = catalogue::content(&options.secret);
        driver.node().serve(content, &options.secret, catalogue);
        // Transfers that a former life of the server began go on when their files are read.
        driver.node().hold_refusals(true);
        let (running, ended) = mpsc::channel();
        let server = Self {
            driver,
            secret: options.secret,
            index,
            changes,
            _running: running,
            served: BTreeMap::new(),
            chunks: Chunks::default(),
            shared: keys::SharedKeys::default(),
        };
        Ok((server, compared, first, ended))
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.driver.local_addr()
    }

    /// Serves until the socket fails.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn run(&mut self) -> Result<std::convert::Infallible, Error> {
        loop {
            self.turn(None)?;
            self.apply_changes(&mut |_: &Entry| ());
        }
    }

    fn turn(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        self.driver.turn(deadline)?;
        while let Some(event) = self.driver.node().poll_event() {
            match event {
                Event::Met(id) => tracing::info!(neighbour = id.0, "a neighbour asks"),
                Event::Shared(id) => self.shared.warn(&id.0),
                _ => {}
            }
        }
        Ok(())
    }

    /// Calls `read` for each file that is served from now on. Returns whether the last of those that were there at first was among them, or the
    /// thread that reads them has ended.
    fn apply_changes(&mut self, read: &mut impl FnMut(&Entry)) -> bool {
        loop {
            match self.changes.try_recv() {
                Ok(Change::Changed(served)) => {
                    read(&served.entry);
                    self.serve(*served);
                }
                Ok(Change::Gone(name)) => self.withdraw(&name),
                Ok(Change::Settled) | Err(mpsc::TryRecvError::Disconnected) => {
                    self.driver.node().hold_refusals(false);
                    return true;
                }
                Err(mpsc::TryRecvError::Empty) => return false,
            }
        }
    }

    fn serve(&mut self, served: Served) {
        self.withdraw(&served.entry.name);
        self.give(&served);
        self.served.insert(served.entry.name.clone(), served.entry);
    }

    fn withdraw(&mut self, name: &str) {
        let Some(entry) = self.served.remove(name) else {
            return;
        };
        let index = self.index.lock();
        // Another file may have the same bytes.
        let same = index.same_as(&entry).cloned();
        drop(index);
        match same {
            Some(served) => self.give(&served),
            None => self.driver.node().withdraw(entry.content(&self.secret)),
        }
    }

    fn give(&mut self, served: &Served) {
        let chunks = self.chunks.clone();
        let source = FileSource::new(served.path.clone(), served.hashes.clone(), chunks);
        let content = served.entry.content(&self.secret);
        self.driver
            .node()
            .serve(content, &self.secret, Box::new(source));
    }
}

/// Each requester needs a key of its own.
fn check_keys(keys: &[NeighbourKey]) -> Result<(), Error> {
    for (second, key) in keys.iter().enumerate() {
        if let Some(first) = keys[..second]
            .iter()
            .position(|other| other.is_same_as(key))
        {
            return Err(Error::SameKeys(first + 1, second + 1));
        }
    }
    Ok(())
}

/// Compares a folder with what is served, in a thread of its own: files are read whole.
struct Compared {
    root: PathBuf,
    segment_bytes: usize,
    index: Arc<Mutex<Index>>,
    found: mpsc::Sender<Change>,
    waker: Waker,
    known: Known,
    /// What may still be written, as it was the last time.
    restless: BTreeMap<String, Stamp>,
    /// What could not be read the last time, and whether there was too much: each is told once.
    unread: BTreeSet<String>,
    has_surplus: bool,
}

/// What is to be read of a folder, the smallest first.
#[derive(Debug)]
struct Unread {
    files: VecDeque<(String, PathBuf, Stamp)>,
    /// What may still be written then waits; none is at first.
    now: Option<SystemTime>,
    /// What might have been written the last time.
    before: BTreeMap<String, Stamp>,
    /// What could not be read, and why.
    failed: BTreeMap<String, String>,
    surplus: usize,
}

impl Compared {
    fn new(root: PathBuf, segment_bytes: usize, found: mpsc::Sender<Change>, waker: Waker) -> Self {
        Self {
            root,
            segment_bytes,
            index: Arc::default(),
            found,
            waker,
            known: Known::default(),
            restless: BTreeMap::new(),
            unread: BTreeSet::new(),
            has_surplus: false,
        }
    }

    /// What is there at first, which is taken to be complete. Queries for it wait until it is read.
    fn begin(&mut self) -> Result<Unread, Error> {
        let listed = Listed::below(&self.root).map_err(file_error(&self.root))?;
        let first = self.compare(listed, None);
        let bytes: u64 = first.files.iter().map(|(.., stamp)| stamp.length()).sum();
        let files = first.files.len();
        tracing::info!(files, bytes, "are read, and each is served from then on");
        let mut index = self.index();
        first
            .files
            .iter()
            .for_each(|(name, ..)| index.note_unread(name));
        drop(index);
        Ok(first)
    }

    fn run(&mut self, first: Unread, ended: &mpsc::Receiver<()>) {
        self.read_all(first, &mut |_: &Entry| ());
        self.tell(Change::Settled);
        while ended.recv_timeout(COMPARED) == Err(mpsc::RecvTimeoutError::Timeout) {
            let mut read = |entry: &Entry| tracing::info!(name = entry.name, "read");
            if let Err(error) = self.once(Some(SystemTime::now()), &mut read) {
                tracing::warn!(%error, "the folder cannot be compared");
            }
        }
    }

    fn once(
        &mut self,
        now: Option<SystemTime>,
        read: &mut impl FnMut(&Entry),
    ) -> Result<(), Error> {
        let listed = Listed::below(&self.root).map_err(file_error(&self.root))?;
        let unread = self.compare(listed, now);
        self.read_all(unread, read);
        Ok(())
    }

    /// What is to be read. Without `now`, what is there is taken to be complete: so it is at first.
    fn compare(&mut self, mut listed: Listed, now: Option<SystemTime>) -> Unread {
        let failed = std::mem::take(&mut listed.unread);
        let found = self.known.compare(listed.files, &failed);
        // Reading takes long, and these are served meanwhile.
        for name in found.gone {
            self.forget(&name);
        }
        // The former bytes are not announced while the file has others.
        for (name, _, stamp) in &found.changed {
            let is_same = |known: &Stamp| stamp.may_have_the_bytes_of(known);
            if !self.known.get(name).is_some_and(is_same) {
                self.forget(name);
            }
        }
        Unread {
            files: found.changed.into(),
            now,
            before: std::mem::take(&mut self.restless),
            failed,
            surplus: listed.surplus,
        }
    }

    fn read_all(&mut self, mut unread: Unread, read: &mut impl FnMut(&Entry)) {
        while self.read_next(&mut unread, read) {}
        self.warn(unread.failed, unread.surplus);
    }

    /// Reads the next file; `false`: there is none, or the server has ended.
    fn read_next(&mut self, unread: &mut Unread, read: &mut impl FnMut(&Entry)) -> bool {
        let Some((name, path, stamp)) = unread.files.pop_front() else {
            return false;
        };
        let rests = |now| stamp.is_old(now, COMPARED) || unread.before.get(&name) == Some(&stamp);
        if !unread.now.is_none_or(rests) {
            self.restless.insert(name, stamp);
            return true;
        }
        let is_heard = match Served::read(name.clone(), path, stamp) {
            Ok(Some(served)) => self.found(served, stamp, read),
            // The next comparison finds what it is now.
            Ok(None) => self.forget(&name),
            Err(error) => {
                unread.failed.insert(name.clone(), error.to_string());
                self.forget(&name)
            }
        };
        if unread.now.is_none() {
            self.index().settle(&name);
        }
        is_heard
    }

    /// A file was read. Returns whether the server is there to serve it.
    fn found(&mut self, mut served: Served, stamp: Stamp, read: &mut impl FnMut(&Entry)) -> bool {
        served.entry = served.entry.in_segments(self.segment_bytes);
        let name = served.entry.name.clone();
        if self.index().has(&served) {
            self.known.insert(name, stamp);
            return true;
        }
        self.forget(&name);
        read(&served.entry);
        self.known.insert(name, stamp);
        // Who learns of it asks for its bytes next.
        let is_heard = self.tell(Change::Changed(Box::new(served.clone())));
        self.index().insert(served);
        is_heard
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }

    /// Forgets a file; returns as [`Compared::tell`].
    fn forget(&mut self, name: &str) -> bool {
        if !self.known.remove(name) {
            return true;
        }
        self.index().remove(name);
        self.tell(Change::Gone(name.to_owned()))
    }

    fn warn(&mut self, unread: BTreeMap<String, String>, surplus: usize) {
        for (name, why) in &unread {
            if !self.unread.contains(name) {
                tracing::warn!(name, why, "cannot be read and is not served");
            }
        }
        self.unread = unread.into_keys().collect();
        let had_surplus = std::mem::replace(&mut self.has_surplus, surplus > 0);
        if surplus > 0 && !had_surplus {
            tracing::warn!(others = surplus, "too many files: these are not served");
        }
    }

    /// Returns whether the server is there to hear it; without it this thread ends, too.
    fn tell(&self, change: Change) -> bool {
        let is_heard = self.found.send(change).is_ok();
        self.waker.wake();
        is_heard
    }
}

#[cfg(test)]
mod tests {
    use starhaul_net::Poller;

    use super::*;

    #[test]
    fn two_requesters_with_one_key_are_refused() {
        let keys = |secrets: &[u8]| {
            let keys = secrets
                .iter()
                .map(|secret| NeighbourKey::new(&[*secret; 32]));
            check_keys(&keys.collect::<Vec<_>>()).map_err(|error| error.to_string())
        };
        assert_eq!(keys(&[1, 2, 3]), Ok(()));
        let error = keys(&[1, 2, 3, 2]).unwrap_err();
        assert!(error.starts_with("keys 2 and 4 are the same"), "{error}");
    }

    /// What was being written was served as whole: `fetch` said so of a half.
    #[test]
    fn a_file_is_served_when_it_rests() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("first"), "whole").unwrap();
        let (found, changes) = mpsc::channel();
        let mut compared = Compared::new(
            folder.path().into(),
            NodeConfig::SEGMENT_BYTES,
            found,
            Poller::new().unwrap().waker(),
        );
        let mut names = Vec::new();
        let mut once = |compared: &mut Compared, now| {
            let read = &mut |entry: &Entry| names.push(entry.name.clone());
            compared.once(now, read).unwrap();
            std::mem::take(&mut names)
        };
        assert_eq!(once(&mut compared, None), ["first"], "at once");
        let now = Some(SystemTime::now());
        std::fs::write(path("second"), "one").unwrap();
        std::fs::write(path("first"), "another").unwrap();
        assert_eq!(once(&mut compared, now), [""; 0]);
        let is_served = |compared: &Compared, name: &str| {
            let index = compared.index();
            index.named(crate::entry::hash(name)).count() > 0
        };
        assert!(!is_served(&compared, "first"), "its former bytes are gone");
        std::fs::write(path("second"), "one, two").unwrap();
        assert_eq!(once(&mut compared, now), ["first"]);
        assert_eq!(once(&mut compared, now), ["second"]);
        assert!(is_served(&compared, "first") && is_served(&compared, "second"));
        // Whatever its clock says, what rests is served; and at once what has rested for long.
        let of_another = |name: &str, at: SystemTime| {
            std::fs::write(path(name), "x").unwrap();
            let file = std::fs::File::options().write(true).open(path(name));
            file.unwrap().set_modified(at).unwrap();
        };
        of_another("future", SystemTime::now() + COMPARED * 1000);
        of_another("old", SystemTime::now() - COMPARED * 1000);
        assert_eq!(once(&mut compared, now), ["old"]);
        assert_eq!(once(&mut compared, now), ["future"]);
        // What goes is told before others are read.
        std::fs::remove_file(path("second")).unwrap();
        of_another("new", SystemTime::now() - COMPARED * 1000);
        changes.try_iter().for_each(drop);
        assert_eq!(once(&mut compared, now), ["new"]);
        let told: Vec<Change> = changes.try_iter().collect();
        assert!(matches!(&told[..], [Change::Gone(name), Change::Changed(_)] if name == "second"));
        // Who may read a file does not change its bytes, which are served on.
        let mode = |mode: u32| std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path("new"), mode(0o640)).unwrap();
        assert_eq!(once(&mut compared, now), [""; 0]);
        assert!(is_served(&compared, "new") && changes.try_iter().next().is_none());
    }

    /// Nothing was answered until all files were read, however long that took.
    #[test]
    fn files_are_served_while_others_are_still_to_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("served");
        std::fs::create_dir(&root).unwrap();
        for (name, length) in [("small", 10), ("large", 100_000)] {
            std::fs::write(root.join(name), vec![7; length]).unwrap();
        }
        let (key, secret) = (NeighbourKey::new(&[1; 32]), ContentSecret::new(&[2; 32]));
        let options = ServeOptions {
            root,
            listen: "127.0.0.1:0".parse().unwrap(),
            packet_bytes: None,
            neighbours: vec![key.clone()],
            secret: secret.clone(),
        };
        let (mut server, mut compared, mut unread, _ended) = Server::begin(options).unwrap();
        let from = vec![server.local_addr()];
        // It ends with the process.
        thread::spawn(move || server.run());
        let fetch = |name: &str, patience: u64| {
            let fetching = crate::Fetching {
                name: name.into(),
                from: from.clone(),
                key: key.clone(),
                secret: secret.clone(),
                into: folder.path().into(),
                patience: Duration::from_secs(patience),
            };
            fetching.run(|_| {})
        };
        let mut read_next = || compared.read_next(&mut unread, &mut |_: &Entry| ());
        assert!(read_next(), "the smallest first");
        fetch("small", 60).unwrap();
        let why = fetch("large", 1).unwrap_err();
        assert!(matches!(why, Error::Stalled(_) | Error::Silent(_)), "{why}");
        let why = fetch("nothing", 60).unwrap_err();
        assert!(matches!(why, Error::Unknown(_)), "{why}");
        assert!(read_next());
        assert_eq!(fetch("large", 60).unwrap().entry.bytes, 100_000);
        assert!(!read_next());
    }
}
