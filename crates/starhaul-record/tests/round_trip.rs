//! A recording through a link gives that link's trace: client and server in virtual time, over links made of known
//! traces.
#![allow(clippy::unwrap_used, reason = "a test harness")]

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_link::{Band, Delay, LinkSpec, Rate};
use starhaul_record::{
    Client, ClientConfig, DelaySource, Direction, EchoRequest, Entry, Error, Key, Light, Recording,
    Server, ServerConfig, Transmit, parse_journal,
};
use starhaul_sim::{Delivery, HEADER_BYTES, Load, NodeId, Packet, Simulation};
use starhaul_units::Bandwidth;

const MAIN: u32 = 0;
/// The socket of ICMP echoes.
const ECHO: u32 = 1;

/// The beginning of [`config`]'s nonce.
const TOKEN: [u8; 8] = [4; 8];

/// The load of a UDP datagram or of an ICMP echo.
#[derive(Clone)]
struct Message {
    band: Band,
    payload: Bytes,
}

impl Load for Message {
    fn bytes(&self) -> usize {
        self.payload.len() + HEADER_BYTES
    }

    fn band(&self) -> Band {
        self.band
    }
}

enum Node {
    Client {
        client: Box<Client>,
        entries: Vec<Entry>,
        pending: Vec<Packet<Message>>,
        /// Whether its echoes use the ICMP band; otherwise they wait with the data.
        own_band: bool,
    },
    Server {
        server: Box<Server>,
        clock: Clock,
        /// Whether it sees the echo requests that its host answers.
        stamps: bool,
        pending: Vec<Packet<Message>>,
    },
}

/// The server's clock, whose second is longer by so many millionths of one.
#[derive(Clone, Copy)]
struct Clock {
    start: Instant,
    ppm: f64,
}

impl Clock {
    fn shows(&self, now: Instant) -> Instant {
        let since = now.saturating_duration_since(self.start);
        self.start + since.mul_f64(1.0 + self.ppm * 1e-6)
    }

    /// The true time at which the clock shows this.
    fn at(&self, shown: Instant) -> Instant {
        let since = shown.saturating_duration_since(self.start);
        // Rounded up: a timer is due then.
        self.start + since.div_f64(1.0 + self.ppm * 1e-6) + Duration::from_micros(1)
    }
}

fn address(host: u8, socket: u32) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 4710 + u16::try_from(socket).unwrap()))
}

fn split(to: SocketAddr, transmit: &Transmit, pending: &mut Vec<Packet<Message>>) {
    let segments = transmit.contents.chunks(transmit.segment_bytes);
    let datagrams: Vec<_> = segments
        .map(|payload| Packet {
            local: MAIN,
            to,
            load: Message {
                band: Band::Data,
                payload: Bytes::copy_from_slice(payload),
            },
        })
        .collect();
    pending.extend(datagrams.into_iter().rev());
}

