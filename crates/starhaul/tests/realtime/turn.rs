//! Limits how many tests run at once: an emulated link keeps time only while processors are free.

use std::thread;

use parking_lot::{Condvar, Mutex};

/// Share of one processor that a test uses, in percent, as measured.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    /// Waits for most of its time.
    Light = 6,
    /// Carries some Mbit/s, or starts programs one after the other.
    Middle = 15,
    /// Carries tens of Mbit/s.
    Heavy = 35,
    /// Carries as much as it can.
    Full = 100,
}

/// Share of each processor for all tests together; the rest is for other processes.
const ALL: usize = 80;

static TAKEN: Mutex<usize> = Mutex::new(0);
static GIVEN_BACK: Condvar = Condvar::new();

/// A test's share of the processors, until dropped.
pub(crate) struct Turn(usize);

/// Waits until there is capacity for this load. A caller must not hold another turn.
pub(crate) fn turn(load: Load) -> Turn {
    let all = ALL * thread::available_parallelism().map_or(1, usize::from);
    let load = (load as usize).min(all);
    let mut taken = TAKEN.lock();
    while *taken + load > all {
        GIVEN_BACK.wait(&mut taken);
    }
    *taken += load;
    Turn(load)
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TAKEN.lock() -= self.0;
        GIVEN_BACK.notify_all();
    }
}
