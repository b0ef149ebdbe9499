//! Flows over bundles in virtual time, over a network that delays, reorders, repeats and loses bundles, between gateways that restart.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod net;

use std::time::{Duration, Instant};

use bytes::Bytes;
use proptest::prelude::*;
use starhaul_dtn_client::flows::{
    CODE_FULL, CODE_LOST, CODE_SILENT, CODE_UNKNOWN, Event, FlowId, Limits, Machine, Read,
};

use self::net::{HEADER, LIFETIME, Net, Side, Taken};

const SECOND: Duration = Duration::from_secs(1);

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at.wrapping_mul(at) >> 5).to_le_bytes()[0])
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn streams_arrive_whole_and_in_order_however_bundles_travel(seed: u64, delay in 0_u64..300) {
        let mut net = Net::new(seed, delay);
        net.repeated = 20;
        let sent = [content(70_000), content(3), content(0)];
        let ids = [net.open(0), net.open(0), net.open(1)];
        net.write(0, ids[0], &sent[0]);
        net.write(0, ids[1], &sent[1]);
        net.write(1, ids[2], &sent[2]);
        net.run(LIFETIME * 2);
        for (side, count) in [(0, 3), (1, 3)] {
            prop_assert_eq!(net.sides[side].streams.len(), count);
            for taken in net.sides[side].streams.values() {
                prop_assert!(taken.has_ended, "{:?}", taken.failed);
            }
            prop_assert_eq!(net.sides[side].machine.counters().streams, 0);
        }
        let mut taken: Vec<_> = net.sides[1].streams.values().map(|taken| &taken.bytes).collect();
        taken.sort_by_key(|bytes| std::cmp::Reverse(bytes.len()));
        prop_assert_eq!(taken, [&sent[0], &sent[1], &sent[2]]);
    }

    #[test]
    fn a_restarted_gateway_takes_nothing_of_a_former_life(
        seed: u64,
        delay in 1_u64..100,
        after in 0_u64..100,
        restarted in 0_usize..2,
    ) {
        let mut net = Net::new(seed, delay);
        net.repeated = 10;
        let old = net.open(0);
        let _ = net.sides[0].machine.write(old, &content(2000));
        net.run(SECOND * u32::try_from(after).unwrap());
        let is_known = !net.sides[1].streams.is_empty();
        net.sides[restarted] = Side::new(900);
        if restarted == 1 {
            // If nothing had arrived, the new life takes the stream from its beginning.
            net.sides[0].machine.finish(old);
        }
        // The numbers of a life begin anew.
        let new = net.open(0);
        let sent = content(5000);
        net.write(0, new, &sent);
        net.run(LIFETIME * 5);
        let other = &net.sides[1 - restarted];
        // Of what came twice, the new life may have all.
        let mut anew = net.sides[1].streams.values();
        let is_whole = restarted == 1 && anew.any(|taken| taken.has_ended && taken.bytes == content(2000));
        if is_known && !is_whole || restarted == 1 && other.streams[&old].failed.is_some() {
            let old = other.streams.iter().find(|(id, taken)| match restarted {
                0 => taken.bytes != sent,
                _ => **id == old,
            });
            let (_, old) = old.unwrap();
            prop_assert!(old.failed.is_some(), "the other side believes in a stream that is gone");
        }
        let taken = &net.sides[1].streams;
        // A stream has the bytes of one life alone.
        for taken in taken.values() {
            let is_prefix = |whole: &[u8]| whole.starts_with(&taken.bytes);
            prop_assert!(is_prefix(&sent) || is_prefix(&content(2000)));
        }
        let whole = taken.values().filter(|taken| taken.bytes == sent && taken.has_ended);
        prop_assert_eq!(whole.count(), 1);
        for side in &net.sides {
            prop_assert_eq!(side.machine.counters().streams, 0);
        }
    }

    #[test]
    fn every_stream_ends_though_bundles_are_lost(seed: u64, lost in 0_u64..100) {
        let mut net = Net::new(seed, 10);
        net.lost = lost;
        let id = net.open(0);
        let sent = content(20_000);
        let written = net.sides[0].machine.write(id, &sent).unwrap();
        net.sides[0].machine.finish(id);
        net.run(LIFETIME * 20);
        for side in &net.sides {
            prop_assert_eq!(side.machine.counters().streams, 0, "{:#?}", side.machine);
            for taken in side.streams.values() {
                prop_assert!(taken.has_ended || taken.failed.is_some());
                prop_assert!(sent.starts_with(&taken.bytes));
            }
        }
        // What is missing at its end is no end.
        for taken in net.sides[1].streams.values() {
            prop_assert!(!taken.has_ended || taken.bytes == sent[..written]);
        }
    }

    #[test]
    fn datagrams_come_once_and_in_order_if_asked(seed: u64, is_ordered: bool, delay in 0_u64..30) {
        let mut net = Net::new(seed, delay);
        net.repeated = 30;
        let header = Bytes::from_static(HEADER);
        let opened = net.sides[0].machine.open_flow(net.now, 0, header, LIFETIME, is_ordered);
        let flow = opened.unwrap();
        for number in 0..300_u32 {
            let datagram = Bytes::copy_from_slice(&number.to_be_bytes());
            prop_assert!(net.sides[0].machine.send_datagram(net.now, flow, datagram));
            net.run(Duration::from_millis(7));
        }
        net.run(LIFETIME / 2);
        let mut came = net.sides[1].datagrams.clone();
        if !is_ordered {
            came.sort();
        }
        let sent: Vec<_> = (0..300_u32).map(|number| number.to_be_bytes().to_vec()).collect();
        prop_assert_eq!(came, sent);
        prop_assert_eq!(net.sides[1].began.len(), 1);
        let bundles = net.sides[0].machine.counters().bundles_sent;
        prop_assert!(bundles < 150, "{bundles} bundles for 300 datagrams");
    }
}

