//! What leaves.

use std::{
    ops::Bound::{self, Excluded, Included, Unbounded},
    time::Instant,
};

use super::{Node, streams::is_relayed_live};
use crate::{
    config::{NeighbourId, Scope},
    hop::{
        Carried,
        queue::{Cut, Item},
    },
    wire::{Data, Frame},
};

impl Node {
    /// Appends the next datagram that may leave now to `out`, and returns the neighbour that it is for. Neighbours take turns.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<NeighbourId> {
        let (begin, last) = (out.len(), self.last_sent);
        for (mut from, to) in [(Excluded(last), Unbounded), (Unbounded, Included(last))] {
            while let Some(id) = self.next_ready(now, (from, to)) {
                let has_sent = self.transmit_to(now, id, out);
                // The end of a stream may just have left.
                self.settle_streams(now);
                if has_sent {
                    self.last_sent = id;
                    self.stats.bytes_sent += (out.len() - begin) as u64;
                    return Some(id);
                }
                from = Excluded(id);
            }
        }
        None
    }

    /// The first of these neighbours for which something may leave.
    fn next_ready(
        &self,
        now: Instant,
        among: (Bound<NeighbourId>, Bound<NeighbourId>),
    ) -> Option<NeighbourId> {
        let mut hops = self.hops.range(among);
        hops.find_map(|(id, hop)| hop.may_send(now).then_some(*id))
    }

    fn transmit_to(&mut self, now: Instant, id: NeighbourId, out: &mut Vec<u8>) -> bool {
        let Some(hop) = self.hops.get_mut(&id) else {
            return false;
        };
        if let Some(hello) = hop.poll_hello(now) {
            hello.write(out);
            return true;
        }
        if hop.is_control_due(now) {
            let mut rates: Vec<Frame> = Vec::new();
            // An answer with rates would be answered in turn.
            if hop.is_probe_due(now) || !hop.owes_answer() && self.awaits_data_of(id) {
                self.rates_for(now, id, &mut rates);
            }
            if let Some(hop) = self.hops.get_mut(&id) {
                hop.write_control(now, &rates, out);
                self.stats.control_sent += 1;
            }
            return true;
        }
        self.transmit_data(now, id, out)
    }

    fn transmit_data(&mut self, now: Instant, id: NeighbourId, out: &mut Vec<u8>) -> bool {
        let segment_bytes = self.config.segment_bytes as u64;
        // Without control of hops, what a relay has leaves at once.
        let relays_at_once = self.config.control == Scope::EndToEnd;
        loop {
            let Some(hop) = self.hops.get_mut(&id) else {
                return false;
            };
            let is_unpaced = relays_at_once && hop.is_met() && hop.queue.bytes() > 0;
            if !is_unpaced && !hop.may_send_data(now) {
                return false;
            }
            let streams = &mut self.streams;
            let cut = |content, handle, (start, end)| match streams {
                Some(streams) if streams.serves(content) => {
                    streams.cut(now, content, (id, handle), (start, end))
                }
                _ => Some(Cut::at_multiple(segment_bytes, start, end)),
            };
            let (next, since) = match hop.queue.pop(now, hop.made_up_since(now), cut) {
                Ok(popped) => {
                    hop.flows_wait(None);
                    popped
                }
                Err(at) => {
                    hop.flows_wait(at);
                    return false;
                }
            };
            let (segment, is_repair, left, is_live) = match next.item {
                Item::Segment {
                    segment,
                    is_repair,
                    left,
                } => {
                    let is_live = is_relayed_live(&self.pending, &self.ways, next.content);
                    (segment, is_repair, left, is_live)
                }
                Item::Own { start, .. } => {
                    let streams = self.streams.as_ref();
                    let live = streams.and_then(|it| it.segment(next.content, start));
                    let fixed = || self.responder.segment(next.content, start, segment_bytes);
                    let is_live = live.is_some();
                    match live.or_else(fixed) {
                        Some(segment) => (segment, false, None, is_live),
                        None => {
                            self.fail_unreadable(id, next.content, next.handle);
                            continue;
                        }
                    }
                }
            };
            let data = Data {
                handle: next.handle,
                offset: segment.offset,
                is_end: segment.is_end,
                is_repair,
                is_limited: left
                    .map_or_else(|| hop.queue.is_limited(hop.takes()), |left| left.is_limited),
                sealed: &segment.sealed,
            };
            let carried = Carried::Segment {
                content: next.content,
                handle: next.handle,
                start: segment.offset,
                end: segment.end().max(segment.offset + 1),
                is_live,
            };
            hop.write_data(now, since, &data, carried, left, out);
            self.stats.data_sent += 1;
            self.report_upstream(now, next.content);
            return true;
        }
    }

    /// The backlog of a content changed: its rate upstream may, too.
    fn report_upstream(&mut self, now: Instant, content: crate::name::ContentId) {
        if let Some(upstream) = self.relayed.get(&content).map(|relayed| relayed.upstream) {
            self.report_rates(now, upstream, Some(content));
        }
    }
}
