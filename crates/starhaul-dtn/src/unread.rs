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
/// How long a task is remembered, which ends with the bundle.
const KEPT: Duration = Duration::from_secs(3600);

/// Tasks that could not read the data of a bundle, of all nodes of the process: no two tasks have the same name.
static TASKS: LazyLock<Mutex<HashMap<task::Id, Instant>>> = LazyLock::new(Mutex::default);
/// How many these are: every removal asks.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// A disk that is away fails for bundle after bundle.
static LOG: LazyLock<Seldom> = LazyLock::new(Seldom::default);

/// Whether the task that runs could not read the data of its bundle, and takes them for lost.
pub(crate) fn is_noted() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
        && task::try_id().is_some_and(|id| TASKS.lock().contains_key(&id))
}

fn note(id: task::Id) {
    let (mut tasks, now) = (TASKS.lock(), Instant::now());
    tasks.retain(|_, noted| now.saturating_duration_since(*noted) < KEPT);
    tasks.insert(id, now);
    COUNT.store(tasks.len(), Ordering::Relaxed);
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