/// In the middle of an upload and of datagrams no contact is open for ten minutes: both go on, and all of both arrives once.
#[test]
fn a_stream_and_datagrams_outlast_ten_minutes_without_a_contact() {
    const HOUR: Duration = Duration::from_secs(3600);
    const STEP: Duration = Duration::from_secs(10);
    let mut net = Net::new(7, 2);
    let near = &mut net.sides[0].machine;
    let stream = near.open_stream(net.now, 0, HEADER.into(), HOUR).unwrap();
    let flow = near.open_flow(net.now, 0, HEADER.into(), HOUR, true);
    let flow = flow.unwrap();
    net.sides[0].streams.insert(stream, Taken::default());
    let begins = net.now + SECOND * 65;
    let ends = begins + SECOND * 600;
    net.closed = Some((begins, ends));
    // Twenty minutes of both.
    let sent = content(120_000);
    let mut before = None;
    for (number, part) in sent.chunks(1000).enumerate() {
        let near = &mut net.sides[0].machine;
        assert_eq!(near.write(stream, part).unwrap(), part.len());
        let datagram = Bytes::copy_from_slice(&number.to_be_bytes());
        assert!(near.send_datagram(net.now, flow, datagram));
        net.run(STEP);
        // What had left before it closed has arrived.
        if net.now > begins + STEP && net.now < ends {
            let arrived = net.sides[1].datagrams.len();
            assert_eq!(
                *before.get_or_insert(arrived),
                arrived,
                "no contact is open"
            );
        }
    }
    assert!(before.is_some_and(|count| count < 10));
    net.sides[0].machine.finish(stream);
    net.run(SECOND * 60);
    let far: Vec<&Taken> = net.sides[1].streams.values().collect();
    let [far] = far.as_slice() else {
        panic!("{} streams of one", far.len());
    };
    assert!(far.has_ended && far.bytes == sent, "{:?}", far.failed);
    let numbers = (0..120_usize).map(|number| number.to_be_bytes().to_vec());
    assert_eq!(net.sides[1].datagrams, numbers.collect::<Vec<_>>());
    for side in &net.sides {
        assert_eq!(side.machine.counters().streams, 0);
    }
}

