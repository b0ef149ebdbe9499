//! Events that wait for the application, within their bounds.

use std::collections::VecDeque;

use crate::{receive::inbound::Inbound, types::Event};

/// Events beyond this are dropped when the application does not take them; those of blocks of ours never.
const MAX_EVENTS: usize = 1 << 16;

/// What the session has to say, oldest first. The blocks among it count as held by [`Inbound`] until they are taken.
#[derive(Debug, Default)]
pub(crate) struct Events {
    waiting: VecDeque<Event>,
    /// How many of them no other bound limits.
    unbounded: usize,
}

impl Events {
    pub(crate) fn push(&mut self, event: Event, inbound: &mut Inbound) {
        match &event {
            // Others make room first: see `Session::make_room`.
            Event::BlockReceived { data, .. } => inbound.hold(data),
            event if has_own_bound(event) => {}
            _ if self.unbounded >= MAX_EVENTS => return,
            _ => self.unbounded += 1,
        }
        self.waiting.push_back(event);
    }

    pub(crate) fn take(&mut self, inbound: &mut Inbound) -> Option<Event> {
        let event = self.waiting.pop_front()?;
        match &event {
            Event::BlockReceived { data, .. } => inbound.release(data),
            event if has_own_bound(event) => {}
            _ => self.unbounded -= 1,
        }
        Some(event)
    }

    /// Drops the oldest received blocks that the application did not take, while more is held than may be.
    pub(crate) fn make_room(&mut self, inbound: &mut Inbound) {
        while inbound.is_over_bound() {
            let is_block = |event: &Event| matches!(event, Event::BlockReceived { .. });
            let oldest = self.waiting.iter().position(is_block);
            let Some(Event::BlockReceived { data, .. }) =
                oldest.and_then(|at| self.waiting.remove(at))
            else {
                return;
            };
            inbound.release(&data);
            inbound.count_dropped(1);
        }
    }
}

/// Whether something else limits how many of such events wait: memory, blocks, or one for each stream until it is taken. Something waits
/// for each of them.
const fn has_own_bound(event: &Event) -> bool {
    matches!(
        event,
        Event::BlockReceived { .. }
            | Event::BlockOutcome { .. }
            | Event::Readable(_)
            | Event::Writable(_)
    )
}
