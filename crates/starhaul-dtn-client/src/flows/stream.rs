//! One byte stream between gateways: what each side knows of both directions.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::{Buf as _, Bytes, BytesMut};

use super::{
    inbox::{Inbox, Violation, append},
    wire::Part,
};

/// Bytes that each side takes before it has said how many.
pub(super) const FIRST_CREDIT: u64 = 1 << 20;
/// Lifetimes of silence after which an end gives up: it has asked by then, and the answer would have come.
const SILENT_LIFETIMES: u32 = 3;

/// Code of a reset: the far gateway does not have the stream (any more).
pub const CODE_UNKNOWN: u32 = 16;
/// Code of a reset: the gateway has as many streams as it takes.
pub const CODE_FULL: u32 = 17;
/// Code of a reset: what was missing has expired.
pub const CODE_LOST: u32 = 18;
/// Code of a reset: nothing was heard for three lifetimes.
pub const CODE_SILENT: u32 = 19;
/// Code of a reset: a message broke the rules.
pub const CODE_VIOLATION: u32 = 20;
/// Code of a reset: the gateway ends.
pub const CODE_CLOSED: u32 = 21;
/// Code of a reset: the bundle node refuses to send.
pub const CODE_REFUSED: u32 = 22;
/// Code of a reset: the application is gone.
pub const CODE_DROPPED: u32 = 23;

/// The outcome of reading from a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The next bytes of the stream.
    Data(Bytes),
    /// All has been read.
    End,
}

/// How far the last part of our direction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fin {
    /// The application may write more.
    Open,
    /// It has written all.
    Wanted,
    /// The bundle node has all.
    Sent,
}

/// State of a stream, in both directions.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) lifetime: Duration,
    /// Of an opener that has not sent it, or of an accepter that has received it.
    pub(super) header: Option<Bytes>,
    /// Whether the application has been told of it.
    pub(super) is_announced: bool,
    /// The error code with which it broke off.
    pub(super) failed: Option<u32>,
    window: u64,
    // To the far side.
    waiting: VecDeque<BytesMut>,
    waiting_bytes: usize,
    sent: u64,
    limit: u64,
    fin: Fin,
    /// Whether the header must be sent, with the first part.
    opens: bool,
    /// Whether the far side must be told of credit, or asked for a sign of life.
    pub(super) owes: bool,
    asks: bool,
    // From the far side.
    inbox: Inbox,
    granted: u64,
    /// The reader was dropped: bytes that come are thrown away.
    pub(super) discards: bool,
    began: Instant,
    heard: Instant,
    asked: bool,
    /// When the present hole was found, and where it is.
    hole: Option<(Instant, u64)>,
}

impl Stream {
    /// A stream that this side opens.
    pub(super) fn open(now: Instant, header: Bytes, lifetime: Duration, window: u64) -> Self {
        let mut stream = Self::accept(now, lifetime, window);
        (stream.header, stream.opens, stream.is_announced) = (Some(header), true, true);
        stream
    }

    /// A stream that the far side opened.
    pub(super) fn accept(now: Instant, lifetime: Duration, window: u64) -> Self {
        Self {
            lifetime,
            header: None,
            is_announced: false,
            failed: None,
            window,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sent: 0,
            limit: FIRST_CREDIT,
            fin: Fin::Open,
            opens: false,
            owes: false,
            asks: false,
            inbox: Inbox::default(),
            granted: window,
            discards: false,
            began: now,
            heard: now,
            asked: false,
            hole: None,
        }
    }

    /// Takes bytes to send, if fewer than `most` wait; returns how many it took.
    pub(super) fn write(&mut self, data: &[u8], most: usize) -> usize {
        if data.is_empty() || self.fin != Fin::Open || self.waiting_bytes >= most {
            return 0;
        }
        let data = data.get(..most - self.waiting_bytes).unwrap_or(data);
        append(&mut self.waiting, data);
        self.waiting_bytes += data.len();
        data.len()
    }

    /// Whether [`Stream::write`] takes something.
    pub(super) fn has_room(&self, most: usize) -> bool {
        self.waiting_bytes < most
    }

    /// The application has written all.
    pub(super) fn finish(&mut self) {
        if self.fin == Fin::Open {
            self.fin = Fin::Wanted;
        }
    }

    /// Whether the application has said that it has written all.
    pub(super) fn is_finished(&self) -> bool {
        self.fin != Fin::Open
    }

    /// The next bytes; the far side gets credit for them.
    pub(super) fn read(&mut self) -> Option<Read> {
        let piece = self.inbox.read();
        self.grant();
        match piece {
            Some(piece) => Some(Read::Data(piece)),
            None => self.inbox.is_done().then_some(Read::End),
        }
    }