/// As of RTP: after an outage that is longer than packets live the stream goes on with what is new, and what is too old does not come.
#[test]
fn a_live_stream_goes_on_after_an_outage_without_what_is_too_old() {
    const LIVES: u32 = 5;
    for is_ordered in [false, true] {
        let mut net = Net::new(9, 0);
        let near = &mut net.sides[0].machine;
        let flow = near.open_flow(net.now, 0, HEADER.into(), SECOND * LIVES, is_ordered);
        let flow = flow.unwrap();
        let [begins, ends] = [30, 90];
        net.closed = Some((net.now + SECOND * begins, net.now + SECOND * ends));
        // Ten in a second, for two minutes.
        for number in 0..1200_u32 {
            let datagram = Bytes::copy_from_slice(&number.to_be_bytes());
            assert!(net.sides[0].machine.send_datagram(net.now, flow, datagram));
            net.run(SECOND / 10);
        }
        net.run(SECOND * 20);
        let came = net.sides[1].datagrams.iter();
        let came: Vec<u32> = came
            .map(|datagram| u32::from_be_bytes(datagram[..].try_into().unwrap()))
            .collect();
        assert!(came.is_sorted_by(|a, b| a < b), "{is_ordered}: {came:?}");
        let begins = begins * 10;
        let alive = (ends - LIVES) * 10;
        let has = |number: &u32| came.binary_search(number).is_ok();
        // What is gathered in the moment of a change may go either way.
        let mut live = (0..begins - 1).chain(alive + 2..1200);
        assert!(live.all(|number| has(&number)), "{is_ordered}: {came:?}");
        let mut dead = begins + 2..alive - 2;
        assert!(!dead.any(|number| has(&number)), "{is_ordered}: {came:?}");
    }
}

#[test]
fn answers_of_the_target_come_back_and_a_silent_flow_is_forgotten() {
    let mut net = Net::new(7, 0);
    let header = Bytes::from_static(HEADER);
    let flow = net.sides[0]
        .machine
        .open_flow(net.now, 0, header, LIFETIME, true);
    let flow = flow.unwrap();
    let ask = Bytes::from_static(b"ask");
    net.sides[0]
        .machine
        .send_datagram(net.now, flow, ask.clone());
    let end = net.now + SECOND;
    let mut answered = false;
    while net.step(end) {
        while let Some(event) = net.sides[1].machine.poll_event() {
            if let Event::Datagrams(id, datagrams) = event {
                assert_eq!(datagrams, std::slice::from_ref(&ask));
                answered = net.sides[1]
                    .machine
                    .send_datagram(net.now, id, "answer".into());
            }
        }
    }
    assert!(answered);
    net.run(SECOND);
    assert_eq!(net.sides[0].datagrams, [Bytes::from_static(b"answer")]);
    net.run(LIFETIME * 2);
    assert_eq!(net.sides[1].ended, 1);
    assert_eq!(net.sides[0].ended, 0, "the client's end is its own");
}

