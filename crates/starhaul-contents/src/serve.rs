//! Serving the files of a folder, and what becomes of them while they are served.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
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
    index::{Index, Served},
    keys,
    source::FileSource,
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
        let catalogue = Box::new(Catalogue(Arc::clone(&index)));
        let content = catalogue::content(&options.secret);
        driver.node().serve(content, &options.secret, catalogue);
        let (found, changes) = mpsc::channel();
        let (running, ended) = mpsc::channel();
        let compared = Compared {
            root: options.root,
            index: Arc::clone(&index),
            found,
            waker: driver.waker(),
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
        match FileSource::open(&served.path, served.hashes) {
            Ok(source) => {
                let content = served.entry.content(&self.secret);
                self.driver
                    .node()
                    .serve(content, &self.secret, Box::new(source));
                self.served.insert(served.entry.name.clone(), served.entry);
            }
            Err(error) => tracing::warn!(file = %served.path.display(), %error, "cannot be served"),
        }
    }

    fn withdraw(&mut self, name: &str) {
        let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        // Another file may have the same bytes.
        if let Some(entry) = self.served.remove(name).filter(|entry| !index.has(entry)) {
            self.driver.node().withdraw(entry.content(&self.secret));
        }
    }
}

/// Compares a folder with what is served, in a thread of its own: files are read whole.
struct Compared {
    root: PathBuf,
    index: Arc<Mutex<Index>>,
    found: mpsc::Sender<Change>,
    waker: Waker,
}

impl Compared {
    fn run(&self, ended: &mpsc::Receiver<()>) {
        while ended.recv_timeout(COMPARED) == Err(mpsc::RecvTimeoutError::Timeout) {
            if let Err(error) = self.once(&mut |entry| tracing::info!(name = entry.name, "read")) {
                tracing::warn!(%error, "the folder cannot be compared");
            }
        }
    }

    fn once(&self, read: &mut impl FnMut(&Entry)) -> Result<(), Error> {
        let lock = || self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let found = lock().compare(&self.root).map_err(file_error(&self.root))?;
        for (name, path, stamp) in found.changed {
            // Nobody learns of the former bytes while the new ones are read.
            lock().remove(&name);
            match Served::read(name, path.clone(), stamp) {
                Ok(served) => {
                    read(&served.entry);
                    lock().insert(served.clone());
                    self.tell(Change::Changed(Box::new(served)));
                }
                Err(error) => warn(&path, &error),
            }
        }
        for name in found.gone {
            lock().remove(&name);
            self.tell(Change::Gone(name));
        }
        Ok(())
    }

    fn tell(&self, change: Change) {
        // The server is gone when this fails, and so is this thread soon.
        let _ = self.found.send(change);
        self.waker.wake();
    }
}

fn warn(path: &Path, error: &std::io::Error) {
    tracing::warn!(file = %path.display(), %error, "cannot be read and is not served");
}
