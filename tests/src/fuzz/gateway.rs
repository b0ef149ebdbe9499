//! Input of a gateway from applications, operators and the peer.

use std::{
    path::Path,
    str::FromStr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_gateway::{
    Config, EgressRule, Target,
    control::answer,
    label::Label,
    quota::{Book, Key, Scheme, seal},
    rtp::{self, Assembler, Codec, KeyFrames, Needs},
    socks5::{Handshake, Step, read_address, read_datagram, write_address},
    status::Status,
    tunnel::{Frames, Headers, Unreachable, mark_congestion},
};
use starhaul_quic::PublicKey;

use super::parts;

/// The status of an idle gateway.
const IDLE_STATUS: &str = r#"{"version":"0.1.0","public_key":"k","uptime_s":1.5,"listen":["127.0.0.1:1"],"peers":[],"ingress":[],"sessions":[]}"#;

/// A configuration file: refused with a line of text, or accepted and described.
pub fn gateway_config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match Config::parse(text, Path::new("fuzz.toml")) {
        Ok(config) => assert!(!config.describe().is_empty()),
        Err(error) => assert!(
            error.to_string().contains("fuzz.toml"),
            "names no file: {error}"
        ),
    }
}

/// A stream's label from the peer.
pub fn gateway_label(data: &[u8]) {
    if let Ok(label) = Label::parse(data) {
        let again = Label::parse(&label.encode()).expect("what was read can be written and read");
        assert_eq!(again, label);
    }
}

/// Input of a client on a gateway's control socket: each line has one line of answer, and only valid requests get the
/// status.
pub fn gateway_control(data: &[u8]) {
    let status: Status = serde_json::from_str(IDLE_STATUS).expect("a status");
    for line in data.split_inclusive(|byte| *byte == b'\n') {
        let answer = answer(line, || status.clone(), |_| Ok(()));
        let (&end, json) = answer.split_last().expect("an answer");
        assert!(end == b'\n' && !json.contains(&b'\n'), "not one line");
        let answer: serde_json::Value = serde_json::from_slice(json).expect("an answer in JSON");
        let asked = serde_json::from_slice::<serde_json::Value>(line).ok();
        match asked
            .and_then(|asked| Some(["status", "path"].contains(&asked.get("request")?.as_str()?)))
        {
            Some(true) => assert!(answer.get("ok").is_some() || answer["error"].is_string()),
            _ => assert!(answer["error"].is_string(), "{line:?} was answered"),
        }
    }
}

/// A file of counts: what is whole is taken, and counts on whatever the clock does; nothing else is.
pub fn gateway_quotas(data: &[u8]) {
    let _ = Book::open(Some(data));
    // Random bytes have no checksum that fits.
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (mut book, Ok(())) = Book::open(Some(&seal(text))) else {
        return;
    };
    let key = Key {
        peer: "far".to_owned(),
        path: "lte".to_owned(),
    };
    let mut calendar = 1_795_500_000;
    book.follow(&key, Scheme::default(), calendar);
    for byte in data {
        let before = book.usage(&key).expect("it is followed").used;
        book.count(&key, (*byte).into());
        let counted = book.usage(&key).expect("it is followed").used;
        assert!(counted >= before && counted <= before.saturating_add((*byte).into()));
        calendar += i64::from(*byte as i8) * 86_400;
        book.observe([&key], Duration::from_secs((*byte).into()), calendar);
    }
    let used = book.usage(&key).expect("it is followed").used;
    let (mut again, read) = Book::open(Some(&book.close()));
    read.expect("what was written is read");
    again.follow(&key, Scheme::default(), calendar);
    assert_eq!(again.usage(&key).expect("it is followed").used, used);
}

/// A gateway's answer on its control socket.
pub fn gateway_status(data: &[u8]) {
    if let Ok(status) = serde_json::from_slice::<Status>(data) {
        let written = serde_json::to_vec(&status).expect("what was read can be written");
        let again: Status = serde_json::from_slice(&written).expect("… and read again");
        assert_eq!(serde_json::to_vec(&again).ok(), Some(written));
    }
}

/// Targets, egress rules and keys as people write them.
pub fn gateway_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(target) = Target::from_str(text) {
        assert_eq!(Target::from_str(&target.to_string()), Ok(target));
    }
    if let Ok(rule) = EgressRule::from_str(text) {
        assert_eq!(EgressRule::from_str(&rule.to_string()), Ok(rule));
    }
    if let Ok(key) = PublicKey::from_str(text) {
        assert_eq!(PublicKey::from_str(&key.to_string()).ok(), Some(key));
    }
}

