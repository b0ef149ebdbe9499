//! Segments from the peer.

mod run;

use bytes::Bytes;
use starhaul_fec::Codec;

use super::{Context, ControlSegment, Peer};
use crate::{
    CancelReason, End, Event, PeerConfig, SessionId,
    clock::Timer,
    coding::SYMBOL_COST,
    integrity,
    receive::{ReceiveSession, Refusal},
    segment::{
        Body, Checkpoint, Data, Encoding, Extensions, Parity, Repair, Report, Segment, parse,
    },
    send::ReportOutcome,
};

/// Bytes of a report without its claims, at most: control byte, numbers, extensions.
const REPORT_HEADER: usize = 96;

impl Peer {
    /// Takes a datagram, which may hold several segments; returns whether one was well-formed, and signed if it must be.
    fn handle_datagram(&mut self, cx: &mut Context<'_>, datagram: &[u8]) -> bool {
        let (mut rest, mut is_believed) = (datagram, false);
        self.credit.earn(datagram.len() + self.config.overhead);
        while let Some(&control) = rest.first() {
            // Numbers of a peer with another profile would be taken for others: nothing of it is looked at.
            if Encoding::of(control).is_some_and(|encoding| encoding != self.encoding()) {
                cx.stats.dropped.other_profile += 1;
                break;
            }
            let Ok((segment, behind)) = parse(rest) else {
                cx.stats.dropped.malformed += 1;
                break;
            };
            let raw = &rest[..rest.len() - behind.len()];
            rest = behind;
            cx.stats.segments_received += 1;
            let key = self.config.auth.as_ref();
            if key.is_some_and(|key| !key.is_signed(&segment, raw)) {
                cx.stats.dropped.unauthenticated += 1;
                continue;
            }
            is_believed = true;
            self.last_word = cx.now;
            self.handle_segment(cx, &segment);
        }
        is_believed
    }

    fn handle_segment(&mut self, cx: &mut Context<'_>, segment: &Segment<'_>) {
        let session = segment.session;
        // The originator sends data, acknowledges reports, and cancels as sender; the other engine does the rest.
        let expected = match segment.body {
            Body::Data(_)
            | Body::Repair(_)
            | Body::Parity(_)
            | Body::ReportAck { .. }
            | Body::Cancel {
                by: End::Sender, ..
            }
            | Body::CancelAck { by: End::Receiver } => self.id,
            _ => cx.local,
        };
        if session.originator != expected {
            cx.stats.dropped.misdirected += 1;
            if matches!(segment.body, Body::Data(_)) && session.originator != cx.local {
                self.other = Some(session.originator);
            }
            return;
        }
        match segment.body {
            Body::Data(data) => self.handle_data(cx, session, &data, segment.trailer),
            Body::Repair(repair) => {
                self.handle_repair(cx, session, &repair, segment.trailer);
            }
            Body::Parity(parity) => self.handle_parity(cx, session, &parity, segment.trailer),
            Body::Report(report) => self.handle_report(cx, session, &report, segment.trailer),
            Body::ReportAck { report } => self.handle_report_ack(cx, session.number, report),
            Body::Cancel { by, reason } => self.handle_cancel(cx, session, by, reason),
            Body::CancelAck { by } => self.handle_cancel_ack(cx, session.number, by),
        }
    }

    fn handle_data(
        &mut self,
        cx: &mut Context<'_>,
        id: SessionId,
        data: &Data<'_>,
        trailer: Extensions<'_>,
    ) {
        let now = self.time(cx);
        let is_known = self.receives.contains_key(&id.number);
        let range = (data.offset, data.offset + data.payload.len() as u64);
        if !is_known && !self.begin_receive(cx, id, data.service, Some(range)) {
            return;
        }
        let Some(session) = self.receives.get_mut(&id.number) else {
            return;
        };
        if session.cancel.is_some() {
            cx.stats.dropped.late += 1;
            return;
        }
        match session.check(data) {
            Ok(()) => {}
            Err(Refusal::Miscolored) => {
                self.cancel_receive(cx, id.number, CancelReason::Miscolored);
                return;
            }
            Err(Refusal::Contradiction) => {
                cx.stats.dropped.contradiction += 1;
                return;
            }
        }
        session.hear(now);
        if data.kind.is_red() {
            let is_again = session.pass(data.offset, data.offset + data.payload.len() as u64);
            let again = usize::from(is_again);
            self.arrivals.came(data.kind, data.payload.len(), again);
        }
        self.heard = now;
        match data.kind.is_red() {
            true => self.handle_red(cx, id, data, integrity::checksum(trailer)),
            false => {
                handle_green(cx, id, session, data, integrity::checksum(trailer));
                self.end_if_finished(cx, id.number);
            }
        }
    }

