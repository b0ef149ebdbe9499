//! Loss detection and probe timeouts of a sender (RFC 9002 §6, §7.6), and its calls of the controller.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use starhaul_cc::{AckedPacket, CongestionEvent, LostPacket, PathController};

use crate::{Ack, PACKET_BYTES, rtt::RttEstimator};

/// Packet threshold (RFC 9002 §6.1.1).
const PACKET_THRESHOLD: u64 = 3;
/// Persistent congestion threshold (RFC 9002 §7.6.1).
const PERSISTENT_CONGESTION_THRESHOLD: u32 = 3;
/// Probes per timeout; RFC 9002 §6.2.4 allows one or two.
const PROBES_PER_TIMEOUT: u32 = 2;
/// Greatest exponent of the backoff; a longer wait exceeds any experiment.
const MAX_BACKOFF: u32 = 10;

/// Counters of a sender's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryStats {
    /// Packets that were sent.
    pub sent: u64,
    /// Packets acknowledged before they were declared lost.
    pub acked: u64,
    /// Packets declared lost.
    pub lost: u64,
    /// Packets declared lost and acknowledged later.
    pub spurious: u64,
    /// Probe timeouts that expired.
    pub timeouts: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketState {
    InFlight,
    Acked,
    /// Declared lost at this instant.
    Lost(Instant),
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    chunk: u64,
    fate: PacketState,
}

/// Packets with open fate, and the timers that decide it.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    max_ack_delay: Duration,
    rtt: RttEstimator,
    /// Sent packets from number `first` on.
    sent: VecDeque<Sent>,
    first: u64,
    /// No packet below this number is in flight.
    oldest_in_flight: u64,
    in_flight: u64,
    greatest_acked: Option<u64>,
    last_sent: Option<Instant>,
    loss_time: Option<Instant>,
    backoff: u32,
    /// Number of packets declared lost that may still be acknowledged.
    doubtful: u64,
    newly_acked: Vec<u64>,
    /// The ranges of the last acknowledgement; the next one repeats most of them.
    known: Vec<(u64, u64)>,
    stats: RecoveryStats,
}

/// What a sender has to do after an acknowledgement or a timeout.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Data chunks to retransmit.
    pub(crate) lost_chunks: Vec<u64>,
    /// Packets to send regardless of the window.
    pub(crate) probes: u32,
    /// The RTT of the newest packet acknowledged now.
    pub(crate) rtt: Option<Duration>,
}

impl Recovery {
    pub(crate) fn new(max_ack_delay: Duration) -> Self {
        Self {
            max_ack_delay,
            rtt: RttEstimator::default(),
            sent: VecDeque::new(),
            first: 0,
            oldest_in_flight: 0,
            in_flight: 0,
            greatest_acked: None,
            last_sent: None,
            loss_time: None,
            backoff: 0,
            doubtful: 0,
            newly_acked: Vec::new(),
            known: Vec::new(),
            stats: RecoveryStats::default(),
        }
    }

    /// Records a packet sent now; returns its number.
    pub(crate) fn on_sent(&mut self, now: Instant, chunk: u64) -> u64 {
        let number = self.next_number();
        self.sent.push_back(Sent {
            at: now,
            chunk,
            fate: PacketState::InFlight,
        });
        self.in_flight += 1;
        self.last_sent = Some(now);
        self.stats.sent += 1;
        number
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.in_flight * PACKET_BYTES
    }

