//! The monitor of one path (deadline.md "Path monitor"; MPDTP): joins what its datagrams met with what the transport believes.

use std::{
    cmp::Reverse,
    time::{Duration, Instant},
};

use starhaul_units::Bandwidth;

use crate::{
    Loss, PathUpdate,
    delay::{Smoothed, WindowedMin},
    fate::{Ack, Fates},
    loss::LossEstimator,
    silence::Silence,
};

/// RTT of a path of which nothing is known (RFC 9002 §6.2.2).
const INITIAL_RTT: Duration = Duration::from_millis(333);
/// A path of which nothing is known is taken to carry this much, so that no prediction is infinite.
const LEAST_BANDWIDTH: Bandwidth = Bandwidth::from_kbit(8);
const FLOOR_WINDOW: Duration = Duration::from_secs(10);
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// Shortest time over which arrivals are counted as a rate; acknowledgements come in batches.
const RATE_INTERVAL: Duration = Duration::from_millis(100);
const LEAST_MARGIN: Duration = Duration::from_millis(1);
/// A margin of so much may always be allowed: the scheduling of the peer.
const MOST_LEAST_MARGIN: Duration = Duration::from_millis(10);
/// Longest prediction: later than every deadline, and safe to add to an instant.
const FOREVER: Duration = Duration::from_secs(86_400);

/// What is known of one path, and what it promises.
///
/// Each datagram handed to [`on_sent`](Self::on_sent) wants one later call of [`on_acked`](Self::on_acked) or
/// [`on_lost`](Self::on_lost). Words about datagrams never sent, or told twice, change nothing, and time that runs backwards
/// counts as standing still. Memory is bounded: of more than 65 536 datagrams without known fate the oldest are forgotten.
#[derive(Clone, Debug)]
pub struct PathMonitor {
    now: Instant,
    cost: f64,
    transport: PathUpdate,
    fates: Fates,
    loss: LossEstimator,
    floor: WindowedMin<Duration>,
    turnaround: Option<Smoothed>,
    one_way: Option<Smoothed>,
    rates: WindowedMin<Reverse<Bandwidth>>,
    /// Since when arrivals are counted for the next rate, and their bytes.
    interval: Option<(Instant, u64)>,
    silence: Silence,
}

impl PathMonitor {
    /// A path that costs `cost` per bit (any unit, the same for all paths) and of which the transport says `update`.
    pub fn new(now: Instant, cost: f64, update: PathUpdate) -> Self {
        let mut monitor = Self {
            now,
            cost,
            transport: bounded(update),
            fates: Fates::default(),
            loss: LossEstimator::default(),
            floor: WindowedMin::new(FLOOR_WINDOW),
            turnaround: None,
            one_way: None,
            rates: WindowedMin::new(RATE_WINDOW),
            interval: None,
            silence: Silence::default(),
        };
        monitor.add_floor(monitor.transport.min_rtt);
        monitor.add_floor(monitor.transport.smoothed_rtt);
        monitor
    }

    /// Takes what the transport believes now.
    pub fn update(&mut self, now: Instant, update: PathUpdate) {
        self.advance(now);
        let update = bounded(update);
        // A transport whose own floor never expires repeats it; only a new value is news.
        if update.min_rtt != self.transport.min_rtt {
            self.add_floor(update.min_rtt);
        }
        self.add_floor(update.smoothed_rtt);
        self.transport = update;
    }

    /// What the transport said last.
    pub fn transport(&self) -> &PathUpdate {
        &self.transport
    }

    /// Price of sending one bit, relative to other paths.
    pub fn cost(&self) -> f64 {
        self.cost
    }

    /// The price changes.
    pub fn set_cost(&mut self, cost: f64) {
        self.cost = cost;
    }

    /// A datagram was sent. Sequences grow by 1 per datagram on this path and wrap.
    pub fn on_sent(&mut self, now: Instant, sequence: u32, bytes: usize) {
        self.advance(now);
        self.fates.on_sent(self.now, sequence, bytes);
        self.silence.on_sent(self.now, sequence);
        self.settle();
    }

    /// A datagram was sent that the session's acknowledgements do not mention, since it is one itself. The transport answers it
    /// all the same, if it answers at all.
    pub fn on_sent_unacknowledged(&mut self, now: Instant, sequence: u32) {
        self.advance(now);
        if self.silence.transport_answers {
            self.silence.on_sent(self.now, sequence);
        }
    }

    /// The transport's own acknowledgement of a datagram, first word or not. Unlike the session's, which may take another way, it
    /// comes back over the path itself; from the first one on these alone tell whether the path is silent.
    pub fn on_transport_ack(&mut self, now: Instant, sequence: u32) {
        self.advance(now);
        self.silence.transport_answers = true;
        self.silence
            .on_answer(self.now, sequence, self.silence_rtt());
    }

