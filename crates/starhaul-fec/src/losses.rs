//! How many of the packets that leave one after the other are lost on a path that loses several in a row (Gilbert–Elliott).

/// The greatest share that is counted with: a path that loses all is none.
const MOST_SHARE: f64 = 0.999;

/// A channel that loses everything in its bad state and nothing in its good one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channel {
    /// Share of the packets that are lost, which is the probability of the bad state.
    pub(crate) share: f64,
    /// Probability of going over to the bad state after a packet that arrived.
    pub(crate) enter: f64,
    /// Probability of leaving it after a packet that was lost.
    pub(crate) leave: f64,
}

impl Channel {
    /// As for [`Losses::of`].
    pub(crate) fn of(share: f64, burst_length: f64) -> Self {
        let share = if share.is_nan() {
            0.0
        } else {
            share.clamp(0.0, MOST_SHARE)
        };
        let leave = 1.0 / burst_length.max(1.0 / (1.0 - share));
        Self {
            share,
            enter: leave * share / (1.0 - share),
            leave,
        }
    }
}

/// The distribution of the losses among packets that were sent one after the other, over a channel that loses everything in its bad state and
/// nothing in its good one.
#[derive(Clone, Debug)]
pub struct Losses {
    channel: Channel,
    /// P[so many were lost, and the next packet meets the good state], and the same of the bad one.
    good: Vec<f64>,
    bad: Vec<f64>,
}

impl Losses {
    /// Nothing was sent yet. The channel loses `share` of the packets, 0 to 1, `burst_length` in a row on average; below 1/(1 − share), where
    /// losses would avoid each other, each packet is lost by itself. A share that is no number is no loss.
    pub fn of(share: f64, burst_length: f64) -> Self {
        let channel = Channel::of(share, burst_length);
        Self {
            channel,
            good: vec![1.0 - channel.share],
            bad: vec![channel.share],
        }
    }

    /// The same channel, when it is known whether the next packet will be lost.
    fn knowing(&self, is_lost: bool) -> Self {
        let bad = f64::from(u8::from(is_lost));
        Self {
            good: vec![1.0 - bad],
            bad: vec![bad],
            channel: self.channel,
        }
    }

    /// So many more packets leave.
    pub(crate) fn send_all(&mut self, count: usize) {
        self.good.reserve(count);
        self.bad.reserve(count);
        (0..count).for_each(|_| self.send());
    }

    /// One more packet leaves.
    pub fn send(&mut self) {
        let Channel { enter, leave, .. } = self.channel;
        let sent = self.good.len();
        self.good.push(0.0);
        self.bad.push(0.0);
        for lost in (0..sent).rev() {
            let (arrives, fails) = (self.good[lost], self.bad[lost]);
            self.good[lost + 1] += fails * leave;
            self.bad[lost + 1] += fails * (1.0 - leave);
            self.good[lost] = arrives * (1.0 - enter);
            self.bad[lost] = arrives * enter;
        }
    }

    /// P[so many were lost, and the next packet will arrive], and P[so many were lost, and the next one will be, too].
    fn states(&self, lost: usize) -> (f64, f64) {
        let of = |state: &[f64]| state.get(lost).copied().unwrap_or_default();
        (of(&self.good), of(&self.bad))
    }

    /// P[exactly so many were lost].
    pub fn share(&self, lost: usize) -> f64 {
        let (good, bad) = self.states(lost);
        good + bad
    }

    /// P[more than j were lost], for each j from 0 to the number of packets that left.
    pub fn exceedance(&self) -> Vec<f64> {
        let mut more = 0.0;
        let mut exceedance = vec![0.0; self.good.len()];
        for (lost, exceeds) in exceedance.iter_mut().enumerate().rev() {
            *exceeds = more;
            more += self.share(lost);
        }
        exceedance
    }
}