    pub(crate) fn in_flight(&self) -> impl Iterator<Item = u64> + '_ {
        let numbered = (self.first..).zip(&self.sent);
        numbered
            .filter(|(_, sent)| sent.fate == PacketState::InFlight)
            .map(|(number, _)| number)
    }

    pub(crate) fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    pub(crate) fn stats(&self) -> RecoveryStats {
        self.stats
    }

    /// The chunk of the oldest packet in flight, for a probe of a sender without new data.
    pub(crate) fn oldest_chunk(&self) -> Option<u64> {
        self.get(self.oldest_in_flight).map(|sent| sent.chunk)
    }

    /// The time at which [`Recovery::on_timeout`] is due.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        if self.in_flight == 0 {
            return None;
        }
        self.loss_time.or_else(|| {
            let wait = self.rtt.probe_timeout(self.max_ack_delay) * (1 << self.backoff);
            self.last_sent.map(|sent| sent + wait)
        })
    }

    /// Takes an acknowledgement; packet numbers that were never sent are ignored.
    pub(crate) fn on_ack(&mut self, now: Instant, ack: &Ack, path: &mut PathController) -> Outcome {
        let mut outcome = Outcome::default();
        let Some(greatest) = ack.ranges.first().map(|range| range.1) else {
            return outcome;
        };
        if greatest >= self.next_number() {
            return outcome;
        }
        self.collect_newly_acked(ack);
        let newly_acked = std::mem::take(&mut self.newly_acked);
        if newly_acked.last() == Some(&greatest)
            && let Some(sent) = self.get(greatest)
        {
            let sample = now.saturating_duration_since(sent.at);
            outcome.rtt = Some(sample);
            self.rtt.update(sample, ack.delay.min(self.max_ack_delay));
        }
        let mut doubts_ended = false;
        for &number in &newly_acked {
            doubts_ended |= self.on_acked(now, number, path);
        }
        if doubts_ended && self.doubtful == 0 {
            path.controller_mut().on_spurious_congestion_event(now);
        }
        if !newly_acked.is_empty() {
            self.backoff = 0;
            self.greatest_acked = self.greatest_acked.max(Some(greatest));
            path.controller_mut()
                .on_end_of_acks(now, self.bytes_in_flight());
            self.detect_losses(now, path, &mut outcome);
            self.forget(now);
        }
        self.newly_acked = newly_acked;
        outcome
    }

    pub(crate) fn on_timeout(&mut self, now: Instant, path: &mut PathController) -> Outcome {
        let mut outcome = Outcome::default();
        if self.timeout().is_none_or(|at| at > now) {
            return outcome;
        }
        if self.loss_time.is_some() {
            self.detect_losses(now, path, &mut outcome);
        } else {
            self.stats.timeouts += 1;
            self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
            outcome.probes = PROBES_PER_TIMEOUT;
        }
        outcome
    }

    /// Collects newly acknowledged numbers in ascending order, without those of the last acknowledgement.
    fn collect_newly_acked(&mut self, ack: &Ack) {
        self.newly_acked.clear();
        let mut known = self.known.iter().rev().peekable();
        let mut fresh = Vec::new();
        for &(low, high) in ack.ranges.iter().rev() {
            let mut from = low.max(self.first);
            while let Some(&&(known_low, known_high)) = known.peek()
                && known_low <= high
            {
                if from < known_low {
                    fresh.push((from, known_low - 1));
                }
                from = from.max(known_high.saturating_add(1));
                if known_high > high {
                    break;
                }
                known.next();
            }
            if from <= high {
                fresh.push((from, high));
            }
        }
        for (low, high) in fresh {
            for number in low..=high {
                if self
                    .get(number)
                    .is_some_and(|sent| sent.fate != PacketState::Acked)
                {
                    self.newly_acked.push(number);
                }
            }
        }
        self.known.clone_from(&ack.ranges);
    }

    /// Returns whether the packet had been declared lost.
    fn on_acked(&mut self, now: Instant, number: u64, path: &mut PathController) -> bool {
        let Some(sent) = self.get_mut(number) else {
            return false;
        };
        let (at, before) = (
            sent.at,
            std::mem::replace(&mut sent.fate, PacketState::Acked),
        );
        if before != PacketState::InFlight {
            self.doubtful = self.doubtful.saturating_sub(1);
            self.stats.spurious += 1;
            return true;
        }
        self.in_flight -= 1;
        self.stats.acked += 1;
        path.on_ack(AckedPacket {
            now,
            sent: at,
            packet_number: number,
            bytes: PACKET_BYTES,
        });
        false
    }

    fn detect_losses(&mut self, now: Instant, path: &mut PathController, outcome: &mut Outcome) {
        self.loss_time = None;
        let Some(greatest_acked) = self.greatest_acked else {
            return;
        };
        let loss_delay = self.rtt.loss_delay();
        let mut losses = Losses::default();
        let mut number = self.oldest_in_flight;
        let mut oldest_in_flight = None;
        while let Some(sent) = self.get_mut(number) {
            if sent.fate == PacketState::InFlight {
                let overdue = sent.at + loss_delay;
                let lost = number < greatest_acked
                    && (number + PACKET_THRESHOLD <= greatest_acked || overdue <= now);
                if !lost {
                    oldest_in_flight = Some(number);
                    if number < greatest_acked {
                        self.loss_time = Some(overdue);
                    }
                    break;
                }
                sent.fate = PacketState::Lost(now);
                let (at, chunk) = (sent.at, sent.chunk);
                losses.add(number, at);
                outcome.lost_chunks.push(chunk);
                self.in_flight -= 1;
                self.doubtful += 1;
                path.controller_mut().on_packet_lost(LostPacket {
                    now,
                    packet_number: number,
                    bytes: PACKET_BYTES,
                });
            }
            number += 1;
        }
        self.oldest_in_flight = oldest_in_flight.unwrap_or_else(|| self.next_number());
        self.stats.lost += losses.count;
        if let Some(sent) = losses.newest {
            path.controller_mut().on_congestion_event(CongestionEvent {
                now,
                sent,
                persistent: losses.longest_run > self.persistent_after(),
                ecn: false,
                lost_bytes: losses.count * PACKET_BYTES,
            });
        }
    }

    fn persistent_after(&self) -> Duration {
        if self.rtt.smoothed().is_none() {
            return Duration::MAX;
        }
        self.rtt.probe_timeout(self.max_ack_delay) * PERSISTENT_CONGESTION_THRESHOLD
    }

    /// Drops packets with a final fate: acknowledged, or lost too long ago to arrive.
    fn forget(&mut self, now: Instant) {
        let patience = self.rtt.probe_timeout(self.max_ack_delay) * 2;
        while let Some(sent) = self.sent.front() {
            match sent.fate {
                PacketState::Acked => {}
                PacketState::Lost(since) if now.saturating_duration_since(since) > patience => {
                    self.doubtful = self.doubtful.saturating_sub(1);
                }
                _ => break,
            }
            self.sent.pop_front();
            self.first += 1;
        }
        self.oldest_in_flight = self.oldest_in_flight.max(self.first);
    }

    fn get(&self, number: u64) -> Option<&Sent> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.sent.get(index)
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Sent> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.sent.get_mut(index)
    }
}

/// The losses found at one instant.
#[derive(Debug, Default)]
struct Losses {
    count: u64,
    newest: Option<Instant>,
    /// Number and send time of the last lost packet, and the send time of the first in its contiguous run.
    run: Option<(u64, Instant)>,
    longest_run: Duration,
}

impl Losses {
    fn add(&mut self, number: u64, sent: Instant) {
        self.count += 1;
        self.newest = Some(sent);
        let began = match self.run {
            Some((last, began)) if last + 1 == number => began,
            _ => sent,
        };
        self.run = Some((number, began));
        self.longest_run = self.longest_run.max(sent.saturating_duration_since(began));
    }
}
