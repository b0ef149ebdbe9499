//! Sizes that segments to a peer may have, and what is known of each: whether it arrives, how often it is lost, what it costs.

use std::time::{Duration, Instant};

use crate::config::ETHERNET_SEGMENT_DATA;

/// Greatest data of a segment: with its headers it fits into a datagram of UDP.
pub(super) const MOST_DATA: usize = 64_000;
/// Smallest MTU that counts, and the largest: a smaller one comes from a mistake.
const MTUS: std::ops::RangeInclusive<usize> = 256..=65_536;
/// The longest header and trailer of a data segment: serial numbers, a key and a checksum.
const SEGMENT_HEADERS: usize = 92;
/// IPv6 and UDP, or the extension of a fragment: with IPv4 there is more room.
const PACKET_HEADERS: usize = 48;
/// Single packets to fall back to where one of the path's MTU does not arrive: of the least MTU of IPv6, of Ethernet, of jumbo frames.
const FLOORS: [usize; 3] = [1140, ETHERNET_SEGMENT_DATA, 8860];
/// Fragments of segments that are tried.
const FRAGMENTS: [usize; 10] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 44];
/// Packets after which what is known of losses counts less than half.
const MEMORY_PACKETS: f64 = 4096.0;
/// So many segments as many as one would expect of the loss of packets stand beside those that were counted.
const PRIOR: f64 = 16.0;
/// A class rests for so long after it was tried in vain, and twice as long each time more.
const REST: Duration = Duration::from_secs(10);
const MOST_RESTS: u32 = 6;
/// The same after none of its segments arrived; and how long sizes that may arrive all the same are left alone.
const BARRED: Duration = Duration::from_secs(8);
const DOUBTED: Duration = Duration::from_secs(4);
const MOST_BARS: u32 = 8;

/// A size and what is known of it.
#[derive(Debug)]
pub(super) struct Class {
    /// Bytes of data of a segment.
    pub(super) data: usize,
    /// Packets that carry it.
    pub(super) fragments: u32,
    sent: f64,
    lost: f64,
    /// Segments lost since one arrived.
    lost_in_a_row: u64,
    /// Whether one has arrived.
    pub(super) is_proven: bool,
    barred_until: Option<Instant>,
    bars: u32,
    /// When what is known of its cost is forgotten.
    pub(super) rests_until: Option<Instant>,
    rests: u32,
    pub(super) cost: Option<Cost>,
}

/// Time per byte sent, lost or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Seconds per byte.
    pub(super) per_byte: f64,
    deviation: f64,
    /// How often it was measured.
    pub(super) times: u32,
}

/// The sizes for an MTU of the path, in bytes of an IP packet, the smallest first.
pub(super) fn ladder(mtu: usize) -> Vec<Class> {
    let mtu = mtu.clamp(*MTUS.start(), *MTUS.end());
    let per_fragment = fragment_bytes(mtu);
    let base = single(mtu);
    let floors = FLOORS.into_iter().filter(|data| *data < base);
    let cut = FRAGMENTS.map(|count| (count * per_fragment).saturating_sub(8 + SEGMENT_HEADERS));
    let cut = cut
        .into_iter()
        .filter(|data| (base + 1..MOST_DATA).contains(data));
    let last = (base < MOST_DATA).then_some(MOST_DATA);
    let sizes = floors.chain([base]).chain(cut).chain(last);
    sizes
        .map(|data| Class::new(data, fragments(mtu, data)))
        .collect()
}

/// The data of a segment that fills one packet.
pub(super) fn single(mtu: usize) -> usize {
    let mtu = mtu.clamp(*MTUS.start(), *MTUS.end());
    (mtu - PACKET_HEADERS - SEGMENT_HEADERS).min(MOST_DATA)
}

/// Bytes that a fragment carries: a multiple of eight.
fn fragment_bytes(mtu: usize) -> usize {
    (mtu - PACKET_HEADERS) / 8 * 8
}

/// Packets that carry a segment with so many bytes of data, at most.
pub(super) fn fragments(mtu: usize, data: usize) -> u32 {
    let mtu = mtu.clamp(*MTUS.start(), *MTUS.end());
    if data <= single(mtu) {
        return 1;
    }
    let datagram = data.saturating_add(SEGMENT_HEADERS + 8);
    u32::try_from(datagram.div_ceil(fragment_bytes(mtu))).unwrap_or(u32::MAX)
}

impl Class {
    /// A size of which nothing is known.
    pub(super) fn new(data: usize, fragments: u32) -> Self {
        Self {
            data,
            fragments,
            sent: 0.0,
            lost: 0.0,
            lost_in_a_row: 0,
            is_proven: false,
            barred_until: None,
            bars: 0,
            rests_until: None,
            rests: 0,
            cost: None,
        }
    }

