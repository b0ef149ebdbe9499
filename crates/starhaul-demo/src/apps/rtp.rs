//! H.264 in RTP as a camera sends it: each frame one NAL unit in FU-A fragments (RFC 3550 §5.1, RFC 6184 §5.8).

use std::{collections::BTreeMap, time::Duration};

/// NAL header of a slice of an IDR picture (an I frame): reference importance 3, type 5.
pub const NAL_IDR: u8 = 0x65;
/// NAL header of a slice of another picture (a P frame): reference importance 2, type 1.
pub const NAL_NON_IDR: u8 = 0x41;

const PAYLOAD_TYPE: u8 = 96;
const RTP_HEADER: usize = 12;
const FRAGMENT_BYTES: usize = 1_180;
const FU_A: u8 = 28;
const START: u8 = 0x80;
const END: u8 = 0x40;
const MARKER: u8 = 0x80;
/// Frames that may be incomplete at once; at 24 frames per second this is 10 s.
const MAX_FRAMES: usize = 240;

/// The 90 kHz timestamp of a frame sent `at` after the start; wraps after 13 hours.
pub fn timestamp(at: Duration) -> u32 {
    let ticks = at.as_nanos() * 90_000 / 1_000_000_000;
    u32::try_from(ticks % (1 << 32)).unwrap_or_default()
}

/// Whether a packet is the last one of its frame.
pub fn has_marker(packet: &[u8]) -> bool {
    packet.get(1).is_some_and(|kind| kind & MARKER != 0)
}

/// Turns NAL units into RTP packets of at most 1194 bytes.
#[derive(Debug)]
pub struct Packetizer {
    ssrc: u32,
    sequence: u16,
}

impl Packetizer {
    /// A source with the given synchronisation number.
    pub const fn new(ssrc: u32) -> Self {
        Self { ssrc, sequence: 0 }
    }

    /// The packets of one frame; the last one carries the marker bit.
    pub fn packets(&mut self, nal: &[u8], timestamp: u32) -> Vec<Vec<u8>> {
        let Some((&header, body)) = nal.split_first() else {
            return Vec::new();
        };
        let count = body.chunks(FRAGMENT_BYTES).len();
        let mut packets = Vec::with_capacity(count);
        for (number, fragment) in body.chunks(FRAGMENT_BYTES).enumerate() {
            let last = number + 1 == count;
            let mut packet = Vec::with_capacity(RTP_HEADER + 2 + fragment.len());
            packet.push(2 << 6);
            packet.push(PAYLOAD_TYPE | if last { MARKER } else { 0 });
            packet.extend(self.sequence.to_be_bytes());
            packet.extend(timestamp.to_be_bytes());
            packet.extend(self.ssrc.to_be_bytes());
            packet.push(header & 0xe0 | FU_A);
            packet.push(
                header & 0x1f | if number == 0 { START } else { 0 } | if last { END } else { 0 },
            );
            packet.extend(fragment);
            packets.push(packet);
            self.sequence = self.sequence.wrapping_add(1);
        }
        packets
    }
}

/// Turns RTP packets back into NAL units; packets of a frame may come in any order and more than once.
#[derive(Debug, Default)]
pub struct Reassembler {
    frames: BTreeMap<u32, Frame>,
}

#[derive(Debug, Default)]
struct Frame {
    header: u8,
    fragments: BTreeMap<u16, Vec<u8>>,
    first: Option<u16>,
    last: Option<u16>,
}

impl Reassembler {
    /// Takes a packet and returns the NAL unit that it completes. Anything that is not FU-A in RTP is ignored.
    pub fn push(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let (rtp, payload) = packet.split_first_chunk::<RTP_HEADER>()?;
        let [version, kind, s0, s1, t0, t1, t2, t3, ..] = *rtp;
        let (&[indicator, fu], fragment) = payload.split_first_chunk()?;
        if version >> 6 != 2 || kind & 0x7f != PAYLOAD_TYPE || indicator & 0x1f != FU_A {
            return None;
        }
        let sequence = u16::from_be_bytes([s0, s1]);
        let timestamp = u32::from_be_bytes([t0, t1, t2, t3]);
        let frame = self.frames.entry(timestamp).or_default();
        frame.header = indicator & 0xe0 | fu & 0x1f;
        frame.fragments.insert(sequence, fragment.to_vec());
        if fu & START != 0 {
            frame.first = Some(sequence);
        }
        if fu & END != 0 {
            frame.last = Some(sequence);
        }
        let nal = frame.nal();
        if nal.is_some() {
            self.frames.remove(&timestamp);
        } else if self.frames.len() > MAX_FRAMES {
            self.frames.pop_first();
        }
        nal
    }
}

impl Frame {
    fn nal(&self) -> Option<Vec<u8>> {
        let (first, last) = (self.first?, self.last?);
        let expected = usize::from(last.wrapping_sub(first)) + 1;
        if self.fragments.len() < expected {
            return None;
        }
        let mut nal = vec![self.header];
        for offset in 0..=last.wrapping_sub(first) {
            nal.extend(self.fragments.get(&first.wrapping_add(offset))?);
        }
        Some(nal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nal(header: u8, bytes: usize) -> Vec<u8> {
        std::iter::once(header)
            .chain((1..bytes).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]))
            .collect()
    }

    #[test]
    fn a_frame_survives_reordering_and_repeats_but_not_loss() {
        let frames = [
            nal(NAL_IDR, 100_000),
            nal(NAL_NON_IDR, 20_000),
            nal(NAL_NON_IDR, 2_000),
        ];
        let mut packetizer = Packetizer {
            ssrc: 1,
            sequence: u16::MAX - 40,
        }; // The numbers wrap inside the first frame.
        let mut reassembler = Reassembler::default();
        for (number, frame) in (0..).zip(&frames) {
            let mut packets =
                packetizer.packets(frame, timestamp(Duration::from_millis(number * 42)));
            assert!(packets.iter().all(|packet| packet.len() <= 1_200));
            assert_eq!(
                packets
                    .iter()
                    .filter(|packet| packet[1] & MARKER != 0)
                    .count(),
                1
            );
            packets.reverse();
            packets.insert(0, packets[packets.len() / 2].clone());
            let whole: Vec<_> = packets
                .iter()
                .filter_map(|packet| reassembler.push(packet))
                .collect();
            assert!(
                matches!(&whole[..], [one] if one == frame),
                "frame {number}"
            );
        }
        let packets = packetizer.packets(&frames[1], 9_999);
        assert!(
            packets[1..]
                .iter()
                .all(|packet| reassembler.push(packet).is_none())
        );
    }

    #[test]
    fn foreign_packets_are_ignored() {
        let mut reassembler = Reassembler::default();
        let good = Packetizer::new(1).packets(&nal(NAL_IDR, 100), 0).remove(0);
        for length in 0..14 {
            assert_eq!(reassembler.push(&good[..length]), None);
        }
        for (at, bits) in [(0, 0x40), (1, 0x01), (12, 0x03)] {
            let mut bad = good.clone();
            bad[at] ^= bits;
            assert_eq!(reassembler.push(&bad), None, "byte {at}");
        }
        assert_eq!(reassembler.push(&good), Some(nal(NAL_IDR, 100)));
    }
}
