//! A node beside an engine of LTP that is no node: what it refuses, and what it counts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use hardy_bpv7::{
    block::Type, builder::Builder, creation_timestamp::CreationTimestamp, dtn_time::DtnTime,
};
use starhaul_dtn::{Config, Node, blocks, plan::Moment};
use starhaul_ltp::{Engine, EngineConfig, EngineId, Event, Outgoing, PeerConfig};
use starhaul_net::{IoMode, ltp::LtpDriver};

const PATIENCE: Duration = Duration::from_secs(60);
const NODE: EngineId = EngineId(2);

/// Blocks that were acknowledged and cancelled.
#[derive(Debug, Default)]
struct Outcome {
    acknowledged: usize,
    cancelled: usize,
}

/// A node whose store has these limits, and an engine that is its neighbour.
async fn pair(limits: &str) -> (Node, LtpDriver) {
    let mut engine = Engine::new(EngineConfig::new(EngineId(1), [7; 32]));
    let peer = PeerConfig::new(Duration::ZERO, None);
    engine.add_peer(Instant::now(), NODE, peer).unwrap();
    let local = "127.0.0.1:0".parse().unwrap();
    let mut driver = LtpDriver::bind(local, IoMode::default(), engine).unwrap();
    let text = format!(
        "node = \"ipn:2.0\"\n[storage]\nkind = \"memory\"\n{limits}\n[ltp]\nlisten = \"127.0.0.1:0\"\n\
         [[ltp.peer]]\nnode = \"ipn:1.0\"\naddress = \"{}\"\n",
        driver.local_addr()
    );
    let config = Config::parse(&text, Path::new("node.toml"), SystemTime::now().into()).unwrap();
    let node = Node::start(config).await.unwrap();
    driver.set_address(NODE, node.handle().ltp_address().unwrap());
    (node, driver)
}

/// Sends blocks, and waits until each is acknowledged or cancelled.
async fn send(mut driver: LtpDriver, sent: Vec<(u64, Bytes)>) -> Outcome {
    let sending = tokio::task::spawn_blocking(move || {
        let count = sent.len();
        for (service, block) in sent {
            let outgoing = Outgoing {
                to: NODE,
                service,
                red: block.len() as u64,
                block,
            };
            driver.engine().send(Instant::now(), outgoing).unwrap();
        }
        let (limit, mut outcome) = (Instant::now() + PATIENCE, Outcome::default());
        while outcome.acknowledged + outcome.cancelled < count {
            assert!(Instant::now() < limit, "{outcome:?} of {count}");
            driver.turn(Some(limit)).unwrap();
            while let Some(event) = driver.poll_event() {
                match event {
                    Event::Sent { .. } => outcome.acknowledged += 1,
                    Event::SendCancelled { .. } => outcome.cancelled += 1,
                    _ => {}
                }
            }
        }
        driver.turn(Some(Instant::now())).unwrap();
        outcome
    });
    sending.await.unwrap()
}

/// A bundle for a node without a route, whose number tells it from others, with a block of so many bytes beside its payload.
fn bundle(number: u64, extension: usize) -> Bytes {
    let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:9.5".parse().unwrap());
    let block = builder
        .with_lifetime(Duration::from_secs(60))
        .add_extension_block(Type::Unrecognised(201))
        .unwrap();
    let builder = block.build(vec![7; extension].into());
    let builder = builder.with_payload(b"x".as_slice().into());
    let stamp = CreationTimestamp::from_parts(Some(DtnTime::now()), number);
    builder.build(stamp).unwrap().1.into_vec().into()
}

/// What cannot be told apart from other data is not stored, so its sender must keep all of the block.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_is_not_all_bundles_is_not_acknowledged() {
    for wrong in [&[2, 0x80][..], &[1, 0x9f, 0x01]] {
        let (node, driver) = pair("").await;
        let whole = blocks::join(&[bundle(1, 10), bundle(2, 10)]);
        let block = [&whole[..], wrong].concat().into();
        let outcome = send(driver, vec![(blocks::AGGREGATE, block)]).await;
        assert_eq!(outcome.acknowledged, 0, "{wrong:?}");
        assert!(node.shutdown().await);
    }
}

