//! Datagrams that left together and are acknowledged together measure the same as if each were taken by itself.

use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::PathUpdate;

const MS: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many datagrams leave at once, of which one in `beside` elicits no acknowledgement, unless that is 0.
    Send {
        datagrams: u64,
        beside: u64,
    },
    WaitMicros(u64),
    /// So many up to one of the last ones, and the one-way delay of that.
    Acked {
        back: u64,
        datagrams: u64,
        one_way_ms: Option<u32>,
    },
    TransportAcked {
        back: u64,
        datagrams: u64,
    },
    Lost {
        back: u64,
    },
    FindLost,
    Release,
    Timeout,
    AnswersMoved,
    Told(Option<f64>),
    RttMicros(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let count = || prop_oneof![1..4u64, 8..70u64];
    let back = || prop_oneof![3 => Just(0_u64), 1 => 0..80u64];
    let wait = prop::sample::select(vec![0_u64, 100, 1_000, 7_000, 40_000, 120_000, 1_500_000]);
    let rtt = prop::sample::select(vec![0_u64, 200, 200, 5_000, 40_000, 400_000]);
    let told = prop::option::of(prop::sample::select(vec![0.0_f64, 0.001, 0.1]));
    prop_oneof![
        8 => (count(), prop::sample::select(vec![0_u64, 0, 0, 5]))
            .prop_map(|(datagrams, beside)| Step::Send { datagrams, beside }),
        8 => wait.prop_map(Step::WaitMicros),
        5 => (back(), count(), prop::option::of(0..500u32)).prop_map(
            |(back, datagrams, one_way_ms)| Step::Acked { back, datagrams, one_way_ms }
        ),
        5 => (back(), count())
            .prop_map(|(back, datagrams)| Step::TransportAcked { back, datagrams }),
        1 => back().prop_map(|back| Step::Lost { back }),
        2 => Just(Step::FindLost),
        1 => Just(Step::Release),
        1 => Just(Step::Timeout),
        1 => Just(Step::AnswersMoved),
        1 => told.prop_map(Step::Told),
        2 => rtt.prop_map(Step::RttMicros),
    ]
}

fn update(rtt: Duration) -> PathUpdate {
    PathUpdate {
        cwnd: 1_000_000,
        bytes_in_flight: 0,
        bandwidth: Bandwidth::from_mbit(100),
        smoothed_rtt: rtt,
        min_rtt: rtt,
        max_datagram: 1_200,
    }
}

/// [`PathMonitor::on_acked`], but for [`PathMonitor::measure`].
fn on_acked_alone(
    path: &mut PathMonitor<u64>,
    now: Instant,
    (first, last): (u64, u64),
    one_way: Option<Duration>,
) {
    path.advance(now);
    let mut news = Vec::new();
    path.ledger.ack(first, last, |fated| news.push(fated));
    for fated in news.iter().filter(|fated| fated.elicits_ack) {
        path.on_arrived(fated, one_way.filter(|_| fated.sequence == last));
    }
    if let Some(newest) = news.iter().rfind(|fated| fated.elicits_ack)
        && !path.silence.transport_answers
    {
        let rtt = path.silence_rtt();
        path.silence.on_answer(path.now, newest.sequence, rtt);
    }
    path.settle();
}

/// [`PathMonitor::on_transport_acked`], with the same difference.
fn on_transport_acked_alone(path: &mut PathMonitor<u64>, now: Instant, range: (u64, u64)) {
    path.advance(now);
    path.silence.transport_answers = true;
    if range.1 < path.next_sequence() {
        let rtt = path.silence_rtt();
        if let Some(sent) = path.silence.on_answer(path.now, range.1, rtt) {
            let took = path.now.saturating_duration_since(sent);
            path.rtts.add(sent, took);
        }
    }
    on_acked_alone(path, now, range, None);
}

/// One path, whose datagrams are taken together, and the same, whose are not.
struct Both {
    together: PathMonitor<u64>,
    alone: PathMonitor<u64>,
    now: Instant,
}

impl Both {
    fn new() -> Self {
        let now = Instant::now() + 1_000_000 * MS;
        let path = PathMonitor::new(now, 1.0, update(MS), 0);
        Self {
            together: path.clone(),
            alone: path,
            now,
        }
    }

    fn each(&mut self, change: impl Fn(&mut PathMonitor<u64>)) {
        change(&mut self.together);
        change(&mut self.alone);
    }

    /// Numbers of datagrams that have left; `None` before the first one.
    fn range(&self, back: u64, datagrams: u64) -> Option<(u64, u64)> {
        let last = self.together.next_sequence().checked_sub(1)?;
        let last = last.saturating_sub(back);
        Some((last.saturating_sub(datagrams - 1), last))
    }

    fn take(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Send { datagrams, beside } => self.each(|path| {
                for number in 0..datagrams {
                    let elicits_ack = beside == 0 || number % beside != 2;
                    let bytes = if number.is_multiple_of(3) {
                        1_200
                    } else {
                        1_100
                    };
                    path.on_sent(now, bytes, number, elicits_ack);
                }
            }),
            Step::WaitMicros(wait) => self.now += Duration::from_micros(wait),
            Step::Acked {
                back,
                datagrams,
                one_way_ms,
            } => {
                if let Some((first, last)) = self.range(back, datagrams) {
                    let one_way = one_way_ms.map(|one_way| one_way * MS);
                    self.together
                        .on_acked(now, first, last, one_way, &mut Vec::new());
                    on_acked_alone(&mut self.alone, now, (first, last), one_way);
                }
            }
            Step::TransportAcked { back, datagrams } => {
                if let Some((first, last)) = self.range(back, datagrams) {
                    self.together
                        .on_transport_acked(now, first, last, &mut Vec::new());
                    on_transport_acked_alone(&mut self.alone, now, (first, last));
                }
            }
            Step::Lost { back } => {
                if let Some((_, last)) = self.range(back, 1) {
                    self.each(|path| {
                        path.on_lost(now, last);
                    });
                }
            }
            Step::FindLost => self.each(|path| path.find_lost(now, &mut Vec::new())),
            Step::Release => self.each(|path| drop(path.release())),
            Step::Timeout => self.each(|path| {
                path.on_timeout(now);
            }),
            Step::AnswersMoved => self.each(PathMonitor::on_answers_moved),
            Step::Told(share) => self.each(|path| path.set_told_loss(share)),
            Step::RttMicros(rtt) => self.each(|path| {
                path.update(now, update(Duration::from_micros(rtt)));
            }),
        }
    }

    /// What each of them has measured.
    fn states(&self) -> [String; 2] {
        [&self.together, &self.alone].map(|path| {
            let told = (path.told_loss, path.loss(), path.overdue_at());
            let delays = (path.turnaround, path.one_way, path.overdue_after());
            let rates = (path.rates.least(), path.interval, path.recent);
            let tardy = (path.tardy, path.answers_move, path.floor.least());
            format!("{told:?} {delays:?} {rates:?} {tardy:?}")
        })
    }
}

proptest! {
    #[test]
    fn datagrams_of_one_batch_measure_what_each_would(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut both = Both::new();
        for (index, step) in steps.iter().enumerate() {
            both.take(*step);
            let [together, alone] = both.states();
            prop_assert_eq!(together, alone, "step {}", index);
        }
        prop_assert_eq!(format!("{:?}", both.together), format!("{:?}", both.alone));
    }
}
