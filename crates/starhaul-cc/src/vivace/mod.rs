//! PCC Vivace (Dong et al., NSDI 2018), with its latency-aware utility: sends a little more and a
//! little less in two monitor intervals and steps along the gradient of the utility they showed.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use crate::{
    AckedPacket, CongestionEvent, Controller, LostPacket,
    limits::{
        MAX_CWND_BYTES, MAX_PACING_RATE, MIN_PACING_RATE, clamp_rate, initial_window,
        max_datagram_bytes,
    },
    rtt::{SmoothedRtt, rtt_sample},
};

mod gradient;
mod interval;
mod step;

use interval::{Intervals, Outcome};
use step::Stepper;

/// §4.1: how far apart the two rates of a pair are from the one in the middle.
const PROBE_SHARE: f64 = 0.05;
/// The window only keeps a dead path from being filled: so many round trips of the rate.
const WINDOW_ROUNDS: f64 = 3.0;
const MIN_WINDOW_PACKETS: u64 = 4;
/// Before the first sample.
const ASSUMED_RTT: Duration = Duration::from_millis(100);
/// Bounds of the rate, so that a path believed dead is still tried.
const MIN_MBIT: f64 = 0.05;
const MAX_MBIT: f64 = 1e6;

/// Online learning of the rate.
#[derive(Clone, Debug)]
pub(crate) struct Vivace {
    max_datagram_bytes: u64,
    rtt: SmoothedRtt,
    /// The rate in the middle, in Mbit/s.
    mbit: f64,
    phase: Phase,
    intervals: Intervals,
    stepper: Stepper,
    newest_sent: u64,
    started: bool,
}

/// What the intervals to come are for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The rate doubles as long as that raises the utility.
    Starting { best: Option<Outcome> },
    /// A pair of intervals is sent or waited for.
    Probing(Pair),
}

/// The higher and the lower rate, in either order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Pair {
    higher_first: bool,
    sent: u8,
    /// How many of the two told what they showed.
    told: u8,
    higher: Option<Outcome>,
    lower: Option<Outcome>,
}

/// Why an interval is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Starting,
    Higher,
    Lower,
    /// To send on while results are awaited.
    Waiting,
}

impl Vivace {
    /// A controller in its starting phase, for packets of at most `mtu_bytes`.
    pub(crate) fn new(mtu_bytes: u16) -> Self {
        let max_datagram_bytes = max_datagram_bytes(mtu_bytes);
        let first = Bandwidth::from_bytes_over(initial_window(max_datagram_bytes), ASSUMED_RTT);
        Self {
            max_datagram_bytes,
            rtt: SmoothedRtt::default(),
            mbit: first.mbit(),
            phase: Phase::Starting { best: None },
            intervals: Intervals::new(),
            stepper: Stepper::default(),
            newest_sent: 0,
            started: false,
        }
    }

    fn begin_interval(&mut self, now: Instant) {
        if self.intervals.is_full() {
            self.intervals.forget();
            if let Phase::Probing(pair) = &mut self.phase {
                *pair = Pair::default();
            }
        }
        let dropped = self.intervals.drop_unsent();
        if let Some(Purpose::Higher | Purpose::Lower) = dropped
            && let Phase::Probing(pair) = &mut self.phase
        {
            // One of a pair would be missing for ever.
            *pair = Pair::default();
        }
        let purpose = self.next_purpose();
        let share = match purpose {
            Purpose::Higher => 1.0 + PROBE_SHARE,
            Purpose::Lower => 1.0 - PROBE_SHARE,
            Purpose::Starting | Purpose::Waiting => 1.0,
        };
        self.intervals.begin(now, purpose, self.mbit * share);
    }

    fn next_purpose(&mut self) -> Purpose {
        match &mut self.phase {
            Phase::Starting { .. } if self.intervals.awaits(Purpose::Starting) => Purpose::Waiting,
            Phase::Starting { .. } => Purpose::Starting,
            Phase::Probing(pair) => {
                let higher = (pair.sent == 0) == pair.higher_first;
                pair.sent = pair.sent.saturating_add(1);
                match pair.sent {
                    1 | 2 if higher => Purpose::Higher,
                    1 | 2 => Purpose::Lower,
                    _ => Purpose::Waiting,
                }
            }
        }
    }

    fn take_outcomes(&mut self, now: Instant) {
        while let Some((purpose, outcome)) = self.intervals.next_outcome() {
            match (&mut self.phase, purpose) {
                (Phase::Starting { .. }, Purpose::Starting) => self.start(now, outcome),
                (Phase::Probing(pair), Purpose::Higher | Purpose::Lower) => {
                    if purpose == Purpose::Higher {
                        pair.higher = outcome;
                    } else {
                        pair.lower = outcome;
                    }
                    pair.told += 1;
                    if pair.told == 2 {
                        let pair = *pair;
                        self.decide(now, pair);
                    }
                }
                _ => {}
            }
        }
    }

