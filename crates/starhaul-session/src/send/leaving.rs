//! Which paths leave all blocks that go first to others, for as long as nothing changes: a path that sends has all others asked anew, at the same
//! instant, and where these decline it is mostly for one reason.

use std::time::Instant;

use starhaul_paths::PathId;

use super::{
    BlocksOut, is_stranded,
    pick::{Place, asked_of},
};
use crate::scheduler::{Leaving, Scheduler, View};

/// What was found at an instant, of these blocks and of paths of this revision.
#[derive(Debug, Default)]
pub(super) struct Left {
    found: Option<(Instant, u64)>,
    /// No reason is known for one of the blocks.
    is_unknown: bool,
    /// All of them are left by the paths that cost more than this, where there is a price …
    dearer_than: Option<f64>,
    /// … and are not of these.
    targets: Vec<PathId>,
}

impl Left {
    /// A block changed, or others go first.
    pub(super) const fn forget(&mut self) {
        self.found = None;
    }

    fn is_of(&self, view: &View<'_>) -> bool {
        self.found == Some((view.now(), view.paths().revision()))
    }

    /// Whether the path that may send now leaves all of them.
    pub(super) fn is_by(&self, view: &View<'_>) -> bool {
        let Some(path) = view.this().filter(|_| self.is_of(view) && !self.is_unknown) else {
            return false;
        };
        let is_dearer = |least: f64| path.cost().total_cmp(&least).is_gt();
        self.dearer_than.is_none_or(is_dearer) && !self.targets.contains(&view.path())
    }

    fn add(&mut self, leaving: Leaving) {
        match leaving {
            Leaving::Dearer(cost) => {
                let most = self
                    .dearer_than
                    .filter(|most| most.total_cmp(&cost).is_gt());
                self.dearer_than = most.or(Some(cost));
            }
            Leaving::AllBut(path) if !self.targets.contains(&path) => self.targets.push(path),
            Leaving::AllBut(_) => {}
        }
    }
}

impl BlocksOut {
    /// Whether the path that may send now leaves all blocks that were weighed to others; false where that is not known.
    pub(super) fn leaves_all(&mut self, view: &View<'_>, scheduler: &dyn Scheduler) -> bool {
        if view.is_alone() {
            return false;
        }
        if !self.left.is_of(view) {
            self.find_left(view, scheduler);
        }
        self.left.is_by(view)
    }

    fn find_left(&mut self, view: &View<'_>, scheduler: &dyn Scheduler) {
        let mut left = std::mem::take(&mut self.left);
        left.targets.clear();
        left.dearer_than = None;
        left.found = Some((view.now(), view.paths().revision()));
        let (mut ahead, mut blocks) = (0, self.order.weighed_blocks());
        left.is_unknown = !blocks.all(|(key, unseen)| {
            let Some(block) = self.blocks.get(&key) else {
                return true;
            };
            let place = Place::new(ahead + unseen, self.order.overload(), block.priority);
            ahead += block.waiting_bytes() as u64;
            // Whoever may send what is lost, or sent twice, is asked for it. A block that no path carries is cut anew.
            if block.has_more_than_fresh() || is_stranded(block, view.paths()) {
                return false;
            }
            if !block.has_fresh() {
                return true;
            }
            let (load, limit) = asked_of(block, view, place);
            let leaving = scheduler.leaving(view, load, limit);
            leaving.map(|leaving| left.add(leaving)).is_some()
        });
        self.left = left;
    }
}
