//! The model of the path: the greatest rate of two cycles, the short-term bounds of draft-ietf-ccwg-bbr-06 §5.5.10.3,
//! and the aggregation of acknowledgements (§5.5.9).

use std::time::Instant;

use starhaul_units::Bandwidth;

use super::BETA;
use crate::{
    aggregation::Aggregation,
    delivery_rate::RateSample,
    filter::WindowedFilter,
    limits::{real, window_bytes},
};

/// The bandwidth filter covers the present cycle and the one before.
const BANDWIDTH_WINDOW_CYCLES: u64 = 1;

/// Estimates and short-term bounds.
#[derive(Clone, Debug)]
pub(super) struct Model {
    max_bandwidth: WindowedFilter<Bandwidth, u64>,
    bandwidth_short_term: Option<Bandwidth>,
    inflight_short_term: Option<u64>,

    /// The greatest sample of the round so far.
    bandwidth_latest: Bandwidth,
    inflight_latest: u64,
    loss_in_round: bool,
    loss_round_started: bool,
    loss_round_ends_at_delivered: u64,

    aggregation: Aggregation,
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            max_bandwidth: WindowedFilter::max(BANDWIDTH_WINDOW_CYCLES),
            bandwidth_short_term: None,
            inflight_short_term: None,
            bandwidth_latest: Bandwidth::ZERO,
            inflight_latest: 0,
            loss_in_round: false,
            loss_round_started: false,
            loss_round_ends_at_delivered: 0,
            aggregation: Aggregation::default(),
        }
    }

    /// Takes a sample; returns whether it ends a round with losses.
    pub(super) fn take_sample(&mut self, sample: &RateSample, delivered: u64, cycle: u64) -> bool {
        let rate = sample.delivery_rate.unwrap_or_default();
        self.bandwidth_latest = self.bandwidth_latest.max(rate);
        self.inflight_latest = self.inflight_latest.max(sample.delivered_bytes);
        self.loss_round_started = sample.prior_delivered >= self.loss_round_ends_at_delivered;
        if self.loss_round_started {
            self.loss_round_ends_at_delivered = delivered;
        }
        let best = self.max_bandwidth.best();
        if sample.delivery_rate.is_some()
            && (!sample.app_limited || best.is_none_or(|best| rate >= best))
        {
            self.max_bandwidth.update(cycle, rate);
        }
        self.loss_round_started
    }

    /// Lowers the short-term bounds for the losses of a round that ended outside of probing.
    pub(super) fn adapt_lower_bounds(&mut self, cwnd_bytes: u64) {
        if !self.loss_in_round {
            return;
        }
        let bandwidth = self
            .bandwidth_short_term
            .or(self.max_bandwidth.best())
            .unwrap_or_default();
        let inflight = self.inflight_short_term.unwrap_or(cwnd_bytes);
        self.bandwidth_short_term = Some(bandwidth.scaled(BETA).max(self.bandwidth_latest));
        self.inflight_short_term =
            Some(window_bytes(real(inflight) * BETA, 0).max(self.inflight_latest));
    }

    pub(super) fn end_loss_round(&mut self) {
        self.loss_in_round = false;
    }

    /// §5.5.10.1: begins the next round's maximum with this sample.
    pub(super) fn advance_latest(&mut self, sample: &RateSample) {
        if self.loss_round_started {
            self.bandwidth_latest = sample.delivery_rate.unwrap_or_default();
            self.inflight_latest = sample.delivered_bytes;
        }
    }

    /// Records a loss or a mark. The round that it counts in lasts a whole RTT from the first such event on, so that
    /// its maximum shows what the path carries in spite of it.
    pub(super) fn note_loss(&mut self, delivered: u64) {
        if !self.loss_in_round {
            self.loss_round_ends_at_delivered = delivered;
        }
        self.loss_in_round = true;
    }

    /// Keeps the flight before the window collapses, as the start of the short-term bounds: the collapsed window is no
    /// estimate of the path. As in the Linux branch; the draft leaves it open.
    pub(super) fn keep_inflight(&mut self, cwnd_bytes: u64) {
        self.inflight_short_term.get_or_insert(cwnd_bytes);
    }

    /// §5.3.3.3: clears the short-term bounds, which must not limit a probe.
    pub(super) fn forget_short_term(&mut self) {
        self.bandwidth_short_term = None;
        self.inflight_short_term = None;
    }

    /// Clears the round's signals, which do not apply to the next phase.
    pub(super) fn reset_congestion_signals(&mut self) {
        self.loss_in_round = false;
        self.bandwidth_latest = Bandwidth::ZERO;
        self.inflight_latest = 0;
    }

    /// Undoes the losses since `before`, which were spurious.
    pub(super) fn undo_to(&mut self, before: &Self) {
        self.loss_in_round = false;
        self.bandwidth_short_term = match (self.bandwidth_short_term, before.bandwidth_short_term) {
            (Some(now), Some(before)) => Some(now.max(before)),
            _ => None,
        };
        self.inflight_short_term = match (self.inflight_short_term, before.inflight_short_term) {
            (Some(now), Some(before)) => Some(now.max(before)),
            _ => None,
        };
    }

    /// The bandwidth to pace by; `None` before the first sample.
    pub(super) fn bandwidth(&self) -> Option<Bandwidth> {
        let best = self.max_bandwidth.best()?;
        Some(
            self.bandwidth_short_term
                .map_or(best, |bound| best.min(bound)),
        )
    }

    pub(super) fn max_bandwidth(&self) -> Option<Bandwidth> {
        self.max_bandwidth.best()
    }

    /// The greatest number of bytes delivered within an RTT in this round.
    pub(super) fn inflight_latest(&self) -> u64 {
        self.inflight_latest
    }

    pub(super) fn inflight_short_term(&self) -> Option<u64> {
        self.inflight_short_term
    }

    /// Updates the bytes acknowledged beyond what the bandwidth explains.
    pub(super) fn update_aggregation(
        &mut self,
        now: Instant,
        acked_bytes: u64,
        cwnd_bytes: u64,
        round: (u64, bool),
    ) {
        let bandwidth = self.bandwidth().unwrap_or_default();
        self.aggregation
            .update(now, bandwidth, acked_bytes, cwnd_bytes, round);
    }

    pub(super) fn restart_aggregation(&mut self, now: Instant) {
        self.aggregation.restart(now);
    }

    pub(super) fn extra_acked_bytes(&self) -> u64 {
        self.aggregation.bytes()
    }
}