    /// §4.1: doubles until the utility falls, then goes back to the rate before.
    fn start(&mut self, now: Instant, outcome: Option<Outcome>) {
        let Phase::Starting { best } = &mut self.phase else {
            return;
        };
        let Some(outcome) = outcome else {
            // The application had too little to send: nothing is known of this rate.
            return;
        };
        match best {
            None if outcome.utility <= 0.0 => {
                self.set_mbit(outcome.mbit / 2.0);
                self.begin_pair(now);
            }
            Some(best) if outcome.utility <= best.utility => {
                self.mbit = best.mbit;
                self.begin_pair(now);
            }
            _ => {
                *best = Some(outcome);
                self.set_mbit(2.0 * outcome.mbit);
                self.begin_interval(now);
            }
        }
    }

    /// A step along the gradient, or none when the application had too little to send in either.
    fn decide(&mut self, now: Instant, pair: Pair) {
        if let (Some(higher), Some(lower)) = (pair.higher, pair.lower) {
            let gradient = (higher.utility - lower.utility) / (higher.mbit - lower.mbit);
            let step = self.stepper.step(gradient, self.mbit);
            self.set_mbit(self.mbit + step);
        }
        self.begin_pair(now);
    }

    fn begin_pair(&mut self, now: Instant) {
        self.phase = Phase::Probing(Pair {
            // Chance keeps flows from probing alike; the packet number stands in for it.
            higher_first: self.newest_sent.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63 == 0,
            ..Pair::default()
        });
        self.begin_interval(now);
    }

    fn set_mbit(&mut self, mbit: f64) {
        self.mbit = if mbit.is_nan() {
            MIN_MBIT
        } else {
            mbit.clamp(MIN_MBIT, MAX_MBIT)
        };
    }

    fn rate(&self) -> Bandwidth {
        let mbit = self.intervals.mbit().unwrap_or(self.mbit);
        clamp_rate(Bandwidth::from_mbit(1).scaled(mbit)).clamp(MIN_PACING_RATE, MAX_PACING_RATE)
    }
}

impl Controller for Vivace {
    fn on_packet_sent(
        &mut self,
        now: Instant,
        packet_number: u64,
        _bytes: u64,
        _bytes_in_flight: u64,
        app_limited: bool,
    ) {
        self.newest_sent = self.newest_sent.max(packet_number);
        let rtt = self.rtt.smoothed().unwrap_or(ASSUMED_RTT);
        if self.intervals.is_over(now, rtt) {
            self.begin_interval(now);
        }
        self.intervals.on_packet_sent(packet_number, app_limited);
    }

    fn on_ack(&mut self, packet: AckedPacket) {
        if !self.intervals.on_ack(&packet) {
            return;
        }
        self.rtt.on_ack(&packet);
        if !self.started {
            self.started = true;
            let window = initial_window(self.max_datagram_bytes);
            self.set_mbit(Bandwidth::from_bytes_over(window, rtt_sample(&packet)).mbit());
            self.begin_interval(packet.now);
        }
    }

    fn on_end_of_acks(&mut self, now: Instant, _bytes_in_flight: u64) {
        self.rtt.on_end_of_acks();
        self.take_outcomes(now);
    }

    fn on_packet_lost(&mut self, packet: LostPacket) {
        self.intervals.on_packet_lost(packet.packet_number);
    }

    /// Losses count where their packets were sent. When nothing gets through any more, no interval
    /// can tell: half the rate, and what was learned of steps is void.
    fn on_congestion_event(&mut self, event: CongestionEvent) {
        if event.persistent {
            self.set_mbit(self.mbit / 2.0);
            self.stepper = Stepper::default();
            self.intervals.forget();
            self.begin_pair(event.now);
        }
    }

    /// The losses were counted already, and the next pair will tell.
    fn on_spurious_congestion_event(&mut self, _now: Instant) {}

    fn on_mtu_update(&mut self, mtu_bytes: u16) {
        self.max_datagram_bytes = max_datagram_bytes(mtu_bytes);
    }

    fn cwnd(&self) -> u64 {
        let rtt = self.rtt.smoothed().unwrap_or(ASSUMED_RTT);
        let least = initial_window(self.max_datagram_bytes)
            .max(MIN_WINDOW_PACKETS * self.max_datagram_bytes);
        self.rate()
            .scaled(WINDOW_ROUNDS)
            .bytes_in(rtt)
            .clamp(least, MAX_CWND_BYTES)
    }

    fn pacing_rate(&self) -> Option<Bandwidth> {
        Some(self.rate())
    }

    fn bandwidth_estimate(&self) -> Option<Bandwidth> {
        self.started
            .then(|| clamp_rate(Bandwidth::from_mbit(1).scaled(self.mbit)))
    }

    fn name(&self) -> &'static str {
        "vivace"
    }

    fn state(&self) -> &'static str {
        match self.phase {
            Phase::Starting { .. } => "starting",
            Phase::Probing(_) => "probing",
        }
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
