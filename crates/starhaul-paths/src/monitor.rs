//! The monitor of one path (docs/deadlines.md; MPDTP): combines the fates of its datagrams with the
//! transport's estimates.

mod arrivals;

use std::{
    cmp::Reverse,
    time::{Duration, Instant},
};

use starhaul_units::Bandwidth;

use crate::{
    Allowance, Loss, PathUpdate, RttHistory,
    delay::{Smoothed, WindowedMin},
    ledger::{Fated, PathLedger},
    loss::LossEstimator,
    plateau::Plateau,
    recent::Recent,
    silence::Silence,
    tardy::Tardy,
    told::ToldLoss,
};

use arrivals::usual_margin;

/// RTT of a path without samples (RFC 9002 §6.2.2).
const INITIAL_RTT: Duration = Duration::from_millis(333);
/// Bandwidth assumed for a path without samples, so that every prediction is finite.
const LEAST_BANDWIDTH: Bandwidth = Bandwidth::from_kbit(8);
const FLOOR_WINDOW: Duration = Duration::from_secs(10);
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// What arrived waited in a queue if it took so much longer than the least, and by this share of the least RTT.
const LEAST_QUEUED: Duration = Duration::from_millis(10);
const QUEUED_SHARE: u32 = 4;
const LEAST_MARGIN: Duration = Duration::from_millis(1);
/// The margin may always be this large, for scheduling delay at the peer; on paths with shorter round trips it is as large as such delays were.
const MOST_LEAST_MARGIN: Duration = Duration::from_millis(10);
/// So many acknowledged datagrams show how long acknowledgements take over another path than before.
const SHOWING: u8 = 8;
/// So many losses in a row leave no later datagram whose acknowledgement would tell of them; an acknowledgement is overdue after as many
/// variations.
const TELLING: f64 = 4.0;
/// A startup lasts for so many round trips at the most.
const MOST_DOUBLINGS: f64 = 10.0;
/// Longest prediction: later than every deadline, and safe to add to an instant.
const FOREVER: Duration = Duration::from_secs(86_400);

/// One path: the ledger of its datagrams, each with what it carried (`T`), and the measurements and predictions that follow
/// from their fates.
///
/// Time that runs backwards counts as standing still, and what is said of datagrams never sent, or said again, changes nothing.
/// Memory is bounded: beyond 262 144 datagrams without a fate the oldest are declared lost.
#[derive(Clone, Debug)]
pub struct PathMonitor<T> {
    now: Instant,
    cost: f64,
    /// What may leave, where that is bounded.
    allowance: Option<Allowance>,
    transport: PathUpdate,
    ledger: PathLedger<T>,
    loss: LossEstimator,
    told_loss: ToldLoss,
    floor: WindowedMin<Duration>,
    turnaround: Option<Smoothed>,
    /// Each datagram is a sample of `turnaround`: after one acknowledgement of many its variation no longer tells how late others may come.
    tardy: Tardy,
    /// The path by which acknowledgements came is gone: of datagrams from this one on, so many are to show how long they take now.
    answers_move: Option<(u64, u8)>,
    one_way: Option<Smoothed>,
    latest_one_way: Duration,
    least_one_way: WindowedMin<Duration>,
    rates: WindowedMin<Reverse<Bandwidth>>,
    /// The greatest of `rates`.
    delivery_rate: Bandwidth,
    /// Start of the current rate interval, and the bytes that arrived in it.
    interval: Option<(Instant, u64)>,
    recent: Recent,
    plateau: Plateau,
    rtts: RttHistory,
    silence: Silence,
    /// What was in flight when the path last fell silent.
    silenced: Option<Silenced>,
}

/// Datagrams below `end`, whose acknowledgements are overdue by what was known when the path fell silent: the measure of one that comes back
/// slow grows with each that is late.
#[derive(Clone, Copy, Debug)]
struct Silenced {
    end: u64,
    overdue_after: Duration,
}

