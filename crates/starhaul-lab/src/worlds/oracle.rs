//! A scheduler that knows the future: what both links can carry at each instant, and which packets they lose. It sends each block where
//! and when it arrives first, and only if all of it arrives in time; the more important classes choose first. It spends nothing on
//! acknowledgements, finding rates, redundancy or retransmission. Where all fits, that is all; where it does not, it is no proven bound,
//! since it never gives up a block for the sake of later ones.

use std::time::{Duration, Instant};

use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use starhaul_demo::{
    load::{BlockSpec, Class, Classes},
    score::{ClassLog, ClassScore},
};
use starhaul_link::{Delay, Link, LinkSpec};

use super::stack::HostSettings;

/// The time that is planned in.
const SLOT: Duration = Duration::from_millis(1);

/// Two or more links whose future is known.
#[derive(Debug)]
pub(crate) struct Oracle {
    lanes: Vec<Vec<Slot>>,
    /// Bytes of a block in a packet.
    fragment_bytes: usize,
}

/// What a link carries within one millisecond.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Packets that are not lost and not yet promised to a block.
    free: u32,
    /// When they arrive, in milliseconds from the start.
    arrival: usize,
}

/// Packets taken from a slot of a link.
type Taken = (usize, usize, u32);

impl Oracle {
    /// Links with their seeds, for `duration` from `now` on.
    pub(crate) fn new<'a>(
        links: impl Iterator<Item = (&'a LinkSpec, u64)>,
        duration: Duration,
        now: Instant,
    ) -> Self {
        let HostSettings {
            packet_bytes,
            max_fragment_bytes,
            ..
        } = HostSettings::default();
        let lanes = links.map(|(spec, seed)| lane(spec, seed, packet_bytes.into(), duration, now));
        Self {
            lanes: lanes.collect(),
            fragment_bytes: max_fragment_bytes,
        }
    }

    /// Sends the blocks, of which each class is in order of time, and says how many arrive in time. A picture counts by its own
    /// deadline alone, as in every score.
    pub(crate) fn scores(&mut self, blocks: Vec<BlockSpec>) -> Classes<ClassScore> {
        let mut logs = Classes::from_fn(ClassLog::new);
        for class in Class::ALL {
            let log: &mut ClassLog = logs.of_mut(class);
            for block in blocks.iter().filter(|block| block.class == class) {
                log.on_sent(block.at);
                if let Some(latency) = self.send(block) {
                    log.on_received(block.sequence, latency);
                }
            }
        }
        Classes::from_fn(|class| logs.of(class).score())
    }

    /// Takes the packets with which the block arrives first, if it does in time: its latency.
    fn send(&mut self, block: &BlockSpec) -> Option<Duration> {
        let from = slot_of(block.at + SLOT - Duration::from_nanos(1));
        let last = slot_of(block.at + block.class.deadline());
        let mut left = u32::try_from(block.bytes.div_ceil(self.fragment_bytes)).unwrap_or(u32::MAX);
        let mut at = vec![from; self.lanes.len()];
        let mut taken: Vec<Taken> = Vec::new();
        let mut arrived = from;
        while left > 0 {
            let next =
                |lane: usize| Some((self.lanes.get(lane)?.get(*at.get(lane)?)?.arrival, lane));
            let (arrival, lane) = (0..self.lanes.len()).filter_map(next).min()?;
            if arrival > last {
                return None;
            }
            let slot = at[lane];
            at[lane] += 1;
            let count = self.lanes[lane][slot].free.min(left);
            if count > 0 {
                taken.push((lane, slot, count));
                left -= count;
                arrived = arrived.max(arrival);
            }
        }
        for (lane, slot, count) in taken {
            self.lanes[lane][slot].free -= count;
        }
        let latency = SLOT * u32::try_from(arrived).unwrap_or(u32::MAX);
        Some(latency.saturating_sub(block.at))
    }
}

fn lane(
    spec: &LinkSpec,
    seed: u64,
    packet_bytes: u64,
    duration: Duration,
    now: Instant,
) -> Vec<Slot> {
    let link: Link<()> = Link::new(spec, seed, now);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let loss = spec.loss.mean();
    let mut bytes = 0;
    let mut slots = Vec::new();
    for slot in 0..slot_of(duration) {
        let from = SLOT * u32::try_from(slot).unwrap_or(u32::MAX);
        bytes += link.capacity_bytes_between(now + from, now + from + SLOT);
        let packets = bytes / packet_bytes;
        bytes %= packet_bytes;
        let delay = match &spec.delay {
            Delay::Constant(delay) => *delay,
            Delay::Trace(series) => series.at(from),
        };
        let kept = (0..packets).filter(|_| !rng.random_bool(loss)).count();
        slots.push(Slot {
            free: u32::try_from(kept).unwrap_or(u32::MAX),
            // What was sent within the slot has left at its end.
            arrival: slot + 1 + slot_of(delay),
        });
    }
    slots
}

fn slot_of(time: Duration) -> usize {
    usize::try_from(time.as_millis()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use starhaul_units::Bandwidth;

    use super::*;

    fn oracle(links: &[(u64, u64)]) -> Oracle {
        let links: Vec<_> = links
            .iter()
            .map(|(kbit, delay_ms)| {
                LinkSpec::constant(
                    Bandwidth::from_kbit(*kbit),
                    SLOT * u32::try_from(*delay_ms).unwrap_or(0),
                )
            })
            .collect();
        Oracle::new(
            links.iter().zip(1..),
            Duration::from_secs(10),
            Instant::now(),
        )
    }

    #[test]
    fn a_block_takes_the_link_on_which_it_arrives_first_and_nothing_if_it_comes_late() {
        let mut oracle = oracle(&[(10_400, 100), (10_400, 10)]);
        // 84 packets of a millisecond each: the second link is ahead by 90 of them.
        let block = Class::Video.block(0);
        let latency = oracle.send(&block);
        assert_eq!(latency, Some(Duration::from_millis(94)));
        let latency = oracle.send(&block);
        assert!(
            latency.is_some_and(|at| at > Duration::from_millis(130)),
            "{latency:?}"
        );
        let mut narrow = self::oracle(&[(104, 10)]);
        let before: u32 = narrow.lanes[0].iter().map(|slot| slot.free).sum();
        assert_eq!(narrow.send(&block), None);
        let after: u32 = narrow.lanes[0].iter().map(|slot| slot.free).sum();
        assert_eq!(before, after);
        assert!(narrow.send(&Class::Text.block(0)).is_some());
    }

    #[test]
    fn important_classes_go_first_and_no_more_than_the_links_carry_arrives() {
        let load = starhaul_demo::load::schedule(Duration::from_secs(5));
        let bytes: usize = load.iter().map(|block| block.bytes).sum();
        // Half of what is offered, with headers.
        let kbit = u64::try_from(bytes).unwrap_or(0) * 8 / 5 / 1_000 / 2;
        let scores = oracle(&[(kbit / 2, 20), (kbit / 2, 200)]).scores(load);
        assert_eq!(scores.text.on_time, scores.text.sent);
        assert_eq!(scores.audio.on_time, scores.audio.sent);
        let share = scores.video.on_time_share();
        assert!((0.3..0.8).contains(&share), "{scores:?}");
    }
}
