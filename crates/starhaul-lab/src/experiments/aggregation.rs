//! Does a reliable stream over several paths use them all, and is it never slower than over the best one alone?

use std::time::Duration;

use starhaul_cc::ControllerConfig;
use starhaul_link::{LinkSpec, Loss, QueueLimit};
use starhaul_session::{Mode, StreamConfig, StreamId};
use starhaul_units::Bandwidth;

use super::world::{PathSetup, Starhaul, World};
use crate::Error;

/// The pattern that is written again and again; its length is prime, so that no shift of whole packets goes unnoticed.
const PATTERN_BYTES: usize = 65_521;
const READ_BYTES: usize = 256 << 10;
const SMALLEST_QUEUE: u64 = 64 << 10;

/// One path, alike in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pipe {
    /// Its rate.
    pub rate: Bandwidth,
    /// Its round-trip time.
    pub rtt: Duration,
    /// Random loss, 0 to 1.
    pub loss: f64,
}

impl Pipe {
    /// A path as the world needs it, with a queue of one bandwidth-delay product and BBR.
    pub fn setup(&self) -> Result<PathSetup, Error> {
        let queue = self.rate.bytes_in(self.rtt).max(SMALLEST_QUEUE);
        let link = LinkSpec::constant(self.rate, self.rtt / 2)
            .with_loss(Loss::bernoulli(self.loss)?)
            .with_queue(QueueLimit::Bytes(
                usize::try_from(queue).unwrap_or(usize::MAX),
            ));
        Ok(PathSetup {
            forward: link.clone(),
            backward: link,
            cost: 1.0,
            controller: ControllerConfig::Bbr,
        })
    }
}

/// What a reliable stream over `pipes` delivers to the receiving application per second, after `warm_up`, for `measured`.
///
/// # Errors
/// The session does not come up, or a byte of the stream is not the one that was sent.
pub fn goodput(
    pipes: &[Pipe],
    warm_up: Duration,
    measured: Duration,
    seed: u64,
) -> Result<Bandwidth, Error> {
    let paths = pipes
        .iter()
        .map(Pipe::setup)
        .collect::<Result<Vec<_>, _>>()?;
    let mut world = World::starhaul(seed, &paths)?;
    let mut bulk = Bulk::open(&mut world)?;
    world.run(warm_up, |world| bulk.pump(world));
    let before = bulk.received;
    world.run(warm_up + measured, |world| bulk.pump(world));
    if !bulk.intact {
        return Err(Error::Failed(format!(
            "the stream was damaged before byte {}",
            bulk.received
        )));
    }
    Ok(Bandwidth::from_bytes_over(bulk.received - before, measured))
}

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
        let now = world.now();
        let config = StreamConfig {
            mode: Mode::Reliable,
            priority: 5,
            ..StreamConfig::default()
        };
        let stream = world
            .sender()
            .session()
            .and_then(|session| session.open_stream(now, config).ok());
        let stream = stream.ok_or_else(|| Error::Failed("the session refused a stream".into()))?;
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
