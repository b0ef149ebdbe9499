use std::{collections::HashMap, time::Duration};

use proptest::prelude::*;
use starhaul_units::Bandwidth;

use super::*;
use crate::{
    Arrival, Delay, DelaySeries, LeoModel, Opportunities, Recording, parse_capacity,
    transmitter::MAX_DEBT_BYTES,
};

#[path = "link_tests/icmp.rs"]
mod icmp;

const MS: Duration = Duration::from_millis(1);

fn spec(text: &str) -> LinkSpec {
    text.parse().unwrap()
}

/// A link with the opportunities of a mahimahi file.
fn by_opportunities(stamps: &str) -> LinkSpec {
    LinkSpec {
        rate: Rate::Trace(parse_capacity("bw", stamps.as_bytes()).unwrap().into()),
        ..LinkSpec::default()
    }
}

/// The next packet that has arrived by `now`.
fn next_arrival<P: Clone>(link: &mut Link<P>, now: Instant) -> Option<Arrival<P>> {
    std::iter::from_fn(|| link.poll(now)).find_map(Outcome::arrived)
}

/// Runs a link from event to event; returns what arrived by `until` after `start`, with its time after `start`.
fn arrivals<P: Clone>(link: &mut Link<P>, start: Instant, until: Duration) -> Vec<(Duration, P)> {
    let mut arrived = Vec::new();
    while let Some(at) = link.next_event().filter(|at| *at <= start + until) {
        while let Some(arrival) = next_arrival(link, at) {
            arrived.push((at - start, arrival.packet));
        }
    }
    arrived
}

/// Gives a link a numbered packet of 1200 bytes each millisecond; returns what arrives within a second after the last.
fn arrivals_of_flow(link: &mut Link<u32>, start: Instant, packets: u32) -> Vec<(Duration, u32)> {
    let mut arrived = Vec::new();
    for number in 0..packets {
        arrived.extend(arrivals(link, start, MS * number));
        link.enqueue(start + MS * number, 1200, number);
    }
    arrived.extend(arrivals(link, start, MS * (packets + 1000)));
    arrived
}

/// Keeps a queue filled for `time` and returns the bytes delivered.
fn saturate(spec: &LinkSpec, bytes: usize, time: Duration) -> (u64, Link<()>, Instant) {
    let start = Instant::now();
    let mut link = Link::new(spec, 1, start);
    let mut now = start;
    while now < start + time {
        while link.queue_packets() < 400 {
            link.enqueue(now, bytes, ());
        }
        while link.poll(now).is_some() {}
        now += MS;
    }
    (link.stats().delivered_bytes, link, start)
}

#[test]
fn a_packet_takes_its_sending_time_and_the_delay() {
    let start = Instant::now();
    let mut link = Link::new(&spec("rate=12mbit,delay=20ms"), 1, start);
    for number in 0..3 {
        link.enqueue(start, 1500, number);
    }
    assert_eq!(
        arrivals(&mut link, start, MS * 100),
        [(MS * 21, 0), (MS * 22, 1), (MS * 23, 2)]
    );
    assert_eq!(link.next_event(), None);
}

#[test]
fn the_capacity_of_a_trace_is_delivered() {
    let trace = LeoModel::default().generate(3).unwrap();
    for bytes in [100, 1400, 1500] {
        let spec = LinkSpec::from_trace(trace.clone()).with_loss(Loss::NONE);
        let time = Duration::from_secs(20);
        let (delivered, link, start) = saturate(&spec, bytes, time);
        let offered = link.capacity_bytes_between(start, start + time);
        let share = delivered as f64 / offered as f64;
        assert!(
            (0.99..=1.0).contains(&share),
            "{bytes} bytes: {share} of the capacity"
        );
    }
}

