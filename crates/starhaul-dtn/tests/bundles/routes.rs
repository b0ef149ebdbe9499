//! Whole nodes, and which way bundles take between them.

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::SocketAddr,
    time::{Duration, Instant, SystemTime},
};

use super::kit::{LIFETIME, Running, connected, hello, over_ltp, stop, tcp, udp, until};
use hardy_bpv7::{
    block::{Flags, Type},
    bpsec::no_keys,
    builder::Builder,
    bundle::ParsedBundle,
    crc::CrcType,
    creation_timestamp::CreationTimestamp,
    editor::{Chunk, Editor},
    hop_info::HopInfo,
};
use starhaul_dtn::{blocks, plan::Moment};
use starhaul_dtn_client::control::Client;
use starhaul_ltp::{Engine, EngineConfig, EngineId, Event, Outgoing, PeerConfig};
use starhaul_net::{IoMode, ltp::LtpDriver};

/// A node in memory that talks LTP to others.
fn node(number: u32, listen: SocketAddr, peers: &[(u32, SocketAddr)], more: &str) -> String {
    let peers = peers.iter().map(|(peer, address)| {
        format!("[[ltp.peer]]\nnode = \"ipn:{peer}.0\"\naddress = \"{address}\"\n")
    });
    format!(
        "node = \"ipn:{number}.0\"\n{more}\n[storage]\nkind = \"memory\"\n[ltp]\nlisten = \"{listen}\"\n{}",
        peers.collect::<String>()
    )
}

/// A contact between two nodes, in seconds after the epoch.
fn contact(ends: (u32, u32), seconds: std::ops::Range<u32>, rate: &str) -> String {
    let ((from, to), std::ops::Range { start, end }) = (ends, seconds);
    format!(
        "[[contact]]\nfrom = \"ipn:{from}.0\"\nto = \"ipn:{to}.0\"\nstart = \"+{start}s\"\nend = \"+{end}s\"\nrate = \"{rate}\"\n"
    )
}

async fn sender(running: &Running) -> Client {
    let mut client = running.client().await;
    client.open(None).await.unwrap();
    client
}

/// Waits until so many bundles whose first bytes differ have come.
async fn receive(client: &mut Client, count: usize, patience: Duration) {
    let (mut seen, until) = (BTreeSet::new(), Instant::now() + patience);
    while seen.len() < count {
        let left = until.saturating_duration_since(Instant::now());
        let has_come = client.has_bundle(left).await.unwrap();
        assert!(has_come, "{} of {count} have come", seen.len());
        let bundle = client.next_bundle().await.unwrap();
        client.acknowledge(&bundle.id).await.unwrap();
        assert!(seen.insert(bundle.payload[0]), "one came twice");
    }
}

/// The orbiter can send on only a part of what it has before the best way leads back over the lander: the rest waits for the
/// orbiter's next contact.
#[tokio::test(flavor = "multi_thread")]
async fn what_came_from_a_node_does_not_go_back_there() {
    let (l, o, s) = (udp(), udp(), udp());
    let epoch = Moment::from(SystemTime::now()).plus(Duration::from_secs(1));
    let plan = [
        format!("epoch = \"{epoch}\"\n"),
        contact((1, 2), 0..4, "1gbit"),
        contact((2, 3), 0..1, "1mbit"),
        contact((1, 3), 5..60, "100mbit"),
        contact((2, 3), 6..60, "100mbit"),
    ]
    .concat();
    let lander = Running::start(&node(1, l, &[(2, o), (3, s)], &plan)).await;
    let orbiter = Running::start(&node(2, o, &[(1, l), (3, s)], &plan)).await;
    let station = Running::start(&node(3, s, &[(1, l), (2, o)], &plan)).await;
    let mut client = station.client().await;
    client.open(Some("5")).await.unwrap();
    let mut sender = sender(&lander).await;
    for number in 0..20 {
        let payload = vec![number; 50_000];
        sender.send("ipn:3.5", &payload, LIFETIME).await.unwrap();
    }
    receive(&mut client, 20, LIFETIME).await;
    stop([lander, orbiter, station]).await;
}

