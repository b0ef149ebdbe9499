//! Sending a file to a far side that cannot answer.

use std::time::Instant;

use sha2::{Digest as _, Sha256};
use starhaul_ltp::{EngineId, Event, SessionId};
use starhaul_net::ltp::LtpDriver;

use super::{FileSender, MOST_WAITING, Progress, TELL_EVERY};
use crate::{Error, wire::CHUNK_BYTES};

impl FileSender {
    /// Sends the file over a link without a way back, and returns its SHA-256 when all of it has left. Whether it arrives is not known:
    /// repair segments have to make up for all losses. The peer's configuration says that it cannot answer, how fast the link is, since
    /// nothing else bounds how fast segments leave, and how many of them are lost.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Changed`], [`Error::Ltp`] and [`Error::Net`]; [`Error::Unsent`] where the system does not let all of it leave;
    /// [`Error::GivenUp`] where a far side can answer after all, and refuses a block.
    pub fn run_one_way(
        self,
        driver: &mut LtpDriver,
        to: EngineId,
        mut tell: impl FnMut(Progress),
    ) -> Result<[u8; 32], Error> {
        let (mut hash, before) = (Sha256::new(), driver.unsent(to));
        let (mut offset, mut left, mut next_tell) = (0, 0, Instant::now());
        let mut progress = Progress {
            length: self.length,
            left: Some(0),
            ..Progress::default()
        };
        // A session of which all has left is over.
        let mut blocks: Vec<(SessionId, u64)> = Vec::new();
        while left < self.length || !driver.is_drained() {
            let reads = offset < self.length && blocks.len() < MOST_WAITING;
            if reads {
                let block = self.begin(driver, to, (offset, CHUNK_BYTES), &mut hash)?;
                offset += block.1;
                blocks.push(block);
            }
            driver.turn(Some(if reads { Instant::now() } else { next_tell }))?;
            while let Some(event) = driver.poll_event() {
                match event {
                    Event::Transmitted { session } => {
                        if let Some(at) = blocks.iter().position(|(id, _)| *id == session) {
                            left += blocks.swap_remove(at).1;
                        }
                    }
                    Event::SendCancelled { reason, .. } => return Err(Error::GivenUp(reason)),
                    _ => {}
                }
            }
            progress.left = Some(left);
            progress.count(driver.engine());
            if Instant::now() >= next_tell {
                progress.note_size(driver.engine(), to);
                tell(progress);
                next_tell = Instant::now() + TELL_EVERY;
            }
        }
        tell(progress);
        match driver.unsent(to).saturating_sub(before) {
            0 => Ok(hash.finalize().into()),
            unsent => Err(Error::Unsent(unsent)),
        }
    }
}
