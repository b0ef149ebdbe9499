//! The count of one path: which month a byte belongs to, whatever the calendar clock does, and how much of it is stored.
//!
//! All bytes are counted in one total that only grows; a month is the total at which the clock first showed it. A clock that
//! stepped is believed once it has run on for [`DOUBT`]; until then the stricter of two months holds, that which it shows and
//! that which was believed before. A step back therefore opens no month anew, and a step ahead none too early.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::period::{Period, Scheme};

/// How long a clock that stepped must run on before it is believed.
pub const DOUBT: Duration = Duration::from_secs(3600);
/// How long a clock must run on in a month before later ones that it has shown are taken for a mistake of its.
const FORGET: Duration = Duration::from_secs(86_400);
/// Differences between the calendar and elapsed time up to this are no step.
const STEP_S: i64 = 60;
/// Months remembered for a clock that goes back.
pub(super) const MAX_OPENINGS: usize = 4;
/// The least that is stored ahead; else it is this many seconds of traffic at the greatest rate of the last days.
pub(super) const LEAST_AHEAD: u64 = 1 << 20;
pub(super) const AHEAD_S: u64 = 4;
/// A figure is to be stored when half of that is left, and cannot be relied on when a quarter is, if storing fails.
const RENEW: u64 = 2;
const RESERVE: u64 = 4;
/// The shortest time over which a rate is measured, in milliseconds.
const MEASURED_MS: u64 = 100;
/// The greatest rate is forgotten by half in a day.
const HALF_LIFE_S: f64 = 86_400.0;

/// The first time that the clock showed a month.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Opening {
    pub(super) month: Period,
    /// The total then.
    pub(super) base: u64,
    /// The clock came here from a later month, and had never been here: it says nothing of later ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) behind: bool,
}

impl Opening {
    fn new(month: Period, base: u64) -> Self {
        Self {
            month,
            base,
            behind: false,
        }
    }
}

/// What is stored of an account. Its total may be ahead of what was counted, never behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) scheme: Scheme,
    pub(super) total: u64,
    pub(super) openings: Vec<Opening>,
    pub(super) believed: Period,
    pub(super) showing: Period,
    /// Milliseconds for which the clock has run without a step.
    pub(super) steady_ms: u64,
    /// Seconds since 1970 at that time.
    pub(super) shown: i64,
    /// The greatest rate of the last days, in bytes per second.
    pub(super) peak: u64,
    /// The figure was lost, and the operator has not set it since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) lost: bool,
}

/// The account of one path.
#[derive(Clone, Debug)]
pub(super) struct Account {
    now: Record,
    /// The total that is in the file.
    durable: u64,
    /// Something else than the total is to be stored.
    changed: bool,
    /// The clock was read in this life.
    live: bool,
    /// Bytes since the clock was read last.
    fresh: u64,
}

impl Account {
    /// One that begins now, at zero.
    pub(super) fn new(scheme: Scheme, calendar: i64) -> Self {
        let month = scheme.period(calendar);
        let now = Record {
            scheme,
            total: 0,
            openings: vec![Opening::new(month, 0)],
            believed: month,
            showing: month,
            steady_ms: 0,
            shown: calendar,
            peak: 0,
            lost: false,
        };
        Self {
            now,
            durable: 0,
            changed: true,
            live: true,
            fresh: 0,
        }
    }

    /// One whose former figure cannot be read.
    pub(super) fn lost(scheme: Scheme, calendar: i64) -> Self {
        let mut account = Self::new(scheme, calendar);
        account.now.lost = true;
        account
    }

    /// Restores an account from its record.
    pub(super) fn restore(record: Record) -> Self {
        Self {
            durable: record.total,
            now: record,
            changed: false,
            live: false,
            fresh: 0,
        }
    }

    pub(super) fn count(&mut self, bytes: u64) {
        self.now.total = self.now.total.saturating_add(bytes);
        self.fresh = self.fresh.saturating_add(bytes);
    }

    /// Takes the time of the calendar clock at the begin of a life.
    pub(super) fn awake(&mut self, calendar: i64) {
        if !std::mem::replace(&mut self.live, true) {
            self.observe(Duration::ZERO, calendar);
        }
    }