    /// First word of the datagram's arrival, by the session's acknowledgement over any path or by the transport's.
    /// `one_way` is received (peer's clock) − `sent` (ours) − the clocks' offset, when known.
    pub fn on_acked(
        &mut self,
        now: Instant,
        sequence: u32,
        sent: Instant,
        bytes: usize,
        one_way: Option<Duration>,
    ) {
        self.advance(now);
        let ack = self.fates.on_acked(sequence);
        match ack {
            Ack::Meaningless => return,
            Ack::Late { settled: true } => self.loss.take_back(sequence),
            Ack::Late { settled: false } | Ack::First => {}
        }
        let turnaround = self.now.saturating_duration_since(sent);
        self.add_turnaround(turnaround);
        if let Some(one_way) = one_way {
            // Nothing arrives later than it was acknowledged, whatever the clocks say.
            add(&mut self.one_way, one_way.min(turnaround));
        }
        self.count_delivered(bytes);
        if !self.silence.transport_answers {
            self.silence
                .on_answer(self.now, sequence, self.silence_rtt());
        }
        self.settle();
    }

    /// The datagram was declared lost, by the session or by the transport.
    pub fn on_lost(&mut self, now: Instant, sequence: u32) {
        self.advance(now);
        if self.fates.on_lost(sequence) {
            self.settle();
        }
    }

    /// A datagram declared lost was acknowledged after all.
    pub fn on_late_ack(&mut self, now: Instant, sequence: u32, sent: Instant) {
        self.on_acked(now, sequence, sent, 0, None);
    }

    /// Smoothed RTT: the transport's, else that of this session's acknowledgements; 333 ms before either.
    pub fn smoothed_rtt(&self) -> Duration {
        if !self.transport.smoothed_rtt.is_zero() {
            return self.transport.smoothed_rtt;
        }
        self.turnaround
            .map_or(INITIAL_RTT, |turnaround| turnaround.mean)
    }

    /// Least RTT of about the last ten seconds in which anything was heard.
    pub fn min_rtt(&self) -> Duration {
        self.floor.least().unwrap_or_else(|| self.smoothed_rtt())
    }

    /// Smoothed time from sending to arrival; half of the RTT while the clocks' offset is unknown.
    pub fn one_way_delay(&self) -> Duration {
        self.one_way
            .map_or(self.smoothed_rtt() / 2, |one_way| one_way.mean)
    }

    /// Greatest rate at which this session's datagrams arrived in the last ten seconds; zero before the first measurement. Lower
    /// than the path's capacity when little was sent.
    pub fn delivery_rate(&self) -> Bandwidth {
        self.rates
            .least()
            .map_or(Bandwidth::ZERO, |Reverse(rate)| rate)
    }

    /// What the path can carry: the transport's belief, else what was measured, else a window per RTT. Never zero.
    pub fn bandwidth(&self) -> Bandwidth {
        let window_rate = || Bandwidth::from_bytes_over(self.transport.cwnd, self.smoothed_rtt());
        [self.transport.bandwidth, self.delivery_rate()]
            .into_iter()
            .find(|rate| *rate > Bandwidth::ZERO)
            .unwrap_or_else(window_rate)
            .max(LEAST_BANDWIDTH)
    }

    /// Smoothed time from sending until the first word of arrival.
    pub fn word_after(&self) -> Duration {
        self.turnaround().mean
    }

    /// Time from sending until an acknowledgement is overdue: the smoothed time until the first word of arrival, and a margin of
    /// four variations, at least 1 ms and at most half of that time (but always 10 ms may be allowed).
    pub fn overdue_after(&self) -> Duration {
        let turnaround = self.turnaround();
        let most = (turnaround.mean / 2).max(MOST_LEAST_MARGIN);
        turnaround.mean + (turnaround.variation * 4).clamp(LEAST_MARGIN, most)
    }

    /// When `bytes` would have arrived, sent after `bytes_ahead` that wait for this path already: the window must open, what is
    /// ahead and they must be serialised, and the last byte travels one way. At most a day from now.
    pub fn predict_arrival(&self, now: Instant, bytes_ahead: u64, bytes: u64) -> Instant {
        let queue = bytes_ahead.saturating_add(bytes);
        let serialised = self.bandwidth().time_to_send(queue);
        let sent_after = serialised.max(self.window_wait(now, queue));
        now + sent_after.saturating_add(self.one_way_delay()).min(FOREVER)
    }

    /// What the path loses. An outage longer than an RTT is forgotten when it ended.
    pub fn loss(&self) -> Loss {
        self.loss.loss()
    }

