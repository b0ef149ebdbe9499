//! How many bytes of data a segment to a peer has. It begins with what fills a packet of the path, of Ethernet at most, until the peer
//! has reported a few larger ones, in the manner of RFC 8899. Segments of several IP fragments save calls and work per segment, and are lost with any of their fragments: a
//! size is tried where what is known of costs and losses lets it carry more, stays if it does, and goes at once if none of it
//! arrives. Segments that ask for reports fill one packet always.

mod epochs;
mod ladder;
mod tries;

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use self::{
    epochs::Epochs,
    ladder::{Class, fitted_cost, fragments, ladder, note, packet_loss, single},
    tries::{Probe, Stage, Trial},
};
use crate::{
    PeerConfig,
    batch::begin_below,
    config::ETHERNET_SEGMENT_DATA,
    fates::SegmentFate,
    size_choice::{SegmentChoice, SizeReason},
};

/// Bytes and segments of a span whose speed is measured, at least.
const SPAN_BYTES: u64 = 512 << 10;
const SPAN_SEGMENTS: u64 = 16;
/// How long such a span takes at least: while sizes are compared, and when nothing has changed for long. Where a rate paces what leaves,
/// shorter ones would measure its bursts.
const SHORTEST: Duration = Duration::from_millis(2);
const SHORTEST_PACED: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(256);
/// Reports on a probe may take so many times as long as others do.
const ANSWERS_OF_PROBE: u32 = 4;
/// A segment of several packets may occupy the link for so long: what comes behind it waits.
const MOST_OCCUPIED: Duration = Duration::from_millis(10);
/// From this share of its rate on, the link is what bounds, and not a processor.
const BOUND_BY_RATE: f64 = 0.8;
/// By so much another size must be better where headers and losses alone decide.
const HEADERS_MARGIN: f64 = 0.01;
/// IPv4 and UDP, which each segment has; the header of each further fragment.
const SEGMENT_OVERHEAD: f64 = 48.0;
const FRAGMENT_OVERHEAD: u16 = 20;

/// The machine that chooses the size.
#[derive(Debug)]
pub(crate) struct SegmentSizes {
    /// The path's MTU, once it is known.
    mtu: Option<usize>,
    is_adaptive: bool,
    /// Whether reports tell what becomes of segments.
    can_probe: bool,
    /// Whether red parts have repair segments: a code has symbols of one size from its beginning to its end, so that nothing is tried.
    is_coded: bool,
    rate: Option<Bandwidth>,
    is_rate_bound: bool,
    /// How long reports on a probe may take, while nothing is known of it.
    patience: Duration,
    /// How long reports on a probe take, as measured.
    answer: Option<Duration>,
    classes: Vec<Class>,
    /// The class of one packet, which arrives, as an index.
    safe: usize,
    /// The class that is chosen, as an index.
    present: usize,
    /// Bytes of data of the size in use, which a trial may have changed, and of that of one packet.
    data: usize,
    safe_data: usize,
    probe: Option<Probe>,
    trial: Option<Trial>,
    /// A size that was left since nothing was heard: the first report brings it back if it arrives.
    recheck: Option<usize>,
    /// When a smaller packet was last tried since nothing was heard.
    stepped: Option<Instant>,
    /// When a packet as long as those that ask for reports was last known to have arrived.
    last_full: Option<Instant>,
    epochs: Epochs,
    /// How long a span takes at least.
    least: Duration,
    /// Whether the first span, in which memory and caches are cold, is over. Where reports are awaited, none tells when it began.
    is_warm: bool,
    idle_since: Option<Instant>,
    reason: SizeReason,
    changes: u64,
    probes: u64,
    black_holes: u64,
}

