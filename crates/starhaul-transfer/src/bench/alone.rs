//! The engines without sockets and threads: what of the processor time is theirs, and what of that is the checksum.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;
use starhaul_ltp::{Batch, Event, Outgoing, Profile, SegmentSize};

use super::{
    MOST_BYTES, MOST_SEGMENTS, RECEIVER, SENDER, SERVICE, content, per_segment, thread_time,
    transfer::{engine, is_same},
};
use crate::Error;

/// Processor time of two engines that hand each other their segments in memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Alone {
    /// Of the sending engine, per segment.
    pub send_us_per_segment: f64,
    /// Of the receiving engine, per segment.
    pub receive_us_per_segment: f64,
}

/// Measures the engines with a red block of so many bytes, with its checksum or without: the median of so many transfers after one that is
/// not counted. Batches are handed over as soon as they are full, so that they are still in the processor's cache.
///
/// # Errors
/// [`Error::Bench`] when the received block is not the one that was sent.
pub fn alone(
    segment_bytes: usize,
    block_bytes: usize,
    integrity: bool,
    repeats: usize,
) -> Result<Alone, Error> {
    let block = content(block_bytes);
    // As for sockets: memory that a process has for the first time is slow.
    transfer(segment_bytes, &block, integrity)?;
    let all = (0..repeats.max(1)).map(|_| transfer(segment_bytes, &block, integrity));
    let mut all = all.collect::<Result<Vec<Alone>, Error>>()?;
    let both = |alone: &Alone| alone.send_us_per_segment + alone.receive_us_per_segment;
    all.sort_by(|a, b| both(a).total_cmp(&both(b)));
    Ok(all.swap_remove(all.len() / 2))
}

fn transfer(segment_bytes: usize, block: &Bytes, integrity: bool) -> Result<Alone, Error> {
    let size = (SegmentSize::Bytes(segment_bytes), Profile::default());
    let mut sender = engine(SENDER, size, block.len(), integrity)?;
    let mut receiver = engine(RECEIVER, size, block.len(), integrity)?;
    let outgoing = Outgoing {
        to: RECEIVER,
        service: SERVICE,
        block: block.clone(),
        red: block.len() as u64,
    };
    sender.send(Instant::now(), outgoing)?;
    let (mut batch, mut sending, mut receiving) = (
        Batch::new(MOST_BYTES, MOST_SEGMENTS).lending(),
        Duration::ZERO,
        Duration::ZERO,
    );
    let mut received = None;
    loop {
        let now = Instant::now();
        let begun = thread_time();
        let forward = sender.poll_transmit(now, &mut batch).is_some();
        let made = thread_time();
        // With sockets, the kernel copies what is lent, as it does all else.
        batch.gather();
        let handed = thread_time();
        if forward {
            receiver.handle_datagrams(now, SENDER, batch.contents(), batch.segment_size());
        }
        let back = receiver.poll_transmit(now, &mut batch).is_some();
        let taken = thread_time();
        if back {
            sender.handle_datagrams(now, RECEIVER, batch.contents(), batch.segment_size());
        }
        let answered = thread_time();
        sending += made.saturating_sub(begun) + answered.saturating_sub(taken);
        receiving += taken.saturating_sub(handed);
        while let Some(event) = receiver.poll_event() {
            if let Event::RedPart { block, .. } = event {
                received = Some(block);
            }
        }
        // Nothing is lost on this way: both are done when neither has anything to send.
        if !forward && !back {
            break;
        }
    }
    let segments = sender.stats().data_segments_sent;
    let is_sent =
        std::iter::from_fn(|| sender.poll_event()).any(|event| matches!(event, Event::Sent { .. }));
    match is_sent && received.is_some_and(|received| is_same(&received, block)) {
        true => Ok(Alone {
            send_us_per_segment: per_segment(sending, segments),
            receive_us_per_segment: per_segment(receiving, segments),
        }),
        false => Err(Error::Bench(
            "the received block is not the one that was sent",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_engines_take_their_time_with_and_without_a_checksum() {
        for integrity in [false, true] {
            for segment_bytes in [200, 60_000] {
                let alone = alone(segment_bytes, 1_000_001, integrity, 1).unwrap();
                let times = [alone.send_us_per_segment, alone.receive_us_per_segment];
                assert!(times.iter().all(|time| *time > 0.0), "{alone:?}");
            }
        }
    }
}
