//! Detects reconfigurations from the timing of probe responses (LeoCC §4.1.1): each causes an outage of 45–135 ms
//! between the terminal and the nearest stable address behind the satellite.
//!
//! Sans-IO: the caller sends a small probe at [`Detector::next_probe`] and reports it and its response. One detector
//! serves all flows of a host.

mod chance;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use chance::ChanceLoss;

use crate::{Reconfiguration, ReconfigurationSource, Schedule};

/// Greatest number of outstanding probes; older ones count as lost.
const MAX_OUTSTANDING: usize = 512;
/// Number of responses over which the least RTT is taken.
const RTT_SAMPLES: usize = 64;
/// Probes are delayed by varying amounts of up to this share of their interval: probes in phase with the queue would
/// always or never find it full (RFC 2330 §11.1.1).
const DITHER: f64 = 0.1;
/// Multiples of it, modulo 1, are spread evenly and are far from their predecessors.
const GOLDEN_RATIO: f64 = 0.618_033_988_749_895;
/// This close to a time of the timetable a shorter silence counts.
const SCHEDULE_MARGIN: Duration = Duration::from_millis(400);
const SCHEDULED_THRESHOLD_SHARE: f64 = 0.7;
/// Confidence in a silence of the threshold's length, and in one of twice that length or more.
const CONFIDENCE: (f64, f64) = (0.6, 0.95);
/// More reconfigurations than this in so long are none: no operator moves a terminal each three seconds (OneWeb's 11 s are the least), while
/// bursts of other traffic before a slow link, or a link that delivers in bursts, are as silent again and again.
const MOST_PLAUSIBLE: usize = 20;
const PLAUSIBLE_IN: Duration = Duration::from_secs(60);
/// The confidence in one more is this part of what it would be: then it is no news to a controller.
const IMPLAUSIBLE_SHARE: f64 = 0.5;

/// Parameters of a [`Detector`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DetectorConfig {
    /// Time between two probes.
    pub probe_interval: Duration,
    /// The same while no flow is active that a reconfiguration could concern ([`Detector::rest`]).
    pub idle_interval: Duration,
    /// Δ_outage: a longer silence is a reconfiguration.
    pub outage_threshold: Duration,
    /// Minimum time between two reconfigurations: packets dropped by a full queue right after an outage look like a
    /// second one.
    pub refractory: Duration,
    /// The operator's timetable, if known.
    pub schedule: Option<Schedule>,
}

impl DetectorConfig {
    /// Describes an invalid value for people; `None` when the parameters are valid.
    pub fn problem(&self) -> Option<&'static str> {
        (self.outage_threshold < 3 * self.probe_interval)
            .then_some("an outage has to be as long as three intervals, or each lost probe is one")
    }
}

impl DetectorConfig {
    /// LeoCC §5.1: a probe each 10 ms, Δ_outage 45 ms. Refractory time 500 ms, no timetable, and a probe each second
    /// while at rest.
    pub const DEFAULT: Self = Self {
        probe_interval: Duration::from_millis(10),
        idle_interval: Duration::from_secs(1),
        outage_threshold: Duration::from_millis(45),
        refractory: Duration::from_millis(500),
        schedule: None,
    };
}

impl Default for DetectorConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Detects outages in the responses of one prober.
#[derive(Clone, Debug)]
pub struct Detector {
    config: DetectorConfig,
    /// The time of the next probe, before dithering.
    next_time: Instant,
    next_sequence: u64,
    resting: bool,
    /// Sequence number and send time of each outstanding probe, in order of sending.
    outstanding: VecDeque<(u64, Instant)>,
    /// The first of a silence that is no longer among them.
    first_forgotten: Option<(u64, Instant)>,
    last_response: Option<Instant>,
    newest_answered: Option<u64>,
    rtts: VecDeque<Duration>,
    chance: ChanceLoss,
    /// The last ones found, up to [`MOST_PLAUSIBLE`], in order.
    found: VecDeque<Instant>,
}

impl Detector {
    /// Creates a detector whose first probe is due at `now`.
    pub fn new(config: DetectorConfig, now: Instant) -> Self {
        Self {
            config,
            next_time: now,
            next_sequence: 0,
            resting: false,
            outstanding: VecDeque::new(),
            first_forgotten: None,
            last_response: None,
            newest_answered: None,
            rtts: VecDeque::new(),
            chance: ChanceLoss::default(),
            found: VecDeque::new(),
        }
    }

    /// When the next probe is due.
    pub fn next_probe(&self) -> Instant {
        self.next_time + self.dither()
    }