#[test]
fn answers_come_after_the_far_gateway_has_forgotten_the_flow_or_restarted() {
    let mut net = Net::new(7, 0);
    let header = Bytes::from_static(HEADER);
    let flow = net.sides[0]
        .machine
        .open_flow(net.now, 0, header, LIFETIME, true);
    let flow = flow.unwrap();
    let ask = |net: &mut Net, answer: &'static str| {
        let machine = &mut net.sides[0].machine;
        assert!(machine.send_datagram(net.now, flow, "ask".into()));
        net.now += SECOND;
        let payload = machine.poll_transmit(net.now).unwrap().payload;
        machine.stored();
        let far = &mut net.sides[1].machine;
        far.handle(net.now, 0, payload).unwrap();
        // Its place in the order may be awaited.
        net.now += LIFETIME / 2;
        far.handle_timeout(net.now);
        let mut answered = false;
        while let Some(event) = far.poll_event() {
            if let Event::Datagrams(id, _) = event {
                answered |= far.send_datagram(net.now, id, answer.into());
            }
        }
        assert!(answered, "{answer}");
        net.now += SECOND;
        let payload = far.poll_transmit(net.now).unwrap().payload;
        far.stored();
        payload
    };
    let take = |net: &mut Net, answer: Bytes| {
        net.sides[0].machine.handle(net.now, 0, answer).unwrap();
        net.sides[0].work(net.now);
    };
    let answers = |net: &Net| net.sides[0].datagrams.clone();
    let first = ask(&mut net, "first");
    let late = ask(&mut net, "late");
    take(&mut net, first);
    net.sides[1] = Side::new(900);
    let restarted = ask(&mut net, "restarted");
    take(&mut net, restarted);
    net.now += LIFETIME;
    net.sides[1].work(net.now);
    assert_eq!(net.sides[1].ended, 1);
    let forgotten = ask(&mut net, "forgotten");
    take(&mut net, forgotten);
    // What still comes of the life before comes once.
    take(&mut net, late.clone());
    take(&mut net, late);
    assert_eq!(answers(&net), ["first", "restarted", "forgotten", "late"]);
    assert_eq!(net.sides[0].machine.counters().repeated, 1);
}

#[test]
fn a_late_first_answer_of_a_dead_far_gateway_does_not_silence_the_living_one() {
    for is_ordered in [false, true] {
        let mut net = Net::new(7, 0);
        let header = Bytes::from_static(HEADER);
        let machine = &mut net.sides[0].machine;
        let flow = machine.open_flow(net.now, 0, header, LIFETIME, is_ordered);
        let flow = flow.unwrap();
        assert!(machine.send_datagram(net.now, flow, "ask".into()));
        net.now += SECOND;
        let ask = machine.poll_transmit(net.now).unwrap().payload;
        machine.stored();
        // Both lives of the far gateway take it, and answer.
        let answers = ["dead", "living"].map(|life| {
            let mut far = Side::new(life.len() as u64);
            far.machine.handle(net.now, 0, ask.clone()).unwrap();
            let mut began = None;
            while let Some(event) = far.machine.poll_event() {
                if let Event::FlowBegan(id, _) = event {
                    began = Some(id);
                }
            }
            [0, 1, 2].map(|number| {
                let answer = format!("{life} {number}");
                far.machine
                    .send_datagram(net.now, began.unwrap(), answer.into());
                let payload = far.machine.poll_transmit(net.now + SECOND);
                far.machine.stored();
                payload.unwrap().payload
            })
        });
        let [dead, living] = &answers;
        let late = [
            &living[0], &dead[0], &living[1], &dead[0], &living[0], &living[2],
        ];
        for answer in late {
            let machine = &mut net.sides[0].machine;
            machine.handle(net.now, 0, answer.clone()).unwrap();
        }
        net.sides[0].work(net.now);
        let came = &net.sides[0].datagrams;
        assert_eq!(*came, ["living 0", "dead 0", "living 1", "living 2"]);
        assert_eq!(net.sides[0].machine.counters().repeated, 2);
    }
}