    /// Whether it may be used.
    pub(super) fn is_usable(&self, now: Instant) -> bool {
        self.barred_until.is_none_or(|until| until <= now)
    }

    /// Whether it may be tried.
    pub(super) fn is_rested(&self, now: Instant) -> bool {
        self.rests_until.is_none_or(|until| until <= now)
    }

    /// None of its segments arrive: it is not used for a while.
    pub(super) fn bar(&mut self, now: Instant) {
        self.barred_until = now.checked_add(BARRED * (1 << self.bars));
        self.bars = (self.bars + 1).min(MOST_BARS);
        (self.is_proven, self.lost_in_a_row, self.cost) = (false, 0, None);
        (self.sent, self.lost) = (0.0, 0.0);
    }

    /// None of the segments of a larger size arrive: it is not tried at once.
    pub(super) fn doubt(&mut self, now: Instant) {
        self.barred_until = self.barred_until.max(now.checked_add(DOUBTED));
    }

    /// It carried no more than another: it is not tried for a while.
    pub(super) fn rest(&mut self, now: Instant) {
        self.rests_until = now.checked_add(REST * (1 << self.rests));
        self.rests = (self.rests + 1).min(MOST_RESTS);
    }

    /// Adds a measurement of its cost.
    pub(super) fn measure(&mut self, per_byte: f64) {
        self.cost = Some(match self.cost {
            None => Cost {
                per_byte,
                deviation: per_byte / 8.0,
                times: 1,
            },
            Some(cost) => Cost {
                per_byte: cost.per_byte + (per_byte - cost.per_byte) / 4.0,
                deviation: cost.deviation
                    + ((per_byte - cost.per_byte).abs() - cost.deviation) / 4.0,
                times: cost.times.saturating_add(1),
            },
        });
    }

    /// All else became so much slower, and probably this size, too.
    pub(super) fn scale(&mut self, by: f64) {
        if let Some(cost) = &mut self.cost {
            cost.per_byte *= by;
        }
    }

    /// The share of its segments that is lost, if this share of packets is.
    pub(super) fn loss(&self, of_packets: f64) -> f64 {
        let expected = expected_loss(of_packets, self.fragments);
        (self.lost + expected * PRIOR) / (self.sent + PRIOR)
    }

    /// The least number of its segments that hardly are lost in a row by chance, if this share of packets is lost.
    pub(super) fn telling(&self, of_packets: f64) -> u64 {
        in_a_row(
            expected_loss(of_packets, self.fragments),
            1e-6,
            MOST_TELLING,
        )
    }

    /// Whether so many of its segments were lost in a row as never are by chance while it is in use.
    pub(super) fn is_cut_off(&self, of_packets: f64) -> bool {
        self.lost_in_a_row >= in_a_row(self.loss(of_packets), 1e-6, MOST_IN_USE)
    }

    /// Segments lost since one arrived.
    pub(super) fn lost_in_a_row(&self) -> u64 {
        self.lost_in_a_row
    }
}

/// Segments that tell whether a size arrives.
const LEAST_TELLING: u64 = 4;
const MOST_TELLING: u64 = 16;
const MOST_IN_USE: u64 = 64;

impl Cost {
    /// The share by which another cost must differ to be more than noise.
    pub(super) fn noise(&self) -> f64 {
        let share = self.deviation / self.per_byte.max(f64::MIN_POSITIVE) / 2.0;
        share.clamp(0.05, 0.25)
    }
}

/// Counts segments of one class on which a report came.
pub(super) fn note(classes: &mut [Class], at: usize, sent: u64, lost: u64) {
    let Some(of) = classes.get(at).map(|class| class.fragments) else {
        return;
    };
    let packets = sent as f64 * f64::from(of);
    let keep = 1.0 - (packets / MEMORY_PACKETS).min(0.5);
    for class in classes.iter_mut() {
        class.sent *= keep;
        class.lost *= keep;
    }
    if let Some(class) = classes.get_mut(at) {
        class.sent += sent as f64;
        class.lost += lost as f64;
        if lost < sent {
            (class.lost_in_a_row, class.is_proven) = (0, true);
        } else {
            class.lost_in_a_row = class.lost_in_a_row.saturating_add(lost);
        }
    }
}

/// The share of packets that is lost, estimated from all classes but the one that is examined.
pub(super) fn packet_loss(classes: &[Class], but: Option<usize>) -> f64 {
    // Half of one in 200 beside those that were counted.
    let (mut packets, mut lost) = (200.0, 0.5);
    for (at, class) in classes.iter().enumerate() {
        if Some(at) == but || class.sent <= 0.0 {
            continue;
        }
        let fragments = f64::from(class.fragments);
        let share = (class.lost / class.sent).clamp(0.0, 0.98);
        let of_packets = 1.0 - (1.0 - share).powf(1.0 / fragments);
        packets += class.sent * fragments;
        lost += of_packets * class.sent * fragments;
    }
    lost / packets
}

