//! Sending a file.

mod one_way;

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};
use starhaul_ltp::{Engine, EngineId, Event, Outgoing, SessionId, SizeReason};
use starhaul_net::ltp::LtpDriver;

use crate::{
    Error, SERVICE, file_error,
    wire::{CHUNK_BYTES, Chunk, Verdict},
};

/// Bytes of blocks under way at a time, at least; the rate and light time of a path ask for more.
pub const LEAST_UNDER_WAY: u64 = 4 * CHUNK_BYTES;
/// What the far side may need to write a file to its disk: at first, and for each byte on a slow one.
const WRITING: Duration = Duration::from_secs(60);
const SLOW_DISK_BYTES_PER_S: u64 = 20_000_000;
/// Blocks that are read before they leave: one leaves while the next is read.
const MOST_WAITING: usize = 2;
/// How long the first address of the far side is tried that does not answer, while there are others; each further one twice as long as
/// the one before, so that an answer is awaited at each, however far it is.
const TRY_ADDRESS: Duration = Duration::from_secs(1);
/// Bytes of the file that are sent before one of several addresses has answered: the others lose no more, and the answer comes at once
/// also over a slow link.
const PROBE_BYTES: u64 = 1000;
/// How long after the last acknowledgement the far side's verdict on the file is awaited at least, and in addition so many times as long as
/// it takes to answer, before an engine of another number counts as the far side.
const AWAIT_WORD: Duration = Duration::from_secs(2);
const AWAIT_WORD_ANSWERS: u32 = 3;
/// So much later such an engine must have been heard again: it repeats segments that are not acknowledged.
const HEARD_AGAIN: Duration = Duration::from_millis(50);
/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// How long after its last acknowledgement the far side's hash of a file of so many bytes is awaited; `patience` as for
/// [`FileSender::open`].
pub fn verdict_awaited(patience: Duration, length: u64) -> Duration {
    patience + WRITING + Duration::from_secs(length / SLOW_DISK_BYTES_PER_S)
}

/// How far a file has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes whose blocks the far side has acknowledged.
    pub acknowledged: u64,
    /// Bytes whose blocks have left, where nothing is acknowledged.
    pub left: Option<u64>,
    /// Bytes of the file.
    pub length: u64,
    /// Data segments that were sent again.
    pub resent: u64,
    /// Repair segments that were sent.
    pub repairs: u64,
    /// Bytes of data in a segment at present.
    pub segment_bytes: usize,
    /// Why they are so many, once anything was told.
    pub segment_reason: Option<SizeReason>,
    /// Whether all was acknowledged, and only the far side's hash is awaited.
    pub is_verifying: bool,
}

/// Sends one file to a peer that runs a [`crate::FileReceiver`].
#[derive(Debug)]
pub struct FileSender {
    path: PathBuf,
    name: String,
    file: File,
    length: u64,
    transfer: u64,
    under_way: u64,
    patience: Duration,
}

impl FileSender {
    /// Opens the file. `transfer` tells it from all others sent to the peer; `under_way` is how many bytes the path takes
    /// in a few round trips, which are held in memory; `patience` is how long the far side may take to tell its hash.
    ///
    /// # Errors
    /// [`Error::File`] and [`Error::Unusable`].
    pub fn open(
        path: &Path,
        transfer: u64,
        under_way: u64,
        patience: Duration,
    ) -> Result<Self, Error> {
        let file = File::open(path).map_err(file_error(path))?;
        let length = file.metadata().map_err(file_error(path))?.len();
        let unusable = |reason| Error::Unusable(path.to_owned(), reason);
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name
            .ok_or_else(|| unusable("its name is no UTF-8"))?
            .to_owned();
        if name.starts_with('.') {
            return Err(unusable("hidden names are for unfinished files"));
        }
        if length == 0 {
            return Err(unusable("it is empty, and LTP sends no empty blocks"));
        }
        Ok(Self {
            path: path.to_owned(),
            name,
            file,
            length,
            transfer,
            under_way: under_way.max(LEAST_UNDER_WAY),
            patience,
        })
    }