/// Clients of one datagram each, with a port of their own, as of a log.
#[test]
fn a_flow_that_has_sent_all_gives_way_to_a_new_one_and_one_that_waits_does_not() {
    let mut net = Net::new(7, 0);
    let machine = &mut net.sides[0].machine;
    let mut open = |now| machine.open_flow(now, 0, Bytes::from_static(HEADER), LIFETIME, false);
    let waiting: Vec<_> = (0..4).map(|_| open(net.now).unwrap()).collect();
    for flow in &waiting {
        assert!(machine.send_datagram(net.now, *flow, "waits".into()));
    }
    let header = Bytes::from_static(HEADER);
    let refused = machine.open_flow(net.now, 0, header.clone(), LIFETIME, false);
    assert_eq!(refused, None, "all have something to send");
    net.run(SECOND * 2);
    for number in 0..20 {
        net.now += SECOND;
        let machine = &mut net.sides[0].machine;
        let flow = machine.open_flow(net.now, 0, header.clone(), LIFETIME, false);
        let text = format!("one of {number}");
        assert!(machine.send_datagram(net.now, flow.unwrap(), text.into()));
        net.run(SECOND * 2);
        assert_eq!(net.sides[0].ended, number + 1);
    }
    assert_eq!(net.sides[1].datagrams.len(), 24);
}

#[test]
fn a_datagram_that_the_node_may_have_is_not_delivered_by_two_lives() {
    let mut net = Net::new(7, 0);
    let header = Bytes::from_static(HEADER);
    let flow = net.sides[0]
        .machine
        .open_flow(net.now, 0, header, LIFETIME, false);
    let flow = flow.unwrap();
    let once = |net: &mut Net| {
        net.sides[0]
            .machine
            .send_datagram(net.now, flow, "once".into());
        net.now += SECOND;
        net.sides[0].machine.poll_transmit(net.now).unwrap().payload
    };
    let first = once(&mut net);
    // The node has it, and does not say so.
    net.sides[1].machine.handle(net.now, 0, first).unwrap();
    net.sides[0].machine.failed(true);
    let again = net.sides[0].machine.poll_transmit(net.now).unwrap().payload;
    net.sides[0].machine.stored();
    let mut restarted = Side::new(903);
    for side in [&mut net.sides[1], &mut restarted] {
        side.machine.handle(net.now, 0, again.clone()).unwrap();
        side.work(net.now);
    }
    assert_eq!(net.sides[1].datagrams.len(), 1);
    assert_eq!(restarted.datagrams.len(), 0);
    // A node without room has none: what it refused for now may come as new.
    let later = once(&mut net);
    net.sides[0].machine.failed(false);
    assert_eq!(
        net.sides[0].machine.poll_transmit(net.now).unwrap().payload,
        later
    );
    restarted.machine.handle(net.now, 0, later).unwrap();
    restarted.work(net.now);
    assert_eq!(restarted.datagrams.len(), 1);
}

#[test]
fn a_reader_that_does_not_read_stops_the_writer_and_costs_bounded_memory() {
    let mut net = Net::new(7, 1);
    net.sides[1].reads = false;
    let id = net.open(0);
    let mut written = 0;
    for _ in 0..10_000 {
        written += net.sides[0].machine.write(id, &[1; 1000]).unwrap();
        net.run(Duration::from_millis(1));
    }
    net.run(SECOND * 5);
    assert!(
        (1 << 20..(1 << 20) + 3000).contains(&written),
        "{written} bytes"
    );
    // Outages and readers of many lifetimes do no harm: both sides tell each other that they live.
    net.run(LIFETIME * 20);
    assert_eq!(net.sides[0].streams[&id].failed, None);
    net.sides[1].reads = true;
    net.write(0, id, &[1; 1000]);
    net.run(LIFETIME);
    let taken = net.sides[1].streams.values().next().unwrap();
    assert!(taken.has_ended);
    assert_eq!(taken.bytes.len(), written + 1000);
}

