//! The bundle node's own formats: contact plans, configurations, and blocks of several bundles.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_dtn::{
    Config, Error,
    blocks::{AGGREGATE, join, split},
    bundle_log::record::{Kind, Reader, append},
    plan::{
        Moment, read_plan,
        route::{Bookings, Query, earliest},
    },
    splice::{self, Splice},
};
use starhaul_dtn_client::flows::{Event, Limits, Machine, Message, Read};

/// A node's configuration: refused with a text that names the file, or accepted and described.
pub fn dtn_config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // It may name a plan and keys beside it, where there are none; files elsewhere are not to be read here.
    if text.contains("\"/") || text.contains("..") || text.contains(['\\', '\'']) {
        return;
    }
    let now = Moment(Duration::from_secs(1_800_000_000));
    match Config::parse(text, Path::new("fuzz.nowhere/node.toml"), now) {
        Ok(config) => assert!(!config.describe(now).is_empty()),
        Err(Error::Config(error)) => assert!(
            error.to_string().contains("node.toml"),
            "names no file: {error}"
        ),
        Err(error) => assert!(
            error.is_configuration(),
            "not the configuration's fault: {error}"
        ),
    }
}

/// A plan, and the routes over it: each is made of contacts that join, and none arrives before it leaves.
pub fn dtn_plan(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let now = Moment(Duration::from_secs(1_800_000_000));
    let Ok(plan) = read_plan(text, Path::new("plan.toml"), now) else {
        return;
    };
    let Some(first) = plan
        .contacts()
        .first()
        .filter(|_| plan.contacts().len() < 1000)
    else {
        return;
    };
    let from = &first.from;
    let query = Query {
        from,
        now,
        bytes: 1000,
        expiry: Moment::MAX,
    };
    for (to, route) in earliest(&plan, query, &Bookings::default()) {
        assert!(route.arrival >= now);
        let mut here = from;
        for contact in route
            .contacts
            .iter()
            .filter_map(|place| plan.contacts().get(*place))
        {
            assert_eq!(*here, contact.from);
            here = &contact.to;
        }
        assert_eq!(*here, to);
    }
}

/// A block is its bundles one behind the other, or an error.
pub fn dtn_block(data: &[u8]) {
    let block = Bytes::copy_from_slice(data);
    if let Ok(bundles) = split(AGGREGATE, &block) {
        assert_eq!(join(&bundles), block);
    }
}

/// A segment of the log of bundles: the first part of the input says how it is damaged, by triples of an offset and a byte; each other one
/// is the kind and the body of a record. Read as a whole or in two parts, the same records are found; what was not hit is, as it was.
pub fn dtn_log(data: &[u8]) {
    const KINDS: [Kind; 7] = [
        Kind::Bundle,
        Kind::Known,
        Kind::Data,
        Kind::Status,
        Kind::Gone,
        Kind::Unused,
        Kind::GoneUnnumbered,
    ];
    let mut parts = super::parts(data);
    let damage = parts.next().unwrap_or_default();
    let (mut segment, salt) = (Vec::new(), 7);
    for part in parts {
        let (kind, body) = part.split_first().unwrap_or((&0, &[]));
        let kind = KINDS[usize::from(*kind) % KINDS.len()];
        append(&mut segment, 0, salt, kind, [body, &[]]).expect("a short body");
    }
    let read = |segment: &[u8]| -> Vec<_> {
        let found = Reader::new(segment, 0, salt, true);
        found
            .map(|(span, record)| (span, format!("{record:?}")))
            .collect()
    };
    let whole = read(&segment);
    let mut hits = Vec::new();
    for hit in damage.chunks_exact(3) {
        let at = usize::from(u16::from_be_bytes([hit[0], hit[1]]));
        if let Some(byte) = segment.get_mut(at).filter(|byte| **byte != hit[2]) {
            *byte = hit[2];
            hits.push(at);
        }
    }
    let found = read(&segment);
    for record in &whole {
        let range = record.0.at as usize..(record.0.at + record.0.length) as usize;
        let is_hit = hits.iter().any(|hit| range.contains(hit));
        assert!(is_hit || found.contains(record), "{record:?} is lost");
    }
    let cut = damage.len() * 97 % (segment.len() + 1);
    let mut first = Reader::new(&segment[..cut], 0, salt, false);
    let mut again: Vec<_> = first
        .by_ref()
        .map(|(span, record)| (span, format!("{record:?}")))
        .collect();
    let second = Reader::new(&segment[first.at..], first.at as u64, salt, true);
    again.extend(second.map(|(span, record)| (span, format!("{record:?}"))));
    assert_eq!(again, found);
}

