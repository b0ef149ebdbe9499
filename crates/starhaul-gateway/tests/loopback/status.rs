//! What the status says of what was carried.

use std::time::{Duration, Instant};

use starhaul_gateway::{
    Resolver,
    status::{Status, Traffic},
};
use tokio::net::{TcpStream, UdpSocket};

use super::gateways::{
    ALLOW_LOOPBACK, ask, pair, pair_with, pattern, run, tcp_echo_after_end, udp_echo, until,
};

fn bytes(traffic: Traffic) -> (u64, u64) {
    (traffic.sent_bytes, traffic.received_bytes)
}

/// Of the flows of one rule: streams that are open, and all bytes.
fn flow(status: &Status, rule: &str) -> (u64, u64, u64) {
    let flows = status.peers[0].flows.iter();
    let flows = flows.filter(|flow| flow.rule.as_deref() == Some(rule));
    flows.fold((0, 0, 0), |(open, sent, received), flow| {
        let (more_sent, more_received) = bytes(flow.totals.traffic);
        let open = open + flow.totals.streams;
        (open, sent + more_sent, received + more_received)
    })
}

#[test]
fn the_optimizer_of_a_gateway_says_its_plan_and_why() {
    run(async {
        let udp = udp_echo().await;
        let rule = format!(
            "[[udp]]\nname = \"u\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{udp}\"\ndeadline = \"800ms\"\npriority = 1\n"
        );
        let top = "scheduler = \"optimizer\"\n";
        let pair = pair_with(top, &rule, ALLOW_LOOPBACK, Resolver::default()).await;
        let scheduler = || pair.near.report().sessions[0].scheduler.clone();
        assert_eq!(
            (scheduler().name.as_str(), scheduler().reason),
            ("optimizer", None)
        );
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = pair.near.ingress_address("u").unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        // Until both paths are up and a plan was made for them.
        while scheduler().classes.is_empty() {
            assert!(Instant::now() < deadline, "no plan: {:?}", scheduler());
            client.send_to(&[1; 1000], address).await.unwrap();
            // What a busy computer holds up for longer than its deadline has no answer.
            let mut answer = [0; 2000];
            let answered = client.recv(&mut answer);
            let _ = tokio::time::timeout(Duration::from_secs(1), answered).await;
        }
        let planned = scheduler();
        assert!(planned.plans > 0 && planned.reason.is_some(), "{planned:?}");
        let class = &planned.classes[0];
        assert_eq!((class.priority, class.deadline_ms), (1, 512), "{planned:?}");
        let names = class.ways.iter().map(|way| way.path.as_str());
        assert!(
            names.clone().count() > 0
                && names.clone().all(|name| ["path0", "path1"].contains(&name)),
            "{planned:?}"
        );
        // A gateway that chooses by rules says so, and no more.
        pair.end().await;
        let rules = super::gateways::pair(&rule, ALLOW_LOOPBACK).await;
        let scheduler = rules.near.report().sessions[0].scheduler.clone();
        assert_eq!((scheduler.name.as_str(), scheduler.plans), ("rules", 0));
        rules.end().await;
    });
}

#[test]
fn totals_outlive_streams_and_sessions_and_add_up_on_both_sides() {
    run(async {
        const SIZE: usize = 200_000;
        let (udp, tcp) = (udp_echo().await, tcp_echo_after_end("127.0.0.1:0").await);
        let rules = format!(
            "[[udp]]\nname = \"u\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{udp}\"\ndeadline = \"20s\"\n\
             priority = 1\nidle_timeout = \"3s\"\n\
             [[tcp]]\nname = \"t\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{tcp}\"\npriority = 5\n"
        );
        let pair = pair(&rules, ALLOW_LOOPBACK).await;
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = pair.near.ingress_address("u").unwrap();
        client.send_to(&[1; 1000], address).await.unwrap();
        client.recv(&mut [0; 2000]).await.unwrap();
        let data = pattern(SIZE);
        let address = pair.near.ingress_address("t").unwrap();
        let answer = ask(TcpStream::connect(address).await.unwrap(), &data).await;
        assert!(answer == data);

        // All streams end, and with them what the list of streams says of them.
        until(|| flow(&pair.near.report(), "t").0 == 0).await;
        until(|| flow(&pair.near.report(), "u").0 == 0).await;
        let near = pair.near.report();
        let (sent, received) = (SIZE as u64, SIZE as u64);
        // The far side's answer goes before what the target sends.
        let tcp = (sent, received + 20);
        assert_eq!(bytes(near.ingress[1].traffic), tcp, "the TCP rule");
        assert_eq!(bytes(near.ingress[0].traffic), (1000, 1000), "the UDP rule");
        let classes: Vec<_> = near.classes.iter().map(|class| &class.totals).collect();
        assert_eq!(
            classes
                .iter()
                .map(|class| class.priority)
                .collect::<Vec<_>>(),
            [1, 5]
        );
        assert_eq!(bytes(classes[1].traffic), tcp);
        assert_eq!(
            (classes[0].blocks.on_time, classes[0].streams_total),
            (1, 2)
        );
        assert_eq!(bytes(near.peers[0].traffic), (sent + 1000, received + 1020));
        assert!(near.sessions[0].traffic.sent_bytes > sent, "by the paths");

        // The other side sees the same from its end, and keeps it when the session is gone.
        let near_says = |(sent, received): (u64, u64)| (received, sent);
        until(|| flow(&pair.far.report(), "t").0 == 0).await;
        pair.near.shutdown().await;
        until(|| pair.far.report().sessions.is_empty()).await;
        let far = pair.far.report();
        let flows = &far.peers[0].flows;
        assert!(flows.iter().all(|flow| flow.rule_of == "peer"), "{flows:?}");
        let (_, sent, received) = flow(&far, "t");
        assert_eq!((sent, received), near_says(tcp));
        pair.far.shutdown().await;
    });
}

#[test]
fn rates_are_told_while_something_passes_and_fall_when_it_stops() {
    run(async {
        let tcp = tcp_echo_after_end("127.0.0.1:0").await;
        let rule = format!("[[tcp]]\nname = \"t\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{tcp}\"\n");
        let pair = pair(&rule, ALLOW_LOOPBACK).await;
        let address = pair.near.ingress_address("t").unwrap();
        let data = pattern(3_000_000);
        ask(TcpStream::connect(address).await.unwrap(), &data).await;
        // However slow the computer: it goes on until its rate was seen.
        let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
        let flow = tokio::spawn(async move {
            while stopped.try_recv().is_err() {
                ask(TcpStream::connect(address).await.unwrap(), &data).await;
            }
        });
        let rates = || {
            let status = pair.near.report();
            let paths = &status.sessions[0].paths;
            [
                status.ingress[0].traffic,
                status.peers[0].traffic,
                status.classes[0].totals.traffic,
                paths.iter().map(|path| path.traffic).sum(),
            ]
        };
        let is = |traffic: &Traffic, fast: bool| {
            let rates = [traffic.sent_bit_per_s, traffic.received_bit_per_s];
            rates
                .iter()
                .all(|rate| rate.is_some_and(|rate| (rate > 1_000_000) == fast))
        };
        until(|| rates().iter().all(|traffic| is(traffic, true))).await;
        stop.send(()).unwrap();
        flow.await.unwrap();
        until(|| rates().iter().all(|traffic| is(traffic, false))).await;
        assert!(
            rates()
                .iter()
                .all(|traffic| traffic.mean_sent_bit_per_s > 0)
        );
        pair.end().await;
    });
}
