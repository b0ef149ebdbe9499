//! Repair segments that follow the loss which reports show: as many as make up for it where a retransmission takes long, and none where
//! nothing is lost. A block has what is known when it begins to leave.

use std::time::Duration;

use super::Peer;
use crate::{
    coding::{Coding, Layout},
    repair_choice::{RepairChoice, RepairReason},
    send::SendSession,
};

/// Over shorter round trips what is lost is sent again: that costs fewer bytes, and all of a block is there some seconds later at most.
const NEAR: Duration = Duration::from_secs(1);
/// More than this is not made up for in advance: codes of usual length have no place for it, and whoever forges a report makes red parts of
/// one segment six times as long, and no longer.
const MOST_LOSS: f64 = 0.25;

impl Peer {
    /// The loss that the repair segments of the next red part make up for, and why it is that.
    pub(crate) fn repair_choice(&self) -> RepairChoice {
        let (loss, reason) = match self.config.coding {
            None if self.config.adapts_coding => self.measured_loss(),
            coding => (coding.map(|coding| coding.loss), RepairReason::Fixed),
        };
        RepairChoice {
            loss,
            reason,
            measured: self.losses.share(),
        }
    }

    fn measured_loss(&self) -> (Option<f64>, RepairReason) {
        let light = self.config.one_way_light_time.saturating_mul(2);
        let round_trip = match light.is_zero() {
            true => self.answer.smoothed(),
            false => Some(light),
        };
        match (round_trip, self.losses.bound()) {
            (Some(time), _) if time < NEAR => (None, RepairReason::Near),
            _ if self.losses.is_hidden() => (None, RepairReason::Untold),
            (Some(_), Some(bound)) => (Some(bound.min(MOST_LOSS)), RepairReason::Measured),
            (Some(_), None) if self.losses.is_known() => (None, RepairReason::NoLoss),
            _ => (None, RepairReason::Unknown),
        }
    }

    /// Decides on the repair segments of a block of which nothing has left, if they follow the loss.
    pub(super) fn decide_coding(&mut self, number: u64) {
        let follows = self.config.adapts_coding && self.config.coding.is_none();
        if !follows || self.config.is_one_way {
            return;
        }
        let session = self.sends.get(&number);
        let is_open = |s: &&SendSession| !s.was_begun() && !s.is_coded() && s.cancel.is_none();
        let Some((red, unit)) = session.filter(is_open).map(|s| (s.fresh_red(), s.unit)) else {
            return;
        };
        // Symbols are segments of the size for which the block was cut.
        if red == 0 || unit != self.sizes.single_packet() {
            return;
        }
        let loss = self.repair_choice().loss;
        let layout = loss.map(|loss| Layout::usual(red, unit, Coding::new(loss)));
        if let Some(session) = self.sends.get_mut(&number) {
            session.set_layout(layout);
        }
    }
}
