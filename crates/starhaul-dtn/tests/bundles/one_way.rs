//! Links over LTP without a way back: what a node sends counts as sent when it has left, and what it receives it does not acknowledge.

use std::{
    collections::BTreeSet,
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use hardy_bpv7::{builder::Builder, creation_timestamp::CreationTimestamp, dtn_time::DtnTime};
use starhaul_dtn::blocks;
use starhaul_ltp::{Coding, Engine, EngineConfig, Event, Outgoing, PeerConfig};
use starhaul_net::{IoMode, ltp::LtpDriver};
use starhaul_units::Bandwidth;

use super::kit::{
    LIFETIME, Running, over_ltp,
    source::{NODE, SOURCE},
    stop, udp, until,
};

/// More than an engine receives at a time: sessions that never ended would leave no room for the last of them.
const BUNDLES: u64 = 5000;
/// What may be lost where this computer is busy, beyond what is repaired.
const LOST: u64 = 300;

/// A link from one address to another that loses one datagram in 20, and has no way back; the socket that hears if anything comes back.
fn link(from: SocketAddr, to: SocketAddr) -> UdpSocket {
    let near = UdpSocket::bind(from).unwrap();
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    let out = far.try_clone().unwrap();
    // It ends with the test's process.
    std::thread::spawn(move || {
        let (mut datagram, mut count) = (vec![0; 65_536], 0_u64);
        while let Ok(length) = near.recv(&mut datagram) {
            count += 1;
            if !count.is_multiple_of(20) {
                out.send_to(&datagram[..length], to).unwrap();
            }
        }
    });
    far.set_nonblocking(true).unwrap();
    far
}

/// Repair segments bring all bundles over a link that loses some; the sender keeps none, and the receiver says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn bundles_cross_a_lossy_link_without_a_way_back() {
    let (a, b, between) = (udp(), udp(), udp());
    let back = link(between, b);
    let lander = over_ltp(1, a, 2, between, "");
    let out = "one_way = \"out\"\nrate = \"4mbit\"\nrepair = \"10%\"\n";
    let lander = Running::start(&format!("{lander}{out}")).await;
    let station = format!(
        "node = \"ipn:2.0\"\n[storage]\nkind = \"memory\"\n[ltp]\nlisten = \"{b}\"\n\
         [[ltp.peer]]\nnode = \"ipn:1.0\"\none_way = \"in\"\n"
    );
    let station = Running::start(&station).await;
    let mut far = station.client().await;
    far.open(Some("5")).await.unwrap();
    let mut near = lander.client().await;
    near.open(None).await.unwrap();
    for number in 0..20_u8 {
        let payload = vec![number; 20_000];
        near.send("ipn:2.5", &payload, LIFETIME).await.unwrap();
    }
    let mut arrived = BTreeSet::new();
    while arrived.len() < 20 {
        assert!(far.has_bundle(LIFETIME).await.unwrap(), "{arrived:?}");
        let bundle = far.next_bundle().await.unwrap();
        assert_eq!(bundle.payload, vec![bundle.payload[0]; 20_000]);
        arrived.insert(bundle.payload[0]);
        far.acknowledge(&bundle.id).await.unwrap();
    }
    until(&lander, "none waits for an answer", |status| {
        status.storage.bundles == 0 && status.counters.sent == 20
    })
    .await;
    // An answer has no way: it stays, and the link is silent.
    far.send("ipn:1.5", b"thanks", LIFETIME).await.unwrap();
    until(&station, "it is kept", |status| status.storage.bundles == 1).await;
    assert!(back.recv(&mut [0; 2000]).is_err(), "something came back");
    assert_eq!(
        station.client().await.status().await.unwrap().counters.sent,
        0
    );
    stop([lander, station]).await;
}

/// Nobody would ask for what counts as sent and is still here: a name may have no address when the node starts.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_leave_is_not_sent() {
    let at = udp();
    let text = format!(
        "node = \"ipn:1.0\"\n[storage]\nkind = \"memory\"\n[ltp]\nlisten = \"{at}\"\n\
         [[ltp.peer]]\nnode = \"ipn:2.0\"\naddress = \"nobody.invalid:1113\"\n\
         one_way = \"out\"\nrate = \"4mbit\"\nrepair = \"10%\"\n"
    );
    let node = Running::start(&text).await;
    let mut client = node.client().await;
    client.open(None).await.unwrap();
    client.send("ipn:2.5", b"kept", LIFETIME).await.unwrap();
    until(&node, "it is tried", |status| {
        status.counters.ltp_segments > 0
    })
    .await;
    // All of an attempt is made in milliseconds, and told a little later.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let tried = client.status().await.unwrap().counters.ltp_segments;
    until(&node, "it is tried again", |status| {
        status.counters.ltp_segments > tried
    })
    .await;
    let status = client.status().await.unwrap();
    assert_eq!((status.counters.sent, status.storage.bundles), (0, 1));
    stop([node]).await;
}

/// A session whose sender cannot acknowledge ends when its bundle is stored, so that there is room for those that follow.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_goes_on_receiving_from_who_cannot_be_answered() {
    let at = udp();
    let text = format!(
        "node = \"ipn:2.0\"\n[storage]\nkind = \"memory\"\n[ltp]\nlisten = \"{at}\"\n\
         [[ltp.peer]]\nnode = \"ipn:1.0\"\none_way = \"in\"\n"
    );
    let node = Running::start(&text).await;
    let sending = tokio::task::spawn_blocking(move || send_all(at));
    sending.await.unwrap();
    until(&node, "all but a few are stored", |status| {
        status.storage.bundles >= BUNDLES - LOST
    })
    .await;
    stop([node]).await;
}

/// Sends bundles from an engine that cannot be answered, each as a block of its own.
fn send_all(to: SocketAddr) {
    let mut config = PeerConfig::new(Duration::ZERO, Some(Bandwidth::from_mbit(10)));
    config.is_one_way = true;
    config.coding = Some(Coding::new(0.01));
    let mut engine = Engine::new(EngineConfig::new(SOURCE, [7; 32]));
    engine.add_peer(Instant::now(), NODE, config).unwrap();
    let local = "127.0.0.1:0".parse().unwrap();
    let mut driver = LtpDriver::bind(local, IoMode::default(), engine).unwrap();
    driver.set_address(NODE, to);
    let (mut begun, mut left) = (0, 0);
    while left < BUNDLES || !driver.is_drained() {
        if begun < BUNDLES && begun - left < 100 {
            let block = bundle(begun);
            begun += 1;
            let outgoing = Outgoing {
                to: NODE,
                service: blocks::BUNDLE,
                red: block.len() as u64,
                block: block.into(),
            };
            driver.engine().send(Instant::now(), outgoing).unwrap();
        }
        let wait = Duration::from_millis(10);
        driver.turn(Some(Instant::now() + wait)).unwrap();
        while let Some(event) = driver.poll_event() {
            left += u64::from(matches!(event, Event::Transmitted { .. }));
        }
    }
}

/// A bundle for a node without a route, whose number tells it from others.
fn bundle(number: u64) -> Vec<u8> {
    let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:9.5".parse().unwrap());
    let builder = builder
        .with_lifetime(LIFETIME)
        .with_payload(b"x".as_slice().into());
    let stamp = CreationTimestamp::from_parts(Some(DtnTime::now()), number);
    builder.build(stamp).unwrap().1.into_vec()
}