/// Messages between gateways, one behind the other, each after its length: what is one is written as it was read, and a machine that
/// gets them all delivers no more than it was sent and has an answer to each at most, and one more to each time-out.
pub fn dtn_flow(data: &[u8]) {
    let mut now = Instant::now();
    let limits = Limits {
        flows: 4,
        ..Limits::default()
    };
    let mut machine = Machine::new(u64::from_be_bytes(*b"accepter"), limits);
    let (mut rest, mut delivered, mut answers, mut inputs) = (data, 0, 0, 0);
    while let Some((length, next)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(next.len());
        let (payload, next) = next.split_at(length);
        rest = next;
        let payload = Bytes::copy_from_slice(payload);
        if let Ok(message) = Message::parse(payload.clone()) {
            assert_eq!(message.encode(), payload, "{message:?}");
        }
        // The first byte of a payload that is no message is time that passes.
        if machine.handle(now, 0, payload.clone()).is_err()
            && let Some(seconds) = payload.first()
        {
            now += Duration::from_secs(u64::from(*seconds));
            machine.handle_timeout(now);
            inputs += 8;
        }
        inputs += 1;
        while let Some(event) = machine.poll_event() {
            match event {
                Event::Accepted(id, header) => {
                    assert!(header.len() <= 1024);
                    let _ = machine.write(id, b"answer");
                }
                Event::Readable(id) => {
                    while let Ok(Some(Read::Data(read))) = machine.read(id) {
                        delivered += read.len();
                    }
                    if machine.failure(id).is_some() || machine.read(id) == Ok(Some(Read::End)) {
                        machine.finish(id);
                        machine.release(id);
                    }
                }
                Event::Datagrams(_, datagrams) => {
                    delivered += datagrams.iter().map(Bytes::len).sum::<usize>();
                }
                Event::Writable(_) | Event::FlowBegan(..) | Event::FlowEnded(_) => {}
            }
        }
        while let Some(transmit) = machine.poll_transmit(now) {
            assert!(Message::parse(transmit.payload).is_ok());
            answers += 1;
            machine.stored();
        }
        assert!(machine.counters().streams <= 4 && machine.counters().flows <= 4);
    }
    assert!(
        delivered <= data.len(),
        "{delivered} bytes of {}",
        data.len()
    );
    assert!(
        answers <= 3 * inputs,
        "{answers} answers to {inputs} inputs"
    );
}

/// A connection over TCPCLv4: each part of the input after a byte that says whose it is. What passes is what came, in order, but for flags
/// of acknowledgements, and does not depend on how it came; what is held has come, but for the segment on its way.
pub fn dtn_tcpcl(data: &[u8]) {
    const LIMITS: splice::Limits = splice::Limits {
        segment: 1000,
        transfer: 4000,
    };
    /// Bytes of a message that wait for the rest of its fields.
    const MOST_WAITING: usize = 20;
    let run = |piece: usize| {
        let mut splice = Splice::new(LIMITS);
        let mut came: [Vec<u8>; 2] = Default::default();
        let mut passed: [Vec<u8>; 2] = Default::default();
        for part in super::parts(data) {
            let (from, bytes) = part.split_first().unwrap_or((&0, &[]));
            let from = usize::from(from & 1);
            came[from].extend(bytes);
            for bytes in bytes.chunks(piece) {
                let taken = match from {
                    0 => splice.take_from_peer(bytes, &mut passed[0]),
                    _ => splice.take_from_node(bytes, &mut passed[1]),
                };
                if let Err(fault) = taken {
                    return (came, passed, splice.held(), Some(fault));
                }
            }
        }
        (came, passed, splice.held(), None)
    };
    let whole = run(usize::MAX);
    assert_eq!(run(1), whole);
    assert_eq!(run(1 + data.len() % 13), whole);
    let (came, passed, held, fault) = whole;
    for (from, (came, passed)) in came.iter().zip(&passed).enumerate() {
        assert!(passed.len() <= came.len());
        assert!(fault.is_some() || came.len() - passed.len() <= MOST_WAITING);
        for (came, passed) in came.iter().zip(passed) {
            assert!(came == passed || (from == 0 && *passed <= 3));
        }
    }
    assert!(
        held <= came[0].len() as u64 + LIMITS.segment,
        "{held} bytes are held of {}",
        came[0].len()
    );
}
