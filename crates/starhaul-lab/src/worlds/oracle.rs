//! A scheduler that knows the future: what both links can carry at each instant, and which packets they lose. It sends each block where
//! and when it arrives first, and only if all of it arrives in time; the more important classes choose first. Its packets are ours, but it
//! spends nothing on acknowledgements, finding rates, redundancy or waiting for a loss to show. Where all fits, that is all; where it does not, it is no proven bound,
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

/// What a packet of ours has beside the bytes of a block: IPv4 and UDP 28 bytes, QUIC 30, the session 28.
const OVERHEAD_BYTES: u64 = 86;

/// Two or more links whose future is known.
#[derive(Debug)]
pub(crate) struct Oracle {
    lanes: Vec<Lane>,
    /// Bytes of a block in a packet.
    fragment_bytes: u64,
}

/// A link as the oracle sees it.
#[derive(Debug)]
struct Lane {
    slots: Vec<Slot>,
    /// Share of the packets that it loses, each by itself.
    loss: f64,
    random: ChaCha8Rng,
}

/// What a link carries within one millisecond.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Bytes that are not yet promised to a block.
    free: u64,
    /// When they arrive, in milliseconds from the start.
    arrival: usize,
}

/// Bytes taken from a slot of a link.
type Taken = (usize, usize, u64);

