//! What a midnode reports upstream: the rate of each content that it relays, by backpressure (LEOTP, eq. 9), and that it is
//! still there.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::Node;
use crate::{
    config::{NeighbourId, Scope},
    control::least_queue,
    hop::{Hop, kbit, queue::Leaving},
    name::ContentId,
    pending::Asker,
    wire::Frame,
};

/// A content that was not asked for so long is relayed no more.
const IDLE: Duration = Duration::from_secs(10);
/// Neighbours that a content goes to, as far as they count for its rate.
const MOST_ASKERS: usize = 64;
/// An asker that others have asked for so many segments since is not the fastest, or has left the path. An Interest counts as half of them
/// at most, as many as a requester asks for at once: one for all that there is displaces no other asker. What is waited for already does not
/// count: an asker that repeats an Interest displaces none either.
const LEFT_SEGMENTS: u64 = 64;
/// The share of a round-trip time without data after which the neighbour upstream is probed.
const SILENCE: f64 = 0.9;
const LEAST_SILENCE: Duration = Duration::from_millis(1);
/// Silences that follow each other become longer by this factor, up to [`LONGEST_SILENCE`].
const GROWTH: u32 = 2;
const LONGEST_SILENCE: Duration = Duration::from_millis(100);
/// Silences that are broken where data may not exist yet and the neighbour answers: others tell nothing.
const MOST_LIVE_SILENCES: u32 = 2;
/// Streams that wait for one neighbour that does not answer ask it together: no more often than this.
const ASKED_TOGETHER: Duration = Duration::from_millis(50);
/// Contents whose rates are reported in one packet at most.
const MOST_RATES: usize = 16;
/// Of more contents than these, changed rates are sought among all this far apart at least: each control packet asks for them.
const FEW_RELAYED: usize = 256;
const LOOKED: Duration = Duration::from_millis(20);
/// And meanwhile among so many at most that are known to have changed.
const MOST_CHANGED: usize = 64;

/// A content on its way through a node.
#[derive(Debug)]
pub(super) struct Relayed {
    pub(super) upstream: NeighbourId,
    /// This node's number of it, upstream.
    handle: u64,
    /// Who asked, the last one last.
    pub(super) askers: Vec<PastAsker>,
    asked: Instant,
    /// Bytes that all of them asked for first.
    asked_bytes: u64,
    /// The last data of it, and the silence that is broken next.
    heard: Instant,
    silence: Duration,
    /// Silences that were broken since, and whether any data came.
    broken: u32,
    has_data: bool,
    reported: Option<(f64, Instant)>,
}

/// A neighbour that a content goes to.
#[derive(Clone, Copy, Debug)]
pub(super) struct PastAsker {
    pub(super) id: NeighbourId,
    /// Its number of the content.
    handle: u64,
    /// What all had asked for when it asked last.
    asked_bytes: u64,
}

/// When the rates of all contents that come from a neighbour were compared last, and those that changed since.
#[derive(Debug, Default)]
pub(super) struct RateLooks {
    at: Option<Instant>,
    changed: Vec<ContentId>,
}

/// What leaves to each neighbour, found once; without memory for a few of them, as this is asked for each packet.
#[derive(Debug, Default)]
struct LeavingTo {
    few: [Option<(NeighbourId, Leaving)>; 4],
    more: BTreeMap<NeighbourId, Leaving>,
}

impl LeavingTo {
    fn of(&mut self, id: NeighbourId, find: impl FnOnce() -> Leaving) -> Leaving {
        for known in &mut self.few {
            match known {
                Some((known, leaving)) if *known == id => return *leaving,
                Some(_) => {}
                None => return known.insert((id, find())).1,
            }
        }
        *self.more.entry(id).or_insert_with(find)
    }
}

impl Relayed {
    fn note_asker(&mut self, id: NeighbourId, handle: u64, bytes: u64) {
        self.asked_bytes = self.asked_bytes.saturating_add(bytes);
        self.askers
            .retain(|asker| (asker.id, asker.handle) != (id, handle));
        if self.askers.len() >= MOST_ASKERS {
            self.askers.remove(0);
        }
        self.askers.push(PastAsker {
            id,
            handle,
            asked_bytes: self.asked_bytes,
        });
    }

