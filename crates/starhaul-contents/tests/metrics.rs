//! What a relay tells over HTTP is what it has carried, at that moment.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use starhaul_config::shared_secret;
use starhaul_contents::{
    ContentSecret, Fetching, NeighbourKey, Relay, ServeOptions, Server, config::Config,
    metrics::Figures,
};

/// A text is given again for 1.5 s at most, where taking it took long.
const STALE: Duration = Duration::from_millis(1600);

fn scrape(address: SocketAddr) -> String {
    let mut tcp = TcpStream::connect(address).unwrap();
    write!(tcp, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 OK"), "{answer}");
    text.to_owned()
}

fn relay(folder: &Path, upstream: SocketAddr) -> Relay {
    let text = format!(
        "listen = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1:0\"\nupstream = \"up\"\ncache = \"16MiB\"\n\
         [[neighbour]]\nname = \"up\"\naddress = \"{upstream}\"\nkey = \"a.key\"\n\
         [[neighbour]]\nname = 'a \"name\" with \\ in it'\nkey = \"b.key\"\n"
    );
    Relay::open(
        Config::parse(&text, &folder.join("relay.toml")).unwrap(),
        false,
    )
    .unwrap()
}

/// Relays on a thread until it is told to stop, and gives the relay back.
fn run(mut relay: Relay) -> (Arc<AtomicBool>, JoinHandle<Relay>) {
    let stop = Arc::<AtomicBool>::default();
    let stopped = stop.clone();
    let thread = thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            relay
                .turn(Instant::now() + Duration::from_millis(20))
                .unwrap();
        }
        relay
    });
    (stop, thread)
}

/// Without what grows all the time: the uptime, the processor time and the memory.
fn lasting(text: &str) -> Vec<&str> {
    let lines = text.lines();
    lines
        .filter(|line| !line.starts_with("starhaul_uptime") && !line.starts_with("process_"))
        .collect()
}

/// A text between two moments of the same figures, and those.
fn scrape_between(mut relay: Relay) -> (Relay, Figures, String) {
    let address = relay.metrics_address().unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        thread::sleep(STALE);
        let before = relay.figures();
        let (stop, running) = run(relay);
        let text = scrape(address);
        stop.store(true, Ordering::Relaxed);
        relay = running.join().unwrap();
        let after = relay.figures();
        // Neighbours greet each other now and then.
        if before.traffic == after.traffic {
            return (relay, after, text);
        }
        assert!(Instant::now() < limit, "it never rests");
    }
}

#[test]
fn a_scrape_gives_what_the_relay_has_carried() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["a.key", "b.key", "secret"] {
        fs::write(at(name), format!("0123456789abcdef {name}\n")).unwrap();
    }
    fs::write(at("content"), vec![7; 1_000_000]).unwrap();
    let options = ServeOptions {
        root: at("content"),
        listen: "127.0.0.1:0".parse().unwrap(),
        packet_bytes: None,
        neighbours: vec![NeighbourKey::new(&shared_secret(&at("a.key")).unwrap())],
        secret: ContentSecret::new(&shared_secret(&at("secret")).unwrap()),
    };
    let mut server = Server::open(options, |_| {}).unwrap();
    let upstream = server.local_addr();
    // It ends with the process.
    thread::spawn(move || server.run());
    let relay = relay(folder.path(), upstream);
    let from = relay.local_addr();
    let (stop, running) = run(relay);
    for into in ["first", "second"] {
        let fetching = Fetching {
            name: "content".into(),
            from: vec![from],
            key: NeighbourKey::new(&shared_secret(&at("b.key")).unwrap()),
            secret: ContentSecret::new(&shared_secret(&at("secret")).unwrap()),
            into: at(into),
            patience: Duration::from_secs(60),
        };
        fetching.run(|_| {}).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let (_relay, figures, text) = scrape_between(running.join().unwrap());

    let value = |series: &str| -> u64 {
        let lines = text.lines();
        let mut found = lines.filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value = found
            .next()
            .unwrap_or_else(|| panic!("no {series}: {text}"));
        value.strip_suffix(".0").unwrap_or(value).parse().unwrap()
    };
    let node = figures.traffic.node;
    for (series, expected) in [
        ("interests_total", node.interests),
        ("received_data_packets_total", node.data_received),
        ("sent_data_packets_total", node.data_sent),
        ("sent_bytes_total", node.bytes_sent),
        ("cache_bytes", figures.traffic.cache_bytes as u64),
        ("cache_max_bytes", 16 << 20),
        ("cache_hit_bytes_total", node.cache_hits),
        ("repaired_segments_total", node.repaired),
        ("refused_total{cause=\"forged\"}", node.refused.forged),
        (
            "refused_total{cause=\"strangers\"}",
            figures.traffic.strangers,
        ),
        (
            "limit_reached_total{limit=\"interests\"}",
            node.refused.overflow,
        ),
        ("neighbour_heard{neighbour=\"up\"}", 1),
        (
            "neighbour_heard{neighbour=\"a \\\"name\\\" with \\\\ in it\"}",
            1,
        ),
    ] {
        assert_eq!(
            value(&format!("starhaul_relay_{series}")),
            expected,
            "{series}"
        );
    }
    assert!(node.interests > 0 && node.data_sent > 1000, "{node:?}");
    assert!(
        node.cache_hits >= 1_000_000,
        "the second comes from the cache: {node:?}"
    );
    assert!(value("process_resident_memory_bytes") > 1_000_000);
    let (told, kept) = (lasting(&text), figures.text());
    assert_eq!(told, lasting(&kept));
}

/// A packet from an unknown address, and one with a neighbour's address and no key.
#[test]
fn forged_packets_are_counted_and_add_no_series() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.key", "b.key"] {
        fs::write(
            folder.path().join(name),
            format!("0123456789abcdef {name}\n"),
        )
        .unwrap();
    }
    let neighbour = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let relay = relay(folder.path(), neighbour.local_addr().unwrap());
    let (to, address) = (relay.local_addr(), relay.metrics_address().unwrap());
    let (stop, running) = run(relay);
    let series = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let names = lines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned());
        names.collect::<Vec<_>>()
    };
    let before = scrape(address);
    let sum = |text: &str| -> u64 {
        let lines = text.lines();
        let refused = lines.filter(|line| line.starts_with("starhaul_relay_refused_total"));
        let counts = refused.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
        counts.sum()
    };
    for number in 0..20_u8 {
        let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for socket in [&stranger, &neighbour] {
            socket.send_to(&[number; 64], to).unwrap();
        }
    }
    let limit = Instant::now() + Duration::from_secs(60);
    let after = loop {
        thread::sleep(STALE);
        let after = scrape(address);
        if sum(&after) >= sum(&before) + 40 {
            break after;
        }
        assert!(Instant::now() < limit, "{after}");
    };
    assert_eq!(series(&before), series(&after));
    stop.store(true, Ordering::Relaxed);
    running.join().unwrap();
}
