//! Writes initial inputs for every fuzz target into `fuzz/corpus`, made by the real encoders:
//! `cargo run -p starhaul-system-tests --example seed-corpus`.

use std::{
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

use bytes::Bytes;
use etherparse::PacketBuilder;
use starhaul_cc::{PathEnd, PathSignal, Reconfiguration, ReconfigurationSource};
use starhaul_gateway::quota::{Book, Key, Scheme};
use starhaul_gateway::{
    Config, Host, Target,
    label::{Flow, Label},
    rtp::Codec,
    socks5::write_address,
};
use starhaul_ltp::{Batch, Engine, EngineConfig, EngineId, Outgoing, PeerConfig, Profile};
use starhaul_net::prober::EchoMessage;
use starhaul_quic::{
    Identity,
    wire::{LinkKind, Message, PathHello, VERSION},
};
use starhaul_record::{Client, ClientConfig};
use starhaul_session::{
    BlockOptions, Mode, PathId, PathUpdate, Session, SessionConfig, Side, StreamConfig,
};
use starhaul_system_tests::{fuzz::join, pair::bytes_of_seed};
use starhaul_units::Bandwidth;

type Inputs = Vec<(&'static str, Vec<u8>)>;

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let targets: [(&str, Inputs); 35] = [
        ("congestion_control", operations()),
        ("detector", operations()),
        ("fec_decode", operations()),
        ("gateway_config", configurations()),
        ("gateway_control", requests()),
        ("gateway_label", labels()),
        ("gateway_quotas", counts()),
        ("gateway_status", statuses()),
        ("gateway_text", texts()),
        ("leotp_chain", operations()),
        ("leotp_hostile", operations()),
        ("leotp_node", leotp_packets()),
        ("leotp_packet", leotp_packets()),
        ("leotp_streams", operations()),
        ("link_spec", links()),
        ("link_trace", traces()),
        ("link_convert", recordings()),
        ("ltp_engine", ltp_datagrams()),
        ("ltp_pair", operations()),
        ("ltp_segment", ltp_segments()),
        ("orbit_elements", elements()),
        ("orbit_text", orbit_texts()),
        ("path_monitor", operations()),
        ("prober_datagram", probes()),
        ("prober_search", operations()),
        ("quic_handshake", handshakes()),
        ("record_datagram", recorders()),
        ("record_journal", journals()),
        ("record_session", plans()),
        ("quic_node", networks()),
        ("rtp", packets()),
        ("session_datagram", datagrams()),
        ("session_pair", plans()),
        ("socks5", clients()),
        ("tunnel", tunnelled()),
    ];
    for (target, inputs) in targets {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        for (name, input) in inputs {
            fs::write(folder.join(format!("seed-{name}")), input)?;
        }
    }
    Ok(())
}

/// Files of counts, and their texts without the seal.
fn counts() -> Inputs {
    let mut book = Book::default();
    let key = Key {
        peer: "far".to_owned(),
        path: "lte".to_owned(),
    };
    let scheme = Scheme {
        begins: 15,
        offset_s: 7200,
    };
    book.follow(&key, scheme, 1_795_500_000);
    book.count(&key, 5_000_000_000);
    book.observe([&key], Duration::from_secs(4000), 1_798_000_000);
    let file = book.close();
    let text = file
        .split(|byte| *byte == b'\n')
        .skip(1)
        .collect::<Vec<_>>();
    vec![
        ("text", text.join(&b'\n')),
        ("torn", file[..file.len() / 2].to_vec()),
        ("file", file),
    ]
}

fn operations() -> Inputs {
    let random = bytes_of_seed(1);
    vec![
        ("short", random[..200].to_vec()),
        ("long", random[200..2200].to_vec()),
    ]
}

/// All that two LTP engines say of a block, mixed if their profile has such, of which a segment is lost.
fn ltp_conversation(profile: Profile) -> Vec<Vec<u8>> {
    let now = Instant::now();
    let ids = [EngineId(1), EngineId(2)];
    let mut engines = ids.map(|id| Engine::new(EngineConfig::new(id, [7; 32])));
    for (engine, peer) in engines.iter_mut().zip([ids[1], ids[0]]) {
        let mut config = PeerConfig::new(Duration::ZERO, None);
        config.profile = profile;
        // Another engine than itself, and the first.
        let _ = engine.add_peer(now, peer, config);
        engine.open_service(1);
    }
    let block = Bytes::from(bytes_of_seed(3)[..2000].to_vec());
    let red = match profile {
        Profile::Fixed => 2000,
        _ => 1700,
    };
    let _ = engines[1].send(
        now,
        Outgoing {
            to: ids[0],
            service: 1,
            block,
            red,
        },
    );
    let (mut said, mut batch) = (Vec::new(), Batch::new(65_507, 1));
    for round in 0..40 {
        let (from, to) = (round % 2, 1 - round % 2);
        while engines[from].poll_transmit(now, &mut batch).is_some() {
            said.push(batch.contents().to_vec());
            if said.len() != 1 {
                engines[to].handle_datagrams(
                    now,
                    ids[from],
                    batch.contents(),
                    batch.segment_size(),
                );
            }
        }
    }
    said
}

fn ltp_segments() -> Inputs {
    let [usual, fixed] = [Profile::Rfc5326, Profile::Fixed].map(ltp_conversation);
    vec![("conversation", usual.concat()), ("fixed", fixed.concat())]
}

fn ltp_datagrams() -> Inputs {
    let said = [Profile::Rfc5326, Profile::Fixed].map(ltp_conversation);
    let [usual, fixed] = said.map(|said| join(said.iter().map(Vec::as_slice)));
    vec![
        ("conversation", usual),
        ("fixed", fixed),
        ("random", bytes_of_seed(4)[..600].to_vec()),
    ]
}

/// Hellos and other packets with wrong authentication, and frames of every kind.
fn leotp_packets() -> Inputs {
    let hello = [0; 73];
    let data = [
        &[0x9e, 0, 1, 0, 0, 9, 0, 0, 1, 0, 0, 2, 5, 0x44, 0][..],
        &[7; 40],
    ]
    .concat();
    let frames: [&[u8]; 7] = [
        &[&[1, 3, 0, 0x45, 0x97][..], &[9; 16]].concat(),
        &[&[2, 3, 0, 0x45, 0x97][..], &[9; 16]].concat(),
        &[3, 0x44, 0, 0, 0, 0, 9],
        &[4, 3, 9],
        &[5, 2, 0, 0, 0, 1],
        &[6, 3, 5, 5],
        &[7, 3],
    ];
    let control = [&[0x40, 0, 2, 0, 0, 10][..], &frames.concat(), &[0; 8]].concat();
    let all = join([&hello[..], &data, &control]);
    vec![
        ("hello", hello.to_vec()),
        ("data", data),
        ("control", control),
        ("several", all),
    ]
}

/// Probes, each after the prober's token.
fn probes() -> Inputs {
    let (token, cookie) = (*b"a token!", [3; 16]);
    let hello = EchoMessage::Hello { token }.encode();
    let question = EchoMessage::Question {
        token,
        cookie,
        number: 9,
    };
    let question = question.encode();
    let mut ipv4 = [0; 20];
    (ipv4[0], ipv4[9]) = (0x45, 1);
    let reply = [&[0, 0, 0, 0, b'a', b' ', 0, 9][..], &token, &[0, 0, 0, 9]].concat();
    let request = [8, 0, 0, 0, b'a', b' ', 0, 9];
    let exceeded = [&ipv4[..], &[11, 0, 0, 0, 0, 0, 0, 0], &ipv4, &request].concat();
    let of = |packet: &[u8]| [&token[..], packet].concat();
    vec![
        ("hello", of(&hello)),
        ("question", of(&question)),
        ("reply", of(&[&ipv4[..], &reply].concat())),
        ("exceeded", of(&exceeded)),
    ]
}

fn plans() -> Inputs {
    vec![
        ("a", bytes_of_seed(1)[..2500].to_vec()),
        ("b", bytes_of_seed(2)[..1500].to_vec()),
        ("c", bytes_of_seed(3)[..600].to_vec()),
    ]
}

fn recorders() -> Inputs {
    let key = starhaul_record::Key::new(&[9; 32]);
    let now = Instant::now();
    let mut client = Client::new(ClientConfig::new(key, [3; 16]), now);
    let hello = client.poll_transmit(now).map(|transmit| transmit.contents);
    let hello = hello.unwrap_or_default();
    vec![("hello", join([&hello[..], &hello[..20], b"SHR1\x06"]))]
}

fn journals() -> Inputs {
    let probe = |at: u32, icmp: bool| {
        let server = if icmp {
            "null".to_owned()
        } else {
            (at + 900_000).to_string()
        };
        format!(
            "{{\"probe\":{{\"icmp\":{icmp},\"at_us\":{at},\"rtt_us\":20000,\"server_us\":{server}}}}}\n"
        )
    };
    let mut text = "{\"begin\":{\"format\":1,\"direction\":\"up\",\"server\":\"x\",\"started_unix_ms\":1,\"seconds\":2,\
                    \"packet_bytes\":1500,\"max_rate\":\"9000000bit\"}}\n"
        .to_owned();
    for step in 0..40 {
        let phase = ["idle", "search", "below", "saturated"][(step as usize / 4).min(3)];
        let bins = vec!["1500"; 50].join(",");
        text += &format!(
            "{{\"received\":{{\"first_ms\":{},\"bins\":[{bins}],\"phase\":\"{phase}\",\"received\":50,\"lost\":{},\"bursts\":1,\
             \"way_min_us\":10,\"way_max_us\":{}}}}}\n",
            step * 50,
            1 + step / 12 * 10,
            20 + step / 12 * 40_000,
        );
        text += &(probe(step * 50_000, true) + &probe(step * 50_000 + 3, false));
    }
    let alone = text.clone()
        + "{\"alone\":{\"at_us\":1000000,\"stands_for_us\":600000}}\n{\"end\":{\"sent\":9}}\n";
    vec![("cut", text.into()), ("whole", alone.into())]
}

fn configurations() -> Inputs {
    vec![("sample", Config::sample().into()), ("empty", Vec::new())]
}

fn labels() -> Inputs {
    let target = Target {
        host: Host::Name("example.org".into()),
        port: 80,
    };
    let flows = [
        (
            "udp",
            Flow::Udp {
                id: 1,
                target: target.clone(),
            },
        ),
        (
            "rtp",
            Flow::Rtp {
                id: 2,
                target: target.clone(),
                codec: Codec::H264,
                frame_timeout_ms: 50,
            },
        ),
        ("associate", Flow::Associate { id: 3 }),
        ("reply", Flow::Reply { id: 4 }),
        (
            "tcp",
            Flow::Tcp {
                target,
                client: None,
            },
        ),
        (
            "packets",
            Flow::Packets {
                class: "voice".into(),
            },
        ),
    ];
    flows
        .map(|(name, flow)| (name, Label::new("rule-1", flow).encode().to_vec()))
        .into()
}

/// UDP in both versions of IP, and both on a stream.
fn tunnelled() -> Inputs {
    let mut ipv4 = Vec::new();
    let udp = PacketBuilder::ipv4([10, 9, 0, 1], [10, 9, 0, 2], 64).udp(5004, 5004);
    udp.write(&mut ipv4, b"frame").unwrap_or_default();
    let mut ipv6 = Vec::new();
    let tcp = PacketBuilder::ipv6([1; 16], [2; 16], 64).tcp(4000, 80, 1, 1000);
    tcp.write(&mut ipv6, b"request").unwrap_or_default();
    let stream = join([&ipv4[..], &ipv6]);
    vec![("ipv4", ipv4), ("ipv6", ipv6), ("stream", stream)]
}

fn statuses() -> Inputs {
    let status = r#"{"version":"0.1.0","public_key":"k","uptime_s":1.5,"listen":["127.0.0.1:1"],"peers":[],"ingress":[],"sessions":[]}"#;
    vec![("idle", status.into())]
}

fn requests() -> Inputs {
    vec![
        ("status", b"{\"request\":\"status\"}\n".into()),
        (
            "several",
            b"{\"request\":\"status\",\"more\":1}\n{\"request\":\"stop\"}\n\nhello".into(),
        ),
    ]
}

/// Networks that let two stacks connect before they do harm, and others.
fn networks() -> Inputs {
    let met = [230, 20, 248, 249, 240, 241, 240, 230, 10];
    let random = bytes_of_seed(4);
    let harm = |from: usize| [&met[..], &random[from..from + 600]].concat();
    vec![
        (
            "honest",
            [
                &met[..],
                &[252, 230, 20, 240, 252, 230, 20, 250, 254, 230, 20],
            ]
            .concat(),
        ),
        ("harm-a", harm(0)),
        ("harm-b", harm(600)),
        ("before", random[1200..1700].to_vec()),
    ]
}

fn texts() -> Inputs {
    let key = Identity::generate().public_key().to_string();
    vec![
        ("name", b"example.org:443".into()),
        ("v4", b"192.0.2.1:5".into()),
        ("v6", b"[2001:db8::1]:65535".into()),
        ("network", b"10.0.0.0/8:80-90".into()),
        ("key", key.into()),
    ]
}

fn links() -> Inputs {
    vec![
        ("constant", b"rate=50mbit,delay=25ms,loss=ge:1%:5,queue=500p".into()),
        ("rough", b"rate=1mbit,delay=300ms,jitter=5ms,reorder=1%:20ms,duplicate=2%,queue=64000b,outage=1s..2s".into()),
        ("leo", b"synth=leo,seed=3".into()),
        ("geo", b"synth=geo,rate=10mbit,loss=0.2%".into()),
        ("cellular", b"synth=cellular,seed=1,icmp=queue".into()),
        ("codel", b"rate=2mbit,queue=codel:20p,target=1ms,interval=10ms".into()),
        ("loss", b"ge:1%:5".into()),
        ("rate", b"2.5mbit".into()),
    ]
}

fn traces() -> Inputs {
    vec![
        ("mahimahi", b"0\n1\n1\n4\n10\n".into()),
        ("delay", b"0 25.0\n10 26.5\n20 24.0\n".into()),
        ("rates", b"0 10.5\n10 20\n20 0\n".into()),
        (
            "csv",
            b"time_ms,rate_mbit,delay_ms\n0,10,25\n100,20,26\n200,0,27\n".into(),
        ),
    ]
}

fn recordings() -> Inputs {
    vec![
        ("mahimahi", b"0\n1\n1\n4\n10\n".into()),
        ("delay", b"0\n12\n12.5\n11\n".into()),
        (
            "csv",
            b"t_s,capacity_mbps,owd_ms,loss_p\n0,12,20,0.01\n0.01,0.7,21.5,0\n0.02,0,20,1\n".into(),
        ),
        (
            "leoem",
            b"1$[-1, 5, -2]$3$[0.001, 0.002]$0.021\n2$NULL\n3$[-1, 5, -2]$3$[0.001, 0.002]$0.025\n"
                .into(),
        ),
    ]
}

fn handshakes() -> Inputs {
    let hello = PathHello {
        path: PathId(1),
        cost: 0.5,
        name: "leo".into(),
        link: LinkKind::Other,
    };
    let leo = PathHello {
        link: LinkKind::Leo,
        ..hello.clone()
    };
    let messages = [
        (
            "open",
            Message::Open {
                versions: vec![VERSION, 9],
                nonce: [1; 16],
                hello: hello.clone(),
            },
        ),
        (
            "welcome",
            Message::Welcome {
                version: VERSION,
                session: [2; 16],
            },
        ),
        (
            "join",
            Message::Join {
                session: [2; 16],
                token: [3; 32],
                hello,
            },
        ),
        (
            "join-leo",
            Message::Join {
                session: [2; 16],
                token: [3; 32],
                hello: leo,
            },
        ),
        ("accept", Message::Accept),
    ];
    messages
        .map(|(name, message)| (name, message.encode()))
        .into()
}

fn packets() -> Inputs {
    let packet = |marker: u8, timestamp: u8, payload: &[u8]| {
        let mut packet = vec![
            5,
            0x80,
            96 | marker << 7,
            0,
            1,
            0,
            0,
            0,
            timestamp,
            0,
            0,
            0,
            7,
        ];
        packet.extend(payload);
        packet
    };
    let key = [
        packet(0, 1, &[0x7c, 0x85, 1, 2]),
        packet(1, 1, &[0x7c, 0x45, 3, 4]),
    ];
    let inter = [packet(0, 2, &[0x61, 9, 9]), packet(1, 2, &[0x61, 8])];
    let other = [
        vec![0, 1, 2, 3],
        packet(0, 3, &[0x26, 1, 5]),
        packet(1, 4, &[0x02, 1, 5]),
    ];
    let all = key.iter().chain(&inter).chain(&other);
    vec![
        ("frames", join(all.map(Vec::as_slice))),
        ("block", join([&b"packet"[..], b"another"])),
    ]
}

fn clients() -> Inputs {
    let mut connect = vec![5, 1, 0, 5, 1, 0];
    write_address(
        &Target {
            host: Host::Name("example.org".into()),
            port: 443,
        },
        &mut connect,
    );
    let mut associate = vec![5, 2, 0, 2, 5, 3, 0];
    write_address(
        &Target {
            host: Host::Ip([0, 0, 0, 0].into()),
            port: 0,
        },
        &mut associate,
    );
    let mut datagram = vec![0, 0, 0];
    write_address(
        &Target {
            host: Host::Ip([192, 0, 2, 1].into()),
            port: 53,
        },
        &mut datagram,
    );
    datagram.extend(b"question");
    vec![
        ("connect", connect),
        ("associate", associate),
        ("datagram", datagram),
    ]
}

/// Datagrams of a client's session to the server of the target: streams, blocks, bytes and acknowledgements.
fn datagrams() -> Inputs {
    let start = Instant::now();
    let mut client = Session::new(SessionConfig::default(), Side::Client, start);
    let mut server = Session::new(SessionConfig::default(), Side::Server, start);
    for session in [&mut client, &mut server] {
        for path in 0..2 {
            let update = PathUpdate {
                cwnd: 100_000,
                bytes_in_flight: 0,
                bandwidth: Bandwidth::from_mbit(10),
                smoothed_rtt: Duration::from_millis(40),
                min_rtt: Duration::from_millis(40),
                max_datagram: 200,
            };
            session.add_path(start, PathId(path), 0.0, update);
        }
    }
    for mode in [Mode::FecRetransmit, Mode::Duplicate, Mode::Reliable] {
        let config = StreamConfig {
            mode,
            ordered: mode == Mode::Duplicate,
            ..StreamConfig::default()
        };
        for session in [&mut client, &mut server] {
            let stream = session
                .open_stream(start, config.clone())
                .expect("a fresh session opens streams");
            if mode == Mode::Reliable {
                session
                    .write(start, stream, &[1; 300])
                    .expect("it takes bytes");
            } else {
                let block = Bytes::from_static(&[2; 400]);
                session
                    .send_block(start, stream, block, BlockOptions::default())
                    .expect("it takes blocks");
            }
            session.finish(start, stream).expect("it can be finished");
        }
    }
    let mut sent = Vec::new();
    let mut now = start;
    for round in 0..6 {
        let event = Reconfiguration {
            at: now,
            outage: Duration::from_millis(68),
            source: ReconfigurationSource::Probe,
            confidence: 0.9,
        };
        let (end, rtt) = (PathEnd::Local, Duration::from_millis(30));
        for signal in [
            PathSignal::Reconfiguration(event),
            PathSignal::SegmentRtt { end, rtt },
        ] {
            client.tell_signal(now, PathId(round % 2), signal);
        }
        for path in [PathId(0), PathId(1)] {
            while let Some(datagram) = client.poll_datagram(now, path) {
                let mut part = vec![u8::from(path == PathId(1)) | 10];
                part.extend(&datagram.payload);
                sent.push(part);
                // Every third is lost, to cause retransmissions.
                if !(round < 3 && sent.len().is_multiple_of(3)) {
                    server
                        .handle_datagram(now, path, datagram.payload)
                        .expect("an honest peer");
                }
            }
            while let Some(datagram) = server.poll_datagram(now, path) {
                client
                    .handle_datagram(now, path, datagram.payload)
                    .expect("an honest peer");
            }
        }
        now += Duration::from_millis(60);
        client.handle_timeout(now);
        server.handle_timeout(now);
    }
    let all = |from: usize| join(sent.iter().skip(from).map(Vec::as_slice));
    vec![
        ("session", all(0)),
        ("middle", all(sent.len() / 2)),
        ("one", join(sent.iter().take(1).map(Vec::as_slice))),
    ]
}

/// Satellites in low, stationary and eccentric orbits.
fn elements() -> Inputs {
    let planes = [0.0, 120.0, 240.0];
    let low = planes
        .iter()
        .zip([100, 200, 300])
        .flat_map(|(node, first)| {
            let anomalies = [0.0, 90.0, 180.0, 270.0];
            let numbers = first..;
            anomalies
                .into_iter()
                .zip(numbers)
                .map(|(anomaly, number)| tle(number, [53.0, *node, anomaly], 1000, 15.05))
        });
    let far = [
        tle(400, [0.1, 30.0, 0.0], 1000, 1.0027),
        tle(401, [63.4, 30.0, 0.0], 7_000_000, 2.0056),
    ];
    vec![
        ("shell", low.collect::<String>().into_bytes()),
        ("far", far.concat().into_bytes()),
    ]
}

/// Three lines of elements: inclination, ascending node and anomaly in degrees, eccentricity in 10⁻⁷, revolutions per day.
fn tle(
    number: u32,
    [inclination, node, anomaly]: [f64; 3],
    eccentricity: u32,
    motion: f64,
) -> String {
    let summed = |line: String| {
        let digits = line.bytes().map(|byte| match byte {
            b'-' => 1,
            b'0'..=b'9' => u32::from(byte - b'0'),
            _ => 0,
        });
        let sum = digits.sum::<u32>() % 10;
        format!("{line}{sum}\n")
    };
    let one = format!("1 {number:05}U 22001A   22257.50000000  .00000000  00000+0  00000+0 0  999");
    let two = format!(
        "2 {number:05} {inclination:8.4} {node:8.4} {eccentricity:07}   0.0000 {anomaly:8.4} {motion:11.8}    1"
    );
    format!("SAT {number}\n{}{}", summed(one), summed(two))
}

fn orbit_texts() -> Inputs {
    let path = r#"{"start":"2000-01-01T00:00:00Z","step_ms":1000,"nodes":["a","b","0-1","0-2"],"steps":[
        {"path":[0,2,1],"delays_ns":[3000000,4000000]},{"path":[],"delays_ns":[]},{"path":[0,2,3,1],"delays_ns":[3000000,7000000,4000000]}]}"#;
    vec![
        ("path", path.as_bytes().to_vec()),
        (
            "shell",
            b"planes=6,satellites=11,altitude=780km,inclination=86.4,phasing=2,spread=180".to_vec(),
        ),
        ("preset", b"iridium,phasing=alternate".to_vec()),
        ("station", b"Camp=-75.1,123.3".to_vec()),
        ("city", b"new-york".to_vec()),
        ("instant", b"2022-09-14T12:00:00.5Z".to_vec()),
    ]
}
