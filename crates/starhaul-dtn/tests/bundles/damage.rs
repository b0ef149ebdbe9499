//! Payloads that are not what their source sent.

use std::{collections::BTreeSet, time::Duration};

use super::kit::{
    LIFETIME, Running, content,
    source::{NODE, Source},
    stop, until,
};
use hardy_bpv7::{
    block::Type, bpsec::no_keys, builder::Builder, bundle::ParsedBundle,
    creation_timestamp::CreationTimestamp, dtn_time::DtnTime,
};
use starhaul_ltp::EngineId;

const PATIENCE: Duration = Duration::from_secs(60);
/// The block with the checksum of a large payload.
const CHECKSUM: u64 = 226;

/// A bundle whose source has told this checksum of its payload.
fn bundle(number: u64, payload: &[u8], told: u32) -> Vec<u8> {
    copy("ipn:2.5", (DtnTime::now(), number), payload, told)
}

/// The same with another destination and creation timestamp, by which it is known.
fn copy(to: &str, (created, number): (DtnTime, u64), payload: &[u8], told: u32) -> Vec<u8> {
    let builder = Builder::new("ipn:1.5".parse().unwrap(), to.parse().unwrap());
    let builder = builder.with_lifetime(LIFETIME);
    let block = builder.add_extension_block(Type::Unrecognised(CHECKSUM));
    let builder = block.unwrap().build(told.to_be_bytes().to_vec().into());
    let builder = builder.with_payload(payload.to_vec().into());
    let stamp = CreationTimestamp::from_parts(Some(created), number);
    builder.build(stamp).unwrap().1.into_vec()
}

/// Two damaged copies of a bundle: with a payload that differs from its checksum, and from the CRC of its block.
fn damaged(to: &str, stamp: (DtnTime, u64), payload: &[u8]) -> [Vec<u8>; 2] {
    let told = crc32c::crc32c(payload);
    let mut changed = payload.to_vec();
    changed[payload.len() / 2] ^= 1;
    let mut torn = copy(to, stamp, payload, told);
    // Behind the payload are a CRC of five bytes and the end of the bundle.
    let last = torn.len() - 7;
    torn[last] ^= 1;
    [copy(to, stamp, &changed, told), torn]
}

/// A source of bundles, and a node that stores what it is sent like this.
async fn joined(storage: &str) -> (Source, Running) {
    let mut source = Source::new();
    let text = format!(
        "node = \"ipn:2.0\"\n[storage]\n{storage}\n[ltp]\nlisten = \"127.0.0.1:0\"\n\
         [[ltp.peer]]\nnode = \"ipn:1.0\"\naddress = \"{}\"\n",
        source.driver.local_addr()
    );
    let running = Running::start(&text).await;
    let address = running.node.handle().ltp_address().unwrap();
    source.driver.set_address(NODE, address);
    (source, running)
}

/// They were changed before the last link, over which they come as they were then.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_payload_that_differs_from_its_checksum_goes_to_no_application() {
    for storage in ["kind = \"memory\"", "sync = false"] {
        let (mut source, running) = joined(storage).await;
        let good = content(200_000, 7);
        let told = crc32c::crc32c(&good);
        for (number, at) in [(1, 0), (2, 1359), (3, 65_536), (4, 199_999)] {
            let mut changed = good.clone();
            changed[at] ^= 1;
            source.send(bundle(number, &changed, told));
        }
        source.send(bundle(5, &good, told));
        let source = source.settled().await;
        let mut client = running.client().await;
        client.open(Some("5")).await.unwrap();
        assert!(client.has_bundle(PATIENCE).await.unwrap(), "{storage}");
        let arrived = client.next_bundle().await.unwrap();
        assert!(arrived.payload == good, "{storage}");
        client.acknowledge(&arrived.id).await.unwrap();
        until(&running, "the others are gone", |status| {
            let counters = &status.counters;
            (status.storage.bundles, counters.received, counters.dropped) == (0, 1, 4)
        })
        .await;
        let has_more = client.has_bundle(Duration::from_millis(200)).await;
        assert!(!has_more.unwrap(), "{storage}");
        drop((client, source));
        stop([running]).await;
    }
}

