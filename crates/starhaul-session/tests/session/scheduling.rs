//! The order of sending: the faults of the published MPDTP code, repaired, and what happens when there is too little capacity.

use std::time::Duration;

use crate::pair::{Pair, is_on_time, ms};
use starhaul_session::{
    BlockId, BlockOptions, Event, ExpiredCause, Frame, Limit, Load, Mode, Outcome, PathId,
    Scheduler, SchedulerStatus, Session, SessionConfig, Side, StreamConfig, View,
};

fn stream(mode: Mode, deadline_ms: u64, priority: u8) -> StreamConfig {
    StreamConfig {
        mode,
        deadline: ms(deadline_ms),
        priority,
        ..StreamConfig::default()
    }
}

fn within(deadline_ms: u64) -> BlockOptions {
    BlockOptions {
        deadline: Some(ms(deadline_ms)),
        ..BlockOptions::default()
    }
}

fn after(block: BlockId) -> BlockOptions {
    BlockOptions {
        depends_on: Some(block),
        ..BlockOptions::default()
    }
}

#[test]
fn a_hopeless_nearly_finished_block_never_goes_before_one_that_can_make_it() {
    // 1 Mbit/s: a fragment takes 11 ms to send. Block 0 is nearly finished when the rate falls to a tenth and the rest
    // cannot arrive any more; block 1 can.
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 1.0, 20, 0.0, 0.0, 1);
    pair.run_for(ms(500));
    let video = pair.open(stream(Mode::None, 200, 4));
    let nearly = pair.send(video, 15_000, within(160));
    pair.run_for(ms(105));
    let rate = starhaul_units::Bandwidth::from_kbit(100);
    let lane = pair.lanes.values_mut().next().unwrap();
    lane.rate = rate;
    for link in &mut lane.links {
        link.set_rate(pair.now, starhaul_link::Rate::Constant(rate));
    }
    let fresh = pair.send(video, 1200, within(400));
    let before = pair.fragments(0).len();
    pair.run_for(ms(1000));
    let order: Vec<u32> = pair.fragments(0)[before..]
        .iter()
        .map(|fragment| fragment.block)
        .collect();
    assert_eq!(order, [fresh.0], "only what can arrive is sent");
    assert_eq!(
        pair.outcome(video, nearly),
        Some(Outcome::Expired(ExpiredCause::Capacity))
    );
    assert!(pair.outcome(video, fresh).is_some_and(is_on_time));
}

#[test]
fn a_block_that_no_path_can_carry_in_time_is_dropped_before_it_expires() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 10.0, 50, 0.0, 0.0, 1);
    pair.lane(1, 10.0, 300, 0.0, 0.0, 1);
    pair.run_for(ms(1000));
    let audio = pair.open(stream(Mode::FecRetransmit, 40, 4));
    let sent_at = pair.elapsed();
    let block = pair.send(audio, 1000, BlockOptions::default());
    pair.run_for(ms(500));
    let (ended_at, outcome) = pair.events[0]
        .iter()
        .find_map(|(at, event)| match event {
            Event::BlockOutcome { outcome, .. } => Some((*at, *outcome)),
            _ => None,
        })
        .unwrap();
    assert_eq!(outcome, Outcome::Expired(ExpiredCause::Unreachable));
    assert!(
        ended_at - sent_at < ms(5),
        "known at once, told after {:?}",
        ended_at - sent_at
    );
    assert_eq!(
        pair.fragments(0),
        [],
        "nothing of {block:?} is sent in vain"
    );
}

#[test]
fn a_block_too_large_for_its_deadline_does_not_hold_up_the_others() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 10.0, 50, 0.0, 0.0, 1);
    pair.run_for(ms(1000));
    let file = pair.open(stream(Mode::Retransmit, 1000, 4));
    let text = pair.open(stream(Mode::Retransmit, 1000, 4));
    let huge = pair.send(file, 5_000_000, BlockOptions::default());
    let mut small = Vec::new();
    for _ in 0..40 {
        small.push(pair.send(text, 10_000, BlockOptions::default()));
        pair.run_for(ms(25));
    }
    pair.run_for(ms(2000));
    assert!(matches!(
        pair.outcome(file, huge),
        Some(Outcome::Expired(_))
    ));
    let kept = small
        .iter()
        .filter(|block| pair.outcome(text, **block).is_some_and(is_on_time));
    assert_eq!(kept.count(), 40);
}

