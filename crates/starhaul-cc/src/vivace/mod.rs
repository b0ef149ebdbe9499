//! PCC Vivace (Dong et al., NSDI 2018), with its latency-aware utility: two pairs of monitor intervals find the
//! direction in which the utility rises, and the rate moves that way along the gradient, interval by interval, as long
//! as the utility rises. Where the paper leaves the order of steps open, this follows the authors' code (PCC-Uspace).

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
mod trial;

use interval::{Intervals, Outcome};
use step::Stepper;
use trial::{Trial, slope};

/// The window holds this many RTTs of the rate, as in PCC-Kernel; it limits only dead paths.
const WINDOW_ROUNDS: f64 = 2.0;
const MIN_WINDOW_PACKETS: u64 = 4;
/// Loss beyond this share is no loss that the utility is meant to tolerate (up to 5 %, §4.1).
const HEAVY_LOSS: f64 = 0.1;
/// RTT assumed before the first sample.
const ASSUMED_RTT: Duration = Duration::from_millis(100);
/// Lower bound of the rate, so that a path assumed dead is still probed.
const MIN_MBIT: f64 = 0.05;
const MAX_MBIT: f64 = 1e6;

/// The controller: online learning of the rate.
#[derive(Clone, Debug)]
pub(crate) struct Vivace {
    max_datagram_bytes: u64,
    rtt: SmoothedRtt,
    /// The base rate, in Mbit/s.
    mbit: f64,
    phase: Phase,
    intervals: Intervals,
    stepper: Stepper,
    newest_sent: u64,
    started: bool,
}

/// The phase, which sets the purpose of the next intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The rate doubles while the utility rises.
    Starting { best: Option<Outcome> },
    /// Trials find the direction.
    Probing(Trial),
    /// The rate moves from `last` while the utility rises.
    Moving { upwards: bool, last: Outcome },
}

/// The purpose of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Starting,
    /// An interval of the trial, by its number.
    Trial(u8),
    Moving,
    /// Sending continues while results are outstanding.
    Waiting,
}

impl Vivace {
    /// Creates a controller in its starting phase, for packets of at most `mtu_bytes`.
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
        let stuck = self.intervals.is_full() || self.intervals.drop_unsent();
        if stuck && let Phase::Probing(_) = self.phase {
            // The trial would never be complete without it.
            self.intervals.forget();
            self.phase = Phase::Probing(self.new_trial());
        } else if stuck {
            self.intervals.forget();
        }
        let (purpose, share) = self.next_purpose();
        self.intervals.begin(now, purpose, self.mbit * share);
    }

    /// The purpose of the next interval, and its rate relative to the base rate.
    fn next_purpose(&mut self) -> (Purpose, f64) {
        let only = match &mut self.phase {
            Phase::Probing(trial) => {
                let purpose = trial.next();
                let share = match purpose {
                    Purpose::Trial(number) => trial.share(number),
                    _ => 1.0,
                };
                return (purpose, share);
            }
            Phase::Starting { .. } => Purpose::Starting,
            Phase::Moving { .. } => Purpose::Moving,
        };
        let waits = self.intervals.awaits(only);
        (if waits { Purpose::Waiting } else { only }, 1.0)
    }

    fn take_outcomes(&mut self, now: Instant) {
        while let Some((purpose, outcome)) = self.intervals.next_outcome() {
            match (&mut self.phase, purpose) {
                (Phase::Starting { best }, Purpose::Starting) => {
                    let best = *best;
                    self.start(now, best, outcome);
                }
                (Phase::Probing(trial), Purpose::Trial(number)) => {
                    let complete = trial.take(number, outcome);
                    let trial = *trial;
                    match outcome.filter(|outcome| outcome.loss > HEAVY_LOSS) {
                        Some(outcome) => self.flee(now, outcome),
                        None if complete => self.decide(now, &trial),
                        None => {}
                    }
                }
                (Phase::Moving { upwards, last }, Purpose::Moving) => {
                    let (upwards, last) = (*upwards, *last);
                    self.go_on(now, upwards, last, outcome);
                }
                _ => {}
            }
        }
    }

    /// §4.1: doubles until the utility falls, then goes back to the rate before.
    fn start(&mut self, now: Instant, best: Option<Outcome>, outcome: Option<Outcome>) {
        let Some(outcome) = outcome else {
            // The application had too little to send: there is no result for this rate.
            return self.begin_interval(now);
        };
        match best {
            None if outcome.utility <= 0.0 => {
                self.set_mbit(outcome.mbit / 2.0);
                self.probe(now);
            }
            Some(best) if outcome.utility <= best.utility => {
                self.mbit = best.mbit;
                self.probe(now);
            }
            _ => {
                self.phase = Phase::Starting {
                    best: Some(outcome),
                };
                self.set_mbit(2.0 * outcome.mbit);
                self.begin_interval(now);
            }
        }
    }

    /// Takes the first step, or begins another trial when this one was inconclusive.
    fn decide(&mut self, now: Instant, trial: &Trial) {
        let Some(finding) = trial.finding() else {
            return self.probe(now);
        };
        self.stepper = Stepper::default();
        self.step(now, finding.gradient, finding.middle);
    }

    /// Reduces the rate at once: loss far beyond random loss lowers the utility at any rate (§4.1), and with a full
    /// queue the rest of the trial would take long.
    fn flee(&mut self, now: Instant, from: Outcome) {
        self.intervals.forget();
        self.stepper = Stepper::default();
        self.step(now, from.gradient_of_loss(), from);
    }

    /// Takes another step, or returns to the last rate when the utility fell.
    fn go_on(&mut self, now: Instant, upwards: bool, last: Outcome, outcome: Option<Outcome>) {
        let Some(outcome) = outcome else {
            return self.begin_interval(now);
        };
        match slope(outcome, last) {
            Some(gradient) if (gradient > 0.0) == upwards => self.step(now, gradient, outcome),
            _ => {
                self.set_mbit(last.mbit);
                self.probe(now);
            }
        }
    }

    fn step(&mut self, now: Instant, gradient: f64, from: Outcome) {
        let step = self.stepper.step(gradient, from.mbit);
        self.set_mbit(from.mbit + step);
        self.phase = Phase::Moving {
            upwards: gradient > 0.0,
            last: from,
        };
        self.begin_interval(now);
    }

    fn probe(&mut self, now: Instant) {
        self.phase = Phase::Probing(self.new_trial());
        self.begin_interval(now);
    }

    /// The order must differ between flows; the packet number replaces a random number.
    fn new_trial(&self) -> Trial {
        Trial::new(self.newest_sent.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 62)
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
        bytes: u64,
        _bytes_in_flight: u64,
        app_limited: bool,
    ) {
        self.newest_sent = self.newest_sent.max(packet_number);
        let rtt = self.rtt.smoothed().unwrap_or(ASSUMED_RTT);
        if self.intervals.is_over(now, rtt) {
            self.begin_interval(now);
        }
        self.intervals
            .on_packet_sent(packet_number, bytes, app_limited);
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

    /// Losses count in the interval that sent the packets. When no packet gets through, no interval has a result: halve
    /// the rate and start a trial.
    fn on_congestion_event(&mut self, event: CongestionEvent) {
        if event.persistent {
            self.set_mbit(self.mbit / 2.0);
            self.intervals.forget();
            self.probe(event.now);
        }
    }

    /// The losses have been counted already; the next trial gives a new result.
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
            Phase::Moving { .. } => "moving",
        }
    }
}