impl starhaul_sim::Node for Node {
    type Load = Message;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Message>) {
        let Delivery { from, load, .. } = packet;
        let payload = &load.payload;
        match (self, packet.local) {
            (Self::Client { client, .. }, MAIN) => client.handle_datagram(now, now, payload),
            (Self::Client { client, .. }, _) => {
                let number = u32::from_be_bytes(*payload.last_chunk().unwrap());
                client.handle_probe_reply(now, number);
            }
            (Self::Server { server, clock, .. }, MAIN) => {
                let now = clock.shows(now);
                server.handle_datagram(now, now, from, payload);
            }
            (
                Self::Server {
                    server,
                    clock,
                    stamps,
                    pending,
                },
                local,
            ) => {
                let now = clock.shows(now);
                if *stamps {
                    let request = EchoRequest {
                        from: from.ip(),
                        token: *payload.first_chunk().unwrap(),
                        number: u32::from_be_bytes(*payload.last_chunk().unwrap()),
                        ip_bytes: u32::try_from(payload.len() + 28).unwrap(),
                    };
                    server.handle_echo_request(now, now, &request);
                }
                pending.push(Packet {
                    local,
                    to: from,
                    load,
                });
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Packet<Message>>) {
        match self {
            Self::Client {
                client,
                entries,
                pending,
                own_band,
            } => {
                if pending.is_empty() {
                    if let Some(transmit) = client.poll_transmit(now) {
                        split(address(2, MAIN), &transmit, pending);
                    }
                    if let Some(number) = client.poll_probe(now) {
                        let payload = [&TOKEN[..], &number.to_be_bytes()].concat().into();
                        let band = if *own_band { Band::Icmp } else { Band::Data };
                        pending.push(Packet {
                            local: ECHO,
                            to: address(2, ECHO),
                            load: Message { band, payload },
                        });
                    }
                }
                entries.extend(std::iter::from_fn(|| client.poll_entry()));
                out.extend(pending.pop());
            }
            Self::Server {
                server,
                clock,
                pending,
                ..
            } => {
                if pending.is_empty()
                    && let Some((to, transmit)) = server.poll_transmit(clock.shows(now))
                {
                    split(to, &transmit, pending);
                }
                out.extend(pending.pop());
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        match self {
            Self::Client { client, .. } => client.poll_timeout(),
            Self::Server { server, clock, .. } => server.poll_timeout().map(|at| clock.at(at)),
        }
    }

    fn handle_timeout(&mut self, _: Instant) {}
}

struct World {
    simulation: Simulation<Node>,
    start: Instant,
}

struct Case<'a> {
    up: &'a LinkSpec,
    down: &'a LinkSpec,
    /// Whether ICMP has its own band; otherwise it shares the queue.
    own_band: bool,
    /// Whether the server sees echo requests.
    stamps: bool,
    config: ClientConfig,
    server_max: Bandwidth,
}

fn key() -> Key {
    Key::new(&[9; 32])
}

fn config(direction: Direction, light: Light, seconds: u32) -> ClientConfig {
    let mut config = ClientConfig::new(key(), [4; 16]);
    config.request.direction = direction;
    config.request.seconds = seconds;
    config.light = light;
    config
}

impl World {
    fn new(case: &Case<'_>, ppm: f64) -> Self {
        let start = Instant::now();
        let mut simulation = Simulation::new(11, start);
        let mut server = ServerConfig::new(vec![Key::new(&[8; 32]), key()], [3; 32]);
        server.max_rate = case.server_max;
        let nodes = [
            Node::Client {
                client: Box::new(Client::new(case.config.clone(), start)),
                entries: Vec::new(),
                pending: Vec::new(),
                own_band: case.own_band,
            },
            Node::Server {
                server: Box::new(Server::new(server, start)),
                clock: Clock { start, ppm },
                stamps: case.stamps,
                pending: Vec::new(),
            },
        ];
        let [client, server] = nodes.map(|node| simulation.add_node(node));
        let network = &mut simulation.network;
        for (node, host) in [(client, 1), (server, 2)] {
            network.bind(node, MAIN, address(host, MAIN));
            network.bind(node, ECHO, address(host, ECHO));
        }
        let path = network.connect(address(1, MAIN), address(2, MAIN), case.up, case.down);
        network.set_route(address(1, ECHO), address(2, ECHO), &[path.forward]);
        network.set_route(address(2, ECHO), address(1, ECHO), &[path.backward]);
        Self { simulation, start }
    }

    fn client(&self) -> (&Client, &[Entry]) {
        match &self.simulation.nodes[NodeId(0).0] {
            Node::Client {
                client, entries, ..
            } => (client, entries),
            Node::Server { .. } => unreachable!("node 0 is the client"),
        }
    }

    fn run(&mut self, limit: Duration) -> Result<(), Error> {
        let end = self.start + limit;
        while self.client().0.result().is_none() && self.simulation.now() < end {
            self.simulation.step(end);
        }
        self.client()
            .0
            .result()
            .cloned()
            .expect("the recording ends in time")
    }
}

/// The agreement of a recording with its link.
#[derive(Debug)]
struct Agreement {
    /// Median over seconds of |recorded − true| / true.
    capacity: f64,
    worst_second: f64,
    /// Median over 10 ms steps of |recorded − true|.
    delay_ms: f64,
    /// |median of recorded − median of true|.
    delay_level_ms: f64,
    /// Greatest difference between the lengths of corresponding outages; the maximum value if their numbers differ.
    outages_ms: u128,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[expect(clippy::cast_precision_loss, reason = "bytes of one second")]
fn agreement(recording: &Recording, spec: &LinkSpec) -> Agreement {
    let truth = |from: Duration, to: Duration| match &spec.rate {
        Rate::Trace(trace) => (trace.until(to) - trace.until(from)) as f64 * 1500.0,
        Rate::Constant(rate) => rate.bytes_in(to - from) as f64,
    };
    let capacity = &recording.trace.capacity;
    let seconds = capacity.period().as_secs();
    let errors: Vec<f64> = (0..seconds)
        .map(|second| {
            let (from, to) = (Duration::from_secs(second), Duration::from_secs(second + 1));
            let recorded = (capacity.until(to) - capacity.until(from)) as f64 * 1500.0;
            let truth = truth(recording.started + from, recording.started + to);
            (recorded - truth).abs() / truth
        })
        .collect();
    let series = recording.trace.delay.as_ref().unwrap();
    let (recorded, truth): (Vec<f64>, Vec<f64>) = (0..seconds * 100)
        .map(|step| {
            let at = Duration::from_millis(step * 10 + 5);
            let truth = match &spec.delay {
                Delay::Trace(series) => series.at(recording.started + at),
                Delay::Constant(delay) => *delay,
            };
            (series.at(at).as_secs_f64() * 1e3, truth.as_secs_f64() * 1e3)
        })
        .unzip();
    Agreement {
        worst_second: errors.iter().copied().fold(0.0, f64::max),
        capacity: median(errors),
        delay_ms: median(
            recorded
                .iter()
                .zip(&truth)
                .map(|(r, t)| (r - t).abs())
                .collect(),
        ),
        outages_ms: outages(recording, spec),
        delay_level_ms: (median(recorded) - median(truth)).abs(),
    }
}

/// The greatest difference between the lengths of the outages in a recording and of those in the link's trace.
fn outages(recording: &Recording, spec: &LinkSpec) -> u128 {
    let Rate::Trace(trace) = &spec.rate else {
        return 0;
    };
    let inside = recording.started..recording.started + recording.trace.capacity.period();
    let least = Duration::from_millis(45);
    let expected = trace.gaps(least).into_iter();
    let expected: Vec<_> = expected.filter(|(at, _)| inside.contains(at)).collect();
    let found = recording.trace.capacity.gaps(least);
    if found.len() != expected.len() {
        println!("outages: {found:?} in place of {expected:?}");
        return u128::MAX;
    }
    let lengths = found.iter().zip(&expected);
    let differences = lengths.map(|((_, a), (_, b))| a.abs_diff(*b).as_millis());
    differences.max().unwrap_or(0)
}

fn spec(text: &str) -> LinkSpec {
    text.parse().unwrap()
}

fn record(case: &Case<'_>) -> Recording {
    record_with(case, 0.0)
}

/// The same with a server whose clock drifts.
fn record_with(case: &Case<'_>, ppm: f64) -> Recording {
    let mut world = World::new(case, ppm);
    world.run(Duration::from_secs(800)).unwrap();
    let (_, entries) = world.client();
    let text: String = entries.iter().map(Entry::to_line).collect();
    let read = parse_journal("journal", text.as_bytes()).unwrap();
    Recording::from_journal("journal", &read).unwrap()
}

fn check(case: &Case<'_>) -> Recording {
    let recording = record(case);
    let link = match case.config.request.direction {
        Direction::Up => case.up,
        Direction::Down => case.down,
    };
    let found = agreement(&recording, link);
    println!("{found:?}, {recording:?}");
    assert!(recording.complete && recording.missing.is_zero());
    assert!(
        found.capacity < 0.03 && found.worst_second < 0.1,
        "{found:?}"
    );
    match recording.delay_source {
        DelaySource::Icmp => {
            assert!(
                found.delay_level_ms < 1.0 && found.delay_ms < 1.0,
                "{found:?}"
            );
            assert!(found.outages_ms < 20, "{found:?}");
        }
        // Later measurements do not have the jitter of each instant.
        _ => assert!(found.delay_level_ms < 3.0, "{found:?}"),
    }
    let loss = link.loss.mean();
    assert!(
        recording.loss.low <= loss && loss <= recording.loss.high,
        "{loss}: {:?}",
        recording.loss
    );
    recording
}

#[test]
fn a_synthetic_leo_uplink_comes_back() {
    let link = spec("synth=leo,rate=20mbit,seed=3,loss=0.5%");
    let recording = check(&Case {
        up: &link,
        down: &link,
        own_band: true,
        stamps: true,
        config: config(Direction::Up, Light::Icmp, 20),
        server_max: Bandwidth::from_mbit(1000),
    });
    assert_eq!(recording.delay_source, DelaySource::Icmp);
}

#[test]
fn a_synthetic_leo_downlink_comes_back_by_udp_alone() {
    let (up, down) = (
        spec("synth=leo,rate=25mbit,seed=4"),
        spec("synth=leo,rate=25mbit,seed=4,loss=1%"),
    );
    let recording = check(&Case {
        up: &up,
        down: &down,
        own_band: true,
        stamps: true,
        config: config(Direction::Down, Light::Udp, 15),
        server_max: Bandwidth::from_mbit(1000),
    });
    assert_eq!(recording.delay_source, DelaySource::UdpAlone);
}

#[test]
fn a_geostationary_link_whose_queue_icmp_shares_comes_back() {
    let (up, down) = (
        spec("synth=geo,seed=2"),
        spec("synth=geo,seed=2,loss=ge:1%:4"),
    );
    let mut config = config(Direction::Down, Light::Icmp, 10);
    config.request.loss_ms = 20_000;
    let recording = check(&Case {
        up: &up,
        down: &down,
        own_band: false,
        stamps: true,
        config,
        server_max: Bandwidth::from_mbit(1000),
    });
    assert_eq!(recording.delay_source, DelaySource::IcmpAlone);
}

#[test]
fn a_geostationary_link_with_its_own_band_comes_back() {
    let link = spec("synth=geo,seed=2,loss=0.5%");
    let recording = check(&Case {
        up: &link,
        down: &link,
        own_band: true,
        stamps: true,
        config: config(Direction::Down, Light::Icmp, 15),
        server_max: Bandwidth::from_mbit(1000),
    });
    assert_eq!(recording.delay_source, DelaySource::Icmp);
}

#[test]
fn a_cellular_link_comes_back_with_its_outages() {
    let link = spec("synth=cellular,seed=3");
    for (direction, seconds) in [(Direction::Up, 20), (Direction::Down, 12)] {
        let recording = record(&Case {
            up: &link,
            down: &link,
            own_band: true,
            stamps: true,
            config: config(direction, Light::Icmp, seconds),
            server_max: Bandwidth::from_mbit(1000),
        });
        let found = agreement(&recording, &link);
        println!("{found:?}");
        assert!(
            found.capacity < 0.03 && found.worst_second < 0.1,
            "{found:?}"
        );
        assert!(
            found.delay_ms < 1.0 && found.delay_level_ms <= 1.0,
            "{found:?}"
        );
        // The delay of each 10 ms differs by up to 30 ms.
        assert!(found.outages_ms < 40, "{found:?}");
    }
}

/// Each minute another 12 ms lay between both clocks; the arrivals that tell where an outage ends were not found there any more.
#[test]
fn a_long_recording_bears_clocks_that_drift_apart() {
    let link = spec("synth=cellular,seed=3");
    for ppm in [0.0, 200.0, -200.0] {
        let case = Case {
            up: &link,
            down: &link,
            own_band: true,
            stamps: true,
            config: config(Direction::Up, Light::Icmp, 150),
            server_max: Bandwidth::from_mbit(1000),
        };
        let found = agreement(&record_with(&case, ppm), &link);
        println!("{ppm}: {found:?}");
        assert!(found.capacity < 0.003, "{found:?}");
        assert!(
            found.delay_ms < 2.0 && found.delay_level_ms < 2.0,
            "{found:?}"
        );
    }
}

#[test]
fn a_server_without_sight_of_echo_requests_loses_little() {
    let link = spec("synth=leo,rate=20mbit,seed=3,loss=0.5%");
    let recording = record(&Case {
        up: &link,
        down: &link,
        own_band: true,
        stamps: false,
        config: config(Direction::Up, Light::Icmp, 20),
        server_max: Bandwidth::from_mbit(1000),
    });
    let found = agreement(&recording, &link);
    assert!(found.capacity < 0.03, "{found:?}");
    assert!(
        found.delay_level_ms < 1.0 && found.delay_ms < 2.0,
        "{found:?}"
    );
}

#[test]
fn a_recording_survives_an_outage_of_many_seconds() {
    let link = spec("rate=6mbit,delay=30ms,outage=8s..28s");
    let recording = record(&Case {
        up: &link,
        down: &link,
        own_band: true,
        stamps: true,
        config: config(Direction::Up, Light::Icmp, 30),
        server_max: Bandwidth::from_mbit(1000),
    });
    assert!(recording.complete && recording.missing.is_zero());
    let gaps = recording.trace.capacity.gaps(Duration::from_millis(500));
    let [(_, length)] = gaps[..] else {
        panic!("one outage, not {gaps:?}")
    };
    assert!(
        length.as_secs_f64() > 19.5 && length.as_secs_f64() < 21.0,
        "{length:?}"
    );
}

#[test]
fn a_server_limits_what_it_sends_and_whom_it_serves() {
    let link = spec("rate=40mbit,delay=10ms");
    let case = Case {
        up: &link,
        down: &link,
        own_band: true,
        stamps: true,
        config: config(Direction::Down, Light::Udp, 2),
        server_max: Bandwidth::from_mbit(8),
    };
    let recording = record(&case);
    assert!(
        recording.is_limited() && recording.begin.max_rate == case.server_max,
        "{recording:?}"
    );
    let mut stranger = Case {
        config: config(Direction::Down, Light::Udp, 2),
        ..case
    };
    stranger.config.key = Key::new(&[1; 32]);
    let mut world = World::new(&stranger, 0.0);
    assert_eq!(world.run(Duration::from_secs(60)), Err(Error::NoAnswer));
    assert_eq!(world.simulation.network.stats().no_route, 0,);
}

#[test]
fn recorded_starlink_links_come_back() {
    let files = [
        "leocc-example/bw_example.txt",
        "leocc-example/delay_example.txt",
        "leocc-downlink/q25_A_downlink_600.csv",
    ];
    let [Some(bw), Some(delay), Some(table)] = files.map(starhaul_needs::trace) else {
        return;
    };
    let [bw, delay, table] = [&bw, &delay, &table].map(|file| file.display());
    let up = spec(&format!("bw={bw},delay={delay},loss=0.2%"));
    check(&Case {
        up: &up,
        down: &up,
        own_band: true,
        stamps: true,
        config: config(Direction::Up, Light::Icmp, 20),
        server_max: Bandwidth::from_mbit(1000),
    });
    let down = spec(&format!("csv={table},loss=0.01%"));
    check(&Case {
        up: &down,
        down: &down,
        own_band: true,
        stamps: true,
        config: config(Direction::Down, Light::Icmp, 5),
        server_max: Bandwidth::from_mbit(1000),
    });
}