impl SegmentSizes {
    /// The size that the configuration says, until the path's MTU is known.
    pub(crate) fn new(config: &PeerConfig) -> Self {
        let data = config.segment_data;
        let reports = config.one_way_light_time.saturating_mul(2) + config.margin;
        Self {
            mtu: None,
            is_adaptive: config.adapts_segments,
            can_probe: !config.is_one_way,
            is_coded: config.coding.is_some(),
            rate: config.rate.filter(|rate| *rate > Bandwidth::ZERO),
            is_rate_bound: config.rate.is_some(),
            patience: reports.saturating_mul(8) + Duration::from_secs(10),
            answer: None,
            classes: vec![Class::new(data, 1)],
            safe: 0,
            present: 0,
            data,
            safe_data: data,
            probe: None,
            trial: None,
            recheck: None,
            stepped: None,
            last_full: None,
            epochs: Epochs::default(),
            least: SHORTEST,
            is_warm: false,
            idle_since: None,
            reason: match config.adapts_segments {
                true => SizeReason::UnknownMtu,
                false => SizeReason::Fixed,
            },
            changes: 0,
            probes: 0,
            black_holes: 0,
        }
    }

    /// The path carries IP packets of so many bytes; what was learnt of another MTU is forgotten.
    pub(crate) fn set_mtu(&mut self, now: Instant, mtu: usize) {
        if self.knows_mtu(mtu) {
            return;
        }
        self.mtu = Some(mtu);
        if !self.is_adaptive {
            // How many packets carry a segment matters all the same: to the peer's socket, and to a link of a stated rate.
            self.classes = vec![Class::new(self.data, fragments(mtu, self.data))];
            return;
        }
        self.classes = ladder(mtu);
        self.safe = self.first(mtu);
        self.present = self.safe;
        self.safe_data = self.data_of(self.safe);
        self.changes += u64::from(self.data != self.safe_data);
        self.data = self.safe_data;
        (self.probe, self.trial, self.recheck) = (None, None, None);
        (self.is_warm, self.least) = (self.rate.is_none(), self.shortest());
        self.epochs.taint();
        self.reason = match self.is_coded {
            true => SizeReason::Coded,
            false => SizeReason::PathMtu,
        };
        if let Some(full) = self.full(now) {
            self.begin_probe(now, full);
        }
    }

    /// The next red part has repair segments, or none. While they have, segments fill one packet, of Ethernet at most, and sizes are neither
    /// tried nor compared; behind them that begins anew, with the first report.
    pub(crate) fn set_coded(&mut self, is_coded: bool) {
        let was_coded = std::mem::replace(&mut self.is_coded, is_coded);
        let follows = self.is_adaptive && was_coded != is_coded;
        let Some(mtu) = self.mtu.filter(|_| follows) else {
            return;
        };
        (self.probe, self.trial) = (None, None);
        // A shorter packet stays, where longer ones did not arrive; what a silence alone made shorter does not.
        let at = self
            .recheck
            .take()
            .unwrap_or(self.safe)
            .min(self.first(mtu));
        let reason = match is_coded {
            true => SizeReason::Coded,
            false => SizeReason::PathMtu,
        };
        self.choose(at, reason);
    }

    /// What reports told of packets, where that is not the same as of segments: how many were sent, and how many of these were lost. Of
    /// a segment of several packets one was lost, and those that try a size out tell of no other. A size that stays as it is has repair
    /// segments of that size: there the losses of segments are what counts.
    pub(crate) fn packets_of(&self, fates: &[SegmentFate]) -> Option<(u64, u64)> {
        if !self.is_adaptive {
            return None;
        }
        let is_tried = |fate: &SegmentFate| {
            let class = self.index(fate.data).filter(|at| *at > self.safe);
            let class = class.and_then(|at| self.classes.get(at));
            fate.lost > 0 && class.is_some_and(|class| !class.is_proven)
        };
        let has_tries = fates.iter().any(is_tried);
        let is_cut = |fate: &SegmentFate| self.packets(fate.data as u64) > 1;
        match (has_tries, fates.iter().any(is_cut)) {
            (true, _) => Some((0, 0)),
            (false, true) => {
                let sent = fates.iter();
                let sent = sent.map(|fate| fate.sent * self.packets(fate.data as u64));
                let lost = fates.iter().map(|fate| fate.lost);
                Some((sent.sum(), lost.sum()))
            }
            (false, false) => None,
        }
    }

    /// Whether an MTU is that which is known.
    pub(crate) fn knows_mtu(&self, mtu: usize) -> bool {
        self.mtu == Some(mtu)
    }