/// Two nodes that take each other for the way to all others: what neither knows stays with the one that has it.
#[tokio::test(flavor = "multi_thread")]
async fn routes_that_point_at_each_other_lose_nothing() {
    let (a, b) = (udp(), udp());
    let via = |to: u32| format!("[[route]]\nto = \"ipn:9.*\"\nvia = \"ipn:{to}.0\"");
    let first = Running::start(&node(1, a, &[(2, b)], &via(2))).await;
    let second = Running::start(&node(2, b, &[(1, a)], &via(1))).await;
    let mut sender = sender(&first).await;
    sender.send("ipn:9.5", b"lost?", LIFETIME).await.unwrap();
    until(&first, "it has left", |status| status.storage.bundles == 0).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    until(&second, "it waits", |status| {
        status.storage.bundles == 1 && status.counters.sent == 0
    })
    .await;
    stop([first, second]).await;
}

const NODE: EngineId = EngineId(2);

/// An engine of LTP in place of a node.
struct Neighbour(LtpDriver);

impl Neighbour {
    fn new(number: u64) -> Self {
        let mut engine = Engine::new(EngineConfig::new(EngineId(number), [7; 32]));
        let peer = PeerConfig::new(Duration::ZERO, None);
        engine.add_peer(Instant::now(), NODE, peer).unwrap();
        engine.open_service(blocks::BUNDLE);
        let local = "127.0.0.1:0".parse().unwrap();
        Self(LtpDriver::bind(local, IoMode::default(), engine).unwrap())
    }

    /// Whether the node takes a bundle.
    fn is_taken(&mut self, bundle: &[u8]) -> bool {
        let outgoing = Outgoing {
            to: NODE,
            service: blocks::BUNDLE,
            red: bundle.len() as u64,
            block: bundle.to_vec().into(),
        };
        self.0.engine().send(Instant::now(), outgoing).unwrap();
        self.event(|event| match event {
            Event::Sent { .. } => Some(true),
            Event::SendCancelled { .. } => Some(false),
            _ => None,
        })
    }

    fn receive(&mut self) -> Vec<u8> {
        self.event(|event| match event {
            Event::RedPart { block, .. } => Some(block.into_bytes().to_vec()),
            _ => None,
        })
    }

    fn event<T>(&mut self, wanted: impl Fn(Event) -> Option<T>) -> T {
        let limit = Instant::now() + Duration::from_secs(60);
        while Instant::now() < limit {
            self.0
                .turn(Some(Instant::now() + Duration::from_millis(20)))
                .unwrap();
            while let Some(event) = self.0.poll_event() {
                if let Some(found) = wanted(event) {
                    // The report of a block leaves.
                    self.0.turn(Some(Instant::now())).unwrap();
                    return found;
                }
            }
        }
        panic!("nothing comes");
    }
}

/// A bundle that has gone round comes from another neighbour, after two hops more: it is refused, so that its sender keeps it. What
/// the first neighbour sends again is acknowledged, also what it sends over another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_has_gone_round_stays_with_its_sender() {
    let (mut source, mut next) = (Neighbour::new(1), Neighbour::new(3));
    let peers = [(1, source.0.local_addr()), (3, next.0.local_addr())];
    let route = "[[route]]\nto = \"ipn:9.*\"\nvia = \"ipn:3.0\"";
    let middle = Running::start(&node(2, udp(), &peers, route)).await;
    let address = middle.node.handle().ltp_address().unwrap();
    source.0.set_address(NODE, address);
    next.0.set_address(NODE, address);
    let stamp = CreationTimestamp::now();
    let after = |count: u64| {
        let hops = HopInfo { limit: 64, count };
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:9.5".parse().unwrap());
        let builder = builder.with_hop_count(&hops).with_lifetime(LIFETIME);
        let builder = builder.with_payload(b"round".as_slice().into());
        builder.build(stamp.clone()).unwrap().1.into_vec()
    };
    let [bundle, over_another, round] = [0, 1, 2].map(after);
    let first = bundle.clone();
    let (mut source, mut next) = tokio::task::spawn_blocking(move || {
        assert!(source.is_taken(&first));
        next.receive();
        (source, next)
    })
    .await
    .unwrap();
    until(&middle, "it has left", |status| status.storage.bundles == 0).await;
    tokio::task::spawn_blocking(move || {
        assert!(source.is_taken(&bundle), "it is sent again");
        assert!(next.is_taken(&over_another), "it is sent over another");
        assert!(!next.is_taken(&round), "it comes back");
        assert!(source.is_taken(&bundle), "it is sent again");
    })
    .await
    .unwrap();
    until(&middle, "nothing is held", |status| {
        status.storage.bundles == 0 && status.counters.refused == 0
    })
    .await;
    stop([middle]).await;
}