#[test]
fn a_p_frame_of_a_lost_i_frame_is_cancelled_and_so_are_its_own_dependents() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 10.0, 50, 0.0, 0.0, 1);
    pair.run_for(ms(1000));
    let video = pair.open(stream(Mode::FecRetransmit, 2000, 3));
    pair.run_for(ms(500));
    pair.cut(0, true);
    let i = pair.send(video, 50_000, within(500));
    let p1 = pair.send(video, 10_000, after(i));
    let p2 = pair.send(video, 10_000, after(p1));
    let p3 = pair.send(video, 10_000, after(p2));
    let other = pair.send(video, 10_000, within(5000));
    pair.run_for(ms(1500));
    pair.cut(0, false);
    let before = pair.fragments(0).len();
    pair.run_for(ms(5000));
    assert!(matches!(pair.outcome(video, i), Some(Outcome::Expired(_))));
    for (block, cause) in [(p1, i), (p2, p1), (p3, p2)] {
        assert_eq!(
            pair.outcome(video, block),
            Some(Outcome::Cancelled {
                because_of: Some(cause)
            })
        );
    }
    let late = pair.send(video, 10_000, after(i));
    let later = pair.send(video, 10_000, after(late));
    pair.run_for(ms(1000));
    for (block, cause) in [(late, i), (later, late)] {
        assert_eq!(
            pair.outcome(video, block),
            Some(Outcome::Cancelled {
                because_of: Some(cause)
            }),
            "sent after what it depends on had failed"
        );
    }
    assert!(pair.outcome(video, other).is_some_and(is_on_time));
    let sent: Vec<u32> = pair.fragments(0)[before..]
        .iter()
        .map(|f| f.block)
        .collect();
    assert!(
        sent.iter().all(|block| *block == other.0),
        "cancelled blocks are not sent: {sent:?}"
    );
}

#[test]
fn a_p_frame_of_an_i_frame_that_arrived_is_sent() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 10.0, 50, 0.0, 0.0, 1);
    let video = pair.open(stream(Mode::FecRetransmit, 2000, 3));
    let i = pair.send(video, 50_000, BlockOptions::default());
    pair.run_for(ms(1000));
    let p = pair.send(video, 10_000, after(i));
    pair.run_for(ms(1000));
    assert!(pair.outcome(video, p).is_some_and(is_on_time));
}

/// A busy second over three lanes with losses; returns every datagram the client sent.
fn busy_second() -> Vec<(Duration, u32, Vec<u8>)> {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 8.0, 20, 0.03, 0.0, 9);
    pair.lane(1, 4.0, 70, 0.01, 1.0, 9);
    pair.text_lane(
        2,
        "rate=3mbit,delay=40ms,jitter=4ms,loss=ge:2%:4,reorder=2%:10ms",
        0.0,
        9,
    );
    let streams = [
        stream(Mode::FecRetransmit, 300, 1),
        stream(Mode::Duplicate, 200, 2),
        stream(Mode::Retransmit, 500, 3),
        stream(Mode::Reliable, 1, 4),
    ]
    .map(|config| pair.open(config));
    for round in 0..50u64 {
        pair.send(streams[0], 2000, BlockOptions::default());
        pair.send(streams[1], 700, BlockOptions::default());
        pair.send(streams[2], 20_000, within(200 + 10 * (round % 7)));
        pair.sessions[0]
            .write(pair.now, streams[3], &[5; 3000])
            .unwrap();
        pair.run_for(ms(20));
    }
    pair.run_for(ms(300));
    let sent = pair.sent[0].iter();
    sent.map(|sent| (sent.at, sent.path.0, sent.payload.to_vec()))
        .collect()
}

#[test]
fn equal_runs_send_equal_datagrams_in_equal_order() {
    let first = busy_second();
    assert!(first.len() > 1000, "{} datagrams", first.len());
    assert!(first == busy_second());
}

