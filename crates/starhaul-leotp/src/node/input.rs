//! What neighbours send.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{MOST_LOOKS, MOST_WANTED, Node, routes::Again, streams::is_relayed_live};
use crate::{
    config::{NeighbourId, Scope},
    event::{Event, Recognised},
    hop::{Arrival, CONTROL_BYTES, Carried, Checked, Hop, bytes_per_second, queue},
    name::{ContentId, Segment},
    pending::Asker,
    requester::Fetch,
    wire::{self, Body, Data, Frame, Numbered, Packet},
};

/// Packet numbers that the reports of one packet are looked up for at most; requesters ask again for the rest.
const MOST_REPAIRED: u64 = 1 << 16;

impl Node {
    /// Takes a datagram that came from a neighbour's address. Returns whether it is the neighbour's.
    pub fn handle_datagram(&mut self, now: Instant, from: NeighbourId, datagram: &[u8]) -> bool {
        self.handle_stamped(now, now, from, datagram)
    }

    /// The same for a datagram that reached the host at `arrived`, and waited for this program since: the link is not
    /// taken to be as late as the program.
    pub fn handle_stamped(
        &mut self,
        now: Instant,
        arrived: Instant,
        from: NeighbourId,
        datagram: &[u8],
    ) -> bool {
        let arrived = arrived.min(now);
        let before = self.waits.longest();
        self.waits.saw(now, now - arrived);
        let longest = self.waits.longest();
        if longest != before {
            let hops = self.hops.values_mut();
            hops.for_each(|hop| hop.expect_waits(longest));
        }
        self.waited = now - arrived;
        let is_of_neighbour = self.handle_waiting(now, arrived, from, datagram);
        self.waited = Duration::ZERO;
        is_of_neighbour
    }

    fn handle_waiting(
        &mut self,
        now: Instant,
        arrived: Instant,
        from: NeighbourId,
        datagram: &[u8],
    ) -> bool {
        let Some(hop) = self.hops.get_mut(&from) else {
            self.stats.refused.strangers += 1;
            return false;
        };
        match wire::parse(datagram) {
            Err(_) => self.stats.refused.malformed += 1,
            Ok(Packet::Hello(hello)) => match hop.handle_hello(now, &hello) {
                None => self.stats.refused.forged += 1,
                Some(is_new) => {
                    if is_new {
                        self.meet(now, from);
                    }
                    return true;
                }
            },
            Ok(Packet::Numbered(packet)) => match hop.check(now, arrived, &packet) {
                Checked::NoKeys | Checked::Forged => self.stats.refused.forged += 1,
                Checked::Replayed => self.stats.refused.replayed += 1,
                Checked::Authentic(arrival) => {
                    self.take(now, from, &packet, &arrival, datagram.len());
                    return true;
                }
            },
        }
        false
    }

    /// Whether a datagram of an unknown address comes from a neighbour, which may have moved.
    pub fn recognises(&self, neighbour: NeighbourId, datagram: &[u8]) -> Recognised {
        let hop = self.hops.get(&neighbour);
        let packet = wire::parse(datagram).ok();
        let recognised = hop.zip(packet).map(|(hop, packet)| hop.recognises(&packet));
        recognised.unwrap_or(Recognised::No)
    }

    /// Whether [`Node::recognises`] has a key to compare this datagram with.
    pub fn may_recognise(&self, neighbour: NeighbourId, datagram: &[u8]) -> bool {
        let hop = self.hops.get(&neighbour);
        hop.is_some_and(|hop| crate::is_hello(datagram) || hop.has_session())
    }

    /// A neighbour began a new life: what it was asked for before is asked for again.
    fn meet(&mut self, now: Instant, id: NeighbourId) {
        self.emit(Event::Met(id));
        if self.hops.get(&id).is_some_and(Hop::is_shared) {
            self.emit(Event::Shared(id));
        }
        self.pending.withdraw_neighbour(id);
        if let Some(streams) = &mut self.streams {
            streams.forget_neighbour(id);
        }
        for relayed in self.relayed.values_mut() {
            relayed.askers.retain(|asker| asker.id != id);
        }
        self.ask_all_again(now, id, Again::NewLife);
    }