    /// What was sent on the path is not answered for longer than about one RTT plus margin; true until an answer to something
    /// sent lately comes.
    pub fn is_suspect(&self) -> bool {
        self.silence.is_suspect()
    }

    /// When the path becomes suspect if nothing is heard; `None` while it owes nothing or is suspect already.
    pub fn silence_deadline(&self) -> Option<Instant> {
        self.silence.deadline(self.silence_rtt())
    }

    /// Time passed. True when the path just became suspect.
    pub fn on_timeout(&mut self, now: Instant) -> bool {
        self.advance(now);
        self.silence.on_timeout(self.now, self.silence_rtt())
    }

    /// Anything arrived from the peer over this path: a sign of life while the transport acknowledges nothing by itself, and none
    /// for our direction as soon as it does.
    pub fn on_heard(&mut self, now: Instant) {
        self.advance(now);
        self.silence.on_heard(self.now);
    }

    /// Datagrams without known fate.
    pub fn outstanding(&self) -> u64 {
        self.fates.outstanding()
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Time after which answers over the path itself are due.
    fn silence_rtt(&self) -> Duration {
        if self.silence.transport_answers {
            return self.smoothed_rtt();
        }
        self.turnaround().mean.max(self.smoothed_rtt())
    }

    fn settle(&mut self) {
        let outage_after = self.smoothed_rtt();
        while let Some(datagram) = self.fates.next_settled() {
            self.loss.add(datagram, outage_after);
        }
    }

    fn add_floor(&mut self, rtt: Duration) {
        if !rtt.is_zero() {
            self.floor.add(self.now, rtt);
        }
    }

    fn add_turnaround(&mut self, sample: Duration) {
        // An acknowledgement that was lost and repeated says little about the path.
        let most = self
            .turnaround()
            .mean
            .saturating_mul(4)
            .max(MOST_LEAST_MARGIN);
        let sample = sample.min(most).min(FOREVER);
        add(&mut self.turnaround, sample);
        // Acknowledgements may come back over a faster path, so the transport's own RTT goes first.
        if self.transport.smoothed_rtt.is_zero() {
            self.add_floor(sample);
        }
    }

    fn turnaround(&self) -> Smoothed {
        self.turnaround
            .unwrap_or_else(|| Smoothed::first(self.smoothed_rtt()))
    }

    fn count_delivered(&mut self, bytes: usize) {
        let interval = RATE_INTERVAL.max(self.smoothed_rtt().min(RATE_WINDOW));
        let Some((start, delivered)) = &mut self.interval else {
            self.interval = Some((self.now, 0));
            return;
        };
        *delivered = delivered.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        let elapsed = self.now.saturating_duration_since(*start);
        if elapsed >= interval {
            let rate = Bandwidth::from_bytes_over(*delivered, elapsed);
            self.rates.add(self.now, Reverse(rate));
            self.interval = Some((self.now, 0));
        }
    }

    /// Time until the window lets the last of `queue` bytes go. Bytes in flight free it as their acknowledgements come; what is
    /// more waits for whole rounds, in each of which the window may double (the least wait, so that nothing is given up that a
    /// growing window would carry; the bandwidth bounds it from below).
    fn window_wait(&self, now: Instant, queue: u64) -> Duration {
        let in_flight = self.transport.bytes_in_flight;
        let excess = queue
            .saturating_add(in_flight)
            .saturating_sub(self.transport.cwnd);
        let rtt = self.smoothed_rtt();
        if excess == 0 {
            return Duration::ZERO;
        }
        if excess <= in_flight {
            let sent = self.fates.sent_of_outstanding(excess);
            return sent.map_or(rtt, |sent| (sent + rtt).saturating_duration_since(now));
        }
        let mut left = excess - in_flight;
        let mut window = self.transport.cwnd.max(1);
        let mut wait = Duration::ZERO;
        loop {
            window = window.saturating_mul(2);
            wait = wait.saturating_add(rtt);
            if left <= window {
                return wait;
            }
            left -= window;
        }
    }
}

/// No RTT is beyond all bounds, so that sums of a few stay within theirs.
fn bounded(update: PathUpdate) -> PathUpdate {
    PathUpdate {
        smoothed_rtt: update.smoothed_rtt.min(FOREVER),
        min_rtt: update.min_rtt.min(FOREVER),
        ..update
    }
}

fn add(smoothed: &mut Option<Smoothed>, sample: Duration) {
    match smoothed {
        Some(smoothed) => smoothed.add(sample),
        None => *smoothed = Some(Smoothed::first(sample)),
    }
}

#[cfg(test)]
mod tests;