impl Oracle {
    /// Links with their seeds, for `duration` from `now` on.
    pub(crate) fn new<'a>(
        links: impl Iterator<Item = (&'a LinkSpec, u64)>,
        duration: Duration,
        now: Instant,
    ) -> Self {
        let lanes = links.map(|(spec, seed)| Lane::new(spec, seed, duration, now));
        Self {
            lanes: lanes.collect(),
            fragment_bytes: HostSettings::default().max_fragment_bytes as u64,
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

    /// Takes the bytes with which the block arrives first, if it does in time: its latency.
    fn send(&mut self, block: &BlockSpec) -> Option<Duration> {
        let mut taken: Vec<Taken> = Vec::new();
        let arrived = self.place(block, &mut taken);
        if arrived.is_none() {
            for (lane, slot, bytes) in taken {
                self.lanes[lane].slots[slot].free += bytes;
            }
        }
        let latency = SLOT * u32::try_from(arrived?).unwrap_or(u32::MAX);
        Some(latency.saturating_sub(block.at))
    }

    /// Puts each fragment on the link on which it arrives first, and a lost one once more: when the last arrives, if that is in time.
    fn place(&mut self, block: &BlockSpec, taken: &mut Vec<Taken>) -> Option<usize> {
        let from = slot_of(block.at + SLOT - Duration::from_nanos(1));
        let last = slot_of(block.at + block.class.deadline());
        let mut at = vec![from; self.lanes.len()];
        let mut arrived = from;
        let mut left = block.bytes as u64;
        while left > 0 {
            let data = left.min(self.fragment_bytes);
            let bytes = data + OVERHEAD_BYTES;
            let lanes = self.lanes.iter().zip(&at).enumerate();
            let ends =
                lanes.filter_map(|(number, (lane, at))| Some((lane.end(*at, bytes)?, number)));
            let (arrival, number) = ends.min()?;
            if arrival > last {
                return None;
            }
            let lane = &mut self.lanes[number];
            at[number] = lane.take(at[number], bytes, |slot, bytes| {
                taken.push((number, slot, bytes));
            });
            if !lane.random.random_bool(lane.loss) {
                left -= data;
                arrived = arrived.max(arrival);
            }
        }
        Some(arrived)
    }
}

impl Lane {
    fn new(spec: &LinkSpec, seed: u64, duration: Duration, now: Instant) -> Self {
        let link: Link<()> = Link::new(spec, seed, now);
        let mut before = 0;
        let slot = |slot| {
            let from = SLOT * u32::try_from(slot).unwrap_or(u32::MAX);
            // From the start on, since a slot by itself would lose what is no whole byte.
            let until = link.capacity_bytes_between(now, now + from + SLOT);
            let free = until.saturating_sub(std::mem::replace(&mut before, until));
            let delay = match &spec.delay {
                Delay::Constant(delay) => *delay,
                Delay::Trace(series) => series.at(from),
            };
            Slot {
                free,
                // What was sent within the slot has left at its end.
                arrival: slot + 1 + slot_of(delay),
            }
        };
        Self {
            slots: (0..slot_of(duration)).map(slot).collect(),
            loss: spec.loss.mean().clamp(0.0, 1.0),
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// When so many bytes arrive that are sent from a slot on; `None` if there are not so many.
    fn end(&self, from: usize, bytes: u64) -> Option<usize> {
        let mut left = bytes;
        self.slots.get(from..)?.iter().find_map(|slot| {
            left = left.saturating_sub(slot.free);
            (left == 0).then_some(slot.arrival)
        })
    }

    /// Takes so many bytes from a slot on, and tells of each slot how many; the slot in which the last ones leave.
    fn take(&mut self, from: usize, bytes: u64, mut tell: impl FnMut(usize, u64)) -> usize {
        let mut left = bytes;
        for (number, slot) in self.slots.iter_mut().enumerate().skip(from) {
            let count = slot.free.min(left);
            slot.free -= count;
            left -= count;
            if count > 0 {
                tell(number, count);
            }
            if left == 0 {
                return number;
            }
        }
        self.slots.len()
    }
}

fn slot_of(time: Duration) -> usize {
    usize::try_from(time.as_millis()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

    use starhaul_cc::{ControllerConfig, RateFeed};
    use starhaul_session::{BlockOptions, Mode, StreamConfig};
    use starhaul_units::Bandwidth;

    use super::*;
    use crate::{
        kit::Records,
        worlds::stack::{PathSetup, World},
    };

    #[test]
    fn the_overhead_is_that_of_our_packets() {
        let rate = Bandwidth::from_mbit(20);
        let link = LinkSpec::constant(rate, SLOT * 20);
        let path = PathSetup {
            forward: link.clone(),
            backward: link,
            cost: 1.0,
            controller: ControllerConfig::Dedicated(RateFeed::new(rate)),
        };
        let mut world = World::starhaul(1, &[path], &Records::default()).unwrap();
        let config = StreamConfig {
            mode: Mode::None,
            ..StreamConfig::default()
        };
        let stream = world.open_stream(config).unwrap();
        let forward = world.paths[0].forward;
        let before = world.sim().network[forward].stats();
        let (mut sent, blocks, bytes) = (0, 100, 24_000);
        world.run(Duration::from_secs(3), |world| {
            let (now, elapsed) = (world.now(), world.elapsed());
            while sent < blocks && SLOT * 20 * sent <= elapsed {
                let session = world.sender().session().unwrap();
                let data = vec![0; bytes].into();
                session
                    .send_block(now, stream, data, BlockOptions::default())
                    .unwrap();
                sent += 1;
            }
            Some(SLOT * 20 * sent)
        });
        let after = world.sim().network[forward].stats();
        let fragments = 20 * u64::from(blocks);
        // The others carry acknowledgements, and nothing is shorter than this.
        let others = (after.enqueued - before.enqueued - fragments) * 58;
        let all = after.enqueued_bytes - before.enqueued_bytes - others;
        let beside = (all - bytes as u64 * u64::from(blocks)) / fragments;
        assert!(
            (OVERHEAD_BYTES..OVERHEAD_BYTES + 4).contains(&beside),
            "{beside} bytes"
        );
    }

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

    fn free(oracle: &Oracle) -> u64 {
        oracle.lanes[0].slots.iter().map(|slot| slot.free).sum()
    }

    #[test]
    fn a_block_takes_the_link_on_which_it_arrives_first_and_nothing_if_it_comes_late() {
        let mut oracle = oracle(&[(10_288, 100), (10_288, 10)]);
        // 83 packets of a millisecond each, and one of 486 bytes: the second link is ahead by 90 of them.
        let block = Class::Video.block(0);
        let latency = oracle.send(&block);
        assert_eq!(latency, Some(Duration::from_millis(94)));
        let latency = oracle.send(&block);
        assert!(
            latency.is_some_and(|at| at > Duration::from_millis(130)),
            "{latency:?}"
        );
        let mut narrow = self::oracle(&[(104, 10)]);
        let before = free(&narrow);
        assert_eq!(narrow.send(&block), None);
        assert_eq!(before, free(&narrow));
        assert!(narrow.send(&Class::Text.block(0)).is_some());
    }

    #[test]
    fn a_short_block_takes_its_bytes_and_one_header() {
        let mut oracle = oracle(&[(12_000, 10)]);
        let before = free(&oracle);
        let text = Class::Text.block(0);
        // Five of them fit what the link carries in a millisecond, and a sixth does not.
        for at in [11, 11, 11, 11, 11, 12] {
            assert_eq!(oracle.send(&text), Some(Duration::from_millis(at)));
        }
        assert_eq!(before - free(&oracle), 6 * (200 + OVERHEAD_BYTES));
        let video = Class::Video.block(1);
        let before = free(&oracle);
        assert!(oracle.send(&video).is_some());
        assert_eq!(before - free(&oracle), 20_000 + 17 * OVERHEAD_BYTES);
    }

    #[test]
    fn a_fragment_that_is_lost_is_sent_again() {
        let loss = starhaul_link::Loss::bernoulli(0.5).unwrap();
        let link = LinkSpec::constant(Bandwidth::from_mbit(12), SLOT * 10).with_loss(loss);
        let links = std::iter::once((&link, 1));
        let mut oracle = Oracle::new(links, Duration::from_secs(10), Instant::now());
        let before = free(&oracle);
        assert!(oracle.send(&Class::Video.block(0)).is_some());
        let packets = (before - free(&oracle)) / (1_200 + OVERHEAD_BYTES);
        assert!((130..210).contains(&packets), "{packets} for 84");
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
