//! What leaves: batches of equally large packets of one connection, taken from the connections in turn.

use std::time::Instant;

use starhaul_session::PathDatagram;

use super::{Node, transmit};
use crate::{
    Transmit,
    controller::Permit,
    path::{Conn, Packet},
};

/// Most packets in one batch (what one UDP segmentation offload call takes).
const MAX_SEGMENTS: usize = 64;
/// Most bytes in one batch.
const MAX_BATCH_BYTES: usize = 65_000;
/// Memory from which batches are cut.
const ARENA_BYTES: usize = 256 * 1024;

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
            let batch = self.fill_batch(now, &mut conn);
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

    fn fill_batch(&mut self, now: Instant, conn: &mut Conn) -> Option<Transmit> {
        if self.batch.capacity() < MAX_BATCH_BYTES {
            self.batch.reserve(ARENA_BYTES);
        }
        let mut asked = Asked::default();
        let mut head = None;
        let mut count = 0;
        while count < MAX_SEGMENTS {
            let held = conn.held.pop_front();
            let Some(packet) = held.or_else(|| self.next_packet(now, conn, &mut asked)) else {
                break;
            };
            let len = packet.payload.len();
            let (remote, ecn, size) = *head.get_or_insert((packet.remote, packet.ecn, len));
            if packet.remote != remote || packet.ecn != ecn || len > size {
                conn.held.push_front(packet);
                break;
            }
            self.batch.extend_from_slice(&packet.payload);
            self.spare.push(packet.payload);
            count += 1;
            if len < size || self.batch.len() + size > MAX_BATCH_BYTES {
                break;
            }
        }
        self.after_asking(conn, &asked);
        let (remote, ecn, size) = head?;
        let contents = self.batch.split().freeze();
        Some(transmit(conn.local, remote, ecn, size, contents))
    }

    /// The next packet of a connection: a datagram of its session together with what the stack has to say, or that alone.
    fn next_packet(&mut self, now: Instant, conn: &mut Conn, asked: &mut Asked) -> Option<Packet> {
        if conn.up
            && let Some(datagram) = self.next_datagram(now, conn, asked)
            && let Some(sequence) = conn.queue_datagram(datagram)
        {
            // It became too large between two calls; the session sends it again in smaller pieces.
            self.lose_datagram(now, conn, sequence);
        }
        while conn.dirty {
            let buffer = self.spare.pop().unwrap_or_default();
            let (outcome, lost) = conn.poll_packet(now, buffer);
            if let Some(sequence) = lost {
                self.lose_datagram(now, conn, sequence);
            }
            match outcome {
                Ok(packet) => return Some(packet),
                Err(buffer) => self.spare.push(buffer),
            }
        }
        None
    }

    /// Asks the session for a datagram, if one could leave at once.
    fn next_datagram(
        &mut self,
        now: Instant,
        conn: &mut Conn,
        asked: &mut Asked,
    ) -> Option<PathDatagram> {
        let (session, path) = conn.owner?;
        let state = self.sessions.get_mut(&session)?;
        // What arrives meanwhile must not break up the batch that the pacer collects.
        let paced = conn.paced_until.is_some_and(|at| at > now);
        if paced || conn.drained_at == Some(state.version) {
            return None;
        }
        conn.paced_until = None;
        match conn.permit(now) {
            Permit::Now => {}
            Permit::WindowFull => return None,
            Permit::At(at) => {
                conn.paced_until = Some(at);
                return None;
            }
        }
        if !asked.any {
            asked.any = true;
            for (&other, known) in &state.paths {
                let conn = known.conn.and_then(|key| self.conns.get_mut(key));
                if let Some(conn) = conn
                    && conn.up
                {
                    let update = conn.update();
                    state.session.update_path(now, other, update);
                }
            }
        }
        state.session.update_path(now, path, conn.update());
        let datagram = state.session.poll_datagram(now, path);
        if datagram.is_some() {
            asked.sent = true;
        } else {
            conn.drained_at = Some(state.version);
            conn.control.lock().set_idle();
        }
        datagram
    }

    /// The session gave something to one path, which may change its mind about the others.
    fn after_asking(&mut self, conn: &mut Conn, asked: &Asked) {
        let Some((session, _)) = conn.owner else {
            return;
        };
        if asked.sent {
            let was_drained = self
                .sessions
                .get(&session)
                .is_some_and(|state| conn.drained_at == Some(state.version));
            self.touch(session);
            if was_drained {
                conn.drained_at = self.sessions.get(&session).map(|state| state.version);
            }
        } else if asked.any {
            self.note_touched(session);
        }
    }

    fn lose_datagram(&mut self, now: Instant, conn: &Conn, sequence: u32) {
        let Some((session, path)) = conn.owner else {
            return;
        };
        if let Some(state) = self.sessions.get_mut(&session) {
            state.session.handle_transport_loss(now, path, sequence);
            self.note_touched(session);
        }
    }
}

/// What a batch asked of the session.
#[derive(Debug, Default)]
struct Asked {
    /// For a datagram.
    any: bool,
    /// And got one.
    sent: bool,
}
