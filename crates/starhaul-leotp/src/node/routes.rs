//! The neighbour that a content is asked for at, and what is asked for again where that is another one, began a new life, or did not answer for a while.

use std::time::Instant;

use super::{MOST_WANTED, Node};
use crate::{config::NeighbourId, name::ContentId, pending::Asker, wire::Frame};

/// Why what was asked for may not come any more.
#[derive(Clone, Copy, Debug)]
pub(super) enum Again {
    /// Another neighbour is asked now; what the former one has sent still comes.
    OtherPath,
    /// The neighbour began a new life, and knows of nothing.
    NewLife,
    /// The neighbour did not answer for a while: only what was asked for in vain since, for the rest is under way or repaired by the hop.
    Outage,
}

impl Node {
    /// Sets the neighbour that is asked for contents without a route of their own, and asks it for all that was asked of the
    /// former one. What the former one still sends is taken.
    pub fn set_upstream(&mut self, now: Instant, upstream: Option<NeighbourId>) {
        let before = std::mem::replace(&mut self.upstream, upstream);
        if before == upstream {
            return;
        }
        let contents: Vec<ContentId> = self
            .pending
            .contents()
            .filter(|content| !self.routes.contains_key(content))
            .filter(|content| self.ways.route(*content).is_none())
            .collect();
        for content in contents {
            self.reroute(now, content);
        }
    }

    /// Sets the neighbour that is asked for one content, as [`Node::set_upstream`] does for all; `None`: the upstream
    /// neighbour.
    pub fn set_route(&mut self, now: Instant, content: ContentId, to: Option<NeighbourId>) {
        let before = match to {
            Some(to) => self.routes.insert(content, to),
            None => self.routes.remove(&content),
        };
        if before != to {
            self.reroute(now, content);
        }
    }

    pub(super) fn route_of(&self, content: ContentId) -> Option<NeighbourId> {
        let learned = || self.ways.route(content).unwrap_or(self.upstream);
        self.routes.get(&content).copied().or_else(learned)
    }

    /// Asks the neighbour that a content comes from now for what is waited for: its path is another.
    pub(super) fn reroute(&mut self, now: Instant, content: ContentId) {
        self.ask_again(now, content, Again::OtherPath);
    }

    /// Asks the neighbour that a content comes from for what is waited for and may not come any more.
    fn ask_again(&mut self, now: Instant, content: ContentId, why: Again) {
        if !matches!(why, Again::Outage) {
            self.forget_relayed(content);
        }
        let route = self.route_of(content);
        let Some((route, hop)) = route.and_then(|id| Some((id, self.hops.get_mut(&id)?))) else {
            return;
        };
        let pending = &mut self.pending;
        let askers = pending.askers(content, 0, u64::MAX);
        if askers.is_empty() {
            return;
        }
        let is_live = pending.is_live(content);
        let Some(handle) = hop.handle_of((content, is_live), |kind| pending.is_idle(kind)) else {
            return;
        };
        let mut ranges = Vec::new();
        for asker in &askers {
            match asker {
                Asker::Local(id) => {
                    let Some(fetch) = self.fetches.get_mut(id) else {
                        continue;
                    };
                    match why {
                        Again::OtherPath => ranges.extend(fetch.change_path(now)),
                        Again::NewLife => fetch.begin_anew(now),
                        Again::Outage => fetch.end_outage(now),
                    }
                }
                Asker::Stream(id) => {
                    let Some(streams) = self.streams.as_mut() else {
                        continue;
                    };
                    match why {
                        Again::OtherPath | Again::NewLife => {
                            ranges.extend(streams.change_path(now, *id));
                        }
                        Again::Outage => streams.end_outage(now, *id),
                    }
                }
                Asker::Neighbour(..) => {}
            }
        }
        let mut is_relayed = askers.iter();
        let is_relayed = is_relayed.any(|asker| matches!(asker, Asker::Neighbour(..)));
        match why {
            // Of what comes from the former neighbour, own requesters know how much is under way.
            Again::OtherPath if !is_relayed => {
                for range in &ranges {
                    pending.note_asked(content, now, *range);
                }
            }
            Again::OtherPath | Again::NewLife => ranges = pending.renew(content, now),
            Again::Outage => ranges = pending.renew_repeated(content, now),
        }
        for (start, end) in ranges.into_iter().flat_map(in_parts) {
            // Those who wait ask again.
            if !hop.has_room_for_frames() {
                break;
            }
            hop.queue_frame(Frame::Want {
                content,
                handle,
                start,
                end,
                is_fresh: false,
                is_live,
            });
        }
        if matches!(why, Again::Outage) {
            return;
        }
        for asker in askers {
            self.note_relayed(now, content, (route, handle), asker, 0);
        }
    }

    /// Asks a neighbour for all contents that come from it.
    pub(super) fn ask_all_again(&mut self, now: Instant, id: NeighbourId, why: Again) {
        let contents: Vec<ContentId> = self
            .pending
            .contents()
            .filter(|content| self.route_of(*content) == Some(id))
            .collect();
        for content in contents {
            self.ask_again(now, content, why);
        }
    }
}

/// A range in parts that one Interest may ask for.
fn in_parts((start, end): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    let starts = std::iter::successors(Some(start), |at| Some(at + MOST_WANTED));
    let starts = starts.take_while(move |at| *at < end);
    starts.map(move |at| (at, end.min(at + MOST_WANTED)))
}
