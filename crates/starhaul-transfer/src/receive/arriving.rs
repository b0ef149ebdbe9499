//! How far files have come that are not complete.

use starhaul_ltp::{Engine, EngineId, Incoming};

use super::{FileReceiver, Unfinished};
use crate::wire::Chunk;

/// The first bytes of a block that are looked at: they hold its header, if the file's name is no longer than file systems allow.
const HEAD_BYTES: usize = 512;

/// A file of which something is here, and not all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arriving {
    /// The engine that sends it.
    pub from: EngineId,
    /// Name and length in bytes, once the beginning of a block is here. They are what the sender says, and nothing was compared yet.
    pub file: Option<(String, u64)>,
    /// Bytes of it that are here; those of blocks that are not complete with their headers.
    pub bytes: u64,
    /// Data segments that its sender has sent again since the engine knows it, or that others overtook.
    pub resent: u64,
    /// Bytes of data in a segment at present; zero before the first segment.
    pub segment_bytes: usize,
}

impl FileReceiver {
    /// The files that arrive, one of each sender: that of its latest block. `engine` is the one whose events this receiver
    /// [handles](Self::handle).
    pub fn arriving(&self, engine: &Engine) -> Vec<Arriving> {
        let all = engine.incoming();
        all.filter_map(|incoming| self.arriving_from(engine, incoming))
            .collect()
    }

    fn arriving_from(&self, engine: &Engine, incoming: Incoming) -> Option<Arriving> {
        let from = incoming.from;
        let head = incoming.block.map(|block| engine.head(block, HEAD_BYTES));
        let chunk = head.and_then(|head| Chunk::parse(&head));
        let stored = match &chunk {
            Some(chunk) => self.unfinished.get(&(from, chunk.transfer)),
            None => self.latest(from),
        };
        if incoming.block.is_none() && stored.is_none() {
            return None;
        }
        let told = chunk.map(|chunk| (chunk.name, chunk.length));
        let file = told.or_else(|| stored.map(|file| (file.name.clone(), file.length)));
        let written: u64 = stored.map_or(0, |file| file.chunks.values().sum());
        let most = file.as_ref().map_or(u64::MAX, |(_, length)| *length);
        Some(Arriving {
            from,
            bytes: written.saturating_add(incoming.bytes).min(most),
            file,
            resent: incoming.resent,
            segment_bytes: incoming.segment_bytes,
        })
    }

    /// The unfinished file of a sender of which a block came last.
    fn latest(&self, from: EngineId) -> Option<&Unfinished> {
        let files = self.unfinished.range((from, 0)..=(from, u64::MAX));
        let latest = files.max_by_key(|(_, file)| file.heard);
        latest.map(|(_, file)| file)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use starhaul_ltp::{Batch, EngineConfig, Event, Outgoing, PeerConfig};

    use super::*;
    use crate::SERVICE;

    const SENDER: EngineId = EngineId(1);
    const RECEIVER: EngineId = EngineId(2);
    const FILE_BYTES: u64 = 500_000;
    const BLOCK_BYTES: usize = 100_000;

    fn engine(now: Instant, id: EngineId, peer: EngineId) -> Engine {
        let mut engine = Engine::new(EngineConfig::new(id, [7; 32]));
        let config = PeerConfig::new(Duration::ZERO, None);
        engine.add_peer(now, peer, config).unwrap();
        engine.open_service(SERVICE);
        engine
    }

    /// The segments of a block that holds the beginning of a file, and its bytes.
    fn segments(now: Instant) -> (Vec<Vec<u8>>, usize) {
        let mut block = Chunk::header(7, 0, FILE_BYTES, "moon.tif");
        block.resize(block.len() + BLOCK_BYTES, 1);
        let mut sender = engine(now, SENDER, RECEIVER);
        let bytes = block.len();
        let outgoing = Outgoing {
            to: RECEIVER,
            service: SERVICE,
            red: bytes as u64,
            block: block.freeze(),
        };
        sender.send(now, outgoing).unwrap();
        let (mut batch, mut all) = (Batch::new(65_507, 64), Vec::new());
        while sender.poll_transmit(now, &mut batch).is_some() {
            let segments = batch.contents().chunks(batch.segment_size());
            all.extend(segments.map(<[u8]>::to_vec));
        }
        (all, bytes)
    }

    #[test]
    fn a_file_is_told_of_from_its_first_segment_until_it_is_complete() {
        let now = Instant::now();
        let folder = tempfile::tempdir().unwrap();
        let mut files = FileReceiver::new(folder.path()).unwrap();
        let mut receiver = engine(now, RECEIVER, SENDER);
        assert!(files.arriving(&receiver).is_empty());
        let (mut segments, block_bytes) = segments(now);
        let lost = segments.remove(10);
        let arriving = |files: &FileReceiver, receiver: &Engine| {
            let mut all = files.arriving(receiver);
            assert_eq!(all.len(), 1, "{all:?}");
            all.remove(0)
        };
        let first = &segments[0];
        receiver.handle_datagrams(now, SENDER, first, first.len());
        let expected = Arriving {
            from: SENDER,
            file: Some(("moon.tif".into(), FILE_BYTES)),
            bytes: 1360,
            resent: 0,
            segment_bytes: 1360,
        };
        assert_eq!(arriving(&files, &receiver), expected);
        for segment in &segments[1..] {
            receiver.handle_datagrams(now, SENDER, segment, segment.len());
        }
        let bytes = (block_bytes - 1360) as u64;
        let expected = Arriving { bytes, ..expected };
        assert_eq!(arriving(&files, &receiver), expected);
        // What was reported to be missing comes, with what was not.
        for (again, resent) in [(&segments[20], 1), (&lost, 2)] {
            receiver.handle_datagrams(now, SENDER, again, again.len());
            let told = receiver.incoming().map(|incoming| incoming.resent);
            assert_eq!(told.collect::<Vec<_>>(), [resent]);
        }
        assert!(files.arriving(&receiver).is_empty(), "all of it is here");
        let block = std::iter::from_fn(|| receiver.poll_event()).find_map(|event| match event {
            Event::RedPart { block, .. } => Some(block.into_bytes()),
            _ => None,
        });
        let chunk = Chunk::parse(&block.unwrap()).unwrap();
        assert!(files.store(SENDER, &chunk).unwrap().is_none());
        let expected = Arriving {
            bytes: BLOCK_BYTES as u64,
            resent: 2,
            ..expected
        };
        assert_eq!(arriving(&files, &receiver), expected);
        files.drop_part(SENDER, 7);
        assert!(files.arriving(&receiver).is_empty());
    }
}
