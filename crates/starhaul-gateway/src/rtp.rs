//! Frames of RTP: all packets of one timestamp form one block, and inter frames know their key frame.
//!
//! RFC 3550 §5.1 (header), RFC 5761 §4 (RTCP on the same port), RFC 6184 (H.264), RFC 7798 (H.265). A block is a row of
//! packets, each behind its length in two bytes, so that the far side emits them byte for byte. No sockets, no clock.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    time::{Duration, Instant},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

mod nal;
#[cfg(test)]
mod tests;

/// The payload's codec, as far as frames depend on each other by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// Any: frames without dependencies.
    #[default]
    None,
    /// Each packet is a frame of its own, so that it need not wait for the next one to know that it is whole.
    Audio,
    /// H.264 (RFC 6184).
    H264,
    /// H.265 (RFC 7798).
    H265,
}

/// Dependency of the frames after a frame on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Other frames need it.
    Key,
    /// From it on each frame renews a part of the picture: the frames after it need no key frame before it.
    Refresh,
    /// Useless without the last key frame of its source.
    Inter,
    /// Neither, or unknown.
    Independent,
}

/// A frame that is complete, or was closed early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its packets, each behind its length.
    pub block: Bytes,
    /// Whether other frames depend on it, or it on them.
    pub kind: FrameKind,
    /// Synchronisation source and timestamp; `None` for what is not RTP.
    pub source: Option<(u32, u32)>,
}

/// A block from the peer is not a row of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer sent a frame that is too large, or whose packet lengths exceed it")]
pub struct FrameError;

/// A frame is closed early when it grows beyond this many bytes; the rest becomes a further block.
const MAX_FRAME_BYTES: usize = 4 << 20;
/// … or this many packets.
const MAX_FRAME_PACKETS: usize = 16_384;
/// … or has been open for so long: what is kept of all frames is then no more than what comes meanwhile.
const MAX_FRAME_AGE: Duration = Duration::from_secs(1);
/// Sources whose frames are open or whose key frame is remembered; the one that sent least recently goes.
const MAX_SOURCES: usize = 16;
/// So long frames need their key frame, on the clock of RTP (90 kHz for both codecs: RFC 6184 §8.2.1, RFC 7798 §7.1): as long as the
/// time between the last two key frames, within these bounds. Where none follows, as with intra refresh, a lost one would
/// otherwise end the video.
const LEAST_NEED: u32 = 2 * 90_000;
const MOST_NEED: u32 = 10 * 90_000;

/// Gathers packets into frames.
///
/// After each input drain [`Assembler::poll_frame`], then come back at [`Assembler::poll_timeout`].
#[derive(Debug)]
pub struct Assembler {
    codec: Codec,
    timeout: Duration,
    /// In order of the last packet, so that the first times out first.
    open: VecDeque<OpenFrame>,
    ready: VecDeque<Frame>,
}

#[derive(Debug)]
struct OpenFrame {
    ssrc: u32,
    timestamp: u32,
    first_packet: Instant,
    last_packet: Instant,
    kind: FrameKind,
    block: BytesMut,
    packets: usize,
}

impl Assembler {
    /// `timeout` after its last packet a frame without marker bit is closed.
    pub fn new(codec: Codec, timeout: Duration) -> Self {
        Self {
            codec,
            timeout,
            open: VecDeque::new(),
            ready: VecDeque::new(),
        }
    }