impl<T: Copy> PathMonitor<T> {
    /// Creates the monitor of a path with price `cost` per bit (any unit, the same for all paths) and the transport's
    /// `update`; its first datagram gets the number `first_sequence`.
    pub fn new(now: Instant, cost: f64, update: PathUpdate, first_sequence: u64) -> Self {
        let mut monitor = Self {
            now,
            cost,
            allowance: None,
            transport: bounded(update),
            ledger: PathLedger::starting_at(first_sequence),
            loss: LossEstimator::default(),
            told_loss: ToldLoss::default(),
            floor: WindowedMin::new(FLOOR_WINDOW),
            turnaround: None,
            tardy: Tardy::default(),
            answers_move: None,
            one_way: None,
            latest_one_way: Duration::ZERO,
            least_one_way: WindowedMin::new(FLOOR_WINDOW),
            rates: WindowedMin::new(RATE_WINDOW),
            delivery_rate: Bandwidth::ZERO,
            interval: None,
            recent: Recent::default(),
            plateau: Plateau::default(),
            rtts: RttHistory::new(now),
            silence: Silence::default(),
            silenced: None,
        };
        monitor.add_floor(monitor.transport.min_rtt);
        monitor.add_floor(monitor.transport.smoothed_rtt);
        monitor
    }

    /// Takes the transport's present estimates. Whether they are news, or time has passed: else nothing that is told here has changed.
    pub fn update(&mut self, now: Instant, update: PathUpdate) -> bool {
        let told = |monitor: &Self| {
            let (floor, is_known) = (monitor.floor.least(), monitor.bandwidth_is_known());
            (monitor.now, monitor.transport, floor, is_known)
        };
        let before = told(self);
        self.advance(now);
        let update = bounded(update);
        // A transport whose own minimum never expires repeats it; only a new value is a new sample.
        if update.min_rtt != self.transport.min_rtt {
            self.add_floor(update.min_rtt);
        }
        self.add_floor(update.smoothed_rtt);
        self.transport = update;
        // What may not leave says nothing of what the path carries.
        let (rtt, rate) = (self.smoothed_rtt(), self.carried());
        let is_full = self.is_half_filled(rate);
        self.plateau.update(self.now, rtt, rate, is_full);
        told(self) != before
    }

    /// The transport's last estimates.
    pub fn transport(&self) -> &PathUpdate {
        &self.transport
    }

    /// Price of sending one bit, relative to other paths.
    pub fn cost(&self) -> f64 {
        self.cost
    }

    /// Sets the price per bit.
    pub fn set_cost(&mut self, cost: f64) {
        self.cost = cost;
    }

    /// What may leave on the path at `now` and from then on; `None` for no bound. Rates and predictions follow: a path over which nothing may
    /// leave for some time brings nothing before.
    pub fn set_allowance(&mut self, now: Instant, allowance: Option<Allowance>) {
        self.advance(now);
        self.allowance = allowance;
    }

    /// The number of the next datagram; they grow by 1.
    pub fn next_sequence(&self) -> u64 {
        self.ledger.next_sequence()
    }

    /// A datagram with `item` leaves; returns its number. The session of the peer acknowledges it if it `elicits_ack`; the
    /// transport acknowledges any if it acknowledges at all.
    pub fn on_sent(&mut self, now: Instant, bytes: usize, item: T, elicits_ack: bool) -> u64 {
        self.advance(now);
        let sequence = self.ledger.push(self.now, bytes, item, elicits_ack);
        if elicits_ack || self.silence.transport_answers {
            self.silence.on_sent(self.now, sequence);
        }
        sequence
    }

    /// A datagram leaves of whose fate nothing will be said here, and which says nothing of the path; returns its number.
    pub fn on_sent_unwatched(&mut self, now: Instant, bytes: usize, item: T) -> u64 {
        self.advance(now);
        self.ledger.push(self.now, bytes, item, false)
    }