#[test]
fn half_closes_and_resets_pass() {
    let mut net = Net::new(7, 1);
    let id = net.open(0);
    net.write(0, id, b"question");
    net.sides[1].reads = false;
    net.run(SECOND * 3);
    let far = *net.sides[1].streams.keys().next().unwrap();
    let machine = &mut net.sides[1].machine;
    assert_eq!(machine.read(far), Ok(Some(Read::Data("question".into()))));
    assert_eq!(machine.read(far), Ok(Some(Read::End)));
    assert_eq!(machine.write(far, b"answer"), Ok(6));
    net.run(SECOND * 3);
    assert_eq!(net.sides[0].streams[&id].bytes, b"answer");
    net.sides[1].machine.reset(far, 1);
    net.run(SECOND * 3);
    assert_eq!(net.sides[0].streams[&id].failed, Some(1));
    assert_eq!(net.sides[0].machine.counters().streams, 0);
}

#[test]
fn what_cannot_be_ends_with_its_reason() {
    // A far gateway that has as many streams as it takes.
    let mut net = Net::new(7, 0);
    let ids = [net.open(0), net.open(0), net.open(0), net.open(0)];
    net.run(SECOND);
    let opened = net.sides[0]
        .machine
        .open_stream(net.now, 0, Bytes::new(), LIFETIME);
    assert_eq!(opened, None);
    net.sides[0].machine.reset(ids[0], 1);
    net.sides[0].work(net.now);
    // The far side has not heard of the end.
    let fifth = net.open(0);
    let reset = net.sides[0].machine.poll_transmit(net.now).unwrap().payload;
    net.sides[0].machine.stored();
    net.run(SECOND);
    assert_eq!(net.sides[0].streams[&fifth].failed, Some(CODE_FULL));
    assert_eq!(net.sides[1].machine.counters().limited, 1);
    net.sides[1].machine.handle(net.now, 0, reset).unwrap();
    // One that does not answer.
    let mut net = Net::new(7, 0);
    net.lost = 100;
    let id = net.open(0);
    net.run(LIFETIME * 4);
    assert_eq!(net.sides[0].streams[&id].failed, Some(CODE_SILENT));
    // A bundle that expired.
    let mut net = Net::new(7, 0);
    let id = net.open(0);
    net.run(SECOND);
    net.lost = 100;
    net.sides[0].machine.write(id, b"lost").unwrap();
    net.run(SECOND);
    net.lost = 0;
    net.write(0, id, b"more");
    net.run(LIFETIME * 2);
    assert_eq!(net.sides[0].streams[&id].failed, Some(CODE_LOST));
    // A far gateway that has restarted.
    let mut net = Net::new(7, 0);
    let id = net.open(0);
    net.run(SECOND);
    net.sides[1].work(net.now);
    let far = *net.sides[1].streams.keys().next().unwrap();
    net.sides[1].machine.write(far, b"hello").unwrap();
    net.run(SECOND);
    net.sides[1] = Side::new(900);
    net.sides[0].machine.write(id, b"more").unwrap();
    net.run(SECOND);
    assert_eq!(net.sides[0].streams[&id].failed, Some(CODE_UNKNOWN));
    assert!(net.sides[1].streams.is_empty());
}

#[test]
fn a_stream_whose_last_bundle_is_refused_gives_its_place_back() {
    let limits = Limits {
        flows: 1,
        window: 1 << 20,
        part_bytes: 1000,
    };
    let (mut machine, now) = (Machine::new(7, limits), Instant::now());
    let open = |machine: &mut Machine| machine.open_stream(now, 0, HEADER.into(), LIFETIME);
    let id = open(&mut machine).unwrap();
    assert!(machine.poll_transmit(now).is_some());
    // The application is gone while the node looks at the bundle.
    machine.release(id);
    assert_eq!(open(&mut machine), None, "the bundle may be needed again");
    machine.refused();
    assert!(open(&mut machine).is_some());
}