/// A bundle after so many hops, with its marks.
fn after_hops(data: &[u8], count: u8) -> Vec<u8> {
    let bundle = ParsedBundle::parse(data, no_keys).unwrap().bundle;
    let block = Editor::new(&bundle, data).insert_block(Type::HopCount);
    let block = block.map_err(|(_, error)| error).unwrap();
    // An array of the limit, 64, and the count.
    let editor = block
        .with_data(vec![0x82, 0x18, 64, count].into())
        .rebuild();
    Chunk::flatten(editor.rebuild().unwrap(), data).into_vec()
}

/// A second copy has come over two other nodes, and has made as many hops as one that has gone round. What the nodes leave in a bundle
/// tells them apart, also after the node was started anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_over_other_nodes_is_told_from_a_bundle_that_has_gone_round() {
    let (mut source, mut next) = (Neighbour::new(1), Neighbour::new(3));
    let third = format!(
        "[[ltp.peer]]\nnode = \"ipn:3.0\"\naddress = \"{}\"\n",
        next.0.local_addr()
    );
    let route = "[[route]]\nto = \"ipn:9.*\"\nvia = \"ipn:3.0\"";
    let text = over_ltp(2, udp(), 1, source.0.local_addr(), route) + &third;
    let middle = Running::start(&text).await;
    let address = middle.node.handle().ltp_address().unwrap();
    source.0.set_address(NODE, address);
    next.0.set_address(NODE, address);
    let stamp = CreationTimestamp::now();
    let plain = || {
        let hops = HopInfo {
            limit: 64,
            count: 0,
        };
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:9.5".parse().unwrap());
        let builder = builder.with_hop_count(&hops).with_lifetime(LIFETIME);
        builder.with_payload(b"round".as_slice().into())
    };
    let bundle = plain().build(stamp.clone()).unwrap().1.into_vec();
    let marked = |marks: [u8; 16]| {
        let block = plain().add_extension_block(Type::Unrecognised(227));
        let flags = Flags {
            must_replicate: true,
            ..Flags::default()
        };
        let block = block.unwrap().with_flags(flags);
        let block = block.with_crc_type(CrcType::None);
        let marked = block.build(marks.to_vec().into());
        let marked = marked.build(stamp.clone()).unwrap().1.into_vec();
        after_hops(&marked, 2)
    };
    // The source's node has left its mark, and the middle has not: the SHA-256 of "ipn:1.0" begins with 18 88 fb, which are the bits
    // 24, 8 and 123.
    let copy = marked([0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8]);
    // The marks were removed on the way, those of the middle perhaps among them, and begun anew.
    let begun_anew = marked([0; 16]);
    let (mut next, round) = tokio::task::spawn_blocking(move || {
        assert!(source.is_taken(&bundle));
        let left = next.receive();
        (next, after_hops(&left, 2))
    })
    .await
    .unwrap();
    let gone = |running: &Running| running.node.handle().status().storage.bundles == 0;
    until(&middle, "it has left", |status| status.storage.bundles == 0).await;
    let (copy_again, round_again) = (copy.clone(), round.clone());
    let mut next = tokio::task::spawn_blocking(move || {
        assert!(next.is_taken(&copy), "a copy is refused");
        assert!(!next.is_taken(&round), "it comes back");
        assert!(!next.is_taken(&begun_anew), "it may have come back");
        next
    })
    .await
    .unwrap();
    assert!(gone(&middle));
    let middle = Running::start_in(middle.stop().await, &text).await;
    let mut next = {
        let address = middle.node.handle().ltp_address().unwrap();
        next.0.set_address(NODE, address);
        next
    };
    tokio::task::spawn_blocking(move || {
        assert!(next.is_taken(&copy_again), "a copy is refused");
        assert!(!next.is_taken(&round_again), "it comes back");
    })
    .await
    .unwrap();
    assert!(gone(&middle));
    stop([middle]).await;
}