    /// Sends the file and waits for the far side's hash of it.
    ///
    /// # Errors
    /// All of [`Error`]; the far side has the file only if there is none.
    pub fn run(
        self,
        driver: &mut LtpDriver,
        to: EngineId,
        mut tell: impl FnMut(Progress),
    ) -> Result<(), Error> {
        let mut hash = Sha256::new();
        let (mut offset, mut next_tell) = (0, Instant::now());
        let mut progress = Progress {
            length: self.length,
            ..Progress::default()
        };
        let mut sessions: Vec<(SessionId, u64)> = Vec::new();
        let (mut verdict, mut acknowledged_at) = (None, None);
        let mut other = Other::default();
        let mut waiting: Vec<SessionId> = Vec::new();
        let (mut next_address, mut try_address) = (Instant::now() + TRY_ADDRESS, TRY_ADDRESS);
        while verdict.is_none() {
            // What leaves later is read later: the first data leave at once, and a long path takes no memory before it is filled.
            let is_sought = driver.is_sought(to);
            let reads = offset < self.length
                && (offset == 0 || !is_sought)
                && waiting.len() < MOST_WAITING
                && driver.engine().send_bytes() < self.under_way;
            if reads {
                let most = if is_sought { PROBE_BYTES } else { CHUNK_BYTES };
                let (session, data) = self.begin(driver, to, (offset, most), &mut hash)?;
                sessions.push((session, data));
                waiting.push(session);
                offset += data;
            }
            driver.turn(Some(if reads { Instant::now() } else { next_tell }))?;
            while let Some(event) = driver.poll_event() {
                match event {
                    Event::Transmitted { session } => waiting.retain(|id| *id != session),
                    Event::Sent { session } => {
                        waiting.retain(|id| *id != session);
                        if let Some(at) = sessions.iter().position(|(id, _)| *id == session) {
                            progress.acknowledged += sessions.swap_remove(at).1;
                        }
                    }
                    Event::SendCancelled { reason, .. } => {
                        let given_up = Error::GivenUp(reason);
                        return Err(other_engine(driver, to).unwrap_or(given_up));
                    }
                    Event::RedPart { block, .. } => {
                        let found = Verdict::parse(&block.into_bytes());
                        verdict = verdict.or(found.filter(|found| found.transfer == self.transfer));
                    }
                    _ => {}
                }
            }
            progress.count(driver.engine());
            // Not with each batch: it takes some computing.
            if Instant::now() >= next_tell {
                progress.note_size(driver.engine(), to);
            }
            progress.is_verifying = progress.acknowledged == self.length;
            if progress.is_verifying {
                let now = Instant::now();
                let since = *acknowledged_at.get_or_insert(now);
                other.look(now, driver.engine(), to);
                if since.elapsed() > verdict_awaited(self.patience, self.length) {
                    return Err(other.error(to).unwrap_or(Error::Untold));
                }
                let answers = driver.engine().answer_time(to).unwrap_or_default();
                let word = AWAIT_WORD + answers.saturating_mul(AWAIT_WORD_ANSWERS);
                let is_late = verdict.is_none() && since.elapsed() > word;
                if let Some(error) = other.error(to).filter(|_| is_late) {
                    return Err(error);
                }
            }
            if driver.is_sought(to) && Instant::now() >= next_address {
                driver.try_next_address(to);
                try_address *= 2;
                next_address = Instant::now() + try_address;
            }
            if Instant::now() >= next_tell {
                tell(progress);
                next_tell = Instant::now() + TELL_EVERY;
            }
        }
        self.leave(driver)?;
        tell(progress);
        match verdict.map(|verdict| verdict.result) {
            Some(Ok(stored)) if stored == <[u8; 32]>::from(hash.finalize()) => Ok(()),
            Some(Ok(_)) => Err(Error::FarSide("its hash differs".into())),
            Some(Err(reason)) => Err(Error::FarSide(reason)),
            None => Err(Error::Untold),
        }
    }

    /// Acknowledges the verdict until the far side is content, or has had its time.
    fn leave(&self, driver: &mut LtpDriver) -> Result<(), Error> {
        let limit = Instant::now() + Duration::from_secs(2);
        while driver.engine().sessions() != (0, 0) && Instant::now() < limit {
            driver.turn(Some(limit))?;
            while driver.poll_event().is_some() {}
        }
        // The last acknowledgements leave.
        driver.turn(Some(Instant::now()))?;
        Ok(())
    }

    /// How many blocks the file is sent in.
    pub fn blocks(&self) -> u64 {
        self.length.div_ceil(CHUNK_BYTES)
    }

    /// Begins to send the block at an offset of the file with at most so many of its bytes; its session, and how many these are.
    fn begin(
        &self,
        driver: &mut LtpDriver,
        to: EngineId,
        (offset, most): (u64, u64),
        hash: &mut Sha256,
    ) -> Result<(SessionId, u64), Error> {
        let (block, data) = self.chunk(offset, most, hash)?;
        let (red, service) = (block.len() as u64, SERVICE);
        let outgoing = Outgoing {
            to,
            service,
            block,
            red,
        };
        let session = driver.engine().send(Instant::now(), outgoing)?;
        Ok((session, data))
    }

