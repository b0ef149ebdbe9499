//! Payloads that are not what their source sent.

use std::time::{Duration, Instant};

use super::kit::{
    LIFETIME, Running, content,
    source::{NODE, Source},
    stop, until,
};
use hardy_bpv7::{
    block::Type, builder::Builder, creation_timestamp::CreationTimestamp, dtn_time::DtnTime,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// The block with the checksum of a large payload.
const CHECKSUM: u64 = 226;

/// A bundle whose source has told this checksum of its payload.
fn bundle(number: u64, payload: &[u8], told: u32) -> Vec<u8> {
    let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
    let builder = builder.with_lifetime(LIFETIME);
    let block = builder.add_extension_block(Type::Unrecognised(CHECKSUM));
    let builder = block.unwrap().build(told.to_be_bytes().to_vec().into());
    let builder = builder.with_payload(payload.to_vec().into());
    let stamp = CreationTimestamp::from_parts(Some(DtnTime::now()), number);
    builder.build(stamp).unwrap().1.into_vec()
}

/// They were changed before the last link, over which they come as they were then.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_payload_that_differs_from_its_checksum_goes_to_no_application() {
    for storage in ["kind = \"memory\"", "sync = false"] {
        let mut source = Source::new();
        let text = format!(
            "node = \"ipn:2.0\"\n[storage]\n{storage}\n[ltp]\nlisten = \"127.0.0.1:0\"\n\
             [[ltp.peer]]\nnode = \"ipn:1.0\"\naddress = \"{}\"\n",
            source.driver.local_addr()
        );
        let running = Running::start(&text).await;
        let address = running.node.handle().ltp_address().unwrap();
        source.driver.set_address(NODE, address);
        let good = content(200_000, 7);
        let told = crc32c::crc32c(&good);
        for (number, at) in [(1, 0), (2, 1359), (3, 65_536), (4, 199_999)] {
            let mut changed = good.clone();
            changed[at] ^= 1;
            source.send(bundle(number, &changed, told));
        }
        source.send(bundle(5, &good, told));
        // Until all are stored.
        let sending = tokio::task::spawn_blocking(move || {
            let limit = Instant::now() + PATIENCE;
            while source.driver.engine().sessions().0 > 0 && Instant::now() < limit {
                source.receive(1, Duration::from_millis(10));
            }
            source
        });
        let source = sending.await.unwrap();
        let mut client = running.client().await;
        client.open(Some("5")).await.unwrap();
        assert!(client.has_bundle(PATIENCE).await.unwrap(), "{storage}");
        let arrived = client.next_bundle().await.unwrap();
        assert!(arrived.payload == good, "{storage}");
        client.acknowledge(&arrived.id).await.unwrap();
        until(&running, "the others are gone", |status| {
            (status.storage.bundles, status.counters.received) == (0, 5)
        })
        .await;
        let has_more = client.has_bundle(Duration::from_millis(200)).await;
        assert!(!has_more.unwrap(), "{storage}");
        drop((client, source));
        stop([running]).await;
    }
}