    /// Takes a packet of the application. One longer than a UDP datagram can be is ignored.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8]) {
        let Ok(length) = u16::try_from(packet.len()) else {
            return;
        };
        let Some(header) = Header::parse(packet) else {
            self.ready.push_back(Frame {
                block: single(length, packet),
                kind: FrameKind::Independent,
                source: None,
            });
            return;
        };
        let mut frame = self
            .take_open(now, &header, packet.len())
            .unwrap_or_else(|| OpenFrame {
                ssrc: header.ssrc,
                timestamp: header.timestamp,
                first_packet: now,
                last_packet: now,
                kind: FrameKind::Independent,
                block: BytesMut::new(),
                packets: 0,
            });
        frame.last_packet = now;
        frame.kind = stronger(frame.kind, nal::kind(self.codec, header.payload));
        frame.packets += 1;
        frame.block.put_u16(length);
        frame.block.put_slice(packet);
        if header.marker || self.codec == Codec::Audio {
            self.close(frame);
            return;
        }
        if self.open.len() >= MAX_SOURCES
            && let Some(oldest) = self.open.pop_front()
        {
            self.close(oldest);
        }
        self.open.push_back(frame);
    }

    /// The next frame to send.
    pub fn poll_frame(&mut self) -> Option<Frame> {
        self.ready.pop_front()
    }

    /// The time at which to call [`Assembler::handle_timeout`]; `None`: no frame is open.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.open
            .front()
            .map(|frame| frame.last_packet + self.timeout)
    }

    /// Closes the frames whose last packet is older than the timeout.
    pub fn handle_timeout(&mut self, now: Instant) {
        while self.poll_timeout().is_some_and(|due| due <= now) {
            let Some(frame) = self.open.pop_front() else {
                return;
            };
            self.close(frame);
        }
    }

    /// The open frame to which a packet of `length` belongs. One that it cannot join is closed.
    fn take_open(&mut self, now: Instant, header: &Header<'_>, length: usize) -> Option<OpenFrame> {
        let mut open = self.open.iter();
        let index = open.position(|frame| frame.ssrc == header.ssrc)?;
        let frame = self.open.remove(index)?;
        let has_room = frame.block.len() + 2 + length <= MAX_FRAME_BYTES
            && frame.packets < MAX_FRAME_PACKETS
            && now.saturating_duration_since(frame.first_packet) < MAX_FRAME_AGE;
        if frame.timestamp == header.timestamp && has_room {
            return Some(frame);
        }
        self.close(frame);
        None
    }

    fn close(&mut self, frame: OpenFrame) {
        self.ready.push_back(Frame {
            block: frame.block.freeze(),
            kind: frame.kind,
            source: Some((frame.ssrc, frame.timestamp)),
        });
    }
}

/// Remembers the last key frame of each source; `B` is how the sender names blocks.
#[derive(Debug)]
pub struct KeyFrames<B> {
    last: HashMap<u32, KeyFrame<B>>,
}

#[derive(Clone, Copy, Debug)]
struct KeyFrame<B> {
    timestamp: u32,
    /// None if it could not be sent.
    block: Option<B>,
    /// So long after it others need it.
    needed_for: u32,
    /// They do not need it any more.
    is_over: bool,
}

impl<B> KeyFrame<B> {
    /// Whether a frame of this time is beyond those that need it. Pictures that are shown before it may be sent after it.
    fn is_past(&self, timestamp: u32) -> bool {
        let age = timestamp.wrapping_sub(self.timestamp);
        self.is_over || (self.needed_for..u32::MAX / 2).contains(&age)
    }
}

/// The block without which a frame is useless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs<B> {
    /// None, or none that is known.
    Nothing,
    /// This block is needed.
    Block(B),
    /// A key frame that was not sent, so that this one is useless.
    Missing,
}

impl<B: Copy> KeyFrames<B> {
    /// Knows no key frame yet.
    pub fn new() -> Self {
        Self {
            last: HashMap::new(),
        }
    }

    /// What `frame` needs: an inter frame the last key frame, unless that is too old or a refresh came since, and the second block
    /// of a key frame that had to be split the first.
    pub fn needed_by(&mut self, frame: &Frame) -> Needs<B> {
        let Some((ssrc, timestamp)) = frame.source else {
            return Needs::Nothing;
        };
        let Some(key) = self.last.get_mut(&ssrc) else {
            return Needs::Nothing;
        };
        let needs = key.block.map_or(Needs::Missing, Needs::Block);
        match frame.kind {
            FrameKind::Key if key.timestamp == timestamp => needs,
            // Remembered, since timestamps begin anew after half a day.
            FrameKind::Refresh => {
                key.is_over = true;
                Needs::Nothing
            }
            FrameKind::Inter => {
                key.is_over = key.is_past(timestamp);
                if key.is_over { Needs::Nothing } else { needs }
            }
            _ => Needs::Nothing,
        }
    }

