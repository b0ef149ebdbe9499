//! The paths between the two sessions: the fate of each datagram, and what the transport below learns of it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use starhaul_session::{PathId, PathUpdate};
use starhaul_units::Bandwidth;

use super::operation::{Condition, Meddling, SLOTS, Side};

/// A transport that reports losses does so this long after the acknowledgement was due.
const LOSS_PATIENCE: Duration = Duration::from_millis(30);

/// A scheduled event.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    Arrival {
        to: Side,
        path: Life,
        payload: Bytes,
    },
    /// The transport learns the fate of a datagram.
    Fate {
        side: Side,
        path: Life,
        sequence: u32,
        bytes: u64,
        arrived: bool,
    },
    Up {
        side: Side,
        slot: usize,
        path: Life,
    },
    Down {
        side: Side,
        path: Life,
    },
}

/// The life of a path from up to down: one connection of the transport, to which its datagrams belong. The next life
/// may have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) id: PathId,
    count: u32,
}

/// One path, and the two directions of its links.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) condition: Condition,
    /// The present life at each side.
    pub(super) up: [Option<Life>; 2],
    in_flight: [u64; 2],
    busy_until: [Option<Instant>; 2],
    out_until: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Links {
    pub(super) slots: [Slot; SLOTS],
    pub(super) coming: BTreeMap<(Instant, u64), Happening>,
    random: ChaCha8Rng,
    count: u64,
    lives: u32,
    wrong_losses: bool,
}

impl Condition {
    /// A good link, for the start and the end of a run.
    pub(super) fn good(slot: usize) -> Self {
        Self {
            delay: Duration::from_millis(10 + 40 * slot as u64),
            jitter: Duration::ZERO,
            loss: 0,
            double: 0,
            bytes_per_second: 2_000_000,
            cwnd: 200_000,
            max_datagram: 1200,
        }
    }
}

impl Links {
    pub(super) fn new(seed: u64, wrong_losses: bool) -> Self {
        Self {
            slots: std::array::from_fn(|slot| Slot {
                condition: Condition::good(slot),
                up: [None; 2],
                in_flight: [0; 2],
                busy_until: [None; 2],
                out_until: None,
            }),
            coming: BTreeMap::new(),
            random: ChaCha8Rng::seed_from_u64(seed),
            count: 0,
            lives: 0,
            wrong_losses,
        }
    }

    pub(super) fn schedule(&mut self, at: Instant, happening: Happening) {
        self.count += 1;
        self.coming.insert((at, self.count), happening);
    }

    /// Brings a path up, under its old number or a new one, on `first` now and on the other side after a multiple of
    /// the one-way delay.
    pub(super) fn bring_up(
        &mut self,
        now: Instant,
        first: Side,
        slot: usize,
        rejoins: bool,
        ways: u32,
    ) {
        let entry = &self.slots[slot];
        let announced = |happening: &Happening| matches!(happening, Happening::Up { slot: at, .. } if *at == slot);
        if entry.up != [None; 2] || self.coming.values().any(announced) {
            return;
        }
        let later = now + entry.condition.delay * ways;
        self.lives += 1;
        let number = u32::try_from(slot).unwrap_or(0);
        let path = Life {
            id: PathId(if rejoins { number } else { 100 + self.lives }),
            count: self.lives,
        };
        self.schedule(
            now,
            Happening::Up {
                side: first,
                slot,
                path,
            },
        );
        self.schedule(
            later,
            Happening::Up {
                side: 1 - first,
                slot,
                path,
            },
        );
    }

    pub(super) fn take_down(&mut self, now: Instant, first: Side, slot: usize) {
        let entry = &self.slots[slot];
        let later = now + entry.condition.delay;
        if let [Some(path), Some(_)] = entry.up {
            self.schedule(now, Happening::Down { side: first, path });
            self.schedule(
                later,
                Happening::Down {
                    side: 1 - first,
                    path,
                },
            );
        }
    }

    pub(super) fn set_up(&mut self, side: Side, slot: usize, path: Life) -> PathUpdate {
        let entry = &mut self.slots[slot];
        entry.up[side] = Some(path);
        entry.in_flight[side] = 0;
        entry.busy_until[side] = None;
        entry.update(side)
    }

    pub(super) fn set_down(&mut self, side: Side, path: Life) {
        for entry in &mut self.slots {
            if entry.up[side] == Some(path) {
                entry.up[side] = None;
            }
        }
    }

    pub(super) fn outage(&mut self, slot: usize, until: Instant) {
        self.slots[slot].out_until = Some(until);
    }

    /// Makes every link reliable.
    pub(super) fn heal(&mut self) {
        for (slot, entry) in self.slots.iter_mut().enumerate() {
            entry.condition = Condition::good(slot);
            entry.out_until = None;
        }
    }

