//! What leaves most: red data that were never sent, in segments that neither ask for a report nor end anything. What is the same for all of
//! them is looked up and encoded once for a batch.

use super::{Context, Peer};
use crate::{
    Batch,
    sdnv::{self, encode},
    segment::{DataKind, begin_plain},
};

/// Bytes of the header of such a segment, at most: five numbers, and two bytes of types and extensions.
const LONGEST_HEADER: usize = 2 + 5 * sdnv::MAX_BYTES;

impl Peer {
    /// Writes such segments of a block, as many as may leave and the batch takes.
    pub(super) fn write_plain(&mut self, cx: &mut Context<'_>, number: u64, batch: &mut Batch) {
        let (now, id, burst) = (self.time(cx), self.sent_id(cx, number), self.pacer.burst());
        let (every, integrity) = (self.config.checkpoint_every, self.config.integrity);
        let Some(session) = self.sends.get_mut(&number) else {
            return;
        };
        // Signatures, codes, and what may be sent to a stranger are a matter of each segment.
        if self.config.auth.is_some() || self.credit.is_limited() || session.is_coded() {
            return;
        }
        let mut header = Vec::with_capacity(LONGEST_HEADER);
        begin_plain(id, session.service, &mut header);
        let beginning = header.len();
        loop {
            let window = self.window.as_ref();
            if window.is_some_and(|window| !window.has_room(cx.now)) {
                return;
            }
            let asks = window.is_some_and(|window| window.wants_report(cx.now))
                || self.sizes.wants_report(cx.now);
            let next = self.sizes.next(session.fresh_red());
            let plan = session.plan_fresh((next, self.sizes.single_packet()), every, asks);
            let Some(plan) = plan.filter(|plan| plan.kind == DataKind::Red) else {
                return;
            };
            if integrity {
                session.check_ahead(&plan);
            }
            let (bytes, payload) = (plan.end - plan.start, session.data(&plan));
            header.truncate(beginning);
            encode(plan.start, &mut header);
            encode(bytes, &mut header);
            if !batch.fits(header.len() + payload.len(), burst) {
                return;
            }
            batch.push(|out| {
                out.extend_from_slice(&header);
                out.extend_from_slice(payload);
            });
            cx.stats.data_segments_sent += 1;
            if let Some(window) = &mut self.window {
                window.sent(bytes, self.sizes.packets(bytes));
            }
            if self.sizes.counts(bytes) {
                session.watch(&plan);
            }
            self.sizes.sent(cx.now, bytes);
            session.commit(&plan, now, |_| now, integrity);
        }
    }
}