    fn end_if_finished(&mut self, cx: &mut Context<'_>, number: u64) {
        let session = self.receives.get(&number).filter(|s| s.cancel.is_none());
        if session.is_some_and(ReceiveSession::is_finished) {
            self.end_receive(cx, number);
        }
    }

    /// Begins a session with its first segment, whose data begin and end there if it has some; `false` if the segment is dropped.
    fn begin_receive(
        &mut self,
        cx: &mut Context<'_>,
        id: SessionId,
        service: u64,
        data: Option<(u64, u64)>,
    ) -> bool {
        let now = self.time(cx);
        if self.damaged.is_rest(id.number, data) {
            cx.stats.dropped.late += 1;
            return false;
        }
        if self.ended.contains(now, id.number) {
            if self.config.is_one_way {
                // Its sender may go on with it for longer than a number is known.
                self.ended.insert(now, id.number);
            }
            cx.stats.dropped.late += 1;
            return false;
        }
        let has_memory = cx.memory.receiving <= cx.memory.receive_limit / 2
            && self.memory <= self.config.receive_memory / 2;
        if self.receives.len() >= self.config.sessions || !has_memory {
            cx.stats.dropped.no_room += 1;
            return false;
        }
        let mut session =
            ReceiveSession::new(service, cx.numbers.serial(), cx.numbers.reception(), now)
                .expecting(self.usual, self.encoding());
        if !cx.services.contains(&service) {
            self.receives.insert(id.number, session);
            self.refuse_service(cx, id.number);
            return false;
        }
        let due = now.plus(self.patience(&session));
        session.silence = Some(due);
        self.timers.set(due, Timer::SilentSender(id.number));
        self.receives.insert(id.number, session);
        cx.events.push_back(Event::Receiving {
            session: id,
            service,
        });
        true
    }

    /// Cancels a session that no client service knows of (RFC 5326 §6).
    fn refuse_service(&mut self, cx: &mut Context<'_>, number: u64) {
        let before = cx.events.len();
        self.cancel_receive(cx, number, CancelReason::Unreachable);
        cx.events.truncate(before);
    }

    /// Cancels a session whose block is longer than any that is taken: its sender would repeat it, and hear nothing.
    fn refuse_length(&mut self, cx: &mut Context<'_>, number: u64) {
        cx.stats.dropped.no_room += 1;
        self.cancel_receive(cx, number, CancelReason::System);
    }

    fn handle_red(
        &mut self,
        cx: &mut Context<'_>,
        id: SessionId,
        data: &Data<'_>,
        checksum: Option<u32>,
    ) {
        let end = data.offset + data.payload.len() as u64;
        let Some(session) = self.receives.get_mut(&id.number) else {
            return;
        };
        if end > self.config.longest_block(cx.memory.receive_limit) && !session.is_delivered() {
            return self.refuse_length(cx, id.number);
        }
        let most = session.width() + session.cost(data);
        if !has_room(&self.config, self.memory, cx, most) {
            session.stay();
        }
        let (cost, held) = (session.cost(data), session.held());
        if !has_room(&self.config, self.memory, cx, cost) && !session.is_delivered() {
            cx.stats.dropped.no_room += 1;
            return;
        }
        let new = session.take_red(data, checksum);
        let recovered = match new > 0 {
            true => session.recover(&mut self.codec, data.offset),
            false => 0,
        };
        let (now_held, completes) = (session.held(), session.is_newly_complete());
        cx.stats.duplicate_bytes += data.payload.len() as u64 - new;
        self.note_red(cx, (held, now_held), new, recovered);
        if completes || data.checkpoint.is_some() {
            self.report_on(cx, id, data.checkpoint, end);
            self.end_if_finished(cx, id.number);
        }
    }

    /// A repair symbol; it may complete the red part.
    fn handle_repair(
        &mut self,
        cx: &mut Context<'_>,
        id: SessionId,
        repair: &Repair<'_>,
        trailer: Extensions<'_>,
    ) {
        // A symbol, and the data that it may recover.
        let cost = repair.payload.len() * (1 + usize::from(repair.repairs)) + SYMBOL_COST;
        let checksum = integrity::checksum(trailer);
        let take = |session: &mut ReceiveSession, codec: &mut Codec| {
            session.take_symbol(codec, repair, checksum)
        };
        self.handle_coded(cx, id, (repair.service, repair.red), cost, take);
    }