/// The part of a code's data that neither arrives nor can be decoded, for each number of redundancy fragments from 0 to the smallest with which
/// the code fails with at most the probability `failure`, or to `most`. `data` fragments leave over `first` one after the other, and then the
/// redundancy over `second`, or behind them over the same channel. Both are as before the first packet.
pub fn remaining_losses(
    data: u8,
    first: &Losses,
    second: Option<&Losses>,
    failure: f64,
    most: u8,
) -> Vec<f64> {
    let mut sent = first.clone();
    sent.send_all(data.into());
    // Where the next packet would have arrived, and where not.
    let mut redundancy = match second {
        Some(second) => [second.clone(), second.clone()],
        None => [false, true].map(|is_lost| first.knowing(is_lost)),
    };
    let mut remaining = Vec::new();
    for count in 0..=usize::from(most) {
        let exceedance = redundancy.each_ref().map(Losses::exceedance);
        let (mut fails, mut lost_data) = (0.0, 0.0);
        for lost in 1..=data {
            // Fewer of the redundancy arrive than are missing.
            let is_short = |exceedance: &[f64]| {
                let spare = count.checked_sub(lost.into());
                spare.map_or(1.0, |spare| exceedance[spare])
            };
            let (good, bad) = sent.states(lost.into());
            let fails_so = good * is_short(&exceedance[0]) + bad * is_short(&exceedance[1]);
            fails += fails_so;
            lost_data += fails_so * f64::from(lost);
        }
        remaining.push(lost_data / f64::from(data.max(1)));
        if fails <= failure {
            break;
        }
        redundancy.iter_mut().for_each(Losses::send);
    }
    remaining
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{redundancy_for_burst_loss, redundancy_on_another_path, remaining_loss};

    fn after(share: f64, burst_length: f64, sent: usize) -> Losses {
        let mut losses = Losses::of(share, burst_length);
        losses.send_all(sent);
        losses
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    }

    #[test]
    fn losses_add_up_to_all_packets_and_to_their_share() {
        for (share, burst_length) in [(0.0, 1.0), (0.1, 1.0), (0.02, 5.0), (0.3, 20.0), (1.0, 7.0)]
        {
            let losses = after(share, burst_length, 30);
            let of_all: f64 = (0..=30).map(|lost| losses.share(lost)).sum();
            close(of_all, 1.0);
            let mean: f64 = (0..=30).map(|lost| losses.share(lost) * lost as f64).sum();
            close(mean / 30.0, share.min(MOST_SHARE));
            close(losses.exceedance()[0], 1.0 - losses.share(0));
            close(losses.exceedance()[30], 0.0);
        }
        close(after(f64::NAN, f64::NAN, 5).share(0), 1.0);
    }

    /// Three packets, of which the channel loses two in a row on average: by hand.
    #[test]
    fn three_packets_of_a_channel_that_loses_two_in_a_row() {
        let losses = after(0.1, 2.0, 3);
        let (leave, enter) = (0.5, 0.5 * 0.1 / 0.9);
        let stay = 1.0 - enter;
        close(losses.share(0), 0.9 * stay * stay);
        close(losses.share(3), 0.1 * (1.0 - leave) * (1.0 - leave));
    }

    /// Where each is lost by itself, and where they are lost in a row.
    #[test]
    fn codes_are_as_large_and_lose_as_much_as_the_rules_have_it() {
        const FAILURE: f64 = 1e-3;
        for (loss, other) in [(0.05, 0.01), (0.1, 0.1), (0.2, 0.0)] {
            let [first, second] = [loss, other].map(|share| Losses::of(share, 1.0));
            let remaining = remaining_losses(20, &first, Some(&second), FAILURE, 40);
            let wanted = redundancy_on_another_path(20, loss, 1.0, other, FAILURE, 40);
            assert_eq!(remaining.len(), usize::from(wanted) + 1);
            for (redundancy, remaining) in (0..).zip(remaining) {
                let expected = remaining_loss(20, redundancy, loss, other);
                assert!((remaining - expected).abs() < 1e-9, "{loss}, {redundancy}");
            }
        }
        for (loss, burst_length) in [(0.01, 3.0), (0.05, 5.0), (0.02, 8.0)] {
            let first = Losses::of(loss, burst_length);
            let behind = remaining_losses(20, &first, None, FAILURE, 200).len() - 1;
            let wanted = redundancy_for_burst_loss(20, loss, burst_length, FAILURE, 200);
            assert_eq!(behind, usize::from(wanted), "{loss}, {burst_length}");
            let second = Losses::of(0.01, 1.0);
            let beside = remaining_losses(20, &first, Some(&second), FAILURE, 200).len() - 1;
            let wanted = redundancy_on_another_path(20, loss, burst_length, 0.01, FAILURE, 200);
            assert_eq!(beside, usize::from(wanted), "{loss}, {burst_length}");
        }
    }
}
