//! Two nodes with small stores, each with bundles for the other.

use super::kit::{LIFETIME, Running, over_ltp, stop, tcp, udp};

/// Bundles that a store holds.
const MOST: u8 = 4;

/// Fills a node with bundles for another one.
async fn fill(running: &Running, to: &str) {
    let mut client = running.client().await;
    client.open(None).await.unwrap();
    for number in 0..MOST {
        client.send(to, &[number], LIFETIME).await.unwrap();
    }
}

/// Each node gets all that the other one was filled with, once.
async fn all_arrive(nodes: [&Running; 2]) {
    let mut clients = Vec::new();
    for running in nodes {
        let mut client = running.client().await;
        client.open(Some("5")).await.unwrap();
        clients.push(client);
    }
    for client in &mut clients {
        let mut numbers = Vec::new();
        for _ in 0..MOST {
            assert!(client.has_bundle(LIFETIME).await.unwrap(), "{numbers:?}");
            let bundle = client.next_bundle().await.unwrap();
            numbers.push(bundle.payload[0]);
            client.acknowledge(&bundle.id).await.unwrap();
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..MOST).collect::<Vec<_>>());
    }
}

/// One connection carries both ways: an acknowledgement waits behind a bundle that waits for room.
#[tokio::test(flavor = "multi_thread")]
async fn two_full_nodes_empty_each_other_over_tcp() {
    let address = tcp();
    let text = |number: u32, peer: u32, more: &str| {
        format!(
            "node = \"ipn:{number}.0\"\n[storage]\nsync = false\nmax_bundles = {MOST}\n[tcp]\n{more}\
             [[tcp.peer]]\nnode = \"ipn:{peer}.0\"\n"
        )
    };
    let listens = format!("listen = \"{address}\"\n");
    let first = Running::start(&text(1, 2, &listens)).await;
    // It is filled before it connects.
    let waits = format!("listen = \"{}\"\n", tcp());
    let second = Running::start(&text(2, 1, &waits)).await;
    fill(&first, "ipn:2.5").await;
    fill(&second, "ipn:1.5").await;
    let folder = second.stop().await;
    let connects = text(2, 1, "") + &format!("address = \"{address}\"\n");
    let second = Running::start_in(folder, &connects).await;
    all_arrive([&first, &second]).await;
    stop([first, second]).await;
}

/// Each refuses what it has no room for, and has none until the other one takes something.
#[tokio::test(flavor = "multi_thread")]
async fn two_full_nodes_empty_each_other_over_ltp() {
    let (a, b) = (udp(), udp());
    let small = format!("sync = false\nmax_bundles = {MOST}");
    let text = |text: String| text.replace("sync = false", &small);
    let first = Running::start(&text(over_ltp(1, a, 2, b, ""))).await;
    // It is filled before it can be reached.
    let elsewhere = text(over_ltp(2, udp(), 1, udp(), ""));
    let second = Running::start(&elsewhere).await;
    fill(&first, "ipn:2.5").await;
    fill(&second, "ipn:1.5").await;
    let folder = second.stop().await;
    let second = Running::start_in(folder, &text(over_ltp(2, b, 1, a, ""))).await;
    all_arrive([&first, &second]).await;
    stop([first, second]).await;
}
