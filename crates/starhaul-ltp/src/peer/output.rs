//! Segments to the peer: acknowledgements and reports first, then repairs, then new data.

mod plain;

use std::time::Instant;

use super::{Context, ControlSegment, Peer};
use crate::{
    Batch, Event, PeerConfig, SessionId,
    auth::TRAILER_BYTES,
    clock::Timer,
    credit::Credit,
    integrity::{ReportTrailers, Trailer},
    path::Pacer,
    segment::{Body, Data, Encoding, Extensions, Segment},
    send::{Plan, SendSession, Source},
    window::Load,
};

impl Peer {
    /// Fills an empty batch as far as segments of equal size are due.
    pub(crate) fn poll_transmit(&mut self, cx: &mut Context<'_>, batch: &mut Batch) {
        if !self.may_transmit || self.pacer.ready_at().is_some_and(|at| at > cx.now) {
            return;
        }
        if self.write_control(cx, batch) && self.write_repairs(cx, batch) {
            self.write_fresh(cx, batch);
        }
        if self.repairs.is_empty() && self.fresh.is_empty() {
            self.sizes.idle(cx.now);
        }
        if !batch.is_empty() {
            cx.stats.segments_sent += batch.segments() as u64;
            let further = self.sizes.fragment_headers(batch.segment_size());
            let overhead = batch.segments() * (self.config.overhead + further);
            self.pacer.sent(cx.now, batch.len() + overhead);
        }
    }

    /// Returns whether the queue is empty now, and the batch may take more.
    fn write_control(&mut self, cx: &mut Context<'_>, batch: &mut Batch) -> bool {
        while let Some(&control) = self.control.front() {
            let fitted = match control {
                ControlSegment::Checkpoint(number, serial) => {
                    let session = self.sends.get(&number);
                    let most = self.sizes.single_packet();
                    let plan = session.and_then(|session| session.plan_checkpoint(serial, most));
                    plan.is_none_or(|plan| self.write_data(cx, number, &plan, batch))
                }
                ControlSegment::Report(number, serial) => {
                    self.write_report(cx, number, serial, batch)
                }
                ControlSegment::ReportAck(session, report) => {
                    self.write(session, Body::ReportAck { report }, batch)
                }
                ControlSegment::CancelAck(session, by) => {
                    self.write(session, Body::CancelAck { by }, batch)
                }
                ControlSegment::CancelSend(_) | ControlSegment::CancelReceive(_) => {
                    self.write_cancel(cx, control, batch)
                }
            };
            if !fitted {
                return false;
            }
            self.control.pop_front();
        }
        true
    }

    fn write_report(
        &mut self,
        cx: &mut Context<'_>,
        number: u64,
        serial: u64,
        batch: &mut Batch,
    ) -> bool {
        let (now, id) = (self.time(cx), self.received_id(number));
        let Some(session) = self.receives.get_mut(&number) else {
            return true;
        };
        let (reception, losses) = (session.reception, session.losses);
        let Some(report) = session.reports.get_mut(&serial) else {
            return true;
        };
        let content = report.content(serial);
        let told = losses.to_tell(&content);
        let trailers = ReportTrailers::new(reception, cx.memory.room(), told);
        let mut segment = plain(id, Body::Report(content));
        if self.config.integrity {
            segment.trailer = trailers.extensions();
        }
        if !put(&self.config, &self.pacer, &mut self.credit, segment, batch) {
            return false;
        }
        self.answer.reported();
        let due = now.plus(self.answer.timeout(report.attempts));
        if report.attempts == 0 {
            report.sent = (now, self.clock.stops());
        }
        report.attempts += 1;
        report.is_queued = false;
        report.timer = Some(due);
        self.timers.set(due, Timer::Report(number, serial));
        cx.stats.reports_sent += 1;
        true
    }

    fn write_cancel(
        &mut self,
        cx: &mut Context<'_>,
        control: ControlSegment,
        batch: &mut Batch,
    ) -> bool {
        let now = self.time(cx);
        let (number, by, timer) = match control {
            ControlSegment::CancelSend(number) => {
                (number, crate::End::Sender, Timer::CancelSend(number))
            }
            ControlSegment::CancelReceive(number) => {
                (number, crate::End::Receiver, Timer::CancelReceive(number))
            }
            _ => return true,
        };
        let id = match by {
            crate::End::Sender => self.sent_id(cx, number),
            crate::End::Receiver => self.received_id(number),
        };
        let cancel = match by {
            crate::End::Sender => self.sends.get_mut(&number).and_then(|s| s.cancel.as_mut()),
            crate::End::Receiver => self
                .receives
                .get_mut(&number)
                .and_then(|s| s.cancel.as_mut()),
        };
        let Some(cancel) = cancel else { return true };
        let reason = cancel.reason;
        let segment = plain(id, Body::Cancel { by, reason });
        if !put(&self.config, &self.pacer, &mut self.credit, segment, batch) {
            return false;
        }
        let due = now.plus(self.answer.timeout(cancel.attempts));
        cancel.attempts += 1;
        cancel.timer = Some(due);
        self.timers.set(due, timer);
        true
    }

