//! The losses that the cheap path goes through.

use starhaul_link::Loss;

use super::{LOSS_STEPS, goals::PUBLISHED_LOSS};
use crate::Error;

/// Twice as much as the paper's greatest.
const GREATEST_LOSS: f64 = 0.2;
/// Losses that come in bursts.
const BURST_LOSSES: [f64; 5] = [0.01, 0.02, 0.05, 0.1, GREATEST_LOSS];
/// Mean number of packets lost in a row.
const BURSTS: [f64; 2] = [5.0, 20.0];

/// Loss of the cheap path for 5 s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Share of its packets.
    pub loss: f64,
    /// Mean number lost in a row; 1 where each is lost by itself.
    pub burst: f64,
}

/// The steps of the paper.
pub fn steps() -> Vec<Step> {
    LOSS_STEPS.into_iter().map(Step::single).collect()
}

impl Step {
    /// Packets are lost each by itself.
    pub(super) const fn single(loss: f64) -> Self {
        Self { loss, burst: 1.0 }
    }

    pub(super) fn model(self) -> Loss {
        self.possible().unwrap_or(Loss::NONE)
    }

    fn possible(self) -> Result<Loss, Error> {
        Ok(match self.burst > 1.0 {
            true => Loss::gilbert_elliott(self.loss, self.burst)?,
            false => Loss::bernoulli(self.loss)?,
        })
    }
}

/// What a command asks for in place of what each part has.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    losses: Vec<f64>,
    bursts: Vec<f64>,
}

impl Course {
    /// Of these losses and mean numbers of packets in a row; of those that each part has where there are none.
    pub(super) const fn new(losses: Vec<f64>, bursts: Vec<f64>) -> Self {
        Self { losses, bursts }
    }

    /// That links can lose so much, also in a row if that is to be.
    ///
    /// # Errors
    /// [`Error::Link`] for a loss that so few in a row cannot make.
    pub(super) fn check(&self, has_rows: bool) -> Result<(), Error> {
        let rows = match has_rows {
            true => self.in_a_row(false),
            false => Vec::new(),
        };
        let mut all = self.alone(false).into_iter().chain(rows);
        all.try_for_each(|step| step.possible().map(drop))
    }

    /// Each packet is lost by itself.
    pub(super) fn alone(&self, quick: bool) -> Vec<Step> {
        let usual = LOSS_STEPS.into_iter().chain([GREATEST_LOSS]);
        let usual = usual.filter(|loss| !quick || [0.0, 0.01, 0.1].contains(loss));
        self.losses_or(usual)
            .into_iter()
            .map(Step::single)
            .collect()
    }

    /// Packets are lost in a row. Without a loss there is no row.
    pub(super) fn in_a_row(&self, quick: bool) -> Vec<Step> {
        let usual = BURST_LOSSES.into_iter();
        let losses = self.losses_or(usual.filter(|loss| !quick || *loss == 0.05));
        let bursts: &[f64] = match self.bursts.is_empty() {
            true => &BURSTS,
            false => &self.bursts,
        };
        let of = |burst: &f64| {
            let burst = *burst;
            let step = move |loss: &f64| Step { loss: *loss, burst };
            losses.iter().filter(|loss| **loss > 0.0).map(step)
        };
        bursts.iter().flat_map(of).collect()
    }

    /// Whether one of its losses is judged by what the dear path carries: some are lost there, and no more than in the paper.
    pub(super) fn needs_the_dear_path(&self) -> bool {
        let is_judged = |loss: &f64| *loss > 0.0 && *loss <= PUBLISHED_LOSS;
        self.losses.is_empty() || self.losses.iter().any(is_judged)
    }

    fn losses_or(&self, usual: impl Iterator<Item = f64>) -> Vec<f64> {
        match self.losses.is_empty() {
            true => usual.collect(),
            false => self.losses.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_a_command_are_those_of_every_part() {
        let course = Course::new(vec![0.0, 0.15], vec![3.0]);
        for quick in [false, true] {
            assert_eq!(course.alone(quick), [0.0, 0.15].map(Step::single));
            let row = Step {
                loss: 0.15,
                burst: 3.0,
            };
            assert_eq!(course.in_a_row(quick), [row]);
        }
        assert_eq!(Course::default().alone(false).len(), 9);
        assert_eq!(Course::default().in_a_row(false).len(), 10);
    }

    /// It would otherwise be no loss at all.
    #[test]
    fn a_loss_that_so_few_in_a_row_cannot_make_is_refused() {
        assert!(Course::new(vec![0.9], vec![2.0]).check(true).is_err());
        assert!(Course::new(vec![0.9], vec![2.0]).check(false).is_ok());
        assert!(Course::new(vec![0.9], vec![20.0]).check(true).is_ok());
    }
}