    /// Records that a probe leaves at `now`; it must carry the returned sequence number.
    ///
    /// Missed probes are not sent later: probes sent together give no more information.
    pub fn on_probe_sent(&mut self, now: Instant) -> u64 {
        let interval = match self.resting {
            true => self.config.idle_interval.max(self.config.probe_interval),
            false => self.config.probe_interval,
        };
        let due = self.next_time + interval;
        self.next_time = if due > now { due } else { now + interval };
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.outstanding.push_back((sequence, now));
        if self.outstanding.len() > MAX_OUTSTANDING
            && let Some(forgotten) = self.outstanding.pop_front()
        {
            // The first one of a long silence tells when that began.
            let answered = self.newest_answered;
            let is_of_this_silence = |(sequence, _): &(u64, Instant)| Some(*sequence) > answered;
            self.first_forgotten = self
                .first_forgotten
                .filter(is_of_this_silence)
                .or(Some(forgotten));
        }
        sequence
    }

    /// Stops frequent probing while no flow is active: probes leave each [`DetectorConfig::idle_interval`], and
    /// unanswered ones indicate no outage.
    pub fn rest(&mut self) {
        self.resting = true;
        self.forget_answers();
    }

    /// A flow is active again: the next probe is due about `now`; probes unanswered during rest are ignored.
    pub fn resume(&mut self, now: Instant) {
        self.resting = false;
        self.next_time = now;
        self.forget_answers();
    }

    fn dither(&self) -> Duration {
        let number = f64::from(u16::try_from(self.next_sequence % 4_096).unwrap_or(0));
        let share = DITHER * (number * GOLDEN_RATIO).fract();
        self.config.probe_interval.mul_f64(share)
    }

    /// The far end did not know this prober for a while, and does now: the silence so far is none of the path.
    pub fn excuse_silence(&mut self) {
        self.forget_answers();
    }

    /// Discards outstanding probes and the response times; RTTs are kept.
    fn forget_answers(&mut self) {
        self.outstanding.clear();
        self.first_forgotten = None;
        self.last_response = None;
        self.newest_answered = None;
    }

    /// Probe `sequence` left this host at `at` (the kernel's timestamp), a little after [`Detector::on_probe_sent`].
    pub fn on_probe_left(&mut self, at: Instant, sequence: u64) {
        let found = self
            .outstanding
            .binary_search_by_key(&sequence, |(sequence, _)| *sequence);
        if let Some((_, sent)) = found.ok().and_then(|found| self.outstanding.get_mut(found)) {
            *sent = at.max(*sent);
        }
    }

    /// Probe `sequence` could not be sent: a missing response indicates no outage.
    pub fn on_probe_refused(&mut self, sequence: u64) {
        let found = self
            .outstanding
            .binary_search_by_key(&sequence, |(sequence, _)| *sequence);
        if let Ok(found) = found {
            self.outstanding.remove(found);
        }
    }

    /// Sets or clears the operator's timetable; call it again after the wall clock was set.
    pub fn set_schedule(&mut self, schedule: Option<Schedule>) {
        self.config.schedule = schedule;
    }

    /// Takes the response to probe `sequence`, which arrived at `received` (the kernel's timestamp where there is one).
    /// Returns the reconfiguration that it ends, if any. Responses to unknown probes, and duplicates, are ignored.
    pub fn on_response(&mut self, received: Instant, sequence: u64) -> Option<Reconfiguration> {
        let at = self
            .outstanding
            .binary_search_by_key(&sequence, |(sequence, _)| *sequence)
            .ok()?;
        let (_, sent) = self.outstanding.remove(at)?;
        let silence = self.silence_until(received);
        let lost = self.unanswered(|of_it, _| of_it < sequence);
        let overtaken = self.newest_answered.is_some_and(|newest| newest > sequence);
        self.newest_answered = self.newest_answered.max(Some(sequence));
        self.last_response = self.last_response.max(Some(received));
        self.forget_overtaken();
        let rtt = received.saturating_duration_since(sent);
        if self.rtts.len() == RTT_SAMPLES {
            self.rtts.pop_front();
        }
        self.rtts.push_back(rtt);
        let by_chance = self.explained(lost);
        let found = silence.and_then(|silence| self.judge(received, silence, by_chance));
        match (overtaken, &found) {
            (true, _) => self.chance.on_overtaken(),
            (false, None) => self.chance.on_answer(lost),
            // The outage lost these probes.
            (false, Some(_)) => self.chance.on_answer(0),
        }
        found
    }

