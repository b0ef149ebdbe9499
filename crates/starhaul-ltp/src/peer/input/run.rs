//! Datagrams that came together. Those of a red part that follow one another are looked up, checked and counted once for all of them.

use super::{Context, Peer, has_room};
use crate::{
    SessionId,
    segment::{DataKind, PlainRun},
};

impl Peer {
    /// Takes datagrams, each of which has `stride` bytes but the last, which may be shorter; returns whether a segment was well-formed, and
    /// signed if it must be.
    pub(crate) fn handle_datagrams(
        &mut self,
        cx: &mut Context<'_>,
        datagrams: &[u8],
        stride: usize,
    ) -> bool {
        let (mut rest, stride, mut is_believed) = (datagrams, stride.max(1), false);
        while !rest.is_empty() {
            let is_wanted = |session, service| self.takes_runs(session, service);
            let run = PlainRun::find(self.encoding(), rest, stride, is_wanted);
            let bytes = run.as_ref().map_or(stride, |run| run.bytes);
            let (these, behind) = rest.split_at(bytes.min(rest.len()));
            rest = behind;
            if run.is_some_and(|run| self.take_run(cx, &run)) {
                is_believed = true;
                continue;
            }
            for datagram in these.chunks(stride) {
                is_believed |= self.handle_datagram(cx, datagram);
            }
        }
        is_believed
    }

    /// Whether segments of a session are taken several at a time: not where each is signed, or does more than to bring its data.
    fn takes_runs(&self, id: SessionId, service: u64) -> bool {
        let session = self.receives.get(&id.number);
        let is_open = session.is_some_and(|session| session.takes_runs(service));
        is_open && id.originator == self.id && self.config.auth.is_none()
    }

    /// Takes segments of a session that takes them so, as if they were one; `false` if something of it does not fit, so that each is to be
    /// looked at.
    fn take_run(&mut self, cx: &mut Context<'_>, run: &PlainRun<'_>) -> bool {
        let (now, number) = (self.time(cx), run.session.number);
        let longest = self.config.longest_block(cx.memory.receive_limit);
        let Some(session) = self.receives.get_mut(&number) else {
            return false;
        };
        let most = session.width() + session.cost_of_run(run);
        let is_fitting = run.end <= longest && session.is_within_red(run.end);
        if !is_fitting || !has_room(&self.config, self.memory, cx, most) {
            return false;
        }
        session.hear(now);
        let is_again = session.pass(run.start, run.end);
        let first = run.payloads.first().map_or(0, |payload| payload.len());
        let again = usize::from(is_again) * run.payloads.len();
        self.arrivals.came(DataKind::Red, first, again);
        let held = session.held();
        let new = session.take_run(run);
        let (now_held, completes) = (session.held(), session.is_newly_complete());
        (self.heard, self.last_word) = (now, cx.now);
        let segments = run.payloads.len();
        self.credit
            .earn(run.bytes + segments * self.config.overhead);
        cx.stats.segments_received += segments as u64;
        cx.stats.duplicate_bytes += run.length() - new;
        self.note_red(cx, (held, now_held), new, 0);
        if completes {
            self.report_on(cx, run.session, None, run.end);
            self.end_if_finished(cx, number);
        }
        true
    }
}