    /// The block that begins at `offset` of the file with at most so many of its bytes, and how many these are.
    fn chunk(&self, offset: u64, most: u64, hash: &mut Sha256) -> Result<(Bytes, u64), Error> {
        let length = most.min(self.length - offset);
        let mut block: BytesMut = Chunk::header(self.transfer, offset, self.length, &self.name);
        let header = block.len();
        block.resize(header + usize::try_from(length).unwrap_or(usize::MAX), 0);
        let data = block.get_mut(header..).unwrap_or_default();
        match self.file.read_exact_at(data, offset) {
            Ok(()) => hash.update(&*data),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(Error::Changed(self.path.clone()));
            }
            Err(error) => return Err(file_error(&self.path)(error)),
        }
        Ok((block.freeze(), length))
    }
}

impl Progress {
    /// Takes what an engine counts.
    fn count(&mut self, engine: &Engine) {
        let stats = engine.stats();
        self.resent = stats.data_segments_resent;
        self.repairs = stats.repair_segments_sent;
    }

    /// Takes the size of the segments to a peer, and why they have it.
    fn note_size(&mut self, engine: &Engine, to: EngineId) {
        if let Some(choice) = engine.segment_choice(to) {
            self.segment_bytes = choice.data_bytes;
            self.segment_reason = Some(choice.reason);
        }
    }
}

/// The engine of another number that tells what became of the file, from where the named one acknowledged all of it. A datagram alone says
/// nothing: any host may have sent it.
#[derive(Debug, Default)]
struct Other {
    has_looked: bool,
    /// When one was first heard.
    heard: Option<Instant>,
    /// The one that was heard again.
    answers: Option<EngineId>,
}

impl Other {
    /// Notes the engine of another number that was heard since the last call; what was heard before the first does not count.
    fn look(&mut self, now: Instant, engine: &mut Engine, named: EngineId) {
        let spoke = engine.take_other_engine(named);
        let is_first = !std::mem::replace(&mut self.has_looked, true);
        let Some(other) = spoke.filter(|_| !is_first) else {
            return;
        };
        let heard = *self.heard.get_or_insert(now);
        if now.saturating_duration_since(heard) >= HEARD_AGAIN {
            self.answers = Some(other);
        }
    }

    fn error(&self, named: EngineId) -> Option<Error> {
        let answers = self.answers?;
        Some(Error::OtherEngine { answers, named })
    }
}

/// Why the outcome of the file is not known, if an engine of another number has sent something.
fn other_engine(driver: &mut LtpDriver, named: EngineId) -> Option<Error> {
    let answers = driver.engine().other_engine(named)?;
    Some(Error::OtherEngine { answers, named })
}

