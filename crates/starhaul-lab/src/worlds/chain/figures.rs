//! What is measured of a transfer.

use std::time::Duration;

use starhaul_link::Delays;

/// The figures of one flow.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Bytes in order: of LEOTP those whose hash was compared with that of what was sent, of rivals the data of packets that came, by their
    /// numbers.
    pub bytes: u64,
    /// In which time: from its start to its end or that of the run.
    pub time: Duration,
    /// From the first time that a byte's packet left its source to its first arrival.
    pub delays: Delays,
    /// The same of packets that came later than those behind them.
    pub late_delays: Delays,
    /// Bytes that the source sent, all headers included.
    pub sender_bytes: u64,
    /// Packets lost on links.
    pub lost: u64,
    /// Packets that hops asked for again, or that a rival's sender took for lost.
    pub asked_again: u64,
    /// Of the packets that hops asked for again, those beyond what the links into them lost. None where hops ask for nothing, and where a
    /// path changes: what was sent over a way that is no more was lost on no link.
    pub asked_elsewhere: Option<u64>,
    /// Packets that the requester itself asked for again, or timeouts of a rival's sender.
    pub timeouts: u64,
    /// Whether the whole content arrived.
    pub is_complete: bool,
    /// Changes of the path of which a rival's sender was told.
    pub reconfigurations: u64,
}

impl Figures {
    /// [`Figures::bytes`] in Mbit/s.
    #[expect(clippy::cast_precision_loss, reason = "a display value")]
    pub fn goodput_mbps(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.time.as_secs_f64().max(1e-9)
    }
}

/// Jain's index of fairness: 1 where all are equal.
pub fn jain(values: &[f64]) -> f64 {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), value| {
        (sum + value, squares + value * value)
    });
    let count = values.iter().fold(0.0, |count, _| count + 1.0);
    if squares > 0.0 {
        sum * sum / (count * squares)
    } else {
        0.0
    }
}