/// The bundle is whole that comes after them, or before.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_copy_does_not_shut_out_the_bundle_of_its_name() {
    for storage in ["kind = \"memory\"", "sync = false"] {
        let (mut source, running) = joined(storage).await;
        let mut expected = BTreeSet::new();
        // One of 1.1 MB has a file of its own.
        for (length, number) in [20_000, 200_000, 1_100_000].into_iter().zip(1..) {
            let payload = content(length, number);
            for (damage, is_first) in [(0, true), (0, false), (1, true), (1, false)] {
                let number = 10 * number + damage * 2 + u64::from(is_first);
                let stamp = (DtnTime::now(), number);
                let good = copy("ipn:2.5", stamp, &payload, crc32c::crc32c(&payload));
                let [changed, torn] = damaged("ipn:2.5", stamp, &payload);
                let bad = if damage == 0 { changed } else { torn };
                let mut copies = [bad, good];
                if !is_first {
                    copies.reverse();
                }
                for copy in copies {
                    source.send(copy);
                    source = source.settled().await;
                }
            }
            expected.insert(payload);
        }
        let mut client = running.client().await;
        client.open(Some("5")).await.unwrap();
        let mut taken = BTreeSet::new();
        for _ in 0..12 {
            assert!(client.has_bundle(PATIENCE).await.unwrap(), "{storage}");
            let arrived = client.next_bundle().await.unwrap();
            client.acknowledge(&arrived.id).await.unwrap();
            assert!(expected.contains(&arrived.payload), "{storage}");
            assert!(taken.insert(arrived.id), "{storage}: one comes twice");
        }
        until(&running, "all are gone", |status| {
            (status.storage.bundles, status.counters.received) == (0, 12)
        })
        .await;
        let has_more = client.has_bundle(Duration::from_millis(200)).await;
        assert!(!has_more.unwrap(), "{storage}");
        drop((client, source));
        stop([running]).await;
    }
}

/// A node on the way cannot read one of them, and sends the other on.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_cannot_be_read_does_not_shut_out_a_bundle_on_its_way() {
    let (mut source, mut last) = (Source::new(), Source::between(EngineId(3), NODE));
    let [from, to] = [&source, &last].map(|engine| engine.driver.local_addr());
    let text = format!(
        "node = \"ipn:2.0\"\n[storage]\nsync = false\n[ltp]\nlisten = \"127.0.0.1:0\"\n\
         [[ltp.peer]]\nnode = \"ipn:1.0\"\naddress = \"{from}\"\n\
         [[ltp.peer]]\nnode = \"ipn:3.0\"\naddress = \"{to}\"\n"
    );
    let running = Running::start(&text).await;
    let address = running.node.handle().ltp_address().unwrap();
    source.driver.set_address(NODE, address);
    last.driver.set_address(NODE, address);
    let (stamp, payload) = ((DtnTime::now(), 1), content(20_000, 1));
    let good = copy("ipn:3.5", stamp, &payload, crc32c::crc32c(&payload));
    let [_, torn] = damaged("ipn:3.5", stamp, &payload);
    for copy in [torn, good] {
        source.send(copy);
        source = source.settled().await;
    }
    let receiving = tokio::task::spawn_blocking(move || {
        last.receive(1, PATIENCE);
        last
    });
    let last = receiving.await.unwrap();
    let [arrived] = last.received.as_slice() else {
        panic!("{} bundles arrive", last.received.len());
    };
    let parsed = ParsedBundle::parse(arrived, no_keys).unwrap().bundle;
    assert!(parsed.blocks[&1].payload(arrived).unwrap() == payload);
    until(&running, "one is dropped", |status| {
        (status.counters.received, status.counters.dropped) == (1, 1)
    })
    .await;
    drop((source, last));
    stop([running]).await;
}