    /// A parity; it may complete the red part, too.
    fn handle_parity(
        &mut self,
        cx: &mut Context<'_>,
        id: SessionId,
        parity: &Parity<'_>,
        trailer: Extensions<'_>,
    ) {
        // With the symbols of a code that it may help, of which it does not tell how many can be missing.
        let cost = parity.payload.len() * (1 + usize::from(parity.symbols)) + SYMBOL_COST;
        let checksum = integrity::checksum(trailer);
        let take = |session: &mut ReceiveSession, codec: &mut Codec| {
            session.take_parity(codec, parity, checksum)
        };
        self.handle_coded(cx, id, (parity.service, parity.red), cost, take);
    }

    /// A segment of codes of a red part of so many bytes, that may take `cost` bytes of memory; `take` tells how many it recovered, or that it
    /// contradicts others.
    fn handle_coded(
        &mut self,
        cx: &mut Context<'_>,
        id: SessionId,
        (service, red): (u64, u64),
        cost: usize,
        take: impl FnOnce(&mut ReceiveSession, &mut Codec) -> Option<u64>,
    ) {
        let now = self.time(cx);
        let is_new = !self.receives.contains_key(&id.number);
        if is_new && !self.begin_receive(cx, id, service, None) {
            return;
        }
        let Some(session) = self
            .receives
            .get_mut(&id.number)
            .filter(|s| s.cancel.is_none())
        else {
            cx.stats.dropped.late += 1;
            return;
        };
        let longest = self.config.longest_block(cx.memory.receive_limit);
        if red > longest && !session.is_delivered() {
            return self.refuse_length(cx, id.number);
        }
        session.hear(now);
        self.heard = now;
        if !has_room(&self.config, self.memory, cx, session.width() + cost) {
            session.stay();
        }
        if !has_room(&self.config, self.memory, cx, cost) && !session.is_delivered() {
            cx.stats.dropped.no_room += 1;
            return;
        }
        let held = session.held();
        let taken = take(session, &mut self.codec);
        let now_held = session.held();
        match taken {
            Some(recovered) => self.note_red(cx, (held, now_held), 0, recovered),
            None => {
                cx.stats.dropped.contradiction += 1;
                return;
            }
        }
        self.report_on(cx, id, None, red);
        self.end_if_finished(cx, id.number);
    }

    /// Counts what red data changed, also the bytes that their session holds.
    fn note_red(
        &mut self,
        cx: &mut Context<'_>,
        (held, now_held): (usize, usize),
        new: u64,
        recovered: u64,
    ) {
        // Ranges that join take less memory than before.
        self.memory = self.memory + now_held - held;
        cx.memory.receiving = cx.memory.receiving + now_held - held;
        self.arrivals.grow(new + recovered);
        cx.stats.red_bytes_received += new + recovered;
        cx.stats.red_bytes_recovered += recovered;
    }

    /// Delivers the red part if it is complete now, and reports to a checkpoint that ends at `end`.
    fn report_on(
        &mut self,
        cx: &mut Context<'_>,
        id: SessionId,
        checkpoint: Option<Checkpoint>,
        end: u64,
    ) {
        let claims = self.sizes.single_packet().saturating_sub(REPORT_HEADER);
        let session = self.receives.get(&id.number);
        let completes = session.is_some_and(ReceiveSession::is_newly_complete);
        if completes && !self.deliver(cx, id) {
            return;
        }
        let Some(session) = self.receives.get_mut(&id.number) else {
            return;
        };
        if checkpoint.is_some_and(|at| session.is_of_former_life(at)) {
            return self.cancel_receive(cx, id.number, CancelReason::System);
        }
        let reports = match checkpoint {
            _ if self.config.is_one_way => return,
            _ if session.is_held() => return session.answer_later(checkpoint),
            // Also without a checkpoint: that was answered before, or repair symbols came first and it may be lost.
            _ if completes => session.report_completion(checkpoint, claims),
            Some(at) => session.answer(at, end, claims),
            None => return,
        };
        self.queue_reports(id.number, &reports);
    }