    /// Takes a part; returns whether there is something to read.
    pub(super) fn handle(&mut self, now: Instant, part: Part) -> Result<bool, Violation> {
        (self.heard, self.asked) = (now, false);
        self.limit = self.limit.max(part.credit);
        self.owes |= part.asks;
        let read = self
            .inbox
            .insert(part.offset, part.data, part.is_last, self.granted)?;
        if self.discards {
            while self.inbox.read().is_some() {}
            self.grant();
        }
        self.hole = match (self.inbox.has_hole(), self.hole) {
            (false, _) => None,
            // Another hole may be younger.
            (true, Some((since, place))) if place == self.inbox.next() => Some((since, place)),
            (true, _) => Some((now, self.inbox.next())),
        };
        Ok(read)
    }

    /// Gives credit for what was read, not for each byte.
    fn grant(&mut self) {
        let position = self.inbox.position();
        if !self.inbox.has_ended() && self.granted - position <= self.window / 2 {
            self.granted = position + self.window;
            self.owes = true;
        }
    }

    /// Whether there is something to send.
    pub(super) fn has_output(&self) -> bool {
        let may_send = self.waiting_bytes > 0 && self.sent < self.limit;
        let ends = self.waiting_bytes == 0 && self.fin == Fin::Wanted;
        self.failed.is_none() && (self.opens || self.owes || self.asks || may_send || ends)
    }

    /// The next part, of at most `most` bytes, and the header if it is the first one.
    pub(super) fn next_part(&mut self, most: usize) -> (Option<Bytes>, Part) {
        let credit = usize::try_from(self.limit - self.sent).unwrap_or(usize::MAX);
        let most = most.min(credit).min(self.waiting_bytes);
        let mut data = BytesMut::with_capacity(most);
        while data.len() < most
            && let Some(first) = self.waiting.front_mut()
        {
            let length = first.len().min(most - data.len());
            data.extend_from_slice(first.get(..length).unwrap_or_default());
            first.advance(length);
            if first.is_empty() {
                self.waiting.pop_front();
            }
        }
        let offset = self.sent;
        self.sent += data.len() as u64;
        self.waiting_bytes -= data.len();
        // Said again with all that follows, so that the far side finds out what it lacks.
        let is_last = self.fin != Fin::Open && self.waiting_bytes == 0;
        if is_last {
            self.fin = Fin::Sent;
        }
        let header = self.header.clone().filter(|_| self.opens);
        let part = Part {
            offset,
            credit: self.granted,
            data: data.freeze(),
            is_last,
            reset: None,
            asks: self.asks,
        };
        (self.opens, self.owes, self.asks) = (false, false, false);
        (header, part)
    }

    /// The far gateway may have begun anew, and know nothing of the stream: it is asked.
    pub(super) fn ask(&mut self) {
        self.asks = true;
    }

    /// Whether both directions have come to their ends.
    pub(super) fn is_done(&self) -> bool {
        self.fin == Fin::Sent && (self.inbox.is_done() || self.discards && self.inbox.has_ended())
    }

    /// When the silence of the far side, or a hole, must be looked at; `None` when nothing more is to come or to leave.
    pub(super) fn due(&self) -> Option<Instant> {
        // A slow reader does not make the stream wait for the far side.
        let is_over = self.fin == Fin::Sent && self.inbox.has_ended();
        if self.failed.is_some() || is_over || self.is_done() {
            return None;
        }
        let lifetimes = if self.asked { SILENT_LIFETIMES } else { 1 };
        // The beginning left before all that came, and expires first, whatever is heard after it.
        let since = match self.is_announced {
            true => self.heard,
            false => self.began,
        };
        let silent = since + self.lifetime * lifetimes;
        Some(match self.hole {
            Some((since, _)) => silent.min(since + self.lifetime),
            None => silent,
        })
    }

    /// Looks at them; returns the code of a reset if it gives up.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Option<u32> {
        if self.due().is_none_or(|due| now < due) {
            return None;
        }
        if self
            .hole
            .is_some_and(|(since, _)| since + self.lifetime <= now)
        {
            return Some(CODE_LOST);
        }
        // An accepter that never saw the beginning: it has expired.
        if !self.is_announced {
            return Some(CODE_LOST);
        }
        if self.asked {
            return Some(CODE_SILENT);
        }
        (self.asked, self.asks) = (true, true);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_writes_share_memory_and_stay_in_order() {
        let mut stream = Stream::open(
            Instant::now(),
            Bytes::new(),
            Duration::from_secs(1),
            1 << 20,
        );
        let sent: Vec<u8> = (0..100_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        for byte in &sent {
            assert_eq!(stream.write(std::slice::from_ref(byte), 1 << 20), 1);
        }
        assert!(stream.waiting.len() < 10, "{} pieces", stream.waiting.len());
        let mut read = Vec::new();
        while stream.has_output() {
            read.extend_from_slice(&stream.next_part(7000).1.data);
        }
        assert_eq!(read, sent);
    }
}
