//! Packets that no node of ours writes, under the right key and number, as a neighbour that has the key may send them. For fuzzers.

use std::time::{Duration, Instant};

use super::{Carried, Hop, departures::Horizon};
use crate::wire::STAMP_MASK;

/// The bits of the first byte that say what the head holds.
const HEAD_BITS: u8 = 0x03;

/// A packet that is authentic, whatever it says.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawPacket<'a> {
    /// The first byte; its lowest two bits are written as the head needs them.
    pub flags: u8,
    /// Numbers that are left out before it.
    pub skipped: u16,
    /// Added to the stamp of its departure, in microseconds.
    pub sent_later: u32,
    /// Added to the stamp that it sends back, if it sends one.
    pub echoed_later: u32,
    /// The body of the packet, behind its head.
    pub body: &'a [u8],
}

impl Hop {
    /// Appends the packet. Returns whether there are keys.
    pub(crate) fn write_raw(
        &mut self,
        now: Instant,
        packet: &RawPacket<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        if !self.has_session() {
            return false;
        }
        for _ in 0..packet.skipped {
            let second = Duration::from_secs(1);
            let horizon = Horizon {
                all: second,
                kept: second,
            };
            self.departures.push(now, Carried::Nothing, horizon);
        }
        let begin = out.len();
        let (number, mut head) = self.head(now, true);
        head.sent = head.sent.wrapping_add(packet.sent_later) & STAMP_MASK;
        if let Some(echo) = &mut head.echo {
            echo.stamp = echo.stamp.wrapping_add(packet.echoed_later) & STAMP_MASK;
        }
        head.write_control(out);
        if let Some(first) = out.get_mut(begin) {
            *first = (*first & HEAD_BITS) | (packet.flags & !HEAD_BITS);
        }
        out.extend_from_slice(packet.body);
        self.finish(now, number, begin, Carried::Nothing, out);
        true
    }
}
