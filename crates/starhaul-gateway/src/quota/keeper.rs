//! The counts of a running gateway: reads meters and clocks, and keeps the file.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use starhaul_endpoint::{Endpoint, PublicKey};

use super::{Book, Key, MAX_BYTES, Scheme, Usage};
use crate::state_folder::StateFolder;

/// The file in the state folder.
const FILE: &str = "quotas";
/// How long an end waits for the disk.
const LONGEST_CLOSE: Duration = Duration::from_secs(5);

/// The counts of all paths with a quota.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    running: Mutex<Running>,
    /// Where they are kept; without one they end with the gateway.
    folder: Option<Arc<StateFolder>>,
    /// One file at a time; set when the last one is written.
    closed: tokio::sync::Mutex<bool>,
}

#[derive(Debug, Default)]
struct Running {
    book: Book,
    /// One for each public key that the peer of this name has had in this life.
    meters: BTreeMap<Key, Vec<Meter>>,
    read_at: Option<Instant>,
}

/// What a path's meter showed last; it began at zero with the endpoint.
#[derive(Debug)]
struct Meter {
    peer: PublicKey,
    /// `None`: what it shows next is in the figure that an operator gave.
    read: Option<u64>,
}

/// The time of the calendar clock, in seconds since 1970.
pub(crate) fn calendar() -> i64 {
    let since = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(after) => since(after),
        Err(before) => -since(before.duration()),
    }
}

impl Quotas {
    /// Reads the counts of former lives.
    ///
    /// # Errors
    /// The file cannot be opened. One that cannot be trusted is set aside and told.
    pub(crate) fn open(folder: Option<Arc<StateFolder>>) -> std::io::Result<Self> {
        let file = match &folder {
            Some(folder) => folder.read(FILE, MAX_BYTES)?,
            None => None,
        };
        let (book, read) = Book::open(file.as_deref());
        if let (Err(error), Some(folder)) = (read, &folder) {
            let file = folder.file(FILE);
            let aside = folder.set_aside(FILE)?;
            tracing::error!(file = %file.display(), aside = %aside.display(), %error,
                "the counts of quotas cannot be read: give each with `starhaul path set NAME used=SIZE`");
        }
        Ok(Self {
            running: Mutex::new(Running {
                book,
                ..Running::default()
            }),
            folder,
            closed: tokio::sync::Mutex::default(),
        })
    }

    /// Counts a path from now on.
    pub(crate) fn follow(&self, key: &Key, peer: PublicKey, scheme: Scheme) {
        let mut running = self.running.lock();
        running.book.follow(key, scheme, calendar());
        let meters = running.meters.entry(key.clone()).or_default();
        // A reload may change the key of a peer and change it back: nothing is counted twice then.
        if meters.iter().all(|meter| meter.peer != peer) {
            meters.push(Meter {
                peer,
                read: Some(0),
            });
        }
    }

    pub(crate) fn usage(&self, key: &Key) -> Option<Usage> {
        self.running.lock().book.usage(key)
    }

    /// Tells the log of counts of this month that no configured path has.
    pub(crate) fn tell_unclaimed(&self, known: &BTreeSet<Key>) {
        let unclaimed = self.running.lock().book.unclaimed(known, calendar());
        for (key, used) in unclaimed {
            let Key { peer, path } = key;
            tracing::warn!(
                peer,
                path,
                used,
                "this month has a count of a path that is not configured: if it has another name now, give it by `starhaul path set NAME used={used}B`"
            );
        }
    }

    /// Sets the bytes of a path's month: all that it has carried so far is in them.
    pub(crate) fn set_used(&self, key: &Key, bytes: u64) {
        let mut running = self.running.lock();
        running.book.set_used(key, bytes);
        for meter in running.meters.get_mut(key).into_iter().flatten() {
            meter.read = None;
        }
    }

    /// Reads all meters and the clocks.
    pub(crate) fn read(&self, endpoint: &Endpoint) {
        self.read_meters(|peer, path| endpoint.wire_bytes(peer, path));
    }

    fn read_meters(&self, wire_bytes: impl Fn(PublicKey, &str) -> u64) {
        let now = Instant::now();
        let mut running = self.running.lock();
        let Running {
            book,
            meters,
            read_at,
        } = &mut *running;
        for (key, meters) in meters.iter_mut() {
            for meter in meters {
                let bytes = wire_bytes(meter.peer, &key.path);
                let before = meter.read.replace(bytes).unwrap_or(bytes);
                book.count(key, bytes.saturating_sub(before));
            }
        }
        if let Some(before) = read_at.replace(now) {
            let elapsed = now.saturating_duration_since(before);
            let was_well = book.trouble().is_none();
            book.observe(meters.keys(), elapsed, calendar());
            if let (true, Some(error)) = (was_well, book.trouble()) {
                tracing::error!(error, "counts of quotas cannot be stored, will try again");
            }
        }
    }

    /// Stores what is due, on a thread that may wait for the disk.
    pub(crate) fn store(self: &Arc<Self>) {
        let Some(folder) = self.folder.clone() else {
            return;
        };
        let Some(file) = self.running.lock().book.poll_store() else {
            return;
        };
        let quotas = self.clone();
        tokio::spawn(async move {
            let closed = quotas.closed.lock().await;
            if !*closed {
                quotas.stored(write(folder, file).await);
            }
        });
    }