    /// So many bytes of packets leave; the transport's next update counts them.
    pub fn on_queued(&mut self, bytes: u64) {
        let in_flight = &mut self.transport.bytes_in_flight;
        *in_flight = in_flight.saturating_add(bytes);
    }

    /// When the datagram was sent, unless it was acknowledged before or is forgotten.
    pub fn unacknowledged_since(&self, sequence: u64) -> Option<Instant> {
        self.ledger.unacknowledged_since(sequence)
    }

    /// The transport acknowledged datagrams `first` to `last`: adds those of which that is news to `arrived`. Unlike the
    /// session's acknowledgements, which may take another path, these came over the path itself; from the first one on only
    /// they decide whether the path is silent.
    pub fn on_transport_acked(
        &mut self,
        now: Instant,
        first: u64,
        last: u64,
        arrived: &mut Vec<Fated<T>>,
    ) {
        self.advance(now);
        self.silence.transport_answers = true;
        if last < self.next_sequence() {
            let rtt = self.silence_rtt();
            if let Some(sent) = self.silence.on_answer(self.now, last, rtt) {
                let took = self.now.saturating_duration_since(sent);
                self.rtts.add(sent, took);
            }
        }
        self.on_acked(now, first, last, None, arrived);
    }

    /// Datagrams `first` to `last` were acknowledged, by the session over any path or by the transport: adds those of which
    /// that is news to `arrived`. `one_way` is, of `last`, received (peer's clock) − sent (ours) − the clocks' offset, when known.
    pub fn on_acked(
        &mut self,
        now: Instant,
        first: u64,
        last: u64,
        one_way: Option<Duration>,
        arrived: &mut Vec<Fated<T>>,
    ) {
        self.advance(now);
        let known = arrived.len();
        self.ledger.ack(first, last, |fated| arrived.push(fated));
        let news = arrived.get(known..).unwrap_or_default();
        self.measure(news, last, one_way);
        if let Some(newest) = news.iter().rfind(|fated| fated.elicits_ack)
            && !self.silence.transport_answers
        {
            let rtt = self.silence_rtt();
            self.silence.on_answer(self.now, newest.sequence, rtt);
        }
        self.settle();
    }

    /// The transport declared the datagram lost; `None` when its fate was known.
    pub fn on_lost(&mut self, now: Instant, sequence: u64) -> Option<Fated<T>> {
        self.advance(now);
        let fated = self.ledger.lose(sequence)?;
        self.settle();
        Some(fated)
    }

    /// Declares lost what was overtaken or is overdue, and adds it to `lost`.
    pub fn find_lost(&mut self, now: Instant, lost: &mut Vec<Fated<T>>) {
        self.advance(now);
        let present = self.overdue_after();
        let silenced = self.silenced;
        let overdue = |sequence| overdue_after(silenced, sequence, present);
        while let Some(fated) = self.ledger.next_lost(self.now, overdue) {
            lost.push(fated);
        }
        self.settle();
        self.ledger.prune(self.now, present);
    }

    /// When [`PathMonitor::find_lost`] will next find something by time alone.
    pub fn overdue_at(&self) -> Option<Instant> {
        let (sequence, sent) = self.ledger.oldest_outstanding()?;
        Some(sent + overdue_after(self.silenced, sequence, self.overdue_after()))
    }

    /// Gives up all datagrams without a fate, so that their content goes elsewhere, without declaring them lost.
    pub fn release(&mut self) -> Vec<Fated<T>> {
        self.ledger.release(|_, _| true)
    }

    /// The same for those whose content `cannot_wait` until their acknowledgement is overdue, which is said with it.
    pub fn release_urgent(
        &mut self,
        mut cannot_wait: impl FnMut(Instant, T) -> bool,
    ) -> Vec<Fated<T>> {
        let overdue = self.overdue_after();
        self.ledger
            .release(|sent, item| cannot_wait(sent + overdue, item))
    }

