//! Threads that read until they are told to end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use crate::Error;

/// A thread; it is told to end, and waited for, when this is dropped.
pub(super) struct Task {
    over: Over,
    thread: Option<JoinHandle<()>>,
}

/// Whether a thread must end.
#[derive(Clone, Debug, Default)]
pub(super) struct Over(Arc<AtomicBool>);

impl Over {
    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Task {
    /// Starts a thread with real-time priority where this user may give it. It must look at its [`Over`] some times a second, or
    /// end by itself soon.
    pub(super) fn start(
        name: &str,
        work: impl FnOnce(&Over) + Send + 'static,
    ) -> Result<Self, Error> {
        let over = Over::default();
        let told = over.clone();
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || {
            let _ = starhaul_net::run_first();
            work(&told);
        });
        Ok(Self {
            over,
            thread: Some(thread.map_err(Error::io("cannot start a thread"))?),
        })
    }
}

impl Task {
    /// Whether it has ended by itself.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.over.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in it has been printed already.
            let _ = thread.join();
        }
    }
}