    /// Those that may be the fastest: they ask on.
    pub(super) fn fast_askers(&self, segment_bytes: usize) -> impl Iterator<Item = &PastAsker> {
        let most = LEFT_SEGMENTS * segment_bytes as u64;
        self.askers
            .iter()
            .filter(move |asker| self.asked_bytes - asker.asked_bytes <= most)
    }
}

impl Node {
    /// Notes that bytes of a content are asked for upstream on behalf of an asker.
    pub(super) fn note_relayed(
        &mut self,
        now: Instant,
        content: ContentId,
        (upstream, handle): (NeighbourId, u64),
        asker: Asker,
        bytes: u64,
    ) {
        let rtt = self.hops.get(&upstream).map_or(Duration::ZERO, Hop::rtt);
        let new = || Relayed {
            upstream,
            handle,
            askers: Vec::new(),
            asked: now,
            asked_bytes: 0,
            heard: now,
            silence: rtt.mul_f64(SILENCE).max(LEAST_SILENCE),
            broken: 0,
            has_data: false,
            reported: None,
        };
        self.pending.set_upstream(content, Some(upstream));
        let relayed = self.relayed.entry(content).or_insert_with(new);
        if (relayed.upstream, relayed.handle) != (upstream, handle) {
            *relayed = new();
        }
        relayed.asked = now;
        if let Asker::Neighbour(id, handle) = asker {
            let most = LEFT_SEGMENTS / 2 * self.config.segment_bytes as u64;
            relayed.note_asker(id, handle, bytes.min(most));
        }
        self.silences
            .set_by(content, relayed.heard + relayed.silence);
        if relayed.reported.is_none() {
            self.note_changed(upstream, std::iter::once(content));
        }
    }

    /// Data of a content came.
    pub(super) fn note_data(&mut self, now: Instant, content: ContentId, from: NeighbourId) {
        let rtt = self.hops.get(&from).map_or(Duration::ZERO, Hop::rtt);
        if let Some(relayed) = self
            .relayed
            .get_mut(&content)
            .filter(|relayed| relayed.upstream == from)
        {
            relayed.heard = now;
            relayed.silence = rtt.mul_f64(SILENCE).max(LEAST_SILENCE);
            relayed.broken = 0;
            relayed.has_data = true;
            self.silences.set_by(content, now + relayed.silence);
        }
    }

    /// Forgets contents that are not asked for any more, and what waits of streams for neighbours that do not ask for it. Returns whether any of a
    /// stream is left.
    pub(super) fn forget_idle(&mut self, now: Instant) -> bool {
        let mut has_streams = false;
        for hop in self.hops.values_mut() {
            has_streams |= hop.queue.forget_unwanted(now, IDLE);
        }
        let pending = &mut self.pending;
        self.relayed.retain(|content, relayed| {
            let is_kept = now.saturating_duration_since(relayed.asked) < IDLE
                || pending.waits_for(*content, 0, u64::MAX);
            if !is_kept {
                pending.set_upstream(*content, None);
            }
            is_kept
        });
        self.ways.forget_idle(now, IDLE);
        has_streams || self.ways.len() > 0
    }

    /// When the silence about a content is to be broken. Where the data may not exist yet, what came from the neighbour
    /// after the last data shows that none of them was lost. Who does not answer at all is asked on: it may come back without the data.
    fn breaks_silence_at(&self, content: ContentId, relayed: &Relayed) -> Option<Instant> {
        let is_live = self.pending.is_live(content);
        let hop = self.hops.get(&relayed.upstream)?;
        // What left right behind the last data does not show that these were the last.
        let is_answered = hop.heard() > relayed.heard + hop.rtt() / 8;
        let is_enough = relayed.has_data || relayed.broken >= MOST_LIVE_SILENCES;
        let is_asked_on = is_live && is_enough;
        let is_pointless = is_asked_on && is_answered;
        let is_due = !is_pointless && self.pending.waits_for(content, 0, u64::MAX);
        let at = relayed.heard + relayed.silence;
        // A neighbour behind a slow hop answers late, and what asks it on would take the hop for itself.
        let at = match is_asked_on {
            true => at.max(hop.heard() + hop.overtaken_after()),
            false => at,
        };
        is_due.then_some(at)
    }