/// Waits until a node may send to these neighbours and no others.
async fn until_open(running: &Running, wanted: &[&str]) {
    until(running, "neighbours", |status| {
        let open = status.neighbours.iter().filter(|at| at.is_open);
        open.map(|at| at.node.as_str()).eq(wanted.iter().copied())
    })
    .await;
}

/// The best way leads over a neighbour that is not there.
#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_that_is_not_connected_is_routed_around() {
    let (a, c, d) = (udp(), udp(), udp());
    let epoch = Moment::from(SystemTime::now());
    let plan = [
        format!("epoch = \"{epoch}\"\n"),
        contact((1, 2), 0..60, "1gbit"),
        contact((2, 4), 0..60, "1gbit"),
        contact((1, 3), 0..60, "10mbit"),
        contact((3, 4), 0..60, "10mbit"),
    ]
    .concat();
    let dead = tcp();
    let first = node(1, a, &[(3, c)], &plan)
        + &format!("[tcp]\n[[tcp.peer]]\nnode = \"ipn:2.0\"\naddress = \"{dead}\"\n");
    let source = Running::start(&first).await;
    let relay = Running::start(&node(3, c, &[(1, a), (4, d)], &plan)).await;
    let end = Running::start(&node(4, d, &[(3, c)], &plan)).await;
    let mut client = end.client().await;
    client.open(Some("5")).await.unwrap();
    let mut sender = sender(&source).await;
    sender.send("ipn:4.5", b"x", LIFETIME).await.unwrap();
    receive(&mut client, 1, LIFETIME).await;
    stop([source, relay, end]).await;
}

/// A slow link leads to the destination, and two fast ones by way of another node.
#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_goes_over_a_relay_if_it_arrives_first() {
    let (a, b, c) = (udp(), udp(), udp());
    let epoch = Moment::from(SystemTime::now());
    let plan = [
        format!("epoch = \"{epoch}\"\n"),
        contact((1, 2), 0..60, "1kbit"),
        contact((1, 3), 0..60, "1gbit"),
        contact((3, 2), 0..60, "1gbit"),
    ]
    .concat();
    let source = Running::start(&node(1, a, &[(2, b), (3, c)], &plan)).await;
    let end = Running::start(&node(2, b, &[(1, a), (3, c)], &plan)).await;
    let relay = Running::start(&node(3, c, &[(1, a), (2, b)], &plan)).await;
    until_open(&source, &["ipn:3.0"]).await;
    let mut client = end.client().await;
    client.open(Some("5")).await.unwrap();
    let mut sender = sender(&source).await;
    sender.send("ipn:2.5", b"x", LIFETIME).await.unwrap();
    receive(&mut client, 1, LIFETIME).await;
    until(&relay, "it has gone over the relay", |status| {
        status.counters.sent == 1
    })
    .await;
    stop([source, end, relay]).await;
}

/// Small bundles go where the light takes less, large ones where the rate is higher, whichever of the two the agent knows as the route.
#[tokio::test(flavor = "multi_thread")]
async fn small_and_large_bundles_for_a_node_take_the_ways_of_their_sizes() {
    let (a, b, c, d) = (udp(), udp(), udp(), udp());
    let epoch = Moment::from(SystemTime::now());
    let far = |ends| contact(ends, 0..60, "100mbit") + "light_time = \"1s\"\n";
    let plan = [
        format!("epoch = \"{epoch}\"\n"),
        contact((1, 2), 0..60, "100kbit"),
        contact((2, 4), 0..60, "100kbit"),
        far((1, 3)),
        far((3, 4)),
    ]
    .concat();
    let source = Running::start(&node(1, a, &[(2, b), (3, c)], &plan)).await;
    let near = Running::start(&node(2, b, &[(1, a), (4, d)], &plan)).await;
    let fast = Running::start(&node(3, c, &[(1, a), (4, d)], &plan)).await;
    let end = Running::start(&node(4, d, &[(2, b), (3, c)], &plan)).await;
    let mut client = end.client().await;
    client.open(Some("5")).await.unwrap();
    let mut sender = sender(&source).await;
    for payload in [vec![1; 300_000], vec![2; 10], vec![3; 300_000]] {
        sender.send("ipn:4.5", &payload, LIFETIME).await.unwrap();
    }
    receive(&mut client, 3, LIFETIME).await;
    for (relay, sent) in [(&near, 1), (&fast, 2)] {
        until(relay, "it has sent on those of its size", |status| {
            status.counters.sent == sent
        })
        .await;
    }
    until(&source, "nothing is held", |status| {
        status.storage.bundles == 0
    })
    .await;
    stop([source, near, fast, end]).await;
}

