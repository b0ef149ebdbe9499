//! Sending a file.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};
use starhaul_ltp::{EngineId, Event, Outgoing, SessionId};
use starhaul_net::ltp::LtpDriver;

use crate::{
    Error, SERVICE, file_error,
    wire::{CHUNK_BYTES, Chunk, Verdict},
};

/// Bytes of blocks under way at a time, at least; the rate and light time of a path ask for more.
const LEAST_UNDER_WAY: u64 = 4 * CHUNK_BYTES;
/// What the far side may need to write a file to its disk: at first, and for each byte on a slow one.
const WRITING: Duration = Duration::from_secs(60);
const SLOW_DISK_BYTES_PER_S: u64 = 20_000_000;
/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// How far a file has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes whose blocks the far side has acknowledged.
    pub acknowledged: u64,
    /// Bytes of the file.
    pub length: u64,
    /// Data segments that were sent again.
    pub resent: u64,
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
    /// in a few round trips; `patience` is how long the far side may take to tell its hash.
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
        while verdict.is_none() {
            while offset < self.length && driver.engine().send_bytes() < self.under_way {
                let (block, data) = self.chunk(offset, &mut hash)?;
                let (red, service) = (block.len() as u64, SERVICE);
                let outgoing = Outgoing {
                    to,
                    service,
                    block,
                    red,
                };
                sessions.push((driver.engine().send(Instant::now(), outgoing)?, data));
                offset += data;
            }
            driver.turn(Some(next_tell))?;
            while let Some(event) = driver.poll_event() {
                match event {
                    Event::Sent { session } => {
                        if let Some(at) = sessions.iter().position(|(id, _)| *id == session) {
                            progress.acknowledged += sessions.swap_remove(at).1;
                        }
                    }
                    Event::SendCancelled { reason, .. } => return Err(Error::GivenUp(reason)),
                    Event::RedPart { block, .. } => {
                        let found = Verdict::parse(&block.into_bytes());
                        verdict = verdict.or(found.filter(|found| found.transfer == self.transfer));
                    }
                    _ => {}
                }
            }
            progress.resent = driver.engine().stats().data_segments_resent;
            progress.is_verifying = progress.acknowledged == self.length;
            if progress.is_verifying {
                let since = *acknowledged_at.get_or_insert_with(Instant::now);
                let writing = WRITING + Duration::from_secs(self.length / SLOW_DISK_BYTES_PER_S);
                if since.elapsed() > self.patience + writing {
                    return Err(Error::FarSide("it did not tell its hash in time".into()));
                }
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
            None => Err(Error::FarSide("it told nothing".into())),
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

    /// The block that begins at `offset` of the file, and how many of its bytes are the file's.
    fn chunk(&self, offset: u64, hash: &mut Sha256) -> Result<(Bytes, u64), Error> {
        let length = CHUNK_BYTES.min(self.length - offset);
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