    /// Time from sending until a loss is noticed, when nothing queues on the way: the acknowledgement time, and no more than the least
    /// RTT of late, and a variation of it, for acknowledgements of what was sent next tell of a single loss. Of several in a row nothing
    /// tells until an acknowledgement is overdue.
    pub fn loss_known_after(&self) -> Duration {
        let acknowledged_after = self.acknowledged_after();
        let overdue = self.overdue_after().saturating_sub(acknowledged_after);
        let in_a_row = self.loss().burst_length;
        let margin = overdue.mul_f64((in_a_row / TELLING).clamp(1.0 / TELLING, 1.0));
        acknowledged_after
            .min(self.min_rtt())
            .saturating_add(margin)
    }

    /// Smoothed RTT: the transport's, else that of the session's acknowledgements; 333 ms before either.
    pub fn smoothed_rtt(&self) -> Duration {
        if !self.transport.smoothed_rtt.is_zero() {
            return self.transport.smoothed_rtt;
        }
        self.turnaround
            .map_or(INITIAL_RTT, |turnaround| turnaround.mean())
    }

    /// Least RTT of the last ten seconds or so in which samples arrived.
    pub fn min_rtt(&self) -> Duration {
        self.floor.least().unwrap_or_else(|| self.smoothed_rtt())
    }

    /// Smoothed one-way delay; half of the RTT while the clocks' offset is unknown.
    pub fn one_way_delay(&self) -> Duration {
        self.one_way
            .map_or(self.smoothed_rtt() / 2, |one_way| one_way.mean())
    }

    /// From leaving to the arrival of `bytes`, where the window is open: [`present_delay`](Self::present_delay), and their own time, or the time
    /// until they may leave.
    pub fn least_flight(&self, bytes: u64) -> Duration {
        let serialised = self.carried().time_to_send(bytes);
        let sent_after = serialised.max(self.allowed_after(self.now, bytes));
        self.present_delay().saturating_add(sent_after)
    }

    /// The one-way delay of what is sent now, where less is in flight than when what arrived of late was sent: the queue before it has
    /// become shorter, which the smoothed delay tells only when it is too late for a long path.
    pub fn present_delay(&self) -> Duration {
        let min_rtt = self.min_rtt();
        let in_flight = self.carried().time_to_send(self.transport.bytes_in_flight);
        let queue = in_flight.saturating_sub(min_rtt);
        self.one_way_delay()
            .min((min_rtt / 2).saturating_add(queue))
    }

    /// By so much arrivals differ from the one-way delay: four variations of it.
    pub fn arrival_margin(&self) -> Duration {
        let variation = self
            .one_way
            .map_or(Duration::ZERO, |one_way| one_way.variation());
        variation.saturating_mul(4)
    }

    /// Greatest rate at which this session's datagrams arrived in the last ten seconds; zero before the first
    /// measurement. Lower than the path's capacity when little was sent.
    pub fn delivery_rate(&self) -> Bandwidth {
        self.delivery_rate
    }

    /// What the path can carry and [may](Self::set_allowance): the transport's estimate, else the measured rate, else a window per RTT. Never
    /// zero.
    pub fn bandwidth(&self) -> Bandwidth {
        let carried = self.carried();
        self.allowance.map_or(carried, |allowance| {
            carried.min(allowance.rate).max(LEAST_BANDWIDTH)
        })
    }

    /// The same if anything may leave.
    fn carried(&self) -> Bandwidth {
        let rate = if self.transport.bandwidth > Bandwidth::ZERO {
            self.transport.bandwidth
        } else if self.delivery_rate > Bandwidth::ZERO {
            self.delivery_rate
        } else {
            Bandwidth::from_bytes_over(self.transport.cwnd, self.smoothed_rtt())
        };
        rate.max(LEAST_BANDWIDTH)
    }