    /// Probes neighbours upstream that owe data and are silent: an answer shows what was lost.
    pub(super) fn break_silence(&mut self, now: Instant) {
        for content in self.silences.take_due(now) {
            let relayed = self.relayed.get(&content);
            let breaks_at = relayed.and_then(|it| self.breaks_silence_at(content, it));
            // What is not waited for now is noted again when it is, and so is what was taken out before its time.
            let Some(at) = breaks_at else {
                continue;
            };
            if at > now {
                self.silences.set(content, Some(at));
                continue;
            }
            let is_live = self.pending.is_live(content);
            let Some(relayed) = self.relayed.get_mut(&content) else {
                continue;
            };
            let is_asked_on = is_live && relayed.broken >= MOST_LIVE_SILENCES;
            let hop = self.hops.get_mut(&relayed.upstream);
            // A slow hop would carry little else: an answer takes a round trip.
            let may_ask = |hop: &&mut Hop| {
                let answered_in = ASKED_TOGETHER.max(hop.rtt());
                !(is_asked_on && hop.has_sent_control(now, answered_in))
            };
            if let Some(hop) = hop.filter(may_ask) {
                hop.probe(now);
                // One that began a new life may not know where this node is.
                if relayed.broken > 0 && !is_asked_on {
                    hop.prompt_hello(now);
                }
            }
            relayed.broken += 1;
            let more = (relayed.silence * (GROWTH - 1)).clamp(LEAST_SILENCE, LONGEST_SILENCE);
            // Before it was asked for again, the silence may have lasted for long.
            let lasted = now.saturating_duration_since(relayed.heard);
            relayed.silence = relayed.silence.max(lasted) + more;
            self.silences
                .set(content, Some(relayed.heard + relayed.silence));
        }
    }

    /// The frames about rates that a control packet to a neighbour ends with: the hop's, and those of contents whose
    /// rates changed. Without need, only the hop's.
    pub(super) fn rates_for(&mut self, now: Instant, id: NeighbourId, out: &mut Vec<Frame>) {
        let Some(hop) = self.hops.get(&id) else {
            return;
        };
        let (round, greatest) = (hop.round(), hop.arrivals.next().saturating_sub(1));
        let greatest = u32::try_from(greatest & u64::from(u32::MAX)).unwrap_or(0);
        let rate = self.told_rate(id, hop);
        out.push(Frame::Rate {
            kbit: kbit(rate),
            greatest,
        });
        if self.config.control == Scope::Hop {
            let among = self.suspects(now, id);
            let rates = self.changed_rates(now, id, round, among.as_deref());
            for (content, handle, rate) in rates {
                out.push(Frame::Flow {
                    handle,
                    kbit: kbit(rate),
                });
                if let Some(relayed) = self.relayed.get_mut(&content) {
                    relayed.reported = Some((rate, now));
                }
            }
        }
        if let Some(hop) = self.hops.get_mut(&id) {
            hop.note_reported(now, rate);
        }
    }

    /// Forgets a content that is relayed.
    pub(super) fn forget_relayed(&mut self, content: ContentId) {
        self.relayed.remove(&content);
        self.pending.set_upstream(content, None);
        self.silences.set(content, None);
    }

    /// Whether data of any content are to come from a neighbour.
    pub(super) fn awaits_data_of(&self, id: NeighbourId) -> bool {
        self.pending.awaited_of(id) != [0, 0]
    }

    /// The same for contents that do not grow.
    fn awaits_existing_of(&self, id: NeighbourId) -> bool {
        self.pending.awaited_of(id)[0] > 0
    }

