//! Timers of the peer's sessions. Each leads to another attempt, or to the end of its session.

use super::{Context, ControlSegment, Peer, STRANGE_LIMIT};
use crate::{CancelReason, End, Event, clock::Timer};

/// So many times its patience a block waits, too, while data of others come.
const BUSY_ELSEWHERE: u32 = 7;
/// Repetitions of a checkpoint without an answer after which smaller packets are tried.
const SILENT_ATTEMPTS: u32 = 2;

impl Peer {
    /// Handles all timers that are due.
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        while let Some(timer) = self.timers.pop(self.time(cx)) {
            match timer {
                Timer::Checkpoint(number, serial) => self.repeat_checkpoint(cx, number, serial),
                Timer::Report(number, serial) => self.repeat_report(cx, number, serial),
                Timer::CancelSend(number) => self.repeat_cancel_send(cx, number),
                Timer::CancelReceive(number) => self.repeat_cancel_receive(cx, number),
                Timer::SilentReceiver(number) => self.ask_silent_receiver(cx, number),
                Timer::SilentSender(number) => self.leave_silent_sender(cx, number),
            }
        }
    }

    /// RFC 5326 §6.7.
    fn repeat_checkpoint(&mut self, cx: &mut Context<'_>, number: u64, serial: u64) {
        let limit = self.config.retransmission_limit;
        let session = self.sends.get_mut(&number);
        let Some(sent) = session.and_then(|session| session.checkpoints.get_mut(&serial)) else {
            return;
        };
        sent.timer = None;
        let (attempts, bytes) = (sent.attempts, sent.bytes);
        let timeout = self.answer.timeout(0);
        if attempts >= SILENT_ATTEMPTS {
            self.sizes.silent(cx.now, timeout, bytes);
        }
        match attempts < limit {
            true => self
                .control
                .push_back(ControlSegment::Checkpoint(number, serial)),
            false => self.cancel_send(cx, number, CancelReason::RetransmissionLimit),
        }
    }

    /// RFC 5326 §6.8.
    fn repeat_report(&mut self, cx: &mut Context<'_>, number: u64, serial: u64) {
        let limit = self.config.retransmission_limit;
        let session = self.receives.get_mut(&number);
        let Some(report) = session.and_then(|session| session.reports.get_mut(&serial)) else {
            return;
        };
        report.timer = None;
        report.is_queued = report.attempts <= limit;
        match report.is_queued {
            true => self
                .control
                .push_back(ControlSegment::Report(number, serial)),
            false => self.cancel_receive(cx, number, CancelReason::RetransmissionLimit),
        }
    }

    /// RFC 5326 §6.16.
    fn repeat_cancel_send(&mut self, cx: &mut Context<'_>, number: u64) {
        let limit = self.config.retransmission_limit;
        let session = self.sends.get_mut(&number);
        let Some(cancel) = session.and_then(|session| session.cancel.as_mut()) else {
            return;
        };
        cancel.timer = None;
        match cancel.attempts <= limit {
            true => self.control.push_back(ControlSegment::CancelSend(number)),
            false => drop(self.take_send(cx, number)),
        }
    }

    /// RFC 5326 §6.16.
    fn repeat_cancel_receive(&mut self, cx: &mut Context<'_>, number: u64) {
        let limit = self.config.retransmission_limit;
        let limit = match self.credit.is_limited() {
            true => limit.min(STRANGE_LIMIT),
            false => limit,
        };
        let session = self.receives.get_mut(&number);
        let Some(cancel) = session.and_then(|session| session.cancel.as_mut()) else {
            return;
        };
        cancel.timer = None;
        match cancel.attempts <= limit {
            true => self
                .control
                .push_back(ControlSegment::CancelReceive(number)),
            false => self.end_receive(cx, number),
        }
    }

    /// The RFC knows no timer for this: all checkpoints were answered, but reports are missing.
    fn ask_silent_receiver(&mut self, cx: &mut Context<'_>, number: u64) {
        let (limit, most) = (self.config.retransmission_limit, self.sizes.single_packet());
        let Some(session) = self.sends.get_mut(&number) else {
            return;
        };
        session.silence = None;
        if !session.waits_in_silence() {
            return;
        }
        if session.solicitations >= limit {
            self.cancel_send(cx, number, CancelReason::RetransmissionLimit);
            return;
        }
        session.solicit(most);
        self.queue_repair(number);
    }

    /// Nor for this: the rest of a block never comes, and its sender does not cancel.
    fn leave_silent_sender(&mut self, cx: &mut Context<'_>, number: u64) {
        let now = self.time(cx);
        let Some(session) = self.receives.get(&number) else {
            return;
        };
        // A session whose client has not decided yet, or whose reports the sender has not acknowledged, is not over: the client decides
        // always, and the reports have timers of their own.
        let is_over = !session.is_held() && session.reports.is_empty();
        let patience = self.patience(session);
        // A sender repairs one block before it goes on with the next: over a slow link the next is silent for long. One that began anew
        // does not go on with what it left, so that this has an end.
        let latest = session.heard.plus(patience * BUSY_ELSEWHERE);
        let due = session.heard.max(self.heard.min(latest)).plus(patience);
        let due = match is_over {
            true => due,
            false => due.max(now.plus(self.answer.timeout(0))),
        };
        if due > now {
            self.timers.set(due, Timer::SilentSender(number));
            if let Some(session) = self.receives.get_mut(&number) {
                session.silence = Some(due);
            }
            return;
        }
        let (has_red, id) = (session.has_part_of_red(), self.received_id(number));
        // A sender that is still there would have spoken; it is not asked.
        self.leave_receive(cx, number);
        if has_red {
            cx.events.push_back(Event::ReceiveCancelled {
                session: id,
                by: End::Receiver,
                reason: CancelReason::RetransmissionLimit,
            });
        }
    }
}