/// Text, audio and video (MPDTP §V) over two lanes that together carry `share` of what they offer.
struct Overload {
    /// Sent and on time of text, audio, video.
    classes: [(usize, usize); 3],
    expired: Vec<ExpiredCause>,
    overloads: Vec<(Duration, u64, u64)>,
    /// Bytes of blocks on time, and of all fragments sent.
    useful_bytes: usize,
    sent_bytes: usize,
}

const OFFERED_MBIT: f64 =
    20.0 * 200.0 * 8e-6 + 47.0 * 2500.0 * 8e-6 + (100_000.0 + 23.0 * 20_000.0) * 8e-6;

fn overload(share: f64, seconds: u64) -> Overload {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, OFFERED_MBIT * share * 0.5, 50, 0.0001, 0.0, 3);
    pair.lane(1, OFFERED_MBIT * share * 0.5, 300, 0.0001, 0.0, 3);
    pair.run_for(ms(1500));
    let streams = [
        stream(Mode::FecRetransmit, 800, 1),
        stream(Mode::FecRetransmit, 1000, 2),
        stream(Mode::FecRetransmit, 3000, 3),
    ]
    .map(|config| pair.open(config));
    let mut sizes = [Vec::new(), Vec::new(), Vec::new()];
    let mut last_i = None;
    let mut put = |pair: &mut Pair, class: usize, bytes: usize, options: BlockOptions| {
        sizes[class].push(bytes);
        pair.send(streams[class], bytes, options)
    };
    let begin = pair.elapsed();
    let mut at = [0u64; 3];
    for tick in 0..seconds * 1000 {
        while at[0] * 50 <= tick {
            put(&mut pair, 0, 200, BlockOptions::default());
            at[0] += 1;
        }
        while at[1] * 1000 / 47 <= tick {
            put(&mut pair, 1, 2500, BlockOptions::default());
            at[1] += 1;
        }
        while at[2] * 1000 / 24 <= tick {
            if at[2] % 24 == 0 {
                last_i = Some(put(&mut pair, 2, 100_000, BlockOptions::default()));
            } else {
                put(
                    &mut pair,
                    2,
                    20_000,
                    BlockOptions {
                        depends_on: last_i,
                        ..BlockOptions::default()
                    },
                );
            }
            at[2] += 1;
        }
        pair.run_until(begin + ms(tick + 1));
    }
    pair.run_for(ms(8000));
    let outcomes = pair.outcomes(0);
    let mut result = Overload {
        classes: [0, 1, 2].map(|class| (sizes[class].len(), 0)),
        expired: Vec::new(),
        overloads: Vec::new(),
        useful_bytes: 0,
        sent_bytes: pair.sent[0]
            .iter()
            .filter(|sent| sent.fragment().is_some())
            .map(|sent| sent.payload.len())
            .sum(),
    };
    assert_eq!(
        outcomes.len(),
        sizes.iter().map(Vec::len).sum::<usize>(),
        "every block ends once"
    );
    for (id, block, outcome) in outcomes {
        let class = streams.iter().position(|stream| stream.0 == id).unwrap();
        if is_on_time(outcome) {
            result.classes[class].1 += 1;
            result.useful_bytes += sizes[class][block as usize];
        }
        if let Outcome::Expired(cause) = outcome {
            result.expired.push(cause);
        }
    }
    for (at, event) in &pair.events[0] {
        if let Event::Overload { wanted, available } = event {
            result
                .overloads
                .push((*at, wanted.bits_per_second(), available.bits_per_second()));
        }
    }
    result
}