    pub(super) fn is_up(&self, side: Side, path: Life) -> bool {
        self.slots.iter().any(|entry| entry.up[side] == Some(path))
    }

    /// Carries a datagram: decides when it arrives, if at all.
    pub(super) fn send(
        &mut self,
        now: Instant,
        side: Side,
        slot: usize,
        payload: Bytes,
        sequence: u32,
    ) {
        let Some(path) = self.slots[slot].up[side] else {
            return;
        };
        let bytes = payload.len() as u64;
        let entry = &mut self.slots[slot];
        let Condition {
            delay,
            jitter,
            loss,
            double,
            bytes_per_second,
            ..
        } = entry.condition;
        let serialised = Duration::from_micros(bytes * 1_000_000 / bytes_per_second);
        let start = entry.busy_until[side].map_or(now, |until| until.max(now));
        entry.busy_until[side] = Some(start + serialised);
        entry.in_flight[side] += bytes;
        let is_out = entry.out_until.is_some_and(|until| start < until);
        let lost = is_out || self.random.random::<u8>() < loss;
        let micros = u64::try_from(jitter.as_micros()).unwrap_or(0);
        let arrival = start
            + serialised
            + delay
            + Duration::from_micros(self.random.random_range(0..=micros));
        let wrongly_lost = self.wrong_losses && self.random.random_ratio(1, 64);
        if !lost {
            let copies = 1 + usize::from(self.random.random::<u8>() < double);
            for copy in 0..copies {
                let happening = Happening::Arrival {
                    to: 1 - side,
                    path,
                    payload: payload.clone(),
                };
                self.schedule(
                    arrival + delay * u32::try_from(copy).unwrap_or(0),
                    happening,
                );
            }
        }
        let answered = arrival + delay;
        let known = if lost {
            answered + LOSS_PATIENCE
        } else {
            answered
        };
        let fate = Happening::Fate {
            side,
            path,
            sequence,
            bytes,
            arrived: !lost && !wrongly_lost,
        };
        self.schedule(known, fate);
    }

    /// A datagram left the window.
    pub(super) fn settle(&mut self, side: Side, path: Life, bytes: u64) {
        for entry in &mut self.slots {
            if entry.up[side] == Some(path) {
                entry.in_flight[side] = entry.in_flight[side].saturating_sub(bytes);
            }
        }
    }

    /// Drops, duplicates or delivers a datagram in flight. Its fate as seen by the transport stays.
    pub(super) fn meddle(&mut self, now: Instant, datagram: usize, how: Meddling) {
        let Some(key) = self.nth_arrival(datagram) else {
            return;
        };
        match how {
            // A datagram that the transport acknowledges has arrived.
            Meddling::Drop => self.drop_arrival(key),
            Meddling::Double => {
                let happening = self.coming[&key].clone();
                self.schedule(key.0 + Duration::from_millis(3), happening);
            }
            Meddling::DeliverNow => {
                if let Some(happening) = self.coming.remove(&key) {
                    self.schedule(now, happening);
                }
            }
        }
    }

    pub(super) fn nth_arrival(&self, datagram: usize) -> Option<(Instant, u64)> {
        let arrivals: Vec<_> = self
            .coming
            .iter()
            .filter(|(_, happening)| matches!(happening, Happening::Arrival { .. }))
            .map(|(key, _)| *key)
            .collect();
        arrivals.get(datagram.checked_rem(arrivals.len())?).copied()
    }

    fn drop_arrival(&mut self, key: (Instant, u64)) {
        if let Some(Happening::Arrival { to, path, payload }) = self.coming.remove(&key) {
            self.on_unheard(to, path, &payload);
        }
    }

    /// A datagram had no receiver: the transport must not acknowledge it.
    pub(super) fn on_unheard(&mut self, to: Side, path: Life, payload: &Bytes) {
        // Bytes 1 to 4 are its number.
        let number = payload
            .get(1..5)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u32::from_be_bytes);
        for happening in self.coming.values_mut() {
            if let Happening::Fate {
                side,
                path: on,
                sequence,
                arrived,
                ..
            } = happening
                && (*side, *on, Some(*sequence)) == (1 - to, path, number)
            {
                *arrived = false;
            }
        }
    }
}

impl Slot {
    pub(super) fn has_window(&self, side: Side) -> bool {
        self.in_flight[side] + self.condition.max_datagram as u64 <= self.condition.cwnd
    }

    pub(super) fn update(&self, side: Side) -> PathUpdate {
        let rtt = self.condition.delay * 2;
        PathUpdate {
            cwnd: self.condition.cwnd,
            bytes_in_flight: self.in_flight[side],
            bandwidth: Bandwidth::from_bits_per_second(self.condition.bytes_per_second * 8),
            smoothed_rtt: rtt,
            min_rtt: rtt,
            max_datagram: self.condition.max_datagram,
        }
    }
}
