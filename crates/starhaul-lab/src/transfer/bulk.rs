//! What both ends do with the stream of a transfer.

use std::{
    io,
    time::{Duration, Instant},
};

use starhaul_endpoint::{ByteReader, ByteWriter};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::{Tally, tally::Counter};
use crate::Error;

/// Written at once.
const CHUNK_BYTES: usize = 64 << 10;
/// The end of a transfer: what has not arrived by now no longer counts.
const OVER: u32 = 1;
/// Writes until the time is over, and takes back what has not arrived then.
pub(super) async fn fill(writer: &mut ByteWriter, until: Instant) -> Result<(), Error> {
    let chunk = vec![0; CHUNK_BYTES];
    let write = async {
        loop {
            writer.write_all(&chunk).await?;
            // A task that always finds room must leave the other tasks a turn.
            tokio::task::yield_now().await;
        }
        #[expect(unreachable_code, reason = "names the error's type")]
        Ok::<(), io::Error>(())
    };
    match tokio::time::timeout_at(until.into(), write).await {
        Ok(ended) => ended.map_err(Error::io("the receiver went away"))?,
        Err(_) => writer.reset(OVER),
    }
    Ok(())
}

/// Reads until the sender says that the time is over.
pub(super) async fn read_all(
    reader: &mut ByteReader,
    time: Duration,
    limit: Instant,
) -> Result<Tally, Error> {
    let mut counter = Counter::new(time);
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let left = limit.saturating_duration_since(Instant::now());
        match timeout(left, reader.read(&mut buffer)).await {
            Err(_) => return Err(failed("the sender does not end")),
            Ok(Ok(0)) => break,
            Ok(Ok(bytes)) => counter.add(Instant::now(), bytes),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Ok(Err(error)) => return Err(Error::io("the sender went away")(error)),
        }
    }
    Ok(counter.finish())
}

pub(super) fn failed(what: impl Into<String>) -> Error {
    Error::Failed(what.into())
}