#[test]
fn opportunities_carry_several_small_packets_and_parts_of_large_ones() {
    let start = Instant::now();
    let mut link = Link::new(&by_opportunities("10\n20\n30\n40\n"), 1, start);
    for (name, bytes) in [("a", 700), ("b", 700), ("c", 200), ("d", 2900), ("e", 1500)] {
        link.enqueue(start, bytes, name);
    }
    let at = |ms| MS * ms;
    // c takes 100 bytes of the first opportunity and 100 of the second; d then needs 1400, 1500
    let expected = [
        (at(10), "a"),
        (at(10), "b"),
        (at(20), "c"),
        (at(30), "d"),
        (at(40), "e"),
    ];
    assert_eq!(arrivals(&mut link, start, MS * 100), expected);
    // opportunities while the queue was empty are lost
    link.enqueue(start + MS * 75, 1500, "f");
    assert_eq!(arrivals(&mut link, start, MS * 100), [(at(80), "f")]);
}

#[test]
fn order_is_kept_when_the_delay_falls() {
    let start = Instant::now();
    let delay = DelaySeries::from_steps([(MS * 20, MS * 60), (MS * 980, MS * 10)]).unwrap();
    let spec = LinkSpec {
        delay: Delay::Trace(delay.into()),
        ..spec("jitter=5ms")
    };
    let mut link = Link::new(&spec, 1, start);
    let arrived = arrivals_of_flow(&mut link, start, 100);
    assert!(
        arrived.iter().map(|(_, number)| *number).eq(0..100),
        "{arrived:?}"
    );
    assert!(
        arrived[20].0 >= MS * 60,
        "a packet sent later overtook: {:?}",
        arrived[20]
    );
    assert!(
        arrived[99].0 <= MS * 115,
        "the delay did not fall: {:?}",
        arrived[99]
    );
}

#[test]
fn the_queue_is_bounded_and_drops_its_tail() {
    let start = Instant::now();
    for (text, kept) in [("rate=1mbit,queue=10p", 11), ("rate=1mbit,queue=5000b", 6)] {
        let mut link = Link::new(&spec(text), 1, start);
        for number in 0..50 {
            link.enqueue(start, 1000, number);
        }
        assert_eq!(link.stats().dropped_queue, 50 - kept, "{text}");
        let arrived = arrivals(&mut link, start, MS * 1000);
        assert!(
            arrived.iter().map(|(_, number)| *number).eq(0..kept),
            "{text}: {arrived:?}"
        );
    }
}

#[test]
fn packets_wait_through_an_outage_of_the_trace() {
    let start = Instant::now();
    let rates = [(MS * 10, 12), (MS * 90, 0), (MS * 100, 12)];
    let rates = rates.map(|(time, mbit)| (time, Bandwidth::from_mbit(mbit)));
    let spec = LinkSpec {
        rate: Rate::Trace(Opportunities::from_rates(rates).unwrap().into()),
        ..LinkSpec::default()
    };
    let mut link = Link::new(&spec, 1, start);
    for number in 0..20 {
        link.enqueue(start, 1500, number);
    }
    let arrived = arrivals(&mut link, start, MS * 200);
    assert_eq!(arrived.len(), 20);
    assert_eq!((arrived[9].0, arrived[10].0), (MS * 10, MS * 101));
}

#[test]
fn a_link_that_is_down_drops_what_waits_and_what_comes() {
    let start = Instant::now();
    let mut link = Link::new(
        &spec("rate=12mbit,delay=50ms,outage=10500us..30ms"),
        1,
        start,
    );
    for number in 0..20 {
        link.enqueue(start, 1500, number);
    }
    for number in [20, 21] {
        link.enqueue(start + MS * number, 1500, number);
    }
    link.enqueue(start + MS * 30, 1500, 30);
    // ten were in flight already, and those arrive
    let arrived: Vec<_> = arrivals(&mut link, start, MS * 200)
        .into_iter()
        .map(|(_, n)| n)
        .collect();
    assert_eq!(arrived, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 30]);
    assert_eq!(link.stats().dropped_outage, 12);
    let end = start + MS * 100;
    assert_eq!(
        link.capacity_bytes_between(start, end),
        100 * 1500 - 19_500 * 3 / 2
    );

    link.set_down(end);
    assert!(link.is_down());
    link.enqueue(end, 1500, 31);
    link.set_up(end + MS);
    link.enqueue(end + MS, 1500, 32);
    assert_eq!(arrivals(&mut link, start, MS * 200), [(MS * 152, 32)]);
}

