//! The thread of the receiving ends.

use std::{sync::mpsc, thread};

use crate::Error;

type Work = Box<dyn FnOnce() + Send>;

/// One thread in which all receiving ends run, one after the other, as in a receiver that goes on: what a transfer has freed, the next one
/// has again. A new thread for each would get memory from the allocator that the process never had, and pay for that.
///
/// It ends when this is dropped.
pub(super) struct FarEnd(mpsc::Sender<Work>);

/// What a receiving end will have found.
pub(super) struct Found<T>(mpsc::Receiver<T>);

impl FarEnd {
    pub(super) fn start() -> Self {
        let (give, take) = mpsc::channel::<Work>();
        thread::spawn(move || take.into_iter().for_each(|work| work()));
        Self(give)
    }

    /// Begins what a receiving end does, behind those before it.
    ///
    /// # Errors
    /// [`Error::Bench`] if one of those has panicked.
    pub(super) fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Found<T>, Error> {
        let (tell, told) = mpsc::sync_channel(1);
        let work = Box::new(move || {
            // Nobody waits for it if the other end has failed.
            let _ = tell.send(work());
        });
        self.0.send(work).map_err(|_| panicked())?;
        Ok(Found(told))
    }
}

impl<T> Found<T> {
    /// Waits for it.
    ///
    /// # Errors
    /// [`Error::Bench`] if it has panicked.
    pub(super) fn end(self) -> Result<T, Error> {
        self.0.recv().map_err(|_| panicked())
    }
}

fn panicked() -> Error {
    Error::Bench("a thread panicked")
}
