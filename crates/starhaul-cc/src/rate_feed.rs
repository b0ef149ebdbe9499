//! A rate set from outside, for the dedicated controller, and what the same source tells of bit errors.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use starhaul_units::Bandwidth;

/// A full packet is so much longer on the link than in UDP.
const IP_AND_UDP_BYTES: u64 = 28;

/// A rate, and a bit-error rate, that another thread may change while controllers read them. Clones share the values, and
/// only clones are equal.
#[derive(Clone, Debug)]
pub struct RateFeed(Arc<Cells>);

#[derive(Debug)]
struct Cells {
    bits_per_second: AtomicU64,
    /// The bits of a float; no number while nothing is told.
    bit_error_rate: AtomicU64,
}

impl PartialEq for RateFeed {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for RateFeed {}

impl RateFeed {
    /// Creates a feed at `rate` that tells nothing of bit errors.
    pub fn new(rate: Bandwidth) -> Self {
        Self(Arc::new(Cells {
            bits_per_second: AtomicU64::new(rate.bits_per_second()),
            bit_error_rate: AtomicU64::new(f64::NAN.to_bits()),
        }))
    }
    /// Sets the rate for all controllers that share this feed.
    pub fn set(&self, rate: Bandwidth) {
        let cell = &self.0.bits_per_second;
        cell.store(rate.bits_per_second(), Ordering::Relaxed);
    }
    /// The present rate.
    pub fn rate(&self) -> Bandwidth {
        Bandwidth::from_bits_per_second(self.0.bits_per_second.load(Ordering::Relaxed))
    }
    /// Sets the share of bits that the link changes; `None`: nothing is told of them. What is not from 0 to 1 counts as `None`.
    pub fn set_bit_error_rate(&self, share: Option<f64>) {
        let bits = share.unwrap_or(f64::NAN).to_bits();
        self.0.bit_error_rate.store(bits, Ordering::Relaxed);
    }
    /// The share of bits that the link changes, if it is told.
    pub fn bit_error_rate(&self) -> Option<f64> {
        let share = f64::from_bits(self.0.bit_error_rate.load(Ordering::Relaxed));
        Some(share).filter(|share| (0.0..=1.0).contains(share))
    }
    /// The share of packets of so many bytes of UDP payload that the link loses by that: each with a wrong bit, as if one bit's error said
    /// nothing of the next.
    pub fn packet_loss(&self, payload_bytes: u64) -> Option<f64> {
        let bytes = payload_bytes.saturating_add(IP_AND_UDP_BYTES);
        let bits = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) * 8.0;
        let lost = |share: f64| -(bits * (-share).ln_1p()).exp_m1();
        self.bit_error_rate().map(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_lost_by_their_bits() {
        let feed = RateFeed::new(Bandwidth::from_mbit(1));
        assert_eq!(feed.packet_loss(1_200), None);
        // 1228 bytes, 9824 bits.
        for (share, lost) in [
            (0.0, 0.0),
            (1e-9, 9.824e-6),
            (1e-5, 0.093_56),
            (1e-3, 0.999_95),
            (1.0, 1.0),
        ] {
            feed.set_bit_error_rate(Some(share));
            let told = feed.packet_loss(1_200).expect("it was told");
            assert!((told - lost).abs() <= 1e-4 * lost, "{share}: {told}");
        }
        for nothing in [None, Some(f64::NAN), Some(-1e-9), Some(1.1)] {
            feed.set_bit_error_rate(nothing);
            assert_eq!(feed.packet_loss(1_200), None, "{nothing:?}");
        }
        assert_eq!(feed.rate(), Bandwidth::from_mbit(1));
    }
}
