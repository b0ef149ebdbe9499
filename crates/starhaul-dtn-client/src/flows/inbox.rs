//! The received side of a byte stream: parts come in any order, and more than once, and are read in order.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

/// Chunks behind holes that are kept at least, and the least bytes of a chunk of a larger window: so many holes are no accident.
const LEAST_PIECES: u64 = 4096;
const PIECE: u64 = 8 << 10;
/// Chunks of so many bytes are not added to.
const LARGE: usize = 16 << 10;

/// The far side sends what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Violation;

/// The bytes of a stream that came and were not read.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Place of the first byte that has not come.
    next: u64,
    /// Bytes before it that were not read.
    ready: VecDeque<BytesMut>,
    ready_bytes: u64,
    /// Chunks that came behind a hole, by their offset; they do not overlap.
    behind: BTreeMap<u64, Bytes>,
    /// How far the far side has sent, as far as is known.
    sent: u64,
    /// Where the stream ends, if that is known.
    end: Option<u64>,
}

impl Inbox {
    /// Takes data, of which none may lie beyond `limit`. Returns whether something new can be read.
    ///
    /// # Errors
    /// The data lie beyond the limit or the end, or leave too many holes.
    pub(super) fn insert(
        &mut self,
        offset: u64,
        mut data: Bytes,
        is_last: bool,
        limit: u64,
    ) -> Result<bool, Violation> {
        let end = offset + data.len() as u64;
        let is_wrong = end > limit
            || self
                .end
                .is_some_and(|known| end > known || is_last && end != known)
            || is_last && end < self.sent;
        if is_wrong {
            return Err(Violation);
        }
        let was_ended = self.has_ended();
        let payload = data.len();
        let before = self.next;
        if is_last {
            self.end = Some(end);
        }
        self.sent = self.sent.max(end);
        let known = self.next.saturating_sub(offset).min(data.len() as u64);
        data = data.split_off(usize::try_from(known).unwrap_or(usize::MAX));
        let mut at = offset + known;
        // The bytes between chunks that are there.
        while !data.is_empty() {
            if at == self.next {
                let free = self
                    .behind
                    .first_key_value()
                    .map_or(u64::MAX, |(at, _)| *at);
                let part = take_part(&mut data, free - at);
                at += part.len() as u64;
                self.push(&part);
                self.join();
                let known = self.next.saturating_sub(at).min(data.len() as u64);
                data = data.split_off(usize::try_from(known).unwrap_or(usize::MAX));
                at += known;
                continue;
            }
            let before = self.behind.range(..=at).next_back();
            let covered = before.map_or(at, |(from, piece)| at.max(from + piece.len() as u64));
            let known = (covered - at).min(data.len() as u64);
            data = data.split_off(usize::try_from(known).unwrap_or(usize::MAX));
            at += known;
            let free = self
                .behind
                .range(at..)
                .next()
                .map_or(u64::MAX, |(at, _)| *at);
            let part = take_part(&mut data, free - at);
            if !part.is_empty() {
                at += part.len() as u64;
                self.keep(at - part.len() as u64, part, payload);
            }
        }
        let most = LEAST_PIECES.max(limit.saturating_sub(self.next) / PIECE);
        match self.behind.len() as u64 > most {
            true => Err(Violation),
            false => Ok(self.next > before || self.has_ended() && !was_ended),
        }
    }

    /// The next bytes; `None` if there are none now.
    pub(super) fn read(&mut self) -> Option<Bytes> {
        let piece = self.ready.pop_front()?;
        self.ready_bytes -= piece.len() as u64;
        Some(piece.freeze())
    }

    /// Bytes that were read.
    pub(super) fn position(&self) -> u64 {
        self.next - self.ready_bytes
    }

    /// Whether all has come.
    pub(super) fn has_ended(&self) -> bool {
        self.end == Some(self.next)
    }

    /// Whether all has been read.
    pub(super) fn is_done(&self) -> bool {
        self.has_ended() && self.ready.is_empty()
    }

    /// Whether something has been sent that has not come, though what was sent later has.
    pub(super) fn has_hole(&self) -> bool {
        self.sent > self.next
    }

    /// Place of the first byte that has not come.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    fn push(&mut self, piece: &[u8]) {
        append(&mut self.ready, piece);
        self.ready_bytes += piece.len() as u64;
        self.next += piece.len() as u64;
    }

    /// Moves what has no hole before it any more.
    fn join(&mut self) {
        while let Some(entry) = self
            .behind
            .first_entry()
            .filter(|entry| *entry.key() == self.next)
        {
            let piece = entry.remove();
            self.push(&piece);
        }
    }

    /// Keeps a chunk, of a payload of so many bytes, behind a hole: joined with the one before it if both are small.
    fn keep(&mut self, at: u64, piece: Bytes, payload: usize) {
        if let Some((from, before)) = self.behind.range_mut(..at).next_back()
            && from + before.len() as u64 == at
            && before.len() + piece.len() <= LARGE
        {
            *before = [&before[..], &piece].concat().into();
            return;
        }
        // A slice holds its whole payload.
        let piece = match piece.len() > payload / 2 {
            true => piece,
            false => Bytes::copy_from_slice(&piece),
        };
        self.behind.insert(at, piece);
    }
}

