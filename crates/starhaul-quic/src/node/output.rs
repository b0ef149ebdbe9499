//! Output: batches of equally large packets of one connection, taken from the connections in turn.

use std::time::Instant;

use bytes::Bytes;

use super::{Node, transmit};
use crate::{
    Transmit,
    connection::{Connection, Sizes},
    controller::{PACKET_OVERHEAD, Permit, TRAIN_PACKETS},
};

/// Most packets in one batch (what one UDP segmentation offload call takes).
const MAX_SEGMENTS: usize = 64;
/// Most bytes in one batch.
const MAX_BATCH_BYTES: usize = 65_000;
/// Smaller batches are copied, so that the buffer can be used again.
const COPY_BELOW_BYTES: usize = 4096;
/// Most buffers of sent batches that are kept, and most bytes of each: a driver has some batches at a time.
const MOST_SPARE: usize = 8;
const MOST_SPARE_BYTES: usize = 2 * MAX_BATCH_BYTES;

impl Node {
    /// The next packets to send; call until `None`.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        self.advance(now);
        if let Some(response) = self.responses.pop_front() {
            return Some(response);
        }
        while let Some(key) = self.ready.pop_front() {
            let Some(mut conn) = self.conns.take(key) else {
                continue;
            };
            conn.queued = false;
            let batch = self.next_batch(now, &mut conn);
            if batch.is_some() {
                // More may follow, after the others had their turn.
                self.put_back(conn);
            } else {
                self.settle(conn);
            }
            self.run_deferred(now);
            if batch.is_some() {
                return batch;
            }
        }
        None
    }

    /// Takes back the contents of a batch that was sent, so that the next one needs no memory of its own. Drivers need not call it.
    pub fn recycle(&mut self, contents: Bytes) {
        if contents.len() < COPY_BELOW_BYTES || self.spare.len() >= MOST_SPARE {
            return;
        }
        // Bytes that others hold references to must not be overwritten.
        if let Ok(mut contents) = contents.try_into_mut() {
            contents.clear();
            let buffer = Vec::from(contents);
            if buffer.capacity() <= MOST_SPARE_BYTES {
                self.spare.push(buffer);
            }
        }
    }

    /// Frees buffers that are kept for batches to come, and pages for bytes of streams.
    pub fn release_memory(&mut self) {
        self.buffer = Vec::new();
        self.spare = Vec::new();
        for state in self.sessions.values_mut() {
            state.session.release_memory();
        }
    }

    fn next_batch(&mut self, now: Instant, conn: &mut Connection) -> Option<Transmit> {
        if conn.is_up() {
            let first = self.send_train(now, conn);
            let first = first.or_else(|| self.probe_size(now, conn));
            let first = first.or_else(|| self.ask_session(now, conn));
            if first.is_some() {
                return first;
            }
        }
        if !conn.dirty {
            return None;
        }
        self.poll_stack(now, conn)
    }

    /// The next packets of the stack.
    fn poll_stack(&mut self, now: Instant, conn: &mut Connection) -> Option<Transmit> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let room = conn.control.lock().given_room();
        if buffer.capacity() < room {
            // Growing would copy what it had, and take twice as much at times.
            buffer = Vec::with_capacity(room);
        }
        let sent = conn.poll_batch(now, &mut buffer);
        conn.control.lock().on_batch(now, buffer.len() as u64);
        if conn.control.lock().has_fates() {
            self.report_fates(conn);
        }
        let Some(sent) = sent else {
            self.buffer = buffer;
            return None;
        };
        let contents = if buffer.len() < COPY_BELOW_BYTES {
            let copy = Bytes::copy_from_slice(&buffer);
            self.buffer = buffer;
            copy
        } else {
            self.buffer = self.spare.pop().unwrap_or_default();
            buffer.into()
        };
        let ecn = sent.ecn.map_or(0, |ecn| ecn as u8);
        let size = sent.segment_size.unwrap_or(sent.size);
        let socket = self.locals.get(&conn.local);
        let remote = socket.map_or(sent.destination, |socket| {
            socket.names.real(sent.destination)
        });
        Some(transmit(
            conn.local,
            remote,
            conn.source,
            ecn,
            size,
            contents,
        ))
    }

    /// Gives the stack the packets by which a new path is measured, if it is time for them: they leave as one batch. Or returns
    /// what the stack sends before that.
    fn send_train(&mut self, now: Instant, conn: &mut Connection) -> Option<Transmit> {
        let ((session, path), size) = (conn.owner?, conn.train_due()?);
        if conn.must_send_first(size)
            && let Some(batch) = self.poll_stack(now, conn)
        {
            return Some(batch);
        }
        let overhead = PACKET_OVERHEAD as u64;
        let state = self.sessions.get_mut(&session)?;
        let train = state
            .session
            .poll_train(now, path, TRAIN_PACKETS, size, overhead);
        conn.give_train(train);
        None
    }

    /// Gives the stack a probe of the packet size, if it is time for one, or returns what the stack sends before that.
    fn probe_size(&mut self, now: Instant, conn: &mut Connection) -> Option<Transmit> {
        let ((session, path), size) = (conn.owner?, conn.probe_due(now)?);
        if conn.must_send_first(size)
            && let Some(batch) = self.poll_stack(now, conn)
        {
            return Some(batch);
        }
        let state = self.sessions.get_mut(&session)?;
        let probe = state.session.poll_size_probe(now, path, size)?;
        conn.give_probe(now, probe.payload);
        None
    }

    /// Gives the stack as many datagrams as may leave now in one batch, each in a packet of its own, or returns what the stack
    /// sends before that.
    fn ask_session(&mut self, now: Instant, conn: &mut Connection) -> Option<Transmit> {
        if conn.waiting_bytes() > 0 {
            // The stack holds some back, and reports by itself when it continues.
            return None;
        }
        let sizes = conn.sizes();
        let is_paced = self.take_datagrams(now, conn, sizes);
        let size = conn.next.front()?.payload.len();
        if conn.must_send_first(size)
            && let Some(first) = self.poll_stack(now, conn)
        {
            return Some(first);
        }
        let mut lost = Vec::new();
        conn.give(now, sizes, is_paced, |sequence| lost.push(sequence));
        for sequence in lost {
            self.lose_datagram(now, conn, sequence);
        }
        None
    }

    /// Polls the session for datagrams, if some could leave at once; returns whether these leave by the pace.
    fn take_datagrams(&mut self, now: Instant, conn: &mut Connection, sizes: Sizes) -> bool {
        let Some((session, path)) = conn.owner else {
            return true;
        };
        let Some(state) = self.sessions.get_mut(&session) else {
            return true;
        };
        if conn.drained_at == Some(state.version) {
            return true;
        }
        // Input must not break up the batch for which the pacer waits.
        if let Some(at) = conn.paced_until.filter(|at| *at > now) {
            return !self.take_ack(now, conn, at);
        }
        conn.paced_until = None;
        let most = (MAX_BATCH_BYTES / (sizes.max_datagram + PACKET_SLACK)).min(MAX_SEGMENTS);
        let wish = state.session.queue_wish(now, path);
        conn.control.lock().set_queue_wish(wish);
        let (update, budget) = match conn.permit(now, sizes, most) {
            Ok(permitted) => permitted,
            Err(Permit::WindowFull) => {
                let probe = state.session.poll_silence_probe(now, path);
                if probe.is_some() {
                    // The next one is due later.
                    conn.next.extend(probe);
                    self.note_touched(session);
                }
                return true;
            }
            Err(Permit::At(at)) => {
                conn.paced_until = Some(at);
                return !self.take_ack(now, conn, at);
            }
            Err(Permit::Now(_)) => return true,
        };
        for (&other, known) in &state.paths {
            let conn = known.conn.and_then(|key| self.conns.get_mut(key));
            if let Some(conn) = conn
                && conn.is_up()
            {
                let wish = state.session.queue_wish(now, other);
                conn.control.lock().set_queue_wish(wish);
                let update = conn.update();
                state.session.update_path(now, other, update);
                state.session.set_told_loss(other, conn.told_loss());
            }
        }
        state.session.update_path(now, path, update);
        state.session.set_told_loss(path, conn.told_loss());
        self.batch.clear();
        let drained = state
            .session
            .poll_datagrams(now, path, budget, &mut self.batch);
        let sent = !self.batch.is_empty();
        conn.next.extend(self.batch.drain(..));
        conn.control.lock().on_polled(drained);
        if drained {
            conn.drained_at = Some(state.version);
        }
        self.after_asking(conn, sent);
        true
    }

    /// Takes the acknowledgement that is due on a path whose pacer lets data leave at `paced_until`: it may pass them (RFC 9002 §7.7).
    /// Returns whether there was one.
    fn take_ack(&mut self, now: Instant, conn: &mut Connection, paced_until: Instant) -> bool {
        let Some((session, path)) = conn.owner else {
            return false;
        };
        let state = self.sessions.get_mut(&session);
        let Some(state) = state.filter(|_| conn.may_pass(now, paced_until)) else {
            return false;
        };
        let Some(ack) = state.session.poll_ack(now, path) else {
            return false;
        };
        conn.next.push_back(ack);
        self.note_touched(session);
        true
    }

    /// The session may have given datagrams to one path, which changes what it has for the others.
    fn after_asking(&mut self, conn: &mut Connection, sent: bool) {
        let Some((session, _)) = conn.owner else {
            return;
        };
        if !sent {
            return self.note_touched(session);
        }
        let version = |node: &Self| node.sessions.get(&session).map(|state| state.version);
        let was_drained = conn.drained_at.is_some() && conn.drained_at == version(self);
        self.touch(session);
        if was_drained {
            conn.drained_at = version(self);
        }
    }

    fn lose_datagram(&mut self, now: Instant, conn: &Connection, sequence: u32) {
        let Some((session, path)) = conn.owner else {
            return;
        };
        if let Some(state) = self.sessions.get_mut(&session) {
            state.session.handle_transport_loss(now, path, sequence);
            self.note_touched(session);
        }
    }
}

/// More than a packet adds to the largest datagram.
const PACKET_SLACK: usize = 40;
