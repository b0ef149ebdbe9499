//! Data of bundles that are there and cannot be read now.
//!
//! The agent takes data that it cannot load for lost: in the same task it makes a report, and removes the bundle. But an error of a disk
//! may pass. So the task is noted here, and the stores keep what it removes: the bundle is left alone for a while, and tried again until
//! it can be read or its lifetime ends.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use hardy_bpa::storage::Result;
use parking_lot::Mutex;
use starhaul_log::Seldom;
use tokio::task;

/// How long data may fail to be read while a task of the agent waits for them.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long a bundle is left alone then.
pub(crate) const REST: Duration = Duration::from_secs(60);
/// How long a store that failed is left alone.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How long a task is remembered that has not removed its bundle, or puts one together of parts.
const KEPT: Duration = Duration::from_secs(3600);
/// Tasks that are remembered without a check which of them are too old.
const FEW: usize = 64;

/// Tasks that could not read the data of a bundle, of all nodes of the process: no two tasks have the same name.
static TASKS: LazyLock<Mutex<Tasks>> = LazyLock::new(Mutex::default);
/// How many these are: every removal asks.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// A disk that is away fails for bundle after bundle.
static LOG: LazyLock<Seldom> = LazyLock::new(Seldom::default);

/// Whether the task that runs could not read the data of its bundle, and takes them for lost.
pub(crate) fn is_noted() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
        && task::try_id().is_some_and(|id| TASKS.lock().noted.contains_key(&id))
}

/// Forgets the task that runs: it has taken its bundle for lost, and does no more. A disk that is away would fill the memory with such
/// tasks, one for each bundle each minute.
pub(crate) fn end() {
    if let Some(id) = task::try_id() {
        let mut tasks = TASKS.lock();
        tasks.noted.remove(&id);
        COUNT.store(tasks.noted.len(), Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Tasks {
    noted: HashMap<task::Id, Instant>,
    /// How many there are when those that are too old are looked for, which costs a search of all.
    many: usize,
}

impl Tasks {
    fn note(&mut self, id: task::Id, now: Instant) {
        if self.noted.len() >= self.many.max(FEW) {
            self.noted
                .retain(|_, noted| now.saturating_duration_since(*noted) < KEPT);
            self.many = 2 * self.noted.len();
        }
        self.noted.insert(id, now);
    }
}

fn note(id: task::Id) {
    let mut tasks = TASKS.lock();
    tasks.note(id, Instant::now());
    COUNT.store(tasks.noted.len(), Ordering::Relaxed);
}

/// What cannot be read of a store.
#[derive(Debug)]
pub(crate) struct Unread {
    patience: Duration,
    /// The names of such data.
    names: Mutex<HashSet<Arc<str>>>,
    /// Whether what was tried last could not be read: then nothing else is waited for.
    is_away: AtomicBool,
    /// The task that looks at all data at a start. It goes on with the next, and removes nothing.
    starting: Mutex<Option<task::Id>>,
}

impl Unread {
    /// Data that fail for `patience` are put aside.
    pub(crate) fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            patience,
            names: Mutex::default(),
            is_away: AtomicBool::new(false),
            starting: Mutex::default(),
        })
    }

    /// Notes that the task that runs looks at all data of former lives.
    pub(crate) fn begin_start(&self) {
        *self.starting.lock() = task::try_id();
    }

    /// Whether data could not be read when they were tried last.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.names.lock().contains(name)
    }

    /// Notes that data go, or have gone.
    pub(crate) fn forget(&self, name: &str) {
        self.names.lock().remove(name);
    }

    /// Reads data, again and again for a while; `None` if they are not there, or are put aside.
    pub(crate) async fn read<T, F: Future<Output = Result<Option<T>>>>(
        &self,
        name: &str,
        mut attempt: impl FnMut() -> F,
    ) -> Option<T> {
        let began = tokio::time::Instant::now();
        let patience = match self.is_away.load(Ordering::Relaxed) || self.contains(name) {
            true => Duration::ZERO,
            false => self.patience,
        };
        let mut is_told = false;
        loop {
            // One bad sector may keep the system busy for long.
            let error = match tokio::time::timeout(self.patience, attempt()).await {
                Ok(Ok(read)) => {
                    self.is_away.store(false, Ordering::Relaxed);
                    self.names.lock().remove(name);
                    return read;
                }
                Ok(Err(error)) => error,
                Err(error) => error.into(),
            };
            if began.elapsed() >= patience {
                self.put_aside(name, &error);
                return None;
            }
            if !std::mem::replace(&mut is_told, true) {
                tracing::error!(what = "load a bundle", %error, "the store fails; it is tried again until it works");
            }
            tokio::time::sleep(TRY_AGAIN.min(self.patience)).await;
        }
    }

    fn put_aside(&self, name: &str, error: &hardy_bpa::storage::Error) {
        self.is_away.store(true, Ordering::Relaxed);
        self.names.lock().insert(name.into());
        if let Some(others) = LOG.is_due(Instant::now()) {
            tracing::error!(
                %name,
                %error,
                others,
                "a bundle cannot be read: it stays, and is tried again until it expires"
            );
        }
        let (id, starting) = (task::try_id(), *self.starting.lock());
        if let Some(id) = id.filter(|id| Some(*id) != starting) {
            note(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use hardy_bpa::storage::Error;

    use super::*;

    /// A disk is away for days, and each bundle is tried again each minute.
    #[tokio::test]
    async fn tasks_that_ended_take_no_memory() {
        let (mut tasks, begin) = (Tasks::default(), Instant::now());
        for minute in 0..2000 {
            let id = tokio::spawn(async { task::try_id() }).await.unwrap();
            let now = begin + Duration::from_secs(60 * minute);
            tasks.note(id.unwrap(), now);
            // Those of the last hour, and as many that are older.
            assert!(tasks.noted.len() <= 128, "{minute}");
        }
    }

    #[tokio::test]
    async fn a_task_that_has_taken_its_bundle_for_lost_is_forgotten() {
        let task = tokio::spawn(async {
            note(task::try_id().unwrap());
            let noted = is_noted();
            end();
            (noted, is_noted())
        });
        assert_eq!(task.await.unwrap(), (true, false));
    }

    #[tokio::test]
    async fn data_that_go_are_not_remembered_as_unread() {
        let unread = Unread::new(Duration::ZERO);
        let fails = || async { Err::<Option<u8>, Error>("no disk".into()) };
        assert_eq!(unread.read("name", fails).await, None);
        assert!(unread.contains("name"));
        unread.forget("name");
        assert!(!unread.contains("name"));
    }
}