    /// The client service has accepted the red part: all of it is reported.
    pub(crate) fn accept_red(&mut self, cx: &mut Context<'_>, number: u64) {
        let most = self.sizes.single_packet().saturating_sub(REPORT_HEADER);
        let session = self.receives.get_mut(&number);
        let Some(session) = session.filter(|session| session.is_held()) else {
            return;
        };
        let reports = session.accept(most);
        match self.config.is_one_way {
            // No acknowledgement would take them away, and the session would not end.
            true => session.reports.clear(),
            false => self.queue_reports(number, &reports),
        }
        self.end_if_finished(cx, number);
    }

    /// Queues reports, also those that were sent before, unless they wait already.
    fn queue_reports(&mut self, number: u64, reports: &[u64]) {
        let Some(session) = self.receives.get_mut(&number) else {
            return;
        };
        for serial in reports {
            let Some(report) = session.reports.get_mut(serial) else {
                continue;
            };
            if report.is_queued {
                continue;
            }
            if let Some(at) = report.timer.take() {
                self.timers.cancel(at, Timer::Report(number, *serial));
            }
            report.is_queued = true;
            self.control
                .push_back(ControlSegment::Report(number, *serial));
        }
    }

    /// Gives the complete red part to the client service; `false` if it is damaged, which cancels the session.
    fn deliver(&mut self, cx: &mut Context<'_>, id: SessionId) -> bool {
        let Some(session) = self.receives.get_mut(&id.number) else {
            return false;
        };
        let (held, service, partial) = (session.held(), session.service, session.partial());
        let Some((block, is_whole, is_verified)) = session.deliver() else {
            self.refuse_damaged(cx, id);
            return false;
        };
        if cx.awaits_acceptance {
            session.hold();
        }
        let freed = held - session.held();
        self.memory -= freed;
        cx.memory.receiving -= freed;
        self.arrivals.leave(partial);
        // Short ones between long ones change it slowly.
        self.usual = (block.len() as u64).max(self.usual - self.usual / 8);
        cx.events.push_back(Event::RedPart {
            session: id,
            service,
            block,
            is_whole,
            is_verified,
        });
        true
    }

    /// Ends a session whose red part has another checksum than it should. Its sender cannot be told over a link without a way back, where
    /// the next pass may bring what left.
    fn refuse_damaged(&mut self, cx: &mut Context<'_>, id: SessionId) {
        let reason = CancelReason::System;
        if !self.config.is_one_way {
            return self.cancel_receive(cx, id.number, reason);
        }
        if let Some(session) = self.take_receive(cx, id.number) {
            self.damaged.insert(id.number, session.losses.passed);
            cx.events.push_back(Event::ReceiveCancelled {
                session: id,
                by: End::Receiver,
                reason,
            });
        }
    }

    fn handle_report(
        &mut self,
        cx: &mut Context<'_>,
        id: SessionId,
        report: &Report<'_>,
        trailer: Extensions<'_>,
    ) {
        let now = self.time(cx);
        let number = id.number;
        let reception = integrity::reception(trailer);
        let answer = ControlSegment::ReportAck(id, report.serial);
        let session = self.sends.get_mut(&number).filter(|s| s.cancel.is_none());
        let Some(session) = session else {
            // A report may be repeated after its session has ended here (§6.13, §8.1).
            self.queue_answer(answer);
            return;
        };
        let (outcome, answered) = session.handle_report(report, reception, self.config.cycle_limit);
        if outcome == ReportOutcome::False {
            cx.stats.dropped.false_report += 1;
            return;
        }
        session.solicitations = 0;
        let fates = session.take_fates();
        if self.config.may_code() && outcome != ReportOutcome::Forgotten {
            let told = integrity::losses(trailer);
            match told {
                Some(_) => self.losses.show(),
                None if report.leaves_out() => self.losses.hide(),
                None => {}
            }
            if !self.losses.is_hidden() {
                let told = session.take_losses(told, report.upper);
                let (sent, lost) = self.sizes.packets_of(&fates).unwrap_or(told);
                self.losses.take(sent, lost);
            }
        }
        self.credit.lift();
        if let (Some(window), Some(bytes)) = (&mut self.window, integrity::room(trailer)) {
            window.tell_room(bytes.into());
        }
        if let Some(at) = session.silence.take() {
            self.timers.cancel(at, Timer::SilentReceiver(number));
        }
        self.queue_answer(answer);
        if let Some((serial, checkpoint)) = answered {
            if let Some(at) = checkpoint.timer {
                self.timers.cancel(at, Timer::Checkpoint(number, serial));
            }
            self.sizes.answered(cx.now, checkpoint.bytes);
            // Karn's rule, but for the first answer: where the light time is unknown each checkpoint is repeated before its answer comes,
            // and the time since it was first sent is too long at most.
            let was_sent_once = checkpoint.attempts == 0 && checkpoint.timer.is_some();
            let is_measured = self.answer.smoothed().is_some();
            let has_run = checkpoint.stops == self.clock.stops();
            let took = has_run && (was_sent_once || !is_measured);
            let took = took.then(|| now.since(checkpoint.sent));
            took.into_iter().for_each(|took| self.answer.measure(took));
            if let Some(position) = checkpoint.position.filter(|_| has_run && was_sent_once) {
                let answer = self.answer.smoothed();
                self.sizes.reported(cx.now, position, answer);
            }
            if let Some(window) = &mut self.window {
                window.settle(checkpoint.mark, took);
            }
        }
        self.sizes.take(cx.now, &fates);
        match outcome {
            ReportOutcome::TooManyCycles => {
                self.cancel_send(cx, number, CancelReason::RetransmissionCycles);
            }
            ReportOutcome::Forgotten => self.cancel_send(cx, number, CancelReason::System),
            _ => {
                self.queue_repair(number);
                self.settle_send(cx, number);
            }
        }
    }

