//! The sender of the heavy flow, at the client or at the server: phases, pacing, and the rule that it sends only while
//! feedback of the receiver arrives.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use crate::{
    Phase, Transmit,
    key::Mac,
    search::RateSearch,
    wire::{Data, Feedback, Message, Request},
};

/// Length of the idle phase at the beginning.
pub(crate) const IDLE: Duration = Duration::from_secs(1);
/// Without feedback for this long the sender pauses until feedback arrives.
const SILENCE: Duration = Duration::from_secs(1);
/// Greatest length of the search for the capacity, whether found or not.
pub(crate) const LONGEST_SEARCH: Duration = Duration::from_secs(20);
/// This much of the saturating flow at its beginning and end is not evaluated.
const MARGIN: Duration = Duration::from_millis(400);
/// Packets become due in groups of this time, so that several leave in one system call.
const PORTION: Duration = Duration::from_micros(500);
/// Packets overdue by more than this are not sent later.
const LONGEST_DEBT: Duration = Duration::from_millis(10);
const MAX_SEGMENTS: u64 = 40;

#[derive(Debug)]
pub(crate) struct Sender {
    request: Request,
    session: u64,
    header_bytes: u16,
    epoch: Instant,
    phase: Phase,
    phase_began: Instant,
    search: RateSearch,
    sequence: u64,
    paid_until: Instant,
    heard: Instant,
    /// Packets were due and the receiver silent: feedback wakes the caller, no time does.
    is_paused: bool,
    next_feedback: u32,
    filling: Vec<u8>,
}

impl Sender {
    /// `header_bytes` is the size of the IP and UDP headers of each payload, `filling` at least a packet of bytes that
    /// no link can compress.
    pub(crate) fn new(
        request: Request,
        max_rate: Bandwidth,
        session: u64,
        header_bytes: u16,
        filling: Vec<u8>,
        now: Instant,
    ) -> Self {
        Self {
            request,
            session,
            header_bytes,
            epoch: now,
            phase: Phase::Idle,
            phase_began: now,
            search: RateSearch::new(max_rate.min(request.max_rate)),
            sequence: 0,
            paid_until: now,
            heard: now,
            is_paused: false,
            next_feedback: 0,
            filling,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sequence
    }

    pub(crate) fn rate(&self) -> Bandwidth {
        match self.phase {
            Phase::Search | Phase::Saturated => self.search.rate(),
            Phase::Below => self.search.rate_below(),
            Phase::Idle | Phase::Done => Bandwidth::ZERO,
        }
    }

    /// Takes a feedback with a verified tag. One older than the newest is ignored and is no sign of life.
    pub(crate) fn handle_feedback(&mut self, now: Instant, feedback: &Feedback) {
        if feedback.number < self.next_feedback {
            return;
        }
        self.next_feedback = feedback.number.saturating_add(1);
        if self.is_silent(now) {
            self.paid_until = now;
        }
        (self.heard, self.is_paused) = (now, false);
        // Below the capacity feedback does not measure it.
        if matches!(self.phase, Phase::Search | Phase::Saturated) {
            let now_us = self.clock_us(now);
            self.search.on_feedback(now, now_us, feedback);
        }
    }

    /// The next packets that are due.
    pub(crate) fn poll_transmit(&mut self, now: Instant, mac: &Mac) -> Option<Transmit> {
        self.advance(now);
        let rate = self.rate();
        if rate == Bandwidth::ZERO {
            return None;
        }
        self.is_paused = self.is_silent(now);
        if self.is_paused {
            return None;
        }
        let packet = rate.time_to_send(u64::from(self.request.packet_bytes));
        // A single packet may take longer than that.
        let most = LONGEST_DEBT.max(packet);
        let owed = now.saturating_duration_since(self.paid_until);
        if owed < packet.max(PORTION) {
            return None;
        }
        if owed > most {
            self.paid_until = now.checked_sub(most).unwrap_or(now);
        }
        let owed = owed.min(most);
        let count = rate.bytes_in(owed) / u64::from(self.request.packet_bytes);
        let count = count
            .clamp(1, MAX_SEGMENTS)
            .min(self.segments_in_one_call());
        self.paid_until += rate.time_to_send(u64::from(self.request.packet_bytes) * count);
        Some(self.packets(count, now, mac))
    }

    /// When packets are due or the phase ends.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let rate = self.rate();
        let due = (rate != Bandwidth::ZERO && !self.is_paused).then(|| {
            let packet = rate.time_to_send(u64::from(self.request.packet_bytes));
            self.paid_until + packet.max(PORTION)
        });
        let phase_ends = self.phase_time().map(|time| self.phase_began + time);
        due.into_iter().chain(phase_ends).min()
    }

    fn is_silent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.heard) > SILENCE
    }

    fn clock_us(&self, now: Instant) -> u64 {
        let micros = now.saturating_duration_since(self.epoch).as_micros();
        u64::try_from(micros).unwrap_or(u64::MAX)
    }

    fn phase_time(&self) -> Option<Duration> {
        match self.phase {
            Phase::Idle => Some(IDLE),
            Phase::Search => Some(LONGEST_SEARCH),
            Phase::Below => Some(Duration::from_millis(self.request.loss_ms.into())),
            Phase::Saturated => Some(Duration::from_secs(self.request.seconds.into()) + MARGIN),
            Phase::Done => None,
        }
    }

    fn advance(&mut self, now: Instant) {
        let over = self
            .phase_time()
            .is_some_and(|time| now.saturating_duration_since(self.phase_began) >= time);
        let next = match self.phase {
            Phase::Idle if over => Phase::Search,
            Phase::Search if over || self.search.is_settled() => Phase::Below,
            Phase::Below if over => Phase::Saturated,
            Phase::Saturated if over => Phase::Done,
            same => same,
        };
        if next != self.phase {
            self.phase = next;
            self.phase_began = now;
            self.paid_until = now;
            if next == Phase::Saturated {
                self.search.resume(self.clock_us(now));
            }
        }
    }

    fn payload_bytes(&self) -> usize {
        usize::from(self.request.packet_bytes.saturating_sub(self.header_bytes))
    }

    fn segments_in_one_call(&self) -> u64 {
        u64::try_from(65_000 / self.payload_bytes().max(1))
            .unwrap_or(1)
            .max(1)
    }

    fn packets(&mut self, count: u64, now: Instant, mac: &Mac) -> Transmit {
        let sent_us = self.clock_us(now);
        let segment_bytes = self.payload_bytes();
        let mut contents = Vec::with_capacity(segment_bytes * usize::try_from(count).unwrap_or(1));
        for _ in 0..count {
            let data = Data {
                session: self.session,
                phase: self.phase,
                sequence: self.sequence,
                sent_us,
            };
            self.sequence += 1;
            let head = Message::Data(data).seal(mac);
            contents.extend(&head);
            let rest = segment_bytes.saturating_sub(head.len());
            contents.extend(self.filling.iter().cycle().take(rest));
        }
        Transmit {
            contents,
            segment_bytes,
        }
    }
}