/// The plan says when a neighbour on the same network can talk to the station, and nothing of the way to that neighbour.
#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_that_is_always_there_leads_to_the_nodes_of_the_plan() {
    let (a, b, s) = (udp(), udp(), udp());
    let epoch = Moment::from(SystemTime::now());
    let plan = format!("epoch = \"{epoch}\"\n{}", contact((2, 3), 0..60, "10mbit"));
    let source = Running::start(&node(1, a, &[(2, b)], &plan)).await;
    let relay = Running::start(&node(2, b, &[(1, a), (3, s)], &plan)).await;
    let station = Running::start(&node(3, s, &[(2, b)], &plan)).await;
    let mut client = station.client().await;
    client.open(Some("5")).await.unwrap();
    let mut sender = sender(&source).await;
    sender.send("ipn:3.5", b"x", LIFETIME).await.unwrap();
    receive(&mut client, 1, LIFETIME).await;
    stop([source, relay, station]).await;
}

/// A stranger that connects under the name of the node itself, and might do so under any.
#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_with_the_name_of_the_node_gets_nothing() {
    for name in ["ipn:2.0", "ipn:!.0"] {
        let address = tcp();
        let text = format!(
            "node = \"ipn:2.0\"\n[storage]\nkind = \"memory\"\n[tcp]\nlisten = \"{address}\"\naccept_unknown = true\n"
        );
        let station = Running::start(&text).await;
        let mut client = station.client().await;
        client.open(Some("5")).await.unwrap();
        // A segment is acknowledged when the node has looked at who came.
        let segment = [
            [1, 2].as_slice(),
            &1_u64.to_be_bytes(),
            &0_u32.to_be_bytes(),
            &1_u64.to_be_bytes(),
            b"x",
        ]
        .concat();
        let strangers = tokio::task::spawn_blocking(move || {
            [name, "ipn:3.0"].map(|name| {
                let mut stream = connected(address);
                stream.write_all(&hello(name)).unwrap();
                stream.write_all(&segment).unwrap();
                let mut answer = [0; 6 + 21 + 18];
                stream.read_exact(&mut answer).unwrap();
                stream
            })
        });
        let streams = strangers.await.unwrap();
        until_open(&station, &["ipn:3.0"]).await;
        let mut sender = sender(&station).await;
        sender.send("ipn:2.5", b"x", LIFETIME).await.unwrap();
        receive(&mut client, 1, LIFETIME).await;
        drop(streams);
        stop([station]).await;
    }
}

/// A peer has another name than the configuration gives it: its connection stays, and no more are made beside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_peer_under_another_name_is_connected_to_once_and_told_as_closed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let text = format!(
        "node = \"ipn:1.0\"\n[storage]\nkind = \"memory\"\n[tcp]\n[[tcp.peer]]\nnode = \"ipn:2.0\"\naddress = \"{address}\"\n"
    );
    let running = Running::start(&text).await;
    let (mut stream, _) = listener.accept().await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, &hello("ipn:7.0"))
        .await
        .unwrap();
    let accepted = async |patience| tokio::time::timeout(patience, listener.accept()).await;
    assert!(
        accepted(Duration::from_secs(5)).await.is_err(),
        "it connects again"
    );
    let status = running.client().await.status().await.unwrap();
    let told = status
        .neighbours
        .iter()
        .map(|at| (at.node.as_str(), at.is_open));
    assert_eq!(told.collect::<Vec<_>>(), [("ipn:2.0", false)]);
    // When it ends, the peer may have got its right name.
    drop(stream);
    assert!(accepted(Duration::from_secs(60)).await.is_ok());
    stop([running]).await;
}