    /// Returns whether nothing is left to repair, and the batch may take more.
    fn write_repairs(&mut self, cx: &mut Context<'_>, batch: &mut Batch) -> bool {
        while let Some(&number) = self.repairs.front() {
            if !self.may_send_data(cx.now) {
                return false;
            }
            let asks = self.wants_report(cx);
            let session = self.sends.get_mut(&number);
            let most = (self.sizes.again(), self.sizes.single_packet());
            match session.and_then(|session| session.plan_repair(most, asks)) {
                Some(plan) if !self.write_data(cx, number, &plan, batch) => return false,
                Some(_) => {}
                None => {
                    self.repairs.pop_front();
                    if let Some(session) = self.sends.get_mut(&number) {
                        session.is_queued = false;
                    }
                    self.settle_send(cx, number);
                }
            }
        }
        true
    }

    fn write_fresh(&mut self, cx: &mut Context<'_>, batch: &mut Batch) {
        while let Some(&number) = self.fresh.front() {
            self.cut(number);
            self.write_plain(cx, number, batch);
            if !self.may_send_data(cx.now) {
                return;
            }
            let (asks, every) = (self.wants_report(cx), self.config.checkpoint_every);
            if !self.write_symbols(cx, number, batch) {
                return;
            }
            let session = self.sends.get(&number);
            let left = session.map_or(0, SendSession::fresh_red);
            let most = (self.sizes.next(left), self.sizes.single_packet());
            match session.and_then(|session| session.plan_fresh(most, every, asks)) {
                Some(plan) if !self.write_data(cx, number, &plan, batch) => return,
                Some(_) => {}
                None if self.begins_again(number) => {}
                None => {
                    self.fresh.pop_front();
                    let is_live = self.is_sending(number);
                    if is_live {
                        let session = self.sent_id(cx, number);
                        cx.events.push_back(Event::Transmitted { session });
                        self.settle_send(cx, number);
                    }
                }
            }
        }
    }

    /// Whether a block all of which has left is sent again, as it is to a peer that cannot answer.
    fn begins_again(&mut self, number: u64) -> bool {
        let session = self.sends.get_mut(&number);
        let session = session.filter(|session| session.cancel.is_none());
        session.is_some_and(SendSession::begin_again)
    }

    /// Whether the next segment of red data should ask for a report.
    fn wants_report(&self, cx: &Context<'_>) -> bool {
        let window = self.window.as_ref();
        let next = self.next_load();
        let by_window = window.is_some_and(|window| window.wants_report(cx.now, next));
        by_window || self.sizes.wants_report(cx.now)
    }

    pub(super) fn may_send_data(&self, now: Instant) -> bool {
        let window = self.window.as_ref();
        window.is_none_or(|window| window.has_room(now, self.next_load()))
    }

    /// The next segment of red data, at most. What is sent again, or ends a part of a block, does not try a size out.
    fn next_load(&self) -> Load {
        let fresh = self.fresh.front().filter(|_| self.repairs.is_empty());
        let fresh = fresh.and_then(|number| self.sends.get(number));
        let bytes = match fresh {
            Some(session) => self.sizes.next(session.fresh_red()),
            None => self.sizes.again(),
        } as u64;
        let packets = self.sizes.packets(bytes);
        Load { bytes, packets }
    }

    /// Writes the repair symbols of a code that is about to end, and the parities behind those of the last; returns whether all fitted.
    fn write_symbols(&mut self, cx: &mut Context<'_>, number: u64, batch: &mut Batch) -> bool {
        let id = self.sent_id(cx, number);
        let Some(session) = self.sends.get_mut(&number) else {
            return true;
        };
        session.make_symbols(&mut self.codec);
        while let Some((symbol, checksum)) = session.symbol() {
            let trailer = checksum
                .filter(|_| self.config.integrity)
                .map(Trailer::checksum);
            let mut segment = plain(id, symbol);
            if let Some(trailer) = &trailer {
                segment.trailer = trailer.extensions();
            }
            if !put(&self.config, &self.pacer, &mut self.credit, segment, batch) {
                return false;
            }
            cx.stats.repair_segments_sent += 1;
            session.commit_symbol();
        }
        true
    }