    /// What is chosen, and why.
    pub(crate) fn choice(&self) -> SegmentChoice {
        let class = self.classes.get(self.present);
        SegmentChoice {
            data_bytes: class.map_or(self.data, |class| class.data),
            packets: class.map_or(1, |class| class.fragments),
            path_mtu: self.mtu,
            reason: self.reason,
            packet_loss: packet_loss(&self.classes, None),
            changes: self.changes,
            probes: self.probes,
            black_holes: self.black_holes,
        }
    }

    /// The data of the next segment of a part of a block of which so many bytes are left. No other than a whole one has a size that has
    /// not arrived yet.
    pub(crate) fn next(&self, left: u64) -> usize {
        match self.probe {
            Some(probe) if probe.left > 0 && left >= (probe.data + self.safe_data) as u64 => {
                probe.data
            }
            _ => self.data,
        }
    }

    /// The data of a segment sent again.
    pub(crate) fn again(&self) -> usize {
        self.data
    }

    /// The data of a segment that asks for a report, of a report's claims, of coded segments: one packet.
    pub(crate) fn single_packet(&self) -> usize {
        self.safe_data
    }

    /// Whether it matters what becomes of a segment of so many bytes.
    pub(crate) fn counts(&self, bytes: u64) -> bool {
        self.is_learning()
            && (bytes == self.data as u64
                || self.probe.is_some_and(|probe| bytes == probe.data as u64))
    }

    /// Packets that carry so many bytes of data.
    pub(crate) fn packets(&self, bytes: u64) -> u64 {
        match self.mtu {
            Some(mtu) => fragments(mtu, usize::try_from(bytes).unwrap_or(usize::MAX)).into(),
            None => 1,
        }
    }

    /// Bytes of headers that the fragments of a segment have beyond those of a packet.
    pub(crate) fn fragment_headers(&self, segment_bytes: usize) -> usize {
        let Some(mtu) = self.mtu else { return 0 };
        let further = segment_bytes.saturating_sub(1) / mtu.max(1);
        further * usize::from(FRAGMENT_OVERHEAD)
    }

    /// Bytes sent in all.
    pub(crate) fn position(&self) -> u64 {
        self.epochs.position()
    }

    /// Red data leave, not as a repetition of a checkpoint: those of a segment, or of a [run](Self::run) of these.
    pub(crate) fn sent(&mut self, now: Instant, bytes: u64) {
        if !self.is_learning() {
            return;
        }
        if let Some(since) = self.idle_since.take()
            && now.saturating_duration_since(since) > self.least / 16
        {
            self.epochs.taint();
        }
        if let Some(probe) = &mut self.probe
            && probe.left > 0
            && bytes == probe.data as u64
        {
            (probe.left, probe.at) = (probe.left - 1, now);
            self.probes += 1;
        }
        self.epochs.sent(now, bytes, self.data);
        if self.rate.is_some() {
            self.pass(now, self.epochs.position());
            if self.is_due(now) {
                self.turn(now);
            }
        }
    }

    /// Whether a report is wanted on what was sent, to compare sizes.
    pub(crate) fn wants_report(&self, now: Instant) -> bool {
        self.rate.is_none() && self.is_learning() && self.is_due(now)
    }

    /// How many segments of the next size may leave before that is another one, or a report is wanted on them.
    pub(crate) fn run(&self, now: Instant) -> u64 {
        if self.probe.is_some_and(|probe| probe.left > 0) {
            return u64::from(!self.wants_report(now));
        }
        if !self.is_learning() {
            return u64::MAX;
        }
        if self.rate.is_some() {
            // Each may end a span.
            return 1;
        }
        let (bytes, age) = self.epochs.present(now);
        match age >= self.least {
            true => begin_below(self.span_bytes(), bytes, self.data as u64),
            false => u64::MAX,
        }
    }

    /// A checkpoint within a red part leaves: the position before its report is reached tells one span from the next.
    pub(crate) fn checkpoint(&mut self, now: Instant) {
        if self.wants_report(now) {
            self.turn(now);
        }
    }

    /// The report came to a checkpoint within a red part that was sent once, at this position. Answers take so long.
    pub(crate) fn reported(&mut self, now: Instant, position: u64, answer: Option<Duration>) {
        self.answer = answer.or(self.answer);
        if self.rate.is_none() && self.is_learning() {
            let answer = answer.unwrap_or_default();
            self.least = self.least.max(answer.min(LONGEST));
            self.pass(now, position);
        }
    }

