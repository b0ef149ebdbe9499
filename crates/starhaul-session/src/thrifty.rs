//! A scheduler within a budget: another one chooses the paths, and sees those with a price only where they may be paid for.
//!
//! Of what is saved, less important blocks leave a part for more important ones, and bytes of streams, which have no deadline, leave one for all
//! blocks but for the share that is always theirs: so what is spent on them is never missing when a more important block comes. In the long run they may spend whatever those do not.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use starhaul_paths::PathId;

use crate::scheduler::{
    Class, Coding, Frame, Limit, Load, Offer, Scheduler, SchedulerStatus, Thrift, View,
};

/// Blocks of a priority that were offered this long ago may come again.
const LATELY: Duration = Duration::from_secs(2);

/// Asks another scheduler about the paths that may be paid for.
#[derive(Debug)]
pub(crate) struct Thrifty {
    inner: Box<dyn Scheduler>,
    /// Priorities of the blocks that were offered lately, and when last.
    offered: BTreeMap<u8, Instant>,
}

impl Thrifty {
    pub(crate) const fn new(inner: Box<dyn Scheduler>) -> Self {
        Self {
            inner,
            offered: BTreeMap::new(),
        }
    }

    /// The part of what is saved that blocks of this priority leave to more important ones.
    fn kept_from(&self, priority: u8) -> f64 {
        self.part(self.offered.range(..priority).count())
    }

    fn part(&self, more_important: usize) -> f64 {
        more_important as f64 / (self.offered.len().max(1) + 1) as f64
    }

    /// What the other scheduler sees for what may spend all but this part; `None` if it cannot leave on the path that asks, whatever that one says.
    /// Which paths it sees does not depend on the one that asks, so that they never leave it to each other.
    fn within<'a>(&self, view: &View<'a>, kept: f64) -> Option<View<'a>> {
        let (now, paths) = (view.now(), view.paths());
        // What nothing is kept from waits for what is earned next, as predictions have it.
        let is_kept = kept > 0.0 && paths.budget_left(now).is_some_and(|left| left <= kept);
        let view = match is_kept {
            true => view.of_free_paths(),
            false => *view,
        };
        (view.this().is_some() && paths.may_pay(now, view.path())).then_some(view)
    }

    fn for_block<'a>(&self, view: &View<'a>, limit: Limit) -> Option<View<'a>> {
        self.within(view, self.kept_from(limit.class.priority))
    }
}

impl Scheduler for Thrifty {
    fn takes_data(&self, view: &View<'_>, load: Load, limit: Limit) -> bool {
        self.for_block(view, limit)
            .is_some_and(|view| self.inner.takes_data(&view, load, limit))
    }

    fn takes_retransmission(
        &self,
        view: &View<'_>,
        lost_on: Option<PathId>,
        bytes: u64,
        limit: Limit,
    ) -> bool {
        self.for_block(view, limit).is_some_and(|view| {
            self.inner
                .takes_retransmission(&view, lost_on, bytes, limit)
        })
    }

    fn affordable<'a>(&self, view: &View<'a>, limit: Limit) -> Option<View<'a>> {
        self.for_block(view, limit)
    }

    fn takes_redundancy(
        &self,
        view: &View<'_>,
        main: Option<PathId>,
        bytes: u64,
        limit: Limit,
    ) -> bool {
        self.for_block(view, limit)
            .is_some_and(|view| self.inner.takes_redundancy(&view, main, bytes, limit))
    }

    fn takes_copy(&self, view: &View<'_>, first: Option<PathId>, bytes: u64, limit: Limit) -> bool {
        self.for_block(view, limit)
            .is_some_and(|view| self.inner.takes_copy(&view, first, bytes, limit))
    }

    fn takes_frame(&self, view: &View<'_>, frame: Frame) -> bool {
        // Everything waits for control messages: they leave, and are paid for afterwards.
        if frame.thrift == Thrift::None {
            return self.inner.takes_frame(view, frame);
        }
        // A connection that starves would be closed by its ends, however much blocks ask for.
        let kept = match frame.is_due {
            true => 0.0,
            false => self.part(self.offered.len()),
        };
        self.within(view, kept)
            .is_some_and(|view| self.inner.takes_frame(&view, frame))
    }

    fn takes_whole(&self, view: &View<'_>, load: Load, limit: Limit) -> bool {
        self.for_block(view, limit)
            .is_some_and(|view| self.inner.takes_whole(&view, load, limit))
    }

    fn coding(&mut self, class: Class, path: PathId) -> Option<Coding> {
        self.inner.coding(class, path)
    }

    fn on_offered(&mut self, now: Instant, offer: Offer) {
        self.offered.insert(offer.class.priority, now);
        self.inner.on_offered(now, offer);
    }

    fn on_data_sent(&mut self, class: Class, path: PathId, bytes: u64) {
        self.inner.on_data_sent(class, path, bytes);
    }

    fn refresh(&mut self, view: &View<'_>) {
        let now = view.now();
        self.offered
            .retain(|_, at| now.saturating_duration_since(*at) <= LATELY);
        self.inner.refresh(view);
    }

    fn status(&self) -> SchedulerStatus {
        self.inner.status()
    }
}
