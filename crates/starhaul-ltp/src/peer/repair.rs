//! Repair segments that follow the loss which reports show: as many as make up for it where a retransmission takes long, and none where
//! nothing is lost. A block is cut by what is known when it begins to leave, of losses and of the path's MTU.

use std::time::Duration;

use super::Peer;
use crate::{
    auth::TRAILER_BYTES,
    coding::{Coding, Layout},
    repair_choice::{RepairChoice, RepairReason},
    send::{Basis, SendSession},
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

    /// Cuts a block of which nothing has left into segments of the present size, and its red part into codes for the loss that is known now.
    pub(super) fn cut(&mut self, number: u64) {
        if self.sends.get(&number).is_none_or(SendSession::was_begun) {
            return;
        }
        let coding = self.coding();
        self.sizes.set_coded(coding.is_some());
        let basis = Basis {
            segment: self.sizes.again(),
            single: self.sizes.single_packet(),
            coding,
        };
        let session = self.sends.get(&number);
        let Some(session) = session.filter(|session| session.is_to_cut(&basis)) else {
            return;
        };
        let (red, coding) = (session.fresh_red(), basis.coding);
        let coding = coding.filter(|_| red > 0);
        let layout = coding.map(|coding| self.layout(red, basis.single, coding));
        if let Some(session) = self.sends.get_mut(&number) {
            session.cut(basis, layout);
        }
    }

    /// What the repair segments of the next red part make up for, if it has any.
    fn coding(&self) -> Option<Coding> {
        match self.config.coding {
            // Where nothing comes back, nothing tells of losses.
            None if self.config.adapts_coding && !self.config.is_one_way => {
                self.measured_loss().0.map(Coding::new)
            }
            coding => coding,
        }
    }

    /// How a red part of so many bytes is coded, with segments that have so many bytes of data at most.
    fn layout(&self, red: u64, most: usize, coding: Coding) -> Layout {
        let config = &self.config;
        let signature = config.auth.as_ref().map_or(0, |_| TRAILER_BYTES);
        let overhead = config.overhead + signature + self.encoding().further_header();
        match config.is_one_way {
            true => Layout::without_return(red, most, coding, overhead),
            false => Layout::usual(red, most, coding),
        }
    }
}