    fn awaits_content_of(&self, content: ContentId, id: NeighbourId) -> bool {
        let relayed = self.relayed.get(&content);
        relayed.is_some_and(|relayed| relayed.upstream == id)
            && self.pending.waits_for(content, 0, u64::MAX)
    }

    /// Reports changed rates to a neighbour while data are to come from it: those of all contents, or of the one that changed.
    pub(super) fn report_rates(&mut self, now: Instant, id: NeighbourId, about: Option<ContentId>) {
        let is_awaited = match about {
            Some(content) if self.reports_soon(now, id, content) => return,
            Some(content) => self.awaits_content_of(content, id),
            None => self.awaits_data_of(id),
        };
        let Some(hop) = self.hops.get(&id).filter(|_| is_awaited) else {
            return;
        };
        // Who waits for what does not exist yet learns nothing from packets without data, and answers none with another.
        if about.is_none() && !hop.has_news() && !self.awaits_existing_of(id) {
            return;
        }
        let rate = self.told_rate(id, hop);
        let (round, own) = (hop.round(), hop.report_at(now, rate));
        let changed = match self.config.control {
            Scope::Hop => {
                let all = about.is_none().then(|| self.suspects(now, id)).flatten();
                let among = about.as_slice();
                let among = Some(among).filter(|it| !it.is_empty());
                self.changed_rates(now, id, round, among.or(all.as_deref()))
            }
            Scope::EndToEnd => Vec::new(),
        };
        self.note_changed(id, changed.iter().map(|(content, ..)| *content));
        let reported = changed.iter().filter_map(|(content, ..)| {
            Some(
                self.relayed
                    .get(content)?
                    .reported
                    .map_or(now, |(_, at)| now.max(at + round / 8)),
            )
        });
        if let Some(at) = reported.chain(own).min()
            && let Some(hop) = self.hops.get_mut(&id)
        {
            hop.send_control_by(at);
        }
    }

    /// Whether a packet with the rates as they are then leaves to a neighbour before news of this content could be reported: whether they changed need not
    /// be found until then, as for each packet meanwhile. Of many contents, those that changed are noted.
    fn reports_soon(&self, now: Instant, id: NeighbourId, content: ContentId) -> bool {
        let hop = self
            .hops
            .get(&id)
            .filter(|_| self.relayed.len() <= FEW_RELAYED);
        let Some((hop, leaves)) = hop.and_then(|hop| Some((hop, hop.sends_control_at()?))) else {
            return false;
        };
        let reported = self.relayed.get(&content).and_then(|it| it.reported);
        let news = reported.map_or(now, |(_, at)| now.max(at + hop.round() / 8));
        let is_due = |own: Instant| leaves <= own;
        leaves <= news
            && hop
                .report_at(now, self.told_rate(id, hop))
                .is_none_or(is_due)
    }

    /// The rate that a neighbour upstream is told.
    fn told_rate(&self, id: NeighbourId, hop: &Hop) -> f64 {
        let downstream = match self.config.control {
            Scope::Hop => None,
            Scope::EndToEnd => self.rate_downstream(id),
        };
        downstream.unwrap_or_else(|| hop.measured_rate())
    }

    /// Reports of rates to a neighbour may not have arrived.
    pub(super) fn forget_reported(&mut self, id: NeighbourId) {
        self.hops
            .get_mut(&id)
            .into_iter()
            .for_each(crate::hop::Hop::forget_reported);
        for relayed in self
            .relayed
            .values_mut()
            .filter(|relayed| relayed.upstream == id)
        {
            relayed.reported = None;
        }
    }

    /// The contents among which changed rates are sought: `None` for all, unless these are many and were looked at of late.
    fn suspects(&mut self, now: Instant, id: NeighbourId) -> Option<Vec<ContentId>> {
        if self.relayed.len() <= FEW_RELAYED {
            return None;
        }
        let looks = self.rate_looks.entry(id).or_default();
        let changed = std::mem::take(&mut looks.changed);
        let is_recent = |at| now.saturating_duration_since(at) < LOOKED;
        if looks.at.is_some_and(is_recent) {
            return Some(changed);
        }
        looks.at = Some(now);
        None
    }