/// How many lost segments in a row are less likely than `chance`.
fn in_a_row(loss: f64, chance: f64, most: u64) -> u64 {
    let (mut count, mut all) = (1, loss);
    while count < most && (count < LEAST_TELLING || all > chance) {
        all *= loss;
        count += 1;
    }
    count
}

/// A segment is lost with any of its fragments.
fn expected_loss(of_packets: f64, fragments: u32) -> f64 {
    1.0 - (1.0 - of_packets.clamp(0.0, 1.0)).powf(f64::from(fragments))
}

/// What a size costs that was not measured: so much per segment and per byte, as fits those that were; with one of them alone, the least
/// that is possible: all of it per segment.
pub(super) fn fitted_cost(classes: &[Class], data: usize) -> Option<f64> {
    let measured = classes.iter().filter_map(|class| {
        let cost = class.cost?;
        Some((1.0 / class.data as f64, cost.per_byte))
    });
    let points: Vec<(f64, f64)> = measured.collect();
    let count = points.len() as f64;
    let x = 1.0 / data as f64;
    match points.as_slice() {
        [] => None,
        [(at, cost)] => Some(cost * x / at),
        _ => {
            let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
            let mean = points.iter().map(|(_, cost)| cost).sum::<f64>() / count;
            let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
            let both = points.iter().map(|(x, cost)| (x - mean_x) * (cost - mean));
            let per_segment = (both.sum::<f64>() / spread.max(f64::MIN_POSITIVE)).max(0.0);
            let per_byte = (mean - per_segment * mean_x).max(0.0);
            Some(per_byte + per_segment * x)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fill_packets_and_whole_fragments_and_a_datagram_of_udp() {
        let sizes = |mtu| -> Vec<(usize, u32)> {
            let classes = ladder(mtu).into_iter();
            classes.map(|class| (class.data, class.fragments)).collect()
        };
        let ethernet = sizes(1500);
        assert_eq!(ethernet[..3], [(1140, 1), (1360, 1), (2796, 2)]);
        assert_eq!(ethernet[ethernet.len() - 2..], [(63_612, 44), (64_000, 45)]);
        assert_eq!(
            sizes(9000)[..4],
            [(1140, 1), (1360, 1), (8860, 1), (17_804, 2)]
        );
        assert_eq!(sizes(65_536).last(), Some(&(64_000, 1)));
        for mtu in (0..70_000).step_by(17) {
            let sizes = sizes(mtu);
            assert!(sizes.is_sorted(), "{mtu}: {sizes:?}");
            let all = sizes
                .iter()
                .all(|(data, _)| (64..=MOST_DATA).contains(data));
            assert!(all && MOST_DATA + SEGMENT_HEADERS <= 65_507, "{mtu}");
            assert!(sizes.iter().any(|(_, fragments)| *fragments == 1));
        }
    }

    #[test]
    fn costs_of_two_sizes_tell_that_of_a_third() {
        let mut classes = ladder(1500);
        assert_eq!(fitted_cost(&classes, 1360), None);
        let cost = |data: usize| 2e-9 + 20e-6 / data as f64;
        for class in &mut classes {
            if [1360, 64_000].contains(&class.data) {
                class.measure(cost(class.data));
            }
        }
        let found = fitted_cost(&classes, 11_484).unwrap();
        assert!((found / cost(11_484) - 1.0).abs() < 0.01, "{found}");
        // Where large ones cost more, none is expected to cost less than the cheapest.
        for class in &mut classes {
            class.cost = None;
            match class.data {
                1360 => class.measure(1e-9),
                64_000 => class.measure(4e-9),
                _ => {}
            }
        }
        assert!(fitted_cost(&classes, 11_484).unwrap() > 1e-9);
    }

    #[test]
    fn losses_of_any_size_tell_that_of_packets() {
        let mut classes = ladder(1500);
        for (at, sent, lost) in [(1, 2000, 20), (4, 500, 20)] {
            let loss = packet_loss(&classes, None);
            note(&mut classes, at, sent, lost);
            assert!(loss.is_finite());
        }
        let loss = packet_loss(&classes, None);
        assert!((0.008..0.013).contains(&loss), "{loss}");
        let last = classes.last().unwrap();
        assert!((0.3..0.42).contains(&last.loss(loss)), "{last:?}");
        assert!(last.telling(loss) >= 4 && last.telling(0.9) == MOST_TELLING);
    }
}
