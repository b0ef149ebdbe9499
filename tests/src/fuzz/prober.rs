//! Detection on the satellite hop: the detector and the search by lists of operations, and any datagrams to a prober.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant, SystemTime},
};

use arbitrary::{Result, Unstructured};
use starhaul_cc::{Detector, DetectorConfig, Schedule};
use starhaul_net::prober::{
    ECHO_BYTES, EchoMessage, EchoResponder, HopSearch, IpVersion, number_behind_token, parse_icmp,
};

/// A detector with probes and answers in any order, at any time: it finds no more events than its refractory time
/// allows, with plausible values.
pub fn detector(data: &[u8]) {
    let mut now = Instant::now() + Duration::from_secs(100_000);
    let mut source = Unstructured::new(data);
    let mut config = DetectorConfig::default();
    if source.arbitrary().unwrap_or(false) {
        config.schedule = Some(Schedule {
            anchor: now,
            period: Duration::from_millis(source.arbitrary::<u16>().unwrap_or(1).into()),
        });
    }
    let mut detector = Detector::new(config, now);
    let (mut newest, mut last_found) = (0, None::<Instant>);
    while !source.is_empty() {
        let Ok(found) = watch(&mut source, &mut now, &mut newest, &mut detector) else {
            break;
        };
        let Some(event) = found else { continue };
        assert!((0.0..=1.0).contains(&event.confidence), "{event:?}");
        assert!(event.outage >= Duration::from_millis(30), "{event:?}");
        assert!(event.at <= now, "found in the future: {event:?}");
        if let Some(last) = last_found {
            assert!(
                event.at >= last + config.refractory,
                "two within the refractory time"
            );
        }
        last_found = Some(event.at);
    }
}

fn watch(
    source: &mut Unstructured<'_>,
    now: &mut Instant,
    newest: &mut u64,
    detector: &mut Detector,
) -> Result<Option<starhaul_cc::Reconfiguration>> {
    let operation: u8 = source.arbitrary()?;
    let back = u64::from(source.arbitrary::<u8>()?);
    let sequence = newest.wrapping_sub(back);
    let earlier = *now - Duration::from_millis(back);
    match operation % 8 {
        0..=1 => {
            *now = (*now).max(detector.next_probe());
            *newest = detector.on_probe_sent(*now);
        }
        2 => *newest = detector.on_probe_sent(*now),
        3 => return Ok(detector.on_response(*now, sequence)),
        4 => return Ok(detector.on_response(earlier, sequence)),
        5 => detector.on_probe_left(earlier, sequence),
        6 if operation & 64 != 0 => detector.on_probe_refused(sequence),
        6 => {
            let rtt = detector.segment_rtt();
            assert!(rtt.is_none_or(|rtt| rtt < Duration::from_secs(100_000)));
            let outage = detector.outage_in_progress(*now);
            assert!(outage.is_none_or(|outage| outage > Duration::from_millis(45)));
        }
        _ => {
            *now += Duration::from_micros(u64::from(source.arbitrary::<u16>()?));
        }
    }
    Ok(None)
}

/// Datagrams to a prober's sockets, as ICMP of both versions and as echo, for client and responder.
pub fn prober_datagram(data: &[u8]) {
    let Some((token, packet)) = data.split_first_chunk::<8>() else {
        return;
    };
    for (version, behind_header) in [
        (IpVersion::V4, true),
        (IpVersion::V4, false),
        (IpVersion::V6, false),
    ] {
        parse_icmp(version, behind_header, *token, packet);
    }
    number_behind_token(*token, packet);
    if let Some(message) = EchoMessage::decode(packet) {
        let again = message.encode();
        assert_eq!(EchoMessage::decode(&again), Some(message));
    }
    let now = Instant::now();
    let mut responder = EchoResponder::new([7; 32], now);
    let from = (Ipv4Addr::new(192, 0, 2, 1), 4711).into();
    if let Some(answer) = responder.answer(now, SystemTime::UNIX_EPOCH, from, packet) {
        assert!(answer.len() <= packet.len(), "it amplifies");
        assert_eq!(packet.len(), ECHO_BYTES);
        let echoed = EchoMessage::decode(&answer);
        let welcome = matches!(echoed, Some(EchoMessage::Welcome { .. }));
        assert!(welcome, "answered a question without a cookie of ours");
    }
}

/// A search with answers in any order: it ends, and selects only hops that answered.
pub fn prober_search(data: &[u8]) {
    let start = Instant::now();
    let mut now = start;
    let mut source = Unstructured::new(data);
    let mut search = HopSearch::new(start);
    let mut answered = Vec::new();
    while !search.is_over(now) {
        while let Some(probe) = search.poll_probe(now) {
            assert!(probe.hops > 0);
        }
        let due = search.poll_timeout();
        assert!(due > now, "it would never wait");
        now = due;
        for _ in 0..source.int_in_range(0..=4u8).unwrap_or(0) {
            let (Ok(sequence), Ok(last), Ok(reached)) = (
                source.arbitrary::<u16>(),
                source.arbitrary::<u8>(),
                source.arbitrary::<bool>(),
            ) else {
                break;
            };
            let from = IpAddr::from([100, 64, 0, last % 4]);
            answered.push(from);
            search.on_answer(now, sequence % 64, from, reached);
        }
    }
    assert!(now < start + Duration::from_secs(60));
    let excluded = [IpAddr::from([100, 64, 0, 0])];
    if let Some(found) = search.choose(&excluded) {
        assert!(answered.contains(&found.address) && !excluded.contains(&found.address));
    }
}
