//! What the application writes to reliable streams: copied, or shared with it.

use std::time::Instant;

use bytes::Bytes;

use super::Session;
use crate::{
    send::bytes::SendBytes,
    streams::{Kind, Stream},
    types::{StreamError, StreamId},
};

impl Session {
    /// Takes as many bytes as there is room for and says how many. When that is less than all,
    /// [`Event::Writable`](crate::Event::Writable) tells when there is room again.
    pub fn write(
        &mut self,
        now: Instant,
        stream: StreamId,
        data: &[u8],
    ) -> Result<usize, StreamError> {
        let length = data.len();
        self.take_written(now, stream, [length, length], |send, taken| {
            send.push(data.get(..taken).unwrap_or_default());
        })
    }

    /// As [`Session::write`], but keeps the memory of what is taken, which `data` loses, instead of a copy: until all of it is
    /// acknowledged. `wanted` is how many bytes the application would write if there was room, those of `data` included.
    pub fn write_bytes(
        &mut self,
        now: Instant,
        stream: StreamId,
        data: &mut Bytes,
        wanted: usize,
    ) -> Result<usize, StreamError> {
        self.take_written(now, stream, [data.len(), wanted], |send, taken| {
            send.push_shared(data.split_to(taken));
        })
    }

    /// How many of `wanted` bytes [`Session::write`] would take now. Where that is none, this counts as such a call.
    pub fn write_room(
        &mut self,
        now: Instant,
        stream: StreamId,
        wanted: usize,
    ) -> Result<usize, StreamError> {
        match self.room_of(now, stream)? {
            (0, _) => self.take_written(now, stream, [0, wanted], |_, _| ()),
            (room, _) => Ok(room.min(wanted)),
        }
    }

    /// Lets `push` take as many of the offered bytes as there is room for. If the application wants to write more than that, it is told
    /// when there is room again.
    fn take_written(
        &mut self,
        now: Instant,
        stream: StreamId,
        [offered, wanted]: [usize; 2],
        push: impl FnOnce(&mut SendBytes, usize),
    ) -> Result<usize, StreamError> {
        let (room, session_is_full) = self.room_of(now, stream)?;
        let taken = offered.min(room);
        if taken < wanted {
            self.bytes_out.block(stream, session_is_full);
        }
        self.bytes_out.writers_are_due = false;
        if let Some(Stream {
            kind: Kind::Bytes(pair),
            stats,
            ..
        }) = self.streams.get_mut(stream)
            && taken > 0
        {
            push(&mut pair.send, taken);
            stats.bytes_sent += taken as u64;
            self.bytes_out.on_written(taken as u64);
            self.make_ready(stream);
        }
        Ok(taken)
    }