    fn handle_report_ack(&mut self, cx: &mut Context<'_>, number: u64, serial: u64) {
        let now = self.time(cx);
        let Some(session) = self.receives.get_mut(&number) else {
            return;
        };
        let Some(report) = session.reports.remove(&serial) else {
            // Acknowledgements come again, too.
            if session.cancel.is_none() && !session.has_reported(serial) {
                self.credit.miss();
            }
            return;
        };
        session.heard = now;
        // Only this engine was sent the number of the report.
        self.credit.lift_by_serial();
        if let Some(at) = report.timer {
            self.timers.cancel(at, Timer::Report(number, serial));
        }
        // As of checkpoints: Karn's rule, but for the first.
        let was_sent_once = report.attempts == 1 && report.timer.is_some();
        let (sent, stops) = report.sent;
        if stops == self.clock.stops() && (was_sent_once || self.answer.is_blind()) {
            self.answer.measure_acknowledgement(now.since(sent));
        }
        self.end_if_finished(cx, number);
    }

    fn handle_cancel(
        &mut self,
        cx: &mut Context<'_>,
        id: SessionId,
        by: End,
        reason: CancelReason,
    ) {
        // Acknowledged also for sessions that are unknown by now (§6.17).
        self.queue_answer(ControlSegment::CancelAck(id, by));
        let number = id.number;
        if by == End::Sender {
            let session = self.receives.get(&number);
            let is_news = session.is_some_and(|s| s.cancel.is_none() && !s.is_delivered());
            self.end_receive(cx, number);
            if is_news {
                cx.events.push_back(Event::ReceiveCancelled {
                    session: id,
                    by,
                    reason,
                });
            }
        } else if let Some(session) = self.take_send(cx, number)
            && session.cancel.is_none()
        {
            cx.events.push_back(Event::SendCancelled {
                session: id,
                by,
                reason,
            });
        }
    }

    /// Ends a cancelled session (§6.18).
    fn handle_cancel_ack(&mut self, cx: &mut Context<'_>, number: u64, by: End) {
        match by {
            End::Sender if self.sends.get(&number).is_some_and(|s| s.cancel.is_some()) => {
                self.take_send(cx, number);
            }
            End::Receiver
                if self
                    .receives
                    .get(&number)
                    .is_some_and(|s| s.cancel.is_some()) =>
            {
                self.end_receive(cx, number);
            }
            _ => {}
        }
    }
}

/// Whether a peer may hold `cost` more bytes.
fn has_room(config: &PeerConfig, held: usize, cx: &Context<'_>, cost: usize) -> bool {
    cx.memory.receiving.saturating_add(cost) <= cx.memory.receive_limit
        && held.saturating_add(cost) <= config.receive_memory
}

fn handle_green(
    cx: &mut Context<'_>,
    id: SessionId,
    session: &mut ReceiveSession,
    data: &Data<'_>,
    checksum: Option<u32>,
) {
    if checksum.is_some_and(|checksum| crc32c::crc32c(data.payload) != checksum) {
        cx.stats.dropped.contradiction += 1;
        return;
    }
    if session.take_green(data) {
        cx.events.push_back(Event::Green {
            session: id,
            service: data.service,
            offset: data.offset,
            data: Bytes::copy_from_slice(data.payload),
            is_end: data.kind.ends_block(),
        });
    }
}
