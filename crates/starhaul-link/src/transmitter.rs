//! The sending end of a link: serialises packets at a constant rate or by the delivery opportunities of a trace, and
//! lets some pass ahead of the queue on credit.

use std::{collections::VecDeque, time::Instant};

use starhaul_units::Bandwidth;

use crate::{OPPORTUNITY_BYTES, Opportunities, Rate, outages::MAX_CHANGES};

/// Greatest number of bytes sent on credit.
pub(crate) const MAX_DEBT_BYTES: u64 = OPPORTUNITY_BYTES;

/// Serialises packets one after the other.
///
/// Opportunities follow mahimahi's link queue: one may carry several small packets; a packet that does not fit keeps
/// its bytes already sent and continues with the next; opportunities while the queue is empty are lost.
#[derive(Debug)]
pub(crate) struct Transmitter {
    rate: Rate,
    /// The former rates, each with the instant at which it ended.
    past: VecDeque<(Instant, Rate)>,
    epoch: Instant,
    /// Number of opportunities used or passed since the epoch.
    used: u64,
    /// Bytes left in the last of them, usable only at its own instant.
    leftover: u64,
    /// Bytes sent on credit since the current packet began; the next packets or unused capacity pay for them.
    debt: u64,
    /// The instant from which the sending end is idle, as far as is known.
    idle_from: Instant,
    current: Current,
}

/// The packet being sent, and the state at its start.
#[derive(Debug)]
struct Current {
    began: Instant,
    bytes: u64,
    /// Of these, bytes that had been sent on credit. The first bytes sent pay for them.
    credit: u64,
    used: u64,
    leftover: u64,
}

impl Transmitter {
    pub(crate) fn new(rate: Rate, epoch: Instant) -> Self {
        Self {
            rate,
            past: VecDeque::new(),
            epoch,
            used: 0,
            leftover: 0,
            debt: 0,
            idle_from: epoch,
            current: Current {
                began: epoch,
                bytes: 0,
                credit: 0,
                used: 0,
                leftover: 0,
            },
        }
    }

    /// The queue was empty until `now`: all opportunities until then are used up and have paid the debt.
    pub(crate) fn idle_until(&mut self, now: Instant) {
        let unused = match &self.rate {
            Rate::Constant(rate) => rate.bytes_in(now.saturating_duration_since(self.idle_from)),
            Rate::Trace(trace) => passed(trace, self.epoch, now)
                .saturating_sub(self.used)
                .saturating_mul(OPPORTUNITY_BYTES),
        };
        self.debt = self.debt.saturating_sub(unused);
        self.current.credit = 0;
        self.idle_from = now;
        self.skip_to(now);
    }

    /// Whether a packet may leave at `now` ahead of the queue: its debt is small, and this is no outage.
    pub(crate) fn may_pass(&self, now: Instant, bytes: u64) -> bool {
        let in_outage = match &self.rate {
            Rate::Constant(rate) => *rate == Bandwidth::ZERO,
            Rate::Trace(trace) => trace.is_outage(now.saturating_duration_since(self.epoch)),
        };
        let unpaid = self.debt.saturating_add(self.unpaid_by_current(now));
        !in_outage && unpaid.saturating_add(bytes) <= MAX_DEBT_BYTES
    }

    /// A packet left on credit.
    pub(crate) fn pass(&mut self, bytes: u64) {
        self.debt = self.debt.saturating_add(bytes);
    }

    /// Begins to send at `now`; returns when the last byte leaves, `None` if it never does.
    pub(crate) fn begin(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        let credit = std::mem::take(&mut self.debt);
        let bytes = bytes.saturating_add(credit);
        self.current = Current {
            began: now,
            bytes,
            credit,
            used: self.used,
            leftover: self.leftover,
        };
        match &self.rate {
            Rate::Constant(rate) => {
                let done = now.checked_add(rate.time_to_send(bytes));
                self.idle_from = done.unwrap_or(now);
                done
            }
            Rate::Trace(trace) => {
                let missing = bytes.saturating_sub(self.leftover);
                let needed = missing.div_ceil(OPPORTUNITY_BYTES);
                self.used = self.used.saturating_add(needed);
                self.leftover = self.leftover + needed * OPPORTUNITY_BYTES - bytes;
                if needed == 0 {
                    return Some(now);
                }
                self.epoch.checked_add(trace.time_of(self.used))
            }
        }
    }

    /// Changes the rate while a packet is being sent; the rest of it is sent at the new rate. Returns when the last
    /// byte leaves.
    pub(crate) fn change_while_sending(&mut self, now: Instant, rate: Rate) -> Option<Instant> {
        let rest = self.current.bytes.saturating_sub(self.sent_of_current(now));
        let unpaid = self.unpaid_by_current(now);
        self.change_while_idle(now, rate);
        let done = self.begin(now, rest);
        self.current.credit = self.current.credit.saturating_add(unpaid);
        done
    }

    pub(crate) fn change_while_idle(&mut self, now: Instant, rate: Rate) {
        if self.past.len() >= MAX_CHANGES {
            self.past.pop_front();
        }
        self.idle_until(now);
        let before = std::mem::replace(&mut self.rate, rate);
        self.past.push_back((now, before));
        self.skip_to(now);
    }

    fn skip_to(&mut self, now: Instant) {
        if let Rate::Trace(trace) = &self.rate {
            self.used = passed(trace, self.epoch, now);
        }
        self.leftover = 0;
    }

    /// Bytes that can leave in (from, to] at the rates valid then.
    pub(crate) fn capacity_bytes(&self, from: Instant, to: Instant) -> u64 {
        let first = self.past.partition_point(|&(end, _)| end <= from);
        let (mut at, mut sum) = (from, 0_u64);
        for (end, rate) in self.past.range(first..) {
            let end = (*end).min(to);
            sum = sum.saturating_add(self.bytes_at(rate, at, end));
            at = at.max(end);
        }
        sum.saturating_add(self.bytes_at(&self.rate, at, to))
    }

    fn bytes_at(&self, rate: &Rate, from: Instant, to: Instant) -> u64 {
        match rate {
            Rate::Constant(rate) => rate.bytes_in(to.saturating_duration_since(from)),
            Rate::Trace(trace) => passed(trace, self.epoch, to)
                .saturating_sub(passed(trace, self.epoch, from))
                .saturating_mul(OPPORTUNITY_BYTES),
        }
    }

    fn unpaid_by_current(&self, now: Instant) -> u64 {
        self.current
            .credit
            .saturating_sub(self.sent_of_current(now))
    }

    fn sent_of_current(&self, now: Instant) -> u64 {
        let current = &self.current;
        match &self.rate {
            Rate::Constant(rate) => rate.bytes_in(now.saturating_duration_since(current.began)),
            Rate::Trace(trace) => passed(trace, self.epoch, now)
                .saturating_sub(current.used)
                .saturating_mul(OPPORTUNITY_BYTES)
                .saturating_add(current.leftover),
        }
    }
}

fn passed(trace: &Opportunities, epoch: Instant, now: Instant) -> u64 {
    trace.until(now.saturating_duration_since(epoch))
}