/// RTP packets of an application, one per part: every packet is in exactly one frame, whole and in order. The first
/// byte of a part is its delay after the one before.
pub fn rtp(data: &[u8]) {
    ignore(rtp::packets(&Bytes::copy_from_slice(data)));
    for codec in [Codec::None, Codec::Audio, Codec::H264, Codec::H265] {
        let mut now = Instant::now();
        let mut assembler = Assembler::new(codec, Duration::from_millis(50));
        let mut keys = KeyFrames::new();
        let (mut given, mut taken, mut frames) = (Vec::new(), Vec::new(), 0u32);
        let mut refused = false;
        let mut take = |assembler: &mut Assembler| {
            while let Some(frame) = assembler.poll_frame() {
                match keys.needed_by(&frame) {
                    Needs::Block(needed) => assert!(needed < frames, "a frame needs a later one"),
                    Needs::Missing => assert!(refused, "no key frame was refused"),
                    Needs::Nothing => {}
                }
                if frame.block.last() == Some(&0xff) {
                    refused = true;
                    keys.not_sent(&frame);
                } else {
                    keys.sent(&frame, frames);
                }
                frames += 1;
                taken.extend(
                    rtp::packets(&frame.block).expect("our own frames are rows of packets"),
                );
            }
        };
        for part in parts(data) {
            let Some((&wait, packet)) = part.split_first() else {
                continue;
            };
            now += Duration::from_millis(wait.into());
            assembler.handle_timeout(now);
            assembler.handle_packet(now, packet);
            given.push(Bytes::copy_from_slice(packet));
            take(&mut assembler);
        }
        assembler.handle_timeout(now + Duration::from_secs(1));
        take(&mut assembler);
        assert_eq!(assembler.poll_timeout(), None, "a frame is open for ever");
        // Sources are gathered separately, so only the whole can be compared.
        given.sort();
        taken.sort();
        assert_eq!(taken, given, "packets were lost or doubled");
    }
}

/// A SOCKS5 client's handshake at once and byte by byte, and its datagrams.
pub fn socks5(data: &[u8]) {
    let whole = converse(std::iter::once(data));
    let bytewise = converse(data.chunks(1));
    assert_eq!(
        whole, bytewise,
        "the answer depends on how the bytes were cut"
    );
    if let Ok((target, payload)) = read_datagram(data) {
        assert!(payload.len() < data.len());
        let mut written = Vec::new();
        write_address(&target, &mut written);
        let again = read_address(&written).expect("what was read can be written and read");
        assert_eq!(
            again.map(|(target, rest)| (target, rest.len())),
            Some((target, 0))
        );
    }
}

fn converse<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, Option<String>) {
    let mut handshake = Handshake::new(None);
    let mut answers = Vec::new();
    for piece in pieces {
        handshake.handle(piece);
        loop {
            match handshake.poll() {
                Step::Read => break,
                Step::Send(bytes) => answers.extend(bytes),
                Step::Request(request) => return (answers, Some(format!("{request:?}"))),
                Step::Refuse(bytes, error) => {
                    answers.extend(bytes);
                    return (answers, Some(error.to_string()));
                }
            }
        }
    }
    (answers, None)
}

/// Ignores the result of a call that only has to return.
fn ignore<T>(_: T) {}

/// Packets of a tunnel, from the kernel, and from the peer on a stream that is cut anywhere: what is no packet is dropped, an
/// error message is a packet that is not answered itself, and a mark changes nothing that the class depends on.
pub fn tunnel(data: &[u8]) {
    let mut frames = Frames::default();
    for chunk in data.chunks(97) {
        frames.take(chunk, tunnel_packet);
    }
    tunnel_packet(data);
}

fn tunnel_packet(packet: &[u8]) {
    let Some(headers) = Headers::read(packet) else {
        return;
    };
    for why in [Unreachable::NoRoute, Unreachable::Prohibited] {
        if let Some(answer) = headers.unreachable(packet, why) {
            assert!(answer.len() <= 1280, "{} bytes", answer.len());
            let answered = Headers::read(&answer).expect("our own packet");
            assert_eq!(answered.destination, headers.source);
            assert!(answered.unreachable(&answer, why).is_none());
        }
    }
    let mut marked = packet.to_vec();
    if mark_congestion(&mut marked) {
        assert_eq!(Headers::read(&marked), Some(headers));
    } else {
        assert_eq!(marked, packet);
    }
}
