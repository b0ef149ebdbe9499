//! Serving the files of a folder, and what becomes of them while they are served.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, SystemTime},
};

use starhaul_leotp::{
    ContentSecret, Event, NeighbourConfig, NeighbourId, NeighbourKey, NodeConfig,
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

/// What to serve, and to whom.
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
}

impl Server {
    /// Reads all files, and calls `read` after each.
    ///
    /// # Errors
    /// [`Error::File`] for the root, and errors of the socket. A file that cannot be read is left out with a warning.
    pub fn open(options: ServeOptions, mut read: impl FnMut(&Entry)) -> Result<Self, Error> {
        check_keys(&options.neighbours)?;
        let packet_bytes = options.packet_bytes;
        let packet_bytes = packet_bytes.unwrap_or_else(|| full_packet_bytes(options.listen));
        let segment_bytes = NodeConfig::segment_in(packet_bytes.into());
        let mut node = keys::node(CACHE_BYTES, packet_bytes)?;
        let ids: Vec<NeighbourId> = (0..)
            .map(NeighbourId)
            .take(options.neighbours.len())
            .collect();
        for (id, key) in ids.iter().zip(options.neighbours) {
            node.add_neighbour(std::time::Instant::now(), *id, NeighbourConfig { key })?;
        }
        let mut driver = LeotpDriver::bind(options.listen, node)?;
        ids.into_iter().for_each(|id| driver.set_address(id, None));
        let (found, changes) = mpsc::channel();
        let mut compared = Compared::new(options.root, segment_bytes, found, driver.waker());
        let index = Arc::clone(&compared.index);
        let catalogue = Box::new(Catalogue::new(Arc::clone(&index), &options.secret));
        let content = catalogue::content(&options.secret);
        driver.node().serve(content, &options.secret, catalogue);
        let (running, ended) = mpsc::channel();
        compared.once(None, &mut read)?;
        thread::Builder::new()
            .name("compare".into())
            .spawn(move || compared.run(&ended))
            .map_err(file_error("thread"))?;
        let mut server = Self {
            driver,
            secret: options.secret,
            index,
            changes,
            _running: running,
            served: BTreeMap::new(),
            chunks: Chunks::default(),
            shared: keys::SharedKeys::default(),
        };
        server.apply_changes();
        Ok(server)
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
            self.driver.turn(None)?;
            self.apply_changes();
            while let Some(event) = self.driver.node().poll_event() {
                match event {
                    Event::Met(id) => tracing::info!(neighbour = id.0, "a neighbour asks"),
                    Event::Shared(id) => self.shared.warn(&id.0),
                    _ => {}
                }
            }
        }
    }

    fn apply_changes(&mut self) {
        while let Ok(change) = self.changes.try_recv() {
            match change {
                Change::Changed(served) => self.serve(*served),
                Change::Gone(name) => self.withdraw(&name),
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
        let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn run(&mut self, ended: &mpsc::Receiver<()>) {
        while ended.recv_timeout(COMPARED) == Err(mpsc::RecvTimeoutError::Timeout) {
            let mut read = |entry: &Entry| tracing::info!(name = entry.name, "read");
            if let Err(error) = self.once(Some(SystemTime::now()), &mut read) {
                tracing::warn!(%error, "the folder cannot be compared");
            }
        }
    }

    /// Without `now`, what is there is taken to be complete: so it is at first.
    fn once(
        &mut self,
        now: Option<SystemTime>,
        read: &mut impl FnMut(&Entry),
    ) -> Result<(), Error> {
        let mut listed = Listed::below(&self.root).map_err(file_error(&self.root))?;
        let mut unread = std::mem::take(&mut listed.unread);
        let found = self.known.compare(listed.files, &unread);
        // Reading takes long, and these are served meanwhile.
        for name in found.gone {
            self.forget(&name);
        }
        // Nobody learns of the former bytes while there are others.
        for (name, _, stamp) in &found.changed {
            let is_same = |known: &Stamp| stamp.may_have_the_bytes_of(known);
            if !self.known.get(name).is_some_and(is_same) {
                self.forget(name);
            }
        }
        if now.is_none() {
            let bytes: u64 = found.changed.iter().map(|(.., stamp)| stamp.length()).sum();
            let files = found.changed.len();
            tracing::info!(files, bytes, "all are read before the first is served");
        }
        let before = std::mem::take(&mut self.restless);
        for (name, path, stamp) in found.changed {
            let rests = |now| stamp.is_old(now, COMPARED) || before.get(&name) == Some(&stamp);
            if !now.is_none_or(rests) {
                self.restless.insert(name, stamp);
                continue;
            }
            match Served::read(name.clone(), path, stamp) {
                Ok(Some(mut served)) => {
                    served.entry = served.entry.in_segments(self.segment_bytes);
                    let is_known = self.index().has(&served);
                    if is_known {
                        self.known.insert(name, stamp);
                        continue;
                    }
                    self.forget(&name);
                    read(&served.entry);
                    self.known.insert(name, stamp);
                    self.index().insert(served.clone());
                    self.tell(Change::Changed(Box::new(served)));
                }
                // The next comparison finds what it is now.
                Ok(None) => self.forget(&name),
                Err(error) => {
                    self.forget(&name);
                    unread.insert(name, error.to_string());
                }
            }
        }
        self.warn(unread, listed.surplus);
        Ok(())
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&mut self, name: &str) {
        if self.known.remove(name) {
            self.index().remove(name);
            self.tell(Change::Gone(name.to_owned()));
        }
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

    fn tell(&self, change: Change) {
        // The server is gone when this fails, and so is this thread soon.
        let _ = self.found.send(change);
        self.waker.wake();
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
}
