//! Sizes that are tried: a few segments tell whether one arrives, a span of them what it carries.

use std::time::Instant;

use super::{SegmentSizes, ladder::packet_loss};
use crate::size_choice::SizeReason;

/// A probe or a trial is repeated so often where reports on it are lost.
const MOST_UNANSWERED: u32 = 4;
/// A size that carries so many times as much is not compared a second time; one that carries less than that neither.
const CLEARLY_MORE: f64 = 1.5;
const CLEARLY_LESS: f64 = 0.8;

/// A few segments of a size that has not arrived yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) class: usize,
    pub(super) data: usize,
    pub(super) count: u64,
    pub(super) left: u64,
    /// When the last of them left, or the probe began.
    pub(super) at: Instant,
    /// Probes of the size before this one on which no report came.
    pub(super) unanswered: u32,
}

/// A span at another size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub(super) class: usize,
    pub(super) stage: Stage,
    /// Spans that could not be measured.
    pub(super) missed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The next span has it.
    Wanted,
    /// The present one has it.
    Running,
    /// Its reports are to come.
    Awaited,
}

impl SegmentSizes {
    /// Compares a size that was tried with the present one.
    pub(super) fn end_trial(&mut self, now: Instant, at: usize) {
        self.trial = None;
        let loss = packet_loss(&self.classes, None);
        let share = match (self.carried(at, loss), self.carried(self.present, loss)) {
            (Some(tried), Some(present)) => tried / present,
            _ => 0.0,
        };
        let times = self.classes.get(at).and_then(|class| class.cost);
        let times = times.map_or(0, |cost| cost.times);
        if share > 1.0 + self.margin() && (times > 1 || share > CLEARLY_MORE) {
            self.adopt(at);
        } else if times < 2 && share > CLEARLY_LESS {
            self.begin_trial(at);
        } else if let Some(class) = self.classes.get_mut(at) {
            class.rest(now);
            self.reason = match self.reason {
                SizeReason::PathMtu => SizeReason::NoGain,
                other => other,
            };
        }
    }

    pub(super) fn try_out(&mut self, now: Instant, at: usize) {
        match self.classes.get(at).is_some_and(|class| class.is_proven) {
            true => self.begin_trial(at),
            false => self.begin_probe(now, at),
        }
    }

    pub(super) fn begin_probe(&mut self, now: Instant, at: usize) {
        let loss = packet_loss(&self.classes, Some(at));
        let Some(class) = self.classes.get(at).filter(|_| self.is_learning()) else {
            return;
        };
        let count = class.telling(loss);
        self.probe = Some(Probe {
            class: at,
            data: class.data,
            count,
            left: count,
            at: now,
            unanswered: 0,
        });
    }

    /// All of a probe was lost, and more packets are lost than was known when it began: so many segments more tell.
    pub(super) fn extend_probe(&mut self) {
        let Some(probe) = self.probe.filter(|probe| probe.left == 0) else {
            return;
        };
        let loss = packet_loss(&self.classes, Some(probe.class));
        let Some(class) = self.classes.get(probe.class) else {
            return;
        };
        let left = class.telling(loss).saturating_sub(class.lost_in_a_row());
        if class.lost_in_a_row() >= probe.count && left > 0 {
            self.probe = Some(Probe {
                count: probe.count + left,
                left,
                ..probe
            });
        }
    }

    /// No report came on a probe: reports may be lost, and those that come later leave out what they told.
    pub(super) fn repeat_probe(&mut self, now: Instant, probe: Probe) {
        if probe.unanswered + 1 >= MOST_UNANSWERED {
            if let Some(class) = self.classes.get_mut(probe.class) {
                class.rest(now);
            }
            return;
        }
        self.begin_probe(now, probe.class);
        if let Some(again) = &mut self.probe {
            again.unanswered = probe.unanswered + 1;
        }
    }

    pub(super) fn begin_trial(&mut self, at: usize) {
        self.least = self.shortest();
        self.trial = Some(Trial {
            class: at,
            stage: Stage::Wanted,
            missed: 0,
        });
    }

    /// The span of a trial could not be measured: reports were lost, or something else limited it.
    pub(super) fn repeat_trial(&mut self, now: Instant, trial: Trial) {
        if trial.missed + 1 >= MOST_UNANSWERED {
            if let Some(class) = self.classes.get_mut(trial.class) {
                class.rest(now);
            }
            return;
        }
        self.begin_trial(trial.class);
        if let Some(again) = &mut self.trial {
            again.missed = trial.missed + 1;
        }
    }

    /// A probed size arrives. A larger packet is used at once; whether more fragments carry more, a trial tells.
    pub(super) fn arrived(&mut self, now: Instant, at: usize) {
        self.probe = None;
        let is_single = self
            .classes
            .get(at)
            .is_some_and(|class| class.fragments == 1);
        if is_single {
            self.choose(at, SizeReason::PathMtu);
        } else if self.is_rate_bound {
            self.decide(now);
        } else {
            self.begin_trial(at);
        }
    }

    pub(super) fn is_black_hole(&self, at: usize) -> bool {
        let Some(class) = self.classes.get(at) else {
            return false;
        };
        match self.probe.filter(|probe| probe.class == at) {
            Some(probe) => {
                let telling = class.telling(packet_loss(&self.classes, Some(at)));
                class.lost_in_a_row() >= telling.max(probe.count)
            }
            None => class.is_cut_off(packet_loss(&self.classes, Some(at))),
        }
    }

    /// None of a size arrives while reports do: neither will larger ones, nor probably those that are a little smaller. Of the others one
    /// is tried later, of single packets at once.
    pub(super) fn leave_black_hole(&mut self, now: Instant, at: usize) {
        self.black_holes += 1;
        let middle = (self.safe + 1 + at) / 2;
        for (other, class) in self.classes.iter_mut().enumerate().skip(self.safe) {
            match other {
                _ if other >= at => class.bar(now),
                _ if class.fragments == 1 => {}
                _ if other >= middle => class.bar(now),
                _ => class.doubt(now),
            }
        }
        self.probe = None;
        self.trial = None;
        if at == self.safe {
            self.choose(at - 1, SizeReason::BlackHole);
        } else if self.present > self.safe {
            self.choose(self.safe, SizeReason::BlackHole);
        } else {
            self.data = self.safe_data;
            self.reason = SizeReason::BlackHole;
            self.epochs.taint();
        }
    }
}