#[cfg(test)]
mod tests {
    use std::{
        net::{SocketAddr, UdpSocket},
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use starhaul_ltp::{
        Body, Data, DataKind, Encoding, EngineConfig, Extensions, PeerConfig, Segment, UnknownPeers,
    };
    use starhaul_net::IoMode;
    use starhaul_units::Bandwidth;

    use super::*;

    const SENDER: EngineId = EngineId(1);
    const RECEIVER: EngineId = EngineId(2);
    const TRANSFER: u64 = 7;

    fn driver(id: EngineId, peer: Option<EngineId>, rate: Option<Bandwidth>) -> LtpDriver {
        let config = PeerConfig::new(Duration::ZERO, rate);
        let mut engine_config = EngineConfig::new(id, [7; 32]);
        engine_config.unknown_peers = UnknownPeers::Accept {
            most: 3,
            config: Box::new(config.clone()),
        };
        let mut engine = Engine::new(engine_config);
        if let Some(peer) = peer {
            engine.add_peer(Instant::now(), peer, config).unwrap();
        }
        engine.open_service(SERVICE);
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        LtpDriver::bind(local, IoMode::default(), engine).unwrap()
    }

    /// A datagram that seems to come from an engine of another number.
    fn forged() -> Vec<u8> {
        let segment = Segment {
            encoding: Encoding::default(),
            session: SessionId {
                originator: EngineId(5),
                number: 1,
            },
            header: Extensions::default(),
            body: Body::Data(Data {
                kind: DataKind::Red,
                service: SERVICE,
                offset: 0,
                checkpoint: None,
                payload: b"x",
            }),
            trailer: Extensions::default(),
        };
        let mut bytes = Vec::new();
        segment.write(&mut bytes);
        bytes
    }

    /// Sends a file without contents to an engine that refuses it as soon as the first segment is there; what the sender is told, and
    /// how many bytes it had in memory then. The sender tries `elsewhere` first, and has got a forged datagram or not.
    fn refused(
        far_side: EngineId,
        bytes: u64,
        elsewhere: &[SocketAddr],
        is_forged: bool,
    ) -> (Result<(), Error>, u64) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        File::create(&path).unwrap().set_len(bytes).unwrap();
        let mut receiver = driver(far_side, None, None);
        let rate = Some(Bandwidth::from_mbit(20));
        let mut sender = driver(SENDER, Some(RECEIVER), rate);
        let addresses = [elsewhere, &[receiver.local_addr()]].concat();
        sender.set_addresses(RECEIVER, &addresses);
        if is_forged {
            let (now, forged) = (Instant::now(), forged());
            let engine = sender.engine();
            engine.handle_datagrams(now, RECEIVER, &forged, forged.len());
            assert_eq!(engine.other_engine(RECEIVER), Some(EngineId(5)));
        }
        let (is_over, waker) = (AtomicBool::new(false), receiver.waker());
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    receiver.turn(None).unwrap();
                    while let Some(event) = receiver.poll_event() {
                        let Event::Receiving { session, .. } = event else {
                            continue;
                        };
                        let block = Verdict {
                            transfer: TRANSFER,
                            result: Err("no more".into()),
                        };
                        let block = block.encode();
                        let outgoing = Outgoing {
                            to: session.originator,
                            service: SERVICE,
                            red: block.len() as u64,
                            block,
                        };
                        receiver.engine().send(Instant::now(), outgoing).unwrap();
                    }
                }
            });
            let file = FileSender::open(&path, TRANSFER, u64::MAX, Duration::from_secs(5)).unwrap();
            let told = file.run(&mut sender, RECEIVER, |_| {});
            is_over.store(true, Ordering::SeqCst);
            waker.wake();
            (told, sender.engine().send_bytes())
        })
    }

    /// A path that takes more than the memory of this host had all of it read before its first byte left.
    #[test]
    fn the_first_data_leave_before_the_rest_is_read() {
        let (told, in_memory) = refused(RECEIVER, 20 * CHUNK_BYTES, &[], false);
        assert!(
            matches!(&told, Err(Error::FarSide(why)) if why == "no more"),
            "{told:?}"
        );
        assert!(in_memory <= 4 * CHUNK_BYTES, "{in_memory} bytes");
    }

    #[test]
    fn a_forged_datagram_ends_no_transfer() {
        let (told, _) = refused(RECEIVER, 1000, &[], true);
        assert!(
            matches!(&told, Err(Error::FarSide(why)) if why == "no more"),
            "{told:?}"
        );
    }

    /// While the far side writes the file to its disk.
    #[test]
    fn an_engine_of_another_number_is_believed_when_it_is_heard_again() {
        let mut sender = driver(SENDER, Some(RECEIVER), None);
        let (engine, forged) = (sender.engine(), forged());
        let mut now = Instant::now();
        let mut other = Other::default();
        for (is_heard, is_believed) in [
            // Before all was acknowledged.
            (true, false),
            (true, false),
            (false, false),
            (true, true),
            (false, true),
        ] {
            if is_heard {
                engine.handle_datagrams(now, RECEIVER, &forged, forged.len());
            }
            other.look(now, engine, RECEIVER);
            assert_eq!(other.error(RECEIVER).is_some(), is_believed);
            now += HEARD_AGAIN;
        }
    }

    /// A second of data at the rate of the link went to each address at which no engine is.
    #[test]
    fn little_is_sent_to_an_address_that_has_not_answered() {
        let unused = UdpSocket::bind("127.0.0.1:0").unwrap();
        let elsewhere = unused.local_addr().unwrap();
        let (told, _) = refused(RECEIVER, 2 * CHUNK_BYTES, &[elsewhere], false);
        assert!(
            matches!(&told, Err(Error::FarSide(why)) if why == "no more"),
            "{told:?}"
        );
        unused.set_nonblocking(true).unwrap();
        let mut buffer = [0; 2000];
        let lost = std::iter::from_fn(|| unused.recv(&mut buffer).ok());
        assert!((1..50).contains(&lost.count()));
    }

    #[test]
    fn an_engine_of_another_number_is_named() {
        let other = EngineId(5);
        let (told, _) = refused(other, 1000, &[], false);
        assert!(
            matches!(&told, Err(Error::OtherEngine { answers, .. }) if *answers == other),
            "{told:?}"
        );
        let told = told.unwrap_err().to_string();
        assert!(told.contains("use --peer 5"), "{told}");
    }
}