    /// Takes the time of the calendar clock, `elapsed` after the last call by a clock that never steps.
    pub(super) fn observe(&mut self, elapsed: Duration, calendar: i64) {
        self.pace(elapsed);
        let now = &mut self.now;
        let elapsed_s = i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX);
        let moved = calendar.saturating_sub(now.shown).saturating_sub(elapsed_s);
        let month = now.scheme.period(calendar);
        if elapsed.is_zero() {
            // The first reading of this life: the time between is unknown.
            if month != now.showing {
                now.steady_ms = 0;
            }
        } else if moved.saturating_abs() > STEP_S {
            now.steady_ms = 0;
        }
        let was_steady = now.is_steady();
        now.steady_ms = now.steady_ms.saturating_add(millis(elapsed));
        now.shown = calendar;
        if month != now.showing {
            self.show(month, was_steady);
        }
        if self.now.is_steady() {
            self.believe();
        }
        if self.now.steady_ms >= millis(FORGET) {
            self.forget_later();
        }
    }

    fn show(&mut self, month: Period, was_steady: bool) {
        let now = &mut self.now;
        // A month that a steady clock comes to begins now, even if a wrong one has shown it before.
        if was_steady && month > now.showing {
            now.openings.retain(|known| known.month != month);
        }
        if now.base_of(month).is_none() {
            // A month before those that were shown goes on with the count of the one that it came from.
            let behind = now.openings.iter().any(|known| known.month > month);
            let base = match behind {
                true => now.base_of(now.believed).unwrap_or(0),
                false => now.total,
            };
            now.openings.push(Opening {
                month,
                base,
                behind,
            });
        }
        now.showing = month;
        self.changed = true;
        if was_steady {
            self.believe();
        }
        self.now.forget_oldest();
    }

    /// The clock is right.
    fn believe(&mut self) {
        self.changed |= self.now.believed != self.now.showing;
        self.now.believed = self.now.showing;
    }

    /// Months after the one that the clock shows have not begun.
    fn forget_later(&mut self) {
        let now = &mut self.now;
        let showing = now.showing;
        let mut openings = now.openings.iter();
        if openings.any(|known| known.month == showing && known.behind) {
            return;
        }
        let before = now.openings.len();
        now.openings.retain(|known| known.month <= showing);
        self.changed |= now.openings.len() != before;
    }

    /// Bytes of the present month; while the clock is in doubt, of the month in which they are more.
    pub(super) fn used(&self) -> u64 {
        let now = &self.now;
        let bases = [now.base_of(now.showing), now.base_of(now.believed)];
        let base = bases.into_iter().flatten().min().unwrap_or(0);
        now.total.saturating_sub(base)
    }

    /// The same at this time of the calendar clock, if that is still the month that was shown last.
    pub(super) fn used_at(&self, calendar: i64) -> Option<u64> {
        let month = self.now.scheme.period(calendar);
        (month == self.now.showing).then(|| self.used())
    }

    /// Sets the bytes of the present month, as an operator knows them.
    pub(super) fn set_used(&mut self, bytes: u64) {
        let month = self.now.showing;
        self.now.total = bytes;
        self.now.openings = vec![Opening::new(month, 0)];
        self.now.believed = month;
        self.now.lost = false;
        self.durable = 0;
        self.changed = true;
    }

    /// Takes another day or time zone; what the month has counted stays with it.
    pub(super) fn set_scheme(&mut self, scheme: Scheme) {
        if self.now.scheme == scheme {
            return;
        }
        let base = self.now.total.saturating_sub(self.used());
        let month = scheme.period(self.now.shown);
        self.now.scheme = scheme;
        self.now.openings = vec![Opening::new(month, base)];
        (self.now.believed, self.now.showing) = (month, month);
        self.changed = true;
    }

    /// The month that the clock shows.
    pub(super) fn month(&self) -> Period {
        self.now.showing
    }

    pub(super) fn scheme(&self) -> Scheme {
        self.now.scheme
    }

    pub(super) fn shown(&self) -> i64 {
        self.now.shown
    }

    pub(super) fn is_lost(&self) -> bool {
        self.now.lost
    }

    /// Whether what is stored is soon less than what was counted.
    pub(super) fn is_short(&self) -> bool {
        self.left() < self.now.ahead() / RESERVE
    }

    /// Whether the next figure is to be stored soon.
    pub(super) fn is_due(&self) -> bool {
        self.changed || self.left() < self.now.ahead() / RENEW
    }

    fn left(&self) -> u64 {
        self.durable.saturating_sub(self.now.total)
    }

    /// What is to be stored; with more to come, ahead of the count.
    pub(super) fn record(&self, more_comes: bool) -> Record {
        let ahead = if more_comes { self.now.ahead() } else { 0 };
        Record {
            total: self.now.total.saturating_add(ahead),
            ..self.now.clone()
        }
    }

    /// A record of this total is being stored: what changes from now on is not in it.
    pub(super) fn storing(&mut self) {
        self.changed = false;
    }

    /// It is stored.
    pub(super) fn stored(&mut self, total: u64) {
        self.durable = total;
    }

    /// It is not stored.
    pub(super) fn not_stored(&mut self) {
        self.changed = true;
    }

    /// Follows the greatest rate: up at once, down slowly.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and at most the peak before"
    )]
    fn pace(&mut self, elapsed: Duration) {
        let fresh = std::mem::take(&mut self.fresh);
        // Over shorter times a burst would look like a rate.
        let rate = fresh.saturating_mul(1000) / millis(elapsed).max(MEASURED_MS);
        let kept = self.now.peak as f64 * (-elapsed.as_secs_f64() / HALF_LIFE_S).exp2();
        self.now.peak = rate.max(kept as u64);
    }
}

impl Record {
    /// Bytes to be stored ahead.
    fn ahead(&self) -> u64 {
        LEAST_AHEAD.max(self.peak.saturating_mul(AHEAD_S))
    }

    fn is_steady(&self) -> bool {
        self.steady_ms >= millis(DOUBT)
    }

    pub(super) fn base_of(&self, month: Period) -> Option<u64> {
        let known = self.openings.iter().find(|known| known.month == month);
        known.map(|known| known.base)
    }

    fn forget_oldest(&mut self) {
        while self.openings.len() > MAX_OPENINGS {
            let needed = [self.believed, self.showing];
            let oldest = self
                .openings
                .iter()
                .filter(|known| !needed.contains(&known.month));
            let oldest = oldest.map(|known| known.month).min();
            self.openings.retain(|known| Some(known.month) != oldest);
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