#[test]
fn rate_and_loss_change_at_run_time() {
    let start = Instant::now();
    let rate = |mbit| Rate::Constant(Bandwidth::from_mbit(mbit));
    let mut link = Link::new(&spec("rate=12mbit"), 1, start);
    link.enqueue(start, 3000, 'a');
    link.enqueue(start, 1500, 'b');
    // half of the first has left after 1 ms, the other half takes 2 ms
    link.set_rate(start + MS, rate(6));
    assert_eq!(link.next_event(), Some(start + MS * 3));
    link.set_rate(start + MS * 3, rate(0));
    assert_eq!(arrivals(&mut link, start, MS * 100), [(MS * 3, 'a')]);
    let capacity = parse_capacity("bw", "10\n".as_bytes()).unwrap();
    link.set_rate(start + MS * 95, Rate::Trace(capacity.into()));
    assert_eq!(arrivals(&mut link, start, MS * 100), [(MS * 100, 'b')]);

    link.set_loss(start + MS * 100, Loss::bernoulli(1.0).unwrap());
    link.enqueue(start + MS * 100, 1500, 'c');
    assert_eq!(arrivals(&mut link, start, MS * 200), []);
    link.set_loss(start + MS * 200, Loss::NONE);
    link.enqueue(start + MS * 200, 1500, 'd');
    assert_eq!(arrivals(&mut link, start, MS * 300), [(MS * 210, 'd')]);
    assert_eq!(link.stats().dropped_loss, 1);
}

#[test]
fn some_packets_are_overtaken_and_some_arrive_twice() {
    let start = Instant::now();
    let mut link = Link::new(&spec("delay=10ms,reorder=10%:25ms,duplicate=5%"), 1, start);
    let arrived = arrivals_of_flow(&mut link, start, 10_000);
    let late = |&(at, number): &(Duration, u32)| at == MS * number + MS * 35;
    let on_time = |&(at, number): &(Duration, u32)| at == MS * number + MS * 10;
    assert!(arrived.iter().all(|packet| late(packet) || on_time(packet)));
    let late = arrived.iter().filter(|packet| late(packet)).count();
    assert!((900..1_200).contains(&late), "{late} held back");
    let twice = arrived.len() - 10_000;
    assert!((400..600).contains(&twice), "{twice} duplicated");
    assert_eq!(link.stats().duplicated, twice as u64);
}

/// A delay that falls holds packets back that leave in order: one that is overtaken waits for longer than those.
#[test]
fn what_is_overtaken_comes_later_than_in_order() {
    let start = Instant::now();
    let delay = DelaySeries::from_steps([(MS * 500, MS * 60), (MS * 9_500, MS * 10)]).unwrap();
    let spec = LinkSpec {
        delay: Delay::Trace(delay.into()),
        ..spec("reorder=10%:20ms")
    };
    let mut link = Link::new(&spec, 1, start);
    let mut overtaken = 0;
    for (at, number) in arrivals_of_flow(&mut link, start, 1_000) {
        let in_order = match number {
            0..500 => MS * (number + 60),
            // The last of those may be overtaken itself.
            500..550 => MS * 555,
            550.. => MS * (number + 10),
        };
        assert!(at >= in_order, "{number}: {at:?}");
        overtaken += u32::from(at >= in_order + MS * 15);
    }
    assert!((70..150).contains(&overtaken), "{overtaken}");
}

