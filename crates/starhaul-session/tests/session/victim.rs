//! A session with a peer that says whatever it likes.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a harness of which each test uses a part"
)]

use std::time::Instant;

use bytes::Bytes;
use starhaul_session::{PathId, PathUpdate, ProtocolError, Session, SessionConfig, Side};
use starhaul_units::Bandwidth;

use crate::pair::ms;

pub const PATH: PathId = PathId(0);
/// What the peer may hold beyond its configuration: the datagram being read.
pub const SLACK: usize = 70_000;

/// A session with one path, and a peer that says whatever it likes.
pub struct Victim {
    pub now: Instant,
    pub session: Session,
    pub sequence: u32,
    pub control: u64,
}

impl Victim {
    pub fn new(config: SessionConfig) -> Self {
        Self::of(Side::Server, config)
    }

    pub fn of(side: Side, config: SessionConfig) -> Self {
        Self::at(Instant::now(), side, config)
    }

    pub fn at(now: Instant, side: Side, config: SessionConfig) -> Self {
        let update = PathUpdate {
            cwnd: 1_000_000,
            bytes_in_flight: 0,
            bandwidth: Bandwidth::from_mbit(10),
            smoothed_rtt: ms(40),
            min_rtt: ms(40),
            max_datagram: 1200,
        };
        let mut session = Session::new(config, side, now);
        session.add_path(now, PATH, 0.0, update);
        Self {
            now,
            session,
            sequence: 0,
            control: 0,
        }
    }

    pub fn small() -> Self {
        Self::new(SessionConfig {
            max_receive_bytes: 300_000,
            max_streams: 4,
            ..SessionConfig::default()
        })
    }

    /// A datagram of `kind` with a sound header.
    pub fn datagram(&mut self, kind: u8, body: &[u8]) -> Vec<u8> {
        let mut datagram = vec![kind];
        datagram.extend_from_slice(&self.sequence.to_be_bytes());
        datagram.extend_from_slice(&[0; 4]);
        datagram.extend_from_slice(body);
        self.sequence = self.sequence.wrapping_add(1);
        datagram
    }

    pub fn say(&mut self, kind: u8, body: &[u8]) -> Result<(), ProtocolError> {
        let datagram = self.datagram(kind, body);
        self.session
            .handle_datagram(self.now, PATH, Bytes::from(datagram))
    }

    pub fn control(&mut self, message: &[u8]) -> Result<(), ProtocolError> {
        let datagram = self.control_datagram(message);
        self.session
            .handle_datagram(self.now, PATH, Bytes::from(datagram))
    }

    /// A datagram with the next message.
    pub fn control_datagram(&mut self, message: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(message.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(message);
        let offset = self.control;
        self.control += bytes.len() as u64;
        self.datagram(2, &frame(0, offset, false, &bytes))
    }

    pub fn open(&mut self, stream: u32, mode: u8, ordered: bool) -> Result<(), ProtocolError> {
        self.control(&opening(stream, mode, ordered))
    }

    pub fn held(&self) -> usize {
        self.session.held_bytes().1
    }

    /// Everything the session sends until it has nothing more to say.
    pub fn drain(&mut self) -> usize {
        let sent = std::iter::from_fn(|| self.session.poll_datagram(self.now, PATH)).count();
        while self.session.poll_event().is_some() {}
        sent
    }
}

/// The message that opens a stream.
pub fn opening(stream: u32, mode: u8, ordered: bool) -> Vec<u8> {
    let mut message = vec![1];
    message.extend_from_slice(&stream.to_be_bytes());
    message.push(mode);
    message.extend_from_slice(&1000u32.to_be_bytes());
    message.extend_from_slice(&[1, 0, ordered.into()]);
    message.extend_from_slice(&[0; 8]);
    message
}

pub fn frame(stream: u32, offset: u64, fin: bool, data: &[u8]) -> Vec<u8> {
    let mut body = stream.to_be_bytes().to_vec();
    body.extend_from_slice(&offset.to_be_bytes());
    body.push(fin.into());
    body.extend_from_slice(data);
    body
}

pub struct Fragment {
    pub stream: u32,
    pub block: u32,
    pub code: [u8; 2],
    pub index: u8,
    pub data_count: u8,
    pub redundancy_count: u8,
    pub bytes: usize,
}

impl Fragment {
    pub fn of(stream: u32, block: u32, data_count: u8, bytes: usize) -> Self {
        Self {
            stream,
            block,
            code: [0, 0],
            index: 0,
            data_count,
            redundancy_count: 0,
            bytes,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut body = self.stream.to_be_bytes().to_vec();
        body.extend_from_slice(&self.block.to_be_bytes());
        body.extend_from_slice(&[0; 4]);
        body.extend_from_slice(&[
            self.code[0],
            self.code[1],
            self.index,
            self.data_count,
            self.redundancy_count,
            0,
            0,
        ]);
        body.resize(body.len() + self.bytes, 7);
        body
    }
}

/// An acknowledgement of datagrams of one path and of blocks.
pub fn ack(path: u32, ranges: &[(u32, u8)], blocks: &[(u32, u32)]) -> Vec<u8> {
    let mut body = vec![u8::from(!ranges.is_empty())];
    if let Some((last, span)) = ranges.first() {
        body.extend_from_slice(&path.to_be_bytes());
        body.extend_from_slice(&[0; 4]);
        body.push(u8::try_from(ranges.len()).unwrap());
        body.extend_from_slice(&last.to_be_bytes());
        body.push(*span);
        for (distance, span) in &ranges[1..] {
            body.push(u8::try_from(*distance).unwrap());
            body.push(*span);
        }
    }
    body.push(u8::try_from(blocks.len()).unwrap());
    for (stream, block) in blocks {
        body.extend_from_slice(&stream.to_be_bytes());
        body.extend_from_slice(&block.to_be_bytes());
        body.extend_from_slice(&[0; 5]);
    }
    body
}