#[test]
fn at_half_the_capacity_the_important_arrives_and_little_is_sent_in_vain() {
    let run = overload(0.5, 10);
    let share = |class: usize| run.classes[class].1 as f64 / run.classes[class].0 as f64;
    assert!(share(0) >= 0.99, "text {:?}", run.classes[0]);
    assert!(share(1) >= 0.95, "audio {:?}", run.classes[1]);
    // Text and audio take 0.95 of 2.7 Mbit/s; the rest carries about a third of the video's bytes.
    assert!(share(2) >= 0.20, "video {:?}", run.classes[2]);
    assert!(
        run.expired
            .iter()
            .all(|cause| *cause == ExpiredCause::Capacity),
        "{:?}",
        run.expired
    );
    let used = run.useful_bytes as f64 / run.sent_bytes as f64;
    assert!(used >= 0.8, "only {used:.3} of what was sent was of use");
    let gaps: Vec<_> = run
        .overloads
        .windows(2)
        .map(|pair| pair[1].0 - pair[0].0)
        .collect();
    assert!(
        gaps.iter().all(|gap| *gap >= ms(1000)) && run.overloads.len() >= 6,
        "{:?}",
        run.overloads
    );
    for (at, wanted, available) in &run.overloads[1..] {
        let (wanted, available) = (*wanted as f64 * 1e-6, *available as f64 * 1e-6);
        assert!(
            (available / (OFFERED_MBIT * 0.5) - 1.0).abs() < 0.1,
            "available {available} at {at:?}"
        );
        assert!(
            wanted > OFFERED_MBIT * 0.7 && wanted < OFFERED_MBIT * 1.4,
            "wanted {wanted} at {at:?}"
        );
    }
}

#[test]
fn with_a_tenth_more_capacity_than_asked_nothing_expires() {
    let run = overload(1.2, 5);
    assert_eq!(run.expired, []);
    for (sent, on_time) in run.classes {
        assert_eq!(sent, on_time);
    }
}

/// Whatever it is, it takes the dearest path.
#[derive(Debug)]
struct Dearest;

impl Dearest {
    fn is_here(view: &View<'_>) -> bool {
        let costs = view.usable().map(|(_, path)| path.cost());
        let most = costs.fold(f64::MIN, f64::max);
        view.this().is_some_and(|this| this.cost() >= most)
    }
}

impl Scheduler for Dearest {
    fn takes_data(&self, view: &View<'_>, _: Load, _: Limit) -> bool {
        Self::is_here(view)
    }

    fn takes_retransmission(&self, view: &View<'_>, _: Option<PathId>, _: u64, _: Limit) -> bool {
        Self::is_here(view)
    }

    fn takes_redundancy(&self, view: &View<'_>, _: Option<PathId>, _: u64, _: Limit) -> bool {
        Self::is_here(view)
    }

    fn takes_copy(&self, view: &View<'_>, _: Option<PathId>, _: u64, _: Limit) -> bool {
        Self::is_here(view)
    }

    fn takes_frame(&self, view: &View<'_>, _: Frame) -> bool {
        Self::is_here(view)
    }

    fn status(&self) -> SchedulerStatus {
        SchedulerStatus::default()
    }
}

#[test]
fn another_scheduler_chooses_other_paths_for_blocks_and_bytes() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.sessions[0] = Session::with_scheduler(
        SessionConfig::default(),
        Side::Client,
        pair.start,
        Box::new(Dearest),
    );
    pair.lane(0, 10.0, 20, 0.01, 0.0, 1);
    pair.lane(1, 10.0, 200, 0.01, 5.0, 2);
    pair.run_for(ms(1000));
    let blocks = pair.open(stream(Mode::FecRetransmit, 5000, 4));
    let bytes = pair.open(stream(Mode::Reliable, 5000, 4));
    let block = pair.send(blocks, 100_000, BlockOptions::default());
    let text = vec![1; 50_000];
    assert_eq!(
        pair.sessions[0].write(pair.now, bytes, &text),
        Ok(text.len())
    );
    pair.run_for(ms(4000));
    assert!(is_on_time(pair.outcome(blocks, block).unwrap()));
    let paths = |is: &dyn Fn(&crate::pair::Sent) -> bool| {
        let sent = pair.sent[0].iter().filter(|sent| is(sent));
        let mut count = [0, 0];
        sent.for_each(|sent| count[usize::try_from(sent.path.0).unwrap()] += 1);
        count
    };
    let fragments = paths(&|sent| sent.fragment().is_some());
    assert!(fragments[0] == 0 && fragments[1] >= 70, "{fragments:?}");
    // What is last of a stream on a slow path is sent once more over a faster one, whatever was chosen first.
    let frames = paths(&|sent| sent.frame().is_some_and(|(stream, _)| stream == bytes.0));
    assert!(frames[1] > 30 && frames[0] <= frames[1], "{frames:?}");
}