#[test]
fn where_there_is_no_path_nothing_arrives_whatever_the_loss_is() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let log = "0$[1,2]$1$[0.005]$0.010\n1$NULL\n2$[1,2]$1$[0.005]$0.010\n";
    std::fs::write(file.path(), log).unwrap();
    let text = format!("rate=1mbit,delay={},loss=1%", file.path().display());
    // As a trace, too, it lasts as long as the log.
    let recording = Recording::of_spec(&spec(&text), MS * 500).unwrap();
    assert_eq!(recording.period(), MS * 3_000);
    let mean = recording.loss.unwrap().mean();
    assert!((mean - (0.01 + 1.0 + 0.01) / 3.0).abs() < 1e-9, "{mean}");
    let start = Instant::now();
    let mut link = Link::new(&spec(&text), 1, start);
    for number in 0..300 {
        link.enqueue(start + MS * number * 10, 100, number);
        while link.poll(start + MS * number * 10).is_some() {}
    }
    while link.poll(start + MS * 4_000).is_some() {}
    let lost = link.stats().dropped_loss;
    assert!((100..115).contains(&lost), "{lost}");
}

#[test]
fn each_second_carries_the_capacity_of_its_trace() {
    let trace = LeoModel::default().generate(3).unwrap();
    let spec = LinkSpec::from_trace(trace.clone()).with_loss(Loss::NONE);
    let (start, second) = (Instant::now(), Duration::from_secs(1));
    let mut link = Link::new(&spec, 1, start);
    let (mut sent, mut now) = (vec![0_u64; 40], start);
    while now < start + second * 40 {
        while link.queue_packets() < 100 {
            link.enqueue(now, 1400, ());
        }
        now += MS;
        while let Some(arrival) = next_arrival(&mut link, now) {
            let at = usize::try_from((arrival.sent - start).as_secs()).unwrap();
            sent[at.min(39)] += arrival.bytes as u64;
        }
    }
    for (number, sent) in (0..).zip(&sent[..39]) {
        let (from, to) = (second * number, second * (number + 1));
        let offered = (trace.capacity.until(to) - trace.capacity.until(from)) * 1500;
        let share = *sent as f64 / offered as f64;
        assert!((0.98..=1.02).contains(&share), "second {number}: {share}");
    }
}

#[test]
fn an_arrival_tells_when_it_was_due_and_when_it_left() {
    let start = Instant::now();
    let mut link = Link::new(&spec("rate=12mbit,delay=20ms"), 1, start);
    link.enqueue(start, 1500, 'a');
    link.enqueue(start, 1500, 'b');
    // polled much later
    let arrival = |sent, packet| Arrival {
        copy: false,
        due: start + MS * (sent + 20),
        sent: start + MS * sent,
        bytes: 1500,
        packet,
    };
    assert_eq!(next_arrival(&mut link, start + MS * 20), None);
    assert_eq!(
        next_arrival(&mut link, start + MS * 90),
        Some(arrival(1, 'a'))
    );
    assert_eq!(
        next_arrival(&mut link, start + MS * 90),
        Some(arrival(2, 'b'))
    );
}

/// Sends `pings`, each its microseconds after the one before, beside a queue of `data` packets, and looks into every
/// span of time for more bytes than the link has.
fn assert_no_more_than_capacity_and_one_opportunity(
    pings: &[(u64, usize)],
    data: usize,
    text: &str,
) {
    let start = Instant::now();
    let mut now = start;
    let mut link = Link::new(&spec(text).with_loss(Loss::NONE), 1, start);
    let mut sent = Vec::new();
    for &(wait, bytes) in pings {
        now += Duration::from_micros(wait);
        while link.queue_packets() < data {
            link.enqueue(now, 1_500, ());
        }
        link.enqueue_in(Band::Icmp, now, bytes, ());
    }
    while let Some(at) = link.next_event().filter(|_| sent.len() < 3_000) {
        now = now.max(at);
        while let Some(arrival) = next_arrival(&mut link, now) {
            sent.push((arrival.sent, arrival.bytes as u64));
        }
    }
    sent.sort_unstable();
    // the packet that leaves at the first instant of a window may have begun before it
    let credit = MAX_DEBT_BYTES + 1_500;
    for first in (0..sent.len()).step_by(7) {
        let begin = sent[first].0 - Duration::from_millis(1);
        let mut total = 0;
        for (at, bytes) in &sent[first..] {
            total += bytes;
            let capacity = link.capacity_bytes_between(begin, *at);
            assert!(
                total <= capacity + credit,
                "{total} bytes of {capacity} in {:?}",
                *at - begin
            );
        }
    }
}