fn take_part(data: &mut Bytes, most: u64) -> Bytes {
    let length = usize::try_from(most).unwrap_or(usize::MAX).min(data.len());
    data.split_to(length)
}

/// Appends bytes to a row of chunks, whose small ones are joined: the memory of a row is little more than its bytes.
pub(super) fn append(row: &mut VecDeque<BytesMut>, piece: &[u8]) {
    match row.back_mut() {
        Some(last) if last.len() + piece.len() <= LARGE => last.extend_from_slice(piece),
        _ => row.push_back(BytesMut::from(piece)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: u64 = 1000;

    #[test]
    fn data_beyond_the_limit_or_the_end_are_a_violation() {
        let data = |bytes: usize| Bytes::from(vec![1; bytes]);
        let mut inbox = Inbox::default();
        assert_eq!(inbox.insert(990, data(11), false, LIMIT), Err(Violation));
        assert_eq!(inbox.insert(10, data(5), false, LIMIT), Ok(false));
        assert_eq!(inbox.insert(0, data(14), true, LIMIT), Err(Violation));
        assert_eq!(inbox.insert(15, data(5), true, LIMIT), Ok(false));
        assert_eq!(inbox.insert(15, data(6), false, LIMIT), Err(Violation));
        assert_eq!(inbox.insert(0, data(10), false, LIMIT), Ok(true));
        assert!(inbox.has_ended() && !inbox.is_done());
        assert_eq!(inbox.read().unwrap().len(), 20);
        assert!(inbox.is_done());
    }

    #[test]
    fn bytes_one_by_one_behind_holes_are_joined_or_refused() {
        let one = || Bytes::from_static(b"x");
        let mut inbox = Inbox::default();
        for at in 1..50_000 {
            inbox.insert(at, one(), false, u64::MAX).unwrap();
        }
        assert!(inbox.behind.len() < 10);
        let limit = 32 << 20;
        let holes = (0..100_000).map(|at| inbox.insert(60_000 + 2 * at, one(), false, limit));
        assert!(holes.into_iter().any(|inserted| inserted.is_err()));
    }

    #[test]
    fn a_large_window_takes_as_many_parts_behind_a_hole() {
        let mut inbox = Inbox::default();
        let part = Bytes::from(vec![1; 20_000]);
        for number in 1..=5000 {
            let taken = inbox.insert(20_000 * number, part.clone(), false, 200 << 20);
            assert_eq!(taken, Ok(false));
        }
        assert_eq!(inbox.insert(0, part, false, 200 << 20), Ok(true));
        assert_eq!(inbox.next, 20_000 * 5001);
    }

    #[test]
    fn a_piece_does_not_hold_a_payload_of_which_the_rest_is_known() {
        let mut inbox = Inbox::default();
        let payload = Bytes::from(vec![1; 100_000]);
        inbox
            .insert(10, payload.slice(..60_000), false, u64::MAX)
            .unwrap();
        let large = Bytes::from(vec![1; 100_000]);
        inbox
            .insert(10, large.slice(..60_010), false, u64::MAX)
            .unwrap();
        assert!(large.is_unique(), "ten bytes hold all");
        assert!(
            !payload.is_unique(),
            "what is most of a payload is not copied"
        );
    }

    proptest! {
        #[test]
        fn any_parts_in_any_order_are_read_once_and_in_order(
            parts in prop::collection::vec((0_usize..200, 0_usize..60), 1..60),
            reads in prop::collection::vec(any::<bool>(), 60),
        ) {
            let stream: Vec<u8> = (0..300_u32).map(|at| at.to_le_bytes()[0]).collect();
            let mut inbox = Inbox::default();
            let mut read = Vec::new();
            // All of it at last.
            let all = parts.iter().copied().chain([(0, 300)]);
            for (place, (from, length)) in all.enumerate() {
                let to = (from + length).min(stream.len());
                let part = Bytes::copy_from_slice(&stream[from..to]);
                let is_last = to == stream.len();
                prop_assert!(inbox.insert(from as u64, part, is_last, LIMIT).is_ok());
                if place >= parts.len() || reads[place] {
                    while let Some(piece) = inbox.read() {
                        read.extend_from_slice(&piece);
                    }
                }
                prop_assert_eq!(inbox.position(), read.len() as u64);
                prop_assert_eq!(&read[..], &stream[..read.len()]);
            }
            prop_assert!(inbox.is_done());
            prop_assert_eq!(read, stream);
        }
    }
}