    /// Nothing waits to be sent: the application is what limits.
    pub(crate) fn idle(&mut self, now: Instant) {
        self.idle_since.get_or_insert(now);
    }

    /// The report came to a checkpoint of so many bytes.
    pub(crate) fn answered(&mut self, now: Instant, bytes: u64) {
        let shorter = self.safe.checked_sub(1).map(|at| self.data_of(at));
        if shorter.is_some_and(|shorter| bytes > shorter as u64) {
            self.last_full = Some(now);
        }
    }

    /// The link stops or starts.
    pub(crate) fn interrupt(&mut self) {
        self.epochs.taint();
    }

    /// A report told what became of segments.
    pub(crate) fn take(&mut self, now: Instant, fates: &[SegmentFate]) {
        if !self.is_learning() || fates.is_empty() {
            return;
        }
        for fate in fates {
            let Some(at) = self.index(fate.data) else {
                continue;
            };
            note(&mut self.classes, at, fate.sent, fate.lost);
            let is_probed = self.probe.is_some_and(|probe| probe.class == at);
            if fate.lost < fate.sent {
                if is_probed {
                    self.arrived(now, at);
                }
                if at == self.safe {
                    self.last_full = Some(now);
                }
            } else if at >= self.safe && at > 0 && self.is_black_hole(at) {
                self.leave_black_hole(now, at);
            } else if is_probed {
                self.extend_probe();
            }
        }
        self.stepped = None;
        if let Some(failed) = self.recheck.take() {
            self.begin_probe(now, failed);
        }
        // Blocks may be short and their reports many.
        let is_lossy = fates.iter().any(|fate| fate.lost > 0);
        if is_lossy && self.present > self.safe || self.full(now).is_some() {
            self.decide(now);
        }
    }

    /// A segment of so many bytes that asks for a report had no answer for several timeouts of this length: packets of its size may not
    /// arrive any more. One that is longer than those of the present size tells nothing of these, and a short one nothing of size.
    pub(crate) fn silent(&mut self, now: Instant, timeout: Duration, bytes: u64) {
        let events = self.stepped.max(self.last_full);
        let is_recent = events.is_some_and(|at| now.saturating_duration_since(at) < timeout * 4);
        let shorter = self.safe.checked_sub(1).map(|at| self.data_of(at));
        let tells = shorter
            .is_some_and(|shorter| (shorter as u64 + 1..=self.safe_data as u64).contains(&bytes));
        if !self.is_learning() || is_recent || !tells {
            return;
        }
        self.stepped = Some(now);
        self.recheck.get_or_insert(self.safe);
        self.probe = None;
        self.trial = None;
        self.choose(self.safe - 1, SizeReason::Silence);
    }

    fn is_learning(&self) -> bool {
        self.is_adaptive && self.mtu.is_some() && self.can_probe && !self.is_coded
    }

    /// The class that fills a packet of a path with this MTU, of Ethernet at most, as an index: the first that is in use.
    fn first(&self, mtu: usize) -> usize {
        let data = single(mtu).min(ETHERNET_SEGMENT_DATA);
        self.index(data).unwrap_or(0)
    }

    fn shortest(&self) -> Duration {
        match self.rate {
            Some(_) => SHORTEST_PACED,
            None => SHORTEST,
        }
    }

    fn index(&self, data: usize) -> Option<usize> {
        self.classes.iter().position(|class| class.data == data)
    }

    fn data_of(&self, at: usize) -> usize {
        self.classes.get(at).map_or(self.data, |class| class.data)
    }

    /// Greatest data of a segment that does not occupy the link for too long.
    fn most_data(&self) -> usize {
        let measured = self.classes.get(self.present).and_then(|class| class.cost);
        let measured = measured.map(|cost| MOST_OCCUPIED.as_secs_f64() / cost.per_byte);
        let by_rate = self.rate.map(|rate| rate.bytes_in(MOST_OCCUPIED) as f64);
        let most = [measured, by_rate]
            .into_iter()
            .flatten()
            .fold(f64::INFINITY, f64::min);
        let all = self.classes.iter().map(|class| class.data);
        let fitting = all.filter(|data| *data as f64 <= most).max();
        fitting.unwrap_or(0).max(ETHERNET_SEGMENT_DATA)
    }