    /// Writes a data segment if it fits, and sets the timer of its checkpoint.
    fn write_data(
        &mut self,
        cx: &mut Context<'_>,
        number: u64,
        plan: &Plan,
        batch: &mut Batch,
    ) -> bool {
        let (now, id) = (self.time(cx), self.sent_id(cx, number));
        let integrity = self.config.integrity;
        let Some(session) = self.sends.get_mut(&number) else {
            return true;
        };
        if integrity {
            session.check_ahead(plan);
        }
        let checksum = integrity.then(|| session.checksum(plan)).flatten();
        let trailer = checksum.map(Trailer::checksum);
        let mut segment = plain(id, Body::Data(data_of(session, plan)));
        if let Some(trailer) = &trailer {
            segment.trailer = trailer.extensions();
        }
        if !put(&self.config, &self.pacer, &mut self.credit, segment, batch) {
            return false;
        }
        cx.stats.data_segments_sent += 1;
        cx.stats.data_segments_resent += u64::from(plan.source != Source::Fresh);
        let answer = &self.answer;
        let due = |attempts| now.plus(answer.timeout(attempts));
        let is_one_way = self.config.is_one_way;
        let is_new = plan.source != Source::Checkpoint;
        let mut window = self
            .window
            .as_mut()
            .filter(|_| is_new && plan.kind.is_red());
        if let Some(window) = &mut window {
            let bytes = plan.end - plan.start;
            let packets = self.sizes.packets(bytes);
            window.sent(Load { bytes, packets });
        }
        if is_new && plan.kind.is_red() {
            let bytes = plan.end - plan.start;
            let is_plain = plan.source == Source::Fresh && plan.checkpoint.is_none();
            if is_plain && self.sizes.counts(bytes) {
                session.watch(plan);
            }
            self.sizes.sent(cx.now, bytes);
        }
        let serial = session.commit(plan, now, due, integrity);
        if let Some((serial, sent)) =
            serial.and_then(|serial| Some((serial, session.checkpoints.get_mut(&serial)?)))
        {
            sent.mark = window.map_or(sent.mark, |window| match plan.kind.ends_red() {
                true => window.mark_end(cx.now),
                false => window.mark(cx.now),
            });
            if is_new {
                sent.stops = self.clock.stops();
                // What ends a red part is answered when its client likes.
                sent.position = (!plan.kind.ends_red()).then(|| self.sizes.position());
            }
            if let Some(at) = sent.timer.filter(|_| !is_one_way) {
                self.timers.set(at, Timer::Checkpoint(number, serial));
            }
            if is_new && !plan.kind.ends_red() {
                self.sizes.checkpoint(cx.now);
            }
        }
        true
    }

    fn write(&mut self, session: SessionId, body: Body<'_>, batch: &mut Batch) -> bool {
        let segment = plain(session, body);
        put(&self.config, &self.pacer, &mut self.credit, segment, batch)
    }
}

fn data_of<'a>(session: &'a SendSession, plan: &Plan) -> Data<'a> {
    Data {
        kind: plan.kind,
        service: session.service,
        offset: plan.start,
        checkpoint: plan.checkpoint,
        payload: session.data(plan),
    }
}

/// A segment without extensions, which is written as [`put`] says.
fn plain(session: SessionId, body: Body<'_>) -> Segment<'_> {
    Segment {
        encoding: Encoding::default(),
        session,
        header: Extensions::default(),
        body,
        trailer: Extensions::default(),
    }
}

/// Writes a segment as the peer's profile says, signed with the key, if the batch takes it. One for which there is no credit goes the way of those that are lost.
fn put(
    config: &PeerConfig,
    pacer: &Pacer,
    credit: &mut Credit,
    segment: Segment<'_>,
    batch: &mut Batch,
) -> bool {
    let (key, encoding) = (config.auth.as_ref(), config.profile.encoding());
    let segment = Segment {
        encoding,
        ..segment
    };
    let (segment, trailer) = match key {
        Some(key) => {
            let header = key.header();
            (Segment { header, ..segment }, TRAILER_BYTES)
        }
        None => (segment, 0),
    };
    let bytes = segment.encoded_len() + trailer;
    if !credit.allows(bytes + config.overhead) {
        return true;
    }
    let fits = batch.fits(bytes, pacer.burst());
    if fits {
        credit.spend(bytes + config.overhead);
        batch.push(|out| match key {
            Some(key) => key.write(&segment, out),
            None => segment.write(out),
        });
    }
    fits
}
