//! The prober in real time, over links on loopback and against various hosts.
#![allow(clippy::unwrap_used, reason = "a test harness")]

use std::{
    net::SocketAddr,
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use starhaul_cc::{ProbeMethod, ProbeTarget, Reconfiguration, ReconfigurationSource};
use starhaul_needs::{Need, Sleeper, skip};
use starhaul_net::{
    BindOptions, Poller, RecvBuffer, Transmit, UdpSocket,
    prober::{EchoServer, ProbedBy, Prober, ProberConfig, ProberEvent, ProberStatus, Stage, Via},
};
use starhaul_replay::{Emulator, RelaySpec};

const MS: Duration = Duration::from_millis(1);
/// Longer than any step here takes, however busy the computer.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(config: ProberConfig) -> (Prober, Receiver<ProberEvent>) {
    let (tell, events) = channel();
    let prober = Prober::start(config, move |event| {
        let _ = tell.send(event);
    });
    (prober.unwrap(), events)
}

/// The first event for which `which` returns a value.
fn wait_for<T>(
    events: &Receiver<ProberEvent>,
    mut which: impl FnMut(&ProberEvent) -> Option<T>,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let event = events.recv_timeout(left).expect("it came within a minute");
        if let Some(found) = which(&event) {
            return found;
        }
    }
}

fn by_udp(remote: SocketAddr) -> ProberConfig {
    let mut config = ProberConfig::toward(remote);
    config.detection.method = ProbeMethod::Udp;
    config
}

fn found_in(events: &Receiver<ProberEvent>) -> Vec<Reconfiguration> {
    let found = events.try_iter().filter_map(|event| match event {
        ProberEvent::Reconfiguration(found) => Some(found),
        _ => None,
    });
    found.collect()
}

/// Two outages; if the emulator itself or the prober was late, the run proves nothing.
#[test]
fn outages_of_a_link_are_found_by_udp_echo_and_nothing_else_is() {
    let server = EchoServer::start("127.0.0.1:0".parse().unwrap()).unwrap();
    let outages = [(2500, 90), (4000, 130)];
    let spec = "rate=20mbit,delay=10ms,outage=2500ms..2590ms,outage=4000ms..4130ms";
    let (begun, sleeper) = (Instant::now(), Sleeper::start());
    let emulator = Emulator::start(vec![RelaySpec {
        target: server.local_addr(),
        forward: spec.parse().unwrap(),
        reverse: "delay=10ms".parse().unwrap(),
        seed: 1,
    }])
    .unwrap();
    let relay = &emulator.relays()[0];
    let (prober, events) = start(by_udp(relay.address()));
    let by = wait_for(&events, |event| match event {
        ProberEvent::Stage(Stage::Probing { by, .. }) => Some(*by),
        _ => None,
    });
    assert_eq!(by, ProbedBy::UdpEcho);
    std::thread::sleep((begun + 5000 * MS).saturating_duration_since(Instant::now()));
    let (found, status) = (found_in(&events), prober.status());
    let is_in_time = sleeper.end().were_in_time();
    if relay.stats().lateness.quantile(0.99) > MS || !is_in_time {
        return skip(Need::Time, "this computer is too busy to keep it");
    }
    assert_eq!(found.len(), outages.len(), "{found:?}, {status:?}");
    for (found, (from, length)) in found.iter().zip(outages) {
        let late = found
            .at
            .checked_duration_since(begun + MS * (from + length));
        let late = late.unwrap_or_else(|| panic!("before its end: {found:?}"));
        assert!(late < 150 * MS, "{late:?} after its end");
    }
    assert!(status.rtt.unwrap() >= 20 * MS, "{status:?}");
    assert_eq!(status.found, 2);
    assert!(status.answered * 100 > status.sent * 90, "{status:?}");
}

