//! What the application offers, by class.

use std::{collections::BTreeMap, time::Instant};

use starhaul_units::Bandwidth;

use crate::{
    scheduler::{Class, Offer},
    send::demand::Demand,
};

/// Classes planned for at once; the blocks of others go by rules.
const MAX_CLASSES: usize = 8;
/// A block's part of the mean length.
const LENGTH_GAIN: f64 = 1.0 / 8.0;

/// The rates and blocks of each class.
#[derive(Debug, Default)]
pub(super) struct Offered {
    classes: BTreeMap<Class, Blocks>,
}

/// The blocks of a class.
#[derive(Debug)]
pub(super) struct Blocks {
    demand: Demand,
    /// Mean bytes of a block.
    pub(super) length: f64,
    /// [`Offer::max_coding_rate`] of the last block.
    pub(super) max_coding_rate: f64,
}

impl Offered {
    pub(super) fn add(&mut self, now: Instant, offer: Offer) {
        let length = offer.bytes as f64;
        if self.classes.len() >= MAX_CLASSES && !self.classes.contains_key(&offer.class) {
            self.forget_silent(now);
            if self.classes.len() >= MAX_CLASSES {
                return;
            }
        }
        let blocks = self.classes.entry(offer.class).or_insert_with(|| Blocks {
            demand: Demand::new(now),
            length,
            max_coding_rate: offer.max_coding_rate,
        });
        let Class { priority, .. } = offer.class;
        blocks
            .demand
            .on_offered(now, priority, offer.bytes, offer.deadline);
        blocks.length += (length - blocks.length) * LENGTH_GAIN;
        blocks.max_coding_rate = offer.max_coding_rate;
    }

    /// Forgets the classes of which nothing was offered lately.
    pub(super) fn forget_silent(&mut self, now: Instant) {
        self.classes
            .retain(|_, blocks| blocks.demand.total(now) > Bandwidth::ZERO);
    }

    /// Those with a rate, the most important first: rate without headers, shortest deadline, blocks.
    pub(super) fn live(
        &mut self,
        now: Instant,
    ) -> impl Iterator<Item = (Class, Bandwidth, std::time::Duration, &Blocks)> {
        self.classes.iter_mut().filter_map(move |(class, blocks)| {
            let rate = blocks.demand.total(now);
            let deadline = blocks.demand.shortest_deadline(now)?;
            (rate > Bandwidth::ZERO).then_some((*class, rate, deadline, &*blocks))
        })
    }
}
