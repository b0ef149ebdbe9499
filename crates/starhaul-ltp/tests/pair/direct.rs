//! Engines that exchange segments without a link between them, and segments of no engine.

use std::time::Instant;

use bytes::Bytes;
use starhaul_ltp::{
    Batch, Body, Checkpoint, Data, DataKind, Encoding, Engine, EngineConfig, EngineId, Event,
    Extensions, PeerConfig, Segment, SessionId,
};

use super::{RECEIVER, SENDER, SERVICE};

pub fn engine(
    id: EngineId,
    seed: u8,
    peers: &[EngineId],
    config: &PeerConfig,
    now: Instant,
) -> Engine {
    let mut engine = Engine::new(EngineConfig::new(id, [seed; 32]));
    for peer in peers {
        engine.add_peer(now, *peer, config.clone()).unwrap();
    }
    engine.open_service(SERVICE);
    engine
}

/// The receiver of one sender, whose blocks count as received when its client accepts them.
pub fn accepting(config: &PeerConfig, now: Instant) -> Engine {
    let mut engine = Engine::new(EngineConfig {
        awaits_acceptance: true,
        ..EngineConfig::new(RECEIVER, [2; 32])
    });
    engine.add_peer(now, SENDER, config.clone()).unwrap();
    engine.open_service(SERVICE);
    engine
}

/// A segment of a sender's session, which needs no engine.
pub fn segment(number: u64, body: Body<'_>) -> Vec<u8> {
    let segment = Segment {
        encoding: Encoding::default(),
        session: SessionId {
            originator: SENDER,
            number,
        },
        header: Extensions::default(),
        body,
        trailer: Extensions::default(),
    };
    let mut bytes = Vec::new();
    segment.write(&mut bytes);
    bytes
}

/// A red data segment.
pub fn red(number: u64, offset: u64, payload: &[u8], end: bool) -> Vec<u8> {
    let data = Data {
        kind: if end {
            DataKind::RedEndOfBlock
        } else {
            DataKind::Red
        },
        service: SERVICE,
        offset,
        checkpoint: end.then_some(Checkpoint {
            serial: 1,
            report: 0,
        }),
        payload,
    };
    segment(number, Body::Data(data))
}

/// Everything that an engine wants to send now.
pub fn output(engine: &mut Engine, now: Instant) -> Vec<Vec<u8>> {
    let (mut batch, mut all) = (Batch::new(65_507, 64), Vec::new());
    while engine.poll_transmit(now, &mut batch).is_some() {
        all.extend(
            batch
                .contents()
                .chunks(batch.segment_size())
                .map(<[u8]>::to_vec),
        );
    }
    all
}

/// Carries segments between two engines, without delay, until both are quiet.
pub fn converse(a: &mut Engine, b: &mut Engine, now: Instant) {
    loop {
        let (to_b, to_a) = (output(a, now), output(b, now));
        if to_a.is_empty() && to_b.is_empty() {
            return;
        }
        for segment in &to_b {
            b.handle_datagrams(now, a.id(), segment, segment.len());
        }
        for segment in &to_a {
            a.handle_datagrams(now, b.id(), segment, segment.len());
        }
    }
}

pub fn delivered(engine: &mut Engine) -> Vec<Bytes> {
    let events = std::iter::from_fn(|| engine.poll_event());
    let red = events.filter_map(|event| match event {
        Event::RedPart { block, .. } => Some(block.into_bytes()),
        _ => None,
    });
    red.collect()
}

pub fn sdnv(number: u64, out: &mut Vec<u8>) {
    let bits = 64 - (number | 1).leading_zeros();
    for i in (0..bits.div_ceil(7)).rev() {
        let more = if i > 0 { 0x80 } else { 0 };
        out.push(((number >> (7 * i)) & 0x7f) as u8 | more);
    }
}