    fn take(
        &mut self,
        now: Instant,
        from: NeighbourId,
        packet: &Numbered<'_>,
        arrival: &Arrival,
        bytes: usize,
    ) {
        self.looks = MOST_LOOKS;
        if *arrival == Arrival::Late {
            self.stats.reordered += 1;
        }
        let about = match packet.body {
            Body::Data(data) => {
                let hop = self.hops.get(&from);
                let content = hop.and_then(|hop| hop.content_of(data.handle));
                self.take_data(now, from, packet.head.sent, &data, arrival, bytes);
                content.map(|(content, _)| content)
            }
            Body::Control(frames) => {
                self.take_frames(now, from, frames);
                None
            }
        };
        if self.hops.get_mut(&from).is_some_and(Hop::ends_outage) {
            self.ask_all_again(now, from, Again::Outage);
        }
        self.settle_streams(now);
        // What came with this packet may be read after it: a hole has waited since it arrived, not since then.
        self.report_losses(self.there_since(now), from);
        self.report_rates(now, from, about);
    }

    fn take_data(
        &mut self,
        now: Instant,
        from: NeighbourId,
        sent: u32,
        data: &Data<'_>,
        arrival: &Arrival,
        bytes: usize,
    ) {
        self.stats.data_received += 1;
        let missing = match *arrival {
            Arrival::Newest { missing } => missing,
            _ => 0,
        };
        let content = self.asked_of(from, data.handle);
        let Some(hop) = self.hops.get_mut(&from) else {
            return;
        };
        let (rtt, beyond) = (hop.rtt(), hop.sample());
        let is_relayed =
            self.config.control == Scope::EndToEnd && self.config.recovery == Scope::Hop;
        if is_relayed && data.is_repair {
            // It has the stamp of the relay that repaired it.
            hop.control.on_repair(bytes);
        } else if *arrival != Arrival::Late {
            let rtt = match self.config.control {
                Scope::Hop => Some(rtt),
                // The rate changes a whole round trip later, in which no Interest waits. The first data tell how long that is.
                Scope::EndToEnd => {
                    let base = self.fetches.values().filter_map(Fetch::base).max();
                    let is_first = |fetch: &Fetch| Some(fetch.content) == content;
                    let is_first = base.is_none() && self.fetches.values().any(is_first);
                    base.or((!is_first).then_some(rtt))
                }
            };
            // What other hops lost is counted when it was repaired, and so is what this one lost.
            let missing = if is_relayed { 0 } else { missing };
            hop.observe(sent, bytes, missing, data.is_limited, rtt);
        }
        let Some(content) = content else {
            self.stats.refused.unsolicited += 1;
            return;
        };
        let segment = Segment {
            offset: data.offset,
            is_end: data.is_end,
            sealed: Bytes::copy_from_slice(data.sealed),
        };
        let last = hop.last_data;
        if !data.is_repair && *arrival != Arrival::Late {
            hop.last_data = Some((content, segment.end()));
        }
        if missing > 0
            && let Some((_, lost_from)) = last.filter(|(last, _)| *last == content)
        {
            self.send_voids(
                now,
                content,
                lost_from,
                segment.offset,
                missing * segment.length(),
            );
        }
        self.note_data(now, content, from);
        // Behind the end there is nothing to wait for.
        let end = if segment.is_end {
            u64::MAX
        } else {
            segment.end()
        };
        let mut askers = std::mem::take(&mut self.askers);
        self.pending
            .take_into(&mut askers, now, content, (segment.offset, end));
        if askers.is_empty() {
            self.stats.duplicates += 1;
            self.askers = askers;
            return;
        }
        let kind = (content, self.pending.is_live(content));
        self.stats.evicted += self.cache.insert(kind, &segment);
        let left = (self.config.control == Scope::EndToEnd).then_some(queue::Left {
            stamp: sent,
            is_limited: data.is_limited,
            beyond,
        });
        for asker in askers.drain(..) {
            self.deliver(now, asker, content, &segment, data.is_repair, left);
            if let Asker::Local(id) = asker {
                self.pump(now, id);
            }
        }
        self.askers = askers;
    }

    /// The content that a neighbour was asked for by this number. What it was asked for as one of a stream it does not send, nor deny, as another.
    fn asked_of(&self, from: NeighbourId, handle: u64) -> Option<ContentId> {
        let (content, is_live) = self.hops.get(&from)?.content_of(handle)?;
        (!self.pending.knows_as(content, !is_live)).then_some(content)
    }

    /// Tells those who wait for lost bytes that they are recovered here. Which bytes a hole held follows from what came
    /// before and behind it, if that was of one content and in order.
    fn send_voids(&mut self, now: Instant, content: ContentId, start: u64, end: u64, most: u64) {
        if self.config.recovery == Scope::Hop && start < end && end - start <= most {
            self.pass_void(now, content, start, end);
        }
    }