    /// `frame` was sent as `block`.
    pub fn sent(&mut self, frame: &Frame, block: B) {
        self.remember(frame, Some(block));
    }

    /// `frame` could not be sent: if it is a key frame, others are useless until the next one.
    pub fn not_sent(&mut self, frame: &Frame) {
        self.remember(frame, None);
    }

    fn remember(&mut self, frame: &Frame, block: Option<B>) {
        let (FrameKind::Key, Some((ssrc, timestamp))) = (frame.kind, frame.source) else {
            return;
        };
        let former = self.last.get(&ssrc);
        let needed_for = former.map_or(LEAST_NEED, |former| {
            match timestamp.wrapping_sub(former.timestamp) {
                // The rest of the same frame.
                0 => former.needed_for,
                between => between.clamp(LEAST_NEED, MOST_NEED),
            }
        });
        if self.last.len() >= MAX_SOURCES && former.is_none() {
            // Rare enough that clearing is as good as finding the oldest.
            self.last.clear();
        }
        let key = KeyFrame {
            timestamp,
            block,
            needed_for,
            is_over: false,
        };
        self.last.insert(ssrc, key);
    }
}

impl<B: Copy> Default for KeyFrames<B> {
    fn default() -> Self {
        Self::new()
    }
}

/// The packets of a block as the peer sent them, which are no more than [`Assembler`] puts into one.
pub fn packets(block: &Bytes) -> Result<Vec<Bytes>, FrameError> {
    let mut rest = block.clone();
    let mut packets = Vec::new();
    while !rest.is_empty() {
        if packets.len() >= MAX_FRAME_PACKETS || block.len() > MAX_FRAME_BYTES {
            return Err(FrameError);
        }
        let Some((length, _)) = rest.split_first_chunk::<2>() else {
            return Err(FrameError);
        };
        let end = 2 + usize::from(u16::from_be_bytes(*length));
        if rest.len() < end {
            return Err(FrameError);
        }
        packets.push(rest.split_to(end).slice(2..));
    }
    Ok(packets)
}

/// The fields of an RTP header that are used here.
struct Header<'p> {
    marker: bool,
    timestamp: u32,
    ssrc: u32,
    payload: &'p [u8],
}

impl<'p> Header<'p> {
    /// `None` when it is not RTP: RTCP (RFC 5761 §4), another protocol, or too short.
    fn parse(packet: &'p [u8]) -> Option<Self> {
        let (fixed, mut rest) = packet.split_first_chunk::<12>()?;
        let [first, second, _, _, t0, t1, t2, t3, s0, s1, s2, s3] = *fixed;
        if first >> 6 != 2 || (192..=223).contains(&second) {
            return None;
        }
        rest = rest.get(usize::from(first & 0x0f) * 4..)?;
        if first & 0x10 != 0 {
            let ([_, _, high, low], behind) = rest.split_first_chunk::<4>()?;
            rest = behind.get(usize::from(u16::from_be_bytes([*high, *low])) * 4..)?;
        }
        Some(Self {
            marker: second & 0x80 != 0,
            timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
            ssrc: u32::from_be_bytes([s0, s1, s2, s3]),
            payload: rest,
        })
    }
}

fn single(length: u16, packet: &[u8]) -> Bytes {
    let mut block = BytesMut::with_capacity(packet.len() + 2);
    block.put_u16(length);
    block.put_slice(packet);
    block.freeze()
}

/// One key slice makes a key frame, whatever stands around it; one inter slice makes an inter frame where no refresh begins.
fn stronger(one: FrameKind, other: FrameKind) -> FrameKind {
    match (one, other) {
        (FrameKind::Key, _) | (_, FrameKind::Key) => FrameKind::Key,
        (FrameKind::Refresh, _) | (_, FrameKind::Refresh) => FrameKind::Refresh,
        (FrameKind::Inter, _) | (_, FrameKind::Inter) => FrameKind::Inter,
        _ => FrameKind::Independent,
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Audio => "audio",
            Self::H264 => "h264",
            Self::H265 => "h265",
        })
    }
}
