//! Bundles that other nodes cut into fragments (RFC 9171 §5.8, §5.9).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::kit::{
    LIFETIME, Running, content,
    source::{NODE, Source},
    stop, until,
};
use hardy_bpv7::{
    builder::Builder,
    bundle::FragmentInfo,
    creation_timestamp::CreationTimestamp,
    dtn_time::DtnTime,
    editor::{Chunk, Editor},
};

/// Bytes `from` on of the payload with this number, of `whole` bytes in all.
fn fragment(number: u64, stamp: DtnTime, from: usize, part: &[u8], whole: u64) -> Vec<u8> {
    let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
    let builder = builder
        .with_lifetime(LIFETIME)
        .with_payload(part.to_vec().into());
    let stamp = CreationTimestamp::from_parts(Some(stamp), number);
    let (bundle, data) = builder.build(stamp).unwrap();
    let info = FragmentInfo {
        offset: from as u64,
        total_adu_length: whole,
    };
    let editor = Editor::new(&bundle, &data).with_fragment_info(Some(info));
    let chunks = editor
        .map_err(|(_, error)| error)
        .unwrap()
        .rebuild()
        .unwrap();
    Chunk::flatten(chunks, &data).into_vec()
}

fn node(source: &Source, more: &str) -> String {
    format!(
        "node = \"ipn:2.0\"\n[storage]\nkind = \"memory\"\n{more}[ltp]\nlisten = \"127.0.0.1:0\"\n\
         [[ltp.peer]]\nnode = \"ipn:1.0\"\naddress = \"{}\"\n",
        source.driver.local_addr()
    )
}

/// Half a second of turns for what leaves and is answered; they go on until what this returns is dropped.
async fn turn(mut source: Source) -> Arc<()> {
    let guard = Arc::new(());
    let guarded = Arc::downgrade(&guard);
    tokio::task::spawn_blocking(move || {
        while guarded.strong_count() > 0 {
            source.receive(1, Duration::from_millis(20));
        }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    guard
}

#[tokio::test(flavor = "multi_thread")]
async fn fragments_that_come_together_are_put_together() {
    const PAYLOADS: u64 = 60;
    let mut source = Source::new();
    let running = Running::start(&node(&source, "")).await;
    let address = running.node.handle().ltp_address().unwrap();
    source.driver.set_address(NODE, address);
    let stamp = DtnTime::now();
    let payload = |number| content(3_000, number);
    for number in 0..PAYLOADS {
        let whole = payload(number);
        for (index, part) in whole.chunks(1_000).enumerate() {
            source.send(fragment(number, stamp, index * 1_000, part, 3_000));
        }
    }
    let turning = turn(source).await;
    let mut client = running.client().await;
    client.open(Some("5")).await.unwrap();
    let mut missing: BTreeSet<Vec<u8>> = (0..PAYLOADS).map(payload).collect();
    while !missing.is_empty() {
        let has_come = client.has_bundle(LIFETIME).await.unwrap();
        assert!(has_come, "{} of {PAYLOADS} do not come", missing.len());
        let bundle = client.next_bundle().await.unwrap();
        assert!(
            missing.remove(&bundle.payload),
            "another payload, or one twice"
        );
        client.acknowledge(&bundle.id).await.unwrap();
    }
    drop(turning);
    stop([running]).await;
}

/// Two nodes on two ways have cut the same bundles up differently, and the parts that come overlap.
#[tokio::test(flavor = "multi_thread")]
async fn fragments_that_overlap_are_put_together() {
    const PAYLOADS: u64 = 20;
    let mut source = Source::new();
    let running = Running::start(&node(&source, "")).await;
    let address = running.node.handle().ltp_address().unwrap();
    source.driver.set_address(NODE, address);
    let stamp = DtnTime::now();
    let payload = |number| content(3_000, number);
    // Neither way brings all.
    let parts: [&[std::ops::Range<usize>]; 4] = [
        &[0..1_000, 1_000..2_000, 1_500..3_000],
        &[0..1_500, 1_000..2_000, 2_000..3_000],
        &[1_000..2_000, 0..3_000, 500..1_500],
        &[0..700, 500..2_900, 2_800..3_000, 0..1_000],
    ];
    for (number, parts) in (0..PAYLOADS).zip(parts.iter().cycle()) {
        let whole = payload(number);
        for part in *parts {
            let bytes = &whole[part.clone()];
            source.send(fragment(number, stamp, part.start, bytes, 3_000));
        }
    }
    let turning = turn(source).await;
    let mut client = running.client().await;
    client.open(Some("5")).await.unwrap();
    let mut missing: BTreeSet<Vec<u8>> = (0..PAYLOADS).map(payload).collect();
    while !missing.is_empty() {
        let has_come = client.has_bundle(LIFETIME).await.unwrap();
        assert!(has_come, "{} of {PAYLOADS} do not come", missing.len());
        let bundle = client.next_bundle().await.unwrap();
        assert!(
            missing.remove(&bundle.payload),
            "another payload, or one twice"
        );
        client.acknowledge(&bundle.id).await.unwrap();
    }
    drop(turning);
    stop([running]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fragments_of_more_than_a_bundle_may_have_are_refused() {
    let mut source = Source::new();
    let limits = "max_bundle_bytes = \"64KiB\"\n";
    let running = Running::start(&node(&source, limits)).await;
    let address = running.node.handle().ltp_address().unwrap();
    source.driver.set_address(NODE, address);
    let part = content(30_000, 1);
    source.send(fragment(1, DtnTime::now(), 0, &part, 1 << 32));
    let turning = turn(source).await;
    until(&running, "it is refused", |status| {
        status.counters.refused > 0
    })
    .await;
    until(&running, "nothing is kept", |status| {
        status.storage.bundles == 0
    })
    .await;
    drop(turning);
    stop([running]).await;
}
