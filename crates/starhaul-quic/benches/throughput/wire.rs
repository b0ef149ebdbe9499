//! Two directions of a wire in virtual time, the same for all contenders: a delay, and losses on the way to the server.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use starhaul_units::Bandwidth;

/// What every contender sends at most; in virtual time, so it bounds only what is in flight.
pub(crate) const RATE: Bandwidth = Bandwidth::from_mbit(2000);
/// The size of every contender's packets: what an Ethernet path carries under IPv6.
pub(crate) const PACKET_BYTES: u16 = 1452;
const DELAY: Duration = Duration::from_millis(5);

pub(crate) const CLIENT: usize = 0;
pub(crate) const SERVER: usize = 1;

pub(crate) struct Wire {
    queues: [VecDeque<(Instant, BytesMut)>; 2],
    loss: f64,
    rng: ChaCha12Rng,
}

impl Wire {
    pub(crate) fn new(loss: f64) -> Self {
        Self {
            queues: Default::default(),
            loss,
            rng: ChaCha12Rng::from_seed([5; 32]),
        }
    }

    /// Packets of `size` bytes leave `from` (the last may be shorter).
    pub(crate) fn send(&mut self, now: Instant, from: usize, packets: &[u8], size: usize) {
        for packet in packets.chunks(size) {
            if from == CLIENT && self.loss > 0.0 && self.rng.random_bool(self.loss) {
                continue;
            }
            self.queues[1 - from].push_back((now + DELAY, BytesMut::from(packet)));
        }
    }

    /// The next packet that has arrived at `to`.
    pub(crate) fn receive(&mut self, now: Instant, to: usize) -> Option<BytesMut> {
        let queue = &mut self.queues[to];
        queue
            .pop_front_if(|(at, _)| *at <= now)
            .map(|(_, packet)| packet)
    }

    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        let fronts = self.queues.iter().filter_map(VecDeque::front);
        fronts.map(|(at, _)| *at).min()
    }
}