/// Counts lines of the log that say this.
struct Lines(&'static str, Arc<AtomicUsize>);

impl tracing::Subscriber for Lines {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(
            &mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                if field.name() == "message" && format!("{value:?}") == self.0 {
                    self.1.fetch_add(1, Ordering::Relaxed);
                }
            },
        );
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// A neighbour that sends nonsense cannot fill the log: each node has a line a minute.
#[tokio::test(flavor = "multi_thread")]
async fn many_blocks_that_cannot_be_read_are_one_line_of_the_log() {
    let lines = Arc::<AtomicUsize>::default();
    tracing::subscriber::set_global_default(Lines("a block is refused", lines.clone())).unwrap();
    let (node, driver) = pair("").await;
    let wrong = (0..40).map(|_| (blocks::AGGREGATE, Bytes::from_static(&[1, 0x9f, 0x01])));
    let outcome = send(driver, wrong.collect()).await;
    assert_eq!(outcome.acknowledged, 0);
    assert_eq!(node.handle().status().counters.ltp_unreadable, 40);
    // The nodes of the other tests have theirs.
    let lines = lines.load(Ordering::Relaxed);
    assert!((1..=3).contains(&lines), "{lines}");
    assert!(node.shutdown().await);
}

/// The limit is for all that is stored, whichever block of a bundle it is in.
#[tokio::test(flavor = "multi_thread")]
async fn all_blocks_of_a_bundle_count_against_the_limit() {
    const BYTES: usize = 200_000;
    let (node, driver) = pair("max_bytes = \"1MB\"\nmax_bundle_bytes = \"500kB\"").await;
    let sent = (0..12).map(|number| (blocks::BUNDLE, bundle(number, BYTES)));
    let outcome = send(driver, sent.collect()).await;
    let storage = node.handle().status().storage;
    assert_eq!(storage.bundles, outcome.acknowledged as u64);
    assert!(storage.bundles > 0, "{outcome:?}");
    let least = storage.bundles * BYTES as u64;
    assert!(
        (least..=1_000_000).contains(&storage.bytes),
        "{least} {storage:?}"
    );
    assert!(node.shutdown().await);
}

/// A neighbour refuses a block of several bundles, since it does not take one of them: alone, the others are taken.
#[tokio::test(flavor = "multi_thread")]
async fn bundles_of_a_block_that_is_refused_go_alone() {
    let mut config = EngineConfig::new(EngineId(1), [7; 32]);
    config.awaits_acceptance = true;
    let mut engine = Engine::new(config);
    let peer = PeerConfig::new(Duration::ZERO, None);
    engine.add_peer(Instant::now(), NODE, peer).unwrap();
    engine.open_service(blocks::BUNDLE);
    engine.open_service(blocks::AGGREGATE);
    let local = "127.0.0.1:0".parse().unwrap();
    let mut driver = LtpDriver::bind(local, IoMode::default(), engine).unwrap();
    // After all bundles are stored, on a busy computer too.
    let epoch = Moment::from(SystemTime::now()).plus(Duration::from_secs(5));
    let text = format!(
        "node = \"ipn:2.0\"\nepoch = \"{epoch}\"\n[storage]\nkind = \"memory\"\n[ltp]\nlisten = \"127.0.0.1:0\"\n\
         [[ltp.peer]]\nnode = \"ipn:1.0\"\naddress = \"{}\"\n\
         [[contact]]\nfrom = \"ipn:2.0\"\nto = \"ipn:1.0\"\nstart = \"+0s\"\nend = \"+60s\"\nrate = \"1gbit\"\n",
        driver.local_addr()
    );
    let config = Config::parse(&text, Path::new("node.toml"), SystemTime::now().into()).unwrap();
    let node = Node::start(config).await.unwrap();
    driver.set_address(NODE, node.handle().ltp_address().unwrap());
    // They wait for the contact together.
    let (deliveries, _delivered) = tokio::sync::mpsc::channel(1);
    let (app, _) = node.handle().open(Some("5"), deliveries).await.unwrap();
    for number in 0..20 {
        let lifetime = Duration::from_secs(60);
        app.send("ipn:1.5".parse().unwrap(), &[number], lifetime)
            .await
            .unwrap();
    }
    let receiving = tokio::task::spawn_blocking(move || {
        let (limit, mut refused, mut taken) = (Instant::now() + PATIENCE, 0, 0);
        while taken < 20 {
            assert!(
                Instant::now() < limit,
                "{taken} are taken, {refused} refused"
            );
            driver.turn(Some(limit)).unwrap();
            while let Some(event) = driver.poll_event() {
                if let Event::RedPart {
                    session, service, ..
                } = event
                {
                    let (engine, now) = (driver.engine(), Instant::now());
                    match service {
                        blocks::AGGREGATE => {
                            refused += 1;
                            engine.cancel(now, session);
                        }
                        _ => {
                            taken += 1;
                            engine.accept(now, session);
                        }
                    }
                }
            }
        }
        refused
    });
    assert!(
        receiving.await.unwrap() > 0,
        "there was no block of several"
    );
    node.shutdown().await;
}