#[test]
fn a_stream_whose_beginning_expired_ends_whatever_else_of_it_comes() {
    let mut net = Net::new(7, 0);
    let id = net.open(0);
    let next = |net: &mut Net| {
        let opener = &mut net.sides[0].machine;
        let payload = opener.poll_transmit(net.now).unwrap().payload;
        opener.stored();
        payload
    };
    // The bundle with the header is lost.
    next(&mut net);
    for _ in 0..3 {
        net.sides[0].machine.write(id, &[1; 10]).unwrap();
        let part = next(&mut net);
        let accepter = &mut net.sides[1].machine;
        accepter.handle(net.now, 0, part).unwrap();
        assert_eq!(accepter.poll_transmit(net.now), None);
        net.now += LIFETIME / 2;
        accepter.handle_timeout(net.now);
        if accepter.counters().streams == 0 {
            break;
        }
    }
    let accepter = &mut net.sides[1].machine;
    assert_eq!(accepter.counters().streams, 0, "it waits for ever");
    let reset = accepter.poll_transmit(net.now).unwrap().payload;
    net.sides[0].machine.handle(net.now, 0, reset).unwrap();
    assert_eq!(net.sides[0].machine.failure(id), Some(CODE_LOST));
}

/// Streams of a gateway that died hold places until their lifetime is over unless something of its next life is heard.
#[test]
fn idle_streams_of_a_former_life_end_when_the_next_one_is_heard() {
    let mut net = Net::new(7, 1);
    for side in [0, 1] {
        net.open(side);
    }
    net.run(SECOND * 3);
    // It accepted one, and says so by what it sends.
    let accepted: Vec<FlowId> = net.sides[0].streams.keys().copied().collect();
    for id in accepted {
        net.sides[0].machine.write(id, b"hello").unwrap();
    }
    net.run(SECOND * 3);
    assert_eq!(net.sides[1].machine.counters().streams, 2);
    net.sides[0] = Side::new(103);
    net.run(LIFETIME / 4);
    assert_eq!(net.sides[1].machine.counters().streams, 2);
    net.open(0);
    net.run(SECOND * 5);
    assert_eq!(net.sides[1].machine.counters().streams, 1);
}

#[test]
fn what_has_come_whole_waits_for_its_reader() {
    let mut net = Net::new(7, 1);
    net.sides[1].reads = false;
    let id = net.open(0);
    net.write(0, id, b"all of it");
    net.run(SECOND * 3);
    let far = *net.sides[1].streams.keys().next().unwrap();
    // Nothing goes back, and the near side has forgotten the stream.
    net.sides[1].machine.finish(far);
    net.run(LIFETIME * 10);
    net.sides[1].reads = true;
    net.run(SECOND);
    let taken = &net.sides[1].streams[&far];
    assert_eq!(
        (&taken.bytes[..], taken.has_ended),
        (&b"all of it"[..], true)
    );
}

/// Answers to datagrams carry names of their flows where other messages have a life: no stream is asked for because of them.
#[test]
fn answers_to_datagrams_ask_for_no_stream() {
    let mut net = Net::new(7, 0);
    net.open(0);
    net.run(SECOND * 3);
    let accepted: Vec<FlowId> = net.sides[1].streams.keys().copied().collect();
    for id in accepted {
        net.sides[1].machine.write(id, b"hello").unwrap();
    }
    net.run(SECOND * 3);
    let (near, now) = (&mut net.sides[0].machine, net.now);
    let sent_before = near.counters().bundles_sent;
    let mut asked = 0;
    for _ in 0..4 {
        let flow = near
            .open_flow(now, 0, HEADER.into(), LIFETIME, false)
            .unwrap();
        assert!(near.send_datagram(now, flow, "question".into()));
        asked += 1;
    }
    net.run(SECOND);
    let flows: Vec<FlowId> = net.sides[1].began.clone();
    for flow in flows {
        let now = net.now;
        assert!(
            net.sides[1]
                .machine
                .send_datagram(now, flow, "answer".into())
        );
    }
    net.run(SECOND);
    assert_eq!(net.sides[0].datagrams.len(), 4);
    let sent = net.sides[0].machine.counters().bundles_sent - sent_before;
    assert_eq!(sent, asked, "bundles of more than the questions");
}