    /// Stores the figures as they are: nothing is counted after. Waits a bounded time for the disk.
    pub(crate) async fn close(&self) {
        let stored = tokio::time::timeout(LONGEST_CLOSE, self.store_last()).await;
        if stored.is_err() {
            tracing::error!(
                "the last counts of quotas are not stored, the disk does not answer: what was stored before holds"
            );
        }
    }

    async fn store_last(&self) {
        let Some(folder) = self.folder.clone() else {
            return;
        };
        let mut closed = self.closed.lock().await;
        *closed = true;
        let file = {
            let mut running = self.running.lock();
            match running.meters.is_empty() {
                true => return,
                false => running.book.close(),
            }
        };
        self.stored(write(folder, file).await);
    }

    fn stored(&self, outcome: Result<(), String>) {
        let mut running = self.running.lock();
        let before = running.book.trouble().map(str::to_owned);
        match (&outcome, &before) {
            (Err(error), None) => {
                tracing::error!(error, "counts of quotas cannot be stored, will try again");
            }
            (Ok(()), Some(_)) => tracing::info!("counts of quotas are stored again"),
            _ => {}
        }
        running.book.stored(outcome);
    }
}

async fn write(folder: Arc<StateFolder>, file: Vec<u8>) -> Result<(), String> {
    let (done, written) = tokio::sync::oneshot::channel();
    // Not one of the runtime's threads: its end would wait for that, for as long as the disk does not answer.
    let thread = std::thread::Builder::new().name("quotas".to_owned());
    let begun = thread.spawn(move || {
        // If the receiver is gone, no task waits for the outcome.
        let outcome = folder.write(FILE, &file);
        // Who waits for it may open the folder again.
        drop(folder);
        let _ = done.send(outcome);
    });
    begun.map_err(|error| error.to_string())?;
    match written.await {
        Ok(written) => written.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key {
            peer: "far".to_owned(),
            path: "lte".to_owned(),
        }
    }

    fn used(quotas: &Quotas) -> u64 {
        quotas.usage(&key()).unwrap().used
    }

    #[test]
    fn a_peer_with_another_public_key_is_counted_on_and_no_byte_twice() {
        let (old, new) = (PublicKey([1; 32]), PublicKey([2; 32]));
        let quotas = Quotas::default();
        let read = |of_old: u64, of_new: u64| {
            quotas.read_meters(|peer, _| if peer == old { of_old } else { of_new });
            used(&quotas)
        };
        quotas.follow(&key(), old, Scheme::default());
        assert_eq!(read(100, 0), 100);
        quotas.follow(&key(), new, Scheme::default());
        assert_eq!(read(110, 30), 140, "what the old session still sent counts");
        quotas.follow(&key(), old, Scheme::default());
        assert_eq!(read(150, 30), 180);
    }

    #[test]
    fn a_figure_that_is_given_has_all_that_was_carried_before() {
        let quotas = Quotas::default();
        quotas.follow(&key(), PublicKey([1; 32]), Scheme::default());
        quotas.set_used(&key(), 1_000);
        quotas.read_meters(|_, _| 700);
        assert_eq!(used(&quotas), 1_000);
        quotas.read_meters(|_, _| 750);
        assert_eq!(used(&quotas), 1_050);
    }

    #[tokio::test]
    async fn what_a_renamed_path_has_used_is_unclaimed_until_the_month_ends() {
        let parent = tempfile::tempdir().unwrap();
        let open = || {
            let folder = StateFolder::open(parent.path()).unwrap();
            Quotas::open(Some(Arc::new(folder))).unwrap()
        };
        let quotas = open();
        let other = Key {
            path: "sat".to_owned(),
            ..key()
        };
        for path in [&key(), &other] {
            quotas.follow(path, PublicKey([1; 32]), Scheme::default());
        }
        quotas.set_used(&key(), 5_000);
        quotas.close().await;
        drop(quotas);
        let quotas = open();
        let book = &quotas.running.lock().book;
        let unclaimed = |known: &[Key], days: i64| {
            let known = known.iter().cloned().collect();
            book.unclaimed(&known, calendar() + days * 86_400)
        };
        assert_eq!(unclaimed(std::slice::from_ref(&other), 0), [(key(), 5_000)]);
        // One that has used nothing is nothing to be told of.
        assert_eq!(unclaimed(&[key()], 0), []);
        assert_eq!(unclaimed(&[other], 31), []);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_told_in_each_life_until_one_is_stored() {
        let parent = tempfile::tempdir().unwrap();
        std::fs::write(parent.path().join(FILE), "torn").unwrap();
        let open = || {
            let folder = StateFolder::open(parent.path()).unwrap();
            let quotas = Quotas::open(Some(Arc::new(folder))).unwrap();
            quotas.follow(&key(), PublicKey([1; 32]), Scheme::default());
            let is_unsure = quotas.usage(&key()).unwrap().unsure.is_some();
            (quotas, is_unsure)
        };
        // The first life ends before it has stored anything.
        assert!(open().1);
        let (quotas, is_unsure) = open();
        assert!(is_unsure);
        quotas.set_used(&key(), 5);
        quotas.close().await;
        drop(quotas);
        let (quotas, is_unsure) = open();
        assert!(!is_unsure);
        assert_eq!(used(&quotas), 5);
        let aside = parent.path().join("quotas.damaged");
        assert_eq!(std::fs::read(aside).unwrap(), b"torn");
    }
}