    /// The response interval so far if it exceeds Δ_outage while probes are outstanding: an outage has begun and not
    /// ended.
    pub fn outage_in_progress(&self, now: Instant) -> Option<Duration> {
        let best_rtt = self.best_rtt();
        let by_chance = self.explained(self.unanswered(|_, sent| sent + best_rtt < now));
        self.silence_until(now)
            .filter(|silence| silence.saturating_sub(by_chance) > self.config.outage_threshold)
    }

    /// The median RTT of the last probes: the RTT of the satellite segment (LeoCC §4.3's RTT_term-PoP).
    pub fn segment_rtt(&self) -> Option<Duration> {
        let mut rtts: Vec<Duration> = self.rtts.iter().copied().collect();
        let middle = rtts.len() / 2;
        if rtts.is_empty() {
            return None;
        }
        Some(*rtts.select_nth_unstable(middle).1)
    }

    /// The response interval that a response at `until` ends, less the lateness of our own probes: silence begins when
    /// the response to the first unanswered probe was due. `None` when no probe is outstanding.
    fn silence_until(&self, until: Instant) -> Option<Duration> {
        if self.resting {
            return None;
        }
        let last = self.last_response?;
        let newest_answered = self.newest_answered?;
        let unanswered = self.first_forgotten.iter().chain(&self.outstanding);
        let (_, sent) = { unanswered }.find(|(sequence, _)| *sequence > newest_answered)?;
        let expected = *sent + self.best_rtt();
        let since = expected
            .checked_sub(self.config.probe_interval)
            .map_or(last, |since| since.max(last));
        Some(until.saturating_duration_since(since))
    }

    fn best_rtt(&self) -> Duration {
        self.rtts.iter().min().copied().unwrap_or_default()
    }

    /// Counts the unanswered probes, of those selected, that were sent after the newest answered one.
    fn unanswered(&self, those: impl Fn(u64, Instant) -> bool) -> u16 {
        let later = self.outstanding.iter().rev();
        let later = later.take_while(|(sequence, _)| Some(*sequence) > self.newest_answered);
        let lost = later.filter(|(sequence, sent)| those(*sequence, *sent));
        u16::try_from(lost.count()).unwrap_or(u16::MAX)
    }

    /// The part of a silence that random loss of this many probes explains.
    fn explained(&self, lost: u16) -> Duration {
        match self.chance.explains(lost) {
            true => self.config.probe_interval * u32::from(lost),
            false => Duration::ZERO,
        }
    }

    /// Decides whether a silence, part of which random loss explains, is a reconfiguration.
    fn judge(
        &mut self,
        received: Instant,
        silence: Duration,
        by_chance: Duration,
    ) -> Option<Reconfiguration> {
        let scheduled = self
            .config
            .schedule
            .is_some_and(|schedule| schedule.distance(received) <= SCHEDULE_MARGIN);
        let threshold = if scheduled {
            self.config
                .outage_threshold
                .mul_f64(SCHEDULED_THRESHOLD_SHARE)
        } else {
            self.config.outage_threshold
        };
        let refractory = self.found.back().is_some_and(|found| {
            received.saturating_duration_since(*found) < self.config.refractory
        });
        if silence.saturating_sub(by_chance) <= threshold || refractory {
            return None;
        }
        let is_plausible = self.note_found(received);
        let excess = silence.as_secs_f64() / threshold.as_secs_f64() - 1.0;
        let (least, most) = CONFIDENCE;
        let by_length = least + (most - least) * excess.min(1.0);
        let confidence = match (scheduled, is_plausible) {
            (true, _) => most,
            (false, true) => by_length,
            (false, false) => by_length * IMPLAUSIBLE_SHARE,
        };
        Some(Reconfiguration {
            at: received,
            outage: silence,
            source: ReconfigurationSource::Probe,
            confidence,
        })
    }

    /// Returns whether there were not too many of them of late.
    fn note_found(&mut self, received: Instant) -> bool {
        let is_full = self.found.len() >= MOST_PLAUSIBLE;
        let first = self.found.front().filter(|_| is_full);
        let is_plausible =
            first.is_none_or(|first| received.saturating_duration_since(*first) > PLAUSIBLE_IN);
        if is_full {
            self.found.pop_front();
        }
        self.found.push_back(received);
        is_plausible
    }

    /// Drops probes too old for their response to matter.
    fn forget_overtaken(&mut self) {
        let Some(newest) = self.newest_answered else {
            return;
        };
        let kept = u64::try_from(RTT_SAMPLES).unwrap_or(u64::MAX);
        while self
            .outstanding
            .front()
            .is_some_and(|(sequence, _)| sequence.saturating_add(kept) < newest)
        {
            self.outstanding.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