    fn pass_void(&mut self, now: Instant, content: ContentId, start: u64, end: u64) {
        let looks = &mut self.looks;
        let askers = self.pending.askers_within(looks, content, start, end);
        self.stats.refused.overflow += u64::from(*looks == 0);
        for asker in askers {
            match asker {
                Asker::Local(id) => {
                    if let Some(fetch) = self.fetches.get_mut(&id) {
                        fetch.handle_void(now, start, end);
                    }
                }
                Asker::Stream(id) => {
                    if let Some(streams) = &mut self.streams {
                        streams.handle_void(now, id, start, end);
                    }
                }
                Asker::Neighbour(id, handle) => {
                    if let Some(hop) = self.hops.get_mut(&id) {
                        hop.queue_frame(Frame::Void { handle, start, end });
                    }
                }
            }
        }
    }

    fn take_frames(&mut self, now: Instant, from: NeighbourId, mut frames: &[u8]) {
        if frames.len() > CONTROL_BYTES {
            self.stats.refused.malformed += 1;
            return;
        }
        let mut is_probe = !frames.is_empty();
        let mut repairs = MOST_REPAIRED;
        while !frames.is_empty() {
            let Ok(frame) = Frame::read(&mut frames) else {
                self.stats.refused.malformed += 1;
                return;
            };
            is_probe &= matches!(frame, Frame::Rate { .. } | Frame::Flow { .. });
            self.take_frame(now, from, frame, &mut repairs);
        }
        if is_probe && let Some(hop) = self.hops.get_mut(&from) {
            hop.answer(now);
        }
    }

    /// Takes a frame; `repairs` are the packet numbers that may still be looked at for this packet.
    fn take_frame(&mut self, now: Instant, from: NeighbourId, frame: Frame, repairs: &mut u64) {
        let Some(hop) = self.hops.get_mut(&from) else {
            return;
        };
        match frame {
            Frame::Want {
                content,
                handle,
                start,
                end,
                is_fresh,
                is_live,
            } => {
                let asker = Asker::Neighbour(from, handle);
                self.take_want(now, asker, content, (start, end), is_fresh, is_live);
            }
            Frame::Rate { kbit, greatest } => hop.handle_rate(kbit, greatest),
            Frame::Flow { handle, kbit } => hop.queue.set_rate(handle, bytes_per_second(kbit)),
            Frame::Lost { first, count } => self.repair(now, from, first, count, repairs),
            Frame::Void { handle, start, end } => {
                if let Some(content) = self.asked_of(from, handle) {
                    self.pass_void(now, content, start, end);
                }
            }
            Frame::Refused { handle } => {
                let Some(content) = self.asked_of(from, handle) else {
                    self.stats.refused.unsolicited += 1;
                    return;
                };
                // What a former route lacks, the present one may have.
                if self.route_of(content) != Some(from) {
                    return;
                }
                self.ways.forget(content);
                self.forget_relayed(content);
                let is_live = self.pending.is_live(content);
                for asker in self.pending.refuse(content) {
                    if is_live {
                        self.forget_queued(asker, content);
                    }
                    // Its number means another content by now, which is not refused.
                    if !self.is_reused(asker, content) {
                        self.refuse(now, asker);
                    }
                }
            }
        }
    }

    /// Takes an Interest. What no requester asks for would keep all others who want the content waiting, or empty the cache: of a range that is
    /// too long the first part is asked for, and a range longer than a segment that did not open is not asked for past caches.
    fn take_want(
        &mut self,
        now: Instant,
        asker: Asker,
        content: ContentId,
        (start, end): (u64, u64),
        mut is_fresh: bool,
        is_live: bool,
    ) {
        self.stats.interests += 1;
        let (length, most) = (end - start, crate::MOST_SEGMENT_BYTES as u64);
        if length > MOST_WANTED || is_fresh && length > most {
            self.stats.refused.overflow += 1;
            is_fresh &= length <= most;
        }
        let end = end.min(start + MOST_WANTED);
        self.want(now, asker, content, (start, end), is_fresh, is_live);
    }