    /// How many bytes a stream takes now, and whether it is what the session may hold that bounds them.
    fn room_of(&mut self, now: Instant, stream: StreamId) -> Result<(usize, bool), StreamError> {
        self.advance(now);
        self.check_open()?;
        let session_room = self
            .config
            .max_send_bytes
            .saturating_sub(self.held_for_sending()) as u64;
        let unsent_limit = self.unsent_limit();
        let pair = self.pair(stream)?;
        if !pair.send.is_writable() {
            return Err(StreamError::NotWritable(stream));
        }
        let room = pair.send.room(unsent_limit).min(session_room);
        let session_is_full = room == session_room;
        Ok((usize::try_from(room).unwrap_or(usize::MAX), session_is_full))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use starhaul_paths::{PathId, PathUpdate};
    use starhaul_units::Bandwidth;

    use super::*;
    use crate::types::{Event, Mode, SessionConfig, Side, StreamConfig};

    const PATH: PathId = PathId(0);

    fn update() -> PathUpdate {
        PathUpdate {
            cwnd: 100_000_000,
            bytes_in_flight: 0,
            bandwidth: Bandwidth::from_mbit(100),
            smoothed_rtt: Duration::from_millis(40),
            min_rtt: Duration::from_millis(40),
            max_datagram: 1200,
        }
    }

    fn session(now: Instant, max_send_bytes: usize) -> (Session, StreamId) {
        let config = SessionConfig {
            max_send_bytes,
            ..SessionConfig::default()
        };
        let mut session = Session::new(config, Side::Client, now);
        session.add_path(now, PATH, 0.0, update());
        let stream = StreamConfig {
            mode: Mode::Reliable,
            ..StreamConfig::default()
        };
        let stream = session.open_stream(now, stream).unwrap();
        (session, stream)
    }

    #[test]
    fn what_waits_follows_the_paths_within_limits_and_leaves_room_for_the_next_in_time() {
        let now = Instant::now();
        for (mbit, most) in [(10, 256 << 10), (100, 625_000), (100_000, 2 << 20)] {
            let (mut session, stream) = session(now, 64 << 20);
            let update = PathUpdate {
                bandwidth: Bandwidth::from_mbit(mbit),
                ..update()
            };
            session.update_path(now, PATH, update);
            // The peer takes all.
            session.pair(stream).unwrap().send.grant(1 << 40);
            let taken = session.write(now, stream, &vec![7; 5 << 20]).unwrap();
            assert_eq!(taken, most, "{mbit} Mbit/s");
            while session.poll_event().is_some() {}
            let mut left = 0;
            let told = loop {
                let datagram = session.poll_datagram(now, PATH).unwrap();
                left += datagram.payload.len();
                if let Some(event) = session.poll_event() {
                    break event;
                }
            };
            assert!(matches!(told, Event::Writable(id) if id == stream));
            assert!(left > most / 4 && left < most / 2, "told after {left}");
        }
    }

    /// Writes as an application does that asks for room before it copies.
    fn write_shared(session: &mut Session, now: Instant, stream: StreamId, data: &[u8]) -> usize {
        let room = session.write_room(now, stream, data.len()).unwrap();
        let mut shared = Bytes::copy_from_slice(&data[..room]);
        if room > 0 {
            let taken = session.write_bytes(now, stream, &mut shared, data.len());
            assert_eq!((taken, shared.len()), (Ok(room), 0));
        }
        room
    }

    #[test]
    fn shared_bytes_leave_in_the_same_datagrams_as_copied_ones() {
        let now = Instant::now();
        for max_send_bytes in [60_000, 64 << 20] {
            let (mut copying, stream) = session(now, max_send_bytes);
            let (mut sharing, _) = session(now, max_send_bytes);
            let mut refused = 0;
            for (number, length) in [1, 700, 300, 1025, 30_000, 1 << 20, 5, 65_536]
                .into_iter()
                .enumerate()
            {
                let byte = |at: usize| ((at * 31 + number) % 251).to_le_bytes()[0];
                let data: Vec<u8> = (0..length).map(byte).collect();
                let taken = copying.write(now, stream, &data).unwrap();
                let shared = write_shared(&mut sharing, now, stream, &data);
                assert_eq!(shared, taken, "of {length} bytes");
                let is_blocked = |session: &Session| {
                    let out = &session.bytes_out;
                    (out.is_blocked(stream), out.writers_starve, out.held())
                };
                assert_eq!(is_blocked(&sharing), is_blocked(&copying));
                assert_eq!(sharing.poll_requests(), copying.poll_requests());
                refused += usize::from(taken < length);
                loop {
                    let next = |session: &mut Session| {
                        let datagram = session.poll_datagram(now, PATH);
                        datagram.map(|datagram| datagram.payload)
                    };
                    let datagram = next(&mut copying);
                    assert_eq!(next(&mut sharing), datagram);
                    if datagram.is_none() {
                        break;
                    }
                }
            }
            assert!(refused > 0, "there was room for all");
        }
    }

    #[test]
    fn a_part_of_shared_bytes_that_is_not_taken_stays_with_the_writer() {
        let now = Instant::now();
        let (mut session, stream) = session(now, 10_000);
        let mut data = Bytes::from(vec![7; 25_000]);
        let taken = session.write_bytes(now, stream, &mut data, 25_000).unwrap();
        assert!((1..=10_000).contains(&taken), "{taken}");
        assert_eq!(data.len(), 25_000 - taken);
        assert!(session.bytes_out.is_blocked(stream));
        let none = session.write_room(now, stream, 1).unwrap();
        assert_eq!(none, 0, "it holds what it may");
    }
}