    /// Notes which rates changed, so that they are found without a search of all contents.
    fn note_changed(&mut self, id: NeighbourId, changed: impl Iterator<Item = ContentId>) {
        if self.relayed.len() <= FEW_RELAYED {
            return;
        }
        let known = &mut self.rate_looks.entry(id).or_default().changed;
        for content in changed {
            if known.len() < MOST_CHANGED && !known.contains(&content) {
                known.push(content);
            }
        }
    }

    /// The contents whose rates differ from those reported to the neighbour upstream: of all, or of those `among` which they are sought.
    fn changed_rates(
        &self,
        now: Instant,
        id: NeighbourId,
        round: Duration,
        among: Option<&[ContentId]>,
    ) -> Vec<(ContentId, u64, f64)> {
        let some = among.into_iter().flatten();
        let some = some.filter_map(|content| self.relayed.get_key_value(content));
        let all = self.relayed.iter().filter(|_| among.is_none());
        let of_neighbour = some.chain(all);
        let of_neighbour = of_neighbour.filter(|(_, relayed)| relayed.upstream == id);
        let mut leaving = LeavingTo::default();
        let changed = of_neighbour.filter_map(|(content, relayed)| {
            let rate = self.backpressure(now, relayed, round, &mut leaving)?;
            let is_news = relayed.reported.is_none_or(|(reported, _)| {
                (rate - reported).abs() > 0.02 * reported || !reported.is_finite()
            });
            is_news.then_some((*content, relayed.handle, rate))
        });
        changed.take(MOST_RATES).collect()
    }

    /// The rate at which a content may come from upstream: that at which it leaves, corrected so that a small backlog
    /// remains. Of several that it goes to, the fastest decides; the others find it in the cache. `None`: it stays here.
    /// `leaving`: what was found of the neighbours already.
    fn backpressure(
        &self,
        now: Instant,
        relayed: &Relayed,
        round: Duration,
        leaving: &mut LeavingTo,
    ) -> Option<f64> {
        #[cfg(test)]
        self.rates_found.update(|found| found + 1);
        let segment_bytes = f64::from(u32::try_from(self.config.segment_bytes).unwrap_or(u32::MAX));
        let few = self.config.backlog_segments * segment_bytes;
        let (least_wait, round) = (least_queue(round).as_secs_f64(), round.as_secs_f64());
        let askers = relayed.fast_askers(self.config.segment_bytes);
        let least = segment_bytes / round / 4.0;
        let rates = askers.filter_map(|PastAsker { id, handle, .. }| {
            let hop = self.hops.get(id)?;
            let (backlog, said) = hop.queue.backlog(*handle);
            let all = leaving.of(*id, || hop.queue.leaving(now));
            let [equal, share] = hop.queue.share(now, *handle, hop.takes(), &all);
            let leaves = said.map_or(share, |said| share.min(said));
            // What leaves while this program waits for a processor must be there, beside what makes up for losses of the hop before.
            let wait = self.waits.longest().min(hop.longest_made_up());
            let wanted = few.max(leaves * least_wait) + leaves * wait.as_secs_f64();
            let excess = wanted - f64::from(u32::try_from(backlog).unwrap_or(u32::MAX));
            // Where many share a slow link, each leaves at less than the least rate: a backlog must become shorter even so.
            let least = least.min(equal.min(leaves) / 2.0);
            Some((leaves + excess / round).max(least))
        });
        rates.reduce(f64::max)
    }

    /// Without control of hops: the rate of the neighbour that what comes from this one goes to.
    fn rate_downstream(&self, upstream: NeighbourId) -> Option<f64> {
        let relayed = self
            .relayed
            .values()
            .filter(|relayed| relayed.upstream == upstream);
        let askers = relayed.flat_map(|relayed| relayed.fast_askers(self.config.segment_bytes));
        askers
            .filter_map(|asker| Some(self.hops.get(&asker.id)?.takes()))
            .reduce(f64::max)
    }
}

#[cfg(test)]
mod tests;