/// Mean wait in ms, and the share of packets dropped by CoDel, when twice the capacity is sent for 20 s; of the last 10
/// s.
fn overload(text: &str) -> (f64, f64) {
    let start = Instant::now();
    let mut link = Link::new(&spec(text), 1, start);
    let (mut waits, mut dropped_before) = (Vec::new(), 0);
    for step in 0..20_000 {
        let now = start + MS * step;
        if step == 10_000 {
            (waits, dropped_before) = (Vec::new(), link.stats().dropped_codel);
        }
        for _ in 0..2 {
            link.enqueue(now, 1500, now);
        }
        while let Some(arrival) = next_arrival(&mut link, now) {
            waits.push((arrival.sent - arrival.packet).as_secs_f64() * 1e3);
        }
    }
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    let dropped = link.stats().dropped_codel - dropped_before;
    (mean, dropped as f64 / 20_000.0)
}

#[test]
fn codel_drops_ever_faster_while_packets_wait_too_long() {
    let (wait, dropped) = overload("rate=12mbit,queue=500p");
    assert!(wait > 480.0 && dropped == 0.0, "{wait} ms, {dropped}");
    // against a sender that does not yield it approaches the excess, here one of two packets
    let (wait, dropped) = overload("rate=12mbit,queue=codel:500p");
    assert!(wait < 450.0 && dropped > 0.05, "{wait} ms, {dropped}");
    let (fast_wait, fast_dropped) =
        overload("rate=12mbit,queue=codel:500p,target=1ms,interval=10ms");
    assert!(
        fast_wait < wait && fast_dropped > dropped,
        "{fast_wait} ms, {fast_dropped}"
    );
}

#[test]
fn codel_leaves_short_queues_and_bursts_alone() {
    let start = Instant::now();
    let mut link = Link::new(&spec("rate=12mbit,queue=codel"), 1, start);
    for burst in 0..20 {
        // each is 90 ms of sending, gone before the interval is over
        let now = start + MS * (burst * 120);
        arrivals(&mut link, start, MS * (burst * 120));
        for packet in 0..90 {
            link.enqueue(now, 1500, packet);
        }
    }
    arrivals(&mut link, start, MS * 5_000);
    assert_eq!(link.stats().delivered, 20 * 90);

    // the first drop comes one interval after the wait passed the target, the second one interval later
    let mut link = Link::new(&spec("rate=12mbit,queue=codel"), 1, start);
    for packet in 0..400 {
        link.enqueue(start, 1500, packet);
    }
    let kept: Vec<i32> = arrivals(&mut link, start, MS * 1_000)
        .into_iter()
        .map(|(_, packet)| packet)
        .collect();
    let lost: Vec<i32> = (0..400).filter(|packet| !kept.contains(packet)).collect();
    assert_eq!(lost[..2], [105, 206], "{lost:?}");
}