    /// The largest single packet, if it is not in use and may be tried.
    fn full(&self, now: Instant) -> Option<usize> {
        let most = self.most_data();
        let may_try = |class: &Class| {
            let is_full = class.fragments == 1 && class.data <= most;
            is_full && class.is_usable(now) && class.is_rested(now)
        };
        let full = self.classes.iter().rposition(may_try);
        full.filter(|full| *full > self.safe)
    }

    fn is_due(&self, now: Instant) -> bool {
        let (bytes, age) = self.epochs.present(now);
        bytes >= self.span_bytes() && age >= self.least
    }

    /// Bytes of the present span, at least.
    fn span_bytes(&self) -> u64 {
        SPAN_BYTES.max(SPAN_SEGMENTS * self.data as u64)
    }

    /// Begins the next span.
    fn turn(&mut self, now: Instant) {
        let mut next = self.present;
        if let Some(trial) = &mut self.trial {
            trial.stage = match trial.stage {
                Stage::Wanted => {
                    next = trial.class;
                    Stage::Running
                }
                Stage::Running | Stage::Awaited => Stage::Awaited,
            };
        }
        self.data = self.data_of(next);
        self.epochs.turn(now, self.data);
    }

    /// All before this position has arrived, or left at the rate.
    fn pass(&mut self, now: Instant, position: u64) {
        while let Some((data, cost)) = self.epochs.progress(now, position) {
            self.learn(now, data, cost);
        }
    }

    fn learn(&mut self, now: Instant, data: usize, per_byte: f64) {
        if !std::mem::replace(&mut self.is_warm, true) {
            return;
        }
        let Some(at) = self.index(data) else { return };
        if let Some(rate) = self.rate {
            let left = 8.0 * (1.0 + SEGMENT_OVERHEAD / data as f64) / per_byte;
            self.is_rate_bound = left >= BOUND_BY_RATE * rate.mbit() * 1e6;
        }
        let before = self.classes.get(at).and_then(|class| class.cost);
        if let Some(class) = self.classes.get_mut(at) {
            class.measure(per_byte);
        }
        let after = self.classes.get(at).and_then(|class| class.cost);
        if at == self.present {
            // What changed for all sizes says nothing for or against one.
            if let (Some(before), Some(after)) = (before, after) {
                let by = (after.per_byte / before.per_byte).clamp(0.5, 2.0);
                let others = self.classes.iter_mut().enumerate();
                let others = others.filter(|(other, _)| *other != at);
                others.for_each(|(_, class)| class.scale(by));
            }
            let is_calm = self.trial.is_none() && self.probe.is_none();
            if is_calm && after.is_some_and(|cost| cost.times > 2) {
                self.least = (self.least * 2).min(LONGEST);
            }
        }
        let is_tried = |trial: &Trial| trial.class == at && trial.stage != Stage::Wanted;
        if self.trial.as_ref().is_some_and(is_tried) {
            self.end_trial(now, at);
        }
        self.decide(now);
    }

    /// Moves to a size that is known to carry more, or has another one tried that should.
    fn decide(&mut self, now: Instant) {
        self.expire(now);
        if self.probe.is_some() || self.trial.is_some() {
            return;
        }
        if let Some(full) = self.full(now) {
            self.begin_probe(now, full);
            return;
        }
        let loss = packet_loss(&self.classes, None);
        let times = self.classes.get(self.present).and_then(|class| class.cost);
        let times = times.map_or(0, |cost| cost.times);
        let Some(present) = self.carried(self.present, loss) else {
            return;
        };
        let least = present * (1.0 + self.margin());
        let most = self.most_data();
        let possible = |at: usize| {
            let class = self.classes.get(at);
            let class = class.filter(|class| class.is_usable(now) && class.data <= most);
            // Packets of less than the path's are left to those that do not arrive otherwise.
            class.filter(|_| at != self.present && at >= self.safe)
        };
        let by_carried = |at: usize| {
            let carried = self.carried(at, loss).filter(|carried| *carried > least);
            carried.map(|carried| (at, carried))
        };
        let best = |found: Vec<(usize, f64)>| {
            let found = found.into_iter();
            found.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
        };
        let all = 0..self.classes.len();
        let is_known =
            |class: &Class| class.is_proven && (self.is_rate_bound || class.cost.is_some());
        let known = all.clone().filter(|at| possible(*at).is_some_and(is_known));
        let known = best(known.filter_map(by_carried).collect());
        let is_new = |class: &Class| {
            class.is_rested(now) && !(class.is_proven && self.is_rate_bound) && class.cost.is_none()
        };
        let new = all.filter(|at| possible(*at).is_some_and(is_new));
        let new = best(new.filter_map(by_carried).collect());
        // The first measure of a size may be any.
        let is_sure = self.is_rate_bound || times > 1;
        match (known, new.filter(|_| is_sure)) {
            (Some(at), _) => self.adopt(at),
            (None, Some(at)) => self.try_out(now, at),
            (None, None) => self.compare_again(now),
        }
    }

