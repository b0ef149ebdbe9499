//! The multipath scheduler by a plan: the optimizer of DMTP §V divides the blocks of each class over the paths (docs/deadlines.md
//! "Choice of path"). Rules do what the plan does not cover, and whatever its paths could not do in time.

mod figures;
mod offered;
mod plan;

use std::time::{Duration, Instant};

use starhaul_paths::PathId;

use self::{figures::Figures, offered::Offered, plan::Planned};
use crate::{
    rules::{Rules, is_last_on, is_spared, leaves_to_another},
    scheduler::{
        Class, Coding, Frame, Leaving, Limit, Load, Offer, Scheduler, SchedulerStatus, View,
    },
};

/// Figures of paths are compared once in an RTT of the slowest, in which a plan shows its effect: within these bounds.
const COOL_DOWN: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// Follows a plan while there is one.
#[derive(Debug, Default)]
pub(crate) struct Optimized {
    offered: Offered,
    /// What the plan was made from.
    basis: Option<Figures>,
    plan: Vec<Planned>,
    /// The usable paths, in order.
    paths: Vec<PathId>,
    next_check: Option<Instant>,
    plans: u64,
    reason: Option<String>,
}

impl Optimized {
    fn planned(&self, class: Class) -> Option<&Planned> {
        self.plan.iter().find(|planned| planned.class == class)
    }

    fn planned_mut(&mut self, class: Class) -> Option<&mut Planned> {
        self.plan.iter_mut().find(|planned| planned.class == class)
    }

    /// The path on which a fragment should leave. The same whichever path is asked, so that they never leave it to each other.
    fn target(&self, view: &View<'_>, load: Load, limit: Limit) -> Option<PathId> {
        self.planned(limit.class)?.target(view, load, limit)
    }

    fn make_plan(&mut self, figures: Figures, reason: String) {
        let (plan, reason) = match plan::make(&figures, &self.plan) {
            Ok(plan) => (plan, reason),
            Err(error) => (Vec::new(), format!("there is no plan: {error}")),
        };
        let is_new = plan.len() != self.plan.len()
            || plan
                .iter()
                .zip(&self.plan)
                .any(|(new, old)| !new.is_like(old));
        if is_new || self.reason.is_none() {
            self.plans += 1;
            self.reason = Some(reason);
        }
        self.plan = plan;
        self.basis = Some(figures);
    }
}

impl Scheduler for Optimized {
    fn takes_data(&self, view: &View<'_>, load: Load, limit: Limit) -> bool {
        if leaves_to_another(view, load.fragment, limit.deadline) {
            return false;
        }
        if view.is_alone() {
            return true;
        }
        // A plan is made for blocks that do not wait for each other.
        let target = self.target(view, load, limit).filter(|_| !load.waits);
        target.map_or_else(
            || Rules.takes_data(view, load, limit),
            |target| target == view.path(),
        )
    }

    fn leaving(&self, view: &View<'_>, load: Load, limit: Limit) -> Option<Leaving> {
        let target = self.target(view, load, limit).filter(|_| !load.waits);
        target.map_or_else(
            || Rules.leaving(view, load, limit),
            |target| Some(Leaving::AllBut(target)),
        )
    }

    /// On the path that the plan pairs with the one that lost it, if it arrives there in time and could be lost there once more. The last
    /// try goes where rules have it: the plan knows the mean loss of a path, which is not that of this moment.
    fn takes_retransmission(
        &self,
        view: &View<'_>,
        lost_on: Option<PathId>,
        bytes: u64,
        limit: Limit,
    ) -> bool {
        let again = lost_on
            .zip(self.planned(limit.class))
            .and_then(|(lost_on, planned)| planned.way(lost_on)?.again);
        let may_be_lost = again.filter(|again| {
            view.carrier(*again, bytes).is_some_and(|path| {
                !is_last_on(view, path, bytes, limit.deadline)
                    && !is_spared(view, path, bytes, limit.deadline)
            })
        });
        may_be_lost.map_or_else(
            || Rules.takes_retransmission(view, lost_on, bytes, limit),
            |again| again == view.path(),
        )
    }

    /// On the path that the plan names, if it arrives there in time.
    fn takes_redundancy(
        &self,
        view: &View<'_>,
        main: Option<PathId>,
        bytes: u64,
        limit: Limit,
    ) -> bool {
        let planned = main
            .zip(self.planned(limit.class))
            .and_then(|(main, planned)| planned.way(main)?.redundancy_path);
        let in_time = planned.filter(|path| {
            view.carrier(*path, bytes).is_some_and(|path| {
                path.predict_arrival(view.now(), 0, bytes) <= limit.deadline
                    && !is_spared(view, path, bytes, limit.deadline)
            })
        });
        in_time.map_or_else(
            || Rules.takes_redundancy(view, main, bytes, limit),
            |path| path == view.path(),
        )
    }

    fn takes_copy(&self, view: &View<'_>, first: Option<PathId>, bytes: u64, limit: Limit) -> bool {
        Rules.takes_copy(view, first, bytes, limit)
    }

    fn takes_frame(&self, view: &View<'_>, frame: Frame) -> bool {
        Rules.takes_frame(view, frame)
    }

    /// Blocks that begin too late for the retransmissions of the plan leave where they are safest, and what follows of them is later still. Where
    /// the plan has codes instead a path may come in time for what is left of a block, and lose it.
    fn takes_whole(&self, view: &View<'_>, load: Load, limit: Limit) -> bool {
        let planned = self
            .planned(limit.class)
            .filter(|_| limit.class.retransmits && !load.waits);
        planned.is_some_and(|planned| {
            planned.retransmits()
                && planned.way(view.path()).is_none()
                && planned.target(view, load, limit) == Some(view.path())
        })
    }

    fn coding(&mut self, class: Class, path: PathId) -> Option<Coding> {
        self.planned_mut(class)?.coding(path)
    }

    fn on_offered(&mut self, now: Instant, offer: Offer) {
        self.offered.add(now, offer);
    }

    fn on_data_sent(&mut self, class: Class, path: PathId, bytes: u64) {
        if let Some(planned) = self.planned_mut(class) {
            planned.on_sent(path, bytes);
        }
    }

    /// Makes another plan when paths came or went, at once, or when figures moved.
    fn refresh(&mut self, view: &View<'_>) {
        let now = view.now();
        let is_same = view
            .usable()
            .map(|(id, _)| id)
            .eq(self.paths.iter().copied());
        if is_same && self.next_check.is_some_and(|at| now < at) {
            return;
        }
        if !is_same {
            self.paths.clear();
            self.paths.extend(view.usable().map(|(id, _)| id));
        }
        let slowest = view.usable().map(|(_, path)| path.acknowledged_after());
        let cool_down = slowest.max().unwrap_or_default();
        self.next_check = Some(now + cool_down.clamp(COOL_DOWN[0], COOL_DOWN[1]));
        let figures = Figures::of(view, &mut self.offered);
        let reason = match &self.basis {
            None => (!figures.is_empty()).then(|| "the first blocks".to_owned()),
            Some(basis) => basis.difference(&figures),
        };
        if let Some(reason) = reason {
            self.make_plan(figures, reason);
        }
    }

    fn status(&self) -> SchedulerStatus {
        SchedulerStatus {
            name: "optimizer",
            plans: self.plans,
            reason: self.reason.clone(),
            classes: self.plan.iter().map(Planned::status).collect(),
            spending: None,
        }
    }
}
