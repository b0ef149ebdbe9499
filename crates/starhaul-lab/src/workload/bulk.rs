//! A reliable stream and the application at its end.

use std::time::Duration;

use starhaul_session::{Mode, StreamConfig, StreamId};

use crate::{
    Error,
    worlds::stack::{Starhaul, World},
};

/// The pattern that is written again and again; its length is prime, so that no shift of whole packets goes unnoticed.
const PATTERN_BYTES: usize = 65_521;
const READ_BYTES: usize = 256 << 10;
/// A reliable stream that is always full, or carries a message now and then, and its reader.
#[derive(Debug)]
pub struct Bulk {
    stream: StreamId,
    pattern: Vec<u8>,
    /// Bytes that the session took.
    pub sent: u64,
    /// Bytes that the receiving application read.
    pub received: u64,
    /// They are the ones that were sent.
    pub intact: bool,
    finished: bool,
    /// Bytes and interval of messages, and when the next is due after the opening; else it is always full.
    messages: Option<(u64, Duration)>,
    next_message: Duration,
}

impl Bulk {
    /// Opens the stream.
    ///
    /// # Errors
    /// The session refuses.
    pub fn open(world: &mut World<Starhaul>) -> Result<Self, Error> {
        let config = StreamConfig {
            mode: Mode::Reliable,
            priority: 5,
            ..StreamConfig::default()
        };
        let stream = world.open_stream(config)?;
        let pattern = (0..PATTERN_BYTES)
            .map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1].rotate_left(3))
            .collect();
        Ok(Self {
            stream,
            pattern,
            sent: 0,
            received: 0,
            intact: true,
            finished: false,
            messages: None,
            next_message: Duration::ZERO,
        })
    }

    /// Opens a stream that carries `bytes` every `interval`.
    ///
    /// # Errors
    /// The session refuses.
    pub fn messages(
        world: &mut World<Starhaul>,
        bytes: u64,
        interval: Duration,
    ) -> Result<Self, Error> {
        Ok(Self {
            messages: Some((bytes, interval)),
            ..Self::open(world)?
        })
    }

    /// Writes what fits and reads what has come. Says when it wants to be called at the latest, if not only after events.
    pub fn pump(&mut self, world: &mut World<Starhaul>) -> Option<Duration> {
        let (now, elapsed) = (world.now(), world.elapsed());
        if let Some(session) = world.sender().session().filter(|_| !self.finished) {
            let mut left = u64::MAX;
            if let Some((bytes, interval)) = self.messages {
                left = 0;
                while self.next_message <= elapsed {
                    self.next_message += interval;
                    left += bytes;
                }
            }
            while left > 0 {
                let at = offset(self.sent);
                let most = usize::try_from(left).unwrap_or(usize::MAX);
                let end = at.saturating_add(most).min(self.pattern.len());
                match session.write(now, self.stream, &self.pattern[at..end]) {
                    Ok(written @ 1..) => {
                        self.sent += written as u64;
                        left -= written as u64;
                    }
                    Ok(0) | Err(_) => break,
                }
            }
        }
        if let Some(session) = world.receiver().session() {
            while let Ok(Some(data)) = session.read(now, self.stream, READ_BYTES) {
                if data.is_empty() {
                    break;
                }
                self.check(&data);
            }
        }
        self.messages
            .filter(|_| !self.finished)
            .map(|_| self.next_message)
    }

    /// Writes no more and ends the stream.
    pub fn finish(&mut self, world: &mut World<Starhaul>) {
        let now = world.now();
        self.finished = true;
        if let Some(session) = world.sender().session() {
            // Fails only when the stream has ended already.
            let _ = session.finish(now, self.stream);
        }
    }

    /// Bytes that have arrived and wait for what comes before them.
    pub fn waiting_bytes(&self, world: &mut World<Starhaul>) -> u64 {
        let session = world.receiver().session();
        session.map_or(0, |session| session.waiting_bytes(self.stream) as u64)
    }

    fn check(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let expected = &self.pattern[offset(self.received)..];
            let length = expected.len().min(data.len());
            self.intact &= data[..length] == expected[..length];
            self.received += length as u64;
            data = &data[length..];
        }
    }
}

fn offset(position: u64) -> usize {
    usize::try_from(position % PATTERN_BYTES as u64).unwrap_or_default()
}
