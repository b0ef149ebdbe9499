//! Serving the files of a folder, and what becomes of them while they are served.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use starhaul_leotp::{ContentSecret, Event, NeighbourConfig, NeighbourId, NeighbourKey};
use starhaul_net::{Waker, leotp::LeotpDriver};

use crate::{
    Entry, Error,
    catalogue::{self, Catalogue},
    file_error,
    index::{Index, Listed, Served},
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
        let mut node = keys::node(CACHE_BYTES)?;
        let ids: Vec<NeighbourId> = (0..)
            .map(NeighbourId)
            .take(options.neighbours.len())
            .collect();
        for (id, key) in ids.iter().zip(options.neighbours) {
            node.add_neighbour(std::time::Instant::now(), *id, NeighbourConfig { key })?;
        }
        let mut driver = LeotpDriver::bind(options.listen, node)?;
        ids.into_iter().for_each(|id| driver.set_address(id, None));
        let index = Arc::new(Mutex::new(Index::default()));
        let catalogue = Box::new(Catalogue::new(Arc::clone(&index), &options.secret));
        let content = catalogue::content(&options.secret);
        driver.node().serve(content, &options.secret, catalogue);
        let (found, changes) = mpsc::channel();
        let (running, ended) = mpsc::channel();
        let mut compared = Compared {
            root: options.root,
            index: Arc::clone(&index),
            found,
            waker: driver.waker(),
            unread: BTreeSet::new(),
        };
        compared.once(&mut read)?;
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
                if let Event::Met(id) = event {
                    tracing::info!(neighbour = id.0, "a neighbour asks");
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

/// Compares a folder with what is served, in a thread of its own: files are read whole.
struct Compared {
    root: PathBuf,
    index: Arc<Mutex<Index>>,
    found: mpsc::Sender<Change>,
    waker: Waker,
    /// What could not be read the last time: each is told once.
    unread: BTreeSet<String>,
}

impl Compared {
    fn run(&mut self, ended: &mpsc::Receiver<()>) {
        while ended.recv_timeout(COMPARED) == Err(mpsc::RecvTimeoutError::Timeout) {
            if let Err(error) = self.once(&mut |entry| tracing::info!(name = entry.name, "read")) {
                tracing::warn!(%error, "the folder cannot be compared");
            }
        }
    }

    fn once(&mut self, read: &mut impl FnMut(&Entry)) -> Result<(), Error> {
        let index = Arc::clone(&self.index);
        let lock = || index.lock().unwrap_or_else(PoisonError::into_inner);
        let mut listed = Listed::below(&self.root).map_err(file_error(&self.root))?;
        let mut unread = std::mem::take(&mut listed.unread);
        let found = lock().compare(listed.files, &unread);
        for (name, path, stamp) in found.changed {
            // Nobody learns of the former bytes while the new ones are read.
            lock().remove(&name);
            match Served::read(name.clone(), path, stamp) {
                Ok(served) => {
                    read(&served.entry);
                    lock().insert(served.clone());
                    self.tell(Change::Changed(Box::new(served)));
                }
                Err(error) => {
                    self.tell(Change::Gone(name.clone()));
                    unread.insert(name, error.to_string());
                }
            }
        }
        for name in found.gone {
            lock().remove(&name);
            self.tell(Change::Gone(name));
        }
        for (name, why) in &unread {
            if !self.unread.contains(name) {
                tracing::warn!(name, why, "cannot be read and is not served");
            }
        }
        self.unread = unread.into_keys().collect();
        Ok(())
    }

    fn tell(&self, change: Change) {
        // The server is gone when this fails, and so is this thread soon.
        let _ = self.found.send(change);
        self.waker.wake();
    }
}