    /// It carries at least half of what it can: so much is in flight, or nothing more may leave now. A path that waits for other data, or is spared,
    /// has less.
    pub fn is_in_full_use(&self) -> bool {
        self.is_half_filled(self.bandwidth()) || !self.allowed_after(self.now, 0).is_zero()
    }

    /// As much is in flight as makes half of this rate.
    fn is_half_filled(&self, rate: Bandwidth) -> bool {
        self.transport.bytes_in_flight.saturating_mul(2) >= rate.bytes_in(self.min_rtt())
    }

    /// Time until so many bytes may leave; at most a day. Nothing leaves before a datagram of any size may, for a path is asked when it is not
    /// known yet what leaves.
    fn allowed_after(&self, now: Instant, bytes: u64) -> Duration {
        let bytes = bytes.max(self.transport.max_datagram as u64);
        let wait = self.allowance.map(|allowance| allowance.wait(now, bytes));
        wait.unwrap_or_default().min(FOREVER)
    }

    /// All that was to be sent over the path has left: what it carries now is what was sent, not what it could.
    pub const fn on_drained(&mut self) {
        self.plateau.on_drained();
    }

    /// Whether [`bandwidth`](Self::bandwidth) is what the path carries, not what a controller that starts has reached yet: three round
    /// trips of full use went by without a quarter more, or no more may leave on it.
    pub fn bandwidth_is_known(&self) -> bool {
        let is_bound = |allowance: Allowance| allowance.rate <= self.carried();
        self.plateau.is_reached() || self.allowance.is_some_and(is_bound)
    }

    /// Bytes that the path carries within `time` at the most, if its controller still starts: it doubles its rate each round trip, and the
    /// estimate is one round trip old.
    pub fn most_of_startup(&self, time: Duration) -> u64 {
        let rounds = time.as_secs_f64() / self.min_rtt().max(LEAST_MARGIN).as_secs_f64();
        let doublings = rounds.clamp(f64::EPSILON, MOST_DOUBLINGS) * std::f64::consts::LN_2;
        let mean = doublings.exp_m1() / doublings;
        let carried = self.carried().scaled(2.0 * mean).bytes_in(time);
        self.allowance.map_or(carried, |allowance| {
            carried.min(allowance.bytes_within(self.now, time))
        })
    }

    /// Smoothed acknowledgement time: from sending until the first acknowledgement.
    pub fn acknowledged_after(&self) -> Duration {
        self.turnaround().mean()
    }

    /// Time from sending until an acknowledgement is overdue: the smoothed acknowledgement time and a margin of four
    /// variations, at least 1 ms and at most half of that time (the margin may always be 10 ms). Where the least RTT is shorter than
    /// 10 ms the margin is also no less than acknowledgements were late in the last five to ten seconds, up to 10 ms.
    pub fn overdue_after(&self) -> Duration {
        let late = match self.may_be_tardy() {
            true => self.tardy.greatest(self.now),
            false => Duration::ZERO,
        };
        self.usually_overdue_after()
            .max(self.answered_after() + late)
    }

    /// The same by mean and variation alone.
    fn usually_overdue_after(&self) -> Duration {
        let (mean, variation) = (self.answered_after(), self.turnaround().variation());
        mean + usual_margin(mean, variation)
    }

    /// Whether the peer's scheduling may take longer than the way there and back: then it is what makes acknowledgements late.
    fn may_be_tardy(&self) -> bool {
        self.min_rtt() < MOST_LEAST_MARGIN
    }

    /// Time from sending until a missing acknowledgement is likelier to be that of one of several datagrams lost in a row than late: the smoothed
    /// acknowledgement time, and as many variations more as are exceeded no more often than that, if delays beyond the mean are distributed
    /// exponentially. Never later than it is [overdue](Self::overdue_after), which it is not sooner where datagrams are lost each by itself: what is
    /// sent next tells of such a loss.
    pub fn doubtful_after(&self) -> Duration {
        let (variation, loss) = (self.turnaround().variation(), self.loss());
        let beyond_chance = 1.0 - 1.0 / loss.beyond_chance();
        // Half of all acknowledgements are later than the mean, and e times fewer with each variation.
        let variations = -(2.0 * loss.rate * beyond_chance).ln();
        let margin = variation.mul_f64(variations.clamp(0.0, 4.0));
        (self.answered_after() + margin).min(self.overdue_after())
    }