#[test]
fn capacity_is_told_of_the_rates_and_cuts_of_the_past() {
    let start = Instant::now();
    let rate = |mbit| Rate::Constant(Bandwidth::from_mbit(mbit));
    let mut link: Link<()> = Link::new(&spec("rate=12mbit,outage=150ms..250ms"), 1, start);
    link.set_rate(start + MS * 100, rate(24));
    link.set_down(start + MS * 200);
    link.set_up(start + MS * 300);
    link.set_down(start + MS * 300);
    link.set_up(start + MS * 310);
    let capacity = parse_capacity("bw", "1\n".as_bytes()).unwrap();
    link.set_rate(start + MS * 400, Rate::Trace(capacity.into()));
    let kbytes = |from, to| {
        let bytes = link.capacity_bytes_between(start + MS * from, start + MS * to);
        bytes as f64 / 1500.0
    };
    for (from, to, packets) in [
        (0, 100, 100.0),
        (0, 150, 200.0),
        (90, 110, 30.0),
        (150, 310, 0.0),
        (140, 320, 40.0),
        (390, 410, 30.0),
        (400, 500, 100.0),
        (0, 500, 100.0 + 100.0 + 180.0 + 100.0),
        (300, 200, 0.0),
    ] {
        assert_eq!(kbytes(from, to), packets, "{from} to {to} ms");
    }
    link.set_down(start + MS * 500);
    assert_eq!(
        link.capacity_bytes_between(start + MS * 490, start + MS * 600),
        10 * 1500
    );
}

/// When each packet of a lossy link arrives.
fn log(seed: u64) -> Vec<(Duration, u32)> {
    let start = Instant::now();
    let mut link = Link::new(
        &spec("synth=leo,jitter=3ms,loss=ge:2%:4,reorder=1%:9ms"),
        seed,
        start,
    );
    arrivals_of_flow(&mut link, start, 2_000)
}

#[test]
fn who_comes_back_only_for_arrivals_misses_none() {
    for text in [
        "rate=12mbit,delay=20ms,queue=50p,loss=5%",
        "synth=leo,seed=3,jitter=2ms,duplicate=5%,reorder=5%:30ms",
        "rate=8mbit,delay=5ms,outage=100ms..300ms",
    ] {
        let start = Instant::now();
        let mut links = [(); 2].map(|()| Link::new(&spec(text), 1, start));
        let mut arrived = [Vec::new(), Vec::new()];
        let mut visits = [0, 0];
        for (which, link) in links.iter_mut().enumerate() {
            let next = |link: &Link<u32>| match which {
                0 => link.next_event(),
                _ => link.next_arrival(),
            };
            for number in 0..1000 {
                while let Some(at) = next(link).filter(|at| *at <= start + MS * number) {
                    visits[which] += 1;
                    while let Some(packet) = next_arrival(link, at) {
                        assert_eq!(packet.due, at, "{text}: late");
                        arrived[which].push((packet.due, packet.packet));
                    }
                }
                link.enqueue(start + MS * number, 1200, number);
            }
        }
        assert_eq!(arrived[0], arrived[1], "{text}");
        assert!(visits[1] < visits[0], "{text}: {visits:?}");
    }
}

#[test]
fn a_seed_is_a_run() {
    assert_eq!(log(5), log(5));
    assert_ne!(log(5), log(6));
}

#[derive(Clone, Debug)]
enum Step {
    Enqueue(usize),
    Ping(usize),
    Wait(u64),
    Down,
    Up,
    Rate(u64),
    Loss(f64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_usize..5_000).prop_map(Step::Enqueue),
        1 => (0_usize..200).prop_map(Step::Ping),
        4 => (0_u64..30_000).prop_map(Step::Wait),
        1 => Just(Step::Down),
        1 => Just(Step::Up),
        1 => (0_u64..20_000).prop_map(Step::Rate),
        1 => (0.0..=1.0).prop_map(Step::Loss),
    ]
}

