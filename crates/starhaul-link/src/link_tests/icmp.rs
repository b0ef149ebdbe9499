//! Pings beside data, in a band of their own or in the queue.

use super::*;

/// A busy link with a ping each 10 ms; returns how long each ping took.
fn pings_beside_a_full_queue(text: &str) -> Vec<Duration> {
    let start = Instant::now();
    let mut link = Link::new(&spec(text), 1, start);
    let mut times = Vec::new();
    for step in 0..1000 {
        let now = start + MS * step;
        while link.queue_packets() < 90 {
            link.enqueue(now, 1500, None);
        }
        if step % 10 == 0 {
            link.enqueue_in(Band::Icmp, now, 84, Some(now));
        }
        while let Some(arrival) = next_arrival(&mut link, now) {
            times.extend(arrival.packet.map(|asked| arrival.due - asked));
        }
    }
    times
}

#[test]
fn icmp_does_not_wait_behind_data() {
    let own = pings_beside_a_full_queue("rate=12mbit,delay=20ms");
    assert!(own.len() > 90, "{} pings came back", own.len());
    assert!(own.iter().all(|time| *time == MS * 20), "{own:?}");
    // without its band it waits in the queue, which fills 90 ms
    let common = pings_beside_a_full_queue("rate=12mbit,delay=20ms,icmp=queue");
    let least = common.iter().skip(20).min().unwrap();
    assert!(*least >= MS * 100, "{least:?}");
}

#[test]
fn icmp_shares_outages_loss_and_capacity() {
    let start = Instant::now();
    let mut link = Link::new(&by_opportunities("10\n11\n12\n100\n"), 1, start);
    // in the gap from 12 to 100 ms
    link.enqueue_in(Band::Icmp, start + MS * 20, 84, "ping");
    assert_eq!(arrivals(&mut link, start, MS * 200), [(MS * 100, "ping")]);

    let now = start + MS * 200;
    link.set_loss(now, Loss::bernoulli(1.0).unwrap());
    link.enqueue_in(Band::Icmp, now, 84, "lost");
    assert_eq!(arrivals(&mut link, start, MS * 300), []);
    link.set_loss(start + MS * 300, Loss::NONE);
    link.set_down(start + MS * 300);
    link.enqueue_in(Band::Icmp, start + MS * 300, 84, "down");
    assert_eq!(link.stats().dropped_outage, 1);

    // a flood of it alternates with data, within the link's capacity
    let mut link = Link::new(&spec("rate=12mbit"), 1, start);
    for _ in 0..50 {
        link.enqueue(start, 1500, "data");
        link.enqueue_in(Band::Icmp, start, 1500, "ping");
    }
    let arrived = arrivals(&mut link, start, MS * 20);
    let data = arrived.iter().filter(|(_, name)| *name == "data").count();
    // and the one that passed on credit at the start
    assert_eq!((arrived.len(), data), (20, 10));
    assert_eq!(arrived[0], (Duration::ZERO, "ping"));
}

/// When pings that are sent each 31 ms for `time` arrive, over an otherwise idle link.
fn lone_pings(link: &LinkSpec, time: Duration) -> Vec<(Duration, Duration)> {
    let start = Instant::now();
    let mut link = Link::new(link, 1, start);
    let mut arrived = Vec::new();
    let mut at = Duration::ZERO;
    while at < time {
        link.enqueue_in(Band::Icmp, start + at, 84, at);
        at += MS * 31;
        while let Some(arrival) = next_arrival(&mut link, start + at) {
            arrived.push((arrival.packet, arrival.due - start));
        }
    }
    arrived
}

#[test]
fn a_lone_ping_sees_the_delay_and_waits_only_in_outages() {
    let trace = LeoModel::default().generate(3).unwrap();
    let (capacity, delay) = (trace.capacity.clone(), trace.delay.clone().unwrap());
    let link = LinkSpec::from_trace(trace).with_loss(Loss::NONE);
    let outages = capacity.gaps(MS * 45);
    let pings = lone_pings(&link, Duration::from_secs(60));
    let (mut waited, mut latest) = (0, Duration::ZERO);
    for (sent, arrived) in pings {
        let outage = outages
            .iter()
            .find(|(begin, length)| (*begin..*begin + *length).contains(&sent));
        let leaves = outage.map_or(sent, |(begin, length)| *begin + *length);
        waited += u32::from(outage.is_some());
        // the order is kept where the delay falls
        latest = latest.max(leaves + delay.at(leaves));
        assert_eq!(arrived, latest, "a ping sent at {sent:?}");
    }
    assert!(waited >= 4, "{waited} pings were sent in outages");
}

#[test]
fn opportunities_that_are_far_apart_on_a_slow_link_are_no_outage() {
    for text in ["synth=geo,rate=100kbit", "rate=100kbit,delay=290ms"] {
        let pings = lone_pings(&spec(text), Duration::from_secs(20));
        let longest = pings.iter().map(|(sent, arrived)| *arrived - *sent).max();
        assert!(longest.unwrap() <= MS * 300, "{text}: {longest:?}");
    }
    // a second of outage on a link of 1 Mbit/s, and of one at 100 kbit/s
    for (kbit, ms) in [(1_000, 1_000), (100, 1_000), (100, 200)] {
        let rate = Bandwidth::from_kbit(kbit);
        let rates = [(MS * 3_000, rate), (MS * ms, Bandwidth::ZERO)];
        let rates = Opportunities::from_rates(rates).unwrap();
        let link = LinkSpec {
            rate: Rate::Trace(rates.into()),
            ..LinkSpec::default()
        };
        let pings = lone_pings(&link, Duration::from_secs(10));
        let longest = pings.iter().map(|(sent, arrived)| *arrived - *sent).max();
        let waits = longest.unwrap() > MS * 300;
        assert_eq!(waits, ms == 1_000, "{kbit} kbit/s: {longest:?}");
    }
}

proptest! {
    #[test]
    fn no_flood_of_pings_gets_more_than_the_capacity_and_one_opportunity(
        pings in prop::collection::vec((0_u64..3_000, 28_usize..1_500), 1..400),
        data in 0_usize..40,
        text in prop_oneof![
            Just("synth=leo,rate=3mbit"),
            Just("synth=cellular,rate=1mbit"),
            Just("rate=2mbit"),
        ],
    ) {
        assert_no_more_than_capacity_and_one_opportunity(&pings, data, text);
    }
}

#[test]
fn a_ping_behind_pings_that_a_slow_packet_still_pays_for_waits() {
    let pings = [
        (2690, 1067),
        (2589, 199),
        (2426, 235),
        (1561, 28),
        (1789, 28),
        (2945, 28),
        (2120, 93),
        (1070, 952),
        (2061, 469),
        (1749, 1459),
    ];
    assert_no_more_than_capacity_and_one_opportunity(&pings, 1, "synth=leo,rate=3mbit");
}