    /// The smoothed acknowledgement time, but no less than the path's own round trip while acknowledgements [move](Self::on_answers_moved).
    fn answered_after(&self) -> Duration {
        let mean = self.turnaround().mean();
        match self.answers_move {
            // The peer lets them wait for more to tell.
            Some(_) => mean.max(self.smoothed_rtt() + LEAST_MARGIN),
            None => mean,
        }
    }

    /// The path by which acknowledgements came is gone or silent, or may be spared at any time. Until they show how long they take over another, they are waited for
    /// as if they came over this one, which is the longest way.
    pub fn on_answers_moved(&mut self) {
        self.answers_move = Some((self.next_sequence(), SHOWING));
    }

    /// When `bytes` would arrive, sent behind `bytes_ahead` that already wait for this path: the window must open, both
    /// must be [allowed](Self::set_allowance) to leave and be serialised, and the last byte takes the one-way delay. A path of which nothing is
    /// heard for some time more than is usual is taken to go on with that for as long again. At most a day from now.
    pub fn predict_arrival(&self, now: Instant, bytes_ahead: u64, bytes: u64) -> Instant {
        let queue = bytes_ahead.saturating_add(bytes);
        // What is in flight beyond the window left when the path was faster: it arrives at the present rate first.
        let in_flight = self.transport.bytes_in_flight;
        let surplus = in_flight.saturating_sub(self.transport.cwnd);
        let serialised = self.carried().time_to_send(queue.max(surplus));
        let waits = self.window_wait(now, queue);
        let sent_after = serialised.max(waits).max(self.allowed_after(now, queue));
        let stalled = self.silence.overdue_for(now, self.silence_rtt());
        let delay = self.one_way_delay().max(self.backlogged_delay());
        let arrives_after = sent_after.saturating_add(delay);
        now + arrives_after.saturating_add(stalled).min(FOREVER)
    }

    /// The one-way delay of what is sent now behind what is in flight, at the rate of the last deliveries; zero unless these waited in a
    /// queue, and so show what the path carries. When its rate falls this tells at once what measured delays tell only when the queue is gone.
    fn backlogged_delay(&self) -> Duration {
        let min_rtt = self.min_rtt();
        let rate = self.recent.rate(self.now, min_rtt);
        let (Some(rate), Some(least)) = (rate, self.least_one_way.least()) else {
            return Duration::ZERO;
        };
        let waited = self.latest_one_way.saturating_sub(least);
        if waited <= (min_rtt / QUEUED_SHARE).max(LEAST_QUEUED) {
            return Duration::ZERO;
        }
        // What is beyond the window leaves before anything else may.
        let ahead = self.transport.bytes_in_flight.min(self.transport.cwnd);
        let takes = rate.max(LEAST_BANDWIDTH).time_to_send(ahead);
        least.saturating_add(takes.saturating_sub(min_rtt))
    }

    /// The path's loss, and no less than what is [told](Self::set_told_loss) of it. An outage longer than an RTT is forgotten when it ends.
    pub fn loss(&self) -> Loss {
        let (seen, told) = (self.loss.loss(), self.told_loss.share());
        Loss {
            rate: seen.rate.max(told),
            window_max: seen.window_max.max(told),
            ..seen
        }
    }

    /// Whether [`loss`](Self::loss) rests on enough datagrams (64 or more) to be told from no loss, or on what is told of it.
    pub fn loss_is_known(&self) -> bool {
        self.loss.is_known() || self.told_loss.told().is_some()
    }

