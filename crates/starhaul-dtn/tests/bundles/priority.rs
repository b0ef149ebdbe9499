//! Urgent bundles leave before others that wait for the same neighbour.

use std::time::SystemTime;

use super::kit::{LIFETIME, Running, content, stop, udp, until};
use starhaul_dtn::plan::Moment;

/// Bundles of the backlog, and the bytes of each: 2 MB, which take 16 s.
const BACKLOG: usize = 40;
const BYTES: usize = 50_000;
const RATE: &str = "1mbit";

/// A node over LTP that talks to one other, with the rule that what is for service 9 is urgent.
async fn node(number: u32, peer: u32, at: [std::net::SocketAddr; 2], plan: &str) -> Running {
    let [listen, address] = at;
    Running::start(&format!(
        "node = \"ipn:{number}.0\"\n{plan}[[priority]]\nto = \"ipn:*.9\"\n[storage]\nsync = false\n\
         [ltp]\nlisten = \"{listen}\"\n[[ltp.peer]]\nnode = \"ipn:{peer}.0\"\naddress = \"{address}\"\nrate = \"{RATE}\"\n"
    ))
    .await
}

/// Sends a backlog, and then an urgent bundle; it arrives while most of the backlog has not.
async fn urgent_overtakes(plan: &str) {
    let (a, b) = (udp(), udp());
    let lander = node(1, 2, [a, b], plan).await;
    let station = node(2, 1, [b, a], plan).await;
    let mut urgent = station.client().await;
    urgent.open(Some("9")).await.unwrap();
    let mut client = lander.client().await;
    client.open(None).await.unwrap();
    let bulk = content(BYTES, 1);
    for _ in 0..BACKLOG {
        client.send("ipn:2.5", &bulk, LIFETIME).await.unwrap();
    }
    client.send("ipn:2.9", b"urgent", LIFETIME).await.unwrap();
    assert!(urgent.has_bundle(LIFETIME).await.unwrap(), "it is lost");
    let bundle = urgent.next_bundle().await.unwrap();
    let status = lander.client().await.status().await.unwrap();
    assert_eq!(bundle.payload, b"urgent");
    urgent.acknowledge(&bundle.id).await.unwrap();
    let waits = status.storage.bundles;
    assert!(waits > BACKLOG as u64 / 2, "{waits} of {BACKLOG} wait");
    // The others go on.
    until(&station, "others arrive, too", |status| {
        status.counters.received > BACKLOG as u64 / 4
    })
    .await;
    drop((urgent, client));
    stop([lander, station]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_urgent_bundle_overtakes_a_backlog_that_is_leaving() {
    urgent_overtakes("").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_urgent_bundle_that_waits_for_a_contact_leaves_first() {
    // After both have started and all is stored, on a busy computer too.
    let epoch = Moment::from(SystemTime::now()).plus(std::time::Duration::from_secs(8));
    let plan = format!(
        "epoch = \"{epoch}\"\n[[contact]]\nfrom = \"ipn:1.0\"\nto = \"ipn:2.0\"\nstart = \"+0s\"\nend = \"+60s\"\nrate = \"{RATE}\"\n"
    );
    urgent_overtakes(&plan).await;
}