/// At the end of the trial a third of the answers is in flight, and the path drops a third of the rest.
#[test]
fn a_far_end_behind_a_slow_and_lossy_path_is_probed_on() {
    let server = EchoServer::start("127.0.0.1:0".parse().unwrap()).unwrap();
    let emulator = Emulator::start(vec![RelaySpec {
        target: server.local_addr(),
        forward: "delay=300ms,loss=20%".parse().unwrap(),
        reverse: "delay=300ms,loss=20%".parse().unwrap(),
        seed: 1,
    }])
    .unwrap();
    let (prober, events) = start(by_udp(emulator.relays()[0].address()));
    let deadline = Instant::now() + PATIENCE;
    while prober.status().answered < 200 {
        assert!(Instant::now() < deadline, "{:?}", prober.status());
        std::thread::sleep(50 * MS);
    }
    let stages = events.try_iter().filter_map(|event| match event {
        ProberEvent::Stage(stage) => Some(stage),
        _ => None,
    });
    let stages: Vec<_> = stages.collect();
    assert!(
        matches!(stages[..], [Stage::Probing { .. }]),
        "{stages:?}, {:?}",
        prober.status()
    );
}

#[test]
fn a_far_end_that_does_not_echo_is_named_and_asked_again() {
    let silent = UdpSocket::bind(&BindOptions::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let (_prober, events) = start(by_udp(silent.local_addr()));
    let problem = wait_for(&events, |event| match event {
        ProberEvent::Stage(Stage::Waiting { problem }) => Some(problem.clone()),
        _ => None,
    });
    let address = silent.local_addr().to_string();
    assert!(problem.contains(&address), "{problem}");
    drop(silent);
    let server = EchoServer::start(address.parse().unwrap()).unwrap();
    wait_for(&events, |event| {
        matches!(event, ProberEvent::Stage(Stage::Probing { .. })).then_some(())
    });
    drop(server);
}

/// Answers to other probers, duplicates, noise, and invalid cookies.
#[test]
fn a_hostile_far_end_makes_it_find_nothing() {
    let far = UdpSocket::bind(&BindOptions::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let remote = far.local_addr();
    let (prober, events) = start(by_udp(remote));
    let mut responder = starhaul_net::prober::EchoResponder::new([3; 32], Instant::now());
    let (mut poller, mut buffer) = (Poller::new().unwrap(), RecvBuffer::new());
    let begun = Instant::now();
    let (mut n, mut answered, mut longest) = (0u8, begun, Duration::ZERO);
    while begun.elapsed() < 1500 * MS {
        let until = Instant::now() + 20 * MS;
        poller.wait(&[(&far, false)], Some(until)).unwrap();
        while far.try_recv(&mut buffer).unwrap() {
            for question in buffer.datagrams() {
                let now = Instant::now();
                let answer =
                    responder.answer(now, SystemTime::now(), question.remote, question.payload);
                let Some(answer) = answer else { continue };
                let mut foreign = answer;
                foreign[24] ^= 1; // the token
                let mut later = answer;
                later[39] = later[39].wrapping_add(50); // a number that was not sent yet
                n = n.wrapping_add(1);
                longest = longest.max(now - answered);
                answered = now;
                for contents in [&foreign[..], &later, &answer, &answer, &[n; 40], &[]] {
                    let transmit = Transmit {
                        to: question.remote,
                        from: None,
                        ecn: 0,
                        contents,
                        segment_size: 40,
                    };
                    far.try_send(&transmit).unwrap();
                }
            }
        }
    }
    let status = prober.status();
    assert!(status.answered > 20, "{status:?}");
    if longest > 25 * MS {
        return skip(
            Need::Time,
            "this computer is too busy to answer within 25 ms",
        );
    }
    assert_eq!(found_in(&events), [], "{status:?}");
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let mut config = by_udp("127.0.0.1:9".parse().unwrap());
    config.via = Via {
        local: None,
        interface: Some("nosuchif0".into()),
    };
    for method in [ProbeMethod::Udp, ProbeMethod::Icmp] {
        config.detection.method = method;
        config.detection.target = ProbeTarget::Host("127.0.0.1".parse().unwrap());
        let (_prober, events) = start(config.clone());
        let problem = wait_for(&events, |event| match event {
            ProberEvent::Stage(Stage::Waiting { problem }) => Some(problem.clone()),
            _ => None,
        });
        let said = problem.contains("nosuchif0") || problem.contains("no permission for ICMP");
        assert!(said, "{problem}");
    }
}

/// The loopback is one hop away and has no satellite; without permission for ICMP the status says so.
#[test]
fn the_search_finds_the_end_of_a_way_without_routers() {
    let mut config = ProberConfig::toward("127.0.0.1:9".parse().unwrap());
    config.detection.method = ProbeMethod::Icmp;
    let (prober, events) = start(config);
    let stage = wait_for(&events, |event| match event {
        ProberEvent::Stage(Stage::Searching) => None,
        ProberEvent::Stage(stage) => Some(stage.clone()),
        _ => None,
    });
    match stage {
        Stage::Probing { target, found, .. } => {
            assert!(target.is_loopback());
            assert_eq!(found.unwrap().hops, 1);
            wait_for(&events, |event| {
                matches!(event, ProberEvent::SegmentRtt { .. }).then_some(())
            });
            assert!(prober.status().answered > 0);
        }
        Stage::Waiting { problem } => {
            assert!(problem.contains("net.ipv4.ping_group_range"), "{problem}");
            skip(Need::Icmp, problem);
        }
        Stage::Searching => unreachable!("filtered"),
    }
}

/// A timetable by the wall clock is used only while probing is impossible.
#[test]
fn while_nobody_can_be_probed_the_timetable_alone_tells() {
    let mut config = by_udp("127.0.0.1:9".parse().unwrap());
    config.detection.timetable = Some("0 every 1s".parse().unwrap());
    config.via.interface = Some("nosuchif0".into());
    let (prober, events) = start(config);
    let hint = || {
        wait_for(&events, |event| match event {
            ProberEvent::Reconfiguration(told) => Some(*told),
            _ => None,
        })
    };
    let (first, second) = (hint(), hint());
    for told in [first, second] {
        assert_eq!(told.source, ReconfigurationSource::Schedule);
        assert_eq!(told.outage, Duration::ZERO);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - told.at.elapsed();
        let past = unix.subsec_millis();
        assert!(
            (115..155).contains(&past),
            "{past} ms after the full second"
        );
    }
    let apart = second.at - first.at;
    let seconds = apart.as_secs_f64().round();
    assert!(
        seconds >= 1.0 && (apart.as_secs_f64() - seconds).abs() < 0.02,
        "{apart:?}"
    );
    let status = prober.status();
    assert_eq!(status.found, 0, "nobody found them");
    assert!(status.problem.unwrap().contains("nosuchif0"));
}

/// One probe per second instead of a hundred; the timetable signals what was missed meanwhile.
#[test]
fn a_prober_that_rests_probes_seldom_and_works_again_at_once() {
    let server = EchoServer::start("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut config = by_udp(server.local_addr());
    config.detection.timetable = Some("0 every 1s".parse().unwrap());
    let (prober, events) = start(config);
    let status_when = |ready: &dyn Fn(&ProberStatus) -> bool| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = prober.status();
            if ready(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "{status:?}");
            std::thread::sleep(5 * MS);
        }
    };
    prober.rest(true);
    // Rest begins once the address has answered; its counters are as of then.
    let rested = status_when(&|status| status.resting);
    let (begun, _) = (Instant::now(), found_in(&events));
    let later = status_when(&|status| status.answered >= rested.answered + 5);
    let most = begun.elapsed().as_secs() + 2;
    let sent = later.sent - rested.sent;
    assert!(sent <= most + 30, "{sent} probes, at most {most} were due");
    assert_eq!(found_in(&events), [], "it finds nothing and tells nothing");
    prober.rest(false);
    let told = wait_for(&events, |event| match event {
        ProberEvent::Reconfiguration(told) => Some(*told),
        _ => None,
    });
    assert_eq!(told.source, ReconfigurationSource::Schedule);
    assert!(
        told.at <= Instant::now() && told.at > begun,
        "the last time that passed"
    );
    status_when(&|status| !status.resting && status.answered >= later.answered + 100);
}
