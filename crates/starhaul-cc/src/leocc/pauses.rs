//! The time of a round in which the sender paused and the link was idle: a window that has become smaller, as after a burst,
//! keeps back the packet whose acknowledgement ends the round. What the round delivered took the rest of its time.

use std::time::{Duration, Instant};

/// The pauses of the sender as its acknowledgements show them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pauses {
    batch: Option<Batch>,
    /// When the newest packet was sent that had been acknowledged before.
    newest_sent: Option<Instant>,
    /// When acknowledgements last came.
    heard: Option<Instant>,
    /// The pauses of this round.
    sum: Duration,
}

/// The packets that are acknowledged together.
#[derive(Clone, Copy, Debug)]
struct Batch {
    oldest_sent: Instant,
    newest_sent: Instant,
    /// The RTT of the oldest.
    rtt: Duration,
}

impl Pauses {
    /// A packet was acknowledged.
    pub(super) fn on_ack(&mut self, sent: Instant, rtt: Duration) {
        let batch = self.batch.get_or_insert(Batch {
            oldest_sent: sent,
            newest_sent: sent,
            rtt,
        });
        if sent < batch.oldest_sent {
            (batch.oldest_sent, batch.rtt) = (sent, rtt);
        }
        batch.newest_sent = batch.newest_sent.max(sent);
    }

    /// The acknowledgements that came at `now` are complete. Returns the pause that they show beyond `usual`, which pacing leaves
    /// between packets: none if the first packet after it had an RTT longer than `idle_rtt`. It met a queue then, so that the link
    /// carried other flows' packets meanwhile.
    pub(super) fn on_acks(
        &mut self,
        now: Instant,
        usual: Duration,
        idle_rtt: Duration,
    ) -> Duration {
        let Some(batch) = self.batch.take() else {
            return Duration::ZERO;
        };
        let heard = self.heard.replace(now).unwrap_or(now);
        let sent = self.newest_sent.unwrap_or(batch.oldest_sent);
        self.newest_sent = Some(sent.max(batch.newest_sent));
        if batch.rtt > idle_rtt {
            return Duration::ZERO;
        }
        let silence = now.saturating_duration_since(heard);
        let pause = silence
            .min(batch.oldest_sent.saturating_duration_since(sent))
            .saturating_sub(usual);
        self.sum += pause;
        pause
    }

    /// A round ended. Returns its pauses.
    pub(super) fn on_round(&mut self) -> Duration {
        std::mem::take(&mut self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The pause found where packets leave each millisecond, but for one that leaves `late` so much later, and each is
    /// acknowledged after its RTT: 50 ms, and from that one on `rtt_ms`.
    fn found(late: u32, rtt_ms: u32) -> Duration {
        let start = Instant::now();
        let mut pauses = Pauses::default();
        for n in 0..40 {
            let (late, rtt) = match n {
                0..20 => (0, 50),
                _ => (late, rtt_ms),
            };
            let sent = start + MS * (n + late);
            let rtt = MS * rtt;
            pauses.on_ack(sent, rtt);
            pauses.on_acks(sent + rtt, 2 * MS, 55 * MS);
        }
        pauses.on_round()
    }

    #[test]
    fn a_pause_counts_where_the_link_was_idle() {
        assert_eq!(found(0, 50), Duration::ZERO);
        // The sending was 21 ms apart, of which 2 are usual.
        assert_eq!(found(20, 50), 19 * MS);
        assert_eq!(found(20, 52), 19 * MS);
        assert_eq!(found(20, 58), Duration::ZERO, "others' packets were queued");
    }

    /// A silence of the link, with packets that left in time, is no pause of the sender.
    #[test]
    fn what_the_link_keeps_back_is_no_pause() {
        let start = Instant::now();
        let mut pauses = Pauses::default();
        for n in 0..100u32 {
            // Bursts each 17 ms.
            let sent = start + MS * n;
            pauses.on_ack(sent, MS * (50 + 17 - n % 17));
            if n % 17 == 16 {
                pauses.on_acks(sent + 50 * MS, 2 * MS, MS * 200);
            }
        }
        assert_eq!(pauses.on_round(), Duration::ZERO);
    }

    #[test]
    fn acknowledgements_out_of_order_show_no_pause() {
        let start = Instant::now();
        let mut pauses = Pauses::default();
        for n in [1, 2, 8, 9, 4, 5, 30, 10, 31] {
            pauses.on_ack(start + MS * n, MS * 50);
        }
        pauses.on_acks(start + MS * 81, MS, MS * 80);
        pauses.on_ack(start + MS * 20, MS * 50);
        pauses.on_acks(start + MS * 120, MS, MS * 80);
        assert_eq!(pauses.on_round(), Duration::ZERO);
    }
}