    /// A modem tells that this share of full datagrams is lost, as its bit-error rate has it; `None`: it tells nothing any more. It holds from
    /// now on, up to a half, and gives way to what is seen: of a share of which eight losses were to be seen since, and none were, a third is left.
    /// To say the same again changes nothing.
    pub fn set_told_loss(&mut self, share: Option<f64>) {
        self.told_loss.set(share);
    }

    /// The loss that a modem tells of, whatever is seen of it; at most a half.
    pub fn told_loss(&self) -> Option<f64> {
        self.told_loss.told()
    }

    /// Round trips of late, to compare with those of other paths of the session; the transport's acknowledgements give them.
    pub fn rtts(&self) -> &RttHistory {
        &self.rtts
    }

    /// Whether the path is silent: data sent on it has been unacknowledged for longer than about one RTT plus a margin.
    /// Ends with an acknowledgement of recent data.
    pub fn is_suspect(&self) -> bool {
        self.silence.is_suspect()
    }

    /// When the path becomes suspect if nothing arrives; `None` while nothing is unacknowledged or it is suspect
    /// already.
    pub fn silence_deadline(&self) -> Option<Instant> {
        self.silence.deadline(self.silence_rtt())
    }

    /// Advances time. Returns true when the path has just become suspect.
    pub fn on_timeout(&mut self, now: Instant) -> bool {
        self.advance(now);
        let is_silent = self.silence.on_timeout(self.now, self.silence_rtt());
        if is_silent {
            self.silenced = Some(Silenced {
                end: self.next_sequence(),
                overdue_after: self.overdue_after(),
            });
        }
        is_silent
    }

    /// A packet of the peer arrived over this path: a sign of life only while the transport does not acknowledge by
    /// itself.
    pub fn on_heard(&mut self, now: Instant) {
        self.advance(now);
        self.silence.on_heard(self.now);
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// RTT within which acknowledgements over the path itself are due.
    fn silence_rtt(&self) -> Duration {
        if self.silence.transport_answers {
            return self.smoothed_rtt();
        }
        self.turnaround().mean().max(self.smoothed_rtt())
    }

    fn settle(&mut self) {
        let outage_after = self.smoothed_rtt();
        let mut has_settled = false;
        while let Some(datagram) = self.ledger.next_settled() {
            self.loss.add(datagram, outage_after);
            self.told_loss.count(datagram.lost);
            if !datagram.lost {
                let more = self.ledger.settle_alike(datagram);
                self.loss.add_alike(datagram, more);
                self.told_loss.count_arrived(more);
            }
            has_settled = true;
        }
        if has_settled {
            self.silence
                .expect_in_a_row(self.loss.loss().beyond_chance());
        }
    }

    fn add_floor(&mut self, rtt: Duration) {
        if !rtt.is_zero() {
            self.floor.add(self.now, rtt);
        }
    }

    fn turnaround(&self) -> Smoothed {
        self.turnaround
            .unwrap_or_else(|| Smoothed::first(self.smoothed_rtt()))
    }

    /// Time until the window admits the last of `queue` bytes. Acknowledgements of bytes in flight free the window; the
    /// rest waits for whole rounds, each of which may double the window. This is the least wait, so that nothing is
    /// given up that a growing window would carry; the bandwidth bounds it from below.
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
            let sent = self.ledger.sent_of_outstanding(excess);
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

/// Time from sending until the acknowledgement of this datagram is overdue.
fn overdue_after(silenced: Option<Silenced>, sequence: u64, present: Duration) -> Duration {
    let then = silenced.filter(|silenced| sequence < silenced.end);
    then.map_or(present, |then| then.overdue_after.min(present))
}

/// Bounds each RTT, so that sums of a few do not overflow.
fn bounded(update: PathUpdate) -> PathUpdate {
    PathUpdate {
        smoothed_rtt: update.smoothed_rtt.min(FOREVER),
        min_rtt: update.min_rtt.min(FOREVER),
        ..update
    }
}

#[cfg(test)]
mod tests;