    /// Sends again what packets carried that a neighbour reports as lost.
    fn repair(&mut self, now: Instant, to: NeighbourId, first: u32, count: u64, most: &mut u64) {
        let Some(hop) = self.hops.get(&to) else {
            return;
        };
        let next_number = hop.departures.next_number();
        let first = wire::ShortNumber {
            bits: first,
            is_long: true,
        }
        .expand(next_number);
        let (mut from, end) = (first, first.saturating_add(count));
        let mut has_frames = false;
        while let Some(hop) = self.hops.get_mut(&to)
            && let Some(number) = hop.departures.next_known(from).filter(|it| *it < end)
            && let Some(left) = most.checked_sub(1)
        {
            (*most, from) = (left, number + 1);
            match hop.departures.take(number) {
                Some(Carried::Segment {
                    content,
                    handle,
                    start,
                    end,
                    ..
                }) => self.repair_segment(now, to, content, handle, (start, end)),
                Some(Carried::Frames { frames, .. }) => {
                    has_frames = true;
                    self.resend_frames(to, &frames);
                }
                Some(Carried::Nothing) | None => {}
            }
        }
        if has_frames {
            self.forget_reported(to);
        }
    }

    fn repair_segment(
        &mut self,
        now: Instant,
        to: NeighbourId,
        content: ContentId,
        handle: u64,
        (start, end): (u64, u64),
    ) {
        if self.config.recovery == Scope::EndToEnd {
            return;
        }
        let is_own = self.serves(content);
        let is_awaited = self.pending.knows(content);
        let is_live = is_relayed_live(&self.pending, &self.ways, content);
        let since = self.there_since(now);
        let Some(hop) = self.hops.get_mut(&to) else {
            return;
        };
        self.stats.repaired += 1;
        if is_own {
            let has_room = hop.queue.repair_own(since, content, handle, start, end);
            self.stats.queue_drops += u64::from(!has_room);
        } else if let Some(segment) = self.cache.first_in((content, is_live), start, end) {
            let item = queue::Item::Segment {
                segment,
                is_repair: true,
                left: None,
            };
            let has_room = hop.queue.push(
                now,
                since,
                queue::Next {
                    content,
                    handle,
                    item,
                },
            );
            self.stats.queue_drops += u64::from(!has_room);
        } else if is_awaited || !is_live {
            // Nothing of a stream that is not waited for any more.
            self.stats.repairs_refetched += 1;
            self.ask_upstream(
                now,
                Asker::Neighbour(to, handle),
                content,
                (start, end),
                false,
                is_live,
            );
        }
    }

    /// Says again what is still true.
    fn resend_frames(&mut self, to: NeighbourId, frames: &[Frame]) {
        let Some(hop) = self.hops.get_mut(&to) else {
            return;
        };
        for frame in frames {
            let mut again = *frame;
            // What has come since, as where the packet was only late, is not asked for twice, nor what is asked for as another kind by now.
            if let Frame::Want {
                content,
                start,
                end,
                is_live,
                ..
            } = &mut again
            {
                let is_same = self.pending.knows_as(*content, *is_live);
                let part = self.pending.awaited_part(*content, *start, *end);
                let Some(part) = part.filter(|_| is_same) else {
                    continue;
                };
                (*start, *end) = part;
            }
            hop.queue_frame(again);
        }
    }

    /// Reports the packets of a neighbour that are lost.
    pub(super) fn report_losses(&mut self, now: Instant, from: NeighbourId) {
        let Some(hop) = self.hops.get_mut(&from) else {
            return;
        };
        // What finds no room now is reported with the next packet.
        if !hop.has_room_for_frames() {
            return;
        }
        for lost in hop.arrivals.take_lost(now) {
            if self.config.recovery == Scope::EndToEnd {
                continue;
            }
            self.stats.reported_lost += lost.end - lost.start;
            let [_, streams] = self.pending.awaited_of(from);
            hop.note_reports(streams > 0);
            hop.queue_frame(Frame::Lost {
                first: u32::try_from(lost.start & u64::from(u32::MAX)).unwrap_or(0),
                count: lost.end - lost.start,
            });
        }
    }

    fn serves(&self, content: ContentId) -> bool {
        let streams = self.streams.as_ref();
        self.responder.length(content).is_some() || streams.is_some_and(|it| it.serves(content))
    }

    pub(super) fn fail_unreadable(&mut self, id: NeighbourId, content: ContentId, handle: u64) {
        if let Some(hop) = self.hops.get_mut(&id) {
            hop.queue.forget(content, handle);
            if !hop.queue.is_reused(content, handle) {
                hop.queue_frame(Frame::Refused { handle });
            }
        }
        self.stats.refused.unknown += 1;
    }
}