    /// Compares the size of one packet again with a larger one that is in use, now and then.
    fn compare_again(&mut self, now: Instant) {
        let at = self.safe;
        let is_rested = self
            .classes
            .get(at)
            .is_some_and(|class| class.is_rested(now));
        if self.present <= at || self.is_rate_bound || !is_rested {
            return;
        }
        if let Some(class) = self.classes.get_mut(at) {
            class.rest(now);
        }
        self.begin_trial(at);
    }

    fn adopt(&mut self, at: usize) {
        let reason = match (self.is_rate_bound, at > self.present) {
            (true, _) => SizeReason::RateBound,
            (false, true) => SizeReason::Faster,
            (false, false) => SizeReason::Losses,
        };
        self.choose(at, reason);
    }

    fn choose(&mut self, at: usize, reason: SizeReason) {
        self.changes += u64::from(at != self.present);
        self.present = at;
        if let Some(class) = self.classes.get(at).filter(|class| class.fragments == 1) {
            (self.safe, self.safe_data) = (at, class.data);
        }
        self.data = self.data_of(at);
        self.reason = reason;
        self.least = self.shortest();
        // The present span has segments of two sizes.
        self.epochs.taint();
    }

    /// What is too old is forgotten: probes without an answer, spans that will not be measured, costs of sizes that have rested.
    fn expire(&mut self, now: Instant) {
        let patience = self.answer.map_or(self.patience, |answer| {
            (answer * ANSWERS_OF_PROBE).clamp(LONGEST, self.patience)
        });
        let is_over = |probe: &Probe| now.saturating_duration_since(probe.at) > patience;
        if let Some(probe) = self.probe.take_if(|probe| is_over(probe)) {
            self.repeat_probe(now, probe);
        }
        if let Some(trial) = self.trial
            && trial.stage != Stage::Wanted
            && !self.epochs.holds(self.data_of(trial.class))
        {
            self.trial = None;
            self.data = self.data_of(self.present);
            self.repeat_trial(now, trial);
        }
        let (safe, present) = (self.safe, self.present);
        for (at, class) in self.classes.iter_mut().enumerate() {
            if at != safe && at != present && class.rests_until.is_some_and(|until| until <= now) {
                (class.rests_until, class.cost) = (None, None);
            }
        }
    }

    /// By how much another size must be better.
    fn margin(&self) -> f64 {
        if self.is_rate_bound {
            return HEADERS_MARGIN;
        }
        let cost = self.classes.get(self.present).and_then(|class| class.cost);
        cost.map_or(0.05, |cost| cost.noise())
    }

    /// What a size carries: the share that is not lost, over what a byte costs. That is the share of its headers where the link is what
    /// bounds, and what was measured or follows from that elsewhere. `None` while nothing was measured.
    fn carried(&self, at: usize, packet_loss: f64) -> Option<f64> {
        let class = self.classes.get(at)?;
        let loss = class.loss(packet_loss);
        let cost = match (self.is_rate_bound, class.cost) {
            (true, _) => {
                let further = f64::from(class.fragments) - 1.0;
                let headers = SEGMENT_OVERHEAD + further * f64::from(FRAGMENT_OVERHEAD);
                1.0 + headers / class.data as f64
            }
            (false, Some(cost)) => cost.per_byte,
            (false, None) => fitted_cost(&self.classes, class.data)?,
        };
        Some((1.0 - loss).max(0.0) / cost.max(f64::MIN_POSITIVE))
    }
}

#[cfg(test)]
mod tests;
