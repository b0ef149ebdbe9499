//! A rate set from outside, for the dedicated controller.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use starhaul_units::Bandwidth;

/// A rate that another thread may change while controllers read it. Clones share the value, and
/// only clones are equal.
#[derive(Clone, Debug)]
pub struct RateFeed(Arc<AtomicU64>);

impl PartialEq for RateFeed {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for RateFeed {}

impl RateFeed {
    /// Creates a feed at `rate`.
    pub fn new(rate: Bandwidth) -> Self {
        Self(Arc::new(AtomicU64::new(rate.bits_per_second())))
    }
    /// Sets the rate for all controllers that share this feed.
    pub fn set(&self, rate: Bandwidth) {
        self.0.store(rate.bits_per_second(), Ordering::Relaxed);
    }
    /// The present rate.
    pub fn rate(&self) -> Bandwidth {
        Bandwidth::from_bits_per_second(self.0.load(Ordering::Relaxed))
    }
}
