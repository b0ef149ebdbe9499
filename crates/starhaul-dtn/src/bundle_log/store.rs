//! The log as the stores of the agent.

use std::{
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use hardy_bpa::{
    Bytes, async_trait,
    bundle::{Bundle, BundleMetadata, BundleStatus},
    storage::{BundleStorage, MetadataStorage, RecoveryResponse, Result},
    stream::Sender,
};
use hardy_bpv7::{bundle::Id, eid::Eid};
use parking_lot::Mutex;
use time::OffsetDateTime;

use super::{
    BundleLog, Key,
    prepared::{Prepared, key, name, number},
    queue::{Begun, Found, Waiting},
};
use crate::{
    names::Forgetful,
    steady::{self, REFUSED, SteadyBundles, check_room, in_a_minute, refuse, tell, until_done},
    unread,
};

/// Larger bundles get a file of their own.
const LARGE: usize = 1 << 20;
/// Bundles that a search reads at a time.
const READ_AT_A_TIME: usize = 64;
/// How long a new bundle waits for others to be written until it checks again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Waits until something is in the log. When the log ends before, the node does, too.
async fn written(waiting: Option<Waiting>) -> Result<()> {
    match waiting {
        Some(waiting) => Ok(waiting.await.map_err(|_| ENDED)??),
        None => Ok(()),
    }
}

const ENDED: &str = "the log of bundles has ended";

impl BundleLog {
    /// Bundles by their numbers; one that cannot be read is left out.
    async fn find(&self, numbers: &[u64]) -> Result<Vec<Bundle>> {
        let found = self.log.find(numbers);
        let all_young = |found: &Found| matches!(found, Found::Young(_));
        if found.iter().all(all_young) {
            return Ok(found.into_iter().filter_map(read).collect());
        }
        let reading = move || found.into_iter().filter_map(read).collect();
        Ok(tokio::task::spawn_blocking(reading).await?)
    }

    /// The bundle of this identity; `None` if there is none, or if it is damaged.
    async fn try_get(&self, key: &Key) -> Result<Option<Bundle>> {
        let found = {
            let number = self.log.state.lock().index.number(key);
            number.and_then(|number| self.log.find(&[number]).pop())
        };
        match found {
            None => Ok(None),
            Some(Found::Young(bundle)) => Ok(Some(*bundle)),
            Some(Found::Old(reading, status)) => {
                let reading = move || reading.bundle(&status);
                unless_damaged(tokio::task::spawn_blocking(reading).await?)
            }
        }
    }

    async fn send(&self, stream: &dyn Sender<Bundle>, numbers: &[u64]) -> Result<()> {
        for numbers in numbers.chunks(READ_AT_A_TIME) {
            for bundle in self.find(numbers).await? {
                if stream.send(bundle).await.is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Begins to take a bundle, when the log has room for it; `None` if it is not new.
    pub(super) async fn begin(&self, bundle: &Bundle) -> Result<Option<Waiting>> {
        let as_is = Prepared::new(bundle)?;
        let number = as_is.number()?;
        loop {
            match self.log.begin_insert(bundle, &as_is, number)? {
                Begun::Known => return Ok(None),
                Begun::New(waiting) => return Ok(Some(waiting)),
                // Whatever came of it.
                Begun::Again(waiting) => drop(waiting.await),
                Begun::Full => {
                    let _ = tokio::time::timeout(LOOK_AGAIN, self.log.written.notified()).await;
                }
            }
        }
    }
}

/// `None` for what would be read the same again. Other errors may pass.
fn unless_damaged<T>(read: io::Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            tracing::error!(%error, "a bundle is given up");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Logs what cannot be read.
fn read(found: Found) -> Option<Bundle> {
    match found {
        Found::Young(bundle) => Some(*bundle),
        Found::Old(reading, status) => {
            let bundle = reading.bundle(&status);
            let log = |error: &io::Error| {
                tracing::error!(%error, "what is known of a bundle cannot be read");
            };
            bundle.inspect_err(log).ok()
        }
    }
}

#[async_trait]
impl MetadataStorage for BundleLog {
    async fn get(&self, id: &Id) -> Result<Option<Bundle>> {
        let key = key(id)?;
        let finding = until_done("find a bundle", || self.try_get(&key));
        Ok(in_a_minute(id, finding).await)
    }

    async fn insert(&self, bundle: &Bundle) -> Result<bool> {
        let begun = self.begin(bundle).await?;
        let is_new = begun.is_some();
        written(begun).await?;
        Ok(is_new)
    }

    async fn replace(&self, bundle: &Bundle) -> Result<()> {
        written(self.log.renew(bundle)?).await
    }

    // What is lost of it in a crash is decided anew.
    async fn update_status(&self, bundle: &Bundle) -> Result<()> {
        let status = serde_json::to_string(&bundle.metadata.status)?;
        self.log.set_status(&key(&bundle.bundle.id)?, &status);
        Ok(())
    }

    async fn tombstone(&self, id: &Id) -> Result<()> {
        written(self.log.remove(id, key(id)?)).await
    }

    // What is known of a bundle and its data are in one record, and those that have files are compared by who counts them.
    async fn start_recovery(&self) {}

    // Of a bundle of which nothing is known, the agent would take the data for those of a copy, and remove them. The log has just
    // read its records, so that whatever fails now may pass.
    async fn confirm_exists(&self, id: &Id) -> Result<Option<BundleMetadata>> {
        let key = key(id)?;
        let found = until_done("find a bundle", || self.try_get(&key)).await;
        Ok(found.map(|bundle| bundle.metadata))
    }

    async fn remove_unconfirmed(&self, _: &dyn Sender<Bundle>) -> Result<()> {
        Ok(())
    }

    async fn reset_peer_queue(&self, peer: u32) -> Result<u64> {
        let is_meant = |status: &BundleStatus| matches!(status, BundleStatus::ForwardPending { peer: of, .. } if *of == peer);
        let to = serde_json::to_string(&BundleStatus::Waiting)?;
        Ok(self.log.reset(is_meant, &to))
    }

    async fn poll_expiry(&self, stream: &dyn Sender<Bundle>, limit: usize) -> Result<()> {
        let new = serde_json::to_string(&BundleStatus::New)?;
        let numbers: Vec<u64> = {
            let state = self.log.state.lock();
            let is_known = |number: &u64| {
                let entry = state.index.get(*number);
                entry.is_some_and(|entry| *entry.status != new)
            };
            state
                .index
                .by_expiry()
                .filter(is_known)
                .take(limit)
                .collect()
        };
        self.send(stream, &numbers).await
    }

    async fn poll_waiting(&self, stream: &dyn Sender<Bundle>) -> Result<()> {
        self.poll_pending(stream, &BundleStatus::Waiting, usize::MAX)
            .await
    }

    async fn poll_service_waiting(&self, source: Eid, stream: &dyn Sender<Bundle>) -> Result<()> {
        let status = BundleStatus::WaitingForService { service: source };
        self.poll_pending(stream, &status, usize::MAX).await
    }

    async fn poll_adu_fragments(
        &self,
        stream: &dyn Sender<Bundle>,
        status: &BundleStatus,
    ) -> Result<()> {
        self.poll_pending(stream, status, usize::MAX).await
    }

    async fn poll_pending(
        &self,
        stream: &dyn Sender<Bundle>,
        status: &BundleStatus,
        limit: usize,
    ) -> Result<()> {
        let status = serde_json::to_string(status)?;
        let numbers: Vec<u64> = {
            let state = self.log.state.lock();
            state.index.with_status(&status).take(limit).collect()
        };
        self.send(stream, &numbers).await
    }
}

#[async_trait]
impl Forgetful for BundleLog {
    async fn forget(&self, id: &Id) -> Result<()> {
        written(self.log.forget(id, key(id)?)).await
    }
}

/// The data of bundles: of small ones in the log, of large ones in files.
pub(crate) struct LoggedBundles {
    log: Arc<BundleLog>,
    files: Arc<SteadyBundles>,
    folder: PathBuf,
    room: Mutex<Option<Room>>,
}

/// Room that the disk had a moment ago: to ask for each bundle costs as much as to write it.
struct Room {
    since: Instant,
    bytes: u64,
}

/// How long it is taken to be there.
const ROOM_LASTS: Duration = Duration::from_millis(50);
/// What part of it is taken without asking again: other programs write, too.
const ROOM_SHARE: u64 = 8;

impl Room {
    /// Takes so much of it; whether there was as much.
    fn take(&mut self, bytes: u64) -> bool {
        let left = self.bytes.checked_sub(bytes);
        let left = left.filter(|_| self.since.elapsed() < ROOM_LASTS);
        self.bytes = left.unwrap_or(0);
        left.is_some()
    }
}

impl LoggedBundles {
    /// Data of which `log` knows the bundles, and those in `files`, all in this folder.
    pub(crate) fn new(
        log: Arc<BundleLog>,
        files: Arc<SteadyBundles>,
        folder: PathBuf,
    ) -> Arc<Self> {
        Arc::new(Self {
            log,
            files,
            folder,
            room: Mutex::default(),
        })
    }

    /// Data by their number; `None` if there are none, or if they are damaged.
    async fn try_load(&self, number: u64) -> Result<Option<Bytes>> {
        let reading = match self.log.log.data(number) {
            None => return Ok(None),
            Some(Ok(data)) => return Ok(Some(data)),
            Some(Err(reading)) => reading,
        };
        let read = tokio::task::spawn_blocking(move || reading.data()).await?;
        unless_damaged(read)
    }

    /// Whether there is room for new data; if not, what is useless is removed first.
    async fn check_room(&self, bytes: usize) -> Result<()> {
        if self
            .room
            .lock()
            .as_mut()
            .is_some_and(|room| room.take(bytes as u64))
        {
            return Ok(());
        }
        // What waits to be written needs room, too.
        let bytes = bytes + self.log.log.state.lock().queued_bytes;
        let room = check_room(&self.folder, bytes);
        *self.room.lock() = room.as_ref().ok().map(|beyond| Room {
            since: Instant::now(),
            bytes: beyond / ROOM_SHARE,
        });
        if room.is_ok() {
            return Ok(());
        }
        written(self.log.log.want_room()).await?;
        check_room(&self.folder, bytes).map(drop)
    }
}

#[async_trait]
impl BundleStorage for LoggedBundles {
    async fn recover(&self, stream: &dyn Sender<RecoveryResponse>) -> Result<()> {
        self.files.unread().begin_start();
        // Before the agent gets anything.
        let (files, now) = (self.files.find().await, OffsetDateTime::now_utc());
        let numbers = self.log.log.state.lock().index.with_data();
        let in_log = numbers.into_iter().map(|number| (name(number).into(), now));
        tell(stream, in_log.collect()).await;
        tell(stream, files).await;
        Ok(())
    }

    async fn load(&self, name: &str) -> Result<Option<Bytes>> {
        let Some(number) = number(name) else {
            return self.files.load(name).await;
        };
        let unread = self.files.unread();
        Ok(unread.read(name, || self.try_load(number)).await)
    }

    async fn save(&self, data: Bytes) -> Result<Arc<str>> {
        steady::saved();
        if unread::is_noted() {
            // A report that the bundle is lost, which it is not.
            return Ok(REFUSED.into());
        }
        let room = self.check_room(data.len()).await;
        if data.len() > LARGE {
            return self.files.save(data).await;
        }
        match room {
            Err(error) if refuse(&error) => Ok(REFUSED.into()),
            _ => Ok(name(self.log.log.save(data)).into()),
        }
    }

    async fn replace(&self, name: &str, data: Bytes) -> Result<()> {
        match number(name) {
            Some(number) => written(self.log.log.replace(number, data)).await,
            None => self.files.replace(name, data).await,
        }
    }

    async fn delete(&self, name: &str) -> Result<()> {
        match number(name) {
            Some(_) if unread::is_noted() => Ok(()),
            Some(number) => {
                self.files.unread().forget(name);
                self.log.log.discard(number);
                Ok(())
            }
            None => self.files.delete(name).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_taken_once_and_not_for_long() {
        let mut room = Room {
            since: Instant::now(),
            bytes: 100,
        };
        assert!(room.take(60) && room.take(40));
        assert!(!room.take(1));
        room.bytes = 100;
        // Nothing is left of what was too little: the disk is asked.
        assert!(!room.take(101) && !room.take(1));
        let Some(since) = Instant::now().checked_sub(2 * ROOM_LASTS) else {
            return;
        };
        let mut room = Room { since, bytes: 100 };
        assert!(!room.take(1));
    }
}