proptest! {
    #[test]
    fn every_packet_is_accounted_for(
        steps in prop::collection::vec(step(), 0..200),
        seed: u64,
        text in prop_oneof![
            Just("rate=3mbit,delay=7ms,queue=20p,duplicate=10%,reorder=5%:3ms"),
            Just("synth=leo,queue=9000b,outage=20ms..50ms,outage=40ms..90ms"),
            Just("rate=2mbit,queue=codel:20p,target=1ms,interval=10ms"),
        ],
    ) {
        let start = Instant::now();
        let mut now = start;
        let mut link = Link::new(&spec(text), seed, start);
        let mut delivered = 0;
        let mut told = HashMap::new();
        for step in steps {
            match step {
                Step::Enqueue(bytes) => link.enqueue(now, bytes, ()),
                Step::Ping(bytes) => link.enqueue_in(Band::Icmp, now, bytes, ()),
                Step::Wait(us) => now += Duration::from_micros(us),
                Step::Down => link.set_down(now),
                Step::Up => link.set_up(now),
                Step::Rate(kbit) => link.set_rate(now, Rate::Constant(Bandwidth::from_kbit(kbit))),
                Step::Loss(loss) => link.set_loss(now, Loss::bernoulli(loss).unwrap()),
            }
            while let Some(outcome) = link.poll(now) {
                match outcome {
                    Outcome::Arrived(_) => delivered += 1,
                    Outcome::Dropped(dropped) => {
                        prop_assert!(dropped.at <= now && dropped.at >= start);
                        *told.entry(dropped.cause).or_insert(0) += 1;
                    }
                }
            }
            let stats = link.stats();
            for (cause, count) in [
                (Cause::Queue, stats.dropped_queue),
                (Cause::Codel, stats.dropped_codel),
                (Cause::Loss, stats.dropped_loss),
                (Cause::Outage, stats.dropped_outage),
            ] {
                prop_assert_eq!(told.get(&cause).copied().unwrap_or(0), count, "{:?}", cause);
            }
            prop_assert!(link.next_event().is_none_or(|at| at > now), "an event is overdue");
            prop_assert!(link.queue_packets() <= 20 || link.queue_bytes() <= 9_000);
        }
        link.set_rate(now, Rate::Constant(Bandwidth::from_mbit(1)));
        delivered += arrivals(&mut link, start, Duration::from_secs(3_600)).len() as u64;
        let stats = link.stats();
        prop_assert_eq!(stats.delivered, delivered);
        prop_assert_eq!(stats.enqueued + stats.duplicated, delivered + stats.dropped());
    }
}

#[test]
fn each_drop_is_told_with_its_packet_its_cause_and_its_instant() {
    let start = Instant::now();
    let at = |ms| start + MS * ms;
    // 1500 bytes take 1 ms; one is sent, two wait.
    let mut link = Link::new(
        &spec("rate=12mbit,delay=5ms,queue=2p,outage=10ms..20ms"),
        1,
        start,
    );
    for packet in 0..4 {
        link.enqueue(start, 1500, packet);
    }
    for packet in 4..6 {
        link.enqueue(start + MS * 95 / 10, 1500, packet);
    }
    link.enqueue(at(12), 1500, 6);
    link.set_loss(at(20), Loss::bernoulli(1.0).unwrap());
    link.enqueue(at(30), 1500, 7);
    link.set_loss(at(40), Loss::NONE);
    link.enqueue(at(40), 1500, 8);
    link.enqueue(at(40), 1500, 9);
    let mut dropped = Vec::new();
    let mut arrived = Vec::new();
    while let Some(outcome) = link.poll(at(46)) {
        match outcome {
            Outcome::Dropped(drop) => dropped.push((drop.packet, drop.cause, drop.at - start)),
            Outcome::Arrived(arrival) => arrived.push(arrival.packet),
        }
    }
    let expected = [
        (3, Cause::Queue, Duration::ZERO),
        (4, Cause::Outage, MS * 10),
        (5, Cause::Outage, MS * 10),
        (6, Cause::Outage, MS * 12),
        (7, Cause::Loss, MS * 31),
    ];
    assert_eq!(dropped, expected);
    assert_eq!(arrived, [0, 1, 2, 8]);
    assert_eq!(link.into_held().collect::<Vec<_>>(), [9]);
}

#[test]
fn what_nobody_asks_about_is_counted_and_not_kept() {
    let start = Instant::now();
    let mut link = Link::new(&spec("rate=1mbit,queue=1p"), 1, start);
    for packet in 0..100_000 {
        link.enqueue(start, 1500, packet);
    }
    assert_eq!(link.stats().dropped_queue, 99_998);
    assert_eq!(link.untold_drops(), 1 << 16);
}
